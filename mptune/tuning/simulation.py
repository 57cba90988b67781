"""Simulation: a strategy searches a recorded space, without a device.

The loop is that of a live run, and an evaluation is a unique configuration in both, so that results carry over.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.thresholds import recorded_threshold
from mptune.errors import MptuneError
from mptune.interop import read_run
from mptune.measure.base import Replay
from mptune.results.metric_expressions import is_error, unknown_metric
from mptune.results.objective import Objective
from mptune.results.pareto import FrontScale, front
from mptune.results.trial import SourceUse, Status, Trial
from mptune.run import Run, json_document
from mptune.space.arguments import COUNT, checked
from mptune.space.configuration import Configuration
from mptune.strategies import chosen_name, make
from mptune.strategies.base import Known
from mptune.tuning.session import Session
from mptune.tuning.settings import TuneSettings
from mptune.tuning.starting import Searched, read_source

_FOOTPRINT: Final = "memory_bytes"
#: Evaluations at which the distance from the optimum is reported: from the 40th on, every 20th.
_FIRST_CHECKPOINT: Final = 40
_CHECKPOINT_STEP: Final = 20


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """One replay of a strategy with a seed."""

    seed: int
    best: tuple[float | None, ...]  #: best objective after each evaluation, None while no trial is feasible
    best_configuration: Configuration | None  #: of the final best
    strategy_s: float  #: wall time inside the strategy
    #: for several objectives, the share of the recorded front's hypervolume after each evaluation
    hypervolume: tuple[float, ...] = ()
    sources: tuple[SourceUse, ...] = ()  #: use of the sources


@dataclass(frozen=True, slots=True)
class Simulation:
    """Replays of one strategy on one recorded space."""

    space: str
    strategy: str
    budget: int  #: maximum evaluations of each run
    objective: Objective
    optimum: float | None  #: best recorded value of a feasible trial; None if there is none
    optimum_configuration: Configuration | None  #: configuration of the optimum
    unit: str  #: unit of the objective; empty if unknown
    configurations: int  #: recorded configurations
    runs: tuple[SimulationRun, ...]  #: one replay per seed
    scale: FrontScale | None = None  #: of fronts; None for one objective, or if nothing is feasible
    #: worst recorded value of a feasible trial: the value of a run that has found none; None for an infinite distance
    worst: float | None = None

    @property
    def overhead_ms_per_evaluation(self) -> float:
        """Mean wall time of the strategy for an evaluation."""
        evaluations = sum(len(run.best) for run in self.runs)
        return 1e3 * sum(run.strategy_s for run in self.runs) / evaluations if evaluations else 0.0

    def distance_curves(self) -> NDArray[np.float64]:
        """Return the distance of the best so far from the optimum, relative to the optimum, ``(n_runs, budget)``.

        For several objectives, the missing share of the recorded front's hypervolume. Infinite while no feasible trial
        is found. A run that ended early keeps its last value.
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
        """Return :meth:`distance_curves`, with the distance of :attr:`worst` while no feasible trial is found.

        This distance is at least 1 (twice the time, or no speed at all), exactly 1 for several objectives, and infinite
        where :attr:`worst` is unknown.
        """
        curves = self.distance_curves()
        if self.worst is None or self.optimum is None:
            return curves
        farthest = 1.0 if self.objective.also else max(1.0, float(self._distance(np.float64(self.worst))))
        return np.where(self.without_feasible(), farthest, curves)

    def without_feasible(self) -> NDArray[np.bool_]:
        """Return whether each run has no feasible trial after each evaluation, shape ``(n_runs, budget)``."""
        return np.isnan(self._best())

    def _best(self) -> NDArray[np.float64]:
        return self._curves([run.best for run in self.runs])

    def _curves(self, values: Sequence[Sequence[float | None]]) -> NDArray[np.float64]:
        """Return a row per run, NaN for None; a run that ended early keeps its last value."""
        rows = np.full((len(values), self.budget), np.nan)
        for row, known in zip(rows, values, strict=True):
            shown = np.array(known[: self.budget] or [None], dtype=np.float64)
            row[:] = np.pad(shown, (0, self.budget - len(shown)), mode="edge")
        return rows

    def _distance(self, values: NDArray[np.float64] | np.float64) -> NDArray[np.float64]:
        optimum = self.optimum or 0.0
        return np.abs(values - optimum) / abs(optimum) if optimum else np.where(values == 0.0, 0.0, np.inf)

    def distances(self, evaluations: int) -> NDArray[np.float64]:
        """Return the distances after some evaluations (:meth:`distance_curves`), shape ``(n_runs,)``."""
        return np.asarray(self.distance_curves()[:, min(evaluations, self.budget) - 1])

    def checkpoints(self) -> tuple[int, ...]:
        """Return the numbers of evaluations in a summary; the budget itself if it is below the first."""
        return tuple(range(_FIRST_CHECKPOINT, self.budget + 1, _CHECKPOINT_STEP)) or (self.budget,)

    def summary(self) -> list[dict[str, float]]:
        """Return a row per checkpoint: distances of :meth:`filled_curves`, and shares of runs by their result."""
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
        """Return the document that ``mptune simulate --json`` prints."""
        names = ("space", "strategy", "budget", "optimum", "worst", "unit", "configurations")
        runs = [
            {"seed": run.seed, "best": run.best}
            | ({"hypervolume": run.hypervolume} if self.objective.also else {})
            | ({"sources": list(map(dataclasses.asdict, run.sources))} if run.sources else {})
            for run in self.runs
        ]
        document = {name: getattr(self, name) for name in names}
        document |= {"runs": runs, "distances": self.summary()}
        document |= {"overhead_ms_per_evaluation": self.overhead_ms_per_evaluation}
        if self.objective.also:
            document["objectives"] = self.objective.metrics
            for name in ("ideal", "nadir"):
                document[name] = None if self.scale is None else [10.0**level for level in getattr(self.scale, name)]
        return json_document(document)


def quartiles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return quartiles along the first axis, interpolated; infinite between a finite and an infinite value."""
    ordered = np.sort(values, axis=0)
    places = np.array([0.25, 0.5, 0.75]) * (len(ordered) - 1)
    below, above = ordered[np.floor(places).astype(int)], ordered[np.ceil(places).astype(int)]
    share = (places % 1).reshape(3, *(1,) * (ordered.ndim - 1))
    with np.errstate(invalid="ignore"):
        between = below + share * (above - below)
    return np.asarray(np.where((below == above) | (share == 0), below, between))


@checked
def simulate(
    space: str | Path | Run,
    strategy: str = "bayesian",
    *,
    budget: int = 220,
    repeats: Annotated[int, COUNT] = 10,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Simulation:
    """Replay a strategy on the trials of a run, once per seed ``seed, seed + 1, ...``.

    Args:
        space: a run, a run file or a recorded space (Kernel Tuner cache, T4 results, mptune's own).
        strategy: name of the strategy.
        budget: unique configurations to evaluate in each run, or all if the recording has fewer.
        repeats: number of runs.
        options: hyperparameters of the strategy by name.
        settings: fields of :class:`~mptune.TuneSettings`: ``seed``, ``max_error``, ``constraints``,
            ``objective``, ``objectives``, ``maximise``, ``penalty``, ``alpha``, ``beta``, ``sources``.

    Raises:
        SpaceFileError: a file cannot be read.
        UnknownNameError: a strategy, option, setting or metric is unknown.
        ExpressionError: a constraint is no comparison of metrics.
        MptuneError: a setting is out of range or does not suit the recording, or no trial of it ran.
    """
    given = TuneSettings(strategy=strategy, budget=budget).changed(settings)
    run = space if isinstance(space, Run) else read_run(space)
    aliases, seed = _aliases(run), given.seed
    threshold = recorded_threshold(given.max_error, run.metric_names, run.info.metric, run.info.metrics)
    goal = given.goal(threshold, aliases)
    metric = given.metrics[0]
    judged = run.derive(objective=goal, trials=_judged(run, goal, aliases))
    goal = judged.objective
    optimum, worst = goal.best(judged.trials), goal.worst(judged.trials)
    scale = None
    if goal.also:
        levels = np.array([goal.levels(trial) for trial in judged.trials if goal.is_feasible(trial)])
        known_levels = levels[~np.isnan(levels).any(axis=1)] if len(levels) else levels
        scale = FrontScale.of(known_levels) if len(known_levels) else None
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
    read = [read_source(source, searched) for source in given.sources]
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
        session = _Replay(Replay(judged), made.objective, scale)
        session.evaluate(budget, made.ask, made.tell)
        found = session.best.configuration if session.best else None
        seconds = session.searching.seconds
        return SimulationRun(seed, tuple(session.values), found, seconds, tuple(session.shares), made.sources)

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


class _Replay(Session):
    """Records the best value after each evaluation, and for several objectives the share of the recorded front."""

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


def _aliases(run: Run) -> dict[str, str]:
    """Return names that are valid in expressions, for metrics like ``GFLOP/s``."""
    return {name: re.sub(r"\W", "_", name) for name in run.metric_names if not re.fullmatch(r"[A-Za-z_][\w.]*", name)}


def _judged(run: Run, objective: Objective, rename: Mapping[str, str]) -> list[Trial]:
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
    metrics = trial.measurement.metrics
    extra = {rename[name]: metrics[name] for name in metrics if name in rename}
    return trial.with_measurement(metrics={**metrics, **extra}) if extra else trial
