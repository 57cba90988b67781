"""Commands that read run files: ``show``, ``pareto``, ``plot``, ``export``, ``report`` and ``emit``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from mptune.cli import options
from mptune.cli.display import echo, number, pareto_table, print_error, print_json, print_note, print_run
from mptune.errors import MptuneError, PlotError, UnknownNameError

if TYPE_CHECKING:
    from mptune.emit import Emission, Winner

__all__ = ["emit", "export", "pareto", "plot", "report", "show"]

_METRICS: Final = ("time_ms", "error")
_ALL_KINDS: Final = "all"

_run_file = click.argument("run_file", metavar="RUN.db", type=options.FILE)


@click.command()
@_run_file
@options.as_json
def show(run_file: Path, json: bool) -> None:
    """Show what a run found and how its trials ended."""
    from mptune.run import Run

    run = Run.load(run_file)
    if json:
        print_json(run.summary())
    else:
        print_run(run)


@click.command()
@_run_file
@click.option(
    "--metrics",
    metavar="A,B",
    default="",
    show_default="the run's objectives, or time_ms,error",
    help="Two or more metrics, separated by commas; speedup and objectives such as energy are metrics, too.",
)
@options.as_json
def pareto(run_file: Path, metrics: str, json: bool) -> None:
    """Show the configurations that no other beats in every metric."""
    from mptune.metric_expressions import OBJECTIVES
    from mptune.run import Run

    run = Run.load(run_file)
    several = run.objective.metrics if run.objective.also else _METRICS
    names = tuple(OBJECTIVES.get(name, name) for name in options.parse_names(metrics)) or several
    document = run.pareto_document(names)
    if json:
        print_json(document)
        return
    echo(pareto_table(run, names, run.pareto(names)))
    without = run.evaluations - len(document["front"]) - document["dominated"]
    failed = f", {without} without numbers" if without else ""
    echo(f"\n{len(document['front'])} on the front, {document['dominated']} dominated{failed}")


@click.command()
@click.argument("run_file", metavar="RUN.db|SPACE", type=options.FILE)
@click.option(
    "--kind",
    metavar="KIND",
    multiple=True,
    default=["pareto"],
    help="pareto, progress, parameters, time, or all of them. May be repeated.",
)
@click.option(
    "--output",
    "-o",
    "path",
    metavar="FILE",
    type=options.FILE,
    show_default="RUN-KIND.png beside the run",
    help="File to write, ending in .png, .pdf or .svg.",
)
@click.option(
    "--metrics",
    metavar="Y,X",
    default="",
    show_default="speedup,error",
    help="Metrics on the vertical and the horizontal axis of a pareto plot.",
)
@options.other_max_error
@click.option("--width", metavar="NAME", default="column", help="Width of the figure in a journal: column or page.")
@options.as_json
@click.option("--title/--no-title", default=True, help="Print kernel, device and counts above the plot.")
def plot(
    run_file: Path,
    kind: Sequence[str],
    path: Path | None,
    metrics: str,
    max_error: Sequence[str],
    width: str,
    json: bool,
    title: bool,
) -> None:
    """Draw trade-offs, progress, effects of parameters, time spent."""
    from mptune.interop import read_run
    from mptune.plots import plot as draw
    from mptune.plots import save

    kinds = _kinds(kind)
    targets = {name: _target(run_file, path, name, alone=len(kinds) == 1) for name in kinds}
    chosen = options.parse_names(metrics)
    if chosen and "pareto" not in kinds:
        raise PlotError(f"--metrics chooses the axes of a pareto plot, not of {', '.join(kinds)}")
    threshold = options.parse_threshold(max_error)
    run = read_run(run_file)
    left_out: dict[str, str] = {}
    for name, target in targets.items():
        axes = chosen if name == "pareto" else ()
        try:
            save(draw(run, name, metrics=axes, max_error=threshold, width=width, title=title), target)
        except PlotError as error:
            # With --kind all, a kind this run has no data for is left out, unless that is every kind.
            if _ALL_KINDS not in kind or len(left_out) + 1 == len(kinds):
                raise
            left_out[name] = str(error)
    drawn = {name: target for name, target in targets.items() if name not in left_out}
    if json:
        plots = [{"kind": name, "output": str(target)} for name, target in drawn.items()]
        print_json({"kernel": run.kernel, "plots": plots, "left_out": left_out})
        return
    for target in drawn.values():
        echo(str(target))
    for name, reason in left_out.items():
        print_note(f"no {name} plot: {reason}")


def _kinds(names: Sequence[str]) -> tuple[str, ...]:
    from mptune.plots import KINDS

    for name in names:
        if name not in (*KINDS, _ALL_KINDS):
            raise UnknownNameError("kind of plot", name, (*KINDS, _ALL_KINDS))
    return KINDS if _ALL_KINDS in names else tuple(dict.fromkeys(names))


def _target(run_file: Path, path: Path | None, kind: str, *, alone: bool) -> Path:
    """Return the file of a plot: the one given, with the kind in its name if there are several, or beside the run."""
    from mptune.interop.files import space_name
    from mptune.plots import check_path

    if path is None:
        return run_file.with_name(f"{space_name(run_file)}-{kind}.png")
    checked = check_path(path)
    return checked if alone else checked.with_stem(f"{checked.stem}-{kind}")


@click.command()
@_run_file
@click.option(
    "--format",
    metavar="NAME",
    show_default="the output file's suffix, else csv",
    help="csv, parquet, json, space, cache (Kernel Tuner) or t4.",
)
@click.option(
    "--output", "-o", metavar="FILE", type=options.FILE, show_default="standard output", help="File to write."
)
def export(run_file: Path, format: str | None, output: Path | None) -> None:
    """Write all trials as a table or in another tool's format."""
    from mptune.interop import EXPORTERS
    from mptune.interop.files import write_bytes, write_text
    from mptune.run import Run

    if format is None:
        suffix = output.suffix.removeprefix(".") if output is not None else ""
        format = suffix if suffix in EXPORTERS else "csv"
    if format not in EXPORTERS:
        raise UnknownNameError("export format", format, EXPORTERS)
    exported = EXPORTERS[format](Run.load(run_file))
    if isinstance(exported, str):
        if output is None:
            click.echo(exported, nl=not exported.endswith("\n"))
        else:
            write_text(output, exported)
    elif output is None:
        raise MptuneError(f"the format {format} is not text: name a file for it with --output")
    else:
        write_bytes(output, exported)


@click.command()
@click.argument("run_files", metavar="RUN.db...", type=options.FILE, nargs=-1, required=True)
@click.option(
    "--output", "-o", "path", metavar="FILE.html", type=options.FILE, default=Path("report.html"), help="File to write."
)
@click.option(
    "--kernel",
    metavar="KERNEL|FILE.py",
    multiple=True,
    help="A kernel that was tuned, if its definition is not in the current folder. May be repeated.",
)
@click.option(
    "--sources", metavar="N", default=1000, help="Include the source of at most this many trials of each run."
)
@options.as_json
def report(run_files: Sequence[Path], path: Path, kernel: Sequence[str], sources: int, json: bool) -> None:
    """Write one HTML file to explore runs in a browser, offline."""
    from mptune.report import write_report

    written = write_report(run_files, path, kernels=kernel, sources=sources)
    size_bytes = path.stat().st_size
    if json:
        runs = [
            {
                "label": run["label"],
                "kernel": run["kernel"],
                "trials": len(run["feasible"]),
                "sources": len(run["sources"]["by_trial"]),
                "remarks": list(run["sources"]["remarks"]),
            }
            for run in written.runs
        ]
        print_json({"output": str(path), "size_bytes": size_bytes, "runs": runs})
        return
    for run in written.runs:
        for note in run["sources"]["remarks"]:
            print_note(f"{run['label']}: {note}")
    echo(f"{path} ({size_bytes / 1e3:,.0f} kB)")


@click.command()
@click.argument("run_files", metavar="RUN.db...", type=options.FILE, nargs=-1, required=True)
@options.other_max_error
@click.option(
    "--configuration",
    metavar="TRIAL",
    default="",
    show_default="the best",
    help="The trial to emit: its number, the start of its key, or NAME=VALUE,...",
)
@click.option("--kernel", metavar="KERNEL|FILE.py", help="The kernel, if its definition is not in the current folder.")
@click.option(
    "--output",
    "-o",
    "folder",
    metavar="DIR",
    type=options.FILE,
    show_default="tuned/KERNEL",
    help="Folder to write to.",
)
@click.option("--all-devices", is_flag=True, help="Write a header that selects by device among several run files.")
@options.as_json
def emit(
    run_files: Sequence[Path],
    max_error: Sequence[str],
    configuration: str,
    kernel: str | None,
    folder: Path | None,
    all_devices: bool,
    json: bool,
) -> int:
    """Write the winner as source code that needs no mptune.

    Beside the source there are a header, examples of launching it, and a README.
    """
    from mptune.emit import emit as emit_winner
    from mptune.emit import emit_all_devices

    threshold = options.parse_threshold(max_error)
    if len(run_files) > 1 and not all_devices:
        raise MptuneError(f"{len(run_files)} run files: to emit a header that selects by device, add --all-devices")
    if all_devices and configuration:
        raise MptuneError("--all-devices and --configuration exclude each other: each device has its own winner")
    winners = _winners(run_files, threshold, configuration, kernel)
    if not winners:
        return 1
    target = folder or Path("tuned") / winners[0].kernel.name
    emissions = emit_all_devices(winners, target) if all_devices else (emit_winner(winners[0], target),)
    if json:
        documents = [emission.to_json() for emission in emissions]
        print_json({"output": str(target), "devices": documents} if all_devices else documents[0])
        return 0
    if all_devices:
        echo(str(target / f"tuned_{winners[0].kernel.name}.hpp"))
    for emission in emissions:
        _print_emission(emission)
    return 0


def _winners(
    paths: Sequence[Path], threshold: float | Mapping[str, float] | None, configuration: str, kernel: str | None
) -> list[Winner]:
    """Return the winner of each run; an empty list if one of them has none."""
    from mptune.emit import remarks, winner_of
    from mptune.run import Run

    winners = []
    for path in paths:
        run = Run.load(path)
        winner = winner_of(run, max_error=threshold, configuration=configuration, kernel=kernel)
        if winner is None:
            print_error(f"{path}: no trial satisfies the threshold")
            return []
        if not run.objective.is_feasible(winner.trial) and threshold is None:
            print_note(
                f"{path}: {winner.configuration} was asked for by name, but is not feasible ({winner.trial.message})"
            )
        for note in remarks(run, winner.kernel):
            print_note(f"{path}: {note}")
        winners.append(winner)
    return winners


def _print_emission(emission: Emission) -> None:
    trial = emission.trial
    echo(
        f"{emission.kernel}: {trial.configuration}: {number(trial.time_ms)} ms, "
        f"speedup {number(emission.speedup, 3)}, error {number(trial.error, 3)}"
    )
    for name in emission.files:
        echo(str(emission.folder / name))
