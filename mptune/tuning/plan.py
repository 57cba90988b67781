"""The plan of a run: settings applied to a kernel, checked before any device is used."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune import __version__
from mptune.accuracy.evaluate import Metrics, all_metrics, judging, metric_names_by_error, metric_text
from mptune.accuracy.thresholds import planned_threshold
from mptune.backends.host_compiler import find_compiler
from mptune.data import DataManager
from mptune.errors import EmptySpaceError, KernelError, MptuneError, ObserverUnavailableError, UnknownNameError
from mptune.kernel import Application, Kernel, Role, Sizes, Tunable
from mptune.kernel.limits import space_on, spread
from mptune.kernel.regions import over_regions
from mptune.measure.bench import Ready, metric_names
from mptune.measure.pool import runnable_backend
from mptune.measure.worker import Limits
from mptune.observers import ALWAYS_ON, OBSERVERS
from mptune.observers.base import Observer
from mptune.results.estimates import METRICS, Counts, estimates, gpu_of_program, is_estimated, metric_of
from mptune.results.metric_expressions import unknown_metric
from mptune.results.objective import Objective
from mptune.source.flags import compilers_of, settled_flags
from mptune.source.loading import adopted_record, definition_hash, load_tunable
from mptune.source.render import render_body, template_hash
from mptune.space.configuration import Value
from mptune.space.parameters import PolicyParameter
from mptune.space.search_space import SearchSpace
from mptune.store import ParameterInfo, RunInfo
from mptune.strategies import chosen_name, make
from mptune.strategies.base import Known, Source, Strategy
from mptune.strategies.bayesian import BayesianStrategy
from mptune.strategies.model_based.application import ApplicationStrategy
from mptune.tuning.settings import TuneSettings
from mptune.tuning.starting import Searched, first_values, sources_of

#: Metric that estimates replace.
TIME: Final = "time_ms"
#: Default limit of a run of an adopted program: seconds of any, for each launch, and as a multiple of the program's
#: own run; once there is a valid trial, also as a multiple of its first run.
_PROGRAM_S, _LAUNCH_S, _PROGRAM_RUNS = 10.0, 2e-3, 20.0


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """Settings applied to a kernel, every name and value of them checked."""

    kernel: Tunable
    settings: TuneSettings  #: with a strategy that suits the objective
    sizes: Sizes
    objective: Objective
    metric: Metrics  #: of the errors
    observers: tuple[str | Observer, ...]  #: requested, or needed by objective and constraints
    sources: tuple[Source, ...] = ()
    unreadable: tuple[str, ...] = ()  #: errors of run files that cannot be read
    first: tuple[Mapping[str, Value], ...] = ()  #: values of the configurations to evaluate first
    counts: Mapping[str, Counts] = field(default_factory=dict)  #: what each kernel does, if estimates are wanted

    @classmethod
    def of(cls, kernel: Tunable | str | Path, settings: TuneSettings, run_file: Path | None = None) -> TuningPlan:
        """Check settings against a kernel, a bundled kernel's name, or a definition file; raises MptuneError.

        ``run_file`` is never a source of its own run.
        """
        if not isinstance(kernel, Tunable):
            kernel = load_tunable(kernel)
        sizes = kernel.resolve_sizes(settings.size, settings.sizes)
        outputs = [output.name for output in kernel.outputs]
        given = over_regions(settings.metric or kernel.metric, settings.over, settings.reduce)
        is_own = settings.metric is None and settings.over is None
        metric, threshold = planned_threshold(settings.max_error, outputs, given, is_own=is_own)
        for output in kernel.outputs:
            for each in judging(outputs, metric)[output.name]:
                each.require_regions(output.name, kernel.shape_of(output, sizes))
        record = adopted_record(kernel.path.parent) if kernel.path else {}
        settings = _with_estimates(settings, record)
        objective = settings.goal(threshold)
        if settings.trial_limits == Limits():  # a run of an adopted program is one of the whole program
            settings = dataclasses.replace(settings, limits=_limits_of_program(record))
        settings = dataclasses.replace(
            settings,
            strategy=chosen_name(settings.strategy, objective),
            restrict={**_not_estimated(kernel, record, objective), **kernel.full_names(settings.restrict)},
            flags=settled_flags(settings.flags),
        )
        observers = _observers(kernel, metric, settings, objective)
        space = kernel.search_space(sizes).restrict(settings.restrict)
        sources: tuple[Source, ...] = ()
        unreadable: tuple[str, ...] = ()
        if settings.sources or settings.knowledge is not None:
            if isinstance(kernel, Application):
                raise MptuneError(f"{kernel.called} cannot start from earlier runs, which only a single kernel can")
            searched = Searched(kernel.name, space, objective, metric_text(outputs, metric), sizes)
            sources, unreadable = sources_of(settings.sources, settings.knowledge, searched, run_file)
        make(settings.strategy, space, objective, options=dict(settings.strategy_options), sources=sources)
        tried_first = tuple(itertools.chain.from_iterable(first_values(each, kernel) for each in settings.first))
        return cls(kernel, settings, sizes, objective, metric, observers, sources, unreadable, first=tried_first)

    def space_on(self, ready: Ready) -> SearchSpace:
        """Return the search space on a device; raises MptuneError if the template does not render."""
        space = space_on(self.kernel, self.sizes, ready.facts)
        if isinstance(self.kernel, Kernel):
            # A template that always fails is a mistake of the definition, not a status of trials.
            render_body(self.kernel, space.configuration(0), self.sizes)
        return space

    def require_launch(self, space: SearchSpace) -> None:
        """Raise KernelError if the functions of a kernel's launch fail for all of a sample of baselines."""
        kernel = self.kernel
        if not isinstance(kernel, Kernel) or not kernel.launch_functions:
            return
        with contextlib.suppress(EmptySpaceError, UnknownNameError):
            space = space.restrict(kernel.baseline_values())
        failed: list[KernelError] = []
        for configuration in spread(space):
            try:
                kernel.launch_shape(configuration, self.sizes)
                return
            except KernelError as error:
                failed.append(error)
        raise failed[0]

    def strategy(self, space: SearchSpace, objective: Objective) -> Strategy:
        """Return a new strategy for a space, with known memory footprints."""
        return self._of_application(space, objective) or make(
            self.settings.strategy,
            space,
            objective,
            signature=self.kernel.signature_names,
            seed=self.settings.seed,
            options=dict(self.settings.strategy_options),
            known={"memory_bytes": footprints(self.kernel, self.sizes, space), **self._estimates(space)},
            sources=self.sources,
            budget=self.settings.budget,
        )

    def _estimates(self, space: SearchSpace) -> dict[str, Known]:
        """Return functions from indices of a space, ``(n,)``, to the objectives that are estimates, ``(n,)``."""

        def known(metric: str, indices: NDArray[np.int64]) -> NDArray[np.float64]:
            return np.array([estimates(self.counts, c)[metric] for c in space.configurations(np.asarray(indices))])

        metrics = [name for name in self.objective.metrics if name in METRICS and self.counts]
        return {metric: functools.partial(known, metric) for metric in metrics}

    def baseline_strategy(self, space: SearchSpace, objective: Objective) -> Strategy:
        """Return a new strategy that proposes only baselines, and learns times from trials of any types."""
        objective = dataclasses.replace(objective, also=())
        strategy = self._of_application(space, objective) or BayesianStrategy(
            space, objective, signature=self.kernel.signature_names, seed=self.settings.seed
        )
        strategy.focus(self.kernel.baseline_values())
        return strategy

    def _of_application(self, space: SearchSpace, objective: Objective) -> ApplicationStrategy | None:
        """Return a strategy that models the time of each kernel of an application; None if it does not apply."""
        is_default = self.settings.strategy == TuneSettings().strategy
        if not (isinstance(self.kernel, Application) and is_default and objective.is_time and not objective.also):
            return None
        return ApplicationStrategy(
            space,
            objective,
            signature=self.kernel.signature_names,
            seed=self.settings.seed,
            kernels=tuple(self.kernel.kernels),
            is_relative=self.kernel.reference is None,
        )

    def check_observers(self, ready: Ready, on_warning: Callable[[str], None]) -> None:
        """Warn of observers that are unavailable on a device; raise if objective or constraints need one."""
        objective = self.objective
        for name in sorted(objective.names | objective.constraint_names):
            if name in ready.unavailable:
                reader = _named(self.settings) if name in objective.names else "a measured constraint"
                raise ObserverUnavailableError(f"{reader} needs {name}: {ready.unavailable[name]}")
        for reason in dict.fromkeys(ready.unavailable.values()):
            names = [name for name, given in ready.unavailable.items() if given == reason]
            observer = next((f"observer {name}" for name in names if name in OBSERVERS), None)
            on_warning(f"{observer or ', '.join(names)} is not available here: {reason}")

    def describe(self, space: SearchSpace, ready: Ready, command: str) -> RunInfo:
        """Return the definition of the run for its file."""
        settings, limits, scheduler = self.settings, self.settings.trial_limits, self.settings.scheduler
        settled = ("size", "flags", "strategy", "budget", "baseline_share", "seed", "flush_cache")
        found = ("observers", "data_key", "rounded", "masked")
        outputs = [output.name for output in self.kernel.outputs]
        is_of_application = isinstance(self.kernel, Application)
        buffers = [a for a in self.kernel.arguments if is_of_application and a.role is not Role.SCALAR]
        versions = dict(ready.device.versions)
        if compilers := compilers_of(self.kernel):
            versions.pop("compiler", None)  # the default compiler is not used
            versions |= {name: find_compiler(name).version for name in compilers}
        return RunInfo(
            **{name: getattr(settings, name) for name in settled},
            **{name: getattr(ready, name) for name in found},
            kernel=self.kernel.name,
            kernel_path=str(self.kernel.path) if self.kernel.path else None,
            sizes=dict(self.sizes),
            forms=tuple(self.kernel.forms),
            backend=ready.device.backend,
            device=ready.device.name,
            architecture=ready.device.architecture,
            versions=versions | {f"metric {m.name}": m.version for m in all_metrics(self.metric) if m.version},
            compiler=ready.identity,
            objective=self.objective,
            metric=metric_text(outputs, self.metric),
            metrics=metric_names_by_error(outputs, self.metric),
            baseline_values=self.kernel.baseline_values(),
            strategy_options={name: str(value) for name, value in settings.strategy_options.items()},
            limit_s=limits.run_s,
            limit_factor=limits.launch_factor if math.isfinite(limits.launch_factor) else None,
            started_from=tuple(source.name for source in self.sources),
            scheduler=scheduler if scheduler is None or isinstance(scheduler, str) else type(scheduler).__name__,
            buffers={a.name: a.precision or str(a.dtype) for a in buffers},
            parameters=tuple(ParameterInfo(p.name, p.kind, p.values) for p in space.parameters),
            constraints=tuple(constraint.text for constraint in space.constraints),
            constants=space.constants,
            configurations=space.size,
            signature=self.kernel.signature_names,
            template_hash=template_hash(self.kernel),
            definition_hash=definition_hash(self.kernel),
            adopted=adopted_record(self.kernel.path.parent) if self.kernel.path else {},
            mptune_version=__version__,
            command=command,
            created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        )


def _limits_of_program(record: Mapping[str, Any]) -> Limits:
    """Return the default limits of an adopted program by its record; of any other kernel the general ones."""
    if not record:
        return Limits()
    launches = sum(int(kernel.get("launches", 0)) for kernel in record.get("kernels", ()))
    run_s = _PROGRAM_S + _PROGRAM_RUNS * float(record.get("run_s", 0.0)) + _LAUNCH_S * launches
    return Limits(run_s=run_s, phase_factor=_PROGRAM_RUNS)


def _with_estimates(settings: TuneSettings, record: Mapping[str, Any]) -> TuneSettings:
    """Return the settings with a GPU's estimated time among the objectives, where that is asked for or the default."""
    gpu = settings.gpu
    if gpu is None and settings.scheduler is None and runnable_backend(settings.backend) == "host":
        gpu = gpu_of_program(record)
    if gpu in (None, "host"):
        return settings
    assert gpu is not None
    estimated = metric_of(gpu)
    if estimated in settings.metrics:
        return settings
    if TIME not in settings.metrics or settings.maximise:
        if settings.gpu is None:
            return settings
        raise MptuneError(f"--for {gpu} estimates the time, which is no objective to minimise here")
    objectives = tuple(estimated if name == TIME else name for name in settings.metrics)
    if len(objectives) > 1:
        return dataclasses.replace(settings, gpu=gpu, objectives=objectives)
    return dataclasses.replace(settings, gpu=gpu, objective=objectives[0])


def _not_estimated(kernel: Tunable, record: Mapping[str, Any], objective: Objective) -> dict[str, list[Value]]:
    """Return the values that an adopted program keeps if an estimate judges it, by parameter.

    Functions of other policies are not written into a program, so their estimates would be of another program. The
    estimate does not judge sizes of blocks, which are searched only if measured times judge them, too.
    """
    if not record or not is_estimated(objective):
        return {}
    own: dict[str, Value] = {p.name: "accurate" for p in kernel.parameters if isinstance(p, PolicyParameter)}
    if TIME not in objective.names | objective.constraint_names:
        own |= record.get("own", {})
    values = {parameter.name: parameter.values for parameter in kernel.parameters}
    return {name: [value] for name, value in own.items() if value in values.get(name, ())}


def _observers(
    kernel: Tunable, metric: Metrics, settings: TuneSettings, objective: Objective
) -> tuple[str | Observer, ...]:
    known = metric_names(kernel, metric)
    for name in sorted(objective.names):
        if name not in known:
            raise unknown_metric(f"metric in {_named(settings)}:", name, known, objective.metrics)
    for name in sorted(objective.constraint_names):
        if name not in known:
            raise UnknownNameError("metric in a measured constraint:", name, known)
    asked = [each for each in settings.observers if each not in ALWAYS_ON]
    for each in asked:
        if isinstance(each, str) and each not in OBSERVERS:
            raise UnknownNameError("observer", each, OBSERVERS)
    wanted = objective.names | objective.constraint_names
    needed = [name for name, kind in OBSERVERS.items() if not wanted.isdisjoint(kind.metrics)]
    return tuple(dict.fromkeys((*asked, *needed)))


def _named(settings: TuneSettings) -> str:
    return f"objectives {','.join(settings.objectives)}" if settings.objectives else f"objective {settings.objective!r}"


def footprints(kernel: Tunable, sizes: Sizes, space: SearchSpace) -> Known:
    """Return a function from indices of a space, ``(n,)``, to ``memory_bytes``, ``(n,)``.

    It is computed once for each combination of the arguments' types.
    """
    data = DataManager(kernel, sizes)
    precisions = {argument.precision for argument in kernel.arguments}
    columns = [column for column, name in enumerate(space.names) if name in precisions]

    def known(indices: NDArray[np.int64]) -> NDArray[np.float64]:
        types = space.codes(indices)[:, columns]
        _, first, inverse = np.unique(types, axis=0, return_index=True, return_inverse=True)
        found = space.configurations(np.asarray(indices)[first])
        return np.array([data.footprint_bytes(c) for c in found], dtype=np.float64)[inverse.reshape(-1)]

    return known
