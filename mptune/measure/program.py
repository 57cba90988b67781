"""One configuration of a kernel or an application: compiled, loaded, and run on buffers."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

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
from mptune.measure.steps import Handle, Steps
from mptune.precision import PRECISIONS, Precision, precision
from mptune.results.kernel_times import FEWEST, HOST_MS, LAUNCHES, MOST, TIME_MS
from mptune.source.render import cited, render
from mptune.space.configuration import Configuration, Value
from mptune.space.constraints import compile_constraint
from mptune.space.parameters import PrecisionParameter

if TYPE_CHECKING:
    from mptune.measure.buffers import Buffers

__all__ = ["CONVERSION", "Launch", "Launched", "Program", "first_that_runs", "size_names"]

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


@dataclass(frozen=True, slots=True)
class Launched:
    """What a launch was, whatever its types: which kernel, on which buffers, at which sizes."""

    kernel: str
    buffers: tuple[tuple[str, str], ...]  #: by argument, the name of the buffer
    sizes: tuple[tuple[str, int], ...]  #: the kernel's, in the order of their names


@dataclass(slots=True)
class Launch:
    """A launch of an application but for the memory of its buffers and the values of its scalars.

    ``count`` and ``time_ms`` are those of the latest run.
    """

    launched: Launched
    function: Function
    shape: LaunchShape
    #: By name, in the order the function takes them: a buffer (None), a number, or how a given scalar is converted.
    passed: tuple[tuple[str, np.generic | Callable[[Any], np.generic] | None], ...]
    constants: tuple[tuple[Argument, Precision | None], ...]
    count: int = 0
    time_ms: float = 0.0

    def run(self, given: Mapping[str, Any], memory: Mapping[str, Buffer]) -> None:
        """Launch it on arguments by name."""
        for constant, held in self.constants:
            self.function.set_constant(constant.name, _stored(given[constant.name], held, constant))
        arguments: list[LaunchArgument] = [
            memory[given[argument].name] if how is None else how(given[argument]) if callable(how) else how
            for argument, how in self.passed
        ]
        self.count += 1
        self.time_ms += self.function.launch(self.shape, arguments)


class Program:
    """One configuration of a kernel or an application, compiled and loaded.

    A kernel is one launch, timed by the device. The steps of an application make its launches, timed by the wall clock
    together with what the steps do between them; a kernel of theirs is compiled when a launch first needs it.

    ``source`` is that of a kernel, if it has been rendered already.

    Attributes:
        types: by argument, the type in which it is held; None for integers.
        binary: the code of a kernel; None for an application.

    Raises:
        KernelError: a value is none of its parameter's, or an extent of a kernel's grid is below 1.
        CompileError: a kernel does not compile.
        LaunchError: its binary cannot be loaded.
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
        self._options = options or CompileOptions()
        self._source = source if isinstance(tunable, Kernel) else ""
        self._arguments = {a.name: a for a in tunable.arguments}
        self._buffers = {a.name: a for a in tunable.arguments if a.role is not Role.SCALAR}
        self.types = {a.name: self.held(a, tunable.precision_of(a, self.configuration)) for a in tunable.arguments}
        self._shapes = {name: tunable.shape_of(argument, sizes) for name, argument in self._buffers.items()}
        self._functions: dict[Any, Function] = {}
        self._single: Function | None = None
        self._launches: dict[Any, Launch] = {}
        self._elapsed_ms = math.nan
        #: By kernel, how often it was launched in each of the runs on the same buffers.
        self._ran_on: Buffers | None = None
        self._counts: dict[str, list[int]] = {}
        if isinstance(tunable, Application):
            self._axes = {name for kernel in tunable.kernels.values() for name in size_names(kernel)}
        else:
            assert isinstance(tunable, Kernel)
            self._shape = self._launch_shape(tunable, self.configuration, sizes)
            self._single = self._function(tunable, self.configuration, sizes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unload()

    def run(self, buffers: Buffers) -> float:
        """Run it once to its end and return milliseconds.

        Raises:
            KernelError: the steps fail, or launch what does not fit.
            ConstraintError: a launch is of a configuration the kernel does not have.
            CompileError: a kernel does not compile.
            LaunchError: the device refused or aborted a launch.
        """
        if self._single is not None:
            return self._single.launch(self._shape, buffers.passed)
        return self._run_steps(buffers)

    def enqueue(self, buffers: Buffers, count: int = 1) -> None:
        """Run it so many times, without waiting where the device allows it; only after :meth:`run`."""
        if self._single is not None:
            self._single.enqueue(self._shape, buffers.passed, count)
            return
        for _ in range(count):
            self._run_steps(buffers)

    def wait(self) -> None:
        """Wait until everything enqueued has run."""
        if self._single is not None:
            self._single.wait()

    def set_constants(self, constants: Mapping[str, NDArray[Any]]) -> None:
        """Write what a kernel has in constant memory."""
        for name, values in constants.items():
            assert self._single is not None
            self._single.set_constant(name, values)

    def changed_constants(self, constants: Mapping[str, NDArray[Any]]) -> list[str]:
        """Return the names of the constants that are not what was set."""
        changed = []
        for name, values in constants.items():
            assert self._single is not None
            found = np.empty_like(values)
            self._single.read_constant(name, found)
            if found.tobytes() != values.tobytes():
                changed.append(name)
        return changed

    def resources(self) -> Mapping[str, float]:
        """Return registers, shared memory and occupancy of a kernel, where the driver reports them."""
        return {} if self._single is None else self._single.resources(self._shape)

    def metrics(self) -> dict[str, float]:
        """Return where the time of an application's latest run went; nothing for a kernel."""
        if not isinstance(self.tunable, Application):
            return {}
        counts, times_ms = self._by_kernel()
        found: dict[str, float] = {LAUNCHES + name: count for name, count in counts.items()}
        found |= {TIME_MS + name: time_ms for name, time_ms in times_ms.items()}
        found[HOST_MS] = max(0.0, self._elapsed_ms - math.fsum(times_ms.values()))
        for name, several in self._counts.items():
            if len(set(several)) > 1:
                found |= {FEWEST + name: min(several), MOST + name: max(several)}
        return found

    @property
    def launched(self) -> dict[Launched, tuple[int, float]]:
        """How often each launch was made in an application's latest run, and how many milliseconds all of them took."""
        found: dict[Launched, tuple[int, float]] = {}
        for launch in (launch for launch in self._launches.values() if launch.count):
            count, time_ms = found.get(launch.launched, (0, 0.0))
            found[launch.launched] = count + launch.count, time_ms + launch.time_ms
        return found

    @property
    def compiled(self) -> list[tuple[Kernel, Configuration, Sizes]]:
        """What was launched so far, conversions included: kernels with their configurations and sizes."""
        return [(kernel, values, Sizes(sizes)) for kernel, values, sizes in self._functions]

    def unload(self) -> None:
        """Release the code."""
        self._launches.clear()
        while self._functions:
            self._functions.popitem()[1].unload()

    def argument(self, name: str) -> Argument:
        """Return the argument of a name."""
        return self._arguments[name]

    def dtype_of(self, name: str) -> np.dtype[Any]:
        """Return the NumPy type in which an argument is held."""
        held = self.types[name]
        return np.dtype(self._buffers[name].dtype) if held is None else held.dtype

    # -- steps ---------------------------------------------------------------------------------

    def _run_steps(self, buffers: Buffers) -> float:
        application: Any = self.tunable
        for launch in self._launches.values():
            launch.count, launch.time_ms = 0, 0.0
        places = dict(buffers.memory)
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
        finally:
            refused = given.end()
        if refused:
            raise KernelError(refused)
        self._elapsed_ms = (time.perf_counter() - start) * 1e3
        buffers.places = places
        if buffers is not self._ran_on:
            self._ran_on, self._counts = buffers, {name: [] for name in application.kernels}
        for name, count in self._by_kernel()[0].items():
            self._counts[name].append(count)
        return self._elapsed_ms

    def _by_kernel(self) -> tuple[dict[str, int], dict[str, float]]:
        """Return how often each kernel was launched in the latest run, and how long that took."""
        application: Any = self.tunable
        counts, times_ms = dict.fromkeys(application.kernels, 0), dict.fromkeys(application.kernels, 0.0)
        for launch in self._launches.values():
            counts[launch.launched.kernel] += launch.count
            times_ms[launch.launched.kernel] += launch.time_ms
        return counts, times_ms

    def launch(self, name: str, given: Mapping[str, Any], memory: Mapping[str, Buffer]) -> None:
        """Launch a kernel of the application on arguments by name.

        All of this is part of the application's time, and a run may launch thousands of times: what is the same from
        launch to launch is worked out once.
        """
        axes = self._axes
        chosen = [v.name if type(v) is Handle else v if k in axes else type(v) for k, v in given.items()]
        key = (name, *given, *chosen)
        launch = self._launches.get(key)
        if launch is None:
            launch = self._launches[key] = self._prepare(name, given)
        launch.run(given, memory)

    def read(self, name: str, buffer: Buffer) -> NDArray[Any]:
        """Return a buffer's values: in fp64, integers in their type."""
        array = np.empty(self._shapes[name], self.dtype_of(name))
        buffer.read(array)
        return array if self.types[name] is None else array.astype(np.float64, copy=False)

    def write(self, name: str, values: Any, buffer: Buffer) -> None:
        """Write values to a buffer, rounded to its type; one number fills it.

        Raises:
            KernelError: they are no real numbers.
            ValueError: they do not broadcast to the buffer's shape.
            LaunchError: the device cannot copy.
        """
        array = np.asarray(values)
        if array.dtype.kind not in "biuf" and (array.dtype.kind != "O" or any(v is None for v in array.flat)):
            kind = "None" if values is None else f"values of type {array.dtype}"
            raise KernelError(f"{self.tunable.called}: buffer {name!r} takes real numbers, not {kind}")
        array = np.broadcast_to(array, self._shapes[name])
        buffer.write(_stored(array, self.types[name], self._buffers[name]))

    def copy(self, source: str, target: str, memory: Mapping[str, Buffer]) -> None:
        """Copy a buffer to another of as many elements, converted where their types differ.

        Raises:
            KernelError: they have different sizes, or different types of which one is of integers.
            LaunchError: the device cannot copy.
        """
        called, one, other = self.tunable.called, self.types[source], self.types[target]
        if math.prod(self._shapes[source]) != math.prod(self._shapes[target]):
            raise KernelError(
                f"{called}: run.copy from {source!r} {self._shapes[source]} to {target!r} {self._shapes[target]}: they "
                "have different sizes"
            )
        if one is other and self.dtype_of(source) == self.dtype_of(target):
            memory[target].copy_from(memory[source])
        elif one is None or other is None:
            raise KernelError(f"{called}: run.copy does not convert integers ({source!r}, {target!r})")
        else:
            self._convert(source, target, memory)

    def _convert(self, source: str, target: str, memory: Mapping[str, Buffer]) -> None:
        types = Configuration({"source_type": str(self.types[source]), "target_type": str(self.types[target])})
        elements = math.prod(self._shapes[source])
        sizes = Sizes({"n": elements})
        function = self._function(CONVERSION, types, sizes)
        function.launch(CONVERSION.launch_shape(types, sizes), [memory[source], memory[target], np.int64(elements)])

    def check_swap(self, one: str, other: str) -> None:
        """Check that two buffers can change places.

        Raises:
            KernelError: they differ in shape or type, or one of them is an input, which the other one would write to.
        """
        called = self.tunable.called
        first, second = ((self.types[name], self.dtype_of(name), self._shapes[name]) for name in (one, other))
        if first != second:
            raise KernelError(
                f"{called}: run.swap needs buffers of one shape and type; {one!r} is {first[1]} {first[2]}, {other!r} "
                f"{second[1]} {second[2]}"
            )
        if (self._buffers[one].role is Role.IN) != (self._buffers[other].role is Role.IN):
            for buffer in (one, other):
                self.require_writable(f"{called}: run.swap", buffer)

    def require_writable(self, what: str, buffer: str, of_it: str = "") -> None:
        """Check that a buffer is no input.

        Raises:
            KernelError: it is one.
        """
        if self._buffers[buffer].role is Role.IN:
            raise KernelError(
                f"{what} writes to {buffer!r}{of_it}, which is an input: declare that InOut or Scratch, or name it in "
                "outputs"
            )

    # -- launches ------------------------------------------------------------------------------

    def _prepare(self, name: str, given: Mapping[str, Any]) -> Launch:
        """Return a launch of a kernel on arguments by name, compiled."""
        application: Any = self.tunable
        kernel: Kernel = application.kernels[name]
        what = f"{application.called}: launch of {name}"
        by_name = {argument.name: argument for argument in kernel.arguments}
        for known in given:
            if known not in by_name and known not in size_names(kernel):
                raise UnknownNameError(f"argument of {what}:", known, dict.fromkeys((*by_name, *size_names(kernel))))
        types: dict[str, Value] = {}
        handles: dict[str, str] = {}
        for argument in kernel.passed:
            if argument.role is not Role.SCALAR:
                handles[argument.name] = self._handle(what, argument, given)
                self._take_type(what, kernel, argument, handles[argument.name], types)
        sizes = self._sizes_of(what, kernel, given, handles)
        try:
            configuration = application.of_kernel(name, types, self.configuration)
        except KernelError as error:
            raise ConstraintError(f"{what}: {error}") from error
        self._check_valid(what, kernel, configuration, sizes)
        for argument_name, buffer in handles.items():
            shape = kernel.shape_of(by_name[argument_name], sizes)
            if math.prod(shape) != math.prod(self._shapes[buffer]):
                raise KernelError(
                    f"{what}: {argument_name!r} is to have shape {shape} at {sizes}, and buffer {buffer!r} has shape "
                    f"{self._shapes[buffer]}"
                )
        for argument in kernel.arguments:
            if argument.name not in handles and argument.name not in given and argument.name not in sizes:
                raise KernelError(f"{what}: it needs {argument.name!r}")
            if argument.name in given and argument.role is Role.SCALAR and not _is_number(given[argument.name]):
                raise KernelError(f"{what}: {argument.name!r} is to be a real number, not {given[argument.name]!r}")
        shape_of_launch = self._launch_shape(kernel, configuration, sizes)
        held = {a.name: self.held(a, kernel.precision_of(a, configuration)) for a in kernel.arguments}
        return Launch(
            Launched(name, tuple(handles.items()), tuple(sorted(sizes.items()))),
            self._function(kernel, configuration, sizes),
            shape_of_launch,
            tuple((a.name, _passing(a, held[a.name], given, sizes)) for a in kernel.passed),
            tuple((a, held[a.name]) for a in kernel.arguments if a.is_constant),
        )

    def _handle(self, what: str, argument: Argument, given: Mapping[str, Any]) -> str:
        """Return the name of the buffer that is passed for an argument."""
        if argument.name not in given:
            raise KernelError(f"{what}: it needs a buffer {argument.name!r}")
        value = given[argument.name]
        if not isinstance(value, Handle):
            raise KernelError(f"{what}: {argument.name!r} needs a buffer (run.NAME), not {type(value).__name__}")
        if argument.role is not Role.IN:
            self.require_writable(what, value.name, f" (its argument {argument.name!r})")
        return value.name

    def _take_type(self, what: str, kernel: Kernel, argument: Argument, buffer: str, types: dict[str, Value]) -> None:
        """Take the type of an argument from the buffer that is passed."""
        chosen = self.types[buffer]
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
        names = size_names(kernel)
        for name in names:
            if name in given and (isinstance(given[name], bool) or not isinstance(given[name], int | np.integer)):
                raise KernelError(f"{what}: size {name!r} is to be an integer, not {given[name]!r} (n // 2 is one)")
        sizes = {name: int(given[name]) for name in names if name in given}
        sizes |= {name: self.sizes[name] for name in names if name in self.sizes and name not in sizes}
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

    # -- what an instrumented program does otherwise ------------------------------------------

    def held(self, argument: Argument, chosen: Precision | None) -> Precision | None:  # noqa: ARG002
        """Return the type in which an argument of a type is held; None for integers."""
        return chosen

    def _check_valid(self, what: str, kernel: Kernel, configuration: Configuration, sizes: Sizes) -> None:
        limits = device_constraints(kernel, self.backend.device.facts())
        for constraint in (*kernel.constraints, *limits):
            compiled = compile_constraint(constraint, kernel.parameter_names, dict(sizes))
            if not compiled.holds(configuration):
                raise ConstraintError(f"{what}: {configuration} breaks {compiled.text!r} at {sizes}")

    def _launch_shape(self, kernel: Kernel, configuration: Configuration, sizes: Sizes) -> LaunchShape:
        return kernel.launch_shape(configuration, sizes)

    def _function(self, kernel: Kernel, configuration: Configuration, sizes: Sizes) -> Function:
        """Return a kernel's function, compiled and loaded when it is first needed."""
        key = (kernel, configuration, tuple(sizes.items()))
        if key not in self._functions:
            self._functions[key] = self._load(kernel, configuration, sizes)
        return self._functions[key]

    def _load(self, kernel: Kernel, configuration: Configuration, sizes: Sizes) -> Function:
        compiler = self.backend.compiler
        if self._source:  # what rendered it cites lines of the template
            self.binary = compiler.compile(self._source, kernel.function, self._options)
            return self.backend.device.load(self.binary)
        try:
            source = render(kernel, configuration, sizes)
            binary = compiler.compile(source, kernel.function, self._options)
        except CompileError as error:
            raise CompileError(cited(str(error), kernel, configuration, sizes)) from error
        return self.backend.device.load(binary)


def first_that_runs(
    configurations: Iterable[Configuration], run: Callable[[Configuration], _Found]
) -> tuple[Configuration, _Found]:
    """Return the first configuration whose launches are all possible, and what its run returned.

    Raises:
        ConstraintError: there is none.
    """
    refused = ConstraintError("there is no configuration")
    for number, configuration in enumerate(configurations):
        try:
            return configuration, run(configuration)
        except ConstraintError as error:
            refused = refused if number else error
    raise refused


@functools.lru_cache(maxsize=256)
def size_names(kernel: Kernel) -> tuple[str, ...]:
    """Return the names a kernel's shapes and extents use that are no parameters."""
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
    """Return how an argument of a type is passed to a function."""
    if argument.role is not Role.SCALAR:
        return None
    if held is None:
        to_type: Callable[[Any], np.generic] = np.dtype(argument.dtype).type
    elif held.name == "fp64":
        to_type = np.float64
    else:
        to_type = functools.partial(_rounded, held=held)
    return to_type if argument.name in given else to_type(sizes[argument.name])


def _is_number(value: Any) -> bool:
    """Whether something is one real number, or of a type of its own that NumPy may make one of."""
    array = np.asarray(value)
    return array.size == 1 and (
        array.dtype.kind in "biuf" or (array.dtype.kind == "O" and not isinstance(value, Handle | None))
    )


def _rounded(value: Any, held: Precision) -> np.generic:
    found: np.generic = round_to(np.array([value], np.float64), held)[0]
    return found


def _stored(values: Any, held: Precision | None, argument: Argument) -> NDArray[Any]:
    """Return a contiguous array in the type of an argument."""
    if held is None:
        return np.ascontiguousarray(values, dtype=argument.dtype)
    return round_to(np.ascontiguousarray(values, dtype=np.float64), held)
