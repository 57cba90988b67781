"""The error of one element, by the five ways to measure it; the metrics reduce arrays of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

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

Chunk = NDArray[Any]


class NegativeDataError(Exception):
    """A logarithm met negative data; says no more, as the whole array must be looked at to say how many."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A non-negative number for each element.

    Attributes:
        function: the numbers of a chunk as a new array, from output, reference and the type the output is stored in.
        follows_scale: scaling output and reference scales the quantity likewise; else, where it is large, they do not
            change it.
        takes_complex: whether it is defined for complex data.
    """

    function: Callable[[Chunk, Chunk, np.dtype[Any]], Chunk]
    follows_scale: bool = False
    takes_complex: bool = True

    def evaluate(self, output: Chunk, reference: Chunk, stored: np.dtype[Any], exponent: int = 0) -> Chunk:
        """Return the quantity times ``2**exponent``, shape of ``output``; right for finite data without 0/0."""
        factor = _power_of_two(output, exponent)
        if self.follows_scale and exponent < 0:
            # Scaling comes first: the difference of two finite values may overflow.
            return self.function(output * factor, reference * factor, stored)
        quantity = self.function(output, reference, stored)
        if exponent != 0:
            quantity *= factor
        return quantity

    def evaluate_any(self, output: Chunk, reference: Chunk, stored: np.dtype[Any], exponent: int = 0) -> Chunk:
        """Return what :meth:`evaluate` does, right for all data, at about twice the cost."""
        quantity = self.evaluate(output, reference, stored, exponent)
        if not self.follows_scale:
            overflowed = np.isinf(quantity) & np.isfinite(output) & np.isfinite(reference)
            if overflowed.any():
                quarter = _power_of_two(output, -2)
                scaled = (output[overflowed] * quarter, reference[overflowed] * quarter)
                quantity[overflowed] = self.evaluate(*scaled, stored, exponent)
        same = output == reference
        quantity[same] = 0
        quantity[np.isinf(reference) & ~same & ~np.isnan(output)] = np.inf
        return quantity


def _power_of_two(like: Chunk, exponent: int) -> Any:
    return np.ldexp(like.real.dtype.type(1), exponent)


def _absolute(output: Chunk, reference: Chunk, _: np.dtype[Any]) -> Chunk:
    difference: Chunk = output - reference
    # The modulus of a complex array is real, so it cannot take its place.
    modulus: Chunk = np.abs(difference, out=None if difference.dtype.kind == "c" else difference)
    return modulus


def _relative(output: Chunk, reference: Chunk, stored: np.dtype[Any]) -> Chunk:
    error = _absolute(output, reference, stored)
    error /= np.abs(reference)
    return error


def _ulps(output: Chunk, reference: Chunk, stored: np.dtype[Any]) -> Chunk:
    error = _absolute(output, reference, stored)
    info = float_info(stored)
    if info is None:  # integers are one unit apart
        return error
    one = error.dtype.type(1)
    # frexp's significand is in [1/2, 1): its exponent is one above that of the binade.
    _, exponent = np.frexp(np.maximum(np.abs(reference), np.ldexp(one, info.minexp)))
    error /= np.ldexp(one, exponent - (1 + info.nmant))
    return error


def _logarithmic(output: Chunk, reference: Chunk, _: np.dtype[Any]) -> Chunk:
    return _difference_of_logarithms(output, reference, reference, np.log)


def _logarithmic_plus_one(output: Chunk, reference: Chunk, _: np.dtype[Any]) -> Chunk:
    return _difference_of_logarithms(output, reference, 1 + reference, np.log1p)


def _difference_of_logarithms(output: Chunk, reference: Chunk, argument: Chunk, logarithm: Any) -> Chunk:
    """Return ``|logarithm(output) - logarithm(reference)|`` without cancellation where they are close.

    ``argument`` is what the reference's logarithm is taken of.
    """
    if output.min() < 0 or reference.min() < 0:
        raise NegativeDataError
    ratio: Chunk = output - reference
    ratio /= argument
    far = (ratio < -0.5) | (ratio > 1)
    np.log1p(ratio, out=ratio)
    if far.any():
        ratio[far] = logarithm(output[far]) - logarithm(reference[far])
    np.abs(ratio, out=ratio)
    return ratio


ABSOLUTE: Final = Quantity(_absolute, follows_scale=True)
RELATIVE: Final = Quantity(_relative)
ULPS: Final = Quantity(_ulps)
LOGARITHMIC: Final = Quantity(_logarithmic, takes_complex=False)
LOGARITHMIC_PLUS_ONE: Final = Quantity(_logarithmic_plus_one, takes_complex=False)
