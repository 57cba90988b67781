"""Strategies find something better than random search does, in the mean: few seeds of each, all of them nightly."""

from __future__ import annotations

from typing import Any

import landscape
import pytest
import smooth

CLIMBERS = [
    ("local-search", {}, 1),
    ("basin-hopping", {}, 1),
    ("simulated-annealing", {}, 1),
    ("local-search", {"neighbourhood": "adjacent"}, 1),
    ("local-search", {"neighbourhood": "adjacent", "improvement": "best"}, 1),
    ("local-search", {"improvement": "best"}, 1),
    ("basin-hopping", {"improvement": "best"}, 1),
    ("basin-hopping", {}, 8),
    ("simulated-annealing", {"neighbourhood": "adjacent"}, 1),
    ("simulated-annealing", {}, 8),
]
POPULATIONS = [
    ("differential-evolution", {}, 1),
    ("firefly", {}, 1),
    ("particle-swarm", {}, 1),
    ("genetic", {}, 1),
    ("differential-evolution", {}, 16),
    ("firefly", {}, 16),
    ("particle-swarm", {}, 16),
    ("genetic", {"crossover": "two_point"}, 1),
    ("genetic", {"crossover": "uniform"}, 1),
    ("genetic", {"crossover": "disruptive_uniform"}, 1),
]


def _cases(cases: list[tuple[str, dict[str, object], int]], fast: int) -> list[Any]:
    """Return the first cases with two seeds, and all of them with twenty, every night."""
    return [(*each, 2) for each in cases[:fast]] + [
        pytest.param(*each, 20, marks=pytest.mark.nightly) for each in cases
    ]


@pytest.mark.parametrize(("name", "options", "batch", "seeds"), _cases(CLIMBERS, 3))
def test_climbing_beats_random(name: str, options: dict[str, object], batch: int, seeds: int) -> None:
    found = landscape.best_ms(name, 120, range(seeds), batch, **options)
    assert found < landscape.expected_random_ms(120)


@pytest.mark.parametrize(("name", "options", "batch", "seeds"), _cases(POPULATIONS, 4))
def test_a_population_beats_random(name: str, options: dict[str, object], batch: int, seeds: int) -> None:
    assert smooth.mean_best(name, 150, range(seeds), batch, **options) < smooth.mean_best("random", 150, range(10))
