"""Occupancy: the share of a multiprocessor's warps that a kernel's blocks can fill, from what one block takes.

A block needs a slot, warps, registers and shared memory, and the scarcest decides how many blocks a multiprocessor
holds:

- slots: ``max_blocks``;
- warps: ``max_warps // warps of a block``, a block's last warp counting as a whole one;
- registers: each of ``partitions`` schedulers has ``registers`` for every thread of a warp, handed out in multiples of
  ``register_unit``, so it holds ``registers // rounded`` warps; those of all schedulers together are divided by the
  warps of a block;
- shared memory: ``shared_bytes`` over what a block takes, static and dynamic and ``reserved_shared_bytes``, rounded up
  to a multiple of ``shared_unit``.

NVIDIA: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and the CUDA Occupancy
Calculator. AMD: LLVM's AMDGPU backend, whose compiler decides by the same numbers; a "multiprocessor" is a compute
unit, a warp a wavefront.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from mptune.resources.binaries import RESERVED_SHARED_BYTES, Resources

__all__ = ["MULTIPROCESSORS", "Multiprocessor", "multiprocessor", "occupancy"]

_KIB: Final = 1024
#: Scalar registers of a SIMD of GCN and CDNA by what a wavefront takes at most, and wavefronts that then fit.
_SCALAR_STEPS: Final = ((80, 10), (88, 9), (100, 8), (1 << 16, 7))


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """What one multiprocessor has."""

    max_warps: int  #: warps at once
    max_blocks: int  #: blocks at once
    shared_bytes: int  #: shared memory
    partitions: int = 4  #: schedulers with registers of their own
    registers: int = 512  #: of one scheduler, for each thread of a warp
    register_unit: int = 8  #: a thread's registers are handed out in multiples of this
    shared_unit: int = 128  #: a block's shared memory is handed out in multiples of this
    reserved_shared_bytes: int = RESERVED_SHARED_BYTES  #: what the system adds to every block
    has_scalar_limit: bool = False  #: whether scalar registers limit the wavefronts, as on GCN and CDNA


def _volta_like(max_warps: int, max_blocks: int, shared_kib: int) -> Multiprocessor:
    return Multiprocessor(max_warps, max_blocks, shared_kib * _KIB, shared_unit=256, reserved_shared_bytes=0)


def _gcn(waves: int, registers: int, unit: int, shared_kib: int = 64, shared_unit: int = 512) -> Multiprocessor:
    return Multiprocessor(4 * waves, 40, shared_kib * _KIB, 4, registers, unit, shared_unit, 0, has_scalar_limit=True)


def _rdna(waves: int, registers: int, unit: int) -> Multiprocessor:
    return Multiprocessor(2 * waves, 32, 64 * _KIB, 2, registers, unit, 512, 0)


_TABLE: Final = {
    "sm_70 sm_72": _volta_like(64, 32, 96),
    "sm_75": _volta_like(32, 16, 64),
    "sm_80": Multiprocessor(64, 32, 164 * _KIB),
    "sm_86": Multiprocessor(48, 16, 100 * _KIB),
    "sm_87": Multiprocessor(48, 16, 164 * _KIB),
    "sm_89 sm_120 sm_121": Multiprocessor(48, 24, 100 * _KIB),
    "sm_90 sm_100 sm_103": Multiprocessor(64, 32, 228 * _KIB),
    "gfx900 gfx906 gfx908": _gcn(10, 256, 4),
    "gfx90a gfx942": _gcn(8, 512, 8),
    "gfx950": _gcn(8, 512, 8, shared_kib=160, shared_unit=1280),
    "gfx1010": _rdna(20, 1024, 8),
    "gfx1030 gfx1031 gfx1032 gfx1102": _rdna(16, 1024, 16),
    "gfx1100 gfx1101 gfx1200 gfx1201": _rdna(16, 1536, 24),
}
#: By the architecture's name; AMD's from RDNA on for wavefronts of 32.
MULTIPROCESSORS: Final[Mapping[str, Multiprocessor]] = MappingProxyType(
    {name: unit for names, unit in _TABLE.items() for name in names.split()}
)


def multiprocessor(architecture: str) -> Multiprocessor | None:
    """Return the multiprocessor of an architecture (``sm_90``, ``sm_90a``, ``gfx90a``); None if it is not known."""
    plain = architecture.split(":")[0]
    if plain.startswith("sm_"):
        plain = plain.rstrip("abcdefghijklmnopqrstuvwxyz")
    return MULTIPROCESSORS.get(plain)


def occupancy(unit: Multiprocessor, resources: Resources, threads: int, dynamic_shared_bytes: int = 0) -> float:
    """Return the share of a multiprocessor's warps that are active; 0 if not even one block fits.

    A block has at least one of ``threads``, and the launch adds dynamic shared memory to what the function takes.
    """
    warps = -(-threads // resources.warp_threads)
    blocks = min(unit.max_blocks, unit.max_warps // warps, _fitting_warps(unit, resources) // warps)
    shared = resources.shared_bytes + dynamic_shared_bytes + unit.reserved_shared_bytes
    if shared:
        blocks = min(blocks, unit.shared_bytes // _rounded(shared, unit.shared_unit))
    return blocks * warps / unit.max_warps


def _fitting_warps(unit: Multiprocessor, resources: Resources) -> int:
    """Return how many warps the registers are enough for."""
    taken = _rounded(max(resources.registers, 1), unit.register_unit)
    of_one = unit.registers // taken
    if unit.has_scalar_limit:
        of_one = min(of_one, next(waves for most, waves in _SCALAR_STEPS if resources.scalar_registers <= most))
    return unit.partitions * of_one


def _rounded(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit
