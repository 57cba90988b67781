"""Lines at the errors of single precisions, named outside the axes without names lying on each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from mptune.plots.metric_axis import Floats, MetricAxis

__all__ = ["draw_level_lines", "spread"]

_LINE: Final = {"color": "#606060", "linewidth": 0.7, "linestyle": (0, (1, 1.2)), "zorder": 1.5}
_FONT_POINTS: Final = 6.5
#: Room a name takes across its line, in points.
_ROOM_POINTS: Final = 8.5
_DISTANCE_POINTS: Final = 9.0
_POINTS_PER_INCH: Final = 72.0


def draw_level_lines(figure: Any, axes: Any, x: MetricAxis, y: MetricAxis, levels: Mapping[str, float]) -> None:
    """Draw a line at each level on the axis that shows errors, if one does, with its name beside the axes.

    Args:
        figure: holds the axes; everything else is drawn already.
        axes: where.
        x: the horizontal metric.
        y: the vertical metric.
        levels: errors by name.
    """
    upright = x.is_error
    if not (upright or y.is_error) or not levels:
        return
    names = sorted(levels, key=lambda name: levels[name])
    for name in names:
        line = axes.axvline if upright else axes.axhline
        line(levels[name], gid=f"level {name}", **_LINE)
    written = [_write(axes, name, levels[name], upright) for name in names]
    # The names have to take their room before it is known how wide the axes are.
    figure.draw_without_rendering()
    ends = np.array([[level, 0.0] if upright else [0.0, level] for level in (levels[name] for name in names)])
    at = axes.transData.transform(ends)[:, 0 if upright else 1] * _POINTS_PER_INCH / figure.dpi
    for text, shift in zip(written, spread(at, _ROOM_POINTS) - at, strict=True):
        text.set_position((shift, _DISTANCE_POINTS) if upright else (_DISTANCE_POINTS, shift))


def spread(positions: Floats, room: float) -> Floats:
    """Return ascending positions moved as little as needed so that neighbours are ``room`` apart.

    Args:
        positions: ascending, shape ``(n,)``.
        room: the least distance.
    """
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
