"""Measuring configurations again in turn, so that whatever else the machine does hits all of them alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mptune.evaluators.bench import Bench, Request
from mptune.rendering import render
from mptune.results import Trial
from mptune.space.configuration import Configuration

__all__ = ["Remeasured", "measure_in_turn"]


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
    on_failure: Callable[[Trial], None] = lambda _: None,
) -> dict[Configuration, Remeasured]:
    """Measure configurations in rounds, back and forth, each after its own warm-up.

    Args:
        bench: measures, with as few launches a visit as its plan says.
        configurations: each is measured once a round, however often it comes.
        rounds: how many.
        on_failure: told about the trial of a configuration that fails; it is left out from then on.
    """
    order = list(dict.fromkeys(configurations))
    found: dict[Configuration, Remeasured] = {}
    for turn in range(rounds):
        for configuration in order if turn % 2 == 0 else reversed(order):
            if turn and configuration not in found:
                continue
            trial = bench.evaluate(
                Request(
                    configuration,
                    render(bench.kernel, configuration, bench.sizes),
                    _errors(found[configuration].trial) if turn else None,
                )
            )
            if trial.is_valid:
                found.setdefault(configuration, Remeasured(trial)).times_ms.append(trial.time_ms)
            else:
                found.pop(configuration, None)
                on_failure(trial)
    return found


def _errors(trial: Trial) -> dict[str, float]:
    return {name: x for name, x in trial.measurement.metrics.items() if name.startswith(("error", "log10_error"))}
