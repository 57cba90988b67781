"""The bundled error metrics as formulas of NumPy: emitted programs have their text and no mptune.

They are those of :mod:`mptune.accuracy.metrics` of finite reals, without its care for overflow and for what is not
finite: a NaN in the output gives NaN, or an infinity.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np

__all__ = ["compared", "in_tolerances", "over_regions", "quotient", "source_of", "text_of"]


def quotient(numerator: Any, denominator: Any) -> Any:
    """Return a quotient in which 0/0 is 0 and anything else over 0 is infinite."""
    with np.errstate(all="ignore"):
        return np.where(np.equal(numerator, 0), 0.0, np.divide(numerator, denominator))


def ulp(output: Any, reference: Any, digits: int, least: int) -> float:
    """Return the maximum error in units in the last place of a type of so many binary digits after the point.

    Its smallest normal number is 2**least. Integers are a type without digits whose units are all 1.
    """
    exponent = np.frexp(np.maximum(np.abs(reference), np.ldexp(1.0, least)))[1] - 1 if digits else 0
    return float(np.max(np.ldexp(np.abs(output - reference), digits - exponent)))


def in_tolerances(output: Any, reference: Any, absolute: Any, relative: Any) -> float:
    """Return the maximum error in units of an absolute tolerance and one relative to the reference."""
    return float(np.max(quotient(np.abs(output - reference), absolute + relative * np.abs(reference))))


def compared(metric: Any, output: Any, reference: Any) -> float:
    """Return what a metric gives for the elements whose reference is not NaN, one-dimensional if there are others."""
    there = ~np.isnan(reference)
    return float(metric(output, reference) if there.all() else metric(output[there], reference[there]))


def over_regions(metric: Any, tile: Any, axes: Any, share: Any, output: Any, reference: Any) -> float:
    """Return what a metric gives for each tile of an output, in its last axes: that of such a share of them."""
    errors = []
    for start in np.ndindex(*(-(-n // length) for n, length in zip(output.shape, tile))):  # noqa: B905 - of Python 3.9
        box = tuple(slice(i * length, (i + 1) * length) for i, length in zip(start, tile))  # noqa: B905
        one, other = output[box], reference[box]
        shape = (-1,) if axes == 1 else one.shape[one.ndim - axes :]
        if not np.isnan(other).all():
            errors.append(compared(metric, one.reshape(shape), other.reshape(shape)))
    return float(np.sort(errors)[int(np.ceil(round(share * len(errors), 9))) - 1])


def source_of(function: Callable[..., Any]) -> str:
    """Return the text of one of these functions, without what is for type checkers and linters."""
    return re.sub(
        r": (?:Any|int)(?=[,)])| -> \w+(?=:$)|  # noqa.*$", "", inspect.getsource(function), flags=re.MULTILINE
    )


def text_of(metric: str) -> str:
    """Return the text of a bundled metric as a function of output and reference, called as it is in lower case."""
    if metric == "ULP":
        return source_of(ulp)
    return f"def {metric.lower()}(output, reference):\n    return float({FORMULAS[metric]})\n"


#: The bundled metrics but for ULP.
FORMULAS: Final = {
    "MAE": "np.mean(np.abs(output - reference))",
    "MRE": "np.mean(quotient(np.abs(output - reference), np.abs(reference)))",
    "MSE": "np.mean((output - reference) ** 2)",
    "RMSE": "np.sqrt(np.mean((output - reference) ** 2))",
    "NRMSE": "quotient(np.sqrt(np.mean((output - reference) ** 2)), np.abs(np.mean(reference)))",
    "NMAE": "quotient(np.sum(np.abs(output - reference)), np.sum(np.abs(reference)))",
    "RMSRE": "np.sqrt(np.mean(quotient(output - reference, reference) ** 2))",
    "RMSLE": "np.sqrt(np.mean(np.log1p((output - reference) / (1 + reference)) ** 2))",
    "MALE": "np.mean(np.abs(np.log1p(quotient(output - reference, reference))))",
    "MaxAE": "np.max(np.abs(output - reference))",
    "MaxRE": "np.max(quotient(np.abs(output - reference), np.abs(reference)))",
}
