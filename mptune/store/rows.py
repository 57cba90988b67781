"""Trials as rows of a run file's table, and back, thousands at a time."""

from __future__ import annotations

import contextlib
import gc
import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from mptune.errors import MptuneError
from mptune.results import Measurement, Status, Trial
from mptune.space.configuration import Configuration, Value

__all__ = ["Row", "from_rows", "many_objects", "to_row"]

#: The cells of a trial in the order of the table's columns.
Row = tuple[Any, ...]

_STATUSES: Final = {str(status): status for status in Status}
_DAMAGE: Final = (MptuneError, ValueError, TypeError, AttributeError, KeyError, struct.error)


def to_row(trial: Trial, phase: str) -> Row:
    """Return the cells of a trial in the order :data:`mptune.store.database.INSERT_TRIAL` takes them."""
    measurement = trial.measurement
    return (
        trial.key,
        trial.configuration.to_json(),
        phase,
        str(trial.status),
        # Compiler output may hold bytes that are no text; they come as lone surrogates, which UTF-8 lacks.
        trial.message.encode("utf-8", "backslashreplace").decode("utf-8"),
        json.dumps(dict(measurement.metrics)),
        np.asarray(measurement.times_ms, dtype="<f8").tobytes(),
        json.dumps(dict(measurement.durations_s)),
        int(measurement.reused_error),
        json.dumps(trial.warnings),
    )


def from_rows(rows: Sequence[Row]) -> list[Trial]:
    """Return the trials of rows as :data:`mptune.store.database.SELECT_TRIALS` gives them.

    Raises:
        ValueError: a row cannot be read; the message names it by its number.
    """
    try:
        return _decode(rows)
    except _DAMAGE:
        for row in rows:
            try:
                _decode([row])
            except _DAMAGE as error:
                raise ValueError(f"trial {row[0]} cannot be read ({error})") from error
        raise


@contextlib.contextmanager
def many_objects() -> Iterator[None]:
    """Put cyclic garbage collection off: each pass would walk every object made so far, and none is garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _decode(rows: Sequence[Row]) -> list[Trial]:
    if not rows:
        return []
    _, keys, texts, statuses, messages, metrics, times_ms, durations_s, reused_errors, warnings = zip(
        *rows, strict=True
    )
    # One call that parses thousands of small documents takes a fraction of the time of thousands of calls.
    columns = zip(
        keys,
        _parse(texts, dict),
        statuses,
        messages,
        _parse(metrics, dict),
        times_ms,
        _parse(durations_s, dict),
        reused_errors,
        _parse(warnings, list),
        strict=True,
    )
    return [
        Trial(
            Configuration(_with_tuples(values)),
            _STATUSES[status],
            message,
            Measurement(numbers, struct.unpack(f"<{len(times) // 8}d", times), durations, bool(reused)),
            tuple(remarks),
            key,
        )
        for key, values, status, message, numbers, times, durations, reused, remarks in columns
    ]


def _parse(texts: Sequence[str], kind: type) -> list[Any]:
    values: list[Any] = json.loads(f"[{','.join(texts)}]")
    if len(values) != len(texts) or not all(type(value) is kind for value in values):
        raise ValueError(f"expected one JSON {'object' if kind is dict else 'array'} in each cell")
    return values


def _with_tuples(values: dict[str, Any]) -> dict[str, Value]:
    return {name: tuple(value) if type(value) is list else value for name, value in values.items()}
