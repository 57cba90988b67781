"""Bayesian optimisation that models time, validity and error apart (mptune's default).

- Time: a Gaussian process on the log of the objective over all parameters, length scales, signal and noise
  at the maximum of their posterior (Hellsten 2023, Sec. 4.2). Inaccurate trials teach it too: precision costs
  and saves time whether or not the result is good enough.
- Hidden constraints: a learned probability to run.
- Accuracy: the error depends on the accuracy signature alone. Measured signatures are known exactly, and
  none known to exceed the threshold is proposed again; the others have a probability to meet it.

A candidate's value is its expected improvement over the best feasible trial times both probabilities. While that finds
nothing better for a while, every second proposal is of the largest value among the neighbours of the best trials: where
one value of a parameter is unlike those beside it, a smooth model does not expect much of it.
The initial sample is a Latin hypercube (Willemsen 2021, Sec. III-F).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from mptune.results import Trial
from mptune.strategies.base import Options, Strategy, option
from mptune.strategies.models import candidates as pools
from mptune.strategies.models.chances import Chances, Outcome
from mptune.strategies.models.features import Features
from mptune.strategies.models.gaussian_process import Prior
from mptune.strategies.models.signatures import Signatures, enabled
from mptune.strategies.models.surrogate import Surrogate, TimeSurrogate
from mptune.strategies.models.value_model import ValueModel

__all__ = ["BayesianOptions", "BayesianStrategy"]

#: Attempts at a configuration of the widest signature that runs, before the model takes over.
_WIDEST_ATTEMPTS: Final = 4
#: A point of the initial sample less likely than this to be feasible gets another signature.
_LEAST_PROBABILITY: Final = 0.2
#: Best feasible trials whose neighbours join a sample.
_ELITE: Final = 4
#: Steps of local search from each starting point in a sampled space.
_STEPS: Final = 6


@dataclass(frozen=True, slots=True)
class BayesianOptions(Options):
    """Hyperparameters."""

    strategy: ClassVar[str] = "bayesian"
    initial: int = option(10, "configurations of the Latin hypercube, valid ones.", least=1)
    max_candidates: int = option(
        20_000, "spaces up to this size are considered as a whole; larger ones are sampled.", least=1
    )
    sample: int = option(4_000, "configurations of such a sample.", least=10)
    refit: float = option(
        1.25, "hyperparameters are fitted anew when the observations have grown by this factor.", least=1
    )
    iterations: int = option(30, "of each fit.", least=1)
    warp: float = option(1.0, "strength of the compression of values worse than the median, 0 for none.", least=0)
    length_spread: float = option(0.6, "standard deviation of the prior of a log length scale.", above=0)
    noise: float = option(0.03, "centre of the prior of the noise, relative to the deviation of all values.", above=0)
    patience: int = option(
        12, "evaluations without a better one after which every second is a neighbour of the best.", least=1
    )
    max_observations: int = option(
        800, "observations the model of time holds; of more, the best and a random part.", least=20
    )


class BayesianStrategy(Strategy):
    """Proposes what promises most under models of time, validity and error."""

    name: ClassVar[str] = "bayesian"
    options_class: ClassVar[type[Options]] = BayesianOptions
    options: BayesianOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._features = Features(self.space)
        watched = enabled(self.objective, self.signature)
        self._signatures = Signatures(self.space, self.signature, self.objective) if watched else None
        self._surrogate = self._make_surrogate()
        self._outcomes: dict[int, Outcome] = {}
        self._pending: dict[int, None] = {}
        self._design: list[int] | None = None
        self._design_target = 0
        self._widest_attempts = 0
        self._best = math.inf
        self._since_best = 0
        self._all: pools.Candidates | None = None
        self._pool: pools.Candidates | None = None
        self._alive = np.empty(0, dtype=np.bool_)
        self._fitted_to = 0

    def _make_surrogate(self) -> Surrogate[Any]:
        return TimeSurrogate(self._value_model(), self._chances(), self.options.max_observations, self.rng)

    def _value_model(self) -> ValueModel:
        options = self.options
        k = self._features.count
        prior = Prior.of(k, length_spread=options.length_spread, noise=options.noise, noise_spread=1.0)
        return ValueModel(prior, iterations=options.iterations, warp=options.warp)

    def _chances(self) -> Chances:
        return Chances(
            self._features.count,
            self._signatures,
            iterations=self.options.iterations,
            max_observations=self.options.max_observations,
            rng=self.rng,
        )

    # -- ask and tell --------------------------------------------------------------------------

    def _propose(self, n: int) -> list[int]:
        if self._design is None:
            self._begin()
        found: list[int] = []
        while len(found) < n:
            index = self._next()
            if index is None:
                break
            found.append(index)
            self._pending[index] = None
            self._strike(index)
        return found

    def _learn(self, indices: list[int], trials: Sequence[Trial]) -> None:
        new = [(i, t) for i, t in dict(zip(indices, trials, strict=True)).items() if i not in self._outcomes]
        if not new:
            return
        at = np.array([i for i, _ in new], dtype=np.int64)
        features, codes = self._features.of(at), self.space.codes(at)
        for (index, trial), row, values in zip(new, features, codes, strict=True):
            self._pending.pop(index, None)
            outcome = self._outcome(row, values, trial)
            self._outcomes[index] = outcome
            self._since_best = 0 if self._improves(outcome) else self._since_best + 1
            self._strike(index)
        for signatures in self._observed:
            signatures.observe(codes, [t for _, t in new])

    @property
    def _observed(self) -> tuple[Signatures, ...]:
        """What learns of errors; the first of them knows the widest signature."""
        return () if self._signatures is None else (self._signatures,)

    def _outcome(self, features: NDArray[np.float64], codes: NDArray[np.int32], trial: Trial) -> Outcome:  # noqa: ARG002
        value = -math.log(self.objective.performance(trial))
        failed = self._has_failed(trial)
        return Outcome(features, value, failed, not failed and self.objective.is_feasible(trial))

    def _has_failed(self, trial: Trial) -> bool:
        # A constraint on what is measured is one that cannot be seen beforehand either.
        return not trial.is_valid or self.objective.constraint_excess(trial) > 0

    def _improves(self, outcome: Outcome) -> bool:
        """Whether an outcome is better than all before it, which is then remembered."""
        is_better = outcome.feasible and outcome.value < self._best
        self._best = outcome.value if is_better else self._best
        return is_better

    def _taken(self, index: int) -> bool:
        return index in self._seen or index in self._pending

    def _next(self) -> int | None:
        for step in (self._next_widest, self._next_of_design, self._next_by_model):
            index = step()
            if index is not None:
                return index
        return None

    # -- the initial sample --------------------------------------------------------------------

    def _begin(self) -> None:
        """Draw the Latin hypercube; trials told before count towards it where they cover every parameter."""
        told = [o for o in self._outcomes.values() if o.is_known]
        covered = len(told) > 1 and bool((np.ptp([o.features for o in told], axis=0) > 0).all())
        wanted = min(self.options.initial, self.space.size)
        self._design_target = wanted if covered else wanted + len(told)
        missing = self._design_target - len(told)
        self._design = self.space.latin_hypercube(missing, self.rng).tolist() if missing > 0 else []

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
        found = [int(i) for i in self.space.indices_of(codes) if i >= 0 and not self._taken(int(i))]
        if found:
            return found[0]
        free = np.array([i for i in around.tolist() if not self._taken(i)], dtype=np.int64)
        return int(free[signatures.wideness(self.space.codes(free)).argmax()]) if len(free) else None

    def _next_of_design(self) -> int | None:
        """Return the next point of the initial sample, a random one in place of each that failed."""
        assert self._design is not None
        known = sum(o.is_known for o in self._outcomes.values())
        tried = len(self._outcomes) + len(self._pending)
        if known + len(self._pending) >= self._design_target or tried >= 3 * self._design_target:
            return None
        while self._design:
            index = self._towards_feasible(self._design.pop(0))
            if index is not None:
                return index
        drawn = self.space.sample(1, self.rng, exclude=self._seen | self._pending.keys())
        return self._towards_feasible(int(drawn[0])) if len(drawn) else None

    def _towards_feasible(self, index: int) -> int | None:
        """Return the configuration, with a more promising signature where its own is unlikely to be feasible."""
        if self._signatures is not None:
            likely = self._signatures.log_probability(self.space.codes([index]))[0]
            if likely < math.log(_LEAST_PROBABILITY):
                like = np.full(32, index, dtype=np.int64)
                moved = pools.towards_feasible(self.space, like, self._signatures, self.rng)
                return next((int(i) for i in moved if not self._taken(int(i))), None)
        return None if self._taken(index) else index

    # -- the model -----------------------------------------------------------------------------

    def _next_by_model(self) -> int | None:
        """Return the candidate of the largest value, None when no configuration is left that could be best."""
        self._update()
        if not self._alive.any():
            self._rebuild()
        if self._pool is None or not self._alive.any():
            return None
        stuck_for = self._since_best + len(self._pending) - self.options.patience
        if stuck_for >= 0 and stuck_for % 2 == 0:
            neighbour = self._next_neighbour()
            if neighbour is not None:
                return neighbour
        position, score = self._surrogate.choose(self._alive)
        if score == -math.inf:
            return None
        index = int(self._pool.indices[position])
        return index if self._pool.complete else self._climb(index, score)

    def _next_neighbour(self) -> int | None:
        """Return the neighbour of largest value of the best trial that has any that could be best."""
        for best in self._elite(_ELITE):
            around = self._free_neighbours(best)
            if len(around):
                scores = self._surrogate.scores_at(self._features.of(around), self.space.codes(around))
                if scores.max() > -math.inf:
                    return int(around[scores.argmax()])
        return None

    def _update(self) -> None:
        """Bring the model up to date: fitted anew when due, else extended."""
        known = len(self._outcomes)
        if self._pool is None or known >= max(self._fitted_to + 1, int(self._fitted_to * self.options.refit)):
            self._rebuild()
        else:
            self._surrogate.extend(self._outcomes)
        for index in self._pending:
            if index not in self._surrogate.imagined:
                self._surrogate.imagine(index, self._features.of([index])[0], self.space.codes([index])[0])

    def _rebuild(self) -> None:
        """Choose candidates and fit the model anew."""
        taken = self._seen | self._pending.keys()
        if self.space.size <= self.options.max_candidates:
            if self._all is None:
                self._all = pools.everything(self.space, self._features)
            free = np.ones(self.space.size, dtype=np.bool_)
            free[np.fromiter(taken, np.int64, len(taken))] = False
            pool = self._all
            if self._signatures is not None:
                free &= ~self._signatures.known_bad(pool.codes)
            pool = pool.subset(free)
        else:
            pool = pools.sampled(
                self.space,
                self._features,
                self.options.sample,
                self.rng,
                taken,
                self._elite(_ELITE),
                self._signatures,
            )
        self._pool = pool
        self._alive = np.ones(len(pool.indices), dtype=np.bool_)
        self._surrogate.rebuild(pool, self._outcomes)
        self._fitted_to = len(self._outcomes)

    def _strike(self, index: int) -> None:
        """Take a configuration off the candidates."""
        position = self._pool.position(index) if self._pool is not None else None
        if position is not None:
            self._alive[position] = False

    def _climb(self, index: int, score: float) -> int:
        """Improve on a sampled candidate by local search from it and from the best feasible trial."""
        best, best_score = index, score
        for start, reached in [(index, score), *((i, -math.inf) for i in self._elite(1))]:
            at = start
            for _ in range(_STEPS):
                around = self._free_neighbours(at)
                if not len(around):
                    break
                scores = self._surrogate.scores_at(self._features.of(around), self.space.codes(around))
                if scores.max() <= reached:
                    break
                at, reached = int(around[scores.argmax()]), float(scores.max())
            if reached > best_score:
                best, best_score = at, reached
        return best

    def _free_neighbours(self, index: int) -> NDArray[np.int64]:
        """Return the configurations that differ in one parameter and have not been proposed."""
        around = self.space.neighbours(index, "hamming")
        return np.asarray(around[[not self._taken(i) for i in around.tolist()]])

    def _elite(self, n: int) -> list[int]:
        """Return the best feasible trials, or the best of all where none is feasible."""
        known = sorted((not o.feasible, o.value, i) for i, o in self._outcomes.items() if o.is_known)
        return [i for _, _, i in known[:n]]
