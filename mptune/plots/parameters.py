"""Which parameter matters and how: a ranked importance, the times of each value, and types against the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mptune.errors import PlotError
from mptune.interop import parameters_of
from mptune.plots import style
from mptune.plots.importance import LEAST_TRIALS, Importance, importance_of
from mptune.plots.interaction import draw_interaction, interaction_of
from mptune.plots.metric_axis import Floats, log_ticks, metric_axis
from mptune.plots.style import Look
from mptune.plots.subject import counted, title_of, valid_trials, value_text
from mptune.results import Trial
from mptune.run import Run
from mptune.space.configuration import Value
from mptune.space.parameters import Parameter, PolicyParameter, PrecisionParameter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Effects", "draw", "effects_of"]

_MOST_BARS: Final = 20
_MOST_PANELS: Final = {"column": 4, "page": 6}
_MOST_TICKS: Final = 8
_BAR_IN: Final = 0.13
_PANEL_IN: Final = 1.1
_CELL_IN: Final = 0.155
#: Text as wide as that many letters stands upright below its tick.
_LONG_LABELS: Final = {"column": 20, "page": 22}
_WHISKERS: Final = (5, 95)
_TYPES: Final = {"facecolor": style.ORANGE, "hatch": "////", "edgecolor": style.BLACK, "linewidth": 0.5}
_OTHERS: Final = {"facecolor": style.BLUE, "hatch": "", "edgecolor": style.BLACK, "linewidth": 0.5}


@dataclass(frozen=True, slots=True)
class Effects:
    """The trials that can be compared, by parameter.

    Attributes:
        parameters: those with more than one value among the trials, the most important first if that is known.
        types: names of those in the accuracy signature.
        trials: the valid trials whose objective is a positive number.
        relative: the objective of each as a multiple of the best of all, 1 or more, shape ``(n_trials,)``.
        importance: which parameter matters; None where there are too few trials.
    """

    parameters: tuple[Parameter, ...]
    types: frozenset[str]
    trials: tuple[Trial, ...]
    relative: Floats
    importance: Importance | None

    def by_value(self, parameter: Parameter) -> dict[Value, Floats]:
        """Return the multiples of the trials with each value that some trial has."""
        column = [trial.configuration[parameter.name] for trial in self.trials]
        rows = {value: [i for i, entry in enumerate(column) if entry == value] for value in parameter.values}
        return {value: self.relative[indices] for value, indices in rows.items() if indices}


def effects_of(run: Run) -> Effects:
    """Return what the objective of a run depends on.

    Raises:
        PlotError: no trial ran to its end, or none has a positive objective.
    """
    valid = valid_trials(run)
    values = metric_axis(run, run.objective.metric).values(run, valid)
    described = parameters_of(run)
    of_this_space = [all(trial.configuration.get(p.name) in p.values for p in described) for trial in valid]
    usable = np.isfinite(values) & (values > 0) & np.array(of_this_space)
    if not usable.any():
        raise PlotError(f"no trial has a positive {run.objective.metric}, so there is nothing to compare")
    trials = tuple(trial for trial, keep in zip(valid, usable, strict=True) if keep)
    values = values[usable]
    relative = values / values.min() if run.objective.minimise else values.max() / values
    parameters = [p for p in described if len({trial.configuration[p.name] for trial in trials}) > 1]
    signature = run.info.signature
    types = {p.name for p in parameters if isinstance(p, PrecisionParameter | PolicyParameter) or p.name in signature}
    importance = importance_of(parameters, trials, relative)
    if importance is not None:
        parameters.sort(key=lambda parameter: importance.names.index(parameter.name))
    return Effects(tuple(parameters), frozenset(types), trials, np.asarray(relative), importance)


def draw(run: Run, look: Look) -> Figure:
    """Draw the importance of every parameter, the times of each value, and the best of each type with each value.

    Args:
        run: the run.
        look: the size.

    Raises:
        PlotError: no two trials can be compared.
    """
    effects = effects_of(run)
    if not effects.parameters:
        raise PlotError(
            f"no parameter has two values among {counted(len(effects.trials), 'trial')}, so there is nothing to compare"
        )
    what = "time" if run.objective.metric == "time_ms" else run.objective.metric
    table = interaction_of(effects.parameters, effects.types, effects.trials, effects.relative, wide=look.is_wide)
    heights = _heights_in(effects, look, len(table.rows) if table is not None else 0)
    figure = style.new_figure(look, sum(heights))
    parts = _parts(figure, look, heights)
    _draw_importance(parts[0], effects)
    _draw_values(parts[1], effects, look, what)
    if table is not None:
        draw_interaction(parts[2], table, what)
    left_out = run.evaluations - len(effects.trials)
    style.write_title(figure, look, title_of(run, *([f"{left_out:,} left out"] if left_out else [])))
    return figure


def _heights_in(effects: Effects, look: Look, rows: int) -> list[float]:
    """Return the heights of what lies below each other: importances and values (beside each other on a page), table."""
    bars = 0.95 + _BAR_IN * min(len(effects.parameters), _MOST_BARS) if effects.importance is not None else 0.55
    panels = min(len(effects.parameters), _MOST_PANELS[look.width])
    table = [1.35 + _CELL_IN * rows] if rows else []
    if look.is_wide:
        return [max(bars, 0.5 + _PANEL_IN * -(-panels // 3)) + 0.2, *table]
    return [bars + 0.2, 0.4 + _PANEL_IN * -(-panels // 2), *table]


def _parts(figure: Any, look: Look, heights: Sequence[float]) -> list[Any]:
    stacked = list(np.atleast_1d(figure.subfigures(len(heights), 1, height_ratios=heights)))
    if not look.is_wide:
        return stacked
    return [*stacked[0].subfigures(1, 2, width_ratios=(1, 2.1)), *stacked[1:]]


def _draw_importance(part: Any, effects: Effects) -> None:
    importance = effects.importance
    if importance is None:
        count = counted(len(effects.trials), "trial")
        text = f"(a) too few trials to rank the parameters:\n{count}, at least {LEAST_TRIALS} are needed"
        part.text(0.01, 0.5, text, ha="left", va="center", fontsize=7)
        return
    axes = part.add_subplot()
    shown = importance.names[:_MOST_BARS]
    for place, name in enumerate(shown):
        is_type = name in effects.types
        axes.barh(
            place, importance.means[place], height=0.72, xerr=importance.deviations[place],
            error_kw={"linewidth": 0.7}, **(_TYPES if is_type else _OTHERS),
        )  # fmt: skip
    axes.set_yticks(range(len(shown)), list(shown))
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.axvline(0, color=style.BLACK, linewidth=0.6)
    axes.set_xlabel("R² lost when shuffled, ± over folds")
    more = len(importance.names) - len(shown)
    warning = "" if importance.is_trusted else "\nthe forest explains too little: no ranking"
    rest = f"\n{more} less important ones left out" if more else ""
    part.suptitle(f"(a) importance (forest: R² = {importance.r2:.2f}){warning}{rest}", **style.PART_TITLE)
    _add_legend(part, [effects.types & set(shown), set(shown) - effects.types])


def _add_legend(part: Any, groups: Sequence[set[str] | frozenset[str]]) -> None:
    from matplotlib.patches import Patch

    if all(groups):
        handles = [Patch(label="accuracy signature", **_TYPES), Patch(label="the others", **_OTHERS)]
        part.legend(handles=handles, loc="outside lower right", ncols=2, handlelength=1.2)


def _draw_values(part: Any, effects: Effects, look: Look, what: str) -> None:
    from matplotlib import ticker

    shown = effects.parameters[: _MOST_PANELS[look.width]]
    columns = min(len(shown), 3 if look.is_wide else 2)
    panels = part.subplots(-(-len(shown) // columns), columns, squeeze=False, sharey=True)
    highest = 1.0
    for axes, parameter in zip(panels.flat, shown, strict=False):
        groups = effects.by_value(parameter)
        highest = max(highest, *(float(np.percentile(group, _WHISKERS[1])) for group in groups.values()))
        _draw_boxes(axes, parameter.name, groups, _LONG_LABELS[look.width])
    for axes in panels.flat[len(shown) :]:
        axes.set_visible(False)
    first = panels[0, 0]
    first.set_yscale("log")
    first.set_ylim(0.93, max(1.1 * highest, 1.2))
    first.yaxis.set_major_locator(log_ticks(1.0, highest))
    first.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    first.yaxis.set_minor_formatter(ticker.NullFormatter())
    part.supylabel(f"{what} / best {what}", fontsize=7.5)
    part.suptitle("(b) quartiles, 5 to 95%, and the best by value", **style.PART_TITLE)


def _draw_boxes(axes: Any, name: str, groups: Mapping[Value, Floats], long: int) -> None:
    places = np.arange(len(groups))
    axes.grid(True, axis="y")
    axes.boxplot(
        list(groups.values()),
        positions=places,
        widths=0.6,
        whis=_WHISKERS,
        showfliers=False,
        manage_ticks=False,
        patch_artist=True,
        boxprops={"facecolor": "#D8E6F0", "linewidth": 0.6},
        medianprops={"color": style.BLACK, "linewidth": 1.1},
        whiskerprops={"linewidth": 0.6},
        capprops={"linewidth": 0.6},
    )
    best = [float(group.min()) for group in groups.values()]
    size = 3.0 if len(groups) <= 2 * _MOST_TICKS else 1.5
    axes.plot(places, best, color=style.VERMILLION, linewidth=0.8, marker="D", markersize=size, gid="best")
    labels = [value_text(value) for value in groups]
    step = -(-len(labels) // _MOST_TICKS)
    upright = sum(len(label) + 1 for label in labels[::step]) > long
    axes.set_xticks(places[::step], labels[::step], rotation=90 if upright else 0)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_title(name, fontsize=7)
