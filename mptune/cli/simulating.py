"""``mptune simulate``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from mptune.cli.arguments import CONSTRAINT_HELP, OBJECTIVES_HELP, parse_assignments, parse_objectives
from mptune.cli.display import complain, number, output, print_json, table
from mptune.simulation import simulate as simulate_space
from mptune.strategies import STRATEGIES

__all__ = ["simulate"]


def simulate(
    space: Annotated[Path, typer.Argument(metavar="SPACE", help="A cache file, T4 file or run file, gzipped or not.")],
    strategy: Annotated[
        str, typer.Option(help=f"{', '.join(STRATEGIES)} [bayesian; for several objectives bayesian-pareto].")
    ] = "bayesian",
    strategy_option: Annotated[list[str], typer.Option(metavar="K=V", help="A hyperparameter of it.")] = [],  # noqa: B006
    budget: Annotated[int, typer.Option(help="Unique configurations in each run.")] = 100,
    repeats: Annotated[int, typer.Option(help="Runs, with seeds that count upwards.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the first run.")] = 0,
    objective: Annotated[str, typer.Option(help="time, a metric or an expression.")] = "time",
    objectives: Annotated[str, typer.Option(metavar="A,B", help=OBJECTIVES_HELP)] = "",
    maximise: Annotated[bool, typer.Option("--maximise", help="More of the objective is better.")] = False,
    max_error: Annotated[float | None, typer.Option(metavar="X", help="Threshold of the error.")] = None,
    constraint: Annotated[list[str], typer.Option(metavar="C", help=CONSTRAINT_HELP)] = [],  # noqa: B006
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Replay a recorded search space, without a device."""
    simulation = simulate_space(
        space,
        strategy=strategy,
        budget=budget,
        repeats=repeats,
        seed=seed,
        objective=objective,
        objectives=parse_objectives(objectives),
        maximise=maximise,
        max_error=max_error,
        constraints=constraint,
        options=parse_assignments(strategy_option, "--strategy-option"),
    )
    document = simulation.to_json()
    if json:
        print_json(document)
    else:
        _print(document)
    if document["optimum"] is None:
        complain("no recorded configuration meets the threshold")
        raise typer.Exit(1)


def _print(document: Mapping[str, Any]) -> None:
    unit, optimum = document["unit"], document["optimum"]
    found = "none feasible" if optimum is None else f"{number(optimum, 6)} {unit}".rstrip()
    output.print(
        f"[bold]{escape(document['space'])}[/]: {document['configurations']:,} configurations, optimum {found}"
    )
    several = document.get("objectives", ())
    if several:
        output.print(
            f"objectives {', '.join(several)}: best and optimum are of {several[0]}, hypervolume is the front's"
        )
    rows = []
    for run in document["runs"]:
        best = next((value for value in reversed(run["best"]) if value is not None), math.nan)
        distance = abs(best - optimum) / abs(optimum) if optimum else math.nan
        row = (run["seed"], len(run["best"]), number(best, 6), f"{number(100 * distance, 3)} %")
        rows.append((*row, *(f"{number(100 * share[-1], 4)} %" for share in [run.get("hypervolume")] if share)))
    share = ("of the hypervolume",) if several else ()
    columns = ("seed", "evaluations", f"best ({unit})" if unit else "best", "from the optimum", *share)
    output.print(table(columns, rows, right=columns))
    output.print(
        f"{document['strategy']}: {document['overhead_ms_per_evaluation']:.2f} ms per evaluation spent searching"
    )
