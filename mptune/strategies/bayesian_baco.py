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
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from mptune.results.trial import Trial
from mptune.space.search_space import KINDS, Kind
from mptune.strategies.base import NEIGHBOURHOODS, Options, option
from mptune.strategies.model_based.acquisition import log_expected_improvement
from mptune.strategies.model_based.coordinates import PERMUTATION_DISTANCES, Distances
from mptune.strategies.model_based.forest import Forest
from mptune.strategies.model_based.gaussian_process import Hyperparameters, Posterior, Prior, fit, log_posterior
from mptune.strategies.model_based.strategy import Candidates, ModelBasedStrategy, ascend, best_and_others

__all__ = [
    "BacoForest", "BacoModel", "BacoProcess", "BayesianBacoOptions", "BayesianBacoStrategy", "GammaPrior",
    "Observation", "Targets", "fitted",
]  # fmt: skip

Array = NDArray[np.float64]

SURROGATES: Final[tuple[str, ...]] = ("gaussian-process", "random-forest")
SAMPLINGS: Final[tuple[str, ...]] = ("uniform", "biased")
#: Candidates whose probability to run is computed at once, those of the largest improvement first.
_CHUNK: Final = 1024
#: Deviation of the noise while there are fewer than two observations.
_UNFITTED_NOISE: Final = 0.1
#: Smallest deviation of values that counts as more than rounding, relative to their magnitude.
_LEAST_DEVIATION: Final = 1e-9
#: Least deviation of what trees predict, of standardised values: all of them agree near the observations.
_LEAST_DEVIATION_OF_TREES: Final = 0.01
#: Largest value of a score that is not transformed; keeps the variance of values finite.
_LARGEST: Final = 1e100
#: Largest penalty. A larger one would hide the differences between feasible configurations.
_MOST_PENALTY: Final = 1e3
#: Bounds of length scales, and of the deviations of signal and noise of a standardised function.
_BOUNDS: Final = ((0.01, 100.0), (0.1, 10.0), (0.01, 1.0))
#: Where random settings of these are drawn from, evenly in the logarithm.
_RANDOM: Final = ((0.1, 10.0), (0.3, 3.0), (0.01, 0.1))
#: Half the width of the range the optimiser sees of every variable.
_HALF_WIDTH: Final = 4.0
#: Weights of configurations that ran and that failed, of the published implementation.
_RAN, _FAILED = 0.8, 0.2
#: The forest is grown anew where a configuration ran below the first probability, or failed above the second.
_LIKELY, _UNLIKELY = 0.5, 0.1


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


class GammaPrior(Prior):
    """The density l^(shape - 1) exp(-rate l) of length scales, and bounds of signal and noise.

    In discrete spaces the likelihood alone tends to length scales near zero, at which configurations that differ have
    nothing in common.
    """

    def __init__(self, shape: float, rate: float, owners: NDArray[np.int64]) -> None:
        self._shape, self._rate = shape, rate
        self.owners = owners
        self.low, self.high = self._box(_BOUNDS)
        self.unit = 0.5 * (self.high - self.low) / _HALF_WIDTH

    def log_density(self, vector: Array) -> tuple[float, Array]:
        """Return the log density up to a constant, and its gradient."""
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
    """Return the hyperparameters of the largest posterior found from random settings and the last fit's.

    Coordinates and observations as for :func:`~mptune.strategies.model_based.gaussian_process.log_posterior`.
    """
    drawn = prior.draw(options.fit_samples, rng)
    order = np.argsort([-log_posterior(vector, x, y, prior)[0] for vector in drawn], kind="stable")
    starts = [Hyperparameters.from_vector(vector) for vector in drawn[order[: options.fit_starts]]]
    return fit(x, y, prior, [*starts, *([] if previous is None else [previous])], options.iterations)


@dataclass(frozen=True, slots=True)
class Observation:
    """A trial that ran: coordinates ``(n_coordinates,)`` of its configuration, and its finite score."""

    coordinates: Array
    score: float


@dataclass(frozen=True, slots=True)
class Targets:
    """Turns scores into standardised values, lower is better.

    The value of a positive score s is -ln s; without the log transform it is 1 / s where the objective is
    minimised, which is proportional to it, and -s where it is maximised. Scores that are not positive
    are penalties; they take off from the worst positive one, which keeps the order.

    Attributes:
        log: whether the objective is transformed.
        minimise: whether less of the objective is better.
        worst: value of the worst positive score.
        mean: of the values the scale was made of.
        deviation: of the same.
    """

    log: bool
    minimise: bool
    worst: float
    mean: float
    deviation: float

    @classmethod
    def of(cls, scores: Array, *, log: bool, minimise: bool) -> Targets:
        """Return the scale on which the values of these scores, at least one, have mean 0 and deviation 1."""
        raw = cls(log, minimise, 0.0, 0.0, 1.0)
        positive = scores[scores > 0]
        worst = float(raw.apply(positive).max()) if len(positive) else 0.0
        values = cls(log, minimise, worst, 0.0, 1.0).apply(scores)
        mean, deviation = float(values.mean()), float(values.std())
        least = _LEAST_DEVIATION * max(1.0, abs(mean))
        return cls(log, minimise, worst, mean, deviation if deviation > least else 1.0)

    def apply(self, scores: Array) -> Array:
        """Return the standardised values of scores, shape ``(n,)``."""
        positive = np.where(scores > 0, scores, 1.0)
        if self.log:
            values = -np.log(positive)
        else:
            values = 1.0 / np.maximum(positive, 1.0 / _LARGEST) if self.minimise else -positive
        penalised = self.worst - np.clip(scores, -_MOST_PENALTY, 0.0)
        return np.asarray((np.where(scores > 0, values, penalised) - self.mean) / self.deviation)


class BacoModel(ABC):
    """The expected improvement at candidates and elsewhere.

    Args:
        options: of the strategy.
        minimise: whether less of the objective is better.
        rng: draws whatever is random.
    """

    def __init__(self, options: BayesianBacoOptions, *, minimise: bool, rng: np.random.Generator) -> None:
        self._options = options
        self._minimise = minimise
        self._rng = rng
        self._targets = Targets(options.log, minimise, 0.0, 0.0, 1.0)
        self._candidates = np.empty((0, 0))
        self._learnt: set[int] = set()
        self._imagined: dict[int, float] = {}
        self._best = math.inf

    def rebuild(self, observations: Mapping[int, Observation], candidates: Array) -> None:
        """Learn everything anew, over these candidates; coordinates ``(n_candidates, n_coordinates)``."""
        held = self._held(list(observations.values()))
        scores = np.array([o.score for o in held])
        self._targets = Targets.of(scores, log=self._options.log, minimise=self._minimise)
        y = self._targets.apply(scores)
        self._candidates, self._learnt, self._imagined = candidates, set(observations), {}
        self._best = float(y.min())
        self._fit(np.array([o.coordinates for o in held]), y)

    def extend(self, observations: Mapping[int, Observation]) -> None:
        """Learn the observations that are new since the last call."""
        if len(observations) > len(self._learnt):
            self.rebuild(observations, self._candidates)

    def imagine(self, index: int, coordinates: Array) -> None:
        """Count a configuration that is being evaluated as if it had the mean's value (Ginsbourger 2010)."""
        if index not in self._imagined:
            self._imagined[index] = self._imagine(coordinates)

    def forget(self, indices: Sequence[int]) -> None:
        """Take back what was imagined if any of these, no longer evaluated, is part of it."""
        if not self._imagined.keys().isdisjoint(indices):
            self._imagined = {}

    def log_improvement(self) -> Array:
        """Return the log of the expected noise-free improvement of each candidate, shape ``(n_candidates,)``."""
        return self._improvement(*self._at_candidates())

    def log_improvement_at(self, coordinates: Array) -> Array:
        """Return the same of other configurations, coordinates ``(n, n_coordinates)``."""
        return self._improvement(*self._predict(coordinates))

    def _improvement(self, mean: Array, deviation: Array) -> Array:
        # The deviation is that of the function without noise: an observed point has next to nothing to offer.
        best = min([self._best, *self._imagined.values()])
        return log_expected_improvement(mean, deviation, best - self._options.exploration)

    def _held(self, observations: list[Observation]) -> list[Observation]:
        if len(observations) <= self._options.max_observations:
            return observations
        ranked = sorted(range(len(observations)), key=lambda i: (-observations[i].score, i))
        return [observations[i] for i in best_and_others(ranked, self._options.max_observations, self._rng)]

    @abstractmethod
    def _fit(self, x: Array, y: Array) -> None:
        """Learn values at coordinates."""

    @abstractmethod
    def _at_candidates(self) -> tuple[Array, Array]:
        """Return mean and deviation at the candidates."""

    @abstractmethod
    def _predict(self, coordinates: Array) -> tuple[Array, Array]:
        """Return mean and deviation elsewhere."""

    def _imagine(self, coordinates: Array) -> float:
        """Return the mean at a configuration ``(n_coordinates,)``, and count it as observed."""
        return float(self._predict(coordinates[None, :])[0][0])


class BacoProcess(BacoModel):
    """A Gaussian process over per-parameter distances (Hellsten 2023, Sec. 3.2 and 3.3).

    The covariance is Matérn 5/2 over the root of the squared distances of the parameters, each by its length scale
    squared (Eq. 1 and 2; the last term of Eq. 1 lacks its denominator 3 in print).
    """

    def __init__(
        self, options: BayesianBacoOptions, distances: Distances, *, minimise: bool, rng: np.random.Generator
    ) -> None:
        super().__init__(options, minimise=minimise, rng=rng)
        self._prior = GammaPrior(options.length_shape, options.length_rate, distances.owners)
        #: Length scales by parameter, signal and noise; None before the first fit.
        self.hyperparameters: Hyperparameters | None = None
        self._posterior = Posterior(self._over_coordinates(), np.empty((0, len(distances.owners))))

    def extend(self, observations: Mapping[int, Observation]) -> None:
        """Learn the observations that are new since the last call, hyperparameters as they are."""
        new = [index for index in observations if index not in self._learnt]
        if new:
            self._imagined = {}
        for index in new:
            value = float(self._targets.apply(np.array([observations[index].score]))[0])
            self._posterior.append(observations[index].coordinates, value)
            self._best = min(self._best, value)
        self._learnt.update(new)

    def forget(self, indices: Sequence[int]) -> None:
        """Take back what was imagined if any of these, no longer evaluated, is part of it."""
        super().forget(indices)
        if not self._imagined:
            self._posterior.forget_imagined()

    def _fit(self, x: Array, y: Array) -> None:
        if len(x) > 1:
            self.hyperparameters = fitted(x, y, self._prior, self._options, self.hyperparameters, self._rng)
        self._posterior = Posterior(self._over_coordinates(), self._candidates)
        self._posterior.condition(x, y)

    def _at_candidates(self) -> tuple[Array, Array]:
        return self._posterior.mean, self._posterior.deviation

    def _predict(self, coordinates: Array) -> tuple[Array, Array]:
        return self._posterior.predict(coordinates)

    def _imagine(self, coordinates: Array) -> float:
        return self._posterior.imagine(coordinates)

    def _over_coordinates(self) -> Hyperparameters:
        """Return the hyperparameters with the length scale of each coordinate's parameter."""
        owners, found = self._prior.owners, self.hyperparameters
        if found is None:
            return Hyperparameters(np.ones(len(owners)), signal=1.0, noise=_UNFITTED_NOISE)
        return Hyperparameters(found.lengths[owners], found.signal, found.noise)


class BacoForest(BacoModel):
    """A random forest in place of the Gaussian process (Hellsten 2023, Sec. 5.3, Fig. 8).

    It is grown anew whenever there are new observations; its trees see samples of them drawn with replacement.
    """

    def _fit(self, x: Array, y: Array) -> None:
        self._forest = Forest(self._options.trees, self._rng, x, y, bootstrap=True)
        self._predicted = self._predict(self._candidates)

    def _at_candidates(self) -> tuple[Array, Array]:
        return self._predicted

    def _predict(self, coordinates: Array) -> tuple[Array, Array]:
        mean, deviation = self._forest.predict(coordinates)
        return mean, np.maximum(deviation, _LEAST_DEVIATION_OF_TREES)


class BayesianBacoStrategy(ModelBasedStrategy):
    """Proposes what promises most under a model of the objective and a forest of what runs."""

    name: ClassVar[str] = "bayesian-baco"
    options_class: ClassVar[type[Options]] = BayesianBacoOptions
    options: BayesianBacoOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = self.options
        self._distances = Distances(self.space.parameters, options.permutation, log=options.log_parameters)
        self._model: BacoModel
        if options.surrogate == "random-forest":
            self._model = BacoForest(options, minimise=self.objective.minimise, rng=self.rng)
        else:
            self._model = BacoProcess(options, self._distances, minimise=self.objective.minimise, rng=self.rng)
        #: Learns which configurations run (Sec. 4.2, "Hidden constraints"); None until one ran and one failed.
        self._forest: Forest | None = None
        #: Outcomes of which the forest was grown, and those it was compared with.
        self._grown_to = 0
        self._compared_to = 0
        self._coordinates: dict[int, Array] = {}
        self._observations: dict[int, Observation] = {}
        self._initial_left = 0
        self._probability = np.empty(0)

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

    def _begin(self) -> None:
        """Count the random configurations to begin with.

        What was told counts where it differs in every parameter: trials of the baseline, all in
        double precision, say nothing of the rest.
        """
        told = np.array([o.coordinates for o in self._observations.values()])
        varied = self._distances.owners[np.ptp(told, axis=0) > 0] if len(told) else ()
        covered = len(np.unique(varied)) == self._distances.count
        self._initial_left = max(self.options.initial - (len(self._coordinates) if covered else 0), 0)

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
        # 0 now and then, so that nothing is ruled out for ever.
        levels = self.options.least_feasible_levels
        least = self.options.least_feasible * int(self.rng.integers(levels)) / max(levels - 1, 1)
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
        """Grow the forest anew if an outcome is not as expected or there are many more of them.

        The paper grows a new forest at every step, which takes most of the time of one. In between it would hardly
        differ.
        """
        known, new = len(self._coordinates), slice(self._compared_to, None)
        if not self.options.feasibility or known == self._compared_to:
            return
        self._compared_to = known
        ran = np.array([index in self._observations for index in self._coordinates], dtype=np.bool_)
        if ran.all() or not ran.any():
            return
        rows = np.array(list(self._coordinates.values()))
        if self._forest is not None and known < self.options.regrow * self._grown_to:
            probability = self._probability_of(rows[new])
            if np.where(ran[new], probability > _LIKELY, probability <= _UNLIKELY).all():
                return
        weights = np.where(ran, _RAN, _FAILED)
        self._forest = Forest(self.options.trees, self.rng, rows, ran, bootstrap=False, weights=weights)
        self._grown_to = known
        self._probability.fill(np.nan)

    def _probability_of(self, rows: Array) -> Array:
        """Return the probability to run, ``(n,)`` from coordinates; 1 while there is no forest."""
        return np.ones(len(rows)) if self._forest is None else self._forest.predict(rows)[0]

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
        if self._forest is None:
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
            self._probability[unknown] = self._probability_of(pool.features[unknown])
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
            if self._forest is not None:
                values = values + self._weight(self._probability_of(rows), least)
            return np.where([index in taken for index in indices.tolist()], -np.inf, values)

        starts = list(dict.fromkeys([*leaders, *best]))
        values = value(np.array(starts, dtype=np.int64)).tolist()
        return ascend(dict(zip(starts, values, strict=True)), self._around, value)[0]

    def _around(self, index: int) -> NDArray[np.int64]:
        neighbours = self.space.neighbours(index, self.options.neighbourhood)
        if len(neighbours) <= self.options.neighbours:
            return neighbours
        return self.rng.choice(neighbours, self.options.neighbours, replace=False)
