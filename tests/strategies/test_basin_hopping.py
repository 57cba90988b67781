from __future__ import annotations

import pytest
from landscape import SPACE, best_ms, expected_random_ms, is_local_optimum, run, score

from mptune.objective import Objective
from mptune.strategies import make
from mptune.strategies.basin_hopping import BasinHoppingOptions, BasinHoppingStrategy


def _hopping(seed: int = 0, **options: object) -> BasinHoppingStrategy:
    strategy = make("basin-hopping", SPACE, Objective(), seed=seed, options=options)
    assert isinstance(strategy, BasinHoppingStrategy)
    return strategy


class Recording(BasinHoppingStrategy):
    """Notes where its climbs end and which optimum it hops from then."""

    def __init__(self, seed: int, options: BasinHoppingOptions) -> None:
        super().__init__(SPACE, Objective(), seed=seed, options=options)
        self.optima: list[int] = []
        self.basins: list[int | None] = []

    def _reached(self, optimum: int) -> None:
        super()._reached(optimum)
        self.optima.append(optimum)
        self.basins.append(self._basin)


@pytest.mark.parametrize("improvement", ["first", "best"])
def test_it_beats_random(improvement: str) -> None:
    assert best_ms("basin-hopping", 120, range(20), improvement=improvement) < expected_random_ms(120)


def test_batches_beat_random_too() -> None:
    assert best_ms("basin-hopping", 120, range(20), batch=8) < expected_random_ms(120)


def test_a_cold_search_hops_only_to_better_optima() -> None:
    strategy = Recording(1, BasinHoppingOptions("adjacent", temperature=1e-9))
    run(strategy, 250)
    configurations = SPACE.configurations(strategy.optima)
    assert len(set(configurations)) >= 3
    assert all(is_local_optimum(c, "adjacent") for c in configurations)
    best_so_far = [max(map(score, configurations[: k + 1])) for k in range(len(configurations))]
    assert [score(SPACE.configuration(b)) for b in strategy.basins if b is not None] == best_so_far


def test_a_hot_search_hops_to_every_optimum() -> None:
    strategy = Recording(1, BasinHoppingOptions("adjacent", temperature=1e9))
    run(strategy, 250)
    assert strategy.basins == strategy.optima
    heights = [score(c) for c in SPACE.configurations(strategy.optima)]
    assert heights != sorted(heights)


@pytest.mark.parametrize("perturbation", [1, 2, 4, 99])
def test_a_hop_draws_some_parameters_anew(perturbation: int) -> None:
    strategy = _hopping(perturbation=perturbation)
    home = SPACE.codes([0])[0]
    changes = set()
    for _ in range(300):
        index = strategy._perturbed(0)
        assert 0 <= index < SPACE.size
        changes.add(int((SPACE.codes([index])[0] != home).sum()))
    # Where the result is not valid, the nearest configuration that is differs in other parameters too.
    assert min(perturbation, len(SPACE.names)) in changes
    if perturbation <= 2:
        assert max(changes) <= perturbation + 1


@pytest.mark.parametrize("seed", range(5))
def test_the_next_climb_starts_near_the_optimum(seed: int) -> None:
    strategy = Recording(seed, BasinHoppingOptions("adjacent", perturbation=1))
    proposed = []
    while not strategy.optima:
        proposed = run(strategy, 1)
    assert strategy._basin is not None
    start, basin = proposed[0], SPACE.configuration(strategy._basin)
    assert 1 <= sum(start[name] != basin[name] for name in SPACE.names) <= 2
