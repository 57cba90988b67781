"""``mptune plot``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.markup import escape

from mptune.cli.arguments import parse_threshold
from mptune.cli.display import output, remark
from mptune.errors import PlotError, UnknownNameError
from mptune.interop import read_run
from mptune.interop.files import space_name
from mptune.plots import KINDS, SUFFIXES, WIDTHS_IN, check_path, save
from mptune.plots import plot as plot_run

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
    title: Annotated[bool, typer.Option("--title/--no-title", help="Kernel, device and counts above the plot.")] = True,
) -> None:
    """Draw what a run found: the front, the progress, the parameters, the time of tuning."""
    kinds = _kinds(kind)
    targets = {name: _target(run_file, path, name, alone=len(kinds) == 1) for name in kinds}
    chosen = tuple(name.strip() for name in metrics.split(",") if name.strip())
    threshold = parse_threshold(max_error)
    run = read_run(run_file)
    reasons: dict[str, PlotError] = {}
    for name, target in targets.items():
        try:
            figure = plot_run(
                run, name, metrics=chosen if name == "pareto" else (), max_error=threshold, width=width, title=title
            )
        except PlotError as error:
            if _ALL not in kind:
                raise
            reasons[name] = error
            continue
        output.print(escape(str(save(figure, target))), soft_wrap=True)
    if len(reasons) == len(kinds):
        raise next(iter(reasons.values()))
    for name, reason in reasons.items():
        remark(f"no {name} plot: {reason}")


def _kinds(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in (*KINDS, _ALL):
            raise UnknownNameError("kind of plot", name, (*KINDS, _ALL))
    return KINDS if _ALL in names else tuple(dict.fromkeys(names))


def _target(run_file: Path, path: Path | None, kind: str, *, alone: bool) -> Path:
    """Return the file of a plot: the one given, its name with the kind where there are several, or beside the run."""
    if path is None:
        return check_path(run_file.with_name(f"{space_name(run_file)}-{kind}.png"))
    checked = check_path(path)
    return checked if alone else checked.with_stem(f"{checked.stem}-{kind}")
