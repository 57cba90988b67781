"""How the numbers of a definition depend on the program's arguments, which is found by changing an argument.

A number that is the same in all runs is written as it is. One that changes is written as an expression over arguments
if one gives its value in each of the runs, and is otherwise taken from the run at hand.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mptune.adopt.parsing import ProgramError
from mptune.adopt.sequence import Number
from mptune.kernel.tunable import parsed

__all__ = ["GIVEN", "Numbers", "Seen", "decided", "elements_of"]

#: Instead of the text of a number: it is looked up in what a run has left.
GIVEN: Final = "given"
#: What may stand beside a sign as it is.
_PRODUCT: Final = re.compile(r"[\w* ]+|\([^()]*\)( \* \([^()]*\))+")
#: Numbers that have to be known before a run.
_ELEMENTS: Final = "elements of "
_OFFSETS: Final = (0, 1, 2, -1, -2)
_LARGEST_FACTOR: Final = 64
_ROUNDED: Final = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a number was in a run.

    Attributes:
        value: None if it is not always the same.
        natural: how it is written if nothing is decided.
        text: how it is written.
        is_of_steps: whether it is passed by the steps, or counts their turns.
        block: to a multiple of what it is rounded up, or what it counts, if it is of the geometry of a launch.
    """

    value: Number | None
    natural: str
    text: str
    is_of_steps: bool = False
    block: int = 1


@dataclass(slots=True)
class Numbers:
    """The numbers of a definition by name, as they are written.

    Attributes:
        texts: of those of which something was decided: an expression over sizes, or :data:`GIVEN`.
        sizes: the arguments that are sizes, by name.
        fixed: the sizes that no argument sets, by name; None where they are still to be found.
        is_draft: whether numbers are only noted, and a name stands for each in the text.
        seen: what each was, by name.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    fixed: Mapping[str, int] | None = None
    is_draft: bool = False
    seen: dict[str, Seen] = field(default_factory=dict)

    def text(
        self, name: str, values: Sequence[Number], natural: str, *, is_of_steps: bool = False, block: int = 1
    ) -> str:
        """Return how a number is written.

        Args:
            name: of the number.
            values: what it is each time.
            natural: how it would be written by itself.
            is_of_steps: whether it is passed by the steps, or counts their turns.
            block: to a multiple of what it is rounded up, or what it counts, if it is of the geometry of a launch.
        """
        text = f"<{name}>" if self.is_draft else self.texts.get(name, natural)
        self.seen[name] = Seen(values[0] if len(set(values)) == 1 else None, natural, text, is_of_steps, block)
        return text

    def check(self) -> None:
        """Check that each expression gives the value its number has in this run.

        Raises:
            ProgramError: one does not; says which.
        """
        for name, seen in self.seen.items():
            text = self.texts.get(name, GIVEN)
            if text != GIVEN and seen.value != (expected := int(parsed(text).evaluate(self.sizes))):
                value = "not always the same" if seen.value is None else f"{seen.value:,}"
                raise ProgramError(f"the {name} is {value}, and not {text} = {expected:,}")

    def is_given(self, name: str) -> bool:
        """Whether a number is looked up."""
        return self.texts.get(name) == GIVEN


def elements_of(buffer: str) -> str:
    """Return the name of how many elements a buffer has."""
    return f"{_ELEMENTS}{buffer}"


def decided(runs: Sequence[Numbers]) -> dict[str, str]:
    """Return how numbers that are not the same in all runs are written, by name.

    Args:
        runs: drafts of the same text, each of a run with other arguments.

    Raises:
        ProgramError: a number changes that has to be known before a run, and not by an expression that was found.
    """
    sizes = [run.sizes for run in runs]
    found = {}
    for name in runs[0].seen:
        values = [run.seen[name].value for run in runs]
        texts = [run.seen[name].natural for run in runs]
        if len(set(values)) == 1 and (values[0] is not None or len(set(texts)) == 1):
            if len(set(texts)) > 1:  # by a name for another number
                found[name] = repr(values[0])
            continue
        whole = [value for value in values if isinstance(value, int)]
        expression = _expression(whole, sizes, runs[0].seen[name].block) if len(whole) == len(runs) else ""
        if not expression and name.startswith(_ELEMENTS):
            raise ProgramError(f"the {name} are {_listed(values)}, which no expression was found for")
        found[name] = expression or GIVEN
    return found


def _listed(values: Sequence[Number | None]) -> str:
    return " and ".join(f"{value:,}" for value in values if value is not None)


def _expression(values: Sequence[int], sizes: Sequence[Mapping[str, int]], block: int) -> str:
    """Return the expression over sizes that has these values at these sizes, the shortest that is tried; or nothing."""
    products = list(_products(sizes))
    for text, of_it in products:
        if all(value == product for value, product in zip(values, of_it, strict=True)):
            return text
    for text, of_it in products:
        factor, rest = divmod(values[0], of_it[0])
        if (
            not rest
            and 1 < factor <= _LARGEST_FACTOR
            and all(v == factor * p for v, p in zip(values, of_it, strict=True))
        ):
            return f"{factor} * {text}" if _PRODUCT.fullmatch(text) else f"{factor} * ({text})"
    for width, (text, of_it) in itertools.product((block,) if block > 1 else _ROUNDED, products):
        blocks = [-(-product // width) for product in of_it]
        inner = text if _PRODUCT.fullmatch(text) else f"({text})"
        if all(value == count * width for value, count in zip(values, blocks, strict=True)):
            return f"({inner} + {width - 1}) // {width} * {width}"
        if all(value == count for value, count in zip(values, blocks, strict=True)):
            return f"({inner} + {width - 1}) // {width}"
        if all(value == product // width for value, product in zip(values, of_it, strict=True)):
            return f"{inner} // {width}" if inner.isidentifier() or "(" in inner else f"({inner}) // {width}"
    return ""


def _products(sizes: Sequence[Mapping[str, int]]) -> Iterator[tuple[str, list[int]]]:
    """Yield products of up to three sizes, each a little more or less, with their values in each run."""
    terms = []
    for offset, name in itertools.product(_OFFSETS, sizes[0]):
        text = name if not offset else f"{name} {'+' if offset > 0 else '-'} {abs(offset)}"
        values = [one[name] + offset for one in sizes]
        if min(values) > 0:
            terms.append((text, values))
    for count in (1, 2, 3):
        for chosen in itertools.combinations_with_replacement(terms, count):
            texts = [text if count == 1 or text.isidentifier() else f"({text})" for text, _ in chosen]
            yield " * ".join(texts), [math.prod(each) for each in zip(*(v for _, v in chosen), strict=True)]
