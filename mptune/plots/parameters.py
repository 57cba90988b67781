"""Which parameter matters and how: a ranked importance, the times of each value, and types against the rest.

The importance of a parameter is what a model of the time loses when it does not know the parameter's value:
permutation importance (Breiman 2001) of a random forest on the logarithm of the time, always on trials the forest has
not seen: each fold of a cross-validation in turn. The forest's determination of those trials (R²) says whether the
importances mean anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mptune.errors import PlotError
from mptune.interop import parameters_of
from mptune.plots import style
from mptune.plots.style import Look
from mptune.plots.subject import (
    Floats,
    counted,
    log_ticks,
    metric_axis,
    plain_ticks,
    title_of,
    valid_trials,
    value_text,
)
from mptune.results import Trial
from mptune.run import Run
from mptune.space.configuration import Value
from mptune.space.parameters import Parameter, PolicyParameter, PrecisionParameter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "LEAST_TRIALS", "Effects", "Importance", "Interaction", "draw", "draw_interaction", "effects_of",
    "importance_of", "interaction_of",
]  # fmt: skip

#: Fewer trials do not determine a forest and a test of it.
LEAST_TRIALS: Final = 30
#: An R² below this means that the forest hardly knows more than the mean.
TRUSTED: Final = 0.3
_MOST_TRIALS: Final = 2000
_FOLDS: Final = 5
_TREES: Final = 40
_SHUFFLES: Final = 3
_SEED: Final = 0


@dataclass(frozen=True, slots=True)
class Importance:
    """Which parameters matter, the most important one first.

    Attributes:
        names: the parameters.
        means: how much R² is lost without the parameter's values, mean over folds, shape ``(n_parameters,)``.
        deviations: standard deviation over folds, same shape.
        r2: share of the variance of log time the forest explains in trials it has not seen, mean over folds.
        trials: how many trials that is of.
    """

    names: tuple[str, ...]
    means: Floats
    deviations: Floats
    r2: float
    trials: int

    @property
    def is_trusted(self) -> bool:
        """Whether the forest explains enough for the ranking to mean anything."""
        return self.r2 >= TRUSTED


def importance_of(parameters: Sequence[Parameter], trials: Sequence[Trial], values: Floats) -> Importance | None:
    """Return how much each parameter matters, None if there are fewer than :data:`LEAST_TRIALS` trials.

    Of more than 2,000 trials it looks at 2,000 drawn at random. Each parameter has more than one value, and each trial
    a positive number in ``values``, such as its time; shape ``(n_trials,)``.
    """
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.inspection import permutation_importance
    from sklearn.model_selection import KFold

    if len(trials) < LEAST_TRIALS or not parameters:
        return None
    rng = np.random.default_rng(_SEED)
    chosen = np.sort(rng.permutation(len(trials))[:_MOST_TRIALS])
    features = np.array([_codes(parameters, trials[i]) for i in chosen], dtype=np.float64)
    target = np.log(values[chosen])
    losses, scores = [], []
    for known, unseen in KFold(_FOLDS, shuffle=True, random_state=_SEED).split(features):
        forest = RandomForestRegressor(_TREES, random_state=_SEED).fit(features[known], target[known])
        found = permutation_importance(
            forest, features[unseen], target[unseen], n_repeats=_SHUFFLES, random_state=_SEED, scoring="r2"
        )
        losses.append(found.importances_mean)
        scores.append(forest.score(features[unseen], target[unseen]))
    means, deviations = np.mean(losses, axis=0), np.std(losses, axis=0)
    order = np.argsort(-means, kind="stable")
    names = tuple(parameters[i].name for i in order)
    return Importance(names, means[order], deviations[order], float(np.mean(scores)), len(chosen))


def _codes(parameters: Sequence[Parameter], trial: Trial) -> list[int]:
    return [parameter.values.index(trial.configuration[parameter.name]) for parameter in parameters]


Cell = tuple[str, Value]

#: What a column and a page have room for.
_MOST_ROWS: Final = {False: 12, True: 16}
_MOST_COLUMNS: Final = {False: 12, True: 28}
#: Times the best above which all cells have the same colour.
_DARKEST: Final = 10.0
#: On a share of the scale of colours beyond this, white is read better than black.
_DARK: Final = 0.55
#: Longer values stand upright below their columns.
_LETTERS: Final = 3


@dataclass(frozen=True, slots=True)
class Interaction:
    """The best with each value of some parameters and each value of others.

    Attributes:
        rows: parameter and value of each row, those of a parameter together.
        columns: of each column.
        best: the least multiple of the best among the trials with both, NaN if there is none; shape
            ``(n_rows, n_columns)``.
        room: how many columns there is room for.
    """

    rows: tuple[Cell, ...]
    columns: tuple[Cell, ...]
    best: Floats
    room: int

    def winners(self) -> list[tuple[int, int]]:
        """Return, for each row and each parameter of the columns, the position of the best value."""
        found = []
        for row, name in ((row, name) for row in range(len(self.rows)) for name in _names(self.columns)):
            block = [j for j, (other, _) in enumerate(self.columns) if other == name]
            if np.isfinite(self.best[row, block]).any():
                found.append((row, block[int(np.nanargmin(self.best[row, block]))]))
        return found


def interaction_of(
    parameters: Sequence[Parameter], types: AbstractSet[str], trials: Sequence[Trial], relative: Floats, *, wide: bool
) -> Interaction | None:
    """Return types against the other parameters, as many as there is room for; None if there is nothing to compare.

    Without types, or without others, it is the most important parameter (the first) against the others. ``types``
    names those in the accuracy signature; ``relative`` is each trial's multiple of the best, shape ``(n_trials,)``.
    """
    down = [p for p in parameters if p.name in types]
    across = [p for p in parameters if p.name not in types]
    if not down or not across:
        down, across = list(parameters[:1]), list(parameters[1:])
    rows = _fitting(down, _MOST_ROWS[wide], trials)
    columns = _fitting(across, _MOST_COLUMNS[wide], trials)
    if not rows or not columns:
        return None
    # One column of truth values per cell of either side.
    masks = {cell: _has(trials, cell) for cell in (*rows, *columns)}
    best = np.array(
        [[np.min(relative, where=masks[row] & masks[column], initial=np.inf) for column in columns] for row in rows]
    )
    return Interaction(rows, columns, np.where(np.isfinite(best), best, np.nan), _MOST_COLUMNS[wide])


def draw_interaction(part: Any, table: Interaction, what: str) -> None:
    """Draw the map of an objective called ``what``, the best value of each parameter in each row framed."""
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    # Cells as wide as they are with all the room taken, or up to twice as wide.
    share = min(1.0, max(0.5, len(table.columns) / table.room))
    grid = part.add_gridspec(1, 2, width_ratios=(share, 1.0 - share)) if share < 1.0 else part.add_gridspec(1, 1)
    axes = part.add_subplot(grid[0])
    norm = LogNorm(1.0, min(max(1.5, float(np.nanmax(table.best))), _DARKEST))
    axes.imshow(table.best, norm=norm, cmap=f"{style.MAP}_r", aspect="auto", interpolation="nearest")
    inks = np.where(norm(table.best) > _DARK, "white", "black")
    for row, column in np.argwhere(np.isfinite(table.best)).tolist():
        text = _short(table.best[row, column])
        axes.text(column, row, text, ha="center", va="center", fontsize=5.5, color=inks[row, column])
    for row, column in table.winners():
        place = (column - 0.42, row - 0.4)
        frame = Rectangle(place, 0.84, 0.8, fill=False, edgecolor=inks[row, column], linewidth=1.0, zorder=3)
        axes.add_patch(frame)
    _label(axes, table)
    blank = "" if np.isfinite(table.best).all() else "; blank: not measured"
    title = f"(c) best {what} of each pair / best {what}\nframed: the best value in the row{blank}"
    part.suptitle(title, **style.PART_TITLE)


def _fitting(parameters: Sequence[Parameter], most: int, trials: Sequence[Trial]) -> tuple[Cell, ...]:
    """Return the values of parameters, as long as all of the next one's fit; of the first one's as many as fit."""
    cells: list[Cell] = []
    for parameter in parameters:
        there = {trial.configuration[parameter.name] for trial in trials}
        values = [(parameter.name, value) for value in parameter.values if value in there]
        if len(cells) + len(values) <= most:
            cells += values
        elif not cells:
            places = np.unique(np.linspace(0, len(values) - 1, most).round().astype(int))
            return tuple(values[place] for place in places)
    return tuple(cells)


def _has(trials: Sequence[Trial], cell: Cell) -> Any:
    name, value = cell
    return np.array([trial.configuration[name] == value for trial in trials])


def _names(cells: Iterable[Cell]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name, _ in cells))


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"


def _label(axes: Any, table: Interaction) -> None:
    """Write values at the ticks and each parameter's name once: left of its first row, above its first column."""
    owners = [name for name, _ in table.columns]
    firsts = {name: owners.index(name) for name in owners}
    values = [value_text(value) for _, value in table.columns]
    axes.set_xticks(range(len(values)), values, rotation=90 if any(len(text) > _LETTERS for text in values) else 0)
    for name, first in firsts.items():
        axes.text(first - 0.3, -0.7, name, rotation=30, ha="left", va="bottom", fontsize=6.5, rotation_mode="anchor")
        axes.axvline(first - 0.5, color="white", linewidth=2.5)
    texts, before = [], ""
    for row, (name, value) in enumerate(table.rows):
        texts.append(value_text(value) if name == before else f"{name}  {value_text(value)}")
        if name != before:
            axes.axhline(row - 0.5, color="white", linewidth=2.5)
        before = name
    axes.set_yticks(range(len(texts)), texts)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


_MOST_BARS: Final = 20
_MOST_PANELS: Final = {"column": 4, "page": 6}
_MOST_TICKS: Final = 8
_BAR_IN: Final = 0.13
_PANEL_IN: Final = 1.1
_CELL_IN: Final = 0.155
#: Text as wide as that many letters stands upright below its tick.
_LONG_LABELS: Final = {"column": 20, "page": 22}
_WHISKERS: Final = (5, 95)
_TYPES: Final = style.bar(style.ORANGE, "////")
_OTHERS: Final = style.bar(style.BLUE, "")


@dataclass(frozen=True, slots=True)
class Effects:
    """The trials that can be compared, by parameter.

    Attributes:
        parameters: those with more than one value among the trials, the most important first if that is known.
        types: names of those in the accuracy signature.
        trials: the valid trials whose objective is a positive number.
        relative: the objective of each as a multiple of the best of all, 1 or more, shape ``(n_trials,)``.
        importance: which parameter matters; None if there are too few trials.
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
    parts = list(np.atleast_1d(figure.subfigures(len(heights), 1, height_ratios=heights)))
    if look.is_wide:
        parts[:1] = parts[0].subfigures(1, 2, width_ratios=(1, 2.1))
    _draw_importance(parts[0], effects)
    _draw_values(parts[1], effects, look, what)
    if table is not None:
        draw_interaction(parts[2], table, what)
    left_out = len(run.trials) - len(effects.trials)
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


def _draw_importance(part: Any, effects: Effects) -> None:
    importance = effects.importance
    if importance is None:
        count = counted(len(effects.trials), "trial")
        text = f"(a) too few trials to rank the parameters:\n{count}, at least {LEAST_TRIALS} are needed"
        part.text(0.01, 0.5, text, ha="left", va="center", fontsize=7)
        return
    from matplotlib.patches import Patch

    axes = part.add_subplot()
    shown = importance.names[:_MOST_BARS]
    for place, name in enumerate(shown):
        error = {"xerr": importance.deviations[place], "error_kw": {"linewidth": 0.7}}
        look = _TYPES if name in effects.types else _OTHERS
        axes.barh(place, importance.means[place], height=0.72, **error, **look)
    axes.set_yticks(range(len(shown)), list(shown))
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.axvline(0, color=style.BLACK, linewidth=0.6)
    axes.set_xlabel("how much worse the model gets\nwithout this parameter (R²)")
    more = len(importance.names) - len(shown)
    warning = "" if importance.is_trusted else "\nthe forest explains too little: no ranking"
    rest = f"\n{more} less important ones left out" if more else ""
    part.suptitle(f"(a) importance (forest: R² = {importance.r2:.2f}){warning}{rest}", **style.PART_TITLE)
    if effects.types & set(shown) and set(shown) - effects.types:
        handles = [Patch(label="can change the result", **_TYPES), Patch(label="changes only speed", **_OTHERS)]
        part.legend(handles=handles, loc="outside lower right", ncols=2, handlelength=1.2)


def _draw_values(part: Any, effects: Effects, look: Look, what: str) -> None:
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
    plain_ticks(first.yaxis, log_ticks(1.0, highest))
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
