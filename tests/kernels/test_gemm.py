import dataclasses
import itertools
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from launching import Launcher, launcher, nrmse
from numpy.typing import NDArray
from simulated import SIMULATED, install

from mptune.backends import get_backend
from mptune.errors import EmptySpaceError
from mptune.kernel import Kernel, Rates
from mptune.kernel.limits import device_constraints
from mptune.precision import PRECISIONS
from mptune.registry import load_kernel
from mptune.rendering import render

TYPES = ("a_type", "b_type", "accumulator_type", "c_type")
TILED = {
    "MWG": 32,
    "NWG": 64,
    "KWG": 16,
    "MDIMC": 4,
    "NDIMC": 4,
    "MDIMA": 4,
    "NDIMB": 8,
    "STRM": True,
    "STRN": False,
    "VWM": 2,
    "VWN": 8,
}
SWITCHES = [
    {"double_buffer": double_buffer, "fine_prefetch": fine_prefetch}
    for double_buffer, fine_prefetch in itertools.product([False, True], repeat=2)
]


@pytest.fixture(scope="module")
def gemm() -> Kernel:
    return load_kernel("gemm")


def all_in(name: str) -> dict[str, str]:
    return dict.fromkeys(TYPES, name)


@pytest.mark.parametrize("sizes", [{"M": 5, "N": 3, "K": 7}, {"M": 1, "N": 1, "K": 1}, {"M": 2, "N": 9, "K": 40}])
def test_reference_against_exact_arithmetic(gemm: Kernel, sizes: dict[str, int]) -> None:
    size = gemm.resolve_sizes("smoke", sizes)
    inputs = gemm.inputs(np.random.default_rng(1), size)
    output = gemm.reference(inputs, size)["C"]
    assert output.shape == (size.M, size.N)
    exact = {name: np.vectorize(Fraction, otypes=[object])(value) for name, value in inputs.items()}
    expected = exact["alpha"] * exact["A"].dot(exact["B"]) + exact["beta"] * exact["C"]
    np.testing.assert_allclose(output, expected.astype(np.float64), rtol=1e-15)


def test_maps_stay_among_temperatures(gemm: Kernel) -> None:
    data = launcher(gemm).data
    np.testing.assert_allclose(data.inputs["A"].sum(axis=1), 1)
    for temperature in (data.inputs["B"], data.inputs["C"], data.references["C"]):
        assert 300 * temperature.min() > 260
        assert 300 * temperature.max() < 310
    # A place is interpolated from stations nearby.
    largest = np.sort(data.inputs["A"], axis=1)[:, ::-1]
    assert np.median(largest[:, :20].sum(axis=1)) > 0.9


@pytest.mark.parametrize("name", ["fp32", "fp16", "bf16"])
def test_narrow_types_err_by_their_unit_roundoff(gemm: Kernel, name: str) -> None:
    run = launcher(gemm, {"M": 61, "N": 47, "K": 101}, seed=4)
    error = nrmse(run.run(gemm.configuration({**all_in(name), **TILED}))["C"], run.data.references["C"])
    # 101 roundings of a growing sum: more than half of one of the result's, less than if all had one direction.
    assert 0.5 < error / PRECISIONS[name].unit_roundoff < 101 / 4


@pytest.mark.parametrize("switches", SWITCHES[::3], ids=str)
def test_every_matrix_has_its_own_type(gemm: Kernel, switches: dict[str, bool]) -> None:
    """A and B are rounded once, C twice, to their own types; sums in fp64 lose nothing more."""
    run = launcher(gemm, {"M": 37, "N": 29, "K": 23}, seed=5)
    types = {"a_type": "fp16", "b_type": "bf16", "accumulator_type": "fp64", "c_type": "fp32"}
    rounded = {
        name: run.data.inputs[name].astype(PRECISIONS[types[f"{name.lower()}_type"]].dtype).astype(np.float64)
        for name in "ABC"
    }
    expected = gemm.reference({**run.data.inputs, **rounded}, run.data.sizes)["C"]
    output = run.run(gemm.configuration({**types, **TILED, **switches}))["C"]
    np.testing.assert_allclose(output, expected, rtol=1.01 * PRECISIONS["fp32"].unit_roundoff)
    assert not np.allclose(output, expected, rtol=1e-12)


def test_sums_have_a_type_of_their_own(gemm: Kernel) -> None:
    """Every product is added in one rounding to the type of the sums, by ascending k."""
    run = launcher(gemm, {"M": 19, "N": 21, "K": 300}, seed=6)
    a, b, c = (run.data.inputs[name].astype(np.float16).astype(np.float64) for name in "ABC")
    total = np.zeros((19, 21))
    for k in range(300):
        # Exact in fp64 before it is rounded: products have 22 bits.
        total = (total + np.outer(a[:, k], b[k])).astype(np.float32).astype(np.float64)
    alpha, beta = (np.float64(np.float32(run.data.inputs[name])) for name in ("alpha", "beta"))
    types = {**all_in("fp16"), "accumulator_type": "fp32"}
    output = run.run(gemm.configuration({**types, **TILED}))["C"]
    expected = (alpha * total + (beta * c).astype(np.float32)).astype(np.float32).astype(np.float16)
    np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize(
    ("sizes", "switches"),
    [
        ({"M": 1, "N": 1, "K": 1}, SWITCHES[3]),
        ({"M": 1, "N": 131, "K": 2}, SWITCHES[0]),
        ({"M": 137, "N": 1, "K": 31}, SWITCHES[1]),
        ({"M": 3, "N": 64, "K": 49}, SWITCHES[2]),
        ({"M": 32, "N": 72, "K": 16}, SWITCHES[3]),
        ({"M": 64, "N": 128, "K": 48}, SWITCHES[3]),
        ({"M": 65, "N": 127, "K": 33}, SWITCHES[3]),
    ],
    ids=str,
)
def test_every_size(gemm: Kernel, sizes: dict[str, int], switches: dict[str, bool]) -> None:
    run = launcher(gemm, sizes, seed=8)
    output = run.run(gemm.configuration({**all_in("fp64"), **TILED, **switches}))["C"]
    np.testing.assert_allclose(output, run.data.references["C"], rtol=67 * 2.0**-53)


@pytest.mark.parametrize("sizes", [{"M": 137, "N": 131, "K": 68}, {"M": 3, "N": 64, "K": 31}], ids=str)
@pytest.mark.parametrize(
    "values",
    [
        {"VWK": 2, "unroll": 2, "resident": 2, "raster": 4},
        {"VWK": 4, "VWM": 4, "raster": 16},
        {"VWK": 4, "MDIMA": 16, "unroll": 2, "KWG": 32},
        {"MWG": 256, "MDIMC": 32, "NDIMC": 16, "MDIMA": 128, "NDIMB": 32, "VWN": 2, "VWK": 4, "large": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("switches", SWITCHES[::3], ids=str)
def test_what_is_for_gpus_alone_changes_no_number(
    gemm: Kernel, sizes: dict[str, int], values: dict[str, int | bool], switches: dict[str, bool]
) -> None:
    run = launcher(gemm, sizes, seed=9)
    plain, other = (gemm.configuration({**all_in("fp32"), **TILED, **switches, **given}) for given in ({}, values))
    assert other in gemm.search_space(run.data.sizes)
    np.testing.assert_array_equal(run.run(other)["C"], run.run(plain)["C"])


@pytest.mark.parametrize("sizes", [{"M": 137, "N": 131, "K": 68}, {"M": 3, "N": 64, "K": 33}], ids=str)
@pytest.mark.parametrize("double_buffer", [False, True])
@pytest.mark.parametrize(
    "values",
    [
        {"MWG": 48, "VWM": 4, "STRM": False},
        {"MWG": 96, "NWG": 32, "KWG": 8, "MDIMC": 8, "MDIMA": 32, "VWN": 4, "VWK": 4, "STRN": True, "split_k": 2},
    ],
    ids=str,
)
def test_prefetch_of_a_in_thirds_changes_no_number(
    gemm: Kernel, sizes: dict[str, int], double_buffer: bool, values: dict[str, int | bool]
) -> None:
    run = launcher(gemm, sizes, seed=15)
    thirds = {"parts_of_a": 3, "fine_prefetch": True, "double_buffer": double_buffer}
    alike = {"split_k": values.get("split_k", 1)}
    plain, other = (gemm.configuration({**all_in("fp32"), **TILED, **given}) for given in (alike, {**values, **thirds}))
    assert other in gemm.search_space(run.data.sizes)
    np.testing.assert_array_equal(run.run(other)["C"], run.run(plain)["C"])


@pytest.mark.full
def test_tiles_of_thirds_have_three_times_as_many_rows_as_others(gemm: Kernel) -> None:
    space = gemm.search_space(gemm.resolve_sizes())
    for rows, parts in ((48, 3), (96, 3), (192, 3), (64, 2), (128, 2)):
        of_tile = space.restrict({"MWG": (rows,), "math": ("simt",), **dict.fromkeys(TYPES, ("fp32",))})
        found = of_tile.configurations(of_tile.sample(50, np.random.default_rng(16)))
        assert {c["parts_of_a"] for c in found} == {parts}
        assert parts == 2 or all(c["fine_prefetch"] for c in found)


#: Parts of unequal length, the last of one k; edges in M and N; a K of which not all blocks get a part.
SPLIT_SIZES = (
    {"M": 37, "N": 67, "K": 241},
    {"M": 1, "N": 1, "K": 289},
    {"M": 64, "N": 128, "K": 248},
    {"M": 33, "N": 9, "K": 64},
)


def in_parts(run: Launcher, split_k: int, total: type[np.floating[Any]]) -> NDArray[np.float64]:
    """Return C as blocks that share a tile compute it from fp16: one rounding for each k and for each part."""

    def rounded(values: Any) -> NDArray[np.float64]:
        return np.asarray(values).astype(total).astype(np.float64)

    a, b, c = (run.data.inputs[name].astype(np.float16).astype(np.float64) for name in "ABC")
    alpha, beta = (rounded(run.data.inputs[name]) for name in ("alpha", "beta"))
    steps = -(-a.shape[1] // 32)
    whole = np.zeros(c.shape)
    for part in range(split_k):
        first, end = (32 * (number * steps // split_k) for number in (part, part + 1))
        # Exact in fp64 before it is rounded: products have 22 bits.
        own = np.zeros(c.shape)
        for k in range(first, min(end, a.shape[1])):
            own = rounded(own + np.outer(a[:, k], b[k]))
        whole = rounded(whole + own)
    return rounded(alpha * whole + rounded(beta * c)).astype(np.float16).astype(np.float64)


@pytest.mark.full
@pytest.mark.parametrize("sizes", SPLIT_SIZES, ids=str)
@pytest.mark.parametrize(
    ("split_k", "values"),
    [
        (2, {**SWITCHES[0], "raster": 4}),
        (4, {**SWITCHES[3], "VWK": 2}),
        (8, {**SWITCHES[1], "KWG": 32}),
        (8, {**SWITCHES[2], "KWG": 8}),
    ],
    ids=str,
)
def test_parts_are_added_in_order(
    gemm: Kernel, sizes: dict[str, int], split_k: int, values: dict[str, int | bool]
) -> None:
    """Bit by bit, whichever block of a tile is the last to end."""
    run = launcher(gemm, sizes, seed=11)
    types = {**all_in("fp16"), "accumulator_type": "fp32"}
    configuration = gemm.configuration({**types, **TILED, **values, "split_k": split_k})
    assert configuration in gemm.search_space(run.data.sizes)
    np.testing.assert_array_equal(run.run(configuration)["C"], in_parts(run, split_k, np.float32))


@pytest.mark.parametrize("backend", SIMULATED)
@pytest.mark.parametrize(("split_k", "switches"), [(2, SWITCHES[3]), (8, SWITCHES[0])], ids=str)
def test_parts_on_simulated_devices(
    gemm: Kernel, monkeypatch: pytest.MonkeyPatch, backend: str, split_k: int, switches: dict[str, bool]
) -> None:
    install(monkeypatch, backend)
    run = dataclasses.replace(launcher(gemm, SPLIT_SIZES[0], seed=12), backend=get_backend(backend))
    output = run.run(gemm.configuration({**all_in("fp64"), **TILED, **switches, "split_k": split_k}))["C"]
    longer = {name: np.asarray(value).astype(np.longdouble) for name, value in run.data.inputs.items()}
    expected = longer["alpha"] * (longer["A"] @ longer["B"]) + longer["beta"] * longer["C"]
    np.testing.assert_allclose(output, expected.astype(np.float64), rtol=241 * 2.0**-53)


def test_one_launch_leaves_nothing_to_the_next(gemm: Kernel) -> None:
    run = launcher(gemm, SPLIT_SIZES[0], seed=13)
    configuration = gemm.configuration({**all_in("fp32"), **TILED, "split_k": 4})
    shape, found = gemm.launch_shape(configuration, run.data.sizes), []
    with run.function(configuration) as function:
        for _ in range(3):
            arguments = [run._argument(argument, configuration) for argument in gemm.arguments]
            function.launch(shape, arguments)
            found.append(run._read(gemm.arguments[0], configuration, arguments[0]))
    np.testing.assert_allclose(found[0], run.data.references["C"], rtol=241 * 2.0**-24)
    assert all(np.array_equal(found[0], each) for each in found[1:])


@pytest.mark.parametrize(("sums", "unit"), [("fp32x2", 2.0**-46), ("fp32_neumaier", 2.0**-24)])
def test_parts_keep_all_digits(gemm: Kernel, sums: str, unit: float) -> None:
    """What blocks leave for each other is not rounded to what memory has for compound sums."""
    run = launcher(gemm, SPLIT_SIZES[0], seed=14)
    types = (
        {**all_in("fp64"), "accumulator_type": sums}
        if sums == "fp32x2"
        else {**all_in("fp32"), "accumulator_type": sums}
    )
    whole, parts = (run.run(gemm.configuration({**types, **TILED, "split_k": split_k}))["C"] for split_k in (1, 8))
    np.testing.assert_allclose(parts, whole, rtol=16 * unit if sums == "fp32x2" else 2 * unit)


@pytest.mark.full
def test_tiles_are_shared_where_there_are_few(gemm: Kernel) -> None:
    tiles = {**all_in("fp32"), **TILED}

    def offered(**sizes: int) -> set[int]:
        space = gemm.search_space(gemm.resolve_sizes("smoke", sizes))
        return {split for split in (1, 2, 4, 8) if gemm.configuration({**tiles, "split_k": split}) in space}

    assert offered(M=8, N=8, K=1) == {1, 2, 4, 8}
    assert offered(M=1024, N=1024, K=512) == {1, 2, 4, 8}
    assert offered(M=1025, N=1024, K=512) == {1, 2, 4}
    assert offered(M=2048, N=2048, K=512) == {1, 2}
    assert offered(M=4096, N=4096, K=512) == {1}
    # As much memory as that is what the template has.
    source = render(gemm, gemm.configuration({**tiles, "split_k": 4}), gemm.resolve_sizes())
    declared = [int(extent) for extent in re.findall(r"^__device__ \w+ parts_\w+\[(\d+)\]", source, re.MULTILINE)]
    assert declared == [1 << 23, (1 << 23) // (4 * 32 * 64)]


def test_configurations(gemm: Kernel) -> None:
    sizes = gemm.resolve_sizes()
    space = gemm.search_space(sizes, device_constraints(gemm, ["not gpu_only"]))
    assert space.size == 38_391_280
    # Lin 2025, Sec. V-D: more than 160,000 for one type.
    in_fp32 = space.restrict({name: (value,) for name, value in all_in("fp32").items()})
    assert in_fp32.size == 448_336
    for switches in SWITCHES:
        assert in_fp32.restrict({name: (value,) for name, value in switches.items()}).size > 50_000


def test_shared_memory_bounds_the_tiles(gemm: Kernel) -> None:
    space = gemm.search_space(gemm.resolve_sizes())
    tiles = {"math": ("simt",), "MWG": (128,), "NWG": (128,), "KWG": (16,), "accumulator_type": ("fp64",)}
    assert space.restrict({**tiles, "double_buffer": (False,)}).size > 0
    with pytest.raises(EmptySpaceError, match="sizeof"):
        space.restrict({**tiles, "double_buffer": (True,)})


@pytest.mark.full
def test_balance_is_equation_8(gemm: Kernel) -> None:
    assert gemm.balance is not None
    # Fused operations a second: half of these; of types that are missing, fp32's.
    rates = {"fp64": 1.0e12, "fp32": 2.0e12, "fp16": 2.0e12, "bf16": 2.0e12}
    speeds = Rates({"fp64": 2.0e12, "fp32": 4.0e12}, shared_bytes_per_s=4e12, global_bytes_per_s=3e11)
    space = gemm.search_space(gemm.resolve_sizes(), gemm.balance(speeds, 1.5))
    everything = gemm.search_space(gemm.resolve_sizes())
    assert 0 < space.size < everything.size / 4
    rng = np.random.default_rng(10)
    kept = 0
    for c in everything.configurations(everything.sample(2000, rng)):
        if c["math"] != "simt":
            assert c in space
            continue
        rate = rates[str(c["accumulator_type"])]
        size, size_a, size_b = (PRECISIONS[str(c[f"{n}_type"])].size_bytes for n in ("accumulator", "a", "b"))
        threads = c["MDIMC"] * c["NDIMC"]
        rows, columns = c["MWG"] / c["MDIMC"], c["NWG"] / c["NDIMC"]
        multiply = rows * columns * threads / rate
        to_registers = (rows + columns) * size * threads / 4e12
        to_shared = (c["MWG"] * size_a + c["NWG"] * size_b) / 3e11 + (c["MWG"] + c["NWG"]) * size / 4e12
        ratios = (to_registers / multiply, to_shared / multiply)
        if min(abs(np.log(ratio / 1.5)) for ratio in (*ratios, *(1 / r for r in ratios))) < 1e-9:
            continue
        assert (c in space) == all(1 / 1.5 < ratio < 1.5 for ratio in ratios)
        kept += c in space
    assert kept > 10
