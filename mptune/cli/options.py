"""Options that several commands share, and turning their text into values.

Names that other modules define (strategies, metrics, kinds of plots, ...) are written out in the help, so that
printing it imports none of them; a test compares them with the tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from mptune.errors import MptuneError

if TYPE_CHECKING:
    from mptune.kernel import Kernel

__all__ = [
    "FILE",
    "as_json",
    "backend",
    "constraints",
    "default_output",
    "kernel_name",
    "max_error",
    "maximise",
    "objective",
    "objectives",
    "other_max_error",
    "parse_assignments",
    "parse_names",
    "parse_sizes",
    "parse_threshold",
    "penalty",
    "seed_of_runs",
    "size",
    "strategy",
    "strategy_option",
]

FILE: Final = click.Path(path_type=Path)

kernel_name = click.argument("kernel", metavar="KERNEL|FILE.py")
as_json = click.option("--json", is_flag=True, help="Print one JSON document.")
backend = click.option("--backend", metavar="NAME", default="auto", help="auto, host, cuda or hip.")
size = click.option(
    "--size", metavar="PRESET|NAME=VALUE", multiple=True, help="A preset's name, or one size. May be repeated."
)
max_error = click.option(
    "--max-error",
    metavar="X|OUTPUT=X",
    multiple=True,
    help="Largest error allowed, for all outputs or for one. May be repeated.",
)
other_max_error = click.option(
    "--max-error",
    metavar="X|OUTPUT=X",
    multiple=True,
    help="Use another error limit than the run did, for all outputs or for one. May be repeated.",
)
objective = click.option(
    "--objective",
    metavar="NAME",
    default="time",
    help="What to optimise: time, memory, energy, edp, error, a metric, or a formula of metrics.",
)
objectives = click.option(
    "--objectives",
    metavar="A,B",
    default="",
    show_default=False,
    help="Find the trade-offs between two or three objectives; the best configuration is the best in the first.",
)
maximise = click.option("--maximise", is_flag=True, help="Make the objective as large as possible instead of small.")
constraints = click.option(
    "--constraint",
    "constraints",
    metavar="LIMIT",
    multiple=True,
    help="A limit on a metric, such as 'energy_j <= 1.5'. May be repeated; all must hold.",
)
penalty = click.option(
    "--penalty",
    metavar="NAME",
    default="decay",
    help="How to score configurations over the error limit: hard, linear or decay.",
)
strategy = click.option(
    "--strategy",
    metavar="NAME",
    default="bayesian",
    help="How to search; 'mptune list --strategies' describes the strategies. With several objectives, bayesian "
    "means bayesian-pareto.",
)
strategy_option = click.option(
    "--strategy-option", metavar="NAME=VALUE", multiple=True, help="An option of the strategy. May be repeated."
)
seed_of_runs = click.option(
    "--seed", metavar="N", default=0, help="Seed of the first run; the next ones take the next numbers."
)

#: A comma that is not between the arguments of a function.
_COMMA: Final = re.compile(r",(?![^()]*\))")


def parse_names(text: str) -> tuple[str, ...]:
    """Split a list at the commas that are not inside parentheses; empty text is an empty list."""
    return tuple(part.strip() for part in _COMMA.split(text)) if text.strip() else ()


def parse_assignments(texts: Sequence[str], option: str) -> dict[str, str]:
    """Split ``NAME=VALUE`` options.

    Raises:
        MptuneError: one of them has no ``=`` or no name, or a name is given twice.
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
    """Return the preset's name and the single sizes given beside it.

    Raises:
        MptuneError: two presets, or a size that is not a whole number.
        UnknownNameError: the kernel has no such preset or size.
    """
    presets = [text for text in texts if "=" not in text]
    if len(presets) > 1:
        raise MptuneError(f"--size: expected one preset, not {', '.join(presets)}")
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
    """Return the threshold: one number, or numbers by output (``OUTPUT=X``), or None.

    Raises:
        MptuneError: not a positive number, or both kinds at once.
    """
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return _threshold(texts[0])
    if any("=" not in text for text in texts):
        raise MptuneError(f"--max-error: expected one number, or OUTPUT=X for each output, not {', '.join(texts)}")
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
    """Return the run file of a kernel in the folder ``runs``: a new one, or the latest one to resume."""
    number = 1
    path = Path("runs") / f"{kernel.name}.db"
    while path.exists():
        number += 1
        following = path.with_name(f"{kernel.name}-{number}.db")
        if resume and not following.exists():
            return path
        path = following
    return path
