"""What is shown to people, as data: facts, tables and sentences, which a terminal, a page or a notebook renders."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

#: What steers a terminal or changes how other characters are shown: controls but for tab and line break, marks of the
#: direction of writing, and what has no width.
_STEERING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_CELL: Final = "text-align:left;vertical-align:top;white-space:pre-wrap"


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing known of a run: its name in JSON, its value, and the value as text, empty if only JSON shows it."""

    name: str
    value: Any
    text: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text.

    Attributes:
        columns: their names.
        rows: the cells of each row.
        title: shown above.
        parameters: so many of the last columns are parameters, which fit into one column as NAME=VALUE.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    title: str = ""
    parameters: int = 0

    @staticmethod
    def of(rows: Sequence[Mapping[str, object]], title: str = "", parameters: int = 0) -> Table:
        """Return a table of rows that all have the same columns by name."""
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
    """What a run found, for whoever shows it.

    Attributes:
        title: what was tuned, and where.
        verdict: the result in one sentence.
        is_good: whether there is a winner.
        facts: what ``--json`` has, too, by its names.
        origin: where the run is from: versions, command, machine.
        tables: baseline and winner first.
        remarks: sentences about the result.
        warnings: those of the run, then those of its trials.
    """

    title: str = ""
    verdict: str = ""
    is_good: bool = True
    facts: tuple[Fact, ...] = ()
    origin: tuple[Fact, ...] = ()
    tables: tuple[Table, ...] = ()
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def text(self, name: str) -> str:
        """Return a fact as text, empty if it is not shown."""
        return next((fact.text for fact in self.facts if fact.name == name), "")


def plain(text: str) -> str:
    """Return text in which every character that a terminal would act on is shown by its number."""
    return text if _STEERING.search(text) is None else _STEERING.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)


def number(value: float | None, digits: int = 4) -> str:
    """Return a number for a table, a dash if there is none."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


def pairs(values: Mapping[str, Any]) -> str:
    """Return ``name value, name value`` for a line of text."""
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "none"


def few_names(names: Sequence[str], most: int = 3) -> str:
    """Return some names; of many, the first few."""
    more = len(names) - most
    return f"{', '.join(names[:most])} and {more} more" if more > 1 else ", ".join(names)


def as_html(*parts: str | Table) -> str:
    """Return tables, and lines of text to stand above them, as HTML; everything in them is text."""

    def row(cells: tuple[object, ...], tag: str) -> str:
        return "".join(f'<{tag} style="{_CELL}">{html.escape(str(cell))}</{tag}>' for cell in cells)

    shown = []
    for part in parts:
        if isinstance(part, str):
            shown.append(f"<p><strong>{html.escape(part)}</strong></p>")
            continue
        found = part.joined()
        head = f"<thead><tr>{row(found.columns, 'th')}</tr></thead>" if found.columns else ""
        body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in found.rows)
        title = f"<p>{html.escape(found.title)}</p>" if found.title else ""
        shown.append(f"{title}<table>{head}<tbody>{body}</tbody></table>")
    return "".join(shown)
