"""``mptune emit``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mptune.cli.arguments import parse_threshold
from mptune.cli.display import complain, number, output, print_json, remark
from mptune.emit import Emission, Winner, remarks, winner_of
from mptune.emit import emit as emit_winner
from mptune.emit import emit_all_devices as emit_devices
from mptune.errors import MptuneError
from mptune.run import Run

__all__ = ["emit"]


def emit(
    run_files: Annotated[list[Path], typer.Argument(metavar="RUN.db...", help="A run file, or one for each device.")],
    max_error: Annotated[
        list[str], typer.Option(metavar="X", help="Threshold instead of the run's; NAME=X for an output.")
    ] = [],  # noqa: B006
    configuration: Annotated[
        str,
        typer.Option(
            metavar="ID", help="This trial instead of the best: its number, the start of its key, or NAME=VALUE,..."
        ),
    ] = "",
    kernel: Annotated[
        str | None, typer.Option(metavar="KERNEL|FILE.py", help="The definition, if not in the current folder.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder to write to [tuned/KERNEL].")
    ] = None,
    all_devices: Annotated[
        bool, typer.Option("--all-devices", help="Write a header that selects among the run files by device.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write the winner as source, header, launch examples and README that need no mptune."""
    threshold = parse_threshold(max_error)
    if len(run_files) > 1 and not all_devices:
        raise MptuneError(f"{len(run_files)} run files: to emit a header that selects by device, add --all-devices")
    if all_devices and configuration:
        raise MptuneError("--all-devices and --configuration exclude each other: each device has its own winner")
    winners = _winners(run_files, threshold, configuration, kernel)
    if not winners:
        raise typer.Exit(1)
    target = folder or Path("tuned") / winners[0].kernel.name
    emissions = emit_devices(winners, target) if all_devices else (emit_winner(winners[0], target),)
    if json:
        documents = [emission.to_json() for emission in emissions]
        print_json({"output": str(target), "devices": documents} if all_devices else documents[0])
        return
    if all_devices:
        output.print(escape(str(target / f"tuned_{winners[0].kernel.name}.hpp")), soft_wrap=True)
    for emission in emissions:
        _print(emission)


def _winners(
    paths: Sequence[Path], threshold: float | Mapping[str, float] | None, configuration: str, kernel: str | None
) -> list[Winner]:
    """Return the winners of the runs, none where one of them has none."""
    winners = []
    for path in paths:
        run = Run.load(path)
        winner = winner_of(run, max_error=threshold, configuration=configuration, kernel=kernel)
        if winner is None:
            complain(f"{path}: no trial satisfies the threshold")
            return []
        if not run.objective.is_feasible(winner.trial) and threshold is None:
            remark(f"{path}: {winner.configuration} is not feasible ({winner.trial.message}); it was asked for by name")
        for told in remarks(run, winner.kernel):
            remark(f"{path}: {told}")
        winners.append(winner)
    return winners


def _print(emission: Emission) -> None:
    output.print(
        f"[bold]{escape(emission.kernel)}[/]: {escape(str(emission.trial.configuration))}: "
        f"{number(emission.trial.time_ms)} ms, speedup {number(emission.speedup, 3)}, "
        f"error {number(emission.trial.error, 3)}",
        soft_wrap=True,
    )
    for name in emission.files:
        output.print(escape(str(emission.folder / name)), soft_wrap=True)
