"""Loops in 16-bit types are loops of vectors on the host, by g++'s report.

Neither needs the processor that the code is for.
"""

import functools
import re
import subprocess

import pytest

from mptune.backends.host_compiler import find_compiler
from mptune.errors import BackendUnavailableError
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.space.parameters import PrecisionParameter
from tests.tiers import few

#: Processors with AVX-512 that compute in fp16 and that do not, and those without AVX-512.
WITH_FP16, WITHOUT_FP16, AVX2 = "sapphirerapids", "icelake-server", "x86-64-v3"
# What the loop to look for starts with, in the kernel's template, and the parameters that make it one.
INNER_LOOPS = (
    ("newton_raphson", "for (int v = 0; v < groups; ++v) {", {"tile_size": 8}),
    ("mriq", "for (int i = 0; i < tile / width; ++i) {", {"tile_size": 16, "unroll": 1}),
    (
        "coulombic",
        "for (int i = 0; i < columns / together; ++i) {",
        {"block_size_x": 32, "tile_size_x": 16, "tile_size_y": 1},
    ),
    ("kmeans", "for (int v = 0; v < run / width; ++v) {", {"points_per_thread": 16, "use_shared": False}),
)
# Kernels without an inner loop: the loop over the threads of a block, in the prelude.
THREAD_LOOP = "for (int x = first; x < first + threads.x; ++x) {"
THREAD_LOOPS = (
    ("bessel", THREAD_LOOP, {"vector_width": 8}),
    ("black_scholes", THREAD_LOOP, {"vector_width": 1}),
    ("inverse_kinematics", THREAD_LOOP, {"block_size": 128, "tile_size": 1}),
)


def gcc(architecture):
    """Return g++ and its flags for a processor; skips the test where there is no such compiler."""
    try:
        compiler = find_compiler()
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    if compiler.family != "gcc":
        pytest.skip(f"asks g++ what it did, and the compiler is {compiler.label}")
    if not knows(compiler.command, architecture):
        pytest.skip(f"{compiler.version} cannot compile for {architecture}")
    flags = compiler.flags(architecture)
    return [*compiler.command, *flags[: flags.index("-x")]]


@functools.cache
def knows(command, architecture):
    asked = [*command, f"-march={architecture}", "-E", "-x", "c++", "/dev/null"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


@functools.cache
def compiled(name, precision, values, architecture):
    """Return a rendered source, and what g++ says that it vectorised."""
    kernel = load_kernel(name)
    types = {p.name: precision for p in kernel.parameters if isinstance(p, PrecisionParameter)}
    source = render(kernel, kernel.configuration({**types, **dict(values)}), kernel.resolve_sizes("smoke"))
    command = [*gcc(architecture), "-fopt-info-vec-optimized", "-S", "-x", "c++", "-", "-o", "/dev/null"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    return source, done.stderr


LOOPS = [*INNER_LOOPS, *THREAD_LOOPS]
TARGETS = ((WITHOUT_FP16, "bf16"), (AVX2, "fp16"), (WITHOUT_FP16, "fp16"), (AVX2, "bf16"), (WITH_FP16, "fp16"))


@pytest.mark.parametrize(
    ("name", "loop", "values", "architecture", "precision"),
    # Each loop for two of the other processors, and for the one with fp16.
    few([(*loop, *TARGETS[(i + j) % 4]) for j in (0, 2) for i, loop in enumerate(LOOPS)][::-1], 2, 8)
    + few([(*loop, *TARGETS[4]) for loop in LOOPS], 0, 4),
    ids=str,
)
def test_the_loop_is_vectorised(name, loop, values, architecture, precision):
    source, log = compiled(name, precision, tuple(values.items()), architecture)
    body = source.split(f'#line 1 "{name}.cu"\n')[1]
    if loop == THREAD_LOOP:
        # g++ reads the prelude from its standard input here.
        places = {("<stdin>", i) for i, line in enumerate(source.splitlines(), 1) if THREAD_LOOP in line}
    else:
        places = {(f"{name}.cu", i) for i, line in enumerate(body.splitlines(), 1) if loop in line}
    found = re.findall(r"^([^:\n]+):(\d+):\d+: optimized: loop vectorized", log, re.MULTILINE)
    vectorised = {(file, int(line)) for file, line in found}
    if architecture == WITH_FP16 and name == "newton_raphson":
        # There the loop over quartics is unrolled, and the one over threads vectorised.
        assert "<stdin>" in {file for file, _ in vectorised}, log
    else:
        assert places
        assert places <= vectorised, log
