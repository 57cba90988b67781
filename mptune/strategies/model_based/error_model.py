"""Errors by accuracy signature: measured signatures are known exactly, the others follow a model of few points.

The error of a configuration depends on its signature alone, so a signature that meets the threshold is measured once.
A signature that does not meet it may be innocent: a value that all its failed configurations share may be wrong. It is
known to exceed the threshold once they share none. Before that its other configurations are improbable, the more so
the more of those values they have.

First-order rounding error analysis bounds an error by a sum: each variable contributes its type's unit
roundoff times a condition number that the data decide (Higham, Accuracy and Stability of Numerical
Algorithms, ch. 3). So the coarsest type on the critical path dominates, and halving the roundoff of a
variable that does not dominate changes nothing. The model is that sum, with one unknown exponent per
variable, and normal priors on the exponents:

    log10 error = log10(sum over terms of 10^exponent) + effects of the other signature parameters

A term is a precision parameter (exponent: common level + its own condition + log10 unit roundoff + a small
deviation of that type, as range and subnormals matter too) or a policy below accurate. The exponents are the maximum
of their posterior, by nonlinear least squares, and their uncertainty is the Laplace approximation's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from mptune.precision import precision
from mptune.results.objective import Objective
from mptune.results.trial import Status, Trial
from mptune.space.parameters import Parameter, PolicyParameter, PrecisionParameter, baseline_values
from mptune.space.search_space import SearchSpace
from mptune.strategies.base import Array, Codes
from mptune.strategies.model_based.gaussian_process import cholesky, single_threaded

#: Prior means and standard deviations of the exponents, in decades.
_LEVEL: Final = (0.0, 2.0)
_CONDITION: Final = (0.0, 1.5)
_TYPE_DEVIATION: Final = (0.0, 0.4)
_POLICIES: Final = {"fast": (-6.0, 2.0), "approx": (-4.5, 2.0)}
_OTHER: Final = (0.0, 0.7)
#: Exponent of the error that is always there; the wider prior is for a kernel whose precisions are all fixed.
_FLOOR: Final = (-18.0, 0.5)
_FLOOR_WITHOUT_PRECISIONS: Final = (-7.0, 4.0)
#: Deviation of an error from the model in decades, and how many observations that prior is worth.
_RESIDUAL: Final = 0.25
_RESIDUAL_WEIGHT: Final = 4.0
#: Signatures predicted at once.
_BLOCK: Final = 4096
#: Smallest log10 error distinguished from 0.
_LEAST_ERROR: Final = -19.0
#: Log of the probability that a value is at fault, rather than the signature, where all failed configurations of a
#: signature share it.
_LOG_FAULT: Final = math.log(1e-4)
#: Log of the probability that wrong configurations mislead the model, while nothing is known to meet the threshold: as
#: the widest types are among them, it expects no better of any others.
_LOG_MISLED: Final = math.log(0.05)
#: Stands for an infinite excess where configurations of a signature are compared.
_MOST_DECADES: Final = 20.0
#: Log10 error of a result that equals that of the widest types, in decades below the unit roundoff of the coarsest
#: type, and its uncertainty: the difference may be in digits that are not visible.
_UNSEEN: Final = (1.0, 2.0)
#: Log10 error of a result that is not finite, in decades above the threshold, and its uncertainty.
_NON_FINITE: Final = (2.0, 1.0)


class _Term:
    """One summand: by value code, a constant and the coefficients of the unknowns."""

    def __init__(self, column: int, constants: Sequence[float], used: Sequence[Sequence[int]], n_unknowns: int) -> None:
        self.column = column
        self.constants = np.array(constants)
        self.coefficients = np.zeros((len(used), n_unknowns))
        for row, unknowns in zip(self.coefficients, used, strict=True):
            row[list(unknowns)] = 1.0

    def at(self, codes: Codes, exponents: Array) -> tuple[Array, Array]:
        """Return values ``(n,)`` and derivatives ``(n, n_unknowns)`` of signatures."""
        own = codes[:, self.column] if self.column >= 0 else np.zeros(len(codes), dtype=np.int32)
        return (self.constants + self.coefficients @ exponents)[own], self.coefficients[own]


class ErrorModel:
    """Predicts log10 error from a signature.

    Args:
        parameters: those of the signature, in the order of the columns of every ``codes`` argument.
        level: log10 of an error that is likely before anything was measured at unit roundoff 1; 0 for
            relative metrics.
    """

    def __init__(self, parameters: Sequence[Parameter], level: float = 0.0) -> None:
        priors: list[tuple[float, float]] = []

        def unknown(mean: float, deviation: float) -> int:
            priors.append((mean, deviation))
            return len(priors) - 1

        common = unknown(_LEVEL[0] + level, _LEVEL[1])
        has_precisions = any(isinstance(p, PrecisionParameter) for p in parameters)
        floor, deviation = _FLOOR if has_precisions else _FLOOR_WITHOUT_PRECISIONS
        # Of each term: column, constants by value code, and positions of the unknowns that count for each value.
        terms: list[tuple[int, list[float], list[list[int]]]] = [(-1, [0.0], [[unknown(floor + level, deviation)]])]
        effects: list[tuple[int, list[float], list[list[int]]]] = []
        for column, parameter in enumerate(parameters):
            values = [str(value) for value in parameter.values]
            if isinstance(parameter, PrecisionParameter):
                condition = unknown(*_CONDITION)
                constants = [math.log10(precision(value).unit_roundoff) for value in values]
                terms.append((column, constants, [[common, condition, unknown(*_TYPE_DEVIATION)] for _ in values]))
            elif isinstance(parameter, PolicyParameter):
                constants = [0.0 if value in _POLICIES else -math.inf for value in values]
                used = [[common, unknown(*_POLICIES[value])] if value in _POLICIES else [] for value in values]
                terms.append((column, constants, used))
            else:
                effects.append((column, [0.0] * len(values), [[unknown(*_OTHER)] for _ in values]))
        self._terms = [_Term(*term, len(priors)) for term in terms]
        self._effects = [_Term(*effect, len(priors)) for effect in effects]
        self._means, self._deviations = np.array(priors).T
        self._exponents = self._means.copy()
        self._residual = _RESIDUAL
        self._spread = np.diag(self._deviations)

    @single_threaded()
    def fit(self, codes: Codes, log10_errors: Array, deviations: Array) -> None:
        """Learn from all measured signatures.

        Value codes ``(n, n_parameters)``, finite errors ``(n,)``, and the uncertainty of each in decades, beside the
        model's own deviation.
        """
        from scipy.optimize import least_squares  # takes half a second, which making a strategy need not spend

        for _ in range(2):
            weights = 1.0 / np.concatenate([np.sqrt(self._residual**2 + deviations**2), self._deviations])

            def misfits(exponents: Array, weights: Array = weights) -> Array:
                own = self._evaluate(codes, exponents)[0] - log10_errors
                return np.concatenate([own, exponents - self._means]) * weights

            def slopes(exponents: Array, weights: Array = weights) -> Array:
                own = self._evaluate(codes, exponents)[1]
                return np.concatenate([own, np.eye(len(exponents))]) * weights[:, None]

            found = least_squares(misfits, self._exponents, slopes, method="lm", ftol=1e-6, max_nfev=50)
            self._exponents = found.x
            jacobian = slopes(self._exponents)
            _, self._spread = cholesky(jacobian.T @ jacobian)
            squares = self._residual**2 * float(np.square(found.fun[: len(codes)]).sum())
            self._residual = math.sqrt((_RESIDUAL_WEIGHT * _RESIDUAL**2 + squares) / (_RESIDUAL_WEIGHT + len(codes)))

    def predict(self, codes: Codes) -> tuple[Array, Array]:
        """Return mean and standard deviation of log10 error of each signature, shape ``(n,)``."""
        means, deviations = np.empty(len(codes)), np.empty(len(codes))
        for start in range(0, len(codes), _BLOCK):
            block = slice(start, start + _BLOCK)
            means[block], slopes = self._evaluate(codes[block], self._exponents)
            deviations[block] = np.sqrt(np.square(self._spread @ slopes.T).sum(axis=0) + self._residual**2)
        return means, deviations

    def log_probability_below(self, codes: Codes, log10_error: float) -> Array:
        """Return the log of the probability that each signature's error is at most that, shape ``(n,)``."""
        means, deviations = self.predict(codes)
        return np.asarray(log_ndtr((log10_error - means) / deviations), dtype=np.float64)

    def _evaluate(self, codes: Codes, exponents: Array) -> tuple[Array, Array]:
        """Return log10 error, shape ``(n,)``, and its derivatives by the unknowns, ``(n, n_unknowns)``."""
        values, slopes = zip(*(term.at(codes, exponents) for term in self._terms), strict=True)
        largest = np.max(values, axis=0)
        shares = 10.0 ** (np.array(values) - largest)
        total = shares.sum(axis=0)
        value, slope = largest + np.log10(total), np.einsum("tn,tnu->nu", shares / total, np.array(slopes))
        for effect in self._effects:
            more, also = effect.at(codes, exponents)
            value, slope = value + more, slope + also
        return value, slope


@dataclass(slots=True)
class _Record:
    codes: Codes
    #: Of each configuration, the excess of its error over the threshold in decades; infinite if it is not finite.
    excesses: list[float] = field(default_factory=list)
    #: Of those that exceed the threshold, value codes outside the signature.
    failed: list[Codes] = field(default_factory=list)

    @property
    def met(self) -> int:
        """Number of configurations that meet the threshold."""
        return len(self.excesses) - len(self.failed)

    @property
    def is_bad(self) -> bool:
        """Whether the signature is known to exceed the threshold: no value can be at fault instead."""
        return not self.met and not (np.array(self.failed) == self.failed[0]).all(axis=0).any()


class Signatures:
    """Says whether signatures, of parameters with these names, meet the threshold, and with what probability.

    Args:
        space: the configurations.
        names: of the parameters in a signature.
        objective: has the thresholds.
        is_relative: whether errors are relative to the results of the widest types. Then the widest types say nothing,
            and an error of 0 in others only that it is too small to be visible.
    """

    def __init__(
        self, space: SearchSpace, names: Sequence[str], objective: Objective, *, is_relative: bool = False
    ) -> None:
        self._objective = objective
        self._is_relative = is_relative
        self.columns = [space.names.index(name) for name in names]
        self._free = [
            column for column, p in enumerate(space.parameters) if column not in self.columns and len(p.values) > 1
        ]
        parameters = [space.parameters[column] for column in self.columns]
        # Odd multipliers give each signature a key of its own, modulo 2^64.
        multipliers = [pow(0x9E3779B97F4A7C15, i + 1, 2**64) for i in range(len(parameters))]
        self._multipliers = np.array(multipliers, dtype=np.uint64)
        # Of several errors with thresholds, the one with the lowest threshold is modelled.
        self._target = math.log10(min(objective.limits.values()))
        # A threshold above 1 is not relative, and errors beside it are not either.
        self._model, self._untaught = (ErrorModel(parameters, max(0.0, self._target)) for _ in range(2))
        self._records: dict[int, _Record] = {}
        #: By key: value codes, excess and its uncertainty of errors that were not measured here.
        self._supposed: dict[int, tuple[Codes, float, float]] = {}
        self._parameters = parameters
        fixed = baseline_values(parameters)
        self.widest = np.array([p.values.index(fixed.get(p.name, p.values)[0]) for p in parameters], dtype=np.int32)
        #: Grows whenever something was learnt.
        self.version = 0

    # -- learning ------------------------------------------------------------------------------

    def observe(self, codes: Codes, trials: Sequence[Trial]) -> None:
        """Learn from trials; ``codes`` are the value codes of all parameters, shape ``(n, d)``."""
        news = False
        for row, free, trial in zip(codes[:, self.columns], codes[:, self._free], trials, strict=True):
            if not (trial.is_valid or trial.status is Status.NON_FINITE):
                continue
            record = self._records.setdefault(self._key(row), _Record(row.copy()))
            excess = self._objective.error_excess(trial)
            news |= not record.excesses or (excess < math.inf and min(record.excesses) == math.inf)
            record.excesses.append(excess)
            if excess > 0:
                record.failed.append(free.copy())
            self.version += bool(record.failed)
        if news:
            self._fit()

    def suppose(self, codes: Codes, trials: Sequence[Trial], doubt: float) -> None:
        """Learn errors of other runs or of instrumented ones; no signature is known from them.

        Args:
            codes: value codes of all parameters, shape ``(n, d)``.
            trials: have the errors; of several of a signature the least doubtful counts, then the least.
            doubt: standard deviation of their difference from errors measured here, in decades.
        """
        for row, trial in zip(codes[:, self.columns], trials, strict=True):
            if not self._objective.limits.keys() <= trial.measurement.metrics.keys():
                continue
            excess, key = self._objective.error_excess(trial), self._key(row)
            _, least, least_doubt = self._supposed.get(key, (row, math.inf, math.inf))
            if math.isfinite(excess) and (doubt, excess) < (least_doubt, least):
                self._supposed[key] = row.copy(), excess, doubt
        self._fit()

    def _fit(self) -> None:
        self.version += 1
        known = [r for r in self._records.values() if not (self._is_relative and np.array_equal(r.codes, self.widest))]
        found = [(record.codes, *self._level(record)) for record in known]
        found += [supposed for key, supposed in self._supposed.items() if key not in self._records]
        if found:
            codes, excesses, doubts = zip(*found, strict=True)
            levels = np.maximum(np.array(excesses) + self._target, _LEAST_ERROR)
            self._model.fit(np.array(codes), levels, np.array(doubts))

    def _level(self, record: _Record) -> tuple[float, float]:
        """Return the excess of a record in decades, and its uncertainty."""
        excess = min(record.excesses)
        if excess == math.inf:
            return _NON_FINITE
        if self._is_relative and excess + self._target <= _LEAST_ERROR:
            chosen = [(p, p.values[code]) for p, code in zip(self._parameters, record.codes, strict=True)]
            roundoffs = [precision(str(v)).unit_roundoff for p, v in chosen if isinstance(p, PrecisionParameter)]
            return math.log10(max(roundoffs, default=1.0)) - _UNSEEN[0] - self._target, _UNSEEN[1]
        return excess, 0.0

    # -- asking --------------------------------------------------------------------------------

    def log_probability(self, codes: Codes) -> Array:
        """Return the log of each configuration's probability to meet the threshold, shape ``(n,)``.

        0 for signatures known to. ``-inf`` for those known not to, unless nothing is known to meet the threshold: then
        it is the probability to be the first that does, and no signature is ruled out.
        """
        rows, inverse, records = self._distinct(codes)
        is_first = bool(self._records) and not any(record.met for record in self._records.values())
        log_fault = _LOG_MISLED if is_first else _LOG_FAULT
        probability, untaught = self._model.log_probability_below(rows, self._target), np.zeros(len(rows))
        if is_first:
            untaught = self._untaught.log_probability_below(rows, self._target)
            probability = np.logaddexp(probability, untaught + _LOG_MISLED)
        for position, record in records.items():
            if record.met:
                probability[position] = math.log(record.met / len(record.excesses))
            elif record.is_bad and not is_first:
                probability[position] = -math.inf
        of_each, free = probability[inverse], codes[:, self._free]
        for position, record in records.items():
            if not record.met and (is_first or not record.is_bad):
                siblings = inverse == position
                is_shared = (np.array(record.failed) == record.failed[0]).all(axis=0)
                shared = ((free[siblings] == record.failed[0]) & is_shared).sum(axis=1)
                of_each[siblings] = untaught[position] + log_fault * (1 + shared)
        return of_each - self._blame(free) if is_first else of_each

    def _blame(self, free: Codes) -> Array:
        """Return how much less probable the values of failed configurations make others, in any types, ``(n,)``.

        A value that was tried less, or was better than others in the same types, is more probable.
        """
        tried = np.concatenate([record.failed for record in self._records.values()])
        excesses = [np.minimum(record.excesses, _MOST_DECADES) for record in self._records.values()]
        worse = np.concatenate([each - each.min() for each in excesses])
        total = np.zeros(len(free))
        for values, others in zip(free.T, tried.T, strict=True):
            same = values[:, None] == others
            counts = same.sum(axis=1)
            total += np.log1p(counts) + math.log(10.0) * (same @ worse) / np.maximum(counts, 1)
        return total

    def levels(self, codes: Codes) -> tuple[Array, Array]:
        """Return mean and standard deviation of each configuration's log10 error, shape ``(n,)``.

        Measured signatures have those of their measurements; the mean is infinite where these were not finite.
        """
        rows, inverse, records = self._distinct(codes)
        means, deviations = self._model.predict(rows)
        for position, record in records.items():
            known = np.maximum(np.array(record.excesses) + self._target, _LEAST_ERROR)
            finite = known[known < math.inf]
            is_finite = len(finite) > 0
            means[position], deviations[position] = (finite.mean(), finite.std()) if is_finite else (math.inf, 0.0)
        return means[inverse], deviations[inverse]

    @property
    def is_widest_measured(self) -> bool:
        """Whether an error of the widest signature is known."""
        return self._key(self.widest) in self._records

    def _distinct(self, codes: Codes) -> tuple[Codes, NDArray[np.intp], dict[int, _Record]]:
        """Return the different signatures, the position of each configuration's among them, and measured records."""
        of_each = codes[:, self.columns].astype(np.uint64) @ self._multipliers
        keys, first, inverse = np.unique(of_each, return_index=True, return_inverse=True)
        records = {at: self._records[key] for at, key in enumerate(keys.tolist()) if key in self._records}
        return codes[first][:, self.columns], inverse, records

    def _key(self, row: Codes) -> int:
        return int(row.astype(np.uint64) @ self._multipliers)
