"""A recorded search space: the configurations somebody measured, and what came out.

The set of valid configurations *is* the recording. A partial recording replays only what it holds, because
nothing is known about the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import MptuneError, SpaceFileError
from mptune.precision import EVERY_PRECISION, POLICIES, precision
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration, Value
from mptune.space.parameters import (
    MAX_PARAMETERS,
    BooleanParameter,
    CategoricalParameter,
    OrdinalParameter,
    Parameter,
    PermutationParameter,
    PolicyParameter,
    PrecisionParameter,
    baseline_values,
    is_identifier,
)
from mptune.space.search_space import SearchSpace
from mptune.store import ParameterInfo, RunInfo

__all__ = [
    "FAILED_TIME", "Record", "RecordedSpace", "assemble", "finite", "finite_numbers", "from_run",
    "parameter_from", "parameter_of", "parameters_of", "to_run", "unit_of",
]  # fmt: skip

#: Kernel Tuner writes a time of at least this for a configuration that failed.
FAILED_TIME: Final = 1e20

_SPELLINGS: Final = frozenset(s.lower() for p in EVERY_PRECISION.values() for s in (p.name, *p.aliases))
_MAX_PERMUTED: Final = 8
#: Errors within this factor count as one: the order of a sum changes them by less.
_SAME_ERROR: Final = 2.0
#: The longer ones first: a rate ends like a time.
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


@dataclass(frozen=True, slots=True)
class RecordedSpace:
    """The configurations of a recording and their trials; what the recording does not say is empty or None.

    Attributes:
        name: what a report calls it.
        space: exactly the recorded configurations.
        trials: the trial of each index of ``space``.
        objective: the metric the recording was made for.
        metric: the error metric.
        measured_by: where errors were measured by further metrics, what each was measured by.
        units: units by metric.
        signature: names of the parameters that can change the numbers, as far as the recording tells.
        cut_off: the file's end was missing; what was complete is here.
    """

    name: str
    space: SearchSpace
    trials: Mapping[int, Trial]
    objective: str = "time_ms"
    kernel: str = ""
    device: str = ""
    metric: str = ""
    measured_by: Mapping[str, str] = field(default_factory=dict)
    problem_size: Any = None
    units: Mapping[str, str] = field(default_factory=dict)
    signature: tuple[str, ...] = ()
    cut_off: bool = False

    @property
    def unit(self) -> str:
        """Unit of :attr:`objective`, empty if it is not known."""
        return self.unit_of(self.objective)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics at least one valid trial has, in order of appearance."""
        valid = (trial for trial in self.trials.values() if trial.is_valid)
        return tuple(dict.fromkeys(name for trial in valid for name in trial.measurement.metrics))

    def by_configuration(self) -> dict[Configuration, Trial]:
        """Return the trials by their configuration."""
        return {trial.configuration: trial for trial in self.trials.values()}

    def unit_of(self, metric: str) -> str:
        """Return the unit of a metric, empty if it is not known."""
        return self.units.get(metric) or unit_of(metric)

    def with_baseline(self, objective: Objective, trials: Iterable[Trial] | None = None) -> Objective:
        """Return the objective with its best recorded all-fp64, accurate value as its baseline.

        Scores are speedups then, as in a live run; without one a linear penalty outweighs them or counts for nothing,
        whatever unit the recording has. Unchanged where no parameter is a type or a policy, or no such trial is valid.

        Args:
            objective: what is optimised.
            trials: the recorded trials, under the names of metrics that the objective knows; by default as recorded.
        """
        fixed = baseline_values(self.space.parameters)
        if not fixed:
            return objective
        recorded = self.trials.values() if trials is None else trials
        plain = [t for t in recorded if all(t.configuration[name] in values for name, values in fixed.items())]
        best = replace(objective, threshold=None, constraints=()).best(plain)
        value = math.nan if best is None else objective.value(best)
        # (Of a negative value no ratio exists, as a strategy that asks for one is told.)
        return replace(objective, baseline=value) if value >= 0 else objective


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of a recording: the value of each parameter, in order, and what came out."""

    values: tuple[Any, ...]
    status: Status
    message: str = ""
    measurement: Measurement = field(default_factory=Measurement)


def assemble(
    name: str,
    names: Sequence[str],
    declared: Mapping[str, Sequence[Any]],
    records: Iterable[Record],
    *,
    parameters: Sequence[Parameter] | None = None,
    **about: Any,
) -> RecordedSpace:
    """Build a recorded space from its entries; of two entries for one configuration the last one counts.

    Args:
        name: name of the space.
        names: names of the parameters, in the order of ``Record.values``.
        declared: values the file declares for a parameter; those that occur are added.
        records: the entries.
        parameters: the parameters themselves where they are known, instead of ``declared``.
        about: the remaining attributes of :class:`RecordedSpace`; ``signature`` is found out if it is not given.

    Raises:
        SpaceFileError: there are no entries, a value cannot be a parameter's value, or a number cannot be what it is
            called.
    """
    if len(names) > MAX_PARAMETERS:
        raise SpaceFileError(f"{name}: {len(names)} parameters; at most {MAX_PARAMETERS} are supported")
    kept = list(records)
    if not kept:
        raise SpaceFileError(f"{name}: the file records no configuration")
    columns = [[_plain(name, n, record.values[i]) for record in kept] for i, n in enumerate(names)]
    try:
        if parameters is None:
            parameters = [
                parameter_of(n, [*(_plain(name, n, v) for v in declared.get(n, ())), *column])
                for n, column in zip(names, columns, strict=True)
            ]
        codes = _encode(parameters, columns)
        space = SearchSpace.from_codes(parameters, codes)
    except SpaceFileError:
        raise
    except MptuneError as error:
        raise SpaceFileError(f"{name}: {error}") from error
    trials: dict[int, Trial] = {}
    values = [parameter.values for parameter in parameters]
    for index, row, record in zip(space.indices_of(codes).tolist(), codes.tolist(), kept, strict=True):
        configuration = Configuration({n: v[code] for n, v, code in zip(names, values, row, strict=True)})
        trials[index] = Trial(configuration, record.status, record.message, record.measurement)
        _check_numbers(name, trials[index])
    signature = _known_signature(space, about.pop("signature", None), trials.values())
    return RecordedSpace(name, space, MappingProxyType(trials), signature=signature, **about)


def _check_numbers(name: str, trial: Trial) -> None:
    """Raise a SpaceFileError for a time that is not positive, or an error or a footprint below zero."""
    for metric in ("time_ms", "error", "memory_bytes", "energy_j"):
        number = trial.metric(metric)
        if number < 0 or (number == 0 and metric == "time_ms"):
            least = "more than 0" if metric == "time_ms" else "0 or more"
            raise SpaceFileError(f"{name}: {metric} of {trial.configuration} is {number:g}; expected {least}")


def parameter_of(name: str, values: Iterable[Value]) -> Parameter:
    """Return the parameter whose values are these: what their types say it is.

    Numbers become an ordinal parameter in ascending order. Text becomes a precision parameter when every
    value is a spelling of another precision, a policy parameter when every value is a policy, and a
    categorical one otherwise. In an application, ``KERNEL.PARAMETER`` is a name, too.
    """
    kernel, _, own = name.rpartition(".")
    if is_identifier(kernel):
        return parameter_of(own, values).renamed(name)
    unique = tuple(dict.fromkeys(values))
    if all(isinstance(v, bool) for v in unique):
        return BooleanParameter(name) if len(unique) == 2 else CategoricalParameter(name, unique)
    if all(isinstance(v, int | float) for v in unique):
        return OrdinalParameter(name, tuple(sorted(unique)))
    if _are_permutations(unique):
        return PermutationParameter(name, len(unique[0]))  # type: ignore[arg-type]
    texts = [v for v in unique if isinstance(v, str)]
    if len(texts) == len(unique):
        if all(text.strip().lower() in _SPELLINGS for text in texts):
            canonical = {precision(text).name for text in texts}
            if len(canonical) == len(texts):
                return PrecisionParameter.searched(name, texts)
        if len(texts) > 1 and all(text in POLICIES for text in texts):
            return PolicyParameter(name, tuple(p for p in POLICIES if p in texts))
    return CategoricalParameter(name, unique)


def parameter_from(described: ParameterInfo) -> Parameter:
    """Return the parameter a file describes.

    Raises:
        UnknownNameError: it is of precisions, and a value is none.
    """
    if described.kind == PrecisionParameter.kind:
        for value in described.values:
            precision(str(value))
    # Numbers that are categories have no order; every other kind shows in the values.
    if described.kind == CategoricalParameter.kind:
        kernel, _, own = described.name.rpartition(".")
        name = own if is_identifier(kernel) else described.name
        return CategoricalParameter(name, described.values).renamed(described.name)
    return parameter_of(described.name, described.values)


def from_run(run: Run, name: str) -> RecordedSpace:
    """Return the trials of a run as a recorded space, under the names and values of its parameters.

    Raises:
        SpaceFileError: the run has no trial, or its trials are not of one search space.
    """
    info = run.info
    parameters = [parameter_from(described) for described in info.parameters]
    names = run.parameter_names
    records = []
    for trial in run.trials:
        if set(trial.configuration) != set(names):
            raise SpaceFileError(f"{name}: the trial of {trial.configuration} is not of the run's search space")
        values = trial.configuration.subset(names)
        records.append(Record(values, trial.status, trial.message, trial.measurement))
    return assemble(
        name,
        names,
        {},
        records,
        parameters=parameters or None,
        objective=info.objective.metric,
        kernel=info.kernel,
        device=info.device,
        metric=info.metric,
        measured_by=info.metrics,
        problem_size=list(info.sizes.values()),
        signature=info.signature or None,
    )


def to_run(recorded: RecordedSpace) -> Run:
    """Return a recorded space as a run without a threshold, its trials in the order of the file.

    Its baseline is the best of the all-fp64, accurate configurations. Its objective is what the recording was made for,
    less of it being better, or the time where that has no name an expression can hold.
    """
    space = recorded.space
    info = RunInfo(
        kernel=recorded.kernel or recorded.name,
        device=recorded.device,
        objective=Objective(recorded.objective if recorded.objective.isidentifier() else "time_ms"),
        metric=recorded.metric,
        metrics=recorded.measured_by,
        baseline_values=baseline_values(space.parameters),
        parameters=tuple(ParameterInfo(p.name, p.kind, p.values) for p in space.parameters),
        constraints=tuple(constraint.text for constraint in space.constraints),
        constants=space.constants,
        configurations=space.size,
        signature=recorded.signature,
        units=recorded.units,
        recorded=recorded.name,
    )
    return Run(info, list(recorded.trials.values()))


def parameters_of(run: Run) -> tuple[Parameter, ...]:
    """Return the parameters of a run as it describes them, else as the values in its trials say."""
    if run.info.parameters:
        return tuple(map(parameter_from, run.info.parameters))
    values = {
        name: [t.configuration[name] for t in run.trials if name in t.configuration] for name in run.parameter_names
    }
    return tuple(parameter_of(name, entries) for name, entries in values.items())


def _are_permutations(values: Sequence[Value]) -> bool:
    first = values[0]
    if not isinstance(first, tuple) or not 1 <= len(first) <= _MAX_PERMUTED:
        return False
    entries = list(range(len(first)))
    return all(isinstance(v, tuple) and sorted(v) == entries for v in values)


def finite(value: Any) -> float | None:
    """Return a number as a float; None for anything else, NaN and infinities included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def finite_numbers(values: Any) -> tuple[float, ...]:
    """Return the finite numbers of a list as floats, nothing for anything that is not a list."""
    if not isinstance(values, list):
        return ()
    try:
        # One check for all of them: the usual list has nothing but finite numbers.
        if math.isfinite(math.fsum(values)):
            return tuple(map(float, values))
    except (TypeError, ValueError, OverflowError):
        pass
    return tuple(number for value in values if (number := finite(value)) is not None)


def unit_of(metric: str) -> str:
    """Return the unit a metric's name states: its suffix (``time_ms``), or the name itself (``GFLOP/s``)."""
    for suffix, unit in _UNIT_SUFFIXES.items():
        if metric.lower().endswith(suffix):
            return unit
    return metric if metric.endswith("/s") and " " not in metric else ""


def _known_signature(space: SearchSpace, given: Sequence[str] | None, trials: Iterable[Trial]) -> tuple[str, ...]:
    """Return the signature given, else the precisions and policies if the recorded errors depend on them alone.

    Elsewhere nothing says which parameters change the numbers, and a wrong signature would let a strategy
    write off configurations that are accurate.
    """
    if given is not None:
        return tuple(name for name in space.names if name in given)
    names = tuple(p.name for p in space.parameters if isinstance(p, PrecisionParameter | PolicyParameter))
    ranges: dict[tuple[Value, ...], tuple[float, float]] = {}
    for trial in trials:
        error = trial.error
        if not math.isnan(error):
            group = trial.configuration.subset(names)
            low, high = ranges.get(group, (error, error))
            ranges[group] = min(low, error), max(high, error)
    return names if all(high <= _SAME_ERROR * low for low, high in ranges.values()) else ()


def _plain(space: str, parameter: str, value: Any) -> Value:
    if isinstance(value, list | tuple):
        return tuple(value) if all(isinstance(v, int) for v in value) else _refuse(space, parameter, value)
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return _refuse(space, parameter, value)


def _refuse(space: str, parameter: str, value: Any) -> Value:
    raise SpaceFileError(
        f"{space}: parameter {parameter!r} has the value {value!r}; expected a finite number, text, a truth value "
        "or a list of integers"
    )


def _encode(parameters: Sequence[Parameter], columns: Sequence[Sequence[Value]]) -> NDArray[np.int32]:
    """Return the value codes, shape (n_records, n_parameters)."""
    codes = np.empty((len(columns[0]), len(parameters)), dtype=np.int32)
    for j, (parameter, column) in enumerate(zip(parameters, columns, strict=True)):
        code_of: dict[Value, int] = {value: code for code, value in enumerate(parameter.values)}
        for value in set(column) - set(code_of):
            code_of[value] = parameter.values.index(parameter.parse(value))
        codes[:, j] = [code_of[value] for value in column]
    return codes
