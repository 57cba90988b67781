"""The plots several sections share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.comparison import Comparison

__all__ = ["DASHES", "draw_bars", "draw_curves", "pyplot_module"]

_WIDE: Final = 3


def pyplot_module() -> Any:
    """Return pyplot, drawing into files only."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


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
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.set_layout_engine("constrained")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


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
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
