"""How often a run of an application launches its kernels, by accuracy signature: narrow types may converge slower."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.space.parameters import Parameter, PolicyParameter, PrecisionParameter

__all__ = ["LaunchCounts"]

Array = NDArray[np.float64]

#: Prior deviations of the effect that a value has on the logarithm of a count: of a type, and of a choice of the steps.
_OF_TYPE: Final = 0.3
_OF_CHOICE: Final = 1.0
#: Of the logarithm of a count itself, and how far it may be from the model.
_LEVEL: Final = 10.0
_RESIDUAL: Final = 0.02


class LaunchCounts:
    """A log-linear model of the launches of one kernel: each value of the signature multiplies them.

    Values have no effect as far as runs do not tell another one (ridge regression, Hoerl and Kennard 1970).

    Args:
        parameters: those of the signature, in the order of the columns of every ``codes`` argument.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self._sizes = [len(parameter.values) for parameter in parameters]
        kinds = (PrecisionParameter, PolicyParameter)
        priors = [
            np.full(size, _OF_TYPE if isinstance(p, kinds) else _OF_CHOICE)
            for p, size in zip(parameters, self._sizes, strict=True)
        ]
        self._variances = np.concatenate([np.array([_LEVEL]), *priors]) ** 2
        self._is_type = np.concatenate([[False], *(prior == _OF_TYPE for prior in priors)])
        self._counts: dict[tuple[int, ...], float] = {}
        self._effects = np.zeros(len(self._variances))
        self._deviations = np.sqrt(self._variances)
        self._level = 0.0
        self._factors: dict[bool, list[Array]] = {}

    def tell(self, codes: tuple[int, ...], count: float) -> None:
        """Learn how often it was launched in a run of a signature."""
        if count > 0 and self._counts.get(codes) != count:
            self._counts[codes] = count
            self._fit()

    def level(self) -> float:
        """Return how many launches :meth:`factors` multiply, 0 before it was told any."""
        return self._level

    def factors(self, *, at_best: bool = False) -> list[Array]:
        """Return what multiplies the launches, by the code of each parameter.

        Args:
            at_best: types are given no more than they are sure to add. A run in which several are narrow does not tell
                which of them it is.
        """
        if at_best not in self._factors:
            effects = self._effects
            if at_best:
                surely = np.maximum(np.minimum(effects, 0.0), effects - self._deviations)
                effects = np.where(self._is_type, surely, effects)
            split = np.split(np.exp(effects[1:]), np.cumsum(self._sizes)[:-1])
            self._factors[at_best] = split if self._sizes else []
        return self._factors[at_best]

    def _fit(self) -> None:
        x = np.array([self._row(codes) for codes in self._counts])
        y = np.log(list(self._counts.values()))
        gram = (x * self._variances) @ x.T
        gram.flat[:: len(y) + 1] += _RESIDUAL**2
        weights = self._variances[:, None] * np.linalg.solve(gram, x).T
        self._effects = weights @ (y - y[0])
        explained = (weights * (x * self._variances).T).sum(axis=1)
        self._deviations = np.sqrt(np.maximum(self._variances - explained, 0.0))
        self._level = math.exp(float(self._effects[0] + y[0]))
        self._factors.clear()

    def _row(self, codes: Sequence[int]) -> Array:
        columns = [np.eye(size)[code] for size, code in zip(self._sizes, codes, strict=True)]
        return np.concatenate([np.ones(1), *columns])
