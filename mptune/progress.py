"""Progress of tuning: below a notebook's cell, in a terminal, or as lines on standard error."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from mptune import tuning as tuner
from mptune.markup import Table, as_html, pairs, plain
from mptune.results.description import result_text
from mptune.tuning import Progress

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

#: Seconds between updates in a notebook, and between lines.
_REFRESH_S, _LINE_EVERY_S = 0.5, 60.0
#: Seconds without a trial from which a terminal shows how many there are.
_LONG_S: Final = 5.0
P = ParamSpec("P")
R = TypeVar("R")


def in_notebook() -> bool:
    """Whether the interpreter is a notebook's kernel, which displays HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class ProgressView:
    """Shows the progress of tuning; pass it to ``tune`` as ``on_progress``.

    In a notebook one view below the cell is updated; elsewhere one line a minute goes to standard error, also while no
    trial ends.

    Args:
        time_limit_s: seconds after which no evaluation starts.
        is_live: whether standard error is a terminal, in which the view is updated in place.
        is_quiet: whether trials are only counted.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        time_limit_s: float | None = None,
        *,
        is_live: bool = False,
        is_quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._time_limit_s = math.inf if time_limit_s is None else time_limit_s
        self._clock = clock
        self._every_s, self._next_s = _LINE_EVERY_S, clock() + _LINE_EVERY_S
        self._replayed, self._sizes, self.trials = 0, "", 0
        self._latest: Progress | None = None
        #: When the latest trial ended.
        self._ended_s = time.monotonic()
        self._is_over = threading.Event()
        self._waiting = threading.Thread(target=self._tell_of_waiting, daemon=True)
        self._live: Live | None = None
        self._update: Callable[[str], None] | None = None
        if is_quiet:
            self._next_s = math.inf
        elif in_notebook():
            from IPython.display import HTML, display  # available in a notebook only

            self._every_s, self._next_s = _REFRESH_S, -math.inf
            handle: Any = display(HTML(as_html("preparing")), display_id=True)
            self._update = lambda text: handle.update(HTML(text))
        elif is_live:
            from rich.console import Console, Group
            from rich.live import Live

            self._every_s, self._next_s = 0.1, -math.inf
            console = Console(stderr=True, highlight=False)
            begun = Group("preparing inputs and reference", _Waited(self))
            self._live = Live(begun, console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> ProgressView:
        self._ended_s = time.monotonic()
        if self._live is not None:
            self._live.start()
        elif self._update is None and math.isfinite(self._next_s):
            self._waiting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._waiting.is_alive():
            self._waiting.join()
        if self._live is not None:
            self._live.stop()
        if self._update is not None and self._latest is not None:
            self._show(self._latest)

    def begin(self, sizes: Mapping[str, int]) -> None:
        """Start with the next of several sizes."""
        self.trials, self._replayed, self._sizes = 0, 0, f"{pairs(sizes)}, "

    def __call__(self, progress: Progress) -> None:
        """Count a trial; update the view if the last update is old enough."""
        self.trials += 1
        self._ended_s = time.monotonic()
        self._replayed, self._latest = self._replayed + progress.replayed, progress
        if (start_s := self._clock()) < self._next_s:
            return
        self._show(progress)
        # An update visits all trials. It may take one twentieth of the time.
        took_s = self._clock() - start_s
        self._next_s = start_s + took_s + max(self._every_s, 20 * took_s)

    def verify(self, progress: Progress) -> None:
        """Show the number of unseen inputs a trial has been verified on."""
        if self._live is not None:
            unseen = progress.trial.measurement.metrics.get("unseen_inputs", 0)
            self._ended_s = time.monotonic()
            self._look(f"verification: {unseen:.0f} unseen inputs, {progress.trial.configuration}")

    def _look(self, *parts: RenderableType) -> None:
        """Show this on the terminal, and below it how long no trial has ended."""
        from rich.console import Group

        assert self._live is not None
        self._live.update(Group(*parts, _Waited(self)))

    @property
    def waited_text(self) -> str:
        """Return the time since the last trial ended, in words; empty if it is short."""
        waited_s = time.monotonic() - self._ended_s
        return f"no trial has ended for {waited_s:.0f} s" if waited_s > _LONG_S else ""

    def _tell_of_waiting(self) -> None:
        """Print a line a minute while no trial ends."""
        told_s = time.monotonic()
        while not self._is_over.wait(_REFRESH_S):
            now_s = time.monotonic()
            told_s = max(told_s, self._ended_s)
            if now_s - told_s >= _LINE_EVERY_S:
                told_s = now_s
                _print(self.waited_text)

    def _show(self, progress: Progress) -> None:
        run = progress.run()
        done, budget = run.evaluations, min(progress.budget, run.info.configurations or progress.budget)
        each_s = progress.elapsed_s / max(1, done - self._replayed)
        left_s = max(0.0, min(each_s * (budget - done), self._time_limit_s - progress.elapsed_s))
        found = "no configuration meets the threshold yet" if run.best is None else f"best {result_text(run, run.best)}"
        found += f", {len(run.trade_offs)} on the front" * bool(run.trade_offs)
        stands = f"{done}/{budget} evaluations, {run.feasible} feasible, about {left_s:.0f} s left"
        stands, statuses = f"{self._sizes}{progress.phase}: {stands}", pairs(run.statuses)
        if self._update is not None:
            best = () if run.best is None else (str(run.best.configuration),)
            self._update(as_html(run.kernel, Table((), tuple((line,) for line in (stands, found, *best, statuses)))))
        elif self._live is not None:
            from rich.progress_bar import ProgressBar
            from rich.text import Text

            ahead = (f"compiling ahead: {configuration}" for configuration in progress.ahead)
            more = (Text(plain(line), "dim", no_wrap=True, overflow="ellipsis") for line in (statuses, *ahead))
            bar = ProgressBar(budget, min(done, budget), width=60)
            self._look(Text(plain(stands)), bar, Text(plain(found)), *more)
        else:
            _print(f"{stands}; {found}")


class _Waited:
    """A line of a terminal, empty while trials end."""

    def __init__(self, view: ProgressView) -> None:
        self._view = view

    def __rich__(self) -> str:
        return self._view.waited_text


def _print(line: str) -> None:
    with contextlib.suppress(OSError):  # a closed log does not end a run
        print(plain(line), file=sys.stderr, flush=True)


def _with_progress(function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def shown(*args: P.args, **kwargs: P.kwargs) -> R:
        if "on_progress" in kwargs:
            return function(*args, **kwargs)
        with ProgressView() as view:
            kwargs["on_progress"] = view
            return function(*args, **kwargs)

    return shown


tune = _with_progress(tuner.tune)
tune_sizes = _with_progress(tuner.tune_sizes)
