"""The model of Willemsen 2021: a Gaussian process that is never fitted, over the configurations that are left."""

from __future__ import annotations

import math
from collections.abc import Collection, Set
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.space.search_space import SearchSpace
from mptune.strategies.model_based.candidates import Candidates
from mptune.strategies.model_based.coordinates import Normalisation
from mptune.strategies.model_based.gaussian_process import GrowingFactor
from mptune.strategies.model_based.numerics import cholesky, product

__all__ = ["DiscreteModel", "FixedPosterior", "Prediction", "matern32"]

Array = NDArray[np.float64]

#: Best trials whose neighbours join a sample of a large space.
_ELITE: Final = 4
#: A sample of a large space is drawn anew after so many observations, and whenever there is a new best.
_SAMPLE_AGE: Final = 20
#: Least variance of an observation's noise: what scikit-learn, on which the paper builds, adds by default.
_JITTER: Final = 1e-10
#: Smallest posterior variance; rounding leaves no less.
_LEAST_VARIANCE: Final = 1e-12


def matern32(distances: Array) -> Array:
    """Return the Matérn 3/2 correlation of scaled distances (Willemsen 2021, Sec. III-B).

    Args:
        distances: times the square root of 3, over the length scale.
    """
    return np.asarray((1.0 + distances) * np.exp(-distances))


class FixedPosterior(GrowingFactor):
    """The posterior at a fixed set of candidates, of standardised observations, one observation at a time.

    Its length scale and signal are never fitted (Willemsen 2021), so an observation only ever extends what is there.
    Standardisation moves with every value; two posterior means, of the values and of a constant 1, give the
    standardised one at once.

    Args:
        candidates: coordinates, shape ``(n_candidates, k)``.
        length_scale: of the covariance, in the coordinates' unit.
        noise: standard deviation of an observation, relative to the signal's.
    """

    def __init__(self, candidates: Array, *, length_scale: float, noise: float) -> None:
        super().__init__(len(candidates), candidates.shape[1], (2,), np.float64)
        self._scale = math.sqrt(3.0) / length_scale
        self._diagonal = 1.0 + max(noise * noise, _JITTER)
        self._columns = np.ascontiguousarray((candidates * self._scale).T)
        n = len(candidates)
        self._y: list[float] = []
        self._centre, self._spread = 0.0, 1.0
        self._of_values = np.zeros(n)
        self._of_ones = np.zeros(n)
        self._variance = np.ones(n)

    @property
    def mean(self) -> Array:
        """Posterior mean of the standardised values, shape ``(n_candidates,)``."""
        origin = self._y[0] if self._y else 0.0
        return np.asarray((self._of_values - (self._centre - origin) * self._of_ones) / self._spread)

    @property
    def variance(self) -> Array:
        """Posterior variance of the standardised values, without noise, shape ``(n_candidates,)``."""
        return np.maximum(self._variance, _LEAST_VARIANCE)

    def standardised(self, value: float) -> float:
        """Return a value less the mean of the observations, over their standard deviation."""
        return (value - self._centre) / self._spread

    def append(self, x: Array, y: float) -> None:
        """Add an observation: coordinates ``(k,)`` and its value; imagined ones are forgotten."""
        self.forget_imagined()
        known, pivot = self._extend(x)
        self._take([*self._y, y])
        n = self._n - 1
        value = np.array([y - self._y[0], 1.0])
        self._whitened[n] = (value - np.einsum("i,ij->j", known, self._whitened[:n])) / pivot
        self._of_values += self._whitened[n, 0] * self._rows[n]
        self._of_ones += self._whitened[n, 1] * self._rows[n]

    def imagine(self, x: Array) -> None:
        """Add an observation to come, of the value that is expected: only the variance changes."""
        self._extend(x)
        self._n_imagined += 1

    def forget_imagined(self) -> None:
        """Take back what was imagined."""
        for i in range(self._n - 1, len(self) - 1, -1):
            self._variance += self._rows[i] ** 2
        self._n, self._n_imagined = len(self), 0

    def condition(self, x: Array, y: Array) -> None:
        """Take in observations at once, before any other: coordinates ``(n, k)`` and values ``(n,)``, n at least 1."""
        n = len(x)
        self._reserve(n + 16)
        self._x[:n] = scaled = x * self._scale
        squared = np.zeros((n, n))
        for column in scaled.T:
            squared += np.square(column[:, None] - column[None, :])
        covariance = matern32(np.sqrt(squared))
        covariance.flat[:: n + 1] = self._diagonal
        _, self._inverse[:n, :n] = cholesky(covariance)
        self._take(y.tolist())
        values = np.stack([y - y[0], np.ones(n)], axis=1)
        self._whitened[:n] = np.einsum("ij,jk->ik", self._inverse[:n, :n], values)
        for block in self._blocks():
            correlations = np.stack([self._correlations(row, block) for row in scaled])
            self._rows[:n, block] = rows = product(self._inverse[:n, :n], correlations, triangular=True)
            self._of_values[block] = np.einsum("i,ij->j", self._whitened[:n, 0], rows)
            self._of_ones[block] = np.einsum("i,ij->j", self._whitened[:n, 1], rows)
            self._variance[block] = 1.0 - np.einsum("ij,ij->j", rows, rows)
        self._n = n

    def _take(self, values: list[float]) -> None:
        self._y = values
        spread = float(np.std(values))
        self._centre, self._spread = float(np.mean(values)), spread if spread > 0.0 else 1.0

    def _extend(self, x: Array) -> tuple[Array, float]:
        """Add the row of a point; return the point's own row in the factor, and its pivot."""
        n = self._n
        scaled = x * self._scale
        correlations = matern32(np.sqrt(np.square(self._x[:n] - scaled).sum(axis=1)))
        known, pivot = self._grow(scaled, correlations, self._diagonal, _JITTER)
        for block in self._blocks():
            row = self._correlations(scaled, block)
            row -= np.einsum("i,ij->j", known, self._rows[:n, block])
            row /= pivot
            self._rows[n, block] = row
            self._variance[block] -= row * row
        self._n = n + 1
        return known, pivot

    def _correlations(self, scaled: Array, block: slice) -> Array:
        """Return the correlations of a point with a block of candidates."""
        squared = np.zeros_like(self._rows[0, block])
        for column, at in zip(self._columns, scaled, strict=True):
            difference = column[block] - at
            squared += difference * difference
        return matern32(np.sqrt(squared))


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
        self._normalisation = Normalisation(space.parameters)
        self._length_scale, self._noise = length_scale, noise
        self._max_candidates, self._sample, self._max_observations = max_candidates, sample, max_observations
        self._rng = rng
        self.observations: dict[int, float] = {}
        self._best = -math.inf
        self._new: list[int] = []
        self._imagined: set[int] = set()
        self._pool: Candidates | None = None
        self._pool_born = (0, -math.inf)
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

    def coordinates(self, indices: Any) -> Array:
        """Return where configurations lie, shape ``(n, k)``."""
        return self._normalisation.coordinates(self._space.codes(indices))

    def remove(self, index: int) -> None:
        """Take a configuration off those that are left."""
        if self._pool is not None:
            self._pool.strike(index)

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
            for index, x in zip(self._new, self.coordinates(self._new), strict=True):
                posterior.append(x, self.observations[index])
        self._new.clear()
        for index in pending:
            if index not in self._imagined:
                posterior.imagine(self.coordinates([index])[0])
                self._imagined.add(index)
        assert self._pool is not None
        free = np.flatnonzero(self._pool.free)
        return Prediction(
            self._pool.indices[free], posterior.mean[free], posterior.variance[free], posterior.standardised(self._best)
        )

    def _is_outdated(self) -> bool:
        """Whether the posterior is full, or a sample is used up, old, or lacks the neighbours of a new best."""
        assert self._pool is not None
        if self.held + len(self._new) > self._max_observations:
            return True
        born, best = self._pool_born
        is_stale = len(self.observations) >= born + _SAMPLE_AGE or self._best > best
        return not self._pool.complete and (is_stale or not self._pool.free.any())

    def _rebuild(self, taken: Set[int]) -> FixedPosterior:
        """Choose candidates and condition a posterior on the observations."""
        pool = self._pool if self._pool is not None and self._pool.complete else self._candidates(taken)
        kept = self._representative()
        posterior = FixedPosterior(pool.features, length_scale=self._length_scale, noise=self._noise)
        posterior.condition(self.coordinates(kept), np.array([self.observations[index] for index in kept]))
        pool.free[:] = ~np.isin(pool.indices, np.fromiter(taken, np.int64, len(taken)))
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
        return Candidates(indices, space.codes(indices), self.coordinates(indices), complete)

    def _representative(self) -> list[int]:
        """Return all observations, or of too many the best half and a random quarter, with room for more."""
        most = self._max_observations
        if len(self.observations) <= most:
            return list(self.observations)
        ranked = sorted(self.observations, key=lambda index: -self.observations[index])
        others = self._rng.choice(np.array(ranked[most // 2 :]), most // 4, replace=False)
        return [*ranked[: most // 2], *others.tolist()]
