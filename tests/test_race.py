"""The race of the finalists on synthetic machines, which have clocks of their own."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from mptune.results.speedup import LEAST_ROUNDS, Finals
from mptune.space.configuration import Configuration
from mptune.tuning.finals import race, rounds_for_interval

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.noise import NOISES, turns

A, B, C, D = (Configuration({"block": block}) for block in range(4))


class Machine:
    """Launches that take made-up times; its clock goes on with each."""

    def __init__(self, noise: str, times_ms: Mapping[Configuration, float], seed: int = 0) -> None:
        self.noise = noise
        self.times_ms = times_ms
        self.rng = np.random.default_rng(seed)
        self.clock_ms = 0.0
        self.asked: list[tuple[tuple[Configuration, ...], int]] = []
        self.fails: dict[Configuration, int] = {}

    def measure(self, configurations: Sequence[Configuration], rounds: int) -> list[Mapping[Configuration, float]]:
        self.asked.append((tuple(configurations), rounds))
        launches = turns(self.noise, [self.times_ms[c] for c in configurations], rounds, 5, self.rng)
        self.clock_ms += float(launches.sum())
        found: list[Mapping[Configuration, float]] = []
        for turn in range(rounds):
            alive = [i for i, c in enumerate(configurations) if self.fails.get(c, 10**9) > turn]
            found.append({configurations[i]: float(launches[i, turn].min()) for i in alive})
        return [times for times in found if times]

    def visits(self, configuration: Configuration) -> int:
        return sum(rounds for configurations, rounds in self.asked if configuration in configurations)


def run(
    machine: Machine, *groups: Sequence[Configuration], until_ms: float = 1e9
) -> list[Mapping[Configuration, float]]:
    return race(machine.measure, groups, lambda: machine.clock_ms >= until_ms)


def test_who_is_far_behind_leaves_after_few_rounds() -> None:
    machine = Machine("quiet", {A: 1.0, B: 1.04, C: 1.5, D: 2.0})
    rounds = run(machine, [A, B, C], [D])
    assert machine.visits(C) == machine.visits(D) == 3
    assert LEAST_ROUNDS <= machine.visits(A) == machine.visits(B) == len(rounds) <= 30


@pytest.mark.parametrize("noise", NOISES)
def test_the_fastest_is_found_whatever_the_noise_and_launches_go_where_it_is_close(noise: str) -> None:
    found, close, far = 0, 0, 0
    for seed in range(20):
        machine = Machine(noise, {A: 1.08, B: 1.0, C: 1.6}, seed)
        rounds = run(machine, [A, B, C], until_ms=2_000.0)
        typical = Finals.of(rounds, len(rounds)).typical_ms(A)
        found += min(typical, key=typical.__getitem__) == B
        close += machine.visits(A)
        far += machine.visits(C)
    assert found >= 19
    assert far <= close


def test_equals_are_settled_as_equals() -> None:
    machine = Machine("quiet", {A: 1.0, B: 1.0, C: 1.0})
    rounds = run(machine, [A, B, C])
    finals = Finals.of(rounds, len(rounds))
    assert all(ratio.is_equal for ratio in finals.tied_with(A).values())
    assert len(rounds) < 60


def test_time_that_is_up_leaves_rounds_enough_for_an_interval() -> None:
    machine = Machine("always busy", {A: 1.0, B: 1.0})
    assert len(run(machine, [A, B], until_ms=0.0)) == LEAST_ROUNDS


def test_who_fails_is_out_and_the_others_go_on() -> None:
    machine = Machine("quiet", {A: 1.0, B: 1.04, C: 1.05})
    machine.fails[A] = 1
    rounds = run(machine, [A, B, C])
    assert machine.visits(A) == 3
    assert machine.visits(B) == len(rounds)
    machine = Machine("quiet", {A: 1.0, B: 1.0})
    machine.fails = {A: 0, B: 0}
    assert run(machine, [A, B]) == []
    assert len(machine.asked) == 1


@pytest.mark.parametrize("noise", NOISES)
def test_of_identical_code_the_interval_holds_one_after_the_choice(noise: str) -> None:
    held, repeated = 0, 120
    for seed in range(repeated):
        machine = Machine(noise, {A: 1.0, B: 1.0, C: 1.0, D: 1.0}, seed)
        rounds = run(machine, [A, B], [C, D], until_ms=500.0)
        typical = Finals.of(rounds, len(rounds)).typical_ms(A)
        # The luckier of either pair is reported.
        chosen = [min(pair, key=typical.__getitem__) for pair in ((A, B), (C, D))]
        more = machine.measure(chosen, min(30, rounds_for_interval(rounds, chosen)))
        ratio = Finals.of([*rounds, *more], len(rounds)).ratio(*chosen)
        assert ratio is not None
        held += ratio.low <= 1.0 <= ratio.high
    assert held >= 0.93 * repeated
