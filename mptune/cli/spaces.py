"""Commands that replay recorded search spaces, without a device: ``simulate`` and ``compare``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mptune.cli import options
from mptune.cli.display import counter, echo, number, print_error, print_json, print_note, sources_table, table
from mptune.cli.options import option
from mptune.errors import MptuneError, UnknownNameError

if TYPE_CHECKING:
    from mptune.comparison import Comparison

__all__ = ["compare", "simulate"]

_NOTHING: Final = "no recorded configuration meets the threshold"


@click.command()
@options.file_argument("space", "SPACE")
@options.strategy
@options.strategy_option
@option("--budget", "N", "Evaluate this many different configurations in each run.", default=100)
@option("--repeats", "N", "Simulate this many runs.", default=1)
@options.seed_of_runs
@options.objective
@options.objectives
@options.maximise
@options.max_error
@options.constraints
@options.sources
@options.as_json
def simulate(space: Path, strategy_options: Mapping[str, str], json: bool, **given: Any) -> int:
    """Try a strategy on a recorded search space, without a device.

    A space is a run file, a recorded space of mptune, a Kernel Tuner cache file or a T4 file, gzipped or not.
    """
    from mptune.simulation import simulate as simulate_space

    document = simulate_space(space, options=strategy_options, **given).to_json()
    if json:
        print_json(document)
    else:
        _print_simulation(document)
    if document["optimum"] is None:
        print_error(_NOTHING)
        return 1
    return 0


def _print_simulation(document: Mapping[str, Any]) -> None:
    unit, optimum = document["unit"], document["optimum"]
    found = "none feasible" if optimum is None else f"{number(optimum, 6)} {unit}".rstrip()
    echo(f"{document['space']}: {document['configurations']:,} configurations, optimum {found}")
    if several := document.get("objectives", ()):
        echo(f"objectives {', '.join(several)}: best and optimum are of {several[0]}, the hypervolume is the front's")
    rows = []
    for run in document["runs"]:
        best = next((value for value in reversed(run["best"]) if value is not None), math.nan)
        distance = abs(best - optimum) / abs(optimum) if optimum else math.nan
        row = (run["seed"], len(run["best"]), number(best, 6), f"{number(100 * distance, 3)} %")
        rows.append((*row, *(f"{number(100 * share[-1], 4)} %" for share in [run.get("hypervolume")] if share)))
    share = ("of the hypervolume",) if several else ()
    columns = ("seed", "evaluations", f"best ({unit})" if unit else "best", "from the optimum", *share)
    echo(table(columns, rows, right=columns))
    if used := [run["sources"] for run in document["runs"] if run.get("sources")]:
        echo(sources_table(used))
    echo(f"{document['strategy']}: {document['overhead_ms_per_evaluation']:.2f} ms per evaluation spent searching")


@click.command()
@options.file_argument("spaces", "SPACE...")
@option(
    "--strategies",
    "A,B",
    "Strategies, separated by commas; 'mptune list --strategies' describes all.",
    default="bayesian,genetic,random",
    parse=options.parse_names,
)
@option("--strategy-option strategy_options", "STRATEGY.NAME=VALUE...", "An option of one of the strategies.")
@option("--budget", "N", "Evaluate this many different configurations in each run.", default=220)
@option("--repeats", "N", "Simulate this many runs of each strategy on each space.", default=10)
@options.seed_of_runs
@options.objective
@options.maximise
@options.max_error
@options.penalty
@options.constraints
@option("--processes", "N", "Use this many processes.", type=int, show_default="one per core")
@options.as_json
def compare(
    spaces: Sequence[Path], strategies: Sequence[str], strategy_options: Sequence[str], json: bool, **given: Any
) -> int:
    """Compare strategies on recorded search spaces, without a device.

    A space is a run file, a recorded space of mptune, a Kernel Tuner cache file or a T4 file, gzipped or not.
    """
    from mptune.comparison import compare as compare_strategies

    by_strategy = _options_by_strategy(strategy_options, strategies)
    with counter(f"replaying {len(spaces) * len(strategies)} times {given['repeats']} runs") as count:
        comparison = compare_strategies(spaces, strategies, options=by_strategy, on_done=lambda _: count(), **given)
    if json:
        print_json(comparison.to_json())
    elif comparison.spaces:
        _print_comparison(comparison)
    if not comparison.spaces:
        print_error(_NOTHING)
        return 1
    if comparison.infeasible:
        print_note(f"left out, as {_NOTHING}: {', '.join(comparison.infeasible)}")
    return 0


def _options_by_strategy(texts: Sequence[str], strategies: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for key, value in options.parse_assignments(texts, "--strategy-option").items():
        # An option's name has no dot, a strategy's may have one.
        strategy, dot, name = key.rpartition(".")
        if not dot or not strategy or not name:
            raise MptuneError(
                f"--strategy-option {key}={value}: expected STRATEGY.NAME=VALUE, such as genetic.population=20"
            )
        if strategy not in strategies:
            raise UnknownNameError("strategy in --strategy-option:", strategy, strategies)
        found.setdefault(strategy, {})[name] = value
    return found


def _print_comparison(comparison: Comparison) -> None:
    first, last = comparison.checkpoints[0], comparison.checkpoints[-1]
    when = f"after {last} evaluations" if first == last else f"and over evaluations {first} to {last}"
    echo(
        f"{len(comparison.simulations[0].runs)} runs of {comparison.budget} evaluations each; distance from the "
        f"optimum, mean over runs {when}"
    )
    echo(f"\n{_distances(comparison)}\n\n{_summary(comparison)}")
    echo("deviation factor: a strategy's distance divided by the mean of all strategies'; below 1 is better than that")
    if len(comparison.strategies) > 1:
        echo("\nprobability that a run of the row's strategy ends better than one of the column's")
        echo(_wins(comparison))


def _distances(comparison: Comparison) -> str:
    rows: list[tuple[str, ...]] = [
        (space, *(_percent(value) for value in row))
        for space, row in zip(comparison.spaces, comparison.mean_distances(), strict=True)
    ]
    if len(rows) > 1:
        rows.append(("geometric mean", *(_percent(value) for value in comparison.geometric_means())))
    return table(("space", *comparison.strategies), rows, right=comparison.strategies)


def _summary(comparison: Comparison) -> str:
    from mptune.comparison import WITHIN

    columns = ("deviation factor", *(f"within {d:.0%}" for d in WITHIN), "best at end", "ms per evaluation")
    rows = [
        (
            row["strategy"],
            number(row["mean_deviation_factor"], 3),
            *(f"> {comparison.budget}" if n is None else f"{n:g}" for n in row["evaluations_within"].values()),
            _percent(row["best_at_end"], 4),
            number(row["overhead_ms_per_evaluation"], 3),
        )
        for row in comparison.overall()
    ]
    return table(("strategy", *columns), rows, right=columns)


def _wins(comparison: Comparison) -> str:
    names, wins = comparison.strategies, comparison.win_probabilities().mean(axis=0)
    rows = [(name, *("" if i == j else f"{wins[i, j]:.0%}" for j in range(len(names)))) for i, name in enumerate(names)]
    return table(("", *names), rows, right=names)


def _percent(value: float | None, digits: int = 3) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{number(100 * value, digits)} %"
