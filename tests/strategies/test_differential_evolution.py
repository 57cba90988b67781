from __future__ import annotations

import numpy as np
import pytest
from smooth import SPACE, evaluate

from mptune.objective import Objective
from mptune.strategies.differential_evolution import (
    BASES,
    DifferentialEvolutionOptions,
    DifferentialEvolutionStrategy,
    crossed,
    mutants,
)


def test_a_mutant_computed_by_hand() -> None:
    base, first, second = np.array([[0.5, 0.25, 0.0]]), np.array([[0.75, 0.0, 0.0]]), np.array([[0.25, 0.25, 1.0]])
    # The last would be -0.5.
    assert mutants(base, first, second, 0.5).tolist() == [[0.75, 0.125, 0.0]]


def test_crossover_takes_some_coordinates_of_the_mutant() -> None:
    targets, mutated = np.zeros((2, 4)), np.ones((2, 4))
    draws = np.array([[0.1, 0.4, 0.39, 0.9], [0.9, 0.9, 0.9, 0.9]])
    found = crossed(targets, mutated, draws, np.array([3, 1]), 0.4)
    assert found.tolist() == [[1, 0, 1, 1], [0, 1, 0, 0]]


@pytest.mark.parametrize("crossover", [0.0, 1.0])
def test_crossover_at_its_limits(crossover: float) -> None:
    rng = np.random.default_rng(0)
    found = crossed(np.zeros((50, 6)), np.ones((50, 6)), rng.random((50, 6)), rng.integers(6, size=50), crossover)
    assert found.sum(axis=1).tolist() == [6.0 if crossover else 1.0] * 50


@pytest.mark.parametrize("size", [4, 5, 20])
def test_donors_differ_from_each_other_and_from_the_target(size: int) -> None:
    strategy = DifferentialEvolutionStrategy(SPACE, Objective())
    drawn = [strategy._donors(size) for _ in range(100)]
    assert all(len({target, *donors[:, target].tolist()}) == 4 for donors in drawn for target in range(size))
    assert {int(d) for donors in drawn for d in donors[:, 0]} == set(range(1, size))


@pytest.mark.parametrize("base", BASES)
def test_members_are_replaced_only_by_what_is_no_worse(base: str) -> None:
    options = DifferentialEvolutionOptions(population=8, base=base)
    strategy = DifferentialEvolutionStrategy(SPACE, Objective(), options=options)
    before = [-np.inf] * 8
    for _ in range(60):
        strategy.tell([evaluate(c) for c in strategy.ask(1)])
        scores = sorted(strategy._score(champion.index) for champion in strategy._champions)
        assert all(now >= then for now, then in zip(scores[1:], before[1:], strict=True))
        before = scores


@pytest.mark.parametrize("base", BASES)
def test_a_step_without_difference_or_crossover_goes_to_the_base(base: str) -> None:
    options = DifferentialEvolutionOptions(population=6, base=base, weight=0.0, crossover=1.0)
    strategy = DifferentialEvolutionStrategy(SPACE, Objective(), options=options)
    strategy.tell([evaluate(c) for c in strategy.ask(6)])
    best = max(strategy._population, key=strategy._score)
    standing = set(strategy._population)
    members = strategy._evolved()
    assert set(members) == {best} if base == "best" else set(members) <= standing and len(set(members)) > 1
