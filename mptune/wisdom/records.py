"""The contents of a wisdom file, read and written as plain data; nothing in a file is ever run.

A file is one JSON object, described by ``mptune/schemas/wisdom.json``. Its entries are sorted and stand on a line each,
for comparison and version control: equal wisdom is written as the same bytes.
"""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from mptune.errors import WisdomError, did_you_mean
from mptune.paths import open_regular, write_whole
from mptune.results.speedup import TIE
from mptune.results.trial import Reading
from mptune.space.arguments import Between
from mptune.space.configuration import Configuration, Value
from mptune.store.info import parse_json, plain, read_fields, types_of

FORMAT_VERSION: Final = 1
#: The member that marks a wisdom file; its value is the version.
_MARK: Final = "mptune_wisdom"
_LARGEST_BYTES: Final = 16 << 20
#: The members of a file that are called differently here.
_MEMBERS: Final = {"worst": "errors", "mptune_version": "mptune", "is_best": "best", "is_baseline": "baseline"}
#: The fields that are written by the records themselves.
_WRITTEN_APART: Final = {"worst", "configuration", "configurations", "errors", "signatures", "tuned"}

_Record = TypeVar("_Record")
_Time = Annotated[float, Between(1e-30, 1e30)]
_Error = Annotated[Reading, Between(0.0, math.inf)]


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors that were measured at one size."""

    #: the largest by the name of the metric (``error``, ``error.y``); infinite if a result was not finite
    worst: Mapping[str, _Error]
    draws: Annotated[int, Between(1, 10**9)] = 1  #: number of inputs
    mean: _Error | None = None  #: mean of ``error``; None if not known
    #: by size, the rounding of the inputs relative to neighbouring sizes, where it is less
    rounded: Mapping[str, Annotated[float, Between(0, 1)]] = field(default_factory=dict)

    @property
    def extent(self) -> tuple[int, int, str]:
        """The number of metrics and draws, to order what is known of the same errors."""
        return len(self.worst), self.draws, json.dumps(sorted(self.worst.items()))

    def to_json(self) -> dict[str, Any]:
        """Return the members of an entry."""
        errors = {name: error if math.isfinite(error) else None for name, error in sorted(self.worst.items())}
        return {**_members(self), "errors": errors}


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

    def to_json(self) -> dict[str, Any]:
        """Return the entry of a file."""
        return {"configuration": dict(self.configuration), **_members(self), **self.errors.to_json()}


@dataclass(frozen=True, slots=True)
class AtSize:
    """Results of one run at its sizes."""

    sizes: Mapping[str, Annotated[int, Between(1, 2**53)]]  #: problem sizes by name
    #: error limits of the run by the names of the metrics; empty if it had none
    threshold: Mapping[str, Annotated[float, Between(5e-324, sys.float_info.max)]]
    mptune_version: str  #: version of mptune that made the run
    configurations: tuple[Timed, ...]  #: the configurations worth keeping, the fastest first
    signatures: Mapping[tuple[Value, ...], Errors]  #: errors by accuracy signature
    made: str = ""  #: start and seed of the run, which identify it; empty if not known
    #: number of inputs of all its trials so far; the record with more is the later one
    draws: Annotated[int, Between(0, 10**9)] = 0
    form: Mapping[str, int] = field(default_factory=dict)  #: form of the problem, by name
    masked: tuple[str, ...] = ()  #: outputs whose reference has NaN, which may have NaN as well

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
        signatures = sorted((*self.signatures.items(), *other.signatures.items()), key=lambda each: each[1].extent)
        configurations = {each.configuration: each for each in timed}
        return dataclasses.replace(
            self,
            configurations=tuple(sorted(configurations.values(), key=fastest_first)),
            signatures=dict(signatures),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the entry of a file."""
        signatures = sorted(self.signatures.items(), key=lambda entry: json.dumps(entry[0]))
        return {
            **_members(self),
            "configurations": [timed.to_json() for timed in sorted(self.configurations, key=fastest_first)],
            "signatures": [{"values": list(values), **errors.to_json()} for values, errors in signatures],
        }


def fastest_first(timed: Timed) -> tuple[float, str]:
    """Return the key by which the configurations of one size are sorted."""
    return timed.time_ms, timed.configuration.to_json()


@dataclass(frozen=True, slots=True)
class KernelWisdom:
    """Wisdom of one kernel on one device."""

    kernel: str  #: name of the kernel
    file: str  #: its definition file, the last two parts of the path; empty for a kernel made in Python
    backend: str  #: name of the backend
    device: str  #: name of the device
    architecture: str  #: target of the compiler
    metric: str  #: error metric of ``error``
    metrics: Mapping[str, str]  #: further error metrics by the names of thresholds
    definition_hash: str  #: SHA-256 of the definition file
    template_hash: str  #: SHA-256 of the template
    signature: tuple[str, ...]  #: names of the parameters that can change the numbers
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

    def to_json(self) -> dict[str, Any]:
        """Return the entry of a file."""

        def by_size(entry: Mapping[str, Any]) -> tuple[Any, ...]:
            return tuple(entry["sizes"].items()), *map(json.dumps, (entry.get("form", {}), entry["threshold"], entry))

        return {**_members(self), "tuned": sorted((each.to_json() for each in self.tuned), key=by_size)}


@dataclass(frozen=True, slots=True)
class Wisdom:
    """The configurations for each kernel, device, size and error limit, with the evidence."""

    kernels: tuple[KernelWisdom, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        kernels = [each.to_json() for each in sorted(self.kernels, key=lambda each: each.what)]
        return {_MARK: FORMAT_VERSION, "kernels": kernels}

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
                "upgrade mptune to read it"
            )
        found = tuple(_kernel(*place) for place in _entries(document, "kernels", str(path)))
        if len({each.what for each in found}) < len(found):
            raise WisdomError(f"{path}: two entries of one kernel, device, metric and compiler flags")
        return cls(found)


def is_wisdom(path: str | Path) -> bool:
    """Whether a file is wisdom, of any version."""
    try:
        if not Path(path).is_file():  # reading a pipe may block forever
            return False
        with Path(path).open("rb") as file:
            return f'"{_MARK}"'.encode() in file.read(256)
    except OSError:
        return False


def _members(record: Any) -> dict[str, Any]:
    """Return the members of an entry, without further records and without empty fields that may be missing."""
    found = {}
    for each in fields(record):
        value = getattr(record, each.name)
        is_optional = each.default is not MISSING or each.default_factory is not MISSING
        if each.name in _WRITTEN_APART or (is_optional and (value is False or value in (None, "", (), {}))):
            continue
        value = dict(sorted(value.items())) if isinstance(value, Mapping) else value
        found[_MEMBERS.get(each.name, each.name)] = plain(value)
    return found


def _text(value: Any, indent: str = "") -> str:
    """Return JSON in which every object that holds no list of objects is one line."""
    inner = f"{indent}  "
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return "[\n" + ",\n".join(inner + _text(entry, inner) for entry in value) + f"\n{indent}]"
    if isinstance(value, Mapping) and {"kernels", "tuned", "configurations"} & value.keys():
        members = (f"{inner}{json.dumps(name)}: {_text(each, inner)}" for name, each in value.items())
        return "{\n" + ",\n".join(members) + f"\n{indent}}}"
    return json.dumps(value, allow_nan=False)


# -- reading -------------------------------------------------------------------------------------


def _read(cls: type[_Record], document: Mapping[str, Any], where: str, **records: Any) -> _Record:
    """Return the record of an entry, whose own records are read already."""
    record: Any = cls
    own = {_MEMBERS.get(each.name, each.name): each for each in fields(record) if each.name not in records}
    required = [name for name, each in own.items() if each.default is MISSING and each.default_factory is MISSING]
    kinds = {name: types_of(record)[each.name] for name, each in own.items()}
    found = read_fields(kinds, document, where, WisdomError, required)
    return cls(**{own[name].name: value for name, value in found.items()}, **records)


def _entries(document: Mapping[str, Any], name: str, where: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the objects of a list with their places."""
    kinds = {name: tuple[Mapping[str, Any], ...]}
    entries = read_fields(kinds, document, where, WisdomError, [name])[name]
    return ((entry, f"{where}: {name}[{number}]") for number, entry in enumerate(entries))


def _kernel(document: Mapping[str, Any], where: str) -> KernelWisdom:
    kernel = _read(KernelWisdom, document, where, tuned=())
    tuned = tuple(_at_size(*place, kernel.signature) for place in _entries(document, "tuned", where))
    if len({frozenset(each.sizes) for each in tuned}) > 1:
        raise WisdomError(f"{where}: the entries of 'tuned' have sizes of different names")
    return dataclasses.replace(kernel, tuned=tuned)


def _at_size(document: Mapping[str, Any], where: str, signature: tuple[str, ...]) -> AtSize:
    signatures = {}
    for entry, place in _entries(document, "signatures", where):
        values = read_fields({"values": tuple[Value, ...]}, entry, place, WisdomError, ["values"])["values"]
        if len(values) != len(signature):
            raise WisdomError(f"{place}: its field 'values' should have one value for each of {', '.join(signature)}")
        signatures[values] = _errors(entry, place)
    timed = []
    for entry, place in _entries(document, "configurations", where):
        timed.append(_read(Timed, entry, place, errors=_errors(entry, place)))
        if missing := [name for name in signature if name not in timed[-1].configuration]:
            raise WisdomError(f"{place}: its configuration has no value of {missing[0]}")
        if timed[-1].interval is not None and len(timed[-1].interval) != 2:
            raise WisdomError(f"{place}: its field 'interval' should be two numbers")
    found = _read(AtSize, document, where, configurations=tuple(timed), signatures=signatures)
    if not found.sizes:
        raise WisdomError(f"{where}: no size")
    return found


def _errors(document: Mapping[str, Any], where: str) -> Errors:
    worst = document.get("errors")
    if isinstance(worst, Mapping):
        document = {**document, "errors": {name: math.inf if each is None else each for name, each in worst.items()}}
    return _read(Errors, document, where)
