"""``mptune report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mptune.cli.display import output, print_json, remark
from mptune.report import SOURCES, write_report

__all__ = ["report"]


def report(
    run_files: Annotated[list[Path], typer.Argument(metavar="RUN.db...", help="Run files; several are compared.")],
    path: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.html", help="The file to write.")] = Path(
        "report.html"
    ),
    kernel: Annotated[
        list[str], typer.Option(metavar="KERNEL|FILE.py", help="A definition, if not in the current folder.")
    ] = [],  # noqa: B006
    sources: Annotated[
        int, typer.Option(metavar="N", help="Trials of each run whose rendered source goes into the file, at most.")
    ] = SOURCES,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write one HTML file to explore runs in a browser, offline: fronts, trials, failures, sources."""
    written = write_report(run_files, path, kernels=kernel, sources=sources)
    size_bytes = path.stat().st_size
    if json:
        runs = [
            {
                "label": run.label,
                "kernel": run.kernel,
                "trials": len(run.feasible),
                "sources": len(run.sources.by_trial),
                "remarks": list(run.sources.remarks),
            }
            for run in written.runs
        ]
        print_json({"output": str(path), "size_bytes": size_bytes, "runs": runs})
        return
    for run in written.runs:
        for told in run.sources.remarks:
            remark(f"{run.label}: {told}")
    output.print(f"{escape(str(path))} ({size_bytes / 1e3:,.0f} kB)", soft_wrap=True)
