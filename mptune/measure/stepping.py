"""Running the steps of an application: its kernels launched by ordinary Python, on buffers of a device."""

from __future__ import annotations

import functools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.backends.base import Argument as LaunchArgument
from mptune.backends.base import Backend, Buffer, CompileOptions, Function
from mptune.data.conversion import pieces, round_to
from mptune.errors import CompileError, ConstraintError, KernelError, MptuneError, UnknownNameError, raised_at
from mptune.kernel import Application, Argument, In, Kernel, LaunchShape, Out, Role, Scalar, Sizes
from mptune.kernel.application import typed
from mptune.kernel.limits import device_constraints
from mptune.kernel.tunable import parsed
from mptune.precision import PRECISIONS, Precision, precision
from mptune.source.render import cited, render
from mptune.space.configuration import Configuration, Value
from mptune.space.constraints import compile_constraint
from mptune.space.parameters import PrecisionParameter

__all__ = ["CONVERSION", "Captured", "Handle", "Launched", "Stepper", "size_names"]

_CONVERT: Final = """
extern "C" __global__ void mptune_convert(const {{ source_type }} * source, {{ target_type }} * target, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) target[i] = source[i];
}
"""
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
    given: Mapping[str, Any]  #: buffers before it (also those it may write in part only), constants and scalars
    left: Mapping[str, NDArray[Any]]  #: what it wrote


@dataclass(slots=True)
class _Tally:
    """What was launched in a run, how often, and how long all of it took."""

    launched: Launched
    count: int = 0
    time_ms: float = 0.0


#: How an argument is passed: a buffer as its memory (None), a size as its number, or a scalar that is given converted.
_Passing = np.generic | Callable[[Any], np.generic] | None


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A launch but for the memory of its buffers and the values of its scalars."""

    tally: _Tally
    function: Function
    shape: LaunchShape
    passed: tuple[tuple[str, _Passing], ...]  #: by name, in the order the function takes them
    constants: tuple[tuple[Argument, Precision | None], ...]


class Stepper:
    """One configuration of an application: its kernels compiled as launches first need them, and kept.

    Args:
        application: the application.
        configuration: of the application.
        sizes: its problem sizes.
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
        #: That the steps are in.
        self._file = getattr(getattr(application.steps, "__code__", None), "co_filename", "")
        self._buffers = {a.name: a for a in application.arguments if a.role is not Role.SCALAR}
        self._types = {a.name: application.precision_of(a, self._configuration) for a in application.arguments}
        self._axes = {name for kernel in application.kernels.values() for name in size_names(kernel)}
        self._shapes = {name: application.shape_of(argument, sizes) for name, argument in self._buffers.items()}
        self._functions: dict[Any, Function] = {}
        self._prepared: dict[Any, _Prepared] = {}
        self._tallies: dict[Launched, _Tally] = {}
        #: What the steps have done that ends a run, wherever they did it.
        self._refused = ""
        #: Launches whose data is to be kept, each at its n-th time in a run, and what has been kept.
        self._wanted: Mapping[Launched, int] = {}
        self.captured: list[Captured] = []

    @property
    def counts(self) -> dict[Launched, int]:
        """What was launched in the last run, and how often."""
        return {tally.launched: tally.count for tally in self._tallies.values() if tally.count}

    @property
    def times_ms(self) -> dict[Launched, float]:
        """What was launched in the last run, and how long all of it took in milliseconds."""
        return {tally.launched: tally.time_ms for tally in self._tallies.values() if tally.count}

    @property
    def compiled(self) -> list[tuple[Kernel, Configuration, Sizes]]:
        """What was launched so far, conversions included: kernels with their configurations and sizes."""
        kernels = {**self.application.kernels, CONVERSION.name: CONVERSION}
        return [(kernels[name], values, Sizes(sizes)) for name, values, sizes in self._functions]

    def capture(self, wanted: Mapping[Launched, int]) -> None:
        """Keep the data of launches in the next run, each at its n-th time."""
        self._wanted, self.captured = wanted, []

    def run(self, memory: Mapping[str, Buffer], scalars: Mapping[str, float | int]) -> tuple[float, dict[str, Buffer]]:
        """Run the steps once, and return how many milliseconds that took and the memory of each buffer at the end.

        Args:
            memory: of each buffer, in the type it has in the configuration.
            scalars: the application's scalars.

        Raises:
            KernelError: the steps fail, launch what does not fit, or use ``run`` in another thread.
            ConstraintError: a launch is of a configuration the kernel does not have.
            CompileError: a kernel does not compile.
            LaunchError: the device refused or aborted a launch.
        """
        for tally in self._tallies.values():
            tally.count, tally.time_ms = 0, 0.0
        places = dict(memory)
        given = _Steps(self, places, scalars)
        start = time.perf_counter()
        try:
            self.application.steps(given, self._sizes)
        except (KernelError, UnknownNameError) as error:
            self._raise_refused()
            raise KernelError(f"{error}{raised_at(error, self._file) if self._file else ''}") from error
        except (MptuneError, MemoryError):
            raise
        # The process ignores Ctrl-C, so that an interrupt is the steps' own.
        except BaseException as error:
            self._raise_refused()
            name, what = self.application.called, f"{type(error).__name__}: {error}".removesuffix(": ")
            where = raised_at(error, self._file)
            raise KernelError(f"steps of {name} failed: {what}{where}") from error
        finally:
            given.end()
        self._raise_refused()
        elapsed_ms = (time.perf_counter() - start) * 1e3
        return elapsed_ms, places

    def _raise_refused(self) -> None:
        refused, self._refused = self._refused, ""
        if refused:
            raise KernelError(refused)

    def unload(self) -> None:
        """Release the code of all kernels; what is launched next is loaded anew, with nothing left of before."""
        self._prepared.clear()
        while self._functions:
            self._functions.popitem()[1].unload()

    # -- for the steps -------------------------------------------------------------------------

    def refuse(self, function: str, thread: int) -> None:
        """Refuse what is called in another thread than that of the steps, or after they ended.

        Times are those of one thread, and launches come one after the other. Another thread ends silently, as what it
        raises nobody might look at: it is the run that fails, or the next one.

        Args:
            function: what ``run`` was asked for.
            thread: that the steps run in, or ran in.

        Raises:
            KernelError: it is called after the steps ended, in their thread.
            SystemExit: it is called in another thread.
        """
        what, here = f"{self.application.called}: run.{function} was called", threading.get_ident()
        if here == thread:
            raise KernelError(f"{what} after the steps that it was given to had ended; do not keep run")
        where = _line_in(self._file, here) or _line_in(self._file, thread)
        self._refused = f"{what} in another thread than that of the steps{where}; call what run offers in that alone"
        raise SystemExit(self._refused)

    def launch(self, name: str, given: Mapping[str, Any], memory: Mapping[str, Buffer]) -> None:
        """Launch a kernel of the application on arguments by name.

        All of this is part of the application's time, and a run may launch thousands of times: what is the same from
        launch to launch is worked out once.
        """
        axes = self._axes
        chosen = [v.name if type(v) is Handle else v if k in axes else type(v) for k, v in given.items()]
        key = (name, *given, *chosen)
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self._prepared[key] = self._prepare(self.application.kernels[name], given)
        for constant, type_of_it in prepared.constants:
            prepared.function.set_constant(constant.name, _stored(given[constant.name], type_of_it, constant))
        arguments: list[LaunchArgument] = [
            memory[given[argument].name] if how is None else how(given[argument]) if callable(how) else how
            for argument, how in prepared.passed
        ]
        tally = prepared.tally
        tally.count += 1
        if self._wanted and self._wanted.get(tally.launched) == tally.count:
            with self._captured(tally.launched, given, memory):
                prepared.function.launch(prepared.shape, arguments)
            return
        tally.time_ms += prepared.function.launch(prepared.shape, arguments)

    @contextmanager
    def _captured(self, launched: Launched, given: Mapping[str, Any], memory: Mapping[str, Buffer]) -> Iterator[None]:
        """Keep what a launch in the block is given and what it writes."""
        kernel, buffers = self.application.kernels[launched.kernel], dict(launched.buffers)
        arguments = {argument.name: argument for argument in kernel.arguments}
        before: dict[str, Any] = {
            name: value for name, value in given.items() if name in arguments and not isinstance(value, Handle)
        }
        held = {name: self.read(buffer, memory[buffer]) for name, buffer in buffers.items()}
        yield
        written = [name for name in buffers if arguments[name].role is not Role.IN]
        after = {name: self.read(buffers[name], memory[buffers[name]]) for name in written}
        # What is as it was may be what the launch did not write.
        is_given = {n: arguments[n].is_input or bool(np.any(held[n] == after[n])) for n in buffers}
        before |= {name: held[name] for name in buffers if is_given[name]}
        self.captured.append(Captured(launched, before, after))

    def copy(self, source: str, target: str, memory: Mapping[str, Buffer]) -> None:
        """Copy a buffer to another of as many elements, converted where their types differ.

        Raises:
            KernelError: they have different sizes, or different types of which one is of integers.
            LaunchError: the device cannot copy.
        """
        one, other = self._types[source], self._types[target]
        elements = math.prod(self._shapes[source])
        if elements != math.prod(self._shapes[target]):
            raise KernelError(
                f"{self.application.called}: run.copy from {source!r} {self._shapes[source]} to {target!r} "
                f"{self._shapes[target]}: they have different sizes"
            )
        if self.dtype_of(source) == self.dtype_of(target):
            memory[target].copy_from(memory[source])
        elif one is None or other is None:
            raise KernelError(f"{self.application.called}: run.copy does not convert integers ({source!r}, {target!r})")
        else:
            types = Configuration({"source_type": one.name, "target_type": other.name})
            sizes = Sizes({"n": elements})
            function = self._function(CONVERSION, types, sizes)
            arguments: list[LaunchArgument] = [memory[source], memory[target], np.int64(elements)]
            function.launch(CONVERSION.launch_shape(types, sizes), arguments)

    def read(self, name: str, buffer: Buffer) -> NDArray[Any]:
        """Return a buffer's values: in fp64, integers in their type."""
        array = np.empty(self._shapes[name], self.dtype_of(name))
        buffer.read(array)
        return array if self._types[name] is None else array.astype(np.float64, copy=False)

    def write(self, name: str, values: Any, buffer: Buffer) -> None:
        """Write values to a buffer, rounded to its type; one number fills it.

        Args:
            name: of the buffer.
            values: of its shape, or of one that broadcasts to it.
            buffer: its memory.

        Raises:
            KernelError: they are no real numbers.
            ValueError: they do not broadcast to the buffer's shape.
            LaunchError: the device cannot copy.
        """
        array = np.asarray(values)
        if array.dtype.kind not in "biuf" and (array.dtype.kind != "O" or any(v is None for v in array.flat)):
            kind = "None" if values is None else f"values of type {array.dtype}"
            raise KernelError(f"{self.application.called}: buffer {name!r} takes real numbers, not {kind}")
        array = np.broadcast_to(array, self._shapes[name])
        held = self._held(self._buffers[name], self._types[name])
        if held is None:
            stored = np.ascontiguousarray(array, dtype=self.dtype_of(name))
        else:
            stored = _in_type(np.ascontiguousarray(array, dtype=np.float64), held)
        buffer.write(np.ascontiguousarray(stored))

    def check_swap(self, one: str, other: str) -> None:
        """Check that two buffers can change places.

        Raises:
            KernelError: they differ in shape or type, or one of them is an input, which the other one would write to.
        """
        if (self._shapes[one], self.dtype_of(one)) != (self._shapes[other], self.dtype_of(other)):
            raise KernelError(
                f"{self.application.called}: run.swap needs buffers of one shape and type; {one!r} is "
                f"{self.dtype_of(one)} {self._shapes[one]}, {other!r} {self.dtype_of(other)} {self._shapes[other]}"
            )
        if (self._buffers[one].role is Role.IN) != (self._buffers[other].role is Role.IN):
            for buffer in (one, other):
                self.require_writable(f"{self.application.called}: run.swap", buffer)

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

    def choice(self, name: str) -> Value:
        """Return the value of one of the application's own parameters."""
        return self._configuration[name]

    # -- launches ------------------------------------------------------------------------------

    def _prepare(self, kernel: Kernel, given: Mapping[str, Any]) -> _Prepared:
        """Return a launch of a kernel on arguments by name, compiled."""
        what = f"{self.application.called}: launch of {kernel.name}"
        by_name = {argument.name: argument for argument in kernel.arguments}
        for name in given:
            if name not in by_name and name not in size_names(kernel):
                raise UnknownNameError(f"argument of {what}:", name, dict.fromkeys((*by_name, *size_names(kernel))))
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
            if argument.name in given and argument.role is Role.SCALAR and not _is_number(given[argument.name]):
                raise KernelError(f"{what}: {argument.name!r} is to be a real number, not {given[argument.name]!r}")
        launched = Launched(kernel.name, tuple(handles.items()), tuple(sorted(sizes.items())))
        launch_shape = self._launch_shape(kernel, configuration, sizes)
        function = self._function(kernel, configuration, sizes)
        held = {a.name: self._held(a, kernel.precision_of(a, configuration)) for a in kernel.arguments}
        passed = tuple((a.name, _passing(a, held[a.name], given, sizes)) for a in kernel.passed)
        constants = tuple((a, held[a.name]) for a in kernel.arguments if a.is_constant)
        tally = self._tallies.setdefault(launched, _Tally(launched))
        return _Prepared(tally, function, launch_shape, passed, constants)

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
        names = size_names(kernel)
        for name in names:
            if name in given and (isinstance(given[name], bool) or not isinstance(given[name], int | np.integer)):
                raise KernelError(f"{what}: size {name!r} is to be an integer, not {given[name]!r} (n // 2 is one)")
        sizes = {name: int(given[name]) for name in names if name in given}
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
        limits = device_constraints(kernel, self._backend.device.facts())
        for constraint in (*kernel.constraints, *limits):
            compiled = compile_constraint(constraint, kernel.parameter_names, dict(sizes))
            if not compiled.holds(configuration):
                raise ConstraintError(f"{what}: {configuration} breaks {compiled.text!r} at {sizes}")

    def _launch_shape(self, kernel: Kernel, configuration: Configuration, sizes: Sizes) -> LaunchShape:
        return kernel.launch_shape(configuration, sizes)

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

    def dtype_of(self, name: str) -> np.dtype[Any]:
        """Return the NumPy type of what a buffer holds."""
        held = self._held(self._buffers[name], self._types[name])
        return np.dtype(self._buffers[name].dtype) if held is None else held.dtype

    def _held(self, argument: Argument, chosen: Precision | None) -> Precision | None:  # noqa: ARG002
        """Return the type in which an argument's values of a type are kept, None for integers."""
        return chosen


@functools.lru_cache(maxsize=256)
def size_names(kernel: Kernel) -> tuple[str, ...]:
    """Return the names a kernel's shapes and extents use that are no parameters."""
    if kernel.sizes:
        return tuple(kernel.sizes["default"])
    texts = [axis for argument in kernel.arguments for axis in argument.shape]
    texts += [str(extent) for extent in (*kernel.grid, *kernel.block, kernel.shared_bytes)]
    used = {name for text in texts for name in parsed(text).names}
    return tuple(sorted(used - set(kernel.parameter_names)))


def _passing(argument: Argument, chosen: Precision | None, given: Mapping[str, Any], sizes: Sizes) -> _Passing:
    """Return how an argument of a type is passed to a function."""
    if argument.role is not Role.SCALAR:
        return None
    if chosen is None:
        to_type: Callable[[Any], np.generic] = np.dtype(argument.dtype).type
    elif chosen.name == "fp64":
        to_type = np.float64
    else:
        to_type = functools.partial(_rounded, chosen=chosen)
    return to_type if argument.name in given else to_type(sizes[argument.name])


def _is_number(value: Any) -> bool:
    """Whether something is one real number, or of a type of its own that NumPy may make one of."""
    array = np.asarray(value)
    return array.size == 1 and (
        array.dtype.kind in "biuf" or (array.dtype.kind == "O" and not isinstance(value, Handle | None))
    )


def _rounded(value: Any, chosen: Precision) -> np.generic:
    """Return a number in a type."""
    found: np.generic = round_to(np.array([value], np.float64), chosen)[0]
    return found


def _stored(values: Any, chosen: Precision | None, argument: Argument) -> NDArray[Any]:
    """Return an array in the type of an argument in constant memory."""
    if chosen is None:
        return np.ascontiguousarray(values, dtype=argument.dtype)
    return _in_type(np.ascontiguousarray(values, dtype=np.float64), chosen)


def _in_type(values: NDArray[Any], chosen: Precision) -> NDArray[Any]:
    """Return a contiguous array in a type, each value rounded to nearest; itself if it has that type already."""
    if values.dtype == chosen.dtype and not chosen.is_traced:
        return values
    rounded = np.empty(values.shape, chosen.dtype)
    for source, target in zip(pieces(values), pieces(rounded), strict=True):
        target[:] = round_to(source, chosen)
    return rounded


def _line_in(file: str, thread: int) -> str:
    """Say at which line of a file a thread is: `` (steps.py:12)``, or nothing if it is elsewhere."""
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return "" if frame is None else f" ({Path(file).name}:{frame.f_lineno})"


class _Steps:
    """What the steps of an application are given as ``run``: kernels to call, buffers to pass, scalars and choices."""

    _memory: dict[str, Buffer]
    _stepper: Stepper
    _scalars: Mapping[str, float | int]
    #: That the steps run in, and whether they have ended.
    _thread: int
    _has_ended: bool

    def __init__(self, stepper: Stepper, memory: dict[str, Buffer], scalars: Mapping[str, float | int]) -> None:
        application = stepper.application
        given = self.__dict__  # as attributes of its own they are found without a call, and set without __setattr__
        given.update({name: stepper.choice(name) for name in application.parameter_names if name not in _FUNCTIONS})
        given.update({**scalars, **{name: Handle(name) for name in memory}})
        given.update({name: functools.partial(self._launch, name) for name in application.kernels})
        given.update(_memory=memory, _stepper=stepper, _scalars=scalars)
        given.update(_thread=threading.get_ident(), _has_ended=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python asks an object of any kind for
            raise AttributeError(name)
        application = self._stepper.application
        shared = (p.name for p in application.shared)
        known = [*application.kernels, *self._memory, *self._scalars, *shared, *_FUNCTIONS]
        raise UnknownNameError(f"name after run. in the steps of {application.called}:", name, known)

    def __setattr__(self, name: str, value: Any) -> None:
        called, is_buffer = self._stepper.application.called, name in self._memory
        hint = f"write to the buffer: run.write(run.{name}, ...)" if is_buffer else "keep what you need in a variable"
        raise KernelError(f"{called}: run.{name} = ... changes nothing; {hint}")

    def __reduce_ex__(self, protocol: Any) -> Any:
        called = self._stepper.application.called
        raise KernelError(f"{called}: run cannot be copied or sent elsewhere: it is what the kernels run on")

    def end(self) -> None:
        """Refuse everything from now on."""
        self.__dict__["_has_ended"] = True

    def _require_running(self, function: str) -> None:
        if self._has_ended or threading.get_ident() != self._thread:
            self._stepper.refuse(function, self._thread)

    def _launch(self, kernel: str, /, *unnamed: Any, **given: Any) -> None:
        self._require_running(kernel)
        if unnamed:
            names = ", ".join(f"{a.name}=..." for a in self._stepper.application.kernels[kernel].arguments)
            raise KernelError(
                f"{self._stepper.application.called}: run.{kernel} takes arguments by name: run.{kernel}({names})"
            )
        self._stepper.launch(kernel, given, self._memory)

    def read(self, buffer: Handle | str) -> NDArray[Any]:
        """Return a buffer's values as an array of its shape: in fp64, integers in their type."""
        name = self._named("read", buffer)
        return self._stepper.read(name, self._memory[name])

    def write(self, buffer: Handle | str, values: Any) -> None:
        """Write values to a buffer, rounded to its type; a single number fills it."""
        name = self._named("write", buffer, is_written=True)
        self._stepper.write(name, values, self._memory[name])

    fill = write

    def copy(self, source: Handle | str, target: Handle | str) -> None:
        """Copy a buffer to another one, on the device, converted where their types differ."""
        read, written = self._named("copy", source), self._named("copy", target, is_written=True)
        self._stepper.copy(read, written, self._memory)

    def swap(self, one: Handle | str, other: Handle | str) -> None:
        """Let two buffers of one shape and type change places, without copying."""
        first, second = self._named("swap", one), self._named("swap", other)
        self._stepper.check_swap(first, second)
        self._memory[first], self._memory[second] = self._memory[second], self._memory[first]

    def _named(self, function: str, buffer: Handle | str, *, is_written: bool = False) -> str:
        """Return the name of a buffer that a function is given."""
        self._require_running(function)
        called = self._stepper.application.called
        name: Any = buffer.name if isinstance(buffer, Handle) else buffer
        if not isinstance(name, str):
            given = f"the kernel {name.args[0]!r}" if isinstance(name, functools.partial) else type(name).__name__
            raise KernelError(f"{called}: run.{function} needs a buffer (run.NAME), not {given}")
        if name not in self._memory:
            raise UnknownNameError(f"buffer in run.{function} of {called}:", name, self._memory)
        if is_written:
            self._stepper.require_writable(f"{called}: run.{function}", name)
        return name


_FUNCTIONS: Final = ("copy", "fill", "read", "swap", "write")
