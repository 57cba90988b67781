"""Tuning a kernel: everything checked, the worker started, the run file opened, the loop run."""

from __future__ import annotations

import dataclasses
import datetime
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mptune import __version__
from mptune.accuracy.evaluate import metric_text, metrics_by_output
from mptune.backends import get_backend
from mptune.backends.processor import usable_cores
from mptune.errors import BackendUnavailableError, MptuneError, UnknownNameError
from mptune.evaluators.bench import Ready, metric_names
from mptune.evaluators.device import DeviceEvaluator
from mptune.kernel import Kernel, Sizes
from mptune.objective import Objective
from mptune.registry import load_kernel
from mptune.rendering import render_body
from mptune.run import Run
from mptune.space.search_space import SearchSpace
from mptune.store import RunFile
from mptune.strategies import make
from mptune.tuner.loop import NoFile, Tuning
from mptune.tuner.settings import OBJECTIVES, Progress, TuneSettings

__all__ = ["device_constraints", "tune"]


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
    backend = _runnable_backend(settings.backend)
    objective = Objective(
        metric=OBJECTIVES.get(settings.objective, settings.objective),
        minimise=not settings.maximise,
        threshold=settings.max_error,
        penalty=settings.penalty,
        alpha=settings.alpha,
        beta=settings.beta,
    )
    _check_metrics(kernel, settings.objective, objective)
    make(settings.strategy, kernel.search_space(sizes), objective, options=dict(settings.strategy_options))
    with DeviceEvaluator(
        kernel,
        sizes,
        backend,
        metric=settings.metric,
        seed=settings.seed,
        flags=settings.flags,
        limits=settings.limits,
        compilers=usable_cores() if settings.compilers is None else settings.compilers,
        reuse_errors=objective.metric == "time_ms" and objective.minimise,
    ) as evaluator:
        ready = evaluator.start()
        space = kernel.search_space(sizes, device_constraints(kernel, ready.constraints))
        # A template that is wrong everywhere is a mistake to tell of, not the status of a hundred trials.
        render_body(kernel, space.configuration(0), sizes)
        described = _describe(kernel, sizes, settings, objective, metric_text(metric), space, ready, command)
        with _open_run(output, resume, described) as file:
            return Tuning(kernel, settings, objective, space, evaluator, file, on_progress, start).run()


def _check_metrics(kernel: Kernel, given: str, objective: Objective) -> None:
    known = metric_names(kernel)
    for name in sorted(objective.names):
        if name not in known:
            raise UnknownNameError(f"metric in objective {given!r}:", name, known)


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


def _open_run(output: str | Path | None, resume: bool, described: Mapping[str, Any]) -> RunFile | NoFile:
    if output is None:
        return NoFile(described)
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
        kept = {name: file.settings[name] for name in ("created_at", "wall_s") if name in file.settings}
        file.update({**described, **kept})
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
        "wall_s": 0.0,
        **space.describe(),
    }
