"""Error metrics: the distance of an output from its reference as one number; 0 is exact.

NRMSE, NMAE and MRE are defined as in Heldens 2026, Sec. IV. ``y`` is an output element, ``r`` its reference, and
``mean`` is over all elements::

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
    ULP       max |y - r| / ulp(r)                units in the last place of the *output's* type
    a+b*abs   max |y - r| / (a + b |r|)           in units of a tolerance, such as 1e-6+1e-4*abs: at most 1 is within

Special values, for all metrics:

- Equal elements have error 0: a relative error 0/0 is 0, and infinities of the same sign are equal.
- A NaN in the reference masks its element: error and ``mean`` are over the other elements. A reference that is NaN
  throughout raises a :class:`MetricError`.
- A NaN in the output where the reference has none gives NaN, even beside an infinity.
- An infinity in either array against a finite number in the other gives infinity.
- A relative error x/0 is infinite. NRMSE is infinite if the references' mean is 0 within rounding, and NMAE if all
  references are 0, unless the error itself is 0. Use RMSE, MAE or NMAE for references near 0. Infinite references do
  not count in the normaliser.
- RMSLE and MALE refuse negative and complex data; MALE is infinite if exactly one of ``y`` and ``r`` is 0.
- Complex data: ``|y - r|`` is the modulus of the complex difference, ``mean r`` the complex mean.
- Outputs of any numeric type are converted to double precision or better (see :class:`~mptune.accuracy.pairs.Pairs`).
  Squares are scaled against over- and underflow; results, differences and sums above the largest double are infinite.
- Shapes must be equal (nothing broadcasts) and not empty.

``ulp(r)`` is the distance of neighbouring values of the output's type in the binade of ``r``; it is 1 for integers.
Below the smallest normal value the binade of this value is used, and the exponent has no upper bound. So correctly
rounded outputs of fp16 and fp64 have the same ULP error of at most 0.5.

Every metric can be measured over rows, columns or blocks of an output (:mod:`mptune.kernel.regions`): ``NRMSE over rows
max`` is the NRMSE of the worst row, normalised by that row's own mean. A NaN in one region gives NaN for every
reduction. Regions that are masked throughout are left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import inspect
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mptune.accuracy.pairs import Elements, Pairs, bits_type, count_unwritten, find
from mptune.accuracy.reductions import (
    ABSOLUTE,
    LOGARITHMIC,
    LOGARITHMIC_PLUS_ONE,
    RELATIVE,
    ULPS,
    Count,
    NegativeDataError,
    Quantity,
    Reduction,
    maximum,
    mean,
    mean_square,
    on_host,
    reference_magnitude,
    reference_mean,
    root_mean_square,
)
from mptune.errors import MetricError, MptuneError, UnknownNameError, raised_at
from mptune.kernel.regions import RegionalMetric, key_of, split_text
from mptune.plugins import load_point
from mptune.precision import PRECISIONS, holds_real_numbers

_NUMBER: Final = r"(\d+\.?\d*(?:e[+-]?\d+)?)"
_TOLERANCE: Final = re.compile(rf"(?:tolerance\s+)?{_NUMBER}\s*\+\s*{_NUMBER}\s*\*\s*abs", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ErrorMetric:
    """One error metric; call it with an output and its reference."""

    name: str  #: canonical name ("NRMSE", "NRMSE over rows max")
    description: str  #: its long name
    compute: Callable[..., float]  #: returns the error of checked pairs; takes the inputs, too, if it ``sees_inputs``
    undefined: str = ""  #: the reason of an infinite error of a finite output; empty if there is none
    version: str = ""  #: version of a user's metric, changed whenever its results change; may be empty
    sees_inputs: bool = False  #: whether ``compute`` takes the kernel's inputs as well

    def __call__(self, output: ArrayLike, reference: ArrayLike, inputs: Mapping[str, Any] | None = None) -> float:
        """Return the error of an output of any numeric type, of the shape of the reference.

        The error is at least 0, possibly infinite. It is NaN if the output is NaN where the reference is not, unless a
        custom metric decides otherwise.

        Raises:
            MetricError: the arrays cannot be compared, or the metric is not defined for such data; the message has the
                number of offending elements and the first one's index.
        """
        return self.measure(Pairs.of(output, reference), inputs)

    @property
    def key(self) -> str:
        """Its name within a trial's metrics: ``NRMSE_rows_max``."""
        return key_of(self.name)

    @property
    def whole(self) -> ErrorMetric:
        """The metric of each region; the metric itself if it has no regions."""
        return self.compute.metric if isinstance(self.compute, _OfRegions) else self

    @property
    def regions(self) -> RegionalMetric | None:
        """The regions of the metric; None for the whole output."""
        return self.compute.regions if isinstance(self.compute, _OfRegions) else None

    @property
    def function(self) -> Callable[..., float] | None:
        """The user's function; None for other metrics."""
        compute = self.whole.compute
        return compute.function if isinstance(compute, _Custom) else None

    @property
    def is_bundled(self) -> bool:
        """Whether it comes with mptune: its name identifies it, and it accepts arrays of a device."""
        return isinstance(self.whole.compute, _Ratio)

    @property
    def tolerance(self) -> tuple[float, float] | None:
        """The absolute and relative tolerance; None for other metrics."""
        compute = self.whole.compute
        denominator = compute.quantity.denominator if isinstance(compute, _Ratio) else None
        return (denominator.absolute, denominator.relative) if isinstance(denominator, _Tolerance) else None

    @property
    def divides_by_mean(self) -> bool:
        """Whether it is normalised by the mean of the reference, which may be near 0."""
        compute = self.whole.compute
        return isinstance(compute, _Ratio) and compute.normaliser is reference_mean

    @property
    def may_overlook(self) -> bool:
        """Whether its error may be finite although an output element is not."""
        return not self.is_bundled or (self.regions is not None and self.regions.quantile < 1)

    def require_regions(self, output: str, shape: tuple[int, ...]) -> None:
        """Raise MetricError, which names the output, unless an output of this shape has the metric's regions."""
        try:
            if self.regions is not None:
                self.regions.tile(shape)
        except MetricError as reason:
            raise MetricError(f"{self.name} of output {output!r}: {reason}") from reason

    def measure(self, pairs: Pairs, inputs: Mapping[str, Any] | None = None) -> float:
        """Return the error of an output paired with its reference, on the host or on a device.

        A metric that sees the ``inputs`` needs the kernel's, in fp64 (integers in their type).

        Raises:
            MetricError: the metric is not defined for such data.
        """
        if self.sees_inputs and inputs is None:
            raise MetricError(f"error metric {self.name!r} needs the inputs, which are unknown here")
        if not pairs.compared:
            raise MetricError(f"the reference is NaN in all of its {pairs.size} elements: nothing can be compared")
        try:
            return self.compute(pairs, inputs) if self.sees_inputs else self.compute(pairs)
        except NegativeDataError:
            xp = pairs.namespace
            negative = find(pairs, lambda _, reference: reference < 0)
            if negative.count:
                refused = f"the reference has {negative}"
            elif find(pairs, lambda output, _: xp.isnan(output)).count:
                return math.nan
            else:
                refused = f"the output has {find(pairs, lambda output, _: output < 0)}"
            raise MetricError(f"{self.name} is not defined for negative data: {refused}") from None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class _Ratio:
    """A reduction of the elements' errors, optionally divided by a property of the reference."""

    reduction: Reduction
    quantity: Quantity
    #: takes a namespace, the chunks of references, (n_rows, n) each, and the number of compared elements of a row
    normaliser: Callable[[Any, Iterable[Any], Count], NDArray[np.float64]] | None = None

    def __call__(self, pairs: Pairs) -> float:
        chunks = ((output.reshape((1, -1)), reference.reshape((1, -1))) for output, reference in pairs)
        references = (chunk.reshape((1, -1)) for chunk in pairs.references())
        return float(self._ratio(pairs, chunks, references, pairs.compared)[0])

    def of_each(self, pairs: Pairs) -> NDArray[np.float64]:
        """Return the error of each row of paired matrices, without the rows that are masked throughout."""
        if pairs.shape[0] == 1:
            return np.array([self(pairs)] if pairs.compared else [])
        output, reference = pairs.whole()
        counts: Any = np.full(pairs.shape[0], pairs.shape[1])
        if pairs.has_masked:
            counts -= np.array(pairs.namespace.isnan(reference).sum(axis=1).tolist())
            output, reference = pairs.masked(output, reference)
        return np.asarray(self._ratio(pairs, [(output, reference)], [reference], counts)[counts > 0])

    def _ratio(
        self, pairs: Pairs, chunks: Iterable[tuple[Any, Any]], references: Iterable[Any], count: Count
    ) -> NDArray[np.float64]:
        """Return the errors of rows of ``count`` compared elements, from chunks of pairs, (n_rows, n) each."""
        if pairs.working_type.kind == "c" and not self.quantity.is_difference:
            raise MetricError("a logarithmic error metric is not defined for complex data")
        # Overflow and invalid operations are handled in the results.
        with np.errstate(all="ignore"):
            parts = []
            for output, reference in chunks:
                errors = self.quantity.evaluate(
                    pairs.namespace, output.reshape(-1), reference.reshape(-1), pairs.stored
                ).reshape(output.shape)
                parts.append([on_host(vector) for vector in self.reduction.parts(errors)])
            found = self.reduction.total(parts, count)
            if self.normaliser is None or not (np.isfinite(found) & (found != 0)).any():
                return found
            key = self.normaliser, pairs.working_type
            if key not in pairs.known:
                pairs.known[key] = self.normaliser(pairs.namespace, references, count)
            norms = pairs.known[key]
            normalised = np.where(np.isfinite(norms), found / norms, math.inf)
            return np.where((found == 0) | ~np.isfinite(found), found, normalised)


@dataclass(frozen=True, slots=True)
class _OfRegions:
    metric: ErrorMetric
    regions: RegionalMetric

    def __call__(self, pairs: Pairs) -> float:
        compute = self.metric.compute
        found: list[NDArray[np.float64]] = []
        for own, matrix in pairs.tiles(self.regions.tile(pairs.shape)):
            if isinstance(compute, _Ratio):
                found.append(compute.of_each(matrix))
                continue
            shape, known = self.regions.own_shape(own), matrix.known_of_part(math.prod(own))
            regions = (
                Pairs.of(output.reshape(shape), reference.reshape(shape), dict(known))
                for output, reference in zip(*matrix.whole(), strict=True)
            )
            found.append(np.array([compute(region) for region in regions if region.compared]))
        ordered = np.sort(np.concatenate(found))
        # Rounded first, as 0.07 * 100 is slightly above 7.
        place = max(math.ceil(round(self.regions.quantile * len(ordered), 9)), 1) - 1
        return math.nan if np.isnan(ordered).any() else float(ordered[place])


_ZERO_REFERENCE: Final = "the reference has a 0 and the output another number there"

#: The bundled error metrics: name, description, and a function of :class:`Pairs`. A new metric is a new row.
_TABLE: Final = (
    ErrorMetric("MAE", "mean absolute error", _Ratio(mean, ABSOLUTE)),
    ErrorMetric("MRE", "mean relative error", _Ratio(mean, RELATIVE), _ZERO_REFERENCE),
    ErrorMetric("MSE", "mean squared error", _Ratio(mean_square, ABSOLUTE)),
    ErrorMetric("RMSE", "root mean squared error", _Ratio(root_mean_square, ABSOLUTE)),
    ErrorMetric(
        "NRMSE",
        "root mean squared error over the reference's mean",
        _Ratio(root_mean_square, ABSOLUTE, reference_mean),
        "the mean of the reference is 0",
    ),
    ErrorMetric(
        "NMAE",
        "total absolute error over the reference's total magnitude",
        _Ratio(mean, ABSOLUTE, reference_magnitude),
        "the reference is 0 everywhere",
    ),
    ErrorMetric("RMSRE", "root mean squared relative error", _Ratio(root_mean_square, RELATIVE), _ZERO_REFERENCE),
    ErrorMetric("RMSLE", "root mean squared error of ln(1 + x)", _Ratio(root_mean_square, LOGARITHMIC_PLUS_ONE)),
    ErrorMetric(
        "MALE", "mean absolute error of ln(x)", _Ratio(mean, LOGARITHMIC), "a 0 is compared with another number"
    ),
    ErrorMetric("MaxAE", "maximum absolute error", _Ratio(maximum, ABSOLUTE)),
    ErrorMetric("MaxRE", "maximum relative error", _Ratio(maximum, RELATIVE), _ZERO_REFERENCE),
    ErrorMetric(
        "ULP",
        "maximum error in units in the last place of the output's type",
        _Ratio(maximum, ULPS),
        "the error in units exceeds the largest double",
    ),
)
#: Other spellings, beside the metrics' descriptions.
_ALIASES: Final = {
    "normalised root mean squared error": "NRMSE",
    "normalised mean absolute error": "NMAE",
    "root mean squared logarithmic error": "RMSLE",
    "mean absolute logarithmic error": "MALE",
    **dict.fromkeys(("max", "max abs", "max absolute", "max absolute error", "linf"), "MaxAE"),
    **dict.fromkeys(("max rel", "max relative", "max relative error"), "MaxRE"),
    **dict.fromkeys(("ulps", "max ulp"), "ULP"),
}

#: The bundled error metrics by canonical name.
METRICS: Final[Mapping[str, ErrorMetric]] = MappingProxyType({metric.name: metric for metric in _TABLE})


def _plain(name: str) -> str:
    return re.sub("[ _-]", "", name.lower()).replace("normalized", "normalised")


_BY_SPELLING: Final[Mapping[str, ErrorMetric]] = MappingProxyType(
    {_plain(spelling): metric for metric in _TABLE for spelling in (metric.name, metric.description)}
    | {_plain(alias): METRICS[name] for alias, name in _ALIASES.items()}
)


def resolve(metric: str | Callable[..., float] | RegionalMetric) -> ErrorMetric:
    """Return the error metric of a name, or of a callable.

    Names are matched without regard to case, spaces, hyphens and underscores. Third parties add metrics by an
    entry point of the group ``mptune.metrics``: an :class:`ErrorMetric` or a callable.

    Args:
        metric: a name, which may be followed by regions (``NRMSE over rows max``); a tolerance (``1e-6+1e-4*abs``); a
            :class:`~mptune.kernel.regions.RegionalMetric`; or ``metric(output, reference) -> float`` or
            ``metric(output, reference, inputs) -> float``.

            A function takes read-only arrays of the outputs' shape in double precision (long double, complex), and the
            fp64 (or integer) inputs of the reference by name. It returns an error of at least 0. If the reference has
            NaN, a function without inputs gets one-dimensional arrays of the other elements. ``--resume`` reuses trials
            only of a function with an attribute ``version`` (``metric.version = "1"``), which must change with its
            results.

    Raises:
        UnknownNameError: no metric has that name; the nearest is suggested.
        MetricError: a function of other arguments, unknown regions, or regions of regions.
    """
    if isinstance(metric, ErrorMetric):
        return metric
    if isinstance(metric, RegionalMetric):
        return _of_regions(metric)
    if not isinstance(metric, str):
        return _custom(metric)
    bundled = _BY_SPELLING.get(_plain(metric))
    if bundled is not None:
        return bundled
    if (mixed := tolerance_metric(metric)) is not None:
        return mixed
    points = importlib.metadata.entry_points(group="mptune.metrics")
    for point in points:
        if _plain(point.name) == _plain(metric):
            found: Any = load_point(point, "error metric")
            return found if isinstance(found, ErrorMetric) else _custom(found, point.name)
    if (regional := split_text(metric)) is not None:
        return _of_regions(regional)
    raise UnknownNameError("error metric", metric, [*METRICS, *(point.name for point in points)])


@dataclass(frozen=True, slots=True)
class _Tolerance:
    """The tolerance of each element: an absolute part, and a part relative to the reference."""

    absolute: float
    relative: float

    def __call__(self, xp: Any, reference: Any, _: np.dtype[Any]) -> Any:
        return self.absolute + self.relative * xp.abs(reference)


def tolerance_metric(text: str) -> ErrorMetric | None:
    """Return the metric of a tolerance such as ``1e-6+1e-4*abs``; None for any other text."""
    found = _TOLERANCE.fullmatch(text.strip())
    if found is None:
        return None
    absolute, relative = map(float, found.groups())
    if not 0 < absolute + relative < math.inf:
        raise MetricError(f"tolerance {text!r}: expected finite numbers that are not both 0, such as 1e-6+1e-4*abs")
    return ErrorMetric(
        f"tolerance {absolute!r}+{relative!r}*abs",
        f"largest error in units of {absolute:g} + {relative:g} |reference|",
        _Ratio(maximum, Quantity(ABSOLUTE.numerator, _Tolerance(absolute, relative))),
        undefined="an element has no tolerance" if absolute == 0 else "",
    )


def _of_regions(regional: RegionalMetric) -> ErrorMetric:
    metric = resolve(regional.metric)
    name = f"{metric.name} {regional.words}"
    if metric.whole is not metric or metric.sees_inputs:
        why = "sees the inputs" if metric.sees_inputs else "has regions of its own"
        raise MetricError(f"error metric {name!r}: {metric.name!r} {why}, so it cannot be measured {regional.words}")
    return ErrorMetric(
        name,
        f"{metric.description}, of each {str(regional.over).partition(' ')[0].removesuffix('s')}",
        _OfRegions(metric, dataclasses.replace(regional, metric=metric.name)),
        undefined=f"in at least one of them, {metric.undefined}" if metric.undefined else "",
        version=metric.version,
    )


@dataclass(frozen=True, slots=True)
class _Custom:
    """A user's callable; its result is checked to be a number of at least 0."""

    name: str
    function: Callable[..., float]

    def __call__(self, pairs: Pairs, inputs: Mapping[str, Any] | None = None) -> float:
        if pairs.namespace is not np:
            raise MetricError(f"error metric {self.name!r} is a user's own and needs its arrays on the host")
        output, reference = (each.view() for each in pairs.whole())
        if inputs is None and pairs.has_masked:
            is_compared = ~np.isnan(reference)
            output, reference = output[is_compared], reference[is_compared]
        # The next trial may use the same arrays.
        output.flags.writeable = reference.flags.writeable = False
        try:
            value: Any = self.function(output, reference, *(() if inputs is None else (inputs,)))
        except MptuneError:
            raise
        except (Exception, SystemExit) as reason:
            file = getattr(getattr(self.function, "__code__", None), "co_filename", "")
            where = raised_at(reason, file) if file else ""
            what = f"{type(reason).__name__}: {reason}".removesuffix(": ")
            raise MetricError(f"error metric {self.name!r} failed: {what}{where}") from reason
        try:
            found = np.asarray(value)
            is_number = found.shape == () and found.dtype.kind != "b" and holds_real_numbers(found.dtype)
        except Exception:  # any exception of a conversion to an array
            is_number = False
        if not is_number:
            raise MetricError(f"error metric {self.name!r} gave {reprlib.repr(value)}; it must give one real number")
        if float(found) < 0:
            raise MetricError(f"error metric {self.name!r} gave {float(found):g}; an error is at least 0")
        return float(found)


def _custom(function: Callable[..., float], name: str = "") -> ErrorMetric:
    if not callable(function):
        raise MetricError(f"an error metric is a name or a callable (output, reference) -> float, not {function!r}")
    name = name or getattr(function, "__name__", type(function).__name__)
    version = str(getattr(function, "version", ""))
    accepted, third = [2], ""
    with contextlib.suppress(TypeError, ValueError):  # a compiled function without a signature
        signature = inspect.signature(function)
        accepted, third = [], "".join([*signature.parameters][2:3])
        for count in (2, 3):
            with contextlib.suppress(TypeError):
                signature.bind(*range(count))
                accepted.append(count)
    if not accepted:
        raise MetricError(
            f"error metric {name!r} does not accept the arguments (output, reference) or (output, reference, inputs)"
        )
    sees_inputs = accepted == [3] or (3 in accepted and third == "inputs")
    return ErrorMetric(name, "user-defined", _Custom(name, function), "", version, sees_inputs)


def rehearse(namespace: Any, metric: ErrorMetric) -> None:
    """Raise MetricError unless a namespace and NumPy agree on the errors of small outputs of every precision.

    This also compiles the functions that a namespace compiles at first use.
    """
    axes = metric.compute.regions.axes if isinstance(metric.compute, _OfRegions) else 1
    shape = (4,) if axes < 2 else (*(1,) * (axes - 2), 2, 2)
    expected = np.array([1.0, 2.0, math.nan, 5.0]).reshape(shape)
    there = namespace.asarray(expected.reshape(-1).view(np.uint64))
    reference = Elements(namespace, there, expected.dtype, shape)
    for stored in (entry.dtype for entry in PRECISIONS.values()):
        output = np.array([1.0, 2.0, math.nan, 6.0]).astype(stored).reshape(shape)
        bits = namespace.asarray(output.reshape(-1).view(bits_type(stored)))
        pairs = Pairs.of(Elements(namespace, bits, stored, output.shape), reference)
        count_unwritten(pairs)
        found, wanted = metric.measure(pairs), metric(output, expected)
        if not math.isclose(found, wanted, rel_tol=1e-12):
            raise MetricError(
                f"the {metric.name} of {stored} data is {found!r} on the device and {wanted!r} on the host"
            )
