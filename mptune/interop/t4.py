"""T4 results files and T1 inputs: formats of results and search spaces that several auto-tuners share.

A T4 file is one JSON object with ``metadata``, ``schema_version`` and ``results``. A result has its ``configuration``,
``times`` by phase, ``invalidity``, ``correctness``, ``measurements`` (name, value, unit) and the names of its
``objectives``. A T1 file has the parameters, their values and conditions.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from mptune.errors import EmptySpaceError, MptuneError, SpaceFileError, UnknownNameError
from mptune.interop.recorded import Format, Record, assemble, finite, finite_numbers, load_json, read_text, space_name
from mptune.results.trial import Status, Trial
from mptune.run import Run
from mptune.space.configuration import Value
from mptune.space.parameters import Parameter, parameter_of, parse_values
from mptune.space.search_space import SearchSpace
from mptune.store.info import read_fields

#: mptune's addition to the metadata: whether the objective is maximised.
_MAXIMISE: Final = "mptune_maximise"

#: Milliseconds in one unit of time, by every spelling in known files; one tool writes "miliseconds".
_MILLISECONDS: Final[Mapping[str, float]] = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1e3),
    **dict.fromkeys(("ms", "millisecond", "milliseconds", "milisecond", "miliseconds"), 1.0),
    **dict.fromkeys(("us", "µs", "μs", "microsecond", "microseconds"), 1e-3),
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 1e-6),
}

_STATUS_OF: Final[Mapping[str, Status]] = {
    "correct": Status.OK,
    "compile": Status.COMPILE_ERROR,
    "runtime": Status.LAUNCH_ERROR,
    "timeout": Status.TIMEOUT,
    "constraints": Status.CONSTRAINT,
    "correctness": Status.ERROR,
}
#: The status of an invalid result that has an error, and therefore ran.
_RAN_AS: Final[Mapping[Status, Status]] = {Status.ERROR: Status.INACCURATE, Status.CONSTRAINT: Status.VIOLATION}
#: T4's words for statuses; all others become "runtime".
_WORD_OF: Final[Mapping[Status, str]] = {
    **{status: word for word, status in _STATUS_OF.items() if status is not Status.ERROR},
    **dict.fromkeys(
        (Status.INACCURATE, Status.FRAGILE, Status.NON_FINITE, Status.UNWRITTEN, Status.UNSTABLE), "correctness"
    ),
    Status.VIOLATION: "constraints",
}
_RESULT: Final = {
    "configuration": Mapping[str, Any],
    "times": Mapping[str, Any],
    "invalidity": str,
    "correctness": Any,
    "measurements": tuple[Mapping[str, Any], ...],
    "objectives": tuple[str, ...],
}
#: T4's phases and their names in a measurement.
_PHASES: Final[Mapping[str, str]] = {
    "compilation": "compile",
    "compilation_time": "compile",
    "validation": "accuracy",
    "benchmark": "timing",
    "search_algorithm": "strategy",
    "framework": "framework",
}

_TYPES: Final[Mapping[str, Callable[..., Any]]] = {"int": int, "uint": int, "float": float, "bool": bool, "string": str}


def _read(path: Path, document: Any) -> Run | None:
    if not isinstance(document, dict) or "results" not in document:
        return None
    kinds = {"results": tuple[Mapping[str, Any], ...], "metadata": Mapping[str, Any]}
    fields = read_fields(kinds, document, str(path), SpaceFileError, required=("results",))
    metadata = fields.get("metadata", {})
    results = [
        read_fields(_RESULT, result, f"{path}: result {number}", SpaceFileError, required=("configuration",))
        for number, result in enumerate(fields["results"])
    ]
    names = dict.fromkeys(name for result in results for name in result["configuration"])
    units: dict[str, str] = {}
    records = [
        _record(f"{path}: result {number}", tuple(names), result, metadata.get("timeunit"), units)
        for number, result in enumerate(results)
    ]
    return assemble(
        space_name(path),
        tuple(names),
        {},
        records,
        objective=_objective(results[0]) if results else "time_ms",
        minimise=metadata.get(_MAXIMISE) is not True,
        units=units,
    )


def _objective(result: Mapping[str, Any]) -> str:
    goal = next(iter(result.get("objectives", ())), "time")
    return "time_ms" if goal == "time" else str(goal)


def _record(
    where: str, names: tuple[str, ...], result: Mapping[str, Any], timeunit: Any, units: dict[str, str]
) -> Record:
    """Return a result as a record; the units of its metrics are added to ``units``."""
    if missing := [name for name in names if name not in result["configuration"]]:
        raise SpaceFileError(f"{where} has no value for parameter {missing[0]!r}")
    values = tuple(result["configuration"][name] for name in names)
    status, message = _outcome(where, result)
    metrics: dict[str, float] = {}
    for measurement in result.get("measurements", ()):
        name, unit, value = str(measurement.get("name", "")), measurement.get("unit"), finite(measurement.get("value"))
        if name == "time":
            timeunit = timeunit or unit
        if value is None:
            continue
        if name == "time":
            metrics["time_ms"] = value * _milliseconds(where, unit or timeunit)
        else:
            metrics[name] = value
            units |= {name: str(unit)} if unit else {}
    # Times without a unit are ignored; a failed result may have none.
    times = result.get("times", {}) if timeunit is not None else {}
    scale = _milliseconds(where, timeunit) if times else 1.0
    durations = {name: n * scale / 1e3 for word, name in _PHASES.items() if (n := finite(times.get(word))) is not None}
    if "error" in metrics:
        status = _RAN_AS.get(status, status)
    runtimes = tuple(time * scale for time in finite_numbers(times.get("runtimes")))
    return Record.of(values, (status, message), _objective(result), metrics, runtimes, durations)


def _outcome(where: str, result: Mapping[str, Any]) -> tuple[Status, str]:
    word = result.get("invalidity", "correct")
    if (status := _STATUS_OF.get(word)) is None:
        raise SpaceFileError(f"{where}: {UnknownNameError('invalidity', word, _STATUS_OF)}")
    if status is Status.OK and result.get("correctness", 1) == 0:
        return Status.ERROR, "recorded as incorrect"
    return status, "" if status is Status.OK else f"recorded with invalidity {word!r}"


def _milliseconds(where: str, unit: Any) -> float:
    if unit is None:
        raise SpaceFileError(f"{where} has a time without a unit, and the file's metadata have no 'timeunit'")
    if (found := _MILLISECONDS.get(str(unit).strip().lower())) is None:
        known = ("seconds", "milliseconds", "microseconds", "nanoseconds")
        raise SpaceFileError(f"{where}: {UnknownNameError('unit of time', unit, known)}")
    return found


def _write(run: Run) -> str:
    maximise = {} if run.info.objective.minimise else {_MAXIMISE: True}
    document = {
        "metadata": {"timeunit": "milliseconds", **maximise},
        "results": [_result(run, trial) for trial in run.indexed],
        "schema_version": "1.0.0",
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _result(run: Run, trial: Trial) -> dict[str, Any]:
    measurement, objective = trial.measurement, run.info.objective.metric
    words = {name: word for word, name in _PHASES.items() if word != "compilation_time"}
    times = {words[name]: seconds * 1e3 for name, seconds in measurement.durations_s.items() if name in words}
    invalidity = _WORD_OF.get(trial.status, "runtime")
    metrics = {name: value for name, value in measurement.metrics.items() if trial.is_valid and math.isfinite(value)}
    return {
        "configuration": dict(trial.configuration),
        "times": {**times, "runtimes": [t for t in measurement.times_ms if math.isfinite(t)]},
        "invalidity": invalidity,
        "correctness": int(invalidity != "correctness"),
        "measurements": [
            {"name": "time", "value": value, "unit": "milliseconds"}
            if name == "time_ms"
            else {"name": name, "value": value, "unit": run.info.unit_of(name)}
            for name, value in metrics.items()
        ],
        "objectives": ["time" if objective == "time_ms" else objective],
    }


T4: Final = Format("t4", "T4 results", read=_read, write=_write)


# -- T1 ------------------------------------------------------------------------------------------


def read_t1(path: str | Path) -> SearchSpace:
    """Read the search space of a T1 file, gzipped or not. Its expressions are parsed, never evaluated as code."""
    path = Path(path)
    document = load_json(path, read_text(path))
    if not _is_t1(document):
        raise SpaceFileError(f"{path}: not a T1 file (no object 'ConfigurationSpace' with 'TuningParameters' in it)")
    entries = dict.fromkeys(("TuningParameters", "Conditions"), tuple[Mapping[str, Any], ...])
    space = read_fields(entries, document["ConfigurationSpace"], str(path), SpaceFileError)
    parameters = [_parameter(path, number, entry) for number, entry in enumerate(space["TuningParameters"])]
    conditions = [
        read_fields({"Expression": str}, entry, f"{path}: condition {number}", SpaceFileError, ("Expression",))
        for number, entry in enumerate(space.get("Conditions", ()))
    ]
    try:
        return SearchSpace(parameters, [condition["Expression"] for condition in conditions])
    except EmptySpaceError:
        raise
    except MptuneError as error:
        raise SpaceFileError(f"{path}: {error}") from error


def _is_t1(document: Any) -> bool:
    space = document.get("ConfigurationSpace") if isinstance(document, dict) else None
    return isinstance(space, dict) and isinstance(space.get("TuningParameters"), list)


def _converted(value: Any, kind: str) -> Value:
    found: Value = _TYPES[kind](value)
    if kind != "string" and (found != value or (kind == "uint" and value < 0)):
        raise ValueError(f"{value!r} is no {kind}")
    return found


def _parameter(path: Path, number: int, entry: Mapping[str, Any]) -> Parameter:
    kinds = {"Name": str, "Type": str, "Values": str | tuple[Any, ...]}
    fields = read_fields(kinds, entry, f"{path}: tuning parameter {number}", SpaceFileError, ("Name", "Values"))
    name, kind, raw = fields["Name"], fields.get("Type", "int"), fields["Values"]
    try:
        if kind not in _TYPES:
            raise UnknownNameError("type", kind, _TYPES)
        values = parse_values(raw) if isinstance(raw, str) else list(raw)
        if not values:
            raise ValueError("no values")
        return parameter_of(name, [_converted(value, kind) for value in values])
    except (MptuneError, ValueError, TypeError, OverflowError) as error:
        raise SpaceFileError(
            f"{path}: values of parameter {name!r}, {reprlib.repr(entry['Values'])}: {error}"
        ) from error


def _refuse(path: Path, document: Any) -> None:
    if _is_t1(document):
        raise SpaceFileError(f"{path}: a T1 file describes a search space without measurements to replay")


T1: Final = Format("t1", "a T1 input", read=_refuse)
