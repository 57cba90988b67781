"""Measures how fast a run file of a million trials is written, opened, shown and searched for its Pareto front.

The trials resemble those of a kernel with seven parameters: each has five numbers and ten launch times; one in five is
inaccurate, one in ten failed. They are written one at a time, as a tuner does, and by the thousand, as an importer
does. Then the user's commands are timed as separate processes, with their start and imports.

    python benchmarks/storage.py [--trials 1000000] [--singly 2000] [--folder FOLDER] [--output FILE.md]
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from mptune.backends.processor import processor, usable_cores
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration, Value
from mptune.store import RunFile, RunInfo, RunState

OUTPUT: Final = Path(__file__).parent / "results" / "storage.md"
#: Text below this line was written by hand and is kept when the report is written again.
NOTES: Final = "<!-- Below this line storage.py changes nothing. -->"
BATCH: Final = 1000
VALUES: Final[dict[str, list[Value]]] = {
    "block_size_x": [32 * i for i in range(1, 33)],
    "block_size_y": list(range(1, 33)),
    "tile_size": list(range(1, 17)),
    "unroll": [1, 2, 4, 8],
    "x_type": ["fp64", "fp32", "fp16", "bf16"],
    "y_type": ["fp64", "fp32", "fp16", "bf16"],
    "policy": ["accurate", "fast", "approx"],
}
SETTINGS: Final[dict[str, Any]] = {
    "kernel": "synthetic",
    "backend": "host",
    "device": "none",
    "sizes": {"n": 1},
    "threshold": 1e-4,
    "metric": "NRMSE",
    "objective": "time_ms",
    "minimise": True,
    "penalty": "decay",
    "alpha": 1.0,
    "beta": 1.0,
    "strategy": "random",
    "seed": 0,
    "budget": 1_000_000,
    "configurations": int(np.prod([len(values) for values in VALUES.values()])),
    "baseline_values": {"x_type": ["fp64"], "y_type": ["fp64"], "policy": ["accurate"]},
    "signature": ["x_type", "y_type", "policy"],
    "parameters": [{"name": name, "kind": "ordinal", "values": values} for name, values in VALUES.items()],
    "wall_s": 0.0,
}
FAILURES: Final = (
    (Status.CRASH, "the worker was ended by SIGSEGV (segmentation fault) in the launch phase"),
    (Status.COMPILE_ERROR, "g++ rejected synthetic (exit status 1)\nsynthetic.cu:31:5: error: expected ';'"),
    (Status.TIMEOUT, "the launch phase did not end within 30 s"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: what was done, the number, its unit."""

    what: str
    value: str


def trials(count: int, seed: int = 0) -> Iterator[Trial]:
    """Yield that many trials, each of another configuration, in random order."""
    rng = np.random.default_rng(seed)
    names, sizes = list(VALUES), [len(values) for values in VALUES.values()]
    numbers = rng.choice(int(np.prod(sizes)), size=count, replace=False)
    times = np.exp(rng.normal(0.0, 1.0, count))
    errors = 10.0 ** rng.normal(-6.0, 2.0, count)
    kinds = rng.random(count)
    for i in range(count):
        codes = np.unravel_index(int(numbers[i]), sizes)
        configuration = Configuration({n: VALUES[n][int(c)] for n, c in zip(names, codes, strict=True)})
        yield _trial(configuration, float(times[i]), float(errors[i]), float(kinds[i]), i)


def _trial(configuration: Configuration, time_ms: float, error: float, kind: float, number: int) -> Trial:
    key = hashlib.sha256(str(number).encode()).hexdigest()
    durations = {"compile": 0.31, "transfer": 0.0021, "launch": 0.0013, "accuracy": 0.0047, "timing": 0.12}
    if kind < 0.1:
        status, message = FAILURES[number % len(FAILURES)]
        return Trial(configuration, status, message, Measurement(durations_s=durations), key=key)
    metrics = {
        "time_ms": time_ms,
        "time_min_ms": 0.97 * time_ms,
        "time_spread_ms": 0.01 * time_ms,
        "memory_bytes": 8.0e6,
        "error": error,
        "log10_error": float(np.log10(error)),
        "error.y": error,
    }
    status = Status.OK if error <= SETTINGS["threshold"] else Status.INACCURATE
    message = "" if status is Status.OK else f"error {error:.3g} is above the threshold"
    launches = tuple(time_ms * (1.0 + 0.001 * i) for i in range(10))
    return Trial(configuration, status, message, Measurement(metrics, launches, durations), key=key)


@dataclass(frozen=True, slots=True)
class Cost:
    """What an action took: wall time and processor time in seconds, and how much memory its process had at most."""

    wall_s: float
    cpu_s: float
    peak_bytes: float = 0.0

    def __str__(self) -> str:
        memory = f", {self.peak_bytes / 1e9:.1f} GB" if self.peak_bytes else ""
        return f"{self.wall_s:.2f} s ({self.cpu_s:.2f} s of processor time{memory})"

    def rate(self, count: int) -> str:
        """Return how many of something that is a second."""
        return f"{count / self.wall_s:,.0f} trials/s ({count / self.cpu_s:,.0f} per second of processor time)"


def cost(action: Callable[[], Any]) -> Cost:
    """Return what an action in this process takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


_MEASURED: Final = """
import atexit, resource, sys
def tell():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, file=sys.stderr)
atexit.register(tell)
from mptune.cli import main
main()
"""


def command(*words: str | Path) -> Cost:
    """Return what a command of mptune takes."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, *map(str, words)], capture_output=True, text=True, check=True
    )
    wall_s = time.perf_counter() - start
    cpu_s, peak_bytes = map(float, done.stderr.splitlines()[-1].split())
    return Cost(wall_s, cpu_s, peak_bytes)


def write(path: Path, count: int, singly: int) -> list[Row]:
    """Fill a new run file, a few trials one at a time and then in batches."""
    source = trials(count)
    with RunFile.create(path, RunInfo.from_json(SETTINGS)) as file:
        one = _add_singly(file, list(islice(source, singly)))
        wall_s = cpu_s = 0.0
        while batch := list(islice(source, BATCH)):
            took = cost(functools.partial(file.add, *batch))
            wall_s, cpu_s = wall_s + took.wall_s, cpu_s + took.cpu_s
    size = path.stat().st_size
    return [
        Row(f"written one at a time (the first {singly:,})", one.rate(singly)),
        Row(f"written by the thousand (the other {count - singly:,})", Cost(wall_s, cpu_s).rate(count - singly)),
        Row("size", f"{size / 1e6:,.0f} MB ({size / count:,.0f} bytes a trial)"),
    ]


def _add_singly(file: RunFile, some: Sequence[Trial]) -> Cost:
    def add() -> None:
        for number, trial in enumerate(some):
            file.add(trial, state=RunState(wall_s=float(number)))

    return cost(add)


def measure(path: Path, count: int, singly: int) -> list[Row]:
    """Return every measurement of a new run file at that path."""
    rows = write(path, count, singly)
    rows.append(Row("opened to read", str(cost(lambda: RunFile.open(path, read_only=True).close()))))
    rows.append(Row("opened to write, every page checked", str(cost(lambda: RunFile.open(path).close()))))
    with RunFile.open(path) as file:
        late = _add_singly(file, list(trials(singly, seed=1)))
    rows.append(Row(f"{singly:,} more, one at a time", late.rate(singly)))
    rows.append(Row("read whole (`Run.load`)", str(cost(lambda: Run.load(path)))))
    for words in (("show",), ("show", "--json"), ("pareto",), ("export",)):
        line = " ".join(("mptune", words[0], "RUN.db", *words[1:]))
        rows.append(Row(f"`{line}`", str(command(words[0], path, *words[1:]))))
    return rows


def report(rows: Sequence[Row], count: int, line: str) -> str:
    """Return the results as a page."""
    machine = f"{processor().name}, {usable_cores()} cores"
    versions = f"SQLite {sqlite3.sqlite_version}; Python {platform.python_version()}; {machine}"
    table = [f"| {row.what} | {row.value} |" for row in rows]
    return "\n".join(
        [
            f"# A run file of {count:,} trials",
            "",
            f"    {line}",
            "",
            f"{versions}; {datetime.now(UTC):%Y-%m-%d}.",
            "",
            "| what | |",
            "|---|--:|",
            *table,
            "",
            NOTES,
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when it is done, 2 for wrong input."""
    parser = argparse.ArgumentParser(description="Writing and reading a run file of many trials.")
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--singly", type=int, default=2000, help="how many are written one at a time")
    parser.add_argument("--folder", type=Path, help="where the run file is made; a temporary folder by default")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args(arguments)
    if not 0 < given.singly < given.trials <= SETTINGS["configurations"]:
        limit = f"{SETTINGS['configurations']:,}"
        print(f"expected 0 < --singly < --trials <= {limit}, got {given.singly} and {given.trials}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        rows = measure(Path(folder) / "run.db", given.trials, given.singly)
    line = "python benchmarks/storage.py"
    if given.trials != parser.get_default("trials"):
        line += f" --trials {given.trials}"
    if given.folder is not None:
        line += f" --folder {given.folder}"
    text = report(rows, given.trials, line)
    notes = given.output.read_text().partition(NOTES)[2] if given.output.exists() else "\n"
    given.output.write_text(text + notes)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
