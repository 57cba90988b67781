"""Every configuration in two metrics, and the front: what each digit given up buys (Heldens 2026, Fig. 2)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import PlotError
from mptune.interop import parameters_of
from mptune.plots import style
from mptune.plots.style import Look
from mptune.plots.subject import Floats, MetricAxis, baseline_of, judges, metric_axis, set_scale, title_of, valid_trials
from mptune.results import Trial
from mptune.run import Run
from mptune.space.configuration import Configuration, Value
from mptune.space.parameters import uniform_types
from mptune.unseen import unequal_draws

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw", "draw_level_lines", "spread"]

_LINE: Final = {"color": "#606060", "linewidth": 0.7, "linestyle": (0, (1, 1.2)), "zorder": 1.5}
_FONT_POINTS: Final = 6.5
#: Room a name takes across its line, in points.
_ROOM_POINTS: Final = 8.5
_DISTANCE_POINTS: Final = 9.0
_POINTS_PER_INCH: Final = 72.0


def draw_level_lines(figure: Any, axes: Any, x: MetricAxis, y: MetricAxis, levels: Mapping[str, float]) -> None:
    """Draw a line at each level (an error by name) on the axis that shows errors, with its name beside the axes.

    Everything else is drawn already: how wide the axes are decides where the names go.
    """
    upright = x.is_error
    if not (upright or y.is_error) or not levels:
        return
    levels = dict(sorted(levels.items(), key=lambda item: item[1]))
    for name, level in levels.items():
        (axes.axvline if upright else axes.axhline)(level, gid=f"level {name}", **_LINE)
    written = [_write(axes, name, level, upright) for name, level in levels.items()]
    # The names have to take their room before it is known how wide the axes are.
    figure.draw_without_rendering()
    ends = np.array([[level, 0.0] if upright else [0.0, level] for level in levels.values()])
    at = axes.transData.transform(ends)[:, 0 if upright else 1] * _POINTS_PER_INCH / figure.dpi
    for text, shift in zip(written, spread(at, _ROOM_POINTS) - at, strict=True):
        text.set_position((shift, _DISTANCE_POINTS) if upright else (_DISTANCE_POINTS, shift))


def spread(positions: Floats, room: float) -> Floats:
    """Return ascending positions, shape ``(n,)``, moved as little as needed so that neighbours are ``room`` apart."""
    groups: list[tuple[float, int]] = []
    for position in positions.tolist():
        groups.append((position, 1))
        # A group stands around the mean of its members; one that reaches into another becomes one with it.
        while len(groups) > 1 and groups[-1][0] - groups[-2][0] < room * (groups[-1][1] + groups[-2][1]) / 2:
            (right, more), (left, fewer) = groups.pop(), groups.pop()
            groups.append(((right * more + left * fewer) / (more + fewer), more + fewer))
    return np.array([middle + room * (i - (n - 1) / 2) for middle, n in groups for i in range(n)], dtype=np.float64)


def _write(axes: Any, name: str, level: float, upright: bool) -> Any:
    return axes.annotate(
        name,
        xy=(level, 1.0) if upright else (1.0, level),
        xycoords=("data", "axes fraction") if upright else ("axes fraction", "data"),
        xytext=(0.0, _DISTANCE_POINTS) if upright else (_DISTANCE_POINTS, 0.0),
        textcoords="offset points",
        rotation=90 if upright else 0,
        ha="center" if upright else "left",
        va="bottom" if upright else "center",
        fontsize=_FONT_POINTS,
        color="#303030",
        arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": "#606060", "shrinkA": 0.0, "shrinkB": 0.0},
    )


_HEIGHTS_IN: Final = {"column": 3.1, "page": 4.2}
_FRONT_LINE: Final = {"color": style.BLACK, "linewidth": 1.1, "zorder": 3}
#: A front configuration whose types are all one, and one that mixes them.
_ONE_TYPE: Final = {"marker": "o", "s": 20, "facecolors": "white", "edgecolors": style.BLACK, "linewidths": 1.0}
_MIXED: Final = {"marker": "D", "s": 17, "facecolors": style.VERMILLION, "edgecolors": style.BLACK, "linewidths": 0.8}


@dataclass(frozen=True, slots=True)
class _Points:
    """Trials with their places: numbers of shape ``(n_trials,)``, finite in both axes."""

    trials: tuple[Trial, ...]
    x: Floats
    y: Floats

    def where(self, chosen: Sequence[bool] | NDArray[np.bool_]) -> _Points:
        mask = np.asarray(chosen, dtype=np.bool_)
        kept = tuple(trial for trial, keep in zip(self.trials, mask, strict=True) if keep)
        return _Points(kept, self.x[mask], self.y[mask])


def draw(run: Run, look: Look, metrics: Sequence[str] = ()) -> Figure:
    """Draw every configuration, the front, threshold, baseline and best, and where each precision alone would be.

    Without metrics, the vertical axis is speedup or the objective, the horizontal one error.

    Raises:
        UnknownNameError: no trial has a metric of that name.
        PlotError: no trial has both.
    """
    metrics = metrics or _default_metrics(run)
    if len(metrics) != 2:
        raise PlotError(f"a plot has two axes, so two metrics, not {len(metrics)}: {', '.join(metrics)}")
    y, x = (metric_axis(run, name) for name in metrics)
    front = run.pareto((y.metric, x.metric))
    _, less_x_is_better = run.pareto_document((y.metric, x.metric))["minimise"]
    points = _points(run, x, y)
    figure = style.new_figure(look, _HEIGHTS_IN[look.width])
    axes = figure.add_subplot()
    axes.grid(True)
    set_scale(axes, "x", x, _with_threshold(run, x, points.x))
    set_scale(axes, "y", y, _with_threshold(run, y, points.y))
    axes.set(xlabel=x.label, ylabel=y.label)
    _draw_points(axes, run, points)
    _draw_front(axes, run, _points_of(run, front, x, y), "steps-post" if less_x_is_better else "steps-pre")
    _draw_marks(axes, run, x, y)
    style.write_title(figure, look, title_of(run, *_left_out(run, points), *_drawn(x, y, points)))
    style.add_legend(figure, axes, columns=4 if look.is_wide else 2)
    draw_level_lines(figure, axes, x, y, uniform_levels(run))
    return figure


def uniform_levels(run: Run) -> dict[str, float]:
    """Return the least error of the configurations measured with one precision for everything, by precision."""
    valid = [trial for trial in run.trials if trial.is_valid and math.isfinite(trial.error)]
    levels: dict[str, float] = {}
    for name, types in uniform_types(parameters_of(run)).items():
        errors = [trial.error for trial in valid if _has(trial.configuration, types)]
        if errors:
            levels[name] = min(errors)
    return levels


def _default_metrics(run: Run) -> tuple[str, str]:
    if not any(math.isfinite(trial.error) for trial in valid_trials(run)):
        names = ", ".join(run.metric_names)
        raise PlotError(f"no trial has a finite error to draw: choose two of the other metrics (--metrics): {names}")
    objective = run.objective.metric
    if objective not in ("time_ms", "error"):
        return objective, "error"
    return ("time_ms" if baseline_of(run) is None else "speedup"), "error"


def _points(run: Run, x: MetricAxis, y: MetricAxis) -> _Points:
    everything = _points_of(run, valid_trials(run), x, y)
    points = everything.where(np.isfinite(everything.x) & np.isfinite(everything.y))
    if not points.trials:
        raise PlotError(f"no trial has a finite {x.metric} and a finite {y.metric}, so there is nothing to draw")
    return points


def _points_of(run: Run, trials: Sequence[Trial], x: MetricAxis, y: MetricAxis) -> _Points:
    return _Points(tuple(trials), x.values(run, trials), y.values(run, trials))


def _left_out(run: Run, points: _Points) -> list[str]:
    failed = len(run.failures)
    without = len(run.trials) - failed - len(points.trials)
    texts = [f"{failed:,} failed"] if failed else []
    return texts + ([f"{without:,} without finite numbers"] if without else [])


def _drawn(x: MetricAxis, y: MetricAxis, points: _Points) -> list[str]:
    """Say of errors on unequal numbers of draws that they are: between them there seems a trade-off that is none."""
    text = unequal_draws((x.metric, y.metric), points.trials)
    return [text] if text else []


def _with_threshold(run: Run, axis: MetricAxis, values: Floats) -> Floats:
    limit = run.objective.limits.get(axis.metric)
    return values if limit is None else np.append(values, limit)


def _has(configuration: Configuration, types: dict[str, Value]) -> bool:
    return all(configuration.get(name) == value for name, value in types.items())


def _draw_points(axes: Any, run: Run, points: _Points) -> None:
    feasible = np.array([run.objective.is_feasible(trial) for trial in points.trials])
    groups = [("feasible" if judges(run) else "configuration", feasible, style.POINT)]
    groups.append(("infeasible", ~feasible, style.INFEASIBLE))
    raster, size = len(points.trials) > style.MANY_POINTS, style.point_size(len(points.trials))
    for label, mask, look in groups:
        group = points.where(mask)
        if group.trials:
            axes.scatter(group.x, group.y, label=label, s=size, rasterized=raster, zorder=2, **look)


def _draw_front(axes: Any, run: Run, front: _Points, steps: str) -> None:
    if not front.trials:
        return
    order = np.lexsort((front.y, front.x))
    axes.plot(front.x[order], front.y[order], drawstyle=steps, gid="front", **_FRONT_LINE)
    kinds = uniform_types(parameters_of(run)).values()
    one_type = [any(_has(trial.configuration, types) for types in kinds) for trial in front.trials]
    if not kinds:
        axes.scatter(front.x, front.y, label="front", zorder=4, **_MIXED)
        return
    groups = (
        ("front, same type everywhere", one_type, _ONE_TYPE),
        ("front, several types", np.logical_not(one_type), _MIXED),
    )
    for label, mask, look in groups:
        group = front.where(mask)
        if group.trials:
            axes.scatter(group.x, group.y, label=label, zorder=4, **look)


def _draw_marks(axes: Any, run: Run, x: MetricAxis, y: MetricAxis) -> None:
    for axis, line in ((x, axes.axvline), (y, axes.axhline)):
        if (limit := run.objective.limits.get(axis.metric)) is not None:
            line(limit, label=f"threshold {limit:g}", zorder=2.5, **style.THRESHOLD)
    for label, trial, look in (("baseline", baseline_of(run), style.BASELINE), ("best", run.best, style.BEST)):
        if trial is not None and (label == "baseline" or judges(run) or baseline_of(run) is not None):
            place = _points_of(run, [trial], x, y)
            if np.isfinite(place.x).all() and np.isfinite(place.y).all():
                axes.scatter(place.x, place.y, label=label, **look)
