"""Rendered sources for the page: of the trials that matter most, for thousands take long to render and are large."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from mptune.emit import kernel_of, remarks, sizes_of
from mptune.errors import MptuneError
from mptune.kernel import Kernel
from mptune.rendering import render_body
from mptune.report.document import Sources
from mptune.results import Trial
from mptune.run import Run
from mptune.space.configuration import Configuration

__all__ = ["SOURCES", "sources_of"]

#: Trials whose source is in the page unless another number is asked for.
SOURCES: Final = 1000
#: Kinds of failure of which the first source is in the page.
_KINDS: Final = 20


def sources_of(run: Run, kernel: Kernel | None = None, count: int = SOURCES) -> Sources:
    """Render the sources of a run's most interesting trials, without the prelude they have in common.

    Where the definition is not to be found, or is not the run's any more, there are none and the remarks say why: a
    report is of the run file, which need not lie where its kernel does.

    Args:
        run: the run.
        kernel: the definition, where it is not a bundled kernel or a file in the current folder.
        count: how many at most.

    Raises:
        KernelError: the definition given is not the one the run was made with.
    """
    if count < 1 or not run.trials:
        return Sources(remarks=("The report was made without sources.",) if run.trials else ())
    try:
        definition = kernel_of(run, kernel)
        sizes = sizes_of(run, definition)
    except MptuneError as error:
        if kernel is not None:
            raise
        return Sources(remarks=(f"No source is shown: {error}",))
    positions: dict[str, int] = {}
    numbers = {trial.configuration: number for number, trial in enumerate(run.trials)}
    by_trial = {}
    told = [f"{remark[0].upper()}{remark[1:]}." for remark in remarks(run, definition)]
    for trial in _chosen(run, count):
        try:
            text = render_body(definition, trial.configuration, sizes)
        except MptuneError as error:
            told.append(f"Trial {numbers[trial.configuration] + 1} cannot be rendered: {error}")
            continue
        lines = (positions.setdefault(line, len(positions)) for line in text.splitlines())
        by_trial[numbers[trial.configuration]] = tuple(lines)
    return Sources(tuple(positions), dict(sorted(by_trial.items())), tuple(dict.fromkeys(told)))


def _chosen(run: Run, count: int) -> tuple[Trial, ...]:
    if len(run.trials) <= count:
        return run.trials
    chosen: dict[Configuration, Trial] = {}
    for trial in _by_interest(run):
        chosen.setdefault(trial.configuration, trial)
        if len(chosen) == count:
            break
    return tuple(chosen.values())


def _by_interest(run: Run) -> Iterator[Trial]:
    """Give the trials a reader looks at first, some of them twice."""
    yield from (trial for trial in (run.best, run.baseline, run.closest) if trial is not None)
    yield from (group.first for group in run.failure_groups[:_KINDS])
    if {"time_ms", "error"} <= set(run.metric_names):
        yield from run.pareto(("time_ms", "error"))
    objective = run.objective
    sign = 1.0 if objective.minimise else -1.0
    values = [sign * objective.value(trial) for trial in run.trials]
    known = [i for i, value in enumerate(values) if math.isfinite(value)]
    ranked = sorted(known, key=lambda i: (not objective.is_feasible(run.trials[i]), values[i]))
    yield from (run.trials[i] for i in ranked)
