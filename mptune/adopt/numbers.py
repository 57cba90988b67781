"""How the numbers of a definition depend on the program's arguments, which is found by changing an argument.

A number that is the same in all runs is written as it is. One that changes is written as an expression over arguments
if one gives its value in each of the runs, and is otherwise taken from the run at hand.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mptune.adopt.launched import Number
from mptune.adopt.parsing import ProgramError

#: Instead of the text of a number: it is looked up in what a run has left.
GIVEN: Final = "given"
#: What may stand beside a sign as it is.
_PRODUCT: Final = re.compile(r"[\w* ]+|\([^()]*\)( \* \([^()]*\))+")
#: How the names of numbers begin that have to be known before a run.
ELEMENTS: Final = "elements of "
_OFFSETS: Final = (0, 1, 2, -1, -2)
#: Sums have so many products of so many sizes at most; powers where there are few sizes.
_MOST_PRODUCTS: Final = 3
_MOST_SQUARED: Final = 2
#: In a power, what a size is multiplied by, and how large an exponent may be.
_EXPONENTS: Final = (1, 2, 3)
_LARGEST_EXPONENT: Final = 40
_ROUNDED: Final = (*range(2, 13), 16, 20, 25, 32, 50, 64, 100, 128, 200, 250, 256, 500, 512, 1000, 1024)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a number was in a run.

    Attributes:
        value: None if it is not always the same.
        natural: how it is written if nothing is decided.
        text: how it is written.
        block: to a multiple of what it is rounded up, or what it counts, if it is of the geometry of a launch.
    """

    value: Number | None
    natural: str
    text: str
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
        passed: the whole numbers that kernels are given, by the name of the parameter.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    fixed: Mapping[str, int] | None = None
    is_draft: bool = False
    seen: dict[str, Seen] = field(default_factory=dict)
    passed: Mapping[str, Collection[int]] = field(default_factory=dict)

    def text(self, name: str, values: Sequence[Number], natural: str, *, block: int = 1) -> str:
        """Return how a number is written.

        Args:
            name: of the number.
            values: what it is each time.
            natural: how it would be written by itself.
            block: to a multiple of what it is rounded up, or what it counts, if it is of the geometry of a launch.
        """
        text = f"<{name}>" if self.is_draft else self.texts.get(name, natural)
        self.seen[name] = Seen(values[0] if len(set(values)) == 1 else None, natural, text, block)
        return text

    def is_given(self, name: str) -> bool:
        """Whether a number is looked up."""
        return self.texts.get(name) == GIVEN


def elements_of(buffer: str) -> str:
    """Return the name of how many elements a buffer has."""
    return f"{ELEMENTS}{buffer}"


class UnexplainedError(ProgramError):
    """A number that has to be known before a run changes, and not by an expression that was found.

    Attributes:
        name: of the number.
        sizes: those that change it.
    """

    def __init__(self, message: str, name: str, sizes: Collection[str]) -> None:
        super().__init__(message)
        self.name, self.sizes = name, sizes


def decided(runs: Sequence[Numbers]) -> dict[str, str]:
    """Return how numbers that are not the same in all runs are written, by name.

    Args:
        runs: drafts of the same text, each but the first of a run in which one size is another.

    Raises:
        UnexplainedError: a number changes that has to be known before a run, and not by an expression that was found.
    """
    base, *others = runs
    found = {}
    expressions: dict[str, list[int]] = {}
    unknown: dict[str, list[Number | None]] = {}
    changing: dict[str, set[str]] = {}
    for name, own in base.seen.items():
        values = [run.seen[name].value for run in runs]
        texts = [run.seen[name].natural for run in runs]
        if len(set(values)) == 1 and (values[0] is not None or len(set(texts)) == 1):
            if len(set(texts)) > 1:  # by a name for another number
                found[name] = repr(values[0])
            continue
        changing[name] = _varied(runs, [run for run in others if run.seen[name].value != own.value])
        whole = [value for value in values if isinstance(value, int)]
        sizes = _of_it(runs, changing[name])
        if len(whole) == len(runs) and (
            text := _product(whole, sizes) or _sum(whole, sizes, changing[name]) or _power(whole, sizes)
        ):
            found[name] = text
            expressions[text] = whole
        else:
            unknown[name] = values
    for name, values in unknown.items():
        whole = [value for value in values if isinstance(value, int)]
        if len(whole) == len(runs):
            inner = [*_products(_of_it(runs, changing[name])), *expressions.items()]
            found[name] = _rounded(whole, inner, base.seen[name].block)
        if not found.get(name) and name.startswith(ELEMENTS):
            shown = _listed(dict.fromkeys(values))
            raise UnexplainedError(f"the {name} are {shown}, which no expression was found for", name, changing[name])
        found[name] = found.get(name) or GIVEN
    return found


def _varied(runs: Sequence[Numbers], among: Sequence[Numbers]) -> set[str]:
    """Return the sizes that are others than in the first of some runs in some of them."""
    return {size for size, value in runs[0].sizes.items() if any(run.sizes[size] != value for run in among)}


def _of_it(runs: Sequence[Numbers], changing: Collection[str]) -> list[dict[str, int]]:
    """Return of each run the sizes that a number may depend on: that change it, or that no run has changed so far."""
    tried = _varied(runs, runs)
    return [{size: n for size, n in run.sizes.items() if size in changing or size not in tried} for run in runs]


def _listed(values: Iterable[Number | None]) -> str:
    return " and ".join(f"{value:,}" for value in values if value is not None)


def _product(values: Sequence[int], sizes: Sequence[Mapping[str, int]]) -> str:
    """Return the product of sizes, and of a number, that has these values, the shortest that is tried; or nothing."""
    products = list(_products(sizes))
    for text, of_it in products:
        if all(value == product for value, product in zip(values, of_it, strict=True)):
            return text
    for text, of_it in products:
        factor, rest = divmod(values[0], of_it[0])
        if not rest and factor > 1 and all(v == factor * p for v, p in zip(values, of_it, strict=True)):
            return f"{factor} * {text}" if _PRODUCT.fullmatch(text) else f"{factor} * ({text})"
    return ""


def _rounded(values: Sequence[int], expressions: Sequence[tuple[str, Sequence[int]]], block: int) -> str:
    """Return the quotient of an expression, or what it is rounded up to, that has these values; or nothing."""

    def unlikely(one: tuple[int, tuple[str, Sequence[int]]]) -> int:
        """Say how much there is to guess: what every fifth step does is done steps // 5 times, not (steps - 1) // 4."""
        width, (text, of_it) = one
        return 2 if not text.isidentifier() else int(of_it[0] % width > 0)

    tried = itertools.product((block,) if block > 1 else _ROUNDED, expressions)
    for width, (text, of_it) in sorted(tried, key=unlikely):
        blocks = [-(-product // width) for product in of_it]
        inner = text if _PRODUCT.fullmatch(text) else f"({text})"
        if block == 1 and all(value * width == product for value, product in zip(values, of_it, strict=True)):
            return f"{inner} // {width}" if inner.isidentifier() or "(" in inner else f"({inner}) // {width}"
        if all(value == count * width for value, count in zip(values, blocks, strict=True)):
            return f"({inner} + {width - 1}) // {width} * {width}"
        if all(value == count for value, count in zip(values, blocks, strict=True)):
            return f"({inner} + {width - 1}) // {width}"
        if all(value == product // width for value, product in zip(values, of_it, strict=True)):
            return f"{inner} // {width}" if inner.isidentifier() or "(" in inner else f"({inner}) // {width}"
    return ""


def _power(values: Sequence[int], sizes: Sequence[Mapping[str, int]]) -> str:
    """Return a number times a power of two whose exponent is a size, which has these values; or nothing."""
    for name, times in itertools.product(sizes[0], _EXPONENTS):
        exponents = [times * one[name] for one in sizes]
        if max(exponents) <= _LARGEST_EXPONENT and values[0] % 2 ** exponents[0] == 0:
            factor = values[0] >> exponents[0]
            if factor and all(v == factor << exponent for v, exponent in zip(values, exponents, strict=True)):
                power = f"2 ** {name}" if times == 1 else f"2 ** ({times} * {name})"
                return f"{factor} * {power}" if factor > 1 else power
    return ""


def _sum(values: Sequence[int], sizes: Sequence[Mapping[str, int]], names: Collection[str]) -> str:
    """Return the sum of products of some sizes, each as many times, that has these values; of fewer than values."""
    names = [name for name in sizes[0] if name in names]
    points = {tuple((name, each[name]) for name in names): value for each, value in zip(sizes, values, strict=True)}
    wanted = np.array(list(points.values()), np.float64)
    several = itertools.combinations if len(names) > _MOST_SQUARED else itertools.combinations_with_replacement
    chosen_from = [each for count in range(_MOST_PRODUCTS + 1) for each in several(names, count)]
    columns = {each: [math.prod(dict(point)[name] for name in each) for point in points] for each in chosen_from}
    for count in range(2, min(_MOST_PRODUCTS, len(points) - 1) + 1):
        for chosen in itertools.combinations(chosen_from, count):
            matrix = np.array([columns[each] for each in chosen], np.float64).T
            solved, _, rank, _ = np.linalg.lstsq(matrix, wanted, rcond=None)
            factors = [round(factor) for factor in solved.tolist()]
            if rank == count and 0 not in factors and np.array_equal(matrix @ factors, wanted):
                return _sum_text(dict(zip(chosen, factors, strict=True)))
    return ""


def _sum_text(factors: Mapping[tuple[str, ...], int]) -> str:
    """Return a sum as text, the longest product first."""
    text = ""
    for names, factor in reversed(list(factors.items())):
        shown = [str(abs(factor))] if abs(factor) > 1 or not names else []
        sign = ("-" if factor < 0 else "") if not text else " - " if factor < 0 else " + "
        text += sign + " * ".join([*shown, *names])
    return text


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
