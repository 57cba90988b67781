"""Means, mean squares and maxima of the elements' errors, accurate and safe from overflow and underflow.

Chunks are summed pairwise, the chunks' sums exactly (:func:`math.fsum`). A sum that overflows, or of squares so
small that they may have underflowed, is taken again with every element scaled by a power of two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.chunks import Pairs, chunks
from mptune.accuracy.quantities import Quantity

__all__ = ["Scaled", "maximum", "mean", "mean_square", "reference_magnitude", "reference_mean"]

#: A mean square below this may have lost squares to underflow.
_SMALL: Final = 1e-280
#: A signed sum below this share of the magnitudes' sum is taken again with compensation.
_CANCELLED: Final = 0.01


@dataclass(frozen=True, slots=True)
class Scaled:
    """The number ``significand * 2**exponent``, which may lie outside the range of a double."""

    significand: float
    exponent: int = 0

    def sqrt(self) -> Scaled:
        """Return the square root."""
        odd = self.exponent % 2
        return Scaled(math.sqrt(self.significand * 2**odd), (self.exponent - odd) // 2)

    def __truediv__(self, other: Scaled) -> Scaled:
        if other.significand == 0:
            return Scaled(math.nan if self.significand == 0 else math.inf)
        mine, mine_exponent = math.frexp(self.significand)
        others, others_exponent = math.frexp(other.significand)
        exponent = mine_exponent + self.exponent - others_exponent - other.exponent
        return Scaled(mine / others, exponent)

    def __float__(self) -> float:
        try:
            return math.ldexp(self.significand, self.exponent)
        except OverflowError:
            return math.inf


def mean(pairs: Pairs, quantity: Quantity) -> Scaled:
    """Return the mean of the elements' errors."""
    total = _total(pairs, quantity, squared=False)
    exponent = 0
    if math.isinf(total):
        exponent = _exponent_to_one(pairs, quantity, overflowed=True)
        total = _total(pairs, quantity, squared=False, exponent=exponent) if exponent else total
    return _over(total, pairs.size, -exponent)


def mean_square(pairs: Pairs, quantity: Quantity) -> Scaled:
    """Return the mean of the elements' squared errors."""
    total = _total(pairs, quantity, squared=True)
    exponent = 0
    if math.isinf(total) or total < _SMALL * pairs.size:
        exponent = _exponent_to_one(pairs, quantity, overflowed=math.isinf(total))
        total = _total(pairs, quantity, squared=True, exponent=exponent) if exponent else total
    return _over(total, pairs.size, -2 * exponent)


def maximum(pairs: Pairs, quantity: Quantity) -> Scaled:
    """Return the largest of the elements' errors, NaN if one is NaN."""
    return Scaled(_largest(pairs, quantity))


def reference_mean(pairs: Pairs) -> Scaled:
    """Return the modulus of the mean of the finite references; 0 where none is finite."""
    return _reference_sum(pairs, signed=True)


def reference_magnitude(pairs: Pairs) -> Scaled:
    """Return the mean modulus of the finite references; 0 where none is finite."""
    return _reference_sum(pairs, signed=False)


def _total(pairs: Pairs, quantity: Quantity, *, squared: bool, exponent: int = 0) -> float:
    def add(errors: NDArray[Any]) -> float:
        return float((np.multiply(errors, errors, out=errors) if squared else errors).sum())

    parts: list[float] = []
    for output, reference in pairs:
        part = add(quantity.evaluate(output, reference, pairs.output.dtype, exponent))
        if not math.isfinite(part):
            part = add(quantity.evaluate_any(output, reference, pairs.output.dtype, exponent))
        parts.append(part)
    return _exact_sum(parts)


def _largest(pairs: Pairs, quantity: Quantity, exponent: int = 0) -> float:
    largest = 0.0
    for output, reference in pairs:
        part = float(quantity.evaluate(output, reference, pairs.output.dtype, exponent).max())
        if not math.isfinite(part):
            part = float(quantity.evaluate_any(output, reference, pairs.output.dtype, exponent).max())
        if math.isnan(part):
            return part
        largest = max(largest, part)
    return largest


def _exponent_to_one(pairs: Pairs, quantity: Quantity, *, overflowed: bool) -> int:
    """Return the exponent that scales the largest error to about 1; 0 where that is 0, infinite or NaN."""
    # The difference of two finite values may overflow, but not that of their quarters.
    shift = -2 if overflowed else 0
    largest = _largest(pairs, quantity, shift)
    if largest == 0 or not math.isfinite(largest):
        return 0
    # Within what the working type holds as a normal number.
    return max(-1000, min(1000, shift - math.frexp(largest)[1]))


def _reference_sum(pairs: Pairs, *, signed: bool) -> Scaled:
    """Return the modulus of the sum of the finite references over their number."""
    for exponent in (0, -64):
        total, magnitude, count = _reference_sums(pairs, exponent, compensated=False)
        if signed and total < _CANCELLED * magnitude:
            total, magnitude, count = _reference_sums(pairs, exponent, compensated=True)
        found = total if signed else magnitude
        if math.isfinite(magnitude):
            break
    return _over(found, max(count, 1), -exponent)


def _reference_sums(pairs: Pairs, exponent: int, *, compensated: bool) -> tuple[float, float, int]:
    """Return modulus of the sum, sum of the moduli (times ``2**exponent``), and number of the finite references."""
    real: list[float] = []
    imaginary: list[float] = []
    moduli: list[float] = []
    count = 0
    for chunk in chunks(pairs.reference, pairs.working):
        finite = chunk if math.isfinite(abs(chunk.sum())) else chunk[np.isfinite(chunk)]
        finite = finite * np.ldexp(finite.real.dtype.type(1), exponent) if exponent else finite
        count += finite.size
        moduli.append(float(np.abs(finite).sum()))
        for parts, values in ((real, finite.real), (imaginary, finite.imag if pairs.is_complex else None)):
            if values is not None:
                parts.extend(_compensated_sum(values) if compensated else (float(values.sum()),))
    return math.hypot(_exact_sum(real), _exact_sum(imaginary)), _exact_sum(moduli), count


def _compensated_sum(values: NDArray[Any]) -> list[float]:
    """Return a few numbers whose exact sum is that of ``values``, but for an error of second order.

    Pairwise, with the rounding error of each addition kept (Knuth's two-sum).
    """
    parts: list[float] = []
    while values.size > 1:
        half = values.size // 2
        if values.size % 2:
            parts.append(float(values[-1]))
        left, right = values[:half], values[half : 2 * half]
        values = left + right
        moved = values - left
        parts.append(float(((left - (values - moved)) + (right - moved)).sum()))
    return [*parts, *(float(value) for value in values)]


def _over(total: float, count: int, exponent: int) -> Scaled:
    """Return ``total * 2**exponent / count``; the division is spared from subnormal numbers."""
    significand, shift = math.frexp(total)
    return Scaled(significand / count, shift + exponent)


def _exact_sum(parts: Iterable[float]) -> float:
    numbers = list(parts)
    try:
        return math.fsum(numbers)
    except OverflowError:
        return math.inf
    except ValueError:  # infinities of both signs
        return math.nan
