"""A process that compiles with a compiler that is a library."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

from mptune.backends.runtime_library import CompilerSpec, RuntimeLibrary
from mptune.errors import CompileError, MptuneError

__all__ = ["CompilerProcess", "Task", "main"]

#: Runs a child with the modules this process can import.
_START: Final = """
import sys
sys.path += [entry for entry in sys.argv[3:] if entry not in sys.path]
from mptune.backends.compiler_process import main
main(int(sys.argv[1]), int(sys.argv[2]))
"""
_START_S: Final = 60.0
_LEAVING_S: Final = 5.0
_LAST_WORDS: Final = 400


@dataclass(frozen=True, slots=True)
class Task:
    """One compilation: a source, the name of its kernel, and flags."""

    source: str
    function: str
    flags: tuple[str, ...]


class CompilerProcess:
    """A process that does nothing but compile: whatever the compiler does, it can be ended and replaced.

    It is kept for the next compilation, so that it loads the library once. Besides the connection there is a pipe
    whose end tells it, in the midst of a compilation too, that this process has gone.

    Args:
        spec: the compiler.

    Raises:
        CompileError: it does not start.
    """

    def __init__(self, spec: CompilerSpec) -> None:
        self._spec = spec
        # A file rather than a pipe: nobody has to empty it while the compiler runs.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        self._connection, theirs = multiprocessing.Pipe()
        lifeline, self._lifeline = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, str(theirs.fileno()), str(lifeline), *sys.path],
                pass_fds=[theirs.fileno(), lifeline],
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                start_new_session=True,
            )
        finally:
            theirs.close()
            os.close(lifeline)
        try:
            self._exchange(spec, "its start", _START_S)
        except BaseException:
            self.kill()
            raise

    def compile(self, task: Task, timeout_s: float) -> tuple[bytes, str] | MptuneError:
        """Return the code and the log, or the compiler's refusal.

        Raises:
            CompileError: the process died or took too long; it is of no further use.
        """
        answer: tuple[bytes, str] | MptuneError = self._exchange(task, task.function, timeout_s)
        return answer

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def interrupt(self) -> None:
        """End the process under the hands of the thread that uses it; that thread raises and cleans up."""
        self._process.kill()

    def kill(self) -> None:
        """End the process and give back what it used."""
        self._process.kill()
        self._process.wait()
        self._connection.close()
        os.close(self._lifeline)
        self._stderr.close()

    def _exchange(self, message: object, what: str, timeout_s: float) -> Any:
        try:
            self._connection.send(message)
            if not self._connection.poll(timeout_s):
                raise CompileError(f"{self._spec.name} did not finish {what} within {timeout_s:g} s")
            return self._connection.recv()
        except (EOFError, OSError):
            raise CompileError(f"{self._spec.name} crashed in {what}: {self._last_words()}") from None

    def _last_words(self) -> str:
        """Say how the process ended and what it printed last."""
        try:
            code = self._process.wait(_LEAVING_S)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        self._stderr.seek(0)
        printed = self._stderr.read().decode(errors="replace").strip()[-_LAST_WORDS:]
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"{how}\n{printed}".rstrip()


def main(descriptor: int, lifeline: int) -> None:
    """Compile what comes over the connection until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    with Connection(descriptor) as connection:
        try:
            spec: Any = connection.recv()
            library = RuntimeLibrary(spec)
            connection.send(None)
            while True:
                task: Any = connection.recv()
                try:
                    connection.send(library.compile(task.source, task.function, task.flags))
                except MptuneError as error:
                    connection.send(error)
        except (EOFError, ConnectionError):
            return


def _end_with_parent(lifeline: int) -> None:
    """Wait for the end of the parent, which alone holds the pipe's other end, even in the midst of a compilation."""
    os.read(lifeline, 1)
    os._exit(0)
