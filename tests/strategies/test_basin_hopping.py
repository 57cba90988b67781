from __future__ import annotations

import pytest
from landscape import SPACE, is_local_optimum, run, score

from mptune.results.objective import Objective
from mptune.strategies.basin_hopping import BasinHoppingOptions, BasinHoppingStrategy


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


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("perturbation", "least", "most"), [(1, 1, 2), (99, 4, 5)])
def test_the_next_climb_starts_near_the_optimum(seed: int, perturbation: int, least: int, most: int) -> None:
    strategy = Recording(seed, BasinHoppingOptions("adjacent", perturbation=perturbation))
    proposed = []
    while not strategy.optima:
        proposed = run(strategy, 1)
    start, optimum = proposed[0], SPACE.configuration(strategy.optima[0])
    # Where the result is not valid, the nearest configuration that is differs in other parameters too.
    assert least <= sum(start[name] != optimum[name] for name in SPACE.names) <= most
