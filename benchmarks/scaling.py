"""How asynchronous ask and tell scales: a recorded space replayed on 1 to 64 simulated devices.

    python benchmarks/scaling.py [--spaces ../shared/spaces] [--strategies bayesian,genetic] [--seeds 5]

Runs the tuner's own loop (``mptune/tuning/session.py``) on a simulated clock. A device takes as long for a trial as
the recording says its compilation, check and timing took; asking and telling a strategy takes the processor time it
takes here, during which the other devices go on. Writes ``benchmarks/results/scaling.md``.
"""

from __future__ import annotations

import argparse
import math
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from threadpoolctl import threadpool_limits

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.simulated_devices import SimulatedDevices  # noqa: E402
from mptune.backends.processor import processor  # noqa: E402
from mptune.errors import MptuneError  # noqa: E402
from mptune.interop import read_run  # noqa: E402
from mptune.results.objective import Objective  # noqa: E402
from mptune.results.trial import Trial  # noqa: E402
from mptune.run import Run  # noqa: E402
from mptune.strategies import make  # noqa: E402
from mptune.tuning.session import Session, Stopwatch  # noqa: E402

__all__ = ["Outcome", "replay"]

WORKERS: Final = (1, 2, 4, 8, 16, 32, 64)
#: What a device does for a trial; the rest of what Kernel Tuner records is its own.
PHASES: Final = ("compile", "transfer", "launch", "accuracy", "timing", "observe")
TARGET: Final = 0.8, 16


@dataclass(frozen=True, slots=True)
class Outcome:
    """One replay.

    Attributes:
        wall_s: how long it took, on the simulated clock.
        busy_s: how long devices were busy, added up.
        tail_s: how long devices had nothing to do, added up, when the last trial had begun.
        strategy_s: how long the strategy was asked and told.
        evaluations: how many trials.
        distance: of the best to the best recorded, relative to that.
    """

    wall_s: float
    busy_s: float
    tail_s: float
    strategy_s: float
    evaluations: int
    distance: float


class _Thinking(Stopwatch):
    """Counts what the strategy takes, during which the devices go on."""

    def __init__(self, devices: SimulatedDevices, clock: Callable[[], float]) -> None:
        super().__init__()
        self._devices = devices
        self._clock = clock

    def __enter__(self) -> None:
        self._started = self._clock()

    def __exit__(self, *_: object) -> None:
        took_s = self._clock() - self._started
        self.seconds += took_s
        self._devices.advance(took_s)


def duration_s(trial: Trial) -> float:
    """Return how long a device is recorded to have been busy with a trial, in seconds."""
    return math.fsum(trial.measurement.durations_s.get(phase, 0.0) for phase in PHASES)


def replay(
    space: Run,
    strategy: str,
    workers: int,
    budget: int,
    seed: int,
    clock: Callable[[], float] = time.process_time,
) -> Outcome:
    """Search a recorded space with so many workers.

    Raises:
        MptuneError: the recording does not say how long its trials took.
    """
    recorded = {trial.configuration: trial for trial in space.trials}
    if not any(duration_s(trial) for trial in recorded.values()):
        raise MptuneError(f"recording {space.name} does not say how long its trials took")
    objective = Objective()
    devices = SimulatedDevices(recorded, duration_s, workers)
    searcher = make(strategy, space.space, objective, signature=space.info.signature, seed=seed)
    thinking = _Thinking(devices, clock)
    session = Session(devices, objective, thinking)
    session.evaluate(budget, searcher.ask, searcher.tell)
    trials = list(session.trials.values())
    optimum, best = objective.best(list(recorded.values())), objective.best(trials)
    distance = math.inf if optimum is None or best is None else best.time_ms / optimum.time_ms - 1.0
    return Outcome(devices.now_s, devices.busy_s, devices.tail_s, thinking.seconds, len(trials), distance)


# -- the report ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """Replays with the same number of workers: means over the seeds."""

    space: str
    strategy: str
    workers: int
    outcomes: tuple[Outcome, ...]
    alone: tuple[Outcome, ...]

    @property
    def speedup(self) -> float:
        """Against one worker, at the same number of evaluations."""
        return statistics.mean(one.wall_s / many.wall_s for one, many in zip(self.alone, self.outcomes, strict=True))

    @property
    def efficiency(self) -> float:
        """Speedup per worker."""
        return self.speedup / self.workers

    @property
    def idle(self) -> float:
        """Share of the workers' time in which they had nothing to do."""
        return statistics.mean(1.0 - o.busy_s / (self.workers * o.wall_s) for o in self.outcomes)

    @property
    def tail(self) -> float:
        """The part of that share after the last trial had begun."""
        return statistics.mean(o.tail_s / (self.workers * o.wall_s) for o in self.outcomes)

    def cells(self) -> list[str]:
        """Return what a line of the table says."""
        mean = statistics.mean
        return [
            str(self.workers),
            f"{mean(o.wall_s for o in self.outcomes):.1f}",
            f"{self.speedup:.2f}",
            f"{self.efficiency:.0%}",
            f"{self.idle:.0%}",
            f"{self.tail:.0%}",
            f"{1e3 * mean(o.strategy_s / o.evaluations for o in self.outcomes):.1f}",
            f"{mean(o.distance for o in self.outcomes):.1%}",
        ]


def measured(space: Run, strategy: str, budget: int, seeds: Sequence[int]) -> Iterator[Row]:
    """Yield a row for each number of workers."""
    alone: tuple[Outcome, ...] = ()
    for workers in WORKERS:
        outcomes = tuple(replay(space, strategy, workers, budget, seed) for seed in seeds)
        alone = alone or outcomes
        yield Row(space.name, strategy, workers, outcomes, alone)


def markdown(rows: Sequence[Row], spaces: Sequence[Run], budget: int, seeds: int, command: str) -> str:
    """Return the results as a page."""
    share, at = TARGET
    reached = [row for row in rows if row.workers == at]
    lines = [
        "# Scaling",
        "",
        f"Machine: {processor().name}. Command: `{command}`.",
        "",
        f"Recorded spaces replayed by the tuner's own loop on simulated devices, {budget} evaluations, means of "
        f"{seeds} seeds. A device takes what the recording says compiling, checking and timing took; the strategy "
        "takes its own processor time, during which the other devices go on. Speedup is against one device at the same "
        "number of evaluations (of other configurations: a search that hears later asks for others, which take other "
        "times), efficiency is speedup per device, idle is the share of the devices' time in which they had nothing to "
        "do, the part of it after the last trial had begun is at the end, the strategy's time is per evaluation, and "
        "distance is how far the best found is from the best recorded.",
        "",
        f"Target: an efficiency of {share:.0%} at {at} devices. Reached: "
        + ", ".join(f"{row.efficiency:.0%} ({row.strategy} on {row.space})" for row in reached)
        + ".",
    ]
    for space in spaces:
        typical_s = statistics.median(duration_s(trial) for trial in space.trials)
        lines += ["", f"## {space.name}", "", f"A trial takes {typical_s:.2f} s (median).", ""]
        lines += [
            "| strategy | devices | wall s | speedup | efficiency | idle | at the end | strategy ms | distance |",
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        ]
        lines += [f"| {row.strategy} | {' | '.join(row.cells())} |" for row in rows if row.space == space.name]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description="Scaling of asynchronous ask and tell on simulated devices.")
    parser.add_argument("--spaces", type=Path, default=ROOT.parent / "shared" / "spaces", help="folder of recordings")
    parser.add_argument("--only", default="gemm-rtx2080ti,convolution-rtx3060", help="their names, by commas")
    parser.add_argument("--strategies", default="bayesian,genetic", help="by commas")
    parser.add_argument("--budget", type=int, default=220)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "scaling.md")
    given = parser.parse_args()
    spaces = [read_run(given.spaces / f"{name}.json.gz") for name in given.only.split(",")]
    rows: list[Row] = []
    with threadpool_limits(1):
        for space in spaces:
            for strategy in given.strategies.split(","):
                for row in measured(space, strategy, given.budget, range(given.seeds)):
                    print(space.name, strategy, *row.cells(), file=sys.stderr, flush=True)
                    rows.append(row)
    command = shlex.join(["python", "benchmarks/scaling.py", *sys.argv[1:]])
    given.output.write_text(markdown(rows, spaces, given.budget, given.seeds, command))


if __name__ == "__main__":
    try:
        main()
    except MptuneError as error:
        sys.exit(f"error: {error}")
