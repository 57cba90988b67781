"""Commands that replay recorded search spaces without a device: ``simulate`` and ``compare``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mptune.cli import options
from mptune.cli.display import counter, echo, print_described, print_error, print_json, print_note
from mptune.cli.options import option
from mptune.errors import MptuneError, UnknownNameError
from mptune.markup import Description, Table, number

if TYPE_CHECKING:
    from mptune.run import Run
    from mptune.tuning.comparison import Comparison

#: Mark of distances that include runs without a feasible trial.
_MARK: Final = "*"
_INFEASIBLE_NOTE: Final = (
    f"{_MARK} includes runs without a feasible trial, counted with the worst feasible value and at least 100 %"
)


@click.command()
@options.file_argument("space", "SPACE")
@options.search
@option("--budget", "N", "Evaluate this many different configurations in each run.", default=100)
@option("--repeats", "N", "Simulate this many runs.", default=1)
@options.seed_of_runs
@options.goals
@options.sources
@options.as_json
def simulate(space: Path, strategy_options: Mapping[str, str], json: bool, **given: Any) -> int:
    """Try a strategy on a recorded search space, without a device.

    A space is a run file, a recorded space of mptune, a Kernel Tuner cache file or a T4 file; all may be gzipped.
    """
    from mptune.interop import read_run
    from mptune.tuning.simulation import simulate as simulate_space

    run = read_run(space)
    document = simulate_space(run, options=strategy_options, **given).to_json()
    _print_warnings([space], [run], **given)
    print_json(document) if json else _print_simulation(document)
    if document["optimum"] is None:
        print_error(_missing_optimum(**given))
    return 1 if document["optimum"] is None else 0


def _print_simulation(document: Mapping[str, Any]) -> None:
    from mptune.results.description import sources_table

    unit, optimum, several = document["unit"], document["optimum"], document.get("objectives", ())
    found = "none feasible" if optimum is None else f"{number(optimum, 6)} {unit}".rstrip()
    echo(f"{document['space']}: {document['configurations']:,} configurations, optimum {found}")
    rows, remarks, end = [], list[str](), document["distances"][-1]
    for run in document["runs"]:
        best = next((value for value in reversed(run["best"]) if value is not None), math.nan)
        has_found = not math.isnan(best) or optimum is None
        distance = abs((best if has_found else document["worst"]) - optimum) / abs(optimum) if optimum else math.nan
        row = {"seed": run["seed"], "evaluations": len(run["best"])}
        row[f"best ({unit})" if unit else "best"] = number(best, 6)
        row["from the optimum"] = _percent(distance if has_found else max(1.0, distance)) + _MARK * (not has_found)
        if several:
            row["of the hypervolume"] = _percent(run["hypervolume"][-1], 4)
        rows.append(row)
    if several:
        remarks.append(
            f"objectives {', '.join(several)}: best and optimum are of {several[0]}, the hypervolume the front's"
        )
    if len(rows) > 1 and optimum is not None:
        what = "of the hypervolume missing" if several else "from the optimum"
        remarks.append(
            f"{what} after {end['evaluations']} evaluations: median {_quartiles(end)}, quartiles in brackets"
        )
    if end["nothing_feasible"] and optimum is not None:
        remarks.append(_INFEASIBLE_NOTE)
    used = [run["sources"] for run in document["runs"] if run.get("sources")]
    remarks += [f"{use['source']}: {use['remark']}" for use in (used[0] if used else ()) if use["remark"]]
    spent = document["overhead_ms_per_evaluation"]
    remarks.append(f"{document['strategy']}: {spent:.2f} ms per evaluation spent searching")
    print_described(Description(tables=(Table.of(rows), sources_table(used)), remarks=tuple(remarks)))


@click.command()
@options.file_argument("spaces", "SPACE...")
@option(
    "--strategies",
    "NAME,NAME",
    "Strategies, separated by commas; 'mptune list --strategies' describes all.",
    show_default="bayesian,genetic,random; with --objectives bayesian-pareto,nsga2,random",
    parse=lambda text: None if text is None else options.parse_names(text),
)
@option("--strategy-option strategy_options", "STRATEGY.NAME=VALUE...", "An option of one of the strategies.")
@option("--budget", "N", "Evaluate this many different configurations in each run.", default=220)
@option("--repeats", "N", "Simulate this many runs of each strategy on each space.", default=10)
@options.seed_of_runs
@options.goals
@option("--processes", "N", "Use this many processes.", show_default="one per core")
@options.as_json
def compare(
    spaces: Sequence[Path], strategies: Sequence[str] | None, strategy_options: Sequence[str], json: bool, **given: Any
) -> int:
    """Compare strategies on recorded search spaces, without a device.

    A space is a run file, a recorded space of mptune, a Kernel Tuner cache file or a T4 file; all may be gzipped.
    """
    from mptune.interop import read_run
    from mptune.tuning.comparison import compare as compare_strategies

    if strategies is None:
        usual = ("bayesian-pareto", "nsga2") if given["objectives"] else ("bayesian", "genetic")
        strategies = (*usual, "random")
    by_strategy = _options_by_strategy(strategy_options, strategies)
    runs = list(map(read_run, spaces))
    with counter(f"replaying {len(spaces) * len(strategies)} times {given['repeats']} runs") as count:
        comparison = compare_strategies(runs, strategies, options=by_strategy, on_done=lambda _: count(), **given)
    _print_warnings(spaces, runs, **given)
    if json:
        print_json(comparison.to_json())
    elif comparison.spaces:
        print_described(_described(comparison))
    if not comparison.spaces:
        print_error(_missing_optimum(**given))
    elif comparison.infeasible:
        print_note(f"left out, as {_missing_optimum(**given)}: {', '.join(comparison.infeasible)}")
    return 0 if comparison.spaces else 1


def _options_by_strategy(texts: Sequence[str], strategies: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for key, value in options.parse_assignments(texts, "--strategy-option").items():
        # An option's name has no dot, a strategy's may have one.
        strategy, _, name = key.rpartition(".")
        if not strategy or not name:
            raise MptuneError(f"--strategy-option {key}={value}: expected STRATEGY.NAME=VALUE")
        if strategy not in strategies:
            raise UnknownNameError("strategy in --strategy-option:", strategy, strategies)
        found.setdefault(strategy, {})[name] = value
    return found


def _print_warnings(
    paths: Sequence[Path], runs: Sequence[Run], *, max_error: Any, constraints: Sequence[str], **_: Any
) -> None:
    """Print warnings of recordings, and notes on limits and incomplete spaces of run files."""
    for path, run in zip(paths, runs, strict=True):
        if run.info.recorded:
            for warning in run.warnings:
                print_note(warning)
            continue
        if (limits := run.info.limits_text()) and max_error is None and not constraints:
            print_note(f"{path} is a run at {limits}; without --max-error here, every error is accepted")
        whole = run.info.configurations
        if whole is not None and len(run.trials) < whole:
            print_note(
                f"{path} holds {len(run.trials):,} of {whole:,} configurations, chosen by one search: results on "
                "the whole space may differ"
            )


def _missing_optimum(*, max_error: Any, constraints: Sequence[str], **_: Any) -> str:
    """Return the reason for a missing optimum."""
    if max_error is not None or constraints:
        return "no recorded configuration is within the limits"
    return "no recorded configuration has a finite value of the objective"


def _described(comparison: Comparison) -> Description:
    """Return the tables of a comparison: by space, overall, and pairwise."""
    from mptune.tuning.comparison import SMALLEST_DISTANCE, WITHIN

    names, first, last = comparison.strategies, comparison.checkpoints[0], comparison.checkpoints[-1]
    when = f"after {last} evaluations" if first == last else f"and over evaluations {first} to {last}"
    several = comparison.simulations[0].objective.also
    distance = "share of the front's hypervolume that is missing" if several else "distance from the optimum"
    runs = f"{len(comparison.simulations[0].runs)} runs of {comparison.budget} evaluations each"

    figures = zip(comparison.spaces, comparison.mean_distances(), comparison.without_feasible(), strict=True)
    means = [
        (space, *(_percent(value) + _MARK * bool(share) for value, share in zip(values, shares, strict=True)))
        for space, values, shares in figures
    ]
    if len(means) > 1:
        least = f"geometric mean of at least {_percent(SMALLEST_DISTANCE)}"
        means.append((least, *map(_percent, comparison.geometric_means())))
    medians = (
        (space, *(_quartiles(comparison.simulation(space, name).summary()[-1]) for name in names))
        for space in comparison.spaces
    )
    overall = list[dict[str, object]]()
    for each in comparison.overall():
        within = (f"> {comparison.budget}" if n is None else f"{n:g}" for n in each["evaluations_within"].values())
        row = {"strategy": each["strategy"], "deviation factor": number(each["mean_deviation_factor"], 3)}
        row |= dict(zip((f"within {share:.0%}" for share in WITHIN), within, strict=True))
        row |= {"best at end": _percent(each["best_at_end"], 4)}
        overall.append({**row, "ms per evaluation": number(each["overhead_ms_per_evaluation"], 3)})
    wins = comparison.win_probabilities().mean(axis=0) if len(names) > 1 else ()
    won = ((names[i], *("" if i == j else f"{p:.0%}" for j, p in enumerate(row))) for i, row in enumerate(wins))
    tables = (
        Table(("space", *names), tuple(means), f"{runs}; {distance}, mean over runs {when}"),
        Table(("space", *names), tuple(medians), f"after {last} evaluations: median over runs (quartiles)"),
        Table.of(overall),
        Table(("", *names), tuple(won), "probability that a run of the row's strategy ends better than the column's"),
    )
    nothing_yet = (_INFEASIBLE_NOTE,) if comparison.without_feasible().any() else ()
    factor = "deviation factor: distance relative to the mean of all strategies; below 1 is better than the mean"
    return Description(tables=tables, remarks=(factor, *nothing_yet))


def _quartiles(end: Mapping[str, Any]) -> str:
    mark = _MARK * (end["nothing_feasible"] > 0)
    return f"{_percent(end['median'])}{mark} ({_percent(end['lower'])} to {_percent(end['upper'])})"


def _percent(value: float | None, digits: int = 3) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{number(100 * value, digits)} %"
