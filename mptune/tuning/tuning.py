"""Tuning a kernel: settings are checked against it and become a plan, and the plan is run."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mptune
from mptune.backends import get_backend
from mptune.cpp.build import recorded_flags
from mptune.errors import MptuneError, UnknownNameError
from mptune.kernel import Kernel, Tunable
from mptune.measure.cluster import Cluster, ClusterPool
from mptune.measure.device import DeviceEvaluator
from mptune.measure.job import Job
from mptune.measure.policy import MeasurementPolicy
from mptune.measure.pool import compilers_ahead, runnable_backend
from mptune.measure.timing import SEARCHING
from mptune.measure.worker import Limits
from mptune.paths import cache_folder, own_folder
from mptune.run import Run
from mptune.source.lints import examples, lints
from mptune.store import RunFile, RunInfo, RunState, RunStore, UnsavedRun
from mptune.tuning.plan import TuningPlan
from mptune.tuning.schedule import Schedule
from mptune.tuning.session import Session, Warnings
from mptune.tuning.settings import Progress, TuneSettings
from mptune.tuning.sources import rendered_sources

__all__ = ["changed", "require_one_of", "tune", "warn_caller"]


def warn_caller(message: str) -> None:
    """Warn as Python does, of the line outside this package that called."""
    package = str(Path(mptune.__file__).parent)
    own = itertools.takewhile(
        lambda entry: entry[0].f_code.co_filename.startswith(package), traceback.walk_stack(sys._getframe())
    )
    warnings.warn(message, stacklevel=len(list(own)) + 1)  # where tune was called


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
        info = plan.describe(space, ready, command)
        for unsure in info.caveats:
            warn(unsure)
        if output is not None and overwrite:  # nothing is lost with a call that is refused before
            RunFile.delete(output)
        file, before = _open_run(output, resume, info, evaluator.capacity)
        stack.enter_context(file)
        session = Session(plan, space, evaluator, file, start, on_progress, warn)
        if session.outdated:
            warn(_why_set_aside(session.outdated, info.changes_since(before), evaluator.unversioned_metrics, output))
        try:
            run = Schedule(plan, space, evaluator, session, on_verification, warn).run()
        except KeyboardInterrupt:
            _keep_sources(session.result(), plan, file)
            raise
        return _keep_sources(run, plan, file)


def require_one_of(resume: bool, overwrite: bool) -> None:
    """Refuse to go on with a run and to begin anew at the same time."""
    if resume and overwrite:
        raise MptuneError("resume=True goes on with a run, overwrite=True begins anew: give one of them")


def _keep_sources(run: Run, plan: TuningPlan, file: RunStore) -> Run:
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
    settings = plan.settings
    pool: Callable[[Job, Limits], ClusterPool] | None = None
    if settings.scheduler is None:
        backend = runnable_backend(settings.backend)
    else:
        cluster = stack.enter_context(Cluster(settings.scheduler))
        backend = cluster.backend(settings.backend, settings.limits.start_s)
        pool = cluster.pool
    evaluator = DeviceEvaluator(
        plan.kernel,
        plan.sizes,
        backend,
        metric=None if plan.metric is plan.kernel.metric else plan.metric,
        seed=settings.seed,
        flags=settings.flags,
        plan=dataclasses.replace(SEARCHING, flush_cache=settings.flush_cache),
        limits=settings.limits,
        compilers=compilers_ahead(backend) if settings.compilers is None else settings.compilers,
        policy=MeasurementPolicy(
            plan.objective,
            settings.limits.phase_s,
            draws=settings.inputs,
            launch_factor=settings.limits.launch_factor,
        ),
        observers=plan.observers,
        workers=settings.workers,
        pool=pool,
    )
    return stack.enter_context(evaluator)


def _open_run(
    output: str | Path | None, resume: bool, info: RunInfo, workers: int
) -> tuple[RunFile | UnsavedRun, RunInfo]:
    """Return where the trials go (a new run file, one to go on with, or nowhere), and what it said of its run."""
    state = RunState(workers=workers)
    if output is None:
        return UnsavedRun(info, state), info
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
