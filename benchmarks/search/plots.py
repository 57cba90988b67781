"""The plots of the sections; line styles, hatches and numbers tell things apart without colours."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.precision_cells import shares
from mptune.tuning.comparison import Comparison

__all__ = [
    "DASHES",
    "draw_bars",
    "draw_bars_by_level",
    "draw_curves",
    "draw_shares",
    "draw_win_maps",
    "pyplot_module",
    "save",
]

Floats = NDArray[np.float64]
Masks = Mapping[str, NDArray[np.bool_]]

_WIDE: Final = 3
_HATCHES: Final = ("", "///", "...")
_GREYS: Final = ("0.25", "0.6", "0.85")
_WIDTH: Final = 0.26


def pyplot_module() -> Any:
    """Return pyplot, drawing into files only."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, path: Path, legend_of: Any = None, columns: int = 3) -> None:
    """Write a figure, with a legend of the lines of one of its axes below it, and close it.

    The legend has fewer columns where the figure is not wide enough for so many.
    """
    if legend_of is not None:
        handles, labels = legend_of.get_legend_handles_labels()
        figure.set_layout_engine("constrained")
        for count in range(columns, 0, -1):
            legend = figure.legend(handles, labels, loc="outside lower center", ncols=count, frameon=False)
            if count == 1 or legend.get_window_extent().width <= figure.bbox.width:
                break
            legend.remove()
    figure.savefig(path, dpi=110)
    pyplot_module().close(figure)


#: Lines that can be told apart without colour.
DASHES: Final = ("-", "--", "-.", ":")


def draw_curves(path: Path, comparison: Comparison, strategies: Sequence[str], first: int = 5) -> None:
    """Draw the distance from the optimum over evaluations, one panel per space: median and quartiles over runs."""
    pyplot = pyplot_module()
    spaces = comparison.spaces
    wide = min(len(spaces), _WIDE)
    high = math.ceil(len(spaces) / wide)
    figure, axes = pyplot.subplots(high, wide, figsize=(5 * wide, 3.2 * high + 1.2), squeeze=False, sharex=True)
    evaluations = np.arange(1, comparison.budget + 1)
    for axis, space in zip(axes.flat, spaces, strict=False):
        for number, strategy in enumerate(strategies):
            lower, median, upper = (_drawable(row) for row in comparison.quartiles(space, strategy))
            style = {"color": f"C{number}", "linewidth": 2.2 if number == 0 else 1.2, "linestyle": DASHES[number % 4]}
            axis.plot(evaluations[first:], median[first:], label=strategy, **style)
            axis.fill_between(evaluations[first:], lower[first:], upper[first:], color=f"C{number}", alpha=0.15)
        axis.set_title(space, fontsize=10)
        axis.set_yscale("symlog", linthresh=0.1)
        axis.set_ylim(0, None)
    for axis in axes.flat[len(spaces) :]:
        axis.set_visible(False)
    for axis in axes.flat[max(0, len(spaces) - wide) : len(spaces)]:
        axis.set_xlabel("evaluations")
        axis.tick_params(labelbottom=True)
    figure.supylabel("distance from the optimum in %\n(median, quartiles)", fontsize=10)
    save(figure, path, axes.flat[0], columns=3)


def _drawable(row: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(row), 100 * row, np.nan)


def draw_bars(path: Path, values: Mapping[str, float], spread: Mapping[str, float], label: str) -> None:
    """Draw one horizontal bar per name, the best (least) on top, with error bars."""
    pyplot = pyplot_module()
    names = sorted((name for name in values if math.isfinite(values[name])), key=lambda name: -values[name])
    figure, axis = pyplot.subplots(figsize=(8, 0.36 * len(names) + 1), layout="constrained")
    colours = ["C0" if name.startswith("mptune") else "C7" for name in names]
    lengths = [values[name] for name in names]
    errors = [min(spread.get(name, 0.0), values[name]) for name in names]
    axis.barh(names, lengths, xerr=errors, color=colours, ecolor="0.3", capsize=2)
    axis.set_xlabel(label)
    save(figure, path)


def draw_shares(path: Path, comparison: Comparison, levels: Masks, tools: Sequence[str]) -> None:
    """Draw the best feasible as a share of the best recorded over evaluations, one panel per level.

    A line is the mean over cells, the band the quartiles over cells of the mean over runs.
    """
    pyplot = pyplot_module()
    figure, axes = pyplot.subplots(1, len(levels), figsize=(4.2 * len(levels), 4), squeeze=False, sharey=True)
    evaluations = np.unique(np.geomspace(1, comparison.budget, 60).astype(int))
    curves = {
        tool: np.array(
            [[shares(comparison.simulation(space, tool), n).mean() for n in evaluations] for space in comparison.spaces]
        )
        for tool in tools
    }
    for axis, (level, mask) in zip(axes.flat, levels.items(), strict=True):
        for number, tool in enumerate(tools):
            rows = 100 * curves[tool][mask]
            lower, upper = np.quantile(rows, (0.25, 0.75), axis=0)
            style = {"color": f"C{number}", "linestyle": DASHES[number % len(DASHES)]}
            axis.plot(evaluations, rows.mean(axis=0), label=tool, linewidth=2.2 if number == 0 else 1.4, **style)
            axis.fill_between(evaluations, lower, upper, color=f"C{number}", alpha=0.12)
        axis.set_title(f"{level}, cells: {int(mask.sum())}", fontsize=10)
        axis.set_xscale("log")
        axis.set_ylim(0, 102)
        axis.grid(alpha=0.3)
        axis.set_xlabel("evaluations")
    axes.flat[0].set_ylabel("best feasible in % of the best recorded\n(mean and quartiles over cells)")
    save(figure, path, axes.flat[0], columns=4)


def draw_win_maps(path: Path, names: Sequence[str], wins: Mapping[str, Floats]) -> None:
    """Draw how often the row beats the column, one heat map per level.

    Args:
        path: the file.
        names: the strategies in their order.
        wins: probabilities by level, each of shape ``(n_strategies, n_strategies)``.
    """
    pyplot = pyplot_module()
    size = 0.42 * len(names) + 1.6
    wide = min(2, len(wins))
    high = -(-len(wins) // wide)
    figure, axes = pyplot.subplots(
        high, wide, figsize=(wide * size + 1.5, high * size + 1), squeeze=False, layout="constrained"
    )
    labels = ["\n".join(textwrap.wrap(name, 16)) for name in names]
    for axis, (level, chances) in zip(axes.flat, wins.items(), strict=False):
        image = axis.imshow(chances, vmin=0.0, vmax=1.0, cmap="Greys")
        for row, column in np.ndindex(*chances.shape):
            if row != column:
                colour = "white" if chances[row, column] > 0.6 else "black"
                axis.text(
                    column, row, f"{100 * chances[row, column]:.0f}", ha="center", va="center", color=colour, fontsize=8
                )
        axis.set_xticks(range(len(names)), labels, rotation=90, fontsize=7)
        axis.set_yticks(range(len(names)), labels, fontsize=7)
        axis.set_title(level, fontsize=10)
    for axis in axes.flat[len(wins) :]:
        axis.set_visible(False)
    figure.colorbar(image, ax=axes, shrink=0.5, label="probability that the row beats the column (in the cells: in %)")
    save(figure, path)


def draw_bars_by_level(path: Path, groups: Mapping[tuple[str, str], Mapping[str, Mapping[str, Floats]]]) -> None:
    """Draw medians with quartiles: a row of panels per first key, a column per second one, in each bars by group.

    Args:
        path: the file.
        groups: for each (strategy, level) and kernel, the runs' shares by approach.
    """
    pyplot = pyplot_module()
    rows = list(dict.fromkeys(row for row, _ in groups))
    columns = list(dict.fromkeys(column for _, column in groups))
    widest = max(len(kernels) for kernels in groups.values())
    figure, axes = pyplot.subplots(
        len(rows),
        len(columns),
        figsize=(len(columns) * (0.55 * widest + 2.0), 2.8 * len(rows) + 0.8),
        squeeze=False,
        sharey=True,
    )
    for (row, column), kernels in groups.items():
        axis = axes[rows.index(row), columns.index(column)]
        for number, approach in enumerate(next(iter(kernels.values()))):
            runs = [100 * kernels[kernel][approach] for kernel in kernels]
            lower, median, upper = np.array([np.quantile(values, (0.25, 0.5, 0.75)) for values in runs]).T
            axis.bar(
                np.arange(len(kernels)) + (number - 1) * _WIDTH,
                median,
                _WIDTH,
                yerr=(median - lower, upper - median),
                label=approach,
                color=_GREYS[number % len(_GREYS)],
                hatch=_HATCHES[number % len(_HATCHES)],
                edgecolor="black",
                linewidth=0.5,
                error_kw={"linewidth": 0.8},
            )
        axis.set_xticks(range(len(kernels)), list(kernels), rotation=60, ha="right", fontsize=8)
        axis.set_title(column, fontsize=9)
    for row, axis in zip(rows, axes[:, 0], strict=True):
        axis.set_ylabel(f"{row}\nbest feasible in % of the\nbest recorded (quartiles)", fontsize=8)
    save(figure, path, axes.flat[0], columns=3)
