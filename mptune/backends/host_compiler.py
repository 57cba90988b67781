"""The C++ compilers of the host: finding them, their flags, and making a shared library of a source."""

from __future__ import annotations

import contextlib
import dataclasses
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
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from mptune.backends.base import Binary, CompileOptions, Compiler, compile_cached, excerpt
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.gcc import ASSEMBLY, LIBRARY, LOG, SERVER, SERVER_FLAGS, Servers
from mptune.backends.processes import ChildGroup, output_of
from mptune.backends.processor import processor
from mptune.cpp.prelude import prelude, with_headers
from mptune.errors import BackendUnavailableError, CompileError, MptuneError, UnknownNameError
from mptune.paths import is_own, own_folder
from mptune.source.flags import build_in

#: In the order they are looked for.
COMPILERS: Final = ("g++", "clang++", "zig")
_INSTALL: Final = 'install one ("apt install g++" or pip install "mptune[zig]") or set $CXX'
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
#: LLVM 22 never finishes its search for checksum loops where shifts convert fp16. The flag also keeps loops from
#: becoming calls of memcpy, as the flags of g++ do.
LLVM_FLAGS: Final = ("-mllvm", "-disable-loop-idiom-all")
#: By default zig adds debug information, also to listings.
ZIG_FLAGS: Final = ("-fno-sanitize=undefined", "-g0", *LLVM_FLAGS)
#: Flags and libraries of a family.
#:
#: g++: without the C++ library and the start files of a program linking takes half the time. libgcc has the conversions
#: of _Float16. Looking through the C library takes another third; libm is named because functions without a version
#: come from the oldest there is, and that exp is slower. A loop that copies would become a call of memcpy, past which
#: g++ keeps no array in registers. g++ takes a condition that is the same for all threads of a block out of their loop,
#: so that the loop can be vectorised, but by default only where its body is short; conversions of half are not. Joining
#: the tests of a guard like "i >= n || j >= m" into one would hide where the loop can be cut instead.
#:
#: clang++: with -ffast-math the start files of a program would have whoever loads the library flush denormals.
#:
#: zig: linking would build the C and C++ libraries first, which takes a minute. The process that loads the binary has
#: them, so the linker gets -nostdlib. The compiler does not get it: it would not find the headers of these libraries.
_OF_FAMILY: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "gcc": (
        (
            *("-nostdlib", "-fno-tree-loop-distribute-patterns", ROUNDS),
            *("--param=max-unswitch-insns=16000", "--param=logical-op-non-short-circuit=0"),
        ),
        ("-lgcc", "-lm"),
    ),
    "clang": (("-nostdlib++", "-nostartfiles", *LLVM_FLAGS), ("-lm",)),
    "zig": (ZIG_FLAGS, ("-nostdlib",)),
}
#: The source comes from standard input.
_SOURCE: Final = ("-x", "c++", "-")
#: The source's name in messages of compilers: zig copies standard input to a file.
_SOURCE_NAME: Final = re.compile(r"<stdin>|[^\s:]*/[0-9a-f]{32}-stdin\.cpp")
#: Environment variables that are 0 or 1.
_SWITCHES: Final = ("MPTUNE_COMPILER_SERVER", "MPTUNE_FIBER_ASSEMBLY", "MPTUNE_PRECOMPILED_PRELUDE")
#: Floating-point arithmetic in assembly of x86 (AT&T syntax) and AArch64: on vectors, and on one number.
_X86: Final = r"v?(?:add|sub|mul|div|sqrt|fn?m(?:add|sub)(?:add|sub)?\d{3})"
_ARM: Final = r"f(?:add|sub|mul|div|mla|mls|madd|msub|nmadd|nmsub|nmul|sqrt)"
_ON_VECTORS: Final = re.compile(rf"^\s*(?:{_X86}p[sdh]\s|{_ARM}\s+[vz]\d)", re.MULTILINE)
_ON_NUMBERS: Final = re.compile(rf"^\s*(?:{_X86}s[sdh]\s|{_ARM}\s+[dsh]\d)", re.MULTILINE)
#: The counts of both, behind a library, where the loader ignores them.
_NOTE: Final = re.compile(rb"\nmptune arithmetic: (\d+) (\d+)\n\Z")
_CRASH: Final = re.compile(r"internal compiler error|Please submit a|PLEASE submit a bug report|Killed signal")


@dataclass(frozen=True, slots=True)
class Program:
    """A C++ compiler."""

    command: tuple[str, ...]
    version: str  #: the first line of its --version
    family: str  #: "gcc", "clang" or "zig"

    @property
    def label(self) -> str:
        """Its name in messages ("g++", "zig")."""
        return "zig" if self.family == "zig" else Path(self.command[0]).name

    def flags(self, architecture: str = "", extra: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the flags of a source; an empty architecture is ``$MPTUNE_HOST_ARCH`` or else this very processor."""
        own, libraries = _OF_FAMILY[self.family]
        if not architecture and (architecture := host_architecture()):
            _check_architecture(self.command, architecture)
        if not switch("MPTUNE_FIBER_ASSEMBLY"):
            extra = ("-DMPTUNE_UCONTEXT=1", *extra)
        # zig spells architectures with underscores ("x86_64_v3").
        target = architecture.replace("-", "_") if self.family == "zig" else architecture
        # A linker looks for what is missing so far, so libraries come last.
        last = [each for each in extra if each.startswith("-l")]
        flags = (each for each in extra if each not in last)
        return (*_FLAGS, *X86_FLAGS, *own, f"-march={target or 'native'}", *flags, *_SOURCE, *last, *libraries)


class _Prelude(NamedTuple):
    header: Path  #: included in place of the prelude's text
    compiled: Path  #: the header as g++ has it after reading it (.gch)
    runtime: Path  #: the object to link with: the code around launches, which is the same for all sources
    server: Path  #: the library that makes a server of a compiler; empty where it does not compile


class HostCompiler(Compiler):
    """A C++ compiler, by default the one that :func:`find_compiler` finds.

    Reading the prelude is a good part of a short kernel's compilation. So g++'s prelude is compiled once for each set
    of flags, to a header and an object. After :meth:`stay` compilers that have read it fork for each source.
    """

    def __init__(
        self, program: Program | None = None, flags: Sequence[str] = (), cache: BinaryCache | None = None
    ) -> None:
        self._program = program
        self._flags = tuple(flags)
        self._cache = cache if cache is not None else BinaryCache()
        self._processes = ChildGroup()
        self._lock = threading.Lock()
        #: The prelude by the compiler's version and command; None where it cannot be kept or made.
        self._preludes: dict[tuple[str, ...], _Prelude | None] = {}
        self._stays = False
        #: By the prelude's header, which there is one of for each compiler and set of flags.
        self._servers: dict[Path, Servers] = {}

    @property
    def program(self) -> Program:
        return self._program or find_compiler()

    def compile(self, source: str, function: str, options: CompileOptions) -> Binary:
        return self._cached(source, function, options, LIBRARY)

    def listing(self, source: str, function: str, options: CompileOptions) -> str:
        """Return the assembly of a kernel without that of the runtime, which is the same for all."""
        options = dataclasses.replace(options, flags=("-DMPTUNE_RUNTIME_APART=1", *options.flags), timeout_s=60.0)
        return str(self._cached(source, function, options, ASSEMBLY).image.decode())

    def flags(self, options: CompileOptions) -> tuple[str, ...]:
        """Return all flags of a source that names none itself."""
        return self.program.flags(options.architecture, (*self._flags, *options.flags))

    def identity(self, options: CompileOptions) -> tuple[str, ...]:
        programs = (self.program, *map(find_compiler, options.compilers))
        # $CXX may have flags.
        known = (word for program in programs for word in (*program.command, program.version))
        return (*self.flags(options), *known)

    def vector_share(self, binary: Binary) -> float:
        known = _NOTE.search(binary.image[-64:])
        vectors, numbers = (int(known[1]), int(known[2])) if known is not None else (0, 0)
        return vectors / (vectors + numbers) if vectors + numbers else math.nan

    def versions(self) -> Mapping[str, str]:
        return {"compiler": self.program.version}

    def paused(self) -> AbstractContextManager[None]:
        return self._processes.paused()

    def stay(self, compilers: int, options: CompileOptions) -> None:  # noqa: ARG002 - each starts when it is needed
        self._stays = switch("MPTUNE_COMPILER_SERVER")
        if not options.compilers:  # else sources name their compiler
            self._precompiled(self.program, self.flags(options))

    def close(self) -> None:
        self._processes.close()
        for servers in self._servers.values():
            servers.close()

    def _cached(self, source: str, function: str, options: CompileOptions, output: str) -> Binary:
        build = build_in(source)  # a source may name its compiler
        program = find_compiler(build.compiler) if build.compiler else self.program
        flags = program.flags(options.architecture, (*self._flags, *options.flags, *build.flags))

        def compile_one() -> tuple[bytes, str]:
            with self._cache.workspace() as folder:
                job = _Job(self._processes, program, function, flags, options.timeout_s, folder)
                if output == ASSEMBLY:
                    return job.assembly(source)
                body = source.removeprefix(prelude())
                # The runtime does not link to a source without a kernel.
                is_usual = body != source and "MPTUNE_HOST_ENTRY(" in body
                if is_usual and (made := self._precompiled(program, flags)) is not None:
                    return job.library(body, made, self._servers.get(made.header))
                return job.library(source)

        key = [program.version, *program.command, processor().fingerprint, *flags, with_headers(source, flags)]
        return compile_cached(self._cache, key, function, compile_one)

    def _precompiled(self, program: Program, flags: Sequence[str]) -> _Prelude | None:
        if program.family != "gcc" or not switch("MPTUNE_PRECOMPILED_PRELUDE"):
            return None
        common = [flag for flag in flags[: flags.index("-x")] if flag not in ("-shared", "-nostdlib")]
        command = (*program.command, *common)
        key = (program.version, *command)
        with self._lock:
            if key not in self._preludes:
                self._preludes[key] = self._precompile(command, self._cache.key([*key, prelude(), SERVER.read_text()]))
            made = self._preludes[key]
            if made is not None and self._stays and made.header not in self._servers:
                self._servers[made.header] = Servers(self._processes, command, made.header, made.server)
        # If the cache has been pruned meanwhile, sources are compiled whole from now on.
        with contextlib.suppress(OSError):
            for path in made or ():
                os.utime(path)
            return made
        return None

    def _precompile(self, command: Sequence[str], key: str) -> _Prelude | None:
        with contextlib.suppress(OSError, CompileError), self._cache.workspace() as folder:
            kept = own_folder(self._cache.directory / "headers")
            found = _Prelude(kept / key, *(kept / f"{key}.{suffix}" for suffix in ("gch", "o", "so")))
            if not all(map(is_own, found)):
                text = folder / "prelude.hpp"
                # The #line keeps this folder out of messages.
                text.write_text(f'#define MPTUNE_RUNTIME_APART 1\n#line 1 "{text.name}"\n{prelude()}')
                job = _Job(self._processes, Program(tuple(command), "", "gcc"), "the prelude", (), 60.0, folder)
                job.execute("", ["-x", "c++-header", str(text)], "header")
                job.execute("", ["-DMPTUNE_RUNTIME_HERE=1", "-x", "c++", "-c", str(text)], "runtime")
                server = folder / "server"
                server.touch()
                with contextlib.suppress(CompileError):
                    c_compiler = dataclasses.replace(job, program=Program(tuple(command[:1]), "", "gcc"))
                    c_compiler.execute("", [*SERVER_FLAGS, "-x", "c++", str(SERVER)], server.name)
                for made, path in zip((text, folder / "header", folder / "runtime", server), found, strict=True):
                    made.chmod(0o600)
                    made.replace(path)
            return found
        return None


@dataclass(frozen=True, slots=True)
class _Job:
    """A source to compile in a folder of its own, absolute."""

    processes: ChildGroup
    program: Program
    function: str
    flags: tuple[str, ...]
    timeout_s: float
    folder: Path

    def library(self, text: str, made: _Prelude | None = None, servers: Servers | None = None) -> tuple[bytes, str]:
        """Return a library, followed by the counts of its arithmetic, and the compiler's output.

        With a compiled prelude the text is what follows the prelude.
        """
        source = self.flags.index(_SOURCE[0])
        before, libraries = self.flags[:source], self.flags[source + len(_SOURCE) :]
        header, runtime = (["-include", str(made.header)], [str(made.runtime)]) if made is not None else ([], [])
        link = [*before, str(self.folder / ASSEMBLY), *runtime, *libraries]
        if made is not None and servers is not None and self._served(servers, text, made, link):
            log = (self.folder / LOG).read_text(errors="replace")
        else:
            # A source that fails in a server is compiled once more, for the message.
            log = self.assembly(text, header)[1] + self.execute("", link, LIBRARY)
        counted = (self.folder / ASSEMBLY).read_text(errors="replace")
        counts = len(_ON_VECTORS.findall(counted)), len(_ON_NUMBERS.findall(counted))
        return (self.folder / LIBRARY).read_bytes() + b"\nmptune arithmetic: %d %d\n" % counts, log

    def _served(self, servers: Servers, text: str, made: _Prelude, link: Sequence[str]) -> bool:
        command = [*self.program.command, *link, "-o", LIBRARY]
        try:
            return servers.compile(text, made.runtime, command, self.folder, self.timeout_s)
        except subprocess.TimeoutExpired:
            raise self._late() from None

    def assembly(self, text: str, header: Sequence[str] = ()) -> tuple[bytes, str]:
        flags = (flag for flag in self.flags[: self.flags.index(_SOURCE[0])] if flag != "-shared")
        log = self.execute(text, [*header, "-S", *flags, *_SOURCE], ASSEMBLY)
        return (self.folder / ASSEMBLY).read_bytes(), log

    def execute(self, text: str, flags: Sequence[str], output: str) -> str:
        """Run the compiler and return its output; raises a :class:`CompileError`."""
        folder, label = str(self.folder), self.program.label
        environment = {**os.environ, "TMPDIR": folder, "LC_ALL": "C"}
        if self.program.family == "zig":
            environment |= {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}
        command = [*self.program.command, *flags, "-o", str(self.folder / output)]
        try:
            status, log = self.processes.run(
                command, text=text, environment=environment, folder=folder, timeout_s=self.timeout_s
            )
        except subprocess.TimeoutExpired:
            raise self._late() from None
        except OSError as error:
            raise CompileError(f"{label} could not be started: {error}") from error
        log = _SOURCE_NAME.sub(self.function, log)
        if status == 0 and (self.folder / output).exists():
            return log
        if status < 0:
            how = f"crashed on {self.function} ({signal.Signals(-status).name})"
        elif _CRASH.search(log):
            how = f"crashed on {self.function} (internal compiler error)"
        else:
            how = f"rejected {self.function} (exit status {status})"
        raise CompileError(f"{label} {how}\n{excerpt(log)}".rstrip())

    def _late(self) -> CompileError:
        return CompileError(f"{self.program.label} did not finish {self.function} within {self.timeout_s:g} s")


# -- settings --------------------------------------------------------------------------------------


def switch(name: str) -> bool:
    """Return whether an environment variable of :data:`_SWITCHES` is not 0; refuses other values of any of them."""
    values = {known: os.environ.get(known) or "1" for known in _SWITCHES}
    for known, value in values.items():
        if value not in ("0", "1"):
            raise MptuneError(f"{known} is {value!r}; expected 0 (off) or 1 (on)")
    return values[name] == "1"


@functools.cache
def _check_architecture(command: tuple[str, ...], architecture: str) -> None:
    """Check that a compiler knows ``$MPTUNE_HOST_ARCH``, so that a run fails once and not in every compilation."""
    status, answer = output_of([*command, f"-march={architecture}", "-E", "-x", "c++", os.devnull])
    known = re.search(r"valid (?:arguments to|target CPU values) .*?are: ([^;\n]+)", answer)
    if status != 0 and known:
        raise UnknownNameError("architecture in MPTUNE_HOST_ARCH:", architecture, re.split(r"[ ,]+", known[1].strip()))


def host_architecture() -> str:
    """Return ``$MPTUNE_HOST_ARCH``, the target instead of this very processor; empty if it is not set."""
    return os.environ.get("MPTUNE_HOST_ARCH", "").strip()


# -- finding compilers -----------------------------------------------------------------------------


def find_compiler(name: str = "") -> Program:
    """Return the compiler of a name, such as "clang++-19"; without one ``$CXX``, or the first of :data:`COMPILERS`."""
    if name:
        if (found := _program(name)) is None:
            there = ", ".join(program.label for program in installed_compilers())
            raise BackendUnavailableError(f"compiler {name!r} is not installed; available: {there or 'none'}")
        return found
    if chosen := os.environ.get("CXX", "").strip():
        try:
            name, *flags = shlex.split(chosen)
        except ValueError as error:
            raise BackendUnavailableError(f"$CXX is {chosen!r}: {error}") from None
        if (path := shutil.which(name)) is None:
            raise BackendUnavailableError(f"$CXX is {chosen!r}, but there is no program {name!r}")
        return _identify((str(Path(path).absolute()), *flags))
    for found in map(_program, COMPILERS):
        if found is not None:
            return found
    raise BackendUnavailableError(f"no C++ compiler was found (tried $CXX, g++, clang++, ziglang): {_INSTALL}")


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
    status, answer = output_of([*command, "--version"])
    if status == -1:
        raise BackendUnavailableError(f"{shlex.join(command)} --version failed: {answer}")
    version = (answer.strip() or "unknown version").splitlines()[0]
    if "zig" in command[0] or re.search(r"\bzig(lang)?\b", answer):
        return Program(command, version, "zig")
    return Program(command, version, "clang" if "clang" in answer.lower() else "gcc")
