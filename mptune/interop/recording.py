"""mptune's own recorded format: a whole search space in columns, a tenth of the size of a cache file.

One JSON object, gzipped if the name ends in ``.gz``:

- ``format`` is "mptune-space", ``version`` is 1;
- ``kernel``, ``device``, ``metric``, ``measured_by``, ``problem_size``, ``objective``, ``units`` and ``signature`` are
  fields of :class:`~mptune.store.RunInfo` (``measured_by`` is ``metrics``, ``problem_size`` is ``sizes``);
- ``notes`` maps names to text about the recording; it may hold the ``metric``;
- ``maximise`` is true if the objective is maximised, else missing;
- ``parameters`` is a list of ``name``, ``kind`` and ``values``;
- ``codes`` maps each parameter to a column of positions in its ``values``, one per recorded configuration;
- ``statuses`` and ``messages`` have distinct texts in ``values`` and a column of positions in ``codes``;
- ``metrics`` maps each metric to a column of numbers, null if a trial has none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mptune.errors import SpaceFileError, UnknownNameError
from mptune.interop.recorded import Format, Record, assemble, space_name
from mptune.results.trial import Measurement, Status
from mptune.run import Run
from mptune.space.parameters import parameter_of
from mptune.store import ParameterInfo
from mptune.store.info import read_fields

_FORMAT: Final = "mptune-space"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Texts as positions in a list of distinct texts."""

    values: tuple[str, ...]
    codes: tuple[int, ...]


_COLUMNS: Final = {
    "parameters": tuple[ParameterInfo, ...],
    "codes": Mapping[str, tuple[int, ...]],
    "statuses": _Encoded,
    "messages": _Encoded,
    "metrics": Mapping[str, tuple[float | None, ...]],
}
_FIELDS: Final = {
    **_COLUMNS,
    **dict.fromkeys(("kernel", "device", "metric", "objective"), str),
    **dict.fromkeys(("measured_by", "units"), Mapping[str, str]),
    "maximise": bool,
    "signature": tuple[str, ...],
    "notes": Mapping[str, Any],
}


def _read(path: Path, document: Any) -> Run | None:
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        return None
    if document.get("version") != _VERSION:
        raise SpaceFileError(f"{path}: version {document.get('version')!r} of the format; expected {_VERSION}")
    fields = read_fields(_FIELDS, document, str(path), SpaceFileError, required=_COLUMNS)
    try:
        parameters = [parameter_of(p.name, p.values, p.kind) for p in fields["parameters"]]
        columns = {p.name: _looked_up(path, p.name, p.values, fields["codes"].get(p.name, ())) for p in parameters}
        words, messages = (
            _looked_up(path, name, fields[name].values, fields[name].codes) for name in ("statuses", "messages")
        )
        statuses = list(map(Status, words))
    except (UnknownNameError, ValueError) as error:
        raise SpaceFileError(f"{path}: {error}") from error
    metrics = fields["metrics"]
    count = len(next(iter(columns.values()), ()))
    for name, column in {**columns, "statuses": statuses, "messages": messages, **metrics}.items():
        if len(column) != count:
            raise SpaceFileError(f"{path}: column {name!r} has {len(column)} entries; expected {count}")
    records = []
    for row, values in enumerate(zip(*columns.values(), strict=True)):
        numbers = {name: number for name, column in metrics.items() if (number := column[row]) is not None}
        records.append(Record(values, statuses[row], messages[row], Measurement(numbers)))
    return assemble(
        space_name(path),
        tuple(columns),
        {},
        records,
        parameters=parameters,
        objective=fields.get("objective") or "time_ms",
        minimise=not fields.get("maximise"),
        metric=fields.get("metric") or str(fields.get("notes", {}).get("metric", "")),
        metrics=fields.get("measured_by", {}),
        problem_size=document.get("problem_size"),
        **{name: fields[name] for name in ("kernel", "device", "units", "signature") if name in fields},
    )


def _looked_up(path: Path, name: str, values: Sequence[Any], codes: Sequence[int]) -> list[Any]:
    for code in codes:
        if not 0 <= code < len(values):
            raise SpaceFileError(f"{path}: column {name!r} has the entry {code!r}; expected 0 to {len(values) - 1}")
    return [values[code] for code in codes]


def recording_text(run: Run, notes: Mapping[str, str] | None = None) -> str:
    """Return a run as a recorded space, without raw launch times, phases and derived metrics.

    Numbers are rounded to six significant digits, which exceeds the accuracy of a median of launch times. The ``notes``
    are by default the date and the command.
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
        "metrics": {
            name: [float(f"{n:.6g}") if math.isfinite(n := trial.metric(name)) else None for trial in trials]
            for name in metrics
        },
    }
    # A line per field, so that diffs stay readable.
    lines = [f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in document.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _encoded(texts: Sequence[str]) -> dict[str, Any]:
    positions = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return {"values": list(positions), "codes": [positions[text] for text in texts]}


RECORDING: Final = Format("space", "a recorded space", read=_read, write=recording_text)
