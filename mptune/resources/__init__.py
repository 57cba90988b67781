"""What a compiled kernel takes of a multiprocessor, read from its binary, and what its assembly is made of."""

from __future__ import annotations

from mptune.resources.binaries import Resources, read_code_object, read_cubin
from mptune.resources.listing import Instructions, count_instructions
from mptune.resources.occupancy import Multiprocessor, multiprocessor, occupancy

__all__ = [
    "Instructions", "Multiprocessor", "Resources", "count_instructions", "multiprocessor", "occupancy",
    "read_code_object", "read_cubin",
]  # fmt: skip
