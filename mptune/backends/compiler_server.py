"""A g++ that is started once and compiles one source after the other.

What it does before it comes to a source (start, read its options, set up its tables, read the prelude) is the same for
all of them and a good part of what a short kernel takes to compile. ``compiler_server.c``, loaded into the compiler,
lets it do that once and fork for each source. The copy goes on as any compiler does, so that the code is the same to
the last byte; whatever a server cannot do is left to a compiler that is started for it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mptune.backends.gcc_commands import LIBRARY, OBJECT, GccCommands
from mptune.backends.precompiled import Precompiled
from mptune.errors import MptuneError
from mptune.processes import ChildGroup

__all__ = ["CompilerServers"]

_SOURCE, _LOG = "source.cpp", "log"
_START_LIMIT_S: Final = 30.0
_STATUS: Final = struct.Struct("=i")


class CompilerServers:
    """As many servers as there are compilations at a time, for each set of flags.

    Args:
        processes: runs the compilers.
    """

    def __init__(self, processes: ChildGroup) -> None:
        self._processes = processes
        self._lock = threading.Lock()
        self._idle: dict[GccCommands, list[_Server]] = {}
        self._is_closed = False
        #: By driver, flags and prelude; None where there is no way to serve.
        self._commands: dict[tuple[tuple[str, ...], tuple[str, ...], Precompiled], GccCommands | None] = {}

    def compile(
        self,
        driver: Sequence[str],
        flags: Sequence[str],
        made: Precompiled,
        source: str,
        folder: Path,
        timeout_s: float,
    ) -> tuple[bytes, str] | None:
        """Return the shared library of a source and what was printed; None where a compiler must be started for it.

        Args:
            driver: how to call g++.
            flags: as of :meth:`~mptune.backends.host_compiler.Compiler.flags`.
            made: what stands for the prelude.
            source: what follows the prelude.
            folder: for the files, absolute.
            timeout_s: when to give up.

        Raises:
            subprocess.TimeoutExpired: it took longer.
        """
        key = (tuple(driver), tuple(flags), made)
        with self._lock:
            if key not in self._commands:
                self._commands[key] = _commands(*key)
            commands = self._commands[key]
        if commands is None or made.server is None:
            return None
        try:
            (folder / _SOURCE).write_bytes(source.encode())
            with self._server(commands, made.server) as server:
                if server.request("c", folder, commands.assemble, timeout_s) != 0:
                    return None
                link = commands.link_of((folder / OBJECT).read_bytes())
                if server.request("r", folder, link, timeout_s) != 0:
                    return None
            return (folder / LIBRARY).read_bytes(), (folder / _LOG).read_text(errors="replace")
        except (OSError, MptuneError):
            with self._lock:
                self._commands[key] = None
            return None

    def close(self) -> None:
        """End them all, those at work when they are done."""
        with self._lock:
            self._is_closed = True
            idle = [server for servers in self._idle.values() for server in servers]
            self._idle.clear()
        for server in idle:
            server.close()

    @contextlib.contextmanager
    def _server(self, commands: GccCommands, library: Path) -> Iterator[_Server]:
        """Lend a server, started if none is idle; one that fails is ended."""
        with self._lock:
            idle = self._idle.setdefault(commands, [])
            server = idle.pop() if idle else None
        server = server or _Server(self._processes, commands.compile, library)
        try:
            yield server
        except BaseException:
            server.close()
            raise
        with self._lock:
            if not self._is_closed:
                self._idle.setdefault(commands, []).append(server)
                return
        server.close()


class _Server:
    """One server.

    Args:
        processes: runs it.
        command: the compiler.
        library: makes a server of it.

    Raises:
        OSError: it could not be started, or never came to its source.
    """

    def __init__(self, processes: ChildGroup, command: Sequence[str], library: Path) -> None:
        self._processes = processes
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {**os.environ, "LD_PRELOAD": str(library), "LC_ALL": "C"}
        null = subprocess.DEVNULL
        with theirs:
            try:
                self._child = processes.start(
                    command, environment=environment, folder=os.sep, stdin=theirs.fileno(), stdout=null, stderr=null
                )
            except BaseException:
                self._socket.close()
                raise
        try:
            self._receive(_START_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            self.close()
            raise OSError("the compiler never came to its source") from error
        except BaseException:
            self.close()
            raise

    def request(self, kind: str, folder: Path, command: Sequence[str], timeout_s: float) -> int:
        """Have a source compiled ("c") or none ("r"), then a command run; return the status of what failed, or 0.

        Raises:
            subprocess.TimeoutExpired: it took longer.
            OSError: the server is gone.
        """
        words = (kind + str(folder), *command, "")
        self._socket.settimeout(None)
        self._socket.send("".join(f"{word}\0" for word in words).encode())
        (status,) = _STATUS.unpack(self._receive(timeout_s))
        return int(status)

    def close(self) -> None:
        """End it, whatever it is doing."""
        self._processes.end(self._child)
        self._socket.close()

    def _receive(self, timeout_s: float) -> bytes:
        answer = b""

        def attempt(allowed_s: float) -> bool:
            nonlocal answer
            self._socket.settimeout(allowed_s)
            try:
                answer = self._socket.recv(_STATUS.size)
            except TimeoutError:
                return False
            return True

        if not self._processes.within(timeout_s, attempt):
            raise subprocess.TimeoutExpired("compiler", timeout_s)
        if not answer:
            raise OSError("the compiler is gone")
        return answer


def _commands(driver: tuple[str, ...], flags: tuple[str, ...], made: Precompiled) -> GccCommands | None:
    # What is loaded into every program already could do without this one's company.
    if made.server is None or "LD_PRELOAD" in os.environ:
        return None
    try:
        return GccCommands.of(driver, flags, made)
    except (OSError, MptuneError, subprocess.SubprocessError):
        return None
