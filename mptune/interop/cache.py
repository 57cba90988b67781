"""Kernel Tuner's cache files.

A cache file is one JSON object: ``device_name``, ``kernel_name``, ``problem_size``, ``tune_params_keys``,
``tune_params``, and ``cache``, which maps "v1,v2,..." to an entry with the value of each parameter, ``time`` in
milliseconds, the raw ``times``, the time each phase took, and any further measurement. A configuration that
failed has the name of an error under ``__error__`` or instead of a time, or a time of 1e20 or more.

Kernel Tuner appends entries and closes the braces only at the end: a file without its end gives its complete entries.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mptune.errors import SpaceFileError
from mptune.interop.files import Format, space_name
from mptune.interop.recorded import FAILED_TIME, Record, assemble, finite, finite_numbers
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run

__all__ = ["CACHE"]

#: Kernel Tuner's words for a failure.
_STATUS_OF: Final[Mapping[str, Status]] = {
    "CompilationFailedConfig": Status.COMPILE_ERROR,
    "RuntimeFailedConfig": Status.LAUNCH_ERROR,
    "InvalidConfig": Status.CONSTRAINT,
    "ErrorConfig": Status.ERROR,
}
_WORD_OF: Final[Mapping[Status, str]] = {status: word for word, status in _STATUS_OF.items()}

#: Kernel Tuner's phases, all in milliseconds, and what a measurement calls them.
_PHASES: Final[Mapping[str, str]] = {
    "compile_time": "compile",
    "verification_time": "accuracy",
    "benchmark_time": "timing",
    "strategy_time": "strategy",
    "framework_time": "framework",
}
#: Closing braces that an entry cut in two has at most.
_MOST_BRACES: Final = 20
#: The rest of a number, a literal or an escape that was cut in two.
_PARTIAL_TOKEN: Final = re.compile(r"[\w.+\-\\]*\s*")
#: Marks an entry as failed whatever its numbers are.
_ERROR_KEY: Final = "__error__"
#: What Kernel Tuner does not have: the accuracy signature, how exactly a trial ended, and why.
_SIGNATURE_KEY: Final = "mptune_signature"
_STATUS_KEY: Final = "mptune_status"
_MESSAGE_KEY: Final = "mptune_message"


def _read(path: Path, document: Any) -> Run | None:
    is_cut_off = isinstance(document, str)
    if is_cut_off:
        document = _repaired(document)
    if not isinstance(document, dict) or not {"cache", "tune_params_keys"} & document.keys():
        return None
    entries = document.get("cache")
    if not isinstance(entries, dict):
        raise SpaceFileError(f"{path}: 'cache' is not an object of entries")
    declared = document.get("tune_params", {})
    names = document.get("tune_params_keys", list(declared) if isinstance(declared, dict) else None)
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise SpaceFileError(f"{path}: 'tune_params_keys' is not a list of parameter names")
    if not isinstance(declared, dict) or not all(isinstance(values, list) for values in declared.values()):
        raise SpaceFileError(f"{path}: 'tune_params' does not map parameter names to lists of values")
    goal = _goal(document.get("objective"))
    signature = document.get(_SIGNATURE_KEY)
    cut_off = f"the end of {path} is missing: its {len(entries):,} complete entries are used"
    return assemble(
        space_name(path),
        names,
        declared,
        _records(path, names, entries, goal),
        kernel=str(document.get("kernel_name", "")),
        device=str(document.get("device_name", "")),
        problem_size=document.get("problem_size"),
        objective="time_ms" if goal == "time" else goal,
        signature=signature if isinstance(signature, list) else None,
        warnings=(cut_off,) if is_cut_off else (),
    )


def _goal(objective: Any) -> str:
    """Return what the recording was made for, by Kernel Tuner's name; of several objectives the first."""
    if isinstance(objective, list) and objective:
        objective = objective[0]
    return objective if isinstance(objective, str) and objective else "time"


def _records(path: Path, names: list[str], entries: dict[str, Any], goal: str) -> Iterator[Record]:
    wanted = frozenset(names)
    for key, entry in entries.items():
        if not isinstance(entry, dict):
            raise SpaceFileError(f"{path}: entry {key!r} is not an object")
        try:
            values = tuple(entry[name] for name in names)
        except KeyError as error:
            raise SpaceFileError(f"{path}: entry {key!r} has no value for parameter {error.args[0]!r}") from error
        yield _record(path, key, values, {k: v for k, v in entry.items() if k not in wanted}, goal)


def _record(path: Path, key: str, values: tuple[Any, ...], entry: dict[str, Any], goal: str) -> Record:
    durations = {name: n / 1e3 for k, name in _PHASES.items() if (n := finite(entry.get(k))) is not None}
    status, message = _outcome(entry, goal)
    if entry.get(_STATUS_KEY) is not None:
        try:
            status = Status(entry[_STATUS_KEY])
        except ValueError as error:
            raise SpaceFileError(f"{path}: entry {key!r} has the unknown status {entry[_STATUS_KEY]!r}") from error
        message = str(entry.get(_MESSAGE_KEY, message))
    if not status.is_valid:
        return Record(values, status, message, Measurement(durations_s=durations))
    metrics = {
        "time_ms" if name == "time" else name: number
        for name, value in entry.items()
        if name not in _PHASES and (number := finite(value)) is not None
    }
    if metrics.get("error", 0.0) > 0.0:
        metrics.setdefault("log10_error", math.log10(metrics["error"]))
    return Record(values, status, message, Measurement(metrics, finite_numbers(entry.get("times")), durations))


def _outcome(entry: Mapping[str, Any], goal: str) -> tuple[Status, str]:
    """Return how an entry ended, and for a failure why."""
    for value in entry.values():
        if isinstance(value, str) and value in _STATUS_OF:
            return _STATUS_OF[value], f"recorded as {value}"
    objective = entry.get(goal) if goal in entry else entry.get("time")
    number = finite(objective)
    if number is None or abs(number) >= FAILED_TIME or (goal == "time" and number <= 0.0):
        return Status.ERROR, "recorded without a value" if objective is None else f"recorded as {objective!r}"
    error = entry.get("error")
    if isinstance(error, float) and not math.isfinite(error):
        return Status.NON_FINITE, f"the recorded error is {error}"
    return Status.OK, ""


def _write(run: Run) -> str:
    """Return the text of a cache file that Kernel Tuner 1.5 reads and simulates.

    A status Kernel Tuner has no word for is written as the nearest one, and exactly in ``mptune_status``. It knows no
    threshold: an inaccurate trial keeps its numbers but is marked as failed, so that it is best in no tool.

    Raises:
        SpaceFileError: two configurations would have one key, or a parameter has the name of something measured.
    """
    info, names = run.info, run.parameter_names
    taken = {"time", "times", *_PHASES, *run.metric_names, _ERROR_KEY, _STATUS_KEY, _MESSAGE_KEY}
    for name in filter(taken.__contains__, names):
        raise SpaceFileError(
            f"{run.name}: a Kernel Tuner cache file has no place for a parameter called {name!r}, "
            "the name of something measured"
        )
    header = {
        "device_name": info.device,
        "kernel_name": run.kernel,
        "problem_size": list(info.sizes.values()),
        "tune_params_keys": list(names),
        "tune_params": {parameter.name: list(parameter.values) for parameter in run.parameters},
        "objective": "time" if info.objective.metric == "time_ms" else info.objective.metric,
        _SIGNATURE_KEY: list(info.signature),
        "cache": {},
    }
    # One entry a line and no line break but these two at the end: Kernel Tuner looks at the last three
    # characters to tell whether a file was closed, and appends to what is before them.
    opened = json.dumps(header, indent="")[:-3]
    entries: dict[str, dict[str, Any]] = {}
    for trial in run.indexed:
        key = ",".join(str(trial.configuration[name]) for name in names)
        if key in entries:
            raise SpaceFileError(f"{run.name}: two configurations have the key {key!r} in a Kernel Tuner cache file")
        entries[key] = _entry(trial, names)
    lines = [json.dumps({key: entry}, allow_nan=False)[1:-1] for key, entry in entries.items()]
    return opened + "\n" + ",\n".join(lines) + "}\n}"


def _entry(trial: Trial, names: tuple[str, ...]) -> dict[str, Any]:
    entry: dict[str, Any] = {name: trial.configuration[name] for name in names}
    measurement = trial.measurement
    if trial.is_valid:
        for name, number in measurement.metrics.items():
            if math.isfinite(number):
                entry["time" if name == "time_ms" else name] = number
        if measurement.times_ms:
            entry["times"] = [t for t in measurement.times_ms if math.isfinite(t)]
    else:
        entry["time"] = _WORD_OF.get(trial.status, "RuntimeFailedConfig")
    if trial.is_valid and trial.status is not Status.OK:
        entry[_ERROR_KEY] = "RuntimeFailedConfig"
    if trial.status is not Status.OK and (trial.status not in _WORD_OF or trial.message):
        entry[_STATUS_KEY] = trial.status.value
        entry[_MESSAGE_KEY] = trial.message
    for word, phase in _PHASES.items():
        entry[word] = measurement.durations_s.get(phase, 0.0) * 1e3
    return entry


def _repaired(text: str) -> Any | None:
    """Return a document whose end is missing, with every complete entry; None if it has none or is damaged elsewhere.

    Kernel Tuner appends entries to its cache file and closes the braces only at the end, so a run that was cut off
    leaves a file that ends after a comma, after an entry, or within one.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Unterminated string") and not _PARTIAL_TOKEN.fullmatch(text, error.pos):
            return None
    end = len(text)
    for _ in range(_MOST_BRACES):
        end = text.rfind("}", 0, max(end, 0))
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(f"{text[: end + 1]}}}}}")
    return None


CACHE: Final = Format("cache", "a Kernel Tuner cache file", read=_read, write=_write)
