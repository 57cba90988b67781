"""What a program and the program with other types wrote to files, compared: texts number by number, numbers as such."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.adopt.capture import Capture, has_letters, numbers_in, same_fields, shown, steady
from mptune.adopt.number_types import bare_name, element_behind
from mptune.adopt.parsing import without_casts
from mptune.adopt.reading import Program
from mptune.adopt.running import Ran

#: Numbers of the new program, and of the original: shape ``(2, n_numbers)``.
Pair = NDArray[Any]
Errors = Callable[[NDArray[Any], NDArray[Any]], float]
#: Characters that a text has none of.
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1f]")
#: A table of more columns is judged as one field.
_MOST_COLUMNS: Final = 16
#: A column is judged with all others if it is smaller than this part of the largest.
_NEARLY_ZERO: Final = 1e-6
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
    theirs: Sequence[Capture | Ran],
    ours: Capture | Ran,
    kind: str | None,
    paddings: Collection[Sequence[bool]],
    error_of: Errors,
) -> tuple[Compared, ...]:
    """Compare the files that two programs wrote, by name.

    What differs between runs of the original is not compared: numbers in texts, such as times, or files of bytes.

    Args:
        theirs: runs of the original.
        ours: a run of the program with other types.
        kind: the type of the numbers in files of bytes; None if it is not known.
        paddings: of structs which of their bytes are between fields.
        error_of: measures numbers, those of the new program first.
    """
    (old, *again), new = map(_contents, theirs), _contents(ours)
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
        elif _BINARY.search(old[name]) is None and _BINARY.search(new[name]) is None:
            found.append(_of_texts(name, [old[name], *(each.get(name, b"") for each in again)], new[name], error_of))
        elif any(not same_fields(old[name], each.get(name, b""), [*paddings, [False]]) for each in again):
            found.append(Compared(name, "not compared: the original writes something else each time", None, None))
        else:
            found.append(_of_bytes(name, old[name], new[name], kind, error_of))
    return tuple(found)


def type_in_files(program: Program) -> str | None:
    """Return the type of the numbers that a program writes to files as bytes; None if that is not one, or not known."""
    given = (
        element_behind(without_casts(node.arguments[0]).canonical)
        for unit in program.units
        for function in unit.functions
        if not function.is_device
        for node in function.block.walk()
        if node.kind == "CALL_EXPR" and node.spelling in ("fwrite", "write") and node.arguments
    )
    elements = {None if each is None else bare_name(each) for each in given}
    return next((each for each in elements if each in _STORED), None) if len(elements) == 1 else None


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


def _of_texts(name: str, originals: Sequence[bytes], new: bytes, error_of: Errors) -> Compared:
    *runs, after = (each.decode("utf-8", "surrogateescape").splitlines() for each in (*originals, new))
    if len(set(map(len, runs))) > 1:
        return Compared(name, "not compared: the original writes another number of lines each time", None, None)
    if len(runs[0]) != len(after):
        return Compared(name, f"{len(after):,} lines instead of {len(runs[0]):,}", None, False)
    tables: dict[tuple[tuple[str, ...], tuple[str, ...], int], list[list[tuple[float, float]]]] = {}
    above = tuple[str, ...]()
    for number, (*lines, other) in enumerate(zip(*runs, after, strict=True), 1):
        (words, numbers), (own_words, own_numbers) = numbers_in(lines[0]), numbers_in(other)
        is_same = steady(lines)
        if is_same is None:
            continue
        if words != own_words or len(numbers) != len(own_numbers):
            told = f"line {number} reads {shown(other)!r} instead of {shown(lines[0])!r}"
            return Compared(name, told, None, False)
        if is_heading := has_letters(lines[0]):
            above = tuple(words)
        pairs = zip(numbers, own_numbers, is_same, strict=True)
        row = [(float(new), _nearest(float(new), old)) for old, new, each in pairs if each]
        tables.setdefault((() if is_heading else above, tuple(words), len(row)), []).append(row)
    count = sum(map(len, (row for rows in tables.values() for row in rows)))
    error = max((error_of(*pair) for pair in _judged_together(tables.values())), default=0.0)
    return Compared(name, f"{count:,} numbers in {len(after):,} lines of text", error, True)


def _nearest(value: float, written: str) -> float:
    """Return a number as it is written, or another one from which its last digit cannot tell it."""
    number = float(written)
    digits, _, exponent = written.lower().partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    is_whole = "." not in digits and not exponent
    return value if not is_whole and abs(value - number) <= 1.001 * unit else number


def _judged_together(tables: Iterable[Sequence[Sequence[tuple[float, float]]]]) -> Iterator[Pair]:
    """Yield the numbers that are judged together: each column of lines that are alike.

    Args:
        tables: the lines with the same words, as many numbers, and the same heading.
    """
    found: list[Pair] = []
    for rows in tables:
        columns = [np.array(pairs).T for pairs in zip(*rows, strict=True)]
        columns = [each for each in columns if not np.array_equal(*each)]
        found += [np.concatenate(columns, axis=1)] if len(columns) > _MOST_COLUMNS else columns
    sizes = [float(np.abs(old).max()) for _, old in found]
    alone = [each for each, size in zip(found, sizes, strict=True) if size > _NEARLY_ZERO * max(sizes)]
    yield from alone
    if len(alone) < len(found):
        yield np.concatenate(found, axis=1)
