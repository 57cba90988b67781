"""A multi-task Gaussian process of the kind GPTune has, as a strategy that starts from earlier runs.

GPTune (Liu et al., PPoPP 2021) models tasks jointly by a linear model of coregionalisation: the covariance of
configurations x of task s and y of task t is ``B[s, t] k(x, y)``, summed over latent functions, and proposes by
expected improvement. This is a small implementation of our own with one latent function (an intrinsic coregionalisation
model), ``B = w w' + diag(kappa)`` and a Matérn 5/2 ``k`` with a length scale for each feature, fitted at the maximum
of their posterior whenever there are a quarter more observations. Of each source it has the fastest 30 trials and 50 of
the others: its cost grows with the cube of all tasks' trials. It is given the features and the transform of time of
mptune's strategy, and the same expected improvement; a configuration that failed counts as the slowest that ran.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError
from scipy.optimize import Bounds, minimize

from mptune.results.trial import Trial
from mptune.space.search_space import SearchSpace
from mptune.strategies.base import Source
from mptune.strategies.model_based.acquisition import log_expected_improvement
from mptune.strategies.model_based.coordinates import features
from mptune.strategies.model_based.gaussian_process import cholesky, matern52

__all__ = ["Coregional"]

Array = NDArray[np.float64]

_FASTEST, _OTHERS = 30, 50
_BEND: Final = 0.2
_GROWTH: Final = 1.25
_ITERATIONS: Final = 25
_BLOCK: Final = 2048


def _transformed(times: Array) -> Array:
    """Return transformed times, those that are not known as slow as the slowest; ``(n,)``."""
    if np.isnan(times).all():
        return np.zeros(len(times))
    z = np.log1p((np.log(times) - np.log(np.nanmin(times))) / _BEND)
    return np.asarray(np.where(np.isnan(z), np.nanmax(z), z))


def _squared(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    squared = a @ (-2.0 * b.T)
    squared += np.square(a).sum(axis=1)[:, None]
    squared += np.square(b).sum(axis=1)[None, :]
    return np.asarray(np.maximum(squared, 0.0))


class Coregional:
    """Proposes indices of a space, one after the other."""

    def __init__(self, space: SearchSpace, sources: Sequence[Source], seed: int) -> None:
        rng = np.random.default_rng(seed)
        coordinates = features(space)
        self._candidates = coordinates.at(space.codes(np.arange(space.size)))
        self._free = np.ones(space.size, dtype=np.bool_)
        at, tasks, values = [], [], []
        for task, source in enumerate(sources):
            found = {space.index(trial.configuration): trial.time_ms for trial in source.trials}
            indices = np.array([index for index in found if index is not None], dtype=np.int64)
            times = np.array([found[index] for index in indices.tolist()])
            ranked = np.argsort(times, kind="stable")
            kept = np.concatenate([ranked[:_FASTEST], rng.permutation(ranked[_FASTEST:])[:_OTHERS]])
            at.append(indices[kept])
            tasks.append(np.full(len(kept), task))
            values.append(_transformed(times)[kept])
        self._known = np.concatenate(at)
        self._tasks, self._values = np.concatenate(tasks), np.concatenate(values)
        self._count = len(sources) + 1
        self._told: list[tuple[int, float]] = []
        k = coordinates.count
        # Logarithms of length scales, then weights w, logarithms of kappa and of the noise.
        self._centre = np.array(
            [0.5 * math.log(k) - 0.3] * k + [1.0] * self._count + [math.log(0.3)] * self._count + [math.log(0.1)]
        )
        self._unit = np.array([0.6] * k + [0.5] * self._count + [0.7] * self._count + [1.0])
        self._vector = self._centre.copy()
        self._fitted_to = 0

    def ask(self) -> int:
        """Return the configuration of the largest expected improvement; without trials, that of the least mean."""
        x, tasks, values = self._observations()
        centre, scale = float(values.mean()), max(float(values.std()), 1e-6)
        z = (values - centre) / scale
        if len(values) >= self._fitted_to * _GROWTH or len(self._told) <= 8:
            self._vector = self._fitted(x, tasks, z)
            self._fitted_to = len(values)
        mean, deviation = self._predict(x, tasks, z)
        if self._told:
            best = (0.0 - centre) / scale
            value = log_expected_improvement(mean, deviation, best)
        else:
            value = -mean
        index = int(np.where(self._free, value, -np.inf).argmax())
        self._free[index] = False
        return index

    def tell(self, index: int, trial: Trial) -> None:
        """Learn a trial."""
        self._told.append((index, trial.time_ms if trial.is_valid else math.nan))

    def _observations(self) -> tuple[Array, NDArray[np.int64], Array]:
        told = np.array([index for index, _ in self._told], dtype=np.int64)
        times = np.array([time for _, time in self._told])
        x = self._candidates[np.concatenate([self._known, told])]
        tasks = np.concatenate([self._tasks, np.full(len(told), self._count - 1)])
        return x, tasks, np.concatenate([self._values, _transformed(times)]) if len(told) else self._values

    def _parts(self, vector: Array) -> tuple[Array, Array, Array, float]:
        """Return inverse length scales, w, kappa and the noise's variance."""
        k = self._candidates.shape[1]
        w = vector[k : k + self._count]
        return np.exp(-vector[:k]), w, np.exp(vector[k + self._count : -1]), math.exp(2.0 * vector[-1])

    def _fitted(self, x: Array, tasks: NDArray[np.int64], z: Array) -> Array:
        """Return the vector of the largest posterior that L-BFGS-B finds from the last one."""
        unit, low, high = self._unit, self._centre - 3.0 * self._unit, self._centre + 3.0 * self._unit

        def loss(scaled: Array) -> tuple[float, Array]:
            value, gradient = self._log_posterior(scaled * unit, x, tasks, z)
            return (-value, -unit * gradient) if math.isfinite(value) else (1e100, np.zeros_like(scaled))

        iterations = _ITERATIONS if len(self._told) in (0, 4, 8) or len(self._told) > 8 else 5
        start = np.clip(self._vector, low, high) / unit
        found = minimize(
            loss,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(low / unit, high / unit),
            options={"maxiter": iterations, "gtol": 1e-3, "ftol": 1e-7},
        )
        return np.asarray(found.x * unit)

    def _log_posterior(
        self, vector: Array, x: Array, tasks: NDArray[np.int64], z: Array
    ) -> tuple[float, NDArray[np.float64]]:
        inverse_lengths, w, kappa, noise2 = self._parts(vector)
        scaled = x * inverse_lengths
        squared = _squared(scaled, scaled)
        np.fill_diagonal(squared, 0.0)
        r = np.sqrt(5.0 * squared)
        correlation = matern52(squared)
        between = (np.outer(w, w) + np.diag(kappa))[tasks[:, None], tasks[None, :]]
        covariance = between * correlation
        covariance.flat[:: len(z) + 1] += noise2 + 1e-8
        try:
            lower, inverse = cholesky(covariance)
        except LinAlgError:
            return -math.inf, np.zeros_like(vector)
        whitened = np.einsum("ij,j->i", inverse, z)
        alpha = np.einsum("ij,i->j", inverse, whitened)
        far = (vector - self._centre) / self._unit
        value = -0.5 * float((whitened**2).sum()) - float(np.log(np.diag(lower)).sum()) - 0.5 * float((far**2).sum())
        sensitivity = np.outer(alpha, alpha) - inverse.T @ inverse
        k = x.shape[1]
        gradient = np.empty_like(vector)
        weights = sensitivity * between * (5.0 / 3.0) * (1.0 + r) * np.exp(-r)
        gradient[:k] = (scaled * scaled * weights.sum(axis=1)[:, None] - scaled * (weights @ scaled)).sum(axis=0)
        member = (tasks[:, None] == np.arange(self._count)).astype(np.float64)
        of_tasks = 0.5 * member.T @ (sensitivity * correlation) @ member
        gradient[k : k + self._count] = 2.0 * (of_tasks * w).sum(axis=1)
        gradient[k + self._count : -1] = np.diag(of_tasks) * kappa
        gradient[-1] = noise2 * np.trace(sensitivity)
        return value, gradient - far / self._unit

    def _predict(self, x: Array, tasks: NDArray[np.int64], z: Array) -> tuple[Array, Array]:
        inverse_lengths, w, kappa, noise2 = self._parts(self._vector)
        b = np.outer(w, w) + np.diag(kappa)
        scaled = x * inverse_lengths
        covariance = b[tasks[:, None], tasks[None, :]] * matern52(_squared(scaled, scaled))
        covariance.flat[:: len(z) + 1] += noise2 + 1e-6
        _, inverse = cholesky(covariance)
        alpha = np.einsum("ij,i->j", inverse, np.einsum("ij,j->i", inverse, z))
        own = self._count - 1
        factor, at = inverse.astype(np.float32), scaled.astype(np.float32)
        mean, variance = np.empty(len(self._candidates)), np.empty(len(self._candidates))
        for start in range(0, len(mean), _BLOCK):
            block = slice(start, start + _BLOCK)
            rows = matern52(_squared(at, (self._candidates[block] * inverse_lengths).astype(np.float32)))
            rows *= b[own, tasks][:, None].astype(np.float32)
            mean[block] = np.einsum("i,ij->j", alpha.astype(np.float32), rows)
            variance[block] = b[own, own] - np.square(factor @ rows).sum(axis=0)
        return mean, np.sqrt(np.maximum(variance, 1e-6))
