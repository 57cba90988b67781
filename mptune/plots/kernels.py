"""Where the time of an application's runs goes: each kernel's share, for the baseline and for the winner."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mptune.errors import PlotError
from mptune.kernel_times import host_ms, kernel_times
from mptune.plots import style
from mptune.plots.style import Look
from mptune.plots.subject import baseline_of, title_of
from mptune.results import Trial
from mptune.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]

#: What is not in a kernel, and its look; that of the kernels, the first for the first.
_HOST: Final = "host, between launches"
_HOST_STYLE: Final = ("white", "")
_KERNEL_STYLES: Final = tuple(each for each in style.BAR_STYLES if each not in (_HOST_STYLE, (style.BLACK, "")))
_BAR_IN: Final = 0.5
_LEGEND_IN: Final = 0.16
#: Parts from this share of the longer bar on have room for what they took.
_LABELLED: Final = 0.11
_PAPER: Final = {"facecolor": "white", "linewidth": 0, "pad": 0.8}


def draw(run: Run, look: Look) -> Figure:
    """Draw the time of a run by kernel, what lies between launches included: the baseline above, the winner below.

    Raises:
        PlotError: the run is of a single kernel, or neither says where its time went.
    """
    bars = _bars(run)
    names = dict.fromkeys(name for _, parts in bars for name in parts if name != _HOST)
    looks = {name: _KERNEL_STYLES[place % len(_KERNEL_STYLES)] for place, name in enumerate(names)} | {
        _HOST: _HOST_STYLE
    }
    columns = 6 if look.is_wide else 3
    lines = math.ceil(len(looks) / columns)
    figure = style.new_figure(look, 0.75 + _BAR_IN * len(bars) + _LEGEND_IN * lines)
    axes: Any = figure.add_subplot()
    longest = max(math.fsum(parts.values()) for _, parts in bars)
    for row, (_, parts) in enumerate(bars):
        _draw_bar(axes, row, parts, looks, longest)
    axes.set_yticks(range(len(bars)), [label for label, _ in bars])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.02 * longest)
    axes.set_xlabel("time of one run by kernel (ms)")
    style.write_title(figure, look, title_of(run))
    style.add_legend(figure, axes, columns=columns)
    return figure


def _bars(run: Run) -> Sequence[tuple[str, Mapping[str, float]]]:
    """Return the label of each bar and its parts in milliseconds."""
    if not run.info.is_of_application:
        raise PlotError(f"{run.kernel or 'the run'} is a single kernel: there are no shares of kernels to draw")
    best = {"winner": run.best} if run.best is not None else {"closest": run.closest}
    shown = {"baseline": baseline_of(run), **best}
    bars = [(_label(name, t), _parts(t)) for name, t in shown.items() if t is not None and kernel_times(t)]
    if not bars:
        raise PlotError("no trial that could be shown says where its time went: neither baseline nor winner ran")
    return bars


def _parts(trial: Trial) -> dict[str, float]:
    return {**{name: each.time_ms for name, each in kernel_times(trial).items()}, _HOST: host_ms(trial)}


def _label(name: str, trial: Trial) -> str:
    """Return what stands beside a bar: how often kernels are launched tells whether another type converges slower."""
    launches = sum(each.launches for each in kernel_times(trial).values())
    return f"{name}\n{launches:,} launches"


def _draw_bar(
    axes: Any, row: int, parts: Mapping[str, float], looks: Mapping[str, tuple[str, str]], longest: float
) -> None:
    """Draw one bar, part after part; in those with room stands their share."""
    start, total = 0.0, math.fsum(parts.values())
    for name, look in looks.items():
        time_ms = parts.get(name, 0.0)
        label = {"label": name} if row == 0 else {}
        axes.barh(row, time_ms, left=start, height=0.62, gid=f"{row} {name}", **label, **style.bar(*look))
        if time_ms > _LABELLED * longest:
            middle = start + time_ms / 2
            axes.text(middle, row, f"{time_ms / total:.0%}", ha="center", va="center", fontsize=6.5, bbox=_PAPER)
        start += time_ms
