"""Running the steps of an application: its kernels launched by ordinary Python, on buffers of a device."""

from __future__ import annotations

import functools
import math
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.backends.base import Argument as LaunchArgument
from mptune.backends.base import Backend, Buffer, CompileOptions, Function
from mptune.buffers.conversion import convert
from mptune.errors import CompileError, ConstraintError, KernelError, MptuneError, UnknownNameError
from mptune.kernel import Application, Argument, In, Kernel, LaunchShape, Out, Role, Scalar, Sizes
from mptune.kernel.application import typed
from mptune.kernel.limits import device_constraints
from mptune.kernel.tunable import parsed
from mptune.precision import PRECISIONS, Precision, precision
from mptune.rendering import cited, render
from mptune.space.configuration import Configuration, Value
from mptune.space.constraints import compile_constraint
from mptune.space.parameters import PrecisionParameter

__all__ = ["Captured", "Handle", "Launched", "Stepper"]

_CONVERT: Final = """
extern "C" __global__ void mptune_convert(const {{ source_type }} * source, {{ target_type }} * target, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) target[i] = source[i];
}
"""
#: Copies a buffer to one of another type.
_CONVERSION: Final = Kernel(
    name="mptune_convert",
    parameters=[PrecisionParameter(name, list(PRECISIONS)) for name in ("source_type", "target_type")],
    arguments=[
        In("source", "n", precision="source_type"),
        Out("target", "n", precision="target_type"),
        Scalar("n", dtype="int64"),
    ],
    grid=["(n + 255) // 256"],
    block=[256],
    template=_CONVERT,
)


@dataclass(frozen=True, slots=True)
class Handle:
    """What steps pass to a kernel for a buffer."""

    name: str


@dataclass(frozen=True, slots=True)
class Launched:
    """What a launch was, whatever its types: which kernel, on which buffers, at which sizes."""

    kernel: str
    buffers: tuple[tuple[str, str], ...]  #: by argument, the name of the buffer
    sizes: tuple[tuple[str, int], ...]  #: the kernel's, in the order of their names


@dataclass(frozen=True, slots=True)
class Captured:
    """One launch of an application with the data it really had, in fp64 (integers in their type), by argument."""

    launched: Launched
    given: Mapping[str, Any]  #: buffers before it, constants and scalars
    left: Mapping[str, NDArray[Any]]  #: what it wrote


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A launch but for the memory of its buffers and the values of its scalars."""

    launched: Launched
    function: Function
    shape: LaunchShape
    passed: tuple[tuple[Argument, Precision | None], ...]  #: what the function takes, in order, each with its type
    constants: tuple[tuple[Argument, Precision | None], ...]


class Stepper:
    """One configuration of an application: its kernels compiled as launches first need them, and kept.

    Args:
        application: the application.
        configuration: of the application.
        sizes: its problem sizes, those that come from the data included.
        backend: compiles and launches.
        options: how to compile.
    """

    def __init__(
        self,
        application: Application,
        configuration: Configuration,
        sizes: Sizes,
        backend: Backend,
        options: CompileOptions | None = None,
    ) -> None:
        self.application = application
        self._configuration = application.own(configuration)
        self._sizes = sizes
        self._backend = backend
        self._options = options or CompileOptions()
        self._buffers = {a.name: a for a in application.arguments if a.role is not Role.SCALAR}
        self._types = {a.name: application.precision_of(a, self._configuration) for a in application.arguments}
        self._axes = {name for kernel in application.kernels.values() for name in _size_names(kernel)}
        self._shapes = {name: application.shape_of(argument, sizes) for name, argument in self._buffers.items()}
        self._functions: dict[Any, Function] = {}
        self._prepared: dict[Any, _Prepared] = {}
        #: What was launched in the last run: how often, and how long all of it took in milliseconds.
        self.counts: Counter[Launched] = Counter()
        self.times_ms: defaultdict[Launched, float] = defaultdict(float)
        #: Launches whose data is to be kept, each at its n-th time in a run, and what has been kept.
        self._wanted: Mapping[Launched, int] = {}
        self.captured: list[Captured] = []

    def capture(self, wanted: Mapping[Launched, int]) -> None:
        """Keep the data of launches in the next run, each at its n-th time."""
        self._wanted, self.captured = wanted, []

    def run(self, memory: Mapping[str, Buffer], scalars: Mapping[str, float | int]) -> tuple[float, dict[str, Buffer]]:
        """Run the steps once, and return how many milliseconds that took and the memory of each buffer at the end.

        Args:
            memory: of each buffer, in the type it has in the configuration.
            scalars: the application's scalars.

        Raises:
            KernelError: the steps fail, or launch what does not fit.
            ConstraintError: a launch is of a configuration the kernel does not have.
            CompileError: a kernel does not compile.
            LaunchError: the device refused or aborted a launch.
        """
        self.counts, self.times_ms = Counter(), defaultdict(float)
        steps = _Steps(self, dict(memory), scalars)
        start = time.perf_counter()
        try:
            self.application.steps(steps, self._sizes)
        except (MptuneError, MemoryError):
            raise
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1]
            where = f" (line {line.lineno} of {line.name})" if line.lineno else ""
            name = self.application.called
            raise KernelError(f"steps of {name} failed: {type(error).__name__}: {error}{where}") from error
        return (time.perf_counter() - start) * 1e3, steps.memory

    @property
    def left_running(self) -> str:
        """What launches left behind that can go on writing, in words; empty if there is nothing."""
        return "; ".join(dict.fromkeys(f.left_running for f in self._functions.values() if f.left_running))

    def unload(self) -> None:
        """Release the code of all kernels; what is launched next is loaded anew, with nothing left of before."""
        self._prepared.clear()
        while self._functions:
            self._functions.popitem()[1].unload()

    # -- for the steps -------------------------------------------------------------------------

    def launch(self, name: str, given: Mapping[str, Any], memory: Mapping[str, Buffer]) -> None:
        """Launch a kernel of the application on arguments by name."""
        kernel = self.application.kernels[name]
        key = (
            name,
            *((k, v) for k, v in given.items() if isinstance(v, Handle) or (type(v) is int and k in self._axes)),
        )
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self._prepared[key] = self._prepare(kernel, given)
        for argument, chosen in prepared.constants:
            prepared.function.set_constant(argument.name, _stored(given[argument.name], chosen, argument))
        sizes = dict(prepared.launched.sizes)
        arguments: list[LaunchArgument] = []
        for argument, chosen in prepared.passed:
            value: Any = given.get(argument.name, sizes.get(argument.name))
            arguments.append(memory[value.name] if isinstance(value, Handle) else _scalar(value, chosen, argument))
        self.counts[prepared.launched] += 1
        if self._wanted.get(prepared.launched) == self.counts[prepared.launched]:
            with self._captured(prepared.launched, given, memory):
                prepared.function.launch(prepared.shape, arguments)
            return
        self.times_ms[prepared.launched] += prepared.function.launch(prepared.shape, arguments)

    @contextmanager
    def _captured(self, launched: Launched, given: Mapping[str, Any], memory: Mapping[str, Buffer]) -> Iterator[None]:
        """Keep what a launch in the block is given and what it writes."""
        kernel, buffers = self.application.kernels[launched.kernel], dict(launched.buffers)
        arguments = {argument.name: argument for argument in kernel.arguments}
        before: dict[str, Any] = {
            name: value for name, value in given.items() if name in arguments and not isinstance(value, Handle)
        }
        for name, buffer in buffers.items():
            if arguments[name].is_input:
                before[name] = self.read(buffer, memory[buffer])
        yield
        written = [name for name in buffers if arguments[name].role is not Role.IN]
        after = {name: self.read(buffers[name], memory[buffers[name]]) for name in written}
        self.captured.append(Captured(launched, before, after))

    def copy(self, source: str, target: str, memory: Mapping[str, Buffer]) -> None:
        """Copy a buffer to another of as many elements, converted where their types differ."""
        one, other = self._types[source], self._types[target]
        elements = math.prod(self._shapes[source])
        if elements != math.prod(self._shapes[target]):
            raise KernelError(
                f"{self.application.called}: run.copy from {source!r} {self._shapes[source]} to {target!r} "
                f"{self._shapes[target]}: they have different sizes"
            )
        if self._dtype(source) == self._dtype(target):
            memory[target].copy_from(memory[source])
        elif one is None or other is None:
            raise KernelError(f"{self.application.called}: run.copy does not convert integers ({source!r}, {target!r})")
        else:
            types = Configuration({"source_type": one.name, "target_type": other.name})
            sizes = Sizes({"n": elements})
            function = self._function(_CONVERSION, types, sizes)
            arguments: list[LaunchArgument] = [memory[source], memory[target], np.int64(elements)]
            function.launch(_CONVERSION.launch_shape(types, sizes), arguments)

    def read(self, name: str, buffer: Buffer) -> NDArray[Any]:
        """Return a buffer's values: in fp64, integers in their type."""
        array = np.empty(self._shapes[name], self._dtype(name))
        buffer.read(array)
        return array if self._types[name] is None else array.astype(np.float64)

    def write(self, name: str, values: Any, buffer: Buffer) -> None:
        """Write values to a buffer, rounded to its type; one number fills it."""
        array = np.broadcast_to(np.asarray(values), self._shapes[name])
        chosen = self._types[name]
        if chosen is None:
            stored = np.ascontiguousarray(array, dtype=self._dtype(name))
        else:
            stored, _ = convert(np.atleast_1d(np.ascontiguousarray(array, dtype=np.float64)), chosen)
        buffer.write(np.ascontiguousarray(stored))

    def check_swap(self, one: str, other: str) -> None:
        """Check that two buffers can change places.

        Raises:
            KernelError: they differ in shape or type.
        """
        if (self._shapes[one], self._dtype(one)) != (self._shapes[other], self._dtype(other)):
            raise KernelError(
                f"{self.application.called}: run.swap needs buffers of one shape and type; {one!r} is "
                f"{self._dtype(one)} {self._shapes[one]}, {other!r} {self._dtype(other)} {self._shapes[other]}"
            )

    def choice(self, name: str) -> Value:
        """Return the value of one of the application's own parameters."""
        return self._configuration[name]

    # -- launches ------------------------------------------------------------------------------

    def _prepare(self, kernel: Kernel, given: Mapping[str, Any]) -> _Prepared:
        """Return a launch of a kernel on arguments by name, compiled."""
        what = f"{self.application.called}: launch of {kernel.name}"
        by_name = {argument.name: argument for argument in kernel.arguments}
        for name in given:
            if name not in by_name and name not in _size_names(kernel):
                raise UnknownNameError(f"argument of {what}:", name, [*by_name, *_size_names(kernel)])
        types: dict[str, Value] = {}
        handles: dict[str, str] = {}
        for argument in kernel.passed:
            if argument.role is not Role.SCALAR:
                handles[argument.name] = self._handle(what, argument, given)
                self._take_type(what, kernel, argument, handles[argument.name], types)
        sizes = self._sizes_of(what, kernel, given, handles)
        try:
            configuration = self.application.of_kernel(kernel.name, types, self._configuration)
        except KernelError as error:
            raise ConstraintError(f"{what}: {error}") from error
        self._check_valid(what, kernel, configuration, sizes)
        for name, buffer in handles.items():
            shape = kernel.shape_of(by_name[name], sizes)
            if math.prod(shape) != math.prod(self._shapes[buffer]):
                raise KernelError(
                    f"{what}: {name!r} is to have shape {shape} at {sizes}, and buffer {buffer!r} has shape "
                    f"{self._shapes[buffer]}"
                )
        for argument in kernel.arguments:
            if argument.name not in handles and argument.name not in given and argument.name not in sizes:
                raise KernelError(f"{what}: it needs {argument.name!r}")
        launched = Launched(kernel.name, tuple(handles.items()), tuple(sorted(sizes.items())))
        launch_shape = kernel.launch_shape(configuration, sizes)
        function = self._function(kernel, configuration, sizes)
        passed = tuple((a, kernel.precision_of(a, configuration)) for a in kernel.passed)
        constants = tuple((a, kernel.precision_of(a, configuration)) for a in kernel.arguments if a.is_constant)
        return _Prepared(launched, function, launch_shape, passed, constants)

    def _handle(self, what: str, argument: Argument, given: Mapping[str, Any]) -> str:
        """Return the name of the buffer that is passed for an argument."""
        if argument.name not in given:
            raise KernelError(f"{what}: it needs a buffer {argument.name!r}")
        value = given[argument.name]
        if not isinstance(value, Handle):
            raise KernelError(f"{what}: {argument.name!r} needs a buffer (run.NAME), not {type(value).__name__}")
        if argument.role is not Role.IN and self._buffers[value.name].role is Role.IN:
            raise KernelError(
                f"{what} writes to {value.name!r} (its argument {argument.name!r}), which is an input: declare that "
                "InOut or Scratch, or name it in outputs"
            )
        return value.name

    def _take_type(self, what: str, kernel: Kernel, argument: Argument, buffer: str, types: dict[str, Value]) -> None:
        """Take the type of an argument from the buffer that is passed."""
        chosen = self._types[buffer]
        stored = self._buffers[buffer].dtype if chosen is None else chosen.name
        if argument.precision in typed(kernel) and chosen is not None:
            known = types.setdefault(argument.precision, chosen.name)
            if known != chosen.name:
                raise ConstraintError(
                    f"{what}: {argument.precision!r} is the type of several arguments, {buffer!r} is {chosen.name} and "
                    f"another one {known}: give them one type, or convert (run.copy)"
                )
            return
        wanted = argument.dtype or argument.precision
        if stored != wanted and (argument.precision is None or stored != precision(argument.precision).name):
            raise KernelError(f"{what}: {argument.name!r} is {wanted}, and buffer {buffer!r} is {stored}")

    def _sizes_of(self, what: str, kernel: Kernel, given: Mapping[str, Any], handles: Mapping[str, str]) -> Sizes:
        """Return the sizes of a launch: those given, the application's, and those of the buffers."""
        names = _size_names(kernel)
        sizes = {name: int(given[name]) for name in names if isinstance(given.get(name), int | np.integer)}
        sizes |= {name: self._sizes[name] for name in names if name in self._sizes and name not in sizes}
        for argument in kernel.arguments:
            if argument.name in handles:
                shape = self._shapes[handles[argument.name]]
                shape = shape if len(shape) == len(argument.shape) else (math.prod(shape),)
                if len(shape) == len(argument.shape):
                    for axis, extent in zip(argument.shape, shape, strict=True):
                        if axis in names:
                            sizes.setdefault(axis, extent)
        if missing := [name for name in names if name not in sizes]:
            raise KernelError(f"{what}: size {', '.join(missing)} is not known; give it as an argument of the launch")
        return Sizes(sizes)

    def _check_valid(self, what: str, kernel: Kernel, configuration: Configuration, sizes: Sizes) -> None:
        limits = device_constraints(kernel, self._backend.device.constraints())
        for constraint in (*kernel.constraints, *limits):
            compiled = compile_constraint(constraint, kernel.parameter_names, dict(sizes))
            if not compiled.holds(configuration):
                raise ConstraintError(f"{what}: {configuration} breaks {compiled.text!r} at {sizes}")

    def _function(self, kernel: Kernel, configuration: Configuration, sizes: Sizes) -> Function:
        key = (kernel.name, configuration, tuple(sizes.items()))
        if key not in self._functions:
            try:
                source = render(kernel, configuration, sizes)
                binary = self._backend.compiler.compile(source, kernel.function, self._options)
            except CompileError as error:
                raise CompileError(cited(str(error), kernel, configuration, sizes)) from error
            self._functions[key] = self._backend.device.load(binary)
        return self._functions[key]

    def _dtype(self, name: str) -> np.dtype[Any]:
        chosen = self._types[name]
        return np.dtype(self._buffers[name].dtype) if chosen is None else chosen.dtype


@functools.lru_cache(maxsize=256)
def _size_names(kernel: Kernel) -> tuple[str, ...]:
    """Return the names a kernel's shapes and extents use that are no parameters."""
    if kernel.sizes:
        return (*kernel.sizes["default"], *kernel.data_sizes)
    texts = [axis for argument in kernel.arguments for axis in argument.shape]
    texts += [str(extent) for extent in (*kernel.grid, *kernel.block, kernel.shared_bytes, kernel.launches)]
    used = {name for text in texts for name in parsed(text).names}
    return tuple(sorted(used - set(kernel.parameter_names)))


def _scalar(value: Any, chosen: Precision | None, argument: Argument) -> np.generic:
    """Return a number in the type of a scalar argument."""
    if chosen is None:
        return np.dtype(argument.dtype).type(value)
    found: np.generic = convert(np.array([value], np.float64), chosen)[0][0]
    return found


def _stored(values: Any, chosen: Precision | None, argument: Argument) -> NDArray[Any]:
    """Return an array in the type of an argument in constant memory."""
    if chosen is None:
        return np.ascontiguousarray(values, dtype=argument.dtype)
    return convert(np.ascontiguousarray(values, dtype=np.float64), chosen)[0]


class _Steps:
    """What the steps of an application are given as ``run``: kernels to call, buffers to pass, scalars and choices."""

    def __init__(self, stepper: Stepper, memory: dict[str, Buffer], scalars: Mapping[str, float | int]) -> None:
        self.memory = memory
        self._stepper = stepper
        self._scalars = scalars

    def __getattr__(self, name: str) -> Any:
        application = self._stepper.application
        if name in application.kernels:
            return lambda **given: self._stepper.launch(name, given, self.memory)
        if name in self.memory:
            return Handle(name)
        if name in self._scalars:
            return self._scalars[name]
        if name in application.parameter_names:
            return self._stepper.choice(name)
        known = [*application.kernels, *self.memory, *self._scalars, *(p.name for p in application.shared), *_FUNCTIONS]
        raise UnknownNameError(f"name after run. in the steps of {application.called}:", name, known)

    def read(self, buffer: Handle | str) -> NDArray[Any]:
        """Return a buffer's values as an array of its shape: in fp64, integers in their type."""
        name = self._named("read", buffer)
        return self._stepper.read(name, self.memory[name])

    def write(self, buffer: Handle | str, values: Any) -> None:
        """Write values to a buffer, rounded to its type; a single number fills it."""
        name = self._named("write", buffer)
        self._stepper.write(name, values, self.memory[name])

    fill = write

    def copy(self, source: Handle | str, target: Handle | str) -> None:
        """Copy a buffer to another one, on the device, converted where their types differ."""
        self._stepper.copy(self._named("copy", source), self._named("copy", target), self.memory)

    def swap(self, one: Handle | str, other: Handle | str) -> None:
        """Let two buffers of one shape and type change places, without copying."""
        first, second = self._named("swap", one), self._named("swap", other)
        self._stepper.check_swap(first, second)
        self.memory[first], self.memory[second] = self.memory[second], self.memory[first]

    def _named(self, function: str, buffer: Handle | str) -> str:
        name = buffer.name if isinstance(buffer, Handle) else buffer
        if name not in self.memory:
            raise UnknownNameError(
                f"buffer in run.{function} of {self._stepper.application.called}:", name, self.memory
            )
        return name


_FUNCTIONS: Final = ("copy", "fill", "read", "swap", "write")
