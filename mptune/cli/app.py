"""The commands."""

from __future__ import annotations

import typer

from mptune import __version__
from mptune.cli import catalogue, comparing, emitting, plotting, reading, reporting, simulating, tuning

__all__ = ["app"]

app = typer.Typer(
    name="mptune",
    help="Find how much faster a kernel gets when digits nobody needs are given up.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mptune {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Find how much faster a kernel gets when digits nobody needs are given up."""


app.command("list")(catalogue.list_kernels)
app.command()(catalogue.backends)
app.command()(catalogue.render)
app.command()(catalogue.check)
app.command()(tuning.tune)
app.command()(reading.show)
app.command()(reading.pareto)
app.command()(plotting.plot)
app.command()(reading.export)
app.command()(reporting.report)
app.command()(emitting.emit)
app.command()(simulating.simulate)
app.command()(comparing.compare)
