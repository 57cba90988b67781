"""The arithmetic of error metrics: an error for each element, and means, mean squares and maxima of them.

Chunks are reduced where they are, on the host or on a device, by the functions of the NumPy-like namespace ``xp`` they
belong to; the chunks' sums are added exactly (:func:`math.fsum`). Squares are scaled by the largest error where they
may over- or underflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
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
    "Normaliser",
    "Quantity",
    "Reduction",
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
    #: whether the numerator is ``|output - reference|``, which is defined for complex data, too
    is_difference: bool = True

    def evaluate(self, xp: Any, output: Chunk, reference: Chunk, stored: np.dtype[Any]) -> Chunk:
        """Return the quantity of each element, shape of ``output``."""
        quantity = self.numerator(xp, output, reference)
        if self.denominator is not None:
            quantity /= self.denominator(xp, reference, stored)
        if not math.isfinite(float(quantity.max())):
            # Infinities of different signs, or against a number; a number against 0.
            quantity[xp.isnan(quantity) & ~xp.isnan(output) & ~xp.isnan(reference)] = np.inf
            quantity[output == reference] = 0
            quantity[xp.isnan(output)] = np.nan
        return quantity


def _difference(xp: Any, output: Chunk, reference: Chunk) -> Chunk:
    difference = output - reference
    # The modulus of a complex array is real, so it cannot take its place.
    return xp.abs(difference, out=None if difference.dtype.kind == "c" else difference)


def _moduli(xp: Any, reference: Chunk, _: np.dtype[Any]) -> Chunk:
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
RELATIVE: Final = Quantity(_difference, _moduli)
ULPS: Final = Quantity(_difference, _unit_in_the_last_place)
LOGARITHMIC: Final = Quantity(_of_logarithms, is_difference=False)
LOGARITHMIC_PLUS_ONE: Final = Quantity(_of_logarithms_plus_one, is_difference=False)


# -- reductions -----------------------------------------------------------------------------------------

#: A mean square below this may have lost squares to underflow.
_SMALL: Final = 1e-280
#: A sum below this share of the sum of the moduli has cancelled, and is taken exactly.
_CANCELLED: Final = 0.01


@dataclass(frozen=True, slots=True)
class Reduction:
    """Errors of elements reduced to one number: of a whole output, or of each row of a matrix."""

    whole: Callable[[Pairs, Quantity], float]
    #: from a matrix of errors, those of each row
    rows: Callable[[Any], Array]


@dataclass(frozen=True, slots=True)
class Normaliser:
    """A property of the finite references, 0 if none is finite: of all, or of each row of a matrix."""

    is_signed: bool  #: the modulus of their mean, rather than the sum of their moduli over the number of all elements

    def whole(self, pairs: Pairs) -> float:
        """Return it for all of the reference."""
        moduli = pairs.namespace.abs
        parts: list[tuple[float, complex, int]] = [
            (float(moduli(each).sum()), each.sum().tolist(), each.size) for each in self._finite(pairs)
        ]
        magnitude = _exact_sum(part for part, _, _ in parts)
        count = max(sum(n for _, _, n in parts), 1)
        if not self.is_signed:
            return magnitude / pairs.size
        total = math.hypot(_exact_sum(part.real for _, part, _ in parts), _exact_sum(part.imag for _, part, _ in parts))
        if total < _CANCELLED * magnitude:
            real = _exact_sum(number for chunk in self._finite(pairs) for number in chunk.real.tolist())
            imaginary = (n for chunk in self._finite(pairs) for n in chunk.imag.tolist()) if pairs.is_complex else ()
            total = math.hypot(real, _exact_sum(imaginary))
        return total / count

    def rows(self, xp: Any, reference: Any) -> Array:
        """Return it for each row of a matrix."""
        is_finite = xp.isfinite(reference)
        finite = reference.astype(reference.dtype)
        finite[~is_finite] = 0
        count = np.maximum(_on_host(is_finite.sum(axis=1)), 1)
        magnitudes = _on_host(xp.abs(finite).sum(axis=1))
        if not self.is_signed:
            return magnitudes / int(reference.shape[1])
        totals = _on_host(xp.abs(finite.sum(axis=1)))
        for i in np.flatnonzero(totals < _CANCELLED * magnitudes):
            row = finite[i].tolist()
            totals[i] = math.hypot(*(_exact_sum(part) for part in zip(*((z.real, z.imag) for z in row), strict=True)))
        return totals / count

    @staticmethod
    def _finite(pairs: Pairs) -> Iterator[Chunk]:
        xp = pairs.namespace
        for chunk in pairs.references():
            yield chunk if bool(xp.isfinite(chunk.sum())) else chunk[xp.isfinite(chunk)]


def _mean(pairs: Pairs, quantity: Quantity) -> float:
    return _exact_sum(float(errors.sum()) for errors in _errors(pairs, quantity)) / pairs.size


def _maximum(pairs: Pairs, quantity: Quantity) -> float:
    # NumPy's, not Python's: a NaN is the result.
    return float(np.max([float(errors.max()) for errors in _errors(pairs, quantity)]))


def _root_mean_square(pairs: Pairs, quantity: Quantity) -> float:
    total = _square_sum(pairs, quantity, 1.0)
    if math.isnan(total) or _SMALL * pairs.size < total < math.inf:
        return math.sqrt(total / pairs.size)
    largest = _maximum(pairs, quantity)
    if largest == 0 or math.isinf(largest):
        return largest
    return largest * math.sqrt(_square_sum(pairs, quantity, largest) / pairs.size)


def _square_sum(pairs: Pairs, quantity: Quantity, unit: float) -> float:
    scaled = (errors if unit == 1.0 else errors / unit for errors in _errors(pairs, quantity))
    return _exact_sum(float((errors * errors).sum()) for errors in scaled)


def _errors(pairs: Pairs, quantity: Quantity) -> Iterator[Chunk]:
    for output, reference in pairs:
        yield quantity.evaluate(pairs.namespace, output, reference, pairs.stored)


def _mean_of_rows(errors: Any) -> Array:
    total, count = _on_host(errors.sum(axis=1)), int(errors.shape[1])
    return total / count


def _maximum_of_rows(errors: Any) -> Array:
    return _on_host(errors.max(axis=1))


def _root_mean_square_of_rows(errors: Any) -> Array:
    largest = errors.max(axis=1)
    scaled = errors / (largest + (largest == 0)).reshape((-1, 1))
    root = np.sqrt(_on_host((scaled * scaled).sum(axis=1)) / errors.shape[1])
    # Of an infinite error the quotients are NaN.
    found: Array = _on_host(largest) * np.where(np.isinf(_on_host(largest)), 1.0, root)
    return found


def _mean_square(pairs: Pairs, quantity: Quantity) -> float:
    root = _root_mean_square(pairs, quantity)
    return root * root


def _mean_square_of_rows(errors: Any) -> Array:
    root = _root_mean_square_of_rows(errors)
    return root * root


mean: Final = Reduction(_mean, _mean_of_rows)
mean_square: Final = Reduction(_mean_square, _mean_square_of_rows)
root_mean_square: Final = Reduction(_root_mean_square, _root_mean_square_of_rows)
maximum: Final = Reduction(_maximum, _maximum_of_rows)
reference_mean: Final = Normaliser(is_signed=True)
reference_magnitude: Final = Normaliser(is_signed=False)


def _on_host(numbers: Any) -> Array:
    """Return a vector of a namespace as NumPy's doubles."""
    return np.array(numbers.tolist(), dtype=np.float64)


def _exact_sum(parts: Any) -> float:
    try:
        return math.fsum(parts)
    except OverflowError:
        return math.inf
