"""What a run file says beside its trials: what the run is, which is written once, and how far it has come."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Self

from mptune.errors import MptuneError, RunFileError
from mptune.kernel.regions import key_of
from mptune.results.objective import Objective
from mptune.results.speedup import Finals
from mptune.results.trial import SourceUse, Trial
from mptune.space.configuration import Value, is_number, is_value, is_whole
from mptune.space.parameters import MAX_PARAMETERS

__all__ = ["LaunchInfo", "ParameterInfo", "RunInfo", "RunState"]


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """A parameter as a run file describes it: its name, its kind ("ordinal", "precision", ...) and its values."""

    name: str
    kind: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a run is: everything that is settled before its first trial.

    A field that is empty or None is not known, as in a run made from another tool's recording. What has a name (kernel,
    size preset, backend, device, error metric, strategy) is its name.

    Attributes:
        kernel_path: its definition file; None for a kernel made in Python.
        sizes: the problem sizes by name.
        forms: names of those that say which form of the problem it is, not how large.
        architecture: what the compiler targets.
        versions: versions of compilers, libraries and user-defined metrics, by name.
        compiler: what decides about the machine code beside the source: device, compiler, versions and flags, as text.
        flags: compiler flags of the user's, which whatever compiles a configuration again uses, too.
        objective: what is optimised, with thresholds, penalty and measured constraints; without a baseline.
        metric: what ``error`` is measured by: a metric's name, or each output's.
        metrics: where errors are measured by further metrics, what each is measured by; by the names of thresholds.
        baseline_values: the values precision and policy parameters have in a baseline; None if nothing says what a
            baseline is.
        observers: names of the observers that looked on.
        budget: configurations to evaluate at most.
        baseline_share: share of the budget the search for the baseline gets.
        seed: seeds inputs and strategy.
        flush_cache: whether caches were emptied between timed launches: "on", "off" or "auto".
        trial_limit: seconds that a launch may take, or times the baseline's such as "10x".
        started_from: files of the earlier runs that the search started from.
        scheduler: address of the Dask scheduler, None if there is none.
        buffers: of an application, by buffer, what is its type: a parameter's name, or a type. Empty for a kernel.
        parameters: the parameters of the search space.
        constraints: its constraints, as text.
        constants: names that constraints use beside the parameters.
        configurations: how many configurations are valid.
        signature: names of the parameters that can change the numbers.
        template_hash: SHA-256 of the template and the templates it includes, as hexadecimal digits.
        definition_hash: SHA-256 of the definition file.
        data_key: identity of inputs and references.
        rounded: how much types round the inputs beside those at other sizes (:func:`~mptune.data.rounded_inputs`).
        masked: outputs whose reference has NaN, which may have it as well.
        units: units of metrics, where a recording states them.
        recorded: name of the recorded space the run was made from; empty for a run of mptune.
        adopted: what ``mptune adopt`` wrote of the program the definition was made of; empty for any other.
        mptune_version: the mptune that made the run.
        command: the command line; empty for a run from Python.
        created_at: when the run began, ISO 8601.
    """

    kernel: str = ""
    kernel_path: str | None = None
    size: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    forms: tuple[str, ...] = ()
    backend: str = ""
    device: str = ""
    architecture: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    compiler: str = ""
    flags: tuple[str, ...] = ()
    objective: Objective = field(default_factory=Objective)
    metric: str = ""
    metrics: Mapping[str, str] = field(default_factory=dict)
    baseline_values: Mapping[str, tuple[Value, ...]] | None = None
    observers: tuple[str, ...] = ()
    strategy: str = ""
    strategy_options: Mapping[str, str] = field(default_factory=dict)
    budget: int | None = None
    baseline_share: float | None = None
    seed: int | None = None
    flush_cache: str = "auto"
    trial_limit: str = ""
    started_from: tuple[str, ...] = ()
    scheduler: str | None = None
    buffers: Mapping[str, str] = field(default_factory=dict)
    parameters: tuple[ParameterInfo, ...] = ()
    constraints: tuple[str, ...] = ()
    constants: Mapping[str, Value] = field(default_factory=dict)
    configurations: int | None = None
    signature: tuple[str, ...] = ()
    template_hash: str = ""
    definition_hash: str = ""
    data_key: str = ""
    rounded: Mapping[str, Any] = field(default_factory=dict)
    masked: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    recorded: str = ""
    adopted: Mapping[str, Any] = field(default_factory=dict)
    mptune_version: str = ""
    command: str = ""
    created_at: str = ""

    @property
    def is_of_application(self) -> bool:
        """Whether several kernels were tuned as one: their own parameters are called ``KERNEL.PARAMETER``."""
        return bool(self.buffers) or any("." in parameter.name for parameter in self.parameters)

    def buffers_of(self, parameter: str) -> tuple[str, ...]:
        """Return the names of an application's buffers whose type a parameter is."""
        return tuple(buffer for buffer, what in self.buffers.items() if what == parameter)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What errors of an adopted program leave out, a line for each."""
        found = self.adopted.get("caveats", ())
        return tuple(map(str, found)) if isinstance(found, list) else ()

    def place_in_program(self, kernel: str) -> str:
        """Return where an adopted program has a kernel, or its line that fails to compile; "" if that is not known."""
        notes, kernels = self.adopted.get("notes", ()), self.adopted.get("kernels", ())
        for note in notes if isinstance(notes, list) else ():
            if failed := re.match(rf"trials fail: (\S+:\d+): kernel {re.escape(kernel)}\b", str(note)):
                return failed[1]
        known = (each for each in kernels if isinstance(each, dict)) if isinstance(kernels, list) else ()
        return next((str(each.get("place", "")) for each in known if each.get("name") == kernel), "")

    def measured_by(self, error: str) -> str:
        """Say what an error of the trials is measured by: ``error.y.MaxAE`` is "MaxAE of y"."""
        key = error.removeprefix("error").removeprefix(".")
        by_output = dict(part.split(": ", 1) for part in self.metric.split(", ") if ": " in part)
        metric = self.metrics.get(key) or by_output.get(key) or self.metric or "error"
        return metric if not key or key_of(metric) == key else f"{metric} of {key.partition('.')[0]}"

    def closest_limit(self, trial: Trial) -> str:
        """Return of several limits the error closest to its own, with both; empty for one limit."""
        if not isinstance(self.objective.threshold, Mapping) or math.isnan(trial.error):
            return ""
        name = self.objective.binding(trial)
        return f"{self.measured_by(name)} {trial.metric(name):.3g} (limit {self.objective.limits[name]:g})"

    def limits_text(self, objective: Objective | None = None) -> str:
        """Say what the errors of a feasible trial are at most: ``"NRMSE <= 1e-4, MaxAE of y <= 0.1"``."""
        limits = (objective or self.objective).limits
        return ", ".join(f"{self.measured_by(name)} <= {tau:g}" for name, tau in limits.items())

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name, as JSON can hold them; the parts of the objective are fields of their own."""
        objective = self.objective
        threshold = objective.threshold
        document = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "objective"}
        return {
            **document,
            "parameters": [asdict(parameter) for parameter in self.parameters],
            "objective": objective.metric,
            "objectives": list(objective.metrics),
            "minimise": objective.minimise,
            "threshold": dict(threshold) if isinstance(threshold, Mapping) else threshold,
            "penalty": objective.penalty,
            "alpha": objective.alpha,
            "beta": objective.beta,
            "measured_constraints": list(objective.constraints),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], where: str = "the run") -> Self:
        """Return the record of these fields; those that are missing are not known.

        Args:
            document: fields by name, as :meth:`to_json` returns them.
            where: what messages call the file.

        Raises:
            RunFileError: a field has the wrong type or an impossible value.
        """
        return cls(**_read(document, _kinds_of(cls), where), objective=_objective(document, where))

    def require_same_run(self, other: RunInfo, where: str) -> None:
        """Check that another run's trials can join this one's.

        Raises:
            RunFileError: they are of another kernel or backend.
        """
        for name, ours, theirs in (("kernel", self.kernel, other.kernel), ("backend", self.backend, other.backend)):
            if ours != theirs:
                raise RunFileError(f"{where} holds a run of {name} {ours!r}, not {theirs!r}: give another --output")

    def changes_since(self, before: RunInfo) -> tuple[str, ...]:
        """Say what times and errors depend on and differs from an earlier record, each thing in a few words.

        What one of the two does not know is left out.
        """

        def differs(name: str) -> bool:
            ours, theirs = getattr(self, name), getattr(before, name)
            return bool(ours) and bool(theirs) and ours != theirs

        found = _values_changed("size ", before.sizes, self.sizes)
        found += [
            f"the {n} was {getattr(before, n)}, is {getattr(self, n)}" for n in ("metric", "device") if differs(n)
        ]
        now, then = (", ".join(sorted({*info.metrics.values()} or {info.metric})) for info in (self, before))
        if now != then and not differs("metric") and before.metric:
            found.append(f"the error metrics were {then}, are {now}")
        metrics = {name: "none" for name in self.versions if name.startswith("metric ")}
        found += _values_changed("version of ", {**metrics, **before.versions}, self.versions)
        if differs("compiler") and not any(map(differs, ("device", "architecture", "versions"))):
            found.append(_identity_changed(before.compiler, self.compiler))
        if before.seed is not None and before.seed != self.seed:
            found.append(f"the seed was {before.seed}, is {self.seed}")
        ours, theirs = ({p.name: p.values for p in info.parameters} for info in (self, before))
        if theirs and ours != theirs:
            names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
            found.append(f"parameters and their values changed: {', '.join(names)}")
        changed = {"template_hash": "the template", "definition_hash": "the definition file"}
        found += [f"{what} was edited" for name, what in changed.items() if differs(name)]
        if differs("data_key") and not found:
            found.append("inputs or references changed")
        if set(before.observers) != set(self.observers):
            found.append(f"observers were {', '.join(before.observers)}, are {', '.join(self.observers)}")
        if differs("mptune_version"):
            found.append(f"mptune was {before.mptune_version}, is {self.mptune_version}")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class LaunchInfo:
    """What an application launches, whatever the types: launches of one kernel, at one size, on the same buffers.

    Attributes:
        kernel: the kernel's name.
        sizes: its problem sizes.
        buffers: which buffer is passed, by argument.
        types: by each parameter in the kernel's signature, where its value comes from: the application's parameters of
            these names, or a fixed precision.
    """

    kernel: str
    sizes: Mapping[str, int]
    buffers: Mapping[str, str]
    types: Mapping[str, tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {name: dict(value) if isinstance(value := getattr(self, name), Mapping) else value for name in _LAUNCH}


@dataclass(frozen=True, slots=True)
class RunState:
    """How far a run has come: what changes with every trial.

    Attributes:
        wall_s: how long the run took so far, in seconds, all its sessions together.
        prepare_s: of that, inputs, references and the start of the workers.
        search_s: of that, the strategy.
        verify_s: of that, the verification on unseen inputs.
        workers: devices that evaluated at the same time; 0 if not known.
        stale: stored trials set aside because source, compiler, device or data have changed.
        warnings: what the user should know of the run as a whole, one plain line each.
        finals: what the finalists took, side by side; empty before they were measured again.
        unverified: why something that is reported was run on no unseen input; empty if all was, or is still to be.
        verify_wanted: unseen inputs that were asked for, where the time they take is why some trial had fewer; else 0.
        launches: what an application launches, as far as that is known.
        sources: what the search has made of its sources.
        ended: why the search ended with evaluations left; empty if it did not.
    """

    wall_s: float = 0.0
    prepare_s: float = 0.0
    search_s: float = 0.0
    verify_s: float = 0.0
    workers: int = 0
    stale: int = 0
    warnings: tuple[str, ...] = ()
    finals: Finals = field(default_factory=Finals)
    unverified: str = ""
    verify_wanted: int = 0
    launches: tuple[LaunchInfo, ...] = ()
    sources: tuple[SourceUse, ...] = ()
    ended: str = ""

    @property
    def launched(self) -> dict[str, tuple[str, ...]]:
        """By kernel of an application, the buffers that launches of it were given."""
        given: dict[str, dict[str, None]] = {}
        for launch in self.launches:
            given.setdefault(launch.kernel, {}).update(dict.fromkeys(launch.buffers.values()))
        return {name: tuple(buffers) for name, buffers in given.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        document = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return document | {
            "finals": self.finals.to_json(),
            "launches": [each.to_json() for each in self.launches],
            "sources": [asdict(each) for each in self.sources],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], where: str = "the run") -> Self:
        """Return the record of these fields; those that are missing are 0 or empty.

        Raises:
            RunFileError: a field has the wrong type.
        """
        return cls(**_read(document, _kinds_of(cls), where))


# -- what changed between two sessions -------------------------------------------------------------------


def _values_changed(what: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say which entries changed their value; those that one of the two does not have are left out."""
    return [f"{what}{n} was {before[n]}, is {now[n]}" for n in now if n in before and before[n] != now[n]]


def _identity_changed(before: str, now: str) -> str:
    """Say what differs in two texts of :attr:`RunInfo.compiler`; their parts are separated by ``|``."""
    gone = [part for part in before.split("|") if part not in now.split("|")]
    new = [part for part in now.split("|") if part not in before.split("|")]
    return f"compiler, flags or device: {' '.join(gone) or 'nothing'} became {' '.join(new) or 'nothing'}"


# -- fields as a file has them ---------------------------------------------------------------------------


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_values(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(is_value, value))


def _is_parameter(entry: Any) -> bool:
    if not isinstance(entry, Mapping):
        return False
    values = entry.get("values")
    return _is_text(entry.get("name")) and _is_text(entry.get("kind")) and bool(values) and _is_values(values)


def _is_launch(entry: Any) -> bool:
    return isinstance(entry, Mapping) and all(kind.is_right(entry.get(name)) for name, kind in _LAUNCH.items())


def _is_source_use(entry: Any) -> bool:
    if not isinstance(entry, Mapping):
        return False
    return all(kind.is_right(entry.get(name)) for name, kind in _SOURCE_USE.items())


def _is_threshold(value: Any) -> bool:
    return all(map(is_number, value.values())) if isinstance(value, Mapping) else is_number(value)


def _tuples(value: Any) -> Any:
    """Return plain data with the tuples that JSON made lists of."""
    if isinstance(value, Mapping):
        return {name: _tuples(entry) for name, entry in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a field may hold: how a message calls it, how it is checked, and how it is read."""

    expected: str
    is_right: Callable[[Any], bool]
    read: Callable[[Any], Any] = _tuples


def _list_of(what: str, is_right: Callable[[Any], bool]) -> _Kind:
    return _Kind(f"a list of {what}", lambda v: isinstance(v, list | tuple) and all(map(is_right, v)))


def _by_name(what: str, is_right: Callable[[Any], bool]) -> _Kind:
    return _Kind(f"{what} by name", lambda v: isinstance(v, Mapping) and all(map(is_right, v.values())))


_TEXT: Final = _Kind("a text", _is_text)
_WHOLE: Final = _Kind("a whole number a double can hold", is_whole)
_NUMBER: Final = _Kind("a finite number a double can hold", is_number)
_TEXTS: Final = _list_of("texts", _is_text)
_PARAMETERS: Final = _Kind(
    f"a list of at most {MAX_PARAMETERS} parameters, each with a name, a kind and a list of one or more values",
    lambda v: isinstance(v, list | tuple) and len(v) <= MAX_PARAMETERS and all(map(_is_parameter, v)),
    lambda v: tuple(ParameterInfo(p["name"], p["kind"], _tuples(p["values"])) for p in v),
)
_WHOLE_BY_NAME: Final = _by_name("whole numbers a double can hold", is_whole)
_TEXT_BY_NAME: Final = _by_name("texts", _is_text)
_LAUNCH: Final = {
    "kernel": _TEXT,
    "sizes": _WHOLE_BY_NAME,
    "buffers": _TEXT_BY_NAME,
    "types": _by_name("lists of texts", _TEXTS.is_right),
}
_SOURCE_USE: Final = {"source": _TEXT, "trials": _WHOLE, "parameters": _TEXTS, "weight": _NUMBER, "remark": _TEXT}
#: What a field may hold, by its annotation.
_KINDS: Final[Mapping[str, _Kind]] = {
    **dict.fromkeys(("str", "str | None"), _TEXT),
    **dict.fromkeys(("int", "int | None"), _WHOLE),
    **dict.fromkeys(("float", "float | None"), _NUMBER),
    "tuple[str, ...]": _TEXTS,
    "tuple[ParameterInfo, ...]": _PARAMETERS,
    "Finals": _Kind("the times of finalists in rounds", Finals.is_document, Finals.from_json),
    "Mapping[str, str]": _TEXT_BY_NAME,
    "Mapping[str, float]": _by_name("finite numbers a double can hold", is_number),
    "Mapping[str, int]": _WHOLE_BY_NAME,
    "tuple[LaunchInfo, ...]": _Kind(
        f"a list of launches, each with {', '.join(_LAUNCH)}",
        lambda v: isinstance(v, list | tuple) and all(map(_is_launch, v)),
        lambda v: tuple(LaunchInfo(**{name: _tuples(launch[name]) for name in _LAUNCH}) for launch in v),
    ),
    "tuple[SourceUse, ...]": _Kind(
        f"a list of sources, each with {', '.join(_SOURCE_USE)}",
        lambda v: isinstance(v, list | tuple) and all(map(_is_source_use, v)),
        lambda v: tuple(SourceUse(**{name: _tuples(use[name]) for name in _SOURCE_USE}) for use in v),
    ),
    "Mapping[str, Any]": _Kind("an object", lambda v: isinstance(v, Mapping), dict),
    "Mapping[str, Value]": _by_name("values", is_value),
    "Mapping[str, tuple[Value, ...]] | None": _by_name("lists of values", _is_values),
}
_OBJECTIVE_FIELDS: Final[Mapping[str, _Kind]] = {
    "objective": _TEXT,
    "objectives": _TEXTS,
    "minimise": _Kind("true or false", lambda v: isinstance(v, bool)),
    "threshold": _Kind("a finite number a double can hold, such numbers by output or metric, or null", _is_threshold),
    "penalty": _TEXT,
    "alpha": _NUMBER,
    "beta": _NUMBER,
    "measured_constraints": _TEXTS,
}


def _kinds_of(record: type) -> dict[str, _Kind]:
    return {entry.name: _KINDS[str(entry.type)] for entry in fields(record) if entry.name != "objective"}


def _read(document: Mapping[str, Any], kinds: Mapping[str, _Kind], where: str) -> dict[str, Any]:
    """Return the fields a document has; one that is missing or null is left out, and so has its usual value."""
    found = {}
    for name, kind in kinds.items():
        value = document.get(name)
        if value is None:
            continue
        if not kind.is_right(value):
            raise RunFileError(f"{where}: its field {name!r} should be {kind.expected}, and is {reprlib.repr(value)}")
        found[name] = kind.read(value)
    return found


def _objective(document: Mapping[str, Any], where: str) -> Objective:
    found = _read(document, _OBJECTIVE_FIELDS, where)
    names = {"objective": "metric", "measured_constraints": "constraints"}
    also = found.pop("objectives", ())[1:]
    try:
        return Objective(**{names.get(name, name): value for name, value in found.items()}, also=also)
    except MptuneError as error:
        raise RunFileError(f"{where}: its objective is wrong: {error}") from error
