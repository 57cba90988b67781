"""Bayesian optimisation of an application: a model of time for each kernel, and one model of the error.

The time of a run is a sum: the launches of each kernel, and the steps' own time. A kernel's time depends on its own
parameters and on the types of the buffers it is launched on. How often it is launched depends on all types, and so does
the error. One run is an observation for the models of every kernel.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from mptune.results.kernel_times import host_ms, kernel_times
from mptune.results.trial import Trial
from mptune.space.parameters import PolicyParameter, PrecisionParameter
from mptune.strategies.base import Array, Codes
from mptune.strategies.bayesian import BayesianStrategy
from mptune.strategies.model_based.models import Axis, ModelledAxis, Outcome
from mptune.strategies.model_based.strategy import Candidates

#: Smallest deviation of the logarithm of a run's time.
_LEAST_DEVIATION: Final = 1e-3


class _TotalAxis(Axis):
    """The logarithm of the time of a run, which is a sum.

    The levels of an outcome are those of the run's time and of the time outside of kernels, and then of each kernel's
    launch time and number of launches.

    Args:
        parts: models of each kernel's launch time and number of launches.
    """

    def __init__(self, parts: Sequence[tuple[ModelledAxis, ModelledAxis]]) -> None:
        self._parts, self._host_ms = parts, 0.0

    def fit(self, candidates: Candidates, known: Sequence[Outcome]) -> None:
        self._host_ms = float(np.median([math.exp(o.levels[1]) for o in known])) if known else 0.0
        for axis in self._axes():
            axis.fit(candidates, known)

    def extend(self, outcomes: Sequence[Outcome]) -> None:
        for axis in self._axes():
            axis.extend(outcomes)

    def imagine(self, features: Array) -> None:
        for axis in self._axes():
            axis.imagine(features)

    def at_candidates(self) -> tuple[Array, Array]:
        return self._total([axis.at_candidates() for axis in self._axes()])

    def at(self, features: Array, codes: Codes) -> tuple[Array, Array]:
        return self._total([axis.at(features, codes) for axis in self._axes()])

    def of(self, outcomes: Sequence[Outcome]) -> Array:
        return np.array([outcome.value for outcome in outcomes])

    def _axes(self) -> list[ModelledAxis]:
        return [axis for part in self._parts for axis in part]

    def _total(self, beliefs: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
        total, variance = np.full(len(beliefs[0][0]), max(self._host_ms, 1e-9)), np.zeros(len(beliefs[0][0]))
        for (time, count), of_time, of_count in zip(self._parts, beliefs[::2], beliefs[1::2], strict=True):
            if len(time):
                (log_ms, deviation), (log_count, _) = time.scale.undo(*of_time), count.scale.undo(*of_count)
                own = np.exp(log_ms + log_count)
                total, variance = total + own, variance + np.square(own * deviation)
        return np.log(total), np.sqrt(variance) / total + _LEAST_DEVIATION


class ApplicationStrategy(BayesianStrategy):
    """Searches types and every kernel's own parameters together, by the time of each kernel in each run.

    Args:
        kernels: names of the kernels, whose own parameters are called ``KERNEL.PARAMETER``.
        is_relative: whether errors are differences from the application itself in its widest types.
    """

    first: ClassVar[int] = 4
    #: Each kernel can be tuned without the others.
    steps: ClassVar[int] = 30

    def __init__(self, *args: Any, kernels: Sequence[str], **kwargs: Any) -> None:
        self._kernels = tuple(kernels)
        #: By kernel, names of the signature's parameters that it sees; unknown before a run has told.
        self._seen_by: dict[str, set[str]] = {}
        super().__init__(*args, **kwargs)

    def relate(self, seen: Mapping[str, Collection[str]]) -> None:
        """Learn which parameters of the signature the time of each kernel depends on.

        Args:
            seen: names of the types of the buffers it is launched on, by kernel.
        """
        for kernel, names in seen.items():
            self._seen_by.setdefault(kernel, set()).update(names)
        self._axes, self._pool = self._make_axes(), None

    def _make_axes(self) -> list[Axis]:
        shared = [self.space.parameter(name) for name in self.signature if "." not in name]
        types = {p.name for p in shared}
        choices = {p.name for p in shared if not isinstance(p, PrecisionParameter | PolicyParameter)}
        parts: list[tuple[ModelledAxis, ModelledAxis]] = []
        for kernel in self._kernels:
            own = {name for name in self.space.names if name.startswith(f"{kernel}.")}
            time = self._part(2 + 2 * len(parts), own | choices | self._seen_by.get(kernel, types))
            parts.append((time, self._part(3 + 2 * len(parts), set(self.signature))))
        return [_TotalAxis(parts)]

    def _part(self, position: int, names: Collection[str]) -> ModelledAxis:
        """Return a model of a level that depends on the parameters with these names."""
        owners = [column for column, name in enumerate(self.space.names) if name in names]
        columns = np.flatnonzero(np.isin(self._coordinates.owners, owners))
        options = self.options
        return ModelledAxis(position, columns, length_spread=options.length_spread, iterations=options.iterations)

    def _levels(self, trial: Trial) -> Array:
        numbers = [trial.time_ms, max(host_ms(trial), 1e-9)]
        found = kernel_times(trial)
        for kernel in self._kernels:
            launches, time_ms = (found[kernel].launches, found[kernel].time_ms) if kernel in found else (0, 0.0)
            numbers += [time_ms / max(launches, 1), launches]
        levels = np.array(numbers, dtype=np.float64)
        return np.log(levels, out=np.full(len(levels), np.nan), where=levels > 0)
