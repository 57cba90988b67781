"""Whenever a worker is free it has something to do, and trials are told in the order in which they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.tuning.session import Session
from tests.support.simulated_devices import SimulatedDevices

#: Seconds each configuration takes.
SECONDS = (5.0, 1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 2.0)


def trial(number: int) -> Trial:
    return Trial(Configuration({"number": number}), Status.OK, measurement=Measurement({"time_ms": 1.0 + number}))


TRIALS = {trial(number).configuration: trial(number) for number in range(len(SECONDS))}


def seconds(of: Trial) -> float:
    return SECONDS[int(of.configuration["number"])]


class Numbers(SimulatedDevices):
    """Asks for the numbers in turn, and takes ``thinking_s`` for each batch it is told."""

    def __init__(self, workers: int, *, thinking_s: float = 0.0, budget: int = len(SECONDS), **options: Any) -> None:
        super().__init__(TRIALS, seconds, workers, **options)
        self.thinking_s = thinking_s
        self.budget = budget
        self.asked: list[int] = []
        self.begun: list[tuple[int, float]] = []
        self.told: list[list[int]] = []
        self.most_under_way = 0

    def ask(self, n: int) -> Sequence[Configuration]:
        numbers = range(len(self.asked), min(len(self.asked) + n, len(SECONDS)))
        self.asked += numbers
        return [Configuration({"number": number}) for number in numbers]

    def submit(self, configuration: Configuration) -> None:
        self.begun.append((int(configuration["number"]), self.now_s))
        super().submit(configuration)
        self.most_under_way = max(self.most_under_way, self.under_way)

    def tell(self, trials: Sequence[Trial]) -> None:
        self.told.append([int(each.configuration["number"]) for each in trials])
        self.advance(self.thinking_s)


def run(workers: int, *, ahead: int = 0, **options: Any) -> Numbers:
    search = Numbers(workers, ahead=ahead, **options)
    session = Session(search, Objective())
    session.evaluate(search.budget, search.ask, search.tell)
    assert [int(configuration["number"]) for configuration in session.trials] == [
        n for told in search.told for n in told
    ]
    return search


def test_a_free_worker_waits_for_nobody() -> None:
    search = run(2)
    # While one is busy with the first, the other has four.
    assert [number for batch in search.told for number in batch][:4] == [1, 2, 3, 4]
    assert search.begun[:6] == [(0, 0.0), (1, 0.0), (2, 1.0), (3, 2.0), (4, 3.0), (5, 4.0)]
    assert search.now_s == 8.0
    assert sorted(number for batch in search.told for number in batch) == list(range(len(SECONDS)))


@pytest.mark.parametrize("workers", [1, 3, 100])
def test_never_more_under_way_than_there_are_workers(workers: int) -> None:
    search = run(workers, ahead=2)
    assert search.most_under_way <= workers
    assert sorted(search.asked) == list(range(len(SECONDS)))


def test_what_ends_together_or_meanwhile_is_told_together() -> None:
    # 1 to 3 end after a second, 0 and 4 together while nobody thinks, and 5 and 6 while that is thought about.
    assert run(4, thinking_s=3.0).told == [[1, 2, 3], [0, 4], [5, 6], [7]]


def test_what_is_asked_ahead_begins_before_the_strategy_thinks() -> None:
    ahead = run(1, ahead=1, thinking_s=0.5)
    assert ahead.now_s == sum(SECONDS) + 0.5
    in_turn = run(1, ahead=1, may_overlap=False, thinking_s=0.5)
    assert in_turn.now_s == sum(SECONDS) + 0.5 * len(SECONDS)
