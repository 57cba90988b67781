"""A run as the page shows it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mptune.kernel import Kernel
from mptune.report.commands import emit_command, render_command, tune_command
from mptune.report.document import Choices, Failure, ParameterColumn, RunDocument
from mptune.report.sources import sources_of
from mptune.results import Trial
from mptune.run import Run

__all__ = ["run_document"]

#: Characters of a message that are kept, and of all messages together where there are more than a few: a compiler can
#: write a book about one template, and another one about the next.
_LONGEST_MESSAGE: Final = 8000
_ALL_MESSAGES: Final = 2_000_000
_SHORTEST_MESSAGE: Final = 300
_SPEEDUP: Final = "speedup"


def run_document(run: Run, label: str, file: str, kernel: Kernel | None, sources: int) -> RunDocument:
    """Return what the page shows of a run.

    Args:
        run: the run.
        label: what the page calls it.
        file: its run file, empty where it is from none.
        kernel: the definition, where it is not a bundled kernel or a file in the current folder.
        sources: how many rendered sources to include at most.

    Raises:
        KernelError: the definition given is not the one the run was made with.
        UnknownNameError: an ok trial lacks a metric of the objective.
    """
    info, trials, objective = run.info, run.trials, run.objective
    command, is_recorded = tune_command(run)
    return RunDocument(
        label=label,
        file=file,
        facts=_facts(run),
        kernel=run.kernel,
        backend=info.backend,
        device=info.device,
        strategy=info.strategy,
        error_metric=info.metric or "error",
        seed=info.seed,
        threshold=objective.threshold,
        objective=objective.metric,
        constraints=objective.constraints,
        higher_is_better=tuple(sorted(run.more_is_better)),
        budget=info.budget,
        configurations=info.configurations,
        wall_s=run.state.wall_s,
        durations_s=run.durations_s,
        command=command,
        command_is_recorded=is_recorded,
        render_command=render_command(run),
        emit_command=emit_command(run, file),
        **_positions(run),
        parameters=tuple(_parameter_column(run, name) for name in run.parameter_names),
        statuses=Choices.of([trial.status.value for trial in trials]),
        messages=_texts([trial.message for trial in trials]),
        warnings=_texts(["\n".join(trial.warnings) for trial in trials]),
        feasible=tuple(int(objective.is_feasible(trial)) for trial in trials),
        reused_errors=tuple(i for i, trial in enumerate(trials) if trial.measurement.reused_error),
        metrics=_metrics(run),
        failures=_failures(run),
        sources=sources_of(run, kernel, sources),
    )


def _positions(run: Run) -> dict[str, int | None]:
    numbers = {trial.configuration: number for number, trial in enumerate(run.trials)}
    named = {"baseline": _baseline(run), "best": run.best, "closest": run.closest}
    return {name: None if trial is None else numbers[trial.configuration] for name, trial in named.items()}


def _baseline(run: Run) -> Trial | None:
    """Return the baseline; a run that does not say what one is, such as another tool's, has none."""
    return run.baseline if run.info.baseline_values is not None else None


def _failures(run: Run) -> tuple[Failure, ...]:
    numbers = {trial.configuration: number for number, trial in enumerate(run.trials)}
    return tuple(
        Failure(
            group.status.value, _cut(group.message, _LONGEST_MESSAGE), group.count, numbers[group.first.configuration]
        )
        for group in run.failure_groups
    )


def _metrics(run: Run) -> dict[str, tuple[float | None, ...]]:
    """Return the columns: objective, time, speedup and error first, then what else was measured."""
    leading = (run.objective.metric, "time_ms", _SPEEDUP, "error", "memory_bytes")
    known = {*run.metric_names, run.objective.metric} if run.metric_names else set()
    if _baseline(run) is not None:
        known.add(_SPEEDUP)
    names = [name for name in dict.fromkeys((*leading, *run.metric_names)) if name in known]
    columns = {name: tuple(_number(run.metric_of(trial, name)) for trial in run.trials) for name in names}
    return {name: column for name, column in columns.items() if any(cell is not None for cell in column)}


def _parameter_column(run: Run, name: str) -> ParameterColumn:
    described = next((p for p in run.info.parameters if p.name == name), None)
    cells: list[Any] = [trial.configuration.get(name) for trial in run.trials]
    tested = set(cells)
    ordered = [value for value in described.values if value in tested] if described else []
    column = Choices.of(cells, ordered)
    texts = tuple("" if value is None else str(value) for value in column.values)
    options = tuple(shlex.join(["-p", f"{name}={text}"]) for text in texts)
    return ParameterColumn(name, described.kind if described else "", texts, options, column)


def _facts(run: Run) -> dict[str, str]:
    """Return what is known of a run beside what the page shows in places of its own."""
    info = run.info
    facts = {
        "sizes": _pairs(info.sizes),
        **info.versions,
        "architecture": info.architecture,
        "begun": info.created_at,
        "mptune": info.mptune_version,
        "definition": info.kernel_path,
        "size preset": info.size,
        "penalty": "" if info.recorded else info.objective.penalty,
        "baseline share": info.baseline_share,
        "workers": run.state.workers,
        "scheduler": info.scheduler,
        "trials set aside": run.state.stale,
        "strategy options": _pairs(info.strategy_options),
        "observers": ", ".join(info.observers),
    }
    return {name: str(fact) for name, fact in facts.items() if fact}


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _texts(texts: Sequence[str]) -> Choices:
    longest = min(_LONGEST_MESSAGE, max(_SHORTEST_MESSAGE, _ALL_MESSAGES // max(1, len(set(texts)))))
    return Choices.of([_cut(text, longest) for text in texts], [""])


def _cut(text: str, longest: int) -> str:
    more = len(text) - longest
    return text if more <= 0 else f"{text[:longest]}\n… and {more} characters more, in the run file"


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
