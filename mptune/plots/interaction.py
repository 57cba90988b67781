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
        best: the least multiple of the best among the trials with both, NaN where there is none; shape
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
    """Draw the map, the best value of each parameter in each row framed.

    Args:
        part: a figure or subfigure.
        table: the map.
        what: the name of the objective.
    """
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
