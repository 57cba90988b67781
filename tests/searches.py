"""Drives a strategy, as the tests of all of them do."""

from __future__ import annotations

from collections.abc import Callable

from mptune.results.trial import Trial
from mptune.space.configuration import Configuration
from mptune.strategies.base import Strategy


def drive(strategy: Strategy, evaluate: Callable[[Configuration], Trial], budget: int, batch: int = 1) -> list[Trial]:
    """Return the trials of so many evaluations, in order; fewer where the strategy ends before."""
    trials: list[Trial] = []
    while len(trials) < budget and (asked := strategy.ask(min(batch, budget - len(trials)))):
        found = [evaluate(c) for c in asked]
        strategy.tell(found)
        trials += found
    return trials
