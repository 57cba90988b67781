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
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from mptune.backends.base import excerpt
from mptune.backends.processes import ChildEnded, ChildGroup, PythonChild
from mptune.errors import BackendUnavailableError, CompileError, MptuneError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["CompilerLibrary", "CompilerProcesses", "RuntimeCompiler", "RuntimeLibrary", "serve", "system_libraries"]

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


class RuntimeLibrary:
    """NVRTC, or another library whose functions are called alike, in this very process.

    Args:
        name: what messages call it.
        prefix: what its functions' names start with ("nvrtc").
        code: the kind of code to ask for ("CUBIN"; hiprtc has only "Code").
        path: where the library is.
        builtins: name of the library of builtins, without which it compiles nothing, with "{version}" in it; empty
            where it looks after them itself. The wheel of NVRTC 13.0 does not.

    Attributes:
        version: its version.
        missing: the library of its builtins if that is not found; else empty.

    Raises:
        OSError: it does not load.
        AttributeError: it lacks a function.
    """

    def __init__(self, name: str, prefix: str, code: str, path: str, builtins: str = "") -> None:
        self._name, self._prefix, self._code, self._path = name, prefix, code, path
        self._library = ctypes.CDLL(path)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check("Version", ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"
        self.missing = self._load_builtins(builtins.format(version=self.version))

    def _load_builtins(self, name: str) -> str:
        """Load the builtins, so that the library finds them by their name; return that name if they are not there."""
        for path in (str(Path(self._path).with_name(name)), name) if name else ():
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
                    f"{self._name} rejected {function} ({self._reason(status)})\n{excerpt(log)}".rstrip()
                )
            return self._fetch(self._code, program), log

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


def serve(channel: Connection) -> None:
    """Open a library, answer with its error or None, and compile sources at low priority so that timing comes first."""
    os.nice(_NICENESS)
    open_library: Any = channel.recv()
    try:
        library = open_library()
    except MptuneError as error:
        channel.send(error)
        return
    channel.send(None)
    while True:
        arguments = channel.recv()
        try:
            channel.send(library.compile(*arguments))
        except MptuneError as error:
            channel.send(error)


class CompilerProcesses:
    """A compiler in processes of its own; can be used from any thread.

    Args:
        name: what messages call it.
        open_library: opens it in each of the processes; can be pickled, and may raise a
            :class:`~mptune.errors.MptuneError`.
    """

    def __init__(self, name: str, open_library: Callable[[], CompilerLibrary]) -> None:
        self.name = name
        self._open_library = open_library
        self._processes = ChildGroup()
        #: Idle processes, idle ones that may still be loading the compiler, and busy ones.
        self._idle: list[PythonChild] = []
        self._new: set[PythonChild] = set()
        self._busy: list[PythonChild] = []
        self._lock = threading.Lock()
        self._owner = os.getpid()
        atexit.register(self.close)

    def compile(self, source: str, function: str, flags: Sequence[str], timeout_s: float) -> tuple[bytes, str]:
        """Return the code of a source and what the compiler printed.

        Raises:
            CompileError: the compiler rejected the source, crashed, or was ended for not finishing in time.
        """
        with self._borrowed() as child:
            try:
                answer: Any = None
                if child in self._new:
                    self._new.discard(child)
                    answer = self._processes.within(_START_S, child.receive)
                if answer is None:
                    child.send((source, function, tuple(flags)))
                    answer = self._processes.within(timeout_s, child.receive)
            except subprocess.TimeoutExpired:
                raise CompileError(f"{self.name} did not finish {function} within {timeout_s:g} s") from None
            except ChildEnded as ended:
                what = f"{self.name} crashed in {function}: it {ended.how}\n{ended.printed}"
                raise CompileError(what.rstrip()) from None
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
            ended, self._idle = self._idle, []
            for child in self._busy:
                child.signal(signal.SIGKILL)
        for child in ended:
            self._processes.end(child)

    def expect(self, compilations: int) -> None:
        """Start processes for so many compilations at a time, without waiting until they have opened the compiler."""
        with self._lock:
            self._idle += [self._start() for _ in range(compilations - len(self._idle) - len(self._busy))]

    def paused(self) -> AbstractContextManager[None]:
        """Hold up all compilations for the length of a block, which does not count as their time."""
        return self._processes.paused()

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[PythonChild]:
        """Lend a process that does nothing now, a new one if there is none; one that fails is ended."""
        with self._lock:
            idle = self._idle if os.getpid() == self._owner else []
            while idle and idle[-1].poll() is not None:
                self._processes.end(idle.pop())
            child = idle.pop() if idle else self._start()
            self._busy.append(child)
        try:
            yield child
        except BaseException:
            with self._lock:
                self._busy.remove(child)
            self._processes.end(child)
            raise
        with self._lock:
            self._busy.remove(child)
            self._idle.append(child)

    def _start(self) -> PythonChild:
        child = self._processes.start(lambda: PythonChild(f"{__name__}:serve", keeps_output=True))
        self._new.add(child)
        with contextlib.suppress(ChildEnded):  # its first source is told
            child.send(self._open_library)
        return child


class RuntimeCompiler(CompilerProcesses):
    """NVRTC, or another library whose functions are called alike, in processes of its own.

    Args:
        name: as of :class:`RuntimeLibrary`, like the others.
        prefix: what its functions' names start with.
        code: the kind of code to ask for.
        paths: where the library may be, most preferred first.
        hint: what to install where none of them loads.
        builtins: name of the library of builtins.

    Raises:
        BackendUnavailableError: the library is not there or lacks a function.
    """

    def __init__(self, name: str, prefix: str, code: str, paths: Sequence[str], hint: str, builtins: str = "") -> None:
        for path in paths:
            open_library = functools.partial(RuntimeLibrary, name, prefix, code, path, builtins)
            with contextlib.suppress(OSError, AttributeError):
                library = open_library()
                break
        else:
            raise BackendUnavailableError(f"{name} is not installed: {hint}")
        super().__init__(name, open_library)
        self.version = library.version
        #: What it lacks and how to get it, in words; empty if nothing.
        self.trouble = f"{name} does not find its {library.missing}: {hint}" if library.missing else ""
