"""mptune's own recorded format: a whole search space in columns, a tenth of the size of a cache file.

One JSON object, gzipped if the name ends in ``.gz``:

- ``format`` is "mptune-space", ``version`` is 1;
- ``kernel``, ``device``, ``metric``, ``measured_by``, ``problem_size``, ``objective``, ``units``, ``signature`` as of
  :class:`~mptune.interop.recorded.RecordedSpace`; ``notes`` maps names to text: how, where and when it was recorded,
  and with which ``metric`` where that does not stand by itself;
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
from types import MappingProxyType
from typing import Any, Final

from mptune.errors import SpaceFileError, UnknownNameError
from mptune.interop.files import Format, space_name, write_text
from mptune.interop.recorded import Record, RecordedSpace, assemble, finite, from_run, parameter_from
from mptune.results.trial import Measurement, Status
from mptune.run import Run
from mptune.space.configuration import Value
from mptune.space.parameters import Parameter
from mptune.store import ParameterInfo

__all__ = ["RECORDING", "read_recording", "recording_text", "write_recording"]

_FORMAT: Final = "mptune-space"
_VERSION: Final = 1
#: Digits of a number; a median of launch times has fewer that mean something.
_DIGITS: Final = 6


def read_recording(path: str | Path) -> RecordedSpace:
    """Read a recorded space, gzipped or not.

    Raises:
        SpaceFileError: the file is missing, damaged, of another format or version, or records nothing.
    """
    return RECORDING.load(path)


def _is_recording(document: Any) -> bool:
    return isinstance(document, dict) and document.get("format") == _FORMAT


def _read(path: Path, document: Any) -> RecordedSpace:
    if not _is_recording(document):
        raise SpaceFileError(f"{path}: not a recorded space of mptune (its 'format' is not {_FORMAT!r})")
    if document.get("version") != _VERSION:
        raise SpaceFileError(f"{path}: version {document.get('version')!r} of the format; expected {_VERSION}")
    try:
        parameters = [_parameter(description) for description in document["parameters"]]
        names = [parameter.name for parameter in parameters]
        columns = [_looked_up(path, p.name, p.values, document["codes"][p.name]) for p in parameters]
        distinct = {name: document[name] for name in ("statuses", "messages")}
        words, texts = (_looked_up(path, name, d["values"], d["codes"]) for name, d in distinct.items())
        statuses, messages = [Status(word) for word in words], list(map(str, texts))
        metrics = {str(name): list(column) for name, column in document["metrics"].items()}
    except UnknownNameError as error:
        raise SpaceFileError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SpaceFileError(f"{path}: the recorded space is incomplete ({error!r})") from error
    n = len(columns[0]) if columns else 0
    described: list[tuple[str, Sequence[Any]]] = [("statuses", statuses), ("messages", messages)]
    for name, column in (*zip(names, columns, strict=True), *described, *metrics.items()):
        if len(column) != n:
            raise SpaceFileError(f"{path}: column {name!r} has {len(column)} entries; expected {n}")
    return assemble(
        space_name(path),
        names,
        {},
        _records(path, columns, statuses, messages, metrics),
        parameters=parameters,
        objective=str(document.get("objective") or "time_ms"),
        kernel=str(document.get("kernel", "")),
        device=str(document.get("device", "")),
        metric=str(document.get("metric") or (document.get("notes") or {}).get("metric", "")),
        measured_by=_texts(document.get("measured_by")),
        problem_size=document.get("problem_size"),
        units=MappingProxyType(dict(document.get("units") or {})),
        signature=document.get("signature"),
    )


def _texts(given: Any) -> Mapping[str, str]:
    return MappingProxyType({name: str(text) for name, text in given.items()} if isinstance(given, Mapping) else {})


def write_recording(recorded: RecordedSpace, path: str | Path, notes: Mapping[str, str] | None = None) -> None:
    """Write a recorded space; gzipped when the name ends in ``.gz``.

    Args:
        recorded: what to write.
        path: where.
        notes: how, where and when it was recorded, by name.

    Raises:
        SpaceFileError: the file cannot be written.
    """
    write_text(Path(path), recording_text(recorded, notes))


def recording_text(recorded: RecordedSpace, notes: Mapping[str, str] | None = None) -> str:
    """Return the text of a recorded space; raw launch times and phases are left out, and so is what can be derived.

    Numbers are rounded to six significant digits.
    """
    order = sorted(recorded.trials)
    trials = [recorded.trials[index] for index in order]
    parameters = recorded.space.parameters
    codes = recorded.space.codes(order)
    metrics = dict.fromkeys(name for trial in trials for name in trial.measurement.metrics if name != "log10_error")
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "kernel": recorded.kernel or recorded.name,
        "device": recorded.device,
        "metric": recorded.metric,
        "measured_by": dict(recorded.measured_by),
        "problem_size": recorded.problem_size,
        "objective": recorded.objective,
        "units": dict(recorded.units),
        "signature": list(recorded.signature),
        "notes": dict(notes or {}),
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


def _parameter(description: Mapping[str, Any]) -> Parameter:
    values = tuple(tuple(value) if isinstance(value, list) else value for value in description["values"])
    return parameter_from(ParameterInfo(str(description["name"]), str(description.get("kind", "")), values))


def _looked_up(path: Path, name: str, values: Sequence[Any], codes: Sequence[Any]) -> list[Any]:
    """Return the value at each code."""
    for code in codes:
        if isinstance(code, bool) or not isinstance(code, int) or not 0 <= code < len(values):
            raise SpaceFileError(f"{path}: column {name!r} has the entry {code!r}; expected 0 to {len(values) - 1}")
    return [values[code] for code in codes]


def _records(
    path: Path,
    columns: Sequence[Sequence[Value]],
    statuses: Sequence[Status],
    messages: Sequence[str],
    metrics: Mapping[str, Sequence[Any]],
) -> Iterator[Record]:
    for row, values in enumerate(zip(*columns, strict=True)):
        found = {name: _number(path, name, column[row]) for name, column in metrics.items()}
        numbers = {name: number for name, number in found.items() if number is not None}
        if numbers.get("error", 0.0) > 0.0:
            numbers["log10_error"] = math.log10(numbers["error"])
        yield Record(values, statuses[row], messages[row], Measurement(numbers))


def _number(path: Path, name: str, value: Any) -> float | None:
    """Return an entry of a column of numbers; None where it is null, or a NaN or infinity, as others write."""
    number = finite(value)
    if number is None and value is not None and not isinstance(value, float):
        raise SpaceFileError(f"{path}: metric {name!r} has the entry {value!r}; expected a number or null")
    return number


def _write(run: Run) -> str:
    notes = {"created_at": run.info.created_at, "command": run.info.command}
    return recording_text(from_run(run, run.kernel), {name: text for name, text in notes.items() if text})


RECORDING: Final = Format("space", "a recorded space", recognises=_is_recording, read=_read, write=_write)
