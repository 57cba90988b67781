from __future__ import annotations

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from mptune.strategies.bayesian_baco import Forest


def _points(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 3))


def test_mean_and_deviation_are_those_of_the_trees() -> None:
    x, other = _points(40), _points(30, seed=1)
    y = x[:, 0] + x[:, 1] ** 2
    forest = Forest(10, np.random.default_rng(7), x, y, bootstrap=True)
    seed = int(np.random.default_rng(7).integers(2**31))
    reference = RandomForestRegressor(10, max_features=0.75, random_state=seed).fit(x, y)
    trees = np.array([tree.predict(other.astype(np.float32)) for tree in reference.estimators_])
    mean, deviation = forest.predict(other)
    np.testing.assert_allclose(mean, trees.mean(axis=0))
    np.testing.assert_allclose(deviation, trees.std(axis=0), atol=1e-7)


def test_learns_a_constraint_that_only_shows_as_failures() -> None:
    x, other = _points(80), _points(400, seed=1)
    runs, others_run = x[:, 0] + x[:, 1] < 1.2, other[:, 0] + other[:, 1] < 1.2
    forest = Forest(50, np.random.default_rng(0), x, runs, bootstrap=False, weights=np.where(runs, 0.8, 0.2))
    np.testing.assert_array_equal(forest.predict(x)[0] > 0.5, runs)
    probability, _ = forest.predict(other)
    assert ((probability >= 0.0) & (probability <= 1.0)).all()
    assert ((probability > 0.5) == others_run).mean() > 0.85
