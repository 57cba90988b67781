"""Prior means from earlier runs: of time, and of the probability to fail.

Times of another device are no times of this one, but a configuration that is slow there is often slow here. So each
source ``s`` gets a Gaussian process of its own, of its times relative to its best one,

    z = log(1 + (log t - log t_best) / nu)

(times far from the best say little about the best), with the posterior mean ``g_s``. The search models the same
transform of its own times as

    z(x) = b + sum_s w_s g_s(x) + r(x),    w_s >= 0,

``r`` being a Gaussian process of the rest. The centre of its length scales is half that of a search without sources.
With longer scales, a few trials make the search certain that everything is slow that the sources expect to be slow.
After every fit of the hyperparameters, with ``L`` the Cholesky factor of the covariance at the trials, offset and
weights minimise

    |L^-1 (z - b - G w)|^2 + (b / sigma)^2 + sum_s ((w_s - 1 / S) / rho)^2,

the maximum of their posterior under normal priors (Rasmussen and Williams, sec. 2.7), with S sources. A source that
nothing agrees with has weight 0. All have weight 0 while the log of the marginal likelihood without sources, with
hyperparameters of its own, is larger by more than 3 (a factor of 20). A source is not used if its own trials do not
follow from each other: leaving each out in turn, its Gaussian process explains hardly any of their variance.

Failures are modelled in the same way; the expected probability is the mean over sources, weighted with ``w_s``.

Errors depend on the accuracy signature, and on size and data more than on the device. They are observations of the
model of errors (:mod:`mptune.strategies.model_based.error_model`) with an uncertainty of their own, and never count as
measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.results.objective import Objective
from mptune.results.trial import SourceUse, Trial
from mptune.space.search_space import SearchSpace
from mptune.strategies.base import Array, Codes, Source
from mptune.strategies.model_based.coordinates import Coordinates
from mptune.strategies.model_based.gaussian_process import (
    Hyperparameters,
    LogNormalPrior,
    Posterior,
    fit,
    log_posterior,
)
from mptune.strategies.model_based.models import FAILURE_PRIOR, Scale
from mptune.strategies.model_based.strategy import Candidates

#: The transform's nu: a time this far above the best one in its logarithm, 22%, is where it bends.
_BEND: Final = 0.2
#: Trials a source is modelled by: its fastest, and this many of the others.
_FASTEST, _OTHERS = 60, 160
#: Fewest trials a source is modelled by.
_FEWEST: Final = 8
#: Standard deviations of the priors of offset and weights.
_OFFSET: Final = 1.0
_WEIGHT: Final = 0.25
#: Iterations of each fit of the rest, which continues from the one before.
_ITERATIONS: Final = 6


def shared(source: Source, space: SearchSpace) -> tuple[tuple[str, ...], tuple[Trial, ...]]:
    """Return names of the parameters that a source has in common with a space, and its trials with values of those.

    A parameter with one value in the space says nothing and does not count. If a source has that value among others,
    only its trials with that value count.
    """
    theirs = {name: {t.configuration[name] for t in source.trials if name in t.configuration} for name in space.names}
    names = tuple(p.name for p in space.parameters if theirs[p.name] and len(p.values) > 1)
    wanted = {p.name: frozenset(p.values) for p in space.parameters if p.name in names or theirs[p.name] & {*p.values}}
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
    return _codes(measured, needed, space), measured


def _codes(trials: Sequence[Trial], names: Sequence[str], space: SearchSpace) -> Codes:
    """Return value codes ``(n, d)`` of trials; those of parameters not named are 0."""
    codes = np.zeros((len(trials), len(space.names)), dtype=np.int32)
    for name in names:
        code_of = {value: code for code, value in enumerate(space.parameter(name).values)}
        codes[:, space.names.index(name)] = [code_of[trial.configuration[name]] for trial in trials]
    return codes


class _SourceModel:
    """Gaussian processes of the transformed times and the failures of one source; ``problem`` says why it has none."""

    def __init__(self, source: Source, space: SearchSpace, coordinates: Coordinates, objective: Objective) -> None:
        self.names, trials = shared(source, space)
        columns = [space.names.index(name) for name in self.names]
        self._columns = np.flatnonzero(np.isin(coordinates.owners, columns))
        codes = _codes(trials, self.names, space)
        levels = np.array([-np.log(objective.performance(trial)) for trial in trials])
        failed = np.array([not t.is_valid or objective.constraint_excess(t) > 0 for t in trials], dtype=np.bool_)
        # Of several trials with the same shared values the best counts.
        ranked = np.lexsort((levels, failed))
        _, first = np.unique(codes[ranked], axis=0, return_index=True)
        ranked = ranked[np.sort(first)]
        others = np.random.default_rng(0).permutation(ranked[_FASTEST:])[:_OTHERS]
        kept = np.sort(np.concatenate([ranked[:_FASTEST], others]))
        self.count = len(kept)
        self.problem = self._modelled(coordinates.at(codes[kept])[:, self._columns], levels[kept], failed[kept])

    def _modelled(self, x: Array, levels: Array, failed: NDArray[np.bool_]) -> str:
        """Fit the models to features ``(n, k)``, log times ``(n,)`` and failures ``(n,)``; return why that fails."""
        known = ~np.isnan(levels)
        if known.sum() < _FEWEST:
            return f"its trials are not used: {known.sum()} different configurations ran, and {_FEWEST} are needed"
        values = Scale(float(levels[known].min()), _BEND, 1.0).apply(levels[known])
        self._mean, self.spread = float(values.mean()), float(values.std())
        if self.spread <= 0:
            return "its trials are not used: all are equally good"
        prior = LogNormalPrior(x.shape[1])
        self._times = _posterior(x[known], (values - self._mean) / self.spread, prior)
        explained = 1.0 - float(np.square(self._times.left_out()).mean())
        if explained < 0.2:
            return "its trials are not used: they do not follow from its parameters"
        self._failures: Posterior | None = None
        if failed.any():
            self._failures = _posterior(x, failed.astype(np.float64), LogNormalPrior(x.shape[1], **FAILURE_PRIOR))
        return ""

    def at(self, features: Array) -> Array:
        """Return expected transformed times and probabilities to fail, ``(n, 2)`` from ``(n, n_features)``."""
        x = features[:, self._columns]
        failures = np.zeros(len(x)) if self._failures is None else self._failures.predict_mean(x)
        levels = self._mean + self.spread * self._times.predict_mean(x)
        return np.stack([levels, np.clip(failures, 0.0, 1.0)], axis=1)


def _posterior(x: Array, y: Array, prior: LogNormalPrior) -> Posterior:
    return Posterior(fit(x, y, prior, [prior.centre], 20), x[:0], x, y)


class Sources:
    """The sources of a search with a single objective, the models of those in use, and their weights."""

    def __init__(
        self,
        given: Sequence[Source],
        space: SearchSpace,
        coordinates: Coordinates,
        objective: Objective,
        length_spread: float,
    ) -> None:
        self._space, self._coordinates = space, coordinates
        self._given = [(source, _SourceModel(source, space, coordinates, objective)) for source in given]
        self.models = [model for _, model in self._given if not model.problem]
        self.weights, self._offset = np.full(len(self.models), 1.0 / max(len(self.models), 1)), 0.0
        self._spread = float(np.mean([model.spread for model in self.models])) if self.models else 1.0
        self._everywhere: Array | None = None
        #: Hyperparameters of the rest, in units of the deviations of the sources, and of the values by themselves.
        self._prior = LogNormalPrior(coordinates.count, log_length=-1.0, length_spread=length_spread, signal=0.5)
        self._left = self._alone = self._prior.centre

    @property
    def uses(self) -> tuple[SourceUse, ...]:
        """What is made of each source, in the order they were given."""
        weights = iter(self.weights.tolist())
        return tuple(
            SourceUse(
                source.name,
                model.count,
                model.names,
                0.0 if model.problem else next(weights),
                "; ".join(filter(None, [source.remark, model.problem])),
            )
            for source, model in self._given
        )

    def scale(self, values: Array) -> Scale:
        """Return the scale of the search's own log times, in units of the spread of the sources."""
        return Scale(float(values.min()) if len(values) else 0.0, _BEND, 1.0, 0.0, self._spread)

    def mean(self, at: Array | Candidates) -> Array:
        """Return the prior mean of scaled times, ``(n,)``, at features ``(n, k)`` or of candidates."""
        return self._mean(self._levels(at))

    def failures(self, at: Array | Candidates) -> Array:
        """Return the probability to fail, the weighted mean of the sources, ``(n,)``."""
        return np.asarray(self._expected(at)[:, 1] @ self.weights / max(self.weights.sum(), 1e-9))

    def _expected(self, at: Array | Candidates) -> Array:
        """Return expected times and failures, ``(n, 2, n_sources)``, from features ``(n, k)`` or of candidates."""
        if isinstance(at, Candidates) and at.complete:
            if self._everywhere is None:
                everything = self._coordinates.at(self._space.codes(np.arange(self._space.size)))
                self._everywhere = self._expected(everything)
            return np.asarray(self._everywhere[at.indices])
        features = at.features if isinstance(at, Candidates) else at
        return np.stack([model.at(features) for model in self.models], axis=2)

    def _levels(self, at: Array | Candidates) -> Array:
        """Return the transformed times that each source expects, in units of their spread: ``(n, n_sources)``."""
        return np.asarray(self._expected(at)[:, 0] / self._spread)

    def _mean(self, levels: Array) -> Array:
        return np.asarray(self._offset + levels @ self.weights)

    def fit(self, x: Array, z: Array) -> Hyperparameters:
        """Fit offset, weights and the model of the rest to features ``(n, k)`` and scaled times ``(n,)``."""
        from scipy.optimize import nnls  # takes half a second, which making a strategy need not spend

        if not len(z):
            return self._left
        levels, count = self._levels(x), len(self.models)
        priors = np.diag(1.0 / np.array([_OFFSET, *[_WEIGHT] * count]))
        for _ in range(2):  # hyperparameters and weights in turn
            self._left = fit(x, z - self._mean(levels), self._prior, [self._left], _ITERATIONS)
            whitened = Posterior(self._left, x[:0], x, z).whiten(np.column_stack([z, np.ones(len(z)), levels]))
            rows = np.concatenate([whitened[:, 1:], priors])
            goal = np.concatenate([whitened[:, 0], [0.0], np.full(count, 1.0 / (count * _WEIGHT))])
            # The offset may be negative: it is the difference of two numbers that are not.
            found, _ = nnls(np.column_stack([rows, -rows[:, 0]]), goal)
            self._offset, self.weights = float(found[0] - found[-1]), np.asarray(found[1:-1])
        centred = z - z.mean()
        self._alone = fit(x, centred, self._prior, [self._alone], _ITERATIONS)
        with_sources, _ = log_posterior(self._left.to_vector(), x, z - self._mean(levels), self._prior)
        without, _ = log_posterior(self._alone.to_vector(), x, centred, self._prior)
        if without <= with_sources + 3.0:
            return self._left
        self._offset, self.weights = float(z.mean()), np.zeros_like(self.weights)
        return self._alone
