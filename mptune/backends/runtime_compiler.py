"""NVRTC and hiprtc, as many compilations at a time as there are callers.

A vendor's compiler is a library of a few hundred megabytes that may abort, hang or, as hiprtc does, race with itself
when two threads use it. None of that may reach the process that holds the search, so each compilation runs in
a :class:`~mptune.backends.compiler_process.CompilerProcess`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Sequence

from mptune.backends.compiler_process import CompilerProcess, Task
from mptune.backends.runtime_library import CompilerSpec, RuntimeLibrary
from mptune.errors import BackendUnavailableError, MptuneError

__all__ = ["RuntimeCompiler"]


class RuntimeCompiler:
    """A compiler that is a library, in processes of its own; usable from any thread.

    Args:
        name: what messages call it.
        prefix: what its functions' names start with ("nvrtc").
        code: the kind of code to ask for ("CUBIN"; hiprtc has only "Code").
        paths: where the library may be, most preferred first.
        hint: what to install where none of them loads.

    Raises:
        BackendUnavailableError: the library is not there or lacks a function.
    """

    def __init__(self, name: str, prefix: str, code: str, paths: Sequence[str], hint: str) -> None:
        library = _open([CompilerSpec(name, prefix, code, path) for path in paths])
        if library is None:
            raise BackendUnavailableError(f"{name} is not installed: {hint}")
        self.name = name
        self.version = library.version
        self._spec = library.spec
        self._idle: list[CompilerProcess] = []
        self._busy: list[CompilerProcess] = []
        self._lock = threading.Lock()
        self._owner = os.getpid()
        atexit.register(self.close)

    def compile(self, source: str, function: str, flags: Sequence[str], timeout_s: float) -> tuple[bytes, str]:
        """Return the code of a source and what the compiler printed.

        Raises:
            CompileError: the compiler rejected the source, crashed, or was ended for not finishing in time.
        """
        process = self._take()
        try:
            answer = process.compile(Task(source, function, tuple(flags)), timeout_s)
        except BaseException:
            with self._lock:
                self._busy.remove(process)
            process.kill()
            raise
        with self._lock:
            self._busy.remove(process)
            self._idle.append(process)
        if isinstance(answer, MptuneError):
            raise answer
        return answer

    def close(self) -> None:
        """End the processes; a compilation in one of them raises a :class:`CompileError`."""
        # A fork has a copy of the lists, but the processes are its parent's.
        if os.getpid() != self._owner:
            return
        with self._lock:
            idle, self._idle = self._idle, []
            for process in self._busy:
                process.interrupt()
        for process in idle:
            process.kill()

    def _take(self) -> CompilerProcess:
        """Return a process that did nothing, a new one if there is none."""
        with self._lock:
            while self._idle and os.getpid() == self._owner:
                process = self._idle.pop()
                if process.is_alive():
                    self._busy.append(process)
                    return process
                process.kill()
        process = CompilerProcess(self._spec)
        with self._lock:
            self._busy.append(process)
        return process


def _open(specs: Sequence[CompilerSpec]) -> RuntimeLibrary | None:
    """Return the first library that loads and has the compiler's functions."""
    for spec in specs:
        with contextlib.suppress(OSError, AttributeError):
            return RuntimeLibrary(spec)
    return None
