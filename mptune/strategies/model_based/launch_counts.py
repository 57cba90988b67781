"""How often a run of an application launches its kernels, by accuracy signature: narrow types may converge slower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.space.parameters import Parameter, PolicyParameter, PrecisionParameter, baseline_values

__all__ = ["LaunchCounts"]

Array = NDArray[np.float64]

#: Prior deviations of the effect of a value on the logarithm of a count: of a type, and of a choice of the steps.
_OF_TYPE: Final = 0.3
_OF_CHOICE: Final = 1.0
#: Of the logarithm of a count itself, and of its difference from the model.
_LEVEL: Final = 10.0
_RESIDUAL: Final = 0.02


class LaunchCounts:
    """A log-linear model of the launches of one kernel: each value of the signature multiplies them.

    Effects are relative to the widest types and the first choices. A value without evidence has no effect (ridge
    regression, Hoerl and Kennard 1970). The effect of a type is its least certain one: a run in which several are
    narrow does not say which of them adds launches.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self._sizes = [len(parameter.values) for parameter in parameters]
        are_types = [isinstance(p, PrecisionParameter | PolicyParameter) for p in parameters]
        self._is_type = np.array([False, *np.repeat(are_types, self._sizes)], dtype=np.bool_)
        self._variances = np.where(self._is_type, _OF_TYPE, _OF_CHOICE) ** 2
        fixed = baseline_values(parameters)
        start = 1
        for parameter, size in zip(parameters, self._sizes, strict=True):
            reference = fixed.get(parameter.name, parameter.values)[0]
            self._variances[start + parameter.values.index(reference)] = 0.0
            start += size
        self._variances[0] = _LEVEL**2
        self._counts: dict[tuple[int, ...], float] = {}
        self._effects = np.full(len(self._variances), -np.inf)

    def tell(self, codes: tuple[int, ...], count: float) -> None:
        """Learn the number of launches in a run of a signature."""
        if count > 0 and self._counts.get(codes) != count:
            self._counts[codes] = count
            self._fit()

    def predict(self, rows: NDArray[np.int32]) -> Array:
        """Return the launches in runs of signatures ``(n, n_parameters)``, ``(n,)``; 0 before any run.

        The launches of a signature that was run are known.
        """
        expected = np.exp(np.where(self._columns(rows), self._effects, 0.0).sum(axis=1))
        return np.array(
            [self._counts.get(tuple(row), count) for row, count in zip(rows.tolist(), expected, strict=True)]
        )

    def _fit(self) -> None:
        x = self._columns(np.array(list(self._counts), dtype=np.int32)).astype(np.float64)
        y = np.log(list(self._counts.values()))
        gram = (x * self._variances) @ x.T
        gram.flat[:: len(y) + 1] += _RESIDUAL**2
        weights = self._variances[:, None] * np.linalg.solve(gram, x).T
        effects = weights @ (y - y[0])
        explained = (weights * (x * self._variances).T).sum(axis=1)
        deviations = np.sqrt(np.maximum(self._variances - explained, 0.0))
        surely = np.maximum(np.minimum(effects, 0.0), effects - deviations)
        self._effects = np.where(self._is_type, surely, effects)
        self._effects[0] += y[0]

    def _columns(self, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return a constant column, then which value each parameter has, ``(n, 1 + n_values)``."""
        parts = [row[:, None] == np.arange(size) for row, size in zip(rows.T, self._sizes, strict=True)]
        return np.concatenate([np.ones((len(rows), 1), dtype=np.bool_), *parts], axis=1)
