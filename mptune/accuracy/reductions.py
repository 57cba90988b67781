"""The arithmetic of error metrics: elementwise errors, and their means, mean squares and maxima.

Chunks are reduced in fp64 on the host or device that holds them, by functions of their NumPy-like namespace ``xp``;
:func:`math.fsum` adds the chunks' sums. Chunks are matrices that are reduced row by row: a whole output is one row in
several chunks, and the regions of an output are rows of one chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.pairs import float_info

#: A one-dimensional array of the namespace.
Chunk = Any
Array = NDArray[np.float64]


class NegativeDataError(Exception):
    """A logarithm of negative data. The caller finds the elements in the whole array."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A non-negative number for each element."""

    #: returns a new array for a namespace and chunks of output and reference
    numerator: Callable[[Any, Chunk, Chunk], Chunk]
    #: takes a namespace, a chunk of the reference and the stored type of the output; None for 1
    denominator: Callable[[Any, Chunk, np.dtype[Any]], Chunk] | None = None
    is_difference: bool = True  #: whether the numerator is ``|output - reference|``, which allows complex data

    def evaluate(self, xp: Any, output: Chunk, reference: Chunk, stored: np.dtype[Any]) -> Chunk:
        """Return the quantity of each element, shape of ``output``."""
        quantity = self.numerator(xp, output, reference)
        if self.denominator is not None:
            quantity /= self.denominator(xp, reference, stored)
        if not math.isfinite(float(quantity.max())):
            # Infinities of different signs, an infinity against a number, or a number against 0.
            quantity[xp.isnan(quantity) & ~xp.isnan(output)] = np.inf
            quantity[output == reference] = 0
            quantity[xp.isnan(output)] = np.nan
        return quantity


def _difference(xp: Any, output: Chunk, reference: Chunk) -> Chunk:
    difference = output - reference
    # The modulus of a complex array is real, so it is not computed in place.
    return xp.abs(difference, out=None if difference.dtype.kind == "c" else difference)


def _moduli(xp: Any, reference: Chunk, _: np.dtype[Any]) -> Chunk:
    return xp.abs(reference)


def _unit_in_the_last_place(xp: Any, reference: Chunk, stored: np.dtype[Any]) -> Chunk:
    one = reference.real.dtype.type(1)
    info = float_info(stored)
    if info is None:  # integers are one unit apart
        return xp.full(1, one)
    # frexp's significand is in [1/2, 1), so its exponent is one above the binade's.
    _, exponent = xp.frexp(xp.maximum(xp.abs(reference), np.ldexp(one, info.minexp)))
    return xp.ldexp(one, exponent - (1 + info.nmant))


def _of_logarithms(xp: Any, output: Chunk, reference: Chunk, added: int = 0) -> Chunk:
    """Return ``|ln(output + added) - ln(reference + added)|`` without cancellation if they are close."""
    if output.min() < 0 or reference.min() < 0:
        raise NegativeDataError
    logarithm = xp.log1p if added else xp.log
    ratio = output - reference
    ratio /= reference + added
    far = xp.flatnonzero((ratio < -0.5) | (ratio > 1))
    xp.log1p(ratio, out=ratio)
    if far.size:
        ratio[far] = logarithm(output[far]) - logarithm(reference[far])
    return xp.abs(ratio, out=ratio)


def _of_logarithms_plus_one(xp: Any, output: Chunk, reference: Chunk) -> Chunk:
    return _of_logarithms(xp, output, reference, added=1)


ABSOLUTE: Final = Quantity(_difference)
RELATIVE: Final = Quantity(_difference, _moduli)
ULPS: Final = Quantity(_difference, _unit_in_the_last_place)
LOGARITHMIC: Final = Quantity(_of_logarithms, is_difference=False)
LOGARITHMIC_PLUS_ONE: Final = Quantity(_of_logarithms_plus_one, is_difference=False)


#: Partial results of each row: for each chunk some vectors, (n_rows,).
Parts = Sequence[Sequence[Array]]
#: The number of compared elements: one for all rows, or one for each, (n_rows,).
Count = int | NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction of elementwise errors to one number for each row."""

    parts: Callable[[Any], Sequence[Any]]  #: returns the partial results of a chunk's errors, (n_rows, n)
    total: Callable[[Parts, Count], Array]  #: combines the partial results of all chunks


def _root_parts(errors: Any) -> Sequence[Any]:
    """Return a unit and the sum of the squares in that unit, for each row."""
    squares = (errors * errors).sum(axis=1)
    if float(squares.min()) > 1e-280 * errors.shape[1] and float(squares.max()) < 1e280:
        return squares * 0 + 1, squares
    unit = errors.max(axis=1)
    scaled = errors / (unit + (unit == 0)).reshape((-1, 1))
    return unit, (scaled * scaled).sum(axis=1)


def _root_mean_square(parts: Parts, count: Count) -> Array:
    unit: Array = np.max([unit for unit, _ in parts], axis=0)
    scale = np.where(unit == 0, 1, unit)
    total = _exact_sum([squares * (own / scale) ** 2 for own, squares in parts])
    return np.where(np.isinf(unit), unit, unit * np.sqrt(total / count))


def _mean_square(parts: Parts, count: Count) -> Array:
    return _root_mean_square(parts, count) ** 2


def _sums(errors: Any) -> Sequence[Any]:
    return (errors.sum(axis=1),)


def _mean(parts: Parts, count: Count) -> Array:
    return _exact_sum([total for (total,) in parts]) / count


def _largest(errors: Any) -> Sequence[Any]:
    return (errors.max(axis=1),)


def _maximum(parts: Parts, count: Count) -> Array:  # noqa: ARG001 - the signature of a total
    found: Array = np.max([largest for (largest,) in parts], axis=0)
    return found


mean: Final = Reduction(_sums, _mean)
mean_square: Final = Reduction(_root_parts, _mean_square)
root_mean_square: Final = Reduction(_root_parts, _root_mean_square)
maximum: Final = Reduction(_largest, _maximum)


def reference_mean(xp: Any, chunks: Iterable[Any], count: Count) -> Array:  # noqa: ARG001 - as reference_magnitude
    """Return the modulus of the mean of the finite references of each row.

    It is 0 without finite references, and where the sum is within its own rounding error.
    """
    parts = []
    for reference in chunks:
        is_finite = xp.isfinite(reference)
        finite = xp.where(is_finite, reference, 0)
        real = finite.real.sum(axis=1)
        imaginary = finite.imag.sum(axis=1) if reference.dtype.kind == "c" else real * 0
        sums = (real, imaginary, xp.abs(finite).sum(axis=1), is_finite.sum(axis=1))
        parts.append([on_host(vector) for vector in sums])
    real, imaginary, magnitude, finite = (_exact_sum(vectors) for vectors in zip(*parts, strict=True))
    total = np.hypot(real, imaginary)
    found: Array = np.where(total > 2.0**-48 * magnitude, total, 0) / np.maximum(finite, 1)
    return found


def reference_magnitude(xp: Any, chunks: Iterable[Any], count: Count) -> Array:
    """Return the sum of the moduli of each row's finite references, divided by its number of compared elements."""
    finite = (xp.where(xp.isfinite(reference), xp.abs(reference), 0) for reference in chunks)
    return _exact_sum([on_host(each.sum(axis=1)) for each in finite]) / count


def on_host(numbers: Any) -> Array:
    """Return a vector of a namespace as a NumPy array of doubles."""
    return np.asarray(numbers if isinstance(numbers, np.ndarray) else numbers.tolist(), dtype=np.float64)


def _exact_sum(parts: Sequence[Array]) -> Array:
    def total(numbers: Sequence[float]) -> float:
        try:
            return math.fsum(numbers)
        except (OverflowError, ValueError):  # a sum too large, or infinite sums of both signs
            return math.nan if any(map(math.isnan, numbers)) else math.inf

    return parts[0] if len(parts) == 1 else np.array([total(numbers) for numbers in zip(*parts, strict=True)])
