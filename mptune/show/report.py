"""A report on runs in one HTML file that opens offline: verdict, charts, and a table of trials to sort and filter.

Nothing from a run is executed: the template escapes text, data are JSON that cannot end its script element, the page's
script creates text nodes, and the content security policy blocks other scripts and all requests.
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
from typing import Annotated, Any, Final

import jinja2
import numpy as np
from markupsafe import Markup

from mptune import __version__
from mptune.errors import MptuneError, PlotError
from mptune.explanation import explanation_of
from mptune.interop import read_run
from mptune.interop.recorded import is_run_file
from mptune.markup import as_html, plain
from mptune.paths import write_whole
from mptune.results.description import compare_runs
from mptune.run import Run, json_document
from mptune.show.charts import APPLICATION_KINDS, KINDS, Look, baseline_of, chart_of, fronts
from mptune.show.saving import in_script, vega
from mptune.space.arguments import Between, checked

#: Default number of trials with their source in the page.
SOURCES: Final = 1000
#: Characters of a message in the table of trials; longer messages are cut.
_LONGEST_MESSAGE: Final = 2000
_ENVIRONMENT: Final = jinja2.Environment(
    loader=jinja2.PackageLoader("mptune.show", "files"), undefined=jinja2.StrictUndefined, autoescape=True
)


@checked
def write_report(
    runs: Run | str | Path | Sequence[Run | str | Path],
    path: str | Path,
    *,
    sources: Annotated[int, Between(0)] = SOURCES,
) -> dict[str, Any]:
    """Write a report on runs as one HTML file that opens offline, and return its data (:func:`report_document`).

    Args:
        runs: runs or run files, also of unfinished runs.
        path: the file; missing folders are created, and an existing report is replaced.
        sources: largest number of rendered sources of each run: best, baseline, failures and front first, then the
            fastest.

    Raises:
        RunFileError: a run file cannot be read.
        PlotError: altair is not installed.
        MptuneError: no run, a negative number of sources, or a file that cannot be written or is a run file.
    """
    path = Path(path)
    if path.is_file() and is_run_file(path):
        raise MptuneError(f"{path} is a run file: give the report another name, such as {path.with_suffix('.html')}")
    if path.suffix.lower() not in ("", ".html"):
        raise MptuneError(f"cannot write the report {path}: expected the suffix .html")
    document = report_document(runs, sources=sources)
    text = _page(document).encode("utf-8", "backslashreplace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise MptuneError(f"cannot write the report {path}: {error.strerror or error}") from error
    return document


def report_document(runs: Run | str | Path | Sequence[Run | str | Path], *, sources: int = SOURCES) -> dict[str, Any]:
    """Return the data of a report: title, comparison, and verdict, facts, charts and trials of each run."""
    given = [runs] if isinstance(runs, Run | str | Path) else list(runs)
    if not given:
        raise MptuneError("a report needs at least one run")
    named: dict[str, Run] = {}
    documents = []
    for each in given:
        run, file = (each, "") if isinstance(each, Run) else (read_run(each), str(each))
        name = plain((Path(file).stem if file else run.kernel) or "run")
        tries = (name if number == 1 else f"{name} ({number})" for number in range(1, len(given) + 1))
        label = next(label for label in tries if label not in named)
        named[label] = run
        documents.append(_run_document(run, label, file, sources))
    both = []
    if len(named) > 1:
        with contextlib.suppress(PlotError):
            both = [fronts(named, Look("screen")).to_dict(validate=False)]
    compared = compare_runs(named)
    kernels = ", ".join(dict.fromkeys(run.kernel for run in named.values()))
    return {
        "title": plain(f"{kernels or 'a run'}: mptune report"),
        "version": __version__,
        "comparison": {"columns": compared.columns, "rows": [[plain(str(c)) for c in row] for row in compared.rows]},
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


def _run_document(run: Run, label: str, file: str, sources: int) -> dict[str, Any]:
    kept, found = _sources_of(run, sources), run.describe()
    named = {"durations_s": "time spent", "wall_s": "wall time", "measured_constraints": "constraints"}
    facts = {named.get(fact.name, fact.name): fact.text for fact in (*found.facts, *found.origin)}
    numbers = {trial.configuration: number for number, trial in enumerate(run.trials, 1)}
    baseline, best = baseline_of(run), run.best or run.closest
    return {
        "label": label,
        "kernel": run.kernel,
        "heading": plain(found.title),
        "verdict": plain(found.verdict),
        "is_good": found.is_good,
        "tested": [plain(text) for text in found.remarks],
        "warnings": [plain(text) for text in found.warnings],
        "found": Markup(as_html(*found.tables)),
        "explained": [plain(text) for text in explanation_of(run).sentences],
        "facts": {plain(name): plain(text) for name, text in {**facts, "run file": file}.items() if text},
        "trials": len(run.trials),
        "sources": len(kept["by_trial"]),
        "remarks": kept["remarks"],
        "data": {
            "charts": _charts(run),
            "columns": _columns(run),
            "sources": kept,
            "emit": shlex.join(["mptune", "emit", file, "--configuration"]) if file else "",
            "baseline": baseline and numbers[baseline.configuration],
            "best": best and numbers[best.configuration],
        },
    }


def _charts(run: Run) -> list[dict[str, Any]]:
    """Return the charts that the run has data for, with a second front over memory."""
    more = [("pareto", (run.objective.metric, "memory_bytes"))] if "memory_bytes" in run.metric_names else []
    others = [kind for kind in (*KINDS, *APPLICATION_KINDS) if kind not in ("pareto", "parameters", "answer")]
    kinds = [("pareto", ()), *more, *((kind, ()) for kind in (*others, "parameters"))]
    charts = []
    for kind, metrics in kinds:
        look = Look("screen", title=kind == "sensitivity", is_linked=kind in ("pareto", "progress"))
        with contextlib.suppress(PlotError, MptuneError):
            chart = chart_of(run, kind, look, metrics).to_dict(validate=False)
            for name, rows in chart.get("datasets", {}).items():  # five digits: a third less data
                known = ({key: value for key, value in row.items() if value is not None} for row in rows)
                chart["datasets"][name] = [{key: _rounded(value, 5) for key, value in row.items()} for row in known]
            name = f"{kind}: {' and '.join(metrics)}" if metrics else kind
            charts.append({"name": plain(name), "linked": look.is_linked, "spec": chart})
    return charts


def _columns(run: Run) -> list[dict[str, Any]]:
    found = run.to_dataframe()
    own, valid = set(run.parameter_names), np.array([trial.is_valid for trial in run.trials], dtype=bool)
    metrics = [name for name in found.columns if name not in own and name not in ("message", "status", "feasible")]
    leading = dict.fromkeys(("status", run.objective.metric, "time_ms", "speedup", "error", "memory_bytes"))
    names = dict.fromkeys((*leading, *run.parameter_names, "feasible", "message", *metrics))
    columns = [{"name": "trial", "cells": list(range(1, len(run.trials) + 1))}]
    for name in names:
        if name in found and (name in own or found[name].notna().any()):
            # Metrics of failed trials are left out of the table, which is sorted by them.
            known = found[name].notna() & (valid | (name not in metrics))
            cells = found[name].astype(object).where(known, None).tolist()
            columns.append({"name": plain(name), "cells": list(map(_cell, cells))})
    return columns


def _rounded(value: Any, digits: int) -> Any:
    return float(f"{value:.{digits}g}") if isinstance(value, float) and math.isfinite(value) else value


def _cell(cell: Any) -> Any:
    if not isinstance(cell, str):
        return _rounded(cell, 6)
    more = f"\n… and {len(cell) - _LONGEST_MESSAGE} characters more, in the run file"
    return plain(cell[:_LONGEST_MESSAGE]) + more * (len(cell) > _LONGEST_MESSAGE)


def _sources_of(run: Run, count: int) -> dict[str, Any]:
    """Return at most ``count`` sources, without the prelude: ``by_trial`` has positions in the distinct ``lines``."""
    remarks = []
    if not run.sources and run.trials:
        remarks = ["The run has no sources: mptune render prints them."]
    elif count < 1 and run.trials:
        remarks = ["The report was made without sources."]
    positions: dict[str, int] = {}
    numbers = {trial.configuration.to_json(): number for number, trial in enumerate(run.trials, 1)}
    kept = ((numbers[name], text) for name, text in run.sources.items() if name in numbers)
    by_trial = {
        number: [positions.setdefault(plain(line), len(positions)) for line in text.splitlines()]
        for number, text in islice(kept, count)
    }
    return {"lines": list(positions), "by_trial": by_trial, "remarks": remarks}
