"""Particle swarm (Kennedy & Eberhart 1995) with inertia weight (Shi & Eberhart 1998) on a constrained grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mptune.strategies.base import Array, Options, option
from mptune.strategies.population import PopulationOptions, SwarmStrategy


@dataclass(frozen=True, slots=True)
class ParticleSwarmOptions(PopulationOptions):
    """Hyperparameters with the defaults of Heldens 2026, Table III."""

    population: int = option(50, "particles in the swarm.", least=1)
    inertia: float = option(0.5, "share of the velocity a particle keeps (w).", least=0, most=100)
    cognitive: float = option(3.5, "pull towards the particle's own best configuration (c1).", least=0, most=100)
    social: float = option(1.0, "pull towards the best configuration of the swarm (c2).", least=0, most=100)
    max_velocity: float = option(1.0, "largest step in any parameter, as a share of its range.", least=0, most=1)


def velocities_after(
    velocities: Array, own_best: Array, best: Array, draws: tuple[Array, Array], options: ParticleSwarmOptions
) -> Array:
    """Return the velocities of the next step: w v + c1 r1 (own best - x) + c2 r2 (best - x), limited.

    All arrays have shape ``(n, d)``, the bests relative to x; the draws r1 and r2 are uniform in [0, 1).
    """
    own, social = options.cognitive * draws[0] * own_best, options.social * draws[1] * best
    return np.clip(options.inertia * velocities + own + social, -options.max_velocity, options.max_velocity)


class ParticleSwarmStrategy(SwarmStrategy):
    """Moves particles towards their own best and the best known configuration; they stop at the cube's faces."""

    name: ClassVar[str] = "particle-swarm"
    options_class: ClassVar[type[Options]] = ParticleSwarmOptions
    options: ParticleSwarmOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._velocities: Array = np.empty((0, 0))

    def _initialise(self) -> None:
        super()._initialise()
        self._velocities = self._drawn_velocities(len(self._population))

    def _replace(self, position: int, index: int) -> None:
        super()._replace(position, index)
        self._velocities[position] = self._drawn_velocities(1)[0]

    def _moved(self, bests: list[int]) -> Array:
        own_best = self._points(bests)
        leader = self._best_known()
        best = own_best if leader is None else self._points([leader])
        shape = self._positions.shape
        self._velocities = velocities_after(
            self._velocities,
            own_best - self._positions,
            best - self._positions,
            (self.rng.random(shape), self.rng.random(shape)),
            self.options,
        )
        moved = self._positions + self._velocities
        inside = np.clip(moved, 0.0, 1.0)
        self._velocities[moved != inside] = 0.0
        return inside

    def _drawn_velocities(self, n: int) -> Array:
        limit = 0.5 * self.options.max_velocity
        return self.rng.uniform(-limit, limit, (n, len(self.space.parameters)))
