"""The page: one HTML file with its style, its script and its data inside.

What comes from a run is data to the page and nothing else: it lies in a block of JSON that cannot end before its end,
the script makes text nodes of it, and a policy in the page lets nothing run or load but the script and the style that
belong to it.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from typing import Any, Final

import jinja2
from markupsafe import Markup

from mptune.report.document import Report

__all__ = ["page"]

#: In this order they are one script.
_SCRIPTS: Final = (
    "format.js", "model.js", "filter.js", "axis.js", "plot.js", "charts.js", "table.js", "detail.js", "summary.js",
    "main.js",
)  # fmt: skip
_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def page(report: Report) -> str:
    """Return the HTML of a report."""
    script, style = _script(), _text("report.css")
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            title=_without_surrogates(report.title),
            policy=_policy(script, style),
            style=Markup(style),
            script=Markup(script),
            data=Markup(_script_json(report.to_json())),
        )
    )


def _script_json(document: Any) -> str:
    """Return JSON that can stand inside a script element: ASCII alone, and nothing a parser of HTML looks at."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def _policy(script: str, style: str) -> str:
    """Return the content security policy: no network at all, and of scripts and styles the page's own."""
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


@functools.cache
def _script() -> str:
    parts = "\n".join(_text(name) for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def _text(name: str) -> str:
    source = _environment().loader
    assert source is not None
    return source.get_source(_environment(), name)[0].replace("\r\n", "\n")


def _without_surrogates(text: str) -> str:
    # A file's name may hold bytes that are no text; they come as lone surrogates, which UTF-8 lacks.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("mptune.report", "files"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=True,
    )
