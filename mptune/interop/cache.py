"""Kernel Tuner's cache files.

A cache file is one JSON object: ``device_name``, ``kernel_name``, ``problem_size``, ``tune_params_keys``,
``tune_params``, and ``cache``, which maps "v1,v2,..." to an entry with the value of each parameter, ``time`` in
milliseconds, the raw ``times``, the durations of phases, and any further measurement. A failed configuration has the
name of an error under ``__error__`` or instead of a time, or a time of 1e20 or more.

Kernel Tuner appends entries and closes the braces only at the end: of a truncated file, all complete entries are read.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mptune.errors import SpaceFileError
from mptune.interop.recorded import Format, Record, assemble, finite, finite_numbers, space_name
from mptune.results.trial import Status, Trial
from mptune.run import Run
from mptune.store.info import parse_json, read_fields

_STATUS_OF: Final[Mapping[str, Status]] = {
    "CompilationFailedConfig": Status.COMPILE_ERROR,
    "RuntimeFailedConfig": Status.LAUNCH_ERROR,
    "InvalidConfig": Status.CONSTRAINT,
    "ErrorConfig": Status.ERROR,
}
_WORD_OF: Final[Mapping[Status, str]] = {status: word for word, status in _STATUS_OF.items()}

#: Kernel Tuner's phases, in milliseconds, and their names in a measurement.
_PHASES: Final[Mapping[str, str]] = {
    "compile_time": "compile",
    "verification_time": "accuracy",
    "benchmark_time": "timing",
    "strategy_time": "strategy",
    "framework_time": "framework",
}
#: The rest of a truncated number, literal or escape.
_PARTIAL_TOKEN: Final = re.compile(r"[\w.+\-\\]*\s*")
#: Marks an entry as failed, even if it has numbers.
_ERROR_KEY: Final = "__error__"
#: mptune's additions to the format.
_MAXIMISE_KEY: Final = "mptune_maximise"
_SIGNATURE_KEY: Final = "mptune_signature"
_STATUS_KEY: Final = "mptune_status"
_MESSAGE_KEY: Final = "mptune_message"


def _read(path: Path, document: Any) -> Run | None:
    is_cut_off = isinstance(document, str)
    if is_cut_off:
        document = repaired(document)
    if not isinstance(document, dict) or not {"cache", "tune_params_keys"} & document.keys():
        return None
    kinds = {
        "cache": Mapping[str, Mapping[str, Any]],
        "tune_params": Mapping[str, tuple[Any, ...]],
        "tune_params_keys": tuple[str, ...],
    }
    fields = read_fields(kinds, document, str(path), SpaceFileError, required=("cache",))
    entries, declared = fields["cache"], fields.get("tune_params", {})
    names = fields.get("tune_params_keys", tuple(declared))
    if not names:
        raise SpaceFileError(f"{path}: no names of parameters in 'tune_params_keys'")
    objective, signature = document.get("objective"), document.get(_SIGNATURE_KEY)
    if isinstance(objective, list) and objective:
        objective = objective[0]
    goal = objective if isinstance(objective, str) and objective not in ("", "time") else "time_ms"
    cut_off = f"the end of {path} is missing: its {len(entries):,} complete entries are used"
    return assemble(
        space_name(path),
        names,
        declared,
        [_record(path, key, entry, names, goal) for key, entry in entries.items()],
        kernel=str(document.get("kernel_name", "")),
        device=str(document.get("device_name", "")),
        problem_size=document.get("problem_size"),
        objective=goal,
        minimise=document.get(_MAXIMISE_KEY) is not True,
        signature=signature if isinstance(signature, list) else None,
        warnings=(cut_off,) if is_cut_off else (),
    )


def _record(path: Path, key: str, entry: Mapping[str, Any], names: tuple[str, ...], goal: str) -> Record:
    if missing := [name for name in names if name not in entry]:
        raise SpaceFileError(f"{path}: entry {key!r} has no value for parameter {missing[0]!r}")
    values = tuple(entry[name] for name in names)
    measured = {name: value for name, value in entry.items() if name not in names}
    metrics = {
        "time_ms" if name == "time" else name: number
        for name, value in measured.items()
        if name not in _PHASES and (number := finite(value)) is not None
    }
    durations = {name: n / 1e3 for word, name in _PHASES.items() if (n := finite(measured.get(word))) is not None}
    outcome = Status.OK, ""
    word = next((value for value in measured.values() if isinstance(value, str) and value in _STATUS_OF), None)
    error = measured.get("error")
    if (status := measured.get(_STATUS_KEY)) is not None:
        if status not in list(Status):
            raise SpaceFileError(f"{path}: entry {key!r} has the unknown status {status!r}")
        outcome = Status(status), str(measured.get(_MESSAGE_KEY, ""))
    elif word is not None:
        outcome = _STATUS_OF[word], f"recorded as {word}"
    elif isinstance(error, float) and not math.isfinite(error):
        outcome = Status.NON_FINITE, f"the recorded error is {error}"
    goal = goal if goal in measured else "time_ms"
    return Record.of(values, outcome, goal, metrics, finite_numbers(measured.get("times")), durations)


def _write(run: Run) -> str:
    """Return the text of a cache file that Kernel Tuner 1.5 reads and simulates.

    A status unknown to Kernel Tuner becomes the nearest one, and is exact in ``mptune_status``. There is no threshold
    in this format: an inaccurate trial keeps its numbers but is marked as failed, so that no tool ranks it.
    """
    info, names = run.info, run.parameter_names
    taken = {"time", "times", *_PHASES, *run.metric_names, _ERROR_KEY, _STATUS_KEY, _MESSAGE_KEY}
    for name in filter(taken.__contains__, names):
        raise SpaceFileError(
            f"{run.name}: parameter {name!r} has the name of a measurement, which a Kernel Tuner cache file cannot hold"
        )
    header = {
        "device_name": info.device,
        "kernel_name": run.kernel,
        "problem_size": list(info.sizes.values()),
        "tune_params_keys": list(names),
        "tune_params": {parameter.name: list(parameter.values) for parameter in run.parameters},
        "objective": "time" if info.objective.metric == "time_ms" else info.objective.metric,
        **({} if info.objective.minimise else {_MAXIMISE_KEY: True}),
        _SIGNATURE_KEY: list(info.signature),
        "cache": {},
    }
    # One entry a line. Kernel Tuner compares the last three characters to recognise a closed file, and appends before
    # them.
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
        found = {"time" if name == "time_ms" else name: number for name, number in measurement.metrics.items()}
        entry |= {name: number for name, number in found.items() if math.isfinite(number)}
        if measurement.times_ms:
            entry["times"] = [t for t in measurement.times_ms if math.isfinite(t)]
        if trial.status is not Status.OK:
            entry[_ERROR_KEY] = "RuntimeFailedConfig"
    else:
        entry["time"] = _WORD_OF.get(trial.status, "RuntimeFailedConfig")
    if trial.status is not Status.OK and (trial.status not in _WORD_OF or trial.message):
        entry |= {_STATUS_KEY: trial.status.value, _MESSAGE_KEY: trial.message}
    return entry | {word: measurement.durations_s.get(phase, 0.0) * 1e3 for word, phase in _PHASES.items()}


def repaired(text: str) -> Any | None:
    """Return a truncated document with every complete entry; None if it has none or is damaged elsewhere."""
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Unterminated string") and not _PARTIAL_TOKEN.fullmatch(text, error.pos):
            return None
    except ValueError:
        return None
    end = len(text)
    for _ in range(20):  # most closing braces within a truncated entry
        end = text.rfind("}", 0, max(end, 0))
        with contextlib.suppress(ValueError):
            return parse_json(f"{text[: end + 1]}}}}}")
    return None


CACHE: Final = Format("cache", "a Kernel Tuner cache file", read=_read, write=_write)
