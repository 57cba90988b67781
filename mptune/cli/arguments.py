"""Turning the text of command-line options into values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mptune.errors import MptuneError
from mptune.kernel import Kernel

__all__ = [
    "CONSTRAINT_HELP",
    "OBJECTIVES_HELP",
    "default_output",
    "parse_assignments",
    "parse_objectives",
    "parse_sizes",
    "parse_threshold",
]

#: A comma that is not between the arguments of a function.
_COMMA: Final = re.compile(r",(?![^()]*\))")
#: Help of the option that gives a measured constraint.
CONSTRAINT_HELP: Final = "A limit on what is measured, such as 'energy_j <= 1.5'; all have to hold."

#: Help of the option that gives several objectives.
OBJECTIVES_HELP: Final = "Two or three instead, by commas: search for their front; best is of the first."


def parse_objectives(text: str) -> tuple[str, ...]:
    """Split a list at the commas that are not inside parentheses; empty text is no list."""
    return tuple(part.strip() for part in _COMMA.split(text)) if text.strip() else ()


def parse_assignments(texts: Sequence[str], option: str) -> dict[str, str]:
    """Split ``NAME=VALUE`` options.

    Raises:
        MptuneError: one of them has no ``=`` or no name, or a name comes twice.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise MptuneError(f"{option} {text!r}: expected NAME=VALUE")
        if name in values:
            raise MptuneError(f"{option} {text!r}: {name} is given twice")
        values[name] = value
    return values


def parse_sizes(kernel: Kernel, texts: Sequence[str]) -> tuple[str, dict[str, int]]:
    """Return the preset's name and the sizes given beside it.

    Raises:
        MptuneError: two presets, or a size that is no whole number.
    """
    presets = [text for text in texts if "=" not in text]
    if len(presets) > 1:
        raise MptuneError(f"--size: one preset at most, not {', '.join(presets)}")
    sizes: dict[str, int] = {}
    for name, value in parse_assignments([text for text in texts if "=" in text], "--size").items():
        try:
            sizes[name] = int(float(value)) if float(value).is_integer() else int(value)
        except (ValueError, OverflowError):
            raise MptuneError(f"--size {name}={value}: expected a whole number") from None
    preset = presets[0] if presets else "default"
    kernel.resolve_sizes(preset, sizes)
    return preset, sizes


def parse_threshold(texts: Sequence[str]) -> float | Mapping[str, float] | None:
    """Return the threshold: one number, or numbers by output (``NAME=X``), or None.

    Raises:
        MptuneError: not a positive number, or numbers of both kinds.
    """
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return _threshold(texts[0])
    if any("=" not in text for text in texts):
        raise MptuneError(f"--max-error: one number, or NAME=X for each output, not {', '.join(texts)}")
    return {name: _threshold(value) for name, value in parse_assignments(texts, "--max-error").items()}


def _threshold(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 < value < math.inf:
        exact = " (1e-300 accepts exact answers only)" if value == 0 else ""
        raise MptuneError(f"--max-error {text!r}: expected a positive number such as 1e-4{exact}")
    return value


def default_output(kernel: Kernel, resume: bool) -> Path:
    """Return the run file of a kernel in ``runs``: a new one, or the latest one to resume."""
    number = 1
    path = Path("runs") / f"{kernel.name}.db"
    while path.exists():
        number += 1
        following = path.with_name(f"{kernel.name}-{number}.db")
        if resume and not following.exists():
            return path
        path = following
    return path
