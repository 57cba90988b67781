"""The sensitivity of a winner: a bar for what every other type gains or loses, and what is not known says so."""

from __future__ import annotations

import math

import pytest
from synthetic import run_of, trial, whole_space

from mptune.errors import PlotError
from mptune.plots import plot
from mptune.results import Status
from mptune.run import Run

pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def bars(run: Run) -> tuple[list[float], list[float]]:
    """Return the digits and the speeds that are drawn, from top to bottom."""
    left, right = plot(run, "sensitivity").axes
    in_order = sorted(left.patches, key=lambda bar: bar.get_y())
    return [bar.get_width() for bar in in_order], [bar.get_x() + bar.get_width() for bar in right.patches]


def test_every_type_has_its_digits_and_its_speed() -> None:
    """With x in fp32 and y in fp32 the winner is at 1e-7; errors and times are those of the synthetic run."""
    trials = [
        trial(time_ms=1.0, error=1e-7, x_type="fp32", y_type="fp32"),
        trial(time_ms=1.25, error=1e-8, x_type="fp64", y_type="fp32"),
        trial(time_ms=0.8, error=1e-3, x_type="fp16", y_type="fp32", status=Status.INACCURATE),
        trial(time_ms=2.0, error=1e-7, x_type="fp32", y_type="fp64"),
        trial(time_ms=0.5, error=1e-2, x_type="fp32", y_type="fp16", status=Status.INACCURATE),
    ]
    digits, speeds = bars(run_of(trials))
    assert digits == pytest.approx([1, -4, 0, -5])
    assert speeds == pytest.approx([0.8, 1.25, 0.5, 2.0])
    left, right = plot(run_of(trials), "sensitivity").axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["fp64", "fp16", "fp64", "fp16"]
    names = [text.get_text() for text in left.texts]
    assert set(names) == {"x_type (winner: fp32)", "y_type (winner: fp32)"}
    # Three digits may be lost: the winner is at 1e-7 and the limit 1e-4.
    limit = next(line for line in left.lines if line.get_gid() == "error limit")
    assert limit.get_xdata()[0] == pytest.approx(-3)
    assert right.get_xscale() == "log"


def test_what_is_not_known_says_so() -> None:
    failed = trial(x_type="fp64", y_type="fp32", status=Status.LAUNCH_ERROR)
    untimed = trial(error=1e-3, x_type="fp16", y_type="fp32", status=Status.INACCURATE)
    figure = plot(
        run_of([trial(time_ms=1.0, error=1e-7, x_type="fp32", y_type="fp32"), failed, untimed]), "sensitivity"
    )
    texts = [text.get_text() for text in figure.axes[1].texts]
    assert texts == ["launch error", "not timed", "not measured", "not measured"]
    assert "3 changes not measured" in figure.get_suptitle()


def test_limits_are_drawn_on_the_draws_of_their_own_bar() -> None:
    """The winner's error is 1e-5 on 15 draws; on the first, which the others ran on, it is 1e-6."""
    winner = trial(time_ms=1.0, error=1e-5, error_draws=15, error_first_draw=1e-6, x_type="fp32", y_type="fp32")
    narrow = trial(time_ms=1.5, error=5e-5, x_type="fp16", y_type="fp32")
    wide = trial(time_ms=2.0, error=1e-6, error_draws=15, error_first_draw=1e-7, x_type="fp64", y_type="fp32")
    left = plot(run_of([winner, narrow]), "sensitivity").axes[0]
    bar = next(bar for bar in left.patches if bar.get_width())
    (limit,) = (line.get_xdata()[0] for line in left.lines if line.get_gid() == "error limit")
    assert limit == pytest.approx(-2)
    assert bar.get_width() == pytest.approx(math.log10(1e-6 / 5e-5))
    assert bar.get_width() > limit
    # Bars on different draws have a limit each.
    left = plot(run_of([winner, narrow, wide]), "sensitivity").axes[0]
    (marks,) = (lines for lines in left.collections if lines.get_gid() == "error limit")
    assert sorted(segment[0][0] for segment in marks.get_segments()) == pytest.approx([-2, -1])


def test_runs_without_anything_to_draw() -> None:
    alone = run_of([trial(time_ms=1.0, error=1e-7)])
    with pytest.raises(PlotError, match="neighbours was measured"):
        plot(alone, "sensitivity")
    untyped = run_of([trial(time_ms=1.0, error=1e-7)], parameters=[], baseline_values={}, signature=[])
    with pytest.raises(PlotError, match="no parameter of several values"):
        plot(untyped, "sensitivity")
    with pytest.raises(PlotError, match="there is nothing to explain"):
        plot(run_of([trial(status=Status.CRASH)]), "sensitivity")
    assert plot(whole_space(threshold=1e-30), "sensitivity").get_suptitle().count("closest") == 1
