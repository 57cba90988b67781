"""Charts of a run: each kind is a Vega-Altair specification of a tidy table with one row for each mark.

Colours are from Okabe and Ito 2008, distinct for common kinds of colour blindness; shapes and dashes are distinct
without colours.
"""

from __future__ import annotations

import dataclasses
import json
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from mptune.errors import PlotError, UnknownNameError
from mptune.explanation import Change, explanation_of
from mptune.interop import read_run
from mptune.kernel import Tunable
from mptune.markup import few_names, pairs, plain
from mptune.results.description import spent_s
from mptune.results.kernel_times import HOST, host_ms, kernel_times
from mptune.results.trial import Trial
from mptune.results.unseen import unequal_draws
from mptune.run import Run, json_document
from mptune.space.arguments import checked
from mptune.space.configuration import Value
from mptune.space.parameters import PolicyParameter, PrecisionParameter, uniform_types

try:
    import altair as alt
    import vl_convert  # noqa: F401 - writes them
except ImportError as error:
    how = 'pip install "mptune[plots]", or in a checkout pip install -e ".[plots]"'
    raise PlotError(f"plots need altair: {how}") from error

Floats = NDArray[np.float64]

BLACK, BLUE, SKY, GREEN = "#000000", "#0072B2", "#56B4E9", "#009E73"
YELLOW, ORANGE, VERMILLION, PURPLE = "#F0E442", "#E69F00", "#D55E00", "#CC79A7"
_SAND: Final = "#A08F66"
_PALETTE: Final = (BLUE, ORANGE, GREEN, SKY, YELLOW, PURPLE, VERMILLION, "#882255", "#332288", "#999933")
_CROSS: Final = "M-.7,-.7L.7,.7M-.7,.7L.7,-.7"
_STAR: Final = "M0,-1L.24,-.32L.95,-.31L.38,.12L.59,.81L0,.4L-.59,.81L-.38,.12L-.95,-.31L-.24,-.32Z"
#: Shape, fill, stroke and area in square points of marks; the first four are ordinary trials.
_MARKS: Final = {
    "feasible": ("circle", SKY, BLUE, 12),
    "configuration": ("circle", SKY, BLUE, 12),
    "infeasible": (_CROSS, _SAND, _SAND, 12),
    "infeasible, not timed": ("triangle-down", "white", _SAND, 24),
    "failed": ("M0,-1L0,1", BLACK, BLACK, 20),
    "front": ("diamond", VERMILLION, BLACK, 30),
    "front, one type": ("circle", "white", BLACK, 24),
    "front, mixed types": ("diamond", VERMILLION, BLACK, 30),
    "tied": (_STAR, "white", BLACK, 60),
    "closest": (_STAR, "white", VERMILLION, 110),
    "baseline": ("square", "white", BLACK, 32),
    "winner": (_STAR, YELLOW, BLACK, 110),
}
_SOLID, _DASHED, _DOTTED, _DASH_DOTTED = [1, 0], [4, 2], [1, 1.5], [6, 2, 1, 2]
#: Width and size of letters, in points of 1/72 inch.
WIDTHS: Final = {"column": (252, 7), "page": (516, 7), "screen": (640, 11)}
#: Smallest number of trials for a random forest with cross-validation.
_LEAST_TRIALS: Final = 30
#: Limits of the axis of speeds; other speeds are drawn at the edge.
_SLOWEST, _FASTEST = 0.1, 10.0
#: Largest number of cells on a side of a map; larger arrays are averaged over blocks.
_CELLS: Final = 128


class Look:
    """The size of a chart, its title, and whether a page can select trials in it."""

    def __init__(self, width: str = "column", *, title: bool = True, is_linked: bool = False) -> None:
        if width not in WIDTHS:
            raise UnknownNameError("width of a plot", width, WIDTHS)
        self.width, self.title, self.is_linked = width, title, is_linked
        self.points, self.letters = WIDTHS[width]
        self.scale = self.letters / 7  #: size of letters and marks, relative to a journal
        self.taller = 1.0 if width == "column" else 1.35  #: height, relative to a journal's column
        #: Data of the chart by name, added at the end, because Vega-Altair copies inline data.
        self.tables: dict[str, list[dict[str, Any]]] = {}

    def wrapped(self, *texts: str) -> list[str]:
        """Return the lines of texts wrapped at the width."""
        letters = int(1.75 * self.points / self.letters)
        return [line for text in texts for line in textwrap.wrap(plain(text), letters)]


@checked
def plot(
    run: Run | str | Path,
    kind: str = "pareto",
    *,
    metrics: Sequence[str] = (),
    max_error: float | Mapping[str, float] | None = None,
    width: str = "column",
    title: bool = True,
    kernel: Tunable | str | Path | None = None,
) -> alt.TopLevelMixin:
    """Draw a run as a chart of Vega-Altair, for notebooks and :func:`mptune.show.save`.

    Args:
        run: a run, or the file of a run or of a recorded space.
        kind: ``pareto``: all configurations and the front in two metrics. ``progress``: the best so far over
            evaluations. ``parameters``: importance and effects of parameters. ``time``: the time spent on tuning.
            ``sensitivity``: cost and gain of each type of the winner. ``kernels``: the time of an application's runs by
            kernel. ``answer``: pictures of an application's answer, which run the winner and the widest types.
        metrics: vertical and horizontal axis of ``pareto``: metrics of the trials, ``speedup`` or the objective; by
            default speedup (or the objective, if it is no time) and error.
        max_error: a threshold instead of the run's.
        width: "column" (3.5 inches) or "page" (7.16 inches) of a journal with two columns, or "screen" (640 points,
            larger letters).
        title: whether the chart has a title with kernel, device and number of configurations.
        kernel: application, definition file or folder for ``answer``, unless the application is bundled. The path in a
            run file is never opened.

    Raises:
        UnknownNameError: unknown kind, width or metric.
        PlotError: the run has no data for this kind, or altair is not installed.
        RunFileError, SpaceFileError: the file cannot be read.
    """
    if kind not in (*KINDS, *APPLICATION_KINDS):
        raise UnknownNameError("kind of plot", kind, (*KINDS, *APPLICATION_KINDS))
    if metrics and kind != "pareto":
        raise PlotError(f"metrics are axes of a pareto plot, not of {kind}")
    if kernel is not None and kind != "answer":
        raise PlotError(f"a definition is for a picture of the answer, not for {kind}")
    look = Look(width, title=title)
    shown = run if isinstance(run, Run) else read_run(run)
    if max_error is not None:
        if shown.trials and not any(name.split(".")[0] == "error" for name in shown.metric_names):
            names = ", ".join(shown.metric_names) or "none"
            raise PlotError(f"--max-error needs trials with an error (metrics: {names})")
        threshold = shown.objective_within(max_error).threshold
        objective = dataclasses.replace(shown.info.objective, threshold=threshold)
        shown = Run(dataclasses.replace(shown.info, objective=objective), shown.trials, shown.state)
    if kind == "answer":
        from mptune.show.answer import draw  # slow to import

        return draw(shown, kernel, has_titles=title)
    return chart_of(shown, kind, look, metrics)


def chart_of(run: Run, kind: str, look: Look, metrics: Sequence[str] = ()) -> alt.TopLevelMixin:
    """Return a chart of the stored trials, as :func:`plot`."""
    if not run.trials:
        raise PlotError(f"the run of {run.kernel or 'no kernel'} has no trial yet: there is nothing to draw")
    return _pareto(run, look, metrics) if kind == "pareto" else _DRAW[kind](run, look)


# -- shared parts --------------------------------------------------------------------------------


def _chart(look: Look, name: str, table: pd.DataFrame) -> Any:
    """Return a chart of a table, stored by name with null for numbers that are not finite."""
    look.tables[name] = json_document({"rows": table.astype(object).to_dict("records")})["rows"]
    return alt.Chart(alt.NamedData(name))


def _rules(look: Look, *rows: Mapping[str, Any], width: float = 1.2, **style: Any) -> Any:
    return alt.Chart(alt.InlineData(values=list(rows))).mark_rule(strokeWidth=width * look.scale, **style)


def _finished(chart: Any, look: Look, run: Run | None, *remarks: str) -> Any:
    small, line, columns = look.letters, 0.6 * look.scale, {"column": 2, "page": 4, "screen": 3}[look.width]
    if look.title and run is not None:
        whose = f"{run.kernel} on {run.info.device}" if run.info.device else run.kernel
        parts = (f"{whose}: {_counted(len(run.trials), 'configuration')}", *filter(None, remarks))
        chart = chart.properties(title=look.wrapped("; ".join(parts)))
    axis = {
        "labelFontSize": small, "titleFontSize": small, "titleFontWeight": "normal", "domainColor": BLACK,
        "domainWidth": line, "tickColor": BLACK, "tickWidth": line, "tickSize": 3 * look.scale,
        "titlePadding": small / 2, "gridColor": "#E4E4E4", "gridWidth": line, "labelLimit": 0.45 * look.points,
    }  # fmt: skip
    shown = chart.configure(
        font="sans-serif",
        background="white",
        view={"stroke": None},
        axis=axis,
        legend={
            "labelFontSize": small, "titleFontSize": small, "orient": "bottom", "columns": columns, "title": None,
            "symbolStrokeWidth": line * 1.3, "labelLimit": look.points / columns, "rowPadding": 1,
            "columnPadding": 8 * look.scale, "offset": small,
        },
        title={"fontSize": small, "fontWeight": "normal", "anchor": "start", "color": "#404040", "offset": small},
        header={"labelFontSize": small, "titleFontSize": small, "labelPadding": 2},
    )  # fmt: skip
    if look.tables:
        shown.datasets = look.tables
    return shown


def _fitted(chart: Any, look: Look, inches: float) -> Any:
    """Return a chart fitted to the width, labels included, with a height in inches for a journal's column."""
    autosize = alt.AutoSizeParams(type="fit", contains="padding")
    return chart.properties(width=look.points, height=inches * 72 * look.taller, autosize=autosize)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _text(value: Value) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else plain(str(value))


def baseline_of(run: Run) -> Trial | None:
    """Return the baseline, None if no type was tuned."""
    return run.baseline if run.info.baseline_values else None


def _has_limits(run: Run) -> bool:
    return run.info.objective.threshold is not None or bool(run.info.objective.constraints)


def _valid(run: Run) -> list[Trial]:
    valid = [trial for trial in run.trials if trial.is_valid]
    if not valid:
        raise PlotError(f"no trial is valid: there is nothing to draw ({pairs(run.statuses)})")
    return valid


def _trials(run: Run, y: MetricAxis, x: MetricAxis | None = None) -> pd.DataFrame:
    """Return the trials in the order of evaluation: ``trial``, ``configuration``, ``ended``, ``y``, ``x``, ``what``.

    ``trial`` counts from 1. ``configuration`` is empty for more than 3,000 trials. ``ended`` is the status, ``what``
    the mark: "feasible" (without limits "configuration"), "infeasible" or "failed".
    """
    trials, within = run.trials, {True: "feasible", False: "infeasible"}
    if not _has_limits(run):
        within = dict.fromkeys(within, "configuration")
    columns = {
        "trial": range(1, len(trials) + 1),
        "configuration": [plain(str(trial.configuration)) for trial in trials] if len(trials) <= 3000 else "",
        "ended": [trial.status.value for trial in trials],
        "y": y.values(run, trials),
        "x": math.nan if x is None else x.values(run, trials),
        "what": [within[run.objective.is_feasible(each)] if each.is_valid else "failed" for each in trials],
    }
    return pd.DataFrame(columns)


# -- axes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MetricAxis:
    """A metric on an axis: its name, the label, and the factor from its unit to the unit of the label."""

    metric: str
    label: str
    factor: float = 1.0

    def values(self, run: Run, trials: Sequence[Trial]) -> Floats:
        """Return the values of trials in the unit of the label, NaN if missing; shape ``(n_trials,)``."""
        numbers = np.array([run.metric_of(trial, self.metric) for trial in trials], dtype=np.float64) * self.factor
        return np.where(np.isfinite(numbers), numbers, np.nan)

    def scaled(self, values: Sequence[float]) -> dict[str, Any]:
        """Return scale and axis: linear for negative numbers and speedups, else logarithmic with 0 at the left end."""
        known = np.array([value for value in values if math.isfinite(value)])
        positive = known[known > 0]
        if self.metric == "speedup" or not positive.size or (known < 0).any():
            low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
            room = 0.06 * ((high - low) or abs(high) or 1.0)
            scale = alt.Scale(domain=[max(0.0, low - room) if low >= 0 else low - room, high + room], nice=False)
            return {"scale": scale, "axis": alt.Axis(title=self.label, format=".6~g")}
        low, high = float(positive.min()), float(positive.max())
        margin = max((high / low) ** 0.05, 1.15)
        form = "~e" if self.metric.split(".")[0] == "error" else "~g"
        if (known > 0).all():
            scale = alt.Scale(type="log", domain=[low / margin, high * margin], nice=False)
            return {"scale": scale, "axis": alt.Axis(title=self.label, format=form, tickCount=8)}
        least = math.floor(math.log10(low)) - 1
        decades = range(least + 1, math.ceil(math.log10(high)) + 1)
        ticks = [0.0, *(float(f"1e{decade}") for decade in decades[:: -(-len(decades) // 7)])]
        scale = alt.Scale(type="symlog", constant=10.0**least, domain=[-0.5 * 10.0**least, high * margin], nice=False)
        label = f"datum.value == 0 ? '0' : format(datum.value, '{form}')"
        return {"scale": scale, "axis": alt.Axis(title=self.label, values=ticks, labelExpr=label)}


def _metric_axis(run: Run, metric: str) -> MetricAxis:
    if metric == "speedup":
        where = "" if run.estimated_for is None else f", estimated for {run.estimated_for.name}"
        return MetricAxis(metric, f"speedup over the fp64 baseline{where}")
    if metric.split(".")[0] == "error":
        measure = f" ({run.info.measured_by(metric)})" if run.info.metric else ""
        return MetricAxis(metric, plain(f"error{measure}"))
    if not metric.isidentifier():
        return MetricAxis(metric, plain(metric))
    unit = run.info.unit_of(metric)
    suffix = f"_{unit.replace('/', '_')}".lower()
    words = metric[: -len(suffix)] if unit and metric.lower().endswith(suffix) else metric
    unit, factor = ("MB", 1e-6) if unit == "bytes" else (unit, 1.0)
    return MetricAxis(metric, plain(f"{words.replace('_', ' ')}{f' ({unit})' if unit else ''}"), factor)


def _trial_axis(run: Run, look: Look) -> Any:
    label = "configurations in the order of the recording" if run.info.recorded else "evaluations"
    ticks = alt.Axis(tickMinStep=1, tickCount=look.points // 60, format=",d", title=label, grid=False)
    return alt.X("trial:Q", scale=alt.Scale(domain=[0, len(run.trials) + 1], nice=False), axis=ticks)


# -- marks, lines and tooltips -------------------------------------------------------------------


def _styled(channel: Any, column: str, styles: Mapping[str, Any], **legend: Any) -> Any:
    scale = alt.Scale(domain=list(styles), range=list(styles.values()))
    return channel(f"{column}:N", scale=scale, legend=alt.Legend(title=None, **legend))


def _coloured(names: Sequence[str]) -> dict[str, str]:
    return {name: _PALETTE[i % len(_PALETTE)] for i, name in enumerate(names)}


def _points(look: Look, name: str, table: pd.DataFrame, every: pd.DataFrame, tooltip: Sequence[Any], **at: Any) -> Any:
    """Return the trials of a table as marks by ``what``; ordinary trials shrink with the number of all trials."""
    found = [mark for mark in _MARKS if mark in set(every["what"])]
    shrunk = min(1.0, max(0.2, (500 / max(len(every), 1)) ** 0.5))
    area = {n: _MARKS[n][3] * look.scale**2 * (shrunk if n in list(_MARKS)[:4] else 1.0) for n in found}
    shape, fill, stroke = (
        _styled(channel, "what", {n: _MARKS[n][i] for n in found}, symbolSize=30 * look.scale**2)
        for i, channel in enumerate((alt.Shape, alt.Fill, alt.Stroke))
    )
    drawn = _chart(look, name, table.assign(size=table["what"].map(area)))
    drawn = drawn.mark_point(strokeWidth=0.6 * look.scale, opacity=1)
    size = alt.Size("size:Q", scale=None)
    return drawn.encode(shape=shape, fill=fill, stroke=stroke, size=size, tooltip=tooltip, **at)


def _lines(styles: Mapping[str, tuple[str, Sequence[float]]]) -> dict[str, Any]:
    colours, dashes = ({name: style[i] for name, style in styles.items()} for i in (0, 1))
    legend = {"symbolType": "stroke", "symbolSize": 150, "columns": 1}
    return {
        "color": _styled(alt.Color, "line", colours, **legend),
        "strokeDash": _styled(alt.StrokeDash, "line", dashes, **legend),
    }


def _tooltips(*columns: str, **numbers: str) -> list[Any]:
    texts = [alt.Tooltip(f"{name}:{'Q' if name == 'trial' else 'N'}") for name in columns]
    return texts + [alt.Tooltip(f"{name}:Q", title=title, format=".4~g") for name, title in numbers.items()]


def _linked(points: Any, look: Look, *, is_brushed: bool = True) -> Any:
    """Return points with selection by the page, if the look is linked.

    The page sets ``chosen``, the number of the trial with a ring, and ``shown``, the trials that are not faint, or null
    for all. A brush selects an area.
    """
    if not look.is_linked:
        return points
    faint = points.encode(opacity=alt.condition("shown == null || shown[datum.trial]", alt.value(1), alt.value(0.12)))
    ring = points.transform_filter("datum.trial == chosen").encode(
        shape=alt.value("circle"), size=alt.value(260), fill=alt.value("transparent"), stroke=alt.value(VERMILLION)
    )
    brush = [alt.selection_interval(name="brush", encodings=["x", "y"])] if is_brushed else []
    return alt.layer(faint.add_params(*brush), ring).add_params(
        alt.param("chosen", value=0), alt.param("shown", value=None)
    )


# -- pareto --------------------------------------------------------------------------------------


def _pareto(run: Run, look: Look, metrics: Sequence[str] = ()) -> Any:
    metrics = metrics or _default_metrics(run)
    if len(metrics) != 2:
        raise PlotError(f"a plot needs two metrics, not {len(metrics)}: {', '.join(metrics)}")
    y, x = (_metric_axis(run, name) for name in metrics)
    front, valid = run.pareto(metrics), _valid(run)
    points = _trials(run, y, x).dropna(subset=["x", "y"])
    points = points[points["what"] != "failed"]
    if points.empty:
        raise PlotError(f"no trial has a finite {x.metric} and a finite {y.metric}: there is nothing to draw")
    roles = pd.DataFrame(_roles(run, front), columns=["trial", "what"])
    marked = roles.merge(points.drop(columns="what"), on="trial")
    steps = marked[marked["what"].str.startswith("front")].sort_values(["x", "y"])
    steps = steps.assign(step=range(len(steps)), line="front")

    axes = {"x": x, "y": y}
    limits = {name: run.objective.limits[a.metric] for name, a in axes.items() if a.metric in run.objective.limits}
    scales = {name: a.scaled([*points[name], limits.get(name, math.nan)]) for name, a in axes.items()}
    at = {"x": alt.X("x:Q", **scales["x"]), "y": alt.Y("y:Q", **scales["y"])}
    of = {name: "" if axes[name].metric == "error" else f" {axes[name].metric}" for name in limits}
    texts = {name: plain(f"threshold{of[name]} {limit:g}") for name, limit in limits.items()}
    styled = _lines({"front": (BLACK, _SOLID)} | dict.fromkeys(texts.values(), (VERMILLION, _DASHED)))
    step = "step-before" if x.metric in run.more_is_better else "step-after"
    line = _chart(look, "front", steps).mark_line(interpolate=step, strokeWidth=1.1 * look.scale)
    layers = [line.encode(**at, order="step:Q", **styled)]
    for name, text in texts.items():
        layers.append(_rules(look, {name: limits[name], "line": text}).encode(**{name: at[name]}, **styled))
    tooltip = _tooltips("trial", "configuration", "what", x=x.label, y=y.label)
    drawn = pd.concat([points, marked])
    chart = alt.layer(*layers, _linked(_points(look, "points", drawn, drawn, tooltip, **at), look))
    if "error" in metrics and (levels := _uniform_errors(run)):
        name = "x" if x.metric == "error" else "y"
        beside = _levels(levels, name, scales[name]["scale"], look)
        chart = alt.layer(beside, chart).resolve_axis(**{name: "independent"})
    failed = len(run.failures)
    without = len(run.trials) - failed - len(points)
    remarks = (f"{failed:,} failed" * (failed > 0), f"{without:,} without finite numbers" * (without > 0))
    return _finished(_fitted(chart, look, 3.2), look, run, *remarks, unequal_draws(metrics, valid))


def _default_metrics(run: Run) -> tuple[str, str]:
    if not any(math.isfinite(trial.error) for trial in _valid(run)):
        names = ", ".join(run.metric_names)
        raise PlotError(f"no trial has a finite error: give two other metrics by --metrics: {names}")
    objective = run.objective.metric
    if objective not in ("time_ms", "error"):
        return objective, "error"
    return ("time_ms" if baseline_of(run) is None else "speedup"), "error"


def _roles(run: Run, front: Sequence[Trial]) -> list[tuple[int, str]]:
    kinds = [types.items() for types in uniform_types(run.parameters).values()]
    names = {True: "front, one type", False: "front, mixed types"}
    is_uniform = [any(types <= trial.configuration.items() for types in kinds) for trial in front]
    marked = [(trial, names[one] if kinds else "front") for trial, one in zip(front, is_uniform, strict=True)]
    baseline, winner = baseline_of(run), run.best or run.closest
    if baseline is not None:
        marked.append((baseline, "baseline"))
    if _has_limits(run) or baseline is not None:
        marked += [(trial, "tied") for trial in run.contenders[1:]]
        marked += [] if winner is None else [(winner, "closest" if run.best is None else "winner")]
    numbers = {trial.configuration: number for number, trial in enumerate(run.trials, 1)}
    return [(numbers[trial.configuration], name) for trial, name in marked]


def _uniform_errors(run: Run) -> dict[float, list[str]]:
    levels: dict[float, list[str]] = {}
    for name, types in uniform_types(run.parameters).items():
        errors = [t.error for t in run.trials if t.is_valid and types.items() <= t.configuration.items()]
        if min(errors, default=math.nan) < math.inf:
            levels.setdefault(min(errors), []).append(plain(name))
    return levels


def _levels(levels: Mapping[float, Sequence[str]], name: str, scale: Any, look: Look) -> Any:
    """Draw a dotted line at the error of each precision, with its name at the opposite axis."""
    labels = json.dumps([", ".join(types) for types in levels.values()])
    texts = f"{labels}[indexof({json.dumps(list(levels))}, datum.value)]"
    orient, angle = ("top", -90) if name == "x" else ("right", 0)
    axis = alt.Axis(
        orient=orient, values=list(levels), labelExpr=texts, title=None, grid=False, domain=False, labelAngle=angle,
        labelOverlap="greedy", labelPadding=1,
    )  # fmt: skip
    at = (alt.X if name == "x" else alt.Y)("level:Q", scale=scale, axis=axis)
    rules = _rules(look, *({"level": level} for level in levels), width=0.7, color="#606060", strokeDash=_DOTTED)
    return rules.encode(**{name: at})


def fronts(runs: Mapping[str, Run], look: Look) -> Any:
    """Draw the fronts of several runs in speedup and error, or in time if a run has no baseline."""
    metric = "speedup" if all(baseline_of(run) is not None for run in runs.values()) else "time_ms"
    rows = [
        (name, trial.error, run.metric_of(trial, metric), plain(str(trial.configuration)))
        for name, run in runs.items()
        if {"time_ms", "error"} <= set(run.metric_names)
        for trial in run.pareto((metric, "error"))
    ]
    if not rows:
        raise PlotError("no run has a front")
    table = pd.DataFrame(rows, columns=["run", "x", "y", "configuration"])
    x, y = MetricAxis("error", "error"), _metric_axis(next(iter(runs.values())), metric)
    names = list(dict.fromkeys(table["run"]))
    shapes = ["circle", "square", "diamond", "triangle-up", "cross", "triangle-down"]
    base = _chart(look, "fronts", table).encode(
        x=alt.X("x:Q", **x.scaled(list(table["x"]))),
        y=alt.Y("y:Q", **y.scaled(list(table["y"]))),
        color=_styled(alt.Color, "run", _coloured(names)),
    )
    points = base.mark_point(filled=True, opacity=1, size=24 * look.scale**2).encode(
        shape=_styled(alt.Shape, "run", {name: shapes[i % len(shapes)] for i, name in enumerate(names)}),
        tooltip=_tooltips("run", "configuration", x=x.label, y=y.label),
    )
    chart = alt.layer(base.mark_line(interpolate="step-after", strokeWidth=look.scale), points)
    return _finished(_fitted(chart, look, 2.8), look, None)


# -- progress ------------------------------------------------------------------------------------


def _progress(run: Run, look: Look) -> Any:
    _valid(run)
    axis, baseline = _metric_axis(run, run.objective.metric), baseline_of(run)
    table = _trials(run, axis)
    is_known = table["y"].notna() & (table["what"] != "failed")
    table["what"] = table["what"].where(is_known | (table["what"] == "failed"), "infeasible, not timed")
    scaled = axis.scaled(list(table["y"][is_known]))
    x, y = _trial_axis(run, look), alt.Y("y:Q", **scaled)
    tooltip = _tooltips("trial", "configuration", "ended")
    known = _points(look, "points", table[is_known], table, [*tooltip, *_tooltips(y=axis.label)], x=x, y=y)
    # Trials without a value form a row at the top.
    top = _points(look, "top", table[~is_known], table, tooltip, x=x, y=alt.value(4 * look.scale))

    feasible = table["y"].where(table["what"].isin(["feasible", "configuration"]))
    best = (feasible.cummin() if run.objective.minimise else feasible.cummax()).ffill()
    is_step = best.notna() & (best.ne(best.shift()) | (best.index == best.index[-1]))
    steps = table[["trial"]].assign(y=best, line="best so far")[is_step]
    styled = _lines({"best so far": (BLACK, _SOLID)} | ({"baseline": (GREEN, _DASH_DOTTED)} if baseline else {}))
    line = _chart(look, "best", steps).mark_line(interpolate="step-after", strokeWidth=1.3 * look.scale)
    chart = alt.layer(_linked(known, look, is_brushed=False), top, line.encode(x=x, y=y, **styled))
    if baseline is not None:
        at = float(axis.values(run, [baseline])[0])
        label = f"format({at!r} / datum.value, '.2~g')"
        speedups = alt.Axis(orient="right", labelExpr=label, title="speedup over the baseline", grid=False)
        right = alt.Y("y:Q", scale=scaled["scale"], axis=speedups if axis.metric == "time_ms" else None)
        rule = _rules(look, {"y": at, "line": "baseline"}).encode(y=right, **styled)
        chart = alt.layer(chart, rule).resolve_axis(y="independent")
    limits = run.info.limits_text()
    return _finished(_fitted(chart, look, 2.8), look, run, f"feasible: {limits}" * bool(limits))


# -- parameters ----------------------------------------------------------------------------------


def _parameters(run: Run, look: Look) -> Any:
    effects, r2 = _effects(run)
    what = "time" if run.objective.metric == "time_ms" else plain(run.objective.metric)
    cells = _pairs_table(effects, rows=16, columns=int(look.points / (20 * look.scale)))
    longest = max(map(len, [*effects["parameter"], *cells["value"]]))
    width = look.points - 0.55 * look.letters * min(longest, 24) - 10 * look.scale
    parts = [] if math.isnan(r2) else [_importance_part(effects, r2, look, width)]
    parts.append(_values_part(effects, look, what, width))
    if len(cells):
        parts.append(_pairs_part(cells, look, what))
    for letter, part in zip("abc", parts, strict=False):
        part.title.text[0] = f"({letter}) {part.title.text[0]}"
    trials = effects["trial"].nunique()
    left_out = len(run.trials) - trials
    remarks = [f"{left_out:,} left out" * (left_out > 0)]
    if math.isnan(r2):
        few = _counted(trials, "trial")
        remarks.append(f"too few trials to rank the parameters: {few}, at least {_LEAST_TRIALS} are needed")
    return _finished(alt.vconcat(*parts, spacing=10 * look.scale), look, run, *remarks)


def _effects(run: Run) -> tuple[pd.DataFrame, float]:
    """Return a table with a row for each trial and parameter, the most important first, and the R² of a forest.

    Columns: ``trial``, ``parameter``, ``value``, ``place`` (order of parameters and values), ``is_type`` (whether it is
    in the accuracy signature), ``relative`` (the objective relative to the best), ``loss`` (see :func:`_importance`)
    and its interval, ``low`` and ``high``. Parameters with one value are left out.
    """
    valid, described = _valid(run), run.parameters
    values = _metric_axis(run, run.objective.metric).values(run, valid)
    is_of_space = [all(trial.configuration.get(p.name) in p.values for p in described) for trial in valid]
    usable = (values > 0) & np.array(is_of_space)
    if not usable.any():
        raise PlotError(f"no trial has a positive {run.objective.metric}: there is nothing to compare")
    trials, values = [valid[i].configuration for i in np.flatnonzero(usable)], values[usable]
    relative = values / values.min() if run.objective.minimise else values.max() / values
    columns = {p: [p.values.index(found[p.name]) for found in trials] for p in described}
    codes = {parameter: column for parameter, column in columns.items() if len(set(column)) > 1}
    if not codes:
        raise PlotError(f"every parameter has one value in {_counted(len(trials), 'trial')}: nothing to compare")
    losses, r2 = np.zeros((len(codes), 1)), math.nan
    if len(trials) >= _LEAST_TRIALS:
        losses, r2 = _importance(np.array(list(codes.values()), dtype=np.float64).T, np.log(relative))
    mean, deviation = losses.mean(axis=1), losses.std(axis=1)
    parts = []
    for place, i in enumerate(np.argsort(-mean, kind="stable")):
        parameter, column = list(codes.items())[i]
        texts = list(map(_text, parameter.values))
        is_type = isinstance(parameter, PrecisionParameter | PolicyParameter) or parameter.name in run.info.signature
        cells = {"trial": range(len(trials)), "parameter": plain(parameter.name), "is_type": is_type}
        cells |= {"value": [texts[code] for code in column], "place": [place + code / len(texts) for code in column]}
        cells |= {"loss": mean[i], "low": mean[i] - deviation[i], "high": mean[i] + deviation[i]}
        parts.append(pd.DataFrame({**cells, "relative": relative}))
    return pd.concat(parts), r2


def _importance(features: Floats, target: Floats) -> tuple[Floats, float]:
    """Return the permutation importance (Breiman 2001) of each feature in a random forest, and the forest's R².

    The importance is the loss of R², shape ``(n_features, n_folds)``, in a cross-validation of at most 2,000 random
    trials.
    """
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.inspection import permutation_importance
    from sklearn.model_selection import KFold, cross_validate

    chosen = np.sort(np.random.default_rng(0).permutation(len(target))[:2000])
    x, y, folds = features[chosen], target[chosen], KFold(5, shuffle=True, random_state=0)
    found = cross_validate(RandomForestRegressor(40, random_state=0), x, y, cv=folds, return_estimator=True)
    losses = [
        permutation_importance(forest, x[unseen], y[unseen], n_repeats=3, random_state=0).importances_mean
        for forest, (_, unseen) in zip(found["estimator"], folds.split(x), strict=True)
    ]
    return np.array(losses).T, float(found["test_score"].mean())


def _titled(look: Look, *lines: str) -> Any:
    return alt.TitleParams(look.wrapped(*lines), anchor="start", frame="bounds", offset=4, fontSize=look.letters)


def _importance_part(effects: pd.DataFrame, r2: float, look: Look, width: float) -> Any:
    kinds = {True: "can change the result", False: "changes only speed"}
    ranked = effects.drop_duplicates("parameter")
    first = ranked[:20][["parameter", "loss", "low", "high"]].assign(kind=ranked["is_type"].map(kinds))
    base = _chart(look, "importance", first)
    base = base.encode(y=alt.Y("parameter:N", sort=None, title=None))
    bars = base.mark_bar(stroke=BLACK, strokeWidth=0.5).encode(
        x=alt.X("loss:Q", axis=alt.Axis(title="R² lost by the model without this parameter")),
        fill=_styled(alt.Fill, "kind", dict(zip(kinds.values(), (ORANGE, BLUE), strict=True))),
    )
    whiskers = base.mark_rule(strokeWidth=0.8 * look.scale).encode(x="low:Q", x2="high:Q")
    notes = [f"importance (forest: R² = {r2:.2f})"]
    notes += ["the forest explains too little: no ranking"] * (not r2 >= 0.3)
    notes += [f"{len(ranked) - 20} less important ones left out"] * (len(ranked) > 20)
    chart = alt.layer(bars, whiskers)
    return chart.properties(width=width, height=alt.Step(11 * look.scale), title=_titled(look, *notes))


def _values_part(effects: pd.DataFrame, look: Look, what: str, width: float) -> Any:
    columns, gap = 2 if look.width == "column" else 3, 8 * look.scale
    names = list(dict.fromkeys(effects["parameter"]))[: 2 * columns]
    groups = effects[effects["parameter"].isin(names)].groupby(["place", "parameter", "value"])["relative"]
    table = groups.quantile(np.array([0.0, 0.25, 0.5, 0.75, 0.95])).unstack()
    table = table.set_axis(["q0", "q25", "q50", "q75", "q95"], axis=1).reset_index()
    highest = max(1.05 * float(table["q95"].max()), 1.2)
    numbers = alt.Axis(title=f"{what} / best {what}", format="~g", tickCount=5)
    scale = alt.Scale(type="log", domain=[0.95, highest], nice=False)
    in_order = alt.EncodingSortField("place", op="min")
    values = alt.X("value:N", sort=in_order, title=None, axis=alt.Axis(labelOverlap=True))
    base = alt.Chart().encode(x=values)
    whisker = base.mark_rule(strokeWidth=look.scale).encode(y=alt.Y("q0:Q", scale=scale, axis=numbers), y2="q95:Q")
    box = base.mark_bar(fill="#D8E6F0", stroke=BLACK, strokeWidth=0.6).encode(y="q25:Q", y2="q75:Q")
    middle = base.mark_tick(color=VERMILLION, thickness=1.4 * look.scale).encode(y="q50:Q")
    layers = alt.layer(whisker, box, middle, data=_chart(look, "values", table).data)
    facets = layers.properties(width=(width - gap * (columns - 1)) / columns, height=62 * look.scale).facet(
        alt.Facet("parameter:N", sort=names, title=None), columns=columns, spacing=gap
    )
    title = _titled(look, "best, quartiles and 95% by value; orange: median")
    return facets.resolve_scale(x="independent").properties(title=title)


def _pairs_table(effects: pd.DataFrame, rows: int, columns: int) -> pd.DataFrame:
    """Return the best (``relative``) for each type (``value``) and value of another parameter (``setting``).

    ``is_best`` marks the best setting of a parameter in a row. Parameters beyond ``rows`` and ``columns`` are left out.
    If all or no parameters are types, the most important parameter takes the place of the types.
    """

    def fitting(part: pd.DataFrame, most: int) -> pd.DataFrame:
        counts = part.groupby("parameter", sort=False)["value"].nunique().cumsum()
        return part[part["parameter"].isin([*counts.index[:1], *counts.index[counts <= most]])]

    is_down = effects["is_type"]
    if is_down.all() or not is_down.any():
        is_down = effects["parameter"] == effects["parameter"].iloc[0]
    table = effects.assign(value=effects["parameter"] + " " + effects["value"])
    names = {"parameter": "other", "value": "setting", "place": "setting_place"}
    across = fitting(table[~is_down], columns)[["trial", *names]].rename(columns=names)
    both = fitting(table[is_down], rows)[["trial", "value", "place", "relative"]].merge(across)
    best = both.groupby(["place", "value", "setting_place", "setting", "other"])["relative"].min().reset_index()
    return best.assign(is_best=best["relative"] == best.groupby(["value", "other"])["relative"].transform("min"))


def _pairs_part(cells: pd.DataFrame, look: Look, what: str) -> Any:
    most = min(max(1.5, float(cells["relative"].max())), 10.0)
    cells = cells.assign(text=[f"{each:.0f}" if each >= 9.95 else f"{each:.1f}" for each in cells["relative"]])
    across = list(dict.fromkeys(cells.sort_values("setting_place")["setting"]))
    base = _chart(look, "pairs", cells).encode(
        x=alt.X("setting:N", sort=across, title=None, axis=alt.Axis(labelAngle=-90)),
        y=alt.Y("value:N", sort=list(dict.fromkeys(cells["value"])), title=None),
    )
    scale = alt.Scale(type="log", domain=[1, most], clamp=True, scheme="cividis", reverse=True)
    map_ = base.mark_rect().encode(fill=alt.Fill("relative:Q", scale=scale, legend=None))
    frame = base.mark_rect(fill=None, strokeWidth=1.1 * look.scale, stroke=VERMILLION).transform_filter("datum.is_best")
    colour = alt.condition(f"datum.relative > {most**0.55!r}", alt.value("white"), alt.value(BLACK))
    text = base.mark_text(fontSize=0.8 * look.letters).encode(text="text:N", color=colour)
    size = {"width": alt.Step(13 * look.scale), "height": alt.Step(11 * look.scale)}
    title = _titled(look, f"best {what} of each pair / best {what}", "framed: the best value in the row")
    return alt.layer(map_, frame, text).properties(**size, title=title)


# -- time, kernels and sensitivity ---------------------------------------------------------------


def _time(run: Run, look: Look) -> Any:
    total = {plain(phase): seconds for phase, seconds in spent_s(run).items()}
    if not total:
        raise PlotError("the run was recorded without durations")
    whole = sum(total.values())
    units = (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))
    unit, seconds = next((each for each in units if whole >= 2 * each[1]), units[-1])
    rows = [(phase, s / seconds, f"{s / seconds:.3g} {unit} ({s / whole:.0%})") for phase, s in total.items()]
    fill = _styled(alt.Fill, "phase", _coloured([*total]))
    fill.legend = None
    longest = alt.Scale(domain=[0, 1.4 * max(total.values()) / seconds], nice=False)
    base = _chart(look, "phases", pd.DataFrame(rows, columns=["phase", "spent", "text"])).encode(
        x=alt.X("spent:Q", title=f"wall time ({unit})", scale=longest), y=alt.Y("phase:N", sort=None, title=None)
    )
    bars = base.mark_bar(stroke=BLACK, strokeWidth=0.5).encode(fill=fill)
    texts = base.mark_text(align="left", dx=3, fontSize=look.letters).encode(text="text:N")
    width = look.points - 50 * look.scale
    parts = [alt.layer(bars, texts).properties(width=width, height=alt.Step(12 * look.scale))]
    along = _spent_along(run, list(total))
    if len(along):
        area = _chart(look, "along", along.assign(spent=along["seconds"] / seconds))
        area = area.mark_area(stroke="white", strokeWidth=0.5).encode(
            x=_trial_axis(run, look),
            y=alt.Y("spent:Q", stack=True, title=f"time in trials, added up ({unit})"),
            fill=fill,
            order="place:Q",
            tooltip="phase:N",
        )
        parts.append(area.properties(width=width, height=108 * look.taller))
    devices = run.state.workers
    chart = alt.vconcat(*parts, spacing=8 * look.scale)
    return _finished(chart, look, run, f"{devices} devices at a time" * (devices > 1))


def _spent_along(run: Run, phases: Sequence[str]) -> pd.DataFrame:
    """Return the cumulative seconds of each phase of the trials: ``trial``, ``phase``, ``seconds``, ``place``.

    Time outside trials (prepare, search) is left out. There are at most 300 steps.
    """
    each = pd.DataFrame([{}, *(trial.measurement.durations_s for trial in run.trials)]).rename(columns=plain)
    sums = each.reindex(columns=list(phases)).fillna(0.0).cumsum() / max(1, run.state.workers)
    sums = sums.loc[:, sums.iloc[-1] > 0]
    steps = np.unique(np.linspace(0, len(run.trials), min(len(run.trials), 300) + 1).astype(int))
    long = sums.iloc[steps].rename_axis("trial").reset_index().melt("trial", var_name="phase", value_name="seconds")
    return long.assign(place=long["phase"].map(list(phases).index))


def _kernels(run: Run, look: Look) -> Any:
    if not run.info.is_of_application:
        raise PlotError(f"{run.kernel or 'the run'} is a single kernel: there are no shares of kernels to draw")
    shown = {"baseline": baseline_of(run), "closest" if run.best is None else "winner": run.best or run.closest}
    rows = []
    for name, trial in shown.items():
        if trial is not None and (times := kernel_times(trial)):
            label = f"{name}, {sum(each.launches for each in times.values()):,} launches"
            parts = {**{plain(kernel): each.time_ms for kernel, each in times.items()}, HOST: host_ms(trial)}
            rows += [(label, kernel, ms) for kernel, ms in parts.items()]
    if not rows:
        raise PlotError("neither the baseline nor the winner has times of kernels")
    table = pd.DataFrame(rows, columns=["trial", "kernel", "ms"])
    groups = table.groupby("trial", sort=False)["ms"]
    table = table.assign(end=groups.cumsum(), share=table["ms"] / groups.transform("sum"))
    table = table.assign(start=table["end"] - table["ms"], middle=table["end"] - table["ms"] / 2)
    is_long = table["ms"] > 0.11 * table["end"].max()
    table["text"] = [f"{share:.0%}" * shown for share, shown in zip(table["share"], is_long, strict=True)]
    names = [name for name in dict.fromkeys(table["kernel"]) if name != HOST]
    base = _chart(look, "parts", table).encode(y=alt.Y("trial:N", sort=None, title=None))
    bars = base.mark_bar(stroke=BLACK, strokeWidth=0.5).encode(
        x=alt.X("start:Q", title="time of one run by kernel (ms)"),
        x2="end:Q",
        fill=_styled(alt.Fill, "kernel", {**_coloured(names), HOST: "white"}),
        tooltip=_tooltips("kernel", ms="ms", share="share"),
    )
    texts = base.mark_text(fontSize=look.letters).encode(x="middle:Q", text="text:N")
    size = {"width": look.points - 80 * look.scale, "height": alt.Step(24 * look.scale)}
    return _finished(alt.layer(bars, texts).properties(**size), look, run)


def _sensitivity(run: Run, look: Look) -> Any:
    found = explanation_of(run)
    if not any(change.outcome.trial for change in found.changes):
        why = "none of the winner's neighbours was measured" if found.changes else found.sentences[0]
        raise PlotError(f"no sensitivity can be drawn: {why[:1].lower()}{why[1:]}")
    table = pd.DataFrame(map(_change_row, found.changes))
    base = _chart(look, "changes", table)
    bare = {"grid": False, "domain": False, "ticks": False}
    labels, rows = (
        alt.Y("change:N", sort=None, title=None, axis=alt.Axis(labels=is_left, **bare)) for is_left in (True, False)
    )
    fill = _styled(alt.Fill, "what", {"restored": BLUE, "narrowed": YELLOW})

    def half(column: str, title: str, text: str, middle: float, at: float, y: Any, scale: Any, *more: Any) -> Any:
        bars = base.transform_filter(f"isValid(datum.{column})").transform_calculate(start=str(at))
        bars = bars.mark_bar(stroke=BLACK, strokeWidth=0.5)
        x = alt.X(f"{column}:Q", title=title, scale=scale, axis=alt.Axis(format="~g", tickCount=8, labelSeparation=4))
        zero = _rules(look, {"at": at}, width=0.8, color=BLACK).encode(x=alt.X("at:Q", scale=scale))
        words = base.encode(x=alt.datum(middle), y=y, text=f"{text}:N")
        halo = words.mark_text(fontSize=look.letters, stroke="white", strokeWidth=0.5 * look.letters)
        layers = (bars.encode(x=x, x2="start:Q", y=y, fill=fill), *more, zero, halo)
        return alt.layer(*layers, words.mark_text(fontSize=look.letters)).properties(**size)

    known = [each for name in ("speed", "low", "high") for each in table[name] if not math.isnan(each)]
    ends = [min([1.0, *known]) / 1.1, max([1.0, *known]) * 1.1]
    speeds = alt.Scale(type="log", domain=ends, nice=False)
    letters = min(max(map(len, table["change"])), int(0.45 * look.points / (0.55 * look.letters)))
    width = (look.points - 0.55 * look.letters * letters - 20 * look.scale) / 2
    size = {"width": width, "height": alt.Step(11 * look.scale)}
    limits = []
    if math.isfinite(spare := found.digits_spare):
        colour = _styled(alt.Color, "line", {"error limit": VERMILLION}, symbolType="stroke", symbolSize=150)
        limits.append(_rules(look, {"at": -spare, "line": "error limit"}, width=1.4).encode(x="at:Q", color=colour))
    intervals = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=look.scale)
    intervals = intervals.encode(x=alt.X("low:Q", scale=speeds), x2="high:Q", y=rows)
    left = half("digits", "decimal digits gained", "remark", 0.0, 0.0, labels, alt.Scale(), *limits)
    centre = math.sqrt(ends[0] * ends[1])
    right = half("speed", "speed (winner: 1)", "why", centre, 1.0, rows, speeds, intervals)
    missing = f"{_counted(found.missing, 'change')} not measured" * bool(found.missing)
    subject = "the winner" if found.subject == "best" else "the closest trial, not feasible"
    chart = alt.hconcat(left, right, spacing=8)
    return _finished(chart, look, run, f"one type of {subject} changed at a time", missing)


def _change_row(change: Change) -> dict[str, Any]:
    """Return a change of one type: ``change``, ``what``, ``digits``, ``speed`` and its interval, ``low`` to ``high``.

    ``remark`` replaces digits that are not finite, ``why`` an unknown speed or one beyond the axis.
    """
    outcome = change.outcome
    speed, digits = outcome.speed, outcome.digits
    low, high = outcome.interval or (math.nan, math.nan)
    if outcome.trial is None:
        why = "not allowed" if change.broken else "not measured"
    elif math.isnan(speed):
        why = "not timed" if outcome.trial.is_valid else outcome.trial.status.value.replace("_", " ")
    else:
        why = "" if _SLOWEST <= speed <= _FASTEST else f"{speed:.2g}"
    buffers = f" of {few_names(change.buffers, 1)}" * bool(change.buffers)
    exact = "exact" if digits > 0 else "not exact"
    numbers = {"speed": speed, "low": low, "high": high}
    return {
        "change": plain(f"{change.parameter}{buffers}: {_text(change.before)} → {_text(change.after)}"),
        "what": "restored" if change.is_restored else "narrowed",
        "digits": digits,
        "remark": exact if math.isinf(digits) else "0" if abs(digits) < 0.05 else "",
        "why": why,
        **{name: min(max(value, _SLOWEST), _FASTEST) for name, value in numbers.items()},
    }


# -- pictures of an application's answer ---------------------------------------------------------


def map_of(values: ArrayLike, label: str, *, scheme: str, domain: Sequence[float], log: bool = False) -> Any:
    """Return a heat map of a two-dimensional array, with the first row at the bottom and NaN blank.

    Args:
        values: shape ``(rows, columns)``; above 128 a side, blocks are averaged.
        label: name and unit of the values.
        scheme: a colour scheme of Vega.
        domain: smallest and largest value, with the middle between them for a diverging scheme.
        log: whether colours follow the logarithm.
    """
    cells = np.asarray(values, dtype=np.float64)
    side = max(1, -(-max(cells.shape) // _CELLS))
    row, column = np.indices(cells.shape) // side * side
    table = pd.DataFrame({"x": column.ravel(), "y": row.ravel(), "value": cells.ravel()})
    table = table[np.isfinite(table["value"])].groupby(["y", "x"])["value"].mean().round(7).reset_index()
    rows, columns = (-(-length // side) for length in cells.shape)
    size = max(1, 300 // max(rows, columns))
    middle = {"domainMid": domain[len(domain) // 2]} if len(domain) > 2 else {}
    colour = alt.Scale(scheme=scheme, domain=list(domain), clamp=True, type="log" if log else "linear", **middle)
    drawn = alt.Chart(alt.InlineData(values=table.to_dict("records"))).mark_rect()
    places = {"x": alt.X("x:O", axis=None), "y": alt.Y("y:O", axis=None, sort="descending")}
    drawn = drawn.encode(**places, fill=alt.Fill("value:Q", scale=colour, title=label))
    return drawn.properties(width=columns * size, height=rows * size)


_DRAW: Final[Mapping[str, Callable[[Run, Look], Any]]] = {
    "pareto": _pareto,
    "progress": _progress,
    "parameters": _parameters,
    "time": _time,
    "sensitivity": _sensitivity,
    "kernels": _kernels,
}
#: Kinds of charts for applications only, and for any run.
APPLICATION_KINDS: Final = ("kernels", "answer")
KINDS: Final = tuple(kind for kind in _DRAW if kind not in APPLICATION_KINDS)
