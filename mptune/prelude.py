"""The prelude: the C++ text every rendered source begins with, the same for all backends."""

from __future__ import annotations

import functools
from typing import Final

from mptune.folders import bundled_folder

__all__ = ["PRELUDE_FILES", "prelude"]

#: The parts of the prelude, in the order they depend on each other.
PRELUDE_FILES: Final[tuple[str, ...]] = (
    "platform.hpp",
    "host.hpp",
    "host_fiber.hpp",
    "host_pool.hpp",
    "host_grid.hpp",
    "conversions.hpp",
    "wide.hpp",
    "decimal.hpp",
    "literal.hpp",
    "types.hpp",
    "local.hpp",
    "traced.hpp",
    "arithmetic_cuda.hpp",
    "arithmetic.hpp",
    "atomics.hpp",
    "functions.hpp",
    "math_device.hpp",
    "polynomials.hpp",
    "math_host.hpp",
    "math.hpp",
    "pairs.hpp",
    "vector.hpp",
    "vector_members.hpp",
    "intrinsics.hpp",
    "cuda_functions.hpp",
    "virtual_threads.hpp",
    "phases.hpp",
    "declared.hpp",
)


@functools.cache
def prelude() -> str:
    """Return the text of the prelude that starts every rendered source."""
    folder = bundled_folder("templates") / "prelude"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in PRELUDE_FILES)
