"""The C++ compilers of the host: which there are, their flags, and how a source becomes a shared library."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import math
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mptune.backends.base import Binary, CompileOptions, Compiler, compile_cached, excerpt
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.gcc import ASSEMBLY, LIBRARY, CompilerServers, Precompiled, PrecompiledPrelude
from mptune.backends.listing import count_arithmetic
from mptune.backends.processes import ChildGroup
from mptune.backends.processor import processor
from mptune.cpp.build import build_in
from mptune.cpp.headers import with_headers
from mptune.cpp.prelude import prelude
from mptune.errors import BackendUnavailableError, CompileError, MptuneError, UnknownNameError

#: In the order they are looked for.
COMPILERS: Final = ("g++", "clang++", "zig")
_INSTALL_HINT: Final = 'install one ("apt install g++" or pip install "mptune[zig]") or set $CXX'
#: Contracting a * b + c to one fused operation, as GPUs do, only ever drops a rounding; nothing here may
#: reorder operations. Kernels set no errno and unmask no floating-point traps.
_FLAGS: Final = (
    *("-std=c++17", "-O3", "-w", "-pipe", "-shared", "-fPIC", "-fvisibility=hidden"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
    *("-fno-exceptions", "-fno-rtti", "-fno-asynchronous-unwind-tables"),
)
#: Compilers prefer half of a processor's 512 bits, for the sake of programs that hardly compute with vectors.
X86_FLAGS: Final = ("-mprefer-vector-width=512",) if platform.machine() in ("x86_64", "AMD64") else ()
#: g++ 11 and 12 take float(x) of a double x for x once both conversions, there and back, are of a vector of as many
#: numbers, and likewise the narrower types where a processor has such instructions: a value would be rounded less than
#: its type says. Such vectors are made of statements side by side, not of loops.
ROUNDS: Final = "-fno-tree-slp-vectorize"
#: Without the C++ library and the start files of a program linking takes half the time. libgcc has the
#: conversions of _Float16. Looking through the C library for what every process has takes another third; libm is named
#: because functions without a version come from the oldest there is, and that exp is slower.
#: g++ takes a condition that is the same for all threads of a block out of their loop, so that the loop can be
#: vectorised, but by default only where its body is short; conversions of half are not.
#: Joining the tests of a guard like "i >= n || j >= m" into one would hide where the loop can be cut instead.
#: A loop that copies would become a call of memcpy, past which g++ keeps no array in registers.
_GCC_FLAGS: Final = (
    *("-nostdlib", "-fno-tree-loop-distribute-patterns", ROUNDS),
    *("--param=max-unswitch-insns=16000", "--param=logical-op-non-short-circuit=0"),
)
_GCC_LIBRARIES: Final = ("-lgcc", "-lm")
#: Looking for loops that compute a checksum never ends in LLVM 22 where fp16 is converted by shifts. As with g++, no
#: loop becomes a call of memcpy either.
LLVM_FLAGS: Final = ("-mllvm", "-disable-loop-idiom-all")
#: The start files of a program would, with -ffast-math, have whoever loads the library take denormals as zero.
_CLANG_FLAGS: Final = ("-nostdlib++", "-nostartfiles", *LLVM_FLAGS)
_CLANG_LIBRARIES: Final = ("-lm",)
#: zig describes every line to debuggers, also in a listing.
ZIG_FLAGS: Final = ("-fno-sanitize=undefined", "-g0", *LLVM_FLAGS)
#: zig would build the C and C++ libraries first, which takes a minute; the process that loads the binary has them. Only
#: its linker is told so: without these libraries its compiler does not find their headers either.
_ZIG_LIBRARIES: Final = ("-nostdlib",)
#: Environment variables that are 0 or 1; whichever is asked for, none may be anything else.
_SWITCHES: Final = ("MPTUNE_COMPILER_SERVER", "MPTUNE_FIBER_ASSEMBLY", "MPTUNE_PRECOMPILED_PRELUDE")
#: The source comes from standard input.
_SOURCE: Final = ("-x", "c++", "-")
#: What compilers call it; zig copies it to a file.
_SOURCE_NAME: Final = re.compile(r"<stdin>|[^\s:]*/[0-9a-f]{32}-stdin\.cpp")
_ASSEMBLY_LIMIT_S: Final = 60.0
#: The note behind a library, of operations on vectors and on single numbers.
_NOTE: Final = re.compile(rb"\nmptune arithmetic: (\d+) (\d+)\n\Z")
_NOTE_BYTES: Final = 64
_CRASH: Final = re.compile(r"internal compiler error|Please submit a|PLEASE submit a bug report|Killed signal")


@dataclass(frozen=True, slots=True)
class Program:
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
        """Return the flags a source is compiled with.

        An empty architecture stands for ``$MPTUNE_HOST_ARCH`` or else this very processor.

        Raises:
            UnknownNameError: the compiler does not know the architecture.
        """
        own, libraries = {
            "gcc": (_GCC_FLAGS, _GCC_LIBRARIES),
            "clang": (_CLANG_FLAGS, _CLANG_LIBRARIES),
            "zig": (ZIG_FLAGS, _ZIG_LIBRARIES),
        }[self.family]
        if not architecture and (architecture := host_architecture()):
            _check_architecture(self.command, architecture)
        if not switch("MPTUNE_FIBER_ASSEMBLY"):
            extra = ("-DMPTUNE_UCONTEXT=1", *extra)
        # zig spells architectures with underscores ("x86_64_v3").
        target = architecture.replace("-", "_") if self.family == "zig" else architecture
        return (*_FLAGS, *X86_FLAGS, *own, f"-march={target or 'native'}", *extra, *_SOURCE, *libraries)


class HostCompiler(Compiler):
    """One C++ compiler with a set of flags; several can share the processes that are paused together.

    Args:
        program: which; by default what :func:`find_compiler` finds when it is needed.
        flags: besides those of every kernel.
        cache: where binaries are kept; by default the user's cache folder.
        processes: runs the compilers.
    """

    def __init__(
        self,
        program: Program | None = None,
        flags: Sequence[str] = (),
        cache: BinaryCache | None = None,
        processes: ChildGroup | None = None,
    ) -> None:
        self._program = program
        self._flags = tuple(flags)
        self._cache = cache if cache is not None else BinaryCache()
        self._processes = processes if processes is not None else ChildGroup()
        self._prelude = PrecompiledPrelude(prelude(), self._cache, self._processes)
        self._servers: CompilerServers | None = None

    @property
    def program(self) -> Program:
        """The compiler.

        Raises:
            BackendUnavailableError: there is none.
        """
        return self._program or find_compiler()

    def compile(self, source: str, function: str, options: CompileOptions) -> Binary:
        program, flags = self._build(source, options)

        def compile_one() -> tuple[bytes, str]:
            with self._cache.workspace() as folder:
                return self._compile(program, source, function, flags, options.timeout_s, folder)

        key = [program.version, *program.command, processor().fingerprint, *flags, with_headers(source, flags)]
        return compile_cached(self._cache, key, function, compile_one)

    def flags(self, options: CompileOptions) -> tuple[str, ...]:
        """Return all flags a source is compiled with."""
        return self.program.flags(options.architecture, (*self._flags, *options.flags))

    def identity(self, options: CompileOptions) -> tuple[str, ...]:
        """Return all flags, and the command (as ``$CXX`` may have flags) and version of every compiler there may be."""
        programs = (self.program, *map(find_compiler, options.compilers))
        known = (word for program in programs for word in (*program.command, program.version))
        return (*self.flags(options), *known)

    def listing(self, source: str, function: str, options: CompileOptions) -> str:
        """Return the assembly of a kernel without that of the runtime, which is the same for all."""
        program, flags = self._build(source, options)
        flags = ("-DMPTUNE_RUNTIME_APART=1", *flags)

        def compile_one() -> tuple[bytes, str]:
            with self._cache.workspace() as folder:
                status, log = self._to_assembly(program, source, function, flags, _ASSEMBLY_LIMIT_S, folder)
                return _made(program, function, status, log, folder / ASSEMBLY)

        key = ["listing", program.version, *program.command, processor().fingerprint, *flags]
        key.append(with_headers(source, flags))
        image: bytes = compile_cached(self._cache, key, function, compile_one).image
        return image.decode()

    def _build(self, source: str, options: CompileOptions) -> tuple[Program, tuple[str, ...]]:
        """Return what compiles a source, which may say so itself, and all flags."""
        build = build_in(source)
        program = find_compiler(build.compiler) if build.compiler else self.program
        return program, program.flags(options.architecture, (*self._flags, *options.flags, *build.flags))

    def vector_share(self, binary: Binary) -> float:
        """Return the share of a library's floating-point arithmetic that is on vectors, NaN if it has none."""
        known = _NOTE.search(binary.image[-_NOTE_BYTES:])
        vectors, numbers = (int(known[1]), int(known[2])) if known is not None else (0, 0)
        return vectors / (vectors + numbers) if vectors + numbers else math.nan

    def versions(self) -> Mapping[str, str]:
        return {"compiler": self.program.version}

    def expect(self, options: CompileOptions, compilers: int) -> None:  # noqa: ARG002 - each starts when it is needed
        """Compile the prelude, and have compilers stay for further sources."""
        self.precompiled(self.program, self.flags(options))
        if switch("MPTUNE_COMPILER_SERVER"):
            self._servers = CompilerServers(self._processes)

    def paused(self) -> AbstractContextManager[None]:
        """Hold up the compilers: they would run on the cores that are measured."""
        return self._processes.paused()

    def close(self) -> None:
        self._processes.close()
        if self._servers is not None:
            self._servers.close()

    def precompiled(self, program: Program, flags: Sequence[str]) -> Precompiled | None:
        """Return the files that stand for the prelude, made if need be; None if there are none."""
        if program.family != "gcc" or not switch("MPTUNE_PRECOMPILED_PRELUDE"):
            return None
        common = [flag for flag in flags[: flags.index("-x")] if flag not in ("-shared", "-nostdlib")]
        return self._prelude.files([*program.command, *common], program.version)

    def _compile(
        self, program: Program, source: str, name: str, flags: Sequence[str], timeout_s: float, folder: Path
    ) -> tuple[bytes, str]:
        """Return the shared library and what the compiler printed; its files go to an empty folder, absolute.

        Raises:
            CompileError: the compiler rejected the source, crashed or ran out of time.
        """
        made = self.precompiled(program, flags) if source.startswith(prelude()) else None
        if made is not None:
            body = source.removeprefix(prelude())
            if self._servers is not None:
                try:
                    served = self._servers.compile(program.command, flags, made, body, folder, timeout_s)
                except subprocess.TimeoutExpired:
                    raise _endless(program, name, timeout_s) from None
                # What fails is compiled once more, for the message.
                if served is not None:
                    return served[0] + _note(folder), served[1]
            header, runtime = ["-include", str(made.header)], [str(made.runtime)]
            status, log = self._to_library(program, body, name, header, flags, runtime, timeout_s, folder)
            # A runtime that is damaged does not link.
            if status == 0 or str(made.runtime) not in log:
                return _library(program, name, status, log, folder)
        status, log = self._to_library(program, source, name, [], flags, [], timeout_s, folder)
        return _library(program, name, status, log, folder)

    def _to_library(
        self,
        program: Program,
        text: str,
        name: str,
        header: Sequence[str],
        flags: Sequence[str],
        runtime: Sequence[str],
        timeout_s: float,
        folder: Path,
    ) -> tuple[int, str]:
        """Compile to assembly, which tells how the arithmetic is done, and make a library of that."""
        status, log = self._to_assembly(program, text, name, [*header, *flags], timeout_s, folder)
        if status != 0:
            return status, log
        common, libraries = _without_source(flags)
        files = [str(folder / ASSEMBLY), *runtime, *libraries]
        status, linked = self._run(program, "", name, [*common, *files], timeout_s, folder, LIBRARY)
        return status, log + linked

    def _to_assembly(
        self, program: Program, text: str, name: str, flags: Sequence[str], timeout_s: float, folder: Path
    ) -> tuple[int, str]:
        common, _ = _without_source(flags)
        words = ["-S", *(flag for flag in common if flag != "-shared"), *_SOURCE]
        return self._run(program, text, name, words, timeout_s, folder, ASSEMBLY)

    def _run(
        self,
        program: Program,
        text: str,
        name: str,
        flags: Sequence[str],
        timeout_s: float,
        folder: Path,
        output: str,
    ) -> tuple[int, str]:
        environment = {**os.environ, "TMPDIR": str(folder), "LC_ALL": "C"}
        if program.family == "zig":
            environment |= {"ZIG_GLOBAL_CACHE_DIR": str(folder), "ZIG_LOCAL_CACHE_DIR": str(folder)}
        command = [*program.command, *flags, "-o", str(folder / output)]
        try:
            status, log = self._processes.run(
                command, text=text, environment=environment, folder=str(folder), timeout_s=timeout_s
            )
        except subprocess.TimeoutExpired:
            raise _endless(program, name, timeout_s) from None
        except OSError as error:
            raise CompileError(f"{program.label} could not be started: {error}") from error
        return status, _SOURCE_NAME.sub(name, log)


def _note(folder: Path) -> bytes:
    """Return what follows a library, which the loader passes over: how its arithmetic is done, if there is assembly."""
    assembly = folder / ASSEMBLY
    if not assembly.exists():
        return b""
    return b"\nmptune arithmetic: %d %d\n" % count_arithmetic(assembly.read_text(errors="replace"))


def _without_source(flags: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return what stands before the source among the flags, and behind it: the libraries."""
    source = flags.index(_SOURCE[0])
    return flags[:source], flags[source + len(_SOURCE) :]


def _library(program: Program, name: str, status: int, log: str, folder: Path) -> tuple[bytes, str]:
    image, log = _made(program, name, status, log, folder / LIBRARY)
    return image + _note(folder), log


def _made(program: Program, name: str, status: int, log: str, file: Path) -> tuple[bytes, str]:
    """Return what a compiler wrote to a file, and what it printed.

    Raises:
        CompileError: it wrote nothing, or says that it failed.
    """
    if status == 0 and file.exists():
        return file.read_bytes(), log
    if status < 0:
        how = f"crashed on {name} ({signal.Signals(-status).name})"
    elif _CRASH.search(log):
        how = f"crashed on {name} (internal compiler error)"
    else:
        how = f"rejected {name} (exit status {status})"
    raise CompileError(f"{program.label} {how}\n{excerpt(log)}".rstrip())


def _endless(program: Program, name: str, timeout_s: float) -> CompileError:
    return CompileError(f"{program.label} did not finish {name} within {timeout_s:g} s")


# -- settings --------------------------------------------------------------------------------------


def switch(name: str) -> bool:
    """Whether something of :data:`_SWITCHES` is on, as it is unless the environment variable of that name is 0.

    Raises:
        MptuneError: one of the variables is neither 0 nor 1.
    """
    values = {known: os.environ.get(known) or "1" for known in _SWITCHES}
    for known, value in values.items():
        if value not in ("0", "1"):
            raise MptuneError(f"{known} is {value!r}; expected 0 (off) or 1 (on)")
    return values[name] == "1"


@functools.cache
def _check_architecture(command: tuple[str, ...], architecture: str) -> None:
    """Check that a compiler knows ``$MPTUNE_HOST_ARCH``, so that a run fails once and not in every compilation."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        answer = subprocess.run(
            [*command, f"-march={architecture}", "-E", "-x", "c++", os.devnull],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
        known = re.search(r"valid (?:arguments to|target CPU values) .*?are: ([^;\n]+)", answer.stderr)
        if answer.returncode and known:
            raise UnknownNameError(
                "architecture in MPTUNE_HOST_ARCH:", architecture, re.split(r"[ ,]+", known[1].strip())
            )


def host_architecture() -> str:
    """Return ``$MPTUNE_HOST_ARCH``, what to compile for instead of the very processor; empty if it is not set."""
    return os.environ.get("MPTUNE_HOST_ARCH", "").strip()


# -- which there are -------------------------------------------------------------------------------


def find_compiler(name: str = "") -> Program:
    """Return the compiler of that name, such as "clang++-19"; without one ``$CXX``, or the first of :data:`COMPILERS`.

    Raises:
        BackendUnavailableError: there is none; says which there are, or what to install.
    """
    if name:
        found = _program(name)
        if found is None:
            there = ", ".join(program.label for program in installed_compilers())
            raise BackendUnavailableError(f"compiler {name!r} is not installed; available: {there or 'none'}")
        return found
    chosen = os.environ.get("CXX", "").strip()
    if chosen:
        try:
            command = tuple(shlex.split(chosen))
        except ValueError as error:
            raise BackendUnavailableError(f"$CXX is {chosen!r}, which cannot be split into words: {error}") from error
        path = shutil.which(command[0])
        if path is None:
            raise BackendUnavailableError(f"$CXX is {chosen!r}, but there is no program {command[0]!r}")
        return _identify((str(Path(path).absolute()), *command[1:]))
    for program in COMPILERS:
        found = _program(program)
        if found is not None:
            return found
    raise BackendUnavailableError(f"no C++ compiler was found (tried $CXX, g++, clang++, ziglang): {_INSTALL_HINT}")


def installed_compilers() -> tuple[Program, ...]:
    """Return those of :data:`COMPILERS` that are installed."""
    return tuple(program for program in map(_program, COMPILERS) if program is not None)


def _program(name: str) -> Program | None:
    if name != "zig":
        path = shutil.which(name)
        return _identify((str(Path(path).absolute()),)) if path is not None else None
    if importlib.util.find_spec("ziglang") is None:
        return None
    version = importlib.metadata.version("ziglang")
    return Program((sys.executable, "-m", "ziglang", "c++"), f"zig {version}", "zig")


@functools.cache
def _identify(command: tuple[str, ...]) -> Program:
    try:
        answer = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendUnavailableError(f"{shlex.join(command)} --version failed: {error}") from error
    version = (answer.stdout.strip() or answer.stderr.strip() or "unknown version").splitlines()[0]
    if "zig" in command[0] or re.search(r"\bzig(lang)?\b", answer.stdout):
        return Program(command, version, "zig")
    return Program(command, version, "clang" if "clang" in answer.stdout.lower() else "gcc")
