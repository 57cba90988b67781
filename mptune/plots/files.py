"""Writing a plot: the format by the file's suffix, equal plots as equal bytes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mptune.errors import PlotError
from mptune.plots.style import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SUFFIXES", "check_path", "save"]

#: What a plot can be written as, and what would be different in each file of the same plot.
_DATES: Final = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
SUFFIXES: Final = tuple(_DATES)


def check_path(path: str | Path) -> Path:
    """Return the path of a picture.

    Raises:
        PlotError: its suffix is none of :data:`SUFFIXES`, or there is no such folder.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        found = f"not {path.suffix}" if path.suffix else "and this name has none"
        raise PlotError(f"cannot write {path}: a plot is written as {', '.join(SUFFIXES)} by its suffix, {found}")
    if path.is_dir():
        raise PlotError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise PlotError(f"cannot write {path}: there is no folder {path.parent}")
    return path


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure of :func:`mptune.plot` as PNG, PDF or SVG; a file that is there is replaced.

    Text stays text in PDF and SVG. The same figure gives the same bytes with the same version of matplotlib.

    Raises:
        PlotError: the suffix is another one, or the file cannot be written.
    """
    path = check_path(path)
    suffix = path.suffix.lower()
    drawn = io.BytesIO()
    with styled():
        figure.savefig(drawn, format=suffix[1:], metadata=_DATES[suffix])
    try:
        path.write_bytes(drawn.getvalue())
    except OSError as error:
        raise PlotError(f"cannot write {path}: {error.strerror or error}") from error
    return path
