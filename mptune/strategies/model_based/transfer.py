"""What earlier runs say about a search: a prior mean of time, and a prior probability to fail.

Times of another device are no times of this one, but where a configuration is slow there it is often slow here. So each
source ``s`` gets a Gaussian process of its own, of its times relative to its best one,

    z = log(1 + (log t - log t_best) / nu)

(what is far from the best says little about the best), whose posterior mean ``g_s`` is known of every configuration.
The search models the same transform of its own times as

    z(x) = b + sum_s w_s g_s(x) + r(x),    w_s >= 0,

``r`` being the Gaussian process of a search without sources, now of what these leave. After every fit of its
hyperparameters, with ``L`` the Cholesky factor of its covariance at the trials, offset and weights are what minimises

    |L^-1 (z - b - G w)|^2 + (b / sigma)^2 + sum_s ((w_s - 1 / S) / rho)^2,

the maximum of their posterior under normal priors (Rasmussen and Williams, sec. 2.7), with S sources. A source that
nothing agrees with has weight 0. So have all where the values are likelier by themselves: where the log of the marginal
likelihood of what the sources leave is below that of the values about their mean, each with hyperparameters of its own,
by more than 3 (a factor of 20). Where all weights are 0, the model is that of a search without sources, until the next
fit.

A source is of no use whose own trials do not follow from each other: leaving each out in turn, its Gaussian process
explains hardly any of their variance.

Errors depend on the accuracy signature, and on size and data more than on the device. They are observations of the
model of errors (:mod:`mptune.strategies.model_based.error_model`) with an uncertainty of their own, and never count as
measured.

Failures are modelled as in :mod:`mptune.strategies.model_based.feasibility`, each source having the posterior mean
``f_s`` of its own; expected of a configuration is their mean, weighted with ``w_s``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.results.objective import Objective
from mptune.results.trial import SourceUse, Trial
from mptune.space.configuration import Value
from mptune.space.search_space import SearchSpace
from mptune.strategies.base import Source
from mptune.strategies.model_based.coordinates import Features
from mptune.strategies.model_based.feasibility import Expected, Outcome, failure_prior
from mptune.strategies.model_based.gaussian_process import (
    Hyperparameters,
    LogNormalPrior,
    MeanFunction,
    Posterior,
    fit,
    log_posterior,
)
from mptune.strategies.model_based.strategy import Candidates
from mptune.strategies.model_based.surrogate import ModelledAxis, Scale

__all__ = ["Sources", "TransferAxis", "judged", "shared", "weigh"]

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

#: The transform's nu: a time by this much above the best one in its logarithm, 22%, is where it bends.
_BEND: Final = 0.2
#: Trials a source is modelled by: its fastest, and of the others so many.
_FASTEST, _OTHERS = 60, 160
#: The fewest from which anything can be learnt.
_FEWEST: Final = 8
#: Share of the variance of its own trials that a source has to explain.
_LEAST_EXPLAINED: Final = 0.2
_UNEXPLAINED: Final = "its trials are not used: they do not follow from its parameters"
#: Standard deviations of the priors of offset and weights.
_OFFSET: Final = 1.0
_WEIGHT: Final = 0.25
#: Centre of the prior of the deviation of what the sources leave, in units of the sources' own.
_LEFT: Final = 0.5
#: Sources are dropped where the log of the likelihood is larger by this much without them.
_BENEFIT: Final = 3.0
#: Times that weights and hyperparameters are fitted in turn.
_ROUNDS: Final = 2
#: Iterations of each fit of what the sources leave, which goes on from the one before.
_ITERATIONS: Final = 6
#: A source of many trials is fitted to every third of them, which costs a tenth, and from there to all.
_MANY: Final = 110
_STEP: Final = 3
_COARSE, _FINE = 12, 2
#: Iterations of the fit to fewer trials.
_ONCE: Final = 20


def shared(source: Source, space: SearchSpace) -> tuple[tuple[str, ...], tuple[Trial, ...]]:
    """Return names of the parameters that a source has in common with a space, and its trials with values of those.

    A parameter that has one value in the space says nothing and does not count, but of a source that has that value,
    among others, only the trials with it do.
    """
    theirs: dict[str, set[Value]] = {}
    for trial in source.trials:
        for name, value in trial.configuration.items():
            theirs.setdefault(name, set()).add(value)
    known = {p.name: frozenset(p.values) & theirs.get(p.name, set()) for p in space.parameters}
    names = tuple(p.name for p in space.parameters if p.name in theirs and len(p.values) > 1)
    wanted = {p.name: known[p.name] for p in space.parameters if p.name in names or known[p.name]}
    usable = tuple(
        trial
        for trial in source.trials
        if all(trial.configuration.get(name) in values for name, values in wanted.items())
    )
    return names, usable if names else ()


def judged(source: Source, space: SearchSpace, signature: Sequence[str]) -> tuple[Codes, tuple[Trial, ...]]:
    """Return the trials whose error says something about one signature of a space, and their value codes ``(n, d)``.

    The codes of parameters outside the signature are 0.
    """
    names, trials = shared(source, space)
    needed = [name for name in signature if len(space.parameter(name).values) > 1]
    if not np.isfinite(source.error_doubt) or not set(needed) <= set(names):
        return np.empty((0, len(space.names)), dtype=np.int32), ()
    measured = tuple(t for t in trials if t.is_valid)
    codes = np.zeros((len(measured), len(space.names)), dtype=np.int32)
    for name in needed:
        values = space.parameter(name).values
        codes[:, space.names.index(name)] = [values.index(t.configuration[name]) for t in measured]
    return codes, measured


@dataclass(frozen=True, slots=True, eq=False)
class _SourceModel:
    """What one source says.

    Attributes:
        columns: the features it knows, ascending.
        mean: of its transformed times.
        spread: their standard deviation.
        times: standardised.
        failures: None where nothing failed.
    """

    columns: NDArray[np.intp]
    mean: float
    spread: float
    times: MeanFunction
    failures: MeanFunction | None

    @classmethod
    def of(cls, x: Array, levels: Array, failed: NDArray[np.bool_], columns: NDArray[np.intp]) -> _SourceModel | str:
        """Return the model of trials, features ``(n, k)``, log times ``(n,)`` and failures ``(n,)``; else why not.

        Levels are NaN where they are not known.
        """
        known = ~np.isnan(levels)
        if known.sum() < _FEWEST:
            return f"its trials are not used: {known.sum()} different configurations ran, and {_FEWEST} are needed"
        values = Scale(float(levels[known].min()), _BEND, 1.0, 0.0, 1.0).apply(levels[known])
        mean, spread = float(values.mean()), float(values.std())
        if spread <= 0:
            return "its trials are not used: all are equally good"
        if not len(columns):
            return _UNEXPLAINED
        prior = LogNormalPrior.of(len(columns))
        times = _posterior(x[known], (values - mean) / spread, prior)
        if 1.0 - float(np.square(times.left_out()).mean()) < _LEAST_EXPLAINED:
            return _UNEXPLAINED
        failures = None
        if failed.any():
            failures = _posterior(x, failed.astype(np.float64), failure_prior(len(columns))).mean_function()
        return cls(columns, mean, spread, times.mean_function(), failures)

    def levels(self, features: Array) -> Array:
        """Return the expected transformed times, ``(n,)`` from ``(n, n_features)``."""
        return self.mean + self.spread * self.times.at(features[:, self.columns])

    def failure(self, features: Array) -> Array:
        """Return how likely configurations are to fail, ``(n,)``."""
        if self.failures is None:
            return np.zeros(len(features))
        return np.clip(self.failures.at(features[:, self.columns]), 0.0, 1.0)


def _posterior(x: Array, y: Array, prior: LogNormalPrior) -> Posterior:
    if len(x) > _MANY:
        found = fit(x, y, prior, [fit(x[::_STEP], y[::_STEP], prior, [prior.centre], _COARSE)], _FINE)
    else:
        found = fit(x, y, prior, [prior.centre], _ONCE)
    posterior = Posterior(found, np.empty((0, x.shape[1])))
    posterior.condition(x, y)
    return posterior


class Sources(Expected):
    """The sources of a search, as far as they are of use, and how much of them is believed.

    Args:
        given: the sources.
        space: what is searched.
        features: numbers its configurations.
        objective: of the search; it has one metric.

    Attributes:
        weights: by source in use, shape ``(n_sources,)``.
        spread: the mean spread of their transformed times.
    """

    def __init__(self, given: Sequence[Source], space: SearchSpace, features: Features, objective: Objective) -> None:
        self._given = tuple(given)
        self._uses: list[tuple[tuple[str, ...], int, str]] = []
        self._positions: list[int] = []
        self._models: list[_SourceModel] = []
        for position, source in enumerate(self._given):
            names, trials = shared(source, space)
            columns = np.flatnonzero(np.isin(features.owners, [space.names.index(name) for name in names]))
            codes, levels, failed = _distinct(trials, names, space, objective)
            kept = _most_telling(levels)
            model = _SourceModel.of(features.at(codes[kept])[:, columns], levels[kept], failed[kept], columns)
            remarks = [source.remark]
            if isinstance(model, str):
                remarks.append(model)
            else:
                self._models.append(model)
                self._positions.append(position)
            self._uses.append((names, len(kept), "; ".join(filter(None, remarks))))
        self.weights = np.full(len(self._models), self.expected_weight)
        self.spread = float(np.mean([model.spread for model in self._models])) if self._models else 1.0
        #: What the sources say of configurations that have been candidates: by row, whose index and features it is.
        self._said = np.empty((0, 2 * len(self._models)))
        self._indices = np.empty(0, dtype=np.int64)
        self._order = np.empty(0, dtype=np.int64)
        self._row_of: dict[bytes, int] = {}

    @property
    def expected_weight(self) -> float:
        """The weight each is believed to have before anything was tried."""
        return 1.0 / max(len(self._models), 1)

    @property
    def are_trusted(self) -> bool:
        """Whether any has a weight."""
        return bool((self.weights > 0).any())

    @property
    def uses(self) -> tuple[SourceUse, ...]:
        """What is made of each source, in the order they were given."""
        weights = dict(zip(self._positions, self.weights.tolist(), strict=True))
        return tuple(
            SourceUse(source.name, trials, names, weights.get(position, 0.0), remark)
            for position, (source, (names, trials, remark)) in enumerate(zip(self._given, self._uses, strict=True))
        )

    def levels(self, features: Array) -> Array:
        """Return the transformed times that each source expects, in units of their spread: ``(n, n_sources)``."""
        return self._at(features)[:, : len(self._models)]

    def levels_of(self, candidates: Candidates) -> Array:
        """Return the same of candidates."""
        return self._of(candidates)[:, : len(self._models)]

    def failure(self, features: Array) -> Array:
        """Return how likely configurations are to fail, says the weighted mean of the sources in use; ``(n,)``."""
        return self._mean_failure(self._at(features)[:, len(self._models) :])

    def failure_of(self, candidates: Candidates) -> Array:
        """Return the same of candidates."""
        return self._mean_failure(self._of(candidates)[:, len(self._models) :])

    def _mean_failure(self, of_each: Array) -> Array:
        share = self.weights / self.weights.sum() if self.are_trusted else self.weights
        return np.asarray((of_each * share).sum(axis=1))

    def _at(self, features: Array) -> Array:
        """Return expected levels, then failures, ``(n, 2 * n_sources)``; looked up if all have been candidates."""
        rows = [self._row_of.get(row.tobytes(), -1) for row in features]
        return self._expected(features) if -1 in rows else np.asarray(self._said[rows])

    def _expected(self, features: Array) -> Array:
        levels = np.stack([model.levels(features) for model in self._models], axis=1) / self.spread
        return np.concatenate([levels, np.stack([m.failure(features) for m in self._models], axis=1)], axis=1)

    def _of(self, candidates: Candidates) -> Array:
        """Return the same of candidates, which is kept where these are always the same ones."""
        if not candidates.complete:
            return self._expected(candidates.features)
        new = np.isin(candidates.indices, self._indices, invert=True)
        if new.any():
            features = candidates.features[new]
            first = len(self._indices)
            self._indices = np.concatenate([self._indices, candidates.indices[new]])
            self._said = np.concatenate([self._said, self._expected(features)])
            self._row_of |= {row.tobytes(): first + i for i, row in enumerate(features)}
            self._order = np.argsort(self._indices)
        at = np.searchsorted(self._indices, candidates.indices, sorter=self._order)
        return np.asarray(self._said[self._order[at]])


def _distinct(
    trials: Sequence[Trial], names: Sequence[str], space: SearchSpace, objective: Objective
) -> tuple[Codes, Array, NDArray[np.bool_]]:
    """Return value codes ``(n, d)``, log objective and failures of trials that differ in the parameters named.

    Of several with the same values the best counts; the codes of other parameters are 0.
    """
    code_of = {name: {value: code for code, value in enumerate(space.parameter(name).values)} for name in names}
    found: dict[tuple[int, ...], tuple[float, bool]] = {}
    for trial in trials:
        key = tuple(code_of[name][trial.configuration[name]] for name in names)
        failed = not trial.is_valid or objective.constraint_excess(trial) > 0
        level = -np.log(objective.performance(trial))
        before, failed_before = found.get(key, (np.nan, True))
        found[key] = float(np.fmin(level, before)), failed and failed_before
    codes = np.zeros((len(found), len(space.names)), dtype=np.int32)
    if found:
        codes[:, [space.names.index(name) for name in names]] = list(found)
    levels, failures = zip(*found.values(), strict=True) if found else ((), ())
    return codes, np.array(levels, dtype=np.float64), np.array(failures, dtype=np.bool_)


def _most_telling(levels: Array) -> NDArray[np.intp]:
    """Return positions of the trials a source is modelled by, ascending: the fastest, and a random part of the rest."""
    ranked = np.argsort(levels, kind="stable")
    others = np.random.default_rng(0).permutation(ranked[_FASTEST:])[:_OTHERS]
    return np.sort(np.concatenate([ranked[:_FASTEST], others]))


def weigh(values: Array, ones: Array, levels: Array, expected: float) -> tuple[float, Array]:
    """Return offset and weights, ``(n_sources,)``, at the maximum of their posterior; no weight is negative.

    Whitened: transformed times ``(n,)``, a constant 1 ``(n,)``, and what the sources expect ``(n, n_sources)``. Each
    weight is expected to be ``expected``.
    """
    # Takes half a second to import, which making a strategy need not spend.
    from scipy.optimize import nnls

    count = levels.shape[1]
    priors = np.zeros((1 + count, 2 + count))
    priors[0, :2] = 1.0 / _OFFSET, -1.0 / _OFFSET
    priors[1:, 2:] = np.eye(count) / _WEIGHT
    # The offset may be negative: it is the difference of two numbers that are not.
    rows = np.concatenate([np.column_stack([ones, -ones, levels]), priors])
    goal = np.concatenate([values, [0.0], np.full(count, expected / _WEIGHT)])
    found, _ = nnls(rows, goal)
    return float(found[0] - found[1]), np.asarray(found[2:])


class TransferAxis(ModelledAxis):
    """An objective of which sources say what to expect; once none is believed, one without sources."""

    def __init__(self, position: int, prior: LogNormalPrior, sources: Sources, *, iterations: int, warp: float) -> None:
        super().__init__(position, prior, iterations=iterations, warp=warp)
        self._sources = sources
        means = prior.means.copy()
        means[-2] = np.log(_LEFT)
        self._prior_left = LogNormalPrior(means, prior.unit)
        self._left: Hyperparameters = self._prior_left.centre
        self._alone: Hyperparameters = self._prior_left.centre
        self._offset = 0.0
        self._expected = np.empty(0)

    def fit(self, candidates: Candidates, known: Sequence[Outcome]) -> None:
        """Fit weights, hyperparameters and posterior anew; nothing may be known."""
        sources = self._sources
        seen = [o for o in known if not np.isnan(o.levels[self._position])]
        x, values = np.array([o.features for o in seen]), np.array([o.levels[self._position] for o in seen])
        self.scale = Scale(float(values.min()) if seen else 0.0, _BEND, 1.0, 0.0, sources.spread)
        z = self.scale.apply(values)
        levels = sources.levels(x) if seen else np.empty((0, 0))
        if seen:
            self._weigh(x, z, levels)
        if not sources.are_trusted:
            super().fit(candidates, known)
            return
        self._posterior = Posterior(self._left, candidates.features)
        if seen:
            self._posterior.condition(x, z - self._mean(levels))
        self._expected = self._mean(sources.levels_of(candidates))

    def _weigh(self, x: Array, z: Array, levels: Array) -> None:
        """Fit hyperparameters of what the sources leave, then their weights.

        Features ``(n, k)``, values ``(n,)``, and what the sources expect of these, ``(n, n_sources)``.
        """
        for _ in range(_ROUNDS):
            if len(x) > 1:
                self._left = fit(x, z - self._mean(levels), self._prior_left, [self._left], _ITERATIONS)
            posterior = Posterior(self._left, np.empty((0, x.shape[1])))
            posterior.condition(x, z)
            values, ones, *whitened = (posterior.whiten(column) for column in (z, np.ones(len(x)), *levels.T))
            expected = self._sources.expected_weight
            self._offset, self._sources.weights = weigh(values, ones, np.stack(whitened, axis=1), expected)
        if len(x) > 1 and self._is_likelier_without(x, z, z - self._mean(levels)):
            self._sources.weights = np.zeros_like(self._sources.weights)

    def _is_likelier_without(self, x: Array, z: Array, left: Array) -> bool:
        """Whether values are more probable by themselves than what the sources leave of them."""
        alone = z - z.mean()
        self._alone = fit(x, alone, self._prior_left, [self._alone], _ITERATIONS)
        with_sources, _ = log_posterior(self._left.to_vector(), x, left, self._prior_left)
        without, _ = log_posterior(self._alone.to_vector(), x, alone, self._prior_left)
        return without > with_sources + _BENEFIT

    def _mean(self, levels: Array) -> Array:
        return np.asarray(self._offset + (levels * self._sources.weights).sum(axis=1))

    def append(self, outcome: Outcome) -> None:
        """Add an observation."""
        if not self._sources.are_trusted:
            super().append(outcome)
            return
        level = float(outcome.levels[self._position])
        if not np.isnan(level):
            expected = self._mean(self._sources.levels(outcome.features[None, :]))[0]
            self._posterior.append(outcome.features, float(self.scale.apply(level)) - expected)

    def at_candidates(self) -> tuple[Array, Array]:
        """Return the posterior at the candidates."""
        mean, deviation = super().at_candidates()
        return (mean + self._expected, deviation) if self._sources.are_trusted else (mean, deviation)

    def at(self, features: Array, codes: Codes) -> tuple[Array, Array]:
        """Return the posterior elsewhere."""
        mean, deviation = super().at(features, codes)
        if not self._sources.are_trusted:
            return mean, deviation
        return mean + self._mean(self._sources.levels(features)), deviation
