"""Types against the other parameters: the best with each pair of values, as a map."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mptune.plots import style
from mptune.plots.metric_axis import Floats
from mptune.plots.subject import value_text
from mptune.results import Trial
from mptune.space.configuration import Value
from mptune.space.parameters import Parameter

__all__ = ["Interaction", "draw_interaction", "interaction_of"]

Cell = tuple[str, Value]

_MOST_ROWS: Final = 16
_MOST_COLUMNS: Final = {False: 12, True: 28}
#: Times the best above which all cells have the same colour.
_DARKEST: Final = 10.0
_LETTERS: Final = 3


@dataclass(frozen=True, slots=True)
class Interaction:
    """The best with each value of some parameters and each value of others.

    Attributes:
        rows: parameter and value of each row, those of a parameter together.
        columns: of each column.
        best: the least multiple of the best among the trials with both, NaN where there is none; shape
            ``(n_rows, n_columns)``.
    """

    rows: tuple[Cell, ...]
    columns: tuple[Cell, ...]
    best: Floats

    def winners(self) -> list[tuple[int, int]]:
        """Return, for each row and each parameter of the columns, the position of the best value."""
        found = []
        for row, name in ((row, name) for row in range(len(self.rows)) for name in _names(self.columns)):
            block = [j for j, (other, _) in enumerate(self.columns) if other == name]
            if np.isfinite(self.best[row, block]).any():
                found.append((row, block[int(np.nanargmin(self.best[row, block]))]))
        return found


def interaction_of(
    parameters: Sequence[Parameter],
    types: AbstractSet[str],
    trials: Sequence[Trial],
    relative: Floats,
    *,
    wide: bool,
) -> Interaction | None:
    """Return types against the other parameters, as many as there is room for; None where there is nothing to compare.

    Without types, or without others, it is the most important parameter against the others.

    Args:
        parameters: the most important first.
        types: names of those in the accuracy signature.
        trials: the trials.
        relative: of each, a multiple of the best, shape ``(n_trials,)``.
        wide: whether there is room for a page's width.
    """
    down = [p for p in parameters if p.name in types]
    across = [p for p in parameters if p.name not in types]
    if not down or not across:
        down, across = list(parameters[:1]), list(parameters[1:])
    rows = _fitting(down, _MOST_ROWS, trials)
    columns = _fitting(across, _MOST_COLUMNS[wide], trials)
    if not rows or not columns:
        return None
    # One column of truth values per cell of either side.
    masks = {cell: _has(trials, cell) for cell in (*rows, *columns)}
    best = np.array(
        [[np.min(relative, where=masks[row] & masks[column], initial=np.inf) for column in columns] for row in rows]
    )
    return Interaction(rows, columns, np.where(np.isfinite(best), best, np.nan))


def draw_interaction(part: Any, table: Interaction, what: str) -> None:
    """Draw the map, the best value of each parameter in each row framed.

    Args:
        part: a figure or subfigure.
        table: the map.
        what: the name of the objective.
    """
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    axes = part.add_subplot()
    highest = float(np.nanmax(table.best))
    norm = LogNorm(1.0, min(max(1.5, highest), _DARKEST))
    axes.set_facecolor("white")
    image = axes.imshow(table.best, norm=norm, cmap=f"{style.MAP}_r", aspect="auto", interpolation="nearest")
    for row, column in np.argwhere(np.isfinite(table.best)).tolist():
        value = table.best[row, column]
        colour = "white" if norm(value) > 0.55 else "black"
        axes.text(column, row, _short(value), ha="center", va="center", fontsize=5.5, color=colour)
    for row, column in table.winners():
        frame = Rectangle((column - 0.46, row - 0.44), 0.92, 0.88, fill=False, edgecolor="black", linewidth=1.1)
        axes.add_patch(frame)
    _label(axes, table)
    bar = part.colorbar(
        image, ax=axes, pad=0.01, fraction=0.04, aspect=25, extend="max" if highest > _DARKEST else "neither"
    )
    bar.set_label(f"best {what} of both /\nbest {what}", fontsize=7)
    ticks = [tick for tick in (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0) if tick <= norm.vmax * 1.001]
    bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    bar.ax.minorticks_off()
    part.suptitle(
        "(c) best of each pair; framed: the best value of a parameter in the row", fontsize=7.5, x=0.02, ha="left"
    )


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
    return (
        f"{value:.0f}"
        if value >= 9.95
        else f"{value:.1f}"
        if value >= 1.995
        else f"{value:.2f}".rstrip("0").rstrip(".")
    )


def _label(axes: Any, table: Interaction) -> None:
    """Write values at the ticks and each parameter's name once: left of its first row, above its first column."""
    firsts = {
        name: next(i for i, (other, _) in enumerate(table.columns) if other == name) for name in _names(table.columns)
    }
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
