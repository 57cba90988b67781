"""Compilers as processes that can be held up while something else is measured."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Ended", "ProcessGroup"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended.

    Attributes:
        status: exit status, the negative number of a signal where one ended it.
        output: what it wrote to both of its outputs.
    """

    status: int
    output: str


class ProcessGroup:
    """The processes some threads are running; another thread can pause or end all of them.

    Each process leads a process group, so that what it starts is paused and ended with it. The group is one of this
    session: should this process be killed during a pause, the system ends what it has stopped (POSIX: a stopped
    process group that is orphaned gets SIGHUP and SIGCONT). Under ``nohup``, which has SIGHUP ignored, it goes on.
    """

    def __init__(self) -> None:
        self._running: set[int] = set()
        self._may_start = threading.Condition()
        self._pauses = 0
        self._paused_at = 0.0
        self._paused_s = 0.0
        self._closed = False

    def run(
        self, command: Sequence[str], *, text: str, environment: Mapping[str, str], folder: str, timeout_s: float
    ) -> Ended:
        """Run a process to its end and return how it ended.

        Args:
            command: program and arguments.
            text: what it reads.
            environment: its environment variables.
            folder: where it runs.
            timeout_s: time it may take, in which pauses do not count.

        Raises:
            subprocess.TimeoutExpired: it took longer, and was ended.
            OSError: it could not be started, or the group is closed.
        """
        pipe, merged = subprocess.PIPE, subprocess.STDOUT
        process = self.start(command, environment=environment, folder=folder, stdin=pipe, stdout=pipe, stderr=merged)
        try:
            output = self._communicate(process, text.encode(), timeout_s)
        finally:
            self.end(process)
        return Ended(process.returncode, output.decode(errors="replace"))

    def start(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: str,
        stdin: int,
        stdout: int,
        stderr: int,
    ) -> subprocess.Popen[bytes]:
        """Start a process that :meth:`end` is going to be called for; not during a pause.

        Raises:
            OSError: it could not be started, or the group is closed.
        """
        with self._may_start:
            self._may_start.wait_for(lambda: self._closed or self._pauses == 0)
            if self._closed:
                raise OSError("its compilations have been given up")
            process = subprocess.Popen(
                command, stdin=stdin, stdout=stdout, stderr=stderr, env=environment, cwd=folder, process_group=0
            )
            self._running.add(process.pid)
            return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """End a process, if it has not ended, with what it started."""
        if process.returncode is None:
            _signal(process.pid, signal.SIGKILL)
            process.wait()
        with self._may_start:
            self._running.discard(process.pid)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def within(self, timeout_s: float, attempt: Callable[[float], bool]) -> bool:
        """Make attempts that may take so long, until one succeeds or the time is up, in which pauses do not count.

        Returns whether one succeeded.
        """
        start, paused_before_s = time.monotonic(), self._paused_until_now_s()
        allowed_s = timeout_s
        while allowed_s > 0:
            if attempt(allowed_s):
                return True
            ran_s = time.monotonic() - start - (self._paused_until_now_s() - paused_before_s)
            allowed_s = timeout_s - ran_s
        return False

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Hold up every process, and the start of new ones, for the length of a block."""
        with self._may_start:
            if self._pauses == 0:
                self._paused_at = time.monotonic()
                self._signal_all(signal.SIGSTOP)
            self._pauses += 1
        try:
            yield
        finally:
            with self._may_start:
                self._pauses -= 1
                if self._pauses == 0:
                    self._paused_s += time.monotonic() - self._paused_at
                    self._signal_all(signal.SIGCONT)
                    self._may_start.notify_all()

    def close(self) -> None:
        """End every process; none can be started any more."""
        with self._may_start:
            self._closed = True
            self._signal_all(signal.SIGKILL)
            self._may_start.notify_all()

    def _communicate(self, process: subprocess.Popen[bytes], text: bytes, timeout_s: float) -> bytes:
        unsent: bytes | None = text
        output = b""

        def attempt(allowed_s: float) -> bool:
            nonlocal unsent, output
            try:
                output, _ = process.communicate(unsent, timeout=allowed_s)
            except subprocess.TimeoutExpired:
                # It keeps what is left to send, and refuses to be given it again.
                unsent = None
                return False
            return True

        if not self.within(timeout_s, attempt):
            raise subprocess.TimeoutExpired(process.args, timeout_s)
        return output

    def _paused_until_now_s(self) -> float:
        with self._may_start:
            return self._paused_s + (time.monotonic() - self._paused_at if self._pauses else 0.0)

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in self._running:
            _signal(pid, number)


def _signal(pid: int, number: signal.Signals) -> None:
    # A process that has ended but was not waited for yet still has its number; only its group may be gone.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
