"""Bayesian optimisation that models time, validity and error apart (mptune's default).

- Time: a Gaussian process on the log of the objective over all parameters, length scales, signal and noise
  at the maximum of their posterior (Hellsten 2023, Sec. 4.2). Inaccurate trials teach it too: precision costs
  and saves time whether or not the result is good enough.
- Hidden constraints: a learned probability to run.
- Accuracy: the error depends on the accuracy signature alone. Measured signatures are known exactly, and
  none known to exceed the threshold is proposed again; the others have a probability to meet it.

A candidate's value is its expected improvement over the best feasible trial times both probabilities. While that finds
nothing better for a while, every second proposal is of the largest value among the neighbours of the best trials.
The search begins with the widest signature, or with a random configuration. Sources (earlier runs) give the prior mean
of the Gaussian process (:mod:`mptune.strategies.model_based.transfer`).
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
from mptune.strategies.base import Options, Source, option
from mptune.strategies.model_based.coordinates import Features
from mptune.strategies.model_based.error_model import Signatures
from mptune.strategies.model_based.feasibility import FeasibilityModel, Outcome
from mptune.strategies.model_based.gaussian_process import LogNormalPrior
from mptune.strategies.model_based.strategy import Candidates, ModelBasedStrategy, ascend
from mptune.strategies.model_based.surrogate import ModelledAxis, Surrogate, TimeSurrogate
from mptune.strategies.model_based.transfer import Sources, TransferAxis, judged

__all__ = ["BayesianOptions", "BayesianStrategy"]

#: Attempts at a configuration of the widest signature that runs, before the model takes over.
_WIDEST_ATTEMPTS: Final = 4
#: Best feasible trials whose neighbours join a sample.
_ELITE: Final = 4
#: After so many evaluations without a better one, every second proposal is a neighbour of the best: a smooth model or a
#: misleading source may not expect much of one.
_PATIENCE: Final = 12
#: Steps of local search from each starting point in a sampled space.
_STEPS: Final = 6
#: Configurations drawn to find one of another signature.
_PROBES: Final = 512


@dataclass(frozen=True, slots=True)
class BayesianOptions(Options):
    """Hyperparameters."""

    strategy: ClassVar[str] = "bayesian"
    max_candidates: int = option(
        20_000, "all configurations of a space up to this size are candidates; of a larger one a sample.", least=1
    )
    sample: int = option(4_000, "configurations in the sample of a larger space.", least=10)
    refit: float = option(
        1.25, "fit the hyperparameters anew when the number of observations has grown by this factor.", least=1
    )
    iterations: int = option(30, "iterations of each fit of the hyperparameters.", least=1)
    warp: float = option(1.0, "strength of the compression of values worse than the median, 0 for none.", least=0)
    length_spread: float = option(0.6, "standard deviation of the prior of a log length scale.", above=0)
    max_observations: int = option(
        800, "observations the model of time holds; of more it holds the best half and a random part.", least=20
    )


class BayesianStrategy(ModelBasedStrategy):
    """Proposes what promises most under models of time, validity and error.

    Attributes:
        first: configurations that have run before the model takes over.
    """

    name: ClassVar[str] = "bayesian"
    first: ClassVar[int] = 1
    options_class: ClassVar[type[Options]] = BayesianOptions
    options: BayesianOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._features = Features(self.space)
        learns_errors = self.objective.threshold is not None and bool(self.signature)
        self._signatures = Signatures(self.space, self.signature, self.objective) if learns_errors else None
        self._sources: Sources | None = None
        self._given: tuple[Source, ...] = ()
        self._surrogate = self._make_surrogate()
        self._outcomes: dict[int, Outcome] = {}
        self._best = math.inf
        self._since_best = 0
        self._widest_attempts = 0
        self._all: Candidates | None = None
        #: Neighbours of configurations, which are asked for again and again.
        self._around: dict[int, NDArray[np.int64]] = {}
        #: By column, the codes a proposal may have there; empty if it may have any.
        self._focus: dict[int, NDArray[np.int32]] = {}

    def focus(self, values: Mapping[str, Collection[Value]]) -> None:
        """Propose only configurations with these values, to improve on the best of those; the others teach as before.

        So one model of time serves the search for the best of some types, which are features like any other. Only
        before the first trial is told.

        Args:
            values: by name of a parameter, those it may have.
        """
        encoded = {p.name: p.values for p in self.space.parameters}
        self._focus = {
            self.space.names.index(name): np.array([encoded[name].index(v) for v in allowed if v in encoded[name]])
            for name, allowed in values.items()
        }

    def start_from(self, sources: Sequence[Source]) -> None:
        """Take in what earlier runs found; before the first ask.

        Raises:
            MptuneError: the search is for several objectives.
        """
        if sources and self.objective.also:
            raise MptuneError("a search for several objectives cannot start from earlier runs")
        self._given = tuple(sources)

    @property
    def sources(self) -> tuple[SourceUse, ...]:
        """What is made of the sources, in the order they were given."""
        return () if self._sources is None else self._sources.uses

    def _take_in_sources(self) -> None:
        """Learn from the sources: times and failures for the models of both, errors for that of the signatures."""
        self._sources = Sources(self._given, self.space, self._features, self.objective)
        if self._sources.are_trusted:
            self._surrogate = self._make_surrogate()
        if self._signatures is not None:
            for source in self._given:
                self._signatures.suppose(*judged(source, self.space, self.signature), source.error_doubt)

    def _in_focus(self, codes: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which configurations may be proposed, shape ``(n,)``."""
        inside = np.ones(len(codes), dtype=np.bool_)
        for column, allowed in self._focus.items():
            inside &= np.isin(codes[:, column], allowed)
        return inside

    def _moved_into_focus(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return configurations like the given ones that may be proposed; those that are not valid are left out."""
        if not all(map(len, self._focus.values())):  # the space has none of the values
            return indices[:0]
        codes = self.space.codes(indices).copy()
        for column, allowed in self._focus.items():
            codes[:, column] = self.rng.choice(allowed, len(codes))
        found = self.space.indices_of(codes)
        return found[found >= 0]

    def _make_surrogate(self) -> Surrogate:
        return TimeSurrogate(self._modelled(0), self._feasibility(), self.options.max_observations, self.rng)

    def _modelled(self, position: int) -> ModelledAxis:
        options = self.options
        count = self._features.count
        prior = LogNormalPrior.of(count, length_spread=options.length_spread)
        if self._sources is not None:
            return TransferAxis(position, prior, self._sources, iterations=options.iterations, warp=options.warp)
        return ModelledAxis(position, prior, iterations=options.iterations, warp=options.warp)

    def _feasibility(self) -> FeasibilityModel:
        return FeasibilityModel(
            self._features.count,
            self._signatures,
            iterations=self.options.iterations,
            max_observations=self.options.max_observations,
            rng=self.rng,
            expected=self._sources,
        )

    # -- tell ----------------------------------------------------------------------------------

    def _learn(self, indices: list[int], trials: Sequence[Trial]) -> None:
        new = [(i, t) for i, t in dict(zip(indices, trials, strict=True)).items() if i not in self._outcomes]
        if not new:
            return
        at = np.array([i for i, _ in new], dtype=np.int64)
        features, codes = self._features.of(at), self.space.codes(at)
        for (index, trial), row, values in zip(new, features, codes, strict=True):
            outcome = self._outcomes[index] = self._outcome(row, values, trial)
            is_better = outcome.feasible and outcome.value < self._best
            self._best, self._since_best = (outcome.value, 0) if is_better else (self._best, self._since_best + 1)
            self._settle(index)
        for signatures in self._observed:
            signatures.observe(codes, [t for _, t in new])

    @property
    def _observed(self) -> tuple[Signatures, ...]:
        """What learns of errors; the first of them knows the widest signature."""
        return () if self._signatures is None else (self._signatures,)

    def _outcome(self, features: NDArray[np.float64], codes: NDArray[np.int32], trial: Trial) -> Outcome:
        # A constraint on what is measured is one that cannot be seen beforehand either.
        failed = not trial.is_valid or self.objective.constraint_excess(trial) > 0
        is_rival = not failed and self.objective.is_feasible(trial) and bool(self._in_focus(codes[None, :])[0])
        return Outcome(features, codes, self._levels(trial), failed, is_rival)

    def _levels(self, trial: Trial) -> NDArray[np.float64]:
        return np.array([-math.log(self.objective.performance(trial))])

    # -- ask -----------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._given:
            self._take_in_sources()

    def _next(self) -> int | None:
        steps = (self._next_widest, self._next_first, self._next_by_model)
        for step in steps[2:] if self._focus else steps:
            index = step()
            if index is not None:
                return index
        return None

    def _next_widest(self) -> int | None:
        """Return a configuration of the widest signature, while that signature's error is not known.

        It is the natural guess at something feasible, and it settles the floor of the error model.
        """
        signatures = next(iter(self._observed), None)
        if signatures is None or signatures.is_measured(signatures.widest):
            return None
        if self._pending or self._widest_attempts >= _WIDEST_ATTEMPTS:
            return None
        self._widest_attempts += 1
        around = self.space.sample(min(256, self.space.size), self.rng)
        codes = self.space.codes(around).copy()
        codes[:, signatures.columns] = signatures.widest
        found = [int(i) for i in self.space.indices_of(codes) if i >= 0 and not self._is_taken(int(i))]
        if found:
            return found[0]
        free = np.array([i for i in around.tolist() if not self._is_taken(i)], dtype=np.int64)
        return int(free[signatures.wideness(self.space.codes(free)).argmax()]) if len(free) else None

    def _next_first(self) -> int | None:
        """Return a random configuration until the first ones have run; three times as many may fail.

        Sources that are trusted take their place.
        """
        if self._sources is not None and self._sources.are_trusted:
            return None
        known = sum(outcome.is_known for outcome in self._outcomes.values())
        if known + len(self._pending) >= self.first or len(self._outcomes) >= 3 * self.first:
            return None
        index = self._random()
        if index is None or self._signatures is None:
            return index
        moved = self._towards_feasible(np.full(32, index, dtype=np.int64), self._signatures)
        return next((int(i) for i in moved if not self._is_taken(int(i))), index)

    def _towards_feasible(self, indices: NDArray[np.int64], signatures: Signatures) -> NDArray[np.int64]:
        """Return configurations like the given ones but with signatures drawn by their probability to be feasible.

        Those that are not valid are left out, so the answer may be shorter, or empty.
        """
        codes = self.space.codes(indices).copy()
        probes = self.space.codes(self.space.sample(min(_PROBES, self.space.size), self.rng))
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

    # -- the model -----------------------------------------------------------------------------

    def _next_by_model(self) -> int | None:
        """Return the candidate of the largest value, None when no configuration is left that could be best."""
        self._update()
        if self._pool is None or not self._pool.free.any():
            self._pool = self._rebuild()
        pool = self._pool
        if not pool.free.any():
            return None
        stuck_for = self._since_best + len(self._pending) - _PATIENCE
        if stuck_for >= 0 and stuck_for % 2 == 0 and (neighbour := self._next_neighbour()) is not None:
            return neighbour
        position, score = self._surrogate.choose(pool.free)
        if score == -math.inf:
            return None
        index = int(pool.indices[position])
        if pool.complete:
            return index
        # A sample is improved on from its best candidate and from the best feasible trial.
        starts = {index: score} | dict.fromkeys(self._elite(1), -math.inf)
        return ascend(starts, self._free_neighbours, self._scores, _STEPS)[0]

    def _next_neighbour(self) -> int | None:
        """Return the neighbour of largest value of the best trial that has any that could be best."""
        for best in self._elite(_ELITE):
            around = self._free_neighbours(best)
            if len(around):
                scores = self._scores(around)
                if scores.max() > -math.inf:
                    return int(around[scores.argmax()])
        return None

    def _update(self) -> None:
        """Bring the model up to date: fitted anew when due, else extended."""
        known = len(self._outcomes)
        if self._pool is None or known >= max(self._fitted_to + 1, int(self._fitted_to * self.options.refit)):
            self._pool = self._rebuild()
        else:
            self._surrogate.extend(self._outcomes)
        for index in self._pending:
            if index not in self._surrogate.imagined:
                self._surrogate.imagine(index, self._features.of([index])[0], self.space.codes([index])[0])

    def _rebuild(self) -> Candidates:
        """Choose candidates and fit the model anew."""
        pool = self._everything() if self.space.size <= self.options.max_candidates else self._sample()
        self._surrogate.rebuild(pool, self._outcomes)
        self._fitted_to = len(self._outcomes)
        return pool

    def _everything(self) -> Candidates:
        """Return all configurations that could be best."""
        if self._all is None:
            self._all = self._candidates(np.arange(self.space.size, dtype=np.int64), complete=True)
        free = np.ones(self.space.size, dtype=np.bool_)
        free[list(self._taken)] = False
        free &= self._in_focus(self._all.codes)
        if self._signatures is not None:
            free &= ~self._signatures.known_bad(self._all.codes)
        return self._all.subset(free)

    def _sample(self) -> Candidates:
        """Return a uniform sample, itself moved towards feasible signatures, and the neighbours of the best trials."""
        uniform = self.space.sample(min(self.options.sample, self.space.size), self.rng)
        parts = [uniform, *(self.space.neighbours(index, "hamming") for index in self._elite(_ELITE))]
        if self._focus:
            told = np.array(list(self._outcomes), dtype=np.int64)
            parts = [self._moved_into_focus(np.concatenate([*parts, told]))]
        if self._signatures is not None:
            parts.append(self._towards_feasible(uniform, self._signatures))
        indices = np.unique(np.concatenate(parts))
        indices = indices[self._in_focus(self.space.codes(indices))]
        return self._candidates(indices[~np.isin(indices, list(self._taken))], complete=False)

    def _candidates(self, indices: NDArray[np.int64], *, complete: bool) -> Candidates:
        return Candidates(indices, self.space.codes(indices), self._features.of(indices), complete)

    def _scores(self, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the log value of configurations, shape ``(n,)``."""
        return self._surrogate.scores_at(self._features.of(indices), self.space.codes(indices))

    def _free_neighbours(self, index: int) -> NDArray[np.int64]:
        """Return the configurations that differ in one parameter and have not been proposed."""
        if index not in self._around:
            around = self.space.neighbours(index, "hamming")
            self._around[index] = around[self._in_focus(self.space.codes(around))] if self._focus else around
        around = self._around[index]
        return np.asarray(around[[not self._is_taken(i) for i in around.tolist()]])

    def _elite(self, n: int) -> list[int]:
        """Return the best feasible trials, or the best of all where none is feasible."""
        known = sorted((not o.feasible, o.value, i) for i, o in self._outcomes.items() if o.is_known)
        return [i for _, _, i in known[:n]]
