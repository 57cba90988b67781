from __future__ import annotations

import numpy as np
import pytest

from mptune.strategies.model_based.feasibility import FeasibilityForest, ValidityModel, least_probability


def _runs(x: np.ndarray) -> np.ndarray:
    return np.asarray(x[:, 0] + x[:, 1] < 1.2)


def _points(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 3))


def test_learns_a_constraint_that_only_shows_as_failures() -> None:
    x, other = _points(80), _points(400, seed=1)
    forest = FeasibilityForest(50, 1.25, np.random.default_rng(0))
    assert forest.learn(x, _runs(x))
    assert forest.is_grown
    assert forest.known == 80
    np.testing.assert_array_equal(forest.probability(x) > 0.5, _runs(x))
    probability = forest.probability(other)
    assert ((probability >= 0.0) & (probability <= 1.0)).all()
    assert ((probability > 0.5) == _runs(other)).mean() > 0.85


@pytest.mark.parametrize("ran", [True, False])
def test_everything_may_run_while_there_is_nothing_to_tell_apart(ran: bool) -> None:
    forest = FeasibilityForest(5, 1.25, np.random.default_rng(0))
    assert not forest.learn(_points(9), np.full(9, ran))
    assert not forest.is_grown
    np.testing.assert_array_equal(forest.probability(_points(4)), 1.0)


def test_grows_anew_when_it_was_wrong_or_there_is_much_more_to_know() -> None:
    x = np.linspace(0.0, 1.0, 40)[:, None]
    ran = x[:, 0] < 0.5
    forest = FeasibilityForest(10, 2.0, np.random.default_rng(0))
    order = [0, 39, 1, 38, 19, 20]
    assert forest.learn(x[order], ran[order])
    as_expected = [*order, 2, 37]
    assert not forest.learn(x[as_expected], ran[as_expected])
    surprise = [*as_expected, 30]
    told = np.append(ran[as_expected], True)
    assert forest.learn(x[surprise], told)
    assert forest.probability(x[[30]])[0] > 0.5
    assert not forest.learn(x[surprise], told)
    many = [*surprise, *range(3, 19)]
    assert forest.learn(x[many], np.append(told, np.ones(16, dtype=bool)))


@pytest.mark.parametrize(
    ("probability", "ran", "grows"), [(0.6, True, False), (0.4, True, True), (0.3, False, True), (0.05, False, False)]
)
def test_what_might_have_run_and_failed_is_learnt(
    probability: float, ran: bool, grows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = _points(41)
    told = np.append(_runs(x[:40]), ran)
    forest = FeasibilityForest(3, 2.0, np.random.default_rng(0))
    forest.learn(x[:40], told[:40])
    monkeypatch.setattr(forest, "probability", lambda rows: np.full(len(rows), probability))
    assert forest.learn(x, told) is grows


def test_the_least_probability_is_drawn_from_equal_steps() -> None:
    rng = np.random.default_rng(0)
    drawn = np.array([least_probability(0.1, 11, rng) for _ in range(4000)])
    np.testing.assert_allclose(np.unique(drawn), np.linspace(0.0, 0.1, 11))
    assert (drawn == 0.0).mean() == pytest.approx(1 / 11, abs=0.02)
    assert {least_probability(0.5, 1, rng) for _ in range(9)} == {0.0}


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
