"""What a compiled kernel takes of a multiprocessor, read from its binary, and how many of its threads fit there."""

from __future__ import annotations

from mptune.resources.code_object import read_code_object
from mptune.resources.cubin import read_cubin
from mptune.resources.occupancy import MULTIPROCESSORS, Multiprocessor, multiprocessor, occupancy
from mptune.resources.resources import Resources

__all__ = [
    "MULTIPROCESSORS",
    "Multiprocessor",
    "Resources",
    "multiprocessor",
    "occupancy",
    "read_code_object",
    "read_cubin",
]
