"""A run as the report's page shows it: everything the page knows, as data in columns, and nothing of it is code."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from mptune.kernel_times import host_ms, kernel_times
from mptune.registry import bundled_applications, bundled_kernels
from mptune.results import Trial
from mptune.run import Run, json_document
from mptune.sensitivity import explanation_of
from mptune.store import RunInfo
from mptune.unseen import unequal_draws

__all__ = ["SOURCES", "Report", "run_document"]


@dataclass(frozen=True, slots=True)
class Report:
    """What one page shows: its title, the mptune that wrote it, and :func:`run_document` of each run."""

    title: str
    version: str
    runs: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the document the page is made of; a number that is not known or not finite is None."""
        return json_document({"title": self.title, "version": self.version, "runs": self.runs})


def _tune_command(run: Run) -> tuple[str, bool]:
    """Return the command that makes the run again, and whether it is the one that made it.

    A run made from Python has none; its settings give one that does the same, but for limits of time, which a run file
    does not hold.
    """
    info, objective, kernel = run.info, run.info.objective, _kernel(run)
    if recorded := _of_mptune(info.command):
        return recorded, True
    if not kernel or not info.strategy:
        return "", False
    words = ["mptune", "tune", kernel, *_sizes(run)]
    options = {"backend": info.backend or None, "strategy": info.strategy, "budget": info.budget, "seed": info.seed}
    for name, value in {**options, "penalty": objective.penalty}.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    words += [word for limit in _limits(info) for word in ("--max-error", limit)]
    if objective.metric != "time_ms":
        words += ["--objective", objective.metric, *(() if objective.minimise else ("--maximise",))]
    words += [word for text in objective.constraints for word in ("--constraint", text)]
    words += [f"--compiler-flag={flag}" for flag in info.flags]
    words += [word for text in _pairs(info.strategy_options) for word in ("--strategy-option", text)]
    return shlex.join(words), False


def _of_mptune(command: str) -> str:
    """Return a recorded command so that a shell that it is pasted into runs mptune alone; empty if it is another."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    return shlex.join(words) if words[:1] == ["mptune"] else ""


def _limits(info: RunInfo) -> list[str]:
    """Return the thresholds as ``--max-error`` takes them."""
    threshold = info.objective.threshold
    if not isinstance(threshold, Mapping):
        return [] if threshold is None else [str(threshold)]
    return [
        f"{name}{':' if name in info.metrics else '='}{limit}" if name else str(limit)
        for name, limit in threshold.items()
    ]


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
    for folder, names in (("kernels", bundled_kernels()), ("applications", bundled_applications())):
        if run.kernel in names and (path is None or Path(path).parent.name == folder):
            return run.kernel
    return path or ""


def _sizes(run: Run) -> list[str]:
    return [word for text in _pairs(run.info.sizes) for word in ("--size", text)]


def _pairs(values: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]


#: Trials whose source is in the page unless another number is asked for.
SOURCES: Final = 1000


def _sources_of(run: Run, count: int) -> dict[str, Any]:
    """Return the sources the run has of its most interesting trials, at most ``count``, without the prelude they share.

    Sources of one kernel have most lines in common: ``by_trial`` holds positions in the distinct ``lines``. Those of an
    application are several, each under a heading (``has_headings``). Where there are none, the remarks say why.
    """
    told = ""
    if not run.sources and run.trials:
        why = "as one from another tool."
        if run.info.is_of_application:
            why = "as one that did not keep what the application launches. mptune render prints it."
        told = f"No source is shown: the run has none, {why}"
    elif count < 1 and run.trials:
        told = "The report was made without sources."
    positions: dict[str, int] = {}
    numbers = {trial.configuration.to_json(): number for number, trial in enumerate(run.trials)}
    by_trial: dict[int, tuple[int, ...]] = {}
    kept = ((numbers[name], text) for name, text in run.sources.items() if name in numbers)
    for number, text in islice(kept, count):
        by_trial[number] = tuple(positions.setdefault(line, len(positions)) for line in text.splitlines())
    remarks = (told,) if told else ()
    return {
        "lines": tuple(positions),
        "by_trial": dict(sorted(by_trial.items())),
        "has_headings": run.info.is_of_application,
        "remarks": remarks,
    }


#: Characters of a message that are kept, and of all messages together where there are more than a few: a compiler can
#: write a book about one template, and another one about the next.
_LONGEST_MESSAGE: Final = 8000
_ALL_MESSAGES: Final = 2_000_000
_SHORTEST_MESSAGE: Final = 300
_SPEEDUP: Final = "speedup"


def run_document(run: Run, label: str, file: str, sources: int) -> dict[str, Any]:
    """Return what the page shows of a run, in columns of ``n_trials`` entries.

    A trial is named by its position in the order of evaluation; the page counts from 1.

    Args:
        run: the run.
        label: what the page calls it.
        file: its run file, empty if it is from none.
        sources: how many rendered sources to include at most.

    Raises:
        UnknownNameError: an ok trial lacks a metric of the objective.
    """
    info, trials, objective = run.info, run.trials, run.objective
    numbers = {trial.configuration: number for number, trial in enumerate(trials)}
    command, is_recorded = _tune_command(run)
    named = {"baseline": _baseline(run), "best": run.best, "closest": run.closest}
    shown = "best" if run.best is not None else "closest"
    return {
        "label": label,
        "file": file,
        "facts": _facts(run),
        "kernel": run.kernel,
        "backend": info.backend,
        "device": info.device,
        "strategy": info.strategy,
        "seed": info.seed,
        "error_metric": info.metric or "error",
        "threshold": objective.threshold,
        "limits": [[info.measured_by(name), limit] for name, limit in objective.limits.items()],
        "has_further_metrics": bool(info.metrics),
        "measured_by": {n: info.measured_by(n) for n in run.metric_names if n.startswith("error.")},
        "objective": objective.metric,
        "constraints": objective.constraints,
        "higher_is_better": sorted(run.more_is_better),
        "budget": info.budget,
        "configurations": info.configurations,
        "wall_s": run.state.wall_s,
        "durations_s": run.durations_s,
        "command": command,
        "command_is_recorded": is_recorded,
        # To be completed with the values, and with the number, of a trial.
        "render_command": _render_command(run),
        "emit_command": _emit_command(run, file),
        **{name: None if trial is None else numbers[trial.configuration] for name, trial in named.items()},
        "parameters": [_parameter_column(run, name) for name in run.parameter_names],
        "statuses": _choices([trial.status.value for trial in trials]),
        "messages": _texts([trial.message for trial in trials]),
        "warnings": _texts(["\n".join(trial.warnings) for trial in trials]),
        "run_warnings": (
            *run.state.warnings,
            *(f"best: {text}" for t in [run.best] if t is not None and (text := run.unverified_text(t))),
        ),
        "front_draws": unequal_draws(("error",), [trial for trial in trials if trial.is_valid]),
        "speedup_text": "" if run.best is None else run.speedup_text(run.best),
        "verified": {
            name: run.verified_text(trial) for name, trial in named.items() if trial is not None and run.verified(trial)
        },
        "feasible": [int(objective.is_feasible(trial)) for trial in trials],
        "metrics": _metrics(run),
        "failures": [
            {
                "status": group.status.value,
                "message": _cut(group.message, _LONGEST_MESSAGE),
                "count": group.count,
                "trial": numbers[group.first.configuration],
            }
            for group in run.failure_groups
        ],
        "kernel_times": [
            {
                "name": name,
                "kernels": [{"name": k, "launches": t.launches, "time_ms": t.time_ms} for k, t in times.items()],
                "host_ms": host_ms(trial),
            }
            for name, trial in (
                ("baseline", named["baseline"]),
                (shown, named["closest"] if run.best is None else run.best),
            )
            if trial is not None and (times := kernel_times(trial))
        ],
        "kernels_alone": [_alone(label, trials) for label, trials in run.kernel_trials.items()],
        "explanation": explanation_of(run).to_json(),
        "sources": _sources_of(run, sources),
    }


def _alone(label: str, trials: Sequence[Trial]) -> dict[str, Any]:
    """Return what is known of a kernel of an application from trials of it alone."""
    times = [trial.time_ms for trial in trials if trial.is_valid and math.isfinite(trial.time_ms)]
    return {
        "kernel": label,
        "trials": len(trials),
        "least_ms": min(times, default=None),
        "most_ms": max(times, default=None),
    }


def _baseline(run: Run) -> Trial | None:
    """Return the baseline; a run that does not say what one is, such as another tool's, has none."""
    return run.baseline if run.info.baseline_values is not None else None


def _metrics(run: Run) -> dict[str, list[float]]:
    """Return the columns: objective, time, speedup and error first, then what else was measured."""
    leading = (run.objective.metric, "time_ms", _SPEEDUP, "error", "memory_bytes")
    known = {*run.metric_names, run.objective.metric} if run.metric_names else set()
    if _baseline(run) is not None:
        known.add(_SPEEDUP)
    names = [name for name in dict.fromkeys((*leading, *run.metric_names)) if name in known]
    columns = {name: [run.metric_of(trial, name) for trial in run.trials] for name in names}
    return {name: column for name, column in columns.items() if any(map(math.isfinite, column))}


def _parameter_column(run: Run, name: str) -> dict[str, Any]:
    """Return a parameter's cells, its values as texts, and what gives each value to ``mptune render`` in a shell."""
    described = next((p for p in run.info.parameters if p.name == name), None)
    cells: list[Any] = [trial.configuration.get(name) for trial in run.trials]
    tested = set(cells)
    column = _choices(cells, [value for value in described.values if value in tested] if described else [])
    texts = ["" if value is None else str(value) for value in column["values"]]
    options = [shlex.join(["-p", f"{name}={text}"]) for text in texts]
    kind = described.kind if described else ""
    return {"name": name, "kind": kind, "texts": texts, "options": options, "cells": column}


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


def _choices(cells: Sequence[Any], first: Sequence[Any] = ()) -> dict[str, Any]:
    """Return a column of repeating cells: its distinct values, those of ``first`` leading, and a position for each."""
    positions: dict[Any, int] = {}
    for value in (*first, *cells):
        positions.setdefault(value, len(positions))
    return {"values": tuple(positions), "codes": [positions[cell] for cell in cells]}


def _texts(texts: Sequence[str]) -> dict[str, Any]:
    longest = min(_LONGEST_MESSAGE, max(_SHORTEST_MESSAGE, _ALL_MESSAGES // max(1, len(set(texts)))))
    return _choices([_cut(text, longest) for text in texts], [""])


def _cut(text: str, longest: int) -> str:
    more = len(text) - longest
    return text if more <= 0 else f"{text[:longest]}\n… and {more} characters more, in the run file"
