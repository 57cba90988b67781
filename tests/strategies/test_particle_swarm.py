from __future__ import annotations

import numpy as np
import pytest

from mptune.objective import Objective
from mptune.results import Measurement, Status, Trial
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


def test_a_step_is_that_of_its_formula() -> None:
    rng = np.random.default_rng(3)
    options = ParticleSwarmOptions(inertia=0.7, cognitive=1.3, social=0.9)
    v, own, best, r1, r2 = rng.uniform(-1, 1, (5, 4, 3))
    moved = velocities_after(v, own, best, (r1, r2), options)
    for index in np.ndindex(4, 3):
        expected = 0.7 * v[index] + 1.3 * r1[index] * own[index] + 0.9 * r2[index] * best[index]
        assert moved[index] == pytest.approx(max(-1.0, min(1.0, expected)))


LINE = SearchSpace([OrdinalParameter("a", range(1001))])


def _told(strategy: ParticleSwarmStrategy, n: int) -> None:
    """Ask for n configurations and tell that the higher ``a`` is, the better."""
    for c in strategy.ask(n):
        strategy.tell([Trial(c, Status.OK, measurement=Measurement({"time_ms": 1001.0 - float(c["a"])}))])  # type: ignore[arg-type]


def test_the_social_pull_leads_to_the_best_known() -> None:
    options = ParticleSwarmOptions(population=5, inertia=0.0, cognitive=0.0, social=1.0)
    strategy = ParticleSwarmStrategy(LINE, Objective(), options=options, seed=1)
    _told(strategy, 5)
    before = np.sort(strategy._positions[:, 0])
    strategy._evolved()
    after = np.sort(strategy._positions[:, 0])
    assert (after[:-1] > before[:-1]).all()
    assert after[-1] == before[-1]


def test_the_cognitive_pull_leads_back_to_a_particles_own_best() -> None:
    options = ParticleSwarmOptions(population=3, inertia=0.0, cognitive=1.0, social=0.0)
    strategy = ParticleSwarmStrategy(LINE, Objective(), options=options)
    _told(strategy, 3)
    own = strategy._positions.copy()
    strategy._positions[:] = 0.0
    strategy._evolved()
    assert ((strategy._positions > 0.0) & (strategy._positions <= own + 1e-3)).all()


def test_particles_stop_at_the_faces() -> None:
    options = ParticleSwarmOptions(population=4, inertia=1.0, cognitive=0.0, social=0.0)
    strategy = ParticleSwarmStrategy(LINE, Objective(), options=options)
    _told(strategy, 4)
    strategy._velocities[:] = np.array([[-1.0], [1.0], [1.0], [0.01]])
    strategy._positions[:] = 0.5
    members = strategy._evolved()
    assert strategy._positions[:, 0] == pytest.approx([0.0, 1.0, 1.0, 0.51])
    assert strategy._velocities[:, 0] == pytest.approx([0.0, 0.0, 0.0, 0.01])
    assert members == [0, 1000, 1000, 510]
