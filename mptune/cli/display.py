"""What a person sees in a terminal: messages, tables, and what a run found."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from mptune.markup import Description, Table, plain

if TYPE_CHECKING:
    from mptune.run import Run

#: A cell that begins with a number.
_NUMBER: Final = re.compile(r"[-<>]?\s?\d[\d,.]*(e[+-]?\d+)?x?(?![\w/])")
#: The styles this package uses; no other sequence is passed on.
_STYLE: Final = re.compile(r"(\x1b\[(?:0|1|2|31|32|33|36)m)")


def echo(text: str = "", *, err: bool = False) -> None:
    """Print on standard output or standard error; colours are left out where they are not wanted or not understood.

    Characters that steer a terminal are shown by their number: they may be from a file.
    """
    shown = "".join(part if i % 2 else plain(part) for i, part in enumerate(_STYLE.split(text)))
    click.echo(shown, err=err, color=False if "NO_COLOR" in os.environ else None)


def print_error(message: str) -> None:
    """Print on standard error what went wrong."""
    echo(click.style("error: ", fg="red", bold=True) + plain(message), err=True)


def print_note(message: str) -> None:
    """Print a remark on standard error."""
    echo(click.style(plain(message), fg="yellow"), err=True)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document on standard output; numbers that are not finite are refused."""
    echo(json.dumps(document, indent=2, allow_nan=False))


def print_table(found: Table | Sequence[Mapping[str, object]]) -> None:
    """Print a table, or rows with the same columns by name; columns of numbers are aligned to the right."""
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    shown = found if isinstance(found, Table) else Table.of(found)
    if not shown.rows:
        return
    cells = [[plain(str(cell)) for cell in row] for row in shown.rows]
    columns = [(name, *texts) for name, *texts in zip(map(plain, shown.columns), *cells, strict=True)]
    longest = [max(map(len, column)) for column in columns]
    if shown.parameters and sum(longest) + 2 * len(longest) - 2 > width():
        print_table(shown.joined())
        return
    grid, room = Grid(box=None, pad_edge=False), -2
    for (name, *texts), whole in zip(columns, longest, strict=True):
        is_number = any(map(_NUMBER.match, texts)) and all(_NUMBER.match(text) or text in ("", "-") for text in texts)
        side: Literal["left", "right"] = "right" if is_number else "left"
        # Texts are broken, the longest first; a table that is still too wide is longer than the line.
        least = whole if is_number else min(whole, max(len(name), 8))
        grid.add_column(name, justify=side, min_width=least, overflow="fold")
        room += least + 2
    for row in cells:
        grid.add_row(*map(Text, row))
    console = Console(width=max(width(), room), color_system=None, markup=False, emoji=False, highlight=False)
    with console.capture() as captured:
        console.print(grid)
    first, *others = (line.rstrip() for line in captured.get().splitlines())
    echo("\n".join((*filter(None, [shown.title]), click.style(first, bold=True), *others)) + "\n")


def wrapped(text: str, indent: str = "") -> str:
    """Return a paragraph, wrapped at the width of the terminal; lines after the first are indented."""
    import textwrap

    return textwrap.fill(text, width(), subsequent_indent=indent)


def width() -> int:
    """Return how many characters a line of standard output may have; without COLUMNS, a pipe or a file has room."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else 240


@contextlib.contextmanager
def counter(what: str) -> Iterator[Callable[[], None]]:
    """Show on a terminal what is going on; what is yielded counts one more thing done."""
    from rich.console import Console

    done = itertools.count(1)
    with Console(stderr=True).status(f"{what}: 0") as status:
        yield lambda: status.update(f"{what}: {next(done)}")


def print_described(found: Description) -> None:
    """Print tables and remarks."""
    for part in found.tables:
        print_table(part)
    for remark in found.remarks:
        echo(wrapped(remark))


def print_run(run: Run, *, is_live: bool = False) -> None:
    """Print what a run found: the verdict, the winner beside the baseline, how every trial ended, and its warnings.

    A command that ran it just now has shown the warnings, and says as an error that there is no winner.
    """
    found = run.describe()
    title, on, rest = wrapped(plain(found.title)).partition(" on ")
    echo(click.style(title, bold=True) + on + rest)
    head = {name: found.text(name) for name in ("threshold", "evaluations", "strategy", "seed", "wall_s")}
    shown = (text if name in ("evaluations", "wall_s") else f"{name} {text}" for name, text in head.items() if text)
    echo(wrapped(", ".join(shown)) + "\n")
    if found.is_good or not is_live:
        echo(click.style(wrapped(plain(found.verdict)), bold=True) + "\n")
    print_described(found)
    if spent := found.text("durations_s"):
        echo(wrapped(f"time: {spent}", "  "))
    echo(wrapped(f"statuses: {found.text('statuses')}", "  "))
    for warning in () if is_live else found.warnings:
        echo(click.style(wrapped(f"warning: {plain(warning)}", "  "), fg="yellow"))
