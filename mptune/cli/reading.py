"""Commands that read a run file: ``show``, ``pareto`` and ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from mptune.cli.arguments import parse_objectives
from mptune.cli.display import output, pareto_table, print_json, print_run
from mptune.errors import MptuneError, UnknownNameError
from mptune.interop import EXPORTERS
from mptune.interop.files import write_bytes, write_text
from mptune.metric_expressions import OBJECTIVES
from mptune.run import Run

__all__ = ["export", "pareto", "show"]

_METRICS: Final = ("time_ms", "error")
RunPath = Annotated[Path, typer.Argument(metavar="RUN.db", help="A run file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def show(run_file: RunPath, json: AsJson = False) -> None:
    """Show what a run found and how its trials ended."""
    run = Run.load(run_file)
    if json:
        print_json(run.summary())
    else:
        print_run(run)


def pareto(
    run_file: RunPath,
    metrics: Annotated[
        str,
        typer.Option(help="Two or more, by commas: metrics, speedup or objectives such as energy [those of the run]."),
    ] = "",
    json: AsJson = False,
) -> None:
    """Show the configurations no other one beats in every metric."""
    run = Run.load(run_file)
    several = run.objective.metrics if run.objective.also else _METRICS
    names = tuple(OBJECTIVES.get(name, name) for name in parse_objectives(metrics)) or several
    document = run.pareto_document(names)
    if json:
        print_json(document)
        return
    output.print(pareto_table(run, names, run.pareto(names)))
    without = run.evaluations - len(document["front"]) - document["dominated"]
    failed = f", {without} without numbers" if without else ""
    output.print(f"\n{len(document['front'])} on the front, {document['dominated']} dominated{failed}")


def export(
    run_file: RunPath,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="csv, parquet, json, space, cache (Kernel Tuner) or t4. [default: as the file is named, else csv]",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of standard output.")] = None,
) -> None:
    """Write every trial of a run as a table or in another tool's format."""
    if format is None:
        suffix = output.suffix.removeprefix(".") if output is not None else ""
        format = suffix if suffix in EXPORTERS else "csv"
    if format not in EXPORTERS:
        raise UnknownNameError("export format", format, EXPORTERS)
    exported = EXPORTERS[format](Run.load(run_file))
    if isinstance(exported, str):
        if output is None:
            typer.echo(exported, nl=not exported.endswith("\n"))
        else:
            write_text(output, exported)
    elif output is None:
        raise MptuneError(f"the format {format} is not text: name a file for it with --output")
    else:
        write_bytes(output, exported)
