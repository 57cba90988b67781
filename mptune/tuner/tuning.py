"""Tuning a kernel: everything checked, the worker started, the run file opened, the loop run."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import hashlib
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mptune import __version__
from mptune.accuracy.evaluate import metric_text, metrics_by_output
from mptune.backends.processor import usable_cores
from mptune.errors import ObserverUnavailableError, UnknownNameError
from mptune.evaluators.bench import Ready, metric_names
from mptune.evaluators.dask import Cluster, DaskDevices
from mptune.evaluators.device import DeviceEvaluator
from mptune.evaluators.devices import Devices, runnable_backend
from mptune.evaluators.observing import observers_for
from mptune.evaluators.protocol import Job
from mptune.evaluators.timing import TimingPlan
from mptune.evaluators.worker_process import Limits
from mptune.kernel import Kernel, Sizes
from mptune.metric_expressions import chosen_objectives, short_names
from mptune.objective import Objective
from mptune.observers import OBSERVERS
from mptune.policy import MeasurementPolicy
from mptune.registry import load_kernel
from mptune.rendering import render_body, template_hash
from mptune.run import Run
from mptune.space.search_space import SearchSpace
from mptune.store import ParameterInfo, RunFile, RunInfo, RunState, UnsavedRun
from mptune.strategies import chosen_name, make
from mptune.tuner.loop import Tuning
from mptune.tuner.settings import Progress, TuneSettings

__all__ = ["device_constraints", "tune"]

#: What a limit calls an axis.
_AXIS: Final = re.compile(r"\b(block|grid)_[xyz] <=")


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=4)  # where tune was called


def tune(
    kernel: Kernel | str | Path,
    settings: TuneSettings | None = None,
    *,
    output: str | Path | None = None,
    resume: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_warning: Callable[[str], None] = _warn,
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
        on_warning: told, before the first trial, about each observer that cannot measure here; by default a warning.
        command: the command line, kept in the run file.
        overrides: fields of :class:`TuneSettings` that replace those of ``settings``.

    Raises:
        MptuneError: something the user gave is wrong; the message names it.
    """
    start = time.monotonic()
    known = [field.name for field in dataclasses.fields(TuneSettings)]
    for name in overrides:
        if name not in known:
            raise UnknownNameError("setting", name, known)
    settings = dataclasses.replace(settings or TuneSettings(), **overrides)
    if not isinstance(kernel, Kernel):
        kernel = load_kernel(kernel)
    sizes = kernel.resolve_sizes(settings.size, settings.sizes)
    _check_outputs(kernel, settings.max_error)
    metric = settings.metric if settings.metric is not None else kernel.metric
    metrics_by_output([output.name for output in kernel.outputs], metric)
    first, *also = chosen_objectives(settings.objective, settings.objectives, settings.maximise)
    objective = Objective(
        metric=first,
        minimise=not settings.maximise,
        threshold=settings.max_error,
        penalty=settings.penalty,
        alpha=settings.alpha,
        beta=settings.beta,
        constraints=tuple(settings.constraints),
        also=tuple(also),
    )
    settings = dataclasses.replace(settings, strategy=chosen_name(settings.strategy, objective))
    observers = _observers(kernel, settings, objective)
    make(settings.strategy, kernel.search_space(sizes), objective, options=dict(settings.strategy_options))
    if output is not None:
        # Before minutes go into inputs and references.
        RunFile.check(output, resume=resume)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(settings.scheduler)) if settings.scheduler is not None else None
        evaluator = stack.enter_context(_evaluator(kernel, sizes, settings, objective, observers, cluster, on_warning))
        ready = evaluator.start()
        _check_observed(settings, objective, ready, on_warning)
        space = kernel.search_space(sizes, device_constraints(kernel, ready.constraints))
        # A template that is wrong everywhere is a mistake to tell of, not the status of a hundred trials.
        render_body(kernel, space.configuration(0), sizes)
        info = _describe(kernel, sizes, settings, objective, metric_text(metric), space, ready, command)
        file = _open_run(output, resume, info, evaluator.capacity)
        stack.enter_context(file)
        if evaluator.unversioned_metrics and file.trials():
            names = ", ".join(evaluator.unversioned_metrics)
            on_warning(
                f"error metric {names} has no version, so the trials in {output} are evaluated again; set one "
                '(function.version = "1") and change it whenever the results of the function change'
            )
        return Tuning(kernel, sizes, settings, objective, space, evaluator, file, on_progress, start).run()


def _evaluator(
    kernel: Kernel,
    sizes: Sizes,
    settings: TuneSettings,
    objective: Objective,
    observers: tuple[str, ...],
    cluster: Cluster | None,
    on_warning: Callable[[str], None],
) -> DeviceEvaluator:
    """Return what evaluates on the devices of this machine, or of a cluster."""
    devices: Callable[[Job, Limits], Devices] | None = None
    if cluster is None:
        backend = runnable_backend(settings.backend)
    else:
        backend = cluster.backend(settings.backend, settings.limits.start_s)
        devices = functools.partial(DaskDevices, cluster, on_warning=on_warning)
    return DeviceEvaluator(
        kernel,
        sizes,
        backend,
        metric=settings.metric,
        seed=settings.seed,
        flags=settings.flags,
        plan=TimingPlan(flush_cache=settings.flush_cache),
        limits=settings.limits,
        compilers=usable_cores() if settings.compilers is None else settings.compilers,
        policy=MeasurementPolicy(objective, settings.limits.run_s),
        observers=observers,
        workers=settings.workers,
        devices=devices,
    )


def _observers(kernel: Kernel, settings: TuneSettings, objective: Objective) -> tuple[str, ...]:
    """Return the observers to switch on: those asked for, and those that objective and constraints need.

    Raises:
        UnknownNameError: no observer has a name asked for, or none gives a metric that is needed.
    """
    known = metric_names(kernel)
    for name in sorted(objective.names):
        if name not in known:
            raise UnknownNameError(f"metric in {_named(settings)}:", name, known, aliases=short_names(name, known))
    for name in sorted(objective.constraint_names):
        if name not in known:
            raise UnknownNameError("metric in a measured constraint:", name, known)
    for name in settings.observers:
        if name not in OBSERVERS:
            raise UnknownNameError("observer", name, OBSERVERS)
    needed = observers_for(objective.names | objective.constraint_names)
    return tuple(dict.fromkeys((*settings.observers, *needed)))


def _check_observed(
    settings: TuneSettings, objective: Objective, ready: Ready, on_warning: Callable[[str], None]
) -> None:
    """Tell of observers that cannot measure here.

    Raises:
        ObserverUnavailableError: objective or constraints need what cannot be measured.
    """
    for name in sorted(objective.names | objective.constraint_names):
        if name in ready.unavailable:
            reader = _named(settings) if name in objective.names else "a measured constraint"
            raise ObserverUnavailableError(f"{reader} needs {name}: {ready.unavailable[name]}")
    for reason in dict.fromkeys(ready.unavailable.values()):
        names = [name for name, given in ready.unavailable.items() if given == reason]
        observer = next((f"observer {name}" for name in names if name in OBSERVERS), None)
        on_warning(f"{observer or ', '.join(names)} is not available here: {reason}")


def _named(settings: TuneSettings) -> str:
    return f"objectives {','.join(settings.objectives)}" if settings.objectives else f"objective {settings.objective!r}"


def _check_outputs(kernel: Kernel, threshold: float | Mapping[str, float] | None) -> None:
    outputs = [argument.name for argument in kernel.outputs]
    for name in threshold if isinstance(threshold, Mapping) else ():
        if name not in outputs:
            raise UnknownNameError(f"output of kernel {kernel.name}:", name, outputs)


def device_constraints(kernel: Kernel, limits: Sequence[str]) -> tuple[str, ...]:
    """Return a device's limits as constraints over the kernel's own parameters and sizes.

    Args:
        kernel: supplies what a block, its shared memory and the grid are made of.
        limits: constraints over ``threads_per_block``, ``shared_bytes`` and the axes ``block_x`` to ``grid_z``; those
            over an axis the kernel does not have are left out.
    """
    threads = "*".join(f"({axis})" for axis in kernel.block)
    meaning = {"threads_per_block": f"({threads})", "shared_bytes": f"({kernel.shared_bytes})"}
    for what, extents in (("block", kernel.block), ("grid", kernel.grid)):
        meaning |= {f"{what}_{axis}": f"({extent})" for axis, extent in zip("xyz", extents, strict=False)}
    known = re.compile(rf"\b({'|'.join(meaning)})\b")
    spelt = (known.sub(lambda name: meaning[name[0]], limit) for limit in limits)
    return tuple(limit for limit in spelt if not _AXIS.search(limit))


def _open_run(output: str | Path | None, resume: bool, info: RunInfo, workers: int) -> RunFile | UnsavedRun:
    """Return where the trials go: a new run file, one to go on with, or nowhere."""
    state = RunState(workers=workers)
    if output is None:
        return UnsavedRun(info, state)
    if not (resume and Path(output).exists()):
        return RunFile.create(output, info, state)
    file = RunFile.open(output)
    try:
        file.info.require_same_run(info, str(output))
        info = dataclasses.replace(info, created_at=file.info.created_at)
        file.update(dataclasses.replace(file.state, workers=workers), info)
    except BaseException:
        file.close()
        raise
    return file


def _describe(
    kernel: Kernel,
    sizes: Sizes,
    settings: TuneSettings,
    objective: Objective,
    metric: str,
    space: SearchSpace,
    ready: Ready,
    command: str,
) -> RunInfo:
    """Return what a run file keeps beside its trials."""
    return RunInfo(
        kernel=kernel.name,
        kernel_path=str(kernel.path) if kernel.path else None,
        size=settings.size,
        sizes=dict(sizes),
        backend=ready.device.backend,
        device=ready.device.name,
        architecture=ready.device.architecture,
        versions=dict(ready.device.versions),
        compiler=ready.identity,
        objective=objective,
        metric=metric,
        baseline_values=kernel.baseline_values(),
        observers=ready.observers,
        strategy=settings.strategy,
        strategy_options={name: str(value) for name, value in settings.strategy_options.items()},
        budget=settings.budget,
        baseline_share=settings.baseline_share,
        seed=settings.seed,
        scheduler=settings.scheduler,
        parameters=tuple(ParameterInfo(p.name, p.kind, p.values) for p in space.parameters),
        constraints=tuple(constraint.text for constraint in space.constraints),
        constants=space.constants,
        configurations=space.size,
        signature=kernel.signature_names,
        template_hash=template_hash(kernel),
        definition_hash=hashlib.sha256(kernel.path.read_bytes()).hexdigest() if kernel.path else "",
        data_key=ready.data_key,
        mptune_version=__version__,
        command=command,
        created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
