"""What a program and the program with other types wrote to files, compared: texts number by number, numbers as such."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.adopt.capture import Capture, has_letters, numbers_in, same_fields
from mptune.adopt.parsing import Node, without_casts
from mptune.adopt.reading import Program
from mptune.adopt.running import Ran

#: Numbers of the new program, and of the original: shape ``(n_numbers,)`` each.
Pair = tuple[NDArray[Any], NDArray[Any]]
#: The same of a line, by column, but for times.
Row = dict[int, tuple[float, float]]
Errors = Callable[[NDArray[Any], NDArray[Any]], float]
#: Characters that a text has none of.
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1f]")
#: A table of no more columns has something else in each; what is nearly zero beside others is not judged by itself.
_MOST_COLUMNS: Final = 16
_NEARLY_ZERO: Final = 1e-6
_SHOWN: Final = 60
#: What is written to files as bytes, by its type in C++.
_STORED: Final = {"double": "float64", "float": "float32"}


@dataclass(frozen=True, slots=True)
class Compared:
    """A file that a program wrote, and the one with other types as well.

    Attributes:
        name: as the program calls it.
        how: in words: as what it was compared, or why it was not.
        error: of its numbers; None if none were compared.
        is_right: whether nothing but its numbers is another; None if it was not compared.
    """

    name: str
    how: str
    error: float | None
    is_right: bool | None


def compared_files(
    theirs: Capture | Ran, ours: Capture | Ran, kind: str | None, paddings: Collection[Sequence[bool]], error_of: Errors
) -> tuple[Compared, ...]:
    """Compare the files that two programs wrote, by name.

    Args:
        theirs: the original's run.
        ours: that of the program with other types.
        kind: the type of the numbers in files of bytes; None if it is not known.
        paddings: of structs which of their bytes are between fields.
        error_of: measures numbers, those of the new program first.
    """
    old, new = _contents(theirs), _contents(ours)
    differences = theirs.differences if isinstance(theirs, Capture) else ()
    found = []
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            which = "original" if name in old else "new program"
            found.append(
                Compared(name, f"not compared: only the {which} writes it, or there was no room for it", None, None)
            )
        elif old[name] == new[name]:
            found.append(Compared(name, f"the same {len(old[name]):,} bytes", None, True))
        elif same_fields(old[name], new[name], paddings):
            found.append(
                Compared(name, f"the same {len(old[name]):,} bytes, but between the fields of structs", None, True)
            )
        elif f"it writes something else to {name}" in differences:
            found.append(Compared(name, "not compared: the original writes something else each time", None, None))
        elif _BINARY.search(old[name]) is None and _BINARY.search(new[name]) is None:
            found.append(_of_texts(name, old[name], new[name], error_of))
        else:
            found.append(_of_bytes(name, old[name], new[name], kind, error_of))
    return tuple(found)


def type_in_files(program: Program) -> str | None:
    """Return the type of the numbers that a program writes to files as bytes; None if that is not one, or not known."""
    found = {
        _pointed_at(node.arguments[0])
        for unit in program.units
        for function in unit.functions
        if not function.is_device
        for node in function.block.walk()
        if node.kind == "CALL_EXPR" and node.spelling in ("fwrite", "write") and node.arguments
    }
    return next(iter(found)) if len(found) == 1 else None


def _pointed_at(node: Node) -> str | None:
    """Return the type of numbers that an argument points at, before what casts it to bytes."""
    kind = without_casts(node).canonical
    while "ARRAY" in kind.kind.name or kind.kind.name == "POINTER":
        kind = (kind.element_type if "ARRAY" in kind.kind.name else kind.get_pointee()).get_canonical()
    spelled = str(kind.spelling).removeprefix("const ")
    return spelled if spelled in _STORED else None


def _contents(ran: Capture | Ran) -> dict[str, bytes]:
    """Return what a run wrote to files."""
    if isinstance(ran, Capture):
        return {name: ran.contents(key).tobytes() for name, key in ran.files.items()}
    return {name: Path(path).read_bytes() for name, path in ran.files.items()}


def _of_bytes(name: str, old: bytes, new: bytes, kind: str | None, error_of: Errors) -> Compared:
    if len(old) != len(new):
        return Compared(name, f"{len(new):,} bytes instead of {len(old):,}", None, False)
    if kind is None:
        why = "other bytes, but what the program writes as bytes is not of one floating-point type"
        return Compared(name, f"not compared: {why}", None, None)
    stored = np.dtype(_STORED[kind])
    if len(old) % stored.itemsize:
        return Compared(name, f"not compared: {len(old):,} bytes are no numbers of type {kind}", None, None)
    numbers = [np.frombuffer(each, stored).astype(np.float64) for each in (new, old)]
    return Compared(name, f"{numbers[0].size:,} numbers of type {kind}", error_of(*numbers), True)


def _of_texts(name: str, old: bytes, new: bytes, error_of: Errors) -> Compared:
    before, after = (each.decode("utf-8", "surrogateescape").splitlines() for each in (old, new))
    if len(before) != len(after):
        return Compared(name, f"{len(after):,} lines instead of {len(before):,}", None, False)
    tables: dict[tuple[tuple[str, ...], tuple[str, ...], int], list[Row]] = {}  # by heading, words, how many numbers
    heading = ""
    above: tuple[str, ...] = ()
    for number, (one, other) in enumerate(zip(before, after, strict=True), 1):
        words, numbers = numbers_in(one, heading)
        own_words, own_numbers = numbers_in(other, heading)
        if words != own_words:
            told = f"line {number} reads {other.strip()[:_SHOWN]!r} instead of {one.strip()[:_SHOWN]!r}"
            return Compared(name, told, None, False)
        is_heading = has_letters(one)
        if is_heading:
            heading, above = one, tuple(words)
        row = {
            column: (float(b), _nearest(float(b), a))
            for column, ((a, is_time), (b, _)) in enumerate(zip(numbers, own_numbers, strict=True))
            if not is_time
        }
        tables.setdefault((() if is_heading else above, tuple(words), len(numbers)), []).append(row)
    count = sum(len(row) for rows in tables.values() for row in rows)
    error = max((error_of(*pair) for pair in _judged_together(tables.values())), default=0.0)
    return Compared(name, f"{count:,} numbers in {len(before):,} lines of text", error, True)


def _nearest(value: float, written: str) -> float:
    """Return a number as it is written, or another one from which its last digit cannot tell it."""
    number = float(written)
    digits, _, exponent = written.lower().partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    is_whole = "." not in digits and not exponent
    return value if not is_whole and abs(value - number) <= 1.001 * unit else number


def _judged_together(tables: Iterable[Sequence[Row]]) -> Iterator[Pair]:
    """Yield the numbers that are judged together: each column of lines that are alike, each number of other lines.

    Lines that only have other words than each other, and are many, are rows of one table with names.

    Args:
        tables: the lines that have the same words, as many numbers, and the same heading.
    """
    labelled: dict[tuple[int, ...], list[Row]] = {}
    blocks = []
    for rows in tables:
        if len(rows) > 1:
            blocks.append(_changed(rows))
        else:
            labelled.setdefault(tuple(rows[0]), []).append(rows[0])
    alone = []
    for rows in labelled.values():
        if len(rows) > _MOST_COLUMNS:
            blocks.append(_changed(rows))
        else:
            alone += [pair for row in rows for pair in _changed([row])]
    for columns in blocks:
        if len(columns) > _MOST_COLUMNS:
            yield _together(columns)
        else:
            yield from _each(columns, columns)
    yield from _each(alone, [*alone, *(column for columns in blocks for column in columns)])


def _each(columns: Sequence[Pair], beside: Sequence[Pair]) -> Iterator[Pair]:
    """Yield columns one by one, but what is nearly zero beside others together with these."""
    largest = max((_largest(pair) for pair in beside), default=0.0)
    alone = [pair for pair in columns if _largest(pair) > _NEARLY_ZERO * largest]
    yield from alone
    if len(alone) < len(columns):
        yield _together(beside)


def _changed(rows: Sequence[Row]) -> list[Pair]:
    """Return the columns of a table in which a number is another."""
    numbers: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        for column, pair in row.items():
            numbers.setdefault(column, []).append(pair)
    columns = (np.array(pairs).T for pairs in numbers.values())
    return [(new, old) for new, old in columns if not np.array_equal(new, old)]


def _together(columns: Sequence[Pair]) -> Pair:
    new, old = (np.concatenate(each) for each in zip(*columns, strict=True))
    return new, old


def _largest(pair: Pair) -> float:
    return float(np.abs(pair[1]).max())
