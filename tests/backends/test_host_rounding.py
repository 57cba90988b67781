"""What a host kernel rounds to a type is rounded, however its statements are put together into vectors."""

from __future__ import annotations

import numpy as np
import pytest
from host_kernels import CACHE

from mptune.backends.base import CompileOptions
from mptune.backends.host import HostBackend
from mptune.backends.host_compiler import HostCompiler, installed_compilers
from mptune.cpp.prelude import prelude
from mptune.precision import PRECISIONS
from mptune.testing.backends import launch_on_arrays
from tests.tiers import few

PAIRS = [(wide, narrow) for wide in ("fp64", "fp32") for narrow in ("fp32", "fp16", "bf16") if wide != narrow]


def kernel(wide: str, narrow: str, count: int) -> str:
    """Return a kernel that sums so many rounded numbers side by side, and what rounding takes away.

    The order of its sums keeps the loop from being one of vectors: only its statements can be put together.
    """
    w, n = PRECISIONS[wide].cpp, PRECISIONS[narrow].cpp
    each = range(count)
    sums = " ".join(f"{w} rounded{j} = 0, lost{j} = 0;" for j in each)
    steps = "\n        ".join(
        f"{{ const {n} held = ({n})x[{j}]; rounded{j} += ({w})held; lost{j} += x[{j}] - ({w})held; }}" for j in each
    )
    results = " ".join(f"y[{j}] = rounded{j}; y[{count + j}] = lost{j};" for j in each)
    return f"""
extern "C" __global__ void side_by_side(const {w}* __restrict__ x, {w}* __restrict__ y, int n) {{
    {sums}
    for (int i = 0; i < n; ++i, x += {count}) {{
        {steps}
    }}
    {results}
}}
MPTUNE_HOST_ENTRY(side_by_side)
"""


@pytest.mark.parametrize("program", few(installed_compilers()), ids=lambda program: program.label)
@pytest.mark.parametrize("count", few([4, 2, 16]))
@pytest.mark.parametrize(("wide", "narrow"), few(PAIRS, 2))
def test_statements_side_by_side_round_to_their_type(program, wide, narrow, count):
    backend = HostBackend(workers=1, cache=CACHE)
    compiler = HostCompiler(program, cache=CACHE)
    binary = compiler.compile(prelude() + kernel(wide, narrow, count), "side_by_side", CompileOptions())
    dtype, steps = PRECISIONS[wide].dtype, 37
    x = np.random.default_rng(17).uniform(1, 2, (steps, count)).astype(dtype)
    y = np.full((2, count), np.nan, dtype)
    launch_on_arrays(backend, backend.device.load(binary), (1, 1, 1), (1, 1, 1), x, y, np.int32(steps))
    held = x.astype(PRECISIONS[narrow].dtype).astype(dtype)
    # Sums are exact in the wider type where it is fp64, and else nearly.
    assert np.allclose(y[0], held.sum(axis=0, dtype=np.float64), rtol=steps * PRECISIONS[wide].unit_roundoff, atol=0)
    lost = (x - held).sum(axis=0, dtype=np.float64)
    assert np.allclose(y[1], lost, rtol=0, atol=steps * PRECISIONS[wide].unit_roundoff / 8)
    assert np.all(np.abs(lost) > steps * PRECISIONS[wide].unit_roundoff)
