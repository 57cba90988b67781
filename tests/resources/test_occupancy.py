"""Occupancy against cases worked by hand, and against counting blocks one by one.

Worked by hand means: the limits of the architecture are written out in the comment, not taken from the table.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mptune.resources import Multiprocessor, Resources, multiprocessor, occupancy
from mptune.resources.occupancy import MULTIPROCESSORS


def of(architecture, registers, shared, threads, dynamic=0, **more):
    unit = multiprocessor(architecture)
    assert unit is not None
    return occupancy(unit, Resources(registers, 0, shared, **more), threads, dynamic)


@pytest.mark.parametrize(
    ("case", "share"),
    [
        # sm_80 has 64 warps, 32 blocks, 65536 registers in 4 parts, 164 KiB, of which each block costs 1 KiB more.
        (("sm_80", 32, 0, 256), 64 / 64),  # 32 registers: 2048 threads have just enough
        (("sm_80", 33, 0, 256), 48 / 64),  # 33 count as 40: 12 warps fit each part, 48 warps are 6 blocks of 8
        (("sm_80", 128, 0, 1024), 0.0),  # 4 warps fit each part: 16, and a block has 32
        (("sm_80", 64, 0, 1024), 32 / 64),  # 8 fit each part: 32, one block
        (("sm_80", 255, 0, 32), 8 / 64),  # 256: 2 fit each part
        (("sm_80", 16, 0, 32), 32 / 64),  # 32 blocks of one warp
        (("sm_80", 16, 0, 33), 64 / 64),  # a block of 33 threads takes two warps
        (("sm_80", 16, 40960, 128), 16 / 64),  # 41 KiB each: 4 blocks of 4 warps
        (("sm_80", 16, 40961, 128), 12 / 64),  # beyond that, a multiple of 128: only 3 fit
        (("sm_80", 16, 0, 128, 40960), 16 / 64),  # dynamic shared memory counts alike
        # sm_86 has 48 warps, 16 blocks and 100 KiB; sm_75 32 warps, 16 blocks, 64 KiB, nothing reserved, units of 256.
        (("sm_86", 32, 0, 64), 32 / 48),  # 16 blocks of 2 warps
        (("sm_86", 32, 50176, 256), 16 / 48),  # 49 + 1 KiB: two blocks
        (("sm_86", 32, 50177, 256), 8 / 48),
        (("sm_75", 32, 32768, 128), 8 / 32),
        (("sm_75", 32, 32769, 128), 4 / 32),
        # sm_90 has 228 KiB: with 1 KiB each, two blocks of 113 KiB, not of more.
        (("sm_90", 32, 0, 256, 113 * 1024), 16 / 64),
        (("sm_90", 32, 0, 256, 113 * 1024 + 1), 8 / 64),
        # gfx90a has 4 SIMDs of 8 wavefronts and 512 vector registers, in eights.
        (("gfx90a", 64, 0, 256), 1.0),
        (("gfx90a", 65, 0, 256), 28 / 32),  # 72: 7 fit each SIMD
        (("gfx90a", 256, 0, 64), 8 / 32),
        (("gfx90a", 32, 32768, 256), 8 / 32),  # 64 KiB: two blocks of 4 wavefronts
        # gfx906 has 4 SIMDs of 10 wavefronts and 256 registers in fours; 64 KiB, 40 blocks.
        (("gfx906", 24, 0, 64), 1.0),
        (("gfx906", 25, 0, 64), 36 / 40),  # 28: 9 fit
    ],
)
def test_cases_worked_by_hand(case, share):
    wide = {"warp_threads": 64} if case[0].startswith("gfx9") else {}
    assert of(*case, **wide) == share


def test_spellings_of_an_architecture():
    assert multiprocessor("sm_90a") is MULTIPROCESSORS["sm_90"]
    assert multiprocessor("sm_120f") is MULTIPROCESSORS["sm_120"]
    assert multiprocessor("gfx90a:sramecc+:xnack-") is MULTIPROCESSORS["gfx90a"]
    assert multiprocessor("gfx906") is not multiprocessor("gfx90a")
    assert multiprocessor("znver4") is None
    assert multiprocessor("sm_35") is None


def placed(unit: Multiprocessor, resources: Resources, threads: int, dynamic: int) -> int:
    """Place one block after another, each warp on the scheduler with most registers left, until one does not fit."""
    free = [unit.registers] * unit.partitions
    warps_left, shared_left, blocks = unit.max_warps, unit.shared_bytes, 0
    registers = max(1, resources.registers)
    while registers % unit.register_unit:
        registers += 1
    shared = resources.shared_bytes + dynamic + unit.reserved_shared_bytes
    while shared % unit.shared_unit:
        shared += 1
    warps = len(range(0, threads, resources.warp_threads))
    while blocks < unit.max_blocks:
        warps_left -= warps
        shared_left -= shared
        for _ in range(warps):
            most = free.index(max(free))
            free[most] -= registers
        if warps_left < 0 or shared_left < 0 or min(free) < 0:
            return blocks
        blocks += 1
    return blocks


@given(
    st.sampled_from([name for name in MULTIPROCESSORS if name.startswith("sm_")]),
    st.integers(0, 255),
    st.integers(0, 49152),
    st.integers(0, 60000),
    st.integers(1, 1024),
)
def test_counting_blocks_one_by_one(architecture, registers, shared, dynamic, threads):
    unit = MULTIPROCESSORS[architecture]
    resources = Resources(registers, 0, shared)
    warps = -(-threads // 32)
    expected = placed(unit, resources, threads, dynamic) * warps / unit.max_warps
    assert occupancy(unit, resources, threads, dynamic) == expected


@given(st.sampled_from(sorted(MULTIPROCESSORS)), st.integers(0, 255), st.integers(0, 65536), st.integers(1, 1024))
def test_more_of_anything_never_raises_it(architecture, registers, shared, threads):
    unit = MULTIPROCESSORS[architecture]
    now = occupancy(unit, Resources(registers, 0, shared), threads)
    assert 0 <= now <= 1
    assert occupancy(unit, Resources(registers + 1, 0, shared), threads) <= now
    assert occupancy(unit, Resources(registers, 0, shared + 1), threads) <= now
    assert occupancy(unit, Resources(registers, 0, shared), threads, 1) <= now
