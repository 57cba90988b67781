"""A kernel's inputs, made once and checked against its declarations."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.buffers.chunks import count_non_finite, pieces
from mptune.errors import KernelError, MptuneError, UnknownNameError
from mptune.kernel import Argument, Kernel, Role, Sizes
from mptune.precision import PRECISIONS

__all__ = ["integers_in_range", "make_inputs"]

_SMALL_FLOATS: Final = frozenset(entry.dtype for entry in PRECISIONS.values())


def make_inputs(kernel: Kernel, sizes: Sizes, seed: int) -> Mapping[str, Any]:
    """Call ``kernel.inputs`` and return fp64 (or integer) arrays and scalars by argument name.

    Arrays are C-contiguous and read-only. A scalar that is missing and named like a size has its value.

    Raises:
        KernelError: an input is missing, has another shape or type than declared, or is not finite; or the
            function fails.
        UnknownNameError: an input no argument has the name of.
    """
    try:
        given = kernel.inputs(np.random.default_rng(seed), sizes)
    except (MptuneError, MemoryError):
        raise
    except Exception as error:
        raise KernelError(f"inputs of kernel {kernel.name} failed: {type(error).__name__}: {error}") from error
    if not isinstance(given, Mapping):
        raise KernelError(
            f"inputs of kernel {kernel.name} returned {type(given).__name__}; expected a dict of arrays by argument"
        )
    by_name = {argument.name: argument for argument in kernel.arguments}
    for name in given:
        if name not in by_name:
            raise UnknownNameError(
                f"input of kernel {kernel.name}:", name, [n for n, a in by_name.items() if a.is_input]
            )
        if not by_name[name].is_input:
            raise KernelError(
                f"inputs of kernel {kernel.name} has {name!r}, which the kernel only writes: declare it InOut, "
                "or leave it out"
            )
    return MappingProxyType({name: _input(kernel, a, given, sizes) for name, a in by_name.items() if a.is_input})


def _input(kernel: Kernel, argument: Argument, given: Mapping[str, Any], sizes: Sizes) -> Any:
    name = argument.name
    if name in given:
        value = given[name]
    elif argument.role is Role.SCALAR and name in sizes:
        value = sizes[name]
    else:
        raise KernelError(f"inputs of kernel {kernel.name} lacks {name!r}")
    what = f"input {name!r} of kernel {kernel.name}"
    shape = kernel.shape_of(argument, sizes)
    array = _converted(what, argument, value)
    if array.shape != shape:
        raise KernelError(f"{what} has shape {array.shape}; expected {shape} at {sizes}")
    count, first = count_non_finite(array)
    if count:
        where = f", the first at {first}" if shape else ""
        raise KernelError(f"{what} has {count} values that are NaN or infinite{where}")
    if argument.role is Role.SCALAR:
        return array.item()
    # A view: the flag must not change on an array that is the user's own.
    view = array.view()
    view.flags.writeable = False
    return view


def _converted(what: str, argument: Argument, value: Any) -> NDArray[Any]:
    array = np.asarray(value)
    if argument.dtype is None:
        if array.dtype.kind not in "fiub" and array.dtype not in _SMALL_FLOATS:
            raise KernelError(f"{what} has type {array.dtype}; expected real numbers (they are held in fp64)")
        with np.errstate(all="ignore"):
            return np.asarray(array, dtype=np.float64, order="C")
    if array.dtype.kind not in "iub":
        raise KernelError(f"{what} has type {array.dtype}; expected integers for {argument.dtype}")
    dtype = np.dtype(argument.dtype)
    if not integers_in_range(array, dtype):
        raise KernelError(f"{what} has values outside {argument.dtype}: from {array.min()} to {array.max()}")
    return np.asarray(array, dtype=dtype, order="C")


def integers_in_range(array: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether every element of an integer array can be held in an integer type."""
    limits = np.iinfo(dtype)
    return all(limits.min <= int(p.min()) and int(p.max()) <= limits.max for p in pieces(np.ascontiguousarray(array)))
