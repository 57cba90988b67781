"""A metric along an axis: its label with the unit, its numbers, and a scale that shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from mptune.interop.recorded import unit_of
from mptune.results import Trial
from mptune.run import Run

__all__ = ["Floats", "MetricAxis", "log_ticks", "metric_axis", "set_scale"]

Floats = NDArray[np.float64]

_SPEEDUP: Final = "speedup"
_BYTES_PER_MB: Final = 1e6
#: Numbers that differ by more than this factor are drawn on a logarithmic axis.
_WIDE: Final = 10.0
#: Up to which factor between the ends of an axis a decade has which ticks.
_TICKS: Final = (
    (3.0, (1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)),
    (12.0, (1.0, 1.5, 2.0, 3.0, 5.0)),
    (150.0, (1.0, 2.0, 5.0)),
)
#: Numbers between these are written out at the ticks, others as powers of ten.
_SMALL: Final = 1e-4
_LARGE: Final = 1e6
_MOST_TICKS: Final = 7
#: Decades that lie between 0 and the smallest number on a logarithmic axis.
_ZERO_DECADES: Final = 0.6


@dataclass(frozen=True, slots=True)
class MetricAxis:
    """A metric as it is drawn.

    Attributes:
        metric: its name.
        label: what the axis says: the name in words and the unit.
        factor: from the metric's unit to that of the label.
    """

    metric: str
    label: str
    factor: float = 1.0

    @property
    def is_error(self) -> bool:
        """Whether it is the error of all outputs, which thresholds and precisions have places on."""
        return self.metric == "error"

    @property
    def is_any_error(self) -> bool:
        """Whether it is an error: of all outputs or of one."""
        return self.metric.split(".")[0] == "error"

    def values(self, run: Run, trials: Sequence[Trial]) -> Floats:
        """Return the numbers of trials in the unit of the label, NaN where a trial has none; shape ``(n_trials,)``."""
        numbers = np.array([run.metric_of(trial, self.metric) for trial in trials], dtype=np.float64) * self.factor
        return np.where(np.isfinite(numbers), numbers, np.nan)


def metric_axis(run: Run, metric: str) -> MetricAxis:
    """Return how a metric of a run, ``speedup`` or the objective is drawn."""
    if metric == _SPEEDUP:
        return MetricAxis(metric, "speedup over the fp64 baseline")
    name, _, output = metric.partition(".")
    if name == "error":
        kind = run.info.metric
        return MetricAxis(metric, f"error{f' of {output}' if output else ''}{f' ({kind})' if kind else ''}")
    if not metric.isidentifier():
        return MetricAxis(metric, metric)
    unit = run.info.units.get(metric) or unit_of(metric)
    suffix = f"_{unit.replace('/', '_')}".lower()
    words = metric[: -len(suffix)] if unit and metric.lower().endswith(suffix) else metric
    factor = 1.0
    if unit == "bytes":
        unit, factor = "MB", 1.0 / _BYTES_PER_MB
    return MetricAxis(metric, f"{words.replace('_', ' ')}{f' ({unit})' if unit else ''}", factor)


def set_scale(axes: Any, which: Literal["x", "y"], axis: MetricAxis, values: Floats) -> str:
    """Give one axis the scale its numbers need, with ticks; return "linear", "log" or "symlog".

    Errors are on a logarithmic scale, where 0 has a place of its own beyond the smallest; other numbers are where
    they differ by more than a factor of ten, except speedups.
    """
    known = values[np.isfinite(values)]
    positive = known[known > 0]
    spread = positive.max() / positive.min() if positive.size else 1.0
    wide = axis.is_any_error or (axis.metric != _SPEEDUP and spread > _WIDE)
    if not positive.size or (known < 0).any() or not wide:
        return "linear"
    low, high = float(positive.min()), float(positive.max())
    if (known == 0).any():
        _set_with_zero(axes, which, low, high)
        return "symlog"
    _set_log(axes, which, low, high, powers=axis.is_any_error)
    return "log"


def log_ticks(low: float, high: float) -> Any:
    """Return where a logarithmic axis has ticks: the closer its ends are, the more a decade has."""
    from matplotlib import ticker

    subs = next((subs for factor, subs in _TICKS if high <= factor * low), (1.0,))
    return ticker.LogLocator(subs=subs, numticks="auto" if subs == (1.0,) else 20)


def _set_log(axes: Any, which: Literal["x", "y"], low: float, high: float, *, powers: bool) -> None:
    from matplotlib import ticker

    axes.set(**{f"{which}scale": "log"})
    ruler = getattr(axes, f"{which}axis")
    ruler.set_major_locator(log_ticks(low, high))
    if not powers and low > _SMALL and high < _LARGE:
        ruler.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    ruler.set_minor_formatter(ticker.NullFormatter())


def _set_with_zero(axes: Any, which: Literal["x", "y"], low: float, high: float) -> None:
    from matplotlib import ticker

    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    least = 10.0**first
    getattr(axes, f"set_{which}scale")("symlog", linthresh=least, linscale=_ZERO_DECADES)
    ruler = getattr(axes, f"{which}axis")
    step = max(1, math.ceil((last - first) / _MOST_TICKS))
    decades = range(last, first - 1, -step)
    ruler.set_major_locator(ticker.FixedLocator([0.0, *sorted(10.0**decade for decade in decades)]))
    ruler.set_minor_locator(ticker.NullLocator())
    getattr(axes, f"set_{which}lim")(-0.4 * least, 3.0 * high)
    # The break in the scale.
    (axes.axvspan if which == "x" else axes.axhspan)(0.4 * least, 0.6 * least, color="#E4E4E4", linewidth=0, zorder=1)
