"""Finds a C++ compiler and turns a rendered source into a shared library."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mptune.backends.compiler_server import CompilerServers
from mptune.backends.gcc_commands import LIBRARY
from mptune.backends.precompiled import Precompiled, PrecompiledPrelude
from mptune.errors import BackendUnavailableError, CompileError
from mptune.processes import ChildGroup

__all__ = ["Compiler", "Shared", "find_compiler"]

_INSTALL_HINT: Final = 'install one ("apt install g++" or pip install "mptune[zig]") or set $CXX'
#: Contracting a * b + c to one fused operation, as GPUs do, only ever drops a rounding; nothing here may
#: reorder operations. Kernels set no errno and unmask no floating-point traps.
_FLAGS: Final = (
    *("-std=c++17", "-O3", "-w", "-pipe", "-shared", "-fPIC", "-fvisibility=hidden"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
    *("-fno-exceptions", "-fno-rtti", "-fno-asynchronous-unwind-tables"),
)
#: Without the C++ library and the start files of a program linking takes half the time. libgcc has the
#: conversions of _Float16. Looking through the C library for what every process has takes another third; libm is named
#: because functions without a version come from the oldest there is, and that exp is slower.
#: g++ takes a condition that is the same for all threads of a block out of their loop, so that the loop can be
#: vectorised, but by default only where its body is short; conversions of half are not.
#: Joining the tests of a guard like "i >= n || j >= m" into one would hide where the loop can be cut instead.
#: A loop that copies would become a call of memcpy, past which g++ keeps no array in registers.
_GCC_FLAGS: Final = (
    *("-nostdlib", "-fno-tree-loop-distribute-patterns"),
    *("--param=max-unswitch-insns=16000", "--param=logical-op-non-short-circuit=0"),
)
_GCC_LIBRARIES: Final = ("-lgcc", "-lm")
_CLANG_FLAGS: Final = ("-nostdlib++",)
_CLANG_LIBRARIES: Final = ("-lm",)
#: zig would build the C library first, which takes seconds; the process that loads the binary has one.
_ZIG_FLAGS: Final = ("-nostdlib", "-fno-sanitize=undefined")
_SOURCE_NAME: Final = "<stdin>"
_MESSAGE_LINES: Final = 20
_CRASH: Final = re.compile(r"internal compiler error|Please submit a|PLEASE submit a bug report|Killed signal")
_INTERESTING: Final = re.compile(r"\b(error|fatal error|undefined reference|static assertion failed)\b")


@dataclass(frozen=True, slots=True)
class Shared:
    """What compilations have in common.

    Attributes:
        processes: runs the compilers.
        prelude: what sources begin with.
        servers: compilers that are running already; None for one that is started for each source.
    """

    processes: ChildGroup
    prelude: PrecompiledPrelude
    servers: CompilerServers | None = None


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler.

    Attributes:
        command: how to call it.
        version: what it says about itself, one line.
        family: "gcc", "clang" or "zig".
    """

    command: tuple[str, ...]
    version: str
    family: str

    @property
    def label(self) -> str:
        """What messages call it ("g++", "zig")."""
        return "zig" if self.family == "zig" else Path(self.command[0]).name

    def flags(self, architecture: str = "", extra: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the flags a source is compiled with; an empty architecture stands for this processor."""
        own, libraries = {
            "gcc": (_GCC_FLAGS, _GCC_LIBRARIES),
            "clang": (_CLANG_FLAGS, _CLANG_LIBRARIES),
            "zig": (_ZIG_FLAGS, ()),
        }[self.family]
        # zig spells architectures with underscores ("x86_64_v3").
        target = architecture.replace("-", "_") if self.family == "zig" else architecture
        return (*_FLAGS, *own, f"-march={target or 'native'}", *extra, "-x", "c++", "-", *libraries)

    def compile(
        self,
        source: str,
        name: str,
        flags: Sequence[str],
        timeout_s: float,
        folder: Path,
        shared: Shared,
    ) -> tuple[bytes, str]:
        """Compile a source.

        Args:
            source: the text.
            name: what messages call it.
            flags: as of :meth:`flags`.
            timeout_s: when to give up.
            folder: an empty folder for the compiler's files, absolute.
            shared: what further compilations are going to be given, too.

        Returns:
            The shared library and what the compiler printed.

        Raises:
            CompileError: the compiler rejected the source, crashed or ran out of time.
        """
        made = self.precompile(flags, shared.prelude) if source.startswith(shared.prelude.text) else None
        if made is not None:
            body = source.removeprefix(shared.prelude.text)
            if shared.servers is not None:
                try:
                    served = shared.servers.compile(self.command, flags, made, body, folder, timeout_s)
                except subprocess.TimeoutExpired:
                    raise self._endless(name, timeout_s) from None
                # What fails is compiled once more, for the message.
                if served is not None:
                    return served
            files = ["-include", str(made.header), str(made.runtime), *flags]
            status, log = self._run(body, name, files, timeout_s, folder, shared.processes)
            # A runtime that is damaged does not link.
            if status == 0 or str(made.runtime) not in log:
                return self._library(name, status, log, folder)
        status, log = self._run(source, name, flags, timeout_s, folder, shared.processes)
        return self._library(name, status, log, folder)

    def precompile(self, flags: Sequence[str], prelude: PrecompiledPrelude) -> Precompiled | None:
        """Return the files that stand for the beginning of sources, made if need be; None where there are none."""
        if self.family != "gcc":
            return None
        common = [flag for flag in flags[: flags.index("-x")] if flag not in ("-shared", "-nostdlib")]
        return prelude.files([*self.command, *common], self.version)

    def _run(
        self, text: str, name: str, flags: Sequence[str], timeout_s: float, folder: Path, processes: ChildGroup
    ) -> tuple[int, str]:
        """Return the exit status of the compiler and what it printed."""
        environment = {**os.environ, "TMPDIR": str(folder), "LC_ALL": "C"}
        if self.family == "zig":
            environment |= {"ZIG_GLOBAL_CACHE_DIR": str(folder), "ZIG_LOCAL_CACHE_DIR": str(folder)}
        command = [*self.command, *flags, "-o", str(folder / LIBRARY)]
        try:
            ended = processes.run(command, text=text, environment=environment, folder=str(folder), timeout_s=timeout_s)
        except subprocess.TimeoutExpired:
            raise self._endless(name, timeout_s) from None
        except OSError as error:
            raise CompileError(f"{self.label} could not be started: {error}") from error
        return ended.status, ended.output.replace(_SOURCE_NAME, name)

    def _library(self, name: str, status: int, log: str, folder: Path) -> tuple[bytes, str]:
        library = folder / LIBRARY
        if status == 0 and library.exists():
            return library.read_bytes(), log
        raise CompileError(self._explain(name, status, log))

    def _endless(self, name: str, timeout_s: float) -> CompileError:
        return CompileError(f"{self.label} did not finish {name} within {timeout_s:g} s")

    def _explain(self, name: str, status: int, log: str) -> str:
        if status < 0:
            return f"{self.label} crashed on {name} ({signal.Signals(-status).name})\n{_excerpt(log)}".rstrip()
        if _CRASH.search(log):
            return f"{self.label} crashed on {name} (internal compiler error)\n{_excerpt(log)}".rstrip()
        return f"{self.label} rejected {name} (exit status {status})\n{_excerpt(log)}".rstrip()


def find_compiler() -> Compiler:
    """Return ``$CXX``, else the first there is of g++, clang++ and ziglang.

    Raises:
        BackendUnavailableError: there is none; says what to install.
    """
    chosen = os.environ.get("CXX", "").strip()
    if chosen:
        command = tuple(shlex.split(chosen))
        path = shutil.which(command[0])
        if path is None:
            raise BackendUnavailableError(f"$CXX is {chosen!r}, but there is no program {command[0]!r}")
        return _identify((str(Path(path).absolute()), *command[1:]))
    for program in ("g++", "clang++"):
        path = shutil.which(program)
        if path is not None:
            return _identify((str(Path(path).absolute()),))
    if importlib.util.find_spec("ziglang") is not None:
        version = importlib.metadata.version("ziglang")
        return Compiler((sys.executable, "-m", "ziglang", "c++"), f"zig {version}", "zig")
    raise BackendUnavailableError(f"no C++ compiler was found (tried $CXX, g++, clang++, ziglang): {_INSTALL_HINT}")


@functools.cache
def _identify(command: tuple[str, ...]) -> Compiler:
    try:
        answer = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendUnavailableError(f"{shlex.join(command)} --version failed: {error}") from error
    version = (answer.stdout.strip() or answer.stderr.strip() or "unknown version").splitlines()[0]
    if "zig" in command[0] or "ziglang" in command:
        return Compiler(command, version, "zig")
    return Compiler(command, version, "clang" if "clang" in answer.stdout.lower() else "gcc")


def _excerpt(log: str) -> str:
    """Return the first errors with what follows each, or the start of a log without any."""
    lines = log.splitlines()
    first = next((i for i, line in enumerate(lines) if _INTERESTING.search(line)), 0)
    shown = lines[first : first + _MESSAGE_LINES]
    left = len(lines) - first - len(shown)
    return "\n".join([*shown, f"... {left} more lines"] if left else shown)
