"""Compiles sources for the simulated devices: libraries for this processor, in which every kernel can be launched."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mptune.backends.base import CompileOptions
from mptune.backends.host_compiler import HostCompiler
from mptune.errors import CompileError

__all__ = ["compile_source"]

_BOUNDS: Final = r"(?:__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)\s*)?"
_KERNEL: Final = re.compile(rf'extern\s+"C"\s+__global__\s+{_BOUNDS}void\s+{_BOUNDS}(\w+)\s*\(')
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY: Final = re.compile(r"^MPTUNE_HOST_ENTRY\((\w+)", re.MULTILINE)
_ARCHITECTURE: Final = re.compile(r"--gpu-architecture=sm_\d+[af]?|--offload-arch=gfx[0-9a-f]+")
#: What vendors' compilers take and a library for the processor does not need.
_IGNORED: Final = ("--std=c++17", "-std=c++17", "-O3")
_TIMEOUT_S: Final = 600.0
#: Lets every kernel be launched; the source has an entry for the host, which says whether there are barriers.
_ENTRIES: Final = """
#define SIMULATED(name)                                                                                             \\
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
    }
"""


def compile_source(source: str, options: Sequence[str]) -> bytes:
    """Return the image of a source that is complete with mptune's prelude.

    Raises:
        CompileError: the source or an option is rejected.
    """
    flags = [option for option in options if option not in _IGNORED and not _ARCHITECTURE.fullmatch(option)]
    if unknown := [flag for flag in flags if not flag.startswith(("-D", "-I"))]:
        raise CompileError(f"error: unrecognized option {unknown[0]}")
    entered = _ENTRY.findall(source)
    # One with an entry may have a name that a macro makes.
    kernels = list(dict.fromkeys([*entered, *_KERNEL.findall(_COMMENT.sub("", source))]))
    entry = "" if entered or not kernels else f"MPTUNE_HOST_ENTRY({kernels[0]})\n"
    text = f"{source}\n{entry}{_ENTRIES}{''.join(f'SIMULATED({name})' for name in kernels)}\n"
    compiled = HostCompiler().compile(
        text, kernels[0] if kernels else "a source", CompileOptions(flags=("-O1", *flags), timeout_s=_TIMEOUT_S)
    )
    image: bytes = compiled.image
    return image


def main(folder: Path) -> None:
    """Compile the source in a folder, and write the image there."""
    options = (folder / "options").read_text().splitlines()
    try:
        (folder / "image").write_bytes(compile_source((folder / "source").read_text(), options))
    except CompileError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
