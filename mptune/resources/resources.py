"""The resources of one compiled function."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Resources"]


@dataclass(frozen=True, slots=True)
class Resources:
    """What a compiled function takes.

    Attributes:
        registers: 32-bit registers of a thread; on AMD vector registers, those for matrices included.
        local_bytes: memory of a thread for what its registers do not hold: spilled ones, arrays, the stack.
        shared_bytes: statically allocated shared memory of a block.
        scalar_registers: registers a wavefront has besides (AMD alone).
        spilled_registers: registers moved to memory; None where the binary does not tell (NVIDIA).
        warp_threads: threads that go together, 32 or 64.
    """

    registers: int
    local_bytes: int
    shared_bytes: int
    scalar_registers: int = 0
    spilled_registers: int | None = None
    warp_threads: int = 32
