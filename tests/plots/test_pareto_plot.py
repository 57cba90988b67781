"""The front: what is drawn is what the run holds, wherever the numbers lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from synthetic import run_of, trial, whole_space

from mptune.errors import MptuneError, PlotError, UnknownNameError
from mptune.plots import plot
from mptune.plots.pareto import spread
from mptune.results import Status, Trial

pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def points(figure: Any, label: str) -> set[tuple[float, float]]:
    """Return the places of a group of markers."""
    (axes,) = figure.axes
    found = [c for c in axes.collections if c.get_label() == label]
    return {(float(x), float(y)) for c in found for x, y in np.asarray(c.get_offsets())}


def line(figure: Any, gid: str) -> Any:
    (found,) = (line for line in figure.axes[0].get_lines() if line.get_gid() == gid)
    return found


def places(run: Any, trials: Sequence[Trial]) -> set[tuple[float, float]]:
    return {(t.error, run.speedup(t)) for t in trials}


def test_every_configuration_is_where_its_error_and_speedup_are() -> None:
    run = whole_space()
    figure = plot(run)
    feasible = [t for t in run.trials if t.error <= 1e-4]
    assert points(figure, "feasible") == places(run, feasible)
    assert points(figure, "infeasible") == places(run, [t for t in run.trials if t.error > 1e-4])
    assert len(feasible) == 24
    assert points(figure, "best") == places(run, [run.best])
    assert points(figure, "baseline") == places(run, [run.baseline])
    (threshold,) = (entry for entry in figure.axes[0].get_lines() if entry.get_label() == "threshold 0.0001")
    assert list(threshold.get_xdata()) == [1e-4, 1e-4]
    assert figure.axes[0].get_xscale() == "log"
    assert figure.axes[0].get_yscale() == "linear"
    assert figure.axes[0].get_xlabel() == "error (NRMSE)"
    assert figure.axes[0].get_ylabel() == "speedup over the fp64 baseline"


def test_errors_on_unequal_numbers_of_draws_are_told() -> None:
    few = trial(time_ms=1.0, error=1e-7, error_draws=3, memory_bytes=4.0, x_type="fp32", y_type="fp32")
    many = trial(time_ms=2.0, error=2e-7, error_draws=15, memory_bytes=8.0)
    said = "errors are the worst of 3 to 15 draws of the inputs"
    assert said in plot(run_of([few, many]), "pareto").get_suptitle().replace("\n", " ")
    assert said not in plot(run_of([few, few]), "pareto").get_suptitle()
    assert said not in plot(run_of([few, many]), "pareto", metrics=("time_ms", "memory_bytes")).get_suptitle()


def test_the_front_is_a_staircase_of_one_type_and_mixtures() -> None:
    run = whole_space()
    figure = plot(run)
    front = run.pareto(("speedup", "error"))
    assert len(front) >= 4
    stairs = line(figure, "front")
    assert set(zip(stairs.get_xdata(), stairs.get_ydata(), strict=True)) == places(run, front)
    assert (np.diff(stairs.get_xdata()) >= 0).all()
    assert stairs.get_drawstyle() == "steps-post"
    one_type = [t for t in front if t.configuration["x_type"] == t.configuration["y_type"]]
    assert 0 < len(one_type) < len(front)
    assert points(figure, "front, same type everywhere") == places(run, one_type)
    assert points(figure, "front, several types") == places(run, [t for t in front if t not in one_type])


def test_lines_stand_where_one_precision_serves_everything() -> None:
    figure = plot(whole_space())
    levels = {name: list(line(figure, f"level {name}").get_xdata()) for name in ("fp64", "fp32", "fp16")}
    assert levels == {"fp64": [1e-16] * 2, "fp32": [1e-7] * 2, "fp16": [1e-3] * 2}
    assert {text.get_text() for text in figure.axes[0].texts} == {"fp64", "fp32", "fp16"}


def test_spreading_moves_no_more_than_it_must() -> None:
    assert spread(np.array([0.0, 10.0, 50.0]), 8.0).tolist() == [0.0, 10.0, 50.0]
    assert spread(np.array([10.0, 10.0, 12.0]), 3.0) == pytest.approx([32 / 3 - 3, 32 / 3, 32 / 3 + 3])
    assert spread(np.array([0.0, 7.0, 9.0]), 4.0) == pytest.approx([4 / 3 * 4 - 16 / 3, 6.0, 10.0])
    assert spread(np.array([]), 4.0).size == 0


def test_an_error_of_zero_has_a_place_and_a_tick() -> None:
    errors = {"fp64": 0.0, "fp32": 1e-7, "fp16": 1e-3}
    run = run_of([trial(x_type=t, y_type=t, time_ms=2.0, error=error) for t, error in errors.items()])
    figure = plot(run)
    axes = figure.axes[0]
    assert axes.get_xscale() == "symlog"
    assert points(figure, "baseline") == {(0.0, 1.0)}
    assert 0.0 in axes.get_xticks()
    low, high = axes.get_xlim()
    assert low < 0.0 < 1e-3 < high


def test_any_two_metrics_with_their_units() -> None:
    run = whole_space()
    figure = plot(run, metrics=("memory_bytes", "time_ms"))
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time (ms)", "memory (MB)")
    drawn = points(figure, "feasible") | points(figure, "infeasible")
    assert drawn == {(t.time_ms, t.metric("memory_bytes") * 1e-6) for t in run.trials}
    assert not [entry for entry in axes.get_lines() if str(entry.get_gid()).startswith("level")]
    flipped = plot(run, metrics=("error", "time_ms")).axes[0]
    assert flipped.get_yscale() == "log"
    (level,) = (entry for entry in flipped.get_lines() if entry.get_gid() == "level fp32")
    assert list(level.get_ydata()) == [1e-7, 1e-7]


def test_without_a_baseline_the_time_is_drawn_and_without_a_threshold_nothing_is_infeasible() -> None:
    trials = [trial(time_ms=2.0, error=1e-7), trial(64, time_ms=1.0, error=1e-3)]
    figure = plot(run_of(trials, threshold=None, baseline_values={}))
    assert figure.axes[0].get_ylabel() == "time (ms)"
    assert points(figure, "configuration") == {(1e-7, 2.0), (1e-3, 1.0)}
    assert not points(figure, "infeasible")
    assert not points(figure, "baseline")


def test_another_threshold_can_be_looked_at() -> None:
    figure = plot(whole_space(), max_error=1e-12)
    assert len(points(figure, "feasible")) == 6
    with pytest.raises(MptuneError, match="positive"):
        plot(whole_space(), max_error=-1.0)


def test_thresholds_by_output_judge_but_have_no_line() -> None:
    trials = [
        trial(time_ms=2.0, error=1e-7, **{"error.y": 1e-7}),
        trial(64, time_ms=1.0, error=1e-3, **{"error.y": 1e-3}),
    ]
    figure = plot(run_of(trials, threshold={"y": 1e-5}))
    assert points(figure, "infeasible") == {(1e-3, 2.0)}
    assert not [entry for entry in figure.axes[0].get_lines() if "threshold" in str(entry.get_label())]


def test_what_is_not_drawn_is_counted_in_the_title() -> None:
    trials = [
        trial(time_ms=2.0, error=1e-7),
        trial(64, time_ms=1.0, error=math.inf, status=Status.INACCURATE),
        trial(128, time_ms=1.0, error=math.nan, status=Status.INACCURATE),
        trial(32, True, status=Status.CRASH),
    ]
    figure = plot(run_of(trials))
    title = " ".join(figure.get_suptitle().split())
    assert title == "axpy on a processor: 4 configurations; 1 failed; 2 without finite numbers"
    assert points(figure, "feasible") == {(1e-7, 1.0)}
    assert plot(run_of(trials), title=False).get_suptitle() == ""


@pytest.mark.parametrize(
    ("trials", "options", "message"),
    [
        ([], {}, "has no trial yet"),
        ([trial(status=Status.CRASH)], {}, r"none of 1 trial ran to its end.*crash 1"),
        ([trial(time_ms=1.0, memory_bytes=3.0)], {}, r"no trial has a finite error.*time_ms, memory_bytes"),
        ([trial(time_ms=1.0)], {"max_error": 1e-3}, r"can be judged by --max-error \(metrics: time_ms\)"),
        ([trial(time_ms=1.0, error=1e-7)], {"metrics": ("time_ms",)}, "two metrics, not 1"),
        ([trial(time_ms=1.0, error=1e-7)], {"kind": "paretto"}, "did you mean 'pareto'"),
    ],
)
def test_mistakes_are_told(trials: list[Trial], options: dict[str, Any], message: str) -> None:
    with pytest.raises((PlotError, UnknownNameError, MptuneError), match=message):
        plot(run_of(trials), **options)
