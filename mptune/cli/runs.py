"""Commands for run files and wisdom; ``explain`` and ``verify`` measure further trials of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
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
    print_table,
    wrapped,
)
from mptune.cli.options import option
from mptune.errors import MptuneError, PlotError, UnknownNameError
from mptune.markup import Description, Table, number, pairs, plain

if TYPE_CHECKING:
    from mptune.explanation import Explanation
    from mptune.tuning.verify import Verification
    from mptune.wisdom import KernelWisdom, Wisdom

_run_file = options.file_argument("run_file", "RUN.db|SPACE")
_run_files = options.file_argument("run_files", "RUN.db|SPACE...")


@click.command()
@options.file_argument("run_file", "RUN.db|SPACE|NAME.wisdom.json")
@options.as_json
def show(run_file: Path, json: bool) -> int:
    """Show the result of a run and the statuses of its trials, or the contents of wisdom."""
    from mptune.interop import read_run
    from mptune.wisdom import Wisdom, is_wisdom

    if is_wisdom(run_file):
        found = Wisdom.load(run_file)
        print_json(found.to_json()) if json else _print_wisdom(found)
        return 0
    run = read_run(run_file)
    print_json(run.summary()) if json else print_run(run)
    return 0 if run.best is not None else 1


@click.command()
@_run_file
@option("--metrics", "A,B", "Two or more metrics, also speedup.", show_default="the run's objectives, or time_ms,error")
@options.as_json
def pareto(run_file: Path, metrics: Sequence[str], json: bool) -> int:
    """Show the Pareto front: the configurations that are not dominated in these metrics."""
    from mptune.interop import read_run
    from mptune.results.description import describe_front
    from mptune.results.metric_expressions import OBJECTIVES

    run = read_run(run_file)
    usual = run.objective.metrics if run.objective.also else ("time_ms", "error")
    names = tuple(OBJECTIVES.get(name, name) for name in metrics) or usual
    print_json(run.pareto_document(names)) if json else print_described(describe_front(run, names))
    return 0 if run.best is not None else 1


@click.command()
@_run_file
@option(
    "--kind kinds",
    "KIND...",
    "pareto, progress, parameters, time, sensitivity, of an application kernels, or all; or answer, which runs it.",
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
    from mptune.show import KINDS, check_path, save
    from mptune.show import plot as draw

    run = read_run(run_file)
    stored = (*KINDS, *(("kernels",) if run.info.is_of_application else ()))  # without answer, which runs kernels
    chosen = tuple(dict.fromkeys(each for kind in kinds for each in (stored if kind == "all" else (kind,))))
    path = run_file.with_name(f"{space_name(run_file)}.png") if output is None else check_path(output)
    is_named = output is not None and len(chosen) == 1
    targets = {kind: path if is_named else path.with_stem(f"{path.stem}-{kind}") for kind in chosen}
    if metrics and "pareto" not in chosen:
        raise PlotError(f"--metrics chooses the axes of a pareto plot, not of {', '.join(chosen)}")
    left_out: dict[str, str] = {}
    options_of: dict[str, dict[str, Any]] = {"pareto": {"metrics": metrics}, "answer": {"kernel": kernel}}
    for kind, target in targets.items():
        try:
            save(draw(run, kind, **options_of.get(kind, {}), **drawing), target)
        except PlotError as error:
            # --kind all leaves out kinds without data, unless no kind has data.
            if "all" not in kinds or len(left_out) + 1 == len(chosen):
                raise
            left_out[kind] = str(error)
    plots = [{"kind": kind, "output": str(target)} for kind, target in targets.items() if kind not in left_out]
    if json:
        print_json({"kernel": run.kernel, "plots": plots, "left_out": left_out})
        return
    echo("\n".join(drawn["output"] for drawn in plots))
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
        format = ("" if output is None else output.suffix.removeprefix(".")) or "csv"
    if format not in EXPORTERS:
        raise UnknownNameError("export format", format, EXPORTERS)
    run = read_run(run_file)
    if output is not None:
        write_run(run, output, format)
        return
    exported = EXPORTERS[format](run)
    if isinstance(exported, bytes):
        raise MptuneError(f"the format {format} is binary: give a file with --output")
    click.echo(exported, nl=not exported.endswith("\n"))


@click.command()
@_run_files
@option("--output -o", "FILE.html", "File to write.", default=Path("report.html"))
@option("--sources", "N", "Include the source of at most this many trials of each run.", default=1000)
@options.as_json
def report(run_files: Sequence[Path], output: Path, sources: int, json: bool) -> None:
    """Write one HTML file to explore runs in a browser offline."""
    from mptune.show import write_report

    written = write_report(run_files, output, sources=sources)
    size_bytes = output.stat().st_size
    if json:
        names = ("label", "kernel", "trials", "sources", "remarks")
        runs = [{name: run[name] for name in names} for run in written["runs"]]
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
@option("--size sizes", "NAME=VALUE,NAME=VALUE...", "With wisdom, also compile for these sizes.")
@option("--into program", "PROGRAM.cu|DIR", "Write the adopted program with the winner's types; run with ARGUMENTS.")
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
    """Write the winner as source code that needs no mptune, or all variants of wisdom.

    The folder has the source, a header, examples of launching it, and a README. An application has all kernels, a
    library that launches them, and a program that runs its steps. With --into the text of the adopted program gets the
    types of the winner; the program is compiled, run and compared with the original. Wisdom gives all variants of a
    kernel and a header that chooses by device and sizes.
    """
    from mptune.wisdom import is_wisdom

    of_wisdom, of_program, is_one = any(map(is_wisdom, run_files)), any(given.values()), len(run_files) == 1
    whole = is_one and not (all_devices or configuration or program or of_program)
    for message, is_wrong in {
        "give one wisdom file (mptune wisdom gathers several) without --configuration, --all-devices, --into, "
        "-D, -I and ARGUMENTS": of_wisdom and not whole,
        "--size is for wisdom files: a run is emitted at its own sizes": sizes and not of_wisdom,
        f"{len(run_files)} run files: add --all-devices for a header that selects by device": (
            not is_one and (program or not all_devices)
        ),
        "--all-devices and --configuration or --into exclude each other": all_devices and (configuration or program),
        "-D, -I and ARGUMENTS belong to a program: give it with --into": of_program and not program,
        "--into needs --output, the file or folder to write": program and not folder,
    }.items():
        if is_wrong:
            raise MptuneError(message)
    if of_wisdom:
        _emit_dispatch(run_files[0], kernel, folder, sizes, json, max_error)
        return 0

    from mptune.emit import Winner, emit_all_devices, select
    from mptune.emit import emit as emit_winner
    from mptune.results.description import result_text
    from mptune.run import Run
    from mptune.source.loading import remarks, sizes_of, tunable_of_run

    winners: list[Winner[Any]] = []
    for path in run_files:
        run = Run.load(path)
        definition: Any = None if program else tunable_of_run(run.info, kernel, on_warning=lambda _: None)
        trial = select(run, max_error=max_error, configuration=configuration, kernel=definition)
        objective = run.objective if max_error is None else run.objective_within(max_error)
        if trial is None:
            asked = select(run, configuration=configuration, kernel=definition) if configuration else None
            nearest = asked or objective.closest(run.trials)
            why = "none has an error" if nearest is None else objective.judge(nearest).message
            which = "the closest" if asked is None else f"not {asked.configuration}"
            print_error(f"{path}: no trial satisfies the threshold; {which}: {why}")
            return 1
        if program is not None:
            settings = {**given, "program": program, "record": kernel, "output": folder}
            return adopting.write_into(run, trial, objective, settings, json)
        winner = Winner(run, definition, sizes_of(run.info, definition), trial, objective.threshold)
        if not run.objective.is_feasible(trial) and max_error is None:
            print_note(f"{path}: {winner.configuration} is not feasible ({trial.message})")
        for note in (*remarks(run.info, winner.kernel), *filter(None, [run.ending])):
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
        echo(f"{winner.kernel.name}: {winner.trial.configuration}: {result_text(winner.run, winner.trial)}")
        echo("\n".join(str(emission.folder / name) for name in emission.files))
    for why in dict.fromkeys(winner.run.why_no_baseline for winner in winners if winner.run.baseline is None):
        if why:
            print_note(f"note: no speedup is known: {why}")
    return 0


def _emit_dispatch(
    path: Path, kernel: str | None, folder: Path | None, sizes: Sequence[str], json: bool, limit: Any
) -> None:
    from mptune.emit import emit_dispatch, single_kernel_of
    from mptune.wisdom import Wisdom, remarks_on

    wisdom = Wisdom.load(path)
    found, known = single_kernel_of(wisdom, kernel)
    for note in remarks_on(known[0], found):
        print_note(f"{path}: {note}")
    given = [options.parse_sizes(found, text.split(","))[1] for text in sizes]
    target = folder or Path("tuned") / found.name
    written = emit_dispatch(wisdom, target, kernel=found, max_error=limit, sizes=given)
    if json:
        print_json(written.to_json())
        return
    free = [name for name in found.sizes["default"] if name not in written.fixed]
    for_sizes = f"any {', '.join(free)}" if free else "the tuned sizes only"
    fixed = f"; {', '.join(written.fixed)} fixed in the sources" if written.fixed else ""
    echo(f"kernel {written.kernel}: {len(written.variants)} variants for {for_sizes}{fixed}")
    echo("\n".join(str(written.folder / name) for name in written.files))


# -- further measurements ----------------------------------------------------------------------


@click.command()
@options.file_argument("run_file", "RUN.db|SPACE")
@options.kernel_of_run
@option("--time-limit time_limit_s", "SECONDS", "Start no new measurement after this many seconds.")
@options.as_json
def explain(run_file: Path, kernel: str | None, time_limit_s: float | None, json: bool) -> int:
    """Explain the winner: which type limits its accuracy, and the cost of each type.

    Each type is changed alone, one step wider and one step narrower. Missing trials are measured in turn with the
    winner and stored in the run. Without a kernel to run, only the stored trials are explained.
    """
    from mptune.results.description import result_text
    from mptune.tuning.explain import explain as explain_run

    with counter("configurations measured") as count:
        found = explain_run(run_file, kernel, time_limit_s=time_limit_s, on_trial=count, on_warning=print_note)
    code = 0 if found.subject == "best" else 1
    if json:
        print_json(found.to_json())
        return code
    if (trial := found.trial) is not None:
        what = "winner" if found.subject == "best" else "closest"
        echo(f"{click.style(found.run.kernel, bold=True)}, {what}: {result_text(found.run, trial)}")
        echo(wrapped(str(trial.configuration)) + "\n")
    for sentence in found.sentences:
        echo(wrapped(sentence))
    if found.changes:
        echo()
        print_table(_changes(found))
    return code


def _changes(found: Explanation) -> list[dict[str, object]]:
    from mptune.explanation import digits_text, percent

    is_costed = any(not math.isnan(c.outcome.cost) for c in found.changes)
    rows = []
    for change in found.changes:
        outcome = change.outcome
        ends = outcome.interval and map(percent, outcome.interval)
        speed, cost = percent(outcome.speed) + (f" ({' to '.join(ends)})" if ends else ""), percent(outcome.cost)
        error, feasible = outcome.error_text, "yes" if outcome.is_feasible else "no"
        if outcome.trial is None:
            error, feasible = f"breaks {change.broken}" if change.broken else "-", "-"
        parameter = f"{change.parameter} ({', '.join(change.buffers)})" if change.buffers else change.parameter
        row: dict[str, object] = {"parameter": parameter, "from": change.before, "to": change.after}
        row |= {"digits": digits_text(outcome.digits), "speed": speed}
        row |= {found.run.info.objective.metric: cost} if is_costed else {}
        rows.append({**row, "error": error, "feasible": feasible})
    return rows


@click.command()
@options.file_argument("run_file", "RUN.db")
@options.kernel_of_run
@options.configuration
@option("--inputs", "M", "Number of further inputs at each size.", default=59)
@option("--size sizes", "PRESET|NAME=VALUE,NAME=VALUE...", "Verify at these sizes instead.", parse=options.parse_places)
@options.as_json
def verify(run_file: Path, kernel: str | None, configuration: str, json: bool, **given: Any) -> int:
    """Run the winner on unseen inputs.

    Results at the run's own sizes are stored in the run file. Exit code 1: an input breaks an error limit.
    """
    from mptune.emit import select
    from mptune.run import Run
    from mptune.tuning.verify import verify as verify_run

    chosen = select(Run.load(run_file), configuration=configuration, kernel=None) if configuration else None
    with counter("unseen inputs") as count:
        own = None if chosen is None else chosen.configuration
        found = verify_run(run_file, kernel, configuration=own, on_input=count, on_warning=print_note, **given)
    print_json(found.to_json()) if json else _print_verification(found)
    if not found.holds:
        broken = (case for case in found.cases if case.verified.violations)
        worst = max(broken, key=lambda case: case.verified.worst_error)
        failures = f" ({pairs(worst.failures)})" if worst.failures else ""
        share = f"{worst.verified.violations:,} of {worst.verified.inputs:,} unseen inputs"
        print_error(f"the limit is exceeded on {share} at {pairs(worst.sizes)}{failures}")
    elif found.is_kept:
        print_note(f"stored in {run_file}")
    return 0 if found.holds else 1


def _print_verification(found: Verification) -> None:
    run, rows, remarks = found.run, [], []
    echo(f"{click.style(run.kernel, bold=True)} on {run.info.backend} ({run.info.device}), seed {run.info.seed}")
    echo(wrapped(str(found.trial.configuration)) + "\n")
    for case in found.cases:
        verified, worst = case.verified, "-" if case.worst is None else str(case.worst.number + 1)
        error = number(verified.worst_error, 3) if math.isfinite(verified.worst_error) else "failed"
        known = {"above the limit": str(verified.violations), "largest error": error, "on input": worst}
        row = {"sizes": pairs(case.sizes), "inputs": f"{verified.inputs:,}"}
        rows.append(row | (known if verified.inputs else dict.fromkeys(known, "-")))
        place = "" if len(found.cases) == 1 else f"{pairs(case.sizes)}: "
        closest = f"closest to its limit: {case.closest}" * bool(case.closest)
        remarks += [place + text for text in (found.words(case), closest) if text]
        for reason in case.unmade:
            print_note(f"{place}inputs could not be generated: {reason}")
    print_described(Description(tables=(Table.of(rows),), remarks=tuple(remarks)))


# -- wisdom --------------------------------------------------------------------------------------


@click.command()
@options.file_argument("files", "RUN.db|NAME.wisdom.json...")
@option("--output -o", "FILE", "The file to write.", required=True)
@options.as_json
def wisdom(files: Sequence[Path], output: Path, json: bool) -> int:
    """Gather the winners of runs and other wisdom by kernel, device, sizes and error limit.

    The file is read by TunedKernel, emit and show.
    """
    from mptune.run import Run
    from mptune.wisdom import gather, read_sources

    sources = read_sources(files)
    for name, source in sources:
        if isinstance(source, Run) and source.ending:
            print_note(f"{name}: {source.ending}")
    found = gather(sources)
    found.save(output)
    code = 0 if any(record.best for known in found.kernels for record in known.tuned) else 1
    if json:
        print_json(found.to_json())
        return code
    for known in found.kernels:
        echo(f"{output}: kernel {known.kernel} on {known.where}: {_runs(known)}")
        for note in _without_winner(known):
            print_note(note)
    return code


def _runs(known: KernelWisdom) -> str:
    runs, sizes = len(known.tuned), len({tuple(sorted(record.place.items())) for record in known.tuned})
    return f"{runs} run{'s' * (runs != 1)} at {'one size' if sizes == 1 else f'{sizes} sizes'}"


def _without_winner(known: KernelWisdom) -> tuple[str, ...]:
    sizes = dict.fromkeys(pairs(record.place) for record in known.tuned if record.best is None)
    use = "the baseline is used there, unless another configuration is clearly faster"
    return (f"no winner at {'; '.join(sizes)}: {use}",) if sizes else ()


def _print_wisdom(found: Wisdom) -> None:
    for known in found.kernels:
        echo(f"{click.style(plain(known.kernel), bold=True)} on {known.backend} ({known.device}, {known.architecture})")
        echo(f"{_runs(known)}, errors by {known.metric}\n")
        tables = (Table.of(list(_winners_and_baselines(known))), Table.of(_errors_by_size(known)))
        print_described(Description(tables=tables, remarks=_without_winner(known)))


def _winners_and_baselines(known: KernelWisdom) -> Iterator[dict[str, object]]:
    """Yield rows for winner and baseline at each size; shared cells are in the first row."""
    for record in known.tuned:
        limits = {name.removeprefix("error").removeprefix("."): limit for name, limit in record.threshold.items()}
        text = ", ".join(f"{name} {limit:g}".strip() for name, limit in limits.items())
        head, kept = {"sizes": pairs(record.place), "error limit": text}, str(len(record.configurations))
        roles = {"best": record.best, "baseline": record.baseline}
        if record.best is not None and record.best is record.baseline:
            roles = {"best, baseline": record.best}
        for role, timed in roles.items():
            if timed is not None:
                speedup = number(timed.speedup, 3)
                if timed.interval is not None and not timed.is_baseline:
                    speedup += f" ({timed.interval[0]:.3g} to {timed.interval[1]:.3g})"
                error = number(timed.errors.worst.get("error"), 3)
                row = {**head, "": role, "time (ms)": number(timed.time_ms), "speedup": speedup, "error": error}
                yield {**row, "unseen": timed.unseen, "kept": kept, "configuration": timed.configuration}
                head, kept = {"sizes": "", "error limit": ""}, ""


def _errors_by_size(known: KernelWisdom) -> list[dict[str, str]]:
    timed = (timed for record in known.tuned for timed in (record.best, record.baseline) if timed is not None)
    rows = []
    for signature in dict.fromkeys(known.signature_of(each.configuration) for each in timed):
        worst = dict.fromkeys((f"error at {pairs(record.place)}" for record in known.tuned), math.nan)
        for record in known.tuned:
            if errors := record.by_signature.get(signature):
                place = f"error at {pairs(record.place)}"
                error = errors.worst.get("error", math.nan)
                worst[place] = error if math.isnan(worst[place]) else max(worst[place], error)
        types = ", ".join(f"{name}={value}" for name, value in zip(known.signature, signature, strict=True))
        if not all(map(math.isnan, worst.values())):
            rows.append({**{place: number(error, 3) for place, error in worst.items()}, "types": types})
    return rows
