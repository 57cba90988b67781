"""Which rendered sources a run file keeps, so that looking at a run needs neither its kernel nor its template."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from mptune.errors import MptuneError
from mptune.kernel import Application, Kernel, Sizes, Tunable
from mptune.results.kernel_times import kernel_times
from mptune.results.trial import Trial
from mptune.run import Run
from mptune.source.render import heading, render_body

__all__ = ["rendered_sources"]

#: Trials whose source is kept.
_SOURCES: Final = 1000
#: Kinds of failure of which the first source is kept.
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
