"""Settings of a tuning run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final

from mptune.accuracy.evaluate import Metrics
from mptune.accuracy.thresholds import Threshold
from mptune.errors import MptuneError, UnknownNameError
from mptune.kernel.regions import Over, Reduce
from mptune.measure.worker import Limits
from mptune.observers.base import Observer
from mptune.results.metric_expressions import chosen_objectives
from mptune.results.objective import Objective
from mptune.run import Run
from mptune.space.arguments import COUNT, POSITIVE, Between, fitted_arguments
from mptune.space.configuration import Value

_LONGEST_TRIAL_S: Final = 1_000_000  #: the system cannot wait for a process longer than 24 days


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """Settings of a tuning run.

    Attributes:
        backend: "auto" or a backend's name.
        size: name of the size preset.
        sizes: sizes that replace the preset's.
        max_error: threshold of the error: one for all outputs, or by name: ``OUTPUT`` (by its own metric), ``METRIC``
            (all outputs by that metric), or ``OUTPUT.METRIC``.
        metric: error metrics instead of the kernel's own, as :class:`~mptune.Kernel` takes them.
        over: measure errors of each region: "rows", "columns", ("block", (8, 8)).
        reduce: reduction of the regions' errors: "max", or a quantile such as 0.99.
        objective: "time", "memory", "energy", "edp", "error", a metric name or an expression over metrics.
        objectives: two or three objectives to search for the front of; the best trial is that of the first.
        gpu: GPU for which an estimated time (:mod:`mptune.results.estimates`) replaces the measured one among the
            objectives, such as "a100"; "host" for measured times. None: of an adopted CUDA or HIP program that is tuned
            on the host, the most common GPU of its vendor.
        maximise: whether to maximise the objective.
        constraints: limits on measured metrics that a feasible trial meets, such as ``energy_j <= 1.5``.
        observers: further observers, by name or as objects; objective and constraints add the ones that they need.
        restrict: allowed values by name of a parameter; others have all their values.
        penalty: score of an inaccurate trial: "hard", "linear" or "decay".
        alpha: slope of the linear penalty.
        beta: rate of the decay penalty.
        strategy: name of the strategy.
        strategy_options: hyperparameters of the strategy by name.
        sources: runs, run files and recordings, of other devices or sizes, that the search starts from.
        knowledge: a folder whose matching run files are sources, too.
        first: configurations to evaluate first: some values by name of a parameter, or the path of a run file or a JSON
            document with its best configurations.
        budget: unique configurations to evaluate.
        time_limit_s: start no new evaluation after this many seconds.
        baseline_share: share of the budget for the baseline.
        seed: seeds inputs and strategy.
        inputs: draws of the inputs for errors in the search; the worst counts.
        verify: unseen inputs for the reported trials at the end; fewer, but at least 5, if they take more than a
            quarter of the run; 0 for none.
        finals: whether the fastest trials and the baseline are timed again side by side at the end.
        workers: devices of this machine to evaluate on, one worker process for each.
        scheduler: evaluate on the devices of a cluster's workers: address of a Dask scheduler, path of its file, or
            any :class:`concurrent.futures.Executor`.
        compilers: compilations ahead of the evaluations at a time. None: one per core, less two beside a GPU. 0: the
            worker compiles each configuration, proposed after the measurement of the one before.
        flags: further compiler flags.
        compiler: compilers on the host, such as ("g++",); the best of several is searched for. Empty: ``$CXX``, else
            the first available.
        compiler_flag_sets: sets of further flags, one text each; the best of several is searched for.
        flush_cache: whether to empty caches between timed launches: "on", "off" or "auto" (on a GPU, where it matters).
        limits: wall-clock limits of a trial; or of each phase in seconds, or as a multiple of the baseline's launch,
            such as "10x".

    Raises:
        MptuneError: a value is of another type or out of range, or options exclude each other.
    """

    backend: str = "auto"
    size: str = "default"
    sizes: Mapping[str, int] = field(default_factory=dict)
    max_error: float | Mapping[str, float] | None = None
    metric: Metrics | None = None
    over: Over | None = None
    reduce: Reduce = "max"
    objective: str = "time"
    objectives: tuple[str, ...] = ()
    gpu: str | None = None
    maximise: bool = False
    constraints: tuple[str, ...] = ()
    observers: tuple[str | Observer, ...] = ()
    restrict: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    penalty: str = "decay"
    alpha: float = 1.0
    beta: float = 1.0
    strategy: str = "bayesian"
    strategy_options: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[str | Path | Run, ...] = ()
    knowledge: str | Path | None = None
    first: Sequence[Mapping[str, Value] | str | Path] = ()
    budget: Annotated[int, COUNT] = 100
    time_limit_s: Annotated[float | None, POSITIVE] = None
    baseline_share: Annotated[float, Between(0, 1)] = 0.2
    seed: Annotated[int, Between(0)] = 0
    inputs: Annotated[int, COUNT] = 3
    verify: Annotated[int, Between(0)] = 20
    finals: bool = True
    workers: Annotated[int, COUNT] = 1
    scheduler: str | Executor | None = None
    compilers: Annotated[int | None, Between(0)] = None
    flags: tuple[str, ...] = ()
    compiler: tuple[str, ...] = ()
    compiler_flag_sets: tuple[str, ...] = ()
    flush_cache: str = "auto"
    limits: Limits | float | str = field(default_factory=Limits)

    def __post_init__(self) -> None:
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        for name, value in fitted_arguments(TuneSettings, given).items():
            object.__setattr__(self, name, value)
        chosen_objectives(self.objective, self.objectives, self.maximise)
        if not 0 < self.trial_limits.run_s <= _LONGEST_TRIAL_S:
            limit = f"trial limit {self.trial_limits.run_s:g} s"
            raise MptuneError(f"{limit}: expected more than 0 and at most {_LONGEST_TRIAL_S:,} (11 days)")
        if self.scheduler is not None and self.workers != 1:
            raise MptuneError(f"workers {self.workers}: a scheduler has workers of its own; give only one of the two")

    def changed(self, changes: Mapping[str, Any]) -> TuneSettings:
        """Return the settings with some fields replaced; raises UnknownNameError if there is no such field."""
        known = [each.name for each in fields(self)]
        for name in changes:
            if name not in known:
                raise UnknownNameError("setting", name, known)
        return replace(self, **changes)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics or expressions to optimise."""
        return tuple(map(str.strip, chosen_objectives(self.objective, self.objectives, self.maximise)))

    def goal(self, threshold: Threshold, aliases: Mapping[str, str] = MappingProxyType({})) -> Objective:
        """Return the objective under a threshold; ``aliases`` renames metrics."""
        first, *also = (aliases.get(name, name) for name in self.metrics)
        return Objective(
            metric=first,
            minimise=not self.maximise,
            threshold=threshold,
            penalty=self.penalty,
            alpha=self.alpha,
            beta=self.beta,
            constraints=self.constraints,
            also=tuple(also),
        )

    @property
    def trial_limits(self) -> Limits:
        """The wall-clock limits of a trial."""
        return self.limits if isinstance(self.limits, Limits) else Limits.of(self.limits)
