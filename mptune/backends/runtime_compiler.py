"""Vendors' compilers in processes of their own: NVRTC and hiprtc, whose functions are called alike, and others.

A vendor's compiler is a library of a few hundred megabytes that may abort, hang or, as hiprtc does, race with itself
when two threads use it. None of that may reach the process that holds the search, so each compilation runs in a process
that does nothing else. It is kept for the next compilation, so that it loads the library once; there are as many as
there are compilations at a time.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from mptune.backends.base import excerpt
from mptune.errors import BackendUnavailableError, CompileError, MptuneError
from mptune.processes import Channel, ChildEnded, ChildGroup, PythonChild

__all__ = [
    "CompilerLibrary",
    "CompilerProcesses",
    "CompilerSpec",
    "LibrarySpec",
    "RuntimeCompiler",
    "RuntimeLibrary",
    "serve",
    "system_libraries",
]

_START_S: Final = 60.0
_NICENESS: Final = 10
#: What the compiler calls the text before the template, whose own lines a ``#line`` directive names.
_SOURCE_NAME: Final = b"prelude.hpp"


def system_libraries(name: str) -> list[str]:
    """Return where the dynamic loader finds a library ("nvrtc").

    ctypes' ``find_library`` asks gcc and the linker where one is not installed, which takes longer than all the rest
    of ``mptune backends``.
    """
    folders = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    files = [str(path) for folder in folders for path in sorted(folder.glob(f"lib{name}.so*"))]
    return [*files, *re.findall(rf"^\s*lib{re.escape(name)}\.so.* => (.*)$", _loader_cache(), re.MULTILINE)]


@functools.cache
def _loader_cache() -> str:
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    try:
        return subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


class CompilerLibrary(Protocol):
    """A compiler in this very process."""

    def compile(self, source: str, function: str, flags: Sequence[str]) -> tuple[bytes, str]:
        """Return the code of a source and what the compiler printed.

        Raises:
            CompileError: the compiler rejected the source.
        """


class LibrarySpec(Protocol):
    """What a process needs to know to open a compiler; can be pickled."""

    @property
    def name(self) -> str:
        """What messages call the compiler."""

    def open(self) -> CompilerLibrary:
        """Open it in this process.

        Raises:
            MptuneError: it is not there.
        """


@dataclass(frozen=True, slots=True)
class CompilerSpec:
    """Which compiler, in the words of :class:`RuntimeCompiler`, and the path of its library."""

    name: str
    prefix: str
    code: str
    path: str
    builtins: str = ""

    def open(self) -> RuntimeLibrary:
        """Load the library."""
        return RuntimeLibrary(self)


class RuntimeLibrary:
    """The library itself, in this very process.

    Attributes:
        version: its version.
        missing: the library of its builtins if that is not found; else empty.

    Raises:
        OSError: it does not load.
        AttributeError: it lacks a function.
    """

    def __init__(self, spec: CompilerSpec) -> None:
        self.spec = spec
        self._prefix = spec.prefix
        self._library = ctypes.CDLL(spec.path)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check("Version", ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"
        self.missing = self._load_builtins(spec.builtins.format(version=self.version))

    def _load_builtins(self, name: str) -> str:
        """Load the builtins, so that the library finds them by their name; return that name if they are not there."""
        for path in (str(Path(self.spec.path).with_name(name)), name) if name else ():
            with contextlib.suppress(OSError):
                ctypes.CDLL(path)
                return ""
        return name

    def compile(self, source: str, function: str, flags: Sequence[str]) -> tuple[bytes, str]:
        """Return the code of a source and what the compiler printed.

        Raises:
            CompileError: the compiler rejected the source.
        """
        with self._program(source) as program:
            options = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
            status = self._call("CompileProgram", program, ctypes.c_int(len(flags)), options)
            log = self._fetch("ProgramLog", program).rstrip(b"\0\n").decode(errors="replace")
            if status != 0:
                raise CompileError(
                    f"{self.spec.name} rejected {function} ({self._reason(status)})\n{excerpt(log)}".rstrip()
                )
            return self._fetch(self.spec.code, program), log

    @contextlib.contextmanager
    def _program(self, source: str) -> Iterator[ctypes.c_void_p]:
        program = ctypes.c_void_p()
        self._check("CreateProgram", ctypes.byref(program), source.encode(), _SOURCE_NAME, ctypes.c_int(0), None, None)
        try:
            yield program
        finally:
            self._call("DestroyProgram", ctypes.byref(program))

    def _fetch(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._check(f"Get{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(max(size.value, 1))
        self._check(f"Get{what}", program, text)
        return text.raw[: size.value]

    def _call(self, function: str, *arguments: object) -> int:
        return int(getattr(self._library, self._prefix + function)(*arguments))

    def _check(self, function: str, *arguments: object) -> None:
        status = self._call(function, *arguments)
        if status != 0:
            raise CompileError(f"{self._prefix}{function} failed: {self._reason(status)}")

    def _reason(self, status: int) -> str:
        text = getattr(self._library, f"{self._prefix}GetErrorString")
        text.restype = ctypes.c_char_p
        found = text(status)
        return found.decode() if found else f"status {status}"


def serve(channel: Channel) -> None:
    """Compile what comes over the connection, after whatever else wants a core, as what launches and times does."""
    os.nice(_NICENESS)
    spec: Any = channel.recv()
    try:
        library = spec.open()
    except MptuneError as error:
        channel.send(error)
        return
    channel.send(None)
    while True:
        source, function, flags = channel.recv()
        try:
            channel.send(library.compile(source, function, flags))
        except MptuneError as error:
            channel.send(error)


class CompilerProcesses:
    """A compiler in processes of its own; can be used from any thread.

    Args:
        spec: what opens it in each of them.
    """

    def __init__(self, spec: LibrarySpec) -> None:
        self.name = spec.name
        self._spec = spec
        self._processes = ChildGroup()
        #: Those that are being started before they are needed, that wait for a source, and that compile one.
        self._starting: list[PythonChild] = []
        self._idle: list[PythonChild] = []
        self._busy: list[PythonChild] = []
        self._lock = threading.Lock()
        self._owner = os.getpid()
        atexit.register(self.close)

    def compile(self, source: str, function: str, flags: Sequence[str], timeout_s: float) -> tuple[bytes, str]:
        """Return the code of a source and what the compiler printed.

        Raises:
            CompileError: the compiler rejected the source, crashed, or was ended for not finishing in time.
        """
        child, processes = self._take(), self._processes
        try:
            answer = self._exchange(child, (source, function, tuple(flags)), function, timeout_s)
        except BaseException:
            with self._lock:
                self._busy.remove(child)
            processes.end(child)
            raise
        with self._lock:
            self._busy.remove(child)
            self._idle.append(child)
        if isinstance(answer, MptuneError):
            raise answer
        code, log = answer
        return code, log

    def close(self) -> None:
        """End the processes; a compilation in one of them raises a :class:`CompileError`."""
        # A fork has a copy of the lists, but the processes are its parent's.
        if os.getpid() != self._owner:
            return
        with self._lock:
            ended, self._idle, self._starting = [*self._idle, *self._starting], [], []
            for child in self._busy:
                child.signal(signal.SIGKILL)
        for child in ended:
            self._processes.end(child)

    def expect(self, compilations: int) -> None:
        """Start processes for so many compilations at a time, without waiting until they have opened the compiler."""
        with self._lock:
            there_are = len(self._starting) + len(self._idle) + len(self._busy)
            with contextlib.suppress(CompileError):  # whoever needs one is told
                self._starting += [self._start() for _ in range(compilations - there_are)]

    def paused(self) -> AbstractContextManager[None]:
        """Hold up all compilations for the length of a block, which does not count as their time."""
        return self._processes.paused()

    def _take(self) -> PythonChild:
        """Return a process that does nothing now, a new one if there is none."""
        with self._lock:
            while self._idle and os.getpid() == self._owner:
                child = self._idle.pop()
                if child.poll() is None:
                    self._busy.append(child)
                    return child
                self._processes.end(child)
            is_started = bool(self._starting) and os.getpid() == self._owner
            child = self._starting.pop() if is_started else self._start()
        try:
            refusal = self._receive(child, "its start", _START_S)
            if isinstance(refusal, MptuneError):
                raise refusal
        except BaseException:
            self._processes.end(child)
            raise
        with self._lock:
            self._busy.append(child)
        return child

    def _start(self) -> PythonChild:
        """Start a process that opens the compiler."""
        child = self._processes.start(lambda: PythonChild(f"{__name__}:serve", keeps_output=True))
        try:
            child.send(self._spec)
        except ChildEnded as ended:
            self._processes.end(child)
            raise self._crash(ended, "its start") from None
        return child

    def _exchange(self, child: PythonChild, message: object, what: str, timeout_s: float) -> Any:
        try:
            child.send(message)
        except ChildEnded as ended:
            raise self._crash(ended, what) from None
        return self._receive(child, what, timeout_s)

    def _receive(self, child: PythonChild, what: str, timeout_s: float) -> Any:
        try:
            return self._processes.within(timeout_s, child.receive)
        except subprocess.TimeoutExpired:
            raise CompileError(f"{self.name} did not finish {what} within {timeout_s:g} s") from None
        except ChildEnded as ended:
            raise self._crash(ended, what) from None

    def _crash(self, ended: ChildEnded, what: str) -> CompileError:
        return CompileError(f"{self.name} crashed in {what}: it {ended.how}\n{ended.printed}".rstrip())


class RuntimeCompiler(CompilerProcesses):
    """NVRTC, or another whose functions are called alike, in processes of its own.

    Args:
        name: what messages call it.
        prefix: what its functions' names start with ("nvrtc").
        code: the kind of code to ask for ("CUBIN"; hiprtc has only "Code").
        paths: where the library may be, most preferred first.
        hint: what to install where none of them loads.
        builtins: name of the library of builtins, without which it compiles nothing, with "{version}" in it; empty
            where it looks after them itself. The wheel of NVRTC 13.0 does not.

    Raises:
        BackendUnavailableError: the library is not there or lacks a function.
    """

    def __init__(self, name: str, prefix: str, code: str, paths: Sequence[str], hint: str, builtins: str = "") -> None:
        for path in paths:
            with contextlib.suppress(OSError, AttributeError):
                library = RuntimeLibrary(CompilerSpec(name, prefix, code, path, builtins))
                break
        else:
            raise BackendUnavailableError(f"{name} is not installed: {hint}")
        super().__init__(library.spec)
        self.version = library.version
        #: What it lacks and how to get it, in words; empty if nothing.
        self.trouble = f"{name} does not find its {library.missing}: {hint}" if library.missing else ""
