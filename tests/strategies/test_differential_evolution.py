from __future__ import annotations

import itertools

import numpy as np
import pytest

from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies.differential_evolution import (
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


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("base", ["random", "best"])
def test_donors_differ_from_each_other_and_from_the_target(base: str, seed: int) -> None:
    space = SearchSpace([OrdinalParameter("a", range(10_001))])
    options = DifferentialEvolutionOptions(population=4, base=base, weight=0.5, crossover=1.0)
    strategy = DifferentialEvolutionStrategy(space, Objective(), seed=seed, options=options)

    def tell(numbers: list[int]) -> None:
        trials = [(space.configuration(a), Measurement({"time_ms": 10_001.0 - a})) for a in numbers]
        strategy.tell([Trial(c, Status.OK, measurement=m) for c, m in trials])

    # Half of the first generation are the best that were told.
    told = [6_000, 4_000]
    tell(told)
    members = [*told, *(int(c["a"]) for c in strategy.ask(2))]  # type: ignore[call-overload]
    tell(members[2:])
    for target, c in zip(members, strategy.ask(4), strict=True):
        triples = list(itertools.permutations([a for a in members if a != target], 3))
        allowed = [(max(members) if base == "best" else b) + 0.5 * (f - s) for b, f, s in triples]
        assert min(abs(int(c["a"]) - min(max(x, 0), 10_000)) for x in allowed) <= 1  # type: ignore[call-overload]
