"""Pairs of an output and its reference, read in chunks of at least double precision in constant memory.

On a device, arrays are unsigned integers with the outputs' bits, in a NumPy-like namespace such as CuPy, which knows
neither bfloat16 nor 8-bit floats. Chunks are decoded to doubles there, which is exact.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from mptune.errors import MetricError
from mptune.kernel.regions import boxes
from mptune.precision import PRECISIONS

#: Quiet NaNs with a payload that arithmetic does not produce. E4M3 has one NaN only.
_POISON_BITS: Final = MappingProxyType(
    {
        PRECISIONS["fp64"].dtype: 0x7FFD_A5A5_A5A5_A5A5,
        PRECISIONS["fp32"].dtype: 0x7FE5_A5A5,
        PRECISIONS["fp16"].dtype: 0x7F25,
        PRECISIONS["bf16"].dtype: 0x7FE5,
        PRECISIONS["fp8_e5m2"].dtype: 0x7D,
        PRECISIONS["fp8_e4m3"].dtype: 0x7F,
    }
)
#: Elements of a chunk on the host: 96 KiB of doubles, which stay in the cache between the steps of a metric. From 128
#: KiB on, glibc maps fresh memory for every array, which made some metrics five times slower.
CHUNK: Final = 12288

#: Elements of a chunk on a device: 32 MiB of doubles occupy all of it and take little memory.
PIECE: Final = 1 << 22

_BY_TABLE: Final = tuple(PRECISIONS[name].dtype for name in ("fp8_e4m3", "fp8_e5m2"))
_BFLOAT16: Final = PRECISIONS["bf16"].dtype
_VIEWED: Final = tuple(PRECISIONS[name].dtype for name in ("fp64", "fp32", "fp16"))
#: Bytes of the largest type of each kind that fp64 (or its complex counterpart) holds exactly.
_FITS: Final = {"i": 4, "u": 4, "c": 16}
#: The key of the number of compared elements in :attr:`Pairs.known`.
_COMPARED: Final = "compared"


def can_decode(stored: np.dtype[Any]) -> bool:
    """Whether doubles hold every value of a type; they do not for 64-bit integers."""
    return stored.itemsize < 8 if stored.kind in "iu" else stored in (*_VIEWED, _BFLOAT16, *_BY_TABLE)


def bits_type(stored: np.dtype[Any]) -> np.dtype[Any]:
    """Return the unsigned integer type that holds the bits of a type."""
    return np.dtype(f"u{stored.itemsize}")


@dataclass(frozen=True, slots=True, eq=False)
class Elements:
    """The elements of an array, on the host or on a device."""

    namespace: Any  #: NumPy, or the NumPy-like module of a device
    #: on the host, an array of any numeric type and memory order; on a device, a vector of unsigned integers, the bits
    #: of a type that :func:`can_decode` accepts
    values: Any
    stored: np.dtype[Any]  #: the type of the elements
    shape: tuple[int, ...]  #: the shape of the array

    @classmethod
    def on_host(cls, given: Any) -> Elements:
        """Return the elements of an array in the host's memory."""
        array = np.asarray(given)
        return cls(np, array, array.dtype, array.shape)

    def _part(self, part: slice) -> Any:
        """Return some elements in C order, without a copy of the whole array."""
        is_scattered = self.namespace is np and not self.values.flags.c_contiguous
        return self.values.flat[part] if is_scattered else self.values.reshape(-1)[part]

    def numbers(self, part: slice, dtype: np.dtype[Any]) -> Any:
        """Return some elements in a working type; a view if it is the stored type."""
        xp, values = self.namespace, self._part(part)
        if xp is np and self.stored == dtype:
            return values
        # Poison and guard zones may hold signalling NaNs, and overflow shows in the results.
        with np.errstate(all="ignore"):
            if xp is np:
                return values.astype(dtype, copy=False)
            if self.stored in _BY_TABLE:
                return _table(xp, self.stored.name)[values]
            if self.stored == _BFLOAT16:  # the upper half of a float
                values = (values.astype(np.uint32) << 16).view(np.float32)
            else:
                values = values.view(self.stored)
            return values.astype(dtype, copy=False)

    def bits(self, part: slice) -> Any:
        """Return the bits of some elements as unsigned integers."""
        return self._part(part).view(bits_type(self.stored))

    def tiles(self, box: tuple[slice, ...], tile: tuple[int, ...]) -> Elements:
        """Return a box of whole tiles as a matrix, a row for each tile; a single tile keeps its shape."""
        array = self.values.reshape(self.shape)[box]
        if array.shape == tile:
            array = array.reshape((1, *tile))
        else:
            split = [n for extent, length in zip(array.shape, tile, strict=True) for n in (extent // length, length)]
            axes = range(len(split))
            array = array.reshape(split).transpose((*axes[::2], *axes[1::2])).reshape((-1, math.prod(tile)))
        return Elements(self.namespace, array if self.namespace is np else array.reshape(-1), self.stored, array.shape)


@functools.cache
def _table(xp: Any, name: str) -> Any:
    stored = next(dtype for dtype in _BY_TABLE if dtype.name == name)
    return xp.asarray(np.arange(256, dtype=np.uint8).view(stored).astype(np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """An output and its reference, both on the host or both on a device; make them with :meth:`of`.

    Iterating gives chunks of both in the same working type: double, or long double for long doubles and 64-bit integers
    (which a double does not hold exactly), or the complex counterpart. Nothing broadcasts.

    An element whose reference is NaN is masked: chunks have the same infinity for it in both arrays, so that its error
    is 0 and no normaliser counts it. Means are over the compared elements.
    """

    output: Elements
    reference: Elements  #: of the same shape
    chunk: int  #: elements of a chunk
    known: dict[Any, Any] = field(default_factory=dict)  #: cached properties of the reference, shared by its pairs

    @classmethod
    def of(
        cls,
        output: ArrayLike | Elements,
        reference: ArrayLike | Elements,
        known: dict[Any, Any] | None = None,
        piece: int = PIECE,
    ) -> Pairs:
        """Pair two arrays, both on the host or both on a device, which decodes ``piece`` elements at a time.

        ``known`` comes from other pairs with this reference.
        """
        known = {} if known is None else known
        if isinstance(output, Elements) and isinstance(reference, Elements):
            found = cls(output, reference, piece, known)
        else:
            found = cls(Elements.on_host(output), Elements.on_host(reference), CHUNK, known)
            for elements, what in ((found.output, "output"), (found.reference, "reference")):
                if not np.can_cast(elements.stored, np.clongdouble):
                    raise MetricError(f"the {what} has type {elements.stored}; an error metric needs numbers")
        expected = found.reference.shape
        if found.shape != expected:
            raise MetricError(f"the output has shape {found.shape} and the reference {expected}; they must be the same")
        if not found.size:
            raise MetricError(f"the output of shape {found.shape} has no elements, so it has no error")
        return found

    @property
    def namespace(self) -> Any:
        """The NumPy-like module of the chunks."""
        return self.output.namespace

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of both arrays."""
        return self.output.shape

    @property
    def stored(self) -> np.dtype[Any]:
        """The stored type of the output."""
        return self.output.stored

    @property
    def working_type(self) -> np.dtype[Any]:
        """The type of the chunks."""
        return _working_type(self.stored, self.reference.stored)

    @property
    def size(self) -> int:
        """The number of elements of either array."""
        return math.prod(self.shape)

    @property
    def compared(self) -> int:
        """The number of elements that are not masked."""
        if _COMPARED not in self.known:
            xp = self.namespace
            masked = sum(int(xp.count_nonzero(xp.isnan(reference))) for reference in self.references())
            self.known[_COMPARED] = self.size - masked
        return int(self.known[_COMPARED])

    @property
    def has_masked(self) -> bool:
        """Whether any element is masked."""
        return self.compared < self.size

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Yield chunks of output and reference, one-dimensional, in C order."""
        dtype, has_masked = self.working_type, self.has_masked
        for part in self._parts():
            chunks = self.output.numbers(part, dtype), self.reference.numbers(part, dtype)
            yield self.masked(*chunks) if has_masked else chunks

    def references(self) -> Iterator[Any]:
        """Yield chunks of the reference, with NaN for masked elements."""
        dtype = self.working_type
        return (self.reference.numbers(part, dtype) for part in self._parts())

    def bits(self) -> Iterator[tuple[Any, Any]]:
        """Yield chunks of the output's bits as unsigned integers, and of the reference."""
        return zip(map(self.output.bits, self._parts()), self.references(), strict=True)

    def whole(self) -> tuple[Any, Any]:
        """Return both arrays in the working type, with NaN for the references of masked elements."""
        dtype = self.working_type
        output, reference = (each.numbers(slice(None), dtype) for each in (self.output, self.reference))
        return output.reshape(self.shape), reference.reshape(self.shape)

    def masked(self, output: Any, reference: Any) -> tuple[Any, Any]:
        """Return chunks of both with the same infinity in masked elements."""
        xp = self.namespace
        is_masked = xp.isnan(reference)
        return xp.where(is_masked, math.inf, output), xp.where(is_masked, math.inf, reference)

    def tiles(self, tile: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Pairs]]:
        """Yield pairs of tiles and the tiles' shape, which is smaller at the end of an axis.

        Pairs of several tiles are matrices of at most :attr:`chunk` elements, a row for each tile. A single tile of any
        size has its shape after an axis of one.
        """
        for box, own in boxes(self.shape, tile, self.chunk):
            known = self.known_of_part(math.prod(each.stop - each.start for each in box))
            yield own, Pairs(self.output.tiles(box, own), self.reference.tiles(box, own), self.chunk, known)

    def known_of_part(self, size: int) -> dict[Any, Any]:
        """Return :attr:`known` of a part of ``size`` elements: nothing is masked if the whole has no masked element."""
        return {} if self.has_masked else {_COMPARED: size}

    def _parts(self) -> Iterator[slice]:
        return (slice(start, start + self.chunk) for start in range(0, self.size, self.chunk))


def count_unwritten(pairs: Pairs) -> int:
    """Return the number of elements of an output that still have the bits of the poison pattern, masked ones aside.

    An integer pattern that lies within 1/16 of the type's range of the reference may be a result and is not counted.
    """
    xp, stored, count = pairs.namespace, pairs.stored, 0
    pattern, is_integer = bits_type(stored).type(poison_pattern(stored)), stored.kind in "iu"
    value, margin = float(poisoned((1,), stored)[0]), 2.0 ** (8 * stored.itemsize - 4)
    for bits, reference in pairs.bits():
        found = bits == pattern
        here = int(xp.count_nonzero(found))
        if here and (is_integer or pairs.has_masked):
            found &= xp.abs(reference - value) > margin if is_integer else ~xp.isnan(reference)
            here = int(xp.count_nonzero(found))
        count += here
    return count


@dataclass(frozen=True, slots=True)
class Offenders:
    """The number of elements with a property, and the index of the first; empty without one, or for a scalar."""

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
    """Return the ``finfo`` of a floating-point type, or of a complex type's parts; None for any other."""
    try:  # numpy.finfo does not know ml_dtypes' types
        return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    except ValueError:
        return None


@functools.cache
def _working_type(*types: np.dtype[Any]) -> np.dtype[Any]:
    is_wide = any(dtype.itemsize > _FITS.get(dtype.kind, 8) for dtype in types)
    if any(dtype.kind == "c" for dtype in types):
        return np.dtype(np.clongdouble if is_wide else np.complex128)
    return np.dtype(np.longdouble if is_wide else np.float64)


def poisoned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an array filled with the type's poison pattern: a NaN with a payload, or bytes 0xA5 for integers."""
    return np.full(shape, poison_pattern(dtype)).view(dtype)


def still_poisoned(array: NDArray[Any]) -> NDArray[np.intp]:
    """Return the flat indices, ``(n_found,)``, of the elements with the poison pattern."""
    pattern = poison_pattern(array.dtype)
    return np.flatnonzero(array.reshape(-1).view(pattern.dtype) == pattern)


def poison_pattern(dtype: np.dtype[Any]) -> Any:
    """Return the poison pattern of a type as an unsigned integer of its size."""
    if dtype.kind in "iu":
        return np.frombuffer(b"\xa5" * dtype.itemsize, bits_type(dtype))[0]
    return bits_type(dtype).type(_POISON_BITS[dtype])
