"""What a run has to say beside its winner: the baseline's error, and failures that have a value in common."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from mptune.kernel import Kernel
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.store import RunInfo
from mptune.tuning import TuneSettings, tune
from mptune.tuning.findings import findings

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


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (U, 2.0**-24),
        # Badly conditioned: nothing is left of fp32.
        (1e8 * U, 0.9),
        # All data are exact in fp32: what is left are the roundings of a sum.
        (1000 * U, 1000 * U),
    ],
)
def test_rounding_is_no_news(wide: float, narrow: float) -> None:
    assert said(typed("fp64", wide), typed("fp32", narrow)) == []


@pytest.mark.parametrize(("wide", "narrow"), [(0.5, 0.5), (1e-9, 1e-7)])
def test_an_error_that_hardly_depends_on_the_type_is_told(wide: float, narrow: float) -> None:
    (warning,) = said(typed("fp64", wide), typed("fp32", narrow), typed("fp16", 0.6, block=64))
    assert warning.startswith(
        f"the baseline's error, {wide:.3g}, is more than rounding in fp64 explains: in fp32 it is"
    )
    assert "\n" not in warning


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
