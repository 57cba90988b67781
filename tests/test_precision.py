"""Precisions: their figures and ranks, and sums with more digits than fp64 has."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mptune.accuracy.exact import product
from mptune.data.blocks import BLOCK, uniform
from mptune.kernel import Sizes
from mptune.precision import COMPOUND, EVERY_PRECISION, PRECISIONS, precision, promoted
from mptune.results.objective import Objective
from mptune.source.loading import load_kernel
from mptune.space.parameters import PrecisionParameter, baseline_values
from mptune.space.search_space import SearchSpace
from mptune.strategies.model_based.error_model import Signatures
from tests.tiers import few

#: name: bytes, significand bits, largest, smallest normal; figures of the standards, not of a library.
STANDARD = {
    "fp64": (8, 53, (2 - 2.0**-52) * 2.0**1023, 2.0**-1022),
    "fp32": (4, 24, (2 - 2.0**-23) * 2.0**127, 2.0**-126),
    "fp16": (2, 11, 65504.0, 2.0**-14),
    "bf16": (2, 8, (2 - 2.0**-7) * 2.0**127, 2.0**-126),
    "fp8_e4m3": (1, 4, 448.0, 2.0**-6),
    "fp8_e5m2": (1, 3, 57344.0, 2.0**-14),
}


@pytest.mark.parametrize("name", PRECISIONS)
def test_figures_are_those_of_the_standards(name: str) -> None:
    entry = PRECISIONS[name]
    size, bits, largest, smallest = STANDARD[name]
    assert (entry.size_bytes, entry.significand_bits) == (size, bits)
    assert entry.largest == largest
    assert entry.smallest_normal == smallest
    assert entry.dtype.itemsize == size


@pytest.mark.parametrize("name", PRECISIONS)
def test_unit_roundoff_is_the_bound_of_one_rounding(name: str) -> None:
    entry = PRECISIONS[name]
    u = entry.unit_roundoff
    one = entry.dtype.type(1.0)
    assert float(entry.dtype.type(1.0 + 2 * u)) == 1.0 + 2 * u
    if name != "fp64":
        assert float(entry.dtype.type(1.0 + u)) == float(one)
        draws = np.random.default_rng(0).uniform(1.0, 2.0, 10_000)
        errors = np.abs(draws.astype(entry.dtype).astype(np.float64) - draws) / draws
        assert errors.max() <= u


@pytest.mark.parametrize("name", PRECISIONS)
def test_every_alias_finds_its_precision(name: str) -> None:
    entry = PRECISIONS[name]
    for spelling in (name, name.upper(), f" {name} ", *entry.aliases):
        assert precision(spelling) is entry
    assert precision(entry) is entry


# -- wherever types are ranked by their accuracy, compound ones stand where their errors put ---------

BEST_FIRST = (
    "fp64_neumaier", "fp64", "fp32x2", "fp32_neumaier", "fp32", "bf16x3", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2",
)  # fmt: skip
OFFERED = PrecisionParameter("sum", ["fp64", "fp32", "fp16", "bf16"], on_request=COMPOUND)
STORED = PrecisionParameter("stored", ["fp64", "fp32", "fp16"])


# -- the table -------------------------------------------------------------------------------------------


def test_the_table_is_in_the_order_of_accuracy() -> None:
    assert tuple(EVERY_PRECISION) == BEST_FIRST
    ranks = [entry.rank for entry in EVERY_PRECISION.values()]
    assert all(better > worse for better, worse in itertools.pairwise(ranks))
    roundoffs = [entry.unit_roundoff for entry in EVERY_PRECISION.values()]
    assert roundoffs == sorted(roundoffs)
    assert tuple(PRECISIONS) == tuple(name for name in BEST_FIRST if name not in COMPOUND)


def test_an_operation_has_the_more_accurate_of_two_compound_types_and_any_before_a_plain_one() -> None:
    types = [entry for entry in EVERY_PRECISION.values() if not entry.storage_only]
    for one, other in itertools.product(types, repeat=2):
        assert promoted(one, other) is promoted(other, one)
        if one.name in COMPOUND and other.name in COMPOUND:
            assert promoted(one, other) is max(one, other, key=lambda entry: entry.rank)
    assert promoted(precision("fp32"), precision("bf16x3")).name == "bf16x3"
    assert promoted(precision("bf16x3"), precision("fp32_neumaier")).name == "fp32_neumaier"
    assert promoted(precision("fp64"), precision("fp32x2")).name == "fp64"


# -- the search ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "baseline"),
    [
        (BEST_FIRST[:8], "fp64"),
        (("fp64_neumaier", "fp32"), "fp64_neumaier"),
        (("fp32x2", "fp32"), "fp32x2"),
        (("fp32_neumaier", "fp32", "bf16x3"), "fp32"),
    ],
)
def test_the_baseline_is_plain_where_a_plain_type_has_as_many_digits(asked: Any, baseline: str) -> None:
    space = SearchSpace([OFFERED.restricted(asked), STORED])
    assert baseline_values(space.parameters) == {"sum": (baseline,), "stored": ("fp64",)}
    signatures = Signatures(space, ["sum", "stored"], Objective(threshold=1e-5))
    found = [p.values[code] for p, code in zip(space.parameters, signatures.widest, strict=True)]
    assert found == [baseline, "fp64"]


# -- long arrays in blocks, by several threads -------------------------------------------------------

COUNTS = (1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.MT19937])
def test_uniform_numbers_are_those_of_the_generator(count, bits):
    mine, theirs = (np.random.Generator(bits(7)) for _ in range(2))
    for rng in (mine, theirs):
        rng.integers(5, size=3, dtype=np.uint32)  # leaves half a number behind
    assert np.array_equal(uniform(mine, -2.0, 3.5, count), theirs.uniform(-2.0, 3.5, count))
    assert np.array_equal(mine.integers(9, size=5, dtype=np.uint32), theirs.integers(9, size=5, dtype=np.uint32))
    assert mine.normal() == theirs.normal()


# -- sums of products with more digits than fp64 has, and the references that are made of them -------

LD = np.longdouble
U = 2.0**-53
#: Sizes that no block divides.
SIZES: dict[str, dict[str, int]] = {
    "gemm": {"M": 301, "N": 67, "K": 640},
    "kmeans": {"n": 5003},
    "convolution2d": {"width": 203, "height": 101},
    "coulombic": {"width": 37, "height": 23, "charges": 2003},
}


def fractions(matrix: NDArray[np.float64]) -> list[list[Fraction]]:
    return [[Fraction(float(x)) for x in row] for row in matrix]


# -- products --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [1, 2, 3, 64, 65, 1000])
def test_a_product_has_twenty_bits_more(terms: int) -> None:
    rng = np.random.default_rng(terms)
    first = rng.standard_normal((3, terms)) * 10.0 ** rng.integers(-3, 4, (3, 1))
    second = rng.standard_normal((terms, 2)) * 10.0 ** rng.integers(-3, 4, (1, 2))
    high, low = product(first, second)
    a, b = fractions(first), fractions(second.T)
    for i in range(3):
        for j in range(2):
            exact = sum((x * y for x, y in zip(a[i], b[j], strict=True)), Fraction(0))
            size = sum((abs(x * y) for x, y in zip(a[i], b[j], strict=True)), Fraction(0))
            assert abs(Fraction(float(high[i, j])) + Fraction(float(low[i, j])) - exact) <= Fraction(U) * size / 2**15
            assert abs(float(low[i, j])) <= 1e-4 * float(size)


# -- references ------------------------------------------------------------------------------------------


def in_long_double(name: str, given: dict[str, Any], size: Sizes) -> NDArray[Any]:
    """Return the output of a kernel, every operation of it in the long double."""
    wide = {key: np.asarray(value).astype(LD) for key, value in given.items()}
    if name == "gemm":
        return np.asarray(wide["alpha"] * (wide["A"] @ wide["B"]) + wide["beta"] * wide["C"])
    if name == "kmeans":
        apart = wide["points"].T[:, None, :] - wide["centres"]
        return np.asarray((apart * apart).sum(axis=-1).min(axis=1))
    if name == "convolution2d":
        total = np.zeros((size.height, size.width), LD)
        for (j, i), weight in np.ndenumerate(wide["filter"]):
            total += weight * wide["input"][j : j + size.height, i : i + size.width]
        return total
    x, y, z = wide["position"].T
    column, row = (np.arange(n) * wide["spacing"] for n in (size.width, size.height))
    squares = (column - x[:, None, None]) ** 2 + (row[:, None] - y[:, None, None]) ** 2 + (z**2)[:, None, None]
    return np.asarray((wide["charge"][:, None, None] / np.sqrt(squares)).sum(axis=0))


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="the long double is fp64 here")
@pytest.mark.parametrize("name", few(sorted(SIZES, key="convolution2d".__eq__), 3))
def test_references_are_rounded_once(name: str) -> None:
    """Were they summed up in fp64, they would err by more than sums that are compensated."""
    kernel = load_kernel(name)
    size = kernel.resolve_sizes("default", SIZES[name])
    given = kernel.inputs(np.random.default_rng(11), size)
    (output,) = kernel.outputs
    found = kernel.reference(given, size)[output.name]
    exact = in_long_double(name, given, size)
    assert found.dtype == np.float64
    # Terms of coulombic are square roots and quotients of fp64, whose errors a sum nearly averages out.
    assert (np.abs(found - exact) <= (1.15 if name == "coulombic" else 1.01) * U * np.abs(exact)).all()
    assert np.mean(found == exact.astype(np.float64)) > 0.95
