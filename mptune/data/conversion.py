"""Conversion of fp64 data to a precision, with the losses: overflow, underflow and subnormal values."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.data.blocks import in_blocks
from mptune.precision import PRECISIONS, Precision

#: Elements that a thread converts at a time; its temporaries fit the core's cache.
_CONVERTED: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Loss:
    """The losses of an input in the range of a precision."""

    size: int = 0  #: number of values
    infinite: int = 0  #: finite values that became infinite (NaN in E4M3, which has no infinity)
    zero: int = 0  #: nonzero values that became zero
    subnormal: int = 0  #: values rounded to a subnormal one, with a larger relative error than the unit roundoff
    largest: float = 0.0  #: largest magnitude among the values
    smallest: float = np.inf  #: smallest magnitude of a nonzero value, infinity if all are zero

    def __add__(self, other: Loss) -> Loss:
        names = ("size", "infinite", "zero", "subnormal")
        counts = {name: getattr(self, name) + getattr(other, name) for name in names}
        return Loss(**counts, largest=max(self.largest, other.largest), smallest=min(self.smallest, other.smallest))

    def warnings(self, name: str, precision: Precision) -> tuple[str, ...]:
        """Return a sentence each about overflow and underflow."""
        found = []
        if self.infinite:
            became = "infinite" if precision.has_infinity else "NaN"
            found.append(
                f"input {name!r} overflows in {precision.name}: {self.infinite} of {self.size} values became "
                f"{became} (largest {self.largest:.6g}, {precision.name} holds {precision.largest:.6g})"
            )
        # A few subnormal values are common and harmless.
        if self.zero or self.subnormal > 1e-3 * self.size:
            found.append(
                f"input {name!r} underflows in {precision.name}: {self.zero} of {self.size} values became zero and "
                f"{self.subnormal} lost digits as subnormals (smallest {self.smallest:.3g}, {precision.name} keeps "
                f"all its digits down to {precision.smallest_normal:.3g})"
            )
        return tuple(found)


def convert(values: NDArray[np.float64], precision: Precision) -> tuple[NDArray[Any], Loss]:
    """Return an array rounded to nearest in a precision, C-contiguous and of the same shape, and the losses.

    An array that has that type already is not copied.
    """
    if precision.dtype == values.dtype and not precision.is_traced:
        return values, Loss(size=values.size)
    result = np.empty(values.shape, precision.dtype)
    source, target = values.reshape(-1), result.reshape(-1)
    losses = in_blocks(lambda part: _fill(target[part], source[part], precision), values.size, _CONVERTED)
    return result, functools.reduce(Loss.__add__, losses, Loss())


def _fill(target: NDArray[Any], source: NDArray[np.float64], precision: Precision) -> Loss:
    target[:] = round_to(source, precision)
    magnitude = np.abs(source)
    largest, smallest = float(magnitude.max()), float(magnitude.min())
    if smallest == 0:
        smallest = float(magnitude.min(where=magnitude > 0, initial=np.inf))
    if largest <= precision.largest and smallest >= precision.smallest_normal:
        return Loss(source.size, largest=largest, smallest=smallest)  # the common case
    # Look only at values outside the range, NaN included.
    outside = np.flatnonzero(~((magnitude <= precision.largest) & (magnitude >= precision.smallest_normal)))
    magnitude, held = magnitude[outside], np.abs(target[outside].astype(np.float64))
    infinite = int(np.count_nonzero(np.isfinite(magnitude) & ~np.isfinite(held)))
    zero = int(np.count_nonzero((magnitude > 0) & (held == 0)))
    subnormal = int(np.count_nonzero((held > 0) & (held < precision.smallest_normal) & (held != magnitude)))
    return Loss(source.size, infinite, zero, subnormal, largest, smallest)


def round_to(values: NDArray[np.float64], precision: Precision) -> NDArray[Any]:
    """Return fp64 values of any shape rounded once, to nearest with ties to even; fp64 itself is not copied.

    Overflow gives infinity (NaN in E4M3).
    """
    if precision.is_traced:
        return round_to(values, PRECISIONS[precision.name]).astype(np.float64)
    with np.errstate(all="ignore"):
        if precision.name in ("fp64", "fp32"):
            return values.astype(precision.dtype, copy=False)
        # Shortened first, so that the conversion is exact: ml_dtypes rounds twice (1 + 2^-8 + 2^-40 would become 1 in
        # bf16), and NumPy is ten times slower for fp16 underflow.
        dropped = 53 - precision.significand_bits
        flat = values.reshape(-1)
        bits = flat.view(np.uint64)
        last = (bits >> np.uint64(dropped)) & np.uint64(1)
        rounded = (bits + (last + np.uint64(2 ** (dropped - 1) - 1))) & np.uint64(2**64 - 2**dropped)
        result = rounded.view(np.float64)
        # Below the normal range the spacing is constant: adding a number whose last digit has that weight rounds to it.
        small = np.flatnonzero(np.abs(flat) < precision.smallest_normal)
        if small.size:
            anchor = 1.5 * 2.0**52 * precision.smallest_normal * 2.0 ** (1 - precision.significand_bits)
            result[small] = np.copysign((np.abs(flat[small]) + anchor) - anchor, flat[small])
        return result.reshape(values.shape).astype(precision.dtype)
