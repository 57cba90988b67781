"""The parameters: the ranking finds what was put in, and says when it cannot."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import many_trials, run_of, trial, whole_space

from mptune.errors import PlotError
from mptune.plots import plot
from mptune.plots.parameters import effects_of, interaction_of
from mptune.results import Status

pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def texts(figure) -> str:
    parts = [*figure.subfigs, *(sub for part in figure.subfigs for sub in part.subfigs)]
    found = [part.get_suptitle() for part in parts] + [text.get_text() for part in parts for text in part.texts]
    return "\n".join(found)


@pytest.mark.full
def test_the_ranking_is_that_of_the_effects() -> None:
    effects = effects_of(whole_space())
    assert effects.importance is not None
    assert effects.importance.is_trusted
    assert effects.importance.names[0] == "block"
    assert effects.importance.names[-1] == "shared"
    assert (np.diff(effects.importance.means) <= 0).all()
    assert abs(effects.importance.means[-1]) < 0.05
    assert [p.name for p in effects.parameters] == list(effects.importance.names)
    assert effects.types == {"x_type", "y_type"}


@pytest.mark.usefixtures("quick_forest")
def test_times_are_multiples_of_the_best_by_value() -> None:
    run = whole_space()
    effects = effects_of(run)
    (block,) = (p for p in effects.parameters if p.name == "block")
    groups = effects.by_value(block)
    assert list(groups) == [32, 64, 128]
    fastest = min(t.time_ms for t in run.trials)
    expected = sorted(t.time_ms / fastest for t in run.trials if t.configuration["block"] == 64)
    assert sorted(groups[64]) == pytest.approx(expected)
    assert effects.relative.min() == 1.0
    figure = plot(run, "parameters")
    (axes,) = (axes for axes in figure.subfigs[1].axes if axes.get_title() == "block")
    (best,) = (line for line in axes.get_lines() if line.get_gid() == "best")
    assert best.get_ydata() == pytest.approx([group.min() for group in groups.values()])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["32", "64", "128"]


def test_the_map_has_the_best_of_every_pair_and_frames_the_best_of_a_row() -> None:
    trials = [
        trial(32, x_type="fp64", time_ms=4.0),
        trial(64, x_type="fp64", time_ms=8.0),
        trial(64, True, x_type="fp64", time_ms=6.0),
        trial(32, x_type="fp32", time_ms=5.0),
        trial(64, True, x_type="fp32", time_ms=2.0),
    ]
    effects = effects_of(run_of(trials))
    table = interaction_of(effects.parameters, effects.types, effects.trials, effects.relative, wide=False)
    assert table is not None
    assert table.rows == (("x_type", "fp64"), ("x_type", "fp32"))
    assert table.columns == (("block", 32), ("block", 64), ("shared", False), ("shared", True))
    np.testing.assert_array_equal(table.best, [[2.0, 3.0, 2.0, 3.0], [2.5, 1.0, 2.5, 1.0]])
    assert table.winners() == [(0, 0), (0, 2), (1, 1), (1, 3)]


def test_a_pair_nobody_measured_is_blank() -> None:
    effects = effects_of(run_of([trial(32, x_type="fp64", time_ms=4.0), trial(64, x_type="fp32", time_ms=2.0)]))
    table = interaction_of(effects.parameters, effects.types, effects.trials, effects.relative, wide=True)
    assert table is not None
    np.testing.assert_array_equal(table.best, [[2.0, np.nan], [np.nan, 1.0]])
    assert table.winners() == [(0, 0), (1, 1)]


@pytest.mark.usefixtures("quick_forest")
def test_of_many_parameters_the_most_important_are_drawn() -> None:
    figure = plot(many_trials(60, 24), "parameters", width="page")
    (bars,) = figure.subfigs[0].subfigs[0].axes
    names = [label.get_text() for label in bars.get_yticklabels()]
    assert len(names) == 20
    assert names[0] == "a_parameter_0"
    assert "4 less important ones left out" in texts(figure)
    # Without types, the most important parameter against the others.
    assert figure.subfigs[-1].axes[0].get_yticklabels()[0].get_text().startswith("a_parameter_0")


def test_too_few_trials_are_not_ranked() -> None:
    run = many_trials(29, 3)
    assert effects_of(run).importance is None
    assert "too few trials to rank the parameters:\n29 trials, at least 30 are needed" in texts(plot(run, "parameters"))


@pytest.mark.usefixtures("quick_forest")
def test_a_forest_that_knows_nothing_is_not_trusted() -> None:
    figure = plot(many_trials(40, 4, noise=1.0), "parameters")
    assert "the forest explains too little: no ranking" in texts(figure)


@pytest.mark.parametrize(
    ("trials", "message"),
    [
        ([trial(time_ms=1.0)], "no parameter has two values among 1 trial"),
        ([trial(status=Status.TIMEOUT)], "none of 1 trial ran to its end"),
        ([trial(time_ms=0.0), trial(64, time_ms=0.0)], "no trial has a positive time_ms"),
    ],
)
def test_nothing_to_compare_is_told(trials, message: str) -> None:
    with pytest.raises(PlotError, match=message):
        plot(run_of(trials), "parameters")
