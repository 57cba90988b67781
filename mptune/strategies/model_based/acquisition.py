"""What a candidate promises: expected improvement, in the logarithm so that small values keep their order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from mptune.results.pareto import Boxes
from mptune.strategies.base import Array

#: Logarithm of what a double just cannot hold.
_UNDERFLOW: Final = -745.0
#: Candidates whose gain is computed at once; a block stays in the cache.
_BLOCK: Final = 2048
_LOG_PEAK: Final = -0.5 * math.log(2.0 * math.pi)


def log_expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Return the log of the expected amount by which a normal variable falls below ``best``.

    ``log E[max(best - Y, 0)]`` for ``Y ~ N(mean, deviation^2)``, finite down to improvements far below
    what a double can hold (Ament 2023, "Unexpected improvements to expected improvement", Sec. 4.1). Mean and
    deviation, which is positive, have shape ``(n,)``; ``best`` is the smallest value so far.
    """
    u = (best - mean) / deviation
    log_density = _LOG_PEAK - 0.5 * u * u
    # phi(u) + u Phi(u) = phi(u) (1 + u m) with Mills' ratio m = Phi(u) / phi(u), which far out is 1 / (u^2 + 3).
    near, left = u > -1.0, np.minimum(u, 0.0)
    factor = np.maximum(
        1.0 + left * math.sqrt(math.pi / 2.0) * erfcx(-left / math.sqrt(2.0)), 1.0 / (left * left + 3.0)
    )
    factor[near] = np.exp(log_density[near]) + u[near] * ndtr(u[near])
    return np.asarray(np.log(factor) + np.where(near, 0.0, log_density) + np.log(deviation), dtype=np.float64)


#: Values of candidates by name, more is better, from the posterior's mean and deviation of the minimised quantity, each
#: ``(n,)``, its smallest observation, and the exploration factor in the same unit.
ACQUISITIONS: Final[Mapping[str, Callable[[Array, Array, float, float], Array]]] = {
    "ei": lambda mean, deviation, best, factor: log_expected_improvement(mean, deviation, best - factor),
    "poi": lambda mean, deviation, best, factor: log_ndtr((best - factor - mean) / deviation),
    "lcb": lambda mean, deviation, _, factor: factor * deviation - mean,
}


def log_improvement_bound(mean: Array, deviation: Array, best: float) -> Array:
    """Return a bound from above of :func:`log_expected_improvement` that takes a third of the time.

    For u = (best - mean) / deviation below 0 Mills' ratio is at least -u / (1 + u^2), so
    phi(u) + u Phi(u) <= phi(u) / (1 + u^2); above 0 it is at most u + phi(0).
    """
    u = (best - mean) / deviation
    square = np.square(np.minimum(u, 0.0))
    return np.asarray(np.log((np.maximum(u, 0.0) + math.exp(_LOG_PEAK)) * deviation / (1.0 + square)) - 0.5 * square)


def log_expected_gain(mean: Array, deviation: Array, boxes: Boxes) -> Array:
    """Return the log of the hypervolume that points of independent normal objectives are expected to add.

    A point y adds ``prod_j (max(u_j - y_j, 0) - max(l_j - y_j, 0))`` in the box from l to u, and the expectation of a
    product of independent factors is that of each: with ``psi(b) = E[max(b - Y, 0)]``, in closed form,

        E = sum over boxes of prod_j (psi_j(u_j) - psi_j(l_j))

    (Emmerich 2006 for two objectives; Yang, Emmerich, Deutz and Bäck, "Efficient computation of expected hypervolume
    improvement using box decomposition algorithms", J. Global Optim. 75, 2019). Where that is too small for a double,
    the logarithm of its order of magnitude, below all others: how far the mean is from the nearest box.

    Args:
        mean: shape ``(n, n_objectives)``.
        deviation: positive, the same shape.
        boxes: what the front leaves below the reference point.

    Returns:
        Shape ``(n,)``.
    """
    values = np.empty(len(mean))
    for start in range(0, len(mean), _BLOCK):
        block = slice(start, start + _BLOCK)
        gains = np.ones((len(mean[block]), len(boxes.upper)))
        for j in range(mean.shape[1]):
            edges, at = np.unique(np.concatenate([boxes.lower[:, j], boxes.upper[:, j]]), return_inverse=True)
            # E[max(b - Y, 0)] for each edge b, 0 where -inf.
            finite, spread = np.isfinite(edges), deviation[block, j, None]
            u = (edges[finite] - mean[block, j, None]) / spread
            below = np.zeros((len(gains), len(edges)))
            below[:, finite] = spread * (np.exp(_LOG_PEAK - 0.5 * u * u) + u * ndtr(u))
            gains *= below[:, at[len(boxes.lower) :]] - below[:, at[: len(boxes.lower)]]
        total = gains.sum(axis=1)
        with np.errstate(divide="ignore"):
            values[block] = np.log(total)
        lost = np.flatnonzero(total <= 0.0)
        if len(lost):
            # Half the squared distance, in deviations, from the upper corner of the nearest box.
            beyond = (mean[block][lost][:, None, :] - boxes.upper) / deviation[block][lost][:, None, :]
            values[start + lost] = _UNDERFLOW - 0.5 * np.square(np.maximum(beyond, 0.0)).sum(axis=2).min(axis=1)
    return values
