"""What is common to the plots of a run: its trials, its title, its baseline, and how a metric is drawn on an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from mptune.errors import PlotError
from mptune.interop.recorded import unit_of
from mptune.results import Trial
from mptune.run import Run
from mptune.space.configuration import Value

__all__ = [
    "Floats", "MetricAxis", "baseline_of", "counted", "judges", "log_ticks", "metric_axis", "order_label",
    "plain_ticks", "set_scale", "threshold_text", "title_of", "valid_trials", "value_text",
]  # fmt: skip


def valid_trials(run: Run) -> tuple[Trial, ...]:
    """Return the trials that ran to their end.

    Raises:
        PlotError: there are none; says how they ended.
    """
    valid = tuple(trial for trial in run.trials if trial.is_valid)
    if not valid:
        ended = ", ".join(f"{status} {count}" for status, count in run.statuses.items())
        raise PlotError(
            f"none of {counted(len(run.trials), 'trial')} ran to its end, so there is nothing to draw ({ended})"
        )
    return valid


def baseline_of(run: Run) -> Trial | None:
    """Return the baseline, None if no type was tuned, since any configuration would be one."""
    return run.baseline if run.info.baseline_values else None


def judges(run: Run) -> bool:
    """Whether a trial can be infeasible."""
    return run.info.objective.threshold is not None or bool(run.info.objective.constraints)


def threshold_text(run: Run) -> str:
    """Return what makes a trial feasible."""
    limits = [
        f"{'error' if name == 'error' else run.info.measured_by(name)} ≤ {limit:g}".replace(" ", "\u00a0")
        for name, limit in run.objective.limits.items()
    ]
    return ", ".join((*limits, *run.objective.constraints))


def title_of(run: Run, *remarks: str) -> str:
    """Return what stands above a plot."""
    whose = f"{run.kernel} on {run.info.device}" if run.info.device else run.kernel
    # A number stays with what it counts.
    count = counted(len(run.trials), "configuration").replace(" ", "\u00a0")
    return "; ".join((f"{whose}: {count}", *remarks))


def order_label(run: Run) -> str:
    """Return what an axis says along which the trials come one after the other."""
    return "configurations in the order of the recording" if run.info.recorded else "evaluations"


def counted(count: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def value_text(value: Value) -> str:
    """Return a parameter's value in as few letters as tell it from the others."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


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
    """A metric as it is drawn: its name, what the axis says, and the factor from its unit to that of the label."""

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
        """Return the numbers of trials in the unit of the label, NaN if a trial has none; shape ``(n_trials,)``."""
        numbers = np.array([run.metric_of(trial, self.metric) for trial in trials], dtype=np.float64) * self.factor
        return np.where(np.isfinite(numbers), numbers, np.nan)


def metric_axis(run: Run, metric: str) -> MetricAxis:
    """Return how a metric of a run, ``speedup`` or the objective is drawn."""
    if metric == _SPEEDUP:
        return MetricAxis(metric, "speedup over the fp64 baseline")
    name, _, output = metric.partition(".")
    if name == "error":
        kind, of = run.info.measured_by(metric) if run.info.metric else "", ""
        if kind and not run.info.metrics and output:
            kind, _, of = kind.rpartition(" of ")
        return MetricAxis(metric, f"error{f' of {of}' if of else ''}{f' ({kind})' if kind else ''}")
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


def plain_ticks(ruler: Any, locator: Any = None) -> None:
    """Write numbers out at the major ticks, where the locator puts them, and nothing at the others."""
    from matplotlib import ticker

    if locator is not None:
        ruler.set_major_locator(locator)
    ruler.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    ruler.set_minor_formatter(ticker.NullFormatter())


def _set_log(axes: Any, which: Literal["x", "y"], low: float, high: float, *, powers: bool) -> None:
    from matplotlib import ticker

    axes.set(**{f"{which}scale": "log"})
    ruler = getattr(axes, f"{which}axis")
    if not powers and low > _SMALL and high < _LARGE:
        plain_ticks(ruler, log_ticks(low, high))
    else:
        ruler.set_major_locator(log_ticks(low, high))
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
