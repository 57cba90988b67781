"""``mptune plot``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.markup import escape

from mptune.cli.arguments import parse_threshold
from mptune.cli.display import output, print_json, remark
from mptune.errors import PlotError, UnknownNameError
from mptune.interop import read_run
from mptune.interop.files import space_name
from mptune.plots import KINDS, SUFFIXES, WIDTHS_IN, check_path, save
from mptune.plots import plot as plot_run
from mptune.run import Run

__all__ = ["plot"]

_ALL: Final = "all"


def plot(
    run_file: Annotated[
        Path, typer.Argument(metavar="RUN.db|SPACE", help="A run file, or a recorded space, gzipped or not.")
    ],
    kind: Annotated[
        list[str], typer.Option(metavar="KIND", help=f"{', '.join(KINDS)}, or {_ALL} of these; may be repeated.")
    ] = ["pareto"],  # noqa: B006
    path: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help=f"{', '.join(SUFFIXES)}, by the suffix [RUN-KIND.png beside the run].",
        ),
    ] = None,
    metrics: Annotated[
        str, typer.Option(help="Of pareto: two metrics, by commas, the vertical axis first [speedup,error].")
    ] = "",
    max_error: Annotated[
        list[str], typer.Option(metavar="X", help="Threshold instead of the run's; NAME=X for an output.")
    ] = [],  # noqa: B006
    width: Annotated[
        str, typer.Option(help=f"{', '.join(f'{name} ({inches:g} inches)' for name, inches in WIDTHS_IN.items())}.")
    ] = "column",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    title: Annotated[bool, typer.Option("--title/--no-title", help="Kernel, device and counts above the plot.")] = True,
) -> None:
    """Draw what a run found: the front, the progress, the parameters, the time of tuning."""
    kinds = _kinds(kind)
    targets = {name: _target(run_file, path, name, alone=len(kinds) == 1) for name in kinds}
    chosen = tuple(name.strip() for name in metrics.split(",") if name.strip())
    if chosen and "pareto" not in kinds:
        raise PlotError(f"--metrics chooses the axes of a pareto plot, not of {', '.join(kinds)}")
    threshold = parse_threshold(max_error)
    run = read_run(run_file)
    left_out: dict[str, str] = {}
    for name, target in targets.items():
        names = chosen if name == "pareto" else ()
        try:
            save(plot_run(run, name, metrics=names, max_error=threshold, width=width, title=title), target)
        except PlotError as error:
            # Of all kinds, those that there are.
            if _ALL not in kind or len(left_out) + 1 == len(kinds):
                raise
            left_out[name] = str(error)
    _report(run, {name: target for name, target in targets.items() if name not in left_out}, left_out, json)


def _report(run: Run, drawn: Mapping[str, Path], left_out: Mapping[str, str], json: bool) -> None:
    if json:
        plots = [{"kind": name, "output": str(target)} for name, target in drawn.items()]
        print_json({"kernel": run.kernel, "plots": plots, "left_out": left_out})
        return
    for target in drawn.values():
        output.print(escape(str(target)), soft_wrap=True)
    for name, reason in left_out.items():
        remark(f"no {name} plot: {reason}")


def _kinds(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in (*KINDS, _ALL):
            raise UnknownNameError("kind of plot", name, (*KINDS, _ALL))
    return KINDS if _ALL in names else tuple(dict.fromkeys(names))


def _target(run_file: Path, path: Path | None, kind: str, *, alone: bool) -> Path:
    """Return the file of a plot: the one given, its name with the kind where there are several, or beside the run."""
    if path is None:
        return run_file.with_name(f"{space_name(run_file)}-{kind}.png")
    checked = check_path(path)
    return checked if alone else checked.with_stem(f"{checked.stem}-{kind}")
