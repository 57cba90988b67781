"""g++ that reads the prelude once, and stays for the next source.

Starting g++, its options, its tables and the prelude are the same for all sources and a good part of a short kernel's
compilation. So the prelude is kept as g++ has it after reading it (a ``.gch`` file), and ``compiler_server.c``, loaded
into the compiler proper, does all of that once and forks for each source. The code is the same to the last byte. For a
source that cannot be compiled this way a compiler is started.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shlex
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mptune.backends.binary_cache import BinaryCache
from mptune.backends.processes import Child, ChildGroup, output_of
from mptune.paths import is_own, own_folder

__all__ = ["ASSEMBLY", "LIBRARY", "LOG", "CompilerServers", "Precompiled", "PrecompiledPrelude"]

#: The files in the folder compilers run in.
ASSEMBLY, LIBRARY, LOG = "kernel.s", "kernel.so", "log"
_OBJECT: Final = "kernel.o"
#: Stands for the source in the command of a compiler that stays; there can be no such file.
_SERVED_SOURCE: Final = "/dev/null/source"
_STATUS: Final = struct.Struct("=i")
_SERVER: Final = Path(__file__).with_name("compiler_server.c")
#: Flags that need more than compiler, assembler and linker.
_UNSERVED: Final = ("-flto", "-fuse-ld", "-save-temps", "-fno-pic", "-fno-PIC")
#: Symbols that position-independent x86 code takes from elsewhere, and those of the prelude's runtime or of libc.
_IMPORTED: Final = re.compile(r"([\w.]+)@(?:PLT|GOT)")
_IN_RUNTIME: Final = re.compile(r"_ZNK?11mptune_host|mptune_|(?:memcpy|memmove|memset|mprotect|__tls_get_addr)\Z")

# -- the prelude, read once ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Precompiled:
    """Files of a compiled prelude."""

    header: Path  #: included in place of the prelude's text; its .gch is beside it, where g++ can use it
    runtime: Path  #: the object to link with: the code around launches, which is the same for all sources
    server: Path | None  #: the library that makes a server of a compiler; None where it could not be made


class PrecompiledPrelude:
    """The prelude, compiled once for each compiler and set of flags."""

    def __init__(self, text: str, cache: BinaryCache, processes: ChildGroup) -> None:
        self.text = text
        self._cache = cache
        self._processes = processes
        self._lock = threading.Lock()
        self._made: dict[tuple[str, ...], Precompiled | None] = {}

    def files(self, command: Sequence[str], version: str) -> Precompiled | None:
        """Return the files, made if need be; None where they cannot be kept or made.

        The command is the compiler's with the flags of every source, but none that name files or the language.
        """
        key = (version, *command)
        with self._lock:
            if key not in self._made:
                kept_as = self._cache.key([*key, self.text, _SERVER.read_text(encoding="utf-8")])
                self._made[key] = self._make(list(command), kept_as)
            made = self._made[key]
        if made is None:
            return None
        # If the cache has been pruned meanwhile, sources are compiled whole from now on.
        try:
            for path in (made.header, _compiled_header(made.header), made.runtime, *filter(None, [made.server])):
                os.utime(path)
        except OSError:
            return None
        return made

    def _make(self, command: list[str], key: str) -> Precompiled | None:
        try:
            header = own_folder(self._cache.directory / "headers") / key
        except OSError:
            return None
        runtime, server = (header.with_name(f"{key}{suffix}") for suffix in (".o", ".so"))
        if all(map(is_own, (header, _compiled_header(header), runtime))):
            return Precompiled(header, runtime, server if is_own(server) else None)
        with contextlib.suppress(OSError, subprocess.TimeoutExpired), self._cache.workspace() as folder:
            text, made = folder / "prelude.hpp", folder / "made"
            # The #line keeps this folder out of messages.
            text.write_text(f'#define MPTUNE_RUNTIME_APART 1\n#line 1 "{text.name}"\n{self.text}')
            self._compile([*command, "-x", "c++-header", str(text), "-o", str(made)], folder)
            _place(made, _compiled_header(header))
            named = f'-DMPTUNE_SOURCE="{_SERVED_SOURCE}"'
            # Checks of the C library would replace the functions that the server defines.
            flags = ("-w", "-O1", "-U_FORTIFY_SOURCE", "-shared", "-fPIC", named)
            self._compile([command[0], *flags, "-x", "c++", str(_SERVER), "-o", str(made)], folder)
            can_serve = made.exists()
            if can_serve:
                _place(made, server)
            self._compile([*command, "-DMPTUNE_RUNTIME_HERE=1", "-x", "c++", "-c", str(text), "-o", str(made)], folder)
            _place(text, header)
            _place(made, runtime)
            return Precompiled(header, runtime, server if can_serve else None)
        return None

    def _compile(self, command: list[str], folder: Path) -> None:
        environment = {**os.environ, "TMPDIR": str(folder), "LC_ALL": "C"}
        self._processes.run(command, text="", environment=environment, folder=str(folder), timeout_s=60.0)


def _place(made: Path, path: Path) -> None:
    made.chmod(0o600)
    made.replace(path)


def _compiled_header(header: Path) -> Path:
    return header.with_name(f"{header.name}.gch")


# -- compilers that stay ---------------------------------------------------------------------------


class CompilerServers:
    """A server for each set of flags and compilation at a time."""

    def __init__(self, processes: ChildGroup) -> None:
        self._processes = processes
        self._lock = threading.Lock()
        self._idle: dict[_Commands, list[_Server]] = {}
        self._is_closed = False
        #: By driver, flags and prelude; None where there is no way to serve.
        self._commands: dict[tuple[tuple[str, ...], tuple[str, ...], Precompiled], _Commands | None] = {}

    def compile(
        self,
        driver: Sequence[str],
        flags: Sequence[str],
        made: Precompiled,
        source: str,
        folder: Path,
        timeout_s: float,
    ) -> bool:
        """Compile the source after the prelude to files in a folder; return whether a server could.

        Raises:
            subprocess.TimeoutExpired: it took longer.
        """
        key = (tuple(driver), tuple(flags), made)
        with self._lock:
            if key not in self._commands:
                self._commands[key] = _Commands.of(*key)
            commands = self._commands[key]
        if commands is None or made.server is None:
            return False
        try:
            (folder / "source.cpp").write_bytes(source.encode())
            with self._server(commands, made.server) as server:
                if server.request("c", folder, commands.assemble, timeout_s) != 0:
                    return False
                link = commands.link_of((folder / ASSEMBLY).read_text(errors="replace"))
                return server.request("r", folder, link, timeout_s) == 0
        except OSError:
            with self._lock:
                self._commands[key] = None
            return False

    def close(self) -> None:
        """End all servers, busy ones when they are done."""
        with self._lock:
            self._is_closed = True
            idle = [server for servers in self._idle.values() for server in servers]
            self._idle.clear()
        for server in idle:
            server.close()

    @contextlib.contextmanager
    def _server(self, commands: _Commands, library: Path) -> Iterator[_Server]:
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
    """A compiler that forks for each source; raises :class:`OSError` where it does not start."""

    def __init__(self, processes: ChildGroup, command: Sequence[str], library: Path) -> None:
        self._processes = processes
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {**os.environ, "LD_PRELOAD": str(library), "LC_ALL": "C"}
        null = subprocess.DEVNULL
        with theirs:
            try:
                self._child = processes.start(
                    lambda: Child(command, env=environment, cwd=os.sep, stdin=theirs.fileno(), stdout=null, stderr=null)
                )
            except BaseException:
                self._socket.close()
                raise
        try:
            self._receive(30.0)
        except BaseException as error:
            self.close()
            if isinstance(error, subprocess.TimeoutExpired):
                raise OSError("the compiler did not reach its source") from error
            raise

    def request(self, kind: str, folder: Path, command: Sequence[str], timeout_s: float) -> int:
        """Compile a source ("c") or none ("r"), then run a command; return the status of the one that failed, or 0."""
        words = (kind + str(folder), *command, "")
        self._socket.settimeout(None)
        self._socket.send("".join(f"{word}\0" for word in words).encode())
        (status,) = _STATUS.unpack(self._receive(timeout_s))
        return int(status)

    def close(self) -> None:
        self._processes.end(self._child)
        self._socket.close()

    def _receive(self, timeout_s: float) -> bytes:
        def attempt(allowed_s: float) -> bytes:
            self._socket.settimeout(allowed_s)
            return self._socket.recv(_STATUS.size)

        answer = self._processes.within(timeout_s, attempt)
        if not answer:
            raise OSError("the compiler is gone")
        return answer


# -- the commands of g++ ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Commands:
    """Compiler, assembler and linker with all of their arguments."""

    compile: tuple[str, ...]  #: writes the assembly of the source it includes to its standard output
    assemble: tuple[str, ...]  #: makes an object of that
    link: tuple[str, ...]  #: makes a shared library of the object and the runtime

    @classmethod
    def of(cls, driver: Sequence[str], flags: Sequence[str], made: Precompiled) -> _Commands | None:
        """Ask g++; None where it would do anything else, or does not answer."""
        language = flags.index("-x")
        common, libraries = flags[:language], [flag for flag in flags[language:] if flag.startswith("-l")]
        # A library that is preloaded already might not bear the server's beside it.
        if made.server is None or "LD_PRELOAD" in os.environ or any(flag.startswith(_UNSERVED) for flag in common):
            return None
        source = ("-include", str(made.header), *common, "-include", _SERVED_SOURCE, "-x", "c++", os.devnull)
        compiler = _last_command(driver, (*source, "-S", "-o", "-"), "cc1plus")
        assembler = _last_command(driver, (*common, "-c", "-x", "assembler", ASSEMBLY, "-o", _OBJECT), "as")
        linking = (*common, _OBJECT, str(made.runtime), *libraries, "-o", LIBRARY)
        linker = _last_command(driver, linking, "collect2")
        status, program = output_of([*driver, "-print-prog-name=ld"])
        if not (compiler and assembler and linker) or status != 0:
            return None
        # The plugin of the linker is for intermediate code.
        words = [word for word in linker[1:] if not word.startswith("-plugin-opt=")]
        if "-plugin" in words:
            at = words.index("-plugin")
            del words[at : at + 2]
        return cls(compiler, assembler, (program.strip(), *words))

    def link_of(self, assembly: str) -> tuple[str, ...]:
        """Return how to link the object: without searching libraries, which takes as long again, if it needs none."""
        if platform.machine() == "x86_64" and all(map(_IN_RUNTIME.match, _IMPORTED.findall(assembly))):
            return tuple(word for word in self.link if not word.startswith("-l"))
        return self.link


def _last_command(driver: Sequence[str], arguments: Sequence[str], program: str) -> tuple[str, ...]:
    """Return the last command g++ would run; nothing if its program is another one."""
    status, answer = output_of([*driver, "-###", *arguments])
    lines = [line for line in answer.splitlines() if line.startswith(" ")]
    words = shlex.split(lines[-1]) if lines and status == 0 else []
    return tuple(words) if words and Path(words[0]).name == program else ()
