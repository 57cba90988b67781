"""A section of the GPU benchmark, and its options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mptune.kernel import Kernel, Sizes
from mptune.space.configuration import Configuration
from tests.support.simulator.device import MADE_UP

__all__ = ["Options", "Section", "Source", "table", "verdict"]

#: What is compiled: a configuration of a kernel at some sizes.
Source = tuple[Kernel, Sizes, Configuration]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line.

    Attributes:
        backend: name of the backend, never "auto".
        size: size preset; None for the section's own.
        kernels: names of kernels; empty for the section's own.
        matrices: M = N = K of gemm.
        budget: configurations Kernel Tuner and mptune draw.
        candidates: how many of the fastest configurations of each kind are measured again.
        rounds: rounds in which the things compared take turns.
        seed: seed of inputs and searches.
        work: folder for progress.
        data: folder for recorded spaces.
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
    """One section.

    Attributes:
        name: its name on the command line.
        title: its heading.
        measure: takes the options and a deadline on the monotonic clock, in seconds; yields what is measured so far as
            JSON values, of which ``complete`` says whether it is everything, after each part and at the end.
        lines: turns what ``measure`` yielded into lines of Markdown.
        begins: takes the options and the limits that are known without a device; yields what is compiled first, for
            ``--compile``. None where that is nothing worth it.
    """

    name: str
    title: str
    measure: Callable[[Options, float], Iterator[dict[str, Any]]]
    lines: Callable[[Mapping[str, Any]], list[str]]
    begins: Callable[[Options, Mapping[str, Any]], Iterator[Source]] | None = None


def verdict(document: Mapping[str, Any], *, is_met: bool) -> str:
    """Return what is said of a target: nothing is met on a device whose times are made up."""
    return "none: made-up times" if MADE_UP in document.get("device", "") else "met" if is_met else "missed"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a Markdown table; the first column is text, the others are numbers."""
    rule = "|---|" + "--:|" * (len(columns) - 1)
    return [_line(columns), rule, *map(_line, rows), ""]


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
