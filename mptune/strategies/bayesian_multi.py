"""Bayesian optimisation with a portfolio of acquisition functions (Willemsen 2021).

A Gaussian process with a fixed length scale models the objective on the normalised discrete space. EI, PoI and LCB take
turns, with the contextual variance as exploration factor, and choose among the unseen configurations. A portfolio rule
selects functions. Failed configurations have no value; they are only removed from the candidates. Defaults are from
Table I.

There are two deviations. The paper minimises times; here scores, inverse times, are maximised, so inaccurate trials
(near 0 under the decay penalty) do not stretch the scale. The exploration factor is in standard deviations of the
observations, independent of the unit of time, which is the purpose of the paper's contextual variance.

``multi-fast`` and ``multi-ultrafast`` are later methods of the same authors in Kernel Tuner; Heldens 2026 (Table III)
uses ``multi-ultrafast``. They keep all functions, with distinct suggestions in a round. ``multi-ultrafast`` reuses
predictions for ``prediction_rounds`` rounds, independent of the machine's speed. Kernel Tuner predicts when that takes
less than a fifth of the evaluations' time, at the latest every sixth round, which is the case in replays.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from mptune.errors import UnknownNameError
from mptune.results.trial import Trial
from mptune.strategies.base import MAX_OBSERVATIONS, Array, Options, option
from mptune.strategies.model_based.acquisition import ACQUISITIONS
from mptune.strategies.model_based.coordinates import normalised
from mptune.strategies.model_based.gaussian_process import KERNELS, Hyperparameters, Posterior
from mptune.strategies.model_based.strategy import Candidates, ScoreModelStrategy

#: Portfolio rules, and single acquisition functions.
METHODS: Final = ("advanced-multi", "multi", "multi-fast", "multi-ultrafast", *ACQUISITIONS)


class Portfolio:
    """Acquisition functions in use, in order of preference; subclasses drop functions after a round.

    A round has one suggestion of every function. Performances are positive, and larger is better.

    Args:
        functions: names of acquisition functions.
        threshold: number of duplicates, or of scores far from the mean, after which a function is judged.
        discount: weight of an observation relative to an observation of the next round.
        window: rounds in which duplicates count, None for all.
        required: relative distance of a score from the mean that counts.

    Attributes:
        active: names of the functions in use, in order.
        scores: by function, the sum of its discounted observations ``o_i * discount ** (t - i)``.
    """

    def __init__(
        self,
        functions: Sequence[str],
        *,
        threshold: int,
        discount: float,
        window: int | None = None,
        required: float = 0.0,
    ) -> None:
        self.active = tuple(functions)
        self.scores = dict.fromkeys(functions, 0.0)
        self._threshold, self._discount, self._required = threshold, discount, required
        self._duplicates = {name: deque[bool](maxlen=window) for name in functions}
        self._worse, self._better = Counter[str](), Counter[str]()

    def close(self, suggested: Mapping[str, int], observed: Mapping[str, float]) -> None:
        """Judge a round by the suggestion of each function and its performance; the median stands for a failure."""
        for name in self.active:
            self.scores[name] = observed[name] + self._discount * self.scores[name]
        if len(self.active) > 1:
            self._judge(suggested)

    def _judge(self, suggested: Mapping[str, int]) -> None:
        """Drop functions."""


class Multi(Portfolio):
    """Drops functions that duplicate suggestions of others too often, except the best of them."""

    def _judge(self, suggested: Mapping[str, int]) -> None:
        repeated = [suggested[name] for name in self.active]
        for name in self.active:
            self._duplicates[name].append(repeated.count(suggested[name]) > 1)
        conflicting = [name for name in self.active if sum(self._duplicates[name]) > self._threshold]
        if len(conflicting) > 1:
            kept = max(conflicting, key=self.scores.__getitem__)
            self._duplicates[kept].clear()
            self.active = tuple(name for name in self.active if name == kept or name not in conflicting)


class AdvancedMulti(Portfolio):
    """Drops a function whose score is often far below the mean; one often far above it remains alone."""

    def _judge(self, suggested: Mapping[str, int]) -> None:  # noqa: ARG002
        mean = float(np.mean([self.scores[name] for name in self.active]))
        self._worse.update(name for name in self.active if self.scores[name] < mean * (1.0 - self._required))
        self._better.update(name for name in self.active if self.scores[name] > mean * (1.0 + self._required))
        worst = max(self.active, key=lambda name: (self._worse[name], -self.scores[name]))
        best = max(self.active, key=lambda name: (self._better[name], self.scores[name]))
        if self._worse[worst] >= self._threshold:
            self.active = tuple(name for name in self.active if name != worst)
            self._worse.clear()
            self._better.clear()
        elif self._better[best] >= self._threshold:
            self.active = (best,)


@dataclass(frozen=True, slots=True)
class BayesianMultiOptions(Options):
    """Hyperparameters with the defaults of Willemsen 2021, Table I and Sec. IV-A."""

    method: str = option(
        "advanced-multi",
        "advanced-multi, multi, multi-fast, multi-ultrafast, or a single acquisition function: ei, poi or lcb.",
        choices=METHODS,
    )
    functions: str = option("ei,poi,lcb", "acquisition functions of the portfolio, in order, separated by commas.")
    initial: int = option(20, "valid configurations of the initial sample.", least=1)
    sampling: str = option("maximin", "maximin (a spread Latin hypercube) or random.", choices=("maximin", "random"))
    length_scale: float = option(
        1.5, "length scale for parameters scaled to 0..1; in the paper 2 if not contextual.", above=0
    )
    covariance: str = option(
        "matern32", "matern32, matern52 (Matérn 3/2 and 5/2) or rbf (squared exponential).", choices=tuple(KERNELS)
    )
    noise: float = option(1e-5, "noise of an observation, in standard deviations of all observations.", least=0)
    contextual: bool = option(True, "whether the exploration factor is the contextual variance.")
    exploration: float = option(0.01, "constant exploration factor, in deviations of all observations.", least=0)
    threshold: int = option(5, "duplicates, or scores far from the mean, before a function is judged.", least=1)
    duplicate_window: int = option(
        0, "rounds over which multi counts duplicates; 0 for all. Kernel Tuner: 5, with threshold=4.", least=0
    )
    prediction_rounds: int = option(6, "rounds between predictions of multi-ultrafast.", least=1)
    discount_multi: float = option(0.65, "discount factor of multi.", above=0, most=1)
    discount_advanced: float = option(0.75, "discount factor of advanced-multi.", above=0, most=1)
    required: float = option(0.1, "required improvement factor of advanced-multi (Table I; 5% in the text).", least=0)
    max_candidates: int = option(50_000, "largest space whose configurations are all candidates.", least=1)
    sample: int = option(5_000, "candidates sampled from a larger space.", least=10)
    max_observations: int = option(800, MAX_OBSERVATIONS, least=20)

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


class BayesianMultiStrategy(ScoreModelStrategy):
    """Proposes the suggestions of acquisition functions, in rounds, under a model of the score."""

    name: ClassVar[str] = "bayesian-multi"
    options_class: ClassVar[type[Options]] = BayesianMultiOptions
    options: BayesianMultiOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = self.options
        kind = {"multi-fast": Portfolio, "multi-ultrafast": Portfolio, "advanced-multi": AdvancedMulti}
        is_advanced = options.method == "advanced-multi"
        self._portfolio = kind.get(options.method, Multi)(
            options.portfolio if "multi" in options.method else (options.method,),
            threshold=options.threshold,
            discount=options.discount_advanced if is_advanced else options.discount_multi,
            window=options.duplicate_window or None,
            required=options.required,
        )
        self._coordinates = normalised(self.space.parameters)
        lengths = np.full(self._coordinates.count, options.length_scale)
        # The smallest noise has the variance of scikit-learn's default, as in the paper.
        self._hyperparameters = Hyperparameters(lengths, 1.0, max(options.noise, 1e-5))
        #: The initial sample once drawn, and the number of observations that completes it.
        self._design: list[int] | None = None
        self._design_target = 0
        self._posterior: Posterior
        #: Observations of the posterior, and their mean and deviation.
        self._held: list[int] = []
        self._centre, self._spread = 0.0, 1.0
        #: Number and best score of the observations when the candidates were chosen.
        self._pool_born = (0, -math.inf)
        #: Mean score and mean posterior variance after the initial sample.
        self._anchor: tuple[float, float] | None = None
        #: Suggestions by function in each open round.
        self._rounds: list[dict[str, int]] = []
        #: Rounds that may reuse the predictions.
        self._rounds_left = 0
        self.suggestions: list[int] = []  #: of the current round, without proposed ones
        self.exploration = math.nan  #: exploration factor of the last round

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the acquisition functions still in use."""
        return self._portfolio.active

    def _take_in(self, new: Mapping[int, Trial]) -> None:
        super()._take_in(new)
        for suggested in self._rounds.copy():
            if all(suggested.get(name) in self._told for name in self.active):
                self._rounds.remove(suggested)
                failed = statistics.median(self.observations.values())
                observed = {name: max(self.observations.get(i, failed), 0.0) for name, i in suggested.items()}
                self._portfolio.close(suggested, observed)

    # -- ask -----------------------------------------------------------------------------------

    def _next(self) -> int | None:
        if self._design is None:
            # Earlier observations count if they vary in every coordinate.
            told = self._features(list(self.observations))
            covered = len(told) > 1 and bool((np.ptp(told, axis=0) > 0).all())
            wanted = min(self.options.initial, self.space.size)
            self._design_target = wanted if covered else wanted + len(told)
            draw = self.space.latin_hypercube if self.options.sampling == "maximin" else self.space.sample
            missing = max(self._design_target - len(told), 0)
            self._design = draw(missing, self.rng).tolist() if missing else []
        known = len(self.observations)
        if known and known + len(self._pending) >= self._design_target:
            return self._next_by_model()
        # A random configuration replaces each point of the initial sample that failed.
        drawn = next((index for index in self._design if index not in self._seen), None)
        drawn = self._random() if drawn is None else drawn
        return self._next_by_model() if drawn is None else drawn

    def _next_by_model(self) -> int | None:
        """Return the next suggestion of the current or a new round; None if the space is exhausted."""
        while self.suggestions:
            index = self.suggestions.pop(0)
            if index not in self._seen:
                return index
        suggested = self._suggest() if self.observations else {}
        if not suggested:
            return None
        if len(self.active) > 1:
            self._rounds.append(suggested)
        first, *self.suggestions = dict.fromkeys(suggested.values())
        return first

    def _suggest(self) -> dict[str, int]:
        """Return the best candidate of each function in use, distinct except under multi, from the same predictions."""
        pool = self._pool
        if self._rounds_left and pool is not None and pool.free.any():
            self._rounds_left -= 1
        else:
            self._rounds_left = self.options.prediction_rounds - 1 if self.options.method == "multi-ultrafast" else 0
            pool = self._updated()
        left = np.flatnonzero(pool.free)
        if not len(left):
            return {}
        mean, deviation = -self._posterior.mean[left], self._posterior.deviation[left]
        best = -(max(self.observations.values()) - self._centre) / self._spread
        self.exploration = self._explore(float(np.square(deviation).mean()))
        free = np.ones(len(left), dtype=np.bool_)
        suggested: dict[str, int] = {}
        for name in self.active:
            if free.any():
                values = ACQUISITIONS[name](mean, deviation, best, self.exploration)
                position = int(np.where(free, values, -np.inf).argmax())
                suggested[name] = int(pool.indices[left[position]])
                free[position] = self.options.method not in ("advanced-multi", "multi-fast", "multi-ultrafast")
        return suggested

    def _explore(self, variance: float) -> float:
        """Return the exploration factor for a mean posterior variance of the candidates.

        The contextual variance is the variance relative to the variance after the initial sample, divided by the ratio
        of the best observation to the mean of the initial sample (Willemsen 2021, Sec. III-F).
        """
        if not self.options.contextual:
            return self.options.exploration
        scores = list(self.observations.values())
        anchor = self._anchor or (float(np.mean(scores)), variance)
        if len(scores) >= self._design_target:
            self._anchor = anchor
        mean, initial_variance = anchor
        return variance / initial_variance / (max(scores) / mean if mean > 0.0 else 1.0)

    # -- the model -----------------------------------------------------------------------------

    def _is_due(self, pool: Candidates) -> bool:
        """Whether the posterior is full, or the sample is old or lacks the neighbours of a new best trial."""
        if len(self._posterior) + len(self._new) > self.options.max_observations:
            return True
        born, best = self._pool_born
        is_old = len(self.observations) >= born + 20
        return not pool.complete and (is_old or max(self.observations.values()) > best)

    def _rebuild(self) -> Candidates:
        if self.space.size <= self.options.max_candidates:
            pool = self._free_candidates()
        else:
            sample = self.space.sample(self.options.sample, self.rng, self._seen)
            around = [self.space.neighbours(index, "hamming") for index in self._ranked()[:4]]
            pool = self._candidates(np.concatenate([sample, *around]))
        most = self.options.max_observations
        is_full = len(self.observations) > most
        self._held = self._kept(most * 3 // 4 if is_full else most)
        kernel, x = KERNELS[self.options.covariance], self._features(self._held)
        self._posterior = Posterior(self._hyperparameters, pool.features, x, self._standardised(), kernel, np.float64)
        self._pool_born = len(self.observations), max(self.observations.values())
        return pool

    def _extend(self, new: list[int]) -> None:
        known = [index for index in new if index in self.observations]
        for x in self._features(known):
            self._posterior.append(x, 0.0)
        self._held += known
        self._posterior.revalue(self._standardised())

    def _imagine(self, index: int) -> None:
        self._posterior.imagine(self._features([index])[0])

    def _standardised(self) -> Array:
        scores = self._scores(self._held)
        self._centre, self._spread = float(scores.mean()), float(scores.std())
        if self._spread <= 4 * np.spacing(abs(self._centre)):  # rounding errors
            self._spread = 1.0
        return (scores - self._centre) / self._spread
