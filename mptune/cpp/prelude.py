"""The prelude: the C++ text every rendered source begins with, the same for all backends."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Final

from mptune.paths import bundled_folder

#: The parts of the prelude, in the order they depend on each other.
PRELUDE_FILES: Final[tuple[str, ...]] = (
    "platform.hpp",
    "opencl.hpp",
    "host.hpp",
    "host_fiber.hpp",
    "host_pool.hpp",
    "host_grid.hpp",
    "conversions.hpp",
    "decimal.hpp",
    "literal.hpp",
    "types.hpp",
    "local.hpp",
    "traced.hpp",
    "compound.hpp",
    "arithmetic_cuda.hpp",
    "arithmetic.hpp",
    "atomics.hpp",
    "functions.hpp",
    "math_device.hpp",
    "math_opencl.hpp",
    "polynomials.hpp",
    "math_host.hpp",
    "math.hpp",
    "pairs.hpp",
    "vector.hpp",
    "vector_members.hpp",
    "neighbours.hpp",
    "intrinsics.hpp",
    "short_intrinsics.hpp",
    "cuda_functions.hpp",
    "virtual_threads.hpp",
    "phases.hpp",
    "declared.hpp",
)
#: Functions of CUDA that programs have, too, which run as they are, by the macro that says where they are.
_SHARED: Final = {"MPTUNE_INTRINSICS": "intrinsics.hpp", "MPTUNE_SHORT_INTRINSICS": "short_intrinsics.hpp"}
_SHORT: Final = re.compile(r"\b(?:__\w+|h2?[a-z]+\d*)\b(?=[,()])")


def prelude_folder() -> Path:
    """Return where the parts of the prelude are."""
    return bundled_folder("templates") / "prelude"


def shared_intrinsics() -> list[str]:
    """Return how a compiler is told where the functions of CUDA are that programs share with templates."""
    folder = prelude_folder()
    return [f'-D{macro}="{folder / name}"' for macro, name in _SHARED.items()]


@functools.cache
def short_intrinsics() -> frozenset[str]:
    """Return the names of CUDA's functions of numbers of 16 bits, which are in the namespace ``mptune_short``."""
    text = _part(_SHARED["MPTUNE_SHORT_INTRINSICS"])
    return frozenset(_SHORT.findall(text))


@functools.cache
def prelude() -> str:
    """Return the text of the prelude that starts every rendered source."""
    return "\n".join(map(_part, PRELUDE_FILES))


def _part(name: str) -> str:
    return (prelude_folder() / name).read_text(encoding="utf-8")
