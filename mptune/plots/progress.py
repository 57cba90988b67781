"""The best so far over the evaluations, and how every trial ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.plots import style
from mptune.plots.style import Look
from mptune.plots.subject import (
    Floats,
    baseline_of,
    judges,
    log_ticks,
    metric_axis,
    order_label,
    plain_ticks,
    set_scale,
    threshold_text,
    title_of,
    valid_trials,
)
from mptune.results import Trial
from mptune.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["best_so_far", "draw"]

_HEIGHTS_IN: Final = {"column": 2.7, "page": 3.4}
_BEST_LINE: Final = {"color": style.BLACK, "linewidth": 1.3, "zorder": 4}
_BASELINE_LINE: Final = {"color": style.GREEN, "linewidth": 1.1, "linestyle": (0, (5, 1.5, 1, 1.5)), "zorder": 3}
#: Trials without a number stand in rows above the others, each of this share of the height of the axes.
_ROW: Final = 0.07
_FAILED: Final = {"marker": "|", "s": 16, "color": style.BLACK, "linewidths": 0.7}
_NOT_TIMED: Final = {**style.INFEASIBLE, "s": 8}


def draw(run: Run, look: Look) -> Figure:
    """Draw the objective of each trial in the order of evaluation, the best feasible so far, and the baseline.

    Raises:
        PlotError: no trial ran to its end.
    """
    valid_trials(run)
    axis = metric_axis(run, run.objective.metric)
    values = axis.values(run, run.trials)
    feasible = np.array([run.objective.is_feasible(trial) for trial in run.trials])
    figure = style.new_figure(look, _HEIGHTS_IN[look.width])
    axes = figure.add_subplot()
    axes.grid(True)
    set_scale(axes, "y", axis, values)
    axes.set(xlabel=order_label(run), ylabel=axis.label)
    _draw_trials(axes, run.trials, values, feasible, judged=judges(run))
    best = best_so_far(values, feasible, minimise=run.objective.minimise)
    steps = _changes(best)
    axes.plot(steps + 1, best[steps], drawstyle="steps-post", label="best so far", gid="best so far", **_BEST_LINE)
    baseline = baseline_of(run)
    if baseline is not None:
        at = float(axis.values(run, [baseline])[0])
        axes.axhline(at, label="baseline", gid="baseline", **_BASELINE_LINE)
        if axis.metric == "time_ms":
            _add_speedups(axes, at)
    _whole_numbers(axes, len(run.trials))
    limits = threshold_text(run)
    style.write_title(figure, look, title_of(run, *([f"feasible:\u00a0{limits}"] if limits else [])))
    style.add_legend(figure, axes, columns=6 if look.is_wide else 3)
    return figure


def best_so_far(values: Floats, feasible: Any, *, minimise: bool) -> Floats:
    """Return the best feasible value after each evaluation, NaN while there is none, shape ``(n_trials,)``."""
    best = np.fmin if minimise else np.fmax
    return np.asarray(best.accumulate(np.where(feasible, values, np.nan)), dtype=np.float64)


def _changes(best: Floats) -> NDArray[np.intp]:
    """Return the points at which the best changes, and the last one; others would only make the file larger."""
    differs = np.append(True, best[1:] != best[:-1])
    return np.flatnonzero(differs | (np.arange(len(best)) == len(best) - 1))


def _draw_trials(axes: Any, trials: tuple[Trial, ...], values: Floats, feasible: Any, *, judged: bool) -> None:
    evaluations = np.arange(1, len(trials) + 1)
    known = np.isfinite(values)
    valid = np.array([trial.is_valid for trial in trials])
    raster, size = len(trials) > style.MANY_POINTS, style.point_size(len(trials))
    for label, mask, look in (
        ("feasible" if judged else "configuration", feasible & known, style.POINT),
        ("infeasible", valid & ~feasible & known, style.INFEASIBLE),
    ):
        if mask.any():
            axes.scatter(evaluations[mask], values[mask], label=label, s=size, rasterized=raster, zorder=2, **look)
    rows = (("infeasible, not timed", valid & ~known, _NOT_TIMED), ("failed", ~valid, _FAILED))
    drawn = [row for row in rows if row[1].any()]
    _make_room_above(axes, _ROW * len(drawn))
    for number, (label, mask, look) in enumerate(drawn):
        at = np.full(int(mask.sum()), 1.0 - _ROW * (number + 0.5))
        axes.scatter(
            evaluations[mask], at, label=label, transform=axes.get_xaxis_transform(),
            rasterized=raster, **look,
        )  # fmt: skip


def _make_room_above(axes: Any, share: float) -> None:
    """Let the numbers leave a share of the height free."""
    scale = axes.yaxis.get_transform()
    bottom, top = scale.transform(np.array(axes.get_ylim()))
    axes.set_ylim(*scale.inverted().transform(np.array([bottom, bottom + (top - bottom) / (1.0 - share)])))


def _add_speedups(axes: Any, baseline: float) -> None:
    """Give the right side the speedups that belong to the times on the left."""

    def turned(values: Any) -> Any:
        with np.errstate(divide="ignore", invalid="ignore"):
            return baseline / np.asarray(values, dtype=np.float64)

    side = axes.secondary_yaxis("right", functions=(turned, turned))
    side.set_ylabel("speedup over the baseline")
    plain_ticks(side.yaxis, log_ticks(*axes.get_ylim()) if axes.get_yscale() == "log" else None)
    side.spines["right"].set_visible(True)


def _whole_numbers(axes: Any, evaluations: int) -> None:
    from matplotlib import ticker

    axes.xaxis.set_major_locator(ticker.MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    margin = max(0.5, 0.02 * evaluations)
    axes.set_xlim(1 - margin, evaluations + margin)
