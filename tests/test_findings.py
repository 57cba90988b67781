"""What a run has to say beside its winner: the baseline's error, and failures that have a value in common."""

from __future__ import annotations

import dataclasses
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mptune.kernel import Kernel
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.space.parameters import PrecisionParameter
from mptune.store import RunInfo
from mptune.tuning import TuneSettings, tune
from mptune.tuning.findings import fall_short, findings

OWN = load_kernel(Path(__file__).with_name("own_kernel.py"))
U = 2.0**-53


def trial(error: float = 0.0, status: Status = Status.OK, **values: Any) -> Trial:
    metrics = {"time_ms": 1.0, "error": error, "error.y": error} if status.is_valid else {}
    return Trial(OWN.configuration(values), status, "", Measurement(metrics))


def typed(name: str, error: float, **more: Any) -> Trial:
    return trial(error, x_type=name, y_type=name, **more)


def said(*trials: Trial, kernel: Kernel = OWN) -> list[str]:
    info = RunInfo(kernel="poly", sizes={"n": 5003}, baseline_values=kernel.baseline_values())
    return list(findings(Run(info, trials), kernel))


# -- the baseline ----------------------------------------------------------------------------------------


def test_that_no_baseline_is_right_is_said() -> None:
    info = RunInfo(sizes={"n": 5003}, baseline_values=OWN.baseline_values(), objective=Objective(threshold=1e-4))
    wrong = [typed("fp64", 0.5, status=Status.INACCURATE, unroll=unroll) for unroll in (1, 2)]
    found = list(findings(Run(info, [*wrong, typed("fp32", 1e-6)]), OWN))
    assert any("no speedup is known: none of the 2 configurations of the widest types" in line for line in found)
    for trials in (wrong, [*wrong, typed("fp32", 1e-6), typed("fp64", 1e-16, unroll=4)]):
        assert not any("no speedup" in line for line in findings(Run(info, trials), OWN))


def test_that_the_widest_types_fall_short_is_said_instead() -> None:
    """Where more exact ones alone meet the threshold, a larger budget finds no baseline either."""
    info = RunInfo(sizes={"n": 5003}, baseline_values=OWN.baseline_values(), objective=Objective(threshold=1e-12))
    wide = [typed("fp64", error, status=Status.INACCURATE, unroll=n) for error, n in ((3e-11, 1), (2e-11, 2))]
    exact = Trial(
        Configuration({**OWN.configuration({"x_type": "fp64"}), "y_type": "fp64_neumaier"}),
        Status.OK, "", Measurement({"time_ms": 3.0, "error": 0.0, "error.y": 0.0}),
    )  # fmt: skip
    narrow = typed("fp32", 1e-13)
    assert fall_short(Run(info, [*wide, exact])) == wide
    for trials in (wide, [wide[0], exact], [*wide, exact, narrow], [*wide, exact, typed("fp64", 1e-14, unroll=4)]):
        assert fall_short(Run(info, trials)) == []
    (line,) = [line for line in findings(Run(info, [*wide, exact]), OWN) if "no speedup" in line]
    assert "none of the 2 configurations" in line
    assert "2e-11 at least), only more exact types do" in line
    assert line.endswith("the best takes 3 times as long as the fastest of them")


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (0.0, 0.0),
        (U, 2.0**-24),
        (1e3 * U, 1e3 * 2.0**-24),
        (100 * U, 2.0**-24),
        # Badly conditioned: nothing is left of fp32.
        (1e8 * U, 0.9),
        (U, 0.0),
        # All data are exact in fp32: what is left are the roundings of a sum.
        (1000 * U, 1000 * U),
    ],
)
def test_rounding_is_no_news(wide: float, narrow: float) -> None:
    assert said(typed("fp64", wide), typed("fp32", narrow)) == []


@pytest.mark.parametrize(("wide", "narrow"), [(0.5, 0.5), (0.5, 0.50002), (1e-6, 1.1e-6), (1e-9, 1e-7), (3e-8, 1e-7)])
def test_an_error_that_hardly_depends_on_the_type_is_told(wide: float, narrow: float) -> None:
    (warning,) = said(typed("fp64", wide), typed("fp32", narrow), typed("fp16", 0.6, block=64))
    assert warning.startswith(
        f"the baseline's error, {wide:.3g}, is more than rounding in fp64 explains: in fp32 it is"
    )
    assert "\n" not in warning


def test_it_takes_a_narrower_type_that_was_measured() -> None:
    assert said(typed("fp64", 0.5)) == []
    assert said(typed("fp64", 0.5), trial(0.5, x_type="fp64", y_type="fp32")) == []
    assert len(said(typed("fp64", 0.5), typed("fp16", 0.5))) == 1


@pytest.mark.full
def test_a_doubled_reference_is_told_by_a_run(tmp_path: Path) -> None:
    """Without a threshold anything is accurate enough."""
    settings = TuneSettings(backend="host", size="smoke", budget=8, strategy="random")
    doubled = dataclasses.replace(OWN, reference=lambda inputs, size: 2 * OWN.reference(inputs, size))  # type: ignore[misc]
    told: list[str] = []
    run = tune(doubled, settings, on_warning=told.append, output=tmp_path / "run.db")
    (warning,) = [line for line in told if "the baseline's error" in line]
    assert warning in Run.load(tmp_path / "run.db").warnings
    assert run.best is not None
    told.clear()
    tune(OWN, settings, on_warning=told.append)
    assert not [line for line in told if "the baseline's error" in line]


# -- vectors ---------------------------------------------------------------------------------------------


def computed(wide: float | None, narrow: float | None) -> list[str]:
    """Return what is said of a baseline and a best with these shares of vectors."""
    trials = []
    for name, share, time_ms in (("fp64", wide, 2.0), ("fp32", narrow, 1.0)):
        one = typed(name, U if name == "fp64" else 2.0**-24)
        known = {} if share is None else {"vector_share": share}
        metrics = {**one.measurement.metrics, "time_ms": time_ms, **known}
        trials.append(dataclasses.replace(one, measurement=Measurement(metrics)))
    info = RunInfo(kernel="poly", sizes={"n": 5003}, baseline_values=OWN.baseline_values())
    return list(findings(Run(info, trials), OWN))


@pytest.mark.parametrize("share", [0.5, 1.0, None])
def test_vectors_are_no_news(share: float | None) -> None:
    assert computed(share, share) == []


@pytest.mark.parametrize(
    ("wide", "narrow", "which"),
    [
        (0.0, 1.0, "baseline, which computes"),
        (1.0, 0.0, "best, which computes"),
        (0.0, 0.0, "best and the baseline, which compute"),
    ],
)
def test_arithmetic_on_one_number_at_a_time_is_told(wide: float, narrow: float, which: str) -> None:
    (warning,) = computed(wide, narrow)
    assert warning.startswith(f"the compiler made no vectors of the arithmetic of the {which} one number at a time")


@pytest.mark.full
def test_a_run_tells_of_a_loop_that_cannot_be_vectorised() -> None:
    """Each number depends on the one before it."""
    kernel = dataclasses.replace(
        OWN,
        parameters=[PrecisionParameter("x_type", ["fp64", "fp32"]), PrecisionParameter("y_type", ["fp64", "fp32"])],
        template="""
extern "C" __global__ void poly({{ y_type }}* y, const {{ x_type }}* x, int n) {
    if (threadIdx.x + blockIdx.x > 0) return;
    {{ x_type }} p = 1;
    for (int i = 0; i < n; ++i) y[i] = p = p / (x[i] + p);
}
""",
        grid=["1"],
        block=["32"],
        reference=lambda inputs, size: np.array(
            list(accumulate(inputs["x"], lambda p, x: p / (x + p), initial=1.0))[1:]
        ),
    )
    settings = TuneSettings(backend="host", size="smoke", budget=4, strategy="random")
    told: list[str] = []
    run = tune(kernel, settings, on_warning=told.append)
    assert [line for line in told if "made no vectors of the arithmetic of the best" in line]
    assert {trial.metric("vector_share") for trial in run.trials} == {0.0}
    told.clear()
    vectorised = tune(OWN, settings, on_warning=told.append)
    assert any(trial.metric("vector_share") > 0 for trial in vectorised.trials)
    assert not [line for line in told if "made no vectors" in line]


# -- failures --------------------------------------------------------------------------------------------

BLOCKS = (32, 64, 128, 256)


def crashes(*where: dict[str, Any]) -> list[str]:
    configurations = [{"block": block, "unroll": unroll} for block in BLOCKS for unroll in (1, 2, 4)]
    failed = [c for c in configurations if any(all(c[n] == v for n, v in one.items()) for one in where)]
    return said(*(trial(status=Status.CRASH if c in failed else Status.OK, **c) for c in configurations))


def test_a_value_that_all_failures_have_is_named() -> None:
    (warning,) = crashes({"block": 128})
    assert warning.startswith("all 3 configurations that ended as crash have block=128, and none of the 9 others has:")
    (warning,) = crashes({"unroll": 4})
    assert "have unroll=4, and none" in warning


def test_nobody_is_blamed_without_evidence() -> None:
    assert crashes() == []
    assert crashes({"block": 128, "unroll": 1}, {"block": 64, "unroll": 2}) == []
    # Two failures of one value: chance.
    assert said(trial(status=Status.CRASH, block=64), trial(status=Status.CRASH, block=64, unroll=2), trial()) == []
    # All of them failed: nothing is known of other values.
    assert said(*(trial(status=Status.CRASH, block=64, unroll=u) for u in (1, 2, 4))) == []


def test_an_overflow_of_a_narrow_type_is_no_mistake() -> None:
    narrow = [trial(status=Status.NON_FINITE, x_type="fp16", block=block) for block in BLOCKS]
    wide = [trial(x_type="fp64", block=block) for block in BLOCKS]
    assert said(*narrow, *wide) == []
    assert len(said(*(dataclasses.replace(one, status=Status.CORRUPT) for one in narrow), *wide)) == 1


def test_wrong_configurations_of_the_widest_types_are_a_mistake_too() -> None:
    wrong = [trial(0.5, Status.INACCURATE, block=64, unroll=unroll) for unroll in (1, 2, 4)]
    right = [trial(U, block=block, unroll=unroll) for block in (32, 128) for unroll in (1, 2, 4)]
    (warning,) = said(*wrong, *right)
    assert warning.startswith("all 3 configurations of the widest types whose error is too large have block=64")
