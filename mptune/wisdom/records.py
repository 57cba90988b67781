"""The contents of a wisdom file, read and written as plain data; nothing in a file is ever run.

A file is one JSON object, described by ``mptune/schemas/wisdom.json``: the records here, without empty fields. Entries
are sorted and stand on a line each, for comparison and version control: equal wisdom is written as the same bytes.
"""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from mptune.errors import WisdomError, did_you_mean
from mptune.paths import open_regular, write_whole
from mptune.results.speedup import TIE
from mptune.results.trial import Reading
from mptune.space.arguments import Between
from mptune.space.configuration import Configuration, Value
from mptune.store.info import parse_json, plain, read_fields

FORMAT_VERSION: Final = 2
#: The member that marks a wisdom file; its value is the version.
_MARK: Final = "mptune_wisdom"
_LARGEST_BYTES: Final = 16 << 20
_Time = Annotated[float, Between(1e-30, 1e30)]
_Error = Annotated[Reading, Between(0.0, math.inf)]


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors that were measured at one size."""

    #: the largest by the name of the metric (``error``, ``error.y``); None if a result was not finite
    largest: Mapping[str, _Error | None]
    draws: Annotated[int, Between(1, 10**9)] = 1  #: number of inputs
    mean: _Error | None = None  #: mean of ``error``; None if not known
    #: by size, the rounding of the inputs relative to neighbouring sizes, where it is less
    rounded: Mapping[str, Annotated[float, Between(0, 1)]] = field(default_factory=dict)

    @property
    def worst(self) -> dict[str, float]:
        """The largest errors by the name of the metric; infinite if a result was not finite."""
        return {name: math.inf if error is None else error for name, error in self.largest.items()}

    @property
    def extent(self) -> tuple[int, int, str]:
        """The number of metrics and draws, to order what is known of the same errors."""
        return len(self.worst), self.draws, json.dumps(sorted(self.worst.items()))


@dataclass(frozen=True, slots=True)
class Timed:
    """A configuration that was measured at one size."""

    configuration: Configuration
    time_ms: _Time  #: its time
    errors: Errors
    speedup: _Time | None = None  #: speedup over the baseline; None if there is no baseline
    interval: tuple[_Time, ...] | None = None  #: 95% confidence interval of the speedup, if known
    unseen: Annotated[int, Between(0, 10**9)] = 0  #: number of unseen inputs that it was verified on
    is_best: bool = False  #: whether it won its run
    is_baseline: bool = False  #: whether it was the baseline

    @property
    def is_faster(self) -> bool:
        """Whether it is surely faster than the baseline, or nothing is known against it."""
        if self.is_best or self.speedup is None:
            return True
        return self.interval[0] > 1 if self.interval is not None else self.speedup > 1 + TIE


@dataclass(frozen=True, slots=True)
class SignatureErrors:
    """Errors of an accuracy signature at one size."""

    errors: Errors
    values: tuple[Value, ...] = ()  #: the accuracy signature


@dataclass(frozen=True, slots=True)
class AtSize:
    """Results of one run at its sizes."""

    sizes: Mapping[str, Annotated[int, Between(1, 2**53)]]  #: problem sizes by name
    #: error limits of the run by the names of the metrics; empty if it had none
    threshold: Mapping[str, Annotated[float, Between(5e-324, sys.float_info.max)]] = field(default_factory=dict)
    mptune_version: str = ""  #: version of mptune that made the run
    configurations: tuple[Timed, ...] = ()  #: the configurations worth keeping, the fastest first
    signatures: tuple[SignatureErrors, ...] = ()  #: errors by accuracy signature, in order
    made: str = ""  #: start and seed of the run, which identify it; empty if not known
    #: number of inputs of all its trials so far; the record with more is the later one
    draws: Annotated[int, Between(0, 10**9)] = 0
    form: Mapping[str, int] = field(default_factory=dict)  #: form of the problem, by name
    masked: tuple[str, ...] = ()  #: outputs whose reference has NaN, which may have NaN as well

    @property
    def by_signature(self) -> dict[tuple[Value, ...], Errors]:
        """Errors by accuracy signature."""
        return {each.values: each.errors for each in self.signatures}

    @property
    def place(self) -> dict[str, int]:
        """Sizes and form by name."""
        return {**self.sizes, **self.form}

    @property
    def best(self) -> Timed | None:
        """The winner of the run."""
        return next((timed for timed in self.configurations if timed.is_best), None)

    @property
    def baseline(self) -> Timed | None:
        """The baseline of the run."""
        return next((timed for timed in self.configurations if timed.is_baseline), None)

    def time_span(self, timed: Timed) -> tuple[float, float, float]:
        """Return a time in ms relative to that of the baseline, and its confidence interval (or that of a tie)."""
        if self.baseline is None or not timed.speedup:
            return timed.time_ms, timed.time_ms, timed.time_ms * (1 + TIE)
        time = self.baseline.time_ms / timed.speedup
        if timed.interval is None:
            return time, time, time * (1 + TIE)
        slowest, fastest = timed.interval
        return time, self.baseline.time_ms / fastest, self.baseline.time_ms / slowest

    @property
    def run(self) -> str:
        """The identity of the run. Another file may hold a later record of the same run."""
        kept = (timed for timed in self.configurations if timed.is_best or timed.is_baseline)
        known = sorted((timed.configuration.to_json(), timed.time_ms, timed.is_best) for timed in kept)
        identity = [self.made] if self.made else [self.mptune_version, known]
        return json.dumps([sorted(self.place.items()), sorted(self.threshold.items()), *identity])

    def joined(self, other: AtSize) -> AtSize:
        """Return the later of two records of a run; of records of the same time, what both hold."""
        if self.draws != other.draws:
            return max(self, other, key=lambda each: each.draws)
        # The entry with more errors replaces the other, in either order of the records.
        timed = sorted((*self.configurations, *other.configurations), key=lambda each: each.errors.extent)
        signatures = sorted((*self.signatures, *other.signatures), key=lambda each: each.errors.extent)
        configurations = {each.configuration: each for each in timed}
        return dataclasses.replace(
            self,
            configurations=tuple(sorted(configurations.values(), key=fastest_first)),
            signatures=in_order({each.values: each.errors for each in signatures}),
        )


def fastest_first(timed: Timed) -> tuple[float, str]:
    """Return the key by which the configurations of one size are sorted."""
    return timed.time_ms, timed.configuration.to_json()


def in_order(errors: Mapping[tuple[Value, ...], Errors]) -> tuple[SignatureErrors, ...]:
    """Return the errors of signatures in the order of a file."""
    ordered = sorted(errors.items(), key=lambda entry: json.dumps(entry[0]))
    return tuple(SignatureErrors(each, values) for values, each in ordered)


@dataclass(frozen=True, slots=True)
class KernelWisdom:
    """Wisdom of one kernel on one device."""

    kernel: str  #: name of the kernel
    backend: str  #: name of the backend
    device: str  #: name of the device
    file: str = ""  #: its definition file, the last two parts of the path; empty for a kernel made in Python
    architecture: str = ""  #: target of the compiler
    metric: str = ""  #: error metric of ``error``
    metrics: Mapping[str, str] = field(default_factory=dict)  #: further error metrics by the names of thresholds
    definition_hash: str = ""  #: SHA-256 of the definition file
    template_hash: str = ""  #: SHA-256 of the template
    signature: tuple[str, ...] = ()  #: names of the parameters that can change the numbers
    flags: tuple[str, ...] = ()  #: the user's compiler flags, the same for all of it
    tuned: tuple[AtSize, ...] = ()  #: results at each size

    @property
    def what(self) -> tuple[str, ...]:
        """Kernel, device, metrics and flags, which entries that belong together share."""
        metrics = json.dumps(sorted(self.metrics.items()))
        return self.kernel, self.backend, self.device, self.architecture, self.metric, metrics, *self.flags

    @property
    def is_of_application(self) -> bool:
        """Whether several kernels were tuned as one: their own parameters are called ``KERNEL.PARAMETER``."""
        timed = (each for record in self.tuned for each in record.configurations)
        return any("." in name for each in timed for name in each.configuration)

    @property
    def where(self) -> str:
        """The device with its backend and architecture."""
        return f"{self.device} ({self.backend}, {self.architecture})"

    def signature_of(self, configuration: Mapping[str, Value]) -> tuple[Value, ...]:
        """Return the values of a configuration that can change the numbers."""
        return tuple(configuration[name] for name in self.signature)


@dataclass(frozen=True, slots=True)
class Wisdom:
    """The configurations for each kernel, device, size and error limit, with the evidence."""

    kernels: tuple[KernelWisdom, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        return {_MARK: FORMAT_VERSION, "kernels": plain(self.kernels, is_sparse=True)}

    def text(self) -> str:
        """Return the text of the file: an object without a list of entries is one line."""
        return _text(self.to_json()) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the file; an existing file is replaced if it is wisdom.

        Raises:
            WisdomError: the file cannot be written, or another file has that name.
        """
        path = Path(path)
        try:
            if path.exists() and path.stat().st_size and not is_wisdom(path):
                raise WisdomError(f"{path} is there already and is no wisdom file: give another name")
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, self.text().encode())
        except OSError as error:
            raise WisdomError(f"cannot write {path}: {error.strerror or error}") from error

    @classmethod
    def load(cls, path: str | Path) -> Wisdom:
        """Read a file.

        Raises:
            WisdomError: the file cannot be read, or is no wisdom of this version.
        """
        path = Path(path)
        try:
            with open_regular(path) as file:
                data = file.read(_LARGEST_BYTES + 1)
        except FileNotFoundError:
            names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
            raise WisdomError(f"no file {path}{did_you_mean(path.name, names, path.parent)}") from None
        except OSError as error:
            raise WisdomError(f"cannot read {path}: {error.strerror or error}") from error
        if len(data) > _LARGEST_BYTES:
            raise WisdomError(f"{path}: more than {_LARGEST_BYTES >> 20} MiB; no wisdom is as large as that")
        try:
            document = parse_json(data.decode("utf-8-sig"))
        except ValueError as error:
            raise WisdomError(f"{path}: not valid JSON: {error}") from error
        if not isinstance(document, Mapping) or _MARK not in document:
            raise WisdomError(f"{path}: not a wisdom file; mptune wisdom RUN.db... -o NAME.wisdom.json writes one")
        version = document[_MARK]
        if type(version) is not int or version != FORMAT_VERSION:
            raise WisdomError(
                f"{path}: wisdom of version {reprlib.repr(version)}, and this mptune reads {FORMAT_VERSION}: "
                "gather it again from its runs, or upgrade mptune"
            )
        kinds = {"kernels": tuple[KernelWisdom, ...]}
        found = cls(**read_fields(kinds, document, str(path), WisdomError))
        if wrong := _fault(found):
            raise WisdomError(f"{path}: {wrong}")
        return found


def is_wisdom(path: str | Path) -> bool:
    """Whether a file is wisdom, of any version."""
    try:
        if not Path(path).is_file():  # reading a pipe may block forever
            return False
        with Path(path).open("rb") as file:
            return f'"{_MARK}"'.encode() in file.read(256)
    except OSError:
        return False


def _fault(wisdom: Wisdom) -> str:
    """Return what is wrong in wisdom beyond the types of its fields; empty if nothing is."""
    if len({each.what for each in wisdom.kernels}) < len(wisdom.kernels):
        return "two entries of one kernel, device, metric and compiler flags"
    for kernel in wisdom.kernels:
        names, length = ", ".join(kernel.signature), len(kernel.signature)
        if len({frozenset(each.sizes) for each in kernel.tuned}) > 1:
            return f"the entries of kernel {kernel.kernel} have sizes of different names"
        for record in kernel.tuned:
            place = f"kernel {kernel.kernel} at {record.place}"
            if not record.sizes:
                return f"{place}: no size"
            if any(len(each.values) != length for each in record.signatures):
                return f"{place}: a signature should have one value for each of {names}"
            for timed in record.configurations:
                if missing := [name for name in kernel.signature if name not in timed.configuration]:
                    return f"{place}: a configuration has no value of {missing[0]}"
                if timed.interval is not None and len(timed.interval) != 2:
                    return f"{place}: an interval should be two numbers"
    return ""


def _text(value: Any, indent: str = "") -> str:
    """Return JSON in which every object that holds no list of objects is one line."""
    inner = f"{indent}  "
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return "[\n" + ",\n".join(inner + _text(entry, inner) for entry in value) + f"\n{indent}]"
    if isinstance(value, Mapping) and {"kernels", "tuned", "configurations"} & value.keys():
        members = (f"{inner}{json.dumps(name)}: {_text(each, inner)}" for name, each in value.items())
        return "{\n" + ",\n".join(members) + f"\n{indent}}}"
    return json.dumps(value, allow_nan=False)
