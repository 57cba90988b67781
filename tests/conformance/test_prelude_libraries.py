"""The libraries for kernels (cub, cooperative groups, cuRAND) on values of every type, by the same in NumPy."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from prelude_library import precision_of
from vendor_compilers import needs

from mptune.backends import BACKENDS
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host import HostBackend
from mptune.cpp.prelude import libraries_of, prelude
from mptune.testing.backends import launch_on_arrays

TEXT = Path(__file__).with_name("prelude_libraries.cu").read_text(encoding="utf-8")
USES = "USES_LIBRARY(cub); USES_LIBRARY(cooperative_groups); USES_LIBRARY(curand);\n"
SOURCE = f"{prelude()}\n{libraries_of(USES)}\n{USES}{TEXT}"
TYPES = ("double", "float", "half", "bfloat16", "double", "int")
BLOCKS, THREADS, VALID = 3, 96, 75
N = BLOCKS * THREADS
GIVEN = np.random.default_rng(5).integers(0, 3, N)


def launched(kernel: str, tmp_path: Path, shape: tuple[tuple[int, ...], tuple[int, ...]], *arguments: Any) -> None:
    backend = HostBackend(workers=2, cache=BinaryCache(tmp_path))
    entry = f"\n#if defined(MPTUNE_HOST)\nMPTUNE_HOST_ENTRY({kernel})\n#endif\n"
    function = backend.device.load(backend.compiler.compile(SOURCE + entry, kernel, CompileOptions()))
    launch_on_arrays(backend, function, *shape, *arguments)


def in_every_type(kernel: str, tmp_path: Path, block: tuple[int, ...], lines: int) -> list[NDArray[np.float64]]:
    """Return what a kernel writes in each type: small whole numbers, which every type has exactly."""
    dtypes = [np.dtype(np.int32) if name == "int" else precision_of(name).dtype for name in TYPES]
    inputs = [GIVEN.astype(dtype) for dtype in dtypes]
    outputs = [np.zeros(lines * N, dtype) for dtype in dtypes]
    launched(kernel, tmp_path, ((BLOCKS,), block), *inputs, *outputs, np.int32(N), np.int32(VALID))
    return [each.astype(np.float64) for each in outputs]


@pytest.mark.full
def test_algorithms_of_a_block(tmp_path: Path) -> None:
    blocks = GIVEN.reshape(BLOCKS, THREADS).astype(np.float64)
    loaded = np.zeros((BLOCKS, THREADS * 3))
    for block in range(BLOCKS):
        start = block * THREADS // 3
        loaded[block, :THREADS] = GIVEN[start : start + THREADS]
    before = 2 + np.cumsum(loaded, axis=1) - loaded
    for found in in_every_type("blocks", tmp_path, (16, 3, 2), 7):
        line = found[:N].reshape(BLOCKS, THREADS)
        np.testing.assert_array_equal(line[:, 0], blocks.sum(axis=1))
        np.testing.assert_array_equal(line[:, 1], blocks[:, :VALID].max(axis=1))
        lines = found[N : 4 * N].reshape(3, BLOCKS, THREADS)
        np.testing.assert_array_equal(lines[0], np.cumsum(blocks, axis=1) - blocks)
        np.testing.assert_array_equal(lines[1], np.maximum.accumulate(blocks, axis=1))
        np.testing.assert_array_equal(lines[2], np.broadcast_to(blocks.sum(axis=1)[:, None], blocks.shape))
        np.testing.assert_array_equal(found[4 * N :].reshape(BLOCKS, -1), before)


@pytest.mark.full
def test_algorithms_of_a_warp_and_of_tiles(tmp_path: Path) -> None:
    given = GIVEN.astype(np.float64)
    warps, eights, tiles = given.reshape(-1, 32), given.reshape(-1, 8), given.reshape(-1, 16)
    sums = np.zeros_like(eights)
    sums[:, 0] = eights.sum(axis=1)
    largest = np.maximum.accumulate(np.hstack([np.ones((len(warps), 1)), warps]), axis=1)[:, :-1]
    moved = np.where(np.arange(16) < 14, tiles[:, np.minimum(np.arange(16) + 2, 15)], tiles)
    expected = [sums, np.cumsum(warps, axis=1), largest, np.repeat(tiles.sum(axis=1), 16)]
    expected.append(np.cumsum(tiles, axis=1) - tiles + moved)
    for found in in_every_type("warps", tmp_path, (THREADS,), 5):
        for line, wanted in zip(found.reshape(5, N), expected, strict=True):
            np.testing.assert_array_equal(line, wanted.ravel())


@pytest.mark.full
def test_scans_that_go_on_places_of_maxima_and_groups(tmp_path: Path) -> None:
    k = np.random.default_rng(7).integers(0, 100, N).astype(np.int32)
    found = np.zeros(2 * N + 4 * THREADS, np.int32)
    launched("numbers", tmp_path, ((1,), (THREADS,)), k, found, np.int32(N))
    np.testing.assert_array_equal(found[:N], 100 + np.cumsum(k) - k)
    assert found[N] == np.argmax(k[:THREADS])
    threads = np.arange(THREADS)
    assert found[N + 1] == len(threads[::3])  # however the groups are made
    ranks, votes, places, own = found[2 * N :].reshape(4, THREADS)
    np.testing.assert_array_equal(ranks, threads // 8 * 1000 + threads % 8 * 10 + 8)
    tiles = k[:THREADS].reshape(-1, 8)
    ballot = (tiles % 2 * (1 << np.arange(8))).sum(axis=1) + 1000 * (tiles > 90).any(axis=1)
    np.testing.assert_array_equal(votes, np.repeat(ballot, 8))
    np.testing.assert_array_equal(places, threads + THREADS)
    np.testing.assert_array_equal(own[::3], threads[::3])


# -- random numbers --------------------------------------------------------------------------------

MASK = 2**32 - 1


class Xorwow:
    """Marsaglia's generator; a subsequence begins 2^67 steps after the one before: a power of a matrix of bits."""

    def __init__(self, seed: int, subsequence: int, offset: int) -> None:
        a = 1099087573 * ((seed & MASK) ^ 0xAAD26B49) & MASK
        b = 2591861531 * ((seed >> 32) ^ 0xF7DCEFDD) & MASK
        self.d = 6615241 + a + b & MASK
        self.v = [123456789 + a & MASK, 362436069 ^ a, 521288629 + b & MASK, 88675123 ^ b, 5783321 + a & MASK]
        state = np.array([word >> bit & 1 for word in self.v for bit in range(32)], np.int64)
        for _ in range(subsequence):
            state = jump() @ state % 2
        self.v = [sum(int(bit) << at for at, bit in enumerate(state[32 * i : 32 * i + 32])) for i in range(5)]
        for _ in range(offset):
            self.draw()

    def draw(self) -> int:
        self.v = stepped(self.v)
        self.d = self.d + 362437 & MASK
        return self.v[4] + self.d & MASK


def stepped(v: list[int]) -> list[int]:
    t = v[0] ^ v[0] >> 2
    return [*v[1:], (v[4] ^ v[4] << 4 ^ t ^ t << 1) & MASK]


@functools.cache
def jump() -> NDArray[np.int64]:
    columns = [stepped([(column // 32 == i) << column % 32 for i in range(5)]) for column in range(160)]
    step = np.array([[word >> bit & 1 for word in v for bit in range(32)] for v in columns], np.int64).T
    for _ in range(67):
        step = step @ step % 2
    return step


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Return four numbers of Philox4x32-10."""
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [b >> 32 ^ counter[1] ^ key[0], b & MASK, a >> 32 ^ counter[3] ^ key[1], a & MASK]
        key = [key[0] + 0x9E3779B9 & MASK, key[1] + 0xBB67AE85 & MASK]
    return counter


@pytest.mark.full
def test_whole_numbers_are_those_of_the_published_generators(tmp_path: Path) -> None:
    # The known answer of Salmon et al. for a counter and a key of zeros.
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    n, seed = 5, 0x123456789ABC
    bits, uniform, normal = np.zeros(3 * n, np.uint32), np.zeros(2 * n, np.float32), np.zeros(2 * n)
    launched("draws", tmp_path, ((1,), (8,)), np.uint64(seed), bits, uniform, normal, np.int32(n))
    for i in range(n):
        generator = Xorwow(seed, i, 2 * i)
        assert bits[i] == generator.draw()
        assert uniform[i] == pytest.approx(generator.draw() * 2.0**-32 + 2.0**-33, rel=1e-6)
        first, second = (philox([at, 0, i, 0], [seed & MASK, seed >> 32]) for at in (0, 1))
        assert bits[n + i] == first[3]
        assert bits[2 * n + i] == second[3]
    assert np.all((uniform > 0) & (uniform <= 1))
    assert np.all(np.isfinite(normal) & (normal != 0))


@pytest.mark.full
@pytest.mark.parametrize(
    ("backend", "architecture"),
    [
        pytest.param("cuda", "sm_80", marks=needs("cuda"), id="sm_80"),
        pytest.param("cuda", "sm_90", marks=needs("cuda"), id="sm_90"),
        pytest.param("hip", "gfx90a", marks=needs("hip"), id="gfx90a"),
    ],
)
def test_they_compile_for_gpus_without_a_warning(backend: str, architecture: str, tmp_path: Path) -> None:
    compiler = BACKENDS[backend](cache=BinaryCache(tmp_path)).compiler
    assert compiler.compile(SOURCE, "blocks", CompileOptions(architecture)).log == ""
