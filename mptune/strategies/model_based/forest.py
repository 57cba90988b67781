"""Random forests, which predict by the mean and the deviation of their trees."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Forest", "ForestPosterior"]

Array = NDArray[np.float64]

#: Least deviation of predictions, of standardised values: all trees agree near the observations.
_LEAST_DEVIATION: Final = 0.01


class Forest:
    """scikit-learn's random forest: coordinates ``(n, k)``, values ``(n,)`` and weights of these ``(n,)``.

    Args:
        trees: how many.
        bootstrap: whether each tree sees a sample drawn with replacement, or everything.
    """

    def __init__(
        self,
        trees: int,
        rng: np.random.Generator,
        x: Array,
        y: NDArray[Any],
        *,
        bootstrap: bool,
        weights: Array | None = None,
    ) -> None:
        from sklearn.ensemble import RandomForestRegressor  # takes a second, which most searches need not spend

        forest = RandomForestRegressor(
            trees, max_features=0.75, bootstrap=bootstrap, random_state=int(rng.integers(2**31)), n_jobs=1
        )
        # The forest's own predict checks its input again for every tree, which takes ten times as long.
        self._trees = [tree.tree_ for tree in forest.fit(x, y, weights).estimators_]

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation over the trees, each ``(n,)``."""
        rows = x.astype(np.float32)
        total, squares = np.zeros(len(rows)), np.zeros(len(rows))
        for tree in self._trees:
            values = tree.predict(rows).reshape(len(rows))
            total += values
            squares += values * values
        mean = total / len(self._trees)
        return mean, np.sqrt(np.maximum(squares / len(self._trees) - mean * mean, 0.0))


class ForestPosterior:
    """A random forest in the place of :class:`~mptune.strategies.model_based.gaussian_process.Posterior`.

    Its trees see samples of the observations drawn with replacement. It is grown again with every observation.
    """

    def __init__(self, trees: int, rng: np.random.Generator, candidates: Array, x: Array, y: Array) -> None:
        self._trees, self._rng, self._candidates = trees, rng, candidates
        self._grow(x, y)

    def _grow(self, x: Array, y: Array) -> None:
        self._x, self._y = x, y
        self._forest = Forest(self._trees, self._rng, x, y, bootstrap=True)
        self.mean, self.deviation = self.predict(self._candidates)

    def append(self, x: Array, y: float) -> None:
        self._grow(np.vstack([self._x, x]), np.append(self._y, y))

    def imagine(self, x: Array) -> float:
        return float(self.predict(x[None, :])[0][0])

    def forget_imagined(self) -> None:
        """Do nothing: nothing is imagined."""

    def predict(self, x: Array) -> tuple[Array, Array]:
        mean, deviation = self._forest.predict(x)
        return mean, np.maximum(deviation, _LEAST_DEVIATION)
