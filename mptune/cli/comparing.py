"""``mptune compare``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mptune.cli.arguments import CONSTRAINT_HELP, parse_assignments, parse_threshold
from mptune.cli.display import complain, messages, number, output, print_json, remark, table
from mptune.comparison import WITHIN, Comparison
from mptune.comparison import compare as compare_strategies
from mptune.errors import MptuneError, UnknownNameError
from mptune.objective import PENALTIES
from mptune.simulation import Simulation
from mptune.strategies import STRATEGIES

__all__ = ["compare"]

_OPTION = "--strategy-option"


def compare(
    spaces: Annotated[list[Path], typer.Argument(metavar="SPACE...", help="Cache files, T4 files or run files.")],
    strategies: Annotated[str, typer.Option(help=f"By commas: {', '.join(STRATEGIES)}.")] = "bayesian,genetic,random",
    strategy_option: Annotated[list[str], typer.Option(metavar="S.K=V", help="A strategy's hyperparameter.")] = [],  # noqa: B006
    budget: Annotated[int, typer.Option(help="Unique configurations in each run.")] = 220,
    repeats: Annotated[int, typer.Option(help="Runs of each strategy on each space.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the first run.")] = 0,
    objective: Annotated[str, typer.Option(help="time, a metric or an expression.")] = "time",
    maximise: Annotated[bool, typer.Option("--maximise", help="More of the objective is better.")] = False,
    max_error: Annotated[
        list[str], typer.Option(metavar="X", help="Threshold of the error; NAME=X for an output.")
    ] = [],  # noqa: B006
    penalty: Annotated[str, typer.Option(help=f"{', '.join(PENALTIES)}: what an inaccurate trial scores.")] = "decay",
    constraint: Annotated[list[str], typer.Option(metavar="C", help=CONSTRAINT_HELP)] = [],  # noqa: B006
    processes: Annotated[int | None, typer.Option(help="Worker processes [one per core].")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare strategies on recorded search spaces, without a device."""
    chosen = tuple(name.strip() for name in strategies.split(",") if name.strip())
    threshold = parse_threshold(max_error)
    cells = len(spaces) * len(chosen)
    with messages.status(f"replaying {cells} x {repeats} runs") as status:
        done = 0

        def count(simulation: Simulation) -> None:
            nonlocal done
            done += 1
            status.update(f"{done} of {cells}: {simulation.strategy} on {simulation.space}")

        comparison = compare_strategies(
            spaces,
            chosen,
            budget=budget,
            repeats=repeats,
            seed=seed,
            objective=objective,
            maximise=maximise,
            max_error=threshold,
            penalty=penalty,
            constraints=constraint,
            options=_options(strategy_option, chosen),
            processes=processes,
            on_done=count,
        )
    if json:
        print_json(comparison.to_json())
    elif comparison.spaces:
        _print(comparison)
    if not comparison.spaces:
        complain("no recorded configuration meets the threshold")
        raise typer.Exit(1)
    if comparison.infeasible:
        remark(f"left out, no recorded configuration meets the threshold: {', '.join(comparison.infeasible)}")


def _options(texts: Sequence[str], strategies: Sequence[str]) -> dict[str, dict[str, str]]:
    options: dict[str, dict[str, str]] = {}
    for key, value in parse_assignments(texts, _OPTION).items():
        # A hyperparameter's name has no dot, a strategy's may have one.
        strategy, dot, name = key.rpartition(".")
        if not dot or not strategy or not name:
            raise MptuneError(f"{_OPTION} {key}={value}: expected STRATEGY.NAME=VALUE, such as genetic.population=20")
        if strategy not in strategies:
            raise UnknownNameError(f"strategy in {_OPTION}:", strategy, strategies)
        options.setdefault(strategy, {})[name] = value
    return options


def _print(comparison: Comparison) -> None:
    runs = len(comparison.simulations[0].runs)
    points = comparison.checkpoints
    output.print(
        f"{runs} runs of {comparison.budget} evaluations each; distance from the optimum, mean over runs and over "
        f"evaluations {points[0]} to {points[-1]}"
    )
    output.print()
    output.print(_distances(comparison))
    output.print()
    output.print(_summary(comparison))
    if len(comparison.strategies) > 1:
        output.print()
        output.print("probability that a run of the row's strategy ends better than one of the column's")
        output.print(_wins(comparison))


def _distances(comparison: Comparison) -> Any:
    rows: list[tuple[str, ...]] = [
        (space, *(_share(value) for value in row))
        for space, row in zip(comparison.spaces, comparison.mean_distances(), strict=True)
    ]
    if len(rows) > 1:
        rows.append(("geometric mean", *(_share(value) for value in comparison.geometric_means())))
    return table(("space", *comparison.strategies), rows, right=comparison.strategies)


def _summary(comparison: Comparison) -> Any:
    columns = ("deviation factor", *(f"within {d:.0%}" for d in WITHIN), "best at end", "ms per evaluation")
    rows = []
    for row in comparison.overall():
        within = row["evaluations_within"].values()
        rows.append(
            (
                row["strategy"],
                _number(row["mean_deviation_factor"], 3),
                *(f"> {comparison.budget}" if value is None else f"{value:g}" for value in within),
                _share(row["best_at_end"], 4),
                _number(row["overhead_ms_per_evaluation"], 3),
            )
        )
    return table(("strategy", *columns), rows, right=columns)


def _wins(comparison: Comparison) -> Any:
    names, wins = comparison.strategies, comparison.win_probabilities().mean(axis=0)
    rows = [(name, *("" if i == j else f"{wins[i, j]:.0%}" for j in range(len(names)))) for i, name in enumerate(names)]
    return table(("", *names), rows, right=names)


def _share(value: float | None, digits: int = 3) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{number(100 * value, digits)} %"


def _number(value: float | None, digits: int) -> str:
    return number(math.nan if value is None else value, digits)
