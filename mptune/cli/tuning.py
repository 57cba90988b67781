"""``mptune tune``: the command, its progress, and Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from mptune.cli import adopting, options
from mptune.cli.display import echo, print_described, print_error, print_json, print_note, print_run
from mptune.cli.options import option
from mptune.errors import RunFileTakenError, UnknownNameError
from mptune.markup import Description, number, pairs

if TYPE_CHECKING:
    from mptune.run import Run
    from mptune.tuning import Progress


@click.command(cls=options.WithArguments)
@click.argument("kernel", metavar="KERNEL|FILE.py|DIR|PROGRAM.cu...", nargs=-1, required=True)
@options.backend
@options.size
@option("--sizes several_sizes", "NAME=A,B,...|NAME=A:B:COUNT...", "Tune for each of these sizes under one budget.")
@options.goals
@option(
    "--for gpu",
    "GPU|host",
    "Estimate times on a v100, a100, h100, rtx3090, rtx4090, mi250x or mi300x; or measure the processor's.",
    show_default="a100 for a CUDA program and mi250x for a HIP program on the host, else measured times",
)
@option("--metric", "NAME", "Error metric such as NRMSE or MaxAE, also by row, column or block: 'NRMSE over rows max'.")
@option("--observe observers", "NAME...", "Activate an observer; 'mptune list --observers' describes all.")
@options.restricted("Search")
@options.search
@option("--budget", "N", "Evaluate this many different configurations.", default=100)
@option("--time-limit time_limit_s", "SECONDS", "Start no new evaluation after this many seconds.")
@option("--baseline-share", "X", "Spend this share of the budget on finding the all-fp64 baseline.", default=0.2)
@option("--trial-limit", "SECONDS|Nx", "Timeout of a launch or a timing; Nx: N baseline times a launch.", default="30")
@option("--compiler-flag flags", "FLAG...", "Add a flag for the compiler.")
@option("--compiler", "A,B", "Compilers to choose from on the host: g++, clang++ or zig.", show_default="one of these")
@option("--compiler-flag-set compiler_flag_sets", '"FLAGS|..."', "Add flags on the host; several sets are searched.")
@option("--flush-cache", "auto|on|off", "Empty the device's caches before each timed launch.", default="auto")
@option("--seed", "N", "Seed of the inputs and of the strategy.", default=0)
@option("--inputs", "N", "Draws of the inputs on which errors are measured in the search; the worst counts.", default=3)
@option("--verify", "N", "Verify the result on this many unseen inputs, time permitting; 0 for none.", default=20)
@option("--workers", "N", "Use this many of the machine's devices at the same time.", default=1)
@option("--scheduler", "ADDRESS", "Use the devices of the workers of this Dask scheduler.")
@option("--compilers", "N", "Compile this many configurations ahead at the same time.", show_default="one per core")
@options.sources
@option("--first", "FILE|NAME=VALUE,...", "Evaluate these values first, or the best of a run file or of JSON.")
@option("--from-all", "", "Start from every suitable run in the folder of the run file.")
@option("--output -o", "RUN.db", "Run file; with --sizes the stem of several.", show_default="runs/KERNEL.db")
@option("--resume", "", "Continue the run in the run file.")
@option("--log", "", "Print a line for each trial on standard error.")
@option("--quiet", "", "Show no progress.")
@options.adoption
@options.as_json
def tune(
    kernel: tuple[str, ...],
    arguments: tuple[str, ...] | None,
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

    The kernel is the name of a bundled kernel, a definition file, or its folder. A program is given by all of its files
    or their folder, with its ARGUMENTS after --, and is adopted first, as by 'mptune adopt' with the same options. With
    several objectives, the result is the front.
    """
    from mptune.source.loading import load_tunable

    of_program = options.pop_adoption(given) | ({"arguments": arguments} if arguments is not None else {})
    definition = load_tunable(adopting.definition_of(kernel, of_program, given["backend"]))
    preset, sizes = options.parse_sizes(definition, size)

    _check_names(given)

    from mptune.progress import ProgressView
    from mptune.run import Run
    from mptune.tuning import TuneSettings, tune_sizes
    from mptune.tuning import tune as tune_kernel
    from mptune.tuning.sizes import sizes_together

    together = sizes_together(definition, several_sizes, preset, sizes) if several_sizes else []
    path, files = _run_files(definition.name, together, output, resume)
    knowledge = path.parent if from_all else None
    settings = TuneSettings(size=preset, sizes=sizes, limits=trial_limit, knowledge=knowledge, **given)
    for each in files:
        if resume and not each.exists():
            print_note(f"{each} does not exist: starting a new run")
    view = ProgressView(
        settings.time_limit_s, is_live=sys.stderr.isatty(), is_quiet=quiet or json or (log and not sys.stderr.isatty())
    )
    warned = set[str]()

    def report(runs: Sequence[Run]) -> int:
        return _report_sizes(runs, together, files, json) if together else _report(runs[0], path, json)

    def on_warning(message: str) -> None:
        if message not in warned:
            warned.add(message)
            print_note(f"warning: {message}")

    def on_size(sizes: Mapping[str, int], budget: int) -> None:
        view.begin(sizes)
        print_note(f"{pairs(sizes)}: up to {budget} evaluations")

    try:
        with view, interruption() as after_trial:

            def on_progress(progress: Progress) -> None:
                view(progress)
                if log:
                    echo(_log_line(view.trials, progress), err=True)
                for warning in progress.trial.warnings:
                    on_warning(warning)
                after_trial()

            def on_verification(progress: Progress) -> None:
                view.verify(progress)
                after_trial()

            how: dict[str, Any] = {"resume": resume, "on_warning": on_warning, "command": _command()}
            how |= {"on_progress": on_progress, "on_verification": on_verification}
            while True:
                try:
                    if together:
                        runs = tune_sizes(definition, several_sizes, settings, output=path, on_size=on_size, **how)
                    else:
                        runs = [tune_kernel(definition, settings, output=path, **how)]
                    break
                except RunFileTakenError:
                    if output is not None or resume or view.trials:
                        raise
                    # Another command has taken the default name since: take the next.
                    path, files = _run_files(definition.name, together, output, resume)
    except KeyboardInterrupt:
        if any(each.exists() for each in files):
            report([Run.load(each) for each in files if each.exists()])
            more = (() if resume else ("--resume",)) + (() if output else ("--output", str(path)))
            print_note(f"to continue: {_command(*more)}")
        else:
            print_note("no trial was evaluated, and no run file was written")
        raise
    return report(runs)


def _command(*more: str) -> str:
    words = ["mptune", *sys.argv[1:]]
    end = words.index("--") if "--" in words else len(words)  # arguments of a program follow
    return shlex.join([*words[:end], *more, *words[end:]])


def _run_files(
    kernel: str, together: Sequence[Mapping[str, int]], output: Path | None, resume: bool
) -> tuple[Path, list[Path]]:
    """Return the output and the run files: by default new files in ``runs``, or the latest files to resume."""
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
    """Raise UnknownNameError before the slow import of the tuner."""
    from mptune.accuracy.metrics import resolve
    from mptune.backends import BACKENDS
    from mptune.strategies import STRATEGIES

    if given["metric"] is not None:
        resolve(given["metric"])
    if given["backend"] not in ("auto", *BACKENDS):
        raise UnknownNameError("backend", given["backend"], ("auto", *BACKENDS))
    STRATEGIES.check(given["strategy"])


def _report(run: Run, path: Path, json: bool) -> int:
    print_json(run.summary()) if json else print_run(run, is_live=True)
    if run.best is None:
        print_error(run.describe().verdict)
    print_note(f"run file: {path}")
    return 0 if run.best is not None else 1


def _report_sizes(runs: Sequence[Run], together: Sequence[Mapping[str, int]], files: Sequence[Path], json: bool) -> int:
    from mptune.results.description import compare_runs

    names, evaluations = list(together[0]), sum(run.evaluations for run in runs)
    run_at = {tuple(run.info.sizes[name] for name in names): run for run in runs}
    tuned = {pairs(sizes): run_at.get(tuple(sizes.values())) for sizes in together}
    of_file = {str(path): run for path, run in zip(files, tuned.values(), strict=True) if run is not None}
    if json:
        results = [{"run_file": path, "result": run.summary()} for path, run in of_file.items()]
        document = {"sizes": {name: [sizes[name] for sizes in together] for name in names}, "runs": results}
        print_json({"kernel": runs[0].kernel if runs else None, "evaluations": evaluations, **document})
    elif runs:
        first = runs[0].describe()
        echo(first.title.partition(", sizes ")[0])
        echo(f"threshold {first.text('threshold')}, {evaluations} evaluations\n")
        print_described(Description(tables=(compare_runs(tuned),)))
    for label, run in tuned.items():
        if run is None or run.best is None:
            why = "was not started; continue with --resume" if run is None else run.describe().verdict
            print_error(f"{label}: {why}")
    print_note(f"run files: {', '.join(map(str, files))}")
    found_in = [path for path, run in of_file.items() if run.best is not None]
    if found_in and runs[0].info.objective.is_time and not runs[0].info.objective.constraints:
        words = ["mptune", "wisdom", *found_in, "-o", f"{runs[0].kernel}.wisdom.json"]
        print_note(f"for any size: {shlex.join(words)}")
    return 0 if len(found_in) == len(together) else 1


# -- while it runs -------------------------------------------------------------------------------


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
    """Delay Ctrl-C to the end of a trial, and yield the function to call there, which raises KeyboardInterrupt.

    Ctrl-C before the end of the first trial, and a second Ctrl-C, interrupt at once.
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
        # Not Python's stream, which may be in use when the signal arrives.
        with contextlib.suppress(OSError):
            os.write(2, b"\nfinishing the current trial; Ctrl-C again stops at once\n")

    before = signal.getsignal(signal.SIGINT)
    # Background jobs of a shell ignore Ctrl-C, which is meant for the foreground job.
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handle)
    try:
        yield after_trial
    finally:
        signal.signal(signal.SIGINT, before)
