"""An output and its reference, side by side: walked in pieces, in at least double precision and constant memory.

On the host they are arrays. On a device they are the bits as the kernel left them, seen as unsigned integers through a
NumPy-like namespace (CuPy, say): namespaces of devices know neither bfloat16 nor 8-bit floats. Pieces of them are
decoded there to doubles, which hold every value of a stored type exactly.
"""

from __future__ import annotations

import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from mptune.data.conversion import poison_margin, poison_pattern, poison_value
from mptune.errors import MetricError
from mptune.kernel.regions import boxes
from mptune.precision import PRECISIONS

#: Elements converted at a time on the host: 96 KiB of doubles, which stay in the cache between the steps of a metric.
#: Arrays of 128 KiB and more are fresh memory from the system each time (glibc): some metrics were five times slower.
CHUNK: Final = 12288

#: Elements decoded at a time on a device: 32 MiB of doubles keep it busy and are little of its memory.
PIECE: Final = 1 << 22

_BY_TABLE: Final = tuple(PRECISIONS[name].dtype for name in ("fp8_e4m3", "fp8_e5m2"))
_BFLOAT16: Final = PRECISIONS["bf16"].dtype
_VIEWED: Final = tuple(PRECISIONS[name].dtype for name in ("fp64", "fp32", "fp16"))
#: The key of the number of elements that are compared, in what is known of a reference.
_COMPARED: Final = "compared"


@dataclass(frozen=True, slots=True, eq=False)
class Pairs(ABC):
    """An output and its reference, checked to be comparable; iterating gives chunks of both.

    Both are converted to the same working type: double, or long double if one of them is that or a 64-bit integer (a
    double does not hold it exactly), or the complex counterpart. Nothing broadcasts.

    An element whose reference is NaN is masked. Chunks have the same infinity for it in both arrays: no metric has an
    error there, and no normaliser counts it. Means are over the elements that are compared.
    """

    namespace: Any  #: the NumPy-like module whose functions take the chunks: NumPy, or that of the device they are on
    shape: tuple[int, ...]  #: shape of each of the two
    stored: np.dtype[Any]  #: the type the output is stored in
    working_type: np.dtype[Any]  #: the type of the chunks
    output: Any  #: what the kernel wrote
    reference: Any  #: what it should have written, of the same shape and in the same memory
    #: what has been computed of the reference alone, by how; all pairs of one reference may share it
    known: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.size == 0:
            raise MetricError(f"the output of shape {self.shape} has no elements, so it has no error")

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Yield chunks of output and reference, one-dimensional, in C order; valid until the next."""
        chunks = self._walk(self.output, self.reference)
        yield from itertools.starmap(self.masked, chunks) if self.has_masked else chunks

    def references(self) -> Iterator[Any]:
        """Yield chunks of the reference, with NaN for masked elements."""
        yield from self._walk(self.reference)

    def masked(self, output: Any, reference: Any) -> tuple[Any, Any]:
        """Return chunks of both with the same infinity in masked elements."""
        xp = self.namespace
        is_masked = xp.isnan(reference)
        return xp.where(is_masked, math.inf, output), xp.where(is_masked, math.inf, reference)

    @abstractmethod
    def _walk(self, *arrays: Any) -> Iterator[Any]:
        """Yield chunks of one array, or tuples of chunks of several."""

    @abstractmethod
    def bits(self) -> Iterator[tuple[Any, Any]]:
        """Yield chunks of the output's bits as unsigned integers, and of the reference."""

    @abstractmethod
    def _matrix(self, box: tuple[slice, ...], tile: tuple[int, ...], known: dict[Any, Any]) -> Self:
        """Return the elements in a box, one slice for each axis, as a matrix with a row for each tile."""

    @abstractmethod
    def whole(self) -> tuple[Any, Any]:
        """Return both arrays in the working type, with NaN for the references of masked elements."""

    def tiles(self, tile: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Self]]:
        """Yield the tiles as pairs, with their shape, which is smaller where they do not fit.

        Pairs of several tiles are matrices of at most :attr:`chunk` elements, a row for each tile; a single tile of
        any size has its shape after an axis of one.
        """
        for box, own in boxes(self.shape, tile, self.chunk):
            yield own, self._matrix(box, own, self.known_of_part(math.prod(each.stop - each.start for each in box)))

    def known_of_part(self, size: int) -> dict[Any, Any]:
        """Return what is known of a part of so many elements: it has no masked ones if the whole has none."""
        return {} if self.has_masked else {_COMPARED: size}

    @property
    @abstractmethod
    def chunk(self) -> int:
        """Elements to compute with at a time."""

    @property
    def size(self) -> int:
        """Elements in each of the two."""
        return math.prod(self.shape)

    @property
    def compared(self) -> int:
        """Elements that are compared: those that are not masked."""
        if _COMPARED not in self.known:
            xp = self.namespace
            masked = sum(int(xp.count_nonzero(xp.isnan(reference))) for reference in self.references())
            self.known[_COMPARED] = self.size - masked
        return int(self.known[_COMPARED])

    @property
    def has_masked(self) -> bool:
        """Whether some elements are masked."""
        return self.compared < self.size

    @property
    def is_complex(self) -> bool:
        """Whether one of the two is complex."""
        return self.working_type.kind == "c"


def _require_same_shape(output: tuple[int, ...], reference: tuple[int, ...]) -> None:
    if output != reference:
        raise MetricError(f"the output has shape {output} and the reference {reference}; they must be the same")


@dataclass(frozen=True, slots=True, eq=False)
class HostPairs(Pairs):
    """Two arrays in the host's memory, of any real or complex numeric type; make them with :meth:`of`."""

    @classmethod
    def of(cls, output: ArrayLike, reference: ArrayLike, known: dict[Any, Any] | None = None) -> HostPairs:
        """Pair two arrays.

        Args:
            output: what the kernel wrote.
            reference: what it should have written.
            known: of other pairs with this reference.

        Raises:
            MetricError: shapes differ, there are no elements, or one array does not hold numbers.
        """
        computed, expected = np.asarray(output), np.asarray(reference)
        for array, what in ((computed, "output"), (expected, "reference")):
            if not _is_numeric(array.dtype):
                raise MetricError(f"the {what} has type {array.dtype}; an error metric needs numbers")
        _require_same_shape(computed.shape, expected.shape)
        working_type = _working_type(computed.dtype, expected.dtype)
        shared = {} if known is None else known
        return cls(np, computed.shape, computed.dtype, working_type, computed, expected, shared)

    def _walk(self, *arrays: NDArray[Any]) -> Iterator[Any]:
        return _chunks(arrays, [self.working_type] * len(arrays))

    def bits(self) -> Iterator[tuple[Any, Any]]:  # noqa: D102
        bits = self.output.view(bits_type(self.stored))
        return _chunks((bits, self.reference), [bits.dtype, self.working_type])

    def _matrix(self, box: tuple[slice, ...], tile: tuple[int, ...], known: dict[Any, Any]) -> HostPairs:
        output, reference = (_tiled(array[box], tile) for array in (self.output, self.reference))
        return HostPairs(np, output.shape, self.stored, self.working_type, output, reference, known)

    @property
    def chunk(self) -> int:  # noqa: D102
        return CHUNK

    def whole(self) -> tuple[NDArray[Any], NDArray[Any]]:  # noqa: D102
        # Signalling NaNs are as good as any, and what overflows does so in the results.
        with np.errstate(all="ignore"):
            return self.output.astype(self.working_type, order="C"), self.reference.astype(self.working_type, order="C")


def _chunks(arrays: Sequence[NDArray[Any]], dtypes: Sequence[np.dtype[Any]]) -> Iterator[Any]:
    return np.nditer(
        arrays,
        flags=["external_loop", "buffered"],
        op_flags=[["readonly"]] * len(arrays),
        op_dtypes=dtypes,
        casting="unsafe",
        order="C",
        buffersize=CHUNK,
    )


def _tiled(array: Any, tile: tuple[int, ...]) -> Any:
    """Return an array that is made of whole tiles as a matrix, a row for each; a single tile keeps its shape."""
    if array.shape == tile:
        return array.reshape((1, *tile))
    split = [n for extent, length in zip(array.shape, tile, strict=True) for n in (extent // length, length)]
    axes = range(len(split))
    return array.reshape(split).transpose((*axes[::2], *axes[1::2])).reshape((-1, math.prod(tile)))


def can_decode(stored: np.dtype[Any]) -> bool:
    """Whether doubles hold every value of a type (not of 64-bit integers)."""
    return stored.itemsize < 8 if stored.kind in "iu" else stored in (*_VIEWED, _BFLOAT16, *_BY_TABLE)


def bits_type(stored: np.dtype[Any]) -> np.dtype[Any]:
    """Return the unsigned integer type that holds the bits of a type."""
    return np.dtype(f"u{stored.itemsize}")


@dataclass(frozen=True, slots=True, eq=False)
class DeviceArray:
    """An array on a device."""

    namespace: Any  #: the NumPy-like module ``bits`` belongs to
    bits: Any  #: its elements as unsigned integers, of that namespace, one-dimensional and contiguous
    stored: np.dtype[Any]  #: the type of the values; one that :func:`can_decode` accepts
    shape: tuple[int, ...]  #: its real shape

    def __post_init__(self) -> None:
        if not can_decode(self.stored):
            raise MetricError(f"an array of {self.stored} cannot be compared on a device")
        if self.bits.shape != (math.prod(self.shape),):
            raise MetricError(f"{self.bits.shape} elements on the device are no array of shape {self.shape}")

    def doubles(self, piece: slice) -> Any:
        """Return some of the elements as doubles, a view if they are stored as doubles."""
        xp, bits = self.namespace, self.bits[piece]
        if self.stored in _BY_TABLE:
            return _table(xp, self.stored.name)[bits]
        # A bfloat16 is the upper half of a float.
        is_half_a_float = self.stored == _BFLOAT16
        values = (bits.astype(np.uint32) << 16).view(np.float32) if is_half_a_float else bits.view(self.stored)
        # Poison and guard zones can give signalling NaNs.
        with np.errstate(invalid="ignore"):
            return values.astype(np.float64, copy=False)


@functools.cache
def _table(xp: Any, name: str) -> Any:
    stored = next(dtype for dtype in _BY_TABLE if dtype.name == name)
    return xp.asarray(np.arange(256, dtype=np.uint8).view(stored).astype(np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class DevicePairs(Pairs):
    """Two arrays on the same device, ``piece`` elements decoded at a time; make them with :meth:`of`."""

    piece: int = PIECE

    @classmethod
    def of(
        cls,
        output: DeviceArray,
        reference: DeviceArray,
        piece: int = PIECE,
        known: dict[Any, Any] | None = None,
    ) -> DevicePairs:
        """Pair two arrays; ``known`` is that of other pairs with this reference.

        Raises:
            MetricError: shapes differ, or there are no elements.
        """
        _require_same_shape(output.shape, reference.shape)
        shared = {} if known is None else known
        double = np.dtype(np.float64)
        return cls(output.namespace, output.shape, output.stored, double, output, reference, shared, piece)

    def _walk(self, *arrays: DeviceArray) -> Iterator[Any]:
        for piece in self._pieces():
            yield tuple(array.doubles(piece) for array in arrays) if len(arrays) > 1 else arrays[0].doubles(piece)

    def bits(self) -> Iterator[tuple[Any, Any]]:  # noqa: D102
        return ((self.output.bits[piece], self.reference.doubles(piece)) for piece in self._pieces())

    def _matrix(self, box: tuple[slice, ...], tile: tuple[int, ...], known: dict[Any, Any]) -> DevicePairs:
        found = []
        for array in (self.output, self.reference):
            bits = _tiled(array.bits.reshape(array.shape)[box], tile)
            found.append(DeviceArray(array.namespace, bits.reshape(-1), array.stored, bits.shape))
        return DevicePairs.of(found[0], found[1], self.piece, known)

    @property
    def chunk(self) -> int:  # noqa: D102
        return self.piece

    def whole(self) -> tuple[Any, Any]:  # noqa: D102
        return tuple(array.doubles(slice(None)).reshape(self.shape) for array in (self.output, self.reference))

    def _pieces(self) -> Iterator[slice]:
        for start in range(0, self.size, self.piece):
            yield slice(start, min(start + self.piece, self.size))


def count_unwritten(pairs: Pairs) -> int:
    """Return how many elements of an output still are the poison pattern, bit by bit; masked ones do not count.

    An integer that is the pattern but lies within 1/16 of its type's range of the reference counts as written: it may
    be a result.
    """
    xp, stored, count = pairs.namespace, pairs.stored, 0
    pattern, is_integer = bits_type(stored).type(poison_pattern(stored)), stored.kind in "iu"
    value, margin = float(poison_value(stored)), poison_margin(stored)
    for bits, reference in pairs.bits():
        found = bits == pattern
        here = int(xp.count_nonzero(found))
        if here and (is_integer or pairs.has_masked):
            found &= xp.abs(reference - value) > margin if is_integer else ~xp.isnan(reference)
            here = int(xp.count_nonzero(found))
        count += here
    return count


# -- finding elements --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offenders:
    """How many elements have a property, and the index of the first (empty if there is none, or for a scalar)."""

    count: int
    first: tuple[int, ...] = ()

    def __str__(self) -> str:
        where = f"first at index [{', '.join(map(str, self.first))}]" if self.first else "a scalar"
        return f"{self.count} element{'s' if self.count != 1 else ''}, {where}"


def find(pairs: Pairs, offends: Callable[[Any, Any], Any]) -> Offenders:
    """Count the elements for which ``offends(output, reference)`` holds, and find the first in C order."""
    xp = pairs.namespace
    count, first, offset = 0, -1, 0
    for output, reference in pairs:
        found = offends(output, reference)
        here = int(xp.count_nonzero(found))
        if here and first < 0:
            first = offset + int(xp.argmax(found))
        count += here
        offset += output.size
    if first < 0:
        return Offenders(0)
    return Offenders(count, tuple(int(i) for i in np.unravel_index(first, pairs.shape)))


def float_info(dtype: np.dtype[Any]) -> Any | None:
    """Return the ``finfo`` of a floating-point type, NumPy's or ml_dtypes'; None for any other.

    A complex type has that of its parts.
    """
    # NumPy's own knows none of ml_dtypes' types, not even those whose kind is "f".
    return _info(ml_dtypes.finfo, dtype)


def _is_numeric(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufc" or bool(float_info(dtype) or _info(ml_dtypes.iinfo, dtype))


def _info(look_up: Callable[[np.dtype[Any]], Any], dtype: np.dtype[Any]) -> Any | None:
    try:
        return look_up(dtype)
    except ValueError:
        return None


def _working_type(*types: np.dtype[Any]) -> np.dtype[Any]:
    wide = any(_exceeds_double(dtype) for dtype in types)
    if any(dtype.kind == "c" for dtype in types):
        return np.dtype(np.clongdouble if wide else np.complex128)
    return np.dtype(np.longdouble if wide else np.float64)


def _exceeds_double(dtype: np.dtype[Any]) -> bool:
    if dtype.kind in "iu":
        return dtype.itemsize >= 8
    info = float_info(dtype)
    return info is not None and info.nmant > np.finfo(np.float64).nmant
