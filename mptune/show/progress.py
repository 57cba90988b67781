"""How far a tuning run has come: below a notebook's cell, and in a script as lines on standard error."""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec, TypeVar

from mptune import tuning as tuner
from mptune.markup import Table, as_html, pairs, plain
from mptune.results.description import result_text
from mptune.tuning import Progress

__all__ = ["NotebookProgress", "ProgressLines", "in_notebook", "tune", "tune_sizes"]

_REFRESH_S: Final = 0.5
#: Seconds between lines.
_LINE_EVERY_S: Final = 60.0
P = ParamSpec("P")
R = TypeVar("R")


def in_notebook() -> bool:
    """Whether this is a notebook's kernel, which shows HTML, and not a terminal's shell or a script."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class ProgressLines:
    """Prints a line a minute on standard error; give it to ``tune`` as ``on_progress``.

    Args:
        time_limit_s: no evaluation starts after that.
        clock: time in seconds.
        is_quiet: whether only to count.
    """

    def __init__(
        self,
        time_limit_s: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        is_quiet: bool = False,
    ) -> None:
        self._clock, self._is_quiet = clock, is_quiet
        self._next_line_s = clock() + _LINE_EVERY_S
        self._time_limit_s = math.inf if time_limit_s is None else time_limit_s
        self._replayed = 0
        self._sizes = ""

    def __call__(self, progress: Progress) -> None:
        """Count a trial, and print a line unless there was one within the last minute."""
        self._replayed += progress.replayed
        if not self._is_quiet and self._clock() >= self._next_line_s:
            print(plain("; ".join(self.stands(progress))), file=sys.stderr, flush=True)
            self._next_line_s = self._clock() + _LINE_EVERY_S

    def begin(self, sizes: Mapping[str, int]) -> None:
        """Note which of several sizes is tuned next."""
        self._replayed, self._sizes = 0, f"{pairs(sizes)}, "

    def stands(self, progress: Progress) -> tuple[str, str]:
        """Return how far the run has come, and the best so far."""
        run = progress.run()
        done = run.evaluations
        budget = min(progress.budget, run.info.configurations or progress.budget)
        each_s = progress.elapsed_s / max(1, done - self._replayed)
        left_s = max(0.0, min(each_s * (budget - done), self._time_limit_s - progress.elapsed_s))
        found = "no configuration meets the threshold yet" if run.best is None else f"best {result_text(run, run.best)}"
        found += f", {len(run.trade_offs)} on the front" * bool(run.trade_offs)
        stands = f"{done}/{budget} evaluations, {run.feasible} feasible, about {left_s:.0f} s left"
        return f"{self._sizes}{progress.phase}: {stands}", found


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

    def finish(self, kernel: str, evaluations: int) -> None:
        """Show that the run is over; the run itself is the cell's value."""
        self._show(as_html(f"{kernel}: {evaluations} evaluations done"))

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


def _with_progress(function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def shown(*args: P.args, **kwargs: P.kwargs) -> R:
        if "on_progress" in kwargs:
            return function(*args, **kwargs)
        progress = NotebookProgress() if in_notebook() else ProgressLines()
        kwargs["on_progress"] = progress
        found = function(*args, **kwargs)
        runs: list[Any] = found if isinstance(found, list) else [found]
        if isinstance(progress, NotebookProgress) and runs:
            progress.finish(runs[0].kernel, sum(run.evaluations for run in runs))
        return found

    return shown


tune = _with_progress(tuner.tune)
tune_sizes = _with_progress(tuner.tune_sizes)
