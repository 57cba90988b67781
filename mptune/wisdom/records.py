"""What a wisdom file holds, read and written: plain data, of which nothing is ever run.

A file is one JSON object. Its entries are sorted and stand on a line each, so that files can be compared and put under
version control; what is equal is written as the same bytes. ``mptune/schemas/wisdom.json`` describes it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from mptune.errors import WisdomError, did_you_mean
from mptune.paths import write_whole
from mptune.results.speedup import TIE
from mptune.space.arguments import Between
from mptune.space.configuration import Configuration, Value
from mptune.store.info import Reading, read_fields

FORMAT_VERSION: Final = 1
#: By this member a file is recognised; its value is the version.
_MARK: Final = "mptune_wisdom"
_LARGEST_BYTES: Final = 16 << 20
#: Between these are all times, in ms, and their ratios.
_LEAST: Final = 1e-30
_MOST: Final = 1e30
_LARGEST_SIZE: Final = 2**53
#: More inputs than anyone draws; of many more, what the worst of them says could not be computed.
_MOST_DRAWS: Final = 10**9


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors that were measured at one size.

    Attributes:
        worst: the largest by the name of the metric (``error``, ``error.y``); infinite where a result was not finite.
        draws: of how many inputs they are the largest.
        mean: the mean of ``error``; None if it is not known.
        rounded: by size, how much the inputs are rounded beside those at sizes next to it, where that is less.
    """

    worst: Mapping[str, float]
    draws: int = 1
    mean: float | None = None
    rounded: Mapping[str, float] = field(default_factory=dict)

    @property
    def extent(self) -> tuple[int, int, str]:
        """How much is known, to be compared with other errors of the same."""
        return len(self.worst), self.draws, json.dumps(sorted(self.worst.items()))

    def to_json(self) -> dict[str, Any]:
        """Return the members of an entry that say it."""
        errors = {name: worst if math.isfinite(worst) else None for name, worst in sorted(self.worst.items())}
        rounded = dict(sorted(self.rounded.items())) or None
        return {"errors": errors, "draws": self.draws, **_known(mean=self.mean, rounded=rounded)}


@dataclass(frozen=True, slots=True)
class Timed:
    """A configuration that was measured at one size.

    Attributes:
        configuration: its values.
        time_ms: what it took.
        speedup: over the baseline there; None where there is none.
        interval: the 95% interval of that, if it is known.
        errors: its own.
        unseen: on how many unseen inputs it was verified.
        is_best: whether it was the winner of its run.
        is_baseline: whether it was the baseline.
    """

    configuration: Configuration
    time_ms: float
    errors: Errors
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    unseen: int = 0
    is_best: bool = False
    is_baseline: bool = False

    @property
    def is_faster(self) -> bool:
        """Whether it is surely faster than the baseline, or nothing says that it is not."""
        if self.is_best or self.speedup is None:
            return True
        return self.interval[0] > 1 if self.interval is not None else self.speedup > 1 + TIE

    def to_json(self) -> dict[str, Any]:
        """Return the entry of a file."""
        return {
            "configuration": dict(self.configuration),
            **_known(best=self.is_best or None, baseline=self.is_baseline or None),
            "time_ms": self.time_ms,
            **_known(speedup=self.speedup, interval=None if self.interval is None else list(self.interval)),
            **self.errors.to_json(),
            "unseen": self.unseen,
        }


@dataclass(frozen=True, slots=True)
class AtSize:
    """What one run found at its sizes.

    Attributes:
        sizes: those, by name.
        threshold: the error limits of the run by the names of the metrics; empty if it had none.
        mptune_version: the mptune that made the run.
        configurations: what is worth knowing of the configurations, the fastest first.
        signatures: errors by accuracy signature.
        made: when the run began and with which seed, which tells it from others; empty where that is not known.
        draws: on how many inputs its trials were measured by then, all together: the more, the later.
        form: which form of the problem it is of, by name; what is known of one says nothing of another.
        masked: outputs whose reference has NaN, which may have it as well.
    """

    sizes: Mapping[str, int]
    threshold: Mapping[str, float]
    mptune_version: str
    configurations: tuple[Timed, ...]
    signatures: Mapping[tuple[Value, ...], Errors]
    made: str = ""
    draws: int = 0
    form: Mapping[str, int] = field(default_factory=dict)
    masked: tuple[str, ...] = ()

    @property
    def place(self) -> dict[str, int]:
        """Its sizes and its form, by name."""
        return {**self.sizes, **self.form}

    @property
    def best(self) -> Timed | None:
        """The winner of the run."""
        return next((timed for timed in self.configurations if timed.is_best), None)

    @property
    def baseline(self) -> Timed | None:
        """The baseline of the run."""
        return next((timed for timed in self.configurations if timed.is_baseline), None)

    def relative_time(self, timed: Timed) -> float:
        """Return what a configuration took, by the clock of the baseline where both were timed side by side."""
        known = self.baseline
        return timed.time_ms if known is None or not timed.speedup else known.time_ms / timed.speedup

    def time_span(self, timed: Timed) -> tuple[float, float]:
        """Return between which times that is: as far as its speedup is known, or up to what is a tie."""
        time = self.relative_time(timed)
        if timed.interval is None or timed.speedup is None:
            return time, time * (1 + TIE)
        slowest, fastest = timed.interval
        return time * timed.speedup / fastest, time * timed.speedup / slowest

    @property
    def run(self) -> str:
        """What tells the run from others: another file may have kept more of the same one, or know it later."""
        known = sorted(self.place.items()), sorted(self.threshold.items())
        if self.made:
            return json.dumps([*known, self.made])
        of_run = [
            (timed.configuration.to_json(), timed.time_ms, timed.is_best)
            for timed in self.configurations
            if timed.is_best or timed.is_baseline
        ]
        return json.dumps([*known, self.mptune_version, sorted(of_run)])

    def joined(self, other: AtSize) -> AtSize:
        """Return what two files kept of the same run; of one that has gone on since, what the later one says."""
        if self.draws != other.draws:
            return max(self, other, key=lambda each: each.draws)
        # The one that knows more errors last, whichever of the two it is from.
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
            "sizes": dict(sorted(self.sizes.items())),
            **_known(form=dict(sorted(self.form.items())) or None, masked=list(self.masked) or None),
            "threshold": dict(sorted(self.threshold.items())),
            "mptune": self.mptune_version,
            **({"made": self.made, "draws": self.draws} if self.made else {}),
            "configurations": [t.to_json() for t in sorted(self.configurations, key=fastest_first)],
            "signatures": [{"values": list(values), **errors.to_json()} for values, errors in signatures],
        }


def fastest_first(timed: Timed) -> tuple[float, str]:
    """Return what the configurations of one size are sorted by."""
    return timed.time_ms, timed.configuration.to_json()


@dataclass(frozen=True, slots=True)
class KernelWisdom:
    """What is known of one kernel on one device.

    Attributes:
        kernel: its name.
        file: its definition file, the last two parts of the path; empty for one made in Python.
        backend: the backend's name.
        device: the device's name.
        architecture: what was compiled for.
        metric: what ``error`` is measured by.
        metrics: where there are further metrics, what each is measured by, by the names of thresholds.
        definition_hash: SHA-256 of the definition file.
        template_hash: SHA-256 of the template.
        signature: names of the parameters that can change the numbers.
        flags: compiler flags of the user's, with which all of it was measured.
        tuned: what was found at each size.
    """

    kernel: str
    file: str
    backend: str
    device: str
    architecture: str
    metric: str
    metrics: Mapping[str, str]
    definition_hash: str
    template_hash: str
    signature: tuple[str, ...]
    flags: tuple[str, ...] = ()
    tuned: tuple[AtSize, ...] = field(default=())

    @property
    def what(self) -> tuple[str, ...]:
        """What entries are of that belong together."""
        metrics = json.dumps(sorted(self.metrics.items()))
        return self.kernel, self.backend, self.device, self.architecture, self.metric, metrics, *self.flags

    @property
    def is_of_application(self) -> bool:
        """Whether several kernels were tuned as one: their own parameters are called ``KERNEL.PARAMETER``."""
        timed = (each for record in self.tuned for each in record.configurations)
        return any("." in name for each in timed for name in each.configuration)

    @property
    def where(self) -> str:
        """The device in words."""
        return f"{self.device} ({self.backend}, {self.architecture})"

    def signature_of(self, configuration: Mapping[str, Value]) -> tuple[Value, ...]:
        """Return the values that can change the numbers of a configuration."""
        return tuple(configuration[name] for name in self.signature)

    def to_json(self) -> dict[str, Any]:
        """Return the entry of a file."""
        return {
            **{name: getattr(self, name) for name in _HEAD},
            "metrics": dict(sorted(self.metrics.items())),
            "signature": list(self.signature),
            **_known(flags=list(self.flags) or None),
            "tuned": sorted((each.to_json() for each in self.tuned), key=_by_size),
        }


#: The members of an entry that are texts.
_HEAD: Final = ("kernel", "file", "backend", "device", "architecture", "metric", "definition_hash", "template_hash")


def _known(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _by_size(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    texts = (json.dumps(part) for part in (entry.get("form", {}), entry["threshold"], entry))
    return tuple(entry["sizes"].items()), *texts


@dataclass(frozen=True, slots=True)
class Wisdom:
    """Which configurations are for which kernel, device, sizes and budget, with the evidence."""

    kernels: tuple[KernelWisdom, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        return {
            _MARK: FORMAT_VERSION,
            "kernels": [each.to_json() for each in sorted(self.kernels, key=lambda each: each.what)],
        }

    def text(self) -> str:
        """Return the text of the file: what holds no list of entries is one line."""
        return _text(self.to_json()) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the file; one that was there is replaced if it is wisdom."""
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
        """Read a file."""
        path = Path(path)
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise WisdomError(f"cannot read {path}: it is not a regular file")
        try:
            data = path.read_bytes() if path.stat().st_size <= _LARGEST_BYTES else None
        except FileNotFoundError:
            names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
            raise WisdomError(f"no file {path}{did_you_mean(path.name, names, path.parent)}") from None
        except OSError as error:
            raise WisdomError(f"cannot read {path}: {error.strerror or error}") from error
        if data is None:
            raise WisdomError(f"{path}: more than {_LARGEST_BYTES >> 20} MiB; no wisdom is as large as that")
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise WisdomError(f"{path}: not valid JSON: {what}") from error
        return _wisdom(path, document)


def is_wisdom(path: str | Path) -> bool:
    """Whether a file says that it is wisdom, of whatever version."""
    try:
        if not Path(path).is_file():  # of a pipe nothing may ever come
            return False
        with Path(path).open("rb") as file:
            return f'"{_MARK}"'.encode() in file.read(256)
    except OSError:
        return False


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

_Objects = tuple[Mapping[str, Any], ...]
_Time = Annotated[float, Between(_LEAST, _MOST)]
_Error = Annotated[Reading, Between(0.0, sys.float_info.max)]
_Count = Annotated[int, Between(0, _MOST_DRAWS)]
_ERRORS: Final[Mapping[str, Any]] = {
    "errors": Mapping[str, _Error | None],
    "draws": Annotated[int, Between(1, _MOST_DRAWS)],
    "mean": _Error,
    "rounded": Mapping[str, Annotated[float, Between(0, 1)]],
}
_TIMED: Final[Mapping[str, Any]] = {
    "configuration": Configuration,
    "time_ms": _Time,
    "speedup": _Time,
    "interval": tuple[_Time, ...],
    "unseen": _Count,
    "best": bool,
    "baseline": bool,
    **_ERRORS,
}
_SIGNATURE: Final[Mapping[str, Any]] = {"values": tuple[Value, ...], **_ERRORS}
_AT_SIZE: Final[Mapping[str, Any]] = {
    "sizes": Mapping[str, Annotated[int, Between(1, _LARGEST_SIZE)]],
    "threshold": Mapping[str, Annotated[Reading, Between(5e-324, sys.float_info.max)]],
    "mptune": str,
    "configurations": _Objects,
    "signatures": _Objects,
    "made": str,
    "draws": _Count,
    "form": Mapping[str, int],
    "masked": tuple[str, ...],
}
_KERNEL: Final[Mapping[str, Any]] = {
    **dict.fromkeys(_HEAD, str),
    "metrics": Mapping[str, str],
    "signature": tuple[str, ...],
    "flags": tuple[str, ...],
    "tuned": _Objects,
}
#: The members that may be missing.
_OPTIONAL: Final = {
    "mean", "rounded", "speedup", "interval", "unseen", "best", "baseline", "made", "form", "masked", "flags",
}  # fmt: skip


def _fields(kinds: Mapping[str, Any], document: Mapping[str, Any], where: str, *optional: str) -> dict[str, Any]:
    return read_fields(kinds, document, where, WisdomError, kinds.keys() - _OPTIONAL - {*optional})


def _places(fields: Mapping[str, Any], name: str, where: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the objects of a list with what messages call each."""
    return ((entry, f"{where}: {name}[{number}]") for number, entry in enumerate(fields[name]))


def _wisdom(path: Path, document: Any) -> Wisdom:
    if not isinstance(document, Mapping) or _MARK not in document:
        raise WisdomError(f"{path}: not a wisdom file; mptune wisdom RUN.db... -o NAME.wisdom.json writes one")
    version = document[_MARK]
    if type(version) is not int or version != FORMAT_VERSION:
        raise WisdomError(
            f"{path}: wisdom of version {reprlib.repr(version)}, and this mptune reads {FORMAT_VERSION}: "
            "upgrade mptune to read it"
        )
    fields = _fields({"kernels": _Objects}, document, str(path))
    found = tuple(_kernel(*place) for place in _places(fields, "kernels", str(path)))
    if len({each.what for each in found}) < len(found):
        raise WisdomError(f"{path}: two entries of one kernel, device, metric and compiler flags")
    return Wisdom(found)


def _kernel(document: Mapping[str, Any], where: str) -> KernelWisdom:
    fields = _fields(_KERNEL, document, where)
    tuned = tuple(_at_size(*place, fields["signature"]) for place in _places(fields, "tuned", where))
    if len({frozenset(each.sizes) for each in tuned}) > 1:
        raise WisdomError(f"{where}: the entries of 'tuned' have sizes of different names")
    return KernelWisdom(**{**fields, "tuned": tuned})


def _at_size(document: Mapping[str, Any], where: str, signature: tuple[str, ...]) -> AtSize:
    fields = _fields(_AT_SIZE, document, where, "draws")
    if not fields["sizes"]:
        raise WisdomError(f"{where}: no size")
    fields["configurations"] = tuple(_timed(*place, signature) for place in _places(fields, "configurations", where))
    signatures = {}
    for entry, place in _places(fields, "signatures", where):
        own = _fields(_SIGNATURE, entry, place)
        values = own.pop("values")
        if len(values) != len(signature):
            raise WisdomError(f"{place}: its field 'values' should have one value for each of {', '.join(signature)}")
        signatures[values] = _errors(own)
    return AtSize(mptune_version=fields.pop("mptune"), **{**fields, "signatures": signatures})


def _timed(document: Mapping[str, Any], where: str, signature: tuple[str, ...]) -> Timed:
    fields = _fields(_TIMED, document, where)
    if missing := [name for name in signature if name not in fields["configuration"]]:
        raise WisdomError(f"{where}: its configuration has no value of {missing[0]}")
    if len(fields.get("interval", (0, 0))) != 2:
        raise WisdomError(f"{where}: its field 'interval' should be two numbers")
    errors = _errors({name: fields.pop(name) for name in _ERRORS if name in fields})
    is_best, is_baseline = fields.pop("best", False), fields.pop("baseline", False)
    return Timed(errors=errors, is_best=is_best, is_baseline=is_baseline, **fields)


def _errors(fields: Mapping[str, Any]) -> Errors:
    worst = {name: math.inf if value is None else value for name, value in fields["errors"].items()}
    return Errors(worst, **{name: value for name, value in fields.items() if name != "errors"})
