"""What is known of accuracy signatures: measured errors exactly, the others by a model.

The error of a configuration depends on its signature alone, so a signature needs measuring once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mptune.objective import Objective
from mptune.precision import precision
from mptune.results import Status, Trial
from mptune.space.parameters import PolicyParameter, PrecisionParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies.models.error_model import ErrorModel

__all__ = ["Signatures", "enabled"]

Codes = NDArray[np.int32]
Keys = NDArray[np.uint64]

#: Smallest log10 error told apart from 0.
_LEAST_ERROR: Final = -19.0
#: What a result that is not finite says about log10 error: decades above the threshold, and how surely.
_NON_FINITE_EXCESS: Final = 2.0
_NON_FINITE_DEVIATION: Final = 1.0


def enabled(objective: Objective, signature: Sequence[str]) -> bool:
    """Whether there is an error to keep below a threshold and a signature to know it by."""
    return objective.threshold is not None and bool(signature)


@dataclass(slots=True)
class _Record:
    """One measured signature."""

    codes: Codes
    excesses: list[float] = field(default_factory=list)
    non_finite: int = 0


class Signatures:
    """Says of signatures whether they meet the threshold, and with what probability.

    Args:
        space: the search space.
        names: parameters of the signature.
        objective: has the threshold.

    Raises:
        UnknownNameError: a name is not a parameter of the space.
    """

    def __init__(self, space: SearchSpace, names: Sequence[str], objective: Objective) -> None:
        self._objective = objective
        self.columns = [space.names.index(name) for name in names]
        self.parameters = [space.parameters[column] for column in self.columns]
        self._radices = _radices([len(p.values) for p in self.parameters])
        self._target = _log10_threshold(objective)
        self._model = ErrorModel(self.parameters, _model_level(objective))
        self._records: dict[int, _Record] = {}
        self._bits = [_significand_bits(p) for p in self.parameters]
        self.widest = self._widest()
        #: Grows whenever something was learnt.
        self.version = 0

    # -- learning ------------------------------------------------------------------------------

    def observe(self, codes: Codes, trials: Sequence[Trial]) -> None:
        """Learn from trials; ``codes`` are the value codes of all parameters, shape ``(n, d)``."""
        news = False
        for row, trial in zip(codes[:, self.columns], trials, strict=True):
            if not (trial.is_valid or trial.status is Status.NON_FINITE):
                continue
            record = self._records.setdefault(int(self._key(row[None, :])[0]), _Record(row.copy()))
            excess = self._objective.error_excess(trial)
            if trial.is_valid and excess < math.inf:
                news |= not record.excesses
                record.excesses.append(excess)
            else:
                news |= not record.non_finite
                record.non_finite += 1
        if news:
            self._fit()

    def _fit(self) -> None:
        known = [r for r in self._records.values() if r.excesses or self._is_bad(r)]
        self.version += 1
        if not known:
            return
        errors = [min(r.excesses) if r.excesses else _NON_FINITE_EXCESS for r in known]
        deviations = [0.0 if r.excesses else _NON_FINITE_DEVIATION for r in known]
        self._model.fit(
            np.array([r.codes for r in known]),
            np.maximum(np.array(errors) + self._target, _LEAST_ERROR),
            np.array(deviations),
        )

    # -- asking --------------------------------------------------------------------------------

    def keys(self, codes: Codes) -> Keys:
        """Return an identity of each configuration's signature, shape ``(n,)``."""
        return self._key(codes[:, self.columns])

    def known_bad(self, codes: Codes) -> NDArray[np.bool_]:
        """Return which configurations have a signature known to exceed the threshold, shape ``(n,)``."""
        bad = [key for key, record in self._records.items() if self._is_bad(record)]
        return np.isin(self.keys(codes), np.array(bad, dtype=np.uint64))

    def log_probability(self, codes: Codes) -> NDArray[np.float64]:
        """Return the log of each configuration's probability to meet the threshold, shape ``(n,)``.

        0 for signatures known to, ``-inf`` for those known not to.
        """
        keys, first, inverse = np.unique(self.keys(codes), return_index=True, return_inverse=True)
        rows = codes[first][:, self.columns]
        probability = self._model.log_probability_below(rows, self._target)
        for position, key in enumerate(keys.tolist()):
            record = self._records.get(key)
            if record is None:
                continue
            if self._is_bad(record):
                probability[position] = -math.inf
            elif record.excesses:
                met = sum(excess <= 0 for excess in record.excesses)
                probability[position] = math.log(met / len(record.excesses))
        return probability[inverse]

    def levels(self, codes: Codes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean and standard deviation of each configuration's log10 error, shape ``(n,)``.

        Of measured signatures they are those of what was measured; where that was not finite the mean is infinite.
        """
        keys, first, inverse = np.unique(self.keys(codes), return_index=True, return_inverse=True)
        means, deviations = self._model.predict(codes[first][:, self.columns])
        for position, key in enumerate(keys.tolist()):
            record = self._records.get(key)
            if record is None:
                continue
            if record.excesses:
                known = np.maximum(np.array(record.excesses) + self._target, _LEAST_ERROR)
                means[position], deviations[position] = known.mean(), known.std()
            elif self._is_bad(record):
                means[position], deviations[position] = math.inf, 0.0
        return means[inverse], deviations[inverse]

    def is_measured(self, row: Codes) -> bool:
        """Whether the error of the signature with these value codes is known; shape ``(n_names,)``."""
        record = self._records.get(int(self._key(row[None, :])[0]))
        return record is not None and (bool(record.excesses) or self._is_bad(record))

    def wideness(self, codes: Codes) -> NDArray[np.float64]:
        """Return the significand bits of all precision parameters together, policies as 16 bits a step; ``(n,)``."""
        total = np.zeros(len(codes))
        for column, bits in zip(self.columns, self._bits, strict=True):
            total += bits[codes[:, column]]
        return total

    # -- internals -----------------------------------------------------------------------------

    def _is_bad(self, record: _Record) -> bool:
        if record.excesses:
            return min(record.excesses) > 0
        # Widening a type causes no overflow: where a narrower signature was finite, this configuration is at fault.
        return record.non_finite > 0 and not self._wider_than_a_finite_one(record)

    def _wider_than_a_finite_one(self, record: _Record) -> bool:
        if np.array_equal(record.codes, self.widest):
            return True
        return any(
            all(
                b[c] >= b[d] if b.any() else c == d
                for b, c, d in zip(self._bits, record.codes, other.codes, strict=True)
            )
            for other in self._records.values()
            if other.excesses
        )

    def _widest(self) -> Codes:
        return np.array([int(bits.argmax()) for bits in self._bits], dtype=np.int32)

    def _key(self, rows: Codes) -> Keys:
        return rows.astype(np.uint64) @ self._radices


def _radices(counts: Sequence[int]) -> Keys:
    """Return place values that give each signature a key of its own; odd multipliers where 64 bits do not do."""
    if math.prod(counts) < 2**63:
        values = [math.prod(counts[:i]) for i in range(len(counts))]
    else:
        values = [pow(0x9E3779B97F4A7C15, i + 1, 2**64) | 1 for i in range(len(counts))]
    return np.array(values, dtype=np.uint64)


def _significand_bits(parameter: object) -> NDArray[np.float64]:
    """Return how wide each value is; zeros for a parameter without such an order."""
    if isinstance(parameter, PrecisionParameter):
        return np.array([float(precision(str(v)).significand_bits) for v in parameter.values])
    if isinstance(parameter, PolicyParameter):
        steps = {"accurate": 32.0, "fast": 16.0, "approx": 0.0}
        return np.array([steps[str(v)] for v in parameter.values])
    return np.zeros(len(getattr(parameter, "values", ())))


def _thresholds(objective: Objective) -> list[float]:
    threshold = objective.threshold
    assert threshold is not None
    return list(threshold.values()) if isinstance(threshold, Mapping) else [threshold]


def _log10_threshold(objective: Objective) -> float:
    """Return log10 of the threshold, the geometric mean of several."""
    return float(np.mean([math.log10(tau) for tau in _thresholds(objective)]))


def _model_level(objective: Objective) -> float:
    """Return the level of errors beside the thresholds' own: that of a threshold above 1, which is not relative."""
    return max(0.0, _log10_threshold(objective))
