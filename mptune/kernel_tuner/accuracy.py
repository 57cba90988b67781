"""Arguments whose type is a parameter, and observers of the error, as Kernel Tuner names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import UnknownNameError
from mptune.space.expressions import Expression

Compared = Callable[[NDArray[Any], NDArray[Any]], Any]


def _relative(reference: NDArray[Any], least: float) -> NDArray[Any]:
    return np.asarray(np.maximum(np.abs(reference), least))


#: Errors of an output by name; ``least`` is the smallest magnitude that is divided by.
_ERRORS: Final[Mapping[str, Callable[[NDArray[Any], NDArray[Any], float], Any]]] = {
    "mse": lambda r, o, _: np.mean((r - o) ** 2),
    "rmse": lambda r, o, _: np.sqrt(np.mean((r - o) ** 2)),
    "nrmse": lambda r, o, _: np.sqrt(np.mean((r - o) ** 2) / np.mean(r**2)),
    "rmsre": lambda r, o, least: np.sqrt(np.mean(((r - o) / _relative(r, least)) ** 2)),
    "rmsle": lambda r, o, least: np.sqrt(np.mean((np.log10(r + least) - np.log10(o + least)) ** 2)),
    "mae": lambda r, o, _: np.mean(np.abs(r - o)),
    "mre": lambda r, o, least: np.mean(np.abs(r - o) / _relative(r, least)),
    "male": lambda r, o, least: np.mean(np.abs(np.log10(r + least) - np.log10(o + least))),
    "max": lambda r, o, _: np.max(np.abs(r - o)),
    "max rel": lambda r, o, least: np.max(np.abs(r - o) / _relative(r, least)),
}
#: Longer names, without "error" and with one space between words.
_ALIASES: Final = {
    "mean squared": "mse",
    "mean square": "mse",
    "root mean squared": "rmse",
    "root mean square": "rmse",
    "normalized root mean squared": "nrmse",
    "normalized root mean square": "nrmse",
    "root mean squared relative": "rmsre",
    "root mean squared logarithmic": "rmsle",
    "absolute": "mae",
    "mean absolute": "mae",
    "relative": "mre",
    "mean relative": "mre",
    "mean absolute logarithmic": "male",
    "maximum": "max",
    "maximum absolute": "max",
    "max absolute": "max",
    "maximum relative": "max rel",
    "max relative": "max rel",
}


def error_metric_from_name(name: str, EPS: float = 1e-8) -> Compared:
    """Return the error of a name, a function of the reference and the output.

    Raises:
        UnknownNameError: there is none of that name.
    """
    words = name.lower().replace("_", " ").replace("-", " ").split()
    key = " ".join(word for word in words if word != "error")
    key = _ALIASES.get(key, key)
    if key not in _ERRORS:
        raise UnknownNameError("error metric", name, [*_ERRORS, *_ALIASES])
    error = _ERRORS[key]
    return lambda reference, output: error(np.asarray(reference, np.float64), np.asarray(output, np.float64), EPS)


class AccuracyObserver:
    """Measures the error of each output against ``answer``; the largest counts.

    Args:
        metric: the name of an error, or a function of the reference and the output; RMSE by default.
        key: the name of the error in results.
        atol: smallest magnitude that relative errors divide by.
    """

    def __init__(self, metric: str | Compared | None = None, key: str = "error", *, atol: float = 1e-8) -> None:
        self.key = key
        self.metric = (
            error_metric_from_name(metric or "rmse", atol) if metric is None or isinstance(metric, str) else metric
        )


class Tunable:
    """An argument that is one of several arrays, by the value of a parameter.

    Args:
        param_key: the name of the parameter, an expression of parameters, or a function of the configuration.
        arrays: the arrays by value, or in the order of the values 0, 1, and so on.
    """

    def __init__(
        self, param_key: str | Callable[[Mapping[str, Any]], Any], arrays: Mapping[Any, Any] | Sequence[Any]
    ) -> None:
        self.param_key = param_key
        self.arrays = dict(arrays) if isinstance(arrays, Mapping) else dict(enumerate(arrays))

    def option(self, values: Mapping[str, Any]) -> Any:
        """Return the key of the array of a configuration.

        Raises:
            UnknownNameError: there is no array for the value.
        """
        key = self.param_key(values) if callable(self.param_key) else Expression(self.param_key).evaluate(values)
        if key not in self.arrays:
            raise UnknownNameError("value of a Tunable:", str(key), list(map(str, self.arrays)))
        return key

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """Return the array of a configuration."""
        return self.arrays[self.option(values)]


class TunablePrecision:
    """An argument whose floating-point type is a parameter.

    Args:
        param_key: the name of the parameter.
        array: the values.
        dtypes: the types by the values of the parameter: names, or names with NumPy types.
    """

    def __init__(self, param_key: str, array: Any, dtypes: Mapping[str, Any] | Sequence[str] | None = None) -> None:
        self.param_key = param_key
        self.array = np.asarray(array)
        self.dtypes = dtypes
