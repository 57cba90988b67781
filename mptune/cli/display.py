"""Terminal output: messages, tables and descriptions of runs."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from mptune.markup import Description, Table, plain

if TYPE_CHECKING:
    from mptune.run import Run

#: Key of the stream for the JSON document in the context of a command with ``--json``.
DOCUMENT: Final = "mptune.document"
#: A cell that begins with a number.
_NUMBER: Final = re.compile(r"[-<>]?\s?\d[\d,.]*(e[+-]?\d+)?x?(?![\w/])")
#: The escape sequences that are not replaced.
_STYLE: Final = re.compile(r"(\x1b\[(?:0|1|2|31|32|33|36)m)")


def echo(text: str = "", *, err: bool = False) -> None:
    """Print on standard output or standard error, without colours if unsupported or NO_COLOR is set.

    Other control characters, possibly from a file, are replaced by their code points. If standard error cannot be
    written, the command continues without it.
    """
    shown = "".join(part if i % 2 else plain(part) for i, part in enumerate(_STYLE.split(text)))
    try:
        click.echo(shown, err=err, color=False if "NO_COLOR" in os.environ else None)
    except OSError:
        if not err:
            raise
        discard(2)


def discard(*descriptors: int) -> None:
    """Replace streams by the null device: buffered output would fail again at Python's exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def print_error(message: str) -> None:
    """Print an error on standard error."""
    echo(click.style("error: ", fg="red", bold=True) + plain(message), err=True)


def print_note(message: str) -> None:
    """Print a remark on standard error."""
    echo(click.style(plain(message), fg="yellow"), err=True)


@contextlib.contextmanager
def reserved_stdout() -> Iterator[TextIO]:
    """Yield a stream to standard output; what else prints there, also in C++, prints to standard error."""
    sys.stdout.flush()
    replaced = sys.stdout  # by a caller in Python, if it is not descriptor 1
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as document, contextlib.redirect_stdout(sys.stderr):
        os.dup2(2, 1)
        try:
            yield document if replaced is sys.__stdout__ else replaced
        finally:
            os.dup2(document.fileno(), 1)


def print_json(document: Mapping[str, Any]) -> None:
    """Print the JSON document of a command with ``--json``; raise ValueError for numbers that are not finite."""
    text = json.dumps(document, indent=2, allow_nan=False)
    click.echo(text, file=click.get_current_context().meta[DOCUMENT])


def print_table(found: Table | Sequence[Mapping[str, object]]) -> None:
    """Print a table, or rows with the same columns by name; columns of numbers are aligned to the right."""
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    shown = found if isinstance(found, Table) else Table.of(found)
    if not shown.rows:
        return
    cells = [[plain(str(cell)) for cell in row] for row in shown.rows]
    grid = Grid(box=None, pad_edge=False)
    for name, *texts in zip(map(plain, shown.columns), *cells, strict=True):
        is_number = any(map(_NUMBER.match, texts)) and all(_NUMBER.match(text) or text in ("", "-") for text in texts)
        whole = max(map(len, (name, *texts)))
        least = whole if is_number else min(whole, max(len(name), 8))
        grid.add_column(name, justify="right" if is_number else "left", min_width=least, overflow="fold")
    for row in cells:
        grid.add_row(*map(Text, row))
    console = Console(width=10_000, color_system=None, markup=False, emoji=False, highlight=False)
    if shown.parameters and console.measure(grid).maximum > width():
        print_table(shown.joined())
        return
    console.width = max(width(), sum((column.min_width or 0) + 2 for column in grid.columns) - 2)
    with console.capture() as captured:
        console.print(grid)
    first, *others = (line.rstrip() for line in captured.get().splitlines())
    echo("\n".join((*filter(None, [shown.title]), click.style(first, bold=True), *others)) + "\n")


def wrapped(text: str, indent: str = "") -> str:
    """Return a paragraph wrapped at the width of the terminal, with an indent after the first line."""
    return textwrap.fill(text, width(), subsequent_indent=indent)


def width() -> int:
    """Return the width of the terminal or COLUMNS, at least 40; for a pipe or a file 240."""
    return max(40, shutil.get_terminal_size().columns) if sys.stdout.isatty() or "COLUMNS" in os.environ else 240


@contextlib.contextmanager
def counter(what: str) -> Iterator[Callable[[], None]]:
    """Show a counter on the terminal, and yield the function that increments it."""
    from rich.console import Console

    done = itertools.count(1)
    with Console(stderr=True).status(f"{what}: 0") as status:
        yield lambda: status.update(f"{what}: {next(done)}")


@contextlib.contextmanager
def stages() -> Iterator[Callable[[str], None]]:
    """Yield a function that begins a stage; on a terminal each stage is a line with its seconds."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    stage, began = "", time.monotonic()

    class Stage:
        def __rich__(self) -> Text:
            return Text(f"{stage}, {time.monotonic() - began:.0f} s")

    def begin(what: str) -> None:
        nonlocal stage, began
        if stage and console.is_terminal:
            console.print(f"{time.monotonic() - began:7.1f} s  {stage}")
        stage, began = what, time.monotonic()

    with console.status(Stage()):
        yield begin
        begin("")


def print_described(found: Description) -> None:
    """Print tables and remarks."""
    for part in found.tables:
        print_table(part)
    for remark in found.remarks:
        echo(wrapped(remark))


def print_run(run: Run, *, is_live: bool = False) -> None:
    """Print verdict, winner, baseline, statuses and warnings of a run.

    A command that tuned the run (``is_live``) has printed the warnings before, and prints a missing winner as an error.
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
