"""``mptune tune``: the command, what it shows while it runs, and what Ctrl-C does."""

from __future__ import annotations

import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from mptune.cli import options
from mptune.cli.display import echo, number, pairs, print_error, print_json, print_note, print_run
from mptune.errors import UnknownNameError

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

    from mptune.run import Run
    from mptune.tuner import Progress

__all__ = ["tune"]

_REFRESH_S: Final = 0.1
#: Updating the view may take one twentieth of the time.
_VIEW_SHARE: Final = 20.0
_PROMISE: Final = b"\nfinishing the current trial; Ctrl-C again stops at once\n"


@click.command()
@options.kernel_name
@options.backend
@options.size
@options.max_error
@click.option(
    "--metric", metavar="NAME", help="Error metric, such as NRMSE, MRE or MaxAE, to use instead of the kernel's own."
)
@options.objective
@options.objectives
@options.maximise
@options.constraints
@click.option(
    "--observe",
    "observers",
    metavar="NAME",
    multiple=True,
    help="Measure more; 'mptune list --observers' describes what. May be repeated.",
)
@options.penalty
@click.option("--alpha", metavar="X", default=1.0, help="Slope of the linear penalty.")
@click.option("--beta", metavar="X", default=1.0, help="Rate of the decay penalty.")
@options.strategy
@options.strategy_option
@click.option("--budget", metavar="N", default=100, help="Evaluate this many different configurations.")
@click.option(
    "--time-limit",
    "time_limit_s",
    metavar="SECONDS",
    type=float,
    help="Start no new evaluation after this many seconds.",
)
@click.option(
    "--baseline-share",
    metavar="X",
    default=0.2,
    help="Spend this share of the budget on finding the all-fp64 baseline.",
)
@click.option(
    "--trial-limit",
    metavar="SECONDS",
    default=30.0,
    help="Stop a launch, or the timing of a configuration, that takes longer.",
)
@click.option(
    "--compiler-flag", "flags", metavar="FLAG", multiple=True, help="Add a flag for the compiler. May be repeated."
)
@click.option(
    "--compiler",
    metavar="NAME,...",
    default="",
    help="Compile with this compiler on the host: g++, clang++ (also clang++-19) or zig; several: find the best.",
)
@click.option(
    "--compiler-flag-set",
    "compiler_flag_sets",
    metavar='"FLAGS|..."',
    default="",
    help="Add these compiler flags on the host; several sets, separated by |: find the best.",
)
@click.option(
    "--flush-cache",
    metavar="auto|on|off",
    default="auto",
    help="Empty the device's caches before each timed launch; auto does so on GPUs, if it makes a difference.",
)
@click.option("--seed", metavar="N", default=0, help="Seed of the inputs and of the strategy.")
@click.option("--workers", metavar="N", default=1, help="Use this many of the machine's devices at the same time.")
@click.option("--scheduler", metavar="ADDRESS", help="Use the devices of the workers of this Dask scheduler.")
@click.option(
    "--compilers",
    metavar="N",
    type=int,
    show_default="one per core",
    help="Compile this many configurations at the same time, in advance. (Which compiler does it: --compiler.)",
)
@click.option(
    "--output", "-o", metavar="RUN.db", type=options.FILE, show_default="runs/KERNEL.db", help="Run file to write."
)
@click.option("--resume", is_flag=True, help="Continue the run in the run file.")
@click.option("--log", is_flag=True, help="Print a line for each trial on standard error.")
@options.as_json
def tune(
    kernel: str,
    size: Sequence[str],
    max_error: Sequence[str],
    objectives: str,
    compiler: str,
    compiler_flag_sets: str,
    strategy_option: Sequence[str],
    trial_limit: float,
    output: Path | None,
    resume: bool,
    log: bool,
    json: bool,
    **given: Any,
) -> int:
    """Find the fastest configuration that is accurate enough.

    The kernel is a bundled kernel's name or the file that defines one. With several objectives, the result is the
    best trade-offs between them.
    """
    from mptune.registry import load_kernel

    definition = load_kernel(kernel)
    preset, sizes = options.parse_sizes(definition, size)
    threshold = options.parse_threshold(max_error)
    _check_names(given)

    from mptune.evaluators.device import Limits
    from mptune.run import Run
    from mptune.tuner import TuneSettings
    from mptune.tuner import tune as tune_kernel

    settings = TuneSettings(
        size=preset,
        sizes=sizes,
        max_error=threshold,
        objectives=options.parse_names(objectives),
        compiler=options.parse_names(compiler),
        compiler_flag_sets=tuple(part.strip() for part in compiler_flag_sets.split("|")) if compiler_flag_sets else (),
        strategy_options=options.parse_assignments(strategy_option, "--strategy-option"),
        limits=Limits(run_s=trial_limit),
        **given,
    )
    path = output or options.default_output(definition, resume)
    was_there = path.exists()
    begun = False

    def listen(progress: Progress) -> None:
        nonlocal begun
        begun = True
        view.update(progress)
        interruption.check()

    def warn(message: str) -> None:
        print_note(f"warning: {message}")

    try:
        with (
            LiveView(settings.time_limit_s, log=log) as view,
            # The run file is made when everything is ready for the first trial.
            Interruption(lambda: begun or (path.exists() and not was_there)) as interruption,
        ):
            run = tune_kernel(
                definition,
                settings,
                output=path,
                resume=resume,
                on_progress=listen,
                on_warning=warn,
                command=shlex.join(["mptune", *sys.argv[1:]]),
            )
    except KeyboardInterrupt:
        if path.exists():
            _report(Run.load(path), path, json)
        raise
    return _report(run, path, json)


def _check_names(given: Mapping[str, Any]) -> None:
    """Refuse unknown names: finding them takes less time than importing the tuner, which would refuse them too."""
    from mptune.accuracy.metrics import resolve
    from mptune.backends import BACKENDS
    from mptune.strategies import STRATEGIES

    if given["metric"] is not None:
        resolve(given["metric"])
    for kind, known in (("backend", ("auto", *BACKENDS)), ("strategy", tuple(STRATEGIES))):
        if given[kind] not in known:
            raise UnknownNameError(kind, given[kind], known)


def _report(run: Run, path: Path, json: bool) -> int:
    """Print what was found; return the exit code."""
    if json:
        print_json(run.summary())
    else:
        print_run(run, warnings=False)  # the live view has shown them
    if stale := run.state.stale:
        print_note(f"{stale} stored trials were not reused: source, compiler, device or data have changed")
    if run.best is None:
        print_error(_nothing_found(run))
    print_note(f"run file: {path}")
    return 0 if run.best is not None else 1


def _nothing_found(run: Run) -> str:
    from mptune.results import Status

    closest, baseline = run.closest, run.baseline
    if closest is None:
        return f"none of {run.evaluations} configurations ran to its end with finite outputs"
    if closest.status is Status.VIOLATION:
        return f"no configuration satisfies every constraint; the closest: {closest.message} ({closest.configuration})"
    nearest = f"the closest has error {closest.error:.3g}: {closest.configuration}"
    if baseline is not None:
        nearest += (
            f" (the baseline itself has {baseline.error:.3g}: if that is more than rounding in fp64, template and "
            "reference disagree)"
        )
    return f"no configuration meets the threshold; {nearest}"


# -- while it runs -------------------------------------------------------------------------------


class LiveView:
    """What a tuning run shows on standard error meanwhile; only a terminal gets the view that is updated in place.

    Args:
        time_limit_s: no evaluation starts after that.
        log: whether to print a line for each trial.
    """

    def __init__(self, time_limit_s: float | None = None, *, log: bool = False) -> None:
        self._time_limit_s = math.inf if time_limit_s is None else time_limit_s
        self._log = log
        self._told = 0
        self._next_view_s = 0.0
        self._live: Any = None
        self._warned: set[str] = set()

    def __enter__(self) -> LiveView:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False)
            self._live = Live("preparing inputs and reference", console=console, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, progress: Progress) -> None:
        """Show the latest trial, each warning the first time it comes, and where the run stands."""
        self._told += 1
        if self._log:
            echo(_log_line(self._told, progress), err=True)
        for warning in progress.trial.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                print_note(f"warning: {warning}")
        if self._live is None or (start := time.monotonic()) < self._next_view_s:
            return
        self._live.update(self._view(progress))
        # The view looks at all trials: with many of them, it must not take the time of the run.
        took_s = time.monotonic() - start
        self._next_view_s = start + took_s + max(_REFRESH_S, _VIEW_SHARE * took_s)

    def _view(self, progress: Progress) -> Group:
        from rich.console import Group
        from rich.text import Text

        run = progress.run()
        done, budget = run.evaluations, min(progress.budget, run.info.configurations or progress.budget)
        left_s = progress.elapsed_s / done * (budget - done)
        left_s = max(0.0, min(left_s, self._time_limit_s - progress.elapsed_s))
        best = run.best
        found = "no configuration meets the threshold yet"
        if best is not None:
            found = (
                f"best {number(best.time_ms)} ms, speedup {number(run.speedup(best), 3)}, error {number(best.error, 3)}"
            )
        if run.front:
            found += f", {len(run.front)} on the front"
        head = f"{progress.phase}: {done}/{budget} evaluations, {run.feasible} feasible, about {left_s:.0f} s left"
        ahead = (
            Text(f"compiling ahead: {configuration}", style="dim", no_wrap=True, overflow="ellipsis")
            for configuration in progress.ahead
        )
        return Group(Text(head), _bar(done / budget), Text(found), Text(pairs(run.statuses), style="dim"), *ahead)


def _bar(share: float, width: int = 60) -> Text:
    from rich.text import Text

    done = round(width * min(share, 1.0))
    return Text("━" * done, style="green") + Text("━" * (width - done), style="bright_black")


def _log_line(count: int, progress: Progress) -> str:
    from mptune.run import in_short

    trial = progress.trial
    numbers = f"{number(trial.time_ms)} ms, error {number(trial.error, 3)}" if trial.is_valid else ""
    took_s = sum(trial.measurement.durations_s.values())
    origin = "from the run file" if progress.replayed else f"{took_s:.2f} s"
    parts = (str(trial.status), numbers, origin, str(trial.configuration), in_short(trial.message))
    return f"{count}/{progress.budget} {progress.phase}: {'; '.join(part for part in parts if part)}"


class Interruption:
    """Turns Ctrl-C into a KeyboardInterrupt between two trials; a second Ctrl-C interrupts at once.

    Args:
        is_under_way: whether there may be a trial to wait for; before the first, SIGINT interrupts at once.
    """

    def __init__(self, is_under_way: Callable[[], bool]) -> None:
        self._is_under_way = is_under_way
        self._is_asked_for = False
        self._before: Any = signal.SIG_DFL

    def __enter__(self) -> Interruption:
        self._before = signal.getsignal(signal.SIGINT)
        # A shell makes its background jobs ignore Ctrl-C, which is meant for another job.
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Stop here if Ctrl-C was pressed; to be called after each trial.

        Raises:
            KeyboardInterrupt: it was.
        """
        if self._is_asked_for:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signal.signal wants it
        if self._is_asked_for or not self._is_under_way():
            raise KeyboardInterrupt
        self._is_asked_for = True
        # Python's own stream cannot be used: the signal may have come while it was being written to.
        os.write(2, _PROMISE)
