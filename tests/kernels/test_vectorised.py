"""Inner loops in 16-bit types are loops of vectors on the host: g++ is asked what it did."""

import re

import pytest
from launching import launcher

from mptune.backends.base import CompileOptions
from mptune.backends.host import HostBackend
from mptune.backends.host_compiler import find_compiler
from mptune.registry import load_kernel
from mptune.rendering import render
from mptune.space.parameters import PrecisionParameter

# What the loop to look for starts with, in the kernel's template, and the parameters that make it one.
INNER_LOOPS = (
    ("newton_raphson", "for (int v = 0; v < groups; ++v) {", {"tile_size": 8}),
    ("mriq", "for (int i = 0; i < 16; ++i) {", {"tile_size": 16, "unroll": 1}),
    ("coulombic", "for (int i = 0; i < 16; ++i) {", {"tile_size_x": 16, "tile_size_y": 1}),
    ("kmeans", "for (int v = 0; v < 16; ++v) {", {"points_per_thread": 16, "use_shared": False}),
)


@pytest.mark.parametrize(("name", "loop", "values"), INNER_LOOPS, ids=[name for name, _, _ in INNER_LOOPS])
def test_innermost_loops_in_bf16(name, loop, values):
    if find_compiler().family != "gcc":
        pytest.skip("asks g++ what it did")
    kernel = load_kernel(name)
    types = {p.name: "bf16" for p in kernel.parameters if isinstance(p, PrecisionParameter)}
    source = render(kernel, kernel.configuration({**types, **values}), launcher(kernel).data.sizes)
    body = source.split(f'#line 1 "{name}.cu"\n')[1].splitlines()
    wanted = {number for number, line in enumerate(body, 1) if loop in line}
    assert wanted
    options = CompileOptions(flags=("-fopt-info-vec-optimized",))
    log = HostBackend().compile(source, name, options).log
    found = {int(line) for line in re.findall(rf"{name}\.cu:(\d+):\d+: optimized: loop vectorized", log)}
    assert wanted <= found, log
