"""mptune's own recorded format: a whole search space in columns, a tenth of the size of a cache file.

One JSON object, gzipped if the name ends in ``.gz``:

- ``format`` is "mptune-space", ``version`` is 1;
- ``kernel``, ``device``, ``metric``, ``measured_by``, ``problem_size``, ``objective``, ``units`` and ``signature`` are
  fields of :class:`~mptune.store.RunInfo` (``measured_by`` is ``metrics``, ``problem_size`` is ``sizes``); ``notes``
  maps names to text: how, where and when it was recorded, and with which ``metric`` if that has no place of its own;
- ``maximise`` is true if more of the objective is better, else missing;
- ``parameters`` is a list of ``name``, ``kind`` and ``values``;
- ``codes`` maps each parameter to a column of positions in its ``values``, one per recorded configuration;
- ``statuses`` and ``messages`` hold the distinct ones under ``values`` and a column of positions under ``codes``;
- ``metrics`` maps each metric to a column of numbers, null if a trial has none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mptune.errors import SpaceFileError, UnknownNameError
from mptune.interop.files import Format, space_name
from mptune.interop.recorded import Record, assemble, finite
from mptune.results.trial import Measurement, Status
from mptune.run import Run
from mptune.space.parameters import parameter_of

__all__ = ["RECORDING", "recording_text"]

_FORMAT: Final = "mptune-space"
_VERSION: Final = 1
#: Significant digits of a number; a median of launch times has no more that mean something.
_DIGITS: Final = 6


def _read(path: Path, document: Any) -> Run | None:
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        return None
    if document.get("version") != _VERSION:
        raise SpaceFileError(f"{path}: version {document.get('version')!r} of the format; expected {_VERSION}")
    try:
        parameters = [
            parameter_of(
                str(p["name"]),
                [tuple(value) if isinstance(value, list) else value for value in p["values"]],
                str(p.get("kind", "")),
            )
            for p in document["parameters"]
        ]
        names = [parameter.name for parameter in parameters]
        columns = [_looked_up(path, p.name, p.values, document["codes"][p.name]) for p in parameters]
        distinct = {name: document[name] for name in ("statuses", "messages")}
        words, messages = (_looked_up(path, name, d["values"], d["codes"]) for name, d in distinct.items())
        statuses = list(map(Status, words))
        metrics = {str(name): _numbers(path, name, column) for name, column in document["metrics"].items()}
        measured_by = dict(document.get("measured_by") or {})
        units = dict(document.get("units") or {})
    except UnknownNameError as error:
        raise SpaceFileError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise SpaceFileError(f"{path}: the recorded space is incomplete ({error!r})") from error
    count = len(columns[0]) if columns else 0
    described = [("statuses", statuses), ("messages", messages)]
    for name, column in (*zip(names, columns, strict=True), *described, *metrics.items()):
        if len(column) != count:
            raise SpaceFileError(f"{path}: column {name!r} has {len(column)} entries; expected {count}")
    records = (
        Record(values, status, str(message), measurement)
        for values, status, message, measurement in zip(
            zip(*columns, strict=True), statuses, messages, _measurements(metrics, count), strict=True
        )
    )
    return assemble(
        space_name(path),
        names,
        {},
        records,
        parameters=parameters,
        objective=str(document.get("objective") or "time_ms"),
        minimise=document.get("maximise") is not True,
        kernel=str(document.get("kernel", "")),
        device=str(document.get("device", "")),
        metric=str(document.get("metric") or (document.get("notes") or {}).get("metric", "")),
        metrics={name: str(text) for name, text in measured_by.items()},
        problem_size=document.get("problem_size"),
        units=units,
        signature=document.get("signature"),
    )


def _looked_up(path: Path, name: str, values: Sequence[Any], codes: Sequence[Any]) -> list[Any]:
    """Return the value at each code."""
    for code in codes:
        if isinstance(code, bool) or not isinstance(code, int) or not 0 <= code < len(values):
            raise SpaceFileError(f"{path}: column {name!r} has the entry {code!r}; expected 0 to {len(values) - 1}")
    return [values[code] for code in codes]


def _numbers(path: Path, name: str, column: Sequence[Any]) -> list[float | None]:
    """Return a column of numbers; None where it has null, or a NaN or infinity, as other programs write."""
    numbers = list(map(finite, column))
    for value, number in zip(column, numbers, strict=True):
        if number is None and value is not None and not isinstance(value, float):
            raise SpaceFileError(f"{path}: metric {name!r} has the entry {value!r}; expected a number or null")
    return numbers


def _measurements(metrics: Mapping[str, Sequence[float | None]], count: int) -> Iterator[Measurement]:
    for row in range(count):
        numbers = {name: number for name, column in metrics.items() if (number := column[row]) is not None}
        if numbers.get("error", 0.0) > 0.0:
            numbers["log10_error"] = math.log10(numbers["error"])
        yield Measurement(numbers)


def recording_text(run: Run, notes: Mapping[str, str] | None = None) -> str:
    """Return a run as a recorded space, without raw launch times, phases and what can be derived.

    Numbers are rounded to six significant digits.

    Args:
        run: what to write.
        notes: how, where and when it was recorded, by name; by default when, and the command.
    """
    info, trials, parameters = run.info, run.indexed, run.parameters
    codes = run.space.codes(range(run.space.size))
    metrics = [name for name in run.metric_names if name != "log10_error"]
    made = {"created_at": info.created_at, "command": info.command}
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "kernel": run.kernel,
        "device": info.device,
        "metric": info.metric,
        "measured_by": dict(info.metrics),
        "problem_size": dict(info.sizes),
        "objective": info.objective.metric,
        **({} if info.objective.minimise else {"maximise": True}),
        "units": dict(info.units),
        "signature": list(info.signature),
        "notes": {name: text for name, text in made.items() if text} if notes is None else dict(notes),
        "parameters": [{"name": p.name, "kind": p.kind, "values": list(p.values)} for p in parameters],
        "codes": {p.name: codes[:, i].tolist() for i, p in enumerate(parameters)},
        "statuses": _encoded([trial.status.value for trial in trials]),
        "messages": _encoded([trial.message for trial in trials]),
        "metrics": {name: [_rounded(trial.metric(name)) for trial in trials] for name in metrics},
    }
    # A line per entry, columns included, can be read and compared; a line per number cannot.
    lines = [f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in document.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _encoded(texts: Sequence[str]) -> dict[str, Any]:
    distinct = list(dict.fromkeys(texts))
    positions = {text: i for i, text in enumerate(distinct)}
    return {"values": distinct, "codes": [positions[text] for text in texts]}


def _rounded(number: float) -> float | None:
    return float(f"{number:.{_DIGITS}g}") if math.isfinite(number) else None


RECORDING: Final = Format("space", "a recorded space", read=_read, write=recording_text)
