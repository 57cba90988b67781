"""Sums that a template adds in pairs (``mp::pairwise``), where they run and compiled for where they do not."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from launching import launcher
from vendor_compilers import needs

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.kernel import In, Kernel, Out, Scalar
from mptune.precision import PRECISIONS
from mptune.source.render import render
from mptune.space.parameters import PrecisionParameter
from tests.tiers import few

TERMS = 37
TEMPLATE = """
extern "C" __global__ void row_sums({{ x_type }}* sums, const {{ x_type }}* x, int rows) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    sums[row] = mp::pairwise<{{ terms }}>([&](int k) { return local<{{ x_type }}>(x[row * {{ terms }} + k]); });
}
"""
ROWS = Kernel(
    name="row_sums",
    parameters=[PrecisionParameter("x_type", ["fp64", "fp32", "fp16", "bf16"])],
    arguments=[
        Out("sums", "rows", precision="x_type"),
        In("x", ("rows", "terms"), precision="x_type"),
        Scalar("rows", dtype="int32"),
    ],
    sizes={"default": {"rows": 101, "terms": TERMS}},
    inputs=lambda rng, size: {"x": rng.standard_normal((size.rows, size.terms)) + 0.25},
    reference=lambda inputs, size: inputs["x"].sum(axis=1),
    grid=["ceildiv(rows, 64)"],
    block=[64],
    template=TEMPLATE,
)


@pytest.mark.parametrize("backend", few(["host", pytest.param("opencl", marks=needs("opencl"))]))
@pytest.mark.parametrize("name", few(["fp16", "bf16", "fp32", "fp64"], 2))
def test_each_term_is_rounded_as_often_as_pairs_are_nested(name: str, backend: str) -> None:
    run = dataclasses.replace(launcher(ROWS, preset="default", seed=31), backend=get_backend(backend))
    configuration = ROWS.configuration({"x_type": name})
    found = run.run(configuration)["sums"]
    argument = next(a for a in ROWS.arguments if a.name == "x")
    given = np.asarray(run.data.typed(argument, PRECISIONS[name])).astype(np.float64).reshape(-1, TERMS)
    roundings = math.ceil(math.log2(TERMS))
    bound = roundings * Fraction(PRECISIONS[name].unit_roundoff) * (1 + Fraction(1, 32))
    for row, result in zip(given.tolist(), found.tolist(), strict=True):
        terms = [Fraction(term) for term in row]
        assert abs(Fraction(result) - sum(terms)) <= bound * sum(map(abs, terms))


@pytest.mark.parametrize(
    ("backend", "architecture"),
    [pytest.param("cuda", "sm_90", marks=needs("cuda")), pytest.param("hip", "gfx90a", marks=needs("hip"))],
)
@pytest.mark.parametrize("name", few(["bf16", "fp64"], 0))
def test_it_compiles_for_every_vendor(name: str, backend: str, architecture: str) -> None:
    source = render(ROWS, ROWS.configuration({"x_type": name}), ROWS.resolve_sizes("default"))
    get_backend(backend).compiler.compile(source, ROWS.function, CompileOptions(architecture=architecture))
