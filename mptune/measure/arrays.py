"""A user's arrays as inputs and outputs of a call, on the host or on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.backends.base import Backend, Buffer
from mptune.data import DataManager
from mptune.data.conversion import Loss
from mptune.data.data import require_unmasked
from mptune.errors import KernelError, MptuneError, UnknownNameError
from mptune.kernel import Argument, Role, Sizes, Tunable
from mptune.precision import Precision, holds_real_numbers

#: The floating-point types of every NumPy-like module.
_COMMON: Final = ("float64", "float32", "float16")


def arrays_of(tunable: Tunable, sizes: Sizes, backend: Backend, given: Mapping[str, Any]) -> Arrays:
    """Return the inputs of a call, checked against the declarations; on the device if any of them is."""
    declared = {argument.name: argument for argument in tunable.arguments if argument.is_input}
    for name in given:
        if name not in declared:
            raise UnknownNameError(f"input of {tunable.called}:", name, declared)
    checked = {}
    for name, argument in declared.items():
        is_size = argument.role is Role.SCALAR and name in sizes
        if name not in given and not is_size:
            raise KernelError(f"{tunable.called} needs an input {name!r}")
        checked[name] = _checked(tunable, argument, given[name] if name in given else sizes[name], sizes)
        if is_size and checked[name].item() != sizes[name]:
            raise KernelError(
                f"{name}={checked[name].item()} is not the size {name}={sizes[name]} this tuned {tunable.what} is for"
            )
    on_device = [name for name, array in checked.items() if _is_on_device(array)]
    if not on_device:
        return Arrays(tunable, sizes, budget_bytes=0, inputs=checked)
    namespace = backend.device.array_namespace()
    if namespace is None:
        raise MptuneError(f"input {on_device[0]!r} is on a GPU, and the backend {backend.name} takes NumPy's arrays")
    return _DeviceArrays(tunable, sizes, checked, backend, namespace)


def _checked(tunable: Tunable, argument: Argument, value: Any, sizes: Sizes) -> Any:
    what = f"input {argument.name!r} of {tunable.called}"
    require_unmasked(value, what)
    array = value if _is_on_device(value) else np.asarray(value)
    shape = tunable.shape_of(argument, sizes)
    if tuple(array.shape) != shape:
        raise KernelError(f"{what} has shape {tuple(array.shape)}; expected {shape} at {sizes}")
    is_right = holds_real_numbers(array.dtype) if argument.dtype is None else array.dtype.kind in "iub"
    if not is_right:
        expected = "real numbers" if argument.dtype is None else f"integers for {argument.dtype}"
        raise KernelError(f"{what} has type {array.dtype}; expected {expected}")
    if argument.dtype is not None and array.dtype != argument.dtype and array.size:
        low, high, limits = int(array.min()), int(array.max()), np.iinfo(argument.dtype)
        if low < limits.min or high > limits.max:
            raise KernelError(f"integers from {low} to {high} do not fit {argument.dtype}")
    return array


def _is_on_device(array: Any) -> bool:
    return hasattr(array, "__cuda_array_interface__")


class Arrays(DataManager):
    """NumPy arrays as inputs and outputs."""

    def settle(self) -> None:
        """Wait for the user's earlier work on the device, in streams that the backend does not know."""

    def fetch(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return an output in its type as a new array."""
        array = np.empty(shape, dtype)
        buffer.read(array)
        return array

    def all_finite(self, array: Any, *, or_nan: bool = False) -> bool:
        """Whether an array has no infinity, and no NaN unless allowed."""
        if array.dtype.kind in "iub":
            return True
        xp, values = self._namespace_of(array), array.astype(np.float64)
        return bool((~xp.isinf(values) if or_nan else xp.isfinite(values)).all())

    def _namespace_of(self, array: Any) -> Any:  # noqa: ARG002 - used on devices
        return np

    def returned(self, array: Any, converted: bool) -> Any:
        """Return an output in its type, or floating-point numbers in fp64 if ``converted``."""
        return array.astype(np.float64) if converted and array.dtype.kind not in "iub" else array


class _DeviceArrays(Arrays):
    """Arrays of a NumPy-like module in device memory; types that it lacks (bf16, fp8) are converted on the host."""

    def __init__(
        self, tunable: Tunable, sizes: Sizes, inputs: Mapping[str, Any], backend: Backend, namespace: Any
    ) -> None:
        there = {a.name for a in tunable.arguments if a.role is not Role.SCALAR and not a.is_constant}
        on_host = {n: a.get() if n not in there and _is_on_device(a) else a for n, a in inputs.items()}
        super().__init__(tunable, sizes, budget_bytes=0, inputs=on_host)
        self._device = backend.device
        self._namespace = namespace

    def settle(self) -> None:
        self._namespace.cuda.runtime.deviceSynchronize()

    def typed(self, argument: Argument, precision: Precision | None) -> NDArray[Any]:
        given, dtype = self.inputs[argument.name], np.dtype(argument.dtype) if precision is None else precision.dtype
        if argument.is_constant or not _is_common(dtype):
            self.inputs = {**self.inputs, argument.name: self._namespace.asnumpy(given)}
            return super().typed(argument, precision)
        source = self._namespace.asarray(given)
        with np.errstate(all="ignore"):
            values: NDArray[Any] = source.astype(dtype)
        if precision is not None:
            lost = self._namespace.isfinite(source.astype(np.float64)) & ~self._namespace.isfinite(values)
            self._losses[argument.name, precision] = Loss(infinite=int(lost.any()))
        return values

    def fetch(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        if not _is_common(dtype):
            return super().fetch(buffer, shape, dtype)
        return self._device.array(buffer, dtype).reshape(shape).copy()

    def _namespace_of(self, array: Any) -> Any:
        return np if isinstance(array, np.ndarray) else self._namespace

    def returned(self, array: Any, converted: bool) -> Any:
        if array.dtype.kind in "iub":
            return self._namespace.asarray(array)
        if converted:
            return self._namespace.asarray(array.astype(np.float64))
        # NumPy holds the types that the module lacks.
        return self._namespace.asarray(array) if _is_common(array.dtype) else array


def _is_common(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iub" or dtype.name in _COMMON
