"""gemm by threads and by matrix units, with A, B or both stored transposed (the four multiplications of Lin 2025).

Products are compared with the same in longer arithmetic, of numbers as they are stored; nothing but sums and the end
may be rounded. The host simulates matrix units from the vendors' tables of which lane holds what.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from launching import Launcher, all_in, is_valid, launcher
from matrix_units import LIMITS, WAYS, simulated, stored, to_tf32
from numpy.typing import NDArray
from vendor_compilers import needs

from mptune.backends import BACKENDS, get_backend
from mptune.backends.base import CompileOptions
from mptune.backends.cuda import CudaBackend
from mptune.backends.hip import HipBackend
from mptune.backends.opencl import OpenclBackend
from mptune.errors import EmptySpaceError
from mptune.kernel import Argument, Kernel, Sizes
from mptune.kernel.limits import device_constraints
from mptune.precision import PRECISIONS
from mptune.source.loading import load_kernel
from mptune.source.render import render, render_body
from mptune.space.configuration import Configuration
from mptune.space.expressions import Expression
from mptune.space.search_space import SearchSpace
from tests.tiers import few

TILED: dict[str, Any] = {"MWG": 32, "NWG": 64, "KWG": 16, "MDIMC": 4, "NDIMC": 4, "MDIMA": 4, "NDIMB": 8}
TILED |= {"STRM": True, "STRN": False, "VWM": 2, "VWN": 8}
#: Tiles for matrix units.
TILES: dict[str, Any] = {"MWG": 64, "NWG": 64, "KWG": 16, "MDIMC": 4, "NDIMC": 32, "MDIMA": 4, "NDIMB": 4}
TILES |= {"STRM": False, "STRN": False, "warps_along_n": 2, "stages": 2}
SWITCHES = [
    dict(zip(("double_buffer", "fine_prefetch"), on, strict=True)) for on in itertools.product((False, True), repeat=2)
]
#: Neither transposed, A, B, and both.
PLAIN, A, B, BOTH = FORMS = [{"transposed_a": a, "transposed_b": b} for a, b in ((0, 0), (1, 0), (0, 1), (1, 1))]
#: Types of sums, of which bf16x3 is not among the first that a search chooses from.
SUMS = ("fp64", "fp32", "fp16", "bf16", "bf16x3")


def drawn(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """Numbers of both signs, stored as they are asked for."""
    a, b = rng.normal(size=(size.M, size.K)), rng.normal(size=(size.K, size.N))
    return {
        "A": np.ascontiguousarray(a.T if size.transposed_a else a),
        "B": np.ascontiguousarray(b.T if size.transposed_b else b),
        "C": rng.normal(size=(size.M, size.N)),
        "alpha": -1.3,
        "beta": 0.7,
    }


@pytest.fixture(scope="module")
def own() -> Kernel:
    return load_kernel("gemm")


@pytest.fixture(scope="module")
def gemm(own: Kernel) -> Kernel:
    """The kernel with inputs of both signs: its own weights and temperatures are all positive and much alike."""
    return own.changed(inputs=drawn)


def by_units(kernel: Kernel, how: str, factor: str, total: str, **values: Any) -> Configuration:
    types = {"a_type": factor, "b_type": factor, "accumulator_type": total, "c_type": in_memory(total)}
    return kernel.configuration({**TILES, **types, "math": how, **values})


def in_memory(total: str) -> str:
    return "fp32" if total == "bf16x3" else total


def check(run: Launcher, configuration: Configuration) -> None:
    assert is_valid(run.kernel, configuration, run.data.sizes), f"{configuration} at {run.data.sizes}"
    total, end = (str(configuration[name]) for name in ("accumulator_type", "c_type"))
    operands = []
    for name, form in (("A", "transposed_a"), ("B", "transposed_b")):
        held = stored(run.data.inputs[name], str(configuration[f"{name.lower()}_type"]))
        held = to_tf32(held) if configuration["math"] == "tf32" else held
        operands.append((held.T if run.data.sizes[form] else held).astype(np.longdouble))
    a, b = operands
    alpha, beta = (
        stored(np.asarray(run.data.inputs[n]), in_memory(total)).astype(np.longdouble) for n in ("alpha", "beta")
    )
    c = stored(run.data.inputs["C"], end).astype(np.longdouble)
    expected = alpha * (a @ b) + beta * c
    # A sum rounds once for each of its terms at most, and so do the parts it is made of and the last operations. Six
    # products of bfloat16 are 16 of fp32, without what would be less than two units of each.
    roundings = 6 * -(-a.shape[1] // 16) + 3 if total == "bf16x3" else a.shape[1] + 2
    unit = PRECISIONS[in_memory(total)].unit_roundoff
    bound = unit * (abs(alpha) * (np.abs(a) @ np.abs(b)) * roundings + 2 * np.abs(beta * c) + np.abs(expected))
    bound += PRECISIONS[end].unit_roundoff * (np.abs(expected) + bound)
    wrong = ~(np.abs(run.run(configuration)["C"] - expected) <= bound * (1 + 2.0**-8))
    assert not wrong.any(), f"{configuration} at {run.data.sizes}: {np.argwhere(wrong)[:5]} of {wrong.shape}"


# -- the reference and the inputs ----------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(
    "sizes", [{"M": 5, "N": 3, "K": 7}, {"M": 1, "N": 1, "K": 1}, {"M": 2, "N": 9, "K": 40}], ids=str
)
def test_reference_against_exact_arithmetic(own: Kernel, form: dict[str, int], sizes: dict[str, int]) -> None:
    size = own.resolve_sizes("smoke", {**sizes, **form})
    inputs, plain = (own.inputs(np.random.default_rng(1), each) for each in (size, own.resolve_sizes("smoke", sizes)))
    for name, is_transposed in (("A", size.transposed_a), ("B", size.transposed_b)):
        np.testing.assert_array_equal(inputs[name].T if is_transposed else inputs[name], plain[name])
        assert inputs[name].flags.c_contiguous
    exact = {name: np.vectorize(Fraction, otypes=[object])(value) for name, value in plain.items()}
    expected = exact["alpha"] * exact["A"].dot(exact["B"]) + exact["beta"] * exact["C"]
    np.testing.assert_allclose(own.reference(inputs, size)["C"], expected.astype(np.float64), rtol=1e-15)


# -- each thread for itself ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "form", "switches"),
    few(
        [
            ({"M": 1, "N": 131, "K": 2}, B, SWITCHES[0]),
            ({"M": 37, "N": 67, "K": 41}, BOTH, SWITCHES[1]),
            ({"M": 1, "N": 1, "K": 1}, A, SWITCHES[3]),
            ({"M": 65, "N": 127, "K": 33}, PLAIN, SWITCHES[3]),
            ({"M": 137, "N": 1, "K": 31}, A, SWITCHES[1]),
            ({"M": 3, "N": 64, "K": 49}, PLAIN, SWITCHES[2]),
            ({"M": 64, "N": 128, "K": 48}, BOTH, SWITCHES[2]),
        ],
        2,
        5,
    ),
    ids=str,
)
def test_every_size(gemm: Kernel, sizes: dict[str, int], form: dict[str, int], switches: dict[str, int]) -> None:
    """Numbers of rows and columns that are a multiple of nothing or of everything, less than a tile and more."""
    run = launcher(gemm, {**sizes, **form}, seed=31)
    check(run, gemm.configuration({**all_in(gemm, "fp64"), **TILED, **switches}))


@pytest.mark.nightly
@pytest.mark.parametrize("form", [A, BOTH], ids=str)
def test_every_type_and_every_value(gemm: Kernel, form: dict[str, int]) -> None:
    run = launcher(gemm, {"M": 67, "N": 54, "K": 74, **form}, seed=33)
    small = {"math": ("simt",), "MWG": (16, 48, 64), "NWG": (16, 64), "resident": (1,), "raster": (1,), "unroll": (1,)}
    space = gemm.search_space(run.data.sizes).restrict(small)
    chosen = space.configurations(space.covering(np.random.default_rng(34)))
    assert {c["a_type"] for c in chosen} == {c["b_type"] for c in chosen} == {"fp64", "fp32", "fp16", "bf16"}
    for configuration in chosen:
        check(run, configuration)


#: Parts of unequal length, the last of one k; edges in M and N; a K of which not all blocks get a part.
SPLIT_SIZES = (
    {"M": 37, "N": 67, "K": 241},
    {"M": 1, "N": 1, "K": 289},
    {"M": 64, "N": 128, "K": 248},
    {"M": 33, "N": 9, "K": 64},
)


def in_parts(run: Launcher, split_k: int) -> NDArray[np.float64]:
    """Return C as blocks that share a tile compute it from fp16 in fp32: a rounding for each k and for each part."""
    a, b, c = (run.data.inputs[name].astype(np.float16).astype(np.float64) for name in "ABC")
    alpha, beta = (stored(np.asarray(run.data.inputs[name]), "fp32") for name in ("alpha", "beta"))
    steps = -(-a.shape[1] // 32)
    whole = np.zeros(c.shape)
    for part in range(split_k):
        first, end = (32 * (number * steps // split_k) for number in (part, part + 1))
        sums = np.zeros(c.shape)
        for k in range(first, min(end, a.shape[1])):
            # Exact in fp64 before it is rounded: products have 22 bits.
            sums = stored(sums + np.outer(a[:, k], b[k]), "fp32")
        whole = stored(whole + sums, "fp32")
    return stored(stored(alpha * whole + stored(beta * c, "fp32"), "fp32"), "fp16")


@pytest.mark.parametrize(
    ("sizes", "split_k", "values"),
    few(
        [
            (SPLIT_SIZES[0], 2, {**SWITCHES[0], "raster": 4}),
            (SPLIT_SIZES[3], 1, {}),
            (SPLIT_SIZES[1], 4, {**SWITCHES[3], "VWK": 2}),
            (SPLIT_SIZES[2], 8, {**SWITCHES[1], "KWG": 32}),
            (SPLIT_SIZES[3], 8, {**SWITCHES[2], "KWG": 8}),
            (SPLIT_SIZES[0], 8, {**SWITCHES[3], "KWG": 8}),
        ],
        2,
        4,
    ),
    ids=str,
)
def test_parts_are_added_in_order(own: Kernel, sizes: dict[str, int], split_k: int, values: dict[str, Any]) -> None:
    """Bit by bit, whichever block of a tile is the last to end."""
    run = launcher(own, sizes, seed=11)
    types = {**all_in(own, "fp16"), "accumulator_type": "fp32"}
    configuration = own.configuration({**types, **TILED, **values, "split_k": split_k})
    assert is_valid(own, configuration, run.data.sizes)
    np.testing.assert_array_equal(run.run(configuration)["C"], in_parts(run, split_k))


@pytest.mark.full
@pytest.mark.parametrize(
    ("sums", "narrow", "rtol"),
    few([("fp32_neumaier", "fp32", 2 * 2.0**-24), ("fp32x2", "fp64", 16 * 2.0**-46)], full=1),
)
def test_parts_keep_all_digits(own: Kernel, sums: str, narrow: str, rtol: float) -> None:
    """What blocks leave for each other is not rounded to what memory has for compound sums."""
    run = launcher(own, SPLIT_SIZES[0], seed=14)
    types = {**all_in(own, narrow), "accumulator_type": sums}
    whole, parts = (run.run(own.configuration({**types, **TILED, "split_k": split_k}))["C"] for split_k in (1, 8))
    np.testing.assert_allclose(parts, whole, rtol=rtol)


# -- matrix units --------------------------------------------------------------------------------------

#: Rows of whole chunks of 16 bytes and none, of each matrix; less than a tile, and more.
SIZES = ({"M": 67, "N": 72, "K": 40}, {"M": 130, "N": 66, "K": 31}, {"M": 136, "N": 1, "K": 1})
#: Each way of each vendor with sizes and forms, such that every vendor meets all of both.
CASES = [
    (unit, *way, SIZES[(i + j) % 3], FORMS[(i + 3 * j) % 4])
    for j in range(2)
    for unit, ways in WAYS.items()
    for i, way in enumerate(ways)
]


@pytest.mark.parametrize(
    ("unit", "how", "factor", "total", "sizes", "form"),
    few([CASES[7], CASES[12], *CASES[:7], *CASES[8:12], *CASES[13:]], 2, 9),
    ids=str,
)
def test_every_size_by_units(
    gemm: Kernel, unit: str, how: str, factor: str, total: str, sizes: dict[str, int], form: dict[str, int]
) -> None:
    check(simulated(gemm, unit, {**sizes, **form}, 21), by_units(gemm, how, factor, total))


@pytest.mark.nightly
@pytest.mark.parametrize(("unit", "form"), [("mma.sync", BOTH), ("MFMA", PLAIN), ("WMMA", A)], ids=str)
def test_every_value_of_every_parameter_by_units(gemm: Kernel, unit: str, form: dict[str, int]) -> None:
    run = simulated(gemm, unit, {"M": 67, "N": 72, "K": 232, **form}, 22)
    ways = {"math": tuple(dict.fromkeys(way[0] for way in WAYS[unit])), "accumulator_type": SUMS}
    space = gemm.search_space(run.data.sizes, device_constraints(gemm, LIMITS[unit])).restrict(ways)
    chosen = space.configurations(space.covering(np.random.default_rng(23)))
    assert {name: {c[name] for c in chosen} for name in ("MWG", "warps_along_n", "stages", "split_k")} == {
        "MWG": {32, 64, 128, 256},
        "warps_along_n": {1, 2, 4},
        "stages": {1, 2, 3, 4},
        "split_k": {1, 2, 4, 8},
    }
    assert {c["accumulator_type"] for c in chosen} == {way[2] for way in WAYS[unit]}
    for configuration in chosen:
        check(run, configuration)


@dataclasses.dataclass(frozen=True)
class Spoiled(Launcher):
    """Has in the last column of A what is no number, in a row, and in the first row of B an infinity, in a column."""

    row: int = 0
    column: int = 0
    bits: int = 0x7FC00000  #: those of what is no number, as fp32

    def initial(self, argument: Argument, configuration: Configuration) -> NDArray[Any]:
        initial = super().initial(argument, configuration).copy()
        if argument.name in "AB":
            typed = initial.view(self.kernel.dtype_of(argument, configuration))
            at = (self.row, -1) if argument.name == "A" else (0, self.column)
            typed[at] = np.nan if argument.name == "A" else np.inf
            if argument.name == "A" and typed.dtype == np.float32:
                typed.view(np.uint32)[at] = self.bits
        return initial


def spoiled(kernel: Kernel, unit: str, sizes: dict[str, int], row: int, column: int, **bits: int) -> Spoiled:
    plain = simulated(kernel, unit, sizes, 25)
    return Spoiled(kernel, plain.data, plain.options, row=row, column=column, **bits)


@pytest.mark.parametrize(
    ("unit", "way", "sizes"),
    few([("WMMA", 1, SIZES[1]), ("mma.sync", 0, SIZES[0]), ("mma.sync", 4, SIZES[1]), ("MFMA", 2, SIZES[1])]),
    ids=str,
)
def test_what_is_no_number_stays_in_its_row_and_column(own: Kernel, unit: str, way: int, sizes: dict[str, int]) -> None:
    """Neither what lies behind an edge nor what fills a tile up may spread it, and none may be lost."""
    row, column = sizes["M"] - 1, sizes["N"] - 2
    output = spoiled(own, unit, sizes, row, column).run(by_units(own, *WAYS[unit][way]))["C"]
    assert np.isnan(output[row]).all()
    assert (output[:row, column] == np.inf).all()
    output[row], output[:, column] = 0, 0
    assert np.isfinite(output).all()


@pytest.mark.parametrize("bits", few([0x7F800001, 0xFF800FFF, 0x7F801000, 0x7FFFFFFF, 0xFFFFF000], 2), ids=hex)
def test_tf32_is_no_number_whichever_bits_say_so(own: Kernel, bits: int) -> None:
    """Units leave out the lower 13 bits of a float: without these, or rounded up, it would be an infinity or zero."""
    output = spoiled(own, "mma.sync", SIZES[0], 3, 5, bits=bits).run(by_units(own, "tf32", "fp32", "fp32"))["C"]
    assert np.isnan(output[3]).all()
    assert np.isfinite(np.delete(np.delete(output, 3, axis=0), 5, axis=1)).all()


@pytest.mark.full
@pytest.mark.parametrize("unit", few(WAYS))
def test_three_parts_of_infinities_of_the_largest_floats_and_of_others(own: Kernel, unit: str) -> None:
    way = ("mma", "fp32", "bf16x3")
    # The second part of an infinity is no number.
    output = spoiled(own, unit, SIZES[0], 3, 5).run(by_units(own, *way))["C"]
    assert np.isnan(output[3]).all()
    assert np.isnan(output[:, 5]).all()
    assert np.isfinite(np.delete(np.delete(output, 3, axis=0), 5, axis=1)).all()

    def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
        found = own.inputs(rng, size)
        found["A"][3, :2] = 3.4e38, -(2.0**128 - 2.0**104)
        return {**found, "B": found["B"] * 1e-10}

    # The bfloat16 that is nearest to the largest floats is infinite.
    large = own.changed(inputs=inputs)
    check(simulated(large, unit, SIZES[0], 31), by_units(large, *way))
    # The error is not that of bfloat16, nor of TF32.
    run = simulated(own, unit, {"M": 48, "N": 56, "K": 64}, 26)
    assert np.abs(run.run(by_units(own, *way))["C"] / run.data.references["C"] - 1).max() < 2.0**-21


@pytest.mark.parametrize(
    ("limits", "expected"),
    few(
        [
            (HipBackend.facts("gfx90a"), WAYS["MFMA"]),
            (CudaBackend.facts("sm_75"), ()),
            (CudaBackend.facts("sm_80"), WAYS["mma.sync"]),
            (CudaBackend.facts("sm_90a"), WAYS["mma.sync"]),
            (HipBackend.facts("gfx942"), WAYS["MFMA"]),
            (HipBackend.facts("gfx1100"), WAYS["WMMA"]),
            (HipBackend.facts("gfx908"), ()),
            (HipBackend.facts("gfx1030"), ()),
            (OpenclBackend.facts(""), ()),
            (BACKENDS["host"]().device.facts(), ()),
        ],
        2,
    ),
)
def test_a_device_offers_what_it_has_units_for(gemm: Kernel, limits: Mapping[str, Any], expected: Any) -> None:
    # Few other values, so that all can be listed.
    simt = {"MDIMC": 16, "NDIMC": 16, "MDIMA": 16, "NDIMB": 16, "warps_along_n": 1, "stages": 1}
    plain = {"VWM": 1, "VWN": 1, "VWK": 1, "unroll": 1, "resident": 1, "raster": 1, "large": False, "split_k": 1}
    fixed = {name: {TILES.get(name, value), value} for name, value in {**TILES, **simt, **plain, **SWITCHES[0]}.items()}
    offered = {"accumulator_type": SUMS, **{name: tuple(values) for name, values in fixed.items()}}
    parameters = [p.restricted(offered[p.name]) if p.name in offered else p for p in gemm.parameters]
    constraints = (*gemm.constraints, *device_constraints(gemm, limits))
    space = SearchSpace(parameters, constraints, dict(gemm.resolve_sizes()))
    found = {(c["math"], c["a_type"], c["accumulator_type"]) for c in space.configurations(np.arange(space.size))}
    assert {way for way in found if way[0] != "simt"} == set(expected)
    assert ("simt", "fp32", "fp32") in found
    if not expected:
        with pytest.raises(EmptySpaceError):
            space.restrict({"math": ("mma", "tf32")})


# -- compilers of GPUs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "architecture", "unit", "forms"),
    [
        pytest.param("cuda", "sm_80", "mma.sync", [BOTH], marks=[*needs("cuda"), pytest.mark.full]),
        pytest.param("cuda", "sm_90", "mma.sync", [A, B, BOTH], marks=[*needs("cuda"), pytest.mark.nightly]),
        pytest.param("hip", "gfx90a", "MFMA", [A, B, BOTH], marks=[*needs("hip"), pytest.mark.nightly]),
    ],
)
def test_gpu_compilers_take_transposed_matrices(
    gemm: Kernel, backend: str, architecture: str, unit: str, forms: list[dict[str, int]]
) -> None:
    mixed = {"a_type": "fp16", "b_type": "bf16", "accumulator_type": "fp32", "c_type": "fp16"}
    for form in forms:
        size = gemm.resolve_sizes("smoke", form)
        vectors = {"VWK": 4, "MDIMA": 8, "NDIMB": 8, "KWG": 32} if form["transposed_b"] else {"VWM": 8, "MWG": 64}
        chosen = [
            gemm.configuration({**mixed, **TILED, **vectors, "split_k": 2}),
            *(by_units(gemm, *way) for way in WAYS[unit][:: 1 if form == BOTH else 5]),
        ]
        for configuration in chosen:
            assert is_valid(gemm, configuration, size)
            source = render(gemm, configuration, size)
            options = CompileOptions(architecture=architecture)
            assert get_backend(backend).compiler.compile(source, gemm.function, options)


# -- the search space -----------------------------------------------------------------------------------


def offered(gemm: Kernel, name: str, values: tuple[Any, ...], given: Mapping[str, Any], **sizes: int) -> set[Any]:
    """Return the values of one parameter that are valid with these of the others."""
    size, fixed = gemm.resolve_sizes("smoke", sizes), {**all_in(gemm, "fp32"), **TILED, **given}
    return {value for value in values if is_valid(gemm, gemm.configuration({**fixed, name: value}), size)}


def test_tiles_are_shared_where_there_are_few(gemm: Kernel) -> None:
    splits = (1, 2, 4, 8)
    for (m, n, k), expected in {
        (8, 8, 1): {1, 2, 4, 8},
        (1024, 1024, 512): {1, 2, 4, 8},
        (1025, 1024, 512): {1, 2, 4},
        (2048, 2048, 512): {1, 2},
        (4096, 4096, 512): {1},
    }.items():
        assert offered(gemm, "split_k", splits, {}, M=m, N=n, K=k) == expected


def test_vectors_along_k_and_thirds_of_a_tile(gemm: Kernel) -> None:
    """Of a transposed A there are no neighbouring k, and tiles of thirds have three times as many rows as others."""
    for form in FORMS:
        assert offered(gemm, "VWK", (1, 2, 4), {"KWG": 32}, **form) == ({1} if form == A else {1, 2, 4})
    for rows, expected in ((48, {3}), (64, {2})):
        given = {"MWG": rows, "VWM": 4, "STRM": False, "fine_prefetch": True}
        assert offered(gemm, "parts_of_a", (2, 3), given) == expected
        assert not offered(gemm, "parts_of_a", (3,), {**given, "fine_prefetch": False})


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_shared_memory_is_what_the_constraint_says(gemm: Kernel, form: dict[str, int]) -> None:
    """Rows of a tile that is transposed on its way are a vector apart."""
    configuration, size = gemm.configuration({**all_in(gemm, "fp32"), **TILED}), gemm.resolve_sizes("smoke", form)
    (limit,) = (text for text in map(str, gemm.constraints) if text.endswith("<= 48 * 1024"))
    declared = re.findall(r"_factor [ab]\[(\d+)\]\[(\d+)\]", render_body(gemm, configuration, size))
    elements = sum(int(rows) * int(columns) for rows, columns in declared)
    assert elements == 16 * (32 + 2 + 64 + 8 * size.transposed_b)
    stated = Expression(limit.removeprefix("math != 'simt' or ").removesuffix("<= 48 * 1024"))
    assert stated.evaluate({**size, **configuration}) == 4 * elements


def test_one_launch_leaves_nothing_to_the_next(own: Kernel) -> None:
    run = launcher(own, SPLIT_SIZES[0], seed=13)
    configuration = own.configuration({**all_in(own, "fp32"), **TILED, "split_k": 4})
    shape, found = own.launch_shape(configuration, run.data.sizes), []
    with run.function(configuration) as function:
        for _ in range(3):
            arguments = [run.argument(argument, configuration) for argument in own.arguments]
            function.launch(shape, arguments)
            found.append(run.read(own.arguments[0], configuration, arguments[0]))
    np.testing.assert_allclose(found[0], run.data.references["C"], rtol=241 * 2.0**-24)
    assert all(np.array_equal(found[0], each) for each in found[1:])
