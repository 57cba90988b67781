"""``mptune tune``: the command, what it shows while it runs, and what Ctrl-C does."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from mptune.cli import adopting, options
from mptune.cli.display import (
    echo,
    errors_text,
    number,
    pairs,
    print_error,
    print_json,
    print_note,
    print_run,
    print_sizes,
)
from mptune.cli.options import option
from mptune.errors import MptuneError, UnknownNameError

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

    from mptune.run import Run
    from mptune.tuning import Progress

__all__ = ["tune"]

#: Seconds between lines of progress where standard error is no terminal.
_LINE_EVERY_S: Final = 60.0


def _flag_sets(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split("|")) if text else ()


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
@options.max_error
@option(
    "--metric",
    "NAME",
    "Error metric, such as NRMSE, MRE or MaxAE, to use instead of the kernel's own. It can be taken of each row, "
    "column or block: 'NRMSE over rows max', 'MaxRE over block 8x8 0.99'.",
)
@options.objective
@options.objectives
@options.maximise
@options.constraints
@option("--observe observers", "NAME...", "Measure more; 'mptune list --observers' describes what.")
@option(
    "--parameter -p restrict",
    "NAME=VALUE,VALUE...",
    "Search only where a parameter has one of these values.",
    parse=options.parse_values,
)
@option(
    "--balance",
    "X",
    "Search only where fetching and computing take as long as each other up to this factor, at speeds measured of the "
    "device; of a kernel that says what that means for it, as gemm does.",
    type=float,
)
@options.penalty
@options.alpha
@options.beta
@options.strategy
@options.strategy_option
@option("--budget", "N", "Evaluate this many different configurations.", default=100)
@option("--time-limit time_limit_s", "SECONDS", "Start no new evaluation after this many seconds.", type=float)
@option("--baseline-share", "X", "Spend this share of the budget on finding the all-fp64 baseline.", default=0.2)
@option("--trial-limit", "SECONDS", "Stop a launch, or the timing of a configuration, that takes longer.", default=30.0)
@option("--compiler-flag flags", "FLAG...", "Add a flag for the compiler.")
@option(
    "--compiler",
    "NAME,NAME",
    "Compile with this compiler on the host: g++, clang++ (also clang++-19) or zig. With several, the best is searched "
    "for.",
    parse=options.parse_names,
    show_default="the first installed",
)
@option(
    "--compiler-flag-set compiler_flag_sets",
    '"FLAGS|..."',
    "Add these compiler flags on the host. With several sets, separated by |, the best is searched for.",
    parse=_flag_sets,
)
@option(
    "--flush-cache",
    "auto|on|off",
    "Empty the device's caches before each timed launch; auto does so on GPUs, if it makes a difference.",
    default="auto",
)
@option("--seed", "N", "Seed of the inputs and of the strategy.", default=0)
@option("--inputs", "N", "Measure errors in the search on this many draws of the inputs; the worst counts.", default=3)
@option(
    "--verify",
    "M",
    "Run what is reported on this many unseen inputs at the end, fewer (but 5) if that takes a quarter of the run; 0 "
    "for none.",
    default=20,
)
@option("--workers", "N", "Use this many of the machine's devices at the same time.", default=1)
@option("--scheduler", "ADDRESS", "Use the devices of the workers of this Dask scheduler.")
@option(
    "--compilers",
    "N",
    "How many compilations run ahead at the same time; with 0 each configuration is compiled in its turn. To choose "
    "the compiler, use --compiler.",
    parse=_compilers,
    show_default="one per core; beside a GPU two cores are spared",
)
@options.sources
@options.first
@option("--from-all", "", "Start from every run that fits in the folder of the run file.")
@option(
    "--output -o",
    "RUN.db",
    "Run file to write; with --sizes one for each, called after it.",
    show_default="runs/KERNEL.db",
)
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
    trial_limit: float,
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

    from mptune.measure.device import Limits
    from mptune.run import Run
    from mptune.tuning import TuneSettings, tune_sizes
    from mptune.tuning import tune as tune_kernel

    together = options.ready_sizes(definition, preset, sizes, several_sizes)
    path, files = _run_files(definition.name, together, output, resume)
    knowledge = path.parent if from_all else None
    settings = TuneSettings(size=preset, sizes=sizes, limits=Limits(run_s=trial_limit), knowledge=knowledge, **given)
    were_there = {each for each in files if each.exists()}
    for each in files:
        if resume and each not in were_there:
            print_note(f"{each} does not exist: starting a new run")
    command = shlex.join(["mptune", *sys.argv[1:]])

    # Said when everything that was given has turned out right.
    unsaid = iter([", ".join(map(str, files))])

    def begin(at: Mapping[str, int], evaluations: int) -> None:
        for names in unsaid:
            print_note(f"run files: {names}")
        view.begin(at, evaluations)

    def report(runs: Sequence[Run]) -> int:
        return _report_sizes(runs, together, files, json) if together else _report(runs[0], path, json)

    try:
        with _shown(
            settings.time_limit_s,
            log=log,
            is_quiet=quiet or json,
            # A run file is made when everything is ready for the first trial.
            is_begun=lambda: any(each.exists() and each not in were_there for each in files),
        ) as (view, listeners):
            if together:
                runs = tune_sizes(
                    definition,
                    several_sizes,
                    settings,
                    output=path,
                    resume=resume,
                    on_size=begin,
                    command=command,
                    **listeners,
                )
            else:
                runs = [tune_kernel(definition, settings, output=path, resume=resume, command=command, **listeners)]
    except KeyboardInterrupt:
        if any(each.exists() for each in files):
            report([Run.load(each) for each in files if each.exists()])
            words = [
                "mptune",
                *sys.argv[1:],
                *(() if resume else ("--resume",)),
                *(() if output else ("--output", str(path))),
            ]
            print_note(f"to go on: {shlex.join(words)}")
        raise
    return report(runs)


@contextlib.contextmanager
def _shown(
    time_limit_s: float | None, *, log: bool, is_quiet: bool, is_begun: Callable[[], bool]
) -> Iterator[tuple[LiveView, dict[str, Any]]]:
    """Show what tuning does: give the view, and what is told of it."""
    begun = False

    def listen(progress: Progress) -> None:
        nonlocal begun
        begun = True
        view.update(progress)
        stop_if_asked()

    def listen_to_verification(progress: Progress) -> None:
        view.verify(progress)
        stop_if_asked()

    with (
        LiveView(time_limit_s, log=log, is_quiet=is_quiet) as view,
        interruption(lambda: begun or is_begun()) as stop_if_asked,
    ):
        yield (
            view,
            {
                "on_progress": listen,
                "on_verification": listen_to_verification,
                "on_warning": lambda message: print_note(f"warning: {message}"),
            },
        )


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
        print_run(run, warnings=False)  # the live view has shown them
    if run.best is None:
        print_error(_nothing_found(run))
    print_note(f"run file: {path}")
    return 0 if run.best is not None else 1


def _report_sizes(runs: Sequence[Run], together: Sequence[Mapping[str, int]], files: Sequence[Path], json: bool) -> int:
    """Print what was found at each size, and how to make wisdom of it; return the exit code."""
    from mptune.tuning.sizes import label_of

    names = list(together[0])
    run_at = {tuple(run.info.sizes[name] for name in names): run for run in runs}
    tuned = [run_at.get(tuple(sizes.values())) for sizes in together]
    if json:
        print_json(
            {
                "kernel": runs[0].kernel if runs else None,
                "sizes": {name: [sizes[name] for sizes in together] for name in names},
                "evaluations": sum(run.evaluations for run in runs),
                "runs": [
                    {"run_file": str(path), "result": run.summary()}
                    for path, run in zip(files, tuned, strict=True)
                    if run is not None
                ],
            }
        )
    else:
        print_sizes(together, tuned)
    for sizes, run in zip(together, tuned, strict=True):
        if run is None:
            print_error(f"{label_of(sizes)}: was not begun; go on with --resume")
        elif run.best is None:
            print_error(f"{label_of(sizes)}: {_nothing_found(run)}")
    found = [str(path) for path, run in zip(files, tuned, strict=True) if run is not None and run.best is not None]
    if found and runs[0].info.objective.is_time and not runs[0].info.objective.constraints:
        print_note(f"for any size: {shlex.join(['mptune', 'wisdom', *found, '-o', f'{runs[0].kernel}.wisdom.json'])}")
    return 0 if len(found) == len(together) else 1


def _nothing_found(run: Run) -> str:
    from mptune.results.trial import Status
    from mptune.space.parameters import beyond_baseline

    closest = run.closest
    if closest is None and not run.trials and run.state.ended:
        return f"nothing was evaluated: {run.state.ended}"
    if closest is None:
        return f"none of {len(run.trials)} configurations gave outputs that can be judged: {pairs(run.statuses)}"
    if closest.status is Status.VIOLATION:
        return f"no configuration satisfies every constraint; the closest: {closest.message} ({closest.configuration})"
    nearest = f"the closest has {errors_text(run, closest)}: {closest.configuration}"
    objective = run.objective
    if isinstance(objective.threshold, Mapping):
        broken = objective.binding(closest)
        nearest += f"; {run.info.measured_by(broken)} exceeds its limit of {objective.limits[broken]:g} most"
    fixed = run.info.baseline_values or {}
    widest = [t for t in run.trials if t.is_valid and t.configuration.is_among(fixed)]
    is_widest = not any(beyond_baseline({p.name: value}, fixed) for p in run.info.parameters for value in p.values)
    if fixed and widest and all(objective.error_excess(trial) > 0 for trial in widest):
        least = errors_text(run, min(widest, key=objective.error_excess))
        nearest += (
            f"; {'the widest types themselves' if is_widest else 'plain types'} do not meet it, at best with {least}"
        )
        if is_widest:
            nearest += ": no types are more exact than the method is, unless template and reference disagree"
    return f"no configuration meets the threshold; {nearest}"


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
        self._is_quiet = is_quiet
        self._clock = clock
        self._next_line_s = clock() + _LINE_EVERY_S
        self._time_limit_s = math.inf if time_limit_s is None else time_limit_s
        self._log = log
        self._trials = 0
        self._sizes = ""
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
        self._sizes = f"{pairs(sizes)}, "
        print_note(f"{pairs(sizes)}: up to {budget} evaluations")

    def update(self, progress: Progress) -> None:
        """Show the latest trial, each warning the first time it comes, and where the run stands."""
        self._trials += 1
        if self._log:
            echo(_log_line(self._trials, progress), err=True)
        for warning in progress.trial.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                print_note(f"warning: {warning}")
        if self._live is None:
            if not (self._log or self._is_quiet) and self._clock() >= self._next_line_s:
                stands, found = self._stands(progress)
                print_note(f"{stands}; {found}")
                self._next_line_s = self._clock() + _LINE_EVERY_S
            return
        if (start := time.monotonic()) < self._next_view_s:
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

    def _stands(self, progress: Progress) -> tuple[str, str]:
        """Return how far the run has come, and the best so far."""
        run = progress.run()
        done = run.evaluations
        budget = min(progress.budget, run.info.configurations or progress.budget)
        left_s = progress.elapsed_s / done * (budget - done)
        left_s = max(0.0, min(left_s, self._time_limit_s - progress.elapsed_s))
        found = "no configuration meets the threshold yet"
        if (best := run.best) is not None:
            speedup, error = number(run.speedup(best), 3), number(best.error, 3)
            found = f"best {number(best.time_ms)} ms, speedup {speedup}, error {error}"
        if run.front:
            found += f", {len(run.front)} on the front"
        stands = f"{done}/{budget} evaluations, {run.feasible} feasible, about {left_s:.0f} s left"
        return f"{self._sizes}{progress.phase}: {stands}", found

    def _view(self, progress: Progress) -> Group:
        from rich.console import Group
        from rich.text import Text

        run = progress.run()
        done = run.evaluations
        budget = min(progress.budget, run.info.configurations or progress.budget)
        stands, found = self._stands(progress)
        ahead = (
            Text(f"compiling ahead: {configuration}", style="dim", no_wrap=True, overflow="ellipsis")
            for configuration in progress.ahead
        )
        filled = round(60 * min(done / budget, 1.0))
        bar = Text.assemble(("━" * filled, "green"), ("━" * (60 - filled), "bright_black"))
        return Group(
            Text(stands),
            bar,
            Text(found),
            Text(pairs(run.statuses), style="dim"),
            *ahead,
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
def interruption(is_under_way: Callable[[], bool]) -> Iterator[Callable[[], None]]:
    """Turn Ctrl-C into a KeyboardInterrupt between two trials; a second Ctrl-C interrupts at once.

    Yields what to call after each trial: it stops there if Ctrl-C was pressed.

    Args:
        is_under_way: whether there may be a trial to wait for; before the first, Ctrl-C interrupts at once.
    """
    is_asked_for = False

    def stop_if_asked() -> None:
        if is_asked_for:
            raise KeyboardInterrupt

    def handle(_signal: int, _frame: FrameType | None) -> None:
        nonlocal is_asked_for
        if is_asked_for or not is_under_way():
            raise KeyboardInterrupt
        is_asked_for = True
        # Python's own stream cannot be used: the signal may have come while it was being written to.
        os.write(2, b"\nfinishing the current trial; Ctrl-C again stops at once\n")

    before = signal.getsignal(signal.SIGINT)
    # A shell makes its background jobs ignore Ctrl-C, which is meant for another job.
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handle)
    try:
        yield stop_if_asked
    finally:
        signal.signal(signal.SIGINT, before)
