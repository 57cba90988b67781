"""Where the time of tuning went: in total by phase, and along the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mptune.errors import PlotError
from mptune.plots import style
from mptune.plots.style import Look
from mptune.plots.subject import Floats, order_label, title_of
from mptune.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["along", "draw", "totals"]

#: In the order in which they are stacked, with their looks; what is not among these takes the looks that are left.
_PHASES: Final = ("timing", "compile", "accuracy", "transfer", "launch", "observe", "search", "prepare", "other")
_LEAST_SHARE: Final = 0.01
_BAR_IN: Final = 0.17
_AREA_IN: Final = 1.8
#: More would not be seen.
_MOST_STEPS: Final = 500
_SECONDS: Final = (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))


def draw(run: Run, look: Look) -> Figure:
    """Draw the time by phase, and how the time of the trials added up from evaluation to evaluation.

    Phases that took less than a hundredth are among the others.

    Raises:
        PlotError: the run does not say how its time was spent.
    """
    total = totals(run)
    rows = along(run, [name for name in total if name != "other"])
    unit, seconds = _unit(sum(total.values()))
    bars_in = 0.2 + _BAR_IN * len(total)
    figure = style.new_figure(look, 2.5 if look.is_wide else 1.3 + bars_in + (_AREA_IN if rows else 0.0))
    looks = _looks(total)
    if not rows:
        _draw_totals(figure.add_subplot(), total, looks, unit, seconds)
    else:
        beside: dict[str, Any] = {"ncols": 2, "width_ratios": (1, 1.3)}
        below: dict[str, Any] = {"nrows": 2, "height_ratios": (bars_in, _AREA_IN)}
        upper, lower = figure.subplots(**(beside if look.is_wide else below))
        _draw_totals(upper, total, looks, unit, seconds)
        _draw_along(lower, run, rows, looks, unit, seconds)
    devices = run.state.workers
    style.write_title(figure, look, title_of(run, *([f"{devices} devices at a time"] if devices > 1 else [])))
    return figure


def totals(run: Run) -> dict[str, float]:
    """Return the seconds by phase, most first and "other" last.

    Raises:
        PlotError: the run does not say how its time was spent.
    """
    spent = {name: seconds for name, seconds in run.durations_s.items() if seconds > 0}
    if not spent:
        raise PlotError("the run does not say how its time was spent: it was recorded without durations")
    whole = sum(spent.values())
    shown = {name: seconds for name, seconds in spent.items() if name != "other" and seconds >= _LEAST_SHARE * whole}
    rest = whole - sum(shown.values())
    return {**shown, **({"other": rest} if rest > 1e-9 * whole else {})}


def along(run: Run, names: list[str]) -> dict[str, Floats]:
    """Return, for each phase of the trials, the seconds spent in it up to each trial, shape ``(n_trials,)``.

    What was spent beside the trials (prepare, search) has no place along the run and is left out.
    """
    devices = max(1, run.state.workers)
    durations = [trial.measurement.durations_s for trial in run.trials]
    rows: dict[str, Floats] = {}
    for name in names:
        seconds = np.array([spent.get(name, 0.0) for spent in durations], dtype=np.float64)
        if seconds.any():
            rows[name] = np.cumsum(seconds) / devices
    return rows


def _looks(total: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    order = [*(name for name in _PHASES if name in total), *(name for name in total if name not in _PHASES)]
    free = [i for i in range(len(style.BAR_STYLES)) if i >= len(_PHASES) or _PHASES[i] not in total]
    places = {name: _PHASES.index(name) if name in _PHASES else free.pop(0) if free else 0 for name in order}
    return {name: style.bar(*style.BAR_STYLES[place]) for name, place in places.items()}


def _unit(seconds: float) -> tuple[str, float]:
    return next(((unit, size) for unit, size in _SECONDS if seconds >= 2 * size), _SECONDS[-1])


def _draw_totals(
    axes: Any, total: Mapping[str, float], looks: Mapping[str, dict[str, Any]], unit: str, seconds: float
) -> None:
    whole = sum(total.values())
    for place, (name, spent) in enumerate(total.items()):
        axes.barh(place, spent / seconds, height=0.72, label=name, **looks[name])
        # No milliseconds beside seconds.
        own_unit, own_seconds = _unit(max(spent, min(whole, 2.0)))
        text = f" {spent / own_seconds:.3g} {own_unit} ({spent / whole:.0%})"
        axes.text(spent / seconds, place, text, va="center", ha="left", fontsize=6.5)
    axes.set_yticks(range(len(total)), list(total))
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    # The numbers beside the bars need room.
    axes.set_xlim(0, 1.42 * max(total.values()) / seconds)
    axes.set_xlabel(f"wall time ({unit})")


def _draw_along(
    axes: Any, run: Run, rows: Mapping[str, Floats], looks: Mapping[str, dict[str, Any]], unit: str, seconds: float
) -> None:
    names = sorted(rows, key=lambda name: -rows[name][-1])
    evaluations = np.unique(np.linspace(0, len(run.trials), min(len(run.trials), _MOST_STEPS) + 1).astype(int))
    stacked = np.zeros(len(evaluations))
    for name in names:
        upper = stacked + np.concatenate([[0.0], rows[name]])[evaluations] / seconds
        axes.fill_between(evaluations, stacked, upper, label=name, gid=f"along {name}", **looks[name])
        stacked = upper
    axes.set(xlabel=order_label(run), ylabel=f"time in trials, added up ({unit})")
    axes.set_xlim(0, len(run.trials))
    axes.set_ylim(0, None)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="upper left")
