"""The error of one element, by the five ways to measure it; the metrics reduce arrays of these.

Every function takes the NumPy-like namespace ``xp`` its arrays belong to, so that they may lie on a device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mptune.accuracy.chunks import float_info

__all__ = [
    "ABSOLUTE",
    "LOGARITHMIC",
    "LOGARITHMIC_PLUS_ONE",
    "RELATIVE",
    "ULPS",
    "NegativeDataError",
    "Quantity",
]

#: A one-dimensional array of the namespace.
Chunk = Any


class NegativeDataError(Exception):
    """A logarithm met negative data; says no more, as the whole array must be looked at to say how many."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A non-negative number for each element.

    Attributes:
        numerator: from a namespace and chunks of output and reference, as a new array.
        denominator: from a namespace, a chunk of the reference and the type the output is stored in; None: 1.
        is_difference: whether the numerator is ``|output - reference|``, so that it may overflow and is defined for
            complex data.
    """

    numerator: Callable[[Any, Chunk, Chunk], Chunk]
    denominator: Callable[[Any, Chunk, np.dtype[Any]], Chunk] | None = None
    is_difference: bool = True

    def evaluate(self, xp: Any, output: Chunk, reference: Chunk, stored: np.dtype[Any], exponent: int = 0) -> Chunk:
        """Return the quantity times ``2**exponent``, shape of ``output``; right for finite data without 0/0.

        With a negative exponent, numbers that are far too large without it come out right.
        """
        before = exponent if exponent < 0 and self.is_difference else 0
        after = exponent - before
        # About half of it goes to the denominator: 2**-1075 and 2**1024 are no doubles. The first two do not: they make
        # room for the difference of the largest numbers, and their denominator must not overflow.
        below = -min(1023, (-before - 2) // 2) if before < -2 and self.denominator is not None else 0
        if before:
            factor = _power_of_two(output, before - below)
            output, scaled = output * factor, reference * factor
        else:
            scaled = reference
        quantity = self.numerator(xp, output, scaled)
        if self.denominator is not None:
            denominator = self.denominator(xp, reference, stored)
            quantity /= denominator * _power_of_two(output, -below) if below else denominator
        if after:
            quantity *= _power_of_two(output, after)
        return quantity

    def evaluate_any(self, xp: Any, output: Chunk, reference: Chunk, stored: np.dtype[Any], exponent: int = 0) -> Chunk:
        """Return what :meth:`evaluate` does, right for all data, at about twice the cost."""
        quantity = self.evaluate(xp, output, reference, stored, exponent)
        # Infinities of different signs, or against a number; a number against 0.
        quantity[xp.isnan(quantity) & ~xp.isnan(output) & ~xp.isnan(reference)] = np.inf
        quantity[output == reference] = 0
        return quantity


def _power_of_two(like: Chunk, exponent: int) -> Any:
    return np.ldexp(like.real.dtype.type(1), exponent)


def _difference(xp: Any, output: Chunk, reference: Chunk) -> Chunk:
    difference = output - reference
    # The modulus of a complex array is real, so it cannot take its place.
    return xp.abs(difference, out=None if difference.dtype.kind == "c" else difference)


def _modulus(xp: Any, reference: Chunk, _: np.dtype[Any]) -> Chunk:
    return xp.abs(reference)


def _unit_in_the_last_place(xp: Any, reference: Chunk, stored: np.dtype[Any]) -> Chunk:
    one = reference.real.dtype.type(1)
    info = float_info(stored)
    if info is None:  # integers are one unit apart
        return xp.full(1, one)
    # frexp's significand is in [1/2, 1): its exponent is one above that of the binade.
    _, exponent = xp.frexp(xp.maximum(xp.abs(reference), np.ldexp(one, info.minexp)))
    return xp.ldexp(one, exponent - (1 + info.nmant))


def _of_logarithms(xp: Any, output: Chunk, reference: Chunk) -> Chunk:
    return _difference_of_logarithms(xp, output, reference, reference, xp.log)


def _of_logarithms_plus_one(xp: Any, output: Chunk, reference: Chunk) -> Chunk:
    return _difference_of_logarithms(xp, output, reference, reference + 1, xp.log1p)


def _difference_of_logarithms(xp: Any, output: Chunk, reference: Chunk, argument: Chunk, logarithm: Any) -> Chunk:
    """Return ``|logarithm(output) - logarithm(reference)|`` without cancellation where they are close.

    ``argument`` is what the reference's logarithm is taken of.
    """
    if output.min() < 0 or reference.min() < 0:
        raise NegativeDataError
    ratio = output - reference
    ratio /= argument
    far = xp.flatnonzero((ratio < -0.5) | (ratio > 1))
    xp.log1p(ratio, out=ratio)
    if far.size:
        ratio[far] = logarithm(output[far]) - logarithm(reference[far])
    return xp.abs(ratio, out=ratio)


ABSOLUTE: Final = Quantity(_difference)
RELATIVE: Final = Quantity(_difference, _modulus)
ULPS: Final = Quantity(_difference, _unit_in_the_last_place)
LOGARITHMIC: Final = Quantity(_of_logarithms, is_difference=False)
LOGARITHMIC_PLUS_ONE: Final = Quantity(_of_logarithms_plus_one, is_difference=False)
