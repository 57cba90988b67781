"""Configurations measured in turn by a bench of this very process, and what several benchmarks want to know of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mptune.measure.bench import Bench, Request
from mptune.measure.device import source_of
from mptune.measure.rounds import VISIT, remeasure
from mptune.measure.timing import TimingPlan
from mptune.results.trial import Trial
from mptune.space.configuration import Configuration


@dataclass(frozen=True, slots=True)
class Remeasured:
    """A configuration measured in several rounds.

    Attributes:
        trial: of the first round, in which the error was measured.
        times_ms: the median launch time of each round.
    """

    trial: Trial
    times_ms: list[float] = field(default_factory=list)

    @property
    def time_ms(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.times_ms)

    @property
    def spread_ms(self) -> float:
        """Interquartile range of the rounds; 0 for a single one."""
        if len(self.times_ms) < 2:
            return 0.0
        lower, _, upper = statistics.quantiles(self.times_ms, n=4, method="inclusive")
        return upper - lower


def measure_in_turn(
    bench: Bench,
    configurations: Iterable[Configuration],
    rounds: int,
    visit: TimingPlan = VISIT,
    on_failure: Callable[[Trial], None] = lambda _: None,
) -> dict[Configuration, Remeasured]:
    """Measure configurations in rounds, back and forth, each once a round however often it comes.

    Args:
        bench: measures.
        configurations: what to measure.
        rounds: how many.
        visit: how often each is launched in its turn.
        on_failure: told about the trial of a configuration that fails; it is left out from then on.
    """
    requests = [Request(c, source_of(bench.kernel, c, bench.sizes)) for c in dict.fromkeys(configurations)]
    found: dict[Configuration, Remeasured] = {}
    for trial in remeasure(bench, requests, rounds, visit):
        if trial.is_valid:
            found.setdefault(trial.configuration, Remeasured(trial)).times_ms.append(trial.time_ms)
        else:
            found.pop(trial.configuration, None)
            on_failure(trial)
    return found
