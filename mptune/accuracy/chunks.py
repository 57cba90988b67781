"""Walking an output and its reference side by side, in at least double precision and constant memory."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from mptune.errors import MetricError

__all__ = ["CHUNK", "HostPairs", "Offenders", "Pairs", "find", "float_info"]

#: Elements converted at a time: 96 KiB of doubles, which stay in the cache between the steps of a metric. Arrays of
#: 128 KiB and more are fresh memory from the system each time (glibc), which made some metrics five times slower.
CHUNK: Final = 12288

_NUMERIC_KINDS: Final = "biufc"


class Pairs(ABC):
    """An output and its reference, checked to be comparable; iterating gives chunks of both.

    Both are converted to the same working type: double, or long double where one of them is that or a
    64-bit integer (a double does not hold it exactly), or the complex counterpart. Nothing broadcasts.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def namespace(self) -> Any:
        """The NumPy-like module whose functions take the chunks: NumPy, or that of the device they are on."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of each of the two."""

    @property
    @abstractmethod
    def stored(self) -> np.dtype[Any]:
        """The type the output is stored in."""

    @property
    @abstractmethod
    def working_type(self) -> np.dtype[Any]:
        """The type of the chunks."""

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Yield chunks of output and reference, one-dimensional, in C order; valid until the next."""

    @abstractmethod
    def references(self) -> Iterator[Any]:
        """Yield chunks of the reference alone, likewise."""

    @property
    def size(self) -> int:
        """Elements in each of the two."""
        return math.prod(self.shape)

    @property
    def is_complex(self) -> bool:
        """Whether one of the two is complex."""
        return self.working_type.kind == "c"


@dataclass(frozen=True, slots=True, eq=False)
class HostPairs(Pairs):
    """Two arrays in the host's memory.

    Attributes:
        output: what the kernel wrote, any real or complex numeric type, any shape.
        reference: what it should have written, of the same shape.
        working: the type of the chunks.
    """

    output: NDArray[Any]
    reference: NDArray[Any]
    working: np.dtype[Any]

    @classmethod
    def of(cls, output: ArrayLike, reference: ArrayLike) -> HostPairs:
        """Pair two arrays.

        Raises:
            MetricError: shapes differ, there are no elements, or one array does not hold numbers.
        """
        computed, expected = np.asarray(output), np.asarray(reference)
        for array, what in ((computed, "output"), (expected, "reference")):
            if not _is_numeric(array.dtype):
                raise MetricError(f"the {what} has type {array.dtype}; an error metric needs numbers")
        if computed.shape != expected.shape:
            raise MetricError(
                f"the output has shape {computed.shape} and the reference {expected.shape}; they must be the same"
            )
        if computed.size == 0:
            raise MetricError(f"the output of shape {computed.shape} has no elements, so it has no error")
        return cls(computed, expected, _working_type(computed.dtype, expected.dtype))

    @property
    def namespace(self) -> Any:
        """NumPy."""
        return np

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of each of the two."""
        return self.output.shape

    @property
    def stored(self) -> np.dtype[Any]:
        """The type the output is stored in."""
        return self.output.dtype

    @property
    def working_type(self) -> np.dtype[Any]:
        """The type of the chunks."""
        return self.working

    def __iter__(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield chunks of output and reference, shape ``(at most CHUNK,)``, in C order; valid until the next."""
        pairs: Any = np.nditer(
            (self.output, self.reference),
            flags=["external_loop", "buffered"],
            op_flags=[["readonly"], ["readonly"]],
            op_dtypes=[self.working, self.working],
            casting="unsafe",
            order="C",
            buffersize=CHUNK,
        )
        yield from pairs

    def references(self) -> Iterator[NDArray[Any]]:
        """Yield chunks of the reference alone, likewise."""
        walk: Any = np.nditer(
            self.reference,
            flags=["external_loop", "buffered"],
            op_flags=["readonly"],
            op_dtypes=self.working,
            casting="unsafe",
            order="C",
            buffersize=CHUNK,
        )
        yield from walk


@dataclass(frozen=True, slots=True)
class Offenders:
    """How many elements have a property, and the index of the first (empty where there is none or it is 0-d)."""

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
    known = dtype.kind in _NUMERIC_KINDS or float_info(dtype) is not None
    return known or _info(ml_dtypes.iinfo, dtype) is not None


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
