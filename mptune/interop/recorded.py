"""Runs made from the entries of a recording.

The trials *are* the search space of a recording. A partial recording replays only what it holds, because
nothing is known about the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mptune.errors import MptuneError, SpaceFileError
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration, Value, is_whole
from mptune.space.parameters import (
    MAX_PARAMETERS,
    Parameter,
    PolicyParameter,
    PrecisionParameter,
    baseline_values,
    parameter_of,
)
from mptune.store import ParameterInfo, RunInfo, RunState

__all__ = ["FAILED_TIME", "Record", "assemble", "finite", "finite_numbers"]

#: Kernel Tuner writes a time of at least this for a configuration that failed.
FAILED_TIME: Final = 1e20

#: Errors within this factor count as one: the order of a sum changes them by less.
_SAME_ERROR: Final = 2.0
#: Names of the axes of a problem size without names.
_AXES: Final = "xyzw"


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
    objective: str = "time_ms",
    minimise: bool = True,
    problem_size: Any = None,
    signature: Sequence[str] | None = None,
    warnings: tuple[str, ...] = (),
    **about: Any,
) -> Run:
    """Return the run with the entries of a recording; of two entries for one configuration the last one counts.

    Its baseline is the best of the all-fp64, accurate configurations. It has no threshold.

    Args:
        name: name of the recording.
        names: names of the parameters, in the order of ``Record.values``.
        declared: values the file declares for a parameter; those that occur are added.
        records: the entries.
        parameters: the parameters themselves where they are known, instead of ``declared``.
        objective: metric that the recording was made for. The time takes the place of one with a name that an
            expression cannot hold.
        minimise: whether less of it is better.
        problem_size: sizes by name, a list of sizes, or a size.
        signature: names of the parameters that can change the numbers, None if the recording does not say.
        warnings: remarks about the recording.
        about: further fields of :class:`~mptune.store.RunInfo`.

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
        columns = [_canonical(p, column) for p, column in zip(parameters, columns, strict=True)]
        trials = [
            Trial(Configuration(dict(zip(names, row, strict=True))), record.status, record.message, record.measurement)
            for row, record in zip(zip(*columns, strict=True), kept, strict=True)
        ]
        _check_numbers(name, trials)
        info = RunInfo(
            objective=Objective(objective, minimise=minimise) if objective.isidentifier() else Objective("time_ms"),
            sizes=_sizes(problem_size),
            baseline_values=baseline_values(parameters),
            parameters=tuple(ParameterInfo(p.name, p.kind, p.values) for p in parameters),
            configurations=len({trial.configuration for trial in trials}),
            signature=_signature(parameters, signature, trials),
            recorded=name,
            **about,
        )
        run = Run(info, trials, RunState(warnings=warnings))
        assert run.space.size
    except SpaceFileError:
        raise
    except (MptuneError, OverflowError) as error:
        raise SpaceFileError(f"{name}: {error}") from error
    return run


def _canonical(parameter: Parameter, column: Sequence[Value]) -> list[Value]:
    """Return values of a parameter as the parameter spells them."""
    known = {value: value for value in parameter.values}
    for value in set(column) - set(known):
        known[value] = known[parameter.parse(value)]
    return [known[value] for value in column]


def _check_numbers(name: str, trials: Iterable[Trial]) -> None:
    """Raise a SpaceFileError for a time that is not positive, or an error or a footprint below zero."""
    for trial in trials:
        for metric in ("time_ms", "error", "memory_bytes", "energy_j"):
            number = trial.metric(metric)
            if number < 0 or (number == 0 and metric == "time_ms"):
                least = "more than 0" if metric == "time_ms" else "0 or more"
                raise SpaceFileError(f"{name}: {metric} of {trial.configuration} is {number:g}; expected {least}")


def _sizes(problem_size: Any) -> dict[str, int]:
    """Return the sizes by name; those of a list are called x, y, z, w. Empty where they are no whole numbers."""
    if isinstance(problem_size, Mapping):
        named = {str(name): size for name, size in problem_size.items()}
    else:
        sizes = problem_size if isinstance(problem_size, list) else [problem_size]
        named = dict(zip(_AXES, sizes, strict=False))
    return named if all(map(is_whole, named.values())) else {}


def _signature(
    parameters: Sequence[Parameter], given: Sequence[str] | None, trials: Iterable[Trial]
) -> tuple[str, ...]:
    """Return the signature given, else the precisions and policies if the recorded errors depend on them alone.

    Elsewhere nothing says which parameters change the numbers, and a wrong signature would let a strategy
    write off configurations that are accurate.
    """
    if given is not None:
        if not isinstance(given, list | tuple):
            raise MptuneError(f"its signature should be a list of names, and is {given!r}")
        return tuple(p.name for p in parameters if p.name in given)
    names = tuple(p.name for p in parameters if isinstance(p, PrecisionParameter | PolicyParameter))
    ranges: dict[tuple[Value, ...], tuple[float, float]] = {}
    for trial in trials:
        error = trial.error
        if not math.isnan(error):
            group = trial.configuration.subset(names)
            low, high = ranges.get(group, (error, error))
            ranges[group] = min(low, error), max(high, error)
    return names if all(high <= _SAME_ERROR * low for low, high in ranges.values()) else ()


def _plain(space: str, parameter: str, value: Any) -> Value:
    if isinstance(value, list | tuple) and all(isinstance(v, int) for v in value):
        return tuple(value)
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise SpaceFileError(
        f"{space}: parameter {parameter!r} has the value {value!r}; expected a finite number, text, a truth value "
        "or a list of integers"
    )


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
