"""What each type of the winner costs and gains: digits and speed when it alone is changed, side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mptune.errors import PlotError
from mptune.plots import style
from mptune.plots.style import Look
from mptune.plots.subject import counted, plain_ticks, title_of, value_text
from mptune.run import Run
from mptune.sensitivity import Change, Explanation, explanation_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]

_ROW_IN: Final = 0.155
_GAP: Final = 0.2  #: between parameters, in rows
_LOOKS: Final = {True: style.BAR_STYLES[0], False: style.BAR_STYLES[1]}
_LABELS: Final = {True: "restored", False: "narrowed"}
_INTERVAL: Final = {"fmt": "none", "ecolor": style.BLACK, "elinewidth": 0.8, "capsize": 1.5, "capthick": 0.8}
_LETTERS: Final = {"fontsize": 6.5, "va": "center"}
_PAPER: Final = {"facecolor": "white", "linewidth": 0, "pad": 0.8}
#: Limits that are no farther apart, in digits, are drawn as one line.
_SAME_LIMIT: Final = 0.02
#: Speeds outside are drawn at the edge, with an arrow and the number.
_SLOWEST, _FASTEST = 0.1, 10.0
#: From which factor between the ends of the axis on speeds have which ticks.
_TICKS: Final = (
    (8.0, (0.1, 0.2, 0.5, 1, 2, 5, 10)),
    (2.5, (0.25, 0.5, 0.7, 1, 1.5, 2, 3, 4)),
    (1.0, (0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4)),
)


def draw(run: Run, look: Look) -> Figure:
    """Draw, for each precision and policy changed alone, the digits it gains or loses and how much faster it is.

    Raises:
        PlotError: there is no winner, or nothing is known of its neighbours.
    """
    explanation = explanation_of(run)
    known = [change for change in explanation.changes if change.outcome is not None]
    if explanation.trial is None or not known:
        why = explanation.sentences[0] if not explanation.changes else "none of the winner's neighbours was measured"
        raise PlotError(f"no sensitivity can be drawn: {why[:1].lower()}{why[1:]}")
    places = _places(explanation.changes)
    figure = style.new_figure(look, 1.0 + _ROW_IN * (places[-1] + 1))
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_digits(left, explanation, places)
    _draw_speeds(right, explanation, places)
    _label(left, explanation.changes, places)
    for axes in (left, right):
        axes.spines["left"].set_visible(False)
    missing = [counted(explanation.missing, "change") + " not measured"] if explanation.missing else []
    subject = "the winner" if explanation.subject == "best" else "the closest trial, not feasible"
    style.write_title(figure, look, title_of(run, f"one type of {subject} changed at a time", *missing))
    style.add_legend(figure, left, columns=4 if look.is_wide else 3)
    return figure


def _places(changes: Sequence[Change]) -> list[float]:
    """Return the height of each row; above those of a parameter there is one for its name."""
    places: list[float] = []
    for before, change in zip((None, *changes), changes, strict=False):
        is_first = before is None or before.parameter != change.parameter
        places.append((places[-1] if places else -1.0) + (2.0 + _GAP if is_first else 1.0))
    return places


def _label(axes: Any, changes: Sequence[Change], places: Sequence[float]) -> None:
    """Write the values at the rows, and above each parameter's its name and its value in the winner."""
    axes.set_yticks(places, [value_text(change.after) for change in changes])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(places[-1] + 0.6, places[0] - 1.6)
    heads = {
        change.parameter: (place - 1.0, change) for place, change in reversed(list(zip(places, changes, strict=True)))
    }
    for place, change in heads.values():
        axes.annotate(
            f"{_named(change)} (winner: {value_text(change.before)})", (0, place), xycoords=("axes fraction", "data"),
            xytext=(-24, 0), textcoords="offset points", ha="left", va="center", fontsize=6.5,
            bbox=_PAPER,
        )  # fmt: skip


def _named(change: Change) -> str:
    """Return what a type is called: of an application, with its kernel or the buffers that have it."""
    first, *others = change.buffers or ("",)
    more = f", {others[0]}" if len(others) == 1 else f" and {len(others)} more" if others else ""
    return f"{change.parameter}{f' of {first}{more}' if first else ''}"


def _draw_digits(axes: Any, explanation: Explanation, places: Sequence[float]) -> None:
    changes = explanation.changes
    # Where each change reaches its limit: on as many draws of the inputs as its own digits.
    limits = {
        place: change.digits - change.outcome.spare
        for place, change in zip(places, changes, strict=True)
        if change.outcome is not None and math.isfinite(change.digits - change.outcome.spare)
    }
    spare = explanation.digits_spare
    if not limits and math.isfinite(spare):
        limits = dict.fromkeys(places, -spare)
    ends = [0.0, *limits.values(), *(c.digits for c in changes if math.isfinite(c.digits))]
    margin = 0.12 * max(1.0, max(ends) - min(ends))
    low, high = min(ends) - margin, max(ends) + margin
    for is_restored in (True, False):
        chosen = [(place, c) for place, c in zip(places, changes, strict=True) if c.is_restored == is_restored]
        if chosen:
            widths = [float(np.nan_to_num(c.digits, nan=0.0, posinf=high, neginf=low)) for _, c in chosen]
            axes.barh(
                [place for place, _ in chosen], widths, height=0.72, label=_LABELS[is_restored],
                gid=_LABELS[is_restored], **style.bar(*_LOOKS[is_restored]),
            )  # fmt: skip
    for place, change in zip(places, changes, strict=True):
        if math.isinf(change.digits):
            text = "exact" if change.digits > 0 else "not exact"
            at = 0.5 * (high if change.digits > 0 else low)
            axes.text(at, place, text, ha="center", bbox=_PAPER, **_LETTERS)
    if limits and max(limits.values()) - min(limits.values()) < _SAME_LIMIT:
        axes.axvline(statistics.median(limits.values()), label="error limit", gid="error limit", **style.THRESHOLD)
    elif limits:
        tops, bottoms = [place - 0.5 for place in limits], [place + 0.5 for place in limits]
        axes.vlines(list(limits.values()), tops, bottoms, label="error limit", gid="error limit", **style.THRESHOLD)
    axes.axvline(0, color=style.BLACK, linewidth=0.8)
    axes.set_xlim(low, high)
    axes.grid(True, axis="x")
    axes.set_xlabel("decimal digits gained")


def _draw_speeds(axes: Any, explanation: Explanation, places: Sequence[float]) -> None:
    from matplotlib import ticker

    low, high = 1.0, 1.0
    for place, change in zip(places, explanation.changes, strict=True):
        if math.isnan(change.gain):
            at = axes.get_yaxis_transform()
            axes.text(0.5, place, _why_not(change), transform=at, ha="center", color="#606060", **_LETTERS)
            continue
        gain = _inside(change.gain)
        ends = [gain]
        axes.barh(place, gain - 1, left=1, height=0.72, gid="speed", **style.bar(*_LOOKS[change.is_restored]))
        if gain != change.gain:
            side, arrow = ("left", "\u2190") if gain > change.gain else ("right", "\u2192")
            axes.text(gain, place, f"{arrow} {change.gain:.2g}", ha=side, bbox=_PAPER, gid="beyond", **_LETTERS)
        interval = None if change.outcome is None else change.outcome.interval
        if interval is not None and explanation.measure == "speed":
            ends += map(_inside, interval)
            whiskers = [[max(0.0, gain - min(ends))], [max(0.0, max(ends) - gain)]]
            axes.errorbar(gain, place, xerr=whiskers, **_INTERVAL)
        low, high = min(low, *ends), max(high, *ends)
    low, high = low / 1.1, high * 1.1
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ticks = next(steps for factor, steps in _TICKS if high >= factor * low)
    plain_ticks(axes.xaxis, ticker.FixedLocator([step for step in ticks if low <= step <= high]))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.axvline(1, color=style.BLACK, linewidth=0.8)
    axes.grid(True, axis="x")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("speed (winner: 1)" if explanation.measure == "speed" else f"gain in {explanation.measure}")


def _inside(gain: float) -> float:
    return min(max(gain, _SLOWEST), _FASTEST)


def _why_not(change: Change) -> str:
    if change.outcome is None:
        return "not measured"
    trial = change.outcome.trial
    return trial.status.value.replace("_", " ") if not trial.is_valid else "not timed"
