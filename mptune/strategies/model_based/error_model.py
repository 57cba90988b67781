"""What is known of errors: measured accuracy signatures exactly, the others by a model that learns from few points.

The error of a configuration depends on its signature alone, so a signature that meets the threshold is measured once.
One that does not may be the mistake of a configuration: of a value that all those have in common which failed. It is
known to exceed the threshold once they have none in common. Before that its other configurations are improbable, the
more so the more of those values they have.

First-order rounding error analysis bounds an error by a sum: each variable contributes its type's unit
roundoff times a condition number that the data decide (Higham, Accuracy and Stability of Numerical
Algorithms, ch. 3). So the coarsest type on the critical path dominates, and halving the roundoff of a
variable that does not dominate changes nothing. The model is that sum, with one unknown exponent per
variable, and normal priors on the exponents:

    log10 error = log10(sum over terms of 10^exponent) + effects of the other signature parameters

A term is a precision parameter (exponent: common level + its own condition + log10 unit roundoff + a small
deviation of that type, as range and subnormals matter too) or a policy below accurate. It is fitted by
damped Gauss-Newton steps, and its uncertainty is the Laplace approximation's.
"""

from __future__ import annotations

import math
from collections import Counter
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
from mptune.strategies.model_based.numerics import cholesky, single_threaded

__all__ = ["ErrorModel", "Signatures"]

Array = NDArray[np.float64]
Codes = NDArray[np.int32]
Keys = NDArray[np.uint64]

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
_ITERATIONS: Final = 25
_BLOCK: Final = 4096
#: Smallest log10 error told apart from 0.
_LEAST_ERROR: Final = -19.0
#: How probable it is that a value is at fault, rather than the signature, where all configurations of a signature that
#: failed have it in common; and where configurations of some signature are known to disagree.
_FAULT: Final = 1e-4
_FAULT_WHERE_SOME_DISAGREE: Final = 0.5
#: Log of how probable it is that the model is misled by configurations that are wrong, where nothing is known to meet
#: the threshold: the widest types being among them, it expects no better of any others.
_LOG_MISLED: Final = math.log(0.05)
#: Stands for an infinite excess where configurations of a signature are compared.
_MOST_DECADES: Final = 20.0
#: An error so many decades above the threshold is that of narrower types, too, whatever else is uncertain.
_FAR: Final = 0.5
#: What an error of 0 says about log10 error where it may be one of digits that are not seen: decades below the unit
#: roundoff of the coarsest type, and how surely.
_UNSEEN: Final = 1.0
_UNSEEN_DEVIATION: Final = 2.0
#: What a result that is not finite says about log10 error: decades above the threshold, and how surely.
_NON_FINITE: Final = (2.0, 1.0)


@dataclass(frozen=True, slots=True)
class _Term:
    """One summand: by value code, a constant and the coefficients of the unknowns."""

    column: int
    constants: Array
    coefficients: Array

    @classmethod
    def of(cls, column: int, constants: list[float], used: list[list[int]], n_unknowns: int) -> _Term:
        coefficients = np.zeros((len(used), n_unknowns))
        for row, unknowns in zip(coefficients, used, strict=True):
            row[unknowns] = 1.0
        return cls(column, np.array(constants), coefficients)


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
        # Of each term column, constants by value code, and positions of the unknowns that count for each value.
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
        self._terms = [_Term.of(*term, len(priors)) for term in terms]
        self._effects = [_Term.of(*effect, len(priors)) for effect in effects]
        self._prior = np.array([mean for mean, _ in priors])
        self._precision = 1.0 / np.array([deviation for _, deviation in priors]) ** 2
        self._exponents = self._prior.copy()
        self._residual = _RESIDUAL
        self._spread = np.diag(1.0 / np.sqrt(self._precision))

    @single_threaded()
    def fit(self, codes: Codes, log10_errors: Array, deviations: Array) -> None:
        """Learn from all measured signatures.

        Value codes ``(n, n_parameters)``, finite errors ``(n,)``, and how uncertain each of these is beside the model's
        own deviation, in decades.
        """
        for _ in range(2):
            weights = 1.0 / (self._residual**2 + deviations**2)
            self._maximise(codes, log10_errors, weights)
            misfit = (log10_errors - self._evaluate(codes)[0]) ** 2 * weights * self._residual**2
            total = _RESIDUAL_WEIGHT * _RESIDUAL**2 + float(misfit.sum())
            self._residual = math.sqrt(total / (_RESIDUAL_WEIGHT + len(codes)))

    def predict(self, codes: Codes) -> tuple[Array, Array]:
        """Return mean and standard deviation of log10 error of each signature, shape ``(n,)``."""
        means, deviations = np.empty(len(codes)), np.empty(len(codes))
        for start in range(0, len(codes), _BLOCK):
            block = slice(start, start + _BLOCK)
            means[block], jacobian = self._evaluate(codes[block])
            whitened = self._spread @ jacobian.T
            variance = np.einsum("ij,ij->j", whitened, whitened)
            deviations[block] = np.sqrt(variance + self._residual**2)
        return means, deviations

    def log_probability_below(self, codes: Codes, log10_error: float) -> Array:
        """Return the log of the probability that each signature's error is at most that, shape ``(n,)``."""
        means, deviations = self.predict(codes)
        return np.asarray(log_ndtr((log10_error - means) / deviations), dtype=np.float64)

    def _evaluate(self, codes: Codes) -> tuple[Array, Array]:
        """Return log10 error, shape ``(n,)``, and its derivatives by the unknowns, ``(n, n_unknowns)``."""
        at = [codes[:, t.column] if t.column >= 0 else np.zeros(len(codes), np.int32) for t in self._terms]
        terms = list(zip(self._terms, at, strict=True))
        exponents = np.stack([(term.constants + term.coefficients @ self._exponents)[c] for term, c in terms])
        largest = exponents.max(axis=0)
        shares = 10.0 ** (exponents - largest)
        total = shares.sum(axis=0)
        value = largest + np.log10(total)
        jacobian = np.zeros((len(codes), len(self._prior)))
        for (term, c), share in zip(terms, shares / total, strict=True):
            jacobian += share[:, None] * term.coefficients[c]
        for effect in self._effects:
            c = codes[:, effect.column]
            value = value + (effect.coefficients @ self._exponents)[c]
            jacobian += effect.coefficients[c]
        return value, jacobian

    def _maximise(self, codes: Codes, targets: Array, weights: Array) -> None:
        """Move the exponents to the maximum of the posterior and factorise its curvature there."""

        def loss(misfit: Array, exponents: Array) -> float:
            return float(weights @ misfit**2 + self._precision @ (exponents - self._prior) ** 2)

        value, jacobian = self._evaluate(codes)
        current = loss(targets - value, self._exponents)
        damping = 1e-3
        for _ in range(_ITERATIONS):
            weighted = jacobian.T * weights
            curvature = self._curvature(weighted, jacobian)
            away = self._precision * (self._exponents - self._prior)
            gradient = weighted @ (targets - value) - away
            damped = curvature.copy()
            damped.flat[:: len(self._prior) + 1] *= 1.0 + damping
            before = self._exponents
            _, spread = cholesky(damped)
            self._exponents = before + spread.T @ (spread @ gradient)
            new_value, new_jacobian = self._evaluate(codes)
            new = loss(targets - new_value, self._exponents)
            if new <= current:
                converged = current - new < 1e-6 * (1.0 + current)
                value, jacobian, current, damping = new_value, new_jacobian, new, damping / 5.0
                if converged:
                    break
            else:
                self._exponents = before
                damping *= 10.0
                if damping > 1e6:
                    break
        _, self._spread = cholesky(self._curvature(jacobian.T * weights, jacobian))

    def _curvature(self, weighted: Array, jacobian: Array) -> Array:
        """Return the curvature of the log posterior in the Gauss-Newton approximation, ``(n_unknowns, n_unknowns)``."""
        curvature = np.asarray(weighted @ jacobian)
        curvature.flat[:: len(self._prior) + 1] += self._precision
        return curvature


@dataclass(slots=True)
class _Record:
    """One measured signature.

    Attributes:
        codes: its value codes.
        excesses: of the configurations with an error, by how many decades that exceeds the threshold.
        non_finite: how many configurations gave no finite numbers.
        shared: value codes of the parameters outside the signature that all configurations have which failed, -1 where
            they differ; shape ``(n_free,)``.
    """

    codes: Codes
    excesses: list[float] = field(default_factory=list)
    non_finite: int = 0
    shared: Codes | None = None

    @property
    def met(self) -> int:
        """How many configurations meet the threshold."""
        return sum(excess <= 0 for excess in self.excesses)

    def shared_by(self, free: Codes) -> NDArray[np.intp]:
        """Return how many of those values other configurations have, shape ``(n,)`` from ``(n, n_free)``."""
        return np.asarray((free == self.shared).sum(axis=1), dtype=np.intp)

    def fail(self, free: Codes) -> None:
        """Take note of a configuration that failed: its value codes outside the signature, shape ``(n_free,)``."""
        self.shared = free.copy() if self.shared is None else np.where(self.shared == free, free, -1)


class Signatures:
    """Says whether signatures, of parameters with these names, meet the threshold, and with what probability.

    Args:
        space: the configurations.
        names: of the parameters in a signature.
        objective: has the thresholds.
        is_relative: whether errors are against what the widest types give: then that these have none says nothing, and
            an error of 0 in others only that it is too small to be seen.
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
        self._radices = _radices([len(p.values) for p in parameters])
        self._parameters = parameters
        #: How often each error that has a threshold was the one that exceeds it most, or comes closest.
        self._binding = Counter[str]()
        self._target = math.nan
        self._use(min(objective.limits, key=objective.limits.__getitem__))
        self._records: dict[int, _Record] = {}
        #: Key, value codes outside the signature and excess of everything that failed.
        self._failures: list[tuple[int, Codes, float]] = []
        #: By key, value codes, excess and its uncertainty of what other runs measured.
        self._supposed: dict[int, tuple[Codes, float, float]] = {}
        self._bits = [_accurate_bits(p) for p in parameters]
        self._ranges = [_ranges(p) for p in parameters]
        fixed = baseline_values(parameters)
        self.widest = np.array([p.values.index(fixed.get(p.name, p.values)[0]) for p in parameters], dtype=np.int32)
        #: Grows whenever something was learnt.
        self.version = 0

    # -- learning ------------------------------------------------------------------------------

    def _use(self, binding: str) -> None:
        """Model the error of this name: of several with thresholds, all but one are often met by far."""
        target = math.log10(self._objective.limits[binding])
        if target == self._target:
            return
        self._target = target
        # A threshold above 1 is not relative, and the errors beside it are not either.
        self._model, self._untaught = (ErrorModel(self._parameters, max(0.0, self._target)) for _ in range(2))

    def observe(self, codes: Codes, trials: Sequence[Trial]) -> None:
        """Learn from trials; ``codes`` are the value codes of all parameters, shape ``(n, d)``."""
        news = False
        for row, free, trial in zip(codes[:, self.columns], codes[:, self._free], trials, strict=True):
            if not (trial.is_valid or trial.status is Status.NON_FINITE):
                continue
            key = int(self._key(row[None, :])[0])
            record = self._records.setdefault(key, _Record(row.copy()))
            excess = self._objective.error_excess(trial)
            if trial.is_valid and excess < math.inf:
                self._binding[self._objective.binding(trial)] += 1
                news |= not record.excesses
                record.excesses.append(excess)
            else:
                news |= not record.non_finite
                record.non_finite += 1
            if excess > 0:
                record.fail(free)
                self._failures.append((key, free.copy(), min(excess, _MOST_DECADES)))
            self.version += record.shared is not None
        if news:
            self.version += 1
            self._fit()

    def suppose(self, codes: Codes, trials: Sequence[Trial], doubt: float) -> None:
        """Take in errors of other runs, or of instrumented ones; they teach the model, nothing counts as known.

        Args:
            codes: value codes of all parameters, shape ``(n, d)``.
            trials: have the errors; of several of a signature the least doubtful counts, and of those of one run the
                least, as of what is measured.
            doubt: how far they may be from what would be measured, in decades.
        """
        for row, trial in zip(codes[:, self.columns], trials, strict=True):
            if not self._objective.limits.keys() <= trial.measurement.metrics.keys():
                continue
            excess = self._objective.error_excess(trial)
            key = int(self._key(row[None, :])[0])
            _, least, least_doubt = self._supposed.get(key, (row, math.inf, math.inf))
            if math.isfinite(excess) and (doubt, excess) < (least_doubt, least):
                self._supposed[key] = (row.copy(), excess, doubt)
        self.version += 1
        self._fit()

    def _fit(self) -> None:
        known = [r for r in self._records.values() if r.excesses or self._failed(r)]
        if self._is_relative:
            known = [r for r in known if not np.array_equal(r.codes, self.widest)]
        levels = [self._level(record) for record in known]
        codes = [record.codes for record in known]
        for key, (row, excess, doubt) in self._supposed.items():
            if key not in self._records:
                levels.append((max(excess + self._target, _LEAST_ERROR), doubt))
                codes.append(row)
        if codes:
            means, deviations = np.array(levels).T
            self._model.fit(np.array(codes), means, deviations)

    def _level(self, record: _Record) -> tuple[float, float]:
        """Return what a record says of log10 error, and how uncertain that is."""
        if not record.excesses:
            return max(_NON_FINITE[0] + self._target, _LEAST_ERROR), _NON_FINITE[1]
        level = min(record.excesses) + self._target
        if self._is_relative and level <= _LEAST_ERROR:
            types = zip(self._bits, self._ranges, record.codes, strict=True)
            bits = min((b[c] for b, ranges, c in types if ranges.any()), default=0.0)
            return max(-bits * math.log10(2.0) - _UNSEEN, _LEAST_ERROR), _UNSEEN_DEVIATION
        return max(level, _LEAST_ERROR), 0.0

    # -- asking --------------------------------------------------------------------------------

    def too_narrow(self, rows: Codes) -> NDArray[np.bool_]:
        """Return which signatures are nowhere wider than one that exceeds the threshold by far.

        Args:
            rows: value codes of the signature, shape ``(n, n_names)``.

        Returns:
            Shape ``(n,)``. Everything without an order is the same in both. Where the results were not finite, a
            significand says nothing, so that only the same and narrower ranges are meant.
        """
        found = np.zeros(len(rows), dtype=np.bool_)
        for record in self._records.values():
            if min(record.excesses, default=math.inf if self._failed(record) else -math.inf) > _FAR:
                found |= self._narrower(rows, record.codes, in_range=not record.excesses)
        return found

    def _narrower(self, rows: Codes, known: Codes, *, in_range: bool) -> NDArray[np.bool_]:
        """Return which signatures are nowhere wider than a known one, in their range neither if that is asked for."""
        narrower = np.ones(len(rows), dtype=np.bool_)
        for column, (bits, ranges) in enumerate(zip(self._bits, self._ranges, strict=True)):
            codes = rows[:, column]
            narrower &= (bits[codes] <= bits[known[column]]) if bits.any() else codes == known[column]
            if in_range:
                narrower &= ranges[codes] <= ranges[known[column]]
        return narrower

    def keys(self, codes: Codes) -> Keys:
        """Return an identity of each configuration's signature, shape ``(n,)``."""
        return self._key(codes[:, self.columns])

    def known_bad(self, codes: Codes) -> NDArray[np.bool_]:
        """Return which configurations have a signature known to exceed the threshold, shape ``(n,)``.

        None are as long as nothing is known to meet it.
        """
        bad = [key for key, record in self._records.items() if self._is_any_met and self._is_bad(record)]
        return np.isin(self.keys(codes), np.array(bad, dtype=np.uint64))

    def log_probability(self, codes: Codes) -> Array:
        """Return the log of each configuration's probability to meet the threshold, shape ``(n,)``.

        0 for signatures known to, ``-inf`` for those known not to while others do.
        """
        if self._records and not self._is_any_met:
            return self._log_probability_of_the_first(codes)
        rows, inverse, records = self._distinct(codes)
        probability = self._model.log_probability_below(rows, self._target)
        for position, record in records.items():
            if self._is_bad(record):
                probability[position] = -math.inf
            elif record.met:
                probability[position] = math.log(record.met / len(record.excesses))
        of_each = probability[inverse]
        free, log_fault = codes[:, self._free], math.log(self._fault)
        for position, record in records.items():
            if self._failed(record) and not self._is_bad(record):
                siblings = inverse == position
                of_each[siblings] = log_fault * (1 + record.shared_by(free[siblings]))
        return of_each

    def _log_probability_of_the_first(self, codes: Codes) -> Array:
        """Return the log of each configuration's probability to be the first that meets the threshold, ``(n,)``.

        What all that failed say may be the fault of values that they have, in whatever types: any value that was tried
        less, or was better than others in the same types, is more probable.
        """
        rows, inverse, records = self._distinct(codes)
        untaught = self._untaught.log_probability_below(rows, self._target)
        probability = np.logaddexp(self._model.log_probability_below(rows, self._target), untaught + _LOG_MISLED)
        of_each, free = probability[inverse], codes[:, self._free]
        for position, record in records.items():
            siblings = inverse == position
            of_each[siblings] = untaught[position] + _LOG_MISLED * (1 + record.shared_by(free[siblings]))
        best: dict[int, float] = {}
        for key, _, excess in self._failures:
            best[key] = min(best.get(key, math.inf), excess)
        tried = np.array([free for _, free, _ in self._failures], dtype=np.int32).reshape(
            len(self._failures), len(self._free)
        )
        worse = np.array([excess - best[key] for key, _, excess in self._failures])
        for column in range(len(self._free)):
            same = tried[:, column] == np.arange(tried[:, column].max(initial=-1) + 1)[:, None]
            counts = same.sum(axis=1)
            blame = np.log1p(counts) + math.log(10.0) * (same @ worse) / np.maximum(counts, 1)
            values = free[:, column]
            of_each -= np.where(values < len(blame), blame[np.minimum(values, len(blame) - 1)], 0.0)
        return of_each

    def levels(self, codes: Codes) -> tuple[Array, Array]:
        """Return mean and standard deviation of each configuration's log10 error, shape ``(n,)``.

        Of measured signatures they are those of what was measured; where that was not finite the mean is infinite.
        """
        rows, inverse, records = self._distinct(codes)
        means, deviations = self._model.predict(rows)
        for position, record in records.items():
            if record.excesses:
                known = np.maximum(np.array(record.excesses) + self._target, _LEAST_ERROR)
                means[position], deviations[position] = known.mean(), known.std()
            elif self._failed(record):
                means[position], deviations[position] = math.inf, 0.0
        return means[inverse], deviations[inverse]

    def is_measured(self, row: Codes) -> bool:
        """Whether it is known if the signature with these value codes meets the threshold; shape ``(n_names,)``."""
        record = self._records.get(int(self._key(row[None, :])[0]))
        return record is not None and (record.met > 0 or self._is_bad(record))

    def wideness(self, codes: Codes) -> Array:
        """Return the significand bits of all precision parameters together, policies as 16 bits a step; ``(n,)``."""
        total = np.zeros(len(codes))
        for column, bits in zip(self.columns, self._bits, strict=True):
            total += bits[codes[:, column]]
        return total

    # -- internals -----------------------------------------------------------------------------

    def _distinct(self, codes: Codes) -> tuple[Codes, NDArray[np.intp], dict[int, _Record]]:
        """Return the different signatures, which of them each configuration has, and records of those measured."""
        keys, first, inverse = np.unique(self.keys(codes), return_index=True, return_inverse=True)
        records = {at: self._records[key] for at, key in enumerate(keys.tolist()) if key in self._records}
        return codes[first][:, self.columns], inverse, records

    @property
    def _is_any_met(self) -> bool:
        return any(record.met for record in self._records.values())

    @property
    def _fault(self) -> float:
        mixed = any(record.met and record.shared is not None for record in self._records.values())
        return _FAULT_WHERE_SOME_DISAGREE if mixed else _FAULT

    def _failed(self, record: _Record) -> bool:
        """Whether all measured configurations of a signature exceed the threshold, and not by a mistake of theirs."""
        if record.excesses:
            return not record.met
        # Widening a type causes no overflow: where a narrower signature was finite, this configuration is at fault.
        return record.non_finite > 0 and not self._wider_than_a_finite_one(record)

    def _is_bad(self, record: _Record) -> bool:
        """Whether a signature is known to exceed the threshold: no value can be at fault instead."""
        return self._failed(record) and record.shared is not None and bool((record.shared < 0).all())

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

    def _key(self, rows: Codes) -> Keys:
        return rows.astype(np.uint64) @ self._radices


def _radices(counts: Sequence[int]) -> Keys:
    """Return place values that give each signature a key of its own; odd multipliers where 64 bits do not do."""
    if math.prod(counts) < 2**63:
        values = [math.prod(counts[:i]) for i in range(len(counts))]
    else:
        values = [pow(0x9E3779B97F4A7C15, i + 1, 2**64) | 1 for i in range(len(counts))]
    return np.array(values, dtype=np.uint64)


def _accurate_bits(parameter: Parameter) -> Array:
    """Return how wide each value is; zeros for a parameter without such an order."""
    if isinstance(parameter, PrecisionParameter):
        return np.array([precision(str(v)).rank for v in parameter.values])
    if isinstance(parameter, PolicyParameter):
        steps = {"accurate": 32.0, "fast": 16.0, "approx": 0.0}
        return np.array([steps[str(v)] for v in parameter.values])
    return np.zeros(len(parameter.values))


def _ranges(parameter: Parameter) -> Array:
    """Return the largest exponent of each value; zeros for a parameter that is no precision."""
    if isinstance(parameter, PrecisionParameter):
        return np.array([math.log2(precision(str(v)).largest) for v in parameter.values])
    return np.zeros(len(parameter.values))
