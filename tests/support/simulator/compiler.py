"""Compiles sources for the simulated devices: libraries for this processor, in which every kernel can be launched."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mptune.backends.base import CompileOptions
from mptune.backends.host_compiler import HostCompiler, find_compiler
from mptune.errors import CompileError, MptuneError

__all__ = ["SHARED_BYTES", "compile_source", "static_shared_bytes"]

_BOUNDS: Final = r"(?:__launch_bounds__\s*\(((?:[^()]|\([^()]*\))*)\)\s*)?"
_KERNEL: Final = re.compile(rf'extern\s+"C"\s+__global__\s+{_BOUNDS}void\s+{_BOUNDS}(\w+)\s*\(')
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY: Final = re.compile(r"^MPTUNE_HOST_ENTRY\((\w+)", re.MULTILINE)
_ARCHITECTURE: Final = re.compile(r"--gpu-architecture=sm_\d+[af]?|--offload-arch=(gfx[0-9a-f]+)")
#: Threads of a block where a kernel has no ``__launch_bounds__``.
_THREADS: Final = 1024
#: Shared memory of a block, in CUDA and in HIP, unless its kernel has asked for more.
SHARED_BYTES: Final = {"cuda": 48 << 10, "hip": 64 << 10}
#: Ends the process where a subscript is beyond its array, as of shared memory; for clang and for g++.
_CHECKED: Final = (
    ("-fsanitize=array-bounds", "-fsanitize-trap=array-bounds"),
    ("-fsanitize=bounds", "-fsanitize-undefined-trap-on-error"),
)
#: What vendors' compilers take and a library for the processor does not need.
_IGNORED: Final = ("--std=c++17", "-std=c++17", "-O3")
_TIMEOUT_S: Final = 600.0
#: Lets every kernel be launched; the source has an entry for the host, which says whether there are barriers.
_ENTRIES: Final = """
#define SIMULATED(name, ...)                                                                                        \\
    namespace mptune_host {                                                                                         \\
    namespace simulated_##name {                                                                                    \\
    constexpr entry launched =                                                                                      \\
        entry_of<&::name, fixed_block<>, has_barriers, mptune_in_phases(0)>(decltype(&::name)(nullptr));            \\
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
#: Fills shared memory before the next launch. Emitted sources have other names for the entries of the host.
_POISON: Final = """
extern "C" __attribute__((visibility("default"))) void simulated_poison() { mptune_host::poison_shared(); }
"""


def compile_source(source: str, options: Sequence[str]) -> bytes:
    """Return the image of a source that is complete with mptune's prelude."""
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
    text = f"{source}\n{entry}{_ENTRIES}{launched}{_POISON if kernels else ''}"
    given = ("-O1", *_CHECKED[find_compiler().family == "gcc"], *flags)
    compiled = HostCompiler().compile(
        text, kernels[0] if kernels else "a source", CompileOptions(flags=given, timeout_s=_TIMEOUT_S)
    )
    image: bytes = compiled.image
    most = SHARED_BYTES["hip" if amd else "cuda"]
    for name in kernels:
        if (nbytes := static_shared_bytes(image, name)) > most:
            raise CompileError(f"error: {name} uses too much shared data ({nbytes} bytes, {most} at most)")
    return image


@functools.lru_cache(maxsize=16)
def _thread_variables(image: bytes) -> list[tuple[str, int]]:
    """Return names and sizes of the variables that each thread has of its own."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(image)
        file.flush()
        command = ["readelf", "--wide", "--symbols", file.name]
        read = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    if read.returncode or read.stderr:
        raise MptuneError(f"the image is no library: {read.stderr}")
    _, _, table = read.stdout.partition("Symbol table '.symtab'")
    found = re.findall(r": [0-9a-f]+ +(\S+) +TLS +\S+ +\S+ +\d+ +(\S+)$", table, re.MULTILINE)
    return [(name, int(size, 0)) for size, name in found]


def static_shared_bytes(image: bytes, function: str) -> int:
    """Return the shared memory that a kernel declares itself; what the functions it calls declare is not counted."""
    # Static variables of a function: each thread of the processor has its own, for the block that it runs.
    own = f"_ZZ{len(function)}{function}E"
    return sum(size for name, size in _thread_variables(image) if name.startswith(own))


def main(folder: Path) -> None:
    """Compile the source in a folder, and write the image there."""
    options = (folder / "options").read_text().splitlines()
    try:
        (folder / "image").write_bytes(compile_source((folder / "source").read_text(), options))
    except CompileError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
