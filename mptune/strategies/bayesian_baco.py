"""Bayesian optimisation for compilers, BaCO (Hellsten 2023).

- A Gaussian process on the log of the objective, with a distance for each kind of parameter and length scales at the
  maximum of their posterior under gamma priors.
- The acquisition function is the noise-free expected improvement times the probability to run, from a random forest.
  Configurations below a random minimum of this probability are excluded.
- Multi-start local search maximises the acquisition function from the best configurations of a large random sample. A
  space of up to ``points`` configurations is enumerated instead.

Numbers missing in the paper are from its published implementation, which refits hyperparameters and regrows the forest
at every step (here ``refit=1`` and ``regrow=1``). Pending configurations have the predicted mean (kriging believer).

Ablations of Sec. 5.3 (Fig. 8 to 10): ``permutation=naive``, ``log=False`` (of the objective), ``log_parameters=False``,
``length_shape=1`` with ``length_rate=1e-9`` (no prior), ``local_search=False``, ``feasibility=False``,
``least_feasible=0``, ``sampling=biased``, and ``surrogate=random-forest``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from mptune.space.search_space import KINDS, Kind
from mptune.strategies.base import MAX_OBSERVATIONS, NEIGHBOURHOODS, Array, Indices, Options, option
from mptune.strategies.model_based.acquisition import log_expected_improvement
from mptune.strategies.model_based.coordinates import PERMUTATION_DISTANCES, distances
from mptune.strategies.model_based.gaussian_process import Hyperparameters, Posterior, Prior, fit, log_posterior
from mptune.strategies.model_based.strategy import Candidates, ScoreModelStrategy, ascend

#: Bounds of length scales, and of the deviations of signal and noise of a standardised function.
_BOUNDS: Final = ((0.01, 100.0), (0.1, 10.0), (0.01, 1.0))
#: Log-uniform ranges of their random starts.
_RANDOM: Final = ((0.1, 10.0), (0.3, 3.0), (0.01, 0.1))


@dataclass(frozen=True, slots=True)
class BayesianBacoOptions(Options):
    """Hyperparameters."""

    initial: int = option(10, "random configurations before the model takes over.", least=1)
    points: int = option(30_000, "configurations in the sample of candidates.", least=10)
    starts: int = option(10, "starts of local search among the best candidates.", least=1)
    elite: int = option(3, "starts of local search among the best trials.", least=0)
    neighbourhood: Kind = option("hamming", NEIGHBOURHOODS, choices=KINDS)
    neighbours: int = option(2_000, "largest random sample of a configuration's neighbours.", least=1)
    permutation: str = option(
        "spearman",
        "distance of permutations: spearman, kendall, hamming, or naive (all equally far).",
        choices=PERMUTATION_DISTANCES,
    )
    surrogate: str = option(
        "gaussian-process",
        "model of the objective: gaussian-process or random-forest.",
        choices=("gaussian-process", "random-forest"),
    )
    sampling: str = option(
        "uniform",
        "distribution of samples: uniform, or biased (value by value, towards sparse parts of the space).",
        choices=("uniform", "biased"),
    )
    local_search: bool = option(True, "whether local search improves on the best candidates.")
    feasibility: bool = option(True, "whether a random forest predicts the probability to run.")
    log: bool = option(True, "whether the objective is log-transformed.")
    log_parameters: bool = option(True, "whether exponentially spaced parameters are log-transformed.")
    length_shape: float = option(1.3, "shape of the gamma prior of length scales.", above=0)
    length_rate: float = option(0.1, "rate of the gamma prior of length scales.", above=0)
    fit_samples: int = option(10, "random hyperparameters at the start of a fit.", least=1)
    fit_starts: int = option(
        2, "most probable random hyperparameters that are optimised, beside the last fit.", least=1
    )
    iterations: int = option(30, "iterations of each optimisation of the hyperparameters.", least=1)
    refit: float = option(1.05, "growth of the observations after which hyperparameters are refitted.", least=1)
    trees: int = option(50, "trees in a random forest.", least=1)
    regrow: float = option(1.25, "growth of the outcomes after which the forest is regrown.", least=1)
    least_feasible: float = option(
        0.1, "maximum of epsilon_f, the random minimum of the probability to run.", least=0, most=1
    )
    least_feasible_levels: int = option(
        11, "number of equally spaced values of epsilon_f, from 0; with 1 it is always 0.", least=1
    )
    exploration: float = option(1e-4, "minimum improvement, in standard deviations of all values.", least=0)
    max_observations: int = option(800, MAX_OBSERVATIONS, least=20)

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        self.require("fit_starts", self.fit_starts <= self.fit_samples, "1 to fit_samples")


class GammaPrior(Prior):
    """The density l^(shape - 1) exp(-rate l) of length scales, and bounds of signal and noise.

    In discrete spaces the maximum likelihood tends to length scales near zero, without correlation.
    """

    def __init__(self, shape: float, rate: float, owners: Indices) -> None:
        self._shape, self._rate = shape, rate
        self.owners = owners
        self.low, self.high = self._box(_BOUNDS)
        self.unit = (self.high - self.low) / 8.0  # unit of the optimiser's variables

    def log_density(self, vector: Array) -> tuple[float, Array]:
        logs, gradient = vector[:-2], np.zeros_like(vector)
        lengths = np.exp(logs)
        gradient[:-2] = (self._shape - 1.0) - self._rate * lengths
        return float(((self._shape - 1.0) * logs - self._rate * lengths).sum()), gradient

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """Return random logarithms of hyperparameters, shape ``(n, n_lengths + 2)``."""
        low, high = self._box(_RANDOM)
        return rng.uniform(low, high, size=(n, len(low)))

    def _box(self, limits: Sequence[tuple[float, float]]) -> Array:
        lengths, signal, noise = limits
        count = int(self.owners.max(initial=-1)) + 1
        return np.asarray(np.log([*[lengths] * count, signal, noise]), dtype=np.float64).T


def fitted(
    x: Array,
    y: Array,
    prior: GammaPrior,
    options: BayesianBacoOptions,
    previous: Hyperparameters | None,
    rng: np.random.Generator,
) -> Hyperparameters:
    """Return the hyperparameters with the largest posterior, from random starts and the last fit."""
    drawn = prior.draw(options.fit_samples, rng)
    order = np.argsort([-log_posterior(vector, x, y, prior)[0] for vector in drawn], kind="stable")
    starts = [Hyperparameters.from_vector(vector) for vector in drawn[order[: options.fit_starts]]]
    return fit(x, y, prior, [*starts, *([] if previous is None else [previous])], options.iterations)


@dataclass(frozen=True, slots=True)
class Targets:
    """Converts scores to standardised values; lower is better.

    A positive score s has the value -ln s; without the log transform 1 / s if the objective is minimised, and -s if it
    is maximised. Other scores are penalties, added to the worst value of a positive score.
    """

    log: bool  #: whether the objective is log-transformed
    minimise: bool  #: whether the objective is minimised
    worst: float = 0.0  #: value of the worst positive score
    mean: float = 0.0  #: mean and deviation of the values that define the scale
    deviation: float = 1.0

    @classmethod
    def of(cls, scores: Array, *, log: bool, minimise: bool) -> Targets:
        """Return the scale that gives at least one score mean 0 and deviation 1."""
        positive = scores[scores > 0]
        worst = float(cls(log, minimise).apply(positive).max()) if len(positive) else 0.0
        values = cls(log, minimise, worst).apply(scores)
        mean, deviation = float(values.mean()), float(values.std())
        is_constant = deviation <= 1e-9 * max(1.0, abs(mean))
        return cls(log, minimise, worst, mean, 1.0 if is_constant else deviation)

    def apply(self, scores: Array) -> Array:
        """Return the standardised values of scores, shape ``(n,)``."""
        positive = np.where(scores > 0, scores, 1.0)
        plain = 1.0 / np.maximum(positive, 1e-100) if self.minimise else -positive
        values = -np.log(positive) if self.log else plain
        # A penalty above 1000 would hide the differences between feasible configurations.
        penalised = self.worst - np.clip(scores, -1e3, 0.0)
        return np.asarray((np.where(scores > 0, values, penalised) - self.mean) / self.deviation)


class Forest:
    """scikit-learn's random forest over coordinates ``(n, k)``, values ``(n,)`` and weights ``(n,)``."""

    def __init__(
        self,
        trees: int,
        rng: np.random.Generator,
        x: Array,
        y: NDArray[Any],
        *,
        bootstrap: bool,
        weights: Array | None = None,
    ) -> None:
        from sklearn.ensemble import RandomForestRegressor  # takes a second to import

        forest = RandomForestRegressor(
            trees, max_features=0.75, bootstrap=bootstrap, random_state=int(rng.integers(2**31)), n_jobs=1
        )
        # The predict of scikit-learn checks its input for every tree and takes ten times as long.
        self._trees = [tree.tree_ for tree in forest.fit(x, y, weights).estimators_]

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation over the trees, each ``(n,)``."""
        rows = x.astype(np.float32)
        values = np.array([tree.predict(rows).reshape(len(rows)) for tree in self._trees])
        return values.mean(axis=0), values.std(axis=0)


class ForestPosterior:
    """A bootstrapped random forest with the interface of a Gaussian process, regrown at every observation."""

    def __init__(self, trees: int, rng: np.random.Generator, candidates: Array, x: Array, y: Array) -> None:
        self._trees, self._rng, self._candidates = trees, rng, candidates
        self._grow(x, y)

    def _grow(self, x: Array, y: Array) -> None:
        self._x, self._y = x, y
        self._forest = Forest(self._trees, self._rng, x, y, bootstrap=True)
        self.mean, self.deviation = self.predict(self._candidates)

    def append(self, x: Array, y: float) -> None:
        self._grow(np.vstack([self._x, x]), np.append(self._y, y))

    def imagine(self, x: Array) -> float:
        return float(self.predict(x[None, :])[0][0])

    def forget_imagined(self) -> None:
        """Do nothing: imagined trials are not held."""

    def predict(self, x: Array) -> tuple[Array, Array]:
        mean, deviation = self._forest.predict(x)
        return mean, np.maximum(deviation, 0.01)  # all trees agree near observations


class BayesianBacoStrategy(ScoreModelStrategy):
    """Proposes the most promising configuration under models of the objective and of the probability to run."""

    name: ClassVar[str] = "bayesian-baco"
    options_class: ClassVar[type[Options]] = BayesianBacoOptions
    options: BayesianBacoOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = self.options
        self._coordinates = distances(self.space.parameters, options.permutation, log=options.log_parameters)
        owners = np.unique(self._coordinates.owners, return_inverse=True)[1]
        self._prior = GammaPrior(options.length_shape, options.length_rate, owners)
        #: Length scales by parameter, signal and noise; None before the first fit.
        self.hyperparameters: Hyperparameters | None = None
        self._targets = Targets(options.log, self.objective.minimise)
        self._model: Posterior | ForestPosterior
        #: Smallest observed value, without and with imagined trials.
        self._best = self._to_beat = math.inf
        #: Remaining random configurations; None before the first proposal.
        self._initial_left: int | None = None
        self._fitted_to = 0
        #: Predicts the probability to run (Sec. 4.2, "Hidden constraints"); None until a trial ran and a trial failed.
        self._forest: Forest | None = None
        #: The candidates' probabilities to run; None if stale.
        self._probability: Array | None = None
        #: Number of outcomes the forest was grown from, and was compared with.
        self._grown_to = self._compared_to = 0

    # -- ask -----------------------------------------------------------------------------------

    def _next(self) -> int | None:
        if self._initial_left is None:
            # Earlier trials count if every parameter varies among them.
            told = self._features(list(self.observations))
            varied = self._prior.owners[np.ptp(told, axis=0) > 0] if len(told) else ()
            covered = len(np.unique(varied)) == len(np.unique(self._prior.owners))
            self._initial_left = max(self.options.initial - (len(self._told) if covered else 0), 0)
        if self._initial_left or not self.observations:
            self._initial_left = max(0, self._initial_left - 1)
            return next(iter(self._drawn(1).tolist()), None)
        self._update_forest()
        pool = self._updated()
        # A minimum of 0 is possible, so no configuration is excluded for ever.
        levels = self.options.least_feasible_levels
        least = self.options.least_feasible * int(self.rng.integers(levels)) / max(levels - 1, 1)
        leaders = self._leaders(pool, least)
        if not leaders:
            leaders, least = self._leaders(pool, 0.0), 0.0
        if not leaders or pool.complete or not self.options.local_search:
            return next(iter(leaders), None)

        def value(indices: Indices) -> Array:
            rows = self._features(indices)
            values = self._log_improvement(*self._model.predict(rows))
            if self._forest is not None:
                values = values + self._log_feasible(self._forest.predict(rows)[0], least)
            return np.where(np.isin(indices, list(self._seen)), -np.inf, values)

        starts = list(dict.fromkeys([*leaders, *self._ranked()[: self.options.elite]]))
        values = value(np.array(starts, dtype=np.int64)).tolist()
        return ascend(dict(zip(starts, values, strict=True)), self._around, value)

    def _drawn(self, n: int) -> Indices:
        if self.options.sampling == "biased":
            found = self.space.sample_by_branches(n, self.rng, exclude=self._seen)
            if len(found):
                return found
        return self.space.sample(n, self.rng, exclude=self._seen)

    # -- the model of the objective ------------------------------------------------------------

    def _is_due(self, pool: Candidates) -> bool:  # noqa: ARG002 - all candidates age alike
        return len(self.observations) >= max(self._fitted_to + 1, self._fitted_to * self.options.refit)

    def _rebuild(self) -> Candidates:
        options = self.options
        if self.space.size <= options.points:
            pool = self._free_candidates()
        else:
            pool = self._candidates(self._drawn(options.points))
        held = self._kept(options.max_observations)
        scores = self._scores(held)
        self._targets = Targets.of(scores, log=options.log, minimise=self.objective.minimise)
        x, y = self._features(held), self._targets.apply(scores)
        if options.surrogate == "random-forest":
            self._model = ForestPosterior(options.trees, self.rng, pool.features, x, y)
        else:
            owners = self._prior.owners
            if len(y) > 1:
                self.hyperparameters = fitted(x, y, self._prior, options, self.hyperparameters, self.rng)
            found = self.hyperparameters or Hyperparameters(np.ones(len(owners)), signal=1.0, noise=0.1)
            by_coordinate = Hyperparameters(found.lengths[owners], found.signal, found.noise)
            self._model = Posterior(by_coordinate, pool.features, x, y)
        self._best = self._to_beat = float(y.min())
        self._fitted_to = len(self.observations)
        self._probability = None
        return pool

    def _extend(self, new: list[int]) -> None:
        self._model.forget_imagined()
        known = [index for index in new if index in self.observations]
        values = self._targets.apply(self._scores(known))
        for x, value in zip(self._features(known), values.tolist(), strict=True):
            self._model.append(x, value)
            self._best = min(self._best, value)
        self._to_beat = self._best

    def _imagine(self, index: int) -> None:
        self._to_beat = min(self._to_beat, self._model.imagine(self._features([index])[0]))

    def _log_improvement(self, mean: Array, deviation: Array) -> Array:
        # The deviation excludes noise, so observed points have almost no expected improvement.
        return log_expected_improvement(mean, deviation, self._to_beat - self.options.exploration)

    # -- the configurations that run -----------------------------------------------------------

    def _update_forest(self) -> None:
        """Regrow the forest after a wrong prediction or many more outcomes.

        The paper regrows it at every step, which takes most of its time and hardly changes the forest.
        """
        known = len(self._told)
        new, self._compared_to = slice(self._compared_to, None), known
        if not self.options.feasibility or new.start == known:
            return
        told = list(self._told)
        ran = np.array([index in self.observations for index in told], dtype=np.bool_)
        if ran.all() or not ran.any():
            return
        rows = self._features(told)
        if self._forest is not None and known < self.options.regrow * self._grown_to:
            probability = self._forest.predict(rows[new])[0]
            if np.where(ran[new], probability > 0.5, probability <= 0.1).all():
                return
        weights = np.where(ran, 0.8, 0.2)  # as in the published implementation
        self._forest = Forest(self.options.trees, self.rng, rows, ran, bootstrap=False, weights=weights)
        self._grown_to, self._probability = known, None

    def _log_feasible(self, probability: Array, least: float) -> Array:
        """Return the log of probabilities to run, ``-inf`` below the minimum.

        A probability of 0 is raised to the forest's resolution. Otherwise the configuration would never be tried.
        """
        floored = np.log(np.maximum(probability, 1.0 / (self.options.trees + 1)))
        return np.asarray(np.where(probability >= least, floored, -np.inf))

    # -- the maximum ---------------------------------------------------------------------------

    def _leaders(self, pool: Candidates, least: float) -> list[int]:
        """Return the best candidates with at least the minimum probability to run, best first."""
        values = np.where(pool.free, self._log_improvement(self._model.mean, self._model.deviation), -np.inf)
        if self._forest is not None:
            if self._probability is None:
                self._probability = self._forest.predict(pool.features)[0]
            values += self._log_feasible(self._probability, least)
        order = np.argsort(-values, kind="stable")[: self.options.starts]
        found: list[int] = pool.indices[order[values[order] > -np.inf]].tolist()
        return found

    def _around(self, index: int) -> Indices:
        neighbours = self.space.neighbours(index, self.options.neighbourhood)
        if len(neighbours) <= self.options.neighbours:
            return neighbours
        return self.rng.choice(neighbours, self.options.neighbours, replace=False)
