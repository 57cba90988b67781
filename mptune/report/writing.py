"""From runs to one HTML file, with its style, its script and its data inside.

What comes from a run is data to the page and nothing else: it lies in a block of JSON that cannot end before its end,
the script makes text nodes of it, and a policy in the page lets nothing run or load but the script and the style that
belong to it.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import jinja2
from markupsafe import Markup

from mptune import __version__
from mptune.errors import MptuneError
from mptune.folders import write_whole
from mptune.interop.files import SQLITE_MAGIC, read_head
from mptune.report.document import SOURCES, Report, run_document
from mptune.run import Run

__all__ = ["page", "report_of", "write_report"]

#: In this order they are one script.
_SCRIPTS: Final = (
    "format.js", "model.js", "filter.js", "axis.js", "plot.js", "charts.js", "table.js", "detail.js", "summary.js",
    "kernels.js", "explain.js", "main.js",
)  # fmt: skip
_LOADER: Final = jinja2.PackageLoader("mptune.report", "files")
_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def page(report: Report) -> str:
    """Return the HTML of a report."""
    script, style = _script(), _text("report.css")
    # ASCII alone, and nothing a parser of HTML looks at: it stands inside a script element.
    data = json.dumps(report.to_json(), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    # No network at all, and of scripts and styles the page's own.
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'"
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            # A file's name may hold bytes that are no text; they come as lone surrogates, which UTF-8 lacks.
            title=report.title.encode("utf-8", "backslashreplace").decode("utf-8"),
            policy=f"{policy}; form-action 'none'",
            style=Markup(style),
            script=Markup(script),
            data=Markup(data.translate(_ESCAPES)),
        )
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


@functools.cache
def _script() -> str:
    parts = "\n".join(_text(name) for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def _text(name: str) -> str:
    return _LOADER.get_source(_environment(), name)[0].replace("\r\n", "\n")


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=_LOADER, undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=True
    )


def report_of(
    runs: Run | str | Path | Sequence[Run | str | Path],
    *,
    sources: int = SOURCES,
) -> Report:
    """Return what a report on runs shows.

    Args:
        runs: runs, or run files; one that is still being written is taken as it is now.
        sources: how many of the rendered sources a run has to include, at most: of best, baseline, failures and front
            first, then of the fastest.

    Raises:
        RunFileError: a run file cannot be read.
        MptuneError: no run, or a negative number of sources.
    """
    given = [runs] if isinstance(runs, Run | str | Path) else list(runs)
    if not given:
        raise MptuneError("a report needs one run or more")
    if sources < 0:
        raise MptuneError(f"sources {sources}: expected 0 or more")
    files = ["" if isinstance(run, Run) else str(run) for run in given]
    loaded = [run if isinstance(run, Run) else Run.load(run) for run in given]
    labels = _labels(loaded, files)
    documents = tuple(
        run_document(run, label, file, sources) for run, label, file in zip(loaded, labels, files, strict=True)
    )
    return Report(_title(loaded), __version__, documents)


def write_report(
    runs: Run | str | Path | Sequence[Run | str | Path],
    path: str | Path,
    *,
    sources: int = SOURCES,
) -> Report:
    """Write a report on runs as one HTML file that opens offline, and return what it shows.

    Args:
        runs: as of :func:`report_of`.
        path: the file; folders that lead to it are made, and a report there before is replaced.
        sources: as of :func:`report_of`.

    Raises:
        MptuneError: as of :func:`report_of`, or the file cannot be written, or is a run file.
    """
    path = Path(path)
    if path.is_file() and read_head(path).startswith(SQLITE_MAGIC):
        raise MptuneError(f"{path} is a run file: give the report another name, such as {path.with_suffix('.html')}")
    report = report_of(runs, sources=sources)
    text = page(report)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
    except OSError as error:
        raise MptuneError(f"cannot write the report {path}: {error.strerror or error}") from error
    return report


def _labels(runs: Sequence[Run], files: Sequence[str]) -> list[str]:
    """Return a short name for each run: its file's or its kernel's, numbered where two are the same."""
    labels: list[str] = []
    for run, file in zip(runs, files, strict=True):
        name = (Path(file).stem if file else run.kernel) or "run"
        number, label = 1, name
        while label in labels:
            number += 1
            label = f"{name} ({number})"
        labels.append(label)
    return labels


def _title(runs: Sequence[Run]) -> str:
    kernels = dict.fromkeys(run.kernel for run in runs)
    devices = dict.fromkeys(run.info.device for run in runs)
    where = f" on {next(iter(devices))}" if len(devices) == 1 and next(iter(devices)) else ""
    return f"{', '.join(kernels)}{where}: mptune report"
