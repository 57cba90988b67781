"""What holds for every bundled kernel: its types decide how far it errs, and nothing else changes its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from launching import all_in, covering_sample, launcher, mre, nmae, nrmse
from numpy.typing import NDArray

from mptune.precision import PRECISIONS
from mptune.source.loading import bundled_kernels, load_kernel
from mptune.space.parameters import PrecisionParameter
from tests.conformance.prelude_library import rounded
from tests.tiers import few

Tolerance = Mapping[str, float]
EXACT: Tolerance = {"rtol": 0.0, "atol": 0.0}
ACCURATE = {"policy": "accurate"}


@dataclass(frozen=True)
class Case:
    """A kernel, some narrow types of it, and how far its outputs in fp64 may be from the reference.

    ``alike`` and ``mixed_alike`` say how far configurations of one signature may differ: not at all, or where loops
    are vectorised by different lengths, by the last bits of the library's functions. ``bounds`` are those of the error
    of any configuration, in unit roundoffs of its narrowest type, and ``narrow`` those of one type throughout.
    """

    kernel: str
    mixed: Mapping[str, str]
    reference: Tolerance
    alike: Tolerance = field(default_factory=lambda: EXACT)
    mixed_alike: Tolerance = field(default_factory=lambda: EXACT)
    sizes: Mapping[str, int] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    error: Callable[[NDArray[np.float64], NDArray[np.float64]], float] = nrmse
    bounds: tuple[float, float] = (0.0, np.inf)
    narrow: tuple[float, float] = (0.0, np.inf)
    error_sizes: Mapping[str, int] = field(default_factory=dict)
    sampled: Mapping[str, Any] = field(default_factory=dict)


# Wide vectors of halves take the host's compiler seconds.
NARROW = {"vector_width": (1, 2)}
CASES = (
    Case(
        "axpy",
        dict.fromkeys(("a_type", "x_type", "y_type"), "bf16"),
        {"rtol": 0, "atol": 1e-15},
        bounds=(0, 2),
        # y is near 1 and rounded twice, when read and when written.
        narrow=(0.2, 2),
    ),
    Case(
        "bessel",
        {"input_type": "fp16", "policy": "fast"}
        | dict.fromkeys(("series_type", "asymptotic_type", "output_type"), "fp32"),
        {"rtol": 4e-15},
        alike={"rtol": 8 * 2**-53},
        mixed_alike={"rtol": 8 * 2**-24},
        error=mre,
        bounds=(0.05, 3),
        # Rounding moves an argument by 0.36 units on average, and I0 amplifies that 6-fold on average.
        narrow=(1.8, 3),
        error_sizes={"n": 1009},
        sampled=NARROW,
    ),
    Case(
        "black_scholes",
        {"input_type": "bf16", "d_type": "fp32", "price_type": "fp32", "output_type": "fp32", "policy": "fast"},
        {"rtol": 0, "atol": 1e-12},
        # Prices are up to 200.
        alike={"rtol": 0, "atol": 1600 * 2**-53},
        mixed_alike={"rtol": 0, "atol": 1600 * 2**-24},
        bounds=(0.1, 8),
        # A handful of roundings of terms of about 110 dollars, in prices of about 20.
        narrow=(2, 8),
        error_sizes={"n": 1009},
        sampled=NARROW,
    ),
    Case(
        "convolution2d",
        {"input_type": "fp16"} | dict.fromkeys(("filter_type", "accumulator_type", "output_type"), "fp32"),
        {"rtol": 1e-13},
        sizes={"width": 149, "height": 83},
        # At most 289 roundings of a growing sum, less than if all of them had one direction.
        bounds=(0.02, 289 / 4),
        narrow=(1, 289 / 4),
        error_sizes={"width": 37, "height": 23},
        sampled=NARROW,
    ),
    Case(
        "coulombic",
        {"position_type": "fp32", "charge_type": "bf16", "potential_type": "fp64"},
        {"rtol": 1e-13},
        alike={"rtol": 1e-14},
        mixed_alike={"rtol": 1e-6},
        sizes={"charges": 29},
        fixed=ACCURATE,
        error=mre,
        bounds=(1 / 50, 101 / 4),
        narrow=(0.5, 101 / 4),
        error_sizes={"width": 21, "height": 9},
    ),
    Case(
        "gemm",
        {"a_type": "fp16", "b_type": "fp32", "accumulator_type": "fp32", "c_type": "bf16"},
        # 67 roundings in a sum of positive terms; parts of them round otherwise (test_gemm.py).
        {"rtol": 67 * 2.0**-53},
        fixed={"split_k": 1},
        bounds=(1 / 50, 67 / 4),
        narrow=(0.5, 101 / 4),
    ),
    Case(
        "inverse_kinematics",
        {"target_type": "fp16", "position_type": "fp32", "angle_type": "fp32", "joint_type": "bf16"},
        {"rtol": 0, "atol": 1e-14},
        alike={"rtol": 0, "atol": 1e-14},
        mixed_alike={"rtol": 0, "atol": 1e-14},
        sizes={"n": 4099},
        fixed=ACCURATE,
        error=nmae,
        bounds=(0.05, 2),
        # Rounded some ten times; where the arm is straighter the bend doubles that.
        narrow=(0.4, 2),
        error_sizes={"n": 1021},
    ),
    Case(
        "kmeans",
        {"point_type": "bf16", "centre_type": "fp32", "distance_type": "fp32"},
        {"rtol": 1e-14},
        sizes={"n": 3001},
        fixed={"math": "simt"},
        error=mre,
        bounds=(0.2, 3),
        # Fifteen rounded points, centres, differences and sums; most of it cancels in the mean of fifteen.
        narrow=(0.5, 2),
        error_sizes={"n": 1009},
    ),
    Case(
        "lavamd",
        {"position_type": "fp64", "charge_type": "bf16", "distance_type": "fp32", "force_type": "fp64"},
        # Forces are what is left of sums that cancel; of these a last bit is 1e-15.
        {"rtol": 0, "atol": 1e-12},
        alike={"rtol": 0, "atol": 1e-13},
        mixed_alike={"rtol": 0, "atol": 1e-5},
        sizes={"boxes": 2, "particles": 71},
        fixed=ACCURATE,
        error=nmae,
        bounds=(0.1, 20),
        # A distance of a third is off by up to a unit, and a term by ten; some ten terms make up a sum.
        narrow=(1, 10),
        error_sizes={"boxes": 2},
    ),
    Case(
        "mode_product",
        {"image_type": "fp16", "response_type": "fp32", "sum_type": "fp32", "output_type": "bf16"},
        # 29 roundings in a sum of positive terms.
        {"rtol": 29 * 2.0**-53},
        bounds=(1 / 50, 29),
        narrow=(0.1, 40),
    ),
    Case(
        "mriq",
        {"position_type": "fp32", "sample_type": "bf16", "angle_type": "fp32", "q_type": "fp64"},
        # Where waves cancel, the rounding of the terms is left: 29 times the last bit of angles up to ten radians.
        {"rtol": 0, "atol": 1e-13},
        alike={"rtol": 0, "atol": 1e-13},
        mixed_alike={"rtol": 0, "atol": 1e-5},
        sizes={"samples": 29},
        fixed=ACCURATE,
        bounds=(0.2, 50),
        # An angle of up to 50 radians is rounded several times; 101 such terms add up like random ones.
        narrow=(2, 30),
        error_sizes={"side": 9},
    ),
    Case(
        "newton_raphson",
        dict.fromkeys(("coefficient_type", "guess_type", "first_type"), "fp16")
        | dict.fromkeys(("root_type", "last_type", "correction_type"), "fp32"),
        {"rtol": 5e-15},
        sizes={"n": 4099},
        bounds=(0.0, 2),
        # The root moves by as much as pressure and temperature are rounded; the last residual adds its own.
        narrow=(0.5, 2),
        error_sizes={"n": 1021},
    ),
)
by_kernel = {case.kernel: case for case in CASES}


def test_there_is_a_case_for_every_kernel() -> None:
    assert sorted(by_kernel) == sorted(INPUT_TYPES) == sorted(bundled_kernels())


def has_policy(name: str) -> bool:
    return "policy" in load_kernel(name).parameter_names


@pytest.mark.parametrize(
    ("case", "types"),
    [
        param
        for number, case in enumerate(CASES)
        for param in few(
            # One of both, in turn; the others, and gemm's, at night.
            [(case, types) for types in (("fp64", "mixed"), ("mixed", "fp64"))[number % 2]],
            fast=case.kernel == "axpy",
            full=case.kernel != "gemm",
        )
    ],
    ids=lambda value: value.kernel if isinstance(value, Case) else value,
)
def test_optimisation_parameters_change_nothing(case: Case, types: str) -> None:
    kernel = load_kernel(case.kernel)
    fp64 = {p.name: "fp64" for p in kernel.parameters if isinstance(p, PrecisionParameter)}
    run = launcher(kernel, case.sizes, seed=5)
    fixed = {**case.fixed, **(fp64 if types == "fp64" else fp64 | dict(case.mixed))}
    sample = covering_sample(kernel, run.data.sizes, fixed, np.random.default_rng(5))
    outputs = [run.run(configuration) for configuration in sample]
    for configuration, found in zip(sample, outputs, strict=True):
        for name, output in found.items():
            alike = case.alike if types == "fp64" else case.mixed_alike
            np.testing.assert_allclose(output, outputs[0][name], **alike, err_msg=str(configuration))
            if types == "fp64":
                np.testing.assert_allclose(output, run.data.references[name], **case.reference)


@pytest.mark.full
@pytest.mark.parametrize("case", few(CASES[::-1], 0, 4), ids=lambda case: case.kernel)
def test_any_configuration_errs_by_its_narrowest_type(case: Case) -> None:
    kernel = load_kernel(case.kernel)
    run = launcher(kernel, case.error_sizes, seed=9)
    space = kernel.search_space(run.data.sizes)
    space = space.restrict(case.sampled) if case.sampled else space
    low, high = case.bounds
    types = [p.name for p in kernel.parameters if isinstance(p, PrecisionParameter)]
    for configuration in space.configurations(space.sample(5, np.random.default_rng(9))):
        roundoff = max(PRECISIONS[str(configuration[name])].unit_roundoff for name in types)
        for name, output in run.run(configuration).items():
            assert low < case.error(output, run.data.references[name]) / roundoff < high, configuration


@pytest.mark.parametrize(("name", "precision"), few([(n, p) for p in ("bf16", "fp32", "fp16") for n in by_kernel], 6))
def test_narrow_types_err_by_their_unit_roundoff(name: str, precision: str) -> None:
    kernel, case = load_kernel(name), by_kernel[name]
    run = launcher(kernel, case.error_sizes, seed=4)
    for output, found in run.run(kernel.configuration({**all_in(kernel, precision), **case.fixed})).items():
        error = case.error(found, run.data.references[output]) / PRECISIONS[precision].unit_roundoff
        assert case.narrow[0] < error < case.narrow[1]


N = tuple({"n": n} for n in (31, 1, 64, 2049))
#: Of each kernel sizes that fit no block, tile or vector, and values that have them; gemm has tests of its own.
AWKWARD_SIZES: Mapping[str, tuple[Mapping[str, Any], Sequence[Mapping[str, int]]]] = {
    "axpy": ({"vector_width": 8, "block_size": 32}, N),
    "bessel": ({"vector_width": 8, "block_size": 64}, N),
    "black_scholes": ({"vector_width": 8, "block_size": 64}, N),
    "convolution2d": (
        {"vector_width": 8, "tile_size_x": 2, "tile_size_y": 4, "block_size_x": 16, "block_size_y": 4},
        (
            {"width": 67, "height": 37, "filter_width": 2, "filter_height": 5},
            {"width": 1, "height": 1},
            {"width": 3, "height": 131},
            {"width": 257, "height": 2},
        ),
    ),
    "coulombic": (
        {"block_size_x": 16, "block_size_y": 4, "tile_size_x": 8, "tile_size_y": 4},
        [
            dict(zip(("width", "height", "charges"), each, strict=True))
            for each in ((3, 131, 2), (1, 1, 1), (257, 2, 11))
        ],
    ),
    "inverse_kinematics": ({"tile_size": 2, "block_size": 32}, N),
    "kmeans": (
        {"points_per_thread": 16},
        (
            {"n": 31, "features": 3, "clusters": 41},
            {"n": 7, "features": 1, "clusters": 1},
            {"n": 1031, "features": 17, "clusters": 2},
            # A block moved back writes what its neighbour wrote.
            {"n": 2049},
        ),
    ),
    "lavamd": (
        {"block_size": 32, "tile_size": 2},
        [{"boxes": boxes, "particles": particles} for boxes, particles in ((3, 5), (1, 1), (2, 131))],
    ),
    "mode_product": (
        {"block_size": 32, "tile_columns": 8, "tile_filters": 4, "tile_rows": 2, "loop_order": (2, 1, 0)},
        [
            dict(zip(("rows", "bands", "filters", "columns"), each, strict=True))
            for each in ((3, 2, 9, 5), (1, 1, 1, 1), (9, 28, 2, 65))
        ],
    ),
    "mriq": (
        {"block_size": 64, "tile_size": 4, "unroll": 4},
        [{"side": side, "samples": samples} for side, samples in ((3, 2), (1, 1), (5, 131))],
    ),
    "newton_raphson": ({"tile_size": 8, "block_size": 64}, N),
}


@pytest.mark.parametrize(
    ("name", "sizes", "is_shared"),
    [
        param
        for name, (_, cases) in AWKWARD_SIZES.items()
        for param in few([(name, case, number % 2 == 0) for number, case in enumerate(cases)], full=4)
    ],
    ids=str,
)
def test_every_size(name: str, sizes: Mapping[str, int], is_shared: bool) -> None:
    kernel, values = load_kernel(name), dict(AWKWARD_SIZES[name][0])
    if "use_shared" in kernel.parameter_names:
        values["use_shared"] = is_shared
    run = launcher(kernel, sizes, seed=7)
    for output, found in run.run(kernel.configuration({**all_in(kernel, "fp64"), **values})).items():
        np.testing.assert_allclose(found, run.data.references[output], **by_kernel[name].reference)


# -- each type is that of what it is named for ---------------------------------------------------------

#: Of each kernel the types that inputs alone have, and those that outputs alone have.
INPUT_TYPES = {
    "axpy": ("a_type", "x_type"),
    "bessel": ("input_type",),
    "black_scholes": ("input_type",),
    "convolution2d": ("input_type", "filter_type"),
    "coulombic": ("charge_type",),
    "gemm": ("a_type", "b_type"),
    "inverse_kinematics": ("target_type",),
    "kmeans": ("point_type", "centre_type"),
    "lavamd": ("position_type", "charge_type"),
    "mode_product": ("image_type", "response_type"),
    "mriq": ("position_type", "sample_type"),
    "newton_raphson": ("coefficient_type", "guess_type"),
}
OUTPUT_TYPES = {
    "bessel": "output_type",
    "black_scholes": "output_type",
    "convolution2d": "output_type",
    "inverse_kinematics": "joint_type",
    "mode_product": "output_type",
    "newton_raphson": "root_type",
}


@pytest.mark.parametrize(
    ("name", "parameter"), few([(name, each) for name, types in INPUT_TYPES.items() for each in types][::-1], 4)
)
def test_inputs_are_rounded_once_to_their_own_type(name: str, parameter: str) -> None:
    """Operations with these arguments have the wider types of the other operands."""
    kernel, case = load_kernel(name), by_kernel[name]
    run = launcher(kernel, case.error_sizes, seed=8)
    inputs = dict(run.data.inputs)
    for argument in kernel.arguments:
        if argument.precision == parameter:
            inputs[argument.name] = rounded(np.asarray(inputs[argument.name]), PRECISIONS["bf16"])
    expected = kernel.reference(inputs, run.data.sizes)
    types = {**all_in(kernel, "fp64"), **case.fixed, parameter: "bf16"}
    for output, found in run.run(kernel.configuration(types)).items():
        np.testing.assert_allclose(found, expected[output], **case.reference)


@pytest.mark.parametrize("name", few(OUTPUT_TYPES, 2))
def test_outputs_are_rounded_once_to_their_own_type(name: str) -> None:
    kernel, case = load_kernel(name), by_kernel[name]
    run = launcher(kernel, case.error_sizes, seed=9)
    wide, narrow = (
        run.run(kernel.configuration({**all_in(kernel, "fp64"), **case.fixed, OUTPUT_TYPES[name]: each}))
        for each in ("fp64", "fp16")
    )
    for output, found in narrow.items():
        np.testing.assert_array_equal(found, wide[output].astype(np.float16).astype(np.float64))


@pytest.mark.full
@pytest.mark.parametrize("name", few(by_kernel, 3, 6))
def test_every_type_is_used_and_nothing_else_is_narrower(name: str) -> None:
    """In fp32 each one by itself moves the result by about its roundoff, but those of steps that later ones correct."""
    kernel, case = load_kernel(name), by_kernel[name]
    run = launcher(kernel, case.error_sizes, seed=10)
    unit = PRECISIONS["fp32"].unit_roundoff
    for parameter in all_in(kernel, "fp32"):
        types = {**all_in(kernel, "fp64"), **case.fixed, parameter: "fp32"}
        for output, found in run.run(kernel.configuration(types)).items():
            error = case.error(found, run.data.references[output]) / unit
            least = 0.0 if parameter in CORRECTED else 1e-3
            assert least <= error < max(case.bounds[1], 4), f"{parameter}: {error}"


#: What the steps of Newton's method in wider types make good.
CORRECTED = ("guess_type", "first_type", "correction_type")


@pytest.mark.parametrize("name", few([name for name in by_kernel if has_policy(name)]))
def test_the_policy_is_that_of_the_functions(name: str) -> None:
    kernel = load_kernel(name)
    run = launcher(kernel, by_kernel[name].error_sizes, seed=4)
    accurate, *others = (
        run.run(kernel.configuration({**all_in(kernel, precision), "policy": policy}))
        for precision, policy in (("fp32", "accurate"), ("fp32", "fast"), ("fp16", "approx"))
    )
    assert all((other[output] != found).any() for output, found in accurate.items() for other in others)


def potentials(given: Mapping[str, Any]) -> Iterator[NDArray[np.float64]]:
    row, column = (np.arange(n) * given["spacing"] for n in (5, 19))
    for q, (x, y, z) in zip(given["charge"], given["position"], strict=True):
        yield q / np.sqrt((column - x) ** 2 + ((row - y) ** 2 + z**2)[:, None])


def forces(given: Mapping[str, Any]) -> Iterator[NDArray[np.float64]]:
    (position,), (charge,) = given["position"], given["charge"]
    for other, q in zip(position.T, charge, strict=True):
        yield q * np.exp(-9 * ((position - other[:, None]) ** 2).sum(axis=0))


def waves(given: Mapping[str, Any]) -> Iterator[NDArray[np.float64]]:
    for *k, weight in given["sample"]:
        angle = 2 * np.pi * (k @ given["position"])
        yield weight * np.column_stack([np.cos(angle), np.sin(angle)])


@pytest.mark.parametrize(
    ("name", "parameter", "terms", "sizes"),
    few(
        [
            ("coulombic", "potential_type", potentials, {"width": 19, "height": 5, "charges": 300}),
            ("mriq", "q_type", waves, {"side": 4, "samples": 40}),
            ("lavamd", "force_type", forces, {"boxes": 1, "particles": 40}),
        ]
    ),
)
def test_every_term_and_every_sum_is_rounded_to_the_type_of_sums(
    name: str, parameter: str, terms: Callable[..., Iterator[NDArray[np.float64]]], sizes: Mapping[str, int]
) -> None:
    kernel = load_kernel(name)
    run = launcher(kernel, sizes, seed=6)
    total: Any = np.float16(0)
    for term in terms(run.data.inputs):
        total = total + term.astype(np.float16)
    types = {**all_in(kernel, "fp64"), "policy": "accurate", parameter: "fp16"}
    (found,) = run.run(kernel.configuration(types)).values()
    np.testing.assert_array_equal(found[0, 0] if name == "lavamd" else found, total)
