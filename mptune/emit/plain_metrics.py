"""The bundled error metrics as formulas of NumPy.

They are those of mptune of finite reals, without its care for overflow and for what is not finite: a NaN in the output
gives NaN, or an infinity. This file is emitted beside programs: it needs Python 3.9 and NumPy alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def quotient(numerator: Any, denominator: Any) -> Any:
    """Return a quotient in which 0/0 is 0 and anything else over 0 is infinite."""
    with np.errstate(all="ignore"):
        return np.where(np.equal(numerator, 0), 0.0, np.divide(numerator, denominator))


def ulp(output: Any, reference: Any, digits: int, least: int) -> Any:
    """Return the maximum error in units in the last place of a type of so many binary digits after the point.

    Its smallest normal number is 2**least. Integers are a type without digits whose units are all 1.
    """
    exponent = np.frexp(np.maximum(np.abs(reference), np.ldexp(1.0, least)))[1] - 1 if digits else 0
    return np.max(np.ldexp(np.abs(output - reference), digits - exponent))


def in_tolerances(output: Any, reference: Any, absolute: float, relative: float) -> Any:
    """Return the maximum error in units of an absolute tolerance and one relative to the reference."""
    return np.max(quotient(np.abs(output - reference), absolute + relative * np.abs(reference)))


def compared(metric: Any, output: Any, reference: Any) -> Any:
    """Return what a metric gives for the elements whose reference is not NaN, one-dimensional if there are others."""
    there = ~np.isnan(reference)
    return metric(output, reference) if there.all() else metric(output[there], reference[there])


def over_regions(metric: Any, tile: Any, axes: int, share: float, output: Any, reference: Any) -> Any:
    """Return what a metric gives for each tile of an output, in its last axes: that of such a share of them."""
    errors = []
    for start in np.ndindex(*-(-np.array(output.shape) // tile)):
        box = tuple(slice(i * length, (i + 1) * length) for i, length in np.column_stack([start, tile]))
        one, other = output[box], reference[box]
        shape = (-1,) if axes == 1 else one.shape[one.ndim - axes :]
        if not np.isnan(other).all():
            errors.append(compared(metric, one.reshape(shape), other.reshape(shape)))
    return np.sort(errors)[int(np.ceil(round(share * len(errors), 9))) - 1]


#: The bundled metrics but for ULP.
METRICS: Any = {
    "MAE": lambda output, reference: np.mean(np.abs(output - reference)),
    "MRE": lambda output, reference: np.mean(quotient(np.abs(output - reference), np.abs(reference))),
    "MSE": lambda output, reference: np.mean((output - reference) ** 2),
    "RMSE": lambda output, reference: np.sqrt(np.mean((output - reference) ** 2)),
    "NRMSE": lambda output, reference: quotient(METRICS["RMSE"](output, reference), np.abs(np.mean(reference))),
    "NMAE": lambda output, reference: quotient(np.sum(np.abs(output - reference)), np.sum(np.abs(reference))),
    "RMSRE": lambda output, reference: np.sqrt(np.mean(quotient(output - reference, reference) ** 2)),
    "RMSLE": lambda output, reference: np.sqrt(np.mean(np.log1p((output - reference) / (1 + reference)) ** 2)),
    "MALE": lambda output, reference: np.mean(np.abs(np.log1p(quotient(output - reference, reference)))),
    "MaxAE": lambda output, reference: np.max(np.abs(output - reference)),
    "MaxRE": lambda output, reference: np.max(quotient(np.abs(output - reference), np.abs(reference))),
}
