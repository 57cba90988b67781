"""Replaying a recorded search space with no device: how fast a strategy finds what is known to be there.

The loop is that of a live run: ask for one configuration, evaluate it, tell the strategy. An evaluation is a
unique configuration in both, so what a simulation promises a live run keeps.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.thresholds import recorded_threshold
from mptune.errors import MptuneError
from mptune.interop import read_run
from mptune.measure.base import Replay
from mptune.results.metric_expressions import chosen_objectives, is_error, unknown_metric
from mptune.results.objective import Objective
from mptune.results.pareto import FrontScale, front
from mptune.results.trial import SourceUse, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.strategies import chosen_name, make
from mptune.strategies.base import Known, Strategy
from mptune.tuning.session import Session
from mptune.tuning.starting import Searched, read_source

__all__ = ["Simulation", "SimulationRun", "finite", "quartiles", "simulate"]

_FOOTPRINT: Final = "memory_bytes"
#: Where the distance to the optimum is read off: from the 40th evaluation on, at every 20th.
_FIRST_CHECKPOINT: Final = 40
_CHECKPOINT_STEP: Final = 20
#: Evaluations of a run, and runs: more would be a slip, and not fit into memory.
_MOST: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """One replay of a strategy with a seed."""

    seed: int
    #: best objective after each evaluation, None as long as no trial is valid and accurate enough
    best: tuple[float | None, ...]
    best_configuration: Configuration | None  #: where the last of them was found
    strategy_s: float  #: wall time inside the strategy
    #: of several objectives, the hypervolume of the front after each evaluation as a share of that of the
    #: recorded front
    hypervolume: tuple[float, ...] = ()
    sources: tuple[SourceUse, ...] = ()  #: what it made of the sources


@dataclass(frozen=True, slots=True)
class Simulation:
    """Replays of one strategy on one recorded space, by their names."""

    space: str
    strategy: str
    budget: int  #: evaluations each run may make
    objective: Objective  #: what was optimised
    optimum: float | None  #: best recorded value among the trials that meet the threshold; None if there is none
    optimum_configuration: Configuration | None  #: the configuration it was recorded for
    unit: str  #: unit of the objective; empty if unknown
    configurations: int  #: recorded configurations
    runs: tuple[SimulationRun, ...]  #: one replay per seed
    #: on which fronts of several objectives are compared; None for one objective, or if nothing is feasible
    scale: FrontScale | None = None
    #: worst recorded value among the trials that meet the threshold, which stands for the best of a run that
    #: has found none of them yet; None if there is none, or if such a run is infinitely far from the optimum
    worst: float | None = None

    @property
    def overhead_ms_per_evaluation(self) -> float:
        """Wall time the strategy took for one evaluation, over all runs."""
        evaluations = sum(len(run.best) for run in self.runs)
        return 1e3 * sum(run.strategy_s for run in self.runs) / evaluations if evaluations else 0.0

    def distance_curves(self) -> NDArray[np.float64]:
        """Return how far the best so far is from the optimum, relative to the optimum.

        Of several objectives it is the share of the recorded front's hypervolume that is missing. Shape ``(n_runs,
        budget)``; infinite while nothing feasible is found. A run that ended early keeps its last value.
        """
        best = self._best()
        if self.optimum is None:
            return np.full_like(best, np.inf)
        if self.objective.also:
            distances = np.maximum(1.0 - self._curves([run.hypervolume for run in self.runs]), 0.0)
        else:
            distances = self._distance(best)
        return np.where(np.isnan(best), np.inf, distances)

    def filled_curves(self) -> NDArray[np.float64]:
        """Return :meth:`distance_curves`, at the distance of the worst feasible value while nothing feasible is found.

        But no nearer than 1, which is twice the time, or no speed at all: where all that is feasible is about as good,
        a run without any of it is not. Of several objectives the whole hypervolume is missing then: 1. Infinite where
        :attr:`worst` is unknown.
        """
        curves = self.distance_curves()
        if self.worst is None or self.optimum is None:
            return curves
        farthest = 1.0 if self.objective.also else max(1.0, float(self._distance(np.float64(self.worst))))
        return np.where(self.without_feasible(), farthest, curves)

    def without_feasible(self) -> NDArray[np.bool_]:
        """Return which runs have found nothing feasible after each evaluation, shape ``(n_runs, budget)``."""
        return np.isnan(self._best())

    def _best(self) -> NDArray[np.float64]:
        return self._curves([[math.nan if value is None else value for value in run.best] for run in self.runs])

    def _curves(self, values: Sequence[Sequence[float]]) -> NDArray[np.float64]:
        """Return a row per run; one that ended early keeps its last value, and is NaN if it has none."""
        rows = np.full((len(values), self.budget), np.nan)
        for row, known in zip(rows, values, strict=True):
            shown = known[: self.budget]
            row[: len(shown)] = shown
            row[len(shown) :] = shown[-1] if shown else np.nan
        return rows

    def _distance(self, values: NDArray[np.float64] | np.float64) -> NDArray[np.float64]:
        optimum = self.optimum or 0.0
        return np.abs(values - optimum) / abs(optimum) if optimum else np.where(values == 0.0, 0.0, np.inf)

    def distances(self, evaluations: int) -> NDArray[np.float64]:
        """Return a column of :meth:`distance_curves`, after so many evaluations; shape ``(n_runs,)``."""
        return np.asarray(self.distance_curves()[:, min(evaluations, self.budget) - 1])

    def checkpoints(self) -> tuple[int, ...]:
        """Return the numbers of evaluations a summary looks at; the budget itself when it is below the first."""
        return tuple(range(_FIRST_CHECKPOINT, self.budget + 1, _CHECKPOINT_STEP)) or (self.budget,)

    def summary(self) -> list[dict[str, float]]:
        """Return a row per checkpoint: distances as of :meth:`filled_curves`, and shares of the runs.

        The shares are of those at the optimum, and of those that have found nothing feasible.
        """
        curves, without = self.filled_curves(), self.without_feasible()
        rows = []
        for point in self.checkpoints():
            distances, nothing = curves[:, point - 1], without[:, point - 1]
            lower, median, upper = map(float, quartiles(distances))
            rows.append(
                {
                    "evaluations": point,
                    "mean": float(np.mean(distances)),
                    "lower": lower,
                    "median": median,
                    "upper": upper,
                    "worst": float(np.max(distances)),
                    "found_optimum": float(np.mean((distances == 0.0) & ~nothing)),
                    "nothing_feasible": float(np.mean(nothing)),
                }
            )
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return the document ``mptune simulate --json`` prints."""
        runs: list[dict[str, Any]] = [{"seed": run.seed, "best": list(run.best)} for run in self.runs]
        document: dict[str, Any] = {
            **{name: getattr(self, name) for name in ("space", "strategy", "budget", "optimum", "unit")},
            "configurations": self.configurations,
            "runs": runs,
            "overhead_ms_per_evaluation": self.overhead_ms_per_evaluation,
            "worst": self.worst,
            "distances": [{name: finite(value) for name, value in row.items()} for row in self.summary()],
        }
        if self.objective.also:
            document["objectives"] = list(self.objective.metrics)
            for name in ("ideal", "nadir"):
                point = getattr(self.scale, name, None)
                document[name] = None if point is None else [10.0**level for level in point]
        for entry, run in zip(runs, self.runs, strict=True):
            entry |= {"hypervolume": list(run.hypervolume)} if self.objective.also else {}
            entry |= {"sources": list(map(dataclasses.asdict, run.sources))} if run.sources else {}
        return document


def quartiles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return lower quartile, median and upper quartile along the first axis, which is their new length: 3.

    Between two values they are interpolated; between a finite and an infinite one they are infinite.
    """
    ordered = np.sort(values, axis=0)
    places = np.array([0.25, 0.5, 0.75]) * (len(ordered) - 1)
    below, above = ordered[np.floor(places).astype(int)], ordered[np.ceil(places).astype(int)]
    share = (places % 1).reshape(3, *(1,) * (ordered.ndim - 1))
    with np.errstate(invalid="ignore"):
        between = below + share * (above - below)
    return np.asarray(np.where((below == above) | (share == 0), below, between))


def finite(value: float) -> float | None:
    """Return a number as JSON can hold it: None for one that is not finite."""
    return value if math.isfinite(value) else None


def simulate(
    space: str | Path | Run,
    strategy: str = "bayesian",
    *,
    budget: int = 220,
    repeats: int = 10,
    seed: int = 0,
    objective: str = "time_ms",
    objectives: Sequence[str] = (),
    maximise: bool = False,
    max_error: float | Mapping[str, float] | None = None,
    penalty: str = "decay",
    alpha: float = 1.0,
    beta: float = 1.0,
    constraints: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    sources: Sequence[str | Path | Run] = (),
) -> Simulation:
    """Replay a strategy on the trials of a run, once per seed ``seed, seed + 1, ...``.

    Args:
        space: a run, a run file or a recorded space (Kernel Tuner cache, T4 results, mptune's own).
        strategy: name of the strategy.
        budget: unique configurations each run may evaluate; it ends sooner if the recording has fewer.
        repeats: number of runs.
        seed: seed of the first run.
        objective: "time", "memory", "energy", "edp", "error", a recorded metric or an expression over metrics.
        objectives: two or three of these instead: the search is for their front.
        maximise: whether more of the objective is better.
        max_error: the largest recorded error allowed: of all outputs, or by name as ``--max-error`` takes it.
        penalty: what an inaccurate trial scores.
        alpha: slope of the linear penalty.
        beta: rate of the decay penalty.
        constraints: limits on recorded metrics, such as ``energy_j <= 1.5``.
        options: hyperparameters of the strategy by name.
        sources: runs and recordings, of other devices or sizes, that every replay starts from.

    Raises:
        SpaceFileError: a file cannot be read.
        UnknownNameError: no such strategy, option or metric.
        ExpressionError: a constraint is no comparison of metrics.
        MptuneError: budget or repeats below 1, a negative seed, a threshold for a recording without errors, nothing
            in it ran, objectives that are not two or three different ones or that the strategy cannot search for, or a
            source that does not fit.
    """
    _require_counts(budget, repeats, seed)
    run = space if isinstance(space, Run) else read_run(space)
    metric, *also = (name.strip() for name in chosen_objectives(objective, objectives, maximise))
    aliases = _aliases(run)
    goal = Objective(
        aliases.get(metric, metric),
        minimise=not maximise,
        threshold=recorded_threshold(max_error, run.metric_names, run.info.metric),
        penalty=penalty,
        alpha=alpha,
        beta=beta,
        constraints=tuple(constraints),
        also=tuple(aliases.get(name, name) for name in also),
    )
    judged = run.derive(objective=goal, trials=_judged(run, goal, aliases))
    goal = judged.objective
    optimum, worst = goal.best(judged.trials), goal.worst(judged.trials)
    scale = _scale(goal, judged.trials) if goal.also else None
    strategy = chosen_name(strategy, goal)
    searched = Searched(
        kernel=run.info.kernel,
        space=run.space,
        objective=goal,
        metric=run.info.metric,
        sizes=run.info.sizes,
        units={name: run.info.unit_of(name) for name in run.metric_names},
        rename=lambda source: [_renamed(trial, _aliases(source)) for trial in source.trials],
    )
    read = [read_source(source, searched) for source in sources]
    footprints = np.array([trial.metric(_FOOTPRINT) for trial in run.indexed])
    # A live run knows the footprints of all configurations before any is evaluated.
    known: dict[str, Known] = {} if np.isnan(footprints).any() else {_FOOTPRINT: lambda indices: footprints[indices]}

    def replay(seed: int) -> SimulationRun:
        made = make(
            strategy,
            run.space,
            goal,
            seed=seed,
            signature=run.info.signature,
            options=options,
            known=known,
            sources=read,
            budget=budget,
        )
        return _replay(made, Replay(judged), budget, seed, scale)

    return Simulation(
        space=run.name,
        strategy=strategy,
        budget=budget,
        objective=goal,
        optimum=None if optimum is None else goal.value(optimum),
        optimum_configuration=None if optimum is None else optimum.configuration,
        unit=run.info.unit_of(metric) if metric in run.metric_names else "",
        configurations=run.space.size,
        runs=tuple(map(replay, range(seed, seed + repeats))),
        scale=scale,
        worst=None if worst is None else goal.value(worst),
    )


def _require_counts(budget: int, repeats: int, seed: int) -> None:
    for name, count in (("budget", budget), ("repeats", repeats)):
        if count < 1:
            raise MptuneError(f"{name} must be at least 1, got {count}")
        if count > _MOST:
            raise MptuneError(f"{name} must be at most {_MOST:,}, got {count:,}")
    if seed < 0:
        raise MptuneError(f"seed {seed}: expected a whole number from 0 on")


def _replay(strategy: Strategy, evaluator: Replay, budget: int, seed: int, scale: FrontScale | None) -> SimulationRun:
    session = _Replay(evaluator, strategy.objective, scale)
    session.evaluate(budget, strategy.ask, strategy.tell)
    found = session.best.configuration if session.best else None
    seconds = session.searching.seconds
    return SimulationRun(seed, tuple(session.values), found, seconds, tuple(session.shares), strategy.sources)


class _Replay(Session):
    """Notes the best value after each evaluation, and of several objectives the share of the recorded front."""

    def __init__(self, evaluator: Replay, objective: Objective, scale: FrontScale | None) -> None:
        super().__init__(evaluator, objective)
        self._scale = scale
        self._levels = np.empty((0, len(objective.metrics)))
        self.values: list[float | None] = []
        self.shares: list[float] = []

    def report(self, trials: Sequence[Trial]) -> None:
        self.values.append(None if self.best is None else self.objective.value(self.best))
        if not self.objective.also:
            return
        new = [self.objective.levels(trial) for trial in trials if self.objective.is_feasible(trial)]
        if self._scale is None or not new:
            self.shares.append(self.shares[-1] if self.shares else 0.0)
            return
        levels = np.vstack([self._levels, np.array(new)])
        self._levels = levels[front(levels, [True] * levels.shape[1])]
        self.shares.append(self._scale.share(self._levels))


def _scale(objective: Objective, trials: Sequence[Trial]) -> FrontScale | None:
    """Return the scale of the feasible trials that have all objectives; None if there are none."""
    levels = np.array([objective.levels(trial) for trial in trials if objective.is_feasible(trial)])
    known = levels[~np.isnan(levels).any(axis=1)] if len(levels) else levels
    return FrontScale.of(known) if len(known) else None


def _aliases(run: Run) -> dict[str, str]:
    """Return names an expression can hold for metrics like ``GFLOP/s``."""
    return {name: re.sub(r"\W", "_", name) for name in run.metric_names if not re.fullmatch(r"[A-Za-z_][\w.]*", name)}


def _judged(run: Run, objective: Objective, rename: Mapping[str, str]) -> list[Trial]:
    """Return the trials with the status a live run would give them."""
    metrics = run.metric_names
    if not any(trial.is_valid for trial in run.trials):
        raise MptuneError(f"no trial of recording {run.name} ran, so there is nothing to optimise")
    known = (*metrics, *rename.values())
    read = objective.names | objective.constraint_names
    for name in sorted(read):
        if name not in known:
            raise unknown_metric(f"metric of recording {run.name}:", name, metrics, objective.metrics)
    if objective.threshold is not None and not any(is_error(name) for name in metrics):
        raise MptuneError(
            f"recording {run.name} has no errors, so no configuration can be judged by --max-error "
            f"(metrics: {', '.join(metrics)})"
        )
    used = {name: alias for name, alias in rename.items() if alias in read}

    def judge(trial: Trial) -> Trial:
        missing = sorted(read - trial.measurement.metrics.keys()) if trial.is_valid else []
        if missing:
            return dataclasses.replace(trial, status=Status.ERROR, message=f"recorded without {missing[0]}")
        return objective.judge(trial) if trial.is_valid else trial

    return [judge(_renamed(trial, used)) for trial in run.trials]


def _renamed(trial: Trial, rename: Mapping[str, str]) -> Trial:
    """Return the trial with metrics like ``GFLOP/s`` also under a name an expression can hold."""
    metrics = trial.measurement.metrics
    extra = {rename[name]: metrics[name] for name in metrics if name in rename}
    return trial.with_measurement(metrics={**metrics, **extra}) if extra else trial
