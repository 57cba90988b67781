"""Probability that a configuration runs, from a random forest (Hellsten 2023, Sec. 4.2, "Hidden constraints")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestClassifier

__all__ = ["FeasibilityForest", "least_probability"]

Array = NDArray[np.float64]

#: Of the published implementation: part of the coordinates a split considers, weights of what ran and what failed.
_MAX_FEATURES: Final = 0.75
_RAN, _FAILED = 0.8, 0.2
#: What ran was expected from the first probability on, what failed up to the second: more likely than that, others
#: like it would go on being tried.
_LIKELY, _UNLIKELY = 0.5, 0.1


class FeasibilityForest:
    """Learns which configurations run.

    The paper grows a new forest at every step, which takes most of the time of one. Here it is grown anew when an
    outcome is not what it expected or when there are more outcomes by a factor; in between it would hardly differ.

    Args:
        trees: in the forest.
        growth: of the number of outcomes after which a new one is grown, at least 1.
        rng: seeds the forests.
    """

    def __init__(self, trees: int, growth: float, rng: np.random.Generator) -> None:
        self._trees = trees
        self._growth = growth
        self._rng = rng
        self._forest: RandomForestClassifier | None = None
        self._grown_to = 0
        self._known = 0

    @property
    def known(self) -> int:
        """Number of outcomes taken in."""
        return self._known

    @property
    def is_grown(self) -> bool:
        """Whether both configurations that ran and ones that failed are known."""
        return self._forest is not None

    def learn(self, coordinates: Array, ran: NDArray[np.bool_]) -> bool:
        """Take in all outcomes, those known before first and in the same order; return whether it changed.

        Args:
            coordinates: of what was evaluated, shape ``(n, n_coordinates)``.
            ran: whether it did, shape ``(n,)``.
        """
        new = slice(self._known, len(ran))
        self._known = len(ran)
        if new.start == new.stop or ran.all() or not ran.any():
            return False
        due = self._forest is None or len(ran) >= self._growth * self._grown_to
        if not due:
            probability = self.probability(coordinates[new])
            if np.where(ran[new], probability > _LIKELY, probability <= _UNLIKELY).all():
                return False
        self._grow(coordinates, ran)
        return True

    def probability(self, coordinates: Array) -> Array:
        """Return the probability to run, shape ``(n,)``; 1 while the forest is not grown."""
        if self._forest is None:
            return np.ones(len(coordinates))
        # The forest's own predict_proba checks everything again for every tree, which takes ten times as long.
        rows = coordinates.astype(np.float32)
        shares = np.zeros((len(rows), 2))
        for tree in self._forest.estimators_:
            leaves = tree.tree_.predict(rows)
            shares += leaves / leaves.sum(axis=1, keepdims=True)
        return np.asarray(shares[:, 1] / self._trees)

    def _grow(self, coordinates: Array, ran: NDArray[np.bool_]) -> None:
        # Takes a second to import, which a program that never meets a failure need not spend.
        from sklearn.ensemble import RandomForestClassifier

        self._forest = RandomForestClassifier(
            n_estimators=self._trees,
            max_features=_MAX_FEATURES,
            bootstrap=False,
            class_weight={False: _FAILED, True: _RAN},
            random_state=int(self._rng.integers(2**31)),
            n_jobs=1,
        )
        self._forest.fit(coordinates, ran)
        self._grown_to = len(ran)


def least_probability(limit: float, levels: int, rng: np.random.Generator) -> float:
    """Return epsilon_f, below which a configuration is not considered: drawn from 0, ..., limit in equal steps.

    It is 0 with a probability of 1 / levels, so that nothing is ruled out for ever.
    """
    return limit * int(rng.integers(levels)) / max(levels - 1, 1)
