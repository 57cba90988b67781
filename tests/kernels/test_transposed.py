"""gemm with A, B or both stored transposed: the four types of multiplication of Lin 2025."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from launching import Launcher, launcher
from numpy.typing import NDArray
from simulated import SIMULATED, install
from test_gemm import SWITCHES, TILED, all_in
from test_matrix_units import CASES, SIMULATIONS, by_units, counted, every_way, in_memory, simulated, tiles_of
from vendor_compilers import needs

from mptune.backends import BACKENDS, get_backend
from mptune.backends.base import CompileOptions
from mptune.backends.cuda import CudaBackend
from mptune.backends.hip import HipBackend
from mptune.errors import KernelError
from mptune.expressions import Expression
from mptune.kernel import Kernel, Sizes
from mptune.kernel.limits import device_constraints
from mptune.precision import PRECISIONS
from mptune.registry import load_kernel
from mptune.rendering import render, render_body
from mptune.space.configuration import Configuration
from mptune.space.covering import covering

FORMS = [{"transposed_a": a, "transposed_b": b} for a, b in ((1, 0), (0, 1), (1, 1))]
#: No multiple of anything; whole vectors of some matrices and not of others; less than a tile, and more.
SIZES = (
    {"M": 1, "N": 1, "K": 1},
    {"M": 37, "N": 67, "K": 41},
    {"M": 36, "N": 72, "K": 20},
    {"M": 134, "N": 63, "K": 36},
    {"M": 65, "N": 132, "K": 35},
    {"M": 64, "N": 128, "K": 48},
)


def drawn(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """Numbers of both signs, as NumPy has the product of them; stored as they are asked for."""
    a, b = rng.normal(size=(size.M, size.K)), rng.normal(size=(size.K, size.N))
    return {
        "A": np.ascontiguousarray(a.T if size.transposed_a else a),
        "B": np.ascontiguousarray(b.T if size.transposed_b else b),
        "C": rng.normal(size=(size.M, size.N)),
        "alpha": -1.25,
        "beta": 0.75,
    }


@pytest.fixture(scope="module")
def gemm() -> Kernel:
    """The kernel with inputs of both signs: weights and temperatures are all positive and much alike."""
    return load_kernel("gemm").changed(inputs=drawn)


def operands(run: Launcher, configuration: Configuration) -> tuple[NDArray[np.longdouble], NDArray[np.longdouble]]:
    """Return op(A), M x K, and op(B), K x N, as they are multiplied."""
    found = []
    for name, form in (("A", "transposed_a"), ("B", "transposed_b")):
        stored = run.data.inputs[name].astype(PRECISIONS[str(configuration[f"{name.lower()}_type"])].dtype)
        if configuration["math"] == "tf32":
            mantissa, exponent = np.frexp(stored.astype(np.float64))
            stored = np.ldexp(np.trunc(mantissa * 2.0**11 + np.copysign(0.5, mantissa)), exponent - 11)
        found.append((stored.T if run.data.sizes[form] else stored).astype(np.longdouble))
    a, b = found
    assert (*a.shape, b.shape[1]) == (run.data.sizes.M, run.data.sizes.K, run.data.sizes.N)
    return a, b


def check(run: Launcher, configuration: Configuration) -> None:
    """Compare with the product in longer arithmetic: no more than sums and the end are rounded."""
    a, b = operands(run, configuration)
    total, end = (PRECISIONS[in_memory(str(configuration[name]))] for name in ("accumulator_type", "c_type"))
    alpha, beta = np.longdouble(run.data.inputs["alpha"]), np.longdouble(run.data.inputs["beta"])
    c = run.data.inputs["C"].astype(end.dtype).astype(np.longdouble)
    expected = alpha * (a @ b) + beta * c
    bound = total.unit_roundoff * (
        abs(alpha) * (np.abs(a) @ np.abs(b)) * (a.shape[1] + 2) + 2 * np.abs(beta * c) + np.abs(expected)
    )
    bound += end.unit_roundoff * (np.abs(expected) + bound)
    wrong = ~(np.abs(run.run(configuration)["C"] - expected) <= bound * (1 + 2.0**-8))
    assert not wrong.any(), f"{configuration} at {run.data.sizes}: {np.argwhere(wrong)[:5]}"


# -- each thread for itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("sizes", [{"M": 5, "N": 3, "K": 7}, {"M": 1, "N": 4, "K": 2}], ids=str)
def test_reference_against_exact_arithmetic(form: dict[str, int], sizes: dict[str, int]) -> None:
    own = load_kernel("gemm")
    size = own.resolve_sizes("smoke", {**sizes, **form})
    inputs = own.inputs(np.random.default_rng(1), size)
    assert inputs["A"].shape == ((size.K, size.M) if size.transposed_a else (size.M, size.K))
    assert inputs["B"].shape == ((size.N, size.K) if size.transposed_b else (size.K, size.N))
    exact = {name: np.vectorize(Fraction, otypes=[object])(value) for name, value in inputs.items()}
    for row, column in itertools.product(range(size.M), range(size.N)):
        total = sum(
            (exact["A"][k, row] if size.transposed_a else exact["A"][row, k])
            * (exact["B"][column, k] if size.transposed_b else exact["B"][k, column])
            for k in range(size.K)
        )
        expected = float(exact["alpha"][()] * total + exact["beta"][()] * exact["C"][row, column])
        assert own.reference(inputs, size)["C"][row, column] == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_transposed_matrices_hold_the_same_numbers(form: dict[str, int]) -> None:
    own = load_kernel("gemm")
    plain, other = (own.inputs(np.random.default_rng(2), own.resolve_sizes("smoke", each)) for each in ({}, form))
    for name, size in (("A", "transposed_a"), ("B", "transposed_b")):
        np.testing.assert_array_equal(other[name].T if form[size] else other[name], plain[name])
        assert other[name].flags.c_contiguous
    np.testing.assert_array_equal(other["C"], plain["C"])


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_size(gemm: Kernel, form: dict[str, int], sizes: dict[str, int]) -> None:
    run = launcher(gemm, {**sizes, **form}, seed=31)
    configuration = gemm.configuration({**all_in("fp64"), **TILED, **SWITCHES[sizes["M"] % 4]})
    assert configuration in gemm.search_space(run.data.sizes)
    check(run, configuration)


#: Vectors that reach past the end, of all lengths and in both directions, and threads beside each other.
VALUES: tuple[Mapping[str, Any], ...] = (
    {"VWM": 8, "VWN": 1, "MWG": 64, "MDIMA": 8},
    {"VWM": 1, "VWN": 2, "MDIMA": 16, "NDIMB": 16, "KWG": 8, "split_k": 2},
    {"VWM": 4, "VWN": 4, "STRM": False, "STRN": True, "KWG": 32, "split_k": 4},
    {"MWG": 48, "VWM": 4, "STRM": False, "parts_of_a": 3, "fine_prefetch": True},
    {"VWK": 2, "unroll": 2, "resident": 2, "raster": 4, "NDIMB": 8},
    {"VWK": 4, "VWM": 4, "MDIMA": 8, "NDIMB": 8, "KWG": 32, "raster": 16},
)


@pytest.mark.parametrize(("sizes", "values"), list(zip(SIZES[1:4] * 2, VALUES, strict=True)), ids=str)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_no_number_depends_on_how_matrices_are_stored(
    gemm: Kernel, form: dict[str, int], sizes: dict[str, int], values: dict[str, Any]
) -> None:
    """The same products are added in the same order: bit by bit."""
    if form == FORMS[0] and "VWK" in values:
        pytest.skip("of a transposed A there are no neighbouring k")
    plain, other = (launcher(gemm, {**sizes, **each}, seed=32) for each in ({}, form))
    configuration = gemm.configuration({**all_in("fp32"), **TILED, **SWITCHES[3 * form["transposed_b"]], **values})
    assert configuration in gemm.search_space(other.data.sizes)
    np.testing.assert_array_equal(other.run(configuration)["C"], plain.run(configuration)["C"])


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_type_and_every_value(gemm: Kernel, form: dict[str, int]) -> None:
    run = launcher(gemm, {"M": 67, "N": 54, "K": 74, **form}, seed=33)
    few = {"math": ("simt",), "MWG": (16, 48, 64), "NWG": (16, 64), "resident": (1,), "raster": (1,), "unroll": (1,)}
    space = gemm.search_space(run.data.sizes).restrict(few)
    chosen = space.configurations(covering(space, np.random.default_rng(34)))
    assert {c["a_type"] for c in chosen} == {c["b_type"] for c in chosen} == {"fp64", "fp32", "fp16", "bf16"}
    assert {c["VWK"] for c in chosen} == ({1} if form == FORMS[0] else {1, 2, 4})
    for configuration in chosen:
        check(run, configuration)


@pytest.mark.full
@pytest.mark.parametrize("sums", ["fp32x2", "fp32_neumaier", "fp64_neumaier", "bf16x3"])
def test_compound_sums(gemm: Kernel, sums: str) -> None:
    plain, other = (launcher(gemm, {**SIZES[3], **each}, seed=35) for each in ({}, FORMS[2]))
    types = {**all_in("fp32"), "accumulator_type": sums}
    configuration = gemm.configuration({**types, **TILED, **SWITCHES[3]})
    np.testing.assert_array_equal(other.run(configuration)["C"], plain.run(configuration)["C"])


@pytest.mark.parametrize("backend", SIMULATED)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_on_simulated_devices(
    gemm: Kernel, monkeypatch: pytest.MonkeyPatch, backend: str, form: dict[str, int]
) -> None:
    install(monkeypatch, backend)
    run = dataclasses.replace(launcher(gemm, {**SIZES[1], **form}, seed=36), backend=get_backend(backend))
    check(run, gemm.configuration({**all_in("fp64"), **TILED, "split_k": 2}))


@pytest.mark.skipif(not BACKENDS["opencl"].availability().can_run, reason="no OpenCL driver")
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(("sizes", "values"), [(SIZES[3], VALUES[0]), (SIZES[1], VALUES[2])], ids=str)
def test_by_opencl(gemm: Kernel, sizes: dict[str, int], values: dict[str, int], form: dict[str, int]) -> None:
    run = dataclasses.replace(launcher(gemm, {**sizes, **form}, seed=37), backend=get_backend("opencl"))
    check(run, gemm.configuration({**all_in("fp32"), **TILED, **values, **SWITCHES[3]}))


# -- matrix units --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS[:2], ids=str)
@pytest.mark.parametrize(("unit", "how", "factor", "total"), CASES)
def test_by_matrix_units(gemm: Kernel, unit: str, how: str, factor: str, total: str, form: dict[str, int]) -> None:
    # Rows of whole chunks of 16 bytes and none, of each matrix.
    for sizes in ({"M": 67, "N": 72, "K": 40}, {"M": 136, "N": 66, "K": 31}):
        run = simulated(gemm, unit, {**sizes, **form}, 38)
        configuration = by_units(gemm, how, factor, total)
        assert configuration in every_way(gemm, run.data.sizes)
        check(run, configuration)


@pytest.mark.full
@pytest.mark.parametrize(
    ("unit", "limits"),
    [("mma.sync", CudaBackend.matrix_limits("sm_80")), ("MFMA", HipBackend.matrix_limits("gfx90a"))],
    ids=["mma.sync", "MFMA"],
)
def test_every_value_by_matrix_units(gemm: Kernel, unit: str, limits: tuple[str, ...]) -> None:
    run = simulated(gemm, unit, {"M": 67, "N": 72, "K": 104, **FORMS[2]}, 39)
    ways = {"math": tuple(dict.fromkeys(way[0] for way in SIMULATIONS[unit][1]))}
    space = every_way(gemm, run.data.sizes, device_constraints(gemm, limits)).restrict(ways)
    for configuration in space.configurations(covering(space, np.random.default_rng(40))):
        check(run, configuration)


@pytest.mark.parametrize("form", FORMS[2:], ids=str)
@pytest.mark.parametrize(("tile_m", "tile_n", "tile_k"), [(64, 32, 8), (128, 256, 32)])
@pytest.mark.parametrize(("how", "factor", "total"), SIMULATIONS["mma.sync"][1])
def test_no_bank_of_shared_memory_is_asked_twice(
    gemm: Kernel, how: str, factor: str, total: str, tile_m: int, tile_n: int, tile_k: int, form: dict[str, int]
) -> None:
    run = simulated(gemm, "mma.sync", {"M": 24, "N": 24, "K": 40, **form}, 41, "-DMPTUNE_COUNT_CONFLICTS")
    tiles = tiles_of(factor, total, tile_m, tile_n, tile_k)
    accesses, conflicts = counted(run, by_units(gemm, how, factor, total, **tiles))
    assert accesses > 100
    assert conflicts == 0


# -- compilers of GPUs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(
    ("backend", "architecture", "unit"),
    [
        pytest.param("cuda", "sm_80", "mma.sync", marks=needs("cuda")),
        pytest.param("cuda", "sm_90", "mma.sync", marks=needs("cuda")),
        pytest.param("hip", "gfx90a", "MFMA", marks=needs("hip")),
    ],
)
def test_gpu_compilers_take_it(gemm: Kernel, backend: str, architecture: str, unit: str, form: dict[str, int]) -> None:
    size = gemm.resolve_sizes("smoke", form)
    mixed = {"a_type": "fp16", "b_type": "bf16", "accumulator_type": "fp32", "c_type": "fp16"}
    vectors = {"VWK": 4, "MDIMA": 8, "NDIMB": 8, "KWG": 32} if form["transposed_b"] else {"VWM": 8, "MWG": 64}
    chosen = [
        gemm.configuration({**all_in("fp32"), **TILED, **SWITCHES[3]}),
        gemm.configuration({**mixed, **TILED, **vectors, "split_k": 2}),
        # Where both are transposed, all that there is to compile is there.
        *(by_units(gemm, *way) for way in SIMULATIONS[unit][1][: None if form == FORMS[-1] else 1]),
    ]
    for configuration in chosen:
        assert configuration in every_way(gemm, size)
        source = render(gemm, configuration, size)
        options = CompileOptions(architecture=architecture)
        assert get_backend(backend).compiler.compile(source, gemm.function, options)


# -- sources and spaces --------------------------------------------------------------------------------


def test_nothing_is_different_where_neither_is_transposed(gemm: Kernel) -> None:
    """Nor is anything of the other forms left in the source."""
    for values in (TILED, {**TILED, "VWK": 4, "MDIMA": 16}):
        source = render_body(gemm, gemm.configuration({**all_in("fp32"), **values}), gemm.resolve_sizes())
        assert "transposed_" not in source
        assert "stored as" not in source.splitlines()[0]
    source = render(gemm, by_units(gemm, "mma", "fp16", "fp32"), gemm.resolve_sizes())
    assert "transposed_tile" not in source


def test_neighbouring_threads_fetch_neighbouring_elements(gemm: Kernel) -> None:
    """Along the rows of what is stored: a transposed A goes into its tile by whole vectors, without a transposition."""
    configuration = gemm.configuration({**all_in("fp32"), **TILED})
    by_form = {
        tuple(form.values()): render_body(gemm, configuration, gemm.resolve_sizes("smoke", form))
        for form in [{"transposed_a": 0, "transposed_b": 0}, *FORMS]
    }
    for (is_a, is_b), source in by_form.items():
        (m,) = set(re.findall(r"const int m = (\(i \* \d+ \+ thread [^)]+\) \* \d+);", source))
        (n,) = set(re.findall(r"const int n = (\(i \* \d+ \+ thread [^)]+\) \* \d+);", source))
        assert m == ("(i * 4 + thread % 4) * 2" if is_a else "(i * 4 + thread / threads_along_k_of_a) * 2")
        assert n == ("(i * 8 + thread / threads_along_k_of_b) * 8" if is_b else "(i * 8 + thread % 8) * 8")
        assert ("part.a[j][i] = load<2>(from + min(m, last_m))" in source) == bool(is_a)


@pytest.mark.full
def test_which_vectors_there_are(gemm: Kernel) -> None:
    def lengths(**form: int) -> set[int]:
        fixed = {**all_in("fp32"), **TILED, "KWG": 32}
        space = gemm.search_space(gemm.resolve_sizes("smoke", form))
        return {each for each in (1, 2, 4) if gemm.configuration({**fixed, "VWK": each}) in space}

    assert lengths() == lengths(transposed_b=1) == lengths(transposed_a=1, transposed_b=1) == {1, 2, 4}
    assert lengths(transposed_a=1) == {1}


@pytest.mark.parametrize("form", [{}, *FORMS], ids=str)
def test_shared_memory_is_what_the_constraint_says(gemm: Kernel, form: dict[str, int]) -> None:
    """Rows of a tile that is transposed on its way are a vector apart."""
    configuration, size = gemm.configuration({**all_in("fp32"), **TILED}), gemm.resolve_sizes("smoke", form)
    (limit,) = (text for text in map(str, gemm.constraints) if text.endswith("<= 48 * 1024"))
    values = {"accumulator_type": "fp32", **size, **configuration}
    declared = re.findall(r"_factor [ab]\[(\d+)\]\[(\d+)\]", render_body(gemm, configuration, size))
    elements = sum(int(rows) * int(columns) for rows, columns in declared)
    assert elements == 16 * (32 + 2 + 64 + 8 * size.transposed_b)
    stated = Expression(limit.removeprefix("math != 'simt' or ").removesuffix("<= 48 * 1024"))
    assert stated.evaluate(values) == 4 * elements


@pytest.mark.parametrize("value", [-1, 2, 7])
def test_other_values_are_refused(gemm: Kernel, value: int) -> None:
    with pytest.raises(KernelError, match=rf"size transposed_b={value} of kernel gemm.*expected 0 or 1$"):
        gemm.resolve_sizes("smoke", {"transposed_b": value})


def test_presets_are_of_neither(gemm: Kernel) -> None:
    for preset in gemm.sizes:
        assert gemm.form_of(gemm.resolve_sizes(preset)) == {"transposed_a": 0, "transposed_b": 0}


def test_work_and_footprint_are_the_same(gemm: Kernel) -> None:
    """Each matrix has as many elements, whichever way."""
    sizes = [gemm.resolve_sizes("smoke", form) for form in ({}, *FORMS)]
    configuration = gemm.configuration({**all_in("fp16"), **TILED, "accumulator_type": "fp64", "b_type": "fp32"})
    first, *others = (gemm.work(configuration, size) for size in sizes)
    assert all(other == first for other in others)
    for size in sizes:
        shapes = {a.name: gemm.shape_of(a, size) for a in gemm.arguments}
        assert shapes["A"] == ((67, 131) if size.transposed_a else (131, 67))
        assert shapes["B"] == ((101, 67) if size.transposed_b else (67, 101))
