"""What a compiled kernel takes of a multiprocessor, read from its binary, and how many of its threads fit there."""

from __future__ import annotations

from mptune.resources.binaries import Resources, read_code_object, read_cubin
from mptune.resources.occupancy import Multiprocessor, multiprocessor, occupancy

__all__ = ["Multiprocessor", "Resources", "multiprocessor", "occupancy", "read_code_object", "read_cubin"]
