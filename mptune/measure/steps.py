"""What the steps of an application are given as ``run``: kernels to call, buffers to pass, scalars and choices."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from numpy.typing import NDArray

from mptune.backends.base import Buffer
from mptune.errors import KernelError, UnknownNameError
from mptune.kernel import Application

if TYPE_CHECKING:
    from mptune.measure.program import Program

__all__ = ["Handle", "Steps"]

_FUNCTIONS: Final = ("copy", "fill", "read", "swap", "write")


@dataclass(frozen=True, slots=True)
class Handle:
    """A buffer, as the steps pass it to a kernel."""

    name: str


class Steps:
    """One run of an application's steps.

    Args:
        program: launches the kernels.
        memory: by buffer, where it is; swaps change that.
        scalars: the application's scalars.
    """

    _application: Application
    _program: Program
    _memory: dict[str, Buffer]
    _scalars: Mapping[str, float | int]
    _thread: int
    _has_ended: bool
    _refused: str

    def __init__(self, program: Program, memory: dict[str, Buffer], scalars: Mapping[str, float | int]) -> None:
        application = program.tunable
        assert isinstance(application, Application)
        given = self.__dict__  # attributes of its own are found without a call, and set without __setattr__
        choices = (name for name in application.parameter_names if name not in _FUNCTIONS)
        given.update({name: program.configuration[name] for name in choices})
        given.update({**scalars, **{name: Handle(name) for name in memory}})
        given.update({name: functools.partial(self._launch, name) for name in application.kernels})
        given.update(_application=application, _program=program, _memory=memory, _scalars=scalars)
        given.update(_thread=threading.get_ident(), _has_ended=False, _refused="")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python asks an object of any kind for
            raise AttributeError(name)
        shared = (p.name for p in self._application.shared)
        known = [*self._application.kernels, *self._memory, *self._scalars, *shared, *_FUNCTIONS]
        raise UnknownNameError(f"name after run. in the steps of {self._application.called}:", name, known)

    def __setattr__(self, name: str, value: Any) -> None:
        is_buffer = name in self._memory
        hint = f"write to the buffer: run.write(run.{name}, ...)" if is_buffer else "keep what you need in a variable"
        raise KernelError(f"{self._application.called}: run.{name} = ... changes nothing; {hint}")

    def end(self) -> str:
        """Refuse everything from now on, and say what was refused so far: a thread's error nobody may have seen."""
        self.__dict__["_has_ended"] = True
        return self._refused

    def read(self, buffer: Handle | str) -> NDArray[Any]:
        """Return a buffer's values as an array of its shape: in fp64, integers in their type."""
        name = self._named("read", buffer)
        return self._program.read(name, self._memory[name])

    def write(self, buffer: Handle | str, values: Any) -> None:
        """Write values to a buffer, rounded to its type; a single number fills it."""
        name = self._named("write", buffer, is_written=True)
        self._program.write(name, values, self._memory[name])

    fill = write

    def copy(self, source: Handle | str, target: Handle | str) -> None:
        """Copy a buffer to another one, on the device, converted where their types differ."""
        read, written = self._named("copy", source), self._named("copy", target, is_written=True)
        self._program.copy(read, written, self._memory)

    def swap(self, one: Handle | str, other: Handle | str) -> None:
        """Let two buffers of one shape and type change places, without copying."""
        first, second = self._named("swap", one), self._named("swap", other)
        self._program.check_swap(first, second)
        self._memory[first], self._memory[second] = self._memory[second], self._memory[first]

    def _launch(self, kernel: str, /, *unnamed: Any, **given: Any) -> None:
        self._require_running(kernel)
        if unnamed:
            called, arguments = self._application.called, self._application.kernels[kernel].arguments
            names = ", ".join(f"{argument.name}=..." for argument in arguments)
            raise KernelError(f"{called}: run.{kernel} takes arguments by name: run.{kernel}({names})")
        self._program.launch(kernel, given, self._memory)

    def _require_running(self, function: str) -> None:
        if self._has_ended or threading.get_ident() != self._thread:
            refused = (
                f"{self._application.called}: run.{function} was called in another thread, or after the steps ended; "
                "call run only in the thread of the steps, and do not keep it"
            )
            self.__dict__["_refused"] = refused
            raise KernelError(refused)

    def _named(self, function: str, buffer: Handle | str, *, is_written: bool = False) -> str:
        """Return the name of a buffer that a function is given."""
        self._require_running(function)
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
