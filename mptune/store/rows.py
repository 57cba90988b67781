"""Trials as rows of a run file's table, and back, thousands at a time."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import reprlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration, is_value
from mptune.store.info import ParameterInfo

__all__ = ["Row", "from_rows", "many_objects", "to_row"]

#: The cells of a trial in the order of the table's columns.
Row = tuple[Any, ...]

_STATUSES: Final = {str(status): status for status in Status}
#: A compiler can write a book about one template; this much of a message is kept.
_LONGEST_MESSAGE: Final = 1 << 18
#: Metrics that count inputs.
_COUNTS: Final = ("unseen_inputs", "unseen_violations")
_DAMAGE: Final = (ValueError, TypeError, KeyError, OverflowError, RecursionError, struct.error)


def to_row(trial: Trial) -> Row:
    """Return the cells of a trial in the order :data:`mptune.store.database.INSERT_TRIAL` takes."""
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


def from_rows(rows: Sequence[Row], parameters: Sequence[ParameterInfo] = ()) -> list[Trial]:
    """Return the trials of rows as :data:`mptune.store.database.SELECT_TRIALS` gives them.

    Args:
        rows: the rows.
        parameters: what each configuration has to have a value for, one of those listed; empty: anything.

    Raises:
        ValueError: a row cannot be read; the message names it by its number, and the cell.
    """
    if not rows:
        return []
    numbers, *columns = zip(*rows, strict=True)
    cells = (_read(name, numbers, column) for name, column in zip(_CELLS, columns, strict=True))
    trials = [
        Trial(configuration, status, message, Measurement(metrics, times_ms, durations_s), warnings, key)
        for key, configuration, status, message, metrics, times_ms, durations_s, warnings in zip(*cells, strict=True)
    ]
    allowed = {parameter.name: frozenset(parameter.values) for parameter in parameters}
    for number, trial in zip(numbers, trials, strict=True) if allowed else ():
        configuration = trial.configuration
        if configuration.keys() != allowed.keys():
            raise ValueError(
                f"trial {number} cannot be read: its configuration should have a value for each of "
                f"{', '.join(allowed)}, and is {reprlib.repr(configuration.to_json())}"
            )
        for name, value in configuration.items():
            if value not in allowed[name]:
                shown = reprlib.repr(value)
                raise ValueError(f"trial {number} cannot be read: the run lists no value {shown} of its {name}")
    return trials


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


# -- cells, a column at a time -----------------------------------------------------------------------------


def _read(name: str, numbers: Sequence[int], column: Sequence[Any]) -> Sequence[Any]:
    """Return what the cells of a column hold; of damaged ones, name the first."""
    expected, read = _CELLS[name]
    try:
        return read(column)
    except _DAMAGE:
        for number, cell in zip(numbers, column, strict=True):
            try:
                read([cell])
            except _DAMAGE as error:
                shown = reprlib.repr(cell)
                raise ValueError(
                    f"trial {number} cannot be read: its {name} should be {expected}, and is {shown}"
                ) from error
        raise


def _require(is_right: bool) -> None:
    if not is_right:
        raise ValueError


def _texts(cells: Sequence[Any]) -> Sequence[str]:
    _require(set(map(type, cells)) <= {str})
    return cells


def _parse(texts: Sequence[str], kind: type) -> list[Any]:
    # One call that parses thousands of small documents takes a fraction of the time of thousands of calls.
    values: list[Any] = json.loads(f"[{','.join(texts)}]")
    _require(len(values) == len(texts) and set(map(type, values)) <= {kind})
    return values


def _configurations(texts: Sequence[str]) -> list[Configuration]:
    found = [
        {name: tuple(value) if type(value) is list else value for name, value in values.items()}
        for values in _parse(texts, dict)
    ]
    _require(all(map(is_value, set(chain.from_iterable(map(dict.values, found))))))
    return list(map(Configuration, found))


def _numbers(texts: Sequence[str], *, finite: bool) -> list[dict[str, float]]:
    found = _parse(texts, dict)
    # Of what no double can hold, isfinite is an error.
    are_finite = [math.isfinite(value) for values in found for value in values.values()]
    _require(not finite or all(are_finite))
    return found


def _metrics(texts: Sequence[str]) -> list[dict[str, float]]:
    found = _numbers(texts, finite=False)
    _require(all(math.isfinite(values.get(name, 0.0)) for values in found for name in _COUNTS))
    return found


def _warnings(texts: Sequence[str]) -> list[tuple[str, ...]]:
    found = _parse(texts, list)
    _texts(list(chain.from_iterable(found)))
    return list(map(tuple, found))


#: What a cell has to hold, in words, and what reads a column of them, in the order of a row after its number.
_CELLS: Final[Mapping[str, tuple[str, Callable[[Sequence[Any]], Sequence[Any]]]]] = {
    "key": ("a text", _texts),
    "configuration": ("values by name", _configurations),
    "status": ("a status of this mptune", lambda cells: [_STATUSES[cell] for cell in cells]),
    "message": ("a text", _texts),
    "metrics": ("numbers a double can hold, by name", _metrics),
    "times_ms": ("doubles", lambda cells: [struct.unpack(f"<{len(cell) // 8}d", cell) for cell in cells]),
    "durations_s": ("finite numbers a double can hold, by name", lambda cells: _numbers(cells, finite=True)),
    "warnings": ("a list of texts", _warnings),
}
