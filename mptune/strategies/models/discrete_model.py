"""The model of Willemsen 2021 over the configurations that are left: what to expect of each, kept up to date."""

from __future__ import annotations

import math
from collections.abc import Collection, Set
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.space.search_space import SearchSpace
from mptune.strategies.models.candidates import Candidates
from mptune.strategies.models.fixed_posterior import FixedPosterior
from mptune.strategies.models.normalisation import Normalisation

__all__ = ["DiscreteModel", "Prediction"]

Array = NDArray[np.float64]

#: Best trials whose neighbours join a sample of a large space.
_ELITE: Final = 4
#: A sample of a large space is drawn anew after so many observations, and whenever there is a new best.
_SAMPLE_AGE: Final = 20


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model expects of the configurations that are left, in standard deviations of all observations.

    Attributes:
        indices: of the configurations, ascending, shape ``(n,)``.
        mean: of the value, shape ``(n,)``.
        variance: shape ``(n,)``.
        best: the largest observation.
    """

    indices: NDArray[np.int64]
    mean: Array
    variance: Array
    best: float


class DiscreteModel:
    """Observations and the posterior at all configurations, or in a large space at a sample of them.

    Args:
        space: the search space.
        length_scale: of the covariance.
        noise: standard deviation of an observation's noise, relative to that of all observations.
        max_candidates: spaces up to this size are predicted as a whole.
        sample: configurations of a sample of a larger one; the neighbours of the best trials join it.
        max_observations: observations the posterior holds; of more, the best and a random part.
        rng: source of randomness.

    Attributes:
        observations: value by index, more is better, in the order observed.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        length_scale: float,
        noise: float,
        max_candidates: int,
        sample: int,
        max_observations: int,
        rng: np.random.Generator,
    ) -> None:
        self._space = space
        self._normalisation = Normalisation(space)
        self._length_scale, self._noise = length_scale, noise
        self._max_candidates, self._sample, self._max_observations = max_candidates, sample, max_observations
        self._rng = rng
        self.observations: dict[int, float] = {}
        self._best = -math.inf
        self._new: list[int] = []
        self._imagined: set[int] = set()
        self._pool: Candidates | None = None
        self._pool_born = (0, -math.inf)
        self._free = np.empty(0, dtype=np.bool_)
        self._posterior: FixedPosterior | None = None

    @property
    def held(self) -> int:
        """Number of observations the posterior holds."""
        return 0 if self._posterior is None else len(self._posterior)

    def observe(self, index: int, value: float) -> None:
        """Take in the value of a configuration not observed before."""
        self.observations[index] = value
        self._best = max(self._best, value)
        self._new.append(index)

    def covers_every_parameter(self) -> bool:
        """Whether the observations differ in every coordinate."""
        if len(self.observations) < 2:
            return False
        return bool((np.ptp(self._normalisation.of(list(self.observations)), axis=0) > 0.0).all())

    def remove(self, index: int) -> None:
        """Take a configuration off those that are left."""
        position = self._pool.position(index) if self._pool is not None else None
        if position is not None:
            self._free[position] = False

    def predict(self, pending: Collection[int], taken: Set[int]) -> Prediction:
        """Return what to expect of the configurations left; at least one value has to be observed.

        Args:
            pending: configurations whose values are to come; imagined to be as expected.
            taken: all configurations that are not left; those taken since the last call have been removed, too.
        """
        posterior = self._posterior
        if posterior is None or self._is_outdated():
            posterior = self._rebuild(taken)
        elif self._new or self._imagined.difference(pending):
            posterior.forget_imagined()
            self._imagined.clear()
            for index, x in zip(self._new, self._normalisation.of(self._new), strict=True):
                posterior.append(x, self.observations[index])
        self._new.clear()
        for index in pending:
            if index not in self._imagined:
                posterior.imagine(self._normalisation.of([index])[0])
                self._imagined.add(index)
        assert self._pool is not None
        free = np.flatnonzero(self._free)
        return Prediction(
            self._pool.indices[free],
            posterior.mean[free],
            posterior.variance[free],
            posterior.standardised(self._best),
        )

    def _is_outdated(self) -> bool:
        """Whether the posterior is full, or a sample is used up, old, or lacks the neighbours of a new best."""
        assert self._pool is not None
        if self.held + len(self._new) > self._max_observations:
            return True
        born, best = self._pool_born
        is_stale = len(self.observations) >= born + _SAMPLE_AGE or self._best > best
        return not self._pool.complete and (is_stale or not self._free.any())

    def _rebuild(self, taken: Set[int]) -> FixedPosterior:
        """Choose candidates and condition a posterior on the observations."""
        pool = self._pool if self._pool is not None and self._pool.complete else self._candidates(taken)
        kept = self._representative()
        posterior = FixedPosterior(pool.features, length_scale=self._length_scale, noise=self._noise)
        posterior.condition(self._normalisation.of(kept), np.array([self.observations[index] for index in kept]))
        self._free = ~np.isin(pool.indices, np.fromiter(taken, np.int64, len(taken)))
        self._pool_born = len(self.observations), self._best
        self._imagined.clear()
        self._pool, self._posterior = pool, posterior
        return posterior

    def _candidates(self, taken: Set[int]) -> Candidates:
        space = self._space
        complete = space.size <= self._max_candidates
        if complete:
            indices = np.arange(space.size, dtype=np.int64)
        else:
            elite = sorted(self.observations, key=lambda index: -self.observations[index])[:_ELITE]
            around = [space.neighbours(index, "hamming") for index in elite]
            indices = np.unique(np.concatenate([space.sample(self._sample, self._rng, taken), *around]))
        return Candidates(indices, space.codes(indices), self._normalisation.of(indices), complete)

    def _representative(self) -> list[int]:
        """Return all observations, or of too many the best half and a random quarter, with room for more."""
        most = self._max_observations
        if len(self.observations) <= most:
            return list(self.observations)
        ranked = sorted(self.observations, key=lambda index: -self.observations[index])
        others = self._rng.choice(np.array(ranked[most // 2 :]), most // 4, replace=False)
        return [*ranked[: most // 2], *others.tolist()]
