from __future__ import annotations

import numpy as np
import pytest
from searches import drive

from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.population import CROSSOVERS, children_of


@pytest.mark.parametrize("name", CROSSOVERS)
def test_children_share_out_the_genes_of_their_parents(name: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        size = int(rng.integers(1, 9))
        a, b = rng.integers(0, 5, size=(2, size)).astype(np.int32)
        first, second = children_of(name, a, b, rng)
        for x, y, p, q in zip(a, b, first, second, strict=True):
            assert {int(x), int(y)} == {int(p), int(q)}
            assert int(x) + int(y) == int(p) + int(q)


def test_disruptive_crossover_swaps_half_of_what_differs() -> None:
    rng = np.random.default_rng(0)
    a, b = np.zeros(9, np.int32), np.array([1, 1, 1, 1, 1, 1, 0, 0, 0], np.int32)
    assert children_of("disruptive_uniform", a, b, rng)[0].sum() == 3


def test_better_parents_are_drawn_more_often() -> None:
    space = SearchSpace([OrdinalParameter(name, range(1000)) for name in "ab"])
    good = 0
    for seed in range(40):
        strategy = make("genetic", space, Objective(), seed=seed, options={"mutation": 1e9, "population": 26})
        best = space.configurations(space.indices_of(np.repeat(np.arange(13), 2).reshape(13, 2)))
        strategy.tell([Trial(c, Status.OK, measurement=Measurement({"time_ms": 1.0})) for c in best])
        # The other half of the first generation is drawn, and fails.
        strategy.tell([Trial(c, Status.CRASH) for c in strategy.ask(13)])
        good += sum(c[name] in range(13) for c in strategy.ask(10) for name in "ab")  # type: ignore[operator]
    # Beta(1, 2.5): 1 - 0.5^2.5 of the draws fall in the better half.
    assert good / 800 == pytest.approx(1 - 0.5**2.5, abs=0.05)


def test_children_that_no_single_change_makes_valid_go_back_to_a_parent() -> None:
    space = SearchSpace([OrdinalParameter(name, range(8)) for name in "abcd"], ["a == b == c == d"])
    strategy = make("genetic", space, Objective(), options={"population": 3})
    found = drive(strategy, lambda c: Trial(c, Status.OK, measurement=Measurement({"time_ms": 1.0})), 99)
    assert len(found) == space.size == 8
