"""The tiers of the tests: what an unmarked test may take, and parameters of which few are in the fast tier."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

__all__ = ["FAST_S", "few", "processor_s", "slowness"]

#: Seconds of processor time that an unmarked test may take, its children included.
FAST_S: Final = 2.0
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
#: Processor seconds of the work of ``slowness`` on a Zen 3 at 2.4 GHz with Python 3.11.
_USUAL_S: Final = 0.07


def few(values: Iterable[Any], fast: int = 1, full: int | None = None) -> list[Any]:
    """Return the values of a parameter, each in a tier.

    Args:
        values: the values.
        fast: how many of them are in the fast tier: the first ones.
        full: how many are in the full tier or the fast one; all others are nightly. By default all are.
    """
    found = []
    for number, value in enumerate(values):
        tier = pytest.mark.full if full is None or number < full else pytest.mark.nightly
        found.append(value if number < fast else _in(tier, value))
    return found


def _in(tier: pytest.MarkDecorator, value: Any) -> Any:
    if hasattr(value, "marks"):
        return pytest.param(*value.values, id=value.id, marks=[*value.marks, tier])
    # Several parameters at once are a tuple of their values.
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=tier)


def processor_s() -> float:
    """Return the processor seconds of this process, its ended children and its descendants that still run."""
    own = os.times()
    total = own.user + own.system + own.children_user + own.children_system
    return total + sum(_ticks(child) for child in _descendants(os.getpid())) / _TICKS_PER_S


def slowness() -> float:
    """Return how many times longer than usual tests take here and now, at least 1.

    A slow processor takes longer for a fixed piece of work. On a busy one kernels are timed more often, until their
    times agree, and their threads wait for each other. Two tasks for each core are usual, as tests start compilers.
    """
    began = time.process_time()
    sum(i * i % 7 for i in range(500_000))
    took_s = time.process_time() - began
    return max(1.0, took_s / _USUAL_S, os.getloadavg()[0] / (2 * len(os.sched_getaffinity(0))))


def _descendants(process: int) -> Sequence[int]:
    found: list[int] = []
    for listed in Path(f"/proc/{process}/task").glob("*/children"):
        children = [int(child) for child in _read(listed).split()]
        found += children
        for child in children:
            found += _descendants(child)
    return found


def _ticks(process: int) -> int:
    # The name of a command, in parentheses, may have blanks; its own and its children's times are fields 14 to 17.
    return sum(map(int, _read(Path(f"/proc/{process}/stat")).rpartition(")")[2].split()[11:15]))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # ended since
        return ""
