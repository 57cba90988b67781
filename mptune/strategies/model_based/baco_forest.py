"""A random forest in place of BaCO's Gaussian process (Hellsten 2023, Sec. 5.3, Fig. 8)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from mptune.strategies.model_based.acquisition import log_expected_improvement
from mptune.strategies.model_based.baco_model import Observation, Targets

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestRegressor

__all__ = ["BacoForest"]

Array = NDArray[np.float64]

#: Least deviation of what trees predict, of standardised values: all of them agree near what was observed.
_LEAST_DEVIATION: Final = 0.01
#: Part of the coordinates a split considers, as of the forest of what runs.
_MAX_FEATURES: Final = 0.75


class BacoForest:
    """What is believed of the objective: mean and deviation of what the trees of a random forest predict.

    It stands in for :class:`~mptune.strategies.model_based.baco_model.BacoModel`. The forest is grown anew whenever
    there are new observations; its trees see samples of them drawn with replacement.
    """

    def __init__(self, trees: int, *, log: bool, minimise: bool, exploration: float, rng: Generator) -> None:
        self._trees = trees
        self._log = log
        self._minimise = minimise
        self._exploration = exploration
        self._rng = rng
        self._forest: RandomForestRegressor | None = None
        self._candidates = np.empty((0, 0))
        self._predicted = (np.empty(0), np.empty(0))
        self._known = 0
        self._imagined: dict[int, float] = {}
        self._best = math.inf

    def rebuild(self, observations: Mapping[int, Observation], candidates: Array) -> None:
        """Grow the forest anew; coordinates of the candidates ``(n_candidates, n_coordinates)``."""
        # Takes a second to import.
        from sklearn.ensemble import RandomForestRegressor

        held = list(observations.values())
        scores = np.array([o.score for o in held])
        y = Targets.of(scores, log=self._log, minimise=self._minimise).apply(scores)
        self._forest = RandomForestRegressor(
            n_estimators=self._trees,
            max_features=_MAX_FEATURES,
            random_state=int(self._rng.integers(2**31)),
            n_jobs=1,
        )
        self._forest.fit(np.array([o.coordinates for o in held]), y)
        self._known, self._imagined = len(held), {}
        self._best = float(y.min())
        self._candidates = candidates
        self._predicted = self._predict(candidates)

    def extend(self, observations: Mapping[int, Observation]) -> None:
        """Learn the observations that are new since the last call."""
        if len(observations) > self._known:
            self.rebuild(observations, self._candidates)

    def imagine(self, index: int, coordinates: Array) -> None:
        """Count a configuration that is being evaluated as if it had the mean's value."""
        if index not in self._imagined:
            self._imagined[index] = float(self._predict(coordinates[None, :])[0][0])

    def forget(self, indices: Sequence[int]) -> None:
        """Take back what was imagined of these, which are no longer evaluated."""
        for index in indices:
            self._imagined.pop(index, None)

    def log_improvement(self) -> Array:
        """Return the log of the expected improvement of each candidate, shape ``(n_candidates,)``."""
        return self._improvement(*self._predicted)

    def log_improvement_at(self, coordinates: Array) -> Array:
        """Return the same of other configurations, coordinates ``(n, n_coordinates)``."""
        return self._improvement(*self._predict(coordinates))

    def _improvement(self, mean: Array, deviation: Array) -> Array:
        best = min([self._best, *self._imagined.values()])
        return log_expected_improvement(mean, deviation, best - self._exploration)

    def _predict(self, coordinates: Array) -> tuple[Array, Array]:
        """Return mean and deviation over the trees, ``(n,)`` each."""
        assert self._forest is not None
        rows = coordinates.astype(np.float32)
        total, squares = np.zeros(len(rows)), np.zeros(len(rows))
        for tree in self._forest.estimators_:
            values = tree.tree_.predict(rows).reshape(len(rows))
            total += values
            squares += values * values
        mean = total / self._trees
        variance = np.maximum(squares / self._trees - mean * mean, 0.0)
        return mean, np.maximum(np.sqrt(variance), _LEAST_DEVIATION)
