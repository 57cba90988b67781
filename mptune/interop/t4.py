"""T4 results files: the output format shared by several auto-tuners.

A T4 file is one JSON object with ``metadata``, ``schema_version`` and ``results``; a result has its
``configuration``, ``times`` by phase, ``invalidity``, ``correctness``, ``measurements`` (name, value, unit) and
the names of its ``objectives``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mptune.errors import SpaceFileError, did_you_mean
from mptune.interop.files import Format, space_name
from mptune.interop.recorded import FAILED_TIME, Record, assemble, finite, finite_numbers
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run

__all__ = ["T4"]

_SCHEMA_VERSION: Final = "1.0.0"

#: Milliseconds in one unit of time, by every spelling seen in files; one tool writes "miliseconds".
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
#: How a result ended that is invalid and states its error all the same: it ran, and was not what was asked for.
_RAN_AS: Final[Mapping[Status, Status]] = {Status.ERROR: Status.INACCURATE, Status.CONSTRAINT: Status.VIOLATION}
#: What T4 calls a status; it has no word for the others but "runtime".
_WORD_OF: Final[Mapping[Status, str]] = {
    **{status: word for word, status in _STATUS_OF.items() if status is not Status.ERROR},
    **dict.fromkeys(
        (Status.INACCURATE, Status.FRAGILE, Status.NON_FINITE, Status.UNWRITTEN, Status.UNSTABLE), "correctness"
    ),
    Status.VIOLATION: "constraints",
}
#: T4's phases and what a measurement calls them.
_PHASES: Final[Mapping[str, str]] = {
    "compilation": "compile",
    "compilation_time": "compile",
    "validation": "accuracy",
    "benchmark": "timing",
    "search_algorithm": "strategy",
    "framework": "framework",
}


def _read(path: Path, document: Any) -> Run | None:
    """Return a T4 document as a run; times become milliseconds whatever their unit is."""
    if not isinstance(document, dict) or "results" not in document:
        return None
    results, metadata = document["results"], document.get("metadata")
    if not isinstance(results, list):
        raise SpaceFileError(f"{path}: not a T4 results file (no list 'results' in it)")
    names: dict[str, None] = {}
    for number, result in enumerate(results):
        if not isinstance(result, dict) or not isinstance(result.get("configuration"), dict):
            raise SpaceFileError(f"{path}: result {number} has no object 'configuration'")
        names.update(dict.fromkeys(result["configuration"]))
    timeunit = metadata.get("timeunit") if isinstance(metadata, dict) else None
    units: dict[str, str] = {}
    records = [
        _record(f"{path}: result {n}", tuple(names), result, timeunit, units) for n, result in enumerate(results)
    ]
    goal = _objective(results[0]) if results else "time_ms"
    return assemble(space_name(path), tuple(names), {}, records, objective=goal, units=units)


def _objective(result: dict[str, Any]) -> str:
    goals = result.get("objectives")
    goal = goals[0] if isinstance(goals, list) and goals else "time"
    return "time_ms" if goal == "time" else str(goal)


def _record(where: str, names: tuple[str, ...], result: dict[str, Any], timeunit: Any, units: dict[str, str]) -> Record:
    """Return a result as a record; the units of its metrics are added to ``units``."""
    for name in names:
        if name not in result["configuration"]:
            raise SpaceFileError(f"{where} has no value for parameter {name!r}")
    values = tuple(result["configuration"][name] for name in names)
    status, message = _outcome(where, result)
    measurements = result.get("measurements", [])
    if not isinstance(measurements, list) or not all(isinstance(m, dict) for m in measurements):
        raise SpaceFileError(f"{where}: 'measurements' is not a list of objects")
    metrics: dict[str, float] = {}
    for measurement in measurements:
        name, unit = str(measurement.get("name", "")), measurement.get("unit") or None
        value = finite(measurement.get("value"))
        if name == "time":
            timeunit = timeunit or unit
            if value is not None:
                metrics["time_ms"] = value * _milliseconds(where, unit or timeunit)
        elif value is not None:
            metrics[name] = value
            units |= {name: str(unit)} if unit is not None else {}
    times = result.get("times")
    # Times without a unit say nothing; a result that failed may well have none.
    times = times if isinstance(times, dict) and timeunit is not None else {}
    scale = _milliseconds(where, timeunit) if times else 1.0
    durations = {name: n * scale / 1e3 for word, name in _PHASES.items() if (n := finite(times.get(word))) is not None}
    if "error" in metrics:
        status = _RAN_AS.get(status, status)
    goal = _objective(result)
    goal_value = metrics.get(goal)
    nothing = goal_value is None or abs(goal_value) >= FAILED_TIME or (goal == "time_ms" and goal_value <= 0.0)
    # An inaccurate trial is not always timed.
    if nothing and status is Status.OK:
        status, message = Status.ERROR, f"recorded with {goal} = {goal_value!r}"
    if not status.is_valid:
        return Record(values, status, message, Measurement(durations_s=durations))
    if metrics.get("error", 0.0) > 0.0:
        metrics.setdefault("log10_error", math.log10(metrics["error"]))
    runtimes = tuple(time * scale for time in finite_numbers(times.get("runtimes")))
    return Record(values, status, message, Measurement(metrics, runtimes, durations))


def _outcome(where: str, result: dict[str, Any]) -> tuple[Status, str]:
    word = result.get("invalidity", "correct")
    status = _STATUS_OF.get(word) if isinstance(word, str) else None
    if status is None:
        raise SpaceFileError(f"{where} has the unknown invalidity {word!r} (known: {', '.join(_STATUS_OF)})")
    if status is Status.OK and result.get("correctness", 1) == 0:
        return Status.ERROR, "recorded as incorrect"
    return status, "" if status is Status.OK else f"recorded with invalidity {word!r}"


def _milliseconds(where: str, unit: Any) -> float:
    """Return how many milliseconds a unit of time is."""
    if unit is None:
        raise SpaceFileError(f"{where} gives its time no unit, and the file's metadata no 'timeunit'")
    scale = _MILLISECONDS.get(str(unit).strip().lower())
    if scale is None:
        known = ("seconds", "milliseconds", "microseconds", "nanoseconds")
        near = did_you_mean(str(unit), known)
        raise SpaceFileError(f"{where} has the unknown unit of time {unit!r}{near} (known: {', '.join(known)})")
    return scale


def _write(run: Run) -> str:
    """Return the text of a T4 results file, with every time in milliseconds."""
    document = {
        "metadata": {"timeunit": "milliseconds"},
        "results": [_result(run, trial) for trial in run.indexed],
        "schema_version": _SCHEMA_VERSION,
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _result(run: Run, trial: Trial) -> dict[str, Any]:
    measurement, objective = trial.measurement, run.info.objective.metric
    words = {name: word for word, name in _PHASES.items() if word != "compilation_time"}
    times: dict[str, Any] = {
        word: measurement.durations_s[name] * 1e3 for name, word in words.items() if name in measurement.durations_s
    }
    times["runtimes"] = [t for t in measurement.times_ms if math.isfinite(t)]
    metrics = measurement.metrics if trial.is_valid else {}
    return {
        "configuration": dict(trial.configuration),
        "times": times,
        "invalidity": _WORD_OF.get(trial.status, "runtime"),
        "correctness": 0 if _WORD_OF.get(trial.status) == "correctness" else 1,
        "measurements": [
            {
                "name": "time" if name == "time_ms" else name,
                "value": value,
                "unit": "milliseconds" if name == "time_ms" else run.info.unit_of(name),
            }
            for name, value in metrics.items()
            if math.isfinite(value)
        ],
        "objectives": ["time" if objective == "time_ms" else objective],
    }


T4: Final = Format("t4", "T4 results", read=_read, write=_write)
