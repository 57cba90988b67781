"""Tuning a kernel: settings become a plan, and the plan is run."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.errors import MptuneError
from mptune.kernel import Application, Kernel, Sizes, Tunable
from mptune.kernel.limits import spread
from mptune.measure.device import DeviceEvaluator, work_names
from mptune.measure.pool import Cluster, ClusterPool, compilers_ahead, runnable_backend
from mptune.measure.timing import SEARCHING
from mptune.measure.worker import Job, Limits
from mptune.paths import cache_folder, own_folder
from mptune.results.estimates import is_estimated
from mptune.results.kernel_times import kernel_times
from mptune.results.trial import Trial
from mptune.run import Run
from mptune.source.flags import compilers_of, recorded_flags
from mptune.source.lints import examples, lints
from mptune.source.render import drawing_kernels, heading, render_body
from mptune.space.arguments import checked
from mptune.store import INTERRUPTED, RunFile, RunInfo, RunState
from mptune.tuning.plan import TuningPlan
from mptune.tuning.schedule import Schedule
from mptune.tuning.session import Progress, RunSession, Warnings, warn_caller
from mptune.tuning.settings import TuneSettings


@checked
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

    Baselines, the all-fp64 and accurate configurations, have a share of the budget and come first. Every trial is
    committed to the run file before the next proposal.

    Args:
        kernel: a kernel, the name of a bundled one, or the path of a definition file.
        settings: settings of the run.
        output: the run file; with None no file is written.
        resume: continue an existing run file, or begin one; a notebook's cell may then be run again.
        overwrite: delete an existing run file.
        on_progress: called after every trial; by default ``mptune.tune`` shows progress, below a notebook's cell or as
            a line a minute on standard error.
        on_verification: called after a trial has run on further unseen inputs.
        on_warning: called once with each warning, which the run file keeps; by default, issues a Python warning.
        command: the command line, kept in the run file.
        overrides: fields of :class:`TuneSettings` that replace fields of ``settings``.

    Raises:
        MptuneError: something the user gave is wrong; the message names it.
    """
    start = time.monotonic()
    warn = on_warning if isinstance(on_warning, Warnings) else Warnings(on_warning)
    settings = given = (settings or TuneSettings()).changed(overrides)
    if output is not None and resume and Path(output).exists():
        settings = _with_its_sources(settings, Path(output), warn)
    plan = TuningPlan.of(kernel, settings, None if output is None else Path(output))
    if output is not None:
        # The file is checked before minutes go into inputs and references.
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
    settings = plan.settings
    if settings.scheduler is None and (settings.flags or os.environ.get("CXX")) and not compilers_of(plan.kernel):
        # A compiler or flags that compile nothing are no status of every trial.
        get_backend(runnable_backend(settings.backend)).compile_line(CompileOptions(flags=settings.flags))
    with contextlib.ExitStack() as stack:
        evaluator = _evaluator(plan, stack)
        ready = evaluator.start()
        plan.check_observers(ready, warn)
        space, remarks = plan.space_on(ready), list(ready.remarks)
        if isinstance(plan.kernel, Kernel):
            remarks += lints(plan.kernel, plan.sizes, space, examples(plan.kernel, space))
        space = space.restrict(plan.settings.restrict)
        plan.require_launch(space)
        if is_estimated(plan.objective):
            try:
                counts = evaluator.counts_of(spread(space.restrict(plan.kernel.baseline_values()))[0])
            except MptuneError as error:
                if given.gpu is not None or settings.gpu is None:
                    raise
                stack.close()
                warn(f"no estimate for a GPU, so types are ranked by this processor's times: {error}")
                how: dict[str, Any] = {"output": output, "resume": resume, "overwrite": overwrite, "command": command}
                how |= {"on_progress": on_progress, "on_verification": on_verification, "on_warning": warn}
                return tune(kernel, given.changed({"gpu": "host"}), **how)
            # Parameters that may change what is done have counts of their own.
            plan = plan if work_names(plan.kernel) else dataclasses.replace(plan, counts=counts)
            if left_out := [name for name, each in counts.items() if each.is_partial]:
                names = ", ".join(left_out)
                remarks.append(f"the estimate leaves out what {names} computes in types that its text itself names")
            if drawing := drawing_kernels(plan.kernel):
                names = ", ".join(drawing)
                remarks.append(f"the estimate leaves out the random numbers that {names} draws: no speedup says much")
        info = plan.describe(space, ready, command)
        for remark in (*remarks, *info.caveats):
            warn(remark)
        if output is not None and overwrite:  # the old file survives a call that is refused before
            RunFile.delete(output)
        file, before = _open_run(stack, output, resume, info, evaluator.capacity)
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


def _keep_sources(run: Run, plan: TuningPlan, file: RunFile) -> Run:
    """Store the rendered sources of a run's most interesting trials, and return the run with them."""
    sources = rendered_sources(run, plan.kernel, plan.sizes)
    file.keep_sources(sources)
    return Run(run.info, run.trials, run.state, sources)


def _check_cache(on_warning: Callable[[str], None]) -> None:
    """Warn if the cache of binaries is writable by others; it is then not used."""
    try:
        if (folder := cache_folder("binaries")) is not None:
            own_folder(folder)
    except OSError as error:
        if isinstance(error, PermissionError) and error.errno is None:
            on_warning(f"compiled code is not kept for later runs: {error} (MPTUNE_CACHE_DIR names another folder)")


def _why_set_aside(count: int, changes: Sequence[str], unversioned: Sequence[str], output: str | Path | None) -> str:
    if unversioned:
        return (
            f"error metric {', '.join(unversioned)} has no version, so the trials in {output} are evaluated again; set "
            'one (function.version = "1") and change it whenever the results of the function change'
        )
    why = "; ".join(changes) or "the conditions of the measurement have changed"
    return f"{why}: the run file's {count} earlier trials are not used, their configurations are evaluated again"


def _with_its_sources(settings: TuneSettings, output: Path, on_warning: Callable[[str], None]) -> TuneSettings:
    """Return settings with the sources of the run to continue, unless others are given."""
    with RunFile.open(output, read_only=True) as file:
        kept = file.info.started_from
    if settings.sources or not kept:
        return settings
    there = tuple(path for path in kept if Path(path).is_file())
    for path in sorted(set(kept) - set(there)):
        on_warning(f"source {path} of the run no longer exists: the search continues without it")
    return dataclasses.replace(settings, sources=there, knowledge=None)


def _with_compilers(plan: TuningPlan) -> TuningPlan:
    """Return a plan whose kernel has the parameters of its backend: compilers and flags, if several are given."""
    settings = plan.settings
    if settings.scheduler is not None or not isinstance(plan.kernel, Kernel):
        if settings.compiler or settings.compiler_flag_sets:
            raise MptuneError("--compiler and --compiler-flag-set are for a single kernel on this machine")
        return plan
    backend = get_backend(runnable_backend(settings.backend))
    return dataclasses.replace(
        plan, kernel=backend.prepared(plan.kernel, settings.compiler, settings.compiler_flag_sets)
    )


def _evaluator(plan: TuningPlan, stack: contextlib.ExitStack) -> DeviceEvaluator:
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
        objective=plan.objective,
        draws=settings.inputs,
        observers=plan.observers,
        workers=settings.workers,
        pool=pool,
        is_estimating=is_estimated(plan.objective),
    )
    return stack.enter_context(evaluator)


def _open_run(
    stack: contextlib.ExitStack, output: str | Path | None, resume: bool, info: RunInfo, workers: int
) -> tuple[RunFile, RunInfo]:
    """Return the run file of the trials (new, resumed or in memory), and its earlier definition of the run."""
    state = RunState(workers=workers, ended=INTERRUPTED)
    if output is None:
        return stack.enter_context(RunFile.in_memory(info, state)), info
    if not (resume and Path(output).exists()):
        return stack.enter_context(RunFile.create(output, info, state)), info
    file = stack.enter_context(RunFile.open(output))
    before = file.info
    before.require_same_run(info, str(output))
    info = dataclasses.replace(info, created_at=before.created_at)
    file.update(dataclasses.replace(file.state, workers=workers, ended=INTERRUPTED), info)
    return file, before


def rendered_sources(run: Run, kernel: Tunable, sizes: Sizes, count: int = 1000) -> dict[str, str]:
    """Return the sources of a run's most interesting trials without the prelude, by their configuration as JSON.

    An application has the sources of the kernels that it launches, one after the other, each under a heading.
    """
    found: dict[str, str] = {}
    if isinstance(kernel, Application) and not run.state.launches:
        return found
    chosen = {trial.configuration: trial for trial in _by_interest(run)}
    for configuration, trial in itertools.islice(chosen.items(), count):
        try:
            found[configuration.to_json()] = _rendered(run, kernel, trial, sizes)
        except MptuneError as error:
            found[configuration.to_json()] = f"This configuration cannot be rendered: {error}\n"
    return found


def _rendered(run: Run, kernel: Tunable, trial: Trial, sizes: Sizes) -> str:
    if isinstance(kernel, Kernel):
        return render_body(kernel, trial.configuration, sizes)
    assert isinstance(kernel, Application)
    counts = kernel_times(trial)
    parts: dict[str, None] = {}
    for launch in run.state.launches:
        # The launches depend on the choices of the steps.
        if launch.kernel in counts and not counts[launch.kernel].launches:
            continue
        types = {name: trial.configuration.get(of[0], of[0]) for name, of in launch.types.items()}
        values, at = kernel.of_kernel(launch.kernel, types, trial.configuration), Sizes(launch.sizes)
        each = kernel.kernels[launch.kernel]
        parts[f"{heading(each, values, at)}\n{render_body(each, values, at).strip()}\n"] = None
    return "\n".join(parts)


def _by_interest(run: Run) -> Iterator[Trial]:
    """Yield trials, the most interesting first, some of them twice."""
    yield from (trial for trial in (run.best, run.baseline, run.closest) if trial is not None)
    yield from (group.first for group in run.failure_groups[:20])
    yield from run.trade_offs
    if {"time_ms", "error"} <= set(run.metric_names):
        yield from run.pareto(("time_ms", "error"))
    objective, sign = run.objective, 1.0 if run.objective.minimise else -1.0

    def rank(trial: Trial) -> tuple[bool, float]:
        value = sign * objective.value(trial)
        return not objective.is_feasible(trial), value if math.isfinite(value) else math.inf

    yield from sorted(run.trials, key=rank)
