"""What the page shows, as data: everything it knows is in here, in columns, and nothing of it is code."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mptune.run import json_safe

__all__ = ["Choices", "Failure", "ParameterColumn", "Report", "RunDocument", "Sources"]


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
        kind: what it is ("ordinal", "precision", ...), empty where the run does not say.
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
        file: its run file, empty where it is from none.
        facts: what is said about it, by name, in the order it is shown: texts.
        kernel: name of the kernel.
        backend: name of the backend.
        device: name of the device.
        strategy: name of the strategy.
        seed: of the strategy and the inputs, None where the run does not say.
        error_metric: how errors are measured.
        threshold: the largest error allowed, for the worst output or by output.
        objective: the metric, or expression over metrics, that was optimised.
        constraints: measured constraints.
        higher_is_better: names of the metrics of which more is better.
        budget: evaluations it was to have, None where the run does not say.
        configurations: size of the search space, None where the run does not say.
        wall_s: seconds it took so far.
        durations_s: how they were spent.
        command: the command line that makes the run again.
        command_is_recorded: whether it is the one that made it.
        render_command: prints a configuration's source, but for its values.
        emit_command: takes a trial home, but for its number.
        baseline: its trial, None where there is none.
        best: the best feasible trial, None where there is none.
        closest: the infeasible trial that exceeds the limits least, None where there is none.
        parameters: a column for each.
        statuses: how each trial ended.
        messages: why, for those that are not ok.
        warnings: what the data manager remarked on each trial, one text.
        feasible: for each trial, whether it satisfies threshold and constraints, as 0 or 1.
        reused_errors: trials whose error was measured on another one of the same accuracy signature.
        metrics: a column of numbers for each, None where a trial has none.
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
