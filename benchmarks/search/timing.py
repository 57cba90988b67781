"""Timing-only spaces: who is nearest to the optimum, and how soon."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from benchmarks.bench import percent, table
from benchmarks.search.cells import Job, Results
from benchmarks.search.peers import PEERS
from benchmarks.search.report import Report, finite_or_none
from benchmarks.search.section import Section, Settings
from benchmarks.search.significance import NOISE, welch_chance
from benchmarks.search.tools import DEFAULT, REPLAY, Tool, peer_tools, simulations, strategy_tools
from mptune.interop import read_run
from mptune.results.objective import Objective
from mptune.tuning.comparison import Comparison

__all__ = ["Timing"]

_TARGET_DISTANCE: Final = 0.006
_TARGET_END: Final = 0.99


class Timing(Section):
    """Strategies and peers on recorded spaces without errors."""

    name: ClassVar[str] = "timing"
    title: ClassVar[str] = "Timing-only spaces"

    def jobs(self, settings: Settings) -> list[Job]:
        """Return a job per space and tool, slow peers first."""
        return [
            Job(
                section=self.name,
                space=_space_name(path.name),
                tool=tool.name,
                target=REPLAY,
                settings={"space": str(path.resolve()), "budget": settings.budget, "tool": tool.settings},
                seeds=tuple(range(settings.slow_seeds if tool.is_slow else settings.seeds)),
                limit_s=settings.limit_s,
                files=(path,),
                version=tool.version,
            )
            for tool in sorted(_tools(settings), key=lambda tool: not tool.is_slow)
            for path in settings.recordings(settings.spaces)
            if not tool.missing
        ]

    def report(self, settings: Settings, results: Results) -> Report:
        """Return the figures of every tool that has results on all spaces."""
        tools = _tools(settings)
        spaces = {_space_name(path.name): read_run(path) for path in settings.recordings(settings.spaces)}
        done = simulations(results, spaces, [tool.name for tool in tools], settings.budget, Objective())
        comparison = Comparison(tuple(done))
        if not comparison.spaces:
            return Report(self.title, "No tool has results on all spaces.", {"failures": _failures(results)})
        verdicts = _verdicts(comparison)
        return Report(
            self.title,
            _markdown(settings, tools, comparison, verdicts, results),
            comparison.to_json() | {"verdicts": verdicts, "failures": _failures(results)},
        )


def _tools(settings: Settings) -> list[Tool]:
    return [*strategy_tools(settings.strategies), *peer_tools(settings.peers)]


def _space_name(file: str) -> str:
    return file.removesuffix(".gz").removesuffix(".json")


def _failures(results: Results) -> list[dict[str, str]]:
    return [{"space": space, "tool": tool, "reason": why} for (space, tool), why in results.failures.items()]


def _by_distance(comparison: Comparison, names: Iterable[str]) -> list[str]:
    means = dict(zip(comparison.strategies, comparison.geometric_means().tolist(), strict=True))
    return sorted((name for name in names if name in means), key=means.__getitem__)


def _verdicts(comparison: Comparison) -> list[dict[str, Any]]:
    """Return for each space how the default compares with the best peer there."""
    rows: list[dict[str, Any]] = []
    peers = [name for name in comparison.strategies if name in PEERS]
    if DEFAULT.name not in comparison.strategies or not peers:
        return rows
    for space in comparison.spaces:
        best = min(peers, key=lambda name: comparison.run_distances(space, name).mean())
        own, other = (comparison.run_distances(space, name) for name in (DEFAULT.name, best))
        chance = welch_chance(own, other)
        verdict = "within noise"
        if not chance >= NOISE and own.mean() != other.mean():
            verdict = "default better" if own.mean() < other.mean() else "peer better"
        rows.append(
            {
                "space": space,
                "default": finite_or_none(own.mean()),
                "best_peer": best,
                "peer": finite_or_none(other.mean()),
                "p_value": finite_or_none(chance),
                "verdict": verdict,
            }
        )
    return rows


def _markdown(
    settings: Settings,
    tools: Sequence[Tool],
    comparison: Comparison,
    verdicts: Sequence[dict[str, Any]],
    results: Results,
) -> str:
    points = comparison.checkpoints
    parts = [
        f"{len(comparison.spaces)} spaces, {settings.seeds} runs of {settings.budget} evaluations of each tool on each "
        f"(fewer where the table says so). Distance: best so far minus optimum, relative to the optimum, mean over "
        f"runs and over evaluations {points[0]}, {points[1] if len(points) > 1 else points[0]}, ... {points[-1]}. "
        "Deviation factor: a tool's distance as a share of the mean over tools, mean over spaces. Evaluations to come "
        "within 1% and 5%: median over runs, then over spaces.",
        _summary(tools, comparison, results),
        "Mean distance by space:",
        _distances(comparison),
    ]
    if verdicts:
        parts += ["The default beside the best peer of each space (Welch's t-test over runs):", _beside(verdicts)]
    parts += [_targets(comparison, verdicts), _ended_early(comparison), _setup(tools)]
    if results.failures:
        reasons = [f"- {tool} on {space}: {why}" for (space, tool), why in results.failures.items()]
        parts.append("Runs that failed:\n\n" + "\n".join(reasons))
    return "\n\n".join(part for part in parts if part)


def _summary(tools: Sequence[Tool], comparison: Comparison, results: Results) -> str:
    overall = {row["strategy"]: row for row in comparison.overall()}
    rows: list[tuple[object, ...]] = []
    columns = ("tool", "distance", "deviation factor", "within 1%", "within 5%", "best at end", "ms/evaluation", "runs")
    empty = ("",) * (len(columns) - 2)
    for name in _by_distance(comparison, overall):
        row = overall[name]
        within = [
            f"> {comparison.budget}" if value is None else f"{value:g}" for value in row["evaluations_within"].values()
        ]
        factor = row["mean_deviation_factor"]
        runs = {len(comparison.simulation(space, name).runs) for space in comparison.spaces}
        rows.append(
            (
                f"**{name}**" if name == DEFAULT.name else name,
                percent(row["geometric_mean_distance"]),
                "-" if factor is None else f"{factor:.2f}",
                *within,
                percent(row["best_at_end"]),
                f"{row['overhead_ms_per_evaluation']:.2f}",
                "/".join(map(str, sorted(runs))),
            )
        )
    for tool in tools:
        if tool.missing:
            rows.append((tool.name, tool.missing, *empty))
        elif tool.name not in overall:
            reasons = [why for (_, name), why in results.failures.items() if name == tool.name]
            rows.append((tool.name, f"failed: {reasons[0] if reasons else 'not run on every space'}", *empty))
    return table(columns, rows)


def _distances(comparison: Comparison) -> str:
    names = _by_distance(comparison, comparison.strategies)
    column = {name: j for j, name in enumerate(comparison.strategies)}
    means = comparison.mean_distances()
    rows = [(name, *(percent(value) for value in means[:, column[name]])) for name in names]
    return table(("tool", *comparison.spaces), rows)


def _beside(verdicts: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            row["space"],
            percent(row["default"]),
            row["best_peer"],
            percent(row["peer"]),
            "-" if row["p_value"] is None else f"{row['p_value']:.2g}",
            row["verdict"],
        )
        for row in verdicts
    ]
    return table(("space", "default", "best peer", "its distance", "p", "verdict"), rows)


def _targets(comparison: Comparison, verdicts: Sequence[dict[str, Any]]) -> str:
    own = next((row for row in comparison.overall() if row["strategy"] == DEFAULT.name), None)
    if own is None:
        return ""
    column = comparison.strategies.index(DEFAULT.name)
    distance, end = own["geometric_mean_distance"], float(comparison.best_at_end()[:, column].min())
    met = {
        f"geometric mean over spaces at most {percent(_TARGET_DISTANCE, 1)}: {percent(distance)}": distance is not None
        and distance <= _TARGET_DISTANCE,
        f"on every space at least {percent(_TARGET_END, 1)} at the end: {percent(end)} at least": end >= _TARGET_END,
    }
    if verdicts:
        worse = [row["space"] for row in verdicts if row["verdict"] == "peer better"]
        met[f"no space where a peer is better beyond noise: {', '.join(worse) or 'none'}"] = not worse
    return "Targets:\n\n" + "\n".join(f"- {'met' if ok else 'MISSED'}: {text}" for text, ok in met.items())


def _ended_early(comparison: Comparison) -> str:
    """Return which tools stopped by themselves; such a run keeps its last value."""
    lines = []
    for name in comparison.strategies:
        lengths = {
            space: [len(run.best) for run in comparison.simulation(space, name).runs] for space in comparison.spaces
        }
        short = {space: found for space, found in lengths.items() if min(found) < comparison.budget}
        if short:
            least = min(map(min, short.values()))
            lines.append(f"- {name}: on {', '.join(short)}, after {least} evaluations at the earliest")
    return "Tools that ended before the budget was spent:\n\n" + "\n".join(lines) if lines else ""


def _setup(tools: Sequence[Tool]) -> str:
    setups: dict[str, list[str]] = {}
    for tool in tools:
        if tool.is_peer:
            setups.setdefault(PEERS[tool.name].setup, []).append(tool.name)
    lines = [f"- {', '.join(names)}: {setup}." for setup, names in setups.items()]
    return "How the peers are set up:\n\n" + "\n".join(lines) if lines else ""
