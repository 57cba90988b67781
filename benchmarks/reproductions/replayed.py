"""Replays of tools on recorded spaces, as the items of several papers need them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.reproductions.item import Given, Skipped
from benchmarks.search.cells import Job, Results
from benchmarks.search.section import Settings
from benchmarks.search.tools import REPLAY, Tool, simulations
from mptune.errors import MptuneError
from mptune.interop import read_run
from mptune.results.objective import Objective
from mptune.tuning.comparison import Comparison

__all__ = ["jobs_of", "recordings", "replayed", "run_all"]

#: Replays that two items have in common are run once.
_SECTION: Final = "papers"


def recordings(given: Given, *parts: str) -> dict[str, Path]:
    """Return the files of other people's recorded spaces whose names have one of these parts (default: all), by name.

    The command line may have asked for some of them only.

    Raises:
        Skipped: there are none.
    """
    found = Settings(given.spaces, given.data, only=parts).recordings(given.spaces)
    found = [path for path in found if not given.only or any(part in path.name for part in given.only)]
    if not found:
        only = f" with {' or '.join(given.only)} in their names" if given.only else ""
        raise Skipped(
            f"there are no recorded spaces {' or '.join(f'{part}*' for part in parts)}{only} in {given.spaces} "
            "(--spaces names another folder; they are the FAIR Benchmark Hub's, as files of Kernel Tuner or T4: "
            "https://github.com/AutoTuningAssociation/benchmark_hub)"
        )
    missing = [f"{part}*" for part in parts if not given.only and not any(part in path.name for path in found)]
    if missing:
        print(f"no recorded space {', '.join(missing)} in {given.spaces}: left out", file=sys.stderr)
    return {path.name.partition(".")[0]: path for path in found}


def jobs_of(tools: Sequence[tuple[Tool, int]], files: Mapping[str, Path], budget: int) -> list[Job]:
    """Return the replays of tools, each so many times, on recorded spaces.

    Raises:
        MptuneError: a tool is not installed.
    """
    missing = [f"{tool.name}: {tool.missing}" for tool, _ in tools if tool.missing]
    if missing:
        raise MptuneError("; ".join(missing))
    return [
        Job(
            section=_SECTION,
            space=name,
            tool=tool.name,
            target=REPLAY,
            settings={"space": str(path.resolve()), "budget": budget, "tool": tool.settings},
            seeds=tuple(range(runs)),
            files=(path,),
            version=tool.version,
        )
        for tool, runs in tools
        for name, path in files.items()
    ]


def run_all(given: Given, jobs: Sequence[Job]) -> Results:
    """Run jobs.

    Raises:
        MptuneError: one failed.
    """
    results = given.run(jobs)
    for (space, tool), reason in results.failures.items():
        raise MptuneError(f"{tool} on {space}: {reason}")
    return results


def replayed(given: Given, tools: Sequence[tuple[Tool, int]], files: Mapping[str, Path], budget: int) -> Comparison:
    """Return the comparison of tools, each replayed so many times, on recorded spaces without errors.

    Raises:
        MptuneError: a replay failed.
    """
    results = run_all(given, jobs_of(tools, files, budget))
    spaces = {name: read_run(path) for name, path in files.items()}
    return Comparison(tuple(simulations(results, spaces, [tool.name for tool, _ in tools], budget, Objective())))
