"""A model of the error over accuracy signatures that learns from few points.

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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from mptune.precision import precision
from mptune.space.parameters import Parameter, PolicyParameter, PrecisionParameter
from mptune.strategies.models.linear_algebra import cholesky, product

__all__ = ["ErrorModel"]

Array = NDArray[np.float64]
Codes = NDArray[np.int32]

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


@dataclass(slots=True)
class _Term:
    """One summand: by value code, a constant and the coefficients of the unknowns."""

    column: int
    constants: Array
    coefficients: Array


class ErrorModel:
    """Predicts log10 error from a signature.

    Args:
        parameters: those of the signature, in the order of the columns of every ``codes`` argument.
        level: log10 of an error that is likely before anything was measured at unit roundoff 1; 0 for
            relative metrics.
    """

    def __init__(self, parameters: Sequence[Parameter], level: float = 0.0) -> None:
        self._means: list[float] = []
        self._deviations: list[float] = []
        self._terms: list[_Term] = []
        self._effects: list[_Term] = []
        common = self._unknown(_LEVEL[0] + level, _LEVEL[1])
        precisions = [c for c, p in enumerate(parameters) if isinstance(p, PrecisionParameter)]
        floor = _FLOOR if precisions else _FLOOR_WITHOUT_PRECISIONS
        drafts: list[tuple[list[_Term], int, list[float], list[list[int]]]] = [
            (self._terms, -1, [0.0], [[self._unknown(floor[0] + level, floor[1])]])
        ]
        for column, parameter in enumerate(parameters):
            if isinstance(parameter, PrecisionParameter):
                condition = self._unknown(*_CONDITION)
                constants = [math.log10(precision(str(v)).unit_roundoff) for v in parameter.values]
                used = [[common, condition, self._unknown(*_TYPE_DEVIATION)] for _ in parameter.values]
                drafts.append((self._terms, column, constants, used))
            elif isinstance(parameter, PolicyParameter):
                inexact = [str(v) in _POLICIES for v in parameter.values]
                constants = [0.0 if i else -math.inf for i in inexact]
                used = [
                    [common, self._unknown(*_POLICIES[str(v)])] if i else []
                    for v, i in zip(parameter.values, inexact, strict=True)
                ]
                drafts.append((self._terms, column, constants, used))
            else:
                used = [[self._unknown(*_OTHER)] for _ in parameter.values]
                drafts.append((self._effects, column, [0.0] * len(used), used))
        self._prior = np.array(self._means)
        self._precision = 1.0 / np.array(self._deviations) ** 2
        for group, column, constants, used in drafts:
            coefficients = np.zeros((len(used), len(self._prior)))
            for code, unknowns in enumerate(used):
                coefficients[code, unknowns] = 1.0
            group.append(_Term(column, np.array(constants), coefficients))
        self._exponents = self._prior.copy()
        self._residual = _RESIDUAL
        self._spread = np.diag(1.0 / np.sqrt(self._precision))

    def _unknown(self, mean: float, deviation: float) -> int:
        self._means.append(mean)
        self._deviations.append(deviation)
        return len(self._means) - 1

    def fit(self, codes: Codes, log10_errors: Array, deviations: Array) -> None:
        """Learn from all measured signatures.

        Args:
            codes: value codes of each signature, shape ``(n, n_parameters)``.
            log10_errors: their errors, shape ``(n,)``, finite.
            deviations: how uncertain each of these is beside the model's own deviation, in decades.
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
            whitened = product(self._spread, jacobian.T)
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
        exponents = np.stack(
            [(t.constants + t.coefficients @ self._exponents)[c] for t, c in zip(self._terms, at, strict=True)]
        )
        largest = exponents.max(axis=0)
        shares = 10.0 ** (exponents - largest)
        total = shares.sum(axis=0)
        value = largest + np.log10(total)
        jacobian = np.zeros((len(codes), len(self._prior)))
        for term, c, share in zip(self._terms, at, shares / total, strict=True):
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
            gradient = product(weighted, (targets - value)[:, None])[:, 0] - self._precision * (
                self._exponents - self._prior
            )
            damped = curvature.copy()
            damped.flat[:: len(self._prior) + 1] *= 1.0 + damping
            before = self._exponents
            _, spread = cholesky(damped)
            whitened = np.einsum("ij,j->i", spread, gradient)
            self._exponents = before + np.einsum("ij,i->j", spread, whitened)
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
        curvature = product(weighted, jacobian)
        curvature.flat[:: len(self._prior) + 1] += self._precision
        return curvature
