from __future__ import annotations

import numpy as np

from mptune.strategies.model_based.feasibility import ValidityModel


def _runs(x: np.ndarray) -> np.ndarray:
    return np.asarray(x[:, 0] + x[:, 1] < 1.2)


def test_a_process_learns_a_constraint_that_only_shows_as_failures() -> None:
    rng = np.random.default_rng(0)
    x, other = rng.random((60, 3)), rng.random((400, 3))
    model = ValidityModel(3, 30)
    model.fit(x, ~_runs(x), other)
    probability = np.exp(model.log_probability())
    right = (probability > 0.5) == _runs(other)
    assert right.mean() > 0.9
    np.testing.assert_allclose(model.log_probability_at(other), model.log_probability(), rtol=1e-2, atol=1e-3)


def test_nothing_is_ruled_out_while_nothing_failed() -> None:
    rng = np.random.default_rng(0)
    model = ValidityModel(2, 30)
    model.fit(rng.random((5, 2)), np.zeros(5, dtype=bool), rng.random((4, 2)))
    assert not model.is_fitted
    assert model.log_probability() == 0.0
    assert model.log_probability_at(rng.random((4, 2))) == 0.0


def test_what_is_far_from_a_failure_counts_as_valid() -> None:
    model = ValidityModel(1, 30)
    candidates = np.array([[0.0], [0.05], [1.0]])
    model.fit(np.array([[0.0], [0.5]]), np.array([True, False]), candidates)
    probability = np.exp(model.log_probability())
    assert probability[0] < 0.2
    assert probability[0] < probability[1] < probability[2]
    assert probability[2] > 0.8


def test_all_failing_is_finite() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((40, 2))
    model = ValidityModel(2, 30)
    model.fit(x, np.ones(40, dtype=bool), x)
    model.append(rng.random(2), True)
    assert np.isfinite(model.log_probability()).all()
