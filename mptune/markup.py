"""Text that is shown as it is: in tables of HTML, for notebooks, and where a terminal may read it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["heading", "plain", "table"]

#: What steers a terminal or changes how other characters are shown: controls but for tab and line break, marks of the
#: direction of writing, and what has no width.
_STEERING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")

_CELL = "text-align:left;vertical-align:top;white-space:pre-wrap"


def plain(text: str) -> str:
    """Return text in which every character that a terminal would act on is shown by its number."""
    return text if _STEERING.search(text) is None else _STEERING.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)


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
