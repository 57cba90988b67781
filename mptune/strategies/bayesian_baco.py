"""Bayesian optimisation for compilers, BaCO (Hellsten 2023).

- A Gaussian process on the log of the objective; distances by the kind of parameter, length scales at the maximum of
  their posterior under gamma priors.
- Expected improvement of the function without its noise, times the probability to run that a random forest
  gives, of configurations whose probability is at least a random minimum.
- Its maximum is looked for by multi-start local search from the best of a large random sample. A space no larger
  than the sample is considered as a whole, which leaves nothing for the local search to find.

Where the paper leaves a number open, the default is that of its published implementation and experiments. There
hyperparameters are fitted and the forest is grown at every step, which ``refit=1`` and ``regrow=1`` do here too. What
is still being evaluated counts as if it had the mean's value (kriging believer).

Each part can be taken away, for the ablations of Sec. 5.3 (Fig. 8 to 10): ``permutation=naive``, ``log=False`` (of
the objective), ``log_parameters=False``, ``length_shape=1`` with ``length_rate=1e-9`` (no prior),
``local_search=False``, ``feasibility=False``, ``least_feasible=0``, ``sampling=biased``, and
``surrogate=random-forest``. Samples and local search matter in spaces of more than ``points`` configurations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from mptune.results import Trial
from mptune.space.search_space import KINDS, Kind
from mptune.strategies.base import NEIGHBOURHOODS, Options, option
from mptune.strategies.model_based.baco_forest import BacoForest
from mptune.strategies.model_based.baco_model import BacoModel, GammaPrior, Observation, Search
from mptune.strategies.model_based.candidates import Candidates, ascend
from mptune.strategies.model_based.coordinates import PERMUTATION_DISTANCES, Distances
from mptune.strategies.model_based.feasibility import FeasibilityForest, least_probability
from mptune.strategies.model_based.strategy import ModelBasedStrategy

__all__ = ["BayesianBacoOptions", "BayesianBacoStrategy"]

Array = NDArray[np.float64]

SURROGATES: Final[tuple[str, ...]] = ("gaussian-process", "random-forest")
SAMPLINGS: Final[tuple[str, ...]] = ("uniform", "biased")
#: Candidates whose probability to run is computed at once, those of the largest improvement first.
_CHUNK: Final = 1024


@dataclass(frozen=True, slots=True)
class BayesianBacoOptions(Options):
    """Hyperparameters."""

    strategy: ClassVar[str] = "bayesian-baco"
    initial: int = option(10, "random configurations before the model takes over.", least=1)
    points: int = option(30_000, "configurations sampled to find where the acquisition function is large.", least=10)
    starts: int = option(10, "how many of the best of them local search starts from.", least=1)
    elite: int = option(3, "how many of the best trials local search also starts from.", least=0)
    neighbourhood: Kind = option("hamming", NEIGHBOURHOODS, choices=KINDS)
    neighbours: int = option(
        2_000, "look at this many neighbours of a configuration at most, drawn at random.", least=1
    )
    permutation: str = option(
        "spearman",
        "distance of permutations: spearman, kendall, hamming, or naive: any two are as far apart.",
        choices=PERMUTATION_DISTANCES,
    )
    surrogate: str = option(
        "gaussian-process", "model of the objective: gaussian-process or random-forest.", choices=SURROGATES
    )
    sampling: str = option(
        "uniform",
        "how configurations are drawn: uniform, or biased: value by value, however many configurations have it.",
        choices=SAMPLINGS,
    )
    local_search: bool = option(True, "whether local search starts from the best of the sample, or that is taken.")
    feasibility: bool = option(True, "whether a random forest learns what runs.")
    log: bool = option(True, "whether the objective is log-transformed.")
    log_parameters: bool = option(True, "whether parameters of exponential scale are compared by their logarithms.")
    length_shape: float = option(
        1.3, "shape of the gamma prior of a length scale; the largest distance in a parameter is 1.", above=0
    )
    length_rate: float = option(0.1, "rate of that gamma prior.", above=0)
    fit_samples: int = option(10, "random hyperparameters a fit begins with.", least=1)
    fit_starts: int = option(
        2, "how many of them, the most probable ones, are optimised, beside those of the last fit.", least=1
    )
    iterations: int = option(30, "iterations of each optimisation of the hyperparameters.", least=1)
    refit: float = option(
        1.05, "fit the hyperparameters anew when the number of observations has grown by this factor.", least=1
    )
    trees: int = option(50, "trees in a random forest.", least=1)
    regrow: float = option(
        1.25,
        "the forest is grown anew when the outcomes have grown by this factor, or one was not as expected.",
        least=1,
    )
    least_feasible: float = option(
        0.1,
        "epsilon_f, the probability to run that a candidate needs, is drawn anew for each proposal, from 0 to this.",
        least=0,
        most=1,
    )
    least_feasible_levels: int = option(
        11, "number of values from 0 to least_feasible that epsilon_f is drawn from; with 1 it is always 0.", least=1
    )
    exploration: float = option(
        1e-4, "an improvement counts from so many standard deviations of all values on.", least=0
    )
    max_observations: int = option(
        800, "observations the model holds; of more it holds the best half and a random part.", least=20
    )

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        self.require("fit_starts", self.fit_starts <= self.fit_samples, "1 to fit_samples")


class BayesianBacoStrategy(ModelBasedStrategy):
    """Proposes what promises most under a model of the objective and a forest of what runs."""

    name: ClassVar[str] = "bayesian-baco"
    options_class: ClassVar[type[Options]] = BayesianBacoOptions
    options: BayesianBacoOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = self.options
        self._distances = Distances(self.space.parameters, options.permutation, log=options.log_parameters)
        self._model = self._made_model()
        self._forest = FeasibilityForest(options.trees, options.regrow, self.rng)
        self._coordinates: dict[int, Array] = {}
        self._observations: dict[int, Observation] = {}
        self._initial_left = 0
        self._probability = np.empty(0)

    def _made_model(self) -> BacoModel | BacoForest:
        options = self.options
        scale: dict[str, Any] = {
            "log": options.log,
            "minimise": self.objective.minimise,
            "exploration": options.exploration,
            "rng": self.rng,
        }
        if options.surrogate == "random-forest":
            return BacoForest(options.trees, **scale)
        return BacoModel(
            self._distances,
            GammaPrior(options.length_shape, options.length_rate),
            Search(options.fit_samples, options.fit_starts, options.iterations),
            max_observations=options.max_observations,
            **scale,
        )

    # -- ask and tell --------------------------------------------------------------------------

    def _learn(self, indices: list[int], trials: Sequence[Trial]) -> None:
        new = [(i, t) for i, t in zip(indices, trials, strict=True) if i not in self._coordinates]
        for (index, trial), row in zip(new, self._rows([i for i, _ in new]), strict=True):
            if index in self._coordinates:
                continue
            self._coordinates[index] = row
            score = self.objective.score(trial)
            if math.isfinite(score):
                self._observations[index] = Observation(row, score)
            self._settle(index)
        self._model.forget([i for i, _ in new])

    def _begin(self) -> list[int]:
        """Count the random configurations to begin with; there is no sample to draw.

        What was told counts where it differs in every parameter: trials of the baseline, all in
        double precision, say nothing of the rest.
        """
        told = np.array([o.coordinates for o in self._observations.values()])
        varied = self._distances.owners[np.ptp(told, axis=0) > 0] if len(told) else ()
        covered = len(np.unique(varied)) == self._distances.count
        self._initial_left = max(self.options.initial - (len(self._coordinates) if covered else 0), 0)
        return []

    def _next(self) -> int | None:
        if self._initial_left or not self._observations:
            self._initial_left = max(0, self._initial_left - 1)
            return self._random()
        return self._next_by_model()

    def _rows(self, indices: Any) -> Array:
        return self._distances.coordinates(self.space.codes(indices))

    # -- the model -----------------------------------------------------------------------------

    def _next_by_model(self) -> int | None:
        """Return the configuration of the largest acquisition value found, None when none is left."""
        self._update()
        if self._pool is None or not self._pool.free.any():
            self._pool = self._rebuild()
        pool = self._pool
        if not pool.free.any():
            return None
        least = least_probability(self.options.least_feasible, self.options.least_feasible_levels, self.rng)
        leaders = self._leaders(pool, self.options.starts, least)
        if not len(leaders):
            least = 0.0
            leaders = self._leaders(pool, self.options.starts, least)
        indices: list[int] = pool.indices[leaders].tolist()
        if pool.complete or not self.options.local_search:
            return indices[0]
        return self._ascended(indices, least)

    def _update(self) -> None:
        """Bring both models up to date: fitted anew when due, else extended."""
        self._update_forest()
        known = len(self._observations)
        if self._pool is None or known >= max(self._fitted_to + 1, self._fitted_to * self.options.refit):
            self._pool = self._rebuild()
        else:
            self._model.extend(self._observations)
            self._imagine_pending()

    def _update_forest(self) -> None:
        if not self.options.feasibility or len(self._coordinates) == self._forest.known:
            return
        ran = np.array([index in self._observations for index in self._coordinates], dtype=np.bool_)
        if self._forest.learn(np.array(list(self._coordinates.values())), ran):
            self._probability.fill(np.nan)

    def _rebuild(self) -> Candidates:
        """Choose candidates and fit the model of the objective anew."""
        complete = self.space.size <= self.options.points
        wanted = self.space.size if complete else self.options.points
        indices = np.sort(self._drawn(wanted, uniformly=complete))
        codes = self.space.codes(indices)
        pool = Candidates(indices, codes, self._distances.coordinates(codes), complete)
        self._probability = np.full(len(indices), np.nan)
        self._model.rebuild(self._observations, pool.features)
        self._fitted_to = len(self._observations)
        self._imagine_pending()
        return pool

    def _drawn(self, n: int, *, uniformly: bool) -> NDArray[np.int64]:
        """Return random configurations that are not taken."""
        if not uniformly and self.options.sampling == "biased":
            found = self.space.sample_by_branches(n, self.rng, exclude=self._taken)
            if len(found):
                return found
        return self.space.sample(n, self.rng, exclude=self._taken)

    def _random(self) -> int | None:
        drawn: list[int] = self._drawn(1, uniformly=False).tolist()
        return drawn[0] if drawn else None

    def _imagine_pending(self) -> None:
        for index in self._pending:
            self._model.imagine(index, self._rows([index])[0])

    # -- the acquisition function --------------------------------------------------------------

    def _leaders(self, pool: Candidates, n: int, least: float) -> NDArray[np.intp]:
        """Return the positions of the best candidates, best first, of those whose probability to run is large enough.

        A probability can only lower a value. So candidates are taken in the order of their improvement, and
        the forest is asked no further than the n-th best value reaches.
        """
        improvement = np.where(pool.free, self._model.log_improvement(), -np.inf)
        order = np.argsort(-improvement, kind="stable")[: int(pool.free.sum())]
        if not self._forest.is_grown:
            return order[:n]
        values = np.full(len(order), -np.inf)
        for start in range(0, len(order), _CHUNK):
            if start >= n and np.partition(values[:start], -n)[-n] >= improvement[order[start]]:
                break
            chunk = order[start : start + _CHUNK]
            values[start : start + len(chunk)] = improvement[chunk] + self._log_feasible(pool, chunk, least)
        best = np.argsort(-values, kind="stable")[:n]
        return np.asarray(order[best[values[best] > -np.inf]])

    def _log_feasible(self, pool: Candidates, positions: NDArray[np.intp], least: float) -> Array:
        """Return the log probability of candidates to run, ``-inf`` below the least."""
        unknown = positions[np.isnan(self._probability[positions])]
        if len(unknown):
            self._probability[unknown] = self._forest.probability(pool.features[unknown])
        return self._weight(self._probability[positions], least)

    def _weight(self, probability: Array, least: float) -> Array:
        """Return the log of probabilities to run, ``-inf`` below the least.

        What not one tree believes in is not impossible, it is less likely than the forest can tell: times 0 it would
        never be tried, whatever it promised and however often the least probability were 0.
        """
        floored = np.log(np.maximum(probability, 1.0 / (self.options.trees + 1)))
        return np.asarray(np.where(probability >= least, floored, -np.inf))

    def _ascended(self, leaders: list[int], least: float) -> int:
        """Return where local search from the best candidates and around the best trials leads."""
        best = sorted(self._observations, key=lambda i: (-self._observations[i].score, i))[: self.options.elite]
        taken = self._taken

        def value(indices: NDArray[np.int64]) -> Array:
            rows = self._rows(indices)
            values = self._model.log_improvement_at(rows)
            if self._forest.is_grown:
                values = values + self._weight(self._forest.probability(rows), least)
            return np.where([index in taken for index in indices.tolist()], -np.inf, values)

        starts = list(dict.fromkeys([*leaders, *best]))
        values = value(np.array(starts, dtype=np.int64)).tolist()
        return ascend(dict(zip(starts, values, strict=True)), self._around, value)[0]

    def _around(self, index: int) -> NDArray[np.int64]:
        neighbours = self.space.neighbours(index, self.options.neighbourhood)
        if len(neighbours) <= self.options.neighbours:
            return neighbours
        return self.rng.choice(neighbours, self.options.neighbours, replace=False)
