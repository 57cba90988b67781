"""Child processes: they end with this one, answer within time limits, can be paused, and leave nothing behind.

Every child leads a process group of its own. One more process, the keeper, knows these groups; it waits for the end of
this process on a pipe and then kills them. ``PR_SET_PDEATHSIG`` would not do: it is sent when the thread ends that
started the child, and does not reach the child's own children.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from mptune.errors import CompileError, MptuneError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

#: Seconds that a child may take to end after it has closed its connection.
_LEAVING_S: Final = 10.0

# -- ending with the parent ------------------------------------------------------------------------

#: Reads a group to kill, or minus one that has ended, from each line until the parent is gone. Only SIGKILL ends it
#: before.
_KEEP: Final = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
groups = set()
for number in map(int, open(0, "rb")):
    if number > 0:
        groups.add(number)
    else:
        groups.discard(-number)
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""
_keeping: Final = threading.Lock()


@functools.cache
def _keeper() -> int:
    """Start the process that kills the children of this one when it ends; return the pipe that it reads."""
    theirs, pipe = os.pipe()
    outputs = [(os.POSIX_SPAWN_OPEN, output, os.devnull, os.O_WRONLY, 0) for output in (1, 2)]
    command = [sys.executable, "-I", "-S", "-c", _KEEP]
    with os.fdopen(theirs):
        actions = [(os.POSIX_SPAWN_DUP2, theirs, 0), *outputs]
        os.posix_spawn(sys.executable, command, os.environ, file_actions=actions, setsid=True)
    return pipe


def _tell_keeper(number: int) -> None:
    with _keeping:
        os.write(_keeper(), b"%d\n" % number)


def _forget_after_fork() -> None:
    if _keeper.cache_info().currsize:
        os.close(_keeper())  # a fork has no children yet, and must not hold up the keeper of its parent
        _keeper.cache_clear()
    _keeping.release()


os.register_at_fork(before=_keeping.acquire, after_in_parent=_keeping.release, after_in_child=_forget_after_fork)

# -- one child -------------------------------------------------------------------------------------


def output_of(command: Sequence[str], timeout_s: float = 30.0) -> tuple[int, str]:
    """Return the exit status and the output of a short command in the C locale; -1 and the reason if it did not run."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, str(error)
    return done.returncode, done.stdout + done.stderr


def in_words(code: int) -> str:
    """Return how a process ended: "exited with code 3", "was ended by SIGSEGV (segmentation fault)" for -11."""
    if code >= 0:
        return f"exited with code {code}"
    name = next((known.name for known in signal.Signals if known == -code), f"signal {-code}")
    return f"was ended by {name} ({(signal.strsignal(-code) or name).lower()})"


class Child(subprocess.Popen[bytes]):
    """A process that leads a process group, ends with this process, and is ended with everything it started.

    Options are those of :class:`subprocess.Popen`; its standard input is empty by default.
    """

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        super().__init__(command, **{"stdin": subprocess.DEVNULL, **options}, start_new_session=True)
        try:
            _tell_keeper(self.pid)
        except OSError:  # without a keeper it could outlive this process
            self.kill()
            raise

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and everything it started; from any thread."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """End the process and everything it started."""
        self.signal(signal.SIGKILL)
        self.wait()
        _tell_keeper(-self.pid)
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


# -- a child that runs Python ----------------------------------------------------------------------

#: Runs a function with the modules this process can import, Python's own first: a kernel may be in ``random.py``.
_START: Final = """
import sys
sys.path += [entry for entry in sys.argv[3:] if entry not in sys.path]
from mptune.backends.processes import run_target
run_target(sys.argv[1], int(sys.argv[2]))
"""


class ChildEnded(Exception):
    """A child ended, or closed its connection, where an answer was expected."""

    def __init__(self, how: str, code: int | None, printed: str) -> None:
        super().__init__(how)
        self.how = how  #: how it ended, in words that follow its name
        self.code = code  #: as :meth:`Child.poll` returns it; None if it only closed its connection
        self.printed = printed  #: the end of its output, if that was kept


class PythonChild(Child):
    """A Python process that runs one function, and a connection to it for messages that can be pickled.

    A new interpreter, rather than a fork or the spawn of ``multiprocessing``, neither inherits the threads of this
    process nor runs its main module. The child's output goes to standard error.

    Args:
        target: "module:function"; called with the child's :class:`~multiprocessing.connection.Connection`.
        environment: variables it has besides those of this process.
        keeps_output: whether its output is kept for :class:`ChildEnded` instead.
    """

    def __init__(
        self, target: str, *, environment: Mapping[str, str] | None = None, keeps_output: bool = False
    ) -> None:
        from multiprocessing.connection import Pipe  # most commands start no such child

        # A file rather than a pipe: nobody has to empty it while the child works.
        self._output = tempfile.TemporaryFile() if keeps_output else None  # noqa: SIM115 - lives as long as the child
        self._connection, theirs = Pipe()
        with theirs:
            super().__init__(
                [sys.executable, "-P", "-c", _START, target, str(theirs.fileno()), *sys.path],
                env={**os.environ, **(environment or {})},
                stdout=self._output,
                stderr=self._output,
                pass_fds=[theirs.fileno()],
            )

    def send(self, message: object) -> None:
        """Send a message; raises :class:`ChildEnded`."""
        try:
            self._connection.send(message)
        except OSError:
            raise self._ended() from None

    def receive(self, timeout_s: float | None = None) -> Any:
        """Wait for a message; without a limit for as long as it takes; raises TimeoutError, ChildEnded."""
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        try:
            while True:
                is_over = self.poll() is not None
                left_s = deadline - time.monotonic()
                # A child that has ended is looked for, as copies of it may keep its connection open.
                if self._connection.poll(max(0.0, min(left_s, 0.25))):
                    return self._connection.recv()
                if is_over:
                    raise EOFError
                if left_s <= 0:
                    raise TimeoutError
        except TimeoutError:
            raise
        except (EOFError, OSError):
            raise self._ended() from None

    def hang_up(self) -> None:
        """Close the connection, upon which the child should end, and wait for it; kill it if it does not."""
        self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(_LEAVING_S)
        self.kill()

    def kill(self) -> None:
        self._connection.close()
        super().kill()
        if self._output is not None:
            self._output.close()

    def _ended(self) -> ChildEnded:
        try:
            code: int | None = self.wait(_LEAVING_S)
        except subprocess.TimeoutExpired:
            code = None
        printed = b""
        if self._output is not None and not self._output.closed:
            self._output.seek(0)
            printed = self._output.read()
        how = "closed its connection without ending" if code is None else in_words(code)
        return ChildEnded(how, code, printed.decode(errors="replace").strip()[-400:])


def run_target(target: str, descriptor: int) -> None:
    """Call a function with the connection behind a file descriptor; the end of the connection ends it."""
    from multiprocessing.connection import Connection

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    module, _, function = target.partition(":")
    with contextlib.suppress(EOFError, ConnectionError), Connection(descriptor) as connection:
        getattr(importlib.import_module(module), function)(connection)


# -- children that can be paused -------------------------------------------------------------------

_Member = TypeVar("_Member", bound=Child)
_Answer = TypeVar("_Answer")


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
    ) -> tuple[int, str]:
        """Run a process that reads a text; return its exit status, or the negative signal, and its output.

        Raises an :class:`OSError` if it cannot be started, and what :meth:`within` raises.
        """
        options: dict[str, Any] = {"env": environment, "cwd": folder}
        with tempfile.TemporaryFile() as source:
            source.write(text.encode())
            source.seek(0)
            options |= {"stdin": source, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            child = self.start(lambda: Child(command, **options))
        try:
            output = self.within(timeout_s, lambda allowed_s: child.communicate(timeout=allowed_s)[0])
            return child.wait(), output.decode(errors="replace")
        finally:
            self.end(child)

    def start(self, make: Callable[[], _Member]) -> _Member:
        """Start a process, not during a pause, for which :meth:`end` has to be called; raises an :class:`OSError`."""
        with self._may_start:
            self._may_start.wait_for(lambda: self._closed or self._pauses == 0)
            if self._closed:
                raise OSError("its compilations have been given up")
            child = make()
            self._running.add(child)
            return child

    def end(self, child: Child) -> None:
        child.kill()
        with self._may_start:
            self._running.discard(child)

    def within(self, timeout_s: float, attempt: Callable[[float], _Answer]) -> _Answer:
        """Repeat an attempt, given the seconds that are left, until it ends within its time; pauses do not count.

        Raises :class:`subprocess.TimeoutExpired`.
        """
        deadline = self._unpaused_s() + timeout_s
        while (allowed_s := deadline - self._unpaused_s()) > 0:
            with contextlib.suppress(TimeoutError, subprocess.TimeoutExpired):
                return attempt(allowed_s)
        raise subprocess.TimeoutExpired("a child process", timeout_s)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop every process, and start no new ones, for the length of a block."""
        with self._may_start:
            if self._pauses == 0:
                self._paused_at = time.monotonic()
                self.signal(signal.SIGSTOP)
            self._pauses += 1
        try:
            yield
        finally:
            with self._may_start:
                self._pauses -= 1
                if self._pauses == 0:
                    self._paused_s += time.monotonic() - self._paused_at
                    self.signal(signal.SIGCONT)
                    self._may_start.notify_all()

    def close(self) -> None:
        """End every process; none can be started any more."""
        with self._may_start:
            self._closed = True
            self.signal(signal.SIGKILL)
            self._may_start.notify_all()

    def signal(self, number: signal.Signals) -> None:
        for child in list(self._running):
            child.signal(number)

    def _unpaused_s(self) -> float:
        """Return a time that stands still during pauses."""
        with self._may_start:
            return (self._paused_at if self._pauses else time.monotonic()) - self._paused_s


# -- compilers in children -------------------------------------------------------------------------


class CompilerLibrary(Protocol):
    """A compiler in this very process."""

    def compile(self, source: str, function: str, flags: Sequence[str]) -> tuple[bytes, str]:
        """Return the code of a source and the compiler's output; raises a :class:`CompileError`."""


def serve(channel: Connection) -> None:
    """Open a library, then compile sources with a lower priority than launches; an error is an answer, too."""
    os.nice(10)
    open_library: Callable[[], CompilerLibrary] = channel.recv()
    library: CompilerLibrary | MptuneError
    try:
        library = open_library()
    except MptuneError as error:
        library = error
    while True:
        arguments = channel.recv()
        try:
            channel.send(library if isinstance(library, MptuneError) else library.compile(*arguments))
        except MptuneError as error:
            channel.send(error)


class CompilerProcesses:
    """A compiler in processes of its own, as many as there are compilations at a time; can be used from any thread.

    A vendor's compiler is a library of a few hundred megabytes that may abort, hang or, as hiprtc does, race with
    itself when two threads use it. A process is kept for the next compilation, so that it loads the library once.

    Args:
        name: its name in messages.
        open_library: opens it in each of the processes; can be pickled, and may raise a
            :class:`~mptune.errors.MptuneError`.
    """

    def __init__(self, name: str, open_library: Callable[[], CompilerLibrary]) -> None:
        self.name = name
        self._open_library = open_library
        self._begin()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._begin)  # the processes are the parent's

    def _begin(self) -> None:
        self._processes = ChildGroup()
        self._idle: list[PythonChild] = []
        self._lock = threading.Lock()

    def start(self, count: int) -> None:
        """Start what so many compilations at a time need, and wait for none of it."""
        with self._lock:
            self._idle += [self._start() for _ in range(count - len(self._idle))]

    def compile(self, source: str, function: str, flags: Sequence[str], timeout_s: float) -> tuple[bytes, str]:
        """Return the code of a source and the compiler's output; raises CompileError."""
        with self._lock:
            while self._idle and self._idle[-1].poll() is not None:
                self._processes.end(self._idle.pop())
            child = self._idle.pop() if self._idle else self._start()
        with contextlib.ExitStack() as failed:
            failed.callback(self._processes.end, child)
            try:
                child.send((source, function, tuple(flags)))
                answer = self._processes.within(timeout_s, child.receive)
            except subprocess.TimeoutExpired:
                raise CompileError(f"{self.name} did not finish {function} within {timeout_s:g} s") from None
            except ChildEnded as ended:
                what = f"{self.name} crashed in {function}: it {ended.how}\n{ended.printed}"
                raise CompileError(what.rstrip()) from None
            failed.pop_all()
        with self._lock:
            self._idle.append(child)
        if isinstance(answer, MptuneError):
            raise answer
        code, log = answer
        return code, log

    def close(self) -> None:
        """End the processes; a compilation in one of them raises a :class:`CompileError`."""
        self._processes.signal(signal.SIGKILL)
        with self._lock:
            while self._idle:
                self._processes.end(self._idle.pop())

    def paused(self) -> AbstractContextManager[None]:
        """Hold up all compilations for the length of a block."""
        return self._processes.paused()

    def _start(self) -> PythonChild:
        child = self._processes.start(lambda: PythonChild(f"{__name__}:serve", keeps_output=True))
        with contextlib.suppress(ChildEnded):  # its first source is told
            child.send(self._open_library)
        return child
