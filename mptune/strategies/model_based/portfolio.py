"""Acquisition functions, how far they explore, and portfolios of them (Willemsen 2021, Sec. III-C, III-F and III-G)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from mptune.strategies.model_based.acquisition import log_expected_improvement

__all__ = [
    "ACQUISITIONS",
    "AdvancedMulti",
    "Multi",
    "Portfolio",
    "Turns",
    "confidence_bound",
    "contextual_variance",
    "expected_improvement",
    "probability_of_improvement",
]

Array = NDArray[np.float64]
#: Values of candidates, more is better, by the posterior's mean and deviation of what is minimised, each ``(n,)``, the
#: smallest observation, and the exploration factor.
Acquisition = Callable[[Array, Array, float, float], Array]


def expected_improvement(mean: Array, deviation: Array, best: float, exploration: float) -> Array:
    """Return the log of the expected improvement on ``best - exploration``, the factor being in the mean's unit."""
    return log_expected_improvement(mean, deviation, best - exploration)


def probability_of_improvement(mean: Array, deviation: Array, best: float, exploration: float) -> Array:
    """Return the log of the probability to fall below ``best - exploration``."""
    return np.asarray(log_ndtr((best - exploration - mean) / deviation), dtype=np.float64)


def confidence_bound(mean: Array, deviation: Array, best: float, exploration: float) -> Array:  # noqa: ARG001
    """Return the negative lower confidence bound ``mean - exploration * deviation``; ``best`` does not matter."""
    return np.asarray(exploration * deviation - mean)


#: The acquisition functions by name.
ACQUISITIONS: Final[Mapping[str, Acquisition]] = {
    "ei": expected_improvement,
    "poi": probability_of_improvement,
    "lcb": confidence_bound,
}


def contextual_variance(variance: float, initial_variance: float, improvement: float) -> float:
    """Return the exploration factor ``(variance / improvement) / initial_variance`` (Willemsen 2021, Sec. III-F).

    Args:
        variance: mean posterior variance of the candidates.
        initial_variance: the same after the initial sample.
        improvement: by what factor the best observation is better than the mean of the initial sample.
    """
    return variance / improvement / initial_variance


class Portfolio(ABC):
    """Acquisition functions of which fewer and fewer stay in use, judged after each round.

    A round takes one suggestion of every function. Performances are positive and more is better (the paper
    minimises times; ratios are the same either way).

    Args:
        functions: names of acquisition functions, the preferred ones first.
        threshold: how often something must happen before a function is dropped for it.
        discount: weight of an observation relative to that of the next round.

    Attributes:
        active: names of those in use, in order.
    """

    def __init__(self, functions: Sequence[str], *, threshold: int, discount: float) -> None:
        self.active = tuple(functions)
        self._threshold = threshold
        self._discount = discount
        self._sums = dict.fromkeys(functions, 0.0)

    def scores(self) -> dict[str, float]:
        """Return the discounted observations of the functions in use: sum of ``o_i * discount ** (t - i)``."""
        return {name: self._sums[name] for name in self.active}

    def close(self, suggested: Mapping[str, int], observed: Mapping[str, float]) -> None:
        """Judge a round in which every function in use took part.

        Args:
            suggested: what each function suggested.
            observed: the performance of each suggestion; for a failed one the median of those that did not fail.
        """
        for name in self.active:
            self._sums[name] = observed[name] + self._discount * self._sums[name]
        if len(self.active) > 1:
            self._judge(suggested)

    @abstractmethod
    def _judge(self, suggested: Mapping[str, int]) -> None:
        """Take functions out of use."""

    def _best_of(self, names: Sequence[str]) -> str:
        """Return the function of the best score; of equals the first in order."""
        return max(names, key=lambda name: self._sums[name])


class Turns(Portfolio):
    """Keeps all functions in use (Kernel Tuner's ``multi-fast`` and ``multi-ultrafast``)."""

    def _judge(self, suggested: Mapping[str, int]) -> None:
        pass


class Multi(Portfolio):
    """Drops functions that suggest what others suggest: of those that do so too often the best one stays.

    Duplicates count in the last ``window`` rounds; in all of them where it is None.
    """

    def __init__(self, functions: Sequence[str], *, threshold: int, discount: float, window: int | None = None) -> None:
        super().__init__(functions, threshold=threshold, discount=discount)
        self._duplicates = {name: deque[bool](maxlen=window) for name in functions}

    def _judge(self, suggested: Mapping[str, int]) -> None:
        repeated = [suggested[name] for name in self.active]
        for name in self.active:
            self._duplicates[name].append(repeated.count(suggested[name]) > 1)
        conflicting = [name for name in self.active if sum(self._duplicates[name]) > self._threshold]
        if len(conflicting) > 1:
            kept = self._best_of(conflicting)
            self._duplicates[kept].clear()
            self.active = tuple(name for name in self.active if name == kept or name not in conflicting)


class AdvancedMulti(Portfolio):
    """Drops a function that is often much worse than the mean score, and keeps only one that is often much better.

    How much is ``required``, relative to the mean.
    """

    def __init__(self, functions: Sequence[str], *, threshold: int, discount: float, required: float) -> None:
        super().__init__(functions, threshold=threshold, discount=discount)
        self._required = required
        self._worse = dict.fromkeys(functions, 0)
        self._better = dict.fromkeys(functions, 0)

    def _judge(self, suggested: Mapping[str, int]) -> None:  # noqa: ARG002
        mean = float(np.mean([self._sums[name] for name in self.active]))
        for name in self.active:
            self._worse[name] += self._sums[name] < mean * (1.0 - self._required)
            self._better[name] += self._sums[name] > mean * (1.0 + self._required)
        worst = max(self.active, key=lambda name: (self._worse[name], -self._sums[name]))
        if self._worse[worst] >= self._threshold:
            self.active = tuple(name for name in self.active if name != worst)
            self._worse = dict.fromkeys(self.active, 0)
            self._better = dict.fromkeys(self.active, 0)
            return
        best = max(self.active, key=lambda name: (self._better[name], self._sums[name]))
        if self._better[best] >= self._threshold:
            self.active = (best,)
