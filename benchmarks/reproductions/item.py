"""What an item is, what it is given, and what it returns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.reproductions.spread import FEWEST
from benchmarks.search.cells import Cache, Job, Results
from benchmarks.search.runner import run_jobs
from mptune.cli.options import parse_sizes
from mptune.errors import MptuneError
from mptune.kernel import Tunable

__all__ = ["SLOW", "Cell", "Given", "Item", "Outcome", "Skipped", "Table", "require"]

#: One run of a slow tool is made for so many of the others.
SLOW: Final = 10

#: What a cell of a table holds; None is shown as a dash.
Cell = str | int | float | None


class Skipped(MptuneError):
    """Data an item needs are not there; says which."""


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line says.

    Attributes:
        quick: as little as shows that everything works, not figures to keep.
        data: folder of the project's own recorded spaces.
        spaces: folder of other people's recorded spaces.
        published: folder of the raw results that papers published.
        work: where finished replays are kept.
        runs: replays of every tool on every space; of slow ones there are fewer (:meth:`runs_of`).
        processes: replays at a time.
        size: preset, and single sizes as NAME=VALUE, of the kernels and applications that are run at any size.
        budget: evaluations of a search that is run, not replayed.
        seed: of inputs and searches that are run.
        only: parts of the names of the recorded spaces of other people to use; all where empty.
        backend: what kernels of Lin 2025 are run by.
    """

    data: Path
    spaces: Path
    published: Path
    work: Path
    quick: bool = False
    runs: int = 100
    processes: int = 1
    size: tuple[str, ...] = ()
    budget: int = 60
    seed: int = 0
    only: tuple[str, ...] = ()
    backend: str = "host"

    def runs_of(self, *, is_slow: bool) -> int:
        """Return how often a tool is replayed on every space.

        A slow one, of which a run takes minutes, is replayed a tenth as often, but five times where so many are asked
        for, so that there are quartiles.
        """
        return min(self.runs, max(FEWEST, self.runs // SLOW)) if is_slow else self.runs

    def sizes_of(self, tunable: Tunable) -> tuple[str, dict[str, int]]:
        """Return the preset and the single sizes of a kernel or application.

        Raises:
            MptuneError: it has no such preset or size.
        """
        return parse_sizes(tunable, self.size)

    def run(self, jobs: Sequence[Job]) -> Results:
        """Run what has not been run before; progress goes to standard error."""
        return run_jobs(jobs, Cache(self.work), self.processes, lambda line: print(line, file=sys.stderr, flush=True))


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        title: what it shows.
        columns: their names, with units.
        rows: of one cell per column.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r}: a row of {len(row)} cells for {len(self.columns)} columns")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an item found.

    Attributes:
        summary: what came out beside what the paper found, in a sentence or a few.
        tables: the paper's figures beside ours.
        differs: what is not as in the paper and why, a sentence each.
        data: figures that are in no table, for the JSON document.
    """

    summary: str
    tables: tuple[Table, ...]
    differs: tuple[str, ...]
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Item:
    """A table or figure of a paper.

    Attributes:
        where: the paper and its table, figure or section ("Heldens 2026, Table II").
        what: what it shows, in a few words.
        run: does it.
        has_sizes: whether it can be done at other sizes than its own.
        has_backends: whether it can be done by another backend than the host's.
        needs: the option that names the folder of data it needs which are not in this repository; "" for none.
    """

    where: str
    what: str
    run: Callable[[Given], Outcome]
    has_sizes: bool = False
    has_backends: bool = False
    needs: str = ""


def require(path: Path, what: str, option: str) -> Path:
    """Return a file or folder that is there.

    Args:
        path: of it.
        what: it is.
        option: of the command line that names its folder.

    Raises:
        Skipped: it is not.
    """
    if not path.exists():
        raise Skipped(f"there is no {what}: {path} ({option} names another folder)")
    return path
