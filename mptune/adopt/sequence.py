"""What a program launched, one call after the other, written as Python with loops: thousands of launches read well."""

from __future__ import annotations

import dataclasses
import itertools
import keyword
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: A loop's body has at most so many calls and loops.
_LONGEST_BODY: Final = 256
#: Numbers that differ from launch to launch are listed in the text up to so many.
_MOST_LISTED: Final = 12
_INDENT: Final = "    "
_VARIABLES: Final = "ijklmn"
#: What takes its arguments in order.
_IN_ORDER: Final = ("copy", "fill", "swap", "write")
#: Functions of the definition's own, which do, too.
_OWN: Final = ("vary", "put", "move")

Number = int | float


@dataclass(frozen=True, slots=True)
class Call:
    """One call of what the steps of an application are given.

    Attributes:
        function: a kernel's name, or ``copy``, ``fill``, ``swap``, ``write``, ``vary``, ``put`` or ``move``, which take
            their arguments in order; the last three are functions of the definition's own.
        buffers: the buffers passed, by argument.
        values: the numbers passed, by argument.
        tables: of values that are rows of a table, which is what is passed: the table, by argument.
    """

    function: str
    buffers: tuple[tuple[str, str], ...] = ()
    values: tuple[tuple[str, Number], ...] = ()
    tables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Replay:
    """The steps of an application as text.

    Attributes:
        lines: of the function's body.
        tables: the numbers that differ from call to call and are too many for the text, by name.
        places: where what a buffer had in the calls is at the end, if swaps have moved it to another one.
    """

    lines: tuple[str, ...]
    tables: Mapping[str, NDArray[Any]]
    places: Mapping[str, str]


def replay(
    calls: Sequence[Call],
    *,
    may_swap: Callable[[str, str], bool] = lambda one, other: True,  # noqa: ARG005
    text_of: Callable[[Call, str, Number], str] = lambda call, argument, value: literal(value),  # noqa: ARG005
    written: Callable[[str, Sequence[Number], str], str | None] = lambda name, values, text: text,  # noqa: ARG005
    has_draws: bool = False,
    varied: Collection[str] = (),
) -> Replay:
    """Return what was called as the text of Python that calls it again.

    Args:
        calls: in their order.
        may_swap: whether two buffers can change places.
        text_of: how a number that an argument of a call always has is written.
        written: is told of each number of the text a name, what it is each time and how it would be written, and says
            how it is; None for one that is looked up in a table.
        has_draws: whether floating-point numbers go through the definition's own function ``near``.
        varied: the tables whose rows do, where kernels are passed them.
    """
    nodes, places = _swapped(_with_loops([_Leaf.of(call) for call in calls]), may_swap)
    writer = _Writer(text_of, written, has_draws, varied)
    lines = tuple(writer.lines(nodes, ()))
    return Replay((*writer.iterators, *lines), writer.tables, places)


# -- loops ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Leaf:
    """A call in a place of the text, with the numbers of each time it is made."""

    call: Call
    values: dict[str, list[Number]]

    @classmethod
    def of(cls, call: Call) -> _Leaf:
        return cls(call, {name: [value] for name, value in call.values})

    @property
    def kind(self) -> Any:
        """What two calls have in common that differ in numbers and buffers alone."""
        call = self.call
        return call.function, [name for name, _ in call.buffers], [(name, type(value)) for name, value in call.values]

    @property
    def key(self) -> Any:
        """What two calls have in common that differ in numbers alone."""
        return self.call.function, self.call.buffers, tuple((name, type(value)) for name, value in self.call.values)

    def append(self, other: _Leaf) -> None:
        for name, values in self.values.items():
            values += other.values[name]


@dataclass(slots=True)
class _Loop:
    """A loop in a place of the text, with how often its body is run each time it is come to."""

    body: list[_Leaf | _Loop]
    counts: list[int]

    @property
    def key(self) -> Any:
        """What two loops have in common that differ in numbers alone."""
        return ("for", *(node.key for node in self.body))

    def append(self, other: _Loop) -> None:
        self.counts += other.counts
        for mine, theirs in zip(self.body, other.body, strict=True):
            mine.append(theirs)  # type: ignore[arg-type]  # of the same key


_Node = _Leaf | _Loop


def _with_loops(nodes: list[_Node]) -> list[_Node]:
    """Return nodes with what comes again at once, but for its numbers, in loops, the shortest bodies first."""
    keys: dict[Any, int] = {}
    numbers = [keys.setdefault(node.key, len(keys)) for node in nodes]
    period = 1
    while period <= min(_LONGEST_BODY, len(nodes) // 2):
        ids = np.array(numbers)
        runs = [(s, n // period + 1) for s, n in _runs(ids[period:] == ids[:-period]) if n >= period]
        if not runs:
            period += 1
            continue
        kept: list[_Node] = []
        kept_numbers: list[int] = []
        at = 0
        for start, count in runs:
            if start < at:  # it overlaps the one before
                continue
            kept += nodes[at:start]
            kept_numbers += numbers[at:start]
            at = start + period * count
            loop = _Loop(nodes[start : start + period], [count])
            for first in range(start + period, at, period):
                for mine, theirs in zip(loop.body, nodes[first : first + period], strict=True):
                    mine.append(theirs)  # type: ignore[arg-type]  # of the same key
            kept.append(loop)
            kept_numbers.append(keys.setdefault(loop.key, len(keys)))
        nodes, numbers = [*kept, *nodes[at:]], [*kept_numbers, *numbers[at:]]
        period = 1
    return nodes


def _runs(same: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return where runs of True begin, and how long they are."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])).astype(np.int8)))
    return [(int(a), int(b - a)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


# -- buffers that change places ------------------------------------------------------------------


def _swapped(nodes: Sequence[_Node], may_swap: Callable[[str, str], bool]) -> tuple[list[_Node], dict[str, str]]:
    """Return nodes whose loops swap buffers where they would have a body for each way that buffers are passed.

    A program that steps from one buffer to another and back swaps its pointers, and so does what replays it. Turns that
    are left after the last loop of all ways are the loop's, too: what comes then finds the buffers where they are.

    Returns:
        The nodes, and where what a buffer had is at the end, if elsewhere.
    """
    found: list[_Node] = []
    places: dict[str, str] = {}
    at = 0
    while at < len(nodes):
        node = _renamed(nodes[at], places)
        at += 1
        if isinstance(node, _Loop) and (turns := _turns(node.body, may_swap)):
            blocks, moves = turns
            length, left = len(blocks[0]), []
            for block in blocks[:-1]:
                turn = [_renamed(each, places) for each in nodes[at : at + length]]
                if [each.key for each in turn] != [each.key for each in block]:
                    break
                left.append(turn)
                at += length
            node = _turned(node, blocks, moves, left)
            back = {after: before for before, after in moves.items()}
            for _ in left:
                names = {*places, *back}
                places = {name: back.get(places.get(name, name), places.get(name, name)) for name in names}
        found.append(_within(node, may_swap))
    return found, {name: place for name, place in places.items() if name != place}


def _within(node: _Node, may_swap: Callable[[str, str], bool]) -> _Node:
    """Return a node whose inner loops swap buffers."""
    if isinstance(node, _Leaf):
        return node
    body = []
    for child in node.body:
        if isinstance(child, _Loop) and (turns := _turns(child.body, may_swap)):
            child = _turned(child, *turns, [])
        body.append(_within(child, may_swap))
    return _Loop(body, node.counts)


def _turns(
    body: Sequence[_Node], may_swap: Callable[[str, str], bool]
) -> tuple[list[Sequence[_Node]], dict[str, str]] | None:
    """Return the blocks of a body that differ in their buffers alone, and which takes the place of which."""
    for length in range(1, len(body) // 2 + 1):
        if len(body) % length:
            continue
        blocks = [body[start : start + length] for start in range(0, len(body), length)]
        moves = _moves(blocks)
        if moves and all(may_swap(one, other) for one, other in moves.items()):
            return blocks, moves
    return None


def _turned(
    node: _Loop, blocks: Sequence[Sequence[_Node]], moves: Mapping[str, str], left: Sequence[Sequence[_Node]]
) -> _Loop:
    """Return a loop over its first block that swaps buffers, with the turns that are left after it as its last."""
    times = sum(node.counts)
    merged: list[_Node] = []
    for place, turn in enumerate(zip(*blocks, strict=True)):
        each_time = itertools.chain(*zip(*(_split(child, times) for child in turn), strict=True))
        merged.append(_merged(itertools.chain(each_time, (block[place] for block in left))))
    swaps = [_Leaf.of(Call("swap", (("", one), ("", other)))) for one, other in _exchanges(moves)]
    counts = [count * len(blocks) for count in node.counts]
    return _Loop([*merged, *swaps], [*counts[:-1], counts[-1] + len(left)])


def _renamed(node: _Node, places: Mapping[str, str]) -> _Node:
    """Return a node that works on buffers where they are."""
    if not places:
        return node
    if isinstance(node, _Loop):
        return _Loop([_renamed(child, places) for child in node.body], node.counts)
    buffers = tuple((argument, places.get(buffer, buffer)) for argument, buffer in node.call.buffers)
    return _Leaf(dataclasses.replace(node.call, buffers=buffers), node.values)


def _moves(blocks: Sequence[Sequence[_Node]]) -> dict[str, str]:
    """Return which buffer takes the place of which from each block to the next, and from the last to the first.

    Empty if the blocks differ in more.
    """
    found: dict[str, str] = {}
    for one, other in zip(blocks, [*blocks[1:], blocks[0]], strict=True):
        for mine, theirs in zip(_leaves(one), _leaves(other), strict=False):
            if mine.kind != theirs.kind:
                return {}
            for (_, before), (_, after) in zip(mine.call.buffers, theirs.call.buffers, strict=True):
                if found.setdefault(before, after) != after:
                    return {}
        if [type(node) for node in _nodes(one)] != [type(node) for node in _nodes(other)]:
            return {}
    moved = {before: after for before, after in found.items() if before != after}
    return moved if moved.keys() == set(moved.values()) else {}


def _nodes(nodes: Iterable[_Node]) -> Iterator[_Node]:
    for node in nodes:
        yield node
        if isinstance(node, _Loop):
            yield from _nodes(node.body)


def _leaves(nodes: Iterable[_Node]) -> Iterator[_Leaf]:
    return (node for node in _nodes(nodes) if isinstance(node, _Leaf))


def _exchanges(moves: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs to swap, one after the other, for each name to get the memory of the one it moves to."""
    seen: set[str] = set()
    for first in sorted(moves):
        at = first
        while at not in seen and moves[at] != first:
            seen.add(at)
            yield at, moves[at]
            at = moves[at]
        seen.add(at)


def _split(node: _Node, count: int) -> list[_Node]:
    """Return a node as it was each of the times that it was come to."""
    if isinstance(node, _Leaf):
        return [_Leaf(node.call, {n: [values[at]] for n, values in node.values.items()}) for at in range(count)]
    children = [iter(_split(child, sum(node.counts))) for child in node.body]
    return [_Loop([_merged(itertools.islice(child, each)) for child in children], [each]) for each in node.counts]


def _merged(nodes: Iterable[_Node]) -> _Node:
    """Return one node for several of one kind that are come to one after the other."""
    first, *others = nodes
    for other in others:
        first.append(other)  # type: ignore[arg-type]  # of the same kind
    return first


# -- text ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Around:
    """A loop around a place of the text: its variable, and how often its body is run; None where that differs."""

    variable: str
    count: int | None


class _Writer:
    """Writes nodes as lines of Python, and collects the numbers that go into tables."""

    def __init__(
        self,
        text_of: Callable[[Call, str, Number], str],
        written: Callable[[str, Sequence[Number], str], str | None],
        has_draws: bool,
        varied: Collection[str],
    ) -> None:
        self._text_of, self._written, self._has_draws, self._varied = text_of, written, has_draws, varied
        self._named: dict[str, int] = {}
        self.tables: dict[str, NDArray[Any]] = {}
        #: Lines that come first.
        self.iterators: list[str] = []

    def lines(self, nodes: Iterable[_Node], around: tuple[_Around, ...]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, _Leaf):
                yield self._call(node, around)
                continue
            same = len(set(node.counts)) == 1
            loop = _Around(_VARIABLES[min(len(around), len(_VARIABLES) - 1)], node.counts[0] if same else None)
            body = list(self.lines(node.body, (*around, loop)))
            is_used = any(loop.variable in _words(line) for line in body)
            natural = str(loop.count) if same else self._varying("count", "", node.counts, around)
            count = self._number("count", "", node.counts, around, natural)
            yield f"for {loop.variable if is_used else '_'} in range({count}):"
            yield from (_INDENT + line for line in body)

    def _call(self, leaf: _Leaf, around: tuple[_Around, ...]) -> str:
        call = leaf.call
        given = [(argument, f"run.{buffer}") for argument, buffer in call.buffers]
        for argument, values in leaf.values.items():
            if len(set(values)) == 1:
                natural = self._text_of(call, argument, values[0])
            else:
                natural = self._varying(call.function, argument, values, around)
            text = self._number(call.function, argument, values, around, natural)
            if self._has_draws and call.function not in (*_IN_ORDER, *_OWN) and isinstance(values[0], float):
                text = f"near(run, {text})"
            given.append((argument, text))
        tables = dict(call.tables)
        given = [(name, self._row(tables[name], text) if name in tables else text) for name, text in given]
        if call.function in _OWN:
            return f"{call.function}(run, {', '.join(text for _, text in given)})"
        in_order = call.function in _IN_ORDER
        return f"run.{call.function}({', '.join(text if in_order else _passed(name, text) for name, text in given)})"

    def _row(self, table: str, place: str) -> str:
        row = f"{_looked_up(table)}[{place}]"
        return f"near(run, {row})" if table in self._varied else row

    def _number(
        self, function: str, argument: str, values: Sequence[Number], around: tuple[_Around, ...], natural: str
    ) -> str:
        """Return the text of a number as it is to be written."""
        stem = f"{function} {argument}".strip()
        self._named[stem] = number = self._named.get(stem, 0) + 1
        text = self._written(stem if number == 1 else f"{stem} {number}", values, natural)
        return self._varying(function, argument, values, around, in_text=False) if text is None else text

    def _varying(
        self,
        function: str,
        argument: str,
        values: Sequence[Number],
        around: tuple[_Around, ...],
        *,
        in_text: bool = True,
    ) -> str:
        """Return the text of a number that differs from one time to the next, or that is looked up nevertheless."""
        counts = [loop.count for loop in around]
        if not in_text and len(set(values)) == 1:
            return _looked_up(self._table(function, argument, np.array(values[0])))
        if None not in counts:
            array = np.array(values).reshape([count or 0 for count in counts])
            axes = [axis for axis in range(array.ndim) if not _is_same_along(array, axis)]
            if len(axes) == 1 and in_text:
                (axis,) = axes
                line = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)[:, 0].tolist()
                variable = around[axis].variable
                if text := _affine(line, variable):
                    return text
                if len(line) <= _MOST_LISTED:
                    return f"[{', '.join(map(literal, line))}][{variable}]"
            table = np.ascontiguousarray(array.transpose(*axes, *_others(array.ndim, axes))).reshape(
                *(array.shape[axis] for axis in axes), -1
            )[..., 0]
            place = ", ".join(around[axis].variable for axis in axes)
            return f"{_looked_up(self._table(function, argument, table))}[{place}]"
        name = self._table(function, argument, np.array(values))
        self.iterators.append(f"next_{name} = iter({_looked_up(name)})")
        return f"next(next_{name})"

    def _table(self, function: str, argument: str, values: NDArray[Any]) -> str:
        stem = "_".join(part for part in (function, argument) if part)
        name, number = stem, 2
        while name in self.tables:
            name, number = f"{stem}_{number}", number + 1
        self.tables[name] = values
        return name


def _passed(name: str, text: str) -> str:
    """Return the text of an argument by name; some names of C++ are words of Python."""
    return f'**{{"{name}": {text}}}' if keyword.iskeyword(name) else f"{name}={text}"


def literal(value: Number) -> str:
    """Return a number as Python's text; infinities and NaN, which have no literals, as well."""
    return repr(value) if math.isfinite(value) else f'float("{value}")'


def _looked_up(name: str) -> str:
    return f'TABLES["{name}"]'


def _is_same_along(array: NDArray[Any], axis: int) -> bool:
    return bool((array == np.take(array, [0], axis)).all())


def _others(count: int, axes: Sequence[int]) -> list[int]:
    return [axis for axis in range(count) if axis not in axes]


def _affine(values: Sequence[Number], variable: str) -> str:
    """Return the text that gives these numbers, exactly, from 0, 1, ...; empty if there is none."""
    first, step = values[0], values[1] - values[0]
    if any(first + step * index != value for index, value in enumerate(values)):
        return ""
    if step < 0:
        return f"{first!r} - {_times(-step, variable)}"
    return _times(step, variable) if first == 0 and isinstance(step, int) else f"{first!r} + {_times(step, variable)}"


def _times(step: Number, variable: str) -> str:
    return variable if step == 1 and isinstance(step, int) else f"{step!r} * {variable}"


def _words(text: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())
