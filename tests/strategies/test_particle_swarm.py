from __future__ import annotations

import numpy as np
import pytest

from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies.particle_swarm import ParticleSwarmOptions, ParticleSwarmStrategy, velocities_after


def test_a_step_computed_by_hand() -> None:
    options = ParticleSwarmOptions(inertia=0.5, cognitive=2.0, social=1.0, max_velocity=0.75)
    velocities = np.array([[0.2, -0.4]])
    position, own, best = np.array([[0.5, 0.5]]), np.array([[0.75, 0.0]]), np.array([[1.0, 0.0]])
    draws = (np.array([[0.5, 0.9]]), np.array([[0.25, 0.5]]))
    moved = velocities_after(velocities, own - position, best - position, draws, options)
    # 0.1 + 2 x 0.5 x 0.25 + 0.25 x 0.5 = 0.475; -0.2 - 2 x 0.9 x 0.5 - 0.5 x 0.5 = -1.35, limited.
    assert moved == pytest.approx(np.array([[0.475, -0.75]]))


def _generations(count: int, **options: float) -> list[list[int]]:
    """Return the first generations on a line, where the higher ``a`` is, the better."""
    space = SearchSpace([OrdinalParameter("a", range(10_001))])
    size = 5
    strategy = ParticleSwarmStrategy(space, Objective(), options=ParticleSwarmOptions(population=size, **options))
    generations = []
    for _ in range(count):
        asked = strategy.ask(size)
        numbers = [int(c["a"]) for c in asked]  # type: ignore[call-overload]
        times = [Measurement({"time_ms": 10_001 - a}) for a in numbers]
        strategy.tell([Trial(c, Status.OK, measurement=m) for c, m in zip(asked, times, strict=True)])
        generations.append(numbers)
    return generations


def test_the_social_pull_leads_to_the_best_known() -> None:
    first, second = _generations(2, inertia=0.0, cognitive=0.0, social=1.0)
    best = max(first)
    others = [a for a in first if a != best]
    # The best one stays where it is, which is not proposed again; a later generation fills the batch.
    assert all(a < moved < best for a, moved in zip(others, second, strict=False))


def test_a_particle_goes_on_without_pulls_and_stops_at_the_faces() -> None:
    generations = np.array(_generations(2, inertia=1.0, cognitive=0.0, social=0.0))
    assert ((generations >= 0) & (generations <= 10_000)).all()
    steps = np.abs(np.diff(generations, axis=0))
    # The velocities to begin with are within half the limit.
    assert ((steps > 0) & (steps <= 5_000)).all()
