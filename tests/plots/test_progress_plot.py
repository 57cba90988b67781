"""The progress: the best so far is the best so far, and every trial is somewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from synthetic import run_of, trial

from mptune.plots import plot
from mptune.plots.progress import best_so_far
from mptune.results import Status

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

TRIALS = [
    trial(status=Status.COMPILE_ERROR),
    trial(64, time_ms=8.0, error=1e-16),
    trial(64, x_type="fp16", time_ms=1.0, error=1e-2, status=Status.INACCURATE),
    trial(128, x_type="fp16", error=1e-2, status=Status.INACCURATE),
    trial(128, time_ms=5.0, error=1e-16),
    trial(32, x_type="fp32", time_ms=6.0, error=1e-7),
    trial(128, x_type="fp32", time_ms=2.0, error=1e-7),
]


def offsets(axes, label):
    (found,) = (c for c in axes.collections if c.get_label() == label)
    return np.asarray(found.get_offsets()).tolist()


def test_every_trial_is_drawn_by_how_it_ended() -> None:
    figure = plot(run_of(TRIALS), "progress")
    axes = figure.axes[0]
    assert offsets(axes, "feasible") == [[2, 8.0], [5, 5.0], [6, 6.0], [7, 2.0]]
    assert offsets(axes, "infeasible") == [[3, 1.0]]
    (not_timed,), (failed,) = offsets(axes, "infeasible, not timed"), offsets(axes, "failed")
    assert (not_timed[0], failed[0]) == (4, 1)
    # Rows of their own, in shares of the height.
    assert 0.5 < failed[1] < not_timed[1] < 1.0
    (best,) = (line for line in axes.get_lines() if line.get_gid() == "best so far")
    assert best.get_drawstyle() == "steps-post"
    drawn = dict(zip(best.get_xdata().tolist(), best.get_ydata().tolist(), strict=True))
    assert {x: y for x, y in drawn.items() if y == y} == {2: 8.0, 5: 5.0, 7: 2.0}
    (baseline,) = (line for line in axes.get_lines() if line.get_gid() == "baseline")
    assert list(baseline.get_ydata()) == [5.0, 5.0]
    assert axes.get_ylabel() == "time (ms)"
    assert "error ≤ 0.0001" in figure.get_suptitle().replace("\u00a0", " ")


def test_the_right_side_has_the_speedups_of_the_left() -> None:
    figure = plot(run_of(TRIALS), "progress")
    figure.draw_without_rendering()
    (side,) = figure.axes[0].child_axes
    assert side.get_ylabel() == "speedup over the baseline"
    assert sorted(side.get_ylim()) == pytest.approx(sorted(5.0 / time_ms for time_ms in figure.axes[0].get_ylim()))


def test_best_so_far_of_either_direction() -> None:
    values = np.array([math.nan, 3.0, 1.0, 4.0, 2.0])
    feasible = np.array([False, True, False, True, True])
    assert best_so_far(values, feasible, minimise=True)[1:].tolist() == [3.0, 3.0, 3.0, 2.0]
    assert best_so_far(values, feasible, minimise=False)[1:].tolist() == [3.0, 3.0, 4.0, 4.0]
    assert math.isnan(best_so_far(values, feasible, minimise=True)[0])


@pytest.mark.parametrize("trials", [TRIALS[1:2], TRIALS[2:3], TRIALS[:4]])
def test_one_trial_or_no_feasible_one_is_a_picture(trials) -> None:
    figure = plot(run_of(trials, baseline_values={}), "progress")
    figure.draw_without_rendering()
    feasible = sum(t.status is Status.OK for t in trials)
    labels = {c.get_label() for c in figure.axes[0].collections}
    assert ("feasible" in labels) == bool(feasible)
    assert all(float(tick).is_integer() for tick in figure.axes[0].get_xticks())
