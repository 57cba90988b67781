"""g++ that stays: a process that has read the prelude forks for each source.

``compiler_server.c``, loaded into the compiler proper (``LD_PRELOAD``), does that. It saves the start of g++ and the
reading of the prelude, and the generated code is the same. A source that a server cannot compile is compiled as usual.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shlex
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from mptune.backends.processes import Child, ChildGroup, output_of

#: The files in the folder compilers run in; :data:`LOG` has the output of a server's programs.
ASSEMBLY, LIBRARY, LOG = "kernel.s", "kernel.so", "log"
_OBJECT: Final = "kernel.o"
SERVER: Final = Path(__file__).with_name("compiler_server.c")
#: The source in a server's command: no file can have this name.
_SERVED: Final = "/dev/null/source"
#: Flags of the library that makes a server. Checks of the C library would replace the functions that it defines.
SERVER_FLAGS: Final = ("-w", "-O1", "-U_FORTIFY_SOURCE", "-shared", "-fPIC", f'-DMPTUNE_SOURCE="{_SERVED}"')
#: Flags that change what the assembler and the linker do.
_UNSERVED: Final = ("-flto", "-fuse-ld", "-fno-pic", "-fno-PIC", "-Wa,", "-Wl,", "-Xassembler", "-Xlinker", "-L", "-l")
#: Symbols that position-independent x86 code takes from elsewhere, and those that need no library.
_IMPORTED: Final = re.compile(r"(?<![\w.])([\w.]+)@(?:PLT|GOT)")
_IN_RUNTIME: Final = re.compile(r"_ZNK?11mptune_host|mptune_|(?:memcpy|memmove|memset|mprotect|__tls_get_addr)\Z")
#: The status of a command that succeeded, an int.
_SUCCESS: Final = bytes(4)


class Servers:
    """The servers for one prelude and one set of flags: one for each compilation at a time, from any thread.

    Args:
        command: g++ with the flags of every source, none of which names a file or the language.
        header: the header whose compiled form a server reads.
        library: :data:`SERVER`, compiled.
    """

    def __init__(self, processes: ChildGroup, command: Sequence[str], header: Path, library: Path) -> None:
        self._processes = processes
        self._environment = {**os.environ, "LD_PRELOAD": str(library), "LC_ALL": "C"}
        self._lock = threading.Lock()
        self._idle: list[_Server] = []
        self._is_closed = False
        source = ("-include", str(header), "-include", _SERVED, "-x", "c++", os.devnull, "-S", "-o", "-")
        _, answer = output_of([*command, "-###", *source])
        programs = [shlex.split(line) for line in answer.splitlines() if line.startswith(" ")]
        self._tools = [output_of([command[0], f"-print-prog-name={name}"])[1].strip() for name in ("as", "ld")]
        # Another preloaded library might not work beside the server's.
        can_serve = "LD_PRELOAD" not in os.environ and not any(flag.startswith(_UNSERVED) for flag in command)
        #: The compiler proper with its arguments; nothing if no server can be used.
        self._compiler = programs[0] if can_serve and len(programs) == 1 and "cc1plus" in programs[0][0] else []

    def compile(self, source: str, runtime: Path, link: Sequence[str], folder: Path, timeout_s: float) -> bool:
        """Make assembly and library of a source in its folder; return whether a server could.

        Args:
            source: what follows the prelude.
            runtime: the object to link with.
            link: the command that makes the library of the assembly, whatever that needs.
            folder: where the files are made.
            timeout_s: the limit of each program.

        Raises:
            subprocess.TimeoutExpired: it took longer.
        """
        if not self._compiler:
            return False
        assembler, linker = self._tools
        try:
            (folder / "source.cpp").write_bytes(source.encode())
            with self._borrowed(timeout_s) as server:

                def succeeds(*command: str) -> bool:
                    server.send(folder, command)
                    return self._processes.within(timeout_s, server.receive) == _SUCCESS

                if not succeeds():
                    return False
                imported = _IMPORTED.findall((folder / ASSEMBLY).read_text(errors="replace"))
                # The linker searches libraries for as long as it does everything else.
                if platform.machine() != "x86_64" or not all(map(_IN_RUNTIME.match, imported)):
                    return succeeds(*link)
                direct = ("-shared", "--hash-style=gnu", "-o", LIBRARY, _OBJECT, str(runtime))
                return succeeds(assembler, "-o", _OBJECT, ASSEMBLY) and succeeds(linker, *direct)
        except OSError:
            self._compiler = []
            return False

    def close(self) -> None:
        """End the idle servers at once, and others when they are done."""
        with self._lock:
            self._is_closed = True
            while self._idle:
                self._processes.end(self._idle.pop())

    @contextlib.contextmanager
    def _borrowed(self, timeout_s: float) -> Iterator[_Server]:
        """Lend a server, started if none is idle; end one that fails."""
        with self._lock:
            server = self._idle.pop() if self._idle else None
        is_new = server is None
        server = server or self._processes.start(lambda: _Server(self._compiler, self._environment))
        with contextlib.ExitStack() as failed:
            failed.callback(self._processes.end, server)
            if is_new:
                self._processes.within(timeout_s, server.receive)
            yield server
            with self._lock:
                if not self._is_closed:
                    failed.pop_all()
                    self._idle.append(server)


class _Server(Child):
    """A compiler that forks for each source; its methods raise :class:`OSError` when it is gone."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        null = subprocess.DEVNULL
        with theirs:
            super().__init__(command, env=environment, cwd=os.sep, stdin=theirs.fileno(), stdout=null, stderr=null)

    def send(self, folder: Path, command: Sequence[str]) -> None:
        """Have a command run in a folder, or the source there compiled."""
        self._socket.settimeout(None)
        self._socket.send("".join(f"{word}\0" for word in (str(folder), *command)).encode())

    def receive(self, allowed_s: float) -> bytes:
        """Return the status of what was sent, as waitpid() gives it."""
        self._socket.settimeout(allowed_s)
        if answer := self._socket.recv(len(_SUCCESS)):
            return answer
        raise OSError("the compiler is gone")

    def kill(self) -> None:
        super().kill()
        self._socket.close()
