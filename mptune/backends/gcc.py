"""g++ that reads the prelude once, and stays for the next source.

What g++ does before it comes to a source (start, read its options, set up its tables, read the prelude) is the same for
all of them and a good part of what a short kernel takes to compile. So the prelude is kept as g++ has it after reading
it (a ``.gch`` file), and ``compiler_server.c``, loaded into the compiler proper, lets it do all of that once and fork
for each source. The copy goes on as any compiler does, so that the code is the same to the last byte. Whatever cannot
be done this way is left to a compiler that is started for the source.
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
from mptune.backends.processes import Child, ChildGroup
from mptune.paths import is_own, own_folder

__all__ = ["ASSEMBLY", "LIBRARY", "CompilerServers", "Precompiled", "PrecompiledPrelude"]

#: The files in the folder compilers run in.
ASSEMBLY: Final = "kernel.s"
_OBJECT: Final = "kernel.o"
LIBRARY: Final = "kernel.so"
_SOURCE, _LOG = "source.cpp", "log"
#: What a compiler that serves is told to include; there can be no such file.
_SERVED_SOURCE: Final = "/dev/null/source"
_PRELUDE_LIMIT_S: Final = 60.0
_START_LIMIT_S: Final = 30.0
_QUESTION_LIMIT_S: Final = 30.0
_STATUS: Final = struct.Struct("=i")
#: Checks of the C library would replace the functions it defines.
_SERVER_FLAGS: Final = ("-w", "-O1", "-U_FORTIFY_SOURCE", "-shared", "-fPIC")
_SERVER: Final = Path(__file__).with_name("compiler_server.c")
#: Flags whose work is not done by compiler, assembler and linker alone.
_UNSERVED: Final = ("-flto", "-fuse-ld", "-save-temps", "-fno-pic", "-fno-PIC")
#: Symbols that position-independent x86 code takes from elsewhere, and those of the prelude's runtime or of libc.
_IMPORTED: Final = re.compile(r"([\w.]+)@(?:PLT|GOT)")
_IN_RUNTIME: Final = re.compile(r"_ZNK?11mptune_host|mptune_|(?:memcpy|memmove|memset|mprotect|__tls_get_addr)\Z")

# -- the prelude, read once ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Precompiled:
    """Files of a prelude that was compiled.

    Attributes:
        header: what to include in place of the prelude's text.
        runtime: the object to link with: what runs once a launch, which is the same for all sources.
        server: the library that makes a server of a compiler; None where it could not be made.
    """

    header: Path
    runtime: Path
    server: Path | None


class PrecompiledPrelude:
    """What all sources begin with: as g++ keeps it after reading it (a ``.gch`` file beside the text), and an object.

    g++ takes the text where the ``.gch`` does not fit, so that this one is a matter of speed alone; so is the library
    for :mod:`mptune.backends.compiler_server`.
    """

    def __init__(self, text: str, cache: BinaryCache, processes: ChildGroup) -> None:
        self.text = text
        self._cache = cache
        self._processes = processes
        self._lock = threading.Lock()
        self._made: dict[tuple[str, ...], Precompiled | None] = {}

    def files(self, command: Sequence[str], version: str) -> Precompiled | None:
        """Return the files, made if need be; None where they cannot be kept or made.

        Args:
            command: the compiler with the flags of every source, but none that name files or the language.
            version: of the compiler.
        """
        key = (version, *command)
        with self._lock:
            if key not in self._made:
                kept_as = self._cache.key([*key, self.text, _SERVER.read_text(encoding="utf-8")])
                self._made[key] = self._make(list(command), kept_as)
            made = self._made[key]
        if made is None:
            return None
        # Should the cache have been pruned meanwhile, sources are compiled whole from now on.
        try:
            for path in (made.header, _compiled_header(made.header), made.runtime, made.server):
                if path is not None:
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
            # Messages name neither this folder nor the cache.
            text.write_text(f'#define MPTUNE_RUNTIME_APART 1\n#line 1 "{text.name}"\n{self.text}')
            self._compile([*command, "-x", "c++-header", str(text), "-o", str(made)], folder)
            _place(made, _compiled_header(header))
            named = f'-DMPTUNE_SOURCE="{_SERVED_SOURCE}"'
            self._compile([command[0], *_SERVER_FLAGS, named, "-x", "c++", str(_SERVER), "-o", str(made)], folder)
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
        self._processes.run(command, text="", environment=environment, folder=str(folder), timeout_s=_PRELUDE_LIMIT_S)


def _place(made: Path, path: Path) -> None:
    made.chmod(0o600)  # whatever the umask is, nobody else writes it
    made.replace(path)


def _compiled_header(header: Path) -> Path:
    return header.with_name(f"{header.name}.gch")


# -- compilers that stay ---------------------------------------------------------------------------


class CompilerServers:
    """As many servers as there are compilations at a time, for each set of flags."""

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
    ) -> tuple[bytes, str] | None:
        """Return the shared library of a source and what was printed; None where a compiler must be started for it.

        Args:
            driver: how to call g++.
            flags: as of :meth:`~mptune.backends.host_compiler.Program.flags`.
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
                self._commands[key] = _Commands.of(*key)
            commands = self._commands[key]
        if commands is None or made.server is None:
            return None
        try:
            (folder / _SOURCE).write_bytes(source.encode())
            with self._server(commands, made.server) as server:
                if server.request("c", folder, commands.assemble, timeout_s) != 0:
                    return None
                link = commands.link_of((folder / ASSEMBLY).read_text(errors="replace"))
                if server.request("r", folder, link, timeout_s) != 0:
                    return None
            return (folder / LIBRARY).read_bytes(), (folder / _LOG).read_text(errors="replace")
        except OSError:
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
    """One server.

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
                    lambda: Child(command, env=environment, cwd=os.sep, stdin=theirs.fileno(), stdout=null, stderr=null)
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
        def attempt(allowed_s: float) -> bytes:
            self._socket.settimeout(allowed_s)
            return self._socket.recv(_STATUS.size)

        answer = self._processes.within(timeout_s, attempt)
        if not answer:
            raise OSError("the compiler is gone")
        return answer


# -- what g++ calls --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Commands:
    """Compiler, assembler and linker with all of their arguments.

    Attributes:
        compile: writes the assembly of the source it includes to its standard output.
        assemble: makes an object of that.
        link: makes a shared library of the object and the runtime.
    """

    compile: tuple[str, ...]
    assemble: tuple[str, ...]
    link: tuple[str, ...]

    @classmethod
    def of(cls, driver: Sequence[str], flags: Sequence[str], made: Precompiled) -> _Commands | None:
        """Ask g++; None where it would do anything else, or does not answer."""
        # What is loaded into every program already could do without this one's company.
        if made.server is None or "LD_PRELOAD" in os.environ:
            return None
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            return cls._asked(driver, flags, made)
        return None

    @classmethod
    def _asked(cls, driver: Sequence[str], flags: Sequence[str], made: Precompiled) -> _Commands | None:
        language = flags.index("-x")
        common, libraries = flags[:language], [flag for flag in flags[language:] if flag.startswith("-l")]
        if any(flag.startswith(_UNSERVED) for flag in common):
            return None
        source = ("-include", str(made.header), *common, "-include", _SERVED_SOURCE, "-x", "c++", os.devnull)
        compiler = _last_command(driver, (*source, "-S", "-o", "-"), "cc1plus")
        assembler = _last_command(driver, (*common, "-c", "-x", "assembler", ASSEMBLY, "-o", _OBJECT), "as")
        linker = _last_command(driver, (*common, _OBJECT, str(made.runtime), *libraries, "-o", LIBRARY), "collect2")
        program = _answer(driver, "-print-prog-name=ld").strip()
        if not (compiler and assembler and linker and program):
            return None
        return cls(compiler, assembler, (program, *_without_plugin(linker[1:])))

    def link_of(self, assembly: str) -> tuple[str, ...]:
        """Return how to link the object: without searching libraries, which takes as long again, if it needs none."""
        is_known = platform.machine() == "x86_64"
        if is_known and all(map(_IN_RUNTIME.match, _IMPORTED.findall(assembly))):
            return tuple(word for word in self.link if not word.startswith("-l"))
        return self.link


def _last_command(driver: Sequence[str], arguments: Sequence[str], program: str) -> tuple[str, ...]:
    """Return the last command g++ would run, nothing where it is not of this program."""
    lines = [line for line in _answer(driver, "-###", *arguments).splitlines() if line.startswith(" ")]
    words = shlex.split(lines[-1]) if lines else []
    return tuple(words) if words and Path(words[0]).name == program else ()


def _answer(driver: Sequence[str], *arguments: str) -> str:
    answer = subprocess.run(
        [*driver, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=_QUESTION_LIMIT_S,
        check=True,
        env={**os.environ, "LC_ALL": "C"},
        cwd=os.sep,
    )
    return answer.stdout


def _without_plugin(words: Sequence[str]) -> list[str]:
    """Return the arguments of a linker without those that load what links intermediate code."""
    kept = [word for word in words if not word.startswith("-plugin-opt=")]
    if "-plugin" in kept:
        at = kept.index("-plugin")
        del kept[at : at + 2]
    return kept
