"""Firefly algorithm (Yang 2009) on a constrained grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mptune.strategies.base import Array, Options, option
from mptune.strategies.population import PopulationOptions, SwarmStrategy


@dataclass(frozen=True, slots=True)
class FireflyOptions(PopulationOptions):
    """Hyperparameters with the defaults of Heldens 2026, Table III."""

    population: int = option(20, "fireflies.", least=1)
    attraction: float = option(1.0, "share of the way to a close brighter firefly (beta_0).", least=0, most=100)
    absorption: float = option(1.0, "fall of attraction with the squared distance (gamma).", least=0, most=1e6)
    randomness: float = option(0.2, "random part of a move, as a share of a range (alpha).", least=0, most=100)


def attracted(positions: Array, other: Array, draws: Array, options: FireflyOptions) -> Array:
    """Return positions of fireflies after one move towards another: attraction and a random step.

    The move adds beta_0 exp(-gamma r^2) (other - position) + alpha (draw - 1/2). The distance r is a share of the unit
    cube's diagonal, so gamma does not depend on the number of parameters. Positions and draws, uniform in [0, 1), have
    shape ``(n, d)``, the position of the brighter firefly ``(d,)``.
    """
    way = other - positions
    squares = np.mean(way**2, axis=1, keepdims=True)
    shares = options.attraction * np.exp(-options.absorption * squares)
    moved: Array = np.clip(positions + shares * way + options.randomness * (draws - 0.5), 0.0, 1.0)
    return moved


class FireflyStrategy(SwarmStrategy):
    """Moves every firefly towards all brighter ones; the brightest moves at random."""

    name: ClassVar[str] = "firefly"
    options_class: ClassVar[type[Options]] = FireflyOptions
    options: FireflyOptions

    def _moved(self, bests: list[int]) -> Array:  # noqa: ARG002 - fireflies have no memory
        brightness = np.array([self._score(index) for index in self._population])
        moved = self._positions.copy()
        for other, light in zip(self._positions, brightness, strict=True):
            self._move(moved, brightness < light, other)
        lone = brightness == brightness.max()
        self._move(moved, lone, self._positions[lone])
        return moved

    def _move(self, positions: Array, chosen: NDArray[np.bool_], other: Array) -> None:
        draws = self.rng.random((int(chosen.sum()), positions.shape[1]))
        positions[chosen] = attracted(positions[chosen], other, draws, self.options)
