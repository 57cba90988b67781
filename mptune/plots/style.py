"""How every plot looks: sizes, fonts, colours and the markers that tell the same things apart without colours.

Colours are those of Okabe and Ito 2008, which the common kinds of colour blindness leave distinct.
"""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mptune.errors import PlotError, UnknownNameError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "BAR_STYLES", "BASELINE", "BEST", "BLACK", "BLUE", "INFEASIBLE", "MANY_POINTS", "MAP", "ORANGE",
    "PART_TITLE", "POINT", "THRESHOLD", "VERMILLION", "WIDTHS_IN", "Look", "add_legend", "bar", "new_figure",
    "point_size", "styled", "write_title",
]  # fmt: skip

#: Widths of a figure in inches, by name: one column of a two-column page, and the page.
WIDTHS_IN: Final = {"column": 3.5, "page": 7.16}
#: With more points than that they are pixels in a PDF or SVG too, which every viewer would be slow with otherwise.
MANY_POINTS: Final = 2000
_FEW_POINTS: Final = 500
#: Area of a point that has room, in square points.
_LARGEST_POINT: Final = 8.0
BLACK: Final = "#000000"
BLUE: Final = "#0072B2"
SKY: Final = "#56B4E9"
GREEN: Final = "#009E73"
YELLOW: Final = "#F0E442"
ORANGE: Final = "#E69F00"
VERMILLION: Final = "#D55E00"
PURPLE: Final = "#CC79A7"
#: Brightness grows with the value, so that greyscale keeps the order.
MAP: Final = "cividis"
_SAND: Final = "#B0A080"

POINT: Final = {"marker": "o", "facecolors": SKY, "edgecolors": BLUE, "linewidths": 0.3}
INFEASIBLE: Final = {"marker": "x", "color": _SAND, "linewidths": 0.6}
BEST: Final = {"marker": "*", "s": 90, "facecolors": YELLOW, "edgecolors": BLACK, "linewidths": 0.8, "zorder": 6}
BASELINE: Final = {"marker": "s", "s": 26, "facecolors": "white", "edgecolors": BLACK, "linewidths": 1.2, "zorder": 5}
THRESHOLD: Final = {"color": VERMILLION, "linewidth": 1.2, "linestyle": (0, (4, 1.5))}
#: Face and hatch of bars and areas that lie beside each other.
BAR_STYLES: Final = (
    (BLUE, ""),
    (YELLOW, "////"),
    (GREEN, ".."),
    (SKY, "\\\\\\\\"),
    ("white", ""),
    (VERMILLION, "xxxx"),
    (PURPLE, "----"),
    (ORANGE, "||||"),
    (BLACK, ""),
)


def bar(face: str, hatch: str) -> dict[str, Any]:
    """Return the look of a bar or an area."""
    return {"facecolor": face, "hatch": hatch, "edgecolor": BLACK, "linewidth": 0.5}


#: Where the title of a part of a figure stands.
PART_TITLE: Final = {"x": 0.01, "ha": "left", "fontsize": 7.5}

_TITLE_LETTERS_PER_INCH: Final = 18
_INSTALL: Final = 'plots need matplotlib: pip install "mptune[plots]", or in a checkout pip install -e ".[plots]"'
#: Whatever a user's matplotlibrc says of these would change the picture.
_OURS: Final = (
    "agg", "axes", "axes3d", "boxplot", "contour", "errorbar", "figure", "font", "grid", "hatch", "hist", "image",
    "legend", "lines", "markers", "mathtext", "patch", "path", "pdf", "polaraxes", "savefig", "scatter", "svg", "text",
    "xaxis", "xtick", "yaxis", "ytick",
)  # fmt: skip
_SETTINGS: Final = {
    "font.family": "sans-serif",
    "font.size": 7.0,
    "axes.labelsize": 7.5,
    "axes.titlesize": 7.5,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "legend.handletextpad": 0.4,
    "legend.columnspacing": 1.2,
    "legend.labelspacing": 0.3,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.4,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "hatch.linewidth": 0.5,
    # Text stays text, so that a journal's editor can search and change it.
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    # Names inside an SVG come from this and not from chance.
    "svg.hashsalt": "mptune",
    "figure.dpi": 150,
    "savefig.dpi": 300,
}


@dataclass(frozen=True, slots=True)
class Look:
    """How large a plot is, and whether kernel, device and number of configurations stand above it.

    Raises:
        UnknownNameError: the width is neither "column" nor "page".
    """

    width: str = "column"
    title: bool = True

    def __post_init__(self) -> None:
        if self.width not in WIDTHS_IN:
            raise UnknownNameError("width of a plot", self.width, WIDTHS_IN)

    @property
    def is_wide(self) -> bool:
        """Whether it has the width of a page."""
        return self.width == "page"

    @property
    def width_in(self) -> float:
        """Width in inches."""
        return WIDTHS_IN[self.width]


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Draw or write with the settings of this module, whatever else matplotlib has been told, and put those back.

    Raises:
        PlotError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise PlotError(_INSTALL) from error
    defaults = {name: value for name, value in matplotlib.rcParamsDefault.items() if name.split(".")[0] in _OURS}
    with matplotlib.rc_context({**defaults, **_SETTINGS}):
        yield


def new_figure(look: Look, height_in: float) -> Figure:
    """Return an empty figure that pyplot knows nothing of."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(look.width_in, height_in), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03)
    return figure


def point_size(count: int) -> float:
    """Return the area of each of so many points, in square points: smaller where they would hide each other."""
    return float(min(_LARGEST_POINT, max(1.5, _LARGEST_POINT * (_FEW_POINTS / max(count, 1)) ** 0.5)))


def add_legend(figure: Any, axes: Any, columns: int) -> None:
    """Add the legend below the axes, with points of the size used for a few of them."""
    from matplotlib.collections import PathCollection

    legend = figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns)
    for handle in legend.legend_handles:
        if isinstance(handle, PathCollection):
            handle.set_sizes([max(_LARGEST_POINT, *handle.get_sizes())])


def write_title(figure: Any, look: Look, text: str) -> None:
    """Write the title above the plot if it is wanted."""
    if look.title:
        lines = textwrap.wrap(text, int(_TITLE_LETTERS_PER_INCH * look.width_in))
        figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=7, color="#404040")
