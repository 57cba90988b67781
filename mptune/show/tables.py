"""Tidy tables of a run for the charts: one row for each mark, with the same column names for every run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import PlotError
from mptune.markup import pairs, plain
from mptune.results.kernel_times import HOST, host_ms, kernel_times
from mptune.results.trial import Trial
from mptune.run import Run
from mptune.space.configuration import Value
from mptune.space.parameters import Parameter, PolicyParameter, PrecisionParameter, uniform_types
from mptune.tuning.explain import Change, Explanation

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "HOST", "LEAST_TRIALS", "TRUSTED", "Effects", "MetricAxis", "baseline_of", "counted", "effects_of", "judges",
    "kernels_table", "metric_axis", "pairs_table", "sensitivity_table", "spent_along", "trials_table",
    "uniform_errors", "valid_trials", "value_text", "values_table",
]  # fmt: skip

Floats = NDArray[np.float64]


def valid_trials(run: Run) -> tuple[Trial, ...]:
    """Return the trials that ran to their end.

    Raises:
        PlotError: there are none; says how they ended.
    """
    valid = tuple(trial for trial in run.trials if trial.is_valid)
    if not valid:
        ended = pairs(run.statuses)
        raise PlotError(f"none of {counted(len(run.trials), 'trial')} ran to its end: nothing to draw ({ended})")
    return valid


def baseline_of(run: Run) -> Trial | None:
    """Return the baseline, None if no type was tuned, since any configuration would be one."""
    return run.baseline if run.info.baseline_values else None


def judges(run: Run) -> bool:
    """Whether a trial can be infeasible."""
    return run.info.objective.threshold is not None or bool(run.info.objective.constraints)


def counted(count: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def value_text(value: Value) -> str:
    """Return a parameter's value in as few letters as tell it from the others."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else plain(str(value))


@dataclass(frozen=True, slots=True)
class MetricAxis:
    """A metric as it is drawn: its name, the label of its axis, and the factor from its unit to that of the label."""

    metric: str
    label: str
    factor: float = 1.0

    @property
    def is_error(self) -> bool:
        """Whether it is an error: of all outputs or of one."""
        return self.metric.split(".")[0] == "error"

    def values(self, run: Run, trials: Sequence[Trial]) -> Floats:
        """Return the numbers of trials in the unit of the label, NaN if a trial has none; shape ``(n_trials,)``."""
        numbers = np.array([run.metric_of(trial, self.metric) for trial in trials], dtype=np.float64) * self.factor
        return np.where(np.isfinite(numbers), numbers, np.nan)


def metric_axis(run: Run, metric: str) -> MetricAxis:
    """Return how a metric of a run, ``speedup`` or the objective is drawn."""
    if metric == "speedup":
        return MetricAxis(metric, "speedup over the fp64 baseline")
    name, _, output = metric.partition(".")
    if name == "error":
        kind, of = run.info.measured_by(metric) if run.info.metric else "", ""
        if kind and not run.info.metrics and output:
            kind, _, of = kind.rpartition(" of ")
        return MetricAxis(metric, plain(f"error{f' of {of}' if of else ''}{f' ({kind})' if kind else ''}"))
    if not metric.isidentifier():
        return MetricAxis(metric, plain(metric))
    unit = run.info.unit_of(metric)
    suffix = f"_{unit.replace('/', '_')}".lower()
    words = metric[: -len(suffix)] if unit and metric.lower().endswith(suffix) else metric
    unit, factor = ("MB", 1e-6) if unit == "bytes" else (unit, 1.0)
    return MetricAxis(metric, plain(f"{words.replace('_', ' ')}{f' ({unit})' if unit else ''}"), factor)


def trials_table(run: Run, y: MetricAxis, x: MetricAxis | None = None) -> pd.DataFrame:
    """Return the trials in the order of evaluation: ``trial``, ``configuration``, ``ended``, ``y``, ``x``, ``what``.

    ``trial`` counts from 1; of over 3,000 trials ``configuration`` is empty; ``ended`` is the status; ``what`` is
    "feasible" (without limits "configuration"), "infeasible" or "failed".
    """
    import pandas as pd

    def kind(trial: Trial) -> str:
        if not trial.is_valid:
            return "failed"
        if not judges(run):
            return "configuration"
        return "feasible" if run.objective.is_feasible(trial) else "infeasible"

    trials = run.trials
    return pd.DataFrame(
        {
            "trial": range(1, len(trials) + 1),
            "configuration": [plain(str(trial.configuration)) for trial in trials] if len(trials) <= 3000 else "",
            "ended": [trial.status.value for trial in trials],
            "y": y.values(run, trials),
            "x": np.full(len(trials), np.nan) if x is None else x.values(run, trials),
            "what": [kind(trial) for trial in trials],
        }
    )


def uniform_errors(run: Run) -> dict[str, float]:
    """Return the least error of the configurations measured with one precision for everything, by precision."""
    valid = [trial for trial in run.trials if trial.is_valid and math.isfinite(trial.error)]
    levels: dict[str, float] = {}
    for name, types in uniform_types(run.parameters).items():
        errors = [t.error for t in valid if all(t.configuration.get(p) == value for p, value in types.items())]
        if errors:
            levels[name] = min(errors)
    return levels


# -- parameters ----------------------------------------------------------------------------------

#: Fewer trials do not determine a forest and a test of it.
LEAST_TRIALS: Final = 30
#: An R² below this means that the forest hardly knows more than the mean.
TRUSTED: Final = 0.3


@dataclass(frozen=True, slots=True)
class Effects:
    """What the objective depends on.

    Attributes:
        table: a row for each parameter of each trial: ``trial``, ``parameter``, ``value``, ``place`` (in the order of
            parameters and values), ``is_type`` (in the accuracy signature), ``relative`` (the objective as a multiple
            of the best). Parameters have two values or more, the most important one first if that is known.
        trials: how many valid trials have a positive objective.
        losses: how much R² a random forest of log time loses without each parameter's values (Breiman 2001), mean and
            standard deviation over the folds of a cross-validation; empty for fewer than :data:`LEAST_TRIALS` trials.
        r2: the forest's own, of trials it has not seen.
    """

    table: pd.DataFrame
    trials: int
    losses: dict[str, tuple[float, float]]
    r2: float


def effects_of(run: Run) -> Effects:
    """Return what the objective of a run depends on.

    Raises:
        PlotError: no trial ran to its end, none has a positive objective, or no parameter has two values.
    """
    import pandas as pd

    valid = valid_trials(run)
    values = metric_axis(run, run.objective.metric).values(run, valid)
    described = run.parameters
    of_this_space = [all(trial.configuration.get(p.name) in p.values for p in described) for trial in valid]
    usable = np.isfinite(values) & (values > 0) & np.array(of_this_space)
    if not usable.any():
        raise PlotError(f"no trial has a positive {run.objective.metric}, so there is nothing to compare")
    trials = [trial.configuration for trial, keep in zip(valid, usable, strict=True) if keep]
    values = values[usable]
    relative = values / values.min() if run.objective.minimise else values.max() / values
    codes = {p: [p.values.index(found[p.name]) for found in trials] for p in described}
    codes = {parameter: column for parameter, column in codes.items() if len(set(column)) > 1}
    if not codes:
        raise PlotError(f"no parameter has two values among {counted(len(trials), 'trial')}: nothing to compare")
    losses, r2 = _importance(codes, relative) if len(trials) >= LEAST_TRIALS else ({}, math.nan)
    ranked = sorted(codes, key=lambda parameter: -losses.get(parameter.name, (0.0, 0.0))[0])
    parts = []
    for i, parameter in enumerate(ranked):
        is_type = isinstance(parameter, PrecisionParameter | PolicyParameter) or parameter.name in run.info.signature
        texts = [value_text(value) for value in parameter.values]
        column = codes[parameter]
        cells = {"trial": range(len(trials)), "parameter": plain(parameter.name), "is_type": is_type}
        cells |= {"value": [texts[code] for code in column], "place": [i + code / len(texts) for code in column]}
        parts.append(pd.DataFrame({**cells, "relative": relative}))
    return Effects(pd.concat(parts), len(trials), losses, r2)


def _importance(
    codes: Mapping[Parameter, Sequence[int]], values: Floats
) -> tuple[dict[str, tuple[float, float]], float]:
    """Return what :class:`Effects` says of losses and R², from at most 2,000 trials drawn at random."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.inspection import permutation_importance
    from sklearn.model_selection import KFold

    chosen = np.sort(np.random.default_rng(0).permutation(len(values))[:2000])
    features, target = np.array(list(codes.values()), dtype=np.float64).T[chosen], np.log(values[chosen])
    losses, scores = [], []
    for known, unseen in KFold(5, shuffle=True, random_state=0).split(features):
        forest = RandomForestRegressor(40, random_state=0).fit(features[known], target[known])
        test = features[unseen], target[unseen]
        found = permutation_importance(forest, *test, n_repeats=3, random_state=0, scoring="r2")
        losses.append(found.importances_mean)
        scores.append(forest.score(*test))
    ends = zip(np.mean(losses, axis=0).tolist(), np.std(losses, axis=0).tolist(), strict=True)
    return dict(zip((parameter.name for parameter in codes), ends, strict=True)), float(np.mean(scores))


def values_table(table: pd.DataFrame, parameters: int) -> pd.DataFrame:
    """Return the quantiles ``q0`` to ``q95`` of the trials with each ``value`` of the first few parameters."""
    names = list(dict.fromkeys(table["parameter"]))[:parameters]
    groups = table[table["parameter"].isin(names)].groupby(["place", "parameter", "value"])["relative"]
    quantiles = groups.quantile(np.array([0.0, 0.25, 0.5, 0.75, 0.95])).unstack()
    return quantiles.set_axis(["q0", "q25", "q50", "q75", "q95"], axis=1).reset_index()


def pairs_table(table: pd.DataFrame, rows: int, columns: int) -> pd.DataFrame:
    """Return the best (``relative``) with each type (``value``) and each value of another parameter (``setting``).

    ``is_best`` marks the best settings of a parameter in a row. As many parameters as ``rows`` and ``columns`` hold.
    Without types, or without others, it is the most important parameter against the others.
    """

    def fitting(part: pd.DataFrame, most: int) -> pd.DataFrame:
        counts = part.groupby("parameter", sort=False)["value"].nunique().cumsum()
        return part[part["parameter"].isin([*counts.index[:1], *counts.index[counts <= most]])]

    is_down = table["is_type"]
    if is_down.all() or not is_down.any():
        is_down = table["parameter"] == table["parameter"].iloc[0]
    table = table.assign(value=table["parameter"] + " " + table["value"])
    down, across = fitting(table[is_down], rows), fitting(table[~is_down], columns)
    other = across[["trial", "parameter", "value", "place"]].set_axis(
        ["trial", "other", "setting", "setting_place"], axis=1
    )
    both = down[["trial", "value", "place", "relative"]].merge(other)
    keys = ["place", "value", "setting_place", "setting", "other"]
    best = both.groupby(keys)["relative"].min().reset_index()
    return best.assign(is_best=best["relative"] == best.groupby(["value", "other"])["relative"].transform("min"))


# -- time ----------------------------------------------------------------------------------------


def spent_along(run: Run, phases: Sequence[str]) -> pd.DataFrame:
    """Return the seconds each phase of the trials took up to a trial: ``trial``, ``phase``, ``seconds``.

    Time beside the trials (prepare, search) has no place along the run and is left out; 300 steps are enough to see.
    """
    import pandas as pd

    each = pd.DataFrame([{}, *(trial.measurement.durations_s for trial in run.trials)]).reindex(columns=list(phases))
    sums = each.fillna(0.0).cumsum() / max(1, run.state.workers)
    sums = sums.loc[:, sums.iloc[-1] > 0].rename(columns=plain)
    steps = np.unique(np.linspace(0, len(run.trials), min(len(run.trials), 300) + 1).astype(int))
    return sums.iloc[steps].rename_axis("trial").reset_index().melt("trial", var_name="phase", value_name="seconds")


def kernels_table(run: Run) -> pd.DataFrame:
    """Return the time of a run by kernel: ``trial`` ("baseline", "winner" or "closest"), ``kernel``, ``ms``, ``share``.

    Raises:
        PlotError: the run is of a single kernel, or neither trial says where its time went.
    """
    import pandas as pd

    if not run.info.is_of_application:
        raise PlotError(f"{run.kernel or 'the run'} is a single kernel: there are no shares of kernels to draw")
    winner = {"winner": run.best} if run.best is not None else {"closest": run.closest}
    rows: list[tuple[str, str, float, float]] = []
    for name, trial in {"baseline": baseline_of(run), **winner}.items():
        if trial is None or not (times := kernel_times(trial)):
            continue
        parts = {**{plain(kernel): each.time_ms for kernel, each in times.items()}, HOST: host_ms(trial)}
        label = f"{name}, {sum(each.launches for each in times.values()):,} launches"
        total = math.fsum(parts.values())
        rows += [(label, kernel, ms, ms / total if total else 0.0) for kernel, ms in parts.items()]
    if not rows:
        raise PlotError("no trial that could be shown says where its time went: neither baseline nor winner ran")
    return pd.DataFrame(rows, columns=["trial", "kernel", "ms", "share"])


# -- sensitivity ---------------------------------------------------------------------------------

#: Speeds outside are drawn at the edge.
SLOWEST, FASTEST = 0.1, 10.0


def sensitivity_table(explanation: Explanation) -> pd.DataFrame:
    """Return one row a change of one type: ``change``, ``what``, ``digits``, ``remark``, ``speed``, ``low``, ``high``.

    ``what`` is "restored" or "narrowed"; ``remark`` replaces digits that are not finite, ``why`` an unknown speed.

    Raises:
        PlotError: there is no winner, or none of its neighbours was measured.
    """
    import pandas as pd

    if not any(change.outcome is not None for change in explanation.changes):
        why = explanation.sentences[0] if not explanation.changes else "none of the winner's neighbours was measured"
        raise PlotError(f"no sensitivity can be drawn: {why[:1].lower()}{why[1:]}")
    return pd.DataFrame([_change_row(change) for change in explanation.changes])


def _change_row(change: Change) -> dict[str, Any]:
    outcome = change.outcome
    speed = math.nan if outcome is None else outcome.speed
    ends = (math.nan, math.nan) if outcome is None or outcome.interval is None else outcome.interval
    why = "" if SLOWEST <= speed <= FASTEST else f"{speed:.2g}"
    if outcome is None:
        why = "not allowed" if change.broken else "not measured"
    elif math.isnan(speed):
        why = "not timed" if outcome.trial.is_valid else outcome.trial.status.value.replace("_", " ")
    first, *others = change.buffers or ("",)
    more = f", {others[0]}" if len(others) == 1 else f" and {len(others)} more" if others else ""
    named = f"{change.parameter}{f' of {first}{more}' if first else ''}"
    exact = "exact" if change.digits > 0 else "not exact"
    return {
        "change": plain(f"{named}: {value_text(change.before)} → {value_text(change.after)}"),
        "what": "restored" if change.is_restored else "narrowed",
        "digits": change.digits,
        "remark": exact if math.isinf(change.digits) else "0" if abs(change.digits) < 0.05 else "",
        "why": why,
        **{
            name: min(max(value, SLOWEST), FASTEST)
            for name, value in (("speed", speed), ("low", ends[0]), ("high", ends[1]))
        },
    }
