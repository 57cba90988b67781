"""A random forest, which predicts by the mean and the deviation of its trees."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Forest"]

Array = NDArray[np.float64]

#: Share of the coordinates a split considers.
_MAX_FEATURES: Final = 0.75


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
        # Takes a second to import, which most searches need not spend.
        from sklearn.ensemble import RandomForestRegressor

        forest = RandomForestRegressor(
            trees, max_features=_MAX_FEATURES, bootstrap=bootstrap, random_state=int(rng.integers(2**31)), n_jobs=1
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
