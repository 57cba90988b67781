"""Tuning in a notebook: progress is shown below the cell."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any, Final, ParamSpec

from mptune import tuning as tuner
from mptune.markup import Table, as_html, pairs
from mptune.results.description import result_text
from mptune.run import Run
from mptune.tuning import Progress

__all__ = ["NotebookProgress", "in_notebook", "tune"]

_REFRESH_S: Final = 0.5
P = ParamSpec("P")


def in_notebook() -> bool:
    """Whether this is a notebook's kernel, which shows HTML, and not a terminal's shell or a script."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class NotebookProgress:
    """Shows where a tuning run stands in one place below the cell; give it to ``tune`` as ``on_progress``."""

    def __init__(self) -> None:
        from IPython.display import HTML, display  # only a notebook has it

        self._html = HTML
        self._handle: Any = display(HTML(as_html("preparing")), display_id=True)
        self._shown_s = -_REFRESH_S

    def __call__(self, progress: Progress) -> None:
        """Show it, unless something was shown just now."""
        now_s = time.monotonic()
        if now_s - self._shown_s >= _REFRESH_S:
            self._show(_progress_html(progress))
            self._shown_s = time.monotonic()

    def finish(self, run: Run) -> None:
        """Show that the run is over; the run itself is the cell's value."""
        self._show(as_html(f"{run.kernel}: {run.evaluations} evaluations done"))

    def _show(self, html: str) -> None:
        self._handle.update(self._html(html))


def _progress_html(progress: Progress) -> str:
    run = progress.run()
    best = run.best
    found = "none feasible yet" if best is None else f"{result_text(run, best)} at {best.configuration}"
    rows = {
        "phase": progress.phase,
        "evaluations": f"{run.evaluations} of {progress.budget}",
        "elapsed": f"{progress.elapsed_s:.0f} s",
        "best": found,
        "statuses": pairs(run.statuses),
    }
    return as_html(run.kernel, Table((), tuple(rows.items())))


def _with_progress(function: Callable[P, Run]) -> Callable[P, Run]:
    @functools.wraps(function)
    def shown(*args: P.args, **kwargs: P.kwargs) -> Run:
        if "on_progress" in kwargs or not in_notebook():
            return function(*args, **kwargs)
        progress = NotebookProgress()
        kwargs["on_progress"] = progress
        run = function(*args, **kwargs)
        progress.finish(run)
        return run

    return shown


tune = _with_progress(tuner.tune)
