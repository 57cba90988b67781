"""Launches with other blocks: what has to change in the text, where it is certain that as many threads are launched.

The number of blocks along an axis is computed from a number of threads and the threads of a block. An expression is
taken for that only if it gives the quotient rounded up, or one more, for every number of threads, as it is and as it
would be. All of them behave alike from one multiple of the block to the next, so that a few multiples show it.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mptune.adopt.parsing import CASTS, TRANSPARENT, Extent, Node
from mptune.adopt.reading import Program

#: Threads along each axis; 0 where they stay.
Block = tuple[int, ...]
#: The value of an expression for a number of threads, in the program as it is (False) or with other blocks (True).
_Value = Callable[[int, bool], Any]

_MOST_PASSES: Final = 3
_WRITTEN: Final = re.compile(r"(\d+|[A-Za-z_]\w*)(?:\.0*[fF]?|[uUlL]*)")
_WORD: Final = re.compile(r"\w+")
#: What a macro stands for in whose place a number can be.
_NUMBER: Final = re.compile(r"\w+\s*\(*\s*\w+\s*\)*")
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "<": operator.lt, ">": operator.gt, "<=": operator.le,
    ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "&&": lambda a, b: bool(a and b),
    "||": lambda a, b: bool(a or b),
}  # fmt: skip


def geometry(program: Program, wanted: Mapping[str, Block]) -> tuple[dict[Extent, str], dict[str, Block]]:
    """Return the changes of the text that give kernels other blocks, and the kernels that have them then.

    Args:
        program: the program.
        wanted: the block of each kernel, by its label.
    """
    if not wanted:
        return {}, {}
    roots = [root for unit in program.units for root in (*unit.top, *(f.node for f in unit.functions))]
    nodes = [node for root in roots for node in root.walk()]
    declared = {node.cursor.get_usr(): node for node in nodes if node.kind == "VAR_DECL"}
    macros = {
        node.spelling: program.text(node.extent)
        for node in roots
        if node.kind == "MACRO_DEFINITION" and node.extent is not None
    }
    changes: dict[str, list[_Launch]] = {}
    for node in nodes:
        configuration = node.children[1] if node.kind == "CALL_EXPR" and len(node.children) > 1 else None
        if configuration is not None and configuration.spelling == "__cudaPushCallConfiguration":
            place = node.children[0].extent
            for label in {site.kernel for site in program.launches if site.callee == place} & wanted.keys():
                launch = _Launch(program, declared, macros, wanted[label])
                launch.read(*configuration.children[1:3])
                changes.setdefault(label, []).append(launch)
    places: dict[str, set[Extent]] = {}
    for node in nodes:
        if node.kind == "DECL_REF_EXPR" and node.referenced is not None and node.extent is not None:
            places.setdefault(node.referenced.get_usr(), set()).add(node.extent)
    clear = {label: each for label, each in changes.items() if all(one.is_clear for one in each)}
    return _agreeing(clear, places, wanted)


def _agreeing(
    changes: Mapping[str, list[_Launch]], places: Mapping[str, set[Extent]], wanted: Mapping[str, Block]
) -> tuple[dict[Extent, str], dict[str, Block]]:
    """Leave out the kernels whose changes another launch, or anything else that uses the same variable, would feel."""
    kept = dict(changes)
    while True:
        new: dict[Extent, set[str]] = {}
        seen: dict[str, set[Extent]] = {}
        for launch in (one for each in kept.values() for one in each):
            for place, text in launch.edits.items():
                new.setdefault(place, set()).add(text)
            for variable, found in launch.seen.items():
                seen.setdefault(variable, set()).update(found)
        felt = {variable for variable, found in seen.items() if places[variable] - found}
        wrong = [
            label
            for label, each in kept.items()
            if any(felt & one.seen.keys() or any(len(new[place]) > 1 for place in one.edits) for one in each)
        ]
        if not wrong:
            return {place: texts.pop() for place, texts in new.items()}, {label: wanted[label] for label in kept}
        for label in wrong:
            del kept[label]


class _UnclearError(Exception):
    """An expression that is not understood."""


@dataclass(slots=True)
class _Launch:
    """One launch with another block.

    Attributes:
        program: it is of.
        declared: the program's variables.
        macros: the texts of its macros, from their names on.
        wanted: the new block.
        edits: what changes in the text.
        seen: the variables that change thereby, with where they are named in what is understood.
        is_clear: whether it is certain that every thread is still launched.
    """

    program: Program
    declared: Mapping[str, Node]
    macros: Mapping[str, str]
    wanted: Block
    edits: dict[Extent, str] = field(default_factory=dict)
    seen: dict[str, set[Extent]] = field(default_factory=dict)
    is_clear: bool = False
    _block: str = ""
    _sizes: dict[str, int] = field(default_factory=dict)
    _own: list[int] = field(default_factory=list)
    #: Numbers of threads as written, with what they are where they are constants.
    _threads: dict[str, int | None] = field(default_factory=dict)

    def read(self, grid: Node, block: Node) -> None:
        """Find out what has to change."""
        try:
            widths = self._axes(block, is_block=True)
            for axis, width in enumerate(widths[: len(self.wanted)]):
                self._own.append(self._width(width, axis))
            if self._new != self._own:
                for axis, count in enumerate(self._axes(grid)[: len(self.wanted)]):
                    self._count(count, axis)
            else:
                self.edits, self.seen = {}, {}
            self.is_clear = True
        except _UnclearError:
            pass

    @property
    def _new(self) -> list[int]:
        return [new or own for new, own in zip(self.wanted, self._own, strict=False)]

    # -- where things are written ----------------------------------------------------------------

    def _axes(self, node: Node, *, is_block: bool = False) -> list[Node | None]:
        """Return what a ``dim3`` is made of; None for an axis that is not written."""
        node = _converted(node)
        if node.kind == "DECL_REF_EXPR":
            variable = self._variable(node)
            if is_block:
                self._block = variable
            return self._axes(self._initial(variable), is_block=is_block)
        if node.kind != "CALL_EXPR" or node.spelling != "dim3":
            raise _UnclearError
        parts = [child for child in node.children if child.kind not in ("TYPE_REF", "NAMESPACE_REF")]
        if len(parts) == 1:  # a copy
            return self._axes(parts[0], is_block=is_block)
        return [part if part.extent is not None else None for part in parts]

    def _variable(self, node: Node) -> str:
        """Note where a variable is named that changes."""
        usr = str(node.referenced.get_usr()) if node.referenced is not None else ""
        if usr not in self.declared or node.extent is None:
            raise _UnclearError
        self.seen.setdefault(usr, set()).add(node.extent)
        return usr

    def _initial(self, variable: str) -> Node:
        """Return what a variable is initialised with."""
        children = [c for c in self.declared[variable].children if c.kind not in ("TYPE_REF", "NAMESPACE_REF")]
        if not children:
            raise _UnclearError
        return children[-1]

    def _written(self, node: Node) -> Extent:
        """Return where something is written; of a macro in a macro's argument clang says only where that begins."""
        place = node.extent
        if place is None:
            raise _UnclearError
        source = next(file for file in self.program.files if file.path == place.file)
        name = _WORD.match(source.text, place.start)
        return dataclasses.replace(place, end=max(place.end, name.end() if name else 0))

    def _replace(self, node: Node, number: int) -> None:
        """Write another number where one is, or where a constant is named."""
        place = self._written(node)
        found = _WRITTEN.fullmatch(self.program.text(place))
        if found is None or not _NUMBER.fullmatch(self.macros.get(found[1], "N 1")):
            raise _UnclearError
        written = dataclasses.replace(place, end=place.start + found.end(1))
        if self.edits.setdefault(written, str(number)) != str(number):
            raise _UnclearError

    # -- blocks ----------------------------------------------------------------------------------

    def _width(self, node: Node | None, axis: int) -> int:
        """Take in the threads of a block along an axis, and return how many there are."""
        new = self.wanted[axis]
        if node is None:
            if new > 1:
                raise _UnclearError
            return 1
        node = _converted(node)
        if node.kind == "DECL_REF_EXPR" and not _is_constant(node):
            variable = self._variable(node)
            self._sizes[variable] = axis
            node = _converted(self._initial(variable))
        own = node.value
        if own is None:
            raise _UnclearError
        if new not in (0, own):
            self._replace(node, new)
        return own

    # -- numbers of blocks -----------------------------------------------------------------------

    def _count(self, node: Node | None, axis: int) -> None:
        """Take in the number of blocks along an axis."""
        own, new = self._own[axis], self._new[axis]
        if own == new:
            for inner in node.walk() if node is not None else ():
                if (other := self._axis_of(inner)) is not None and self._own[other] != self._new[other]:
                    raise _UnclearError
            return
        if node is None:
            raise _UnclearError
        node = _converted(node)
        if node.kind == "DECL_REF_EXPR" and not _is_constant(node):
            node = self._initial(self._variable(node))
        self._threads = {}
        count = self._value(node, axis, None)
        if len(self._threads) != 1:
            raise _UnclearError
        (total,) = self._threads.values()
        try:
            if total is not None and int(count(total, False)) * own == int(count(total, True)) * new:
                return  # of a constant it is enough that there are as many
            for threads in range(1, _MOST_PASSES * max(own, new) + 2):
                for size, found in ((own, int(count(threads, False))), (new, int(count(threads, True)))):
                    if not -(-threads // size) <= found <= threads // size + 1:
                        raise _UnclearError
        except (ZeroDivisionError, OverflowError, ValueError):
            raise _UnclearError from None

    def _value(self, node: Node, axis: int, given: Mapping[str, _Value] | None) -> _Value:
        """Return an expression as a function; ``given`` are the parameters of the function that it is in."""
        kind, children = node.kind, node.children
        if kind in (*TRANSPARENT, *CASTS) and children:
            inner = self._value(children[-1], axis, given)
            return (lambda n, new: int(inner(n, new))) if _is_whole(node) else (lambda n, new: float(inner(n, new)))
        if (number := self._number(node, axis)) is not None:
            return self._changed(node, number, axis, given)
        if kind == "DECL_REF_EXPR" and given is not None and node.referenced.get_usr() in given:
            return given[node.referenced.get_usr()]
        if (of := self._axis_of(node)) is not None:
            own, size = self._own[of], self._new[of]
            return lambda _, new: size if new else own
        if given is None and self._is_threads(node, axis):
            self._threads["".join(self.program.text(self._written(node)).split())] = node.value
            return lambda n, _: n
        if kind == "BINARY_OPERATOR":
            return _computed(node, *(self._value(child, axis, given) for child in children))
        if kind == "CONDITIONAL_OPERATOR":
            condition, one, other = (self._value(child, axis, given) for child in children)
            return lambda n, new: one(n, new) if condition(n, new) else other(n, new)
        if kind == "CALL_EXPR":
            return self._called(node, axis, given)
        raise _UnclearError

    def _number(self, node: Node, axis: int) -> int | None:
        """Return the whole number that is written; of what has a name, only one of the block's, else it has no part."""
        if node.kind not in ("INTEGER_LITERAL", "FLOATING_LITERAL", "DECL_REF_EXPR") or node.extent is None:
            return None
        written = self.program.text(self._written(node))
        if node.kind == "FLOATING_LITERAL":
            found = re.fullmatch(r"(\d+)\.0*[fF]?", written)
            return int(found[1]) if found else None
        if node.kind == "DECL_REF_EXPR" and not _is_constant(node):
            return None
        value, own = node.value, self._own[axis]
        return None if written.isidentifier() and value not in (own, own - 1) else value

    def _changed(self, node: Node, value: int, axis: int, given: Mapping[str, _Value] | None) -> _Value:
        """Return the value of a number, which is another one if it is the threads of a block, or one less."""
        own, size = self._own[axis], self._new[axis]
        if given is not None or value not in (own, own - 1):
            return lambda _n, _new: value
        changed = size - (own - value)
        self._replace(node, changed)
        return lambda _, new: changed if new else value

    def _axis_of(self, node: Node) -> int | None:
        """Return which axis of the block an expression is the width of; None for anything else."""
        inner = node.children[0] if node.kind == "MEMBER_REF_EXPR" and node.children else node
        if inner.kind != "DECL_REF_EXPR" or inner.referenced is None:
            return None
        usr = inner.referenced.get_usr()
        if usr in self._sizes and inner is node:
            self._variable(node)
            return self._sizes[usr]
        if usr == self._block and inner is not node:
            self._variable(inner)
            axis = "xyz".index(node.spelling)
            return axis if axis < len(self._own) else None
        return None

    def _is_threads(self, node: Node, axis: int) -> bool:
        """Whether an expression can be the number of threads: it has nothing of the block in it."""
        is_sum = node.kind == "BINARY_OPERATOR" and node.operator in ("+", "-")
        for inner in node.walk():
            named = inner.referenced.get_usr() if inner.kind == "DECL_REF_EXPR" and inner.referenced else ""
            if named and (named == self._block or named in self._sizes):
                return False
            number = self._number(inner, axis)
            if number is not None and (is_sum or number in (self._own[axis], self._own[axis] - 1)):
                return False
        return node.kind not in ("FLOATING_LITERAL", "CONDITIONAL_OPERATOR")

    def _called(self, node: Node, axis: int, given: Mapping[str, _Value] | None) -> _Value:
        """Return the value of a call: of ``ceil``, or of a function that is one expression."""
        arguments = [self._value(argument, axis, given) for argument in node.arguments]
        if node.spelling in ("ceil", "ceilf") and len(arguments) == 1:
            return lambda n, new: math.ceil(arguments[0](n, new))
        bodies = (f for unit in self.program.units for f in unit.functions if node.referenced is not None)
        function = next((f for f in bodies if f.usr == node.referenced.get_usr()), None)
        statements = function.block.children if function is not None else ()
        if function is None or given is not None or [s.kind for s in statements] != ["RETURN_STMT"]:
            raise _UnclearError
        names = [parameter.cursor.get_usr() for parameter in function.parameters]
        return self._value(statements[0].children[0], axis, dict(zip(names, arguments, strict=True)))


def _converted(node: Node) -> Node:
    """Return what is converted, copied or in parentheses; what is read as another type stays."""
    while node.kind in (*TRANSPARENT, *CASTS) and node.children:
        node = node.children[-1]
    return node


def _is_constant(node: Node) -> bool:
    """Whether a name is of a constant whose value is known where it is used."""
    return bool(node.canonical.is_const_qualified()) and node.value is not None


def _is_whole(node: Node) -> bool:
    return node.canonical.spelling.replace("const ", "") not in ("double", "float", "long double")


def _computed(node: Node, one: _Value, other: _Value) -> _Value:
    """Return the value of an operation, as C++ has it for numbers that are not negative."""
    sign = node.operator
    if sign == "/":
        divide = operator.floordiv if _is_whole(node) else operator.truediv
        return lambda n, new: divide(one(n, new), other(n, new))
    if sign == "%":
        return lambda n, new: one(n, new) % other(n, new)
    if sign not in _OPERATORS:
        raise _UnclearError
    return lambda n, new: _OPERATORS[sign](one(n, new), other(n, new))
