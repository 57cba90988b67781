"""Error metrics: how far an output is from its reference, as one number; 0 is exact, less is better.

NRMSE, NMAE and MRE are defined as in Heldens 2026, Sec. IV. With ``y`` an output element, ``r`` its
reference and ``mean`` over all elements::

    MAE       mean |y - r|                        mean absolute error
    MSE       mean |y - r|^2                      mean squared error
    RMSE      sqrt(MSE)                           root mean squared error
    NRMSE     RMSE / |mean r|                     normalised by the mean of the reference
    NMAE      sum |y - r| / sum |r|               total error over total magnitude
    MRE       mean |y - r| / |r|                  mean relative error
    RMSRE     sqrt(mean (|y - r| / |r|)^2)        root mean squared relative error
    RMSLE     sqrt(mean (ln(1+y) - ln(1+r))^2)    root mean squared logarithmic error
    MALE      mean |ln y - ln r|                  mean absolute logarithmic error
    MaxAE     max |y - r|                         maximum absolute error
    MaxRE     max |y - r| / |r|                   maximum relative error
    ULP       max |y - r| / ulp(r)                units in the last place of the type the *output* has

What every one of them does with awkward data:

- Equal elements have error 0 by any metric: a relative error 0/0 is 0, and infinities of the same sign are equal.
- A NaN in the output gives NaN, even beside an infinity. A NaN in the reference is refused (:class:`MetricError`).
- An infinity in one of the two against a finite number in the other gives infinity.
- A relative error x/0 is infinite, and so are NRMSE if the references' mean is 0 and NMAE if all of them are 0,
  unless the error itself is 0. Near 0 they are large and mean little: use RMSE, MAE or NMAE there. Infinite
  references do not count in the normaliser.
- RMSLE and MALE refuse negative (and complex) data; MALE is infinite if exactly one of the two is 0.
- Complex data: ``|y - r|`` is the modulus of the complex difference, ``mean r`` the complex mean.
- Everything is computed in double precision or better (see :class:`~mptune.accuracy.pairs.Pairs`) from outputs of
  any numeric type: integers, booleans, half, bfloat16 and 8-bit floats are converted, long double stays. Squares that
  over- or underflow are scaled; a result above the largest double is infinite.
- Shapes must be the same (nothing broadcasts) and there must be elements.

``ulp(r)`` is the distance of neighbouring values of the output's type in the binade of ``r`` (that of its smallest
normal value below that; the exponent is not bounded above; 1 for integers), so an fp16 and an fp64 output that are
both correctly rounded have the same ULP error of at most 0.5.
"""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from mptune.accuracy.pairs import DeviceArray, DevicePairs, HostPairs, Pairs, bits_type, count_unwritten, find
from mptune.accuracy.reductions import (
    ABSOLUTE,
    LOGARITHMIC,
    LOGARITHMIC_PLUS_ONE,
    RELATIVE,
    ULPS,
    NegativeDataError,
    Quantity,
    Scaled,
    maximum,
    mean,
    mean_square,
    reference_magnitude,
    reference_mean,
    root_mean_square,
)
from mptune.errors import MetricError, MptuneError, UnknownNameError
from mptune.plugins import load_point
from mptune.precision import PRECISIONS

__all__ = ["METRICS", "ErrorMetric", "rehearse", "resolve"]

_ENTRY_POINTS: Final = "mptune.metrics"


@dataclass(frozen=True, slots=True)
class ErrorMetric:
    """One error metric; call it with an output and its reference."""

    name: str  #: canonical name ("NRMSE")
    description: str  #: what it measures, in a few words
    compute: Callable[[Pairs], float]  #: gives the error of a checked pair of arrays
    undefined: str = ""  #: says when it is infinite although the output is finite; empty: never
    is_custom: bool = False  #: whether ``compute`` is a user's, which may treat NaN differently from the bundled ones
    version: str = ""  #: of a user's metric, changed whenever its results change; empty if it has none
    #: other spellings beside name and description; case, spaces, hyphens and underscores do not matter
    aliases: tuple[str, ...] = ()

    def __call__(self, output: ArrayLike, reference: ArrayLike) -> float:
        """Return the error of an output of any numeric type, of the shape of the reference.

        It is at least 0, possibly infinite; NaN when the output has a NaN. (A custom metric decides itself.)

        Raises:
            MetricError: the two cannot be compared, or the metric is not defined for such data; names the number of
                offending elements and the first one's index.
        """
        return self.measure(HostPairs.of(output, reference))

    @property
    def runs_anywhere(self) -> bool:
        """Whether it also takes arrays that are on a device; others get them on the host."""
        return isinstance(self.compute, _Ratio)

    def measure(self, pairs: Pairs) -> float:
        """Return the error of an output that is already paired with its reference, wherever the two are.

        Raises:
            MetricError: the metric is not defined for such data.
        """
        try:
            error = self.compute(pairs)
        except NegativeDataError:
            self._refuse_nan_reference(pairs)
            self._refuse_negative(pairs)
            return math.nan
        if math.isnan(error):
            self._refuse_nan_reference(pairs)
        return error

    def __str__(self) -> str:
        return self.name

    def _refuse_nan_reference(self, pairs: Pairs) -> None:
        xp = pairs.namespace
        unknown = find(pairs, lambda _, reference: xp.isnan(reference))
        if unknown.count:
            raise MetricError(f"the reference has NaN in {unknown}; no {self.name} against it exists")

    def _refuse_negative(self, pairs: Pairs) -> None:
        """Raise for negative data, but let a NaN in the output count for more than a negative element there."""
        xp = pairs.namespace
        negative = find(pairs, lambda _, reference: reference < 0)
        if negative.count:
            raise MetricError(f"{self.name} is not defined for negative data: the reference has {negative}")
        if find(pairs, lambda output, _: xp.isnan(output)).count == 0:
            negative = find(pairs, lambda output, _: output < 0)
            raise MetricError(f"{self.name} is not defined for negative data: the output has {negative}")


@dataclass(frozen=True, slots=True)
class _Ratio:
    """A reduction of the elements' errors, divided by a property of the reference if it is normalised."""

    reduction: Callable[[Pairs, Quantity], Scaled]
    quantity: Quantity
    normaliser: Callable[[Pairs], Scaled] | None = None

    def __call__(self, pairs: Pairs) -> float:
        if pairs.is_complex and not self.quantity.is_difference:
            raise MetricError("a logarithmic error metric is not defined for complex data")
        # Overflow and invalid operations show in the results and are handled there.
        with np.errstate(all="ignore"):
            error = self.reduction(pairs, self.quantity)
            if self.normaliser is None or error.significand == 0 or not math.isfinite(error.significand):
                return float(error)
            return float(error / self.normaliser(pairs))


_ZERO_REFERENCE: Final = "the reference has a 0 and the output another number there"

#: The bundled error metrics. To add one, add a row: a name, what it measures, and a function of :class:`Pairs`, such as
#: the ratio of a reduction of an element's error and a property of the reference.
_TABLE: Final = (
    ErrorMetric("MAE", "mean absolute error", _Ratio(mean, ABSOLUTE)),
    ErrorMetric("MRE", "mean relative error", _Ratio(mean, RELATIVE), undefined=_ZERO_REFERENCE),
    ErrorMetric("MSE", "mean squared error", _Ratio(mean_square, ABSOLUTE)),
    ErrorMetric("RMSE", "root mean squared error", _Ratio(root_mean_square, ABSOLUTE)),
    ErrorMetric(
        "NRMSE",
        "root mean squared error over the reference's mean",
        _Ratio(root_mean_square, ABSOLUTE, reference_mean),
        undefined="the mean of the reference is 0",
        aliases=("normalised root mean squared error", "normalized root mean squared error"),
    ),
    ErrorMetric(
        "NMAE",
        "total absolute error over the reference's total magnitude",
        _Ratio(mean, ABSOLUTE, reference_magnitude),
        undefined="the reference is 0 everywhere",
        aliases=("normalised mean absolute error", "normalized mean absolute error"),
    ),
    ErrorMetric(
        "RMSRE", "root mean squared relative error", _Ratio(root_mean_square, RELATIVE), undefined=_ZERO_REFERENCE
    ),
    ErrorMetric(
        "RMSLE",
        "root mean squared error of ln(1 + x)",
        _Ratio(root_mean_square, LOGARITHMIC_PLUS_ONE),
        aliases=("root mean squared logarithmic error",),
    ),
    ErrorMetric(
        "MALE",
        "mean absolute error of ln(x)",
        _Ratio(mean, LOGARITHMIC),
        undefined="a 0 is compared with another number",
        aliases=("mean absolute logarithmic error",),
    ),
    ErrorMetric(
        "MaxAE",
        "maximum absolute error",
        _Ratio(maximum, ABSOLUTE),
        aliases=("max", "max abs", "max absolute", "max absolute error", "linf"),
    ),
    ErrorMetric(
        "MaxRE",
        "maximum relative error",
        _Ratio(maximum, RELATIVE),
        undefined=_ZERO_REFERENCE,
        aliases=("max rel", "max relative", "max relative error"),
    ),
    ErrorMetric(
        "ULP",
        "maximum error in units in the last place of the output's type",
        _Ratio(maximum, ULPS),
        undefined="the error is more units than a double can count",
        aliases=("ulps", "max ulp"),
    ),
)

#: The bundled error metrics by canonical name.
METRICS: Final[Mapping[str, ErrorMetric]] = MappingProxyType({metric.name: metric for metric in _TABLE})


def _plain(name: str) -> str:
    return name.lower().translate({ord(separator): None for separator in " -_"})


_BY_SPELLING: Final[Mapping[str, ErrorMetric]] = MappingProxyType(
    {_plain(spelling): metric for metric in _TABLE for spelling in (metric.name, metric.description, *metric.aliases)}
)


def resolve(metric: str | Callable[..., float]) -> ErrorMetric:
    """Return the error metric of that name, or one that wraps a callable.

    Names are matched without regard to case, spaces, hyphens and underscores. Third parties add metrics by an
    entry point of the group ``mptune.metrics`` that gives an :class:`ErrorMetric` or a callable.

    Args:
        metric: a name, or ``metric(output, reference) -> float``: it is called with arrays of the outputs' shape,
            read-only and converted to double precision (long double, complex) as for the bundled metrics, and returns
            an error of at least 0. Give it an attribute ``version`` (``metric.version = "1"``), changed whenever its
            results change, so that ``--resume`` can use trials measured with it; without one it measures them again.

    Raises:
        UnknownNameError: no metric has that name; the nearest is suggested.
    """
    if isinstance(metric, ErrorMetric):
        return metric
    if not isinstance(metric, str):
        return _custom(metric)
    bundled = _BY_SPELLING.get(_plain(metric))
    if bundled is not None:
        return bundled
    points = importlib.metadata.entry_points(group=_ENTRY_POINTS)
    for point in points:
        if _plain(point.name) == _plain(metric):
            found: Any = load_point(point, "error metric")
            return found if isinstance(found, ErrorMetric) else _custom(found, point.name)
    raise UnknownNameError("error metric", metric, [*METRICS, *(point.name for point in points)])


@dataclass(frozen=True, slots=True)
class _Custom:
    """A user's callable, given converted arrays and held to what an error is."""

    name: str
    function: Callable[..., float]

    def __call__(self, pairs: Pairs) -> float:
        if not isinstance(pairs, HostPairs):
            raise MetricError(f"error metric {self.name!r} is a user's own and needs its arrays on the host")
        output, reference = (a.astype(pairs.working_type, copy=False).view() for a in (pairs.output, pairs.reference))
        # They may be the very arrays of the next trial.
        output.flags.writeable = reference.flags.writeable = False
        try:
            value: Any = self.function(output, reference)
        except MptuneError:
            raise
        except Exception as reason:
            raise MetricError(f"error metric {self.name!r} failed: {type(reason).__name__}: {reason}") from reason
        try:
            error = float(value)
        except (TypeError, ValueError) as reason:
            raise MetricError(f"error metric {self.name!r} gave {value!r}; it must give one real number") from reason
        if error < 0:
            raise MetricError(f"error metric {self.name!r} gave {error:g}; an error is at least 0")
        return error


def _custom(function: Callable[..., float], name: str = "") -> ErrorMetric:
    if not callable(function):
        raise MetricError(f"an error metric is a name or a callable (output, reference) -> float, not {function!r}")
    name = name or getattr(function, "__name__", type(function).__name__)
    version = getattr(function, "version", "")
    if (
        isinstance(version, bool)
        or not isinstance(version, int | str)
        or (version == "" and hasattr(function, "version"))
    ):
        raise MetricError(f"error metric {name!r}: its version is {version!r}; expected a text or a whole number")
    return ErrorMetric(name, "user-defined", _Custom(name, function), is_custom=True, version=str(version))


def rehearse(namespace: Any, metric: ErrorMetric) -> None:
    """Compare small outputs of every precision, ahead of time: a namespace may compile functions at their first use.

    Raises:
        MetricError: the errors are not those NumPy finds.
    """
    expected = np.array([1.0, 2.0, 4.0, 5.0])
    reference = DeviceArray(namespace, namespace.asarray(expected.view(np.uint64)), expected.dtype, expected.shape)
    for stored in (entry.dtype for entry in PRECISIONS.values()):
        output = np.array([1.0, 2.0, 4.0, 6.0]).astype(stored)
        bits = namespace.asarray(output.view(bits_type(stored)))
        pairs = DevicePairs.of(DeviceArray(namespace, bits, stored, output.shape), reference)
        count_unwritten(pairs)
        found, wanted = metric.measure(pairs), metric(output, expected)
        if not math.isclose(found, wanted, rel_tol=1e-12):
            raise MetricError(
                f"the {metric.name} of {stored} data is {found!r} on the device and {wanted!r} on the host"
            )
