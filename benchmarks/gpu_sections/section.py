"""What a section is, and what its measurements are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Options", "Section", "table"]


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says.

    Attributes:
        backend: name of the backend, never "auto".
        size: size preset instead of a section's own.
        kernels: instead of a section's own.
        matrices: M = N = K of gemm.
        budget: configurations Kernel Tuner and mptune draw.
        candidates: configurations measured again of each kind that is compared.
        rounds: how often what is compared takes turns.
        seed: of inputs and searches.
        work: folder of what is done so far.
        data: folder of recorded spaces.
        command: the command line.
    """

    backend: str
    size: str | None
    kernels: tuple[str, ...]
    matrices: tuple[int, ...]
    budget: int
    candidates: int
    rounds: int
    seed: int
    work: Path
    data: Path
    command: str


@dataclass(frozen=True, slots=True)
class Section:
    """One thing to measure.

    Attributes:
        name: what the command line calls it.
        title: its heading.
        measure: measures until the monotonic clock shows a time, and returns what JSON can hold; ``complete`` says
            whether the time sufficed.
        lines: renders what was measured, as Markdown.
    """

    name: str
    title: str
    measure: Callable[[Options, float], dict[str, Any]]
    lines: Callable[[Mapping[str, Any]], list[str]]


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a Markdown table; the first column is text, the others are numbers."""
    rule = "|---|" + "--:|" * (len(columns) - 1)
    return [_line(columns), rule, *map(_line, rows), ""]


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
