"""Trials as rows of a run file's table, and back."""

from __future__ import annotations

import json
import math
import reprlib
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration, is_value
from mptune.store.info import ParameterInfo
from mptune.store.plain import is_amount, parse_json

__all__ = ["CELLS", "from_rows", "to_row"]

#: A compiler can write a book about one template; this much of a message is kept.
_LONGEST_MESSAGE: Final = 1 << 18
#: Metrics that count inputs.
_COUNTS: Final = ("unseen_inputs", "unseen_violations")


def to_row(trial: Trial) -> tuple[Any, ...]:
    """Return the cells of a trial in the order of :data:`CELLS`."""
    measurement = trial.measurement
    return (
        trial.key,
        trial.configuration.to_json(),
        str(trial.status),
        # Compiler output may hold bytes that are no text; they come as lone surrogates, which UTF-8 lacks.
        trial.message.encode("utf-8", "backslashreplace").decode("utf-8")[:_LONGEST_MESSAGE],
        json.dumps(dict(measurement.metrics)),
        np.asarray(measurement.times_ms, dtype="<f8").tobytes(),
        json.dumps(dict(measurement.durations_s)),
        json.dumps(trial.warnings),
    )


def from_rows(rows: Iterable[Sequence[Any]], parameters: Sequence[ParameterInfo] = ()) -> list[Trial]:
    """Return the trials of rows: a number, and the cells in the order of :data:`CELLS`.

    Args:
        rows: the rows.
        parameters: what each configuration has to have a value for, one of those listed; empty: anything.

    Raises:
        ValueError: a row cannot be read; the message names it by its number, and the cell.
    """
    allowed = {parameter.name: frozenset(parameter.values) for parameter in parameters}
    trials = []
    for number, *row in rows:
        cells = []
        for cell, (name, (expected, read)) in zip(row, CELLS.items(), strict=True):
            try:
                cells.append(read(cell))
            except (ValueError, TypeError, AttributeError, OverflowError, RecursionError, struct.error) as error:
                shown = reprlib.repr(cell)
                raise ValueError(
                    f"trial {number} cannot be read: its {name} should be {expected}, and is {shown}"
                ) from error
        key, configuration, status, message, metrics, times_ms, durations_s, warnings = cells
        if allowed and configuration.keys() != allowed.keys():
            raise ValueError(
                f"trial {number} cannot be read: its configuration should have a value for each of "
                f"{', '.join(allowed)}, and is {reprlib.repr(configuration.to_json())}"
            )
        for name, values in allowed.items():
            if configuration[name] not in values:
                shown = reprlib.repr(configuration[name])
                raise ValueError(f"trial {number} cannot be read: the run lists no value {shown} of its {name}")
        measurement = Measurement(metrics, times_ms, durations_s)
        trials.append(Trial(configuration, status, message, measurement, warnings, key))
    return trials


def _require(is_right: bool) -> None:
    if not is_right:
        raise ValueError


def _text(cell: Any) -> str:
    _require(isinstance(cell, str))
    return str(cell)


def _configuration(cell: str) -> Configuration:
    values = parse_json(cell)
    _require(all(map(is_value, values.values())))
    return Configuration({n: tuple(value) if isinstance(value, list) else value for n, value in values.items()})


def _metrics(cell: str) -> dict[str, float]:
    found: dict[str, float] = parse_json(cell)
    for value in found.values():
        math.isfinite(value)  # raises for what no double can hold
    _require(all(math.isfinite(found.get(name, 0.0)) for name in _COUNTS))
    return found


def _durations(cell: str) -> dict[str, float]:
    found: dict[str, float] = parse_json(cell)
    _require(all(map(is_amount, found.values())))
    return found


def _warnings(cell: str) -> tuple[str, ...]:
    found = parse_json(cell)
    _require(isinstance(found, list) and all(isinstance(text, str) for text in found))
    return tuple(found)


#: The cells of a trial beside its number: what each has to hold, in words, and what reads it.
CELLS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "key": ("a text", _text),
    "configuration": ("values by name", _configuration),
    "status": ("a status of this mptune", Status),
    "message": ("a text", _text),
    "metrics": ("numbers a double can hold, by name", _metrics),
    "times_ms": ("doubles", lambda cell: struct.unpack(f"<{len(cell) // 8}d", cell)),
    "durations_s": ("numbers up to 1e100 by name", _durations),
    "warnings": ("a list of texts", _warnings),
}
