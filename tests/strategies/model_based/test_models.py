from __future__ import annotations

import numpy as np
import pytest

from mptune.strategies.model_based.models import Outcome, Scale, Validity
from mptune.strategies.model_based.strategy import Candidates


def _runs(x: np.ndarray) -> np.ndarray:
    return np.asarray(x[:, 0] + x[:, 1] < 1.2)


def _model(n_features: int) -> Validity:
    return Validity(n_features, iterations=30, max_observations=800, rng=np.random.default_rng(0))


def _candidates(x: np.ndarray) -> Candidates:
    return Candidates(np.arange(len(x)), np.zeros((len(x), 1), dtype=np.int32), x, True)


def _outcomes(x: np.ndarray, failed: np.ndarray) -> list[Outcome]:
    code = np.zeros(1, dtype=np.int32)
    return [Outcome(row, code, np.zeros(1), bool(fails), not fails) for row, fails in zip(x, failed, strict=True)]


def test_a_constraint_is_learned_that_only_shows_as_failures() -> None:
    rng = np.random.default_rng(0)
    x, other = rng.random((60, 3)), rng.random((400, 3))
    model = _model(3)
    model.fit(_candidates(other), _outcomes(x, ~_runs(x)))
    probability = np.exp(model.log_probability())
    assert ((probability > 0.5) == _runs(other)).mean() > 0.9
    np.testing.assert_allclose(model.log_probability_at(other), model.log_probability(), rtol=1e-2, atol=1e-3)


def test_a_configuration_far_from_a_failure_counts_as_valid() -> None:
    model = _model(1)
    model.fit(_candidates(np.array([[0.0], [0.05], [1.0]])), _outcomes(np.array([[0.0], [0.5]]), np.array([1, 0])))
    probability = np.exp(model.log_probability())
    assert probability[0] < 0.2
    assert probability[0] < probability[1] < probability[2]
    assert probability[2] > 0.8


def test_all_failing_is_finite() -> None:
    x = np.random.default_rng(0).random((41, 2))
    model = _model(2)
    model.fit(_candidates(x), _outcomes(x[:40], np.ones(40)))
    model.extend(_outcomes(x[40:], np.ones(1)))
    assert np.isfinite(model.log_probability()).all()


def test_values_are_standardised_in_order() -> None:
    values = np.log(np.random.default_rng(0).lognormal(size=50))
    for warp in (0.0, 1.0, 5.0):
        z = Scale.of(values, warp).apply(values)
        assert z.mean() == pytest.approx(0.0, abs=1e-12)
        assert z.std() == pytest.approx(1.0)
        assert (np.argsort(z) == np.argsort(values)).all()


@pytest.mark.parametrize("values", [[3.0], [2.0, 2.0, 2.0], [-709.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 700.0]])
def test_awkward_values_stay_finite(values: list[float]) -> None:
    z = Scale.of(np.array(values), 1.0).apply(np.array([*values, 5.0]))
    assert np.isfinite(z).all()
