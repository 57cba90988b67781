from __future__ import annotations

import numpy as np
import pytest
from searches import drive

from mptune.objective import Objective
from mptune.results import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.genetic import GeneticStrategy
from mptune.strategies.moves.population import CROSSOVERS

SPACE = SearchSpace([OrdinalParameter(name, range(8)) for name in "abcdef"], ["a + b + c + d + e + f <= 21", "a != b"])


@pytest.mark.parametrize("name", CROSSOVERS)
def test_children_share_out_the_genes_of_their_parents(name: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        size = int(rng.integers(1, 9))
        a, b = rng.integers(0, 5, size=(2, size)).astype(np.int32)
        first, second = CROSSOVERS[name](a, b, rng)
        for x, y, p, q in zip(a, b, first, second, strict=True):
            assert {int(x), int(y)} == {int(p), int(q)}
            assert int(x) + int(y) == int(p) + int(q)


def test_disruptive_crossover_swaps_half_of_what_differs() -> None:
    rng = np.random.default_rng(0)
    a, b = np.zeros(9, np.int32), np.array([1, 1, 1, 1, 1, 1, 0, 0, 0], np.int32)
    assert CROSSOVERS["disruptive_uniform"](a, b, rng)[0].sum() == 3


def _time_ms(c: Configuration) -> float:
    return 1.0 + sum((float(v) - 3.0) ** 2 for v in c.values())  # type: ignore[arg-type]


def _search(seed: int, budget: int, **options: object) -> list[Trial]:
    strategy = make("genetic", SPACE, Objective(), seed=seed, options=options)
    return drive(strategy, lambda c: Trial(c, Status.OK, measurement=Measurement({"time_ms": _time_ms(c)})), budget)


@pytest.mark.parametrize("crossover", CROSSOVERS)
def test_it_improves_on_random(crossover: str) -> None:
    rng = np.random.default_rng(0)
    found = [min(t.time_ms for t in _search(seed, 250, crossover=crossover)) for seed in range(4)]
    every = [_time_ms(c) for c in SPACE.configurations(SPACE.sample(4000, rng))]
    random = [min(rng.choice(every, 250)) for _ in range(100)]
    assert np.mean(found) < np.mean(random)


def test_better_parents_are_drawn_more_often() -> None:
    strategy = GeneticStrategy(SPACE, Objective())
    drawn = np.array([strategy._select(26) for _ in range(3000)])
    assert (drawn[:, 0] != drawn[:, 1]).all()
    counts = np.bincount(drawn[:, 0], minlength=26)
    # Beta(1, 2.5): 1 - 0.5^2.5 of the draws fall in the better half.
    assert counts[:13].sum() / 3000 == pytest.approx(1 - 0.5**2.5, abs=0.03)


def test_repair_gives_a_valid_configuration_near_the_child() -> None:
    strategy = GeneticStrategy(SPACE, Objective(), seed=1)
    rng = np.random.default_rng(0)
    for _ in range(100):
        a, b = SPACE.codes(SPACE.sample(2, rng))
        child = np.concatenate([a[:3], b[3:]])
        if SPACE.indices_of(child[None, :])[0] >= 0:
            continue
        index = strategy._repaired(child, a)
        assert 0 <= index < SPACE.size
