"""Kernel Float's vectors: on the host and OpenCL what NumPy computes, and text that CUDA's and HIP's compilers take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vendor_compilers import needs

from mptune import In, Kernel, Out, PrecisionParameter, Scalar
from mptune.backends import BACKENDS, get_backend
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.kernel_tuner import TunablePrecision, run_kernel
from mptune.source.render import render

TEXT = Path(__file__).with_name("prelude_kernel_float.cu").read_text(encoding="utf-8")
CALLED = """
extern "C" __global__ void called(
    kf::vec_ptr<{{ t }}, 4> out, const kf::vec_ptr<const {{ t }}, 4, const {{ t }}> in, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * in[i];
}
"""


def expected(x: Any) -> Any:
    """Return the eight vectors of each of the vectors ``x`` (n, 4), in double."""
    pairs = x.reshape(-1, 2)[: 2 * len(x)]
    y = x * np.pi + 1 - x / 2
    y[:, 0] += x.sum(1) + (x * x).sum(1) + x.prod(1) + x.min(1) * x.max(1)
    y[:, 1] += (x > 0.5).sum(1) + 10 * (x > 2).any(1) + 100 * ((x >= 0) & (x < 1)).all(1)
    functions = np.exp(x) + np.cos(x) + np.sin(x) + np.sqrt(x)
    chosen = np.where(x < 0.5, x**2, np.maximum(x, 0.75)) + np.fmod(x, 0.25)
    filled = (np.array([1, 3, 1, 3]) + 4) * x[:, 2:3]
    joined = np.concatenate([pairs[1::2], x[:, [3, 0]]], axis=1)
    mapped = x * np.arange(4) + x
    reduced = np.stack([x.sum(1), x.max(1), x[:, 3], x[:, 1]], axis=1)
    swapped = x.copy()
    swapped[:, 3] = x[:, 0]
    swapped[::2, 0] = x[::2, 3]
    return np.stack([y, functions, chosen, filled, joined, mapped, reduced, swapped], axis=1)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["double", "float", "half", "bfloat16"])
@pytest.mark.parametrize("backend", ["host", pytest.param("opencl", marks=needs("opencl"))])
def test_vectors_compute_what_numpy_does(backend: str, kind: str) -> None:
    x = np.random.default_rng().integers(8, 200, (37, 4)) / 256
    arguments = [TunablePrecision("real", np.zeros((37, 8, 4))), TunablePrecision("real", x), np.int32(37)]
    text = TEXT.partition("#define COMPUTE")[0] + (
        'extern "C" __global__ void run(kf::vec_ptr<real, 4> out, const kf::vec<real, 4> *in, int n) {\n'
        "    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) compute<real>(out, kernel_float::pass(in), kernel_float::pass(in), i);\n}\n"
    )
    found, *_ = run_kernel("run", text, 37, arguments, {"real": kind}, backend=backend)
    # A sum of about 110 in bfloat16 is half off at most.
    digits = {"double": 1e-13, "float": 1e-5, "half": 4e-3, "bfloat16": 3e-2}[kind]
    np.testing.assert_allclose(found, expected(x), rtol=digits, atol=digits)


@pytest.mark.full
@pytest.mark.parametrize(
    ("backend", "architecture"),
    [
        ("host", ""),
        pytest.param("opencl", "", marks=needs("opencl")),
        pytest.param("cuda", "sm_80", marks=needs("cuda")),
        pytest.param("hip", "gfx90a", marks=needs("hip")),
    ],
)
def test_kernels_take_pointers_to_vectors(backend: str, architecture: str, tmp_path: Path) -> None:
    kernel = Kernel(
        name="called",
        parameters=[PrecisionParameter("t", ["fp64", "fp16"])],
        arguments=[Out("out", "4 * n", precision="t"), In("in", "4 * n", precision="t"), Scalar("n", dtype="int32")],
        sizes={"default": {"n": 8}},
        inputs=lambda rng, size: {"in": rng.random(4 * size.n)},
        reference=lambda inputs, size: 2 * inputs["in"],
        grid=[1],
        block=[8],
        template=TEXT + CALLED,
    )
    space = kernel.search_space(kernel.resolve_sizes("default", {}))
    for place in range(len(space)):
        source = render(kernel, space.configuration(place), {"n": 8})
        found = get_backend(backend) if not architecture else BACKENDS[backend](cache=BinaryCache(tmp_path))
        binary = found.compiler.compile(source, "called", CompileOptions(architecture))
        assert backend == "opencl" or not binary.log
