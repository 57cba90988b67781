"""Launching one configuration of a kernel, or running one of an application, on a user's arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.backends.base import Argument as LaunchArgument
from mptune.backends.base import Backend, Buffer, CompileOptions, Function
from mptune.data.conversion import convert, poisoned
from mptune.errors import CompileError, ConstraintError, KernelError, MptuneError, UnknownNameError
from mptune.kernel import Application, Argument, Kernel, Role, Sizes, Tunable
from mptune.measure.stepping import Stepper
from mptune.precision import Precision, holds_real_numbers
from mptune.source.render import cited, render
from mptune.space.configuration import Configuration

__all__ = [
    "ApplicationLauncher",
    "Arrays",
    "DeviceArrays",
    "Launcher",
    "in_memory_of",
    "inputs_from",
    "run_first",
]

#: The floating-point types every NumPy-like module has.
_COMMON: Final = ("float64", "float32", "float16")


def inputs_from(kernel: Tunable, sizes: Sizes, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a call by argument, checked against the declarations.

    Raises:
        UnknownNameError: no input has a name given.
        KernelError: an input is missing, or has another shape or kind of type than declared.
    """
    declared = {argument.name: argument for argument in kernel.arguments if argument.is_input}
    for name in given:
        if name not in declared:
            raise UnknownNameError(f"input of {kernel.called}:", name, declared)
    checked = {}
    for name, argument in declared.items():
        is_size = argument.role is Role.SCALAR and name in sizes
        if name not in given and not is_size:
            raise KernelError(f"{kernel.called} needs an input {name!r}")
        checked[name] = _checked(kernel, argument, given[name] if name in given else sizes[name], sizes)
        if is_size and checked[name].item() != sizes[name]:
            raise KernelError(
                f"{name}={checked[name].item()} is not the size {name}={sizes[name]} this tuned {kernel.what} is for"
            )
    return checked


def _checked(kernel: Tunable, argument: Argument, value: Any, sizes: Sizes) -> Any:
    if np.ma.is_masked(value):
        raise KernelError(
            f"input {argument.name!r} of {kernel.called} has masked elements, which kernels know nothing of; give it "
            "without (.filled(...) of a masked array)"
        )
    array = value if hasattr(value, "__cuda_array_interface__") else np.asarray(value)
    what = f"input {argument.name!r} of {kernel.called}"
    shape = kernel.shape_of(argument, sizes)
    if tuple(array.shape) != shape:
        raise KernelError(f"{what} has shape {tuple(array.shape)}; expected {shape} at {sizes}")
    if argument.dtype is None:
        if not holds_real_numbers(array.dtype):
            raise KernelError(f"{what} has type {array.dtype}; expected real numbers")
    elif array.dtype.kind not in "iub":
        raise KernelError(f"{what} has type {array.dtype}; expected integers for {argument.dtype}")
    return array


# -- where arrays are ----------------------------------------------------------------------------


class Arrays:
    """How a user's arrays get into a backend's buffers and back: NumPy's."""

    def settle(self) -> None:
        """Wait for what was asked of the device before: the user's streams are not the backend's."""

    def store(self, buffer: Buffer, given: Any, dtype: np.dtype[Any], precision: Precision | None) -> bool:
        """Write an input, rounded once to the type it is stored in; say if a finite value became infinite or NaN."""
        values, overflows = stored(given, dtype, precision)
        buffer.write(values)
        return overflows

    def fetch(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array of an output as it is stored."""
        array = np.empty(shape, dtype)
        buffer.read(array)
        return array

    def all_finite(self, array: Any) -> bool:
        """Whether an array has no infinity and no NaN."""
        return array.dtype.kind in "iub" or bool(np.isfinite(array.astype(np.float64)).all())

    def returned(self, array: Any, converted: bool) -> Any:
        """Return an output as the user wants it: as it is, or floating-point numbers in fp64."""
        return array.astype(np.float64) if converted and array.dtype.kind not in "iub" else array


@dataclass(frozen=True, slots=True)
class DeviceArrays(Arrays):
    """Those of a NumPy-like module in a device's own memory. Types it lacks (bf16, fp8) go by way of the host."""

    backend: Backend
    namespace: Any

    def settle(self) -> None:
        """Wait for everything the device was asked to do."""
        self.namespace.cuda.runtime.deviceSynchronize()

    def store(self, buffer: Buffer, given: Any, dtype: np.dtype[Any], precision: Precision | None) -> bool:
        """Write an input, rounded once."""
        if not _is_common(dtype):
            return Arrays.store(self, buffer, self.namespace.asnumpy(given), dtype, precision)
        source = self.namespace.asarray(given)
        if precision is None:
            _check_range(source, dtype)
        with np.errstate(all="ignore"):
            values = source.astype(dtype)
        self.backend.device.array(buffer, dtype)[:] = values.reshape(-1)
        lost = self.namespace.isfinite(source.astype(np.float64)) & ~self.namespace.isfinite(values)
        return precision is not None and bool(lost.any())

    def fetch(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array of an output."""
        if not _is_common(dtype):
            return Arrays.fetch(self, buffer, shape, dtype)
        return self.backend.device.array(buffer, dtype).reshape(shape).copy()

    def all_finite(self, array: Any) -> bool:
        """Whether an array has no infinity and no NaN."""
        if isinstance(array, np.ndarray):
            return Arrays.all_finite(self, array)
        return array.dtype.kind in "iub" or bool(self.namespace.isfinite(array).all())

    def returned(self, array: Any, converted: bool) -> Any:
        """Return an output, in fp64 where that is wanted; one of a type the module lacks is NumPy's where it is not."""
        if array.dtype.kind in "iub":
            return self.namespace.asarray(array)
        if converted:
            return self.namespace.asarray(array.astype(np.float64))
        return array if not _is_common(array.dtype) else self.namespace.asarray(array)


def in_memory_of(backend: Backend, inputs: Mapping[str, Any]) -> Arrays:
    """Return how inputs get to a backend: as the device's arrays where one of them is such an array.

    Raises:
        MptuneError: it is, and the backend's device has no arrays.
    """
    on_device = [name for name, array in inputs.items() if hasattr(array, "__cuda_array_interface__")]
    if not on_device:
        return Arrays()
    namespace = backend.device.array_namespace()
    if namespace is None:
        raise MptuneError(f"input {on_device[0]!r} is on a GPU, and the backend {backend.name} takes NumPy's arrays")
    return DeviceArrays(backend, namespace)


def stored(given: Any, dtype: np.dtype[Any], precision: Precision | None) -> tuple[NDArray[Any], bool]:
    """Return an array as it is stored, and whether a finite value in it became infinite or NaN.

    Raises:
        KernelError: integers do not fit their type.
    """
    array = np.asarray(given)
    if precision is None:
        _check_range(array, dtype)
        return np.asarray(array, dtype=dtype, order="C"), False
    if array.dtype == dtype:
        return np.ascontiguousarray(array).reshape(array.shape), False
    values = np.ascontiguousarray(array, dtype=np.float64).reshape(array.shape)
    with np.errstate(all="ignore"):
        found = convert(np.atleast_1d(values), precision)[0].reshape(array.shape)
    before, after = np.isfinite(values), np.isfinite(found.astype(np.float64))
    return found, bool((before & ~after).any())


def _check_range(array: Any, dtype: np.dtype[Any]) -> None:
    if array.dtype == dtype or not array.size:
        return
    low, high, limits = int(array.min()), int(array.max()), np.iinfo(dtype)
    if low < limits.min or high > limits.max:
        raise KernelError(f"integers from {low} to {high} do not fit {dtype}")


def _is_common(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iub" or dtype.name in _COMMON


# -- one configuration ---------------------------------------------------------------------------


class _Memory:
    """Buffers of arguments, which calls at the same sizes share."""

    def __init__(self, tunable: Tunable, configuration: Configuration, backend: Backend) -> None:
        self._tunable = tunable
        self._configuration = configuration
        self._backend = backend
        self._buffers: dict[str, Buffer] = {}

    def buffer(self, argument: Argument, sizes: Sizes) -> Buffer:
        """Return the memory of an argument: that of the last call, if it is of this size."""
        name, shape = argument.name, self._tunable.shape_of(argument, sizes)
        if min(shape) < 1:
            raise KernelError(f"argument {name!r} of {self._tunable.called} has shape {shape} at {sizes}")
        nbytes = math.prod(shape) * self._tunable.dtype_of(argument, self._configuration).itemsize
        if name in self._buffers and self._buffers[name].nbytes != nbytes:
            self._buffers.pop(name).free()
        if name not in self._buffers:
            self._buffers[name] = self._backend.device.allocate(nbytes)
        return self._buffers[name]

    def free(self) -> None:
        """Give it back."""
        while self._buffers:
            self._buffers.popitem()[1].free()


def _doubts(overflowing: Mapping[str, Precision | None], outputs: Mapping[str, Any], arrays: Arrays) -> str:
    """Say why outputs are not to be relied on: of inputs that overflow in their types, or of what is not finite."""
    lost = [f"input {name!r} overflows in {precision}" for name, precision in overflowing.items()]
    infinite = [f"output {name!r} is not finite" for name, array in outputs.items() if not arrays.all_finite(array)]
    return "; ".join((*lost, *infinite))


def _on_host(given: Any) -> Any:
    return given.get() if hasattr(given, "__cuda_array_interface__") else given


class Launcher:
    """One configuration of a kernel on a backend, with its code and buffers, which calls at the same sizes share."""

    def __init__(self, kernel: Kernel, configuration: Configuration, backend: Backend, options: CompileOptions) -> None:
        self._kernel = kernel
        self._configuration = configuration
        self._backend = backend
        self._options = options
        self._sizes: Sizes | None = None
        self._source = ""
        self._loaded: Function | None = None
        self._memory = _Memory(kernel, configuration, backend)

    def run(self, inputs: Mapping[str, Any], sizes: Sizes, arrays: Arrays) -> tuple[dict[str, Any], str]:
        """Return the outputs by name as they are stored, and why they are not to be relied on.

        ``inputs`` are those of :func:`inputs_from`.

        Raises:
            CompileError: the compiler rejected the source.
            OutOfMemoryError: the device cannot hold the arguments.
            LaunchError: the device refused or aborted a launch.
            KernelError: an integer does not fit its type.
        """
        kernel = self._kernel
        function = self._function(sizes)
        shape = kernel.launch_shape(self._configuration, sizes)
        passed: dict[str, LaunchArgument] = {}
        buffers: dict[str, Buffer] = {}
        overflowing = {}
        arrays.settle()
        for argument in kernel.arguments:
            name, dtype = argument.name, kernel.dtype_of(argument, self._configuration)
            precision = kernel.precision_of(argument, self._configuration)
            overflows = False
            if argument.is_constant or argument.role is Role.SCALAR:
                values, overflows = stored(_on_host(inputs[name]), dtype, precision)
                if argument.is_constant:
                    function.set_constant(name, values)
                else:
                    scalar: np.generic = values.reshape(1)[0]
                    passed[name] = scalar
            else:
                passed[name] = buffers[name] = self._memory.buffer(argument, sizes)
                if argument.is_input:
                    overflows = arrays.store(buffers[name], inputs[name], dtype, precision)
            if overflows:
                overflowing[name] = precision
        arrays.settle()
        function.launch(shape, tuple(passed.values()))
        outputs = {}
        for output in kernel.outputs:
            dtype = kernel.dtype_of(output, self._configuration)
            outputs[output.name] = arrays.fetch(buffers[output.name], kernel.shape_of(output, sizes), dtype)
        return outputs, _doubts(overflowing, outputs, arrays)

    def close(self) -> None:
        """Give memory and code back."""
        self._memory.free()
        if self._loaded is not None:
            self._loaded.unload()
            self._loaded, self._sizes, self._source = None, None, ""

    def _function(self, sizes: Sizes) -> Function:
        """Return the code for these sizes."""
        if self._loaded is not None and sizes == self._sizes:
            return self._loaded
        source = render(self._kernel, self._configuration, sizes)
        if self._loaded is None or source != self._source:
            try:
                binary = self._backend.compiler.compile(source, self._kernel.function, self._options)
            except CompileError as error:
                raise CompileError(cited(str(error), self._kernel, self._configuration, sizes)) from error
            loaded = self._backend.device.load(binary)
            if self._loaded is not None:
                self._loaded.unload()
            self._loaded = loaded
        self._sizes, self._source = sizes, source
        return self._loaded


class ApplicationLauncher:
    """One configuration of an application on a backend, with its code and buffers, which calls at the same sizes share.

    Attributes:
        stepper: what ran the steps last; None before, and once it is closed.
    """

    def __init__(
        self, application: Application, configuration: Configuration, backend: Backend, options: CompileOptions
    ) -> None:
        self._application = application
        self._configuration = application.own(configuration)
        self._backend = backend
        self._options = options
        self._sizes: Sizes | None = None
        self.stepper: Stepper | None = None
        self._memory = _Memory(application, self._configuration, backend)

    def run(self, inputs: Mapping[str, Any], sizes: Sizes, arrays: Arrays) -> tuple[dict[str, Any], str]:
        """Return the outputs by name as they are stored, and why they are not to be relied on.

        ``inputs`` are those of :func:`inputs_from`.

        Raises:
            KernelError: the steps fail, or launch what does not fit; or an integer does not fit its type.
            ConstraintError: a launch is of a configuration the kernel does not have.
            CompileError: a kernel does not compile.
            OutOfMemoryError: the device cannot hold the buffers.
            LaunchError: the device refused or aborted a launch.
        """
        application = self._application
        memory: dict[str, Buffer] = {}
        scalars: dict[str, float | int] = {}
        overflowing = {}
        arrays.settle()
        for argument in application.arguments:
            name, dtype = argument.name, application.dtype_of(argument, self._configuration)
            precision = application.precision_of(argument, self._configuration)
            overflows = False
            if argument.role is Role.SCALAR:
                values, overflows = stored(_on_host(inputs[name]), dtype, precision)
                scalars[name] = int(values.reshape(1)[0]) if precision is None else float(values.reshape(1)[0])
            else:
                memory[name] = self._memory.buffer(argument, sizes)
                if argument.is_input:
                    overflows = arrays.store(memory[name], inputs[name], dtype, precision)
                else:
                    # As where it was measured: what is read before anything wrote it is NaN.
                    memory[name].write(poisoned(application.shape_of(argument, sizes), dtype))
            if overflows:
                overflowing[name] = precision
        arrays.settle()
        if self.stepper is None or sizes != self._sizes:
            if self.stepper is not None:
                self.stepper.unload()
            self.stepper = Stepper(application, self._configuration, sizes, self._backend, self._options)
            self._sizes = sizes
        _, left = self.stepper.run(memory, scalars)
        outputs = {}
        for output in application.outputs:
            dtype = application.dtype_of(output, self._configuration)
            outputs[output.name] = arrays.fetch(left[output.name], application.shape_of(output, sizes), dtype)
        return outputs, _doubts(overflowing, outputs, arrays)

    def close(self) -> None:
        """Give memory and code back."""
        self._memory.free()
        if self.stepper is not None:
            self.stepper.unload()
            self.stepper = None


def run_first(
    launchers: Iterable[ApplicationLauncher], inputs: Mapping[str, Any], sizes: Sizes, arrays: Arrays
) -> tuple[ApplicationLauncher, dict[str, Any]]:
    """Run the first of some configurations whose launches are all possible; return its launcher and the outputs.

    ``inputs`` are those of :func:`inputs_from`.

    Raises:
        KernelError: there is none.
    """
    refused: ConstraintError | None = None
    for launcher in launchers:
        try:
            return launcher, launcher.run(inputs, sizes, arrays)[0]
        except ConstraintError as error:
            launcher.close()
            refused = refused or error
    raise KernelError(f"no configuration in the widest types runs: {refused}")
