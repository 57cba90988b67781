"""Gaussian-process regression: a length scale per feature, fitted under priors.

Formulas: Rasmussen and Williams, Gaussian Processes for Machine Learning, algorithm 2.1 (regression), eq. 4.17
(Matérn) and eq. 5.9 (gradient of the marginal likelihood). Hyperparameters are the maximum of the posterior, as in
Hellsten 2023, Sec. 4.2: a length scale that the data do not determine stays where the prior has it.
"""

from __future__ import annotations

import contextlib
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, lapack
from threadpoolctl import ThreadpoolController

from mptune.strategies.base import Array

#: Returns correlations from squared scaled distances, in their shape.
Kernel = Callable[[NDArray[Any]], NDArray[Any]]

#: Added to the variance of every observation while fitting, relative to the signal's, so that factors exist.
_JITTER: Final = 1e-8
#: Candidates whose covariances are computed at once; a block stays in the cache.
_BLOCK: Final = 2048
#: Hyperparameters stay within this many prior deviations of the prior's centre.
_MOST_DEVIATIONS: Final = 5.0
#: Stands for an infinite loss, which the line search cannot interpolate.
_WORST: Final = 1e10
#: Overlapping limits of two threads would not restore the earlier number of threads.
_LOCK: Final = threading.RLock()


@contextlib.contextmanager
def single_threaded() -> Iterator[None]:
    """Run linear algebra in one thread.

    Matrices of a few hundred rows gain nothing from several threads, which wait for each other on a busy machine. The
    rounding, and with it the sequence of a seed, would depend on their number.
    """
    with _LOCK, _libraries().limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries() -> ThreadpoolController:
    """Return the loaded libraries; finding them takes too long to repeat for every proposal."""
    return ThreadpoolController()


def cholesky(matrix: Array) -> tuple[Array, Array]:
    """Return the lower Cholesky factor of a symmetric matrix, and its inverse, both ``(n, n)``."""
    lower, failed = lapack.dpotrf(matrix, lower=1, clean=1)
    if failed:
        raise LinAlgError("the matrix is not positive definite")
    return lower, lapack.dtrtri(lower, lower=1)[0]


# -- hyperparameters ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Length scales ``(n_lengths,)``, and standard deviations of the function and of an observation's noise."""

    lengths: Array
    signal: float
    noise: float

    def to_vector(self) -> Array:
        """Return the natural logarithms: length scales, signal, noise; shape ``(n_lengths + 2,)``."""
        return np.asarray(np.log(np.concatenate([self.lengths, [self.signal, self.noise]])))

    @classmethod
    def from_vector(cls, vector: Array) -> Hyperparameters:
        """Return the inverse of :meth:`to_vector`."""
        values = np.exp(vector)
        return cls(values[:-2], float(values[-2]), float(values[-1]))


class Prior(ABC):
    """A prior of the logarithms of hyperparameters, ordered as in :meth:`Hyperparameters.to_vector`.

    Attributes:
        low: lower bounds, shape ``(n_lengths + 2,)``.
        high: upper bounds.
        unit: scale of each variable.
        owners: the position of each feature's length scale, shape ``(n_features,)``.
    """

    low: Array
    high: Array
    unit: Array
    owners: NDArray[np.int64]

    @abstractmethod
    def log_density(self, vector: Array) -> tuple[float, Array]:
        """Return the log density up to a constant, and its gradient."""


class LogNormalPrior(Prior):
    """Independent normal priors of the logarithms, for features in [0, 1] and a standardised function.

    The centre of the length scales, exp(log_length) for one feature, grows with the square root of their number, as
    distances do. So points a typical distance apart keep the same correlation in any number of dimensions.
    """

    def __init__(
        self,
        n_features: int,
        *,
        log_length: float = -0.3,
        length_spread: float = 0.6,
        signal: float = 1.0,
        noise: float = 0.03,
        noise_spread: float = 1.0,
    ) -> None:
        length = 0.5 * math.log(max(n_features, 1)) + log_length
        self.means = np.array([length] * n_features + [math.log(signal), math.log(noise)])
        self.unit = np.array([length_spread] * n_features + [0.7, noise_spread])
        self.low, self.high = self.means - _MOST_DEVIATIONS * self.unit, self.means + _MOST_DEVIATIONS * self.unit
        self.owners = np.arange(n_features)
        self.centre = Hyperparameters.from_vector(self.means)

    def log_density(self, vector: Array) -> tuple[float, Array]:
        """Return the log density up to a constant, and its gradient."""
        z = (vector - self.means) / self.unit
        return -0.5 * float(z @ z), -z / self.unit


def log_posterior(vector: Array, x: Array, y: Array, prior: Prior) -> tuple[float, Array]:
    """Return the log marginal likelihood of a Matérn 5/2 process plus log prior (up to a constant) and its gradient.

    Logarithms of the hyperparameters ``(n_lengths + 2,)``, features ``(n, n_features)``, and observations with a mean
    near zero ``(n,)``. The value is ``-inf`` where the covariance is not positive definite.
    """
    n, signal2, noise2 = len(x), math.exp(2.0 * vector[-2]), math.exp(2.0 * vector[-1])
    scaled = x * np.exp(-vector[prior.owners])
    squared = _squared_distances(scaled, scaled)
    np.fill_diagonal(squared, 0.0)
    r = np.sqrt(5.0 * squared)
    decay = signal2 * np.exp(-r)
    slope = (1.0 + r) * decay
    signal = slope + decay * (r * r / 3.0)
    covariance = signal.copy()
    covariance.flat[:: n + 1] += noise2 + _JITTER * signal2
    try:
        lower, inverse_lower = cholesky(covariance)
    except LinAlgError:
        return -math.inf, np.zeros_like(vector)
    whitened = inverse_lower @ y
    alpha = whitened @ inverse_lower
    density, gradient = prior.log_density(vector)
    value = density - 0.5 * float(whitened @ whitened) - float(np.log(np.diag(lower)).sum())

    sensitivity = np.outer(alpha, alpha) - inverse_lower.T @ inverse_lower
    weights = sensitivity * slope * (5.0 / 3.0)
    of_features = (scaled * scaled * weights.sum(axis=1)[:, None] - scaled * (weights @ scaled)).sum(axis=0)
    gradient[:-2] += np.bincount(prior.owners, of_features, minlength=len(vector) - 2)
    gradient[-2] += (sensitivity * signal).sum() + _JITTER * signal2 * np.trace(sensitivity)
    gradient[-1] += noise2 * np.trace(sensitivity)
    return value, gradient


def fit(x: Array, y: Array, prior: Prior, starts: Iterable[Hyperparameters], max_iterations: int) -> Hyperparameters:
    """Return the hyperparameters of the largest posterior that L-BFGS-B finds from the starting points, at least one.

    Features and observations as for :func:`log_posterior`, with a deviation near one. Fewer than two observations
    leave the first starting point.
    """
    from scipy.optimize import Bounds, minimize  # takes half a second, which making a strategy need not spend

    starts = list(starts)
    if len(x) < 2:
        return starts[0]
    low, high, unit = prior.low, prior.high, prior.unit

    def loss(z: Array) -> tuple[float, Array]:
        value, gradient = log_posterior(z * unit, x, y, prior)
        return (-value, -unit * gradient) if math.isfinite(value) else (_WORST, np.zeros_like(z))

    found = [
        minimize(
            loss,
            np.clip(start.to_vector(), low, high) / unit,
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(low / unit, high / unit),
            options={"maxiter": max_iterations, "gtol": 1e-3, "ftol": 1e-7},
        )
        for start in starts
    ]
    return Hyperparameters.from_vector(min(found, key=lambda result: float(result.fun)).x * unit)


# -- regression --------------------------------------------------------------------------------


def matern52(squared: NDArray[Any]) -> NDArray[Any]:
    """Return the Matérn 5/2 correlation of squared scaled distances."""
    r = np.sqrt(5.0 * squared)
    return np.asarray((1.0 + r + r * r / 3.0) * np.exp(-r))


def _matern32(squared: NDArray[Any]) -> NDArray[Any]:
    r = np.sqrt(3.0 * squared)
    return np.asarray((1.0 + r) * np.exp(-r))


#: Correlations by name.
KERNELS: Final[Mapping[str, Kernel]] = MappingProxyType(
    {"matern32": _matern32, "matern52": matern52, "rbf": lambda squared: np.exp(-0.5 * squared)}
)


def _squared_distances(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return squared Euclidean distances, shape ``(len(a), len(b))``."""
    with np.errstate(invalid="ignore"):  # OpenBLAS may set the flag for lanes of a vector behind the data
        squared = a @ (-2.0 * b.T)
    squared += np.einsum("ij,ij->i", a, a)[:, None]
    squared += np.einsum("ij,ij->i", b, b)[None, :]
    return np.asarray(np.maximum(squared, 0.0, out=squared))


class Posterior:
    """The posterior of observations, at fixed candidates and anywhere else; observations can be added one by one.

    With the factor L of the observations' covariance, row i of ``V = L^-1 K(observations, candidates)`` depends on
    the first i observations alone. So an observation adds one row to L^-1 and V and takes time proportional to
    observations times candidates. Imagined observations, of configurations whose trials are pending, come last and
    are removed without cost.

    Args:
        hyperparameters: one length scale for each feature.
        candidates: features, shape ``(n_candidates, n_features)``.
        x: features of the first observations, shape ``(n, n_features)``.
        y: their values, shape ``(n,)``.
        kernel: correlations by squared scaled distances.
        dtype: of V. Double precision resolves less noise, in twice the time.
    """

    def __init__(
        self,
        hyperparameters: Hyperparameters,
        candidates: Array,
        x: Array,
        y: Array,
        kernel: Kernel = matern52,
        dtype: type[np.floating[Any]] = np.float32,
    ) -> None:
        # The smallest pivots and variances distinguished from rounding, relative to the signal's variance.
        self._jitter, least_variance = (_JITTER, 1e-7) if dtype is np.float32 else (1e-10, 1e-12)
        self._signal2 = hyperparameters.signal**2
        self._least_variance = least_variance * self._signal2
        self._diagonal = self._signal2 + max(hyperparameters.noise**2, self._jitter * self._signal2)
        self._inverse_lengths = 1.0 / hyperparameters.lengths
        self._kernel = kernel
        self._scaled: NDArray[Any] = (candidates * self._inverse_lengths).astype(dtype)
        self._variance = np.full(len(candidates), self._signal2)
        self._n, self._n_imagined = len(y), 0
        room = len(y) + len(y) // 2 + 16
        self._x = np.zeros((room, candidates.shape[1]))
        self._inverse = np.zeros((room, room))
        self._whitened = np.zeros(room)
        self._rows: NDArray[Any] = np.zeros((room, len(candidates)), dtype=dtype)
        if n := len(y):
            scaled = x * self._inverse_lengths
            covariance = self._covariances(scaled, scaled)
            covariance.flat[:: n + 1] = self._diagonal
            _, inverse = cholesky(covariance)
            self._x[:n], self._inverse[:n, :n] = scaled, inverse
            factor, at = inverse.astype(dtype), scaled.astype(dtype)
            for start in range(0, len(candidates), _BLOCK):
                block = slice(start, start + _BLOCK)
                self._rows[:n, block] = rows = factor @ self._covariances(at, self._scaled[block])
                self._variance[block] = self._signal2 - np.einsum("ij,ij->j", rows, rows)
        self.revalue(y)

    def __len__(self) -> int:
        """Number of observations, without imagined ones."""
        return self._n - self._n_imagined

    @property
    def deviation(self) -> Array:
        """Posterior standard deviation of the function (without noise), shape ``(n_candidates,)``."""
        return self._deviation(self._variance)

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation at other points, features ``(m, n_features)``."""
        n = self._n
        rows = self._inverse[:n, :n] @ self._covariances(self._x[:n], x * self._inverse_lengths)
        return self._whitened[:n] @ rows, self._deviation(self._signal2 - np.einsum("ij,ij->j", rows, rows))

    def predict_mean(self, x: Array) -> Array:
        """Return the mean alone, in single precision and a fraction of the time."""
        known, at = (each.astype(np.float32) for each in (self._x[: self._n], x * self._inverse_lengths))
        return np.asarray(self._covariances(at, known) @ self._solved().astype(np.float32), dtype=np.float64)

    def append(self, x: Array, y: float) -> None:
        """Add one observation: features ``(n_features,)`` and its value; imagined ones are forgotten."""
        self.forget_imagined()
        self._append(x, y)

    def revalue(self, y: Array) -> None:
        """Give all observations other values, shape ``(n,)``; imagined ones are forgotten."""
        self.forget_imagined()
        n = self._n
        self._whitened[:n] = self._inverse[:n, :n] @ y
        #: At the candidates.
        self.mean = (self._whitened[:n].astype(self._rows.dtype) @ self._rows[:n]).astype(np.float64)

    def imagine(self, x: Array) -> float:
        """Count a point as if the mean had been observed there (Ginsbourger 2010); return the mean."""
        value = float(self.predict(x[None, :])[0][0])
        self._append(x, value)
        self._n_imagined += 1
        return value

    def forget_imagined(self) -> None:
        """Remove imagined observations."""
        for i in range(self._n - 1, len(self) - 1, -1):
            self.mean -= self._whitened[i] * self._rows[i]
            self._variance += self._rows[i].astype(np.float64) ** 2
        self._n, self._n_imagined = len(self), 0

    def _append(self, x: Array, y: float) -> None:
        n, dtype = self._n, self._rows.dtype.type
        if n == len(self._x):
            more = n // 2
            self._x, self._rows = (np.pad(array, ((0, more), (0, 0))) for array in (self._x, self._rows))
            self._inverse, self._whitened = np.pad(self._inverse, (0, more)), np.pad(self._whitened, (0, more))
        scaled = x * self._inverse_lengths
        known = self._inverse[:n, :n] @ self._covariances(scaled[None, :], self._x[:n])[0]
        pivot = math.sqrt(max(self._diagonal - float(known @ known), self._jitter * self._signal2))
        self._x[n] = scaled
        self._inverse[n, :n] = known @ self._inverse[:n, :n] / -pivot
        self._inverse[n, n] = 1.0 / pivot
        self._whitened[n] = value = (y - float(known @ self._whitened[:n])) / pivot
        row = self._covariances(scaled[None, :].astype(dtype), self._scaled)[0]
        row -= known.astype(dtype) @ self._rows[:n]
        row /= dtype(pivot)
        self._rows[n] = row
        self.mean += value * row
        self._variance -= np.square(row, dtype=np.float64)
        self._n = n + 1

    def left_out(self) -> Array:
        """Return the difference of each observation from its prediction by the others, shape ``(n,)``.

        Rasmussen and Williams, eq. 5.12.
        """
        return np.asarray(self._solved() / np.square(self._inverse[: self._n, : self._n]).sum(axis=0))

    def whiten(self, values: Array) -> Array:
        """Return values at the observations, ``(n, ...)``, divided by the Cholesky factor of the covariance there."""
        return np.asarray(self._inverse[: self._n, : self._n] @ values)

    def _solved(self) -> Array:
        """Return the observed values divided by the covariance, shape ``(n,)``."""
        return np.asarray(self._whitened[: self._n] @ self._inverse[: self._n, : self._n])

    def _deviation(self, variance: Array) -> Array:
        return np.asarray(np.sqrt(np.maximum(variance, self._least_variance)))

    def _covariances(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        """Return the signal's covariances of scaled features, in their type, shape ``(len(a), len(b))``."""
        covariance = self._kernel(_squared_distances(a, b))
        covariance *= self._signal2
        return covariance
