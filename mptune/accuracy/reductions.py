"""The arithmetic of error metrics: an error for each element, and means, mean squares and maxima of them.

They are accurate and safe from overflow and underflow. Chunks are summed pairwise, the chunks' sums exactly
(:func:`math.fsum`). A sum that overflows, or of squares so small that they may have underflowed, is taken again with
every element scaled by a power of two. Chunks are reduced where they are, on the host or on a device, by the functions
of the NumPy-like namespace ``xp`` they belong to; only numbers come back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.pairs import Pairs, float_info

__all__ = [
    "ABSOLUTE",
    "LOGARITHMIC",
    "LOGARITHMIC_PLUS_ONE",
    "RELATIVE",
    "ULPS",
    "NegativeDataError",
    "Quantity",
    "Scaled",
    "by_row",
    "maximum",
    "mean",
    "mean_square",
    "reference_magnitude",
    "reference_mean",
    "root_mean_square",
]

#: A one-dimensional array of the namespace.
Chunk = Any
Array = NDArray[np.float64]


class NegativeDataError(Exception):
    """A logarithm was given negative data. It does not say where: that takes a look at the whole array."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A non-negative number for each element."""

    #: from a namespace and chunks of output and reference, as a new array
    numerator: Callable[[Any, Chunk, Chunk], Chunk]
    #: from a namespace, a chunk of the reference and the type the output is stored in; None: 1
    denominator: Callable[[Any, Chunk, np.dtype[Any]], Chunk] | None = None
    #: whether the numerator is ``|output - reference|``, so that it may overflow and is defined for complex data
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
    """Return ``|logarithm(output) - logarithm(reference)|`` without cancellation if they are close.

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


# -- reductions -----------------------------------------------------------------------------------------

#: A mean square below this may have lost squares to underflow.
_SMALL: Final = 1e-280


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
            return Scaled(math.inf)
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
    return _mean_power(pairs, quantity, 1)


def mean_square(pairs: Pairs, quantity: Quantity) -> Scaled:
    """Return the mean of the elements' squared errors."""
    return _mean_power(pairs, quantity, 2)


def root_mean_square(pairs: Pairs, quantity: Quantity) -> Scaled:
    """Return the square root of the mean of the elements' squared errors."""
    return mean_square(pairs, quantity).sqrt()


def maximum(pairs: Pairs, quantity: Quantity) -> Scaled:
    """Return the largest of the elements' errors, NaN if one is NaN."""
    largest = _largest(pairs, quantity)
    return _bounded_largest(pairs, quantity) if math.isinf(largest) else Scaled(largest)


def reference_mean(pairs: Pairs) -> Scaled:
    """Return the modulus of the mean of the finite references; 0 if none is finite."""
    return _reference_sum(pairs, signed=True)


def reference_magnitude(pairs: Pairs) -> Scaled:
    """Return the mean modulus of the finite references; 0 if none is finite."""
    return _reference_sum(pairs, signed=False)


# -- of many rows at once ------------------------------------------------------------------------------


def by_row(
    pairs: Pairs,
    output: Any,
    reference: Any,
    reduction: Callable[[Pairs, Quantity], Scaled],
    quantity: Quantity,
    normaliser: Callable[[Pairs], Scaled] | None,
) -> tuple[Array, NDArray[np.bool_]]:
    """Return what a reduction over a normaliser gives for each row of two real matrices, and which of these are sure.

    Those that are not over- or underflowed, cancelled or have infinities: they have to be computed one by one.

    Args:
        pairs: where the rows are from.
        output: the rows of the output in the working type, of their namespace; shape ``(n, elements)``.
        reference: those of the reference.
        reduction: one of the functions above of a pair and a quantity.
        quantity: the error of an element.
        normaliser: one of the functions above of a pair.
    """
    xp, shape = pairs.namespace, output.shape

    def errors(exponent: int = 0) -> Any:
        arguments = xp, output.reshape(-1), reference.reshape(-1), pairs.stored, exponent
        found = quantity.evaluate(*arguments).reshape(shape)
        if not math.isfinite(float(found.max())):
            found = quantity.evaluate_any(*arguments).reshape(shape)
        return found

    found = errors()
    largest = _on_host(found.max(axis=1))
    reduced, sure = largest, largest < math.inf
    if reduction is not maximum:
        totals = (found if reduction is mean else xp.multiply(found, found, out=found)).sum(axis=1)
        reduced = _on_host(totals) / shape[1]
        sure = (reduced < math.inf) & (reduced > _SMALL)
        reduced = np.sqrt(reduced) if reduction is root_mean_square else reduced
    if normaliser is not None:
        norms, are_sure = _norms(xp, reference, signed=normaliser is reference_mean)
        reduced, sure = reduced / norms, sure & are_sure
    if np.isinf(largest).any():
        # Small enough to show what is infinite and what only overflowed, as in _bounded_largest.
        infinite = np.isinf(_on_host(errors(-2 if quantity.denominator is None else -1100).max(axis=1)))
        reduced, sure = np.where(infinite, math.inf, reduced), sure | infinite
    is_nan = np.isnan(largest)
    reduced = np.where(is_nan, math.nan, np.where(largest == 0, 0.0, reduced))
    return reduced, sure | is_nan | (largest == 0)


def _norms(xp: Any, reference: Any, *, signed: bool) -> tuple[Array, NDArray[np.bool_]]:
    """Return the modulus of each row's mean, or the mean of its moduli, and which of these are sure."""
    magnitudes = _on_host(xp.abs(reference).sum(axis=1))
    totals = magnitudes
    if signed:
        totals = np.abs(_on_host(reference.sum(axis=1)))
        (cancelled,) = np.nonzero(totals < _SIGNED_SUMS[0][1] * magnitudes)
        if cancelled.size:
            rows = reference if cancelled.size == len(totals) else xp.take(reference, xp.asarray(cancelled), axis=0)
            totals[cancelled] = np.abs(_compensated_row_sums(rows))
    sure = (magnitudes < math.inf) & ((totals > _SMALL) | (magnitudes == 0))
    if signed:
        sure &= totals >= _SIGNED_SUMS[1][1] * magnitudes
    return totals / reference.shape[1], sure


def _compensated_row_sums(values: Any) -> Array:
    """Return the sum of each row of a matrix, as exact as that of :func:`_compensated_sum`."""
    parts = []
    while values.shape[1] > 1:
        half = values.shape[1] // 2
        if values.shape[1] % 2:
            parts.append(_on_host(values[:, -1]))
        left, right = values[:, :half], values[:, half : 2 * half]
        values = left + right
        moved = values - left
        parts.append(_on_host(((left - (values - moved)) + (right - moved)).sum(axis=1)))
    parts.append(_on_host(values[:, 0]))
    return np.array([math.fsum(row) if all(map(math.isfinite, row)) else math.nan for row in zip(*parts, strict=True)])


def _on_host(numbers: Any) -> Array:
    """Return a vector of a namespace as NumPy's doubles."""
    return np.array(numbers.tolist(), dtype=np.float64)


# -- internals -------------------------------------------------------------------------------------------


def _mean_power(pairs: Pairs, quantity: Quantity, power: int) -> Scaled:
    total, exponent = _total(pairs, quantity, power), 0
    if math.isinf(total) or (power > 1 and total < _SMALL * pairs.size):
        exponent = _exponent_to_one(pairs, quantity, overflowed=math.isinf(total))
        total = _total(pairs, quantity, power, exponent) if exponent else total
    return _over(total, pairs.size, -power * exponent)


def _by_chunk(pairs: Pairs, quantity: Quantity, exponent: int, reduction: Callable[[Chunk], Any]) -> Iterator[float]:
    """Yield the reduction of each chunk's errors."""
    for output, reference in pairs:
        arguments = pairs.namespace, output, reference, pairs.stored, exponent
        part = float(reduction(quantity.evaluate(*arguments)))
        yield part if math.isfinite(part) else float(reduction(quantity.evaluate_any(*arguments)))


def _total(pairs: Pairs, quantity: Quantity, power: int, exponent: int = 0) -> float:
    multiply = pairs.namespace.multiply

    def add(errors: Chunk) -> Any:
        return (multiply(errors, errors, out=errors) if power > 1 else errors).sum()

    return _exact_sum(_by_chunk(pairs, quantity, exponent, add))


def _largest(pairs: Pairs, quantity: Quantity, exponent: int = 0) -> float:
    largest = 0.0
    for part in _by_chunk(pairs, quantity, exponent, lambda errors: errors.max()):
        if math.isnan(part):
            return part
        largest = max(largest, part)
    return largest


def _exponent_to_one(pairs: Pairs, quantity: Quantity, *, overflowed: bool) -> int:
    """Return the exponent that scales the largest error to about 1; 0 if that error is 0, infinite or NaN."""
    largest = _bounded_largest(pairs, quantity) if overflowed else Scaled(_largest(pairs, quantity))
    if largest.significand == 0 or not math.isfinite(largest.significand):
        return 0
    # The powers of two must be doubles.
    return max(-2090, min(1000, -largest.exponent - math.frexp(largest.significand)[1]))


def _bounded_largest(pairs: Pairs, quantity: Quantity) -> Scaled:
    """Return the largest error if some errors, or their sum, exceed a double; infinite if one error really is."""
    # A difference is less than 4 times the largest double, a quotient may be its square.
    for exponent in (-2, -1100):
        largest = _largest(pairs, quantity, exponent)
        if math.isfinite(largest) or quantity.denominator is None:
            break
    return Scaled(largest, -exponent)


def _reference_sum(pairs: Pairs, *, signed: bool) -> Scaled:
    """Return the modulus of the mean of the finite references, or the mean of their moduli."""
    for exponent in (0, -64):
        magnitude, count = _sum_finite(pairs, exponent, _modulus_sum)
        if math.isfinite(magnitude):
            break
    found = magnitude
    if signed:
        # The more the references cancel, the more accurately they must be summed.
        for add, least_share in _SIGNED_SUMS:
            found, count = _sum_finite(pairs, exponent, add)
            if found >= least_share * magnitude:
                break
    return _over(found, max(count, 1), -exponent)


def _sum_finite(pairs: Pairs, exponent: int, add: Callable[[Any, Any], Sequence[float]]) -> tuple[float, int]:
    """Return the modulus of the sum of the finite references times ``2**exponent``, and their number.

    From a namespace and a real chunk of it, ``add`` gives numbers whose exact sum is that of the chunk.
    """
    xp = pairs.namespace
    real: list[float] = []
    imaginary: list[float] = []
    count = 0
    for chunk in pairs.references():
        finite = chunk if bool(xp.isfinite(chunk.sum())) else chunk[xp.isfinite(chunk)]
        if exponent:
            finite = finite * np.ldexp(finite.real.dtype.type(1), exponent)
        count += finite.size
        if pairs.is_complex and add is not _modulus_sum:
            real.extend(add(xp, finite.real))
            imaginary.extend(add(xp, finite.imag))
        else:
            real.extend(add(xp, finite))
    return math.hypot(_exact_sum(real), _exact_sum(imaginary)), count


def _modulus_sum(xp: Any, values: Any) -> Sequence[float]:
    return (float(xp.abs(values).sum()),)


def _plain_sum(xp: Any, values: Any) -> Sequence[float]:  # noqa: ARG001 - one of several ways
    return (float(values.sum()),)


def _compensated_sum(xp: Any, values: Any) -> Sequence[float]:  # noqa: ARG001
    """Return numbers whose sum is that of ``values`` but for an error of second order.

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
    return [*parts, *map(float, values.tolist())]


def _exact_parts(xp: Any, values: Any) -> Sequence[float]:
    """Return a few numbers whose sum is exactly that of ``values``.

    The significands' halves are integers, which are added without error in one bin for each exponent.
    """
    # A long double is the sum of two doubles.
    high = values.astype(np.float64)
    doubles = high if values.dtype == np.float64 else xp.concatenate([high, (values - high).astype(np.float64)])
    significands, exponents = xp.frexp(doubles)
    upper = xp.trunc(significands * 2.0**27)
    lower = (significands * 2.0**27 - upper) * 2.0**26
    lowest = int(exponents.min())
    numbers: list[float] = []
    for half, shift in ((upper, 27), (lower, 53)):
        bins = xp.bincount(exponents - lowest, weights=half).tolist()
        numbers.extend(math.ldexp(total, lowest + i - shift) for i, total in enumerate(bins) if total)
    parts: list[float] = []
    while (part := math.fsum(numbers)) != 0:
        parts.append(part)
        numbers.append(-part)
    return parts


#: Ways to sum with signs, and the share of the moduli's sum from which on a way's error does not matter.
_SIGNED_SUMS: Final = ((_plain_sum, 0.01), (_compensated_sum, 1e-16), (_exact_parts, 0.0))


def _over(total: float, count: int, exponent: int) -> Scaled:
    """Return ``total * 2**exponent / count``; the division is spared from subnormal numbers."""
    significand, shift = math.frexp(total)
    return Scaled(significand / count, shift + exponent)


def _exact_sum(parts: Iterable[float]) -> float:
    try:
        return math.fsum(parts)
    except OverflowError:
        return math.inf
