"""Outputs and references on a device, compared there through a NumPy-like namespace (CuPy, say).

The arrays are the bits as the kernel left them, seen as unsigned integers: namespaces of devices know neither bfloat16
nor 8-bit floats. Pieces of them are decoded to doubles, which hold every value of a stored type exactly.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mptune.accuracy.chunks import Pairs
from mptune.accuracy.metrics import ErrorMetric
from mptune.buffers.conversion import poison_margin, poison_pattern, poison_value
from mptune.errors import MetricError
from mptune.precision import PRECISIONS

__all__ = ["PIECE", "ArrayPairs", "DeviceArray", "bits_type", "can_decode", "count_unwritten", "rehearse"]

#: Elements decoded at a time: 32 MiB of doubles keep a device busy and are little of its memory.
PIECE: Final = 1 << 22

_BY_TABLE: Final = tuple(PRECISIONS[name].dtype for name in ("fp8_e4m3", "fp8_e5m2"))
_BFLOAT16: Final = PRECISIONS["bf16"].dtype
_VIEWED: Final = tuple(PRECISIONS[name].dtype for name in ("fp64", "fp32", "fp16"))


def can_decode(stored: np.dtype[Any]) -> bool:
    """Whether doubles hold every value of a type; 64-bit integers they do not."""
    if stored.kind in "iu":
        return stored.itemsize < 8
    return stored in (*_VIEWED, _BFLOAT16, *_BY_TABLE)


def bits_type(stored: np.dtype[Any]) -> np.dtype[Any]:
    """Return the unsigned integer type that holds the bits of a type."""
    return np.dtype(f"u{stored.itemsize}")


@dataclass(frozen=True, slots=True, eq=False)
class DeviceArray:
    """An array on a device.

    Attributes:
        namespace: the NumPy-like module ``bits`` belongs to.
        bits: its elements as unsigned integers, of that namespace, one-dimensional and contiguous.
        stored: the type they are the bits of; one :func:`can_decode` holds for.
        shape: its real shape.
    """

    namespace: Any
    bits: Any
    stored: np.dtype[Any]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not can_decode(self.stored):
            raise MetricError(f"an array of {self.stored} cannot be compared on a device")
        if self.bits.shape != (math.prod(self.shape),):
            raise MetricError(f"{self.bits.shape} elements on the device are no array of shape {self.shape}")

    def doubles(self, piece: slice) -> Any:
        """Return some of the elements as doubles, a view where they are stored as such."""
        xp, bits = self.namespace, self.bits[piece]
        if self.stored in _BY_TABLE:
            return _table(xp, self.stored.name)[bits]
        # A bfloat16 is the upper half of a float.
        is_half_a_float = self.stored == _BFLOAT16
        values = (bits.astype(np.uint32) << 16).view(np.float32) if is_half_a_float else bits.view(self.stored)
        # Signalling NaNs, which poison and guard zones can give, are no surprise.
        with np.errstate(invalid="ignore"):
            return values.astype(np.float64, copy=False)


@functools.cache
def _table(xp: Any, name: str) -> Any:
    """Return the 256 values of an 8-bit type on the device."""
    stored = next(dtype for dtype in _BY_TABLE if dtype.name == name)
    return xp.asarray(np.arange(256, dtype=np.uint8).view(stored).astype(np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class ArrayPairs(Pairs):
    """An output and its reference on a device.

    Attributes:
        output: what the kernel wrote.
        reference: what it should have written, of the same shape and on the same device.
        piece: elements decoded at a time.
    """

    output: DeviceArray
    reference: DeviceArray
    piece: int = PIECE

    def __post_init__(self) -> None:
        if self.output.shape != self.reference.shape:
            raise MetricError(
                f"the output has shape {self.output.shape} and the reference {self.reference.shape}; "
                "they must be the same"
            )
        if self.size == 0:
            raise MetricError(f"the output of shape {self.output.shape} has no elements, so it has no error")

    @property
    def namespace(self) -> Any:
        """That of the device."""
        return self.output.namespace

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of each of the two."""
        return self.output.shape

    @property
    def stored(self) -> np.dtype[Any]:
        """The type the output is stored in."""
        return self.output.stored

    @property
    def working_type(self) -> np.dtype[Any]:
        """Double precision."""
        return np.dtype(np.float64)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Yield pieces of output and reference, shape ``(at most piece,)``."""
        for piece in self.pieces():
            yield self.output.doubles(piece), self.reference.doubles(piece)

    def references(self) -> Iterator[Any]:
        """Yield pieces of the reference alone, likewise."""
        for piece in self.pieces():
            yield self.reference.doubles(piece)

    def pieces(self) -> Iterator[slice]:
        """Yield what is looked at at a time, as slices of the elements in C order."""
        for start in range(0, self.size, self.piece):
            yield slice(start, min(start + self.piece, self.size))


def count_unwritten(pairs: ArrayPairs) -> int:
    """Return how many elements of an output still are the poison pattern, bit by bit.

    An integer that is the pattern but near its reference counts as written, as in
    :meth:`~mptune.buffers.DataManager.unwritten`.
    """
    xp, output = pairs.namespace, pairs.output
    pattern = bits_type(output.stored).type(poison_pattern(output.stored))
    found = sum(int(xp.count_nonzero(output.bits[piece] == pattern)) for piece in pairs.pieces())
    if not found or output.stored.kind not in "iu":
        return found
    value, margin = float(poison_value(output.stored)), poison_margin(output.stored)
    return sum(int(xp.count_nonzero((mine == value) & (xp.abs(expected - value) > margin))) for mine, expected in pairs)


def rehearse(namespace: Any, metric: ErrorMetric) -> None:
    """Compare small outputs of every precision once, before it counts: a namespace may compile what it is first asked.

    Args:
        namespace: the NumPy-like module.
        metric: one that runs anywhere.

    Raises:
        MetricError: the errors are not those NumPy finds.
    """
    expected = np.array([1.0, 2.0, 4.0, 5.0])
    reference = DeviceArray(namespace, namespace.asarray(expected.view(np.uint64)), expected.dtype, expected.shape)
    for stored in (entry.dtype for entry in PRECISIONS.values()):
        output = np.array([1.0, 2.0, 4.0, 6.0]).astype(stored)
        bits = namespace.asarray(output.view(bits_type(stored)))
        pairs = ArrayPairs(DeviceArray(namespace, bits, stored, output.shape), reference)
        count_unwritten(pairs)
        found, wanted = metric.measure(pairs), metric(output, expected)
        if not math.isclose(found, wanted, rel_tol=1e-12):
            raise MetricError(
                f"the {metric.name} of {stored} data is {found!r} on the device and {wanted!r} on the host"
            )
