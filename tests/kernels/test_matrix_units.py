"""gemm by matrix units, which the host simulates from the vendors' tables of which lane holds what.

Every expectation is computed in exact arithmetic or in fp64 from the matrices as they are stored.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import Launcher, launcher
from numpy.typing import NDArray

from mptune.backends import BACKENDS
from mptune.backends.base import Binary, CompileOptions
from mptune.backends.cuda import CudaBackend
from mptune.backends.hip import HipBackend
from mptune.backends.opencl import OpenclBackend
from mptune.errors import EmptySpaceError, KernelError, UnknownNameError
from mptune.kernel import Argument, Kernel, Sizes
from mptune.kernel.limits import device_constraints
from mptune.precision import PRECISIONS
from mptune.registry import load_kernel
from mptune.rendering import render
from mptune.space.configuration import Configuration
from mptune.space.constraints import Constraint
from mptune.space.covering import covering
from mptune.space.search_space import SearchSpace

#: By vendor, what the simulation is told, and the ways to multiply with their types of factors and sums.
SIMULATIONS: dict[str, tuple[tuple[str, ...], tuple[tuple[str, str, str], ...]]] = {
    "mma.sync": (
        (),
        (
            ("mma", "fp16", "fp32"),
            ("mma", "fp16", "fp16"),
            ("mma", "bf16", "fp32"),
            ("tf32", "fp32", "fp32"),
            ("mma", "fp64", "fp64"),
            ("mma", "fp32", "bf16x3"),
        ),
    ),
    "MFMA": (
        ("-D__gfx90a__",),
        (
            ("mma", "fp16", "fp32"),
            ("mma", "bf16", "fp32"),
            ("mma", "fp32", "fp32"),
            ("mma", "fp64", "fp64"),
            ("mma", "fp32", "bf16x3"),
        ),
    ),
    "WMMA": (("-D__gfx1100__",), (("mma", "fp16", "fp32"), ("mma", "bf16", "fp32"), ("mma", "fp32", "bf16x3"))),
}
CASES = [pytest.param(unit, *way, id="-".join((unit, *way))) for unit, (_, ways) in SIMULATIONS.items() for way in ways]
TILES: dict[str, Any] = {
    "MWG": 64,
    "NWG": 64,
    "KWG": 16,
    "MDIMC": 4,
    "NDIMC": 32,
    "MDIMA": 4,
    "NDIMB": 4,
    "STRM": False,
    "STRN": False,
    "warps_along_n": 2,
    "stages": 2,
}
#: Types of sums, of which bf16x3 is not among the first that a search chooses from.
SUMS = ("fp64", "fp32", "fp16", "bf16", "bf16x3")
#: Rows of whole chunks of 16 bytes and none; less than a tile, and more.
SIZES = ({"M": 1, "N": 1, "K": 1}, {"M": 67, "N": 72, "K": 40}, {"M": 130, "N": 66, "K": 31})


@pytest.fixture(scope="module")
def gemm() -> Kernel:
    return load_kernel("gemm")


def by_units(kernel: Kernel, how: str, factor: str, total: str, **values: Any) -> Configuration:
    types = {"a_type": factor, "b_type": factor, "accumulator_type": total, "c_type": in_memory(total)}
    return kernel.configuration({**TILES, **types, "math": how, **values})


def every_way(kernel: Kernel, sizes: Sizes, constraints: Sequence[Constraint] = ()) -> SearchSpace:
    """The search space with the sums that are chosen on request."""
    return kernel.search_space(sizes, constraints).restrict({"accumulator_type": SUMS})


def tiles_of(factor: str, total: str, m: int, n: int, k: int) -> dict[str, Any]:
    """Tiles so large, and as deep as an instruction at least."""
    depth = 16 if factor in ("fp16", "bf16") or total == "bf16x3" else 8
    return {"MWG": m, "NWG": n, "KWG": max(k, depth), "MDIMC": 8, "large": n > 128}


def in_memory(total: str) -> str:
    return "fp32" if total == "bf16x3" else total


def simulated(kernel: Kernel, unit: str, sizes: Mapping[str, int], seed: int, *flags: str) -> Launcher:
    # Nobody waits for what takes long to compile here.
    options = CompileOptions(flags=("-O1", *SIMULATIONS[unit][0], *flags))
    return dataclasses.replace(launcher(kernel, sizes, seed=seed), options=options)


def to_tf32(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round to 11 binary digits, ties away from zero."""
    mantissa, exponent = np.frexp(values.astype(np.float32).astype(np.float64))
    return np.ldexp(np.trunc(mantissa * 2.0**11 + np.copysign(0.5, mantissa)), exponent - 11)


def stored(values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    return values.astype(PRECISIONS[name].dtype).astype(np.float64)


def check(run: Launcher, configuration: Configuration, inputs: Mapping[str, Any] | None = None) -> None:
    """Compare with the product of what is multiplied, in longer arithmetic: nothing but sums and the end is rounded."""
    how, factor, total, end = (str(configuration[n]) for n in ("math", "a_type", "accumulator_type", "c_type"))
    given = run.data.inputs if inputs is None else inputs
    a, b = ((to_tf32 if how == "tf32" else lambda x: stored(x, factor))(given[name]) for name in "AB")
    alpha, beta = (stored(np.asarray(given[name]), in_memory(total)) for name in ("alpha", "beta"))
    c = stored(given["C"], end)
    longer = [each.astype(np.longdouble) for each in (a, b, c, alpha, beta)]
    product, size = longer[0] @ longer[1], np.abs(longer[0]) @ np.abs(longer[1])
    expected = longer[3] * product + longer[4] * longer[2]
    # Each of at most k instructions (of which most add several products) rounds once, as does what adds a part, which
    # has an instruction of its own; and so do the last operations. Six of bfloat16 are 16 products of fp32, without
    # what would be less than two units of each.
    roundings = 6 * -(-a.shape[1] // 16) + 3 if total == "bf16x3" else a.shape[1] + 1
    unit = PRECISIONS[in_memory(total)].unit_roundoff
    bound = unit * (abs(longer[3]) * size * roundings + 2 * abs(longer[4] * longer[2]) + abs(expected))
    bound += PRECISIONS[end].unit_roundoff * (abs(expected) + bound)
    output = run.run(configuration)["C"]
    wrong = ~(np.abs(output - expected) <= bound * (1 + 2.0**-10))
    assert not wrong.any(), f"{configuration}: {np.argwhere(wrong)[:5]} of {output.shape}"


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(("unit", "how", "factor", "total"), CASES)
def test_every_size(gemm: Kernel, unit: str, how: str, factor: str, total: str, sizes: dict[str, int]) -> None:
    run = simulated(gemm, unit, sizes, 21)
    configuration = by_units(gemm, how, factor, total)
    assert configuration in every_way(gemm, run.data.sizes)
    check(run, configuration)


@pytest.mark.full
@pytest.mark.parametrize("unit", SIMULATIONS)
def test_every_value_of_every_parameter(gemm: Kernel, unit: str) -> None:
    limits = {
        "mma.sync": CudaBackend.matrix_limits("sm_80"),
        "MFMA": HipBackend.matrix_limits("gfx90a"),
        "WMMA": HipBackend.matrix_limits("gfx1100"),
    }
    run = simulated(gemm, unit, {"M": 67, "N": 72, "K": 232}, 22)
    ways = {"math": tuple(dict.fromkeys(way[0] for way in SIMULATIONS[unit][1]))}
    space = every_way(gemm, run.data.sizes, device_constraints(gemm, limits[unit])).restrict(ways)
    chosen = space.configurations(covering(space, np.random.default_rng(23)))
    assert {
        name: {c[name] for c in chosen} for name in ("MWG", "warps_along_n", "stages", "raster", "split_k", "c_type")
    } == {
        "MWG": {32, 64, 128, 256},
        "warps_along_n": {1, 2, 4},
        "stages": {1, 2, 3, 4},
        "raster": {1, 4, 16},
        "split_k": {1, 2, 4, 8},
        "c_type": {"fp64", "fp32", "fp16", "bf16"} - ({"fp64"} if unit == "WMMA" else set()),
    }
    assert {c["accumulator_type"] for c in chosen} == {way[2] for way in SIMULATIONS[unit][1]}
    for configuration in chosen:
        check(run, configuration)


@dataclasses.dataclass(frozen=True)
class Spoiled(Launcher):
    """Has in the last row of A what is no number, and in one column of B an infinity."""

    row: int = 0
    column: int = 0
    bits: int = 0x7FC00000  #: those of what is no number, as fp32

    def _initial(self, argument: Argument, configuration: Configuration) -> NDArray[Any]:
        initial = super()._initial(argument, configuration).copy()
        if argument.name in "AB":
            typed = initial.view(self.data.dtype_of(argument, self.kernel.precision_of(argument, configuration)))
            at = (self.row, -1) if argument.name == "A" else (0, self.column)
            typed[at] = np.nan if argument.name == "A" else np.inf
            if argument.name == "A" and typed.dtype == np.float32:
                typed.view(np.uint32)[at] = self.bits
        return initial


@pytest.mark.parametrize("sizes", SIZES[1:], ids=str)
@pytest.mark.parametrize(("unit", "how", "factor", "total"), CASES[::3])
def test_what_is_no_number_stays_in_its_row_and_column(
    gemm: Kernel, unit: str, how: str, factor: str, total: str, sizes: dict[str, int]
) -> None:
    """Neither what lies behind an edge nor what fills a tile up may spread it, and none may be lost."""
    plain = simulated(gemm, unit, sizes, 25)
    row, column = sizes["M"] - 1, sizes["N"] - 2
    run = Spoiled(gemm, plain.data, plain.options, row=row, column=column)
    output = run.run(by_units(gemm, how, factor, total))["C"]
    assert np.isnan(output[row]).all()
    assert (output[:row, column] == np.inf).all()
    output[row], output[:, column] = 0, 0
    assert np.isfinite(output).all()


@pytest.mark.parametrize("bits", [0x7F800001, 0xFF800FFF, 0x7F801000, 0x7FFFFFFF, 0xFFFFF000], ids=hex)
def test_tf32_is_no_number_whichever_bits_say_so(gemm: Kernel, bits: int) -> None:
    """Units leave out the lower 13 bits of a float: without these, or rounded up, it would be an infinity or zero."""
    plain = simulated(gemm, "mma.sync", SIZES[1], 29)
    output = Spoiled(gemm, plain.data, plain.options, row=3, column=5, bits=bits).run(
        by_units(gemm, "tf32", "fp32", "fp32")
    )["C"]
    assert np.isnan(output[3]).all()
    assert np.isfinite(np.delete(np.delete(output, 3, axis=0), 5, axis=1)).all()


@pytest.mark.parametrize("unit", SIMULATIONS)
def test_an_infinity_is_no_number_in_three_parts(gemm: Kernel, unit: str) -> None:
    """Its second part is none."""
    plain = simulated(gemm, unit, SIZES[1], 30)
    output = Spoiled(gemm, plain.data, plain.options, row=3, column=5).run(by_units(gemm, "mma", "fp32", "bf16x3"))["C"]
    assert np.isnan(output[3]).all()
    assert np.isnan(output[:, 5]).all()
    assert np.isfinite(np.delete(np.delete(output, 3, axis=0), 5, axis=1)).all()


@pytest.mark.parametrize("unit", SIMULATIONS)
def test_the_largest_floats_have_three_parts(gemm: Kernel, unit: str) -> None:
    """The bfloat16 that is nearest to them is infinite."""

    def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
        drawn = gemm.inputs(rng, size)
        drawn["A"][3, :2] = 3.4e38, -(2.0**128 - 2.0**104)
        return {**drawn, "B": drawn["B"] * 1e-10}

    kernel = gemm.changed(inputs=inputs)
    check(simulated(kernel, unit, SIZES[1], 31), by_units(kernel, "mma", "fp32", "bf16x3"))


def test_three_parts_keep_what_fp32_does(gemm: Kernel) -> None:
    """The error is not that of bfloat16, nor of TF32, and its signature is its own."""
    for unit in SIMULATIONS:
        run = simulated(gemm, unit, {"M": 48, "N": 56, "K": 64}, 26)
        error = np.abs(run.run(by_units(gemm, "mma", "fp32", "bf16x3"))["C"] / run.data.references["C"] - 1).max()
        assert error < 2.0**-21
    plain = {"math": "simt", "warps_along_n": 1, "stages": 1}
    ways = [by_units(gemm, "mma", "fp32", "bf16x3"), by_units(gemm, "mma", "fp32", "fp32")]
    ways.append(gemm.configuration({**dict(ways[0]), **plain}))
    assert len({gemm.signature_of(c) for c in ways}) == 3


def test_tf32_rounds_what_is_stored_as_fp32(gemm: Kernel) -> None:
    """So its error is that of eleven digits, and its signature not that of fp32."""
    run = simulated(gemm, "mma.sync", {"M": 48, "N": 56, "K": 64}, 26)
    reference = run.data.references["C"]
    tf32, fp32 = by_units(gemm, "tf32", "fp32", "fp32"), by_units(gemm, "mma", "fp32", "fp32")
    error = np.abs(run.run(tf32)["C"] / reference - 1).max()
    assert 2.0**-15 < error < 2.0**-11
    assert np.abs(simulated(gemm, "MFMA", run.data.sizes, 26).run(fp32)["C"] / reference - 1).max() < 2.0**-20
    plain = gemm.configuration({**dict(tf32), "math": "simt", "warps_along_n": 1, "stages": 1})
    assert len({gemm.signature_of(c) for c in (tf32, fp32, plain)}) == 3


@pytest.mark.full
@pytest.mark.parametrize(("tile_m", "tile_n", "tile_k"), [(64, 32, 8), (64, 64, 16), (128, 256, 32)])
@pytest.mark.parametrize(("how", "factor", "total"), SIMULATIONS["mma.sync"][1])
def test_no_bank_of_shared_memory_is_asked_twice(
    gemm: Kernel, how: str, factor: str, total: str, tile_m: int, tile_n: int, tile_k: int
) -> None:
    """Of what a warp accesses at once, whether it fetches tiles or reads them; counted from the addresses."""
    configuration = by_units(gemm, how, factor, total, **tiles_of(factor, total, tile_m, tile_n, tile_k))
    run = simulated(gemm, "mma.sync", {"M": 24, "N": 24, "K": 40}, 27, "-DMPTUNE_COUNT_CONFLICTS")
    assert configuration in every_way(gemm, run.data.sizes)
    accesses, conflicts = counted(run, configuration)
    assert accesses > 100
    assert conflicts == 0


def test_conflicts_are_counted(gemm: Kernel) -> None:
    """Without the exchange of chunks rows 64 bytes apart share banks."""
    run = simulated(gemm, "mma.sync", {"M": 24, "N": 24, "K": 40}, 27, "-DMPTUNE_COUNT_CONFLICTS")
    configuration = by_units(gemm, "mma", "fp16", "fp32", KWG=32)
    accesses, conflicts = counted(run, configuration, exchange="% places", none="% places * 0")
    assert conflicts > accesses / 4


def counted(run: Launcher, configuration: Configuration, exchange: str = "", none: str = "") -> tuple[int, int]:
    source = render(run.kernel, configuration, run.data.sizes)
    assert exchange in source
    binary: Binary = run.backend.compiler.compile(source.replace(exchange, none), run.kernel.function, run.options)
    function = run.backend.device.load(binary)
    arguments = [run._argument(argument, configuration) for argument in run.kernel.arguments]
    function.launch(run.kernel.launch_shape(configuration, run.data.sizes), arguments)
    counts = np.zeros((2, 1), dtype=np.uint64)
    for count, name in zip(counts, ("mptune_accesses", "mptune_conflicts"), strict=True):
        function.read_constant(name, count)
    function.unload()
    return int(counts[0, 0]), int(counts[1, 0])


# -- what devices allow ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (CudaBackend.matrix_limits("sm_80"), SIMULATIONS["mma.sync"][1]),
        (CudaBackend.matrix_limits("sm_90a"), SIMULATIONS["mma.sync"][1]),
        (CudaBackend.matrix_limits("sm_75"), ()),
        (HipBackend.matrix_limits("gfx90a"), SIMULATIONS["MFMA"][1]),
        (HipBackend.matrix_limits("gfx942"), SIMULATIONS["MFMA"][1]),
        (HipBackend.matrix_limits("gfx1100"), SIMULATIONS["WMMA"][1]),
        (HipBackend.matrix_limits("gfx908"), ()),
        (HipBackend.matrix_limits("gfx1030"), ()),
        (OpenclBackend.matrix_limits(""), ()),
    ],
)
def test_a_device_offers_what_it_has_units_for(gemm: Kernel, limits: tuple[str, ...], expected: Any) -> None:
    fixed = {name: (value,) for name, value in TILES.items()}
    constraints = device_constraints(gemm, limits)
    # Few other values, so that all can be listed.
    plain = {"VWM": (1,), "VWN": (1,), "VWK": (1,), "unroll": (1,), "resident": (1,), "raster": (1,), "large": (False,)}
    plain |= {"split_k": (1,), "double_buffer": (False,), "fine_prefetch": (False,)}
    simt = {"MDIMC": 16, "NDIMC": 16, "MDIMA": 16, "NDIMB": 16, "warps_along_n": 1, "stages": 1}
    either = {name: (*fixed[name], value) for name, value in simt.items()}
    space = every_way(gemm, gemm.resolve_sizes(), constraints).restrict(fixed | either | plain)
    found = {(c["math"], c["a_type"], c["accumulator_type"]) for c in space.configurations(np.arange(space.size))}
    assert {way for way in found if way[0] != "simt"} == set(expected)
    assert ("simt", "fp32", "fp32") in found


def test_the_header_has_wmma_where_the_backend_does() -> None:
    header = (Path(__file__).parents[2] / "templates" / "matrix" / "units.hpp").read_text()
    condition = header[: header.index("#define MPTUNE_UNITS_WMMA")].splitlines()[-1]
    (limits,) = {HipBackend.matrix_limits(name) for name in re.findall(r"__(gfx\w+)__", condition)}
    assert limits not in (HipBackend.matrix_limits("gfx90a"), HipBackend.matrix_limits("gfx1030"))
    architectures = [f"gfx{number:x}" for number in range(0x600, 0x1300)]
    having = [name for name in architectures if HipBackend.matrix_limits(name) == limits]
    assert re.findall(r"__(gfx\w+)__", condition) == having


def test_a_processor_multiplies_without(gemm: Kernel) -> None:
    space = gemm.search_space(gemm.resolve_sizes(), device_constraints(gemm, BACKENDS["host"]().device.constraints()))
    assert {c["math"] for c in space.configurations(space.sample(100, np.random.default_rng(28)))} == {"simt"}


@pytest.mark.parametrize(
    "limits",
    [BACKENDS["host"]().device.constraints(), OpenclBackend.matrix_limits(""), CudaBackend.matrix_limits("sm_75")],
)
def test_a_device_without_units_says_so(gemm: Kernel, limits: tuple[str, ...]) -> None:
    space = gemm.search_space(gemm.resolve_sizes(), device_constraints(gemm, limits))
    with pytest.raises(EmptySpaceError, match=r"\(this device has no matrix units that kernel gemm can use\)"):
        space.restrict({"math": ("mma", "tf32")})


def test_wrong_declarations(gemm: Kernel) -> None:
    with pytest.raises(UnknownNameError, match=r"in matrix_units of kernel gemm: .*did you mean 'math'"):
        gemm.changed(matrix_units=["maths", "a_type", "accumulator_type"])
    with pytest.raises(KernelError, match=r"matrix_units needs three parameters .* not math$"):
        gemm.changed(matrix_units=["math"])
