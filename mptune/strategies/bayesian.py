"""Bayesian optimisation with separate models of time, validity and error (mptune's default).

- Time: a Gaussian process on the log of the objective over all parameters, with length scales, signal and noise at the
  maximum of their posterior (Hellsten 2023, Sec. 4.2). Inaccurate trials are observations, too.
- Hidden constraints: a learned probability to run.
- Accuracy: the error depends on the accuracy signature alone. Measured signatures are known exactly; signatures over
  the threshold are not proposed again. Other signatures have a probability to meet the threshold.

The value of a candidate is its expected improvement over the best feasible trial times both probabilities. After
_PATIENCE evaluations without improvement, every second proposal is the neighbour of the best trials with the largest
value. The search begins with the widest signature and the uniform types that may be accurate enough, or with a random
configuration. Sources (earlier runs) give the prior mean of the Gaussian process
(:mod:`mptune.strategies.model_based.transfer`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import MptuneError
from mptune.results.trial import SourceUse, Trial
from mptune.space.configuration import Value
from mptune.space.parameters import uniform_types
from mptune.strategies.base import MAX_OBSERVATIONS, Array, Indices, Options, Source, option
from mptune.strategies.model_based.acquisition import log_expected_improvement, log_improvement_bound
from mptune.strategies.model_based.coordinates import features
from mptune.strategies.model_based.error_model import Signatures
from mptune.strategies.model_based.gaussian_process import single_threaded
from mptune.strategies.model_based.models import Axis, ModelledAxis, Outcome, Validity, best_outcomes
from mptune.strategies.model_based.strategy import Candidates, CandidateStrategy, ascend
from mptune.strategies.model_based.transfer import Sources, judged

#: Attempts at a valid trial of the widest signature before the model takes over.
_WIDEST_ATTEMPTS: Final = 4
#: Uniform types whose log probability to be accurate enough is below this are not run before others.
_LEAST_LOG_PROBABILITY: Final = math.log(0.2)
#: Best feasible trials whose neighbours join a sample.
_ELITE: Final = 4
#: Evaluations without improvement after which every second proposal is a neighbour of the best trials. A smooth model
#: or a misleading source may underestimate neighbours.
_PATIENCE: Final = 12
#: Weight of predicted time, in deviations, against log probability while no feasible trial is known.
TIME_WEIGHT: Final = 0.25


@dataclass(frozen=True, slots=True)
class BayesianOptions(Options):
    """Hyperparameters."""

    max_candidates: int = option(20_000, "largest space whose configurations are all candidates.", least=1)
    sample: int = option(4_000, "candidates sampled from a larger space.", least=10)
    refit: float = option(1.25, "growth of the observations after which hyperparameters are refitted.", least=1)
    iterations: int = option(30, "iterations of each fit of the hyperparameters.", least=1)
    warp: float = option(1.0, "strength of the compression of values worse than the median, 0 for none.", least=0)
    length_spread: float = option(0.6, "standard deviation of the prior of a log length scale.", above=0)
    max_observations: int = option(800, MAX_OBSERVATIONS, least=20)


class BayesianStrategy(CandidateStrategy):
    """Proposes the most promising configuration under models of time, validity and error."""

    name: ClassVar[str] = "bayesian"
    first: ClassVar[int] = 1  #: valid trials before the model takes over
    steps: ClassVar[int] = 6  #: moves of local search from each start in a sampled space
    options_class: ClassVar[type[Options]] = BayesianOptions
    options: BayesianOptions

    def __init__(self, *args: Any, is_relative: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._coordinates = features(self.space)
        self._signatures: Signatures | None = None
        if self.objective.threshold is not None and self.signature:
            self._signatures = Signatures(self.space, self.signature, self.objective, is_relative=is_relative)
        #: The models of errors; the first one has the widest signature.
        self._errors = [] if self._signatures is None else [self._signatures]
        self._sources: Sources | None = None
        #: Allowed codes of proposals by column; empty without a restriction.
        self._focus: dict[int, list[int]] = {}
        self._axes: list[Axis] = self._make_axes()
        self._validity = self._make_validity()
        self._outcomes: dict[int, Outcome] = {}
        self._fitted_to = 0
        self._best = math.inf
        self._since_best = 0
        #: Value of the best feasible outcome on the scale of the model; NaN without one.
        self._to_beat = math.nan
        self._widest_attempts = 0
        #: Uniform types not yet run, as value codes by column.
        self._uniform = [
            {self.space.names.index(name): self.space.parameter(name).values.index(v) for name, v in types.items()}
            for types in uniform_types(self.space.parameters).values()
        ]
        #: Version of the model of errors, and its log probabilities of the candidates' signatures.
        self._accurate: tuple[int, Array] = (-1, np.empty(0))
        #: Cached neighbours of configurations.
        self._around: dict[int, Indices] = {}

    @single_threaded()
    def start_from(self, sources: Sequence[Source]) -> None:
        """Learn from earlier runs: times, failures and errors."""
        if not sources:
            return
        if self.objective.also:
            raise MptuneError("a search for several objectives cannot start from earlier runs")
        length_spread = self.options.length_spread
        self._sources = Sources(sources, self.space, self._coordinates, self.objective, length_spread)
        self._axes, self._validity = self._make_axes(), self._make_validity()
        if self._sources.models:
            self._uniform = []
        if self._signatures is not None:
            for source in sources:
                self._signatures.suppose(*judged(source, self.space, self.signature), source.error_doubt)

    def expect(self, trials: Sequence[Trial], doubt: float) -> None:
        """Teach the model of errors; no signature counts as measured."""
        known = {index: trial for trial in trials if (index := self.space.index(trial.configuration)) is not None}
        if self._signatures is not None and known:
            self._signatures.suppose(self.space.codes(list(known)), list(known.values()), doubt)

    @property
    def sources(self) -> tuple[SourceUse, ...]:
        """The use of each source, in the given order."""
        return () if self._sources is None else self._sources.uses

    def _make_axes(self) -> list[Axis]:
        return [self._modelled(0)]

    def _modelled(self, position: int) -> ModelledAxis:
        return ModelledAxis(
            position,
            np.arange(self._coordinates.count),
            length_spread=self.options.length_spread,
            iterations=self.options.iterations,
            warp=self.options.warp,
            sources=self._sources,
        )

    def _make_validity(self) -> Validity:
        return Validity(
            self._coordinates.count,
            iterations=self.options.iterations,
            max_observations=self.options.max_observations,
            rng=self.rng,
            sources=self._sources,
        )

    def focus(self, values: Mapping[str, Collection[Value]]) -> None:
        """Restrict proposals, and the best trial to improve on, to some values of parameters.

        All other trials are still observations, so one model of time serves the search for the baseline, too. The
        restriction is set before the first trial.
        """
        for name, allowed in values.items():
            offered = self.space.parameter(name).values
            self._focus[self.space.names.index(name)] = [offered.index(v) for v in allowed if v in offered]

    def _in_focus(self, codes: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return whether configurations are within the restriction, ``(n,)`` from value codes ``(n, d)``."""
        inside = np.ones(len(codes), dtype=np.bool_)
        for column, allowed in self._focus.items():
            inside &= np.isin(codes[:, column], allowed)
        return inside

    def _moved_into_focus(self, indices: Indices) -> Indices:
        """Return the valid ones of the given configurations with restricted parameters redrawn from allowed values."""
        if not all(map(len, self._focus.values())):  # an allowed value is not in the space
            return indices[:0]
        codes = self.space.codes(indices).copy()
        for column, allowed in self._focus.items():
            codes[:, column] = self.rng.choice(allowed, len(codes))
        found = self.space.indices_of(codes)
        return found[found >= 0]

    # -- tell ----------------------------------------------------------------------------------

    def _take_in(self, new: Mapping[int, Trial]) -> None:
        codes = self.space.codes(list(new))
        for (index, trial), row, values in zip(new.items(), self._coordinates.at(codes), codes, strict=True):
            # Constraints on measured metrics are hidden constraints, too.
            failed = not trial.is_valid or self.objective.constraint_excess(trial) > 0
            is_rival = not failed and self.objective.is_feasible(trial) and bool(self._in_focus(values[None, :])[0])
            outcome = self._outcomes[index] = Outcome(row, values, self._levels(trial), failed, is_rival)
            is_better = outcome.feasible and outcome.value < self._best
            self._best, self._since_best = (outcome.value, 0) if is_better else (self._best, self._since_best + 1)
        for signatures in self._errors:
            signatures.observe(codes, list(new.values()))

    def _levels(self, trial: Trial) -> Array:
        return np.array([-math.log(self.objective.performance(trial))])

    # -- ask -----------------------------------------------------------------------------------

    def _next(self) -> int | None:
        if not self._focus:
            for step in (self._next_widest, self._next_uniform, self._next_first):
                if (index := step()) is not None:
                    return index
        return self._next_by_model()

    def _next_widest(self) -> int | None:
        """Return a configuration of the widest signature until its error is measured.

        The widest signature is the most likely to be feasible, and its error is the floor of the error model.
        """
        signatures = next(iter(self._errors), None)
        if signatures is None or signatures.is_widest_measured:
            return None
        if self._pending or self._widest_attempts >= _WIDEST_ATTEMPTS:
            return None
        self._widest_attempts += 1
        around = self.space.sample(min(256, self.space.size), self.rng)
        codes = self.space.codes(around).copy()
        codes[:, signatures.columns] = signatures.widest
        if found := self._unseen(self.space.indices_of(codes)):
            return found[0]
        free = self._unseen(around)
        return free[signatures.log_probability(self.space.codes(free)).argmax()] if free else None

    def _next_uniform(self) -> int | None:
        """Return a configuration in a uniform type that has not run, if it may be accurate enough.

        Mixed types pay for conversions: a model that knows only mixtures with the widest type does not expect a
        narrower uniform type to be fast. The other parameters are those of the best trial, or random while others are.
        """
        columns = [self.space.names.index(name) for name in self.signature]
        while self._uniform and (elite := self._elite(1)):
            types, best = self._uniform.pop(0), self.space.codes(elite)
            rows = self.space.codes(self.space.sample(min(256, self.space.size), self.rng)).copy()
            rows[:, columns] = best[0, columns]
            if self.first == 1:
                rows = np.concatenate([best, rows])
            rows[:, list(types)] = list(types.values())
            known = self.space.codes(list(self._seen))[:, list(types)]
            found = self._unseen(self.space.indices_of(rows))
            if (known == rows[0, list(types)]).all(axis=1).any() or not found:
                continue
            if self._signatures is None or self._signatures.log_probability(rows[:1])[0] >= _LEAST_LOG_PROBABILITY:
                return found[0]
        return None

    def _unseen(self, indices: Indices) -> list[int]:
        """Return the valid, unseen ones of the indices."""
        return [index for index in indices.tolist() if index >= 0 and index not in self._seen]

    def _next_first(self) -> int | None:
        """Return a random configuration until ``first`` trials are valid, unless sources have models."""
        if self._sources is not None and self._sources.models:
            return None
        known = sum(outcome.is_known for outcome in self._outcomes.values())
        if known + len(self._pending) >= self.first or len(self._outcomes) >= 3 * self.first:
            return None
        index = self._random()
        if index is None or self._signatures is None:
            return index
        moved = self._towards_feasible(np.full(32, index, dtype=np.int64), self._signatures)
        return next(iter(self._unseen(moved)), index)

    def _towards_feasible(self, indices: Indices, signatures: Signatures) -> Indices:
        """Return the valid ones of the given configurations with signatures redrawn by their probability."""
        codes = self.space.codes(indices).copy()
        probes = self.space.codes(self.space.sample(min(512, self.space.size), self.rng))
        rows = np.concatenate([probes[:, signatures.columns], signatures.widest[None, :]])
        trial = np.concatenate([probes, probes[:1]])
        trial[:, signatures.columns] = rows
        weights = np.exp(signatures.log_probability(trial))
        if weights.sum() <= 0:
            return np.empty(0, dtype=np.int64)
        chosen = self.rng.choice(len(rows), size=len(codes), p=weights / weights.sum())
        codes[:, signatures.columns] = rows[chosen]
        found = self.space.indices_of(codes)
        return found[found >= 0]

    def _next_by_model(self) -> int | None:
        """Return the candidate with the largest value, None if no candidate can be best."""
        pool = self._updated()
        if not pool.free.any():
            return None
        stuck_for = self._since_best + len(self._pending) - _PATIENCE
        if stuck_for >= 0 and stuck_for % 2 == 0 and (neighbour := self._next_neighbour()) is not None:
            return neighbour
        position, value = self._choose(pool)
        if value == -math.inf:
            return None
        index = int(pool.indices[position])
        if pool.complete:
            return index
        # Local search in a sampled space starts from the best candidate and the best feasible trial.
        starts = {index: value} | dict.fromkeys(self._elite(1), -math.inf)
        return ascend(starts, self._free_neighbours, self._values, self.steps)

    def _next_neighbour(self) -> int | None:
        """Return the neighbour with the largest value of the best trial that has a neighbour with a finite value."""
        for best in self._elite(_ELITE):
            around = self._free_neighbours(best)
            values = self._values(around) if len(around) else np.full(1, -math.inf)
            if values.max() > -math.inf:
                return int(around[values.argmax()])
        return None

    def _free_neighbours(self, index: int) -> Indices:
        """Return the Hamming neighbours that may be proposed."""
        if index not in self._around:
            self._around[index] = self.space.neighbours(index, "hamming")
        around = np.array(self._unseen(self._around[index]), dtype=np.int64)
        return around[self._in_focus(self.space.codes(around))] if self._focus else around

    def _elite(self, n: int) -> list[int]:
        """Return the best feasible trials, or the best of all if none is feasible."""
        known = sorted((not o.feasible, o.value, i) for i, o in self._outcomes.items() if o.is_known)
        return [i for _, _, i in known[:n]]

    # -- the model -----------------------------------------------------------------------------

    def _is_due(self, pool: Candidates) -> bool:  # noqa: ARG002 - all candidates age alike
        return len(self._outcomes) >= max(self._fitted_to + 1, int(self._fitted_to * self.options.refit))

    def _rebuild(self) -> Candidates:
        if self.space.size <= self.options.max_candidates:
            pool = self._free_candidates()
            kept = self._in_focus(pool.codes)
            pool = Candidates(pool.indices[kept], pool.codes[kept], pool.features[kept], complete=True)
        else:
            pool = self._sample()
        known = [outcome for outcome in self._outcomes.values() if outcome.is_known]
        known = best_outcomes(known, self.options.max_observations, self.rng)
        for axis in self._axes:
            axis.fit(pool, known)
        self._validity.fit(pool, self._outcomes.values())
        self._accurate = -1, np.empty(0)
        self._fitted_to = len(self._outcomes)
        self._compare()
        return pool

    def _extend(self, new: list[int]) -> None:
        assert self._pool is not None
        outcomes = [self._outcomes[index] for index in new]
        for axis in self._axes:
            axis.extend(outcomes)
        if self._validity.is_fitted or not any(outcome.failed for outcome in outcomes):
            self._validity.extend(outcomes)
        else:
            self._validity.fit(self._pool, self._outcomes.values())
        self._compare()

    def _imagine(self, index: int) -> None:
        row = self._features([index])[0]
        for axis in self._axes:
            axis.imagine(row)

    def _compare(self) -> None:
        feasible = [outcome for outcome in self._outcomes.values() if outcome.feasible and outcome.is_known]
        best = min(feasible, key=lambda outcome: outcome.value, default=None)
        self._to_beat = math.nan if best is None else float(self._axes[0].of([best])[0])

    def _sample(self) -> Candidates:
        """Return a uniform sample, the sample with likely feasible signatures, and neighbours of the best trials."""
        uniform = self.space.sample(min(self.options.sample, self.space.size), self.rng)
        parts = [uniform, *(self.space.neighbours(index, "hamming") for index in self._elite(_ELITE))]
        if self._focus:
            told = np.array(list(self._outcomes), dtype=np.int64)
            parts = [self._moved_into_focus(np.concatenate([*parts, told]))]
        if self._signatures is not None:
            parts.append(self._towards_feasible(uniform, self._signatures))
        indices = np.unique(np.concatenate(parts))
        return self._candidates(indices[self._in_focus(self.space.codes(indices))])

    def _choose(self, pool: Candidates) -> tuple[int, float]:
        """Return position and log value of the free candidate with the largest value."""
        values = np.where(pool.free, self._validity.log_probability(), -math.inf)
        if self._signatures is not None:
            if self._accurate[0] != self._signatures.version:
                self._accurate = self._signatures.version, self._signatures.log_probability(pool.codes)
            values += self._accurate[1]
        beliefs = [axis.at_candidates() for axis in self._axes]
        mean, deviation = np.array([mean for mean, _ in beliefs]), np.array([spread for _, spread in beliefs])
        contenders = self._contenders(values, mean, deviation)
        values[contenders] += self._promise(mean[:, contenders], deviation[:, contenders])
        position = contenders[values[contenders].argmax()]
        return int(position), float(values[position])

    def _values(self, indices: Indices) -> Array:
        codes = self.space.codes(indices)
        rows = self._coordinates.at(codes)
        beliefs = [axis.at(rows, codes) for axis in self._axes]
        promise = self._promise(np.array([mean for mean, _ in beliefs]), np.array([spread for _, spread in beliefs]))
        values = promise + self._validity.log_probability_at(rows)
        return values if self._signatures is None else values + self._signatures.log_probability(codes)

    def _contenders(self, limit: Array, mean: Array, deviation: Array) -> NDArray[np.intp]:
        """Return the positions of candidates whose bound, which is fast to compute, exceeds the best value found."""
        if math.isnan(self._to_beat):
            return np.arange(len(limit))
        bound = limit + log_improvement_bound(mean[0], deviation[0], self._to_beat)
        first = [int(bound.argmax())]
        least = limit[first] + self._promise(mean[:, first], deviation[:, first])
        return np.flatnonzero(bound >= min(least[0], bound[first[0]]))

    def _promise(self, mean: Array, deviation: Array) -> Array:
        """Return the log value of feasible configurations, ``(n,)`` from ``(n_objectives, n)``."""
        if math.isnan(self._to_beat):
            return np.asarray(-TIME_WEIGHT * (mean[0] - deviation[0]))
        return log_expected_improvement(mean[0], deviation[0], self._to_beat)
