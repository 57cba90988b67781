"""Tables as HTML, for notebooks. All content is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["heading", "table"]

_CELL = "text-align:left;vertical-align:top;white-space:pre-wrap"


def heading(text: object) -> str:
    """Return a line to show above a table."""
    return f"<p><strong>{html.escape(str(text))}</strong></p>"


def table(columns: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table, without a head if there are no names of columns."""
    head = "".join(f'<th style="{_CELL}">{html.escape(str(column))}</th>' for column in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{html.escape(str(cell))}</td>' for cell in row) + "</tr>" for row in rows
    )
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if columns else ''}<tbody>{body}</tbody></table>"
