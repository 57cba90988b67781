"""Loops in 16-bit types are loops of vectors on the host: g++ is asked what it did."""

import re

import pytest
from launching import launcher

from mptune.backends.base import CompileOptions
from mptune.backends.host import HostBackend
from mptune.backends.host_compiler import find_compiler
from mptune.registry import load_kernel
from mptune.rendering import render
from mptune.space.parameters import PrecisionParameter

TYPES = ("bf16", "fp16")
# What the loop to look for starts with, in the kernel's template, and the parameters that make it one.
INNER_LOOPS = (
    ("newton_raphson", "for (int v = 0; v < groups; ++v) {", {"tile_size": 4}),
    ("newton_raphson", "for (int v = 0; v < groups; ++v) {", {"tile_size": 8}),
    ("mriq", "for (int i = 0; i < 4; ++i) {", {"tile_size": 4, "unroll": 1}),
    ("mriq", "for (int i = 0; i < 16; ++i) {", {"tile_size": 16, "unroll": 1}),
    ("coulombic", "for (int i = 0; i < 16; ++i) {", {"tile_size_x": 16, "tile_size_y": 1}),
    ("kmeans", "for (int v = 0; v < 4; ++v) {", {"points_per_thread": 4, "use_shared": False}),
    ("kmeans", "for (int v = 0; v < 16; ++v) {", {"points_per_thread": 16, "use_shared": False}),
)
# Kernels without an inner loop: the loop over the threads of a block, in the prelude.
THREAD_LOOP = "for (int x = first; x < first + extents.x; ++x) {"
THREAD_LOOPS = (
    ("bessel", {"vector_width": 1}),
    ("bessel", {"vector_width": 8}),
    ("black_scholes", {"vector_width": 1}),
    ("inverse_kinematics", {"tile_size": 1}),
)


def compiled(name, precision, values):
    """Return a rendered source and what g++ says it vectorised in it."""
    if find_compiler().family != "gcc":
        pytest.skip("asks g++ what it did")
    kernel = load_kernel(name)
    types = {p.name: precision for p in kernel.parameters if isinstance(p, PrecisionParameter)}
    source = render(kernel, kernel.configuration({**types, **values}), launcher(kernel).data.sizes)
    options = CompileOptions(flags=("-fopt-info-vec-optimized",))
    return source, HostBackend().compiler.compile(source, name, options).log


def lines_with(text, source):
    wanted = {number for number, line in enumerate(source.splitlines(), 1) if text in line}
    assert wanted
    return wanted


def vectorised(file, log):
    return {int(line) for line in re.findall(rf"^{file}:(\d+):\d+: optimized: loop vectorized", log, re.MULTILINE)}


@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize(("name", "loop", "values"), INNER_LOOPS, ids=str)
def test_innermost_loops(name, loop, values, precision):
    source, log = compiled(name, precision, values)
    body = source.split(f'#line 1 "{name}.cu"\n')[1]
    assert lines_with(loop, body) <= vectorised(rf"{name}\.cu", log), log


@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize(("name", "values"), THREAD_LOOPS, ids=str)
def test_loops_over_threads(name, values, precision):
    source, log = compiled(name, precision, values)
    # The prelude's lines, whether it was read with the source or precompiled.
    assert lines_with(THREAD_LOOP, source) <= vectorised(rf"(?:{name}|prelude\.hpp)", log), log
