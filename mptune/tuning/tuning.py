"""Tuning a kernel: settings are checked against it and become a plan, and the plan is run."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from mptune.backends import get_backend
from mptune.cpp.build import recorded_flags
from mptune.errors import MptuneError, UnknownNameError
from mptune.kernel import Application, Kernel, Sizes, Tunable
from mptune.measure.device import DeviceEvaluator
from mptune.measure.policy import MeasurementPolicy
from mptune.measure.pool import Cluster, ClusterPool, compilers_ahead, runnable_backend
from mptune.measure.timing import SEARCHING
from mptune.measure.worker import Job, Limits
from mptune.paths import cache_folder, own_folder
from mptune.results.kernel_times import kernel_times
from mptune.results.trial import Trial
from mptune.run import Run
from mptune.source.lints import examples, lints
from mptune.source.loading import make_ready
from mptune.source.render import heading, render_body
from mptune.store import RunFile, RunInfo, RunState
from mptune.tuning.plan import TuningPlan
from mptune.tuning.schedule import Schedule
from mptune.tuning.session import RunSession, Warnings, warn_caller
from mptune.tuning.settings import Progress, TuneSettings

__all__ = ["changed", "rendered_sources", "require_one_of", "tune"]


def tune(
    kernel: Tunable | str | Path,
    settings: TuneSettings | None = None,
    *,
    output: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_verification: Callable[[Progress], None] = lambda _: None,
    on_warning: Callable[[str], None] = warn_caller,
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
        resume: go on with an existing run file, or begin one; a notebook's cell may then be run again.
        overwrite: begin anew: an existing run file is deleted.
        on_progress: told about every trial; by default ``mptune.tune`` shows progress, below a notebook's cell or as a
            line a minute on standard error.
        on_verification: told about a trial that has run on further unseen inputs.
        on_warning: told each warning of the run, once; the run file keeps them. By default, a warning of Python's.
        command: the command line, kept in the run file.
        overrides: fields of :class:`TuneSettings` that replace those of ``settings``.

    Raises:
        MptuneError: something the user gave is wrong; the message names it.
    """
    start = time.monotonic()
    warn = Warnings(on_warning)
    require_one_of(resume, overwrite)
    settings = changed(settings or TuneSettings(), overrides)
    if output is not None and resume and Path(output).exists():
        settings = _with_its_sources(settings, Path(output), warn)
    plan = TuningPlan.of(kernel, settings, None if output is None else Path(output))
    make_ready(plan.kernel, plan.sizes)
    if output is not None:
        # Before minutes go into inputs and references.
        RunFile.check(output, resume=resume, overwrite=overwrite)
    try:
        recorded_flags(plan.settings.flags)
    except MptuneError as error:
        warn(f"TunedKernel, verify, explain and emit will refuse this run: {error}")
    if plan.unreadable:
        warn(
            f"run files in {settings.knowledge} that cannot be read are left out: {len(plan.unreadable)}, the first is "
            f"{plan.unreadable[0]}"
        )
    if settings.knowledge is not None and not plan.sources:
        warn(f"no run in {settings.knowledge} fits this search, which starts without any")
    _check_cache(warn)
    plan = _with_compilers(plan)
    with contextlib.ExitStack() as stack:
        evaluator = _evaluator(plan, stack)
        ready = evaluator.start()
        plan.check_observers(ready, warn)
        for remark in ready.remarks:
            warn(remark)
        space = plan.space_on(ready)
        if isinstance(plan.kernel, Kernel):
            read = examples(plan.kernel, space)
            for found in lints(plan.kernel, plan.sizes, space, read):
                warn(found)
        space = space.restrict(plan.settings.restrict)
        plan.require_launch(space)
        info = plan.describe(space, ready, command)
        for unsure in info.caveats:
            warn(unsure)
        if output is not None and overwrite:  # nothing is lost with a call that is refused before
            RunFile.delete(output)
        file, before = _open_run(output, resume, info, evaluator.capacity)
        stack.enter_context(file)
        session = RunSession(
            evaluator,
            file,
            plan.objective,
            start=start,
            time_limit_s=settings.time_limit_s,
            warn=warn,
            on_progress=on_progress,
            on_verification=on_verification,
        )
        if outdated := session.take_over(space):
            warn(_why_set_aside(outdated, info.changes_since(before), evaluator.unversioned_metrics, output))
        try:
            run = Schedule(plan, space, session).run()
        except KeyboardInterrupt:
            _keep_sources(session.result(), plan, file)
            raise
        return _keep_sources(run, plan, file)


def require_one_of(resume: bool, overwrite: bool) -> None:
    """Raise MptuneError if a run is asked to resume and to be overwritten."""
    if resume and overwrite:
        raise MptuneError("resume=True goes on with a run, overwrite=True begins anew: give one of them")


def _keep_sources(run: Run, plan: TuningPlan, file: RunFile) -> Run:
    """Return a run with the sources of its most interesting trials, which its file keeps too."""
    sources = rendered_sources(run, plan.kernel, plan.sizes)
    file.keep_sources(sources)
    return Run(run.info, run.trials, run.state, sources)


def _check_cache(on_warning: Callable[[str], None]) -> None:
    """Say so where others could change the compiled code that is kept between runs, which is not used then."""
    folder = cache_folder("binaries")
    try:
        if folder is not None:
            own_folder(folder)
    except PermissionError as error:
        if error.errno is None:
            on_warning(f"compiled code is not kept for later runs: {error} (MPTUNE_CACHE_DIR names another folder)")
    except OSError:
        pass


def _why_set_aside(count: int, changes: Sequence[str], unversioned: Sequence[str], output: str | Path | None) -> str:
    if unversioned:
        return (
            f"error metric {', '.join(unversioned)} has no version, so the trials in {output} are evaluated again; set "
            'one (function.version = "1") and change it whenever the results of the function change'
        )
    why = "; ".join(changes) or "the conditions of the measurement have changed"
    return f"{why}: the run file's {count} trials of before are not used, their configurations are evaluated again"


def changed(settings: TuneSettings, changes: dict[str, Any]) -> TuneSettings:
    """Return settings with some fields replaced.

    Raises:
        UnknownNameError: there is no such field.
    """
    known = [field.name for field in dataclasses.fields(TuneSettings)]
    for name in changes:
        if name not in known:
            raise UnknownNameError("setting", name, known)
    return dataclasses.replace(settings, **changes)


def _with_its_sources(settings: TuneSettings, output: Path, on_warning: Callable[[str], None]) -> TuneSettings:
    """Return settings with the sources that a run to go on with started from, unless others are given."""
    with RunFile.open(output, read_only=True) as file:
        kept = file.info.started_from
    if settings.sources or not kept:
        return settings
    there = tuple(path for path in kept if Path(path).is_file())
    for path in sorted(set(kept) - set(there)):
        on_warning(f"source {path} of the run is not there any more: the search goes on without it")
    return dataclasses.replace(settings, sources=there, knowledge=None)


def _with_compilers(plan: TuningPlan) -> TuningPlan:
    """Return a plan whose kernel has the parameters that its backend adds: what compiles it, where that is chosen."""
    settings = plan.settings
    if settings.scheduler is not None:
        if settings.compiler or settings.compiler_flag_sets:
            raise MptuneError("--compiler and --compiler-flag-set are for this machine, not for a scheduler's workers")
        return plan
    backend = get_backend(runnable_backend(settings.backend))
    if not isinstance(plan.kernel, Kernel):
        if settings.compiler or settings.compiler_flag_sets:
            raise MptuneError("--compiler and --compiler-flag-set are for a single kernel")
        return plan
    kernel = backend.prepared(plan.kernel, settings.compiler, settings.compiler_flag_sets)
    return dataclasses.replace(plan, kernel=kernel)


def _evaluator(plan: TuningPlan, stack: contextlib.ExitStack) -> DeviceEvaluator:
    """Return what evaluates on the devices of this machine, or of a cluster; the stack closes both."""
    settings, limits = plan.settings, plan.settings.trial_limits
    pool: Callable[[Job, Limits], ClusterPool] | None = None
    if settings.scheduler is None:
        backend = runnable_backend(settings.backend)
    else:
        cluster = stack.enter_context(Cluster(settings.scheduler))
        backend = cluster.backend(settings.backend, limits.start_s)
        pool = functools.partial(ClusterPool, cluster)
    evaluator = DeviceEvaluator(
        plan.kernel,
        plan.sizes,
        backend,
        metric=None if plan.metric is plan.kernel.metric else plan.metric,
        seed=settings.seed,
        flags=settings.flags,
        plan=dataclasses.replace(SEARCHING, flush_cache=settings.flush_cache),
        limits=limits,
        compilers=compilers_ahead(backend) if settings.compilers is None else settings.compilers,
        policy=MeasurementPolicy(
            plan.objective,
            limits.run_s,
            draws=settings.inputs,
            launch_factor=limits.launch_factor,
        ),
        observers=plan.observers,
        workers=settings.workers,
        pool=pool,
    )
    return stack.enter_context(evaluator)


def _open_run(output: str | Path | None, resume: bool, info: RunInfo, workers: int) -> tuple[RunFile, RunInfo]:
    """Return where the trials go (a new run file, one to go on with, or memory), and what it said of its run."""
    state = RunState(workers=workers)
    if output is None:
        return RunFile.in_memory(info, state), info
    if not (resume and Path(output).exists()):
        return RunFile.create(output, info, state), info
    file = RunFile.open(output)
    before = file.info
    try:
        before.require_same_run(info, str(output))
        info = dataclasses.replace(info, created_at=before.created_at)
        file.update(dataclasses.replace(file.state, workers=workers), info)
    except BaseException:
        file.close()
        raise
    return file, before


# -- the sources that a run file keeps ----------------------------------------------------------------------

#: Trials whose source is kept.
_SOURCES: Final = 1000
#: Number of kinds of failure that the run keeps a source of.
_KINDS: Final = 20


def rendered_sources(run: Run, kernel: Tunable, sizes: Sizes, count: int = _SOURCES) -> dict[str, str]:
    """Render a run's most interesting trials without the prelude, at most ``count``, by their configuration as JSON.

    Of an application that are the kernels it is known to launch, one after the other, each under a heading.
    """
    if isinstance(kernel, Application) and not run.state.launches:
        return {}
    found: dict[str, str] = {}
    for trial in _by_interest(run):
        name = trial.configuration.to_json()
        if name in found:
            continue
        if len(found) == count:
            break
        try:
            found[name] = _rendered(run, kernel, trial, sizes)
        except MptuneError as error:
            found[name] = f"This configuration cannot be rendered: {error}\n"
    return found


def _rendered(run: Run, kernel: Tunable, trial: Trial, sizes: Sizes) -> str:
    if isinstance(kernel, Kernel):
        return render_body(kernel, trial.configuration, sizes)
    assert isinstance(kernel, Application)
    counts = kernel_times(trial)
    parts: dict[str, None] = {}
    for launch in run.state.launches:
        # Other choices of the steps may launch others.
        if launch.kernel in counts and not counts[launch.kernel].launches:
            continue
        types = {name: trial.configuration.get(of[0], of[0]) for name, of in launch.types.items()}
        values, at = kernel.of_kernel(launch.kernel, types, trial.configuration), Sizes(launch.sizes)
        each = kernel.kernels[launch.kernel]
        parts[f"{heading(each, values, at)}\n{render_body(each, values, at).strip()}\n"] = None
    return "\n".join(parts)


def _by_interest(run: Run) -> Iterator[Trial]:
    """Give the trials a reader looks at first, some of them twice."""
    yield from (trial for trial in (run.best, run.baseline, run.closest) if trial is not None)
    yield from (group.first for group in run.failure_groups[:_KINDS])
    yield from run.trade_offs
    if {"time_ms", "error"} <= set(run.metric_names):
        yield from run.pareto(("time_ms", "error"))
    objective = run.objective
    sign = 1.0 if objective.minimise else -1.0
    values = [sign * objective.value(trial) for trial in run.trials]
    known = [i for i, value in enumerate(values) if math.isfinite(value)]
    ranked = sorted(known, key=lambda i: (not objective.is_feasible(run.trials[i]), values[i]))
    yield from (run.trials[i] for i in ranked)
    yield from run.trials
