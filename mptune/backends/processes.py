"""Child processes: they end with this one, answer within limits of time, can be paused, and leave nothing behind.

Every child leads a process group of its own. One more process, the keeper, is told which groups there are; it waits for
the end of this process on a pipe and then kills them. That works however this process ends (``kill -9`` included) and
whatever the children are (a compiler, Python deep in a kernel that never ends, a process that is paused).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

if TYPE_CHECKING:
    import socket

__all__ = [
    "Channel",
    "Child",
    "ChildEnded",
    "ChildGroup",
    "Ended",
    "PythonChild",
    "in_words",
    "run_target",
]

#: How long a child that has closed its connection may take to end.
_LEAVING_S: Final = 10.0
#: How long a child may leave a message to it unread.
_SENDING_S: Final = 60.0
#: How often it is seen whether a child that is waited for is still there: copies of it may keep its connection open.
_LOOKING_S: Final = 0.25
_LAST_WORDS: Final = 400

# -- dying with the parent -----------------------------------------------------------------------

#: Reads "+group" and "-group" until the parent is gone. No signal but SIGKILL ends it before.
_KEEP: Final = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
groups = set()
for line in open(0, "rb"):
    (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""


class _Keeper:
    """The process that kills the children of this one when it ends; started with the first child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._lifeline = -1

    def add(self, group: int) -> None:
        """Have a process group killed when this process ends."""
        with self._lock:
            self._tell(f"+{group}\n")
            self._groups.add(group)

    def discard(self, group: int) -> None:
        """Forget a process group that has ended."""
        with self._lock:
            if group in self._groups:
                self._groups.discard(group)
                self._tell(f"-{group}\n")

    def _tell(self, line: str) -> None:
        try:
            os.write(self._lifeline, line.encode())
        except OSError:  # it was not started yet, or somebody killed it
            self._start()
            for known in (*(f"+{group}\n" for group in self._groups), line):
                os.write(self._lifeline, known.encode())

    def _start(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
        theirs, self._lifeline = os.pipe()
        command = [sys.executable, "-I", "-S", "-c", _KEEP]
        actions = [
            (os.POSIX_SPAWN_DUP2, theirs, 0),
            *((os.POSIX_SPAWN_OPEN, output, os.devnull, os.O_WRONLY, 0) for output in (1, 2)),
        ]
        try:
            os.posix_spawn(sys.executable, command, os.environ, file_actions=actions, setsid=True)
        finally:
            os.close(theirs)


_keeper = _Keeper()


def _forget_after_fork() -> None:
    """A fork has no children yet, and must not hold up the keeper of its parent."""
    global _keeper
    if _keeper._lifeline >= 0:
        os.close(_keeper._lifeline)
    _keeper = _Keeper()


os.register_at_fork(after_in_child=_forget_after_fork)

# -- one child -----------------------------------------------------------------------------------


def in_words(code: int) -> str:
    """Say how a process ended: "exited with code 3", "was ended by SIGSEGV (segmentation fault)" for -11."""
    if code >= 0:
        return f"exited with code {code}"
    name = next((known.name for known in signal.Signals if known == -code), f"signal {-code}")
    return f"was ended by {name} ({(signal.strsignal(-code) or name).lower()})"


class Child:
    """A process that leads a process group, ends with this process, and is ended with everything it started.

    Args:
        command: program and arguments.
        environment: all of its environment variables; by default those of this process.
        folder: where it runs; by default where this process does.
        stdin: as of :class:`subprocess.Popen`, like ``stdout`` and ``stderr``.
        pass_fds: file descriptors it inherits.

    Raises:
        OSError: it could not be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        stdin: int | Any = subprocess.DEVNULL,
        stdout: int | Any = None,
        stderr: int | Any = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            start_new_session=True,
        )
        try:
            _keeper.add(self._process.pid)
        except OSError:  # without a keeper it could outlive this process
            self.signal(signal.SIGKILL)
            self._process.wait()
            raise

    @property
    def process_id(self) -> int:
        """The process, and the process group it leads."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return how it ended as :attr:`subprocess.Popen.returncode` says it, None while it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for its end; return as :meth:`poll`.

        Raises:
            subprocess.TimeoutExpired: it runs for longer.
        """
        return self._process.wait(timeout_s)

    def communicate(self, text: bytes | None, timeout_s: float) -> bytes:
        """Send a text and return what it printed, at its end; a call that ran out of time goes on with None.

        Raises:
            subprocess.TimeoutExpired: it runs for longer.
        """
        return self._process.communicate(text, timeout=timeout_s)[0] or b""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and everything it started; from any thread."""
        # A process that was not waited for still has its number; only its group may be gone.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """End the process and everything it started, and give back what this process holds of it."""
        self.signal(signal.SIGKILL)
        self._process.wait()
        _keeper.discard(self._process.pid)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


# -- messages ------------------------------------------------------------------------------------

_LENGTH: Final = struct.Struct("=Q")


class Channel:
    """One end of a connection between two processes. Messages are whatever can be pickled.

    Args:
        end: the socket; closed with the channel.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    @classmethod
    def to_child(cls) -> tuple[Channel, socket.socket]:
        """Return this process's end of a new connection, and the socket that a child makes its end of."""
        import socket  # only a child that runs Python needs it

        ours, theirs = socket.socketpair()
        return cls(ours), theirs

    @classmethod
    def to_parent(cls, descriptor: int) -> Channel:
        """Return the child's end, of the socket it inherited."""
        import socket

        return cls(socket.socket(fileno=descriptor))

    def send(self, message: object, timeout_s: float | None = None) -> None:
        """Send a message.

        Raises:
            TimeoutError: it was not taken in time.
            ConnectionError: there is nobody to receive it.
        """
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._socket.settimeout(timeout_s)
        self._socket.sendall(_LENGTH.pack(len(body)) + body)

    def recv(self, timeout_s: float | None = None, is_over: Callable[[], bool] | None = None) -> Any:
        """Wait for a message; without a limit for as long as it takes.

        Args:
            timeout_s: how long it may take to come, all of it.
            is_over: asked now and then whether none will come though the connection is open.

        Raises:
            TimeoutError: it did not come in time.
            EOFError: none will come.
            ConnectionError: the connection is broken.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        (length,) = _LENGTH.unpack(_read(self._socket, _LENGTH.size, deadline, is_over))
        return pickle.loads(_read(self._socket, length, deadline, is_over))

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read(
    end: socket.socket, length: int, deadline: float | None = None, is_over: Callable[[], bool] | None = None
) -> bytearray:
    """Return so many bytes, all of them before a time by ``time.monotonic``."""
    found = bytearray(length)
    left = memoryview(found)
    while left:
        left_s = _LOOKING_S if deadline is None else deadline - time.monotonic()
        # What is there already is read even if no time is left.
        end.settimeout(min(max(left_s, 1e-4), _LOOKING_S) if deadline is not None or is_over is not None else None)
        was_over = is_over is not None and is_over()
        try:
            count = end.recv_into(left)
        except TimeoutError:
            if was_over:
                raise EOFError from None
            if left_s <= 0:
                raise
        else:
            if not count:
                raise EOFError
            left = left[count:]
    return found


# -- a child that runs Python --------------------------------------------------------------------

#: Runs a function with the modules this process can import, Python's own first: a kernel may be in ``random.py``.
_START: Final = """
import sys
sys.path += [entry for entry in sys.argv[3:] if entry not in sys.path]
from mptune.backends.processes import run_target
run_target(sys.argv[1], int(sys.argv[2]))
"""


class ChildEnded(Exception):
    """A child ended, or closed its connection, where an answer was expected.

    Attributes:
        how: how it ended, in words that follow its name.
        code: as of :meth:`Child.poll`; None if it only closed its connection.
        printed: the last of what it printed, if that was kept.
    """

    def __init__(self, how: str, code: int | None, printed: str) -> None:
        super().__init__(how)
        self.how = how
        self.code = code
        self.printed = printed


class PythonChild(Child):
    """A Python process that runs one function, and a connection to it. Messages are whatever can be pickled.

    A new interpreter, rather than a fork or the spawn of ``multiprocessing``, neither inherits the threads of this
    process nor runs its main module. What the child prints goes to standard error.

    Args:
        target: "module:function"; called with the child's :class:`Channel`, whose end it may run into.
        environment: variables it has besides those of this process.
        folder: where it runs; by default where this process does.
        keeps_output: whether what it prints is kept for :class:`ChildEnded` instead.

    Raises:
        OSError: it could not be started.
    """

    def __init__(
        self,
        target: str,
        *,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        keeps_output: bool = False,
    ) -> None:
        # A file rather than a pipe: nobody has to empty it while the child works.
        self._output = tempfile.TemporaryFile() if keeps_output else None  # noqa: SIM115 - lives as long as the child
        self._channel, theirs = Channel.to_child()
        with theirs:
            super().__init__(
                [sys.executable, "-P", "-c", _START, target, str(theirs.fileno()), *sys.path],
                environment={**os.environ, **(environment or {})},
                folder=folder,
                stdout=self._output,
                stderr=self._output,
                pass_fds=[theirs.fileno()],
            )

    def send(self, message: object) -> None:
        """Send a message.

        Raises:
            ChildEnded: there is nobody to receive it.
        """
        try:
            self._channel.send(message, _SENDING_S)
        except OSError:
            raise self._ended() from None

    def receive(self, timeout_s: float | None = None) -> Any:
        """Wait for a message; without a limit for as long as it takes.

        Raises:
            TimeoutError: none came in time.
            ChildEnded: none will come.
        """
        try:
            return self._channel.recv(timeout_s, is_over=lambda: self.poll() is not None)
        except TimeoutError:
            raise
        except (EOFError, OSError):
            raise self._ended() from None

    def hang_up(self) -> None:
        """Close the connection, upon which the child should end, and wait for it; kill it if it does not."""
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(_LEAVING_S)
        self.kill()

    def kill(self) -> None:
        """End the process and everything it started, and give back what this process holds of it."""
        self._channel.close()
        super().kill()
        if self._output is not None:
            self._output.close()

    def _ended(self) -> ChildEnded:
        try:
            code: int | None = self.wait(_LEAVING_S)
        except subprocess.TimeoutExpired:
            code = None
        how = "closed its connection without ending" if code is None else in_words(code)
        return ChildEnded(how, code, self._printed())

    def _printed(self) -> str:
        if self._output is None or self._output.closed:
            return ""
        self._output.seek(0)
        return self._output.read().decode(errors="replace").strip()[-_LAST_WORDS:]


def run_target(target: str, descriptor: int) -> None:
    """Call a function with the connection behind a file descriptor; the end of the connection ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    module, _, function = target.partition(":")
    with contextlib.suppress(EOFError, ConnectionError), Channel.to_parent(descriptor) as channel:
        getattr(importlib.import_module(module), function)(channel)


# -- children that can be paused -----------------------------------------------------------------


_Member = TypeVar("_Member", bound=Child)
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended.

    Attributes:
        status: exit status, or the negative number of the signal that ended it.
        output: what it wrote to both of its outputs.
    """

    status: int
    output: str


class ChildGroup:
    """The children that some threads run; another thread can pause or end all of them."""

    def __init__(self) -> None:
        self._running: set[Child] = set()
        self._may_start = threading.Condition()
        self._pauses = 0
        self._paused_at = 0.0
        self._paused_s = 0.0
        self._closed = False

    def run(
        self, command: Sequence[str], *, text: str, environment: Mapping[str, str], folder: str, timeout_s: float
    ) -> Ended:
        """Run a process that reads a text to its end; pauses do not count towards the time it may take.

        Raises:
            subprocess.TimeoutExpired: it took longer, and was ended.
            OSError: it could not be started, or the group is closed.
        """
        unsent: bytes | None = text.encode()

        def attempt(allowed_s: float) -> bytes:
            nonlocal unsent
            sent, unsent = unsent, None
            return child.communicate(sent, allowed_s)

        pipe, merged = subprocess.PIPE, subprocess.STDOUT
        child = self.start(
            lambda: Child(command, environment=environment, folder=folder, stdin=pipe, stdout=pipe, stderr=merged)
        )
        try:
            output = self.within(timeout_s, attempt)
            return Ended(child.wait(), output.decode(errors="replace"))
        finally:
            self.end(child)

    def start(self, make: Callable[[], _Member]) -> _Member:
        """Start a process, not during a pause, that :meth:`end` is going to be called for.

        Args:
            make: starts and returns it.

        Raises:
            OSError: it could not be started, or the group is closed.
        """
        with self._may_start:
            self._may_start.wait_for(lambda: self._closed or self._pauses == 0)
            if self._closed:
                raise OSError("its compilations have been given up")
            child = make()
            self._running.add(child)
            return child

    def end(self, child: Child) -> None:
        """End a process with what it started, if it has not ended."""
        child.kill()
        with self._may_start:
            self._running.discard(child)

    def within(self, timeout_s: float, attempt: Callable[[float], _Answer]) -> _Answer:
        """Repeat an attempt, told how long it may take, while it runs out of time; pauses do not count.

        Raises:
            subprocess.TimeoutExpired: time is up.
        """
        start, paused_before_s = time.monotonic(), self._paused_until_now_s()
        allowed_s = timeout_s
        while allowed_s > 0:
            with contextlib.suppress(TimeoutError, subprocess.TimeoutExpired):
                return attempt(allowed_s)
            ran_s = time.monotonic() - start - (self._paused_until_now_s() - paused_before_s)
            allowed_s = timeout_s - ran_s
        raise subprocess.TimeoutExpired("a child process", timeout_s)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop every process, and start no new ones, for the length of a block."""
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

    def _paused_until_now_s(self) -> float:
        with self._may_start:
            return self._paused_s + (time.monotonic() - self._paused_at if self._pauses else 0.0)

    def _signal_all(self, number: signal.Signals) -> None:
        for child in self._running:
            child.signal(number)
