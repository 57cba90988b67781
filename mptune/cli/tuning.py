"""``mptune tune``: the command, what it shows while it runs, and what Ctrl-C does."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from mptune.cli import adopting, options
from mptune.cli.display import echo, print_error, print_json, print_note, print_run, table
from mptune.cli.options import option
from mptune.errors import MptuneError, UnknownNameError
from mptune.markup import number, pairs, plain

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

    from mptune.run import Run
    from mptune.tuning import Progress

__all__ = ["tune"]


def _compilers(text: str | None) -> int | None:
    """Read a number; a compiler's name is a likely mistake."""
    try:
        return None if text is None else int(text)
    except ValueError:
        raise MptuneError(f"--compilers {text!r}: expected a number; --compiler chooses which compiler") from None


@click.command(cls=options.WithArguments)
@options.kernels_or_program
@options.backend
@options.size
@options.several_sizes
@options.goals
@option(
    "--metric",
    "NAME",
    "Error metric, such as NRMSE, MRE or MaxAE, instead of the kernel's own; also of each row, column or block: "
    "'NRMSE over rows max', 'MaxRE over block 8x8 0.99'.",
)
@option("--observe observers", "NAME...", "Measure more; 'mptune list --observers' describes what.")
@options.restricted("Search")
@options.search
@option("--budget", "N", "Evaluate this many different configurations.", default=100)
@option("--time-limit time_limit_s", "SECONDS", "Start no new evaluation after this many seconds.")
@option("--baseline-share", "X", "Spend this share of the budget on finding the all-fp64 baseline.", default=0.2)
@option(
    "--trial-limit",
    "SECONDS|Nx",
    "Stop a launch, or the timing of a configuration, that takes longer; 10x: a launch that takes longer than 10 "
    "times the baseline's.",
    default="30",
)
@option("--compiler-flag flags", "FLAG...", "Add a flag for the compiler.")
@option("--compiler", "A,B", "Compilers to choose from on the host: g++, clang++ or zig.", show_default="one of these")
@option(
    "--compiler-flag-set compiler_flag_sets",
    '"FLAGS|..."',
    "Add these compiler flags on the host. Of several sets, separated by |, the best is searched for.",
    parse=lambda text: tuple(part.strip() for part in text.split("|")) if text else (),
)
@option("--flush-cache", "auto|on|off", "Empty the device's caches before each timed launch.", default="auto")
@option("--seed", "N", "Seed of the inputs and of the strategy.", default=0)
@option("--inputs", "N", "Measure errors in the search on this many draws of the inputs; the worst counts.", default=3)
@option("--verify", "N", "Verify the result on this many unseen inputs, time permitting; 0 for none.", default=20)
@option("--workers", "N", "Use this many of the machine's devices at the same time.", default=1)
@option("--scheduler", "ADDRESS", "Use the devices of the workers of this Dask scheduler.")
@option(
    "--compilers",
    "N",
    "Compile this many configurations ahead at the same time.",
    type=str,
    parse=_compilers,
    show_default="one per core",
)
@options.sources
@options.first
@option("--from-all", "", "Start from every run that fits in the folder of the run file.")
@option("--output -o", "RUN.db", "Run file; with --sizes one for each, called after it.", show_default="runs/KERNEL.db")
@option("--resume", "", "Continue the run in the run file.")
@option("--log", "", "Print a line for each trial on standard error.")
@option("--quiet", "", "Show no progress: neither the view of a terminal nor the line a minute elsewhere.")
@options.of_programs
@options.as_json
def tune(
    kernel: tuple[str, ...],
    arguments: tuple[str, ...],
    size: Sequence[str],
    several_sizes: dict[str, tuple[int, ...]],
    trial_limit: str,
    from_all: bool,
    output: Path | None,
    resume: bool,
    log: bool,
    quiet: bool,
    json: bool,
    **given: Any,
) -> int:
    """Find the fastest configuration that is accurate enough.

    The kernel is a bundled kernel's name, or the file that defines one, or its folder. Of a program, all files are
    given, or their folder, and its ARGUMENTS behind --: it is adopted first, as 'mptune adopt' does with the same
    options. With several objectives, the result is the best trade-offs between them.
    """
    from mptune.source.loading import load_tunable

    of_program = options.taken_of_programs(given) | ({"arguments": arguments} if arguments else {})
    definition = load_tunable(adopting.definition_of(kernel, of_program, given["backend"]))
    preset, sizes = options.parse_sizes(definition, size)
    _check_names(given)

    from mptune.run import Run
    from mptune.tuning import TuneSettings, tune_sizes
    from mptune.tuning import tune as tune_kernel

    together = options.ready_sizes(definition, preset, sizes, several_sizes)
    path, files = _run_files(definition.name, together, output, resume)
    knowledge = path.parent if from_all else None
    settings = TuneSettings(size=preset, sizes=sizes, limits=trial_limit, knowledge=knowledge, **given)
    for each in files:
        if resume and not each.exists():
            print_note(f"{each} does not exist: starting a new run")
    how: dict[str, Any] = {"output": path, "resume": resume, "command": shlex.join(["mptune", *sys.argv[1:]])}

    def report(runs: Sequence[Run]) -> int:
        return _report_sizes(runs, together, files, json) if together else _report(runs[0], path, json)

    try:
        with LiveView(settings.time_limit_s, log=log, is_quiet=quiet or json) as view, interruption() as after_trial:

            def listen(show: Callable[[Progress], None]) -> Callable[[Progress], None]:
                def told(progress: Progress) -> None:
                    show(progress)
                    after_trial()

                return told

            how |= {"on_progress": listen(view.update), "on_verification": listen(view.verify)}
            how |= {"on_warning": lambda message: print_note(f"warning: {message}")}
            if together:
                runs = tune_sizes(definition, several_sizes, settings, on_size=view.begin, **how)
            else:
                runs = [tune_kernel(definition, settings, **how)]
    except KeyboardInterrupt:
        if any(each.exists() for each in files):
            report([Run.load(each) for each in files if each.exists()])
            more = (() if resume else ("--resume",)) + (() if output else ("--output", str(path)))
            print_note(f"to go on: {shlex.join(['mptune', *sys.argv[1:], *more])}")
        raise
    return report(runs)


def _run_files(
    kernel: str, together: Sequence[Mapping[str, int]], output: Path | None, resume: bool
) -> tuple[Path, list[Path]]:
    """Return the output, and the run files: by default in the folder ``runs``, new ones, or the latest to resume."""
    from mptune.tuning.sizes import files_of_sizes

    def files(path: Path) -> list[Path]:
        return files_of_sizes(path, together) if together else [path]

    if output is not None:
        return output, files(output)
    number, path, latest = 1, Path("runs") / f"{kernel}.db", None
    while any(each.exists() for each in files(path)):
        number, latest = number + 1, path
        path = path.with_name(f"{kernel}-{number}.db")
    chosen = latest if resume and latest is not None else path
    return chosen, files(chosen)


def _check_names(given: Mapping[str, Any]) -> None:
    """Refuse unknown names: finding them takes less time than importing the tuner, which would refuse them too."""
    from mptune.accuracy.metrics import resolve
    from mptune.backends import BACKENDS
    from mptune.strategies import STRATEGIES

    if given["metric"] is not None:
        resolve(given["metric"])
    if given["backend"] not in ("auto", *BACKENDS):
        raise UnknownNameError("backend", given["backend"], ("auto", *BACKENDS))
    STRATEGIES.check(given["strategy"])


def _report(run: Run, path: Path, json: bool) -> int:
    """Print what was found; return the exit code."""
    if json:
        print_json(run.summary())
    else:
        print_run(run, is_live=True)
    if run.best is None:
        print_error(run.describe().verdict)
    print_note(f"run file: {path}")
    return 0 if run.best is not None else 1


def _report_sizes(runs: Sequence[Run], together: Sequence[Mapping[str, int]], files: Sequence[Path], json: bool) -> int:
    """Print what was found at each size, and how to make wisdom of it; return the exit code."""
    from mptune.results.description import compare_runs

    names, evaluations = list(together[0]), sum(run.evaluations for run in runs)
    run_at = {tuple(run.info.sizes[name] for name in names): run for run in runs}
    tuned = {pairs(sizes): run_at.get(tuple(sizes.values())) for sizes in together}
    if json:
        results = [
            {"run_file": str(path), "result": run.summary()}
            for path, run in zip(files, tuned.values(), strict=True)
            if run is not None
        ]
        document = {"sizes": {name: [sizes[name] for sizes in together] for name in names}, "runs": results}
        print_json({"kernel": runs[0].kernel if runs else None, "evaluations": evaluations, **document})
    elif runs:
        found, first = compare_runs(tuned), runs[0].describe()
        echo(first.title.partition(", sizes ")[0])
        echo(f"threshold {first.text('threshold')}, {evaluations} evaluations\n")
        echo(table(found.columns, found.rows, right=found.right) + "\n")
    for label, run in tuned.items():
        if run is None:
            print_error(f"{label}: was not begun; go on with --resume")
        elif run.best is None:
            print_error(f"{label}: {run.describe().verdict}")
    print_note(f"run files: {', '.join(map(str, files))}")
    found_in = [str(path) for path, run in zip(files, tuned.values(), strict=True) if run and run.best is not None]
    if found_in and runs[0].info.objective.is_time and not runs[0].info.objective.constraints:
        words = ["mptune", "wisdom", *found_in, "-o", f"{runs[0].kernel}.wisdom.json"]
        print_note(f"for any size: {shlex.join(words)}")
    return 0 if len(found_in) == len(together) else 1


# -- while it runs -------------------------------------------------------------------------------


class LiveView:
    """What a tuning run shows on standard error: on a terminal a view updated in place, elsewhere a line a minute.

    Args:
        time_limit_s: no evaluation starts after that.
        log: whether to print a line for each trial.
        is_quiet: whether to show neither view nor lines of progress.
        clock: time in seconds.
    """

    def __init__(
        self,
        time_limit_s: float | None = None,
        *,
        log: bool = False,
        is_quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from mptune.show.progress import ProgressLines

        self._lines = ProgressLines(time_limit_s, clock=clock, is_quiet=is_quiet or log or sys.stderr.isatty())
        self._is_quiet = is_quiet
        self._log = log
        self._trials = 0
        self._next_view_s = 0.0
        self._live: Live | None = None
        self._warned: set[str] = set()

    def __enter__(self) -> LiveView:
        if sys.stderr.isatty() and not self._is_quiet:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False)
            self._live = Live("preparing inputs and reference", console=console, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, sizes: Mapping[str, int], budget: int) -> None:
        """Say which of several sizes is tuned next."""
        self._trials = 0
        self._lines.begin(sizes)
        print_note(f"{pairs(sizes)}: up to {budget} evaluations")

    def update(self, progress: Progress) -> None:
        """Show the latest trial, each warning the first time it comes, and where the run stands."""
        self._trials += 1
        self._lines(progress)
        if self._log:
            echo(_log_line(self._trials, progress), err=True)
        for warning in progress.trial.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                print_note(f"warning: {warning}")
        if self._live is None or (start := time.monotonic()) < self._next_view_s:
            return
        self._live.update(self._view(progress))
        # The view looks at all trials: with many of them, it must not take more than one twentieth of the time.
        took_s = time.monotonic() - start
        self._next_view_s = start + took_s + max(0.1, 20 * took_s)

    def verify(self, progress: Progress) -> None:
        """Show on how many unseen inputs a trial has been verified."""
        if self._live is not None:
            unseen = progress.trial.measurement.metrics.get("unseen_inputs", 0)
            self._live.update(f"verification: {unseen:.0f} unseen inputs, {progress.trial.configuration}")

    def _view(self, progress: Progress) -> Group:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        run, (stands, found) = progress.run(), self._lines.stands(progress)
        budget = min(progress.budget, run.info.configurations or progress.budget)
        ahead = (f"compiling ahead: {configuration}" for configuration in progress.ahead)
        return Group(
            Text(stands),
            ProgressBar(budget, min(run.evaluations, budget), width=60),
            Text(plain(found)),
            *(Text(plain(line), "dim", no_wrap=True, overflow="ellipsis") for line in (pairs(run.statuses), *ahead)),
        )


def _log_line(count: int, progress: Progress) -> str:
    from mptune.run import in_short

    trial = progress.trial
    numbers = f"{number(trial.time_ms)} ms, error {number(trial.error, 3)}" if trial.is_valid else ""
    took_s = sum(trial.measurement.durations_s.values())
    origin = "from the run file" if progress.replayed else f"{took_s:.2f} s"
    parts = (str(trial.status), numbers, origin, str(trial.configuration), in_short(trial.message))
    return f"{count}/{progress.budget} {progress.phase}: {'; '.join(part for part in parts if part)}"


@contextlib.contextmanager
def interruption() -> Iterator[Callable[[], None]]:
    """Turn Ctrl-C into a KeyboardInterrupt between two trials.

    Yields what to call after each trial: it raises there if Ctrl-C was pressed. Before the first trial has ended, or
    pressed once more, Ctrl-C interrupts at once.
    """
    is_asked_for = has_begun = False

    def after_trial() -> None:
        nonlocal has_begun
        has_begun = True
        if is_asked_for:
            raise KeyboardInterrupt

    def handle(_signal: int, _frame: FrameType | None) -> None:
        nonlocal is_asked_for
        if is_asked_for or not has_begun:
            raise KeyboardInterrupt
        is_asked_for = True
        # Python's own stream cannot be used: the signal may have come while it was being written to.
        os.write(2, b"\nfinishing the current trial; Ctrl-C again stops at once\n")

    before = signal.getsignal(signal.SIGINT)
    # A shell makes its background jobs ignore Ctrl-C, which is meant for another job.
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handle)
    try:
        yield after_trial
    finally:
        signal.signal(signal.SIGINT, before)
