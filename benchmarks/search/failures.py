"""Failures: who finds good configurations where many do not run at all."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Final

from benchmarks.search import failing
from benchmarks.search.cells import Job, Results
from benchmarks.search.plots import pyplot_module, save
from benchmarks.search.report import Report, finite_or_none, markdown_table, percent
from benchmarks.search.section import Section, Settings
from benchmarks.search.significance import verdict, welch_chance
from benchmarks.search.tools import DEFAULT, REPLAY, Tool, peer_tools, simulations, strategy_tools
from mptune.interop import read_run
from mptune.results.objective import Objective
from mptune.run import Run
from mptune.tuning.comparison import Comparison

__all__ = ["Failures"]

_SHARES: Final = (0.1, 0.3, 0.6)
#: One recording per kernel is enough; where these are not there, the first of the folder are taken.
_SPACES: Final = ("gemm-rtx2080ti", "dedispersion-w6600", "pnpoly-rtx3060")
_STRATEGIES: Final = ("bayesian", "bayesian-multi", "bayesian-baco", "local-search", "genetic", "random")
_PEERS: Final = ("Kernel Tuner bayes_opt",)
_RANDOM: Final = "mptune random"
#: A run of these takes far longer than one of the others.
_SLOW: Final = ("mptune bayesian-baco", *_PEERS)
_SLOW_SEEDS: Final = 3
_STYLES: Final = ("-", "--", "-.", ":")


@dataclass(frozen=True, slots=True)
class Cell:
    """One recording with failures.

    Attributes:
        path: file of the recording.
        pattern: how the failures lie, empty where nothing is made to fail.
        share: how many of the configurations that ran are made to fail.
    """

    path: Path
    pattern: str
    share: float

    @property
    def base(self) -> str:
        """Name of the recording."""
        return self.path.name.partition(".")[0]

    @property
    def name(self) -> str:
        """What the results call it."""
        return f"{self.base} {self.pattern} {self.share:.0%}" if self.pattern else f"{self.base} 0%"

    @property
    def source(self) -> Any:
        """The setting ``space`` of :func:`benchmarks.search.tools.replay`."""
        if not self.pattern:
            return str(self.path.resolve())
        return [failing.TARGET, {"path": str(self.path.resolve()), "pattern": self.pattern, "share": self.share}]

    @property
    def recorded(self) -> Run:
        """The recording."""
        return _recorded(self, self.path.stat().st_mtime_ns)


@cache
def _read(path: Path, _changed_ns: int) -> Run:
    return read_run(path)


@cache
def _recorded(cell: Cell, changed_ns: int) -> Run:
    plain = _read(cell.path, changed_ns)
    made = failing.fail_share(plain, cell.pattern, cell.share) if cell.pattern else plain
    return made.derive(name=cell.name)


class Failures(Section):
    """Spaces of which 0, 10, 30 and 60% fail, in regions or anywhere."""

    name: ClassVar[str] = "failures"
    title: ClassVar[str] = "Failures"

    def jobs(self, settings: Settings) -> list[Job]:
        """Return a job per tool and cell."""
        source = hashlib.sha256(inspect.getsource(failing).encode()).hexdigest()[:8]
        return [
            Job(
                section=self.name,
                space=cell.name,
                tool=tool.name,
                target=REPLAY,
                settings={"space": cell.source, "budget": settings.budget, "tool": tool.settings},
                seeds=_seeds(settings, tool),
                limit_s=settings.limit_s,
                files=(cell.path,),
                version=f"{tool.version}+{source}",
            )
            for tool in _tools(settings)
            if not tool.missing
            for cell in _cells(settings)
        ]

    def report(self, settings: Settings, results: Results) -> Report:
        """Return the figures of every tool that has results on all cells."""
        cells = _cells(settings)
        spaces = {cell.name: cell.recorded for cell in cells}
        names = [tool.name for tool in _tools(settings)]
        comparison = Comparison(tuple(simulations(results, spaces, names, settings.budget, Objective())))
        failed = [{"space": s, "tool": tool, "reason": why} for (s, tool), why in results.failures.items()]
        if not comparison.spaces:
            return Report(self.title, "No tool has results on all spaces.", {"failures": failed})
        rows = _against_random(comparison, cells)
        return Report(
            self.title,
            _markdown(settings, comparison, cells, rows, failed),
            comparison.to_json() | {"against_random": rows, "failures": failed},
            {"share": partial(_draw, comparison=comparison, cells=cells)},
        )


def _tools(settings: Settings) -> list[Tool]:
    strategies = [name for name in _STRATEGIES if name in settings.strategies or name in ("bayesian", "random")]
    return [*strategy_tools(strategies), *peer_tools([name for name in _PEERS if name in settings.peers])]


def _seeds(settings: Settings, tool: Tool) -> tuple[int, ...]:
    """Return all seeds for what the verdict is about, half of them for the rest, fewer where a run takes long."""
    if tool.name in (DEFAULT.name, _RANDOM):
        return tuple(range(settings.seeds))
    half = max(1, settings.seeds // 2)
    return tuple(range(min(half, _SLOW_SEEDS) if tool.name in _SLOW else half))


def _cells(settings: Settings) -> list[Cell]:
    found = settings.recordings(settings.spaces)
    chosen = [path for path in found if settings.only or path.name.partition(".")[0] in _SPACES]
    return [
        cell
        for path in chosen or found[: len(_SPACES)]
        for cell in (
            Cell(path, "", 0.0),
            *(Cell(path, pattern, share) for pattern in failing.PATTERNS for share in _SHARES),
        )
    ]


def _against_random(comparison: Comparison, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return how the default compares with random in each cell."""
    if not {DEFAULT.name, _RANDOM} <= set(comparison.strategies):
        return []
    rows = []
    for cell in cells:
        own, other = (comparison.run_distances(cell.name, name) for name in (DEFAULT.name, _RANDOM))
        valid = sum(trial.is_valid for trial in cell.recorded.trials)
        rows.append(
            {
                "space": cell.name,
                "failing": 1.0 - valid / len(cell.recorded.trials),
                "default": finite_or_none(own.mean()),
                "random": finite_or_none(other.mean()),
                "p_value": finite_or_none(welch_chance(own, other)),
                "verdict": verdict(own, other),
            }
        )
    return rows


def _markdown(
    settings: Settings,
    comparison: Comparison,
    cells: Sequence[Cell],
    rows: Sequence[Mapping[str, Any]],
    failed: Sequence[Mapping[str, str]],
) -> str:
    parts = [
        f"Recordings in which 10, 30 and 60% of the configurations that ran are made to fail: clustered, where a "
        f"product of two parameters is large (two such regions), or scattered evenly; the best of the recording still "
        f"runs. Runs of {settings.budget} evaluations. A failure costs an evaluation. Distance: as in "
        "the timing-only spaces, geometric mean over recordings.",
        _by_share(comparison, cells),
    ]
    if rows:
        table = [
            (
                row["space"],
                percent(row["failing"], 1),
                percent(row["default"]),
                percent(row["random"]),
                "-" if row["p_value"] is None else f"{row['p_value']:.2g}",
                row["verdict"],
            )
            for row in rows
        ]
        worse = [row["space"] for row in rows if row["verdict"] == "worse"]
        parts += [
            "The default beside random (Welch's t-test over runs); failing counts those that failed when recorded:",
            markdown_table(("space", "failing", "default", "random", "p", "the default is"), table),
            f"Target:\n\n- {'MISSED' if worse else 'met'}: never worse than random beyond noise: "
            f"{', '.join(worse) or 'nowhere worse'}",
        ]
    if failed:
        parts.append(
            "Runs that failed:\n\n" + "\n".join(f"- {f['tool']} on {f['space']}: {f['reason']}" for f in failed)
        )
    return "\n\n".join(parts)


def _columns(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """Return the names of the cells by pattern and share."""
    columns: dict[str, list[str]] = {}
    for cell in sorted(cells, key=lambda cell: (cell.pattern, cell.share)):
        label = f"{cell.pattern} {cell.share:.0%}" if cell.pattern else "0%"
        columns.setdefault(label, []).append(cell.name)
    return columns


def _over_recordings(comparison: Comparison, cells: Sequence[Cell]) -> dict[str, Comparison]:
    return {
        label: Comparison(tuple(s for s in comparison.simulations if s.space in names))
        for label, names in _columns(cells).items()
    }


def _by_share(comparison: Comparison, cells: Sequence[Cell]) -> str:
    parts = _over_recordings(comparison, cells)
    means = {label: part.geometric_means() for label, part in parts.items()}
    order = sorted(range(len(comparison.strategies)), key=lambda j: comparison.geometric_means()[j])
    rows = [
        (
            f"**{name}**" if name == DEFAULT.name else name,
            *(percent(row[j]) for row in means.values()),
            len(comparison.simulation(cells[0].name, name).runs),
        )
        for j in order
        for name in [comparison.strategies[j]]
    ]
    return markdown_table(("tool", *means, "runs"), rows)


def _draw(path: Path, comparison: Comparison, cells: Sequence[Cell]) -> None:
    """Draw the distance over the share that fails, one panel per pattern."""
    pyplot = pyplot_module()
    means = {label: 100 * part.geometric_means() for label, part in _over_recordings(comparison, cells).items()}
    figure, axes = pyplot.subplots(1, len(failing.PATTERNS), figsize=(9, 4), sharey=True)
    for axis, pattern in zip(axes, failing.PATTERNS, strict=True):
        labels = ["0%", *(f"{pattern} {share:.0%}" for share in _SHARES)]
        shares = [0.0, *(100 * share for share in _SHARES)]
        for j, name in enumerate(comparison.strategies):
            axis.plot(
                shares,
                [means[label][j] for label in labels],
                color=f"C{j}",
                linestyle=_STYLES[j % len(_STYLES)],
                marker="osv^Dx*"[j % 7],
                linewidth=2.2 if name == DEFAULT.name else 1.2,
                label=name,
            )
        axis.set_title(pattern, fontsize=10)
        axis.set_xlabel("made to fail in %")
        axis.set_yscale("log")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("distance from the optimum in %\n(geometric mean over recordings)")
    save(figure, path, axes[0])
