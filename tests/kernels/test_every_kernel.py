"""What holds for every bundled kernel: its types decide how far it errs, and nothing else changes its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from launching import all_in, covering_sample, launcher, mre, nmae, nrmse
from numpy.typing import NDArray

from mptune.precision import PRECISIONS
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.source.loading import bundled_kernels, load_kernel
from mptune.space.parameters import PrecisionParameter
from mptune.store import RunInfo
from mptune.tuning.findings import findings
from tests.tiers import few

Tolerance = Mapping[str, float]
EXACT: Tolerance = {"rtol": 0.0, "atol": 0.0}
ACCURATE = {"policy": "accurate"}


@dataclass(frozen=True)
class Case:
    """A kernel, some narrow types of it, and how far its outputs in fp64 may be from the reference.

    ``alike`` and ``mixed_alike`` say how far configurations of one signature may differ: not at all, or where loops
    are vectorised by different lengths, by the last bits of the library's functions. ``bounds`` are those of the error
    of any configuration, in unit roundoffs of its narrowest type.
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
    error_sizes: Mapping[str, int] = field(default_factory=dict)
    sampled: Mapping[str, Any] = field(default_factory=dict)


# Wide vectors of halves take the host's compiler seconds.
NARROW = {"vector_width": (1, 2)}
CASES = (
    Case("axpy", dict.fromkeys(("a_type", "x_type", "y_type"), "bf16"), {"rtol": 0, "atol": 1e-15}, bounds=(0, 2)),
    Case(
        "bessel",
        {"input_type": "fp16", "policy": "fast"}
        | dict.fromkeys(("series_type", "asymptotic_type", "output_type"), "fp32"),
        {"rtol": 4e-15},
        alike={"rtol": 8 * 2**-53},
        mixed_alike={"rtol": 8 * 2**-24},
        error=mre,
        bounds=(0.05, 3),
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
        error_sizes={"width": 21, "height": 9},
    ),
    Case(
        "gemm",
        {"a_type": "fp16", "b_type": "fp32", "accumulator_type": "fp32", "c_type": "bf16"},
        # 67 roundings in a sum of positive terms; parts of them round otherwise (test_gemm.py).
        {"rtol": 67 * 2.0**-53},
        fixed={"split_k": 1},
        bounds=(1 / 50, 67 / 4),
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
        error_sizes={"boxes": 2},
    ),
    Case(
        "mode_product",
        {"image_type": "fp16", "response_type": "fp32", "sum_type": "fp32", "output_type": "bf16"},
        # 29 roundings in a sum of positive terms.
        {"rtol": 29 * 2.0**-53},
        bounds=(1 / 50, 29),
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
        error_sizes={"side": 9},
    ),
    Case(
        "newton_raphson",
        dict.fromkeys(("coefficient_type", "guess_type", "first_type"), "fp16")
        | dict.fromkeys(("root_type", "last_type", "correction_type"), "fp32"),
        {"rtol": 5e-15},
        sizes={"n": 4099},
        bounds=(0.0, 2),
        error_sizes={"n": 1021},
    ),
)
by_kernel = {case.kernel: case for case in CASES}


#: Kernels of which ``test_narrow_types_err_by_their_unit_roundoff`` says as much but at night.
NIGHTLY = tuple(name for name in by_kernel if name not in ("coulombic", "axpy", "kmeans"))


def has_policy(name: str) -> bool:
    return "policy" in load_kernel(name).parameter_names


def kernels(fast: tuple[str, ...], nightly: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """Return the marks of a test of every kernel, of which some are in the fast tier, and some nightly."""
    order = [*fast, *(name for name in by_kernel if name not in (*fast, *nightly)), *nightly]
    cases = few([by_kernel[name] for name in order], len(fast), len(order) - len(nightly))
    return pytest.mark.parametrize("case", cases, ids=lambda c: c.kernel)


def test_there_is_a_case_for_every_kernel() -> None:
    assert [case.kernel for case in CASES] == sorted(bundled_kernels())


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
@kernels(("coulombic",), nightly=NIGHTLY)
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


@kernels(("axpy", "kmeans", "newton_raphson"))
@pytest.mark.parametrize("factor", [1.0, 2.0], ids=["the reference", "twice the reference"])
def test_the_error_in_fp64_is_told_from_what_is_no_rounding(case: Case, factor: float) -> None:
    """A run says so of a wrong reference, and raises no alarm where template and reference are right."""
    kernel = load_kernel(case.kernel)
    run = launcher(kernel, case.error_sizes, seed=9)
    trials = []
    for name in ("fp64", "fp32"):
        types = {p.name: name for p in kernel.parameters if isinstance(p, PrecisionParameter)}
        configuration = kernel.configuration({**types, **case.fixed})
        errors = {
            f"error.{name}": case.error(output, factor * run.data.references[name])
            for name, output in run.run(configuration).items()
        }
        metrics = {"time_ms": 1.0, "error": max(errors.values()), **errors}
        trials.append(Trial(configuration, Status.OK, "", Measurement(metrics)))
    info = RunInfo(kernel=kernel.name, sizes=dict(run.data.sizes), baseline_values=kernel.baseline_values())
    said = list(findings(Run(info, trials), kernel))
    assert len(said) == (0 if factor == 1 else len(kernel.outputs)), said


#: Of each kernel the bounds of its error in one narrow type throughout, in unit roundoffs, with sizes and values.
NARROW_ERRORS: Mapping[str, tuple[float, float, Mapping[str, int], Mapping[str, Any]]] = {
    # y is near 1 and rounded twice, when read and when written.
    "axpy": (0.2, 2, {}, {"vector_width": 2}),
    # Rounding moves an argument by 0.36 units on average, and I0 amplifies that x-fold, 6-fold on average.
    "bessel": (1.8, 3, {}, {}),
    # A handful of roundings of terms of about 110 dollars, of 0.4 units each, in prices of about 20.
    "black_scholes": (2, 8, {}, {}),
    # 289 roundings of a growing sum: more than one of the result's, less than if all of them had one direction.
    "convolution2d": (
        1,
        289 / 4,
        {"width": 61, "height": 47},
        {"vector_width": 8, "tile_size_x": 2, "tile_size_y": 4, "block_size_x": 16, "block_size_y": 4},
    ),
    "coulombic": (
        0.5,
        101 / 4,
        {"width": 37, "height": 11},
        {"block_size_x": 16, "block_size_y": 4, "tile_size_x": 8, "tile_size_y": 2},
    ),
    "gemm": (
        0.5,
        101 / 4,
        {"M": 61, "N": 47, "K": 101},
        {"MWG": 32, "NWG": 64, "KWG": 16, "MDIMC": 4, "NDIMC": 4, "MDIMA": 4, "NDIMB": 8, "VWM": 2, "VWN": 8}
        | {"STRM": True, "STRN": False},
    ),
    # Targets, positions and angles are rounded some ten times; where the arm is straighter the bend doubles that.
    "inverse_kinematics": (0.4, 2, {}, {}),
    # Fifteen rounded points, centres, differences and sums; most of it cancels in the mean of fifteen.
    "kmeans": (0.5, 2, {"n": 2003}, {"points_per_thread": 16}),
    # A distance of a third is off by up to a unit, and a term by ten; some ten terms make up a sum.
    "lavamd": (1, 10, {"boxes": 2}, {"block_size": 32, "tile_size": 8, "use_shared": True}),
    "mode_product": (
        0.1,
        40,
        {"rows": 3, "bands": 64, "filters": 5, "columns": 41},
        {"loop_order": (2, 0, 1), "tile_columns": 4, "tile_filters": 2},
    ),
    # k.r, up to 8 turns, and so an angle of up to 50 radians, is rounded several times; 101 such terms add up like
    # random ones, to about 10 times as much, against a mean of about 10.
    "mriq": (2, 30, {"side": 9}, {"block_size": 64, "tile_size": 8, "unroll": 2}),
    # The root moves by as much as pressure and temperature are rounded; the residual of the last step adds its own.
    "newton_raphson": (0.5, 2, {"n": 3001}, {"tile_size": 8}),
}
NARROW_TYPES = (("bf16", "accurate"), ("fp32", "fast"), ("fp16", "approx"), ("fp32", "accurate"), ("fp16", "accurate"))


@pytest.mark.parametrize(
    ("name", "precision", "policy"),
    [
        param
        for name in NARROW_ERRORS
        for param in few(
            [(name, *each) for each in (NARROW_TYPES if has_policy(name) else (*NARROW_TYPES[:1], *NARROW_TYPES[3:]))],
            full=2,
        )
    ],
)
def test_narrow_types_err_by_their_unit_roundoff(name: str, precision: str, policy: str) -> None:
    kernel = load_kernel(name)
    low, high, sizes, values = NARROW_ERRORS[name]
    run = launcher(kernel, sizes, seed=4)
    chosen = {"policy": policy} if has_policy(name) else {}
    outputs = run.run(kernel.configuration({**all_in(kernel, precision), **values, **chosen}))
    for output, found in outputs.items():
        error = by_kernel[name].error(found, run.data.references[output])
        assert low < error / PRECISIONS[precision].unit_roundoff < high


#: Of each kernel sizes that fit no block, tile or vector, each with values that have them; gemm has tests of its own.
AWKWARD_SIZES: Mapping[str, Sequence[tuple[Mapping[str, int], Mapping[str, Any]]]] = {
    "axpy": [
        ({"n": n}, {"vector_width": width, "block_size": 32}) for n, width in ((7, 8), (1, 8), (31, 1), (2049, 8))
    ],
    "bessel": [
        ({"n": n}, {"vector_width": width, "block_size": 64}) for n, width in ((31, 8), (1, 8), (64, 1), (2049, 8))
    ],
    "black_scholes": [
        ({"n": n}, {"vector_width": width, "block_size": 64}) for n, width in ((31, 8), (1, 8), (64, 1), (2049, 8))
    ],
    "convolution2d": [
        ({**sizes}, {**NARROW_ERRORS["convolution2d"][3], "use_shared": is_shared, "padding": int(is_shared)})
        for sizes, is_shared in (
            ({"width": 67, "height": 37, "filter_width": 2, "filter_height": 5}, True),
            ({"width": 1, "height": 1}, True),
            ({"width": 3, "height": 131}, False),
            ({"width": 3, "height": 131}, True),
            ({"width": 257, "height": 2}, True),
            ({"width": 257, "height": 2}, False),
            ({"width": 16, "height": 5, "filter_width": 1, "filter_height": 1}, False),
        )
    ],
    "coulombic": [
        ({"width": width, "height": height, "charges": charges}, {**NARROW_ERRORS["coulombic"][3], "tile_size_y": 4})
        for width, height, charges in ((3, 131, 2), (1, 1, 1), (257, 2, 11), (16, 5, 64))
    ],
    "inverse_kinematics": [
        ({"n": n}, {"tile_size": tile, "block_size": 32}) for n, tile in ((31, 2), (1, 1), (2, 2), (65, 1), (1021, 2))
    ],
    "kmeans": [
        *(
            ({**sizes}, {"points_per_thread": 16, "use_shared": is_shared})
            for sizes, is_shared in (
                ({"n": 31, "features": 3, "clusters": 41}, True),
                ({"n": 1}, False),
                ({"n": 7, "features": 1, "clusters": 1}, True),
                ({"n": 64}, False),
                ({"n": 1031, "features": 17, "clusters": 2}, True),
                ({"n": 1031, "features": 17, "clusters": 2}, False),
            )
        ),
        # A block moved back writes what its neighbour wrote: the sizes around a multiple of the block.
        *(({"n": n}, {"points_per_thread": 4, "block_size": 64}) for n in (2047, 2048, 2049)),
    ],
    "lavamd": [
        ({"boxes": boxes, "particles": particles}, {"block_size": 32, "tile_size": 2, "use_shared": is_shared})
        for boxes, particles, is_shared in ((3, 5, True), (1, 1, True), (1, 1, False), (2, 131, True), (2, 131, False))
    ],
    "mode_product": [
        (
            {"rows": rows, "bands": bands, "filters": filters, "columns": columns},
            {"block_size": 32, "tile_columns": 8, "tile_filters": 4, "tile_rows": 2, "loop_order": order},
        )
        for rows, bands, filters, columns, order in (
            (3, 2, 9, 5, (0, 1, 2)),
            (1, 1, 1, 1, (2, 1, 0)),
            (9, 28, 2, 65, (2, 1, 0)),
            (9, 28, 2, 65, (0, 1, 2)),
        )
    ],
    "mriq": [
        ({"side": side, "samples": samples}, {"block_size": 64, "tile_size": 16 // unroll, "unroll": unroll})
        for side, samples, unroll in ((3, 2, 1), (1, 1, 4), (5, 131, 1), (5, 131, 4))
    ],
    "newton_raphson": [
        ({"n": n}, {"tile_size": tile, "block_size": 64}) for n, tile in ((7, 8), (1, 4), (65, 8), (1021, 4))
    ],
}


@pytest.mark.parametrize(
    ("name", "sizes", "values"),
    [param for name, cases in AWKWARD_SIZES.items() for param in few([(name, *case) for case in cases], full=4)],
    ids=str,
)
def test_every_size(name: str, sizes: Mapping[str, int], values: Mapping[str, Any]) -> None:
    kernel = load_kernel(name)
    run = launcher(kernel, sizes, seed=7)
    outputs = run.run(kernel.configuration({**all_in(kernel, "fp64"), **values}))
    for output, found in outputs.items():
        np.testing.assert_allclose(found, run.data.references[output], **by_kernel[name].reference)
