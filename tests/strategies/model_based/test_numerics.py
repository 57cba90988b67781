from __future__ import annotations

import math

import numpy as np
import pytest

from mptune.strategies.model_based.numerics import NotPositiveDefinite, cholesky, lower_gram, minimise, product

SIZES = [1, 2, 63, 64, 65, 128, 200]


def _positive_definite(n: int, rng: np.random.Generator) -> np.ndarray:
    a = rng.normal(size=(n, n))
    return a @ a.T + n * np.eye(n)


@pytest.mark.parametrize("n", SIZES)
def test_cholesky_factor_and_its_inverse(n: int) -> None:
    matrix = _positive_definite(n, np.random.default_rng(n))
    upper_half_ruined = np.where(np.triu(np.ones((n, n)), 1) > 0, np.nan, matrix)
    lower, inverse = cholesky(upper_half_ruined)
    np.testing.assert_allclose(lower, np.linalg.cholesky(matrix), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(inverse @ lower, np.eye(n), atol=1e-10)
    assert not np.triu(lower, 1).any()
    assert not np.triu(inverse, 1).any()
    np.testing.assert_allclose(lower_gram(inverse) @ matrix, np.eye(n), atol=1e-9)


@pytest.mark.parametrize("n", [3, 70])
def test_a_matrix_without_a_factor_is_refused(n: int) -> None:
    matrix = np.eye(n)
    matrix[-1, -1] = -1.0
    with pytest.raises(NotPositiveDefinite):
        cholesky(matrix)


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 1, 1), (0, 3, 5), (3, 0, 5), (5, 3, 0), (64, 64, 64), (65, 7, 4111), (200, 129, 333), (1, 300, 70)],
)
def test_product(m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(m + k + n)
    a, b = rng.normal(size=(m, k)), rng.normal(size=(k, n))
    np.testing.assert_allclose(product(a, b), a @ b, rtol=1e-12, atol=1e-11)
    transposed = np.asfortranarray(b)
    np.testing.assert_allclose(product(a, transposed), a @ b, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("n", [5, 64, 150])
def test_product_of_a_triangle(n: int) -> None:
    rng = np.random.default_rng(n)
    a = np.tril(rng.normal(size=(n, n)))
    b = rng.normal(size=(n, 77))
    np.testing.assert_allclose(product(a, b, triangular=True), a @ b, rtol=1e-12, atol=1e-11)
    assert product(a.astype(np.float32), b.astype(np.float32)).dtype == np.float32


def _rosenbrock(x: np.ndarray) -> tuple[float, np.ndarray]:
    value = 100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2
    return float(value), np.array([-400.0 * x[0] * (x[1] - x[0] ** 2) - 2.0 * (1.0 - x[0]), 200.0 * (x[1] - x[0] ** 2)])


def test_finds_the_bottom_of_a_curved_valley() -> None:
    x, value = minimise(_rosenbrock, np.array([-1.2, 1.0]), bound=5.0, max_iterations=200)
    np.testing.assert_allclose(x, [1.0, 1.0], atol=1e-2)
    assert value == _rosenbrock(x)[0]


@pytest.mark.parametrize("seed", range(5))
def test_solves_badly_scaled_quadratics(seed: int) -> None:
    rng = np.random.default_rng(seed)
    directions, _ = np.linalg.qr(rng.normal(size=(8, 8)))
    curvature = directions @ np.diag(np.geomspace(0.1, 1e3, 8)) @ directions.T
    target = rng.uniform(-2.0, 2.0, 8)

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        return float((x - target) @ curvature @ (x - target)), 2.0 * curvature @ (x - target)

    x, _ = minimise(loss, np.zeros(8), bound=5.0, max_iterations=300)
    np.testing.assert_allclose(x, target, atol=0.05)


def test_stays_within_the_bound() -> None:
    x, _ = minimise(
        lambda x: (float(((x - 9.0) ** 2).sum()), 2.0 * (x - 9.0)), np.array([0.0, 77.0]), bound=3.0, max_iterations=50
    )
    np.testing.assert_allclose(x, [3.0, 3.0])


def test_steps_back_from_infinite_values() -> None:
    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        if x[0] <= 0:
            return math.inf, np.zeros(1)
        return float(x[0] - math.log(x[0])), np.array([1.0 - 1.0 / x[0]])

    x, value = minimise(loss, np.array([4.0]), bound=5.0, max_iterations=100)
    assert x[0] == pytest.approx(1.0, abs=1e-2)
    assert value == pytest.approx(1.0, abs=1e-3)
