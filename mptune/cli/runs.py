"""Commands that read run files and wisdom, and measure more of a run: ``explain`` and ``verify``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mptune.cli import adopting, options
from mptune.cli.display import (
    counter,
    echo,
    print_described,
    print_error,
    print_json,
    print_note,
    print_run,
    table,
    wrapped,
)
from mptune.cli.options import option
from mptune.errors import MptuneError, PlotError, UnknownNameError
from mptune.markup import number, pairs, plain

if TYPE_CHECKING:
    from mptune.emit import Winner
    from mptune.results.trial import Trial
    from mptune.run import Run
    from mptune.tuning.explain import Explanation
    from mptune.tuning.verify import Case, Verification
    from mptune.wisdom import AtSize, KernelWisdom, Timed, Wisdom

__all__ = ["emit", "explain", "export", "pareto", "plot", "report", "show", "verify", "wisdom"]

_run_file = options.file_argument("run_file", "RUN.db|SPACE")
_run_files = options.file_argument("run_files", "RUN.db|SPACE...")


@click.command()
@options.file_argument("run_file", "RUN.db|SPACE|NAME.wisdom.json")
@options.as_json
def show(run_file: Path, json: bool) -> None:
    """Show what a run found and how its trials ended, or what wisdom knows."""
    from mptune.interop import read_run
    from mptune.wisdom import Wisdom, is_wisdom

    if is_wisdom(run_file):
        found = Wisdom.load(run_file)
        print_json(found.to_json()) if json else print_wisdom(found)
        return
    run = read_run(run_file)
    if json:
        print_json(run.summary())
    else:
        print_run(run)


@click.command()
@_run_file
@option(
    "--metrics",
    "A,B",
    "Two or more metrics, separated by commas; speedup and objectives such as energy are metrics, too.",
    show_default="the run's objectives, or time_ms,error",
)
@options.as_json
def pareto(run_file: Path, metrics: Sequence[str], json: bool) -> None:
    """Show the configurations that no other beats in every metric."""
    from mptune.interop import read_run
    from mptune.results.description import describe_front
    from mptune.results.metric_expressions import OBJECTIVES

    run = read_run(run_file)
    usual = run.objective.metrics if run.objective.also else ("time_ms", "error")
    names = tuple(OBJECTIVES.get(name, name) for name in metrics) or usual
    if json:
        print_json(run.pareto_document(names))
    else:
        print_described(describe_front(run, names))


@click.command()
@_run_file
@option(
    "--kind kinds",
    "KIND...",
    "pareto, progress, parameters, time, sensitivity, of an application kernels, or all of them; or answer, which runs "
    "the application and draws what its file makes of the answer.",
    default=["pareto"],
)
@option("--output -o", "FILE", "File: .png, .pdf, .svg or .html.", show_default="RUN-KIND.png beside the run")
@option("--metrics", "A,B", "Axes of a pareto plot, the vertical one first.", show_default="speedup,error")
@options.other_max_error
@option("--width", "NAME", "Width: column or page of a journal, or screen.", default="column")
@options.kernel_of_run
@options.as_json
@option("--title/--no-title", "", "Print kernel, device and counts above the plot.", default=True)
def plot(
    run_file: Path,
    kinds: Sequence[str],
    output: Path | None,
    metrics: Sequence[str],
    kernel: str | None,
    json: bool,
    **drawing: Any,
) -> None:
    """Draw trade-offs, progress, effects of parameters, time spent."""
    from mptune.interop import read_run
    from mptune.interop.recorded import space_name
    from mptune.show import APPLICATION_KINDS, KINDS, check_path, save
    from mptune.show import plot as draw

    for kind in kinds:
        if kind not in (*KINDS, *APPLICATION_KINDS, "all"):
            raise UnknownNameError("kind of plot", kind, (*KINDS, *APPLICATION_KINDS, "all"))
    if kernel is not None and "answer" not in kinds:
        raise PlotError("--kernel says which application draws its answer (--kind answer)")
    run = read_run(run_file)
    # Looking at a run runs nothing, unless that is asked for.
    stored = (*KINDS, *(kind for kind in APPLICATION_KINDS if run.info.is_of_application and kind != "answer"))
    chosen = tuple(dict.fromkeys(each for kind in kinds for each in (stored if kind == "all" else (kind,))))
    path = run_file.with_name(f"{space_name(run_file)}.png") if output is None else check_path(output)
    is_named = output is not None and len(chosen) == 1
    targets = {kind: path if is_named else path.with_stem(f"{path.stem}-{kind}") for kind in chosen}
    if metrics and "pareto" not in chosen:
        raise PlotError(f"--metrics chooses the axes of a pareto plot, not of {', '.join(chosen)}")
    left_out: dict[str, str] = {}
    for kind, target in targets.items():
        try:
            options_of: dict[str, dict[str, Any]] = {"pareto": {"metrics": metrics}, "answer": {"kernel": kernel}}
            save(draw(run, kind, **options_of.get(kind, {}), **drawing), target)
        except PlotError as error:
            # With --kind all, a kind this run has no data for is left out, unless that is every kind.
            if "all" not in kinds or len(left_out) + 1 == len(chosen):
                raise
            left_out[kind] = str(error)
    plots = [{"kind": kind, "output": str(target)} for kind, target in targets.items() if kind not in left_out]
    if json:
        print_json({"kernel": run.kernel, "plots": plots, "left_out": left_out})
        return
    for drawn in plots:
        echo(drawn["output"])
    for kind, reason in left_out.items():
        print_note(f"no {kind} plot: {reason}")


@click.command()
@_run_file
@option("--format", "NAME", "csv, parquet, json, space, cache (Kernel Tuner) or t4.", show_default="the file's suffix")
@option("--output -o", "FILE", "File to write.", show_default="standard output")
def export(run_file: Path, format: str | None, output: Path | None) -> None:
    """Write all trials as a table or in another tool's format."""
    from mptune.interop import EXPORTERS, read_run, write_run

    if format is None:
        suffix = output.suffix.removeprefix(".") if output is not None else ""
        format = suffix if suffix in EXPORTERS else "csv"
    if format not in EXPORTERS:
        raise UnknownNameError("export format", format, EXPORTERS)
    run = read_run(run_file)
    if output is not None:
        write_run(run, output, format)
        return
    exported = EXPORTERS[format](run)
    if isinstance(exported, bytes):
        raise MptuneError(f"the format {format} is not text: name a file for it with --output")
    click.echo(exported, nl=not exported.endswith("\n"))


@click.command()
@_run_files
@option("--output -o", "FILE.html", "File to write.", default=Path("report.html"))
@option("--sources", "N", "Include the source of at most this many trials of each run.", default=1000)
@options.as_json
def report(run_files: Sequence[Path], output: Path, sources: int, json: bool) -> None:
    """Write one HTML file to explore runs in a browser, offline."""
    from mptune.show import write_report

    written = write_report(run_files, output, sources=sources)
    size_bytes = output.stat().st_size
    if json:
        runs = [
            {name: run[name] for name in ("label", "kernel", "trials", "sources", "remarks")} for run in written["runs"]
        ]
        print_json({"output": str(output), "size_bytes": size_bytes, "runs": runs})
        return
    for run in written["runs"]:
        for note in run["remarks"]:
            print_note(f"{run['label']}: {note}")
    echo(f"{output} ({size_bytes / 1e3:,.0f} kB)")


@click.command(cls=options.WithArguments)
@options.file_argument("run_files", "RUN.db...|NAME.wisdom.json...")
@options.other_max_error
@options.configuration
@options.kernel_of_run
@option("--output -o folder", "DIR", "Folder, or with --into the file, to write.", show_default="tuned/KERNEL")
@option("--all-devices", "", "Write a header that selects by device among several run files.")
@option("--size sizes", "NAME=VALUE,NAME=VALUE...", "Of wisdom, compile for these sizes, too.")
@option(
    "--into program",
    "PROGRAM.cu|DIR",
    "Write the adopted program with the winner's types instead. ARGUMENTS behind -- are those to try it with.",
)
@options.defines
@options.includes
@options.as_json
def emit(
    run_files: Sequence[Path],
    max_error: float | Mapping[str, float] | None,
    configuration: str,
    kernel: str | None,
    folder: Path | None,
    all_devices: bool,
    sizes: Sequence[str],
    program: Path | None,
    json: bool,
    **given: Any,
) -> int:
    """Write the winner as source code that needs no mptune; of wisdom, all that it chooses among.

    Beside the source there are a header, examples of launching it, and a README. Of an application it is all kernels, a
    library that launches them, and a program that runs its steps. With --into it is the program that was adopted, its
    own text with the types that were found; it is compiled, run and compared with the original. Of wisdom there are all
    variants of a kernel and a header that chooses among them by the device and the sizes.
    """
    from mptune.wisdom import is_wisdom

    if any(map(is_wisdom, run_files)):
        if len(run_files) > 1 or all_devices or configuration or program is not None or any(given.values()):
            raise MptuneError(
                "give one wisdom file (mptune wisdom gathers several) without --configuration, --all-devices, --into, "
                "-D, -I and ARGUMENTS"
            )
        _emit_dispatch(run_files[0], max_error, kernel, folder, sizes, json)
        return 0
    if sizes:
        raise MptuneError("--size is for wisdom files: a run is emitted at its own sizes")
    if len(run_files) > 1 and (program is not None or not all_devices):
        raise MptuneError(f"{len(run_files)} run files: to emit a header that selects by device, add --all-devices")
    if all_devices and (configuration or program is not None):
        raise MptuneError("--all-devices and --configuration or --into exclude each other: each device has its winner")
    if program is not None:
        given |= {"program": program, "record": kernel, "output": folder}
        return _emit_into(run_files[0], max_error, configuration, json, given)
    if any(given.values()):
        raise MptuneError("-D, -I and ARGUMENTS behind -- are those of a program: give it with --into")

    from mptune.emit import emit as emit_winner
    from mptune.emit import emit_all_devices, winner_of
    from mptune.results.description import result_text
    from mptune.run import Run
    from mptune.source.loading import remarks

    winners: list[Winner[Any]] = []
    for path in run_files:
        run = Run.load(path)
        winner = winner_of(run, max_error=max_error, configuration=configuration, kernel=kernel)
        if winner is None:
            asked = winner_of(run, configuration=configuration, kernel=kernel) if configuration else None
            _print_why_none(path, run, max_error, None if asked is None else asked.trial)
            return 1
        if not run.objective.is_feasible(winner.trial) and max_error is None:
            print_note(
                f"{path}: {winner.configuration} was asked for by name, but is not feasible ({winner.trial.message})"
            )
        for note in remarks(run.info, winner.kernel):
            print_note(f"{path}: {note}")
        winners.append(winner)
    target = folder or Path("tuned") / winners[0].kernel.name
    emissions = emit_all_devices(winners, target) if all_devices else (emit_winner(winners[0], target),)
    if json:
        documents = [emission.to_json() for emission in emissions]
        print_json({"output": str(target), "devices": documents} if all_devices else documents[0])
        return 0
    if all_devices:
        echo(str(target / f"tuned_{winners[0].kernel.name}.hpp"))
    for winner, emission in zip(winners, emissions, strict=True):
        echo(f"{emission.kernel}: {winner.trial.configuration}: {result_text(winner.run, winner.trial)}")
        for name in emission.files:
            echo(str(emission.folder / name))
    for why in dict.fromkeys(winner.run.why_no_baseline for winner in winners if winner.run.baseline is None):
        if why:
            print_note(f"note: no speedup is known: {why}")
    return 0


def _emit_dispatch(
    path: Path,
    max_error: float | Mapping[str, float] | None,
    kernel: str | None,
    folder: Path | None,
    sizes: Sequence[str],
    json: bool,
) -> None:
    """Write the variants that wisdom chooses among."""
    from mptune.emit import emit_dispatch, single_kernel_of
    from mptune.wisdom import Wisdom, remarks_on

    wisdom = Wisdom.load(path)
    found, known = single_kernel_of(wisdom, kernel)
    for note in remarks_on(known[0], found):
        print_note(f"{path}: {note}")
    given = [options.parse_sizes(found, text.split(","))[1] for text in sizes]
    target = folder or Path("tuned") / found.name
    written = emit_dispatch(wisdom, target, kernel=found, max_error=max_error, sizes=given)
    if json:
        print_json(written.to_json())
        return
    free = [name for name in found.sizes["default"] if name not in written.fixed]
    for_sizes = f"any {', '.join(free)}" if free else "the tuned sizes alone"
    fixed = f"; {', '.join(written.fixed)} written into the sources" if written.fixed else ""
    echo(f"kernel {written.kernel}: {len(written.variants)} variants for {for_sizes}{fixed}")
    for name in written.files:
        echo(str(written.folder / name))


def _emit_into(
    path: Path,
    max_error: float | Mapping[str, float] | None,
    configuration: str,
    json: bool,
    given: Mapping[str, Any],
) -> int:
    """Write the program that was adopted with the types of the winner; return the exit code."""
    from mptune.emit import select
    from mptune.run import Run

    if given["output"] is None:
        raise MptuneError("--into needs --output, the file to write; of a folder the folder")
    run = Run.load(path)
    trial = select(run, max_error=max_error, configuration=configuration, kernel=None)
    if trial is None:
        asked = select(run, configuration=configuration, kernel=None) if configuration else None
        _print_why_none(path, run, max_error, asked)
        return 1
    objective = run.objective if max_error is None else run.objective_within(max_error)
    document = adopting.patched(run, trial, objective, given)
    if json:
        print_json(document)
    else:
        adopting.print_patched(document)
    if document["within"] is not True:
        print_error(adopting.why_not_within(document))
    return 0 if document["within"] else 1


def _print_why_none(path: Path, run: Run, max_error: float | Mapping[str, float] | None, asked: Trial | None) -> None:
    """Say why a run has no winner, or why the configuration that was asked for is not within the limit given."""
    objective = run.objective if max_error is None else run.objective_within(max_error)
    if asked is not None and max_error is not None:
        limits = ", ".join(f"{name} <= {limit:g}" for name, limit in objective.limits.items())
        why = objective.judge(asked).message
        print_error(f"{path}: {asked.configuration} is not known to keep {limits}: {why}")
        return
    closest = objective.closest(run.trials)
    nearest = "none has an error" if closest is None else f"the closest: {objective.judge(closest).message}"
    print_error(f"{path}: no trial satisfies the threshold; {nearest}")


# -- further measurements ----------------------------------------------------------------------


@click.command()
@options.file_argument("run_file", "RUN.db|SPACE")
@options.kernel_of_run
@option("--time-limit time_limit_s", "SECONDS", "Begin to measure nothing further after this many seconds.")
@options.as_json
def explain(run_file: Path, kernel: str | None, time_limit_s: float | None, json: bool) -> None:
    """Explain the winner: which type limits its accuracy, and what each type costs.

    Each type is changed alone, one step wider and one step narrower. What the run did not measure is measured now, in
    turn with the winner, and becomes part of the run. Without a kernel to run, the stored trials are explained.
    """
    from mptune.tuning.explain import explain as explain_run

    with counter("configurations measured") as count:
        found = explain_run(run_file, kernel, time_limit_s=time_limit_s, on_trial=count, on_warning=print_note)
    if json:
        print_json(found.to_json())
    else:
        _print_explanation(found)


def _print_explanation(found: Explanation) -> None:
    trial = found.trial
    if trial is not None:
        speedup = "" if math.isnan(found.run.speedup(trial)) else f", speedup {number(found.run.speedup(trial), 3)}"
        what = "winner" if found.subject == "best" else "closest"
        metric = found.run.info.metric
        error = f"error {number(trial.error, 3)}{f' ({metric})' if metric else ''}"
        echo(f"{click.style(found.run.kernel, bold=True)}, {what}: {number(trial.time_ms)} ms{speedup}, {error}")
        echo(wrapped(str(trial.configuration)) + "\n")
    for sentence in found.sentences:
        echo(wrapped(sentence))
    if found.changes:
        echo("\n" + _changes(found))


def _changes(found: Explanation) -> str:
    from mptune.tuning.explain import digits_text, percent

    is_costed = any(c.outcome is not None and not math.isnan(c.outcome.cost) for c in found.changes)
    objective = (found.run.info.objective.metric,) if is_costed else ()
    numbers = ("digits", "speed", *objective, "error")
    rows: list[tuple[object, ...]] = []
    for change in found.changes:
        outcome = change.outcome
        speed, cost, error, feasible = "-", "-", f"breaks {change.broken}" if change.broken else "-", "-"
        if outcome is not None:
            interval = outcome.interval
            speed = percent(outcome.speed)
            speed += "" if interval is None else f" ({percent(interval[0])} to {percent(interval[1])})"
            cost, error = percent(outcome.cost), outcome.error_text
            feasible = "yes" if outcome.is_feasible else "no"
        parameter = f"{change.parameter} ({', '.join(change.buffers)})" if change.buffers else change.parameter
        costs = (cost,) if objective else ()
        rows.append(
            (parameter, change.before, change.after, digits_text(change.digits), speed, *costs, error, feasible)
        )
    # A constraint is text, which may be long and has to wrap.
    right = numbers[:-1] if any(change.broken for change in found.changes) else numbers
    return table(("parameter", "from", "to", *numbers, "feasible"), rows, right=right)


@click.command()
@options.file_argument("run_file", "RUN.db")
@options.kernel_of_run
@options.configuration
@option("--inputs", "M", "How many further inputs, for each of the sizes.", default=59)
@option(
    "--size sizes",
    "PRESET|NAME=VALUE,NAME=VALUE...",
    "Verify at these sizes instead of the run's own.",
    parse=options.parse_places,
)
@options.as_json
def verify(
    run_file: Path,
    kernel: str | None,
    configuration: str,
    inputs: int,
    sizes: Sequence[str | Mapping[str, int]],
    json: bool,
) -> int:
    """Run the winner on inputs that nobody searched with.

    What is found at the run's own sizes is kept in the run file. Exit code 1: an input breaks an error limit.
    """
    from mptune.emit import select
    from mptune.run import Run
    from mptune.tuning.verify import verify as verify_run

    run = Run.load(run_file)
    chosen = select(run, configuration=configuration, kernel=None) if configuration else None

    with counter("unseen inputs") as count:
        found = verify_run(
            run_file,
            kernel,
            configuration=None if chosen is None else chosen.configuration,
            inputs=inputs,
            sizes=sizes,
            on_input=count,
            on_warning=print_note,
        )
    if json:
        print_json(found.to_json())
    else:
        _print_verification(found)
    if not found.holds:
        print_error(_broken(found))
    elif found.is_kept:
        print_note(f"kept in {run_file}")
    return 0 if found.holds else 1


def _print_verification(found: Verification) -> None:
    run = found.run
    echo(f"{click.style(run.kernel, bold=True)} on {run.info.backend} ({run.info.device}), seed {run.info.seed}")
    echo(wrapped(str(found.trial.configuration)) + "\n")
    columns = ("sizes", "inputs", "above the limit", "largest error", "on input")
    echo(table(columns, [_case(case) for case in found.cases], right=columns[1:]) + "\n")
    for case in found.cases:
        where = "" if len(found.cases) == 1 else f"{pairs(case.sizes)}: "
        if text := found.words(case):
            echo(wrapped(where + text))
        if case.closest:
            echo(wrapped(f"{where}closest to its limit: {case.closest}"))
        for reason in case.unmade:
            print_note(f"{where}inputs that could not be made: {reason}")


def _case(case: Case) -> tuple[object, ...]:
    verified = case.verified
    if not verified.inputs:
        return (pairs(case.sizes), "0", "-", "-", "-")
    error = number(verified.worst_error, 3) if math.isfinite(verified.worst_error) else "failed"
    where = "-" if case.worst is None else case.worst.number + 1
    return (pairs(case.sizes), f"{verified.inputs:,}", verified.violations, error, where)


def _broken(found: Verification) -> str:
    broken = [case for case in found.cases if case.verified.violations]
    worst = max(broken, key=lambda case: case.verified.worst_error)
    failures = f" ({pairs(worst.failures)})" if worst.failures else ""
    return (
        f"the limit is broken on {worst.verified.violations:,} of {worst.verified.inputs:,} unseen inputs at "
        f"{pairs(worst.sizes)}{failures}"
    )


# -- wisdom --------------------------------------------------------------------------------------


@click.command()
@options.file_argument("files", "RUN.db|NAME.wisdom.json...")
@option("--output -o", "FILE", "The file to write.", required=True)
@options.as_json
def wisdom(files: Sequence[Path], output: Path, json: bool) -> None:
    """Gather which configuration is for which kernel, device, sizes and error limit.

    Of runs and of other wisdom. What it makes, TunedKernel and show read.
    """
    from mptune.wisdom import gather, read_sources

    found = gather(read_sources(files))
    found.save(output)
    if json:
        print_json(found.to_json())
        return
    for known in found.kernels:
        echo(f"{output}: kernel {known.kernel} on {known.where}: {_runs(known)}")
        if note := _without_winner(known):
            print_note(note)


def _runs(known: KernelWisdom) -> str:
    runs, sizes = len(known.tuned), len({tuple(sorted(record.place.items())) for record in known.tuned})
    return f"{runs} run{'s' * (runs != 1)} at {'one size' if sizes == 1 else f'{sizes} sizes'}"


def _without_winner(known: KernelWisdom) -> str:
    """Return a note on the sizes whose runs have no winner, empty if all have one."""
    sizes = dict.fromkeys(pairs(record.place) for record in known.tuned if record.best is None)
    if not sizes:
        return ""
    return f"no winner at {'; '.join(sizes)}: the baseline is used there, unless another is surely faster"


def print_wisdom(found: Wisdom) -> None:
    """Print what is known of each kernel on each device: winner and baseline at each size, and errors by size."""
    for index, known in enumerate(found.kernels):
        if index:
            echo()
        echo(f"{click.style(plain(known.kernel), bold=True)} on {known.backend} ({known.device}, {known.architecture})")
        echo(f"{_runs(known)}, errors by {known.metric}\n")
        rows = [row for record in known.tuned for row in _winner_and_baseline(record)]
        columns = ("sizes", "error limit", "", "time (ms)", "speedup", "error", "unseen", "kept", "configuration")
        echo(table(columns, rows, right=("time (ms)", "speedup", "error", "unseen", "kept")))
        if note := _without_winner(known):
            echo(f"\n{note}")
        if errors := _errors_by_size(known):
            echo("\n" + errors)


def _winner_and_baseline(record: AtSize) -> list[tuple[object, ...]]:
    """Return winner and baseline; what is said of both stands in the first row."""
    limits = ", ".join(
        f"{name.removeprefix('error').removeprefix('.')} {limit:g}".strip() for name, limit in record.threshold.items()
    )
    size, limit, kept = pairs(record.place), limits, str(len(record.configurations))
    rows: list[tuple[object, ...]] = []
    for role, timed in (("best", record.best), ("baseline", record.baseline)):
        if timed is None or (role == "baseline" and timed is record.best):
            continue
        what = "best, baseline" if timed.is_best and timed.is_baseline else role
        numbers = (number(timed.time_ms), _speedup(timed), number(timed.errors.worst.get("error"), 3), timed.unseen)
        rows.append((size, limit, what, *numbers, kept, timed.configuration))
        size = limit = kept = ""
    return rows


def _speedup(timed: Timed) -> str:
    if timed.interval is None or timed.is_baseline:
        return number(timed.speedup, 3)
    return f"{number(timed.speedup, 3)} ({timed.interval[0]:.3g} to {timed.interval[1]:.3g})"


def _errors_by_size(known: KernelWisdom) -> str:
    """Return the errors of the winners' and the baselines' types at each size, with how they grow."""
    from mptune.wisdom.error_growth import SizedError, as_zero_in, fitted

    wanted = {
        known.signature_of(timed.configuration): None
        for record in known.tuned
        for timed in (record.best, record.baseline)
        if timed is not None
    }
    sizes = {tuple(sorted(record.place.items())): None for record in known.tuned}
    has_one_form = len({tuple(sorted(record.form.items())) for record in known.tuned}) == 1
    rows: list[tuple[object, ...]] = []
    for signature in wanted:
        points: dict[tuple[tuple[str, int], ...], SizedError] = {}
        for record in known.tuned:
            errors = record.signatures.get(signature)
            if errors is not None and "error" in errors.worst:
                at = tuple(sorted(record.place.items()))
                worst, zero = errors.worst["error"], as_zero_in(signature)
                point = SizedError(record.sizes, worst, errors.draws, errors.mean, errors.rounded, zero)
                points[at] = max(points.get(at, point), point, key=lambda each: each.worst)
        if not points:
            continue
        cells = [number(points[at].worst, 3) if at in points else "-" for at in sizes]
        growth = fitted([*points.values()])
        is_told = len(points) > 1 and has_one_form and math.isfinite(growth.slopes.max())
        slope = f"{growth.slopes.max():.2f}" if is_told else "-"
        rows.append((*cells, slope, ", ".join(f"{n}={v}" for n, v in zip(known.signature, signature, strict=True))))
    columns = [f"error at {pairs(dict(at))}" for at in sizes]
    return table((*columns, "slope at most", "types"), rows, right=(*columns, "slope at most")) if rows else ""
