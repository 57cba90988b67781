"""Warp functions on values of every type, by the same in NumPy."""

from __future__ import annotations

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
from mptune.cpp.prelude import prelude
from mptune.errors import CompileError
from mptune.testing.backends import launch_on_arrays

SOURCE = Path(__file__).with_name("prelude_warps.cu").read_text(encoding="utf-8")
TYPES = ("double", "float", "half", "bfloat16", "double", "int")
BLOCKS, THREADS = 3, 96


def exchanged(given: NDArray[Any], size: int) -> NDArray[np.float64]:
    """Return what the kernel's ``exchange`` writes: small whole numbers, which every type has exactly."""
    warps = given.astype(np.float64).reshape(-1, size)
    lanes = np.arange(size)
    sums = np.repeat(warps.sum(axis=1), size)
    before = np.cumsum(warps.reshape(-1, 8), axis=1)
    thirds = np.where(lanes % 3 == 0, warps[:, np.where(lanes < 30, (lanes + 3) % size, 0)], 0.0)
    found = (sums, before, warps[:, lanes ^ 5], warps[:, lanes // 8 * 8 + (lanes + 3) % 8], thirds)
    return np.concatenate([each.ravel() for each in found])


def voted(k: NDArray[np.int32]) -> list[NDArray[Any]]:
    """Return what the kernel writes to ``votes``, an array for each line."""
    warps, blocks = k.reshape(-1, 32), k.reshape(BLOCKS, THREADS)
    bits, lanes = np.uint64(1) << np.arange(32, dtype=np.uint64), np.arange(32)

    def mask(are: NDArray[np.bool_]) -> NDArray[np.uint64]:
        return (are * bits).sum(axis=-1).astype(np.uint64)

    def spread(values: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
        return np.broadcast_to(values[:, None], shape).ravel()

    high, even = warps > 50, np.broadcast_to(lanes % 2 == 0, warps.shape)
    alike = warps[:, :, None] % 5 == warps[:, None, :] % 5
    turns = -(-warps // 40)
    counts = sum((turns > turn).sum(axis=1)[:, None] * (turns > turn) for turn in range(turns.max()))
    of_warps = [mask(high), (warps > 95).any(axis=1) + 2 * (warps < 99).all(axis=1)]
    return [
        *(spread(each, warps.shape) for each in of_warps),
        mask(alike).ravel(),
        *(spread(each, warps.shape) for each in (warps.sum(axis=1), warps.max(axis=1))),
        *(spread(each, blocks.shape) for each in ((blocks > 50).sum(axis=1), np.full(BLOCKS, 1))),
        np.where(even, mask(even)[:, None], mask(high & ~even)[:, None]).ravel(),
        (counts + 32_000).ravel(),
        np.full(k.size, 0x100000000 % 2**32, np.uint64),
    ]


OPENCL = BACKENDS["opencl"].availability()


def has_subgroups(backend):
    """Whether an OpenCL device has what the prelude asks for, by a kernel that is empty where it has not."""
    text = (
        '#if !defined(MPTUNE_SUBGROUPS)\n#error none\n#endif\nextern "C" __global__ void none(int* x) { x[0] = 1; }\n'
    )
    try:
        backend.compiler.compile(prelude() + text, "none", CompileOptions())
    except CompileError:
        return False
    return True


@pytest.mark.parametrize(
    ("backend", "flags"),
    [
        pytest.param("host", (), id="assembly"),
        pytest.param("host", ("-DMPTUNE_UCONTEXT",), id="ucontext", marks=pytest.mark.full),
        pytest.param(
            "opencl", (), marks=[pytest.mark.full, pytest.mark.skipif(not OPENCL.can_run, reason=OPENCL.reason)]
        ),
    ],
)
def test_values_reach_the_threads_they_are_for(tmp_path, backend, flags):
    backend = BACKENDS[backend](cache=BinaryCache(tmp_path))
    options, source = CompileOptions(flags=flags), prelude() + SOURCE
    if backend.name == "opencl" and not has_subgroups(backend):
        with pytest.raises(CompileError, match="needs subgroups of the size of a warp"):
            backend.compiler.compile(source, "warps", options)
        return
    binary = backend.compiler.compile(source, "warps", options)
    function = backend.device.load(binary)
    n = BLOCKS * THREADS
    given = np.random.default_rng(3).integers(0, 100, n)
    k = given.astype(np.int32)
    small = given % 9
    dtypes = [np.dtype(np.int32) if name == "int" else precision_of(name).dtype for name in TYPES]
    inputs = [(k if dtype == np.int32 else small).astype(dtype) for dtype in dtypes]
    outputs = [np.zeros(5 * n, dtype) for dtype in dtypes]
    votes = np.zeros(10 * n, np.uint32)
    launch_on_arrays(backend, function, (BLOCKS,), (THREADS,), *inputs, *outputs, votes)
    for values, found in zip(inputs, outputs, strict=True):
        np.testing.assert_array_equal(found.astype(np.float64), exchanged(values, 32))
    for line, (found, wanted) in enumerate(zip(votes.reshape(10, n), voted(k), strict=True)):
        np.testing.assert_array_equal(found, wanted.astype(np.uint32), f"line {line}")


@pytest.mark.full
@pytest.mark.parametrize(
    ("backend", "architecture"),
    [
        pytest.param("cuda", "sm_80", marks=needs("cuda"), id="sm_80"),
        pytest.param("cuda", "sm_90", marks=needs("cuda"), id="sm_90"),
        pytest.param("hip", "gfx90a", marks=needs("hip"), id="gfx90a"),
    ],
)
def test_they_compile_for_gpus_without_a_warning(backend, architecture, tmp_path):
    compiler = BACKENDS[backend](cache=BinaryCache(tmp_path)).compiler
    binary = compiler.compile(prelude() + SOURCE, "warps", CompileOptions(architecture))
    assert binary.log == ""
