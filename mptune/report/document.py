"""A run as the report's page shows it: everything the page knows, as data in columns, and nothing of it is code."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mptune.emit import kernel_of, remarks, sizes_of
from mptune.errors import MptuneError
from mptune.kernel import Kernel
from mptune.registry import bundled_kernels
from mptune.rendering import render_body
from mptune.results import Trial
from mptune.run import Run, json_safe
from mptune.space.configuration import Configuration

__all__ = [
    "SOURCES",
    "Choices",
    "Failure",
    "ParameterColumn",
    "Report",
    "RunDocument",
    "Sources",
    "run_document",
]


@dataclass(frozen=True, slots=True)
class Choices:
    """A column whose cells repeat: the distinct values, and for each trial the position of its own.

    Attributes:
        values: the distinct values.
        codes: a position in ``values`` for each trial, length ``n_trials``.
    """

    values: tuple[Any, ...]
    codes: tuple[int, ...]

    @classmethod
    def of(cls, cells: Sequence[Any], values: Sequence[Any] = ()) -> Choices:
        """Return the column of these cells; the values given come first, then others as they appear."""
        positions: dict[Any, int] = {}
        for value in (*values, *cells):
            positions.setdefault(value, len(positions))
        return cls(tuple(positions), tuple(positions[cell] for cell in cells))


@dataclass(frozen=True, slots=True)
class ParameterColumn:
    """A parameter and its value in each trial.

    Attributes:
        name: of the parameter.
        kind: what it is ("ordinal", "precision", ...), empty if the run does not say.
        texts: its values as they are shown.
        options: for each value, what gives it to ``mptune render`` in a shell.
        cells: its values, and each trial's.
    """

    name: str
    kind: str
    texts: tuple[str, ...]
    options: tuple[str, ...]
    cells: Choices


@dataclass(frozen=True, slots=True)
class Failure:
    """Failures of one kind: status, message of the first in short, how many, and the number of the first."""

    status: str
    message: str
    count: int
    trial: int


@dataclass(frozen=True, slots=True)
class Sources:
    """Rendered sources of some trials; sources of one kernel have most lines in common, which are kept once.

    Attributes:
        lines: the distinct lines.
        by_trial: positions in ``lines``, by trial.
        remarks: what a reader of them has to know; why there are none, where there are none.
    """

    lines: tuple[str, ...] = ()
    by_trial: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def text(self, trial: int) -> str:
        """Return the source of a trial.

        Raises:
            KeyError: it is not among them.
        """
        return "\n".join(self.lines[position] for position in self.by_trial[trial])


@dataclass(frozen=True, slots=True)
class RunDocument:
    """One run. A trial is named by its position in the order of evaluation; the page counts from 1.

    Attributes:
        label: what the page calls the run; no two of a report have the same.
        file: its run file, empty if it is from none.
        facts: what is said about it, by name, in the order it is shown: texts.
        kernel: name of the kernel.
        backend: name of the backend.
        device: name of the device.
        strategy: name of the strategy.
        seed: of the strategy and the inputs, None if the run does not say.
        error_metric: how errors are measured.
        threshold: the largest error allowed, for the worst output or by output.
        objective: the metric, or expression over metrics, that was optimised.
        constraints: measured constraints.
        higher_is_better: names of the metrics of which more is better.
        budget: evaluations it was to have, None if the run does not say.
        configurations: size of the search space, None if the run does not say.
        wall_s: seconds it took so far.
        durations_s: how they were spent.
        command: the command line that makes the run again.
        command_is_recorded: whether it is the one that made it.
        render_command: prints a configuration's source; its values are to be added.
        emit_command: emits a trial; its number is to be added.
        baseline: its trial, None if there is none.
        best: the best feasible trial, None if there is none.
        closest: the infeasible trial that exceeds the limits least, None if there is none.
        parameters: a column for each.
        statuses: how each trial ended.
        messages: why, for those that are not ok.
        warnings: what the data manager remarked on each trial, one text.
        feasible: for each trial, whether it satisfies threshold and constraints, as 0 or 1.
        reused_errors: trials whose error was measured on another one of the same accuracy signature.
        metrics: a column of numbers for each, None if a trial has none.
        failures: by status and message, the most frequent first.
        sources: rendered sources of some trials.
    """

    label: str
    file: str
    facts: Mapping[str, str]
    kernel: str
    backend: str
    device: str
    strategy: str
    seed: int | None
    error_metric: str
    threshold: float | Mapping[str, float] | None
    objective: str
    constraints: tuple[str, ...]
    higher_is_better: tuple[str, ...]
    budget: int | None
    configurations: int | None
    wall_s: float
    durations_s: Mapping[str, float]
    command: str
    command_is_recorded: bool
    render_command: str
    emit_command: str
    baseline: int | None
    best: int | None
    closest: int | None
    parameters: tuple[ParameterColumn, ...]
    statuses: Choices
    messages: Choices
    warnings: Choices
    feasible: tuple[int, ...]
    reused_errors: tuple[int, ...]
    metrics: Mapping[str, tuple[float | None, ...]]
    failures: tuple[Failure, ...]
    sources: Sources


@dataclass(frozen=True, slots=True)
class Report:
    """What one page shows.

    Attributes:
        title: of the page.
        version: of the mptune that wrote it.
        runs: in the order given.
    """

    title: str
    version: str
    runs: tuple[RunDocument, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the document the page is made of; a number that is not known or not finite is None."""
        document: dict[str, Any] = json_safe(_plain(self))
        return document


def _plain(value: Any) -> Any:
    """Return nested dataclasses as mappings; ``dataclasses.asdict`` would copy every cell of every column."""
    if dataclasses.is_dataclass(value):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    if isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
        return [_plain(entry) for entry in value]
    return value


def _tune_command(run: Run) -> tuple[str, bool]:
    """Return the command that makes the run again, and whether it is the one that made it.

    A run made from Python has none; its settings give one that does the same, but for compiler flags and limits of
    time, which a run file does not hold.
    """
    info, objective, kernel = run.info, run.info.objective, _kernel(run)
    if info.command:
        return info.command, True
    if not kernel or not info.strategy:
        return "", False
    words = ["mptune", "tune", kernel, *_sizes(run)]
    options = {"backend": info.backend or None, "strategy": info.strategy, "budget": info.budget, "seed": info.seed}
    for name, value in {**options, "penalty": objective.penalty}.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    words += [word for text in _limits(objective.threshold) for word in ("--max-error", text)]
    if objective.metric != "time_ms":
        words += ["--objective", objective.metric, *(() if objective.minimise else ("--maximise",))]
    words += [word for text in objective.constraints for word in ("--constraint", text)]
    words += [word for text in _pairs(info.strategy_options) for word in ("--strategy-option", text)]
    return shlex.join(words), False


def _render_command(run: Run) -> str:
    """Return the command that prints a configuration's source, without its values; empty if there is none."""
    kernel = _kernel(run)
    return shlex.join(["mptune", "render", kernel, "--body", *_sizes(run)]) if kernel else ""


def _emit_command(run: Run, file: str) -> str:
    """Return the command that emits a trial, without the trial's number; empty if the run is from no file."""
    kernel = _kernel(run)
    if not file or not kernel:
        return ""
    given = () if kernel == run.kernel else ("--kernel", kernel)
    return shlex.join(["mptune", "emit", file, *given, "--configuration"])


def _kernel(run: Run) -> str:
    """Return what names the kernel on the command line, empty if that is not known."""
    path = run.info.kernel_path
    if run.kernel in bundled_kernels() and (path is None or Path(path).parent.name == "kernels"):
        return run.kernel
    return path or ""


def _sizes(run: Run) -> list[str]:
    return [word for text in _pairs(run.info.sizes) for word in ("--size", text)]


def _limits(threshold: float | Mapping[str, float] | None) -> Iterator[str]:
    if isinstance(threshold, Mapping):
        yield from _pairs(threshold)
    elif threshold is not None:
        yield str(threshold)


def _pairs(values: Mapping[str, Any]) -> Iterator[str]:
    return (f"{name}={value}" for name, value in values.items())


#: Trials whose source is in the page unless another number is asked for.
SOURCES: Final = 1000
#: Kinds of failure of which the first source is in the page.
_KINDS: Final = 20


def _sources_of(run: Run, kernel: Kernel | None = None, count: int = SOURCES) -> Sources:
    """Render the sources of a run's most interesting trials, without the prelude they have in common.

    Where the definition is not to be found, or is not the run's any more, there are none and the remarks say why: a
    report is of the run file, which need not lie where its kernel does.

    Args:
        run: the run.
        kernel: the definition, unless it is a bundled kernel or a file in the current folder.
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
        file: its run file, empty if it is from none.
        kernel: the definition, unless it is a bundled kernel or a file in the current folder.
        sources: how many rendered sources to include at most.

    Raises:
        KernelError: the definition given is not the one the run was made with.
        UnknownNameError: an ok trial lacks a metric of the objective.
    """
    info, trials, objective = run.info, run.trials, run.objective
    command, is_recorded = _tune_command(run)
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
        render_command=_render_command(run),
        emit_command=_emit_command(run, file),
        **_positions(run),
        parameters=tuple(_parameter_column(run, name) for name in run.parameter_names),
        statuses=Choices.of([trial.status.value for trial in trials]),
        messages=_texts([trial.message for trial in trials]),
        warnings=_texts(["\n".join(trial.warnings) for trial in trials]),
        feasible=tuple(int(objective.is_feasible(trial)) for trial in trials),
        reused_errors=tuple(i for i, trial in enumerate(trials) if trial.measurement.reused_error),
        metrics=_metrics(run),
        failures=_failures(run),
        sources=_sources_of(run, kernel, sources),
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
        "sizes": _listed(info.sizes),
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
        "strategy options": _listed(info.strategy_options),
        "observers": ", ".join(info.observers),
    }
    return {name: str(fact) for name, fact in facts.items() if fact}


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _texts(texts: Sequence[str]) -> Choices:
    longest = min(_LONGEST_MESSAGE, max(_SHORTEST_MESSAGE, _ALL_MESSAGES // max(1, len(set(texts)))))
    return Choices.of([_cut(text, longest) for text in texts], [""])


def _cut(text: str, longest: int) -> str:
    more = len(text) - longest
    return text if more <= 0 else f"{text[:longest]}\n… and {more} characters more, in the run file"


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
