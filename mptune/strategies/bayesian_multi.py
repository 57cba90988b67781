"""Bayesian optimisation with a portfolio of acquisition functions (Willemsen 2021).

A Gaussian process with a fixed length scale models the objective on the normalised discrete space. EI, PoI and LCB
take turns, explore as far as the contextual variance says, and choose among the configurations not evaluated yet;
a portfolio rule finds out which of them serves best. A configuration that failed is given no value: it only is
no candidate any more. Defaults are those of Table I.

Two deviations. The paper minimises times; here scores are maximised, which are the inverse of a time, so that
inaccurate trials (near 0 under the decay penalty) do not stretch the scale on which the others are told apart. And the
exploration factor is in standard deviations of the observations, as they are standardised, so that the unit of
time does not matter, which is what the paper's contextual variance is meant for.

``multi-fast`` and ``multi-ultrafast`` are later methods of the same authors in Kernel Tuner, of which the second is
behind the figures of Heldens 2026 (Table III). All functions stay in use, each suggests what none before it did, and
``multi-ultrafast`` predicts only now and then: in Kernel Tuner when predictions take less than a fifth of the time of
the evaluations, or every sixth round at the latest. In replays, where evaluations take no time, that is every sixth
round; here it always is, by ``prediction_rounds``: a search finds the same on a fast and on a slow machine.
"""

from __future__ import annotations

import math
import statistics
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from mptune.errors import UnknownNameError
from mptune.results.trial import Trial
from mptune.strategies.base import Options, option
from mptune.strategies.model_based.acquisition import log_expected_improvement
from mptune.strategies.model_based.coordinates import Normalisation
from mptune.strategies.model_based.gaussian_process import (
    Hyperparameters,
    Kernel,
    Posterior,
    matern32,
    matern52,
    squared_exponential,
)
from mptune.strategies.model_based.strategy import Candidates, ModelBasedStrategy, best_and_others

__all__ = [
    "METHODS", "AdvancedMulti", "BayesianMultiOptions", "BayesianMultiStrategy", "Multi", "Portfolio", "Turns",
    "confidence_bound", "contextual_variance", "expected_improvement", "probability_of_improvement",
]  # fmt: skip

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


#: How the acquisition function is chosen: a portfolio rule, or always the same.
METHODS: Final = ("advanced-multi", "multi", "multi-fast", "multi-ultrafast", *ACQUISITIONS)
#: Methods whose functions never suggest the same in one round.
_DISTINCT: Final = ("advanced-multi", "multi-fast", "multi-ultrafast")
_SAMPLINGS: Final = ("maximin", "random")
#: Covariances by name.
_KERNELS: Final[Mapping[str, Kernel]] = MappingProxyType(
    {"matern32": matern32, "matern52": matern52, "rbf": squared_exponential}
)
#: Least deviation of the noise: its variance is what scikit-learn, on which the paper builds, adds by default.
_LEAST_NOISE: Final = 1e-5
#: Scores are kept below this, so that their squares are finite (a time of 0 scores the largest double).
_MOST_SCORE: Final = 1e100
#: Best trials whose neighbours join a sample of a large space.
_ELITE: Final = 4
#: A sample of a large space is drawn anew after so many observations, and whenever there is a new best.
_SAMPLE_AGE: Final = 20


@dataclass(frozen=True, slots=True)
class BayesianMultiOptions(Options):
    """Hyperparameters; the defaults are those of Willemsen 2021, Table I and Sec. IV-A, where it has them.

    Raises:
        UnknownNameError: a value is not among the choices, or an acquisition function is not known.
        MptuneError: a number is out of range or not finite, or an acquisition function is named twice.
    """

    strategy: ClassVar[str] = "bayesian-multi"
    method: str = option(
        "advanced-multi",
        "advanced-multi, multi, multi-fast, multi-ultrafast, or one acquisition function alone: ei, poi or lcb.",
        choices=METHODS,
    )
    functions: str = option("ei,poi,lcb", "the portfolio, in order, separated by commas.")
    initial: int = option(20, "valid configurations of the initial sample.", least=1)
    sampling: str = option(
        "maximin", "maximin (the Latin hypercube of the largest smallest distance) or random.", choices=_SAMPLINGS
    )
    length_scale: float = option(
        1.5,
        "length scale of the covariance, where every parameter has values from 0 to 1; "
        "the paper has 2 for a constant exploration factor.",
        above=0,
    )
    covariance: str = option(
        "matern32", "matern32, matern52 (Matérn 3/2 and 5/2) or rbf (squared exponential).", choices=tuple(_KERNELS)
    )
    noise: float = option(
        1e-5, "standard deviation of an observation's noise, relative to that of all observations.", least=0
    )
    contextual: bool = option(True, "whether the exploration factor is the contextual variance.")
    exploration: float = option(
        0.01, "exploration factor where it is constant, in standard deviations of all observations.", least=0
    )
    threshold: int = option(
        5, "skip threshold: how often a function must duplicate others, or be worse or better, to be judged.", least=1
    )
    duplicate_window: int = option(
        0, "rounds over which multi counts duplicates; 0 for all. Kernel Tuner: 5, with threshold=4.", least=0
    )
    prediction_rounds: int = option(6, "multi-ultrafast predicts anew after so many rounds.", least=1)
    discount_multi: float = option(0.65, "discount factor of multi.", above=0, most=1)
    discount_advanced: float = option(0.75, "discount factor of advanced-multi.", above=0, most=1)
    required: float = option(
        0.1, "required improvement factor of advanced-multi (0.1 in Table I, 5% in the text).", least=0
    )
    max_candidates: int = option(
        50_000, "predict all configurations of a space up to this size; of a larger one a sample.", least=1
    )
    sample: int = option(5_000, "configurations in the sample of a larger space.", least=10)
    max_observations: int = option(
        800, "observations the model holds; of more it holds the best half and a random part.", least=20
    )

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        for name in self.portfolio:
            if name not in ACQUISITIONS:
                raise UnknownNameError("functions of strategy bayesian-multi:", name, ACQUISITIONS)
        self.require("functions", len(set(self.portfolio)) == len(self.portfolio), "each function once")

    @property
    def portfolio(self) -> tuple[str, ...]:
        """Names of the acquisition functions in order."""
        return tuple(name.strip() for name in self.functions.split(","))


@dataclass(slots=True)
class _Round:
    """One suggestion of every acquisition function in use.

    Attributes:
        suggested: index by function.
        observed: how it performed, where that is known.
    """

    suggested: dict[str, int]
    observed: dict[str, float] = field(default_factory=dict)


class BayesianMultiStrategy(ModelBasedStrategy):
    """Proposes what acquisition functions suggest, a round at a time, under a model of the score.

    While trials are awaited, in a batch or otherwise, the model imagines that they give what it expects.
    """

    name: ClassVar[str] = "bayesian-multi"
    options_class: ClassVar[type[Options]] = BayesianMultiOptions
    options: BayesianMultiOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._portfolio = self._make_portfolio()
        #: The rest of the initial sample, and the number of observations that completes it.
        self._design: list[int] = []
        self._design_target = 0
        self._normalisation = Normalisation(self.space.parameters)
        coordinates = self._coordinates([0]).shape[1]
        noise = max(self.options.noise, _LEAST_NOISE)
        self._hyperparameters = Hyperparameters(np.full(coordinates, self.options.length_scale), 1.0, noise)
        self._posterior: Posterior | None = None
        #: Observations of the posterior, and what standardises them.
        self._held: list[int] = []
        self._centre, self._spread = 0.0, 1.0
        #: Scores the model learns from, by index.
        self.observations: dict[int, float] = {}
        self._best = -math.inf
        #: Observed since the posterior was last brought up to date, and imagined by it.
        self._new: list[int] = []
        self._imagined: set[int] = set()
        #: Number and best of the observations when the candidates were chosen.
        self._pool_born = (0, -math.inf)
        self._failed: set[int] = set()
        #: Mean score and mean posterior variance after the initial sample.
        self._anchor: tuple[float, float] | None = None
        self._rounds: list[_Round] = []
        #: Rounds for which the predictions may still be used.
        self._rounds_left = 0
        #: Suggested in the current round and not proposed yet.
        self.suggestions: list[int] = []
        #: Exploration factor of the last round, NaN before the first.
        self.exploration = math.nan

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the acquisition functions still in use."""
        return self._portfolio.active

    def _make_portfolio(self) -> Portfolio:
        options = self.options
        if options.method == "advanced-multi":
            limits = {"discount": options.discount_advanced, "required": options.required}
            return AdvancedMulti(options.portfolio, threshold=options.threshold, **limits)
        limits = {"discount": options.discount_multi}
        if options.method in ("multi-fast", "multi-ultrafast"):
            return Turns(options.portfolio, threshold=options.threshold, **limits)
        functions = options.portfolio if options.method == "multi" else (options.method,)
        return Multi(functions, threshold=options.threshold, window=options.duplicate_window or None, **limits)

    # -- ask and tell --------------------------------------------------------------------------

    def _learn(self, indices: list[int], trials: Sequence[Trial]) -> None:
        for index, trial in zip(indices, trials, strict=True):
            if index in self.observations or index in self._failed:
                continue
            score = self.objective.score(trial)
            if score == -math.inf:
                self._failed.add(index)
            else:
                self.observations[index] = min(max(score, -_MOST_SCORE), _MOST_SCORE)
                self._best = max(self._best, self.observations[index])
                self._new.append(index)
            self._settle(index)
            self._note(index)

    # -- the initial sample --------------------------------------------------------------------

    def _begin(self) -> None:
        """Draw the initial sample; observations told before count where they vary in every coordinate."""
        told = self._coordinates(list(self.observations))
        covered = len(told) > 1 and bool((np.ptp(told, axis=0) > 0).all())
        wanted = min(self.options.initial, self.space.size)
        self._design_target = wanted if covered else wanted + len(told)
        draw = self.space.latin_hypercube if self.options.sampling == "maximin" else self.space.sample
        if missing := max(self._design_target - len(told), 0):
            self._design = draw(missing, self.rng).tolist()

    def _next(self) -> int | None:
        index = self._next_of_design()
        return self._next_by_model() if index is None else index

    def _next_of_design(self) -> int | None:
        """Return the next point of the initial sample, random ones for points that failed or while nothing is known."""
        known = len(self.observations)
        if known and known + len(self._pending) >= self._design_target:
            return None
        while self._design:
            index = self._design.pop(0)
            if not self._is_taken(index):
                return index
        return self._random()

    # -- the model -----------------------------------------------------------------------------

    def _coordinates(self, indices: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float64]:
        return self._normalisation.coordinates(self.space.codes(indices))

    def _updated(self) -> tuple[Posterior, Candidates]:
        """Return the posterior of all observations, which imagines what is awaited, and the candidates it is over."""
        posterior, pool = self._posterior, self._pool
        if posterior is None or pool is None or self._is_outdated(posterior, pool):
            posterior, pool = self._rebuild()
        elif self._new or self._imagined.difference(self._pending):
            posterior.forget_imagined()
            self._imagined.clear()
            for x in self._coordinates(self._new):
                posterior.append(x, 0.0)
            self._held += self._new
            posterior.revalue(self._standardised())
        self._new.clear()
        for index in self._pending:
            if index not in self._imagined:
                posterior.imagine(self._coordinates([index])[0])
                self._imagined.add(index)
        return posterior, pool

    def _predicted(self) -> tuple[Posterior, Candidates]:
        """Return what :meth:`_updated` does, or under multi-ultrafast for some rounds what it returned before."""
        posterior, pool = self._posterior, self._pool
        if self._rounds_left and posterior is not None and pool is not None and pool.free.any():
            self._rounds_left -= 1
            return posterior, pool
        self._rounds_left = self.options.prediction_rounds - 1 if self.options.method == "multi-ultrafast" else 0
        return self._updated()

    def _is_outdated(self, posterior: Posterior, pool: Candidates) -> bool:
        """Whether the posterior is full, or a sample is used up, old, or lacks the neighbours of a new best."""
        if len(posterior) + len(self._new) > self.options.max_observations:
            return True
        born, best = self._pool_born
        is_stale = len(self.observations) >= born + _SAMPLE_AGE or self._best > best
        return not pool.complete and (is_stale or not pool.free.any())

    def _rebuild(self) -> tuple[Posterior, Candidates]:
        """Choose candidates and condition a posterior on the observations."""
        taken = self._taken
        pool = self._pool if self._pool is not None and self._pool.complete else self._candidates()
        self._held = self._representative()
        posterior = Posterior(self._hyperparameters, pool.features, _KERNELS[self.options.covariance], np.float64)
        posterior.condition(self._coordinates(self._held), self._standardised())
        pool.free[:] = ~np.isin(pool.indices, np.fromiter(taken, np.int64, len(taken)))
        self._pool_born = len(self.observations), self._best
        self._imagined.clear()
        self._pool, self._posterior = pool, posterior
        return posterior, pool

    def _standardised(self) -> Array:
        """Return the scores of the posterior's observations, standardised."""
        scores = np.array([self.observations[index] for index in self._held])
        self._centre, self._spread = float(scores.mean()), float(scores.std()) or 1.0
        return (scores - self._centre) / self._spread

    def _candidates(self) -> Candidates:
        """Return the whole space, or of a large one a sample and the neighbours of the best trials."""
        complete = self.space.size <= self.options.max_candidates
        if complete:
            indices = np.arange(self.space.size, dtype=np.int64)
        else:
            around = [self.space.neighbours(index, "hamming") for index in self._ranked()[:_ELITE]]
            sample = self.space.sample(self.options.sample, self.rng, self._taken)
            indices = np.unique(np.concatenate([sample, *around]))
        return Candidates(indices, self.space.codes(indices), self._coordinates(indices), complete)

    def _representative(self) -> list[int]:
        """Return all observations, or of too many the best half and a random part, with room for more."""
        most = self.options.max_observations
        if len(self.observations) <= most:
            return list(self.observations)
        return best_and_others(self._ranked(), most * 3 // 4, self.rng)

    def _ranked(self) -> list[int]:
        return sorted(self.observations, key=lambda index: -self.observations[index])

    # -- the portfolio -------------------------------------------------------------------------

    def _next_by_model(self) -> int | None:
        """Return the next suggestion of the current round, or the first of a new one; None when nothing is left."""
        while self.suggestions:
            index = self.suggestions.pop(0)
            if not self._is_taken(index):
                return index
        suggested = self._suggest() if self.observations else {}
        if not suggested:
            return None
        if len(self.active) > 1:
            self._rounds.append(_Round(suggested))
        first, *self.suggestions = dict.fromkeys(suggested.values())
        return first

    def _suggest(self) -> dict[str, int]:
        """Return the index of the candidate each function in use values most; fewer where fewer are left.

        Predictions are made once. But under multi and with one function alone, none can suggest what one before it did.
        """
        posterior, pool = self._predicted()
        left = np.flatnonzero(pool.free)
        if not len(left):
            return {}
        mean, deviation = -posterior.mean[left], posterior.deviation[left]
        best = -(self._best - self._centre) / self._spread
        self.exploration = self._explore(float(np.square(deviation).mean()))
        free = np.ones(len(left), dtype=np.bool_)
        suggested: dict[str, int] = {}
        for name in self.active:
            if free.any():
                values = ACQUISITIONS[name](mean, deviation, best, self.exploration)
                position = int(np.where(free, values, -np.inf).argmax())
                suggested[name] = int(pool.indices[left[position]])
                free[position] = self.options.method not in _DISTINCT
        return suggested

    def _explore(self, variance: float) -> float:
        """Return the exploration factor for a mean posterior variance of the candidates."""
        if not self.options.contextual:
            return self.options.exploration
        scores = list(self.observations.values())
        anchor = self._anchor
        if anchor is None:
            anchor = float(np.mean(scores)), variance
            if len(scores) >= self._design_target:
                self._anchor = anchor
        mean, initial_variance = anchor
        improvement = max(scores) / mean if mean > 0.0 else 1.0
        return contextual_variance(variance, initial_variance, improvement)

    def _note(self, index: int) -> None:
        """Note how a suggestion performed, and close the rounds that are complete."""
        for current in list(self._rounds):
            for name, suggested in current.suggested.items():
                if suggested == index:
                    current.observed[name] = self._performance(index)
            if all(name in current.observed for name in self.active):
                self._rounds.remove(current)
                self._portfolio.close(current.suggested, current.observed)

    def _performance(self, index: int) -> float:
        """Return a trial's score, 0 where it is negative; for one that failed the median of all scores."""
        if index in self._failed:
            return max(statistics.median(self.observations.values()), 0.0)
        return max(self.observations[index], 0.0)
