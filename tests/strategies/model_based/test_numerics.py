from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import LinAlgError
from threadpoolctl import threadpool_info, threadpool_limits

from mptune.strategies.model_based.numerics import cholesky, maximise, single_threaded


@pytest.mark.parametrize("n", [1, 2, 65])
def test_cholesky_factor_and_its_inverse(n: int) -> None:
    a = np.random.default_rng(n).normal(size=(n, n))
    matrix = a @ a.T + n * np.eye(n)
    lower, inverse = cholesky(matrix)
    np.testing.assert_allclose(lower, np.linalg.cholesky(matrix), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(inverse @ lower, np.eye(n), atol=1e-10)
    assert not np.triu(inverse, 1).any()


def test_a_matrix_without_a_factor_is_refused() -> None:
    with pytest.raises(LinAlgError, match="not positive definite"):
        cholesky(np.diag([1.0, -1.0]))


def _maximum(function: object, start: list[float], limit: float = 5.0) -> np.ndarray:
    bounds = np.full(len(start), limit)
    return maximise(
        function,  # type: ignore[arg-type]
        [np.array(start)],
        low=-bounds,
        high=bounds,
        unit=np.full(len(start), 0.5),
        max_iterations=100,
    )


def test_stays_within_the_bounds() -> None:
    found = _maximum(lambda x: (-float(((x - 9.0) ** 2).sum()), -2.0 * (x - 9.0)), [0.0, 77.0], limit=3.0)
    np.testing.assert_allclose(found, [3.0, 3.0])


def test_steps_back_from_infinite_values() -> None:
    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        if x[0] <= 0:
            return -math.inf, np.zeros(1)
        return float(math.log(x[0]) - x[0]), np.array([1.0 / x[0] - 1.0])

    assert _maximum(value, [4.0])[0] == pytest.approx(1.0, abs=1e-2)


def _threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_linear_algebra_has_one_thread_until_the_limit_ends() -> None:
    with threadpool_limits(2, user_api="blas"):
        before = _threads()
        with single_threaded(), single_threaded():
            assert set(_threads()) == {1}
        assert _threads() == before
