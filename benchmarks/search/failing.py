"""Recorded spaces in which a part of the configurations is made to fail."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import MptuneError
from mptune.interop import read_run
from mptune.results.objective import Objective
from mptune.results.trial import Status, Trial
from mptune.run import Run

__all__ = ["PATTERNS", "TARGET", "fail_share", "failing_space"]

#: The function that makes such a space in the process of a job.
TARGET: Final = "benchmarks.search.failing:failing_space"
#: How the failing configurations lie: where a product of two parameters exceeds a limit, or anywhere.
PATTERNS: Final = ("clustered", "scattered")
_REGIONS: Final = 2
_ATTEMPTS: Final = 200
#: Weight of the half-space that decides among configurations with the same products.
_TILT: Final = 1e-3


def failing_space(path: str, pattern: str, share: float, seed: int = 0) -> Run:
    """Return a recording of which a share of what ran is made to fail; the best never is.

    Args:
        path: the file.
        pattern: one of :data:`PATTERNS`.
        share: of the configurations that ran, how many are made to fail, in [0, 1).
        seed: decides which.
    """
    return fail_share(read_run(path), pattern, share, seed)


def fail_share(recorded: Run, pattern: str, share: float, seed: int = 0) -> Run:
    """Return the recording with failures, see :func:`failing_space`.

    Raises:
        MptuneError: no such pattern, or the share cannot be hit.
    """
    if pattern not in PATTERNS or not 0.0 <= share < 1.0:
        raise MptuneError(f"failures {pattern!r} of {share:g}: expected {' or '.join(PATTERNS)} and a share below 1")
    best = Objective().best(recorded.trials)
    if best is None:
        raise MptuneError(f"nothing in {recorded.name} ran")
    space = recorded.space
    ran = np.array([space.index(trial.configuration) for trial in recorded.trials if trial.is_valid], dtype=np.int64)
    optimum = int(np.flatnonzero(ran == recorded.space.index(best.configuration))[0])
    count = round(share * len(ran))
    rng = np.random.default_rng(seed)
    features = _varying(recorded, ran)
    for _ in range(_ATTEMPTS):
        badness = _products(features, rng) if pattern == "clustered" else rng.uniform(size=len(ran))
        if pattern == "scattered":
            badness[optimum] = -1.0
        failing = np.argsort(badness, kind="stable")[len(ran) - count :]
        # A region around the optimum would leave it alone among failures.
        if optimum not in failing:
            return _with_failures(recorded, ran[failing].tolist())
    raise MptuneError(f"no {share:.0%} of {recorded.name} without its optimum found in {_ATTEMPTS} attempts")


def _varying(recorded: Run, indices: NDArray[np.int64]) -> NDArray[np.float64]:
    features = recorded.space.features(indices)
    return np.asarray(features[:, np.ptp(features, axis=0) > 0.0])


def _products(features: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return how deep in the worst of a few regions each configuration lies, shape ``(n,)``.

    A region is where the product of two parameters, each counted from either end of its range, is large.
    """
    n, k = features.shape
    worst = np.zeros(n)
    for _ in range(_REGIONS):
        pair = rng.choice(k, size=min(2, k), replace=False)
        upward = rng.integers(0, 2, size=len(pair)).astype(bool)
        sides = np.where(upward, features[:, pair], 1.0 - features[:, pair])
        worst = np.maximum(worst, (0.1 + sides).prod(axis=1))
    return np.asarray(worst + _TILT * (features @ rng.normal(size=k)))


def _with_failures(recorded: Run, failing: list[int]) -> Run:
    failed = {*recorded.space.configurations(failing)}
    trials = [
        Trial(trial.configuration, Status.LAUNCH_ERROR, "made to fail") if trial.configuration in failed else trial
        for trial in recorded.trials
    ]
    return recorded.derive(trials=trials)
