"""Overhead: the time and memory a strategy takes beside the evaluations themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from benchmarks.search.cells import Job, Results
from benchmarks.search.overhead_runs import ON_RECORDING, ON_SYNTHETIC
from benchmarks.search.report import Report, markdown_table
from benchmarks.search.section import Section, Settings
from benchmarks.search.tools import DEFAULT, REPLAY, Tool, strategy_tools

__all__ = ["Overhead"]

#: The largest recording there is; where it is missing, the largest file of the folder.
_SPACE: Final = "gemm-rtx2080ti"
_PEER: Final = "Kernel Tuner bayes_opt"
#: Parameters of 10 values, by the name of the synthetic space.
_SYNTHETIC: Final[Mapping[str, int]] = {"10^6 candidates": 6, "10^8 candidates": 8}
_SEEDS: Final = 3
_TARGET_MS: Final[Mapping[str, float]] = {"10^6 candidates": 50.0}
_TARGET_RECORDED_MS: Final = 3.0
#: Memory that is bounded does not grow with the space.
_TARGET_GROWTH: Final = 1.5


class Overhead(Section):
    """Wall time per evaluation inside the strategy, and memory; one process at a time."""

    name: ClassVar[str] = "overhead"
    title: ClassVar[str] = "Overhead"
    one_at_a_time: ClassVar[bool] = True

    def jobs(self, settings: Settings) -> list[Job]:
        """Return a job per strategy on the recording, the peer's, and the default's on each synthetic space."""
        path = _recording(settings)
        on_recording = [] if path is None else _on_recording(settings, path)
        return [*on_recording, *_on_synthetic(settings)]

    def report(self, settings: Settings, results: Results) -> Report:
        """Return time and memory."""
        rows = _rows(results)
        failed = [{"space": s, "tool": tool, "reason": why} for (s, tool), why in results.failures.items()]
        return Report(
            self.title,
            _markdown(settings, rows, failed),
            {"rows": [row.to_json() for row in rows], "failures": failed},
        )


def _recording(settings: Settings) -> Path | None:
    found = settings.recordings(settings.spaces)
    wanted = [path for path in found if path.name.partition(".")[0] == _SPACE]
    return next(iter(wanted), max(found, key=lambda path: path.stat().st_size, default=None))


def _on_recording(settings: Settings, path: Path) -> list[Job]:
    space = path.name.partition(".")[0]
    common = {"space": str(path.resolve()), "budget": settings.budget}
    own = [
        Job(
            section=Overhead.name,
            space=space,
            tool=tool.name,
            target=ON_RECORDING,
            settings=common | {"strategy": tool.strategy},
            seeds=_seeds(settings, tool),
            limit_s=settings.limit_s,
            files=(path,),
            version=DEFAULT.version,
        )
        for tool in strategy_tools(settings.strategies)
    ]
    peer = Tool(_PEER)
    if _PEER not in settings.peers or peer.missing:
        return own
    replayed = Job(
        section=Overhead.name,
        space=space,
        tool=peer.name,
        target=REPLAY,
        settings=common | {"tool": peer.settings},
        seeds=_seeds(settings, peer),
        limit_s=settings.limit_s,
        files=(path,),
        version=peer.version,
    )
    return [*own, replayed]


def _on_synthetic(settings: Settings) -> list[Job]:
    return [
        Job(
            section=Overhead.name,
            space=space,
            tool=DEFAULT.name,
            target=ON_SYNTHETIC,
            settings={"parameters": parameters, "budget": settings.budget, "strategy": DEFAULT.strategy},
            seeds=_seeds(settings, DEFAULT),
            limit_s=settings.limit_s,
            version=DEFAULT.version,
        )
        for space, parameters in _SYNTHETIC.items()
    ]


def _seeds(settings: Settings, tool: Tool) -> tuple[int, ...]:
    count = min(settings.seeds, _SEEDS)
    return tuple(range(1 if tool.strategy == "bayesian-baco" else count))


@dataclass(frozen=True, slots=True)
class _Row:
    """What a tool took on a space, one result per seed."""

    space: str
    tool: str
    results: Sequence[Mapping[str, Any]]

    @property
    def mean_ms(self) -> float:
        """Milliseconds per evaluation, over all runs."""
        evaluations = sum(len(result["best"]) for result in self.results)
        return 1e3 * float(sum(result["strategy_s"] for result in self.results)) / max(evaluations, 1)

    @property
    def cpu_ms(self) -> float | None:
        """Processor time per evaluation in milliseconds, None where it was not taken."""
        times = [float(result["cpu_s"]) for result in self.results if "cpu_s" in result]
        evaluations = sum(len(result["best"]) for result in self.results)
        return 1e3 * sum(times) / max(evaluations, 1) if len(times) == len(self.results) else None

    @property
    def worst_ms(self) -> float | None:
        """The longest one evaluation took, None where only the total is known."""
        return max((max(result["ms"]) for result in self.results if result.get("ms")), default=None)

    @property
    def peak_mib(self) -> float | None:
        """Resident memory at most, None where it was not looked at."""
        return max((result["peak_mib"] for result in self.results if "peak_mib" in result), default=None)

    @property
    def before_mib(self) -> float | None:
        """Resident memory before the space was made, in the process that had done nothing yet."""
        return min((result["before_mib"] for result in self.results if "before_mib" in result), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return all figures."""
        return {
            "space": self.space,
            "tool": self.tool,
            "runs": len(self.results),
            "evaluations": [len(result["best"]) for result in self.results],
            "candidates": next((r["candidates"] for r in self.results if "candidates" in r), None),
            "ms_per_evaluation": self.mean_ms,
            "cpu_ms_per_evaluation": self.cpu_ms,
            "worst_ms": self.worst_ms,
            "peak_mib": self.peak_mib,
            "before_mib": self.before_mib,
        }


def _rows(results: Results) -> list[_Row]:
    rows = [_Row(job.space, job.tool, list(results.of(job.space, job.tool).values())) for job in results.jobs]
    return [row for row in rows if row.results]


def _markdown(settings: Settings, rows: Sequence[_Row], failed: Sequence[Mapping[str, str]]) -> str:
    spaces = list(dict.fromkeys(row.space for row in rows))
    table = [
        (
            row.space,
            f"**{row.tool}**" if row.tool == DEFAULT.name else row.tool,
            f"{row.mean_ms:.2f}",
            "-" if row.cpu_ms is None else f"{row.cpu_ms:.2f}",
            "-" if row.worst_ms is None else f"{row.worst_ms:.1f}",
            "-" if row.peak_mib is None or row.before_mib is None else f"{row.before_mib:.0f} to {row.peak_mib:.0f}",
            len(row.results),
        )
        for row in sorted(rows, key=lambda row: (spaces.index(row.space), row.mean_ms))
    ]
    parts = [
        f"Time in `ask` and `tell` for one evaluation of {settings.budget}, mean over runs: on the clock and of the "
        "processor, which differ when the machine is busy with something else; longest: the longest one evaluation "
        "of any run took. One process of one thread at a time. Memory: resident memory of a fresh process before the "
        "space was made, and at most. The synthetic spaces have a constraint and a region that fails. Kernel Tuner's "
        "time is its own `strategy_time`.",
        markdown_table(
            ("space", "tool", "ms/evaluation", "of processor", "longest ms", "memory in MiB", "runs"), table
        ),
        _targets(rows),
    ]
    if failed:
        parts.append(
            "Runs that failed:\n\n" + "\n".join(f"- {f['tool']} on {f['space']}: {f['reason']}" for f in failed)
        )
    return "\n\n".join(part for part in parts if part)


def _targets(rows: Sequence[_Row]) -> str:
    own = {row.space: row for row in rows if row.tool == DEFAULT.name}
    met: dict[str, bool] = {}
    for space, row in own.items():
        limit = _TARGET_MS.get(space) if space in _SYNTHETIC else _TARGET_RECORDED_MS
        if limit is not None:
            met[f"at most {limit:g} ms per evaluation on {space}: {row.mean_ms:.2f} ms"] = row.mean_ms <= limit
    peaks = [own[space].peak_mib for space in _SYNTHETIC if space in own]
    if len(peaks) == len(_SYNTHETIC) and peaks[0] and peaks[-1]:
        text = f"memory at 10^8 candidates at most {_TARGET_GROWTH:g} times that at 10^6: {peaks[-1] / peaks[0]:.2f}"
        met[text] = peaks[-1] <= _TARGET_GROWTH * peaks[0]
    for row in rows:
        if row.tool == _PEER and row.space in own:
            ratio = row.mean_ms / own[row.space].mean_ms
            met[f"cheaper than {_PEER} on {row.space}: by a factor of {ratio:.1f}"] = ratio > 1.0
    return (
        "Targets:\n\n" + "\n".join(f"- {'met' if ok else 'MISSED'}: {text}" for text, ok in met.items()) if met else ""
    )
