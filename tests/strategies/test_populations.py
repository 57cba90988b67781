"""Strategies with populations: their formulas by hand, what their generations do, batches, and orders of trials."""

from __future__ import annotations

import math

import numpy as np
import pytest
from searches import drive
from smooth import SPACE, evaluate

from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.differential_evolution import crossed, mutants
from mptune.strategies.firefly import FireflyOptions, attracted
from mptune.strategies.particle_swarm import ParticleSwarmOptions, velocities_after
from mptune.strategies.population import CROSSOVERS, children_of

NAMES = ("differential-evolution", "firefly", "genetic", "particle-swarm")


def line(n: int) -> SearchSpace:
    return SearchSpace([OrdinalParameter("a", range(n))])


def trial(c: Configuration, time_ms: float = 1.0) -> Trial:
    return Trial(c, Status.OK, measurement=Measurement({"time_ms": time_ms}))


# -- formulas by hand ------------------------------------------------------------------------------


def test_a_mutant_and_a_crossover_of_differential_evolution() -> None:
    base, first, second = np.array([[0.5, 0.25, 0.0]]), np.array([[0.75, 0.0, 0.0]]), np.array([[0.25, 0.25, 1.0]])
    # The last would be -0.5.
    assert mutants(base, first, second, 0.5).tolist() == [[0.75, 0.125, 0.0]]
    draws = np.array([[0.1, 0.4, 0.39, 0.9], [0.9, 0.9, 0.9, 0.9]])
    found = crossed(np.zeros((2, 4)), np.ones((2, 4)), draws, np.array([3, 1]), 0.4)
    assert found.tolist() == [[1, 0, 1, 1], [0, 1, 0, 0]]


def test_a_move_of_a_firefly() -> None:
    options = FireflyOptions(attraction=0.5, absorption=2.0, randomness=0.2)
    moved = attracted(np.array([[0.0, 0.5]]), np.array([1.0, 0.5]), np.array([[0.5, 0.75]]), options)
    # r^2 = (1 + 0) / 2, so the share of the way is 0.5 / e; the random part is 0 and 0.2 x 0.25.
    assert moved == pytest.approx(np.array([[0.5 / math.e, 0.55]]))
    # Nothing leaves the cube.
    far = FireflyOptions(attraction=3.0, absorption=0.0, randomness=0.0)
    assert attracted(np.array([[0.2, 0.9]]), np.array([0.8, 0.1]), np.zeros((1, 2)), far).tolist() == [[1.0, 0.0]]


def test_a_step_of_a_particle() -> None:
    options = ParticleSwarmOptions(inertia=0.5, cognitive=2.0, social=1.0, max_velocity=0.75)
    velocities, position = np.array([[0.2, -0.4]]), np.array([[0.5, 0.5]])
    own, best = np.array([[0.75, 0.0]]), np.array([[1.0, 0.0]])
    draws = (np.array([[0.5, 0.9]]), np.array([[0.25, 0.5]]))
    moved = velocities_after(velocities, own - position, best - position, draws, options)
    # 0.1 + 2 x 0.5 x 0.25 + 0.25 x 0.5 = 0.475; -0.2 - 2 x 0.9 x 0.5 - 0.5 x 0.5 = -1.35, limited.
    assert moved == pytest.approx(np.array([[0.475, -0.75]]))


@pytest.mark.parametrize("name", CROSSOVERS)
def test_children_share_out_the_genes_of_their_parents(name: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        a, b = rng.integers(0, 5, size=(2, int(rng.integers(1, 9)))).astype(np.int32)
        assert (np.sort(children_of(name, a, b, rng), axis=0) == np.sort([a, b], axis=0)).all()
    if name == "disruptive_uniform":  # swaps half of what differs
        b = np.array([1, 1, 1, 1, 1, 1, 0, 0, 0], np.int32)
        assert children_of(name, np.zeros(9, np.int32), b, rng)[0].sum() == 3


# -- generations -----------------------------------------------------------------------------------


def test_better_parents_are_drawn_more_often() -> None:
    space = SearchSpace([OrdinalParameter(name, range(1000)) for name in "ab"])
    good = 0
    for seed in range(40):
        strategy = make("genetic", space, Objective(), seed=seed, options={"mutation": 1e9, "population": 26})
        best = space.configurations(space.indices_of(np.repeat(np.arange(13), 2).reshape(13, 2)))
        strategy.tell([trial(c) for c in best])
        # The other half of the first generation is drawn, and fails.
        strategy.tell([Trial(c, Status.CRASH) for c in strategy.ask(13)])
        good += sum(c[name] in range(13) for c in strategy.ask(10) for name in "ab")  # type: ignore[operator]
    # Beta(1, 2.5): 1 - 0.5^2.5 of the draws fall in the better half.
    assert good / 800 == pytest.approx(1 - 0.5**2.5, abs=0.05)


def test_children_that_no_single_change_makes_valid_go_back_to_a_parent() -> None:
    space = SearchSpace([OrdinalParameter(name, range(8)) for name in "abcd"], ["a == b == c == d"])
    strategy = make("genetic", space, Objective(), options={"population": 3})
    assert len(drive(strategy, trial, 99)) == space.size == 8


@pytest.mark.parametrize("name", NAMES)
def test_the_order_in_which_trials_come_does_not_matter(name: str) -> None:
    strategies = [make(name, SPACE, Objective(), seed=2, options={"population": 8}) for _ in range(2)]
    for _ in range(5):
        asked, same = (strategy.ask(6) for strategy in strategies)
        assert asked == same
        trials = [evaluate(c) for c in asked]
        strategies[0].tell(trials)
        for each in reversed(trials):
            strategies[1].tell([each])


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_many_generations_is_filled(name: str) -> None:
    strategy = make(name, SPACE, Objective(), options={"population": 5})
    asked = strategy.ask(60)
    assert len(set(asked)) == 60
    strategy.tell([Trial(c, Status.TIMEOUT) for c in asked])
    assert len(set(strategy.ask(60)) | set(asked)) == 120


@pytest.mark.parametrize(
    ("name", "population"),
    [("particle-swarm", 1), ("firefly", 1), ("firefly", 2), ("differential-evolution", 4), ("particle-swarm", 1000)],
)
@pytest.mark.parametrize("values", [1, 3, 40])
def test_any_population_searches_any_space_to_its_end(name: str, population: int, values: int) -> None:
    strategy = make(name, line(values), Objective(), options={"population": population})
    found = drive(strategy, lambda c: Trial(c, Status.COMPILE_ERROR), 99, 3)
    assert len({each.configuration for each in found}) == len(found) == values
