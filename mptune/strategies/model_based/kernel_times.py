"""How long launches of one kernel take, by all its parameters: what an application's search knows of each kernel."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.results import Trial
from mptune.space.configuration import Configuration, Value
from mptune.space.search_space import SearchSpace
from mptune.strategies.model_based.acquisition import log_expected_improvement
from mptune.strategies.model_based.coordinates import Features
from mptune.strategies.model_based.gaussian_process import Posterior, Prior, fit

__all__ = ["KernelTimes"]

Array = NDArray[np.float64]

#: Configurations the model looks at: all, or so many of a larger space.
_MOST: Final = 20_000
#: Spread of the logarithms of times below which they are as good as equal.
_LEAST_SPREAD: Final = 1e-3
#: Their spread as long as only one is known.
_USUAL_SPREAD: Final = 0.5


class KernelTimes:
    """A Gaussian process of the logarithm of a launch's time; where it was measured, the time itself.

    Args:
        space: the kernel's configurations.
        seed: of the sample of a large space.
    """

    def __init__(self, space: SearchSpace, seed: int = 0) -> None:
        self._rng = rng = np.random.default_rng(seed)
        self.space = space
        sample = space.sample(_MOST, rng) if space.size > _MOST else np.arange(space.size, dtype=np.int64)
        self._indices = np.unique(sample)
        self._codes = space.codes(self._indices)
        self._features = Features(space)
        self._at = self._features.of(self._indices)
        self._prior = Prior.of(self._features.count, length_spread=0.6, noise=0.03, noise_spread=1.0)
        self._hyperparameters = self._prior.centre
        #: Logarithm of the time by index; NaN where it failed.
        self._known: dict[int, float] = {}
        #: The same of launches within a run of the application, which other launches came before.
        self._within: dict[int, float] = {}
        #: Grows whenever something was learnt.
        self.version = 0
        self._fitted_to = -1
        #: What :meth:`at_most` returned since, by what it was asked for: a search asks the same thousands of times.
        self._at_most: dict[object, dict[tuple[Value, ...], float]] = {}

    @property
    def is_complete(self) -> bool:
        """Whether it looks at all configurations, not at a sample of them."""
        return len(self._indices) == self.space.size

    @property
    def count(self) -> int:
        """How many trials of the kernel alone it was told."""
        return len(self._known)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from trials of the kernel."""
        for trial in trials:
            index = self.space.index(trial.configuration)
            if index is None:
                continue
            self._known[index] = math.log(trial.time_ms) if trial.is_valid and trial.time_ms > 0 else math.nan
            self._look_at(index)

    def tell_within(self, configuration: Configuration, time_ms: float) -> None:
        """Learn how long a launch took within a run of the application."""
        index = self.space.index(configuration)
        if index is not None and 0 < time_ms < math.inf:
            self._within[index] = math.log(time_ms)
            self._look_at(index)

    def _look_at(self, index: int) -> None:
        self.version += 1
        if index not in self._indices:
            self._indices = np.append(self._indices, index)
            self._codes = np.concatenate([self._codes, self.space.codes([index])])
            self._at = np.concatenate([self._at, self._features.of([index])])

    def design(self, count: int, values: Mapping[str, Collection[Value]]) -> list[Configuration]:
        """Return configurations to begin with, spread over those in which some parameters have only some values.

        None of them is one that it was told of.

        Raises:
            EmptySpaceError: there is none.
        """
        wanted = {name: [v for v in self.space.parameter(name).values if v in values[name]] for name in values}
        space = self.space.restrict(wanted)
        found = space.configurations(np.unique(space.latin_hypercube(min(count, space.size), self._rng)))
        return [configuration for configuration in found if self.space.index(configuration) not in self._known]

    def least(self, names: Sequence[str]) -> Array:
        """Return the least time in milliseconds by values of some parameters, an axis for each; inf where none runs."""
        self._update()
        columns = [self.space.names.index(name) for name in names]
        shape = tuple(len(self.space.parameters[column].values) for column in columns)
        found = np.full(math.prod(shape), math.inf)
        places = (
            np.ravel_multi_index(tuple(self._codes[:, columns].T), shape)
            if columns
            else np.zeros(len(self._codes), int)
        )
        # What has not been measured may be as fast as this.
        np.minimum.at(found, places, np.exp(self._mean - self._deviation))
        return found.reshape(shape)

    def at_most(self, values: Mapping[str, Value], names: Sequence[str]) -> Mapping[tuple[Value, ...], float]:
        """Return what launches with some values will hardly take longer than, in milliseconds, by those of others.

        Where it was measured that is the time itself. What does not run is left out.

        Args:
            values: by parameter.
            names: the other parameters.
        """
        self._update()
        asked = (tuple(values.items()), tuple(names))
        if asked not in self._at_most:
            places = np.flatnonzero(self._having(values) & np.isfinite(self._mean))
            columns = [self.space.names.index(name) for name in names]
            offered = [self.space.parameters[column].values for column in columns]
            times = np.exp(self._mean[places] + self._deviation[places])
            self._at_most[asked] = {
                tuple(known[code] for known, code in zip(offered, codes, strict=True)): time_ms
                for codes, time_ms in zip(self._codes[places][:, columns].tolist(), times.tolist(), strict=True)
            }
        return self._at_most[asked]

    def promising(self, values: Mapping[str, Value], count: int) -> tuple[list[Configuration], float]:
        """Return configurations with some values that are worth measuring, and how much faster that may make it.

        Args:
            values: by parameter.
            count: how many configurations, at most.

        Returns:
            The configurations, and the expected improvement on the best time with these values in milliseconds;
            infinite while none is known.
        """
        self._update()
        mask = self._having(values)
        free = mask & (self._deviation > 0)
        if not free.any():
            return [], 0.0
        known = mask & (self._deviation == 0) & np.isfinite(self._mean)
        if not known.any():
            chosen = np.where(free, self._mean, math.inf).argsort(kind="stable")[: min(count, int(free.sum()))]
            return [self.space.configuration(int(self._indices[place])) for place in chosen], math.inf
        best = float(self._mean[known].min())
        promise = np.full(len(self._mean), -math.inf)
        promise[free] = log_expected_improvement(self._mean[free], self._deviation[free], best)
        chosen = (-promise).argsort(kind="stable")[: min(count, int(free.sum()))]
        gain_ms = math.exp(best) * -math.expm1(-math.exp(float(promise[chosen[0]])))
        return [self.space.configuration(int(self._indices[place])) for place in chosen], gain_ms

    def _having(self, values: Mapping[str, Value]) -> NDArray[np.bool_]:
        mask = np.ones(len(self._codes), dtype=np.bool_)
        for name, value in values.items():
            column = self.space.names.index(name)
            code = self.space.parameters[column].values.index(value)
            mask &= self._codes[:, column] == code
        return mask

    def _update(self) -> None:
        """Bring the model up to date: logarithms of times, mean and deviation, at all configurations looked at."""
        if self._fitted_to == self.version:
            return
        self._fitted_to = self.version
        self._at_most.clear()
        known = self._together()
        ran = {index: log_ms for index, log_ms in known.items() if not math.isnan(log_ms)}
        self._mean, self._deviation = np.zeros(len(self._indices)), np.ones(len(self._indices))
        if ran:
            x, y = self._features.of(list(ran)), np.array(list(ran.values()))
            middle, spread = float(y.mean()), max(float(y.std()), _LEAST_SPREAD if len(y) > 1 else _USUAL_SPREAD)
            z = (y - middle) / spread
            if len(z) > 1:
                self._hyperparameters = fit(x, z, self._prior, [self._hyperparameters], 30)
            posterior = Posterior(self._hyperparameters, self._at)
            posterior.condition(x, z)
            self._mean = posterior.mean * spread + middle
            self._deviation = np.maximum(posterior.deviation * spread, 1e-9)
        places = {index: place for place, index in enumerate(self._indices.tolist())}
        for index, log_ms in known.items():
            self._mean[places[index]] = math.inf if math.isnan(log_ms) else log_ms
            self._deviation[places[index]] = 0.0

    def _together(self) -> dict[int, float]:
        """Return the logarithms of times of the kernel alone, those within a run made comparable with them.

        Within a run caches are as other kernels leave them, which multiplies all times by about the same.
        """
        apart = [self._within[i] - self._known[i] for i in self._within if not math.isnan(self._known.get(i, math.nan))]
        # A factor that is seen once may be noise.
        factor = float(np.median(apart)) * len(apart) / (len(apart) + 1) if apart else 0.0
        return {index: log_ms - factor for index, log_ms in self._within.items()} | self._known
