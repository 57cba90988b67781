"""Compiles sources for the simulated devices: libraries for this processor, in which every kernel can be launched."""

from __future__ import annotations

import functools
import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mptune.backends.base import CompileOptions
from mptune.backends.host_compiler import HostCompiler
from mptune.cpp.prelude import prelude
from mptune.errors import CompileError, MptuneError
from tests.support.simulator.process import SHARED_GUARD_BYTES

__all__ = ["SHARED_BYTES", "Gap", "compile_source", "shared_gaps", "static_shared_bytes"]

_BOUNDS: Final = r"(?:__launch_bounds__\s*\(((?:[^()]|\([^()]*\))*)\)\s*)?"
_KERNEL: Final = re.compile(rf'extern\s+"C"\s+__global__\s+{_BOUNDS}void\s+{_BOUNDS}(\w+)\s*\(')
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY: Final = re.compile(r"^MPTUNE_HOST_ENTRY\((\w+)", re.MULTILINE)
_ARCHITECTURE: Final = re.compile(r"--gpu-architecture=sm_\d+[af]?|--offload-arch=(gfx[0-9a-f]+)")
#: Threads of a block where a kernel has no ``__launch_bounds__``.
_THREADS: Final = 1024
#: Shared memory of a block, in CUDA and in HIP, unless its kernel has asked for more.
SHARED_BYTES: Final = {"cuda": 48 << 10, "hip": 64 << 10}
#: What vendors' compilers take and a library for the processor does not need.
_IGNORED: Final = ("--std=c++17", "-std=c++17", "-O3")
_TIMEOUT_S: Final = 600.0
_SHARED: Final = re.compile(r"(?<!\bextern )\b__shared__\b")
#: In the names of variables that are such bytes.
_GUARD: Final = "mptune_guard"
_ANCHOR: Final = f"{_GUARD}_anchor"
#: Declares one of them before a variable: compilers lay out what a thread has in the order of the source or against it.
_GUARDED: Final = f"""
#define MPTUNE_GUARD static thread_local __attribute__((aligned(64), used)) unsigned char
#define MPTUNE_SHARED(number, line) MPTUNE_SHARED_AT(number, line)
#define MPTUNE_SHARED_AT(number, line) MPTUNE_GUARD {_GUARD}_##number##_##line[{SHARED_GUARD_BYTES}]; __shared__
MPTUNE_GUARD {_GUARD}_first[{SHARED_GUARD_BYTES}];
"""
#: Lets every kernel be launched; the source has an entry for the host, which says whether there are barriers.
_ENTRIES: Final = """
#define SIMULATED(name, ...)                                                                                        \\
    namespace mptune_host {                                                                                         \\
    namespace simulated_##name {                                                                                    \\
    constexpr decltype(&::name) signature = nullptr;                                                                \\
    struct kernel {                                                                                                 \\
        template <class... A>                                                                                       \\
        static __forceinline__ void call(A... arguments) {                                                          \\
            ::name(arguments...);                                                                                   \\
        }                                                                                                           \\
    };                                                                                                              \\
    constexpr entry launched = entry_of<kernel, fixed_block<>, has_barriers, mptune_in_phases(0)>(signature);       \\
    }                                                                                                               \\
    }                                                                                                               \\
    extern "C" __attribute__((visibility("default"))) long long simulated_launch_##name(                            \\
        void** arguments, const unsigned* grid, const unsigned* block, unsigned shared_bytes) {                     \\
        return mptune_host::launch(mptune_host::simulated_##name::launched, arguments, grid, block, shared_bytes, 1); \\
    }                                                                                                               \\
    extern "C" __attribute__((visibility("default"))) unsigned simulated_describe_##name(int* codes) {              \\
        return mptune_host::describe(mptune_host::simulated_##name::launched, codes);                               \\
    }                                                                                                               \\
    extern "C" {                                                                                                    \\
    __attribute__((visibility("default"))) unsigned simulated_bounds_##name[] = {__VA_ARGS__};                      \\
    }
"""
#: Tells where the calling thread has its shared memory, and fills it before the next launch. Emitted sources have other
#: names for the entries of the host.
_PLACES: Final = f"""
#define MPTUNE_GUARD static thread_local __attribute__((aligned(64), used)) unsigned char
MPTUNE_GUARD {_ANCHOR}[{SHARED_GUARD_BYTES}];
extern "C" __attribute__((visibility("default"))) void* simulated_anchor() {{ return {_ANCHOR}; }}
extern "C" __attribute__((visibility("default"))) void* simulated_shared() {{ return mptune_host::dynamic_shared; }}
// clang lays out variables of inline functions, as those of kernels are, behind all others.
inline void* simulated_last() {{
    MPTUNE_GUARD {_GUARD}_last[{SHARED_GUARD_BYTES}];
    return {_GUARD}_last;
}}
extern "C" __attribute__((visibility("default"))) void simulated_poison() {{
    simulated_last();
    mptune_host::poison_shared();
}}
"""


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that each thread of the processor has beside variables in shared memory, which no kernel may write.

    Attributes:
        start: how far they are from the anchor.
        nbytes: how many there are.
        before: the name of the variable before them, empty if it is none in shared memory.
        after: likewise of the one after them.
    """

    start: int
    nbytes: int
    before: str
    after: str

    def overrun(self, first: int, last: int) -> str:
        """Say what was written past, of bytes that were changed from one to another one, counted in the gap."""
        past, ahead = last + 1, self.nbytes - first
        if self.before and (first < self.nbytes - last or not self.after):
            return f"up to {past} bytes past the end of the shared variable {self.before}"
        return f"up to {ahead} bytes before the shared variable {self.after}"


def compile_source(source: str, options: Sequence[str]) -> bytes:
    """Return the image of a source that is complete with mptune's prelude.

    Raises:
        CompileError: the source or an option is rejected, or a kernel declares more shared memory than there is.
    """
    flags = [option for option in options if option not in _IGNORED and not _ARCHITECTURE.fullmatch(option)]
    amd = [match[1] for match in map(_ARCHITECTURE.fullmatch, options) if match and match[1]]
    # By the macro of its architecture sources tell which matrix units an AMD device has.
    flags += [f"-D__{name}__" for name in amd]
    if unknown := [flag for flag in flags if not flag.startswith(("-D", "-I"))]:
        raise CompileError(f"error: unrecognized option {unknown[0]}")
    entered = _ENTRY.findall(source)
    # One with an entry may have a name that a macro makes.
    found = _KERNEL.findall(_COMMENT.sub("", source))
    bounds = {name: before or after or _THREADS for before, after, name in found}
    kernels = list(dict.fromkeys([*entered, *bounds]))
    entry = "" if entered or not kernels else f"MPTUNE_HOST_ENTRY({kernels[0]})\n"
    launched = "".join(f"SIMULATED({name}, {bounds.get(name, _THREADS)})\n" for name in kernels)
    text = f"{_guarded(source)}\n{entry}{_ENTRIES}{launched}{_PLACES if kernels else ''}"
    # zig's linker would leave out what nobody names, as bytes beside variables.
    given = ("-O1", "-Wl,--no-gc-sections", *flags)
    compiled = HostCompiler().compile(
        text, kernels[0] if kernels else "a source", CompileOptions(flags=given, timeout_s=_TIMEOUT_S)
    )
    image: bytes = compiled.image
    most = SHARED_BYTES["hip" if amd else "cuda"]
    for name in kernels:
        if (nbytes := static_shared_bytes(image, name)) > most:
            raise CompileError(f"error: {name} uses too much shared data ({nbytes} bytes, {most} at most)")
    return image


@dataclass(frozen=True, slots=True)
class _Variable:
    """A variable that each thread has: its place among them, its size, and whether it starts as zeros."""

    name: str
    value: int
    size: int
    is_zeroed: bool


@functools.lru_cache(maxsize=16)
def _thread_variables(image: bytes) -> list[_Variable]:
    """Return the variables that each thread has of its own, by place.

    Raises:
        MptuneError: it is no complete image.
    """
    with tempfile.NamedTemporaryFile() as file:
        file.write(image)
        file.flush()
        command = ["readelf", "--wide", "--sections", "--symbols", file.name]
        read = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    if read.returncode or read.stderr:
        raise MptuneError(f"the image is no library: {read.stderr}")
    zeroed = set(re.findall(r"^ *\[ *(\d+)\] \S+ +NOBITS", read.stdout, re.MULTILINE))
    _, _, table = read.stdout.partition("Symbol table '.symtab'")
    found = re.findall(r": ([0-9a-f]+) +(\S+) +TLS +\S+ +\S+ +(\d+) +(\S+)$", table, re.MULTILINE)
    each = (_Variable(name, int(at, 16), int(size, 0), where in zeroed) for at, size, where, name in found)
    return sorted(each, key=lambda variable: variable.value)


def static_shared_bytes(image: bytes, function: str) -> int:
    """Return the shared memory that a kernel declares itself; what the functions it calls declare is not counted.

    Raises:
        MptuneError: it is no complete image.
    """
    # Static variables of a function: each thread of the processor has its own, for the block that it runs.
    own = f"_ZZ{len(function)}{function}E"
    found = (each for each in _thread_variables(image) if each.name.startswith(own))
    return sum(each.size for each in found if _GUARD not in each.name)


def shared_gaps(image: bytes) -> list[Gap]:
    """Return the bytes beside variables in shared memory, in order.

    Raises:
        MptuneError: it is no complete image.
    """
    # What has initial values is no shared memory, and what is beside it is not filled.
    own = [each for each in _thread_variables(image) if each.is_zeroed]
    anchor = next((each.value for each in own if _ANCHOR in each.name), 0)
    kept = [each for each in own if _GUARD not in each.name]
    gaps = []
    for before, after in itertools.pairwise([None, *kept, None]):
        start = before.value + before.size if before else own[0].value if own else 0
        stop = after.value if after else max((each.value + each.size for each in own), default=0)
        names = [_shared_name(each.name) if each else "" for each in (before, after)]
        if start < stop and any(names):
            gaps.append(Gap(start - anchor, stop - start, *names))
    return gaps


def _shared_name(mangled: str) -> str:
    """Return the name of a static variable of a function ("_ZZ4axpyE6shared"), empty for any other."""
    if not mangled.startswith("_ZZ"):
        return ""
    for match in re.finditer(r"E(\d+)", mangled):
        name = re.sub(r"_\d+$", "", mangled[match.end() :])
        if len(name) == int(match[1]):
            return name
    return mangled


def _guarded(source: str) -> str:
    """Return a source with bytes that belong to nothing beside each variable in shared memory."""
    head, kept, body = source.partition(prelude())
    if not kept:
        return source
    number = itertools.count()
    lines = [
        # A macro may be used twice on a line.
        line
        if line.lstrip().startswith("#")
        else _SHARED.sub(lambda _: f"MPTUNE_SHARED({next(number)}, __LINE__)", line)
        for line in body.split("\n")
    ]
    return f"{head}{kept}{_GUARDED}{chr(10).join(lines)}"


def main(folder: Path) -> None:
    """Compile the source in a folder, and write the image there."""
    options = (folder / "options").read_text().splitlines()
    try:
        (folder / "image").write_bytes(compile_source((folder / "source").read_text(), options))
    except CompileError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
