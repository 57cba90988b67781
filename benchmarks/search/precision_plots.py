"""The plots of the mixed-precision sections; line styles, hatches and numbers tell things apart without colours."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.plots import pyplot_module
from benchmarks.search.precision_cells import shares
from mptune.comparison import Comparison

__all__ = ["draw_bars_by_level", "draw_shares", "draw_win_maps"]

Floats = NDArray[np.float64]
Masks = Mapping[str, NDArray[np.bool_]]

_STYLES: Final = ("-", "--", "-.", ":")
_HATCHES: Final = ("", "///", "...")
_GREYS: Final = ("0.25", "0.6", "0.85")
_WIDTH: Final = 0.26


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
            style = {"color": f"C{number}", "linestyle": _STYLES[number % len(_STYLES)]}
            axis.plot(evaluations, rows.mean(axis=0), label=tool, linewidth=2.2 if number == 0 else 1.4, **style)
            axis.fill_between(evaluations, lower, upper, color=f"C{number}", alpha=0.12)
        axis.set_title(f"{level}, cells: {int(mask.sum())}", fontsize=10)
        axis.set_xscale("log")
        axis.set_ylim(0, 102)
        axis.grid(alpha=0.3)
        axis.set_xlabel("evaluations")
    axes.flat[0].set_ylabel("best feasible in % of the best recorded\n(mean and quartiles over cells)")
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.set_layout_engine("constrained")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


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
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


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
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.set_layout_engine("constrained")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
