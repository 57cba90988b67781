"""What holds for every bundled kernel: its types decide how far it errs, and nothing else changes its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from launching import covering_sample, launcher, mre, nmae, nrmse
from numpy.typing import NDArray

from mptune.precision import PRECISIONS
from mptune.registry import bundled_kernels, load_kernel
from mptune.results import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.parameters import PrecisionParameter
from mptune.store import RunInfo
from mptune.tuner.findings import findings
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


def kernels(fast: tuple[str, ...]) -> pytest.MarkDecorator:
    """Return the marks of a test of every kernel, of which some are in the fast tier."""
    order = [*fast, *(name for name in by_kernel if name not in fast)]
    return pytest.mark.parametrize("case", few([by_kernel[name] for name in order], len(fast)), ids=lambda c: c.kernel)


def test_there_is_a_case_for_every_kernel() -> None:
    assert [case.kernel for case in CASES] == sorted(bundled_kernels())


@kernels(("axpy",))
@pytest.mark.parametrize("types", few(["fp64", "mixed"]))
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


@kernels(("coulombic",))
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
