"""Bayesian optimisation with a portfolio of acquisition functions (Willemsen 2021).

A Gaussian process with a fixed length scale models the objective on the normalised discrete space. EI, PoI and LCB
take turns, explore as far as the contextual variance says, and choose among the configurations not evaluated yet;
a portfolio rule finds out which of them serves best. A configuration that failed is given no value: it only is
no candidate any more. Defaults are those of Table I.

Two deviations. The paper minimises times; here scores are maximised, which are the inverse of a time, so that
inaccurate trials (near 0 under the decay penalty) do not stretch the scale on which the others are told apart. And the
exploration factor is in standard deviations of the observations, as they are standardised, so that the unit of
time does not matter, which is what the paper's contextual variance is meant for.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np

from mptune.errors import UnknownNameError
from mptune.results import Trial
from mptune.strategies.base import Options, option
from mptune.strategies.model_based.discrete_model import DiscreteModel
from mptune.strategies.model_based.portfolio import ACQUISITIONS, AdvancedMulti, Multi, Portfolio, contextual_variance
from mptune.strategies.model_based.strategy import ModelBasedStrategy

__all__ = ["METHODS", "BayesianMultiOptions", "BayesianMultiStrategy"]

#: How the acquisition function is chosen: a portfolio rule, or always the same.
METHODS: Final = ("advanced-multi", "multi", *ACQUISITIONS)
_SAMPLINGS: Final = ("maximin", "random")
#: Scores are kept below this, so that their squares are finite (a time of 0 scores the largest double).
_MOST_SCORE: Final = 1e100


@dataclass(frozen=True, slots=True)
class BayesianMultiOptions(Options):
    """Hyperparameters; the defaults are those of Willemsen 2021, Table I and Sec. IV-A, where it has them."""

    strategy: ClassVar[str] = "bayesian-multi"
    method: str = option(
        "advanced-multi", "advanced-multi, multi, or one acquisition function alone: ei, poi or lcb.", choices=METHODS
    )
    functions: str = option("ei,poi,lcb", "the portfolio, in order, separated by commas.")
    initial: int = option(20, "valid configurations of the initial sample.", least=1)
    sampling: str = option(
        "maximin", "maximin (the Latin hypercube of the largest smallest distance) or random.", choices=_SAMPLINGS
    )
    length_scale: float = option(
        1.5,
        "length scale of the Matérn 3/2 covariance, where every parameter has values from 0 to 1; "
        "the paper has 2 for a constant exploration factor.",
        above=0,
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
        options = self.options
        self._portfolio = self._make_portfolio()
        self._model = DiscreteModel(
            self.space,
            length_scale=options.length_scale,
            noise=options.noise,
            max_candidates=options.max_candidates,
            sample=options.sample,
            max_observations=options.max_observations,
            rng=self.rng,
        )
        self._failed: set[int] = set()
        #: Mean score and mean posterior variance after the initial sample.
        self._anchor: tuple[float, float] | None = None
        self._rounds: list[_Round] = []
        self._suggestions: list[int] = []
        self._exploration = math.nan

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the acquisition functions still in use."""
        return self._portfolio.active

    @property
    def exploration(self) -> float:
        """Exploration factor of the last round, NaN before the first."""
        return self._exploration

    @property
    def suggestions(self) -> tuple[int, ...]:
        """Indices suggested in the current round and not proposed yet."""
        return tuple(self._suggestions)

    @property
    def observations(self) -> Mapping[int, float]:
        """Scores the model learns from, by index."""
        return MappingProxyType(self._model.observations)

    def _make_portfolio(self) -> Portfolio:
        options = self.options
        if options.method == "advanced-multi":
            return AdvancedMulti(
                options.portfolio,
                threshold=options.threshold,
                discount=options.discount_advanced,
                required=options.required,
            )
        functions = options.portfolio if options.method == "multi" else (options.method,)
        return Multi(functions, threshold=options.threshold, discount=options.discount_multi)

    # -- ask and tell --------------------------------------------------------------------------

    def _learn(self, indices: list[int], trials: Sequence[Trial]) -> None:
        for index, trial in zip(indices, trials, strict=True):
            if index in self._model.observations or index in self._failed:
                continue
            score = self.objective.score(trial)
            if score == -math.inf:
                self._failed.add(index)
            else:
                self._model.observe(index, min(max(score, -_MOST_SCORE), _MOST_SCORE))
            self._settle(index)
            self._note(index)

    def _strike(self, index: int) -> None:
        self._model.remove(index)

    # -- the initial sample --------------------------------------------------------------------

    def _begin(self) -> list[int]:
        draw = self.space.latin_hypercube if self.options.sampling == "maximin" else self.space.sample
        return self._draw_design(self.options.initial, self._model.coordinates(list(self._model.observations)), draw)

    def _next(self) -> int | None:
        index = self._next_of_design()
        return self._next_by_model() if index is None else index

    def _next_of_design(self) -> int | None:
        """Return the next point of the initial sample; random ones also while there is nothing to model."""
        known = len(self._model.observations)
        if known and known + len(self._pending) >= self._design_target:
            return None
        return super()._next_of_design()

    # -- the portfolio -------------------------------------------------------------------------

    def _next_by_model(self) -> int | None:
        """Return the next suggestion of the current round, or the first of a new one; None when nothing is left."""
        while self._suggestions:
            index = self._suggestions.pop(0)
            if not self._is_taken(index):
                return index
        suggested = self._suggest() if self._model.observations else {}
        if not suggested:
            return None
        if len(self.active) > 1:
            self._rounds.append(_Round(suggested))
        first, *self._suggestions = dict.fromkeys(suggested.values())
        return first

    def _suggest(self) -> dict[str, int]:
        """Return the index of the candidate each function in use values most; fewer where fewer are left.

        Predictions are made once. Under advanced-multi a function cannot suggest what one before it did.
        """
        predicted = self._model.predict(self._pending, self._taken)
        if not len(predicted.indices):
            return {}
        self._exploration = self._explore(float(predicted.variance.mean()))
        mean, deviation = -predicted.mean, np.sqrt(predicted.variance)
        free = np.ones(len(mean), dtype=np.bool_)
        suggested: dict[str, int] = {}
        for name in self.active:
            if free.any():
                values = ACQUISITIONS[name](mean, deviation, -predicted.best, self._exploration)
                position = int(np.where(free, values, -np.inf).argmax())
                suggested[name] = int(predicted.indices[position])
                free[position] = self.options.method != "advanced-multi"
        return suggested

    def _explore(self, variance: float) -> float:
        """Return the exploration factor for a mean posterior variance of the candidates."""
        if not self.options.contextual:
            return self.options.exploration
        scores = list(self._model.observations.values())
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
            return max(statistics.median(self._model.observations.values()), 0.0)
        return max(self._model.observations[index], 0.0)
