"""One configuration of a kernel or an application: compiled, loaded, and run on buffers."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from mptune.backends.base import Argument as LaunchArgument
from mptune.backends.base import Backend, Binary, Buffer, CompileOptions, Function
from mptune.data.conversion import round_to
from mptune.errors import CompileError, ConstraintError, KernelError, MptuneError, UnknownNameError, raised_at
from mptune.kernel import Application, Argument, In, Kernel, LaunchShape, Out, Role, Scalar, Sizes, Tunable
from mptune.kernel.application import typed
from mptune.kernel.limits import device_constraints
from mptune.kernel.tunable import parsed
from mptune.precision import PRECISIONS, Precision, precision
from mptune.results.kernel_times import FEWEST, HOST_MS, LAUNCHES, MOST, TIME_MS
from mptune.source.render import cited, render
from mptune.space.configuration import Configuration, Value
from mptune.space.constraints import compile_constraint
from mptune.space.parameters import PrecisionParameter, names_of_precisions

if TYPE_CHECKING:
    from mptune.measure.buffers import Buffers

#: Copies a buffer to one of another type.
CONVERSION: Final = Kernel(
    name="mptune_convert",
    parameters=[PrecisionParameter(name, list(PRECISIONS)) for name in ("source_type", "target_type")],
    arguments=[
        In("source", "n", precision="source_type"),
        Out("target", "n", precision="target_type"),
        Scalar("n", dtype="int64"),
    ],
    grid=["(n + 255) // 256"],
    block=[256],
    template="""
extern "C" __global__ void mptune_convert(const {{ source_type }} * source, {{ target_type }} * target, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) target[i] = source[i];
}
""",
)

_Found = TypeVar("_Found")


#: The functions that steps call.
_FUNCTIONS: Final = ("copy", "fill", "read", "record", "swap", "write")


@dataclass(frozen=True, slots=True)
class Handle:
    """A buffer that steps pass to a kernel."""

    name: str


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch regardless of its types."""

    kernel: str
    buffers: tuple[tuple[str, str], ...]  #: argument and buffer
    sizes: tuple[tuple[str, int], ...]  #: of the kernel, by name


@dataclass(slots=True)
class _Launch:
    """A launch without the memory of its buffers and the values of its scalars; count and time of the latest run."""

    launched: Launched
    function: Function
    shape: LaunchShape
    #: Arguments in the function's order: None for a buffer, a number, or the conversion of a given scalar.
    passed: tuple[tuple[str, np.generic | Callable[[Any], np.generic] | None], ...]
    constants: tuple[tuple[Argument, Precision | None], ...]
    count: int = 0
    time_ms: float = 0.0


class Program:
    """One configuration of a kernel or an application, compiled and loaded.

    A kernel is one launch, timed by the device. The steps of an application make its launches; the wall clock times
    the steps as a whole, and a kernel is compiled for its first launch. ``source`` is the rendered source of a kernel,
    if known.

    Attributes:
        types: types by argument; None for integers.
        binary: the code of a kernel; None for an application.
    """

    def __init__(
        self,
        tunable: Tunable,
        configuration: Configuration,
        sizes: Sizes,
        backend: Backend,
        options: CompileOptions | None = None,
        *,
        source: str = "",
    ) -> None:
        self.tunable = tunable
        self.configuration = tunable.own(configuration)
        self.sizes = sizes
        self.backend = backend
        self.binary: Binary | None = None
        self.arguments = {a.name: a for a in tunable.arguments}
        self.types = {a.name: self.held(a, tunable.precision_of(a, self.configuration)) for a in tunable.arguments}
        self.shapes = {a.name: tunable.shape_of(a, sizes) for a in tunable.arguments if a.role is not Role.SCALAR}
        self._options = options or CompileOptions()
        #: Surrounds a compilation within a run.
        self.compiling: Callable[[], AbstractContextManager[None]] = nullcontext
        self._source = source if isinstance(tunable, Kernel) else ""
        self._functions: dict[Any, Function] = {}
        self._launches: dict[Any, _Launch] = {}
        #: Metrics recorded by the steps of the latest run.
        self.recorded: dict[str, float] = {}
        self._latest: dict[str, _Launch] = {}
        self._elapsed_ms = math.nan
        #: Launches of each kernel in the runs on the same buffers.
        self._ran_on: Buffers | None = None
        self._counts: dict[str, list[int]] = {}
        #: A kernel's function; None for an application.
        self._single: Function | None = None
        if isinstance(tunable, Kernel):
            self._shape = tunable.launch_shape(self.extents_of(tunable, self.configuration), sizes)
            self._single = self._function(tunable, self.configuration, sizes)
        else:
            assert isinstance(tunable, Application)
            self._axes = {name for kernel in tunable.kernels.values() for name in size_names(kernel)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unload()

    def run(self, buffers: Buffers) -> float:
        """Run once and return milliseconds; raises ConstraintError for types that a kernel does not allow."""
        if self._single is not None:
            return self._single.launch(self._shape, buffers.passed)
        return self._run_steps(buffers)

    def enqueue(self, buffers: Buffers, count: int = 1) -> None:
        """Run ``count`` times, without waiting if the device allows it; only after :meth:`run`."""
        if self._single is not None:
            self._single.enqueue(self._shape, buffers.passed, count)
            return
        for _ in range(count):
            self._run_steps(buffers)

    def wait(self) -> None:
        """Wait for all enqueued runs."""
        if self._single is not None:
            self._single.wait()

    @property
    def function(self) -> Function:
        """A kernel's function."""
        assert self._single is not None
        return self._single

    def resources(self) -> Mapping[str, float]:
        """Return registers, shared memory and occupancy of a kernel, where the driver reports them."""
        return {} if self._single is None else self._single.resources(self._shape)

    def metrics(self) -> dict[str, float]:
        """Return the launches and times within an application's latest run; empty for a kernel."""
        if self._single is not None:
            return {}
        counts, times_ms = self._by_kernel()
        found: dict[str, float] = {LAUNCHES + name: count for name, count in counts.items()}
        found |= {TIME_MS + name: time_ms for name, time_ms in times_ms.items()}
        found[HOST_MS] = max(0.0, self._elapsed_ms - math.fsum(times_ms.values()))
        for name, several in self._counts.items():
            if len(set(several)) > 1:
                found |= {FEWEST + name: min(several), MOST + name: max(several)}
        return {**found, **self.recorded}

    @property
    def launched(self) -> dict[Launched, tuple[int, float]]:
        """The count of each launch in an application's latest run, and the milliseconds of all of them."""
        found: dict[Launched, tuple[int, float]] = {}
        for launch in self._launches.values():
            if launch.count:
                count, time_ms = found.get(launch.launched, (0, 0.0))
                found[launch.launched] = count + launch.count, time_ms + launch.time_ms
        return found

    @property
    def compiled(self) -> list[tuple[Kernel, Configuration, Sizes]]:
        """All kernels launched so far, conversions included, with their configurations and sizes."""
        return [(kernel, values, Sizes(sizes)) for kernel, values, sizes in self._functions]

    def unload(self) -> None:
        """Release the code."""
        self._launches.clear()
        self._latest.clear()
        while self._functions:
            self._functions.popitem()[1].unload()

    def dtype_of(self, name: str) -> np.dtype[Any]:
        """Return the NumPy type of an argument."""
        held = self.types[name]
        return np.dtype(self.arguments[name].dtype) if held is None else held.dtype

    def read(self, name: str, buffer: Buffer, part: range | None = None) -> NDArray[Any]:
        """Return a buffer's values, or those of some elements: in fp64, integers in their type."""
        array = np.empty(self.shapes[name] if part is None else len(part), self.dtype_of(name))
        self._part(name, buffer, part).read(array)
        return array if self.types[name] is None else array.astype(np.float64, copy=False)

    def write(self, name: str, values: NDArray[Any], buffer: Buffer, part: range | None = None) -> None:
        """Write values to a buffer, or to some elements, rounded to its type; one number fills it."""
        array = np.broadcast_to(values, self.shapes[name] if part is None else len(part))
        self._part(name, buffer, part).write(_stored(array, self.types[name], self.arguments[name]))

    def _part(self, name: str, buffer: Buffer, part: range | None) -> Buffer:
        size = self.dtype_of(name).itemsize
        return buffer if part is None else buffer.part(part.start * size, len(part) * size)

    def convert(self, source: str, target: str, memory: Mapping[str, Buffer]) -> None:
        """Copy a buffer to a buffer of the same number of elements in another type."""
        types = Configuration({"source_type": str(self.types[source]), "target_type": str(self.types[target])})
        elements = math.prod(self.shapes[source])
        sizes = Sizes({"n": elements})
        function = self._function(CONVERSION, types, sizes)
        function.launch(CONVERSION.launch_shape(types, sizes), [memory[source], memory[target], np.int64(elements)])

    def require_writable(self, what: str, buffer: str, of_it: str = "") -> None:
        """Raise a KernelError if a buffer is an input."""
        if self.arguments[buffer].role is Role.IN:
            raise KernelError(
                f"{what} writes to {buffer!r}{of_it}, which is an input: declare that InOut or Scratch, or name it in "
                "outputs"
            )

    # -- an application ------------------------------------------------------------------------

    def _run_steps(self, buffers: Buffers) -> float:
        application: Any = self.tunable
        for launch in self._launches.values():
            launch.count, launch.time_ms = 0, 0.0
        places = dict(buffers.memory)
        self.recorded = {}
        given = Steps(self, places, buffers.scalars)
        file = getattr(getattr(application.steps, "__code__", None), "co_filename", "")
        start = time.perf_counter()
        try:
            application.steps(given, self.sizes)
        except (KernelError, UnknownNameError) as error:
            raise KernelError(f"{error}{raised_at(error, file) if file else ''}") from error
        except (MptuneError, MemoryError):
            raise
        except (Exception, SystemExit, GeneratorExit) as error:
            what = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise KernelError(f"steps of {application.called} failed: {what}{raised_at(error, file)}") from error
        self._elapsed_ms = (time.perf_counter() - start) * 1e3
        buffers.places = places
        if buffers is not self._ran_on:
            self._ran_on, self._counts = buffers, {name: [] for name in application.kernels}
        counts, times_ms = self._by_kernel()
        for name, count in counts.items():
            self._counts[name].append(count)
        if application.timed == "launches":
            self._elapsed_ms = math.fsum(times_ms.values())
        return self._elapsed_ms

    def _by_kernel(self) -> tuple[dict[str, int], dict[str, float]]:
        application: Any = self.tunable
        counts, times_ms = dict.fromkeys(application.kernels, 0), dict.fromkeys(application.kernels, 0.0)
        for launch in self._launches.values():
            counts[launch.launched.kernel] += launch.count
            times_ms[launch.launched.kernel] += launch.time_ms
        return counts, times_ms

    def launch(self, name: str, given: Mapping[str, Any], memory: Mapping[str, Buffer]) -> None:
        """Launch a kernel of the application on arguments by name.

        This is part of the application's time, and a run may have thousands of launches, so a launch is prepared once.
        """
        axes = self._axes
        chosen = [v.name if type(v) is Handle else v if k in axes else type(v) for k, v in given.items()]
        key = (name, *given, *chosen)
        launch = self._launches.get(key)
        if launch is None:
            launch = self._launches[key] = self._prepare(name, given)
        for constant, held in launch.constants:
            launch.function.set_constant(constant.name, _stored(given[constant.name], held, constant))
        arguments: list[LaunchArgument] = [
            memory[given[argument].name] if how is None else how(given[argument]) if callable(how) else how
            for argument, how in launch.passed
        ]
        self._latest[name] = launch
        launch.count += 1
        launch.time_ms += launch.function.launch(launch.shape, arguments)

    def read_constant(self, kernel: str, name: str) -> NDArray[Any]:
        """Return what a kernel's latest launch left in memory that is declared as constant: in fp64, or as integers."""
        launch, application = self._latest[kernel], cast(Any, self.tunable)
        constant, held = next((each, held) for each, held in launch.constants if each.name == name)
        shape = application.kernels[kernel].shape_of(constant, self.sizes)
        array = np.empty(shape, constant.dtype if held is None else held.dtype)
        launch.function.read_constant(name, array)
        return array if held is None else array.astype(np.float64)

    def _prepare(self, name: str, given: Mapping[str, Any]) -> _Launch:
        application: Any = self.tunable
        kernel: Kernel = application.kernels[name]
        what = f"{application.called}: launch of {name}"
        by_name, axes = {argument.name: argument for argument in kernel.arguments}, size_names(kernel)
        for known in given:
            if known not in by_name and known not in axes:
                raise UnknownNameError(f"argument of {what}:", known, dict.fromkeys((*by_name, *axes)))
        for argument in kernel.arguments:
            if argument.name not in given and argument.name not in axes:
                raise KernelError(f"{what}: it needs {argument.name!r}")
            if argument.name in given and argument.role is Role.SCALAR:
                value = np.asarray(given[argument.name])
                if value.size != 1 or not _is_real(value):
                    raise KernelError(f"{what}: {argument.name!r} is to be a real number, not {given[argument.name]!r}")
        types: dict[str, Value] = {}
        handles: dict[str, str] = {}
        for argument in kernel.passed:
            if argument.role is not Role.SCALAR:
                handles[argument.name] = self._handle(what, argument, given[argument.name])
                self._take_type(what, kernel, argument, handles[argument.name], types)
        sizes = self._sizes_of(what, kernel, given, handles)
        try:
            configuration = application.of_kernel(name, types, self.configuration)
        except KernelError as error:
            raise ConstraintError(f"{what}: {error}") from error
        extents = self.extents_of(kernel, configuration)
        limits = device_constraints(kernel, self.backend.device.facts())
        precisions = names_of_precisions(kernel.parameters)
        for constraint in (*kernel.constraints, *limits):
            compiled = compile_constraint(constraint, kernel.parameter_names, dict(sizes), precisions)
            if not compiled.holds(extents):
                raise ConstraintError(f"{what}: {extents} breaks {compiled.text!r} at {sizes}")
        for argument_name, buffer in handles.items():
            shape = kernel.shape_of(by_name[argument_name], sizes)
            if math.prod(shape) != math.prod(self.shapes[buffer]):
                raise KernelError(
                    f"{what}: {argument_name!r} is to have shape {shape} at {sizes}, and buffer {buffer!r} has shape "
                    f"{self.shapes[buffer]}"
                )
        held = {a.name: self.held(a, kernel.precision_of(a, configuration)) for a in kernel.arguments}
        return _Launch(
            Launched(name, tuple(handles.items()), tuple(sorted(sizes.items()))),
            self._function(kernel, configuration, sizes),
            kernel.launch_shape(extents, sizes),
            tuple((a.name, _passing(a, held[a.name], given, sizes)) for a in kernel.passed),
            tuple((a, held[a.name]) for a in kernel.arguments if a.is_constant),
        )

    def _handle(self, what: str, argument: Argument, value: Any) -> str:
        if not isinstance(value, Handle):
            raise KernelError(f"{what}: {argument.name!r} needs a buffer (run.NAME), not {type(value).__name__}")
        if argument.role is not Role.IN:
            self.require_writable(what, value.name, f" (its argument {argument.name!r})")
        return value.name

    def _take_type(self, what: str, kernel: Kernel, argument: Argument, buffer: str, types: dict[str, Value]) -> None:
        chosen = self.types[buffer]
        stored = self.arguments[buffer].dtype if chosen is None else chosen.name
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
        """Return the sizes of a launch: given, of the application, or of the buffers."""
        sizes: dict[str, int] = {}
        names = size_names(kernel)
        for name in names:
            if name in given and (isinstance(given[name], bool) or not isinstance(given[name], int | np.integer)):
                raise KernelError(f"{what}: size {name!r} is to be an integer, not {given[name]!r} (n // 2 is one)")
            if name in given or name in self.sizes:
                sizes[name] = int(given[name]) if name in given else self.sizes[name]
        for argument in kernel.arguments:
            if argument.name in handles:
                shape = self.shapes[handles[argument.name]]
                shape = shape if len(shape) == len(argument.shape) else (math.prod(shape),)
                if len(shape) == len(argument.shape):
                    for axis, extent in zip(argument.shape, shape, strict=True):
                        if axis in names:
                            sizes.setdefault(axis, extent)
        if missing := [name for name in names if name not in sizes]:
            raise KernelError(f"{what}: size {', '.join(missing)} is not known; give it as an argument of the launch")
        return Sizes(sizes)

    # -- overridden by instrumented programs --------------------------------------------------

    def held(self, argument: Argument, chosen: Precision | None) -> Precision | None:  # noqa: ARG002
        """Return the type in which a buffer holds an argument; None for integers."""
        return chosen

    def extents_of(self, kernel: Kernel, configuration: Configuration) -> Configuration:  # noqa: ARG002
        """Return the configuration for a kernel's constraints and launch shape."""
        return configuration

    def load(self, kernel: Kernel, configuration: Configuration, sizes: Sizes) -> Function:
        """Return a kernel's function, compiled and loaded."""
        compiler = self.backend.compiler
        if self._source:  # the caller cites lines of the template
            self.binary = compiler.compile(self._source, kernel.function, self._options)
            return self.backend.device.load(self.binary)
        try:
            with self.compiling():
                binary = compiler.compile(render(kernel, configuration, sizes), kernel.function, self._options)
        except CompileError as error:
            raise CompileError(cited(str(error), kernel, configuration, sizes)) from error
        return self.backend.device.load(binary)

    def _function(self, kernel: Kernel, configuration: Configuration, sizes: Sizes) -> Function:
        key = (kernel, configuration, tuple(sizes.items()))
        if key not in self._functions:
            self._functions[key] = self.load(kernel, configuration, sizes)
        return self._functions[key]


class Steps:
    """The argument ``run`` of an application's steps: kernels to call, buffers to pass, scalars and choices.

    ``memory`` maps names to buffers, which swaps exchange.
    """

    _application: Application
    _program: Program
    _memory: dict[str, Buffer]

    def __init__(self, program: Program, memory: dict[str, Buffer], scalars: Mapping[str, float | int]) -> None:
        application: Any = program.tunable
        given = self.__dict__  # avoids __getattr__ and __setattr__
        choices = (name for name in application.parameter_names if name not in _FUNCTIONS)
        given.update({name: program.configuration[name] for name in choices})
        given.update({**scalars, **{name: Handle(name) for name in memory}})
        given.update({name: functools.partial(self._launch, name) for name in application.kernels})
        given.update(_application=application, _program=program, _memory=memory)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # optional attributes of Python's protocols
            raise AttributeError(name)
        known = [each for each in self.__dict__ if each.isidentifier() and not each.startswith("_")]
        raise UnknownNameError(f"name after run. in the steps of {self._application.called}:", name, known)

    def __setattr__(self, name: str, value: Any) -> None:
        is_buffer = name in self._memory
        hint = f"write to the buffer: run.write(run.{name}, ...)" if is_buffer else "keep what you need in a variable"
        raise KernelError(f"{self._application.called}: run.{name} = ... changes nothing; {hint}")

    def read(self, buffer: Handle | str, start: int | None = None, count: int = 1) -> NDArray[Any]:
        """Return a buffer's values as an array of its shape: in fp64, integers in their type.

        With ``start`` it is ``count`` elements from there on.
        """
        name = self._named("read", buffer)
        return self._program.read(name, self._memory[name], self._part("read", name, start, count))

    def write(self, buffer: Handle | str, values: Any, start: int | None = None) -> None:
        """Write values to a buffer, rounded to its type; a single number fills it.

        With ``start`` they are written from that element on.
        """
        name, array = self._named("write", buffer, is_written=True), np.asarray(values)
        if not _is_real(array):
            kind = "None" if values is None else f"values of type {array.dtype}"
            raise KernelError(f"{self._application.called}: buffer {name!r} takes real numbers, not {kind}")
        part = self._part("write", name, start, array.size)
        self._program.write(name, array if part is None else array.reshape(-1), self._memory[name], part)

    fill = write

    def record(self, **numbers: float) -> None:
        """Keep numbers as metrics of the trial, such as the iterations until convergence."""
        self._program.recorded |= {name: float(value) for name, value in numbers.items()}

    def read_constant(self, kernel: str, name: str) -> NDArray[Any]:
        """Return what a kernel's latest launch left in constant memory, or in a variable of the device's memory."""
        return self._program.read_constant(kernel, name)

    def copy(self, source: Handle | str, target: Handle | str) -> None:
        """Copy a buffer to another on the device, converted if their types differ."""
        read, written = self._named("copy", source), self._named("copy", target, is_written=True)
        (one, dtype, shape), (other, to_dtype, to_shape) = self._kind(read), self._kind(written)
        called = self._application.called
        if math.prod(shape) != math.prod(to_shape):
            raise KernelError(f"{called}: run.copy from {read!r} {shape} to {written!r} {to_shape}: different sizes")
        if one is other and dtype == to_dtype:
            self._memory[written].copy_from(self._memory[read])
        elif one is None or other is None:
            raise KernelError(f"{called}: run.copy does not convert integers ({read!r}, {written!r})")
        else:
            self._program.convert(read, written, self._memory)

    def swap(self, one: Handle | str, other: Handle | str) -> None:
        """Exchange two buffers of one shape and type without copying."""
        first, second = self._named("swap", one), self._named("swap", other)
        called, program, arguments = self._application.called, self._program, self._program.arguments
        if self._kind(first) != self._kind(second):
            what = ", ".join(f"{name!r} is {program.dtype_of(name)} {program.shapes[name]}" for name in (first, second))
            raise KernelError(f"{called}: run.swap needs buffers of one shape and type; {what}")
        if (arguments[first].role is Role.IN) != (arguments[second].role is Role.IN):
            for buffer in (first, second):
                program.require_writable(f"{called}: run.swap", buffer)
        self._memory[first], self._memory[second] = self._memory[second], self._memory[first]

    def _part(self, function: str, name: str, start: int | None, count: int) -> range | None:
        if start is None:
            return None
        elements = math.prod(self._program.shapes[name])
        if not 0 <= start <= start + count <= elements:
            raise KernelError(
                f"{self._application.called}: run.{function} of {count} elements of {name!r} from {start} on: it has "
                f"{elements}"
            )
        return range(start, start + count)

    def _kind(self, name: str) -> tuple[Precision | None, np.dtype[Any], tuple[int, ...]]:
        return self._program.types[name], self._program.dtype_of(name), self._program.shapes[name]

    def _launch(self, kernel: str, /, *unnamed: Any, **given: Any) -> None:
        if unnamed:
            names = ", ".join(f"{argument.name}=..." for argument in self._application.kernels[kernel].arguments)
            called = self._application.called
            raise KernelError(f"{called}: run.{kernel} takes arguments by name: run.{kernel}({names})")
        self._program.launch(kernel, given, self._memory)

    def _named(self, function: str, buffer: Handle | str, *, is_written: bool = False) -> str:
        called = self._application.called
        name: Any = buffer.name if isinstance(buffer, Handle) else buffer
        if not isinstance(name, str):
            given = f"the kernel {name.args[0]!r}" if isinstance(name, functools.partial) else type(name).__name__
            raise KernelError(f"{called}: run.{function} needs a buffer (run.NAME), not {given}")
        if name not in self._memory:
            raise UnknownNameError(f"buffer in run.{function} of {called}:", name, self._memory)
        if is_written:
            self._program.require_writable(f"{called}: run.{function}", name)
        return name


def first_that_runs(
    configurations: Iterable[Configuration], run: Callable[[Configuration], _Found]
) -> tuple[Configuration, _Found]:
    """Return the first configuration whose launches are all possible, and the result of its run."""
    refused = None
    for configuration in configurations:
        try:
            return configuration, run(configuration)
        except ConstraintError as error:
            refused = refused or error
    raise refused or ConstraintError("there is no configuration")


@functools.lru_cache(maxsize=256)
def size_names(kernel: Kernel) -> tuple[str, ...]:
    """Return the names in a kernel's shapes and extents that are not parameters."""
    if kernel.sizes:
        return tuple(kernel.sizes["default"])
    texts = [axis for argument in kernel.arguments for axis in argument.shape]
    for what in ("grid", "block", "shared_bytes"):
        texts += kernel.expressions(what)
    used = {name for text in texts for name in parsed(text).names}
    return tuple(sorted(used - set(kernel.parameter_names)))


def _passing(
    argument: Argument, held: Precision | None, given: Mapping[str, Any], sizes: Sizes
) -> np.generic | Callable[[Any], np.generic] | None:
    if argument.role is not Role.SCALAR:
        return None
    to_type: Callable[[Any], np.generic] = np.dtype(argument.dtype if held is None else "float64").type
    if held is not None and held.name != "fp64":
        to_type = functools.partial(_rounded, held=held)
    return to_type if argument.name in given else to_type(sizes[argument.name])


def _is_real(array: NDArray[Any]) -> bool:
    """Whether values are real numbers, or objects that NumPy may convert."""
    objects = array.flat if array.dtype.kind == "O" else (None,)
    return array.dtype.kind in "biuf" or not any(isinstance(value, Handle | None) for value in objects)


def _rounded(value: Any, held: Precision) -> np.generic:
    found: np.generic = round_to(np.array([value], np.float64), held)[0]
    return found


def _stored(values: Any, held: Precision | None, argument: Argument) -> NDArray[Any]:
    if held is None:
        return np.ascontiguousarray(values, dtype=argument.dtype)
    return round_to(np.ascontiguousarray(values, dtype=np.float64), held)
