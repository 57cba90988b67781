"""One HTML file about runs that opens offline: verdict, charts, and a table of trials to sort and filter.

Nothing from a run is code: the template escapes text, data are JSON that cannot end its script element, the page's own
script makes text nodes of them, and its policy lets no other script run and nothing be loaded.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import math
import shlex
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import jinja2
import numpy as np
from markupsafe import Markup

from mptune import __version__
from mptune.errors import MptuneError, PlotError
from mptune.interop.files import SQLITE_MAGIC, read_head
from mptune.markup import plain
from mptune.paths import write_whole
from mptune.results.trial import Trial
from mptune.run import Run, json_document
from mptune.show.charts import APPLICATION_KINDS, KINDS, Look, chart_of, fronts
from mptune.show.saving import in_script, vega
from mptune.show.tables import baseline_of
from mptune.tuning.explain import explanation_of

__all__ = ["SOURCES", "report_document", "write_report"]

#: Trials whose source is in the page unless another number is asked for.
SOURCES: Final = 1000
#: Characters of a message that are kept, and of all messages together.
_LONGEST_MESSAGE: Final = 8000
_ALL_MESSAGES: Final = 1_000_000
_SHORTEST_MESSAGE: Final = 300
_ENVIRONMENT: Final = jinja2.Environment(
    loader=jinja2.PackageLoader("mptune.show", "files"), undefined=jinja2.StrictUndefined, autoescape=True
)


def write_report(
    runs: Run | str | Path | Sequence[Run | str | Path], path: str | Path, *, sources: int = SOURCES
) -> dict[str, Any]:
    """Write a report on runs as one HTML file that opens offline, and return what it shows (:func:`report_document`).

    Args:
        runs: runs, or run files; one that is still being written is taken as it is now.
        path: the file; folders that lead to it are made, and a report there before is replaced.
        sources: how many of the rendered sources a run has to include, at most: of best, baseline, failures and front
            first, then of the fastest.

    Raises:
        RunFileError: a run file cannot be read.
        PlotError: altair is not installed.
        MptuneError: no run, a negative number of sources, or the file cannot be written, or is a run file.
    """
    path = Path(path)
    if path.is_file() and read_head(path).startswith(SQLITE_MAGIC):
        raise MptuneError(f"{path} is a run file: give the report another name, such as {path.with_suffix('.html')}")
    document = report_document(runs, sources=sources)
    text = _page(document)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise MptuneError(f"cannot write the report {path}: {error.strerror or error}") from error
    return document


def report_document(runs: Run | str | Path | Sequence[Run | str | Path], *, sources: int = SOURCES) -> dict[str, Any]:
    """Return what a report on runs shows: its title, and of each run its verdict, facts, charts and trials."""
    given = [runs] if isinstance(runs, Run | str | Path) else list(runs)
    if not given:
        raise MptuneError("a report needs one run or more")
    if sources < 0:
        raise MptuneError(f"sources {sources}: expected 0 or more")
    files = ["" if isinstance(run, Run) else str(run) for run in given]
    loaded = [run if isinstance(run, Run) else Run.load(run) for run in given]
    named: dict[str, Run] = {}
    for run, file in zip(loaded, files, strict=True):
        name = plain((Path(file).stem if file else run.kernel) or "run")
        tries = (name if number == 1 else f"{name} ({number})" for number in range(1, len(loaded) + 1))
        named[next(label for label in tries if label not in named)] = run
    kernels = ", ".join(dict.fromkeys(run.kernel for run in loaded))
    both = []
    if len(named) > 1:
        with contextlib.suppress(PlotError):
            both = [fronts(named, Look("screen")).to_dict(validate=False)]
    parts = zip(named.items(), files, strict=True)
    documents = [_run_document(run, label, file, sources) for (label, run), file in parts]
    return {
        "title": plain(f"{kernels or 'a run'}: mptune report"),
        "version": __version__,
        "comparison": _comparison(named),
        "charts": both,
        "runs": documents,
    }


def _page(document: Mapping[str, Any]) -> str:
    scripts = [vega(), _ENVIRONMENT.get_template("report.js").render()]
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
    shown = {"charts": document["charts"], "runs": [run["data"] for run in document["runs"]]}
    return _ENVIRONMENT.get_template("report.html.j2").render(
        policy=f"{policy}; form-action 'none'",
        scripts=[Markup(script) for script in scripts],
        data=Markup(in_script(json_document(shown))),
        **document,
    )


def _comparison(runs: Mapping[str, Run]) -> list[dict[str, str]]:
    """Return a row for each of several runs."""
    rows = []
    for label, run in runs.items():
        best, baseline = run.best, baseline_of(run)
        row = {"run": label, "kernel": run.kernel, "device": run.info.device, "strategy": run.info.strategy}
        row |= {"trials": str(run.evaluations), "feasible": str(run.feasible)}
        row |= {"baseline (ms)": "-" if baseline is None else _number(baseline.time_ms)}
        row |= {"best (ms)": "-", "speedup": "-", "error": "-"}
        if best is not None:
            row |= {"best (ms)": _number(best.time_ms), "speedup": run.speedup_text(best), "error": _number(best.error)}
        rows.append({name: plain(text) for name, text in row.items()})
    return rows


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "-"


def _run_document(run: Run, label: str, file: str, sources: int) -> dict[str, Any]:
    kept = _sources_of(run, sources)
    texts = [text for trial in (run.best or run.closest, run.baseline) if trial is not None
             for text in (run.verified_text(trial) or run.unverified_text(trial),) if text]  # fmt: skip
    return {
        "label": label,
        "kernel": run.kernel,
        "heading": plain(f"{run.kernel or 'a run'} on {run.info.device or 'an unknown device'}"),
        "verdict": plain(_verdict(run)),
        "is_good": run.best is not None,
        "tested": [plain(text) for text in dict.fromkeys(texts)],
        "warnings": [plain(text) for text in run.warnings],
        "found": Markup(run._repr_html_()),
        "explained": [plain(text) for text in explanation_of(run).sentences],
        "facts": _facts(run, file),
        "trials": len(run.trials),
        "sources": len(kept["by_trial"]),
        "remarks": kept["remarks"],
        "data": {
            "charts": _charts(run),
            "columns": _columns(run),
            "sources": kept,
            "emit": shlex.join(["mptune", "emit", file, "--configuration"]) if file else "",
            "baseline": _place(run, baseline_of(run)),
            "best": _place(run, run.best or run.closest),
        },
    }


def _place(run: Run, trial: Trial | None) -> int | None:
    """Return the number of a trial, counted from 1."""
    places = {each.configuration: number for number, each in enumerate(run.trials, 1)}
    return None if trial is None else places.get(trial.configuration)


def _verdict(run: Run) -> str:
    best, closest = run.best, run.closest
    if best is not None:
        faster = run.speedup_text(best)
        speed = "" if faster == "-" else f"speedup {faster} over the baseline, "
        return f"{speed}{_number(best.time_ms)} ms, error {_number(best.error)}"
    if not run.trials:
        return "no trial yet"
    nearest = f"; the closest: {run.objective.judge(closest).message}" if closest is not None else ""
    return f"no trial satisfies the threshold{nearest}"


def _charts(run: Run) -> list[dict[str, Any]]:
    """Return the charts of a run that it has data for, and its front with memory instead of error."""
    more = [("pareto", (run.objective.metric, "memory_bytes"))] if "memory_bytes" in run.metric_names else []
    others = [kind for kind in (*KINDS, *APPLICATION_KINDS) if kind not in ("pareto", "parameters", "answer")]
    kinds = [("pareto", ()), *more, *((kind, ()) for kind in (*others, "parameters"))]
    charts = []
    for kind, metrics in kinds:
        look = Look("screen", title=kind == "sensitivity", is_linked=kind in ("pareto", "progress"))
        with contextlib.suppress(PlotError, MptuneError):
            chart = chart_of(run, kind, look, metrics).to_dict(validate=False)
            for rows in chart.get("datasets", {}).values():
                # Five digits are more than a picture shows; a report of many trials weighs a third less.
                rows[:] = [
                    {name: _rounded(value, 5) for name, value in row.items() if value is not None} for row in rows
                ]
            name = kind if not metrics else f"{kind}: {' and '.join(metrics)}"
            charts.append({"name": plain(name), "linked": look.is_linked, "spec": chart})
    return charts


def _columns(run: Run) -> list[dict[str, Any]]:
    """Return the columns of the table of trials."""
    found = run.to_dataframe()
    own, valid = set(run.parameter_names), np.array([trial.is_valid for trial in run.trials], dtype=bool)
    metrics = [name for name in found.columns if name not in own and name not in ("message", "status", "feasible")]
    leading = dict.fromkeys(("status", run.objective.metric, "time_ms", "speedup", "error", "memory_bytes"))
    names = dict.fromkeys((*leading, *run.parameter_names, "feasible", "message", *metrics))
    longest = min(_LONGEST_MESSAGE, max(_SHORTEST_MESSAGE, _ALL_MESSAGES // max(1, len(run.trials))))
    columns = [{"name": "trial", "cells": list(range(1, len(run.trials) + 1))}]
    for name in names:
        if name in found and (name in own or found[name].notna().any()):
            # A number of a trial that failed would be sorted among those that count.
            known = found[name].notna() & (valid | (name not in metrics))
            cells = found[name].astype(object).where(known, None).tolist()
            columns.append({"name": plain(name), "cells": [_cell(cell, longest) for cell in cells]})
    return columns


def _rounded(value: Any, digits: int) -> Any:
    return float(f"{value:.{digits}g}") if isinstance(value, float) and math.isfinite(value) else value


def _cell(cell: Any, longest: int) -> Any:
    if not isinstance(cell, str):
        return _rounded(cell, 6)
    more = len(cell) - longest
    return plain(cell) if more <= 0 else f"{plain(cell[:longest])}\n… and {more} characters more, in the run file"


def _facts(run: Run, file: str) -> dict[str, str]:
    """Return what is known of a run beside its result."""
    info = run.info
    told = ("strategy", "seed", "budget", "evaluations", "feasible", "objective", "ended", "backend")
    summary = {name: fact for name, fact in run.summary().items() if name in told}
    facts = {
        "limits": info.limits_text(),
        "constraints": " and ".join(info.objective.constraints),
        **summary,
        "configurations": info.configurations,
        **{f"size {name}": value for name, value in info.sizes.items()},
        "architecture": info.architecture,
        **info.versions,
        "seconds": round(run.state.wall_s, 1),
        "workers": run.state.workers,
        "begun": info.created_at,
        "mptune": info.mptune_version,
        "definition": info.kernel_path,
        **{f"strategy {name}": value for name, value in info.strategy_options.items()},
        "observers": ", ".join(info.observers),
        "run file": file,
        "command": info.command,
    }
    return {plain(name): plain(str(fact)) for name, fact in facts.items() if fact or name == "seed"}


def _sources_of(run: Run, count: int) -> dict[str, Any]:
    """Return the sources the run has of its most interesting trials, at most ``count``, without the prelude they share.

    Sources of one kernel have most lines in common: ``by_trial`` holds positions in the distinct ``lines``. Without
    sources, the remarks say why.
    """
    remarks = []
    if not run.sources and run.trials:
        why = "as one from another tool."
        if run.info.is_of_application:
            why = "as one that did not keep what the application launches. mptune render prints it."
        remarks.append(f"No source is shown: the run has none, {why}")
    elif count < 1 and run.trials:
        remarks.append("The report was made without sources.")
    positions: dict[str, int] = {}
    numbers = {trial.configuration.to_json(): number for number, trial in enumerate(run.trials, 1)}
    kept = ((numbers[name], text) for name, text in run.sources.items() if name in numbers)
    by_trial = {
        number: [positions.setdefault(plain(line), len(positions)) for line in text.splitlines()]
        for number, text in islice(kept, count)
    }
    return {"lines": list(positions), "by_trial": by_trial, "remarks": remarks}
