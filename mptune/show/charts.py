"""Charts of a run: each kind is a specification in Vega-Altair of a table of :mod:`mptune.show.tables`.

Colours are those of Okabe and Ito 2008, which the common kinds of colour blindness leave distinct; markers and dashes
tell the same things apart without colours.
"""

from __future__ import annotations

import dataclasses
import json
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike

from mptune.errors import PlotError, UnknownNameError
from mptune.interop import read_run
from mptune.kernel import Tunable
from mptune.markup import plain
from mptune.results.description import spent_s
from mptune.results.unseen import unequal_draws
from mptune.run import Run, json_document
from mptune.show import tables
from mptune.show.tables import MetricAxis, baseline_of, counted, judges, metric_axis, valid_trials
from mptune.space.parameters import uniform_types
from mptune.tuning.explain import explanation_of

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

__all__ = ["APPLICATION_KINDS", "KINDS", "WIDTHS", "Look", "altair", "chart_of", "finished", "fronts", "map_of", "plot"]

BLACK, BLUE, SKY, GREEN = "#000000", "#0072B2", "#56B4E9", "#009E73"
YELLOW, ORANGE, VERMILLION, PURPLE = "#F0E442", "#E69F00", "#D55E00", "#CC79A7"
_GREY: Final = "#909090"
_SAND: Final = "#A08F66"
_PALETTE: Final = (BLUE, ORANGE, GREEN, SKY, YELLOW, PURPLE, VERMILLION, "#882255", "#332288", "#999933")
_CROSS: Final = "M-.7,-.7L.7,.7M-.7,.7L.7,-.7"
_STAR: Final = "M0,-1L.24,-.32L.95,-.31L.38,.12L.59,.81L0,.4L-.59,.81L-.38,.12L-.95,-.31L-.24,-.32Z"
#: Shape, fill, stroke and area in square points of the marks of trials; those that are not marked out come first.
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
_SOLID: Final = (1, 0)
_DASHED: Final = (4, 2)
_DOTTED: Final = (1, 1.5)
_DASH_DOTTED: Final = (6, 2, 1, 2)
#: Width in points and size of letters; 72 points are an inch, and a journal's column 3.5 inches wide.
WIDTHS: Final = {"column": (252, 7), "page": (516, 7), "screen": (640, 11)}
#: Variables by which a page marks one trial in a chart, and leaves out others.
CHOSEN, SHOWN, BRUSH = "chosen", "shown", "brush"


@dataclass(frozen=True, slots=True)
class Look:
    """How large a chart is, whether it has a title, and whether a page can choose trials in it."""

    width: str = "column"
    title: bool = True
    is_linked: bool = False
    #: The data of the chart, by name; the chart refers to them, since Vega-Altair copies what is part of it.
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if self.width not in WIDTHS:
            raise UnknownNameError("width of a plot", self.width, WIDTHS)

    @property
    def points(self) -> int:
        """Width in points."""
        return WIDTHS[self.width][0]

    @property
    def letters(self) -> int:
        """Size of letters in points."""
        return WIDTHS[self.width][1]

    @property
    def scale(self) -> float:
        """How many times as large as in a journal letters and marks are."""
        return self.letters / 7

    def wrapped(self, *texts: str) -> list[str]:
        """Return the lines of texts, as many letters as fit the width."""
        letters = int(1.75 * self.points / self.letters)
        return [line for text in texts for line in textwrap.wrap(plain(text), letters, break_long_words=True)]


def altair() -> Any:
    """Return Vega-Altair.

    Raises:
        PlotError: it is not installed.
    """
    try:
        import altair
    except ImportError as error:
        how = 'pip install "mptune[plots]", or in a checkout pip install -e ".[plots]"'
        raise PlotError(f"plots need altair: {how}") from error
    return altair


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
    """Draw a run as a chart of Vega-Altair, which notebooks show and :func:`mptune.show.save` writes.

    Args:
        run: a run, or the file of a run or of a recorded space.
        kind: ``pareto``: every configuration and the front in two metrics. ``progress``: the best so far over the
            evaluations. ``parameters``: which parameter matters, and how. ``time``: where the time of tuning went.
            ``sensitivity``: what each type of the winner costs and gains when it alone is changed. ``kernels``: where
            the time of an application's runs goes, by kernel. ``answer``: runs an application, the winner and the
            widest types, and draws the picture that its file makes of the answers.
        metrics: of ``pareto``, the vertical axis and the horizontal one; speedup (for another objective than time:
            the objective) and error where it is empty. Any metric of the trials, ``speedup``, or the objective.
        max_error: a threshold instead of the run's own.
        width: "column" (3.5 inches) or "page" (7.16 inches), the widths of a journal of two columns, or "screen" (640
            points, larger letters).
        title: whether kernel, device and number of configurations stand above.
        kernel: of ``answer``, the application, unless it is a bundled one: that itself, a definition file or the folder
            that holds it. The path in a run file is never opened.

    Raises:
        UnknownNameError: no such kind, width or metric.
        PlotError: the run has nothing this kind could show, or altair is not installed.
        RunFileError, SpaceFileError: the file cannot be read.
    """
    if kind not in (*KINDS, *APPLICATION_KINDS):
        raise UnknownNameError("kind of plot", kind, (*KINDS, *APPLICATION_KINDS))
    if metrics and kind != "pareto":
        raise PlotError(f"metrics are chosen for a pareto plot, not for {kind}")
    if kernel is not None and kind != "answer":
        raise PlotError(f"a definition is run for a picture of the answer, not for {kind}")
    look = Look(width, title)
    shown = run if isinstance(run, Run) else read_run(run)
    if max_error is not None:
        if shown.trials and not any(name.split(".")[0] == "error" for name in shown.metric_names):
            names = ", ".join(shown.metric_names) or "none"
            raise PlotError(f"no trial has an error, so none can be judged by --max-error (metrics: {names})")
        threshold = shown.objective_within(max_error).threshold
        objective = dataclasses.replace(shown.info.objective, threshold=threshold)
        info = dataclasses.replace(shown.info, objective=objective)
        shown = Run(info, shown.trials, shown.state)
    if kind == "answer":
        from mptune.show.answer import draw  # applications take longer to import than all charts

        return draw(shown, kernel, look)
    return chart_of(shown, kind, look, metrics)


def chart_of(run: Run, kind: str, look: Look, metrics: Sequence[str] = ()) -> alt.TopLevelMixin:
    """Return a chart that runs nothing, as :func:`plot` does."""
    altair()
    if not run.trials:
        raise PlotError(f"the run of {run.kernel or 'no kernel'} has no trial yet: there is nothing to draw")
    return pareto(run, look, metrics) if kind == "pareto" else _DRAW[kind](run, look)


# -- data, title and size ------------------------------------------------------------------------


def _data(look: Look, name: str, table: pd.DataFrame) -> alt.NamedData:
    """Keep a table for the chart, and return its name; what is not finite is null."""
    look.tables[name] = json_document({"rows": table.astype(object).to_dict("records")})["rows"]
    return altair().NamedData(name)


def _chart(look: Look, name: str, table: pd.DataFrame) -> Any:
    return altair().Chart(_data(look, name, table))


def _rules(look: Look, *rows: Mapping[str, Any], width: float = 1.2, **style: Any) -> Any:
    """Return rules at a few values."""
    chart = altair().Chart(altair().InlineData(values=list(rows)))
    return chart.mark_rule(strokeWidth=width * look.scale, **style)


def finished(chart: Any, look: Look, title: str) -> Any:
    """Return a chart with its title above it, and its letters, lines and grid."""
    small, line, columns = look.letters, 0.6 * look.scale, {"column": 2, "page": 4, "screen": 3}[look.width]
    if look.title and title:
        chart = chart.properties(title=look.wrapped(title))
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
    """Return a chart whose whole width, labels included, is that of the look, as high as that in a journal's column."""
    height = inches * 72 * (1.35 if look.width != "column" else 1)
    autosize = altair().AutoSizeParams(type="fit", contains="padding")
    return chart.properties(width=look.points, height=height, autosize=autosize)


def _title_of(run: Run, *remarks: str) -> str:
    whose = f"{run.kernel} on {run.info.device}" if run.info.device else run.kernel
    return "; ".join((f"{whose}: {counted(len(run.trials), 'configuration')}", *filter(None, remarks)))


# -- axes ----------------------------------------------------------------------------------------


def _trial_axis(run: Run, look: Look, last: int) -> Any:
    label = "configurations in the order of the recording" if run.info.recorded else "evaluations"
    al = altair()
    ticks = al.Axis(tickMinStep=1, tickCount=look.points // 60, format=",d", title=label, grid=False)
    return al.X("trial:Q", scale=al.Scale(domain=[0, last + 1], nice=False), axis=ticks)


def _log_ticks(low: float, high: float) -> list[float]:
    """Return up to about seven ticks of a logarithmic axis: the wider it is, the fewer a decade has."""
    steps = next((each for factor, each in _TICKS if high <= factor * low), (1.0,))
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    apart = -(-len(decades) // 7) if steps == (1.0,) else 1
    ticks = [float(f"{step:g}e{decade}") for decade in decades if decade % apart == 0 for step in steps]
    return [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]


#: Up to which factor between the ends of an axis a decade has which ticks.
_TICKS: Final = (
    (3.0, (1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)),
    (12.0, (1.0, 2.0, 3.0, 5.0)),
    (600.0, (1.0, 2.0, 5.0)),
)


def _scaled(axis: MetricAxis, values: Sequence[float], above: float = 0.0) -> dict[str, Any]:
    """Return the scale and the axis of a metric; ``above`` is the share of the height to leave free at the top.

    Errors are on a logarithmic scale, where 0 stands left of the smallest; other numbers are where they differ by more
    than a factor of ten, except speedups.
    """
    al = altair()
    known = np.array([value for value in values if math.isfinite(value)])
    positive = known[known > 0]
    is_wide = axis.is_error or (axis.metric != "speedup" and positive.size and positive.max() > 10 * positive.min())
    if not positive.size or (known < 0).any() or not is_wide:
        low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
        room = 0.06 * ((high - low) or abs(high) or 1.0)
        domain = [max(0.0, low - room) if low >= 0 else low - room, high + room + above * (high - low + 2 * room)]
        return {
            "scale": al.Scale(domain=domain, nice=False, zero=False),
            "axis": al.Axis(title=axis.label, format=".6~g"),
        }
    low, high = float(positive.min()), float(positive.max())
    margin = max((high / low) ** 0.05, 1.15)
    ends = [low / margin, high * margin ** (1 + above * 20)]
    form = "~e" if axis.is_error or low < 1e-4 or high > 1e6 else "~g"
    if (known == 0).any():
        least = 10.0 ** (math.floor(math.log10(low)) - 1)
        scale = al.Scale(type="symlog", constant=least, domain=[-0.5 * least, ends[1]], nice=False)
        ticks = [0.0, *_log_ticks(10 * least, ends[1])]
        label = f"datum.value == 0 ? '0' : format(datum.value, '{form}')"
        return {"scale": scale, "axis": al.Axis(title=axis.label, values=ticks, labelExpr=label)}
    scale = al.Scale(type="log", domain=ends, nice=False)
    return {"scale": scale, "axis": al.Axis(title=axis.label, values=_log_ticks(*ends), format=form)}


# -- marks, lines and tooltips -------------------------------------------------------------------


def _styled(channel: Any, column: str, styles: Mapping[str, Any], **legend: Any) -> Any:
    """Return an encoding that draws each name of a column in its style, with a legend."""
    al = altair()
    scale = al.Scale(domain=list(styles), range=list(styles.values()))
    return channel(f"{column}:N", scale=scale, legend=al.Legend(title=None, **legend))


def _coloured(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each of some names."""
    return {name: _PALETTE[i % len(_PALETTE)] for i, name in enumerate(names)}


def _marks(table: pd.DataFrame, look: Look, count: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a table with the sizes of its points, and the encodings of points by ``what``; many are smaller."""
    al = altair()
    found = [name for name in _MARKS if name in set(table["what"])]
    shrunk = min(1.0, max(0.2, (500 / max(count, 1)) ** 0.5))
    area = {n: _MARKS[n][3] * look.scale**2 * (shrunk if n in list(_MARKS)[:4] else 1.0) for n in found}
    encodings = {
        name: _styled(channel, "what", {each: _MARKS[each][i] for each in found}, symbolSize=30 * look.scale**2)
        for i, (name, channel) in enumerate((("shape", al.Shape), ("fill", al.Fill), ("stroke", al.Stroke)))
    }
    return table.assign(size=table["what"].map(area)), {**encodings, "size": al.Size("size:Q", scale=None)}


def _lines(styles: Mapping[str, tuple[str, Sequence[float]]]) -> dict[str, Any]:
    """Return the encodings of lines by ``line``, a colour and dashes for each."""
    al, legend = altair(), {"symbolType": "stroke", "symbolSize": 150, "columns": 1}
    return {
        "color": _styled(al.Color, "line", {name: colour for name, (colour, _) in styles.items()}, **legend),
        "strokeDash": _styled(
            al.StrokeDash, "line", {name: list(dash) for name, (_, dash) in styles.items()}, **legend
        ),
    }


def _told(*columns: str, **numbers: str) -> list[Any]:
    """Return a tooltip: texts, and numbers by their column with a title."""
    al = altair()
    texts = [al.Tooltip(f"{name}:{'Q' if name == 'trial' else 'N'}") for name in columns]
    return texts + [al.Tooltip(f"{name}:Q", title=title, format=".4~g") for name, title in numbers.items()]


def _linked(points: Any, look: Look, *, is_brushed: bool = True) -> Any:
    """Return points in which a page can choose trials: others are faint, a ring is around one, and areas are drawn."""
    if not look.is_linked:
        return points
    al = altair()
    shown = f"{SHOWN} == null || {SHOWN}[datum.trial]"
    faint = points.encode(opacity=al.condition(shown, al.value(1), al.value(0.12)))
    ring = points.transform_filter(f"datum.trial == {CHOSEN}").encode(
        shape=al.value("circle"), size=al.value(260), fill=al.value("transparent"), stroke=al.value(VERMILLION)
    )
    brush = [al.selection_interval(name=BRUSH, encodings=["x", "y"])] if is_brushed else []
    return al.layer(faint.add_params(*brush), ring).add_params(al.param(CHOSEN, value=0), al.param(SHOWN, value=None))


# -- pareto --------------------------------------------------------------------------------------


def pareto(run: Run, look: Look, metrics: Sequence[str] = ()) -> Any:
    """Draw every configuration, the front, threshold, baseline and winner, and where each precision alone would be.

    Without metrics, the vertical axis is speedup or the objective, the horizontal one error.
    """
    al = altair()
    metrics = metrics or _default_metrics(run)
    if len(metrics) != 2:
        raise PlotError(f"a plot has two axes, so two metrics, not {len(metrics)}: {', '.join(metrics)}")
    y, x = (metric_axis(run, name) for name in metrics)
    front = run.pareto((y.metric, x.metric))
    valid = valid_trials(run)
    everything = tables.trials_table(run, y, x)
    points = everything[(everything["what"] != "failed") & everything["x"].notna() & everything["y"].notna()]
    if points.empty:
        raise PlotError(f"no trial has a finite {x.metric} and a finite {y.metric}, so there is nothing to draw")
    table, on_front = _with_roles(run, points, front)
    table, marks = _marks(table, look, len(points))
    axes = {"x": x, "y": y}
    limits = {name: run.objective.limits[a.metric] for name, a in axes.items() if a.metric in run.objective.limits}
    scales = {
        name: _scaled(a, [*points[name], *([limits[name]] if name in limits else [])]) for name, a in axes.items()
    }
    at = {"x": al.X("x:Q", **scales["x"]), "y": al.Y("y:Q", **scales["y"])}
    texts = {}
    for name, limit in limits.items():
        metric = axes[name].metric
        texts[name] = plain(f"threshold {limit:g}" if metric == "error" else f"threshold {metric} {limit:g}")
    styled = _lines({"front": (BLACK, _SOLID)} | dict.fromkeys(texts.values(), (VERMILLION, _DASHED)))
    step = "step-before" if x.metric in run.more_is_better else "step-after"
    line = _chart(look, "front", on_front).mark_line(interpolate=step, strokeWidth=1.1 * look.scale)
    layers = [line.encode(**at, order="step:Q", **styled)]
    for name, text in texts.items():
        layers.append(_rules(look, {name: limits[name], "line": text}).encode(**{name: at[name]}, **styled))
    drawn = _chart(look, "points", table).mark_point(strokeWidth=0.6 * look.scale, opacity=1)
    told = _told("trial", "configuration", "what", x=x.label, y=y.label)
    chart = al.layer(*layers, _linked(drawn.encode(**at, **marks, tooltip=told), look))
    levels = tables.uniform_errors(run) if "error" in metrics else {}
    if levels:
        name = "x" if x.metric == "error" else "y"
        beside = _levels(levels, name, scales[name]["scale"], look)
        chart = al.layer(beside, chart).resolve_axis(**{name: "independent"})
    failed = len(run.failures)
    without = len(run.trials) - failed - len(points)
    remarks = [f"{failed:,} failed" * (failed > 0), f"{without:,} without finite numbers" * (without > 0)]
    remarks.append(unequal_draws((x.metric, y.metric), valid))
    return finished(_fitted(chart, look, 3.2), look, _title_of(run, *remarks))


def _default_metrics(run: Run) -> tuple[str, str]:
    if not any(math.isfinite(trial.error) for trial in valid_trials(run)):
        names = ", ".join(run.metric_names)
        raise PlotError(f"no trial has a finite error to draw: choose two of the other metrics (--metrics): {names}")
    objective = run.objective.metric
    if objective not in ("time_ms", "error"):
        return objective, "error"
    return ("time_ms" if baseline_of(run) is None else "speedup"), "error"


def _with_roles(run: Run, points: pd.DataFrame, front: Sequence[Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the trials with rows for front, baseline and winner behind them, and the front's steps."""
    import pandas as pd

    numbers = {trial.configuration: number for number, trial in enumerate(run.trials, 1)}
    kinds = list(uniform_types(run.parameters).values())

    def role(trial: Any) -> str:
        if not kinds:
            return "front"
        is_uniform = any(all(trial.configuration.get(n) == v for n, v in types.items()) for types in kinds)
        return "front, one type" if is_uniform else "front, mixed types"

    baseline = baseline_of(run)
    marked = [(trial, role(trial)) for trial in front]
    if baseline is not None:
        marked.append((baseline, "baseline"))
    if judges(run) or baseline is not None:
        marked += [(trial, "tied") for trial in run.contenders[1:]]
        winner = run.best or run.closest
        marked += [(winner, "winner" if run.best is not None else "closest")] if winner is not None else []
    roles = [(numbers[trial.configuration], name) for trial, name in marked]
    others = pd.DataFrame(roles, columns=["trial", "what"]).merge(points.drop(columns="what"), on="trial")
    steps = others[others["what"].str.startswith("front")].sort_values(["x", "y"])
    return pd.concat([points, others]), steps.assign(step=range(len(steps)), line="front")


def _levels(levels: Mapping[str, float], name: str, scale: Any, look: Look) -> Any:
    """Draw a dotted line at the error of each precision, named along an axis of its own at the other side."""
    al = altair()
    groups: dict[float, list[str]] = {}
    for type_, level in sorted(levels.items(), key=lambda item: item[1]):
        # Labels that are closer than half a decade would overlap.
        last = next(reversed(groups), 0.0)
        groups.setdefault(last if level and last and level / last < 10**0.4 else level, []).append(type_)
    labels = [plain(", ".join(types)) for types in groups.values()]
    texts = f"{json.dumps(labels)}[indexof({json.dumps(list(groups))}, datum.value)]"
    axis = al.Axis(
        orient="top" if name == "x" else "right", values=list(groups), labelExpr=texts, title=None, grid=False,
        domain=False, labelAngle=-90 if name == "x" else 0, labelOverlap=False, labelPadding=1,
    )  # fmt: skip
    at = (al.X if name == "x" else al.Y)("level:Q", scale=scale, axis=axis)
    rules = _rules(look, *({"level": level} for level in groups), width=0.7, color="#606060", strokeDash=list(_DOTTED))
    return rules.encode(**{name: at})


def fronts(runs: Mapping[str, Run], look: Look) -> Any:
    """Draw the fronts of several runs, by name, in speedup and error, or in time where a run has no baseline."""
    import pandas as pd

    al = altair()
    y_name = "speedup" if all(baseline_of(run) is not None for run in runs.values()) else "time_ms"
    table = pd.DataFrame(
        [
            (name, trial.error, run.metric_of(trial, y_name), plain(str(trial.configuration)))
            for name, run in runs.items()
            if {"time_ms", "error"} <= set(run.metric_names)
            for trial in run.pareto((y_name, "error"))
        ],
        columns=["run", "x", "y", "configuration"],
    )
    if table.empty:
        raise PlotError("no run has a front")
    x, y = MetricAxis("error", "error"), metric_axis(next(iter(runs.values())), y_name)
    names = list(dict.fromkeys(table["run"]))
    shapes = ["circle", "square", "diamond", "triangle-up", "cross", "triangle-down"]
    base = _chart(look, "fronts", table).encode(
        x=al.X("x:Q", **_scaled(x, list(table["x"]))),
        y=al.Y("y:Q", **_scaled(y, list(table["y"]))),
        color=_styled(al.Color, "run", _coloured(names)),
    )
    points = base.mark_point(filled=True, opacity=1, size=24 * look.scale**2).encode(
        shape=_styled(al.Shape, "run", {name: shapes[i % len(shapes)] for i, name in enumerate(names)}),
        tooltip=_told("run", "configuration", x=x.label, y=y.label),
    )
    chart = al.layer(base.mark_line(interpolate="step-after", strokeWidth=look.scale), points)
    return finished(_fitted(chart, look, 2.8), look, "")


# -- progress ------------------------------------------------------------------------------------


def progress(run: Run, look: Look) -> Any:
    """Draw the objective of each trial in the order of evaluation, the best feasible so far, and the baseline."""
    al = altair()
    valid_trials(run)
    axis, baseline, row_height = metric_axis(run, run.objective.metric), baseline_of(run), 0.06
    table = tables.trials_table(run, axis)
    at_top = table["y"].isna() | (table["what"] == "failed")
    table.loc[at_top & (table["what"] != "failed"), "what"] = "infeasible, not timed"
    rows = [name for name in ("infeasible, not timed", "failed") if (at_top & (table["what"] == name)).any()]
    scaled = _scaled(axis, list(table["y"][~at_top]), above=row_height * len(rows))
    x, y = _trial_axis(run, look, len(table)), al.Y("y:Q", **scaled)
    table, marks = _marks(table, look, len(table))

    def points(name: str, part: pd.DataFrame, height: Any, **numbers: str) -> Any:
        drawn = _chart(look, name, part).mark_point(strokeWidth=0.6 * look.scale, opacity=1)
        return drawn.encode(x=x, y=height, **marks, tooltip=_told("trial", "configuration", "ended", **numbers))

    layers = [_linked(points("points", table[~at_top], y, y=axis.label), look, is_brushed=False)]
    # Trials without a number stand in rows above the others.
    for row, name in enumerate(rows):
        height = al.value(al.expr(f"height * {row_height * (row + 0.5)}"))
        layers.append(points(name, table[at_top & (table["what"] == name)], height))
    feasible = table["y"].where(table["what"].isin(["feasible", "configuration"]))
    best = (feasible.cummin() if run.objective.minimise else feasible.cummax()).ffill()
    is_step = best.notna() & (best.ne(best.shift()) | (best.index == best.index[-1]))
    steps = table[["trial"]].assign(y=best, line="best so far")[is_step]
    styled = _lines({"best so far": (BLACK, _SOLID)} | ({"baseline": (GREEN, _DASH_DOTTED)} if baseline else {}))
    line = _chart(look, "best", steps).mark_line(interpolate="step-after", strokeWidth=1.3 * look.scale)
    layers.append(line.encode(x=x, y=y, **styled))
    chart = al.layer(*layers)
    if baseline is not None:
        at = float(axis.values(run, [baseline])[0])
        rule = _rules(look, {"y": at, "line": "baseline"}).encode(y=_speedup_axis(axis, scaled, at), **styled)
        chart = al.layer(chart, rule).resolve_axis(y="independent")
    limits = run.info.limits_text()
    return finished(_fitted(chart, look, 2.8), look, _title_of(run, f"feasible: {limits}" * bool(limits)))


def _speedup_axis(axis: MetricAxis, scaled: Mapping[str, Any], baseline: float) -> Any:
    """Return the vertical axis with the speedups that belong to the times on the other side; of times alone."""
    al = altair()
    if axis.metric != "time_ms" or not baseline > 0:
        return al.Y("y:Q", scale=scaled["scale"], axis=None)
    low, high = (max(end, 1e-300) for end in scaled["scale"].domain)
    times = [baseline / speedup for speedup in _log_ticks(baseline / high, baseline / max(low, high / 1e3))]
    label = f"format({baseline!r} / datum.value, '.3~g')"
    right = al.Axis(orient="right", values=times, labelExpr=label, title="speedup over the baseline", grid=False)
    return al.Y("y:Q", scale=scaled["scale"], axis=right)


# -- parameters ----------------------------------------------------------------------------------


def parameters(run: Run, look: Look) -> Any:
    """Draw the importance of every parameter, the times of each value, and the best of each type with each value."""
    effects = tables.effects_of(run)
    al = altair()
    what = "time" if run.objective.metric == "time_ms" else plain(run.objective.metric)
    room = {"column": (12, 12), "page": (16, 26), "screen": (16, 20)}[look.width]
    cells = tables.pairs_table(effects.table, *room)
    longest = max(map(len, [*effects.table["parameter"], *cells["value"]]))
    width = look.points - 0.55 * look.letters * min(longest, 24) - 10 * look.scale
    parts = [_importance(effects, look, width)] if effects.losses else []
    parts.append(_spread(effects, look, what, width))
    if len(cells):
        parts.append(_pairs(cells, look, what))
    for letter, part in zip("abc", parts, strict=False):
        part.title.text[0] = f"({letter}) {part.title.text[0]}"
    left_out = len(run.trials) - effects.trials
    remarks = [f"{left_out:,} left out" * (left_out > 0)]
    if not effects.losses:
        few = counted(effects.trials, "trial")
        remarks.append(f"too few trials to rank the parameters: {few}, at least {tables.LEAST_TRIALS} are needed")
    return finished(al.vconcat(*parts, spacing=10 * look.scale), look, _title_of(run, *remarks))


def _part(look: Look, *lines: str) -> Any:
    return altair().TitleParams(look.wrapped(*lines), anchor="start", frame="bounds", offset=4, fontSize=look.letters)


def _importance(effects: tables.Effects, look: Look, width: float) -> Any:
    import pandas as pd

    al = altair()
    kinds = {True: "can change the result", False: "changes only speed"}
    firsts = effects.table.drop_duplicates("parameter")[:20]
    rows = [
        (plain(name), mean, mean - deviation, mean + deviation, kinds[is_type])
        for name, is_type in zip(firsts["parameter"], firsts["is_type"], strict=True)
        for mean, deviation in [effects.losses[name]]
    ]
    base = _chart(look, "importance", pd.DataFrame(rows, columns=["parameter", "loss", "low", "high", "kind"]))
    base = base.encode(y=al.Y("parameter:N", sort=None, title=None))
    bars = base.mark_bar(stroke=BLACK, strokeWidth=0.5).encode(
        x=al.X("loss:Q", axis=al.Axis(title="R² lost by the model without this parameter")),
        fill=_styled(al.Fill, "kind", dict(zip(kinds.values(), (ORANGE, BLUE), strict=True))),
    )
    whiskers = base.mark_rule(strokeWidth=0.8 * look.scale).encode(x="low:Q", x2="high:Q")
    notes = [f"importance (forest: R² = {effects.r2:.2f})"]
    notes += [] if effects.r2 >= tables.TRUSTED else ["the forest explains too little: no ranking"]
    more = len(effects.losses) - len(rows)
    notes += [f"{more} less important ones left out"] if more > 0 else []
    chart = al.layer(bars, whiskers)
    return chart.properties(width=width, height=al.Step(11 * look.scale), title=_part(look, *notes))


def _spread(effects: tables.Effects, look: Look, what: str, width: float) -> Any:
    al = altair()
    columns = 2 if look.width == "column" else 3
    table = tables.values_table(effects.table, 2 * columns)
    highest = max(1.05 * float(table["q95"].max()), 1.2)
    numbers = al.Axis(title=f"{what} / best {what}", values=_log_ticks(1.0, highest), format="~g")
    scale = al.Scale(type="log", domain=[0.95, highest], nice=False)
    in_order = al.EncodingSortField("place", op="min")
    values = al.X("value:N", sort=in_order, title=None, axis=al.Axis(labelOverlap=True))
    base = al.Chart().encode(x=values)
    whisker = base.mark_rule(strokeWidth=look.scale).encode(y=al.Y("q0:Q", scale=scale, axis=numbers), y2="q95:Q")
    box = base.mark_bar(fill="#D8E6F0", stroke=BLACK, strokeWidth=0.6).encode(y="q25:Q", y2="q75:Q")
    middle = base.mark_tick(color=VERMILLION, thickness=1.4 * look.scale).encode(y="q50:Q")
    layers = al.layer(whisker, box, middle, data=_data(look, "values", table))
    gap = 8 * look.scale
    facets = layers.properties(width=(width - gap * (columns - 1)) / columns, height=62 * look.scale).facet(
        al.Facet("parameter:N", sort=list(dict.fromkeys(table["parameter"])), title=None), columns=columns, spacing=gap
    )
    title = _part(look, "best, quartiles and 95% by value; orange: median")
    return facets.resolve_scale(x="independent").properties(title=title)


def _pairs(cells: pd.DataFrame, look: Look, what: str) -> Any:
    al = altair()
    most = min(max(1.5, float(cells["relative"].max())), 10.0)
    cells = cells.assign(text=[f"{each:.0f}" if each >= 9.95 else f"{each:.1f}" for each in cells["relative"]])
    across = list(dict.fromkeys(cells.sort_values("setting_place")["setting"]))
    base = _chart(look, "pairs", cells).encode(
        x=al.X("setting:N", sort=across, title=None, axis=al.Axis(labelAngle=-90)),
        y=al.Y("value:N", sort=list(dict.fromkeys(cells["value"])), title=None),
    )
    scale = al.Scale(type="log", domain=[1, most], clamp=True, scheme="cividis", reverse=True)
    map_ = base.mark_rect().encode(fill=al.Fill("relative:Q", scale=scale, legend=None))
    frame = base.mark_rect(fill=None, strokeWidth=1.1 * look.scale, stroke=VERMILLION).transform_filter("datum.is_best")
    colour = al.condition(f"datum.relative > {most**0.55!r}", al.value("white"), al.value(BLACK))
    text = base.mark_text(fontSize=0.8 * look.letters).encode(text="text:N", color=colour)
    size = {"width": al.Step(13 * look.scale), "height": al.Step(11 * look.scale)}
    title = _part(look, f"best {what} of each pair / best {what}", "framed: the best value in the row")
    return al.layer(map_, frame, text).properties(**size, title=title)


# -- time, kernels and sensitivity ---------------------------------------------------------------


def time(run: Run, look: Look) -> Any:
    """Draw the time by phase, and how the time of the trials added up from evaluation to evaluation."""
    import pandas as pd

    al = altair()
    total = spent_s(run)
    if not total:
        raise PlotError("the run does not say how its time was spent: it was recorded without durations")
    whole = sum(total.values())
    units = (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))
    unit, seconds = next(((unit, size) for unit, size in units if whole >= 2 * size), units[-1])
    named = {plain(phase): each for phase, each in total.items()}
    rows = [(phase, s / seconds, f"{s / seconds:.3g} {unit} ({s / whole:.0%})") for phase, s in named.items()]
    colours = {**_coloured([*named]), "other": _GREY}
    fill = al.Fill("phase:N", scale=al.Scale(domain=list(colours), range=list(colours.values())), legend=None)
    longest = al.Scale(domain=[0, 1.4 * max(total.values()) / seconds], nice=False)
    base = _chart(look, "phases", pd.DataFrame(rows, columns=["phase", "spent", "text"])).encode(
        x=al.X("spent:Q", title=f"wall time ({unit})", scale=longest), y=al.Y("phase:N", sort=None, title=None)
    )
    bars = base.mark_bar(stroke=BLACK, strokeWidth=0.5).encode(fill=fill)
    texts = base.mark_text(align="left", dx=3, fontSize=look.letters).encode(text="text:N")
    width = look.points - 50 * look.scale
    parts = [al.layer(bars, texts).properties(width=width, height=al.Step(12 * look.scale))]
    along = tables.spent_along(run, [phase for phase in total if phase != "other"])
    if len(along):
        places = {phase: i for i, phase in enumerate(named)}
        along = along.assign(spent=along["seconds"] / seconds, place=along["phase"].map(places))
        area = (
            _chart(look, "along", along)
            .mark_area(stroke="white", strokeWidth=0.5)
            .encode(
                x=_trial_axis(run, look, len(run.trials)),
                y=al.Y("spent:Q", stack=True, title=f"time in trials, added up ({unit})"),
                fill=fill,
                order="place:Q",
                tooltip="phase:N",
            )
        )
        parts.append(area.properties(width=width, height=108 * (1.35 if look.width != "column" else 1)))
    devices = run.state.workers
    chart = al.vconcat(*parts, spacing=8 * look.scale)
    return finished(chart, look, _title_of(run, f"{devices} devices at a time" * (devices > 1)))


def kernels(run: Run, look: Look) -> Any:
    """Draw the time of a run by kernel, the host between launches included: the baseline and the winner."""
    al = altair()
    table = tables.kernels_table(run)
    names = list(dict.fromkeys(name for name in table["kernel"] if name != tables.HOST))
    starts = table.groupby("trial", sort=False)["ms"].cumsum() - table["ms"]
    table = table.assign(start=starts, end=starts + table["ms"], middle=starts + table["ms"] / 2)
    is_long = table["ms"] > 0.11 * table["end"].max()
    table["text"] = [f"{share:.0%}" * shown for share, shown in zip(table["share"], is_long, strict=True)]
    base = _chart(look, "parts", table).encode(y=al.Y("trial:N", sort=None, title=None))
    bars = base.mark_bar(stroke=BLACK, strokeWidth=0.5).encode(
        x=al.X("start:Q", title="time of one run by kernel (ms)"),
        x2="end:Q",
        fill=_styled(al.Fill, "kernel", {**_coloured(names), tables.HOST: "white"}),
        tooltip=_told("kernel", ms="ms", share="share"),
    )
    texts = base.mark_text(fontSize=look.letters).encode(x="middle:Q", text="text:N")
    size = {"width": look.points - 80 * look.scale, "height": al.Step(24 * look.scale)}
    return finished(al.layer(bars, texts).properties(**size), look, _title_of(run))


def sensitivity(run: Run, look: Look) -> Any:
    """Draw, for each precision and policy changed alone, the digits it gains or loses and how much faster it is."""
    al = altair()
    explanation = explanation_of(run)
    table = tables.sensitivity_table(explanation)
    base = al.Chart(_data(look, "changes", table))
    order = list(table["change"])
    labels = al.Y("change:N", sort=order, title=None, axis=al.Axis(grid=False, domain=False, ticks=False))
    bare = al.Y("change:N", sort=order, title=None, axis=al.Axis(labels=False, grid=False, domain=False, ticks=False))
    kinds = [name for name in ("restored", "narrowed") if name in set(table["what"])]
    colours = {"restored": BLUE, "narrowed": YELLOW}
    legend = al.Legend(title=None)
    fill = al.Fill("what:N", scale=al.Scale(domain=kinds, range=[colours[k] for k in kinds]), legend=legend)
    stroke = al.Legend(title=None, symbolType="stroke", symbolStrokeColor=VERMILLION, symbolSize=150)
    limit = al.Color("line:N", scale=al.Scale(domain=["error limit"], range=[VERMILLION]), legend=stroke)
    zero = {"color": BLACK, "strokeWidth": 0.8 * look.scale}

    def haloed(texts: Any) -> Any:
        halo = texts.mark_text(fontSize=look.letters, stroke="white", strokeWidth=0.5 * look.letters)
        return al.layer(halo, texts.mark_text(fontSize=look.letters))

    digits = base.mark_bar(stroke=BLACK, strokeWidth=0.5).encode(
        x=al.X("digits:Q", title="decimal digits gained"), y=labels, fill=fill
    )
    at_zero = al.Chart(al.InlineData(values=[{"at": 0}])).mark_rule(**zero).encode(x="at:Q")
    exact = haloed(base.encode(x=al.datum(0), y=labels, text="remark:N"))
    known = [each for name in ("speed", "low", "high") for each in table[name] if not math.isnan(each)]
    ends = [min([1.0, *known]) / 1.1, max([1.0, *known]) * 1.1]
    scale = al.Scale(type="log", domain=ends, nice=False)
    ticks = al.Axis(values=_log_ticks(*ends), format="~g", labelOverlap=True)
    bars = base.transform_filter("isValid(datum.speed)").transform_calculate(one="1")
    speed = bars.mark_bar(stroke=BLACK, strokeWidth=0.5).encode(
        x=al.X("speed:Q", scale=scale, axis=ticks, title="speed (winner: 1)"), x2="one:Q", y=bare, fill=fill
    )
    interval = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=look.scale)
    interval = interval.encode(x=al.X("low:Q", scale=scale), x2="high:Q", y=bare)
    at_one = al.Chart(al.InlineData(values=[{"at": 1}])).mark_rule(**zero).encode(x=al.X("at:Q", scale=scale))
    why = haloed(base.encode(x=al.datum(math.sqrt(ends[0] * ends[1])), y=bare, text="why:N"))
    letters = min(max(map(len, table["change"])), int(0.45 * look.points / (0.55 * look.letters)))
    width = (look.points - 0.55 * look.letters * letters - 20 * look.scale) / 2
    size = {"width": width, "height": al.Step(11 * look.scale)}
    limits = []
    if math.isfinite(spare := explanation.digits_spare):
        at_limit = al.Chart(al.InlineData(values=[{"at": -spare, "line": "error limit"}]))
        limits.append(at_limit.mark_rule(strokeWidth=1.4 * look.scale).encode(x="at:Q", color=limit))
    left = al.layer(digits, at_zero, *limits, exact).properties(**size)
    chart = al.hconcat(left, al.layer(speed, interval, at_one, why).properties(**size), spacing=8)
    missing = [counted(explanation.missing, "change") + " not measured"] if explanation.missing else []
    subject = "the winner" if explanation.subject == "best" else "the closest trial, not feasible"
    return finished(chart, look, _title_of(run, f"one type of {subject} changed at a time", *missing))


# -- pictures of an application's answer ---------------------------------------------------------

#: Cells of a map on a side; of larger arrays means of blocks are drawn.
_CELLS: Final = 128


def map_of(values: ArrayLike, label: str, *, scheme: str, domain: Sequence[float], log: bool = False) -> Any:
    """Return a map of an array of two dimensions as a chart, its first row at the bottom; NaN is left blank.

    Args:
        values: shape ``(rows, columns)``; of more than 128 a side, means of blocks are drawn.
        label: what the numbers are, with their unit.
        scheme: a colour scheme of Vega.
        domain: the smallest and the largest number (and one between them for a diverging scheme).
        log: whether colours follow the logarithm.
    """
    import pandas as pd

    al = altair()
    cells = np.asarray(values, dtype=np.float64)
    side = max(1, -(-max(cells.shape) // _CELLS))
    rows, columns = (-(-length // side) for length in cells.shape)
    padded = np.full((rows * side, columns * side), np.nan)
    padded[: cells.shape[0], : cells.shape[1]] = cells
    blocks = padded.reshape(rows, side, columns, side)
    count = np.isfinite(blocks).sum(axis=(1, 3))
    means = np.nansum(blocks, axis=(1, 3)) / np.where(count, count, np.nan)
    row, column = np.nonzero(count)
    table = pd.DataFrame({"x": column * side, "y": row * side, "value": means[row, column].round(7)})
    size = max(1, 300 // max(rows, columns))
    colour = al.Scale(
        scheme=scheme, domain=list(domain), clamp=True, type="log" if log else "linear",
        **({"domainMid": domain[len(domain) // 2]} if len(domain) > 2 else {}),
    )  # fmt: skip
    return (
        al.Chart(al.InlineData(values=table.to_dict("records")))
        .mark_rect()
        .encode(
            x=al.X("x:O", axis=None),
            y=al.Y("y:O", axis=None, sort="descending"),
            fill=al.Fill("value:Q", scale=colour, title=label),
        )
        .properties(width=columns * size, height=rows * size)
    )


_DRAW: Final[Mapping[str, Callable[[Run, Look], Any]]] = {
    "pareto": pareto,
    "progress": progress,
    "parameters": parameters,
    "time": time,
    "sensitivity": sensitivity,
    "kernels": kernels,
}
#: What can be drawn of an application's run alone, and of any run.
APPLICATION_KINDS: Final = ("kernels", "answer")
KINDS: Final = tuple(kind for kind in _DRAW if kind not in APPLICATION_KINDS)
