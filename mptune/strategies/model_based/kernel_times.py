"""How long launches of one kernel take, by all its parameters: what an application's search knows of each kernel."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mptune.results.trial import Trial
from mptune.space.configuration import Configuration, Value
from mptune.space.search_space import SearchSpace
from mptune.strategies.model_based.acquisition import log_expected_improvement
from mptune.strategies.model_based.coordinates import Features
from mptune.strategies.model_based.gaussian_process import LogNormalPrior, Posterior, fit
from mptune.strategies.model_based.numerics import single_threaded

__all__ = ["KernelTimes"]

Array = NDArray[np.float64]

#: Configurations the model looks at: all, or so many of a larger space; and of those with some values, so many.
_MOST: Final = 20_000
_MOST_WITH: Final = 1_000
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
        self._prior = LogNormalPrior.of(self._features.count)
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
        #: In a space that it has a sample of: the columns for whose values there are configurations in the sample, and
        #: configurations by the values they have.
        self._covered: set[tuple[int, ...]] = set()
        self._with: dict[tuple[tuple[str, Value], ...], NDArray[np.int64]] = {}

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
            self._look_at([index])

    def tell_within(self, configuration: Configuration, time_ms: float) -> None:
        """Learn how long a launch took within a run of the application."""
        index = self.space.index(configuration)
        if index is not None and 0 < time_ms < math.inf:
            self._within[index] = math.log(time_ms)
            self._look_at([index])

    def _look_at(self, indices: ArrayLike) -> None:
        self.version += 1
        new = np.setdiff1d(indices, self._indices)
        if len(new):
            self._indices = np.append(self._indices, new)
            self._codes = np.concatenate([self._codes, self.space.codes(new)])
            self._at = np.concatenate([self._at, self._features.of(new)])

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
        columns = [self.space.names.index(name) for name in names]
        shape = tuple(len(self.space.parameters[column].values) for column in columns)
        self._cover(columns, shape)
        self._update()
        found = np.full(math.prod(shape), math.inf)
        # What has not been measured may be as fast as this.
        np.minimum.at(found, self._places(columns, shape), np.exp(self._mean - self._deviation))
        return found.reshape(shape)

    def _places(self, columns: Sequence[int], shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Return where in a table of some parameters' values each configuration is that it looks at."""
        if not columns:
            return np.zeros(len(self._codes), dtype=np.int64)
        return np.asarray(np.ravel_multi_index(tuple(self._codes[:, columns].T), shape), dtype=np.int64)

    def _cover(self, columns: Sequence[int], shape: tuple[int, ...]) -> None:
        """Look at a configuration for each combination of some parameters' values that the sample has not met."""
        asked, count = tuple(columns), math.prod(shape)
        if self.is_complete or asked in self._covered or count > _MOST:
            return
        self._covered.add(asked)
        missing = np.setdiff1d(np.arange(count), self._places(columns, shape))
        codes = self._codes[self._rng.integers(len(self._codes), size=len(missing))]
        codes[:, columns] = np.stack(np.unravel_index(missing, shape), axis=1)
        indices = self.space.indices_of(codes)
        self._look_at(np.unique(indices[indices >= 0]))

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
            indices, mean, deviation = self._predicted(values)
            runs = np.isfinite(mean)
            columns = [self.space.names.index(name) for name in names]
            offered = [self.space.parameters[column].values for column in columns]
            times = np.exp(mean + deviation)[runs]
            self._at_most[asked] = {
                tuple(known[code] for known, code in zip(offered, codes, strict=True)): time_ms
                for codes, time_ms in zip(
                    self.space.codes(indices[runs])[:, columns].tolist(), times.tolist(), strict=True
                )
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
        indices, mean, deviation = self._predicted(values)
        free = deviation > 0
        if not free.any():
            return [], 0.0
        count = min(count, int(free.sum()))
        known = ~free & np.isfinite(mean)
        if not known.any():
            chosen = np.where(free, mean, math.inf).argsort(kind="stable")[:count]
            return self.space.configurations(indices[chosen]), math.inf
        best = float(mean[known].min())
        promise = np.full(len(mean), -math.inf)
        promise[free] = log_expected_improvement(mean[free], deviation[free], best)
        chosen = (-promise).argsort(kind="stable")[:count]
        gain_ms = math.exp(best) * -math.expm1(-math.exp(float(promise[chosen[0]])))
        return self.space.configurations(indices[chosen]), gain_ms

    def _predicted(self, values: Mapping[str, Value]) -> tuple[NDArray[np.int64], Array, Array]:
        """Return configurations that have some values, with mean and deviation of the logarithms of their times."""
        having = self._having(values)
        indices = self._indices[having]
        if self.is_complete:
            return indices, self._mean[having], self._deviation[having]
        # A sample of a large space has few of them, or none.
        indices = np.union1d(indices[self._deviation[having] == 0], self._some_with(values))
        return indices, *self._model(indices)

    def _some_with(self, values: Mapping[str, Value]) -> NDArray[np.int64]:
        """Return configurations that have some values: all, or so many as are looked at."""
        key = tuple(sorted(values.items()))
        if key not in self._with:
            counts = [1 if p.name in values else len(p.values) for p in self.space.parameters]
            size = math.prod(counts)
            places = np.arange(size) if size <= _MOST_WITH else self._rng.integers(size, size=_MOST_WITH)
            codes = np.stack(np.unravel_index(places, counts), axis=1).astype(np.int32)
            for column, parameter in enumerate(self.space.parameters):
                if parameter.name in values:
                    codes[:, column] = parameter.values.index(values[parameter.name])
            indices = self.space.indices_of(codes)
            self._with[key] = np.unique(indices[indices >= 0])
        return self._with[key]

    def _having(self, values: Mapping[str, Value]) -> NDArray[np.bool_]:
        mask = np.ones(len(self._codes), dtype=np.bool_)
        for name, value in values.items():
            column = self.space.names.index(name)
            code = self.space.parameters[column].values.index(value)
            mask &= self._codes[:, column] == code
        return mask

    @single_threaded()
    def _update(self) -> None:
        """Bring the model up to date: logarithms of times, mean and deviation, at all configurations looked at."""
        if self._fitted_to == self.version:
            return
        self._fitted_to = self.version
        self._at_most.clear()
        self._logarithms = self._together()
        ran = {index: log_ms for index, log_ms in self._logarithms.items() if not math.isnan(log_ms)}
        y = np.array(list(ran.values()))
        self._middle, self._spread = 0.0, 1.0
        if ran:
            self._middle = float(y.mean())
            self._spread = max(float(y.std()), _LEAST_SPREAD if len(y) > 1 else _USUAL_SPREAD)
        self._told = self._features.of(list(ran)), (y - self._middle) / self._spread
        if len(y) > 1:
            self._hyperparameters = fit(*self._told, self._prior, [self._hyperparameters], 30)
        self._mean, self._deviation = self._model(self._indices, self._at)

    @single_threaded()
    def _model(self, indices: NDArray[np.int64], at: Array | None = None) -> tuple[Array, Array]:
        """Return mean and deviation of the logarithms of times of configurations; where they are known, those."""
        mean, deviation = np.zeros(len(indices)), np.ones(len(indices))
        if len(self._told[1]):
            posterior = Posterior(self._hyperparameters, self._features.of(indices) if at is None else at)
            posterior.condition(*self._told)
            mean = posterior.mean * self._spread + self._middle
            deviation = np.maximum(posterior.deviation * self._spread, 1e-9)
        places = {index: place for place, index in enumerate(indices.tolist())}
        for index, log_ms in self._logarithms.items():
            if index in places:
                mean[places[index]] = math.inf if math.isnan(log_ms) else log_ms
                deviation[places[index]] = 0.0
        return mean, deviation

    def _together(self) -> dict[int, float]:
        """Return the logarithms of times of the kernel alone, those within a run made comparable with them.

        Within a run caches are as other kernels leave them, which multiplies all times by about the same.
        """
        apart = [self._within[i] - self._known[i] for i in self._within if not math.isnan(self._known.get(i, math.nan))]
        # A factor that is seen once may be noise.
        factor = float(np.median(apart)) * len(apart) / (len(apart) + 1) if apart else 0.0
        return {index: log_ms - factor for index, log_ms in self._within.items()} | self._known
