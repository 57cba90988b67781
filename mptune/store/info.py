"""Records of a run file beside its trials, as JSON and back: the definition of the run and its progress."""

from __future__ import annotations

import contextlib
import enum
import functools
import itertools
import json
import math
import re
import reprlib
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Final, Self

from mptune.errors import MptuneError, RunFileError
from mptune.kernel.regions import key_of
from mptune.results.objective import Objective
from mptune.results.speedup import Finals
from mptune.results.trial import Amount, Count, Reading, Share, SourceUse, Trial
from mptune.space.configuration import Configuration, Value, is_number, is_value, is_whole

#: Attributes of the objective by their fields in a run file.
_OBJECTIVE: Final = {
    "objective": "metric",
    **{name: name for name in ("also", "minimise", "threshold", "penalty", "alpha", "beta")},
    "measured_constraints": "constraints",
}
#: Values of unknown fields.
_UNKNOWN: Final[tuple[Any, ...]] = (None, "", (), {})
#: Units by suffix of a metric's name, longer suffixes first: a rate ends like a time.
_UNIT_SUFFIXES: Final = {
    "_gb_s": "GB/s",
    "_gflop_s": "GFLOP/s",
    "_ms": "ms",
    "_s": "s",
    "_bytes": "bytes",
    "_j": "J",
    "_w": "W",
    "_mhz": "MHz",
}


def unit_of(metric: str) -> str:
    """Return the unit a metric's name states: its suffix (``time_ms``), or the name itself (``GFLOP/s``)."""
    for suffix, unit in _UNIT_SUFFIXES.items():
        if metric.lower().endswith(suffix):
            return unit
    return metric if metric.endswith("/s") and " " not in metric else ""


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """A parameter of a run file; its kind is "ordinal", "precision", ..."""

    name: str
    kind: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise MptuneError(f"parameter {self.name!r} has no values")


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The definition of a run, complete before its first trial; a field that is empty or None is not known.

    Kernel, size preset, backend, device, error metric and strategy are names.
    """

    kernel: str = ""
    kernel_path: str | None = None  #: its definition file; None for a kernel made in Python
    size: str = ""
    sizes: Mapping[str, Count] = field(default_factory=dict)  #: the problem sizes by name
    forms: tuple[str, ...] = ()  #: names of the sizes that choose the form of the problem
    backend: str = ""
    device: str = ""
    architecture: str = ""  #: target of the compiler
    versions: Mapping[str, str] = field(default_factory=dict)  #: of compilers, libraries and user-defined metrics
    compiler: str = ""  #: device, compiler, versions and flags: they and the source determine the machine code
    flags: tuple[str, ...] = ()  #: the user's compiler flags, used again by verify, explain and emit
    objective: Objective = field(default_factory=Objective)  #: without a baseline
    metric: str = ""  #: the error metric of ``error``: its name, or the name for each output
    metrics: Mapping[str, str] = field(default_factory=dict)  #: further error metrics by the names of their thresholds
    baseline_values: Mapping[str, tuple[Value, ...]] | None = None  #: of precisions and policies, by parameter
    observers: tuple[str, ...] = ()  #: names of the observers
    strategy: str = ""
    strategy_options: Mapping[str, str] = field(default_factory=dict)
    budget: Count | None = None  #: configurations to evaluate at most
    baseline_share: Share | None = None  #: share of the budget the search for the baseline gets
    seed: Count | None = None  #: seeds inputs and strategy
    flush_cache: str = "auto"  #: whether caches were emptied between timed launches: "on", "off" or "auto"
    limit_s: Amount | None = None  #: seconds that a phase of a trial may take
    limit_factor: Amount | None = None  #: limit of a launch in launches of the baseline; None for ``limit_s`` alone
    started_from: tuple[str, ...] = ()  #: files of the earlier runs that the search started from
    scheduler: str | None = None  #: address of the Dask scheduler, None if there is none
    buffers: Mapping[str, str] = field(default_factory=dict)  #: of an application, with their types or parameters
    parameters: tuple[ParameterInfo, ...] = ()  #: the parameters of the search space
    constraints: tuple[str, ...] = ()  #: constraints of the search space, as text
    constants: Mapping[str, Value] = field(default_factory=dict)  #: names that constraints use beside the parameters
    configurations: Count | None = None  #: how many configurations are valid
    signature: tuple[str, ...] = ()  #: names of the parameters that can change the numbers
    template_hash: str = ""  #: SHA-256 of the template and the templates it includes, as hexadecimal digits
    definition_hash: str = ""  #: SHA-256 of the definition file
    data_key: str = ""  #: identity of inputs and references
    rounded: Mapping[str, Any] = field(default_factory=dict)  #: see :func:`~mptune.data.rounded_inputs`
    masked: tuple[str, ...] = ()  #: outputs whose reference has NaN, which may have it as well
    units: Mapping[str, str] = field(default_factory=dict)  #: units of metrics, where a recording states them
    recorded: str = ""  #: name of the recorded space the run was made from; empty for a run of mptune
    adopted: Mapping[str, Any] = field(default_factory=dict)  #: notes of ``mptune adopt``; empty for other kernels
    mptune_version: str = ""  #: the mptune that made the run
    command: str = ""  #: the command line; empty for a run from Python
    created_at: str = ""  #: when the run began, ISO 8601

    @property
    def is_of_application(self) -> bool:
        """Whether several kernels were tuned as one: their own parameters are called ``KERNEL.PARAMETER``."""
        return bool(self.buffers) or any("." in parameter.name for parameter in self.parameters)

    def unit_of(self, metric: str) -> str:
        """Return the unit of a metric, empty if it is not known."""
        return self.units.get(metric) or unit_of(metric)

    def buffers_of(self, parameter: str) -> tuple[str, ...]:
        """Return the buffers of an application whose type a parameter sets."""
        return tuple(buffer for buffer, what in self.buffers.items() if what == parameter)

    @property
    def caveats(self) -> tuple[str, ...]:
        """Errors of an adopted program that no trial measures, one line each."""
        found = self.adopted.get("caveats", ())
        return tuple(map(str, found)) if isinstance(found, list) else ()

    def place_in_program(self, kernel: str) -> str:
        """Return the place of a kernel in an adopted program, or its line that fails to compile; "" if not known."""
        notes, kernels = self.adopted.get("notes", ()), self.adopted.get("kernels", ())
        for note in notes if isinstance(notes, list) else ():
            if failed := re.match(rf"trials fail: (\S+:\d+): kernel {re.escape(kernel)}\b", str(note)):
                return failed[1]
        known = (each for each in kernels if isinstance(each, dict)) if isinstance(kernels, list) else ()
        return next((str(each.get("place", "")) for each in known if each.get("name") == kernel), "")

    def measured_by(self, error: str) -> str:
        """Return the error metric behind an error of the trials: "MaxAE of y" for ``error.y.MaxAE``."""
        key = error.removeprefix("error").removeprefix(".")
        by_output = dict(part.split(": ", 1) for part in self.metric.split(", ") if ": " in part)
        metric = self.metrics.get(key) or by_output.get(key) or self.metric or "error"
        return metric if not key or key_of(metric) == key else f"{metric} of {key.partition('.')[0]}"

    def closest_limit(self, trial: Trial) -> str:
        """Return the error of a trial that is closest to its limit, and the limit; empty if there is only one limit."""
        if not isinstance(self.objective.threshold, Mapping) or math.isnan(trial.error):
            return ""
        name = self.objective.binding(trial)
        return f"{self.measured_by(name)} {trial.metric(name):.3g} (limit {self.objective.limits[name]:g})"

    def limits_text(self, objective: Objective | None = None) -> str:
        """Return the limits of the errors: ``"NRMSE <= 1e-4, MaxAE of y <= 0.1"``."""
        limits = (objective or self.objective).limits.items()
        return ", ".join(f"{self.measured_by(name)} <= {tau:g}" for name, tau in limits)

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name, of JSON types; the parts of the objective are fields of their own."""
        document = dict(plain(self))
        objective = document.pop("objective")
        return document | {name: objective[part] for name, part in _OBJECTIVE.items()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], where: str = "the run") -> Self:
        """Return the record of the fields that :meth:`to_json` returns; ``where`` names the file in messages."""
        kinds = types_of(Objective)
        parts = read_fields({name: kinds[part] for name, part in _OBJECTIVE.items()}, document, where)
        try:
            objective = Objective(**{_OBJECTIVE[name]: value for name, value in parts.items()})
        except MptuneError as error:
            raise RunFileError(f"{where}: its objective is wrong: {error}") from error
        own = {name: kind for name, kind in types_of(RunInfo).items() if name != "objective"}
        info = cls(**read_fields(own, document, where), objective=objective)
        for name, values in (info.baseline_values or {}).items():
            if not values:
                raise RunFileError(f"{where}: its field 'baseline_values' has no value of {name!r}")
        return info

    def require_same_run(self, other: RunInfo, where: str) -> None:
        """Check that another run's trials can join this one's."""
        for name, ours, theirs in (("kernel", self.kernel, other.kernel), ("backend", self.backend, other.backend)):
            if ours != theirs:
                raise RunFileError(f"{where} holds a run of {name} {ours!r}, not {theirs!r}: give another --output")

    def changes_since(self, before: RunInfo) -> tuple[str, ...]:
        """Return the conditions of times and errors that differ from an earlier record, a few words each.

        Conditions that either record does not know are left out.
        """

        def differs(name: str) -> bool:
            ours, theirs = getattr(self, name), getattr(before, name)
            return ours not in _UNKNOWN and theirs not in _UNKNOWN and bool(ours != theirs)

        metrics = {name: "none" for name in self.versions if name.startswith("metric ")}
        entries = (
            ("size ", before.sizes, self.sizes),
            ("version of ", {**metrics, **before.versions}, self.versions),
        )
        found = [
            f"{what}{name} was {then[name]}, is {value}"
            for what, then, now in entries
            for name, value in now.items()
            if then.get(name, value) != value
        ]
        names = filter(differs, ("metric", "device", "seed"))
        found += [f"the {name} was {getattr(before, name)}, is {getattr(self, name)}" for name in names]
        now, then = (", ".join(sorted({*info.metrics.values()} or {info.metric})) for info in (self, before))
        if now != then and not differs("metric") and before.metric:
            found.append(f"the error metrics were {then}, are {now}")
        if differs("compiler") and not any(map(differs, ("device", "architecture", "versions"))):
            was, is_now = before.compiler.split("|"), self.compiler.split("|")
            gone, new = " ".join(p for p in was if p not in is_now), " ".join(p for p in is_now if p not in was)
            found.append(f"compiler, flags or device: {gone or 'nothing'} became {new or 'nothing'}")
        ours, theirs = ({p.name: p.values for p in info.parameters} for info in (self, before))
        if theirs and ours != theirs:
            changed = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
            found.append(f"parameters and their values changed: {', '.join(changed)}")
        edited = {"template_hash": "the template", "definition_hash": "the definition file"}
        found += [f"{what} was edited" for name, what in edited.items() if differs(name)]
        if differs("data_key") and not found:
            found.append("inputs or references changed")
        if set(before.observers) != set(self.observers):
            found.append(f"observers were {', '.join(before.observers)}, are {', '.join(self.observers)}")
        if differs("mptune_version"):
            found.append(f"mptune was {before.mptune_version}, is {self.mptune_version}")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class LaunchInfo:
    """Launches of an application that differ in types alone: of one kernel, at one size, on the same buffers."""

    kernel: str  #: the kernel's name
    sizes: Mapping[str, Count]  #: its problem sizes
    buffers: Mapping[str, str]  #: the buffer passed for each argument
    types: Mapping[str, tuple[str, ...]]  #: by signature parameter: the application's parameters or a precision


#: ``RunState.ended`` from the start of a run to its end.
INTERRUPTED: Final = "interrupted"


@dataclass(frozen=True, slots=True)
class RunState:
    """The progress of a run, which changes with every trial."""

    wall_s: Amount = 0.0  #: duration of all sessions of the run so far
    prepare_s: Amount = 0.0  #: of that, inputs, references and the start of the workers
    search_s: Amount = 0.0  #: of that, the strategy
    verify_s: Amount = 0.0  #: of that, the verification on unseen inputs
    workers: Count = 0  #: devices that evaluated at the same time; 0 if not known
    stale: Count = 0  #: stored trials set aside because source, compiler, device or data have changed
    warnings: tuple[str, ...] = ()  #: about the run as a whole, one line each
    finals: Finals = field(default_factory=Finals)  #: times of the finalists in rounds; empty before the finals
    unverified: str = ""  #: why a reported trial was verified on no unseen input; else empty
    verify_wanted: Count = 0  #: unseen inputs asked for, if a reported trial had fewer for want of time; else 0
    launches: tuple[LaunchInfo, ...] = ()  #: known launches of an application
    sources: tuple[SourceUse, ...] = ()  #: use of each source in the search
    ended: str = ""  #: why evaluations are left, or INTERRUPTED until the run has ended; empty if all were spent

    @property
    def launched(self) -> dict[str, tuple[str, ...]]:
        """The buffers passed to each kernel of an application."""
        given: dict[str, dict[str, None]] = {}
        for launch in self.launches:
            given.setdefault(launch.kernel, {}).update(dict.fromkeys(launch.buffers.values()))
        return {name: tuple(buffers) for name, buffers in given.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return dict(plain(self))

    @classmethod
    def from_json(cls, document: Mapping[str, Any], where: str = "the run") -> Self:
        """Return the record of the fields that :meth:`to_json` returns."""
        return cls(**read_fields(types_of(RunState), document, where))


# -- JSON ------------------------------------------------------------------------------------------


def parse_json(text: str) -> Any:
    """Parse JSON; raises ValueError also for text that UTF-8 cannot hold (a lone surrogate)."""
    try:
        value = json.loads(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValueError as error:
        if "int_max_str_digits" in str(error):
            raise ValueError("a number of it has thousands of digits") from error
        raise
    return value


def _are(column: Collection[Any], *kinds: type) -> bool:
    """Whether all values are of these types; a truth value is no integer."""
    return all(issubclass(each, kinds) and (each is not bool or bool in kinds) for each in {*map(type, column)})


#: By type of a single value: the check of a column, and the words of a message for one value and for several.
_SINGLE: Final[Mapping[Any, tuple[Callable[[Collection[Any]], bool], str, str]]] = {
    str: (lambda column: _are(column, str), "a text", "texts"),
    bool: (lambda column: _are(column, bool), "true or false", "truth values"),
    int: (
        lambda column: all(map(is_whole, column)),
        "a whole number a double can hold",
        "whole numbers a double can hold",
    ),
    float: (
        lambda column: _are(column, int, float) and all(map((1e100).__ge__, map(abs, column))),
        "a number up to 1e100",
        "numbers up to 1e100",
    ),
    Reading: (
        lambda column: _are(column, float) or all(isinstance(v, float) or is_number(v) for v in column),
        "a number",
        "numbers a double can hold",
    ),
    bytes: (lambda column: _are(column, bytes) and not any(len(v) % 8 for v in column), "doubles", "doubles"),
    Value: (lambda column: all(map(is_value, set(column))), "a value", "values"),
    Any: (lambda _: True, "anything", "anything"),
    types.NoneType: (lambda column: _are(column, types.NoneType), "null", "null"),
}


def plain(value: Any, *, is_sparse: bool = False) -> Any:
    """Return a value of JSON types: dictionaries for dataclasses and mappings, lists for tuples.

    With ``is_sparse``, dataclasses are without their empty fields.
    """
    if is_dataclass(value):
        parts = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        value = {n: part for n, part in parts.items() if not (is_sparse and (part is False or part in _UNKNOWN))}
    if isinstance(value, Mapping):
        return {name: plain(entry, is_sparse=is_sparse) for name, entry in value.items()}
    return [plain(entry, is_sparse=is_sparse) for entry in value] if isinstance(value, list | tuple) else value


@functools.cache
def types_of(record: Any) -> Mapping[str, Any]:
    """Return the types of a dataclass's fields by name."""
    hints = typing.get_type_hints(record, include_extras=True)
    return {field.name: hints[field.name] for field in fields(record) if field.init}


def read_fields(
    kinds: Mapping[str, Any],
    document: Mapping[str, Any],
    where: str,
    error: type[MptuneError] = RunFileError,
    required: Collection[str] = (),
) -> dict[str, Any]:
    """Return the fields of a JSON object without those that are missing or null, unless these are required."""
    given = {name: document.get(name) for name in kinds}
    return {
        name: read_field(name, kinds[name], [value], where, error)[0]
        for name, value in given.items()
        if value is not None or name in required
    }


def read_field(
    name: str, kind: Any, column: Sequence[Any], where: str, error: type[MptuneError] = RunFileError
) -> Sequence[Any]:
    """Return a field of several objects as values of a type; the message of an error shows the first value."""
    try:
        return read_column(kind, column)
    except _FieldError as reason:
        # The place in a list, which a single record has none of.
        place = str(reason) if typing.get_origin(kind) is tuple else str(reason).removeprefix("[0]")
        raise error(f"{where}, {name}{place}") from reason
    except (ValueError, TypeError, MptuneError) as reason:
        shown = reprlib.repr(column[0])
        raise error(f"{where}: its field {name!r} should be {_called(kind)}, and is {shown}") from reason


def read_column(kind: Any, column: Sequence[Any]) -> Sequence[Any]:
    """Return a column of JSON values as values of a type.

    Raises ValueError or TypeError for a wrong value, or the MptuneError of a dataclass.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind == Value and list in {*map(type, column)}:
        column = [tuple(value) if isinstance(value, list) else value for value in column]
    if kind in _SINGLE:
        _require(_SINGLE[kind][0](column))
        return column
    if isinstance(kind, enum.EnumType):
        return [*map(kind, column)]
    if kind is Configuration:
        return [*map(Configuration, read_column(Mapping[str, Value], column))]
    if origin is Annotated:
        bounds = arguments[1]
        _require(all(bounds.least <= number <= bounds.most for number in read_column(arguments[0], column)))
        return column
    if origin in (types.UnionType, typing.Union):
        return [_read_as_first(arguments, value) for value in column]
    if origin is tuple:
        _require(_are(column, list, tuple))
        entries = iter(read_column(arguments[0], [*itertools.chain.from_iterable(column)]))
        return [tuple(itertools.islice(entries, len(each))) for each in column]
    _require(_are(column, Mapping))
    if origin is Mapping:
        given = [value for each in column for value in each.values()]
        found = read_column(arguments[1], given)
        entries = iter(found)
        return column if found is given else [dict(zip(each, entries, strict=False)) for each in column]
    kinds = types_of(kind)
    required = [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]
    return [
        kind(**read_fields(kinds, each, f"[{number}]", _FieldError, required)) for number, each in enumerate(column)
    ]


class _FieldError(MptuneError):
    """A field of a record within another one is wrong; the message begins with its place in a list."""


def _require(is_right: bool) -> None:
    if not is_right:
        raise ValueError


def _read_as_first(kinds: Iterable[Any], value: Any) -> Any:
    for kind in kinds:
        with contextlib.suppress(ValueError, TypeError, MptuneError):
            return read_column(kind, [value])[0]
    raise ValueError


def _called(kind: Any, *, several: bool = False) -> str:
    if kind in _SINGLE:
        _, one, many = _SINGLE[kind]
        return many if several else one
    arguments = typing.get_args(kind)
    if isinstance(kind, enum.EnumType):
        return f"one of {', '.join(kind)}"
    if kind is Configuration:
        return "values by name"
    if kind == Mapping[str, Any]:
        return "objects" if several else "an object"
    if typing.get_origin(kind) is Annotated:
        least, most = arguments[1].least, arguments[1].most
        what = f"{'' if several else 'a '}{'whole ' if arguments[0] is int else ''}number{'s' if several else ''}"
        return f"{what} of {least:g} or more" if most in (1e100, math.inf) else f"{what} from {least:g} to {most:g}"
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return " or ".join(_called(each, several=several) for each in arguments if each is not types.NoneType)
    if typing.get_origin(kind) is tuple:
        return f"{'lists' if several else 'a list'} of {_called(arguments[0], several=True)}"
    if typing.get_origin(kind) is Mapping:
        return f"{_called(arguments[1], several=True)} by name"
    return f"{'objects' if several else 'an object'} with {', '.join(types_of(kind))}"
