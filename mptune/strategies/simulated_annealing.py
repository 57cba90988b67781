"""Simulated annealing on a constrained discrete space.

Kirkpatrick, Gelatt and Vecchi, "Optimization by simulated annealing", Science 220 (1983), with the temperatures of
Heldens 2026, Table III. All neighbours are valid by construction, so constraints need no repair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from mptune.results.trial import Trial
from mptune.space.search_space import KINDS, Kind
from mptune.strategies.base import NEIGHBOURHOODS, Options, ScoredStrategy, option

#: Consecutive moves among evaluated neighbours after which the walk counts as stuck.
_STUCK_MOVES: Final = 100


@dataclass(frozen=True, slots=True)
class SimulatedAnnealingOptions(Options):
    """Hyperparameters."""

    neighbourhood: Kind = option("hamming", NEIGHBOURHOODS, choices=KINDS)
    start_temperature: float = option(0.1, "relative loss accepted with probability 1/e at the start.", above=0)
    end_temperature: float = option(0.001, "relative loss accepted with probability 1/e at the end.", above=0)
    evaluations: int = option(
        200, "period of the cooling in evaluations; 0: the budget, as in Heldens 2026 (200 if unknown).", least=0
    )

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        start = self.start_temperature
        self.require("end_temperature", self.end_temperature <= start, f"a number up to start_temperature {start:g}")


def relative_loss(current: float, score: float) -> float:
    """Return the lost share of a score: at least 0, infinite for a failure (``-inf``).

    A relative loss makes temperatures independent of the kernel's time: 0.1 is a tenth of the speed. The loss from a
    positive score to a penalty is 1; between two penalties the ratio of their magnitudes counts.
    """
    if score >= current:
        return 0.0
    if score == -math.inf:
        return math.inf
    return 1.0 - max(score, 0.0) / current if current > 0 else 1.0 - current / score


def acceptance_probability(current: float, score: float, temperature: float) -> float:
    """Return the probability to move from one score to another: exp(-loss / temperature).

    Metropolis et al., "Equation of state calculations by fast computing machines" (1953), with the relative loss as
    energy difference.
    """
    return math.exp(-relative_loss(current, score) / temperature)


class SimulatedAnnealingStrategy(ScoredStrategy):
    """Walks from neighbour to neighbour; at high temperature also to worse ones.

    The walk starts from the best known trial, or a random configuration. Moves to evaluated neighbours are decided at
    once. Several neighbours may be pending in a batch; each is decided when its trial arrives, against the current
    position. A walk stuck among evaluated configurations continues from a random one.
    """

    name: ClassVar[str] = "simulated-annealing"
    options_class: ClassVar[type[Options]] = SimulatedAnnealingOptions
    options: SimulatedAnnealingOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._current: int | None = None
        self._around: list[int] = []
        self._waiting: set[int] = set()
        self._evaluated = 0

    def _next(self) -> int | None:
        if self._current is None and not self._waiting:
            self._move_to(self._best_known())
        index = self._next_neighbour()
        if index is None:
            if not self._waiting:
                self._move_to(None)
            index = self._random()
        if index is not None:
            self._waiting.add(index)
        return index

    def _learn(self, indices: list[int], trials: Sequence[Trial]) -> None:
        super()._learn(indices, trials)
        for index in indices:
            if index in self._waiting:
                self._waiting.remove(index)
                self._evaluated += 1
                self._consider(index)

    @property
    def temperature(self) -> float:
        """The relative loss accepted with probability 1/e at present."""
        start, end = self.options.start_temperature, self.options.end_temperature
        over = self.options.evaluations or self.budget or 200
        passed = self._evaluated % over / over
        return float(start * (end / start) ** passed)

    def _next_neighbour(self) -> int | None:
        """Walk among evaluated neighbours until an unseen one is drawn; None if the walk is stuck."""
        for _ in range(_STUCK_MOVES):
            if not self._around:
                return None
            index = self._around[int(self.rng.integers(len(self._around)))]
            if index in self._scores:
                self._consider(index)
            elif index not in self._seen:
                return index
        return None

    def _consider(self, index: int) -> None:
        """Accept or reject the move to an evaluated configuration."""
        current = -math.inf if self._current is None else self._scores[self._current]
        if self.rng.random() < acceptance_probability(current, self._scores[index], self.temperature):
            self._move_to(index)

    def _move_to(self, index: int | None) -> None:
        self._current = index
        self._around = [] if index is None else self.space.neighbours(index, self.options.neighbourhood).tolist()
