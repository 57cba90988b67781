"""What a run file says beside its trials: what the run is, which is written once, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from mptune.errors import MptuneError, RunFileError
from mptune.objective import Objective
from mptune.space.configuration import Value

__all__ = ["INFO_VERSION", "ParameterInfo", "RunInfo", "RunState"]

#: Raised when a field changes its meaning. Files written before there was a version are read as version 0.
INFO_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """A parameter as a run file describes it: its name, its kind ("ordinal", "precision", ...) and its values."""

    name: str
    kind: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a run is: everything that is settled before its first trial.

    A field that is empty or None is not known, as in a run made from another tool's recording.

    Attributes:
        kernel: name of the kernel.
        kernel_path: its definition file; None for a kernel made in Python.
        size: name of the size preset.
        sizes: the problem sizes by name.
        backend: name of the backend.
        device: marketing name of the device.
        architecture: what the compiler targets.
        versions: compiler and library versions by name.
        compiler: what decides about the machine code beside the source: device, compiler, versions and flags, as text.
        objective: what is optimised, with thresholds, penalty and measured constraints; without a baseline.
        metric: the error metric, as text.
        baseline_values: the values precision and policy parameters have in a baseline; None if nothing says what a
            baseline is.
        observers: names of the observers that looked on.
        strategy: name of the strategy.
        strategy_options: its options, as text.
        budget: configurations to evaluate at most.
        baseline_share: share of the budget the search for the baseline gets.
        seed: seeds inputs and strategy.
        scheduler: address of the Dask scheduler, None if there is none.
        parameters: the parameters of the search space.
        constraints: its constraints, as text.
        constants: names that constraints use beside the parameters.
        configurations: how many configurations are valid.
        signature: names of the parameters that can change the numbers.
        template_hash: SHA-256 of the template and the templates it includes, as hexadecimal digits.
        definition_hash: SHA-256 of the definition file.
        data_key: identity of inputs and references.
        units: units of metrics, where a recording states them.
        recorded: name of the recorded space the run was made from; empty for a run of mptune.
        mptune_version: the mptune that made the run.
        command: the command line; empty for a run from Python.
        created_at: when the run began, ISO 8601.
    """

    kernel: str = ""
    kernel_path: str | None = None
    size: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    backend: str = ""
    device: str = ""
    architecture: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    compiler: str = ""
    objective: Objective = field(default_factory=Objective)
    metric: str = ""
    baseline_values: Mapping[str, tuple[Value, ...]] | None = None
    observers: tuple[str, ...] = ()
    strategy: str = ""
    strategy_options: Mapping[str, str] = field(default_factory=dict)
    budget: int | None = None
    baseline_share: float | None = None
    seed: int | None = None
    scheduler: str | None = None
    parameters: tuple[ParameterInfo, ...] = ()
    constraints: tuple[str, ...] = ()
    constants: Mapping[str, Value] = field(default_factory=dict)
    configurations: int | None = None
    signature: tuple[str, ...] = ()
    template_hash: str = ""
    definition_hash: str = ""
    data_key: str = ""
    units: Mapping[str, str] = field(default_factory=dict)
    recorded: str = ""
    mptune_version: str = ""
    command: str = ""
    created_at: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name, as JSON can hold them; the parts of the objective are fields of their own."""
        objective = self.objective
        threshold = objective.threshold
        document = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "objective"}
        return {
            "version": INFO_VERSION,
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
            document: fields by name, as :meth:`to_json` returns them or an earlier mptune wrote them.
            where: what messages call the file.

        Raises:
            RunFileError: the version is unknown, or a field has the wrong type or an impossible value.
        """
        version = document.get("version", 0)
        if version not in (0, INFO_VERSION) or isinstance(version, bool):
            raise RunFileError(
                f"{where}: its description has version {version!r} and this mptune reads 0 to {INFO_VERSION}: "
                "upgrade mptune to read it"
            )
        read = _Fields(document, where)
        texts = ("kernel", "size", "backend", "device", "architecture", "compiler", "metric", "strategy")
        origin = ("template_hash", "definition_hash", "data_key", "recorded", "mptune_version", "command", "created_at")
        return cls(
            **{name: read.text(name) or "" for name in (*texts, *origin)},
            kernel_path=read.text("kernel_path"),
            sizes=read.by_name("sizes", _is_whole, "whole numbers") or {},
            versions=read.by_name("versions", _is_text, "texts") or {},
            objective=read.objective(),
            baseline_values=read.values_by_name("baseline_values"),
            observers=read.texts("observers"),
            strategy_options=read.by_name("strategy_options", _is_text, "texts") or {},
            budget=read.whole("budget"),
            baseline_share=read.number("baseline_share"),
            seed=read.whole("seed"),
            scheduler=read.text("scheduler"),
            parameters=read.parameters(),
            constraints=read.texts("constraints"),
            constants={n: _plain(v) for n, v in (read.by_name("constants", _is_value, "values") or {}).items()},
            configurations=read.whole("configurations"),
            signature=read.texts("signature"),
            units=read.by_name("units", _is_text, "texts") or {},
        )

    def require_same_run(self, other: RunInfo, where: str) -> None:
        """Check that another run's trials can join this one's.

        Raises:
            RunFileError: they are of another kernel or backend.
        """
        for name, ours, theirs in (("kernel", self.kernel, other.kernel), ("backend", self.backend, other.backend)):
            if ours != theirs:
                raise RunFileError(f"{where} holds a run of {name} {ours!r}, not {theirs!r}: give another --output")


@dataclass(frozen=True, slots=True)
class RunState:
    """How far a run has come: what changes with every trial.

    Attributes:
        wall_s: how long the run took so far, in seconds, all its sessions together.
        prepare_s: of that, inputs, references and the start of the workers.
        search_s: of that, the strategy.
        workers: devices that evaluated at the same time; 0 if not known.
        stale: stored trials set aside because source, compiler, device or data have changed.
    """

    wall_s: float = 0.0
    prepare_s: float = 0.0
    search_s: float = 0.0
    workers: int = 0
    stale: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any], where: str = "the run") -> Self:
        """Return the record of these fields; those that are missing are 0.

        Raises:
            RunFileError: a field has the wrong type.
        """
        read = _Fields(document, where)
        times = {name: read.number(name) or 0.0 for name in ("wall_s", "prepare_s", "search_s")}
        return cls(**times, workers=read.whole("workers") or 0, stale=read.whole("stale") or 0)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_value(value: Any) -> bool:
    """Whether this is a :data:`~mptune.space.configuration.Value`, of which JSON makes a list of a tuple."""
    return isinstance(value, int | float | str) or (isinstance(value, list | tuple) and all(map(_is_whole, value)))


def _is_values(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_value, value))


def _plain(value: Any) -> Value:
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class _Fields:
    """Fields as a file has them, each checked when it is asked for; what is missing or null is None."""

    document: Mapping[str, Any]
    where: str

    def _checked(self, name: str, is_right: Callable[[Any], bool], expected: str) -> Any:
        value = self.document.get(name)
        if value is not None and not is_right(value):
            raise RunFileError(f"{self.where}: its field {name!r} should be {expected}, and is {_short(value)}")
        return value

    def text(self, name: str) -> str | None:
        found: str | None = self._checked(name, _is_text, "a text")
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(self._checked(name, lambda v: _is_values(v) and all(map(_is_text, v)), "a list of texts") or ())

    def whole(self, name: str) -> int | None:
        found: int | None = self._checked(name, _is_whole, "a whole number")
        return found

    def number(self, name: str) -> float | None:
        found: float | None = self._checked(name, _is_number, "a number")
        return found

    def by_name(self, name: str, is_right: Callable[[Any], bool], expected: str) -> dict[str, Any] | None:
        """Return what stands under each name, one check for all of it."""
        found = self._checked(
            name, lambda v: isinstance(v, Mapping) and all(map(is_right, v.values())), f"{expected} by name"
        )
        return None if found is None else dict(found)

    def values_by_name(self, name: str) -> dict[str, tuple[Value, ...]] | None:
        found = self.by_name(name, _is_values, "lists of values")
        return None if found is None else {n: tuple(map(_plain, values)) for n, values in found.items()}

    def parameters(self) -> tuple[ParameterInfo, ...]:
        described = self._checked(
            "parameters", lambda v: isinstance(v, list | tuple) and all(map(_is_parameter, v)), _PARAMETERS
        )
        return tuple(ParameterInfo(p["name"], p["kind"], tuple(map(_plain, p["values"]))) for p in described or ())

    def objective(self) -> Objective:
        """Return the objective; a part that is missing has its usual value."""
        by_output = self._checked("threshold", _is_threshold, "a number, numbers by output, or null")
        given = {
            "metric": self.text("objective"),
            "minimise": self._checked("minimise", lambda v: isinstance(v, bool), "true or false"),
            "threshold": by_output,
            "penalty": self.text("penalty"),
            "alpha": self.number("alpha"),
            "beta": self.number("beta"),
        }
        try:
            return Objective(
                **{name: value for name, value in given.items() if value is not None},
                constraints=self.texts("measured_constraints"),
                also=self.texts("objectives")[1:],
            )
        except MptuneError as error:
            raise RunFileError(f"{self.where}: its objective is not one: {error}") from error


_PARAMETERS: Final = "a list of parameters, each with a name, a kind and a list of values"


def _is_parameter(entry: Any) -> bool:
    if not isinstance(entry, Mapping):
        return False
    return _is_text(entry.get("name")) and _is_text(entry.get("kind")) and _is_values(entry.get("values"))


def _is_threshold(value: Any) -> bool:
    return all(map(_is_number, value.values())) if isinstance(value, Mapping) else _is_number(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
