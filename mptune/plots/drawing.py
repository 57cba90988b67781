"""Plots of a run by kind: drawn, and saved to files."""

from __future__ import annotations

import dataclasses
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mptune.errors import PlotError, UnknownNameError
from mptune.folders import write_whole
from mptune.interop import read_run
from mptune.kernel import Tunable
from mptune.plots import kernels, parameters, pareto, progress, sensitivity, time
from mptune.plots.style import Look, styled
from mptune.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["APPLICATION_KINDS", "KINDS", "SUFFIXES", "check_path", "plot", "save"]

_DRAW: Final[Mapping[str, Callable[[Run, Look], Figure]]] = {
    "pareto": pareto.draw,
    "progress": progress.draw,
    "parameters": parameters.draw,
    "time": time.draw,
    "sensitivity": sensitivity.draw,
    "kernels": kernels.draw,
}
#: What can be drawn of an application's run alone, and of any run.
APPLICATION_KINDS: Final = ("kernels", "answer")
KINDS: Final = tuple(kind for kind in _DRAW if kind not in APPLICATION_KINDS)


def plot(
    run: Run | str | Path,
    kind: str = "pareto",
    *,
    metrics: Sequence[str] = (),
    max_error: float | Mapping[str, float] | None = None,
    width: str = "column",
    title: bool = True,
    kernel: Tunable | str | Path | None = None,
) -> Figure:
    """Draw a run; :func:`mptune.plots.save` writes the figure, as does its own ``savefig``.

    Args:
        run: a run, or the file of a run or of a recorded space.
        kind: ``pareto``: every configuration and the front in two metrics. ``progress``: the best so far over the
            evaluations. ``parameters``: which parameter matters, and how. ``time``: where the time of tuning went.
            ``sensitivity``: what each type of the winner costs and gains when it alone is changed. ``kernels``: where
            the time of an application's runs goes, by kernel. ``answer``: runs an application, the winner and the
            widest types, and draws the picture that its file makes of the answers.
        metrics: of ``pareto``, the vertical axis and the horizontal one; speedup (for another objective than time:
            the objective) and error where it is empty. Any metric of the trials, ``speedup``, or the objective.
        max_error: a threshold instead of the run's own.
        width: "column" (3.5 inches) or "page" (7.16 inches), the widths of a journal of two columns.
        title: whether kernel, device and number of configurations stand above.
        kernel: of ``answer``, the application, unless it is a bundled one: that itself, a definition file or the folder
            that holds it. The path in a run file is never opened.

    Raises:
        UnknownNameError: no such kind, width or metric.
        PlotError: the run has nothing this kind could show, or matplotlib is not installed.
        RunFileError, SpaceFileError: the file cannot be read.
    """
    if kind not in (*KINDS, *APPLICATION_KINDS):
        raise UnknownNameError("kind of plot", kind, (*KINDS, *APPLICATION_KINDS))
    if metrics and kind != "pareto":
        raise PlotError(f"metrics are chosen for a pareto plot, not for {kind}")
    if kernel is not None and kind != "answer":
        raise PlotError(f"a definition is run for a picture of the answer, not for {kind}")
    look = Look(width, title)
    shown = run if isinstance(run, Run) else read_run(run)
    if max_error is not None:
        _check_errors(shown)
        threshold = shown.objective_within(max_error).threshold
        objective = dataclasses.replace(shown.info.objective, threshold=threshold)
        info = dataclasses.replace(shown.info, objective=objective)
        shown = Run(info, shown.trials, shown.state, shown.probes, kernel_trials=shown.kernel_trials)
    if not shown.trials:
        raise PlotError(f"the run of {shown.kernel or 'no kernel'} has no trial yet: there is nothing to draw")
    with styled():
        if kind == "answer":
            from mptune.plots import answer  # what runs applications takes longer to import than all plots

            return answer.draw(shown, kernel)
        return pareto.draw(shown, look, metrics) if metrics else _DRAW[kind](shown, look)


def _check_errors(run: Run) -> None:
    if run.trials and not any(name.split(".")[0] == "error" for name in run.metric_names):
        names = ", ".join(run.metric_names) or "none"
        raise PlotError(f"no trial has an error, so none can be judged by --max-error (metrics: {names})")


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
    with styled(), warnings.catch_warnings():
        # A character that the font lacks is drawn as a box; the message would hold it as it is.
        warnings.filterwarnings("ignore", "Glyph ")
        figure.savefig(drawn, format=suffix[1:], metadata=_DATES[suffix])
    try:
        write_whole(path, drawn.getvalue())
    except OSError as error:
        raise PlotError(f"cannot write {path}: {error.strerror or error}") from error
    return path
