"""Descriptions as data: facts, tables and sentences that a terminal, a page or a notebook renders."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

#: Control characters except tab and line feed, marks of text direction, and characters without width.
_STEERING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_CELL: Final = "text-align:left;vertical-align:top;white-space:pre-wrap"


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about a run: its name in JSON, its value, and its text, empty if only JSON has the fact."""

    name: str
    value: Any
    text: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    title: str = ""
    parameters: int = 0  #: number of the last columns that can be joined into one as NAME=VALUE

    @staticmethod
    def of(rows: Sequence[Mapping[str, object]], title: str = "", parameters: int = 0) -> Table:
        """Return a table from rows with the same columns by name."""
        columns = tuple(rows[0]) if rows else ()
        return Table(columns, tuple(tuple(row.values()) for row in rows), title, parameters)

    def joined(self) -> Table:
        """Return the table with its parameters in one column, ``configuration``."""
        at = len(self.columns) - self.parameters
        if not self.parameters:
            return self
        names = self.columns[at:]
        rows = ((*row[:at], ", ".join(f"{n}={v}" for n, v in zip(names, row[at:], strict=True))) for row in self.rows)
        return replace(self, columns=(*self.columns[:at], "configuration"), rows=tuple(rows), parameters=0)


@dataclass(frozen=True, slots=True)
class Description:
    """The result of a run, to be rendered."""

    title: str = ""  #: kernel and device
    verdict: str = ""  #: the result in one sentence
    is_good: bool = True  #: whether there is a winner
    facts: tuple[Fact, ...] = ()  #: the facts that ``--json`` has, by the same names
    origin: tuple[Fact, ...] = ()  #: versions, command and machine of the run
    tables: tuple[Table, ...] = ()  #: baseline and winner first
    remarks: tuple[str, ...] = ()  #: sentences about the result
    warnings: tuple[str, ...] = ()  #: warnings of the run, then of its trials

    def text(self, name: str) -> str:
        """Return the text of a fact, empty if it has none."""
        return next((fact.text for fact in self.facts if fact.name == name), "")


def plain(text: str) -> str:
    """Return text with each character a terminal would interpret replaced by its code point."""
    return text if _STEERING.search(text) is None else _STEERING.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)


def number(value: float | None, digits: int = 4) -> str:
    """Return a number as the text of a cell, a dash for None, NaN and infinity."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


def pairs(values: Mapping[str, Any]) -> str:
    """Return ``name value, name value``, or ``none``."""
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "none"


def few_names(names: Sequence[str], most: int = 3) -> str:
    """Return names separated by commas, of many the first ``most`` and the number of the rest."""
    more = len(names) - most
    return f"{', '.join(names[:most])} and {more} more" if more > 1 else ", ".join(names)


def as_html(*parts: str | Table) -> str:
    """Return tables and headings as HTML; all text is escaped."""

    def row(cells: tuple[object, ...], tag: str) -> str:
        return "".join(f'<{tag} style="{_CELL}">{html.escape(str(cell))}</{tag}>' for cell in cells)

    def shown(part: str | Table) -> str:
        if isinstance(part, str):
            return f"<p><strong>{html.escape(part)}</strong></p>"
        found = part.joined()
        head = f"<thead><tr>{row(found.columns, 'th')}</tr></thead>" if found.columns else ""
        body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in found.rows)
        title = f"<p>{html.escape(found.title)}</p>" if found.title else ""
        return f"{title}<table>{head}<tbody>{body}</tbody></table>"

    return "".join(map(shown, parts))
