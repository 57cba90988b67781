"""What a program and the program with other types wrote to files, compared: texts number by number, numbers as such."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.adopt.capture import Capture, numbers_in, same_fields
from mptune.adopt.parsing import Node
from mptune.adopt.reading import Program
from mptune.adopt.running import Ran

__all__ = ["Compared", "compared_files", "type_in_files"]

Errors = Callable[[NDArray[Any], NDArray[Any]], float]
#: Characters that a text has none of.
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1f]")
#: A table of no more columns has something else in each; what is nearly zero beside others is not judged by itself.
_MOST_COLUMNS: Final = 16
_NEARLY_ZERO: Final = 1e-6
_SHOWN: Final = 60
#: What is written to files as bytes, by its type in C++.
_STORED: Final = {"double": "float64", "float": "float32"}
_CASTS: Final = (
    "UNEXPOSED_EXPR",
    "PAREN_EXPR",
    "CSTYLE_CAST_EXPR",
    "CXX_REINTERPRET_CAST_EXPR",
    "CXX_STATIC_CAST_EXPR",
)


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
    while node.kind in _CASTS and node.children:
        node = node.children[-1]
    kind = node.canonical
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
    columns: dict[int, list[tuple[float, float]]] = {}
    heading = ""
    for number, (one, other) in enumerate(zip(before, after, strict=True), 1):
        words, numbers = numbers_in(one, heading)
        own_words, own_numbers = numbers_in(other, heading)
        if words != own_words:
            told = f"line {number} reads {other.strip()[:_SHOWN]!r} instead of {one.strip()[:_SHOWN]!r}"
            return Compared(name, told, None, False)
        for column, ((a, is_time), (b, _)) in enumerate(zip(numbers, own_numbers, strict=True)):
            if not is_time:
                columns.setdefault(column, []).append((float(b), _nearest(float(b), a)))
        heading = one if one.upper() != one.lower() else heading
    count = sum(map(len, columns.values()))
    error = max((error_of(*pair) for pair in _judged_together(columns)), default=0.0)
    return Compared(name, f"{count:,} numbers in {len(before):,} lines of text", error, True)


def _nearest(value: float, written: str) -> float:
    """Return a number as it is written, or another one from which its last digit cannot tell it."""
    number = float(written)
    digits, _, exponent = written.lower().partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    is_whole = "." not in digits and not exponent
    return value if not is_whole and abs(value - number) <= 1.001 * unit else number


def _judged_together(columns: Mapping[int, list[tuple[float, float]]]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield the numbers that are judged together, the new ones first: a column each, but for those nearly zero."""
    arrays = {column: np.array(pairs).T for column, pairs in columns.items()}
    changed = [pair for pair in arrays.values() if not np.array_equal(pair[0], pair[1])]
    largest = max((float(np.abs(pair[1]).max()) for pair in changed), default=0.0)
    alone = [pair for pair in changed if np.abs(pair[1]).max() > _NEARLY_ZERO * largest]
    if len(columns) > _MOST_COLUMNS or len(alone) < len(changed):
        alone = [np.concatenate(changed, axis=1)] if changed else []
    yield from ((pair[0], pair[1]) for pair in alone)
