"""Tuning a kernel: ask, evaluate, tell, under a budget."""

from __future__ import annotations

import dataclasses
import datetime
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mptune import __version__
from mptune.accuracy.metrics import resolve
from mptune.backends import get_backend
from mptune.errors import BackendUnavailableError, EmptySpaceError, MptuneError, UnknownNameError
from mptune.evaluators.bench import Ready
from mptune.evaluators.device import DeviceEvaluator, Limits
from mptune.kernel import Kernel, Sizes
from mptune.objective import Objective
from mptune.registry import load_kernel
from mptune.rendering import render
from mptune.results import Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.space.search_space import SearchSpace
from mptune.store import RunFile
from mptune.strategies import make
from mptune.strategies.base import Strategy

__all__ = ["Progress", "TuneSettings", "tune"]

#: What ``--objective`` accepts beside metric names and expressions over them.
OBJECTIVES: Mapping[str, str] = {"time": "time_ms", "memory": "memory_bytes", "energy": "energy_j", "error": "error"}


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """How to tune.

    Attributes:
        backend: "auto" or a backend's name.
        size: name of the size preset.
        sizes: sizes that replace the preset's.
        max_error: threshold of the error metric, one for all outputs or by output.
        metric: error metric instead of the kernel's own.
        objective: "time", "memory", "error", a metric name or an expression over metrics.
        maximise: whether more of the objective is better.
        penalty: score of an inaccurate trial: "hard", "linear" or "decay".
        alpha: slope of the linear penalty.
        beta: rate of the decay penalty.
        strategy: name of the strategy.
        strategy_options: its hyperparameters by name.
        budget: unique configurations to evaluate.
        time_limit_s: no further evaluation once the run took this long.
        baseline_share: share of the budget the search for the baseline gets.
        seed: seeds inputs and strategy.
        workers: evaluations under way at once.
        flags: further compiler flags.
        limits: wall-clock limits of one trial.
    """

    backend: str = "auto"
    size: str = "default"
    sizes: Mapping[str, int] = field(default_factory=dict)
    max_error: float | Mapping[str, float] | None = None
    metric: str | Callable[..., float] | None = None
    objective: str = "time"
    maximise: bool = False
    penalty: str = "decay"
    alpha: float = 1.0
    beta: float = 1.0
    strategy: str = "bayesian"
    strategy_options: Mapping[str, Any] = field(default_factory=dict)
    budget: int = 100
    time_limit_s: float | None = None
    baseline_share: float = 0.2
    seed: int = 0
    workers: int = 1
    flags: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise MptuneError(f"budget {self.budget}: expected at least 1 evaluation")
        if not 0.0 <= self.baseline_share <= 1.0:
            raise MptuneError(f"baseline share {self.baseline_share:g}: expected a number from 0 to 1")
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise MptuneError(f"time limit {self.time_limit_s:g} s: expected more than 0")
        if self.workers != 1:
            raise MptuneError(f"workers {self.workers}: one worker per device, and one device, is what there is")


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a tuning run stands, told after every trial.

    Attributes:
        phase: "baseline" or "search".
        trial: the latest trial.
        run: returns everything so far.
        budget: evaluations there will be at most.
        elapsed_s: wall time since the start.
        replayed: whether the trial comes from the run file.
    """

    phase: str
    trial: Trial
    run: Callable[[], Run]
    budget: int
    elapsed_s: float
    replayed: bool


def tune(
    kernel: Kernel | str | Path,
    settings: TuneSettings | None = None,
    *,
    output: str | Path | None = None,
    resume: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
    command: str = "",
    **overrides: Any,
) -> Run:
    """Tune a kernel and return the finished run.

    The baseline is searched first, among the all-fp64, accurate configurations, with its share of the
    budget; then the whole space. Every trial is committed to the run file before the next is asked for.

    Args:
        kernel: a kernel, the name of a bundled one, or the path of a definition file.
        settings: how to tune.
        output: the run file; none is written when it is None.
        resume: go on with an existing run file.
        on_progress: told about every trial.
        command: the command line, kept in the run file.
        overrides: fields of :class:`TuneSettings` that replace those of ``settings``.

    Raises:
        MptuneError: something the user gave is wrong; the message names it.
    """
    settings = dataclasses.replace(settings or TuneSettings(), **overrides)
    if not isinstance(kernel, Kernel):
        kernel = load_kernel(kernel)
    sizes = kernel.resolve_sizes(settings.size, settings.sizes)
    _check_outputs(kernel, settings.max_error)
    metric = resolve(settings.metric if settings.metric is not None else kernel.metric)
    backend = _runnable_backend(settings.backend)
    objective = Objective(
        metric=OBJECTIVES.get(settings.objective, settings.objective),
        minimise=not settings.maximise,
        threshold=settings.max_error,
        penalty=settings.penalty,
        alpha=settings.alpha,
        beta=settings.beta,
    )
    make(settings.strategy, kernel.search_space(sizes), objective, options=dict(settings.strategy_options))
    with DeviceEvaluator(
        kernel,
        sizes,
        backend,
        metric=settings.metric,
        seed=settings.seed,
        flags=settings.flags,
        limits=settings.limits,
    ) as evaluator:
        ready = evaluator.start()
        space = kernel.search_space(sizes, device_constraints(kernel, ready.constraints))
        render(kernel, space.configuration(0), sizes)
        described = _describe(kernel, sizes, settings, objective, metric.name, space, ready, command)
        with _open_run(output, resume, described) as file:
            return _Tuning(kernel, settings, objective, space, evaluator, file, described, on_progress).run()


def _check_outputs(kernel: Kernel, threshold: float | Mapping[str, float] | None) -> None:
    outputs = [argument.name for argument in kernel.outputs]
    for name in threshold if isinstance(threshold, Mapping) else ():
        if name not in outputs:
            raise UnknownNameError(f"output of kernel {kernel.name}:", name, outputs)


def _runnable_backend(name: str) -> str:
    backend = get_backend(name)
    found = backend.availability()
    if not found.can_run:
        raise BackendUnavailableError(f"backend {backend.name} cannot run here: {found.reason}")
    return backend.name


def device_constraints(kernel: Kernel, limits: Sequence[str]) -> tuple[str, ...]:
    """Return a device's limits as constraints over the kernel's own parameters and sizes.

    Args:
        kernel: supplies what a block and its shared memory are made of.
        limits: constraints over ``threads_per_block`` and ``shared_bytes``.
    """
    threads = "*".join(f"({axis})" for axis in kernel.block)
    meaning = {"threads_per_block": f"({threads})", "shared_bytes": f"({kernel.shared_bytes})"}
    return tuple(re.sub("|".join(meaning), lambda name: meaning[name[0]], limit) for limit in limits)


class _NoFile:
    """Stands in for a run file where none is wanted."""

    def add(self, trial: Trial, phase: str = "search") -> None:
        """Keep nothing."""

    def trials(self) -> list[Trial]:
        """Return nothing."""
        return []

    def update(self, settings: Mapping[str, Any]) -> None:
        """Keep nothing."""

    def __enter__(self) -> _NoFile:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""


def _open_run(output: str | Path | None, resume: bool, described: Mapping[str, Any]) -> RunFile | _NoFile:
    if output is None:
        return _NoFile()
    if not (resume and Path(output).exists()):
        return RunFile.create(output, described)
    file = RunFile.open(output)
    try:
        for name in ("kernel", "backend"):
            if file.settings.get(name) != described[name]:
                raise MptuneError(
                    f"{output} holds a run of {name} {file.settings.get(name)!r}, not {described[name]!r}: "
                    "give another --output"
                )
        file.update(
            {**described, "created_at": file.settings.get("created_at"), "wall_s": file.settings.get("wall_s", 0)}
        )
    except BaseException:
        file.close()
        raise
    return file


class _Tuning:
    """One run of the ask → evaluate → tell loop."""

    def __init__(
        self,
        kernel: Kernel,
        settings: TuneSettings,
        objective: Objective,
        space: SearchSpace,
        evaluator: DeviceEvaluator,
        file: RunFile | _NoFile,
        described: Mapping[str, Any],
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._kernel = kernel
        self._settings = settings
        self._objective = objective
        self._space = space
        self._evaluator = evaluator
        self._file = file
        self._described = dict(described)
        self._on_progress = on_progress
        self._stored = {trial.configuration: trial for trial in file.trials()}
        self._trials: dict[Configuration, Trial] = {}
        self._start = time.monotonic()
        self._wall_before_s = float(self._described.get("wall_s") or 0.0)

    def run(self) -> Run:
        """Search the baseline, then the space; return everything."""
        settings = self._settings
        baseline = self._search_baseline(max(1, round(settings.budget * settings.baseline_share)))
        if baseline is not None:
            self._objective = self._objective.with_baseline(self._objective.value(baseline))
        strategy = self._strategy(self._space)
        strategy.tell(list(self._trials.values()))
        self._loop(strategy, settings.budget, "search")
        self._described["wall_s"] = self._wall_s()
        self._file.update({"wall_s": self._wall_s()})
        return self._result()

    def _search_baseline(self, budget: int) -> Trial | None:
        """Return the fastest valid configuration found among the all-fp64, accurate ones."""
        if self._settings.baseline_share == 0.0:
            return None
        try:
            space = self._space.restrict(self._kernel.baseline_values())
        except EmptySpaceError:
            return None
        self._loop(self._strategy(space), budget, "baseline")
        return self._result().baseline

    def _strategy(self, space: SearchSpace) -> Strategy:
        return make(
            self._settings.strategy,
            space,
            self._objective,
            signature=self._kernel.signature_names,
            seed=self._settings.seed,
            options=dict(self._settings.strategy_options),
        )

    def _loop(self, strategy: Strategy, budget: int, phase: str) -> None:
        while len(self._trials) < budget and not self._out_of_time():
            asked = strategy.ask(1)
            if not asked:
                return
            trial = self._replay(asked[0])
            replayed = trial is not None
            if trial is None:
                strategy.tell(self._take_leftovers())
                trial = self._judge(next(iter(self._evaluator.evaluate(asked))))
                self._file.add(trial, phase)
            self._trials[trial.configuration] = trial
            strategy.tell([trial])
            elapsed_s = time.monotonic() - self._start
            self._on_progress(Progress(phase, trial, self._result, self._settings.budget, elapsed_s, replayed))

    def _replay(self, configuration: Configuration) -> Trial | None:
        """Return the stored trial of a configuration, if it was measured under the present conditions."""
        stored = self._stored.get(configuration)
        if stored is None or stored.key != self._evaluator.key_of(configuration):
            return None
        del self._stored[configuration]
        self._evaluator.remember(stored)
        return self._judge(stored)

    def _take_leftovers(self) -> list[Trial]:
        """Return stored trials a differently set up strategy did not ask for; they are as good as its own."""
        leftovers = [self._replay(configuration) for configuration in list(self._stored)]
        self._stored.clear()
        found = [trial for trial in leftovers if trial is not None]
        self._trials.update({trial.configuration: trial for trial in found})
        return found

    def _judge(self, trial: Trial) -> Trial:
        """Give a valid trial its status under the threshold."""
        if not trial.is_valid:
            return trial
        if self._objective.is_feasible(trial):
            return dataclasses.replace(trial, status=Status.OK, message="")
        message = f"error {trial.error:.3g} is above the threshold"
        return dataclasses.replace(trial, status=Status.INACCURATE, message=message)

    def _out_of_time(self) -> bool:
        limit_s = self._settings.time_limit_s
        return limit_s is not None and time.monotonic() - self._start >= limit_s

    def _wall_s(self) -> float:
        return self._wall_before_s + time.monotonic() - self._start

    def _result(self) -> Run:
        return Run({**self._described, "wall_s": self._wall_s()}, list(self._trials.values()))


def _describe(
    kernel: Kernel,
    sizes: Sizes,
    settings: TuneSettings,
    objective: Objective,
    metric: str,
    space: SearchSpace,
    ready: Ready,
    command: str,
) -> dict[str, Any]:
    """Return what a run file keeps beside its trials."""
    threshold = objective.threshold
    return {
        "mptune_version": __version__,
        "kernel": kernel.name,
        "kernel_path": str(kernel.path) if kernel.path else None,
        "backend": ready.device.backend,
        "device": ready.device.name,
        "architecture": ready.device.architecture,
        "versions": dict(ready.device.versions),
        "size": settings.size,
        "sizes": dict(sizes),
        "seed": settings.seed,
        "threshold": dict(threshold) if isinstance(threshold, Mapping) else threshold,
        "metric": metric,
        "objective": objective.metric,
        "minimise": objective.minimise,
        "penalty": objective.penalty,
        "alpha": objective.alpha,
        "beta": objective.beta,
        "strategy": settings.strategy,
        "strategy_options": {k: str(v) for k, v in settings.strategy_options.items()},
        "budget": settings.budget,
        "baseline_share": settings.baseline_share,
        "baseline_values": {name: list(values) for name, values in kernel.baseline_values().items()},
        "signature": list(kernel.signature_names),
        "configurations": space.size,
        "command": command,
        "created_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **space.describe(),
    }
