"""Options that several commands share, and turning their text into values.

Names that other modules define (strategies, metrics, kinds of plots, ...) are written out in the help, so that
printing it imports none of them; a test compares them with the tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from mptune.errors import MptuneError

if TYPE_CHECKING:
    from mptune.kernel import Tunable

Command = TypeVar("Command", bound=Callable[..., Any])

#: A comma that is not between the arguments of a function.
_COMMA: Final = re.compile(r",(?![^()]*\))")
#: Sizes are less than this.
_TOO_LARGE: Final = 2**62
#: The path of a file or a folder.
FILE: Final = click.Path(path_type=Path)


def option(
    names: str, metavar: str, text: str, *, parse: Callable[[Any], Any] | None = None, **settings: Any
) -> Callable[[Command], Command]:
    """Declare an option.

    Args:
        names: its names, with spaces between them.
        metavar: what its value is; empty for a switch; dots at the end if it may be repeated.
        text: its help.
        parse: turns what was given into the value the command gets.
        settings: as :func:`click.option` takes them.
    """
    what = metavar.removesuffix("...")
    if what in ("FILE", "FILE.html", "DIR", "RUN.db"):
        settings["type"] = FILE
    if what != metavar:
        settings["multiple"] = True
        text += " May be repeated."
    if parse is not None:
        settings["callback"] = lambda _context, _option, given: parse(given)
    return click.option(*names.split(), metavar=what or None, is_flag=not what or None, help=text, **settings)


def file_argument(name: str, metavar: str) -> Callable[[Command], Command]:
    """Declare the path of a file that a command reads; of one or more of them if ``metavar`` ends in dots."""
    return click.argument(name, metavar=metavar, type=FILE, nargs=-1 if metavar.endswith("...") else 1, required=True)


# -- values --------------------------------------------------------------------------------------


def parse_names(text: str | None) -> tuple[str, ...]:
    """Split a list at the commas that are not inside parentheses."""
    return tuple(part.strip() for part in _COMMA.split(text or "") if part.strip())


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


def parse_values(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Split ``-p NAME=VALUE,VALUE`` options.

    Raises:
        MptuneError: as :func:`parse_assignments`.
    """
    return {name: parse_names(text) for name, text in parse_assignments(texts, "-p").items()}


def parse_first(text: str) -> dict[str, str] | Path:
    """Return the values of a configuration by name, or the file that has it."""
    return parse_assignments(parse_names(text), "--first") if "=" in text and not Path(text).exists() else Path(text)


def parse_sizes(kernel: Tunable, texts: Sequence[str]) -> tuple[str, dict[str, int]]:
    """Return the preset's name and the single sizes given beside it.

    An adopted program is run at sizes that it was not run at yet.

    Raises:
        MptuneError: two presets, a size that is not a whole number, or one that an adopted program cannot have.
        UnknownNameError: the kernel has no such preset or size.
    """
    presets = [text for text in texts if "=" not in text]
    if len(presets) > 1:
        for name in presets:
            kernel.resolve_sizes(name, {})
        raise MptuneError(f"--size: expected one preset, not {', '.join(presets)}")
    sizes: dict[str, int] = {}
    for name, value in parse_assignments([text for text in texts if "=" in text], "--size").items():
        sizes[name] = _whole(value, f"--size {name}={value}")
    preset = presets[0] if presets else "default"
    resolved = kernel.resolve_sizes(preset, sizes)
    if sizes:
        _make_ready(kernel, resolved)
    return preset, sizes


def parse_places(texts: Sequence[str]) -> list[str | dict[str, int]]:
    """Return what each of several ``--size`` names: a preset, or sizes by name.

    Raises:
        MptuneError: a size is not a whole number, or given twice.
    """
    return [
        {
            name: _whole(value, f"--size {name}={value}")
            for name, value in parse_assignments(parse_names(text), "--size").items()
        }
        if "=" in text
        else text
        for text in texts
    ]


def _whole(text: str, given: str) -> int:
    """Return a whole number, also one such as 1e5."""
    try:
        return int(float(text)) if float(text).is_integer() else int(text)
    except (ValueError, OverflowError):
        wrong = "" if given.endswith(f"={text}") else f" for {text or 'nothing'}"
        raise MptuneError(f"{given}: expected a whole number{wrong}") from None


def parse_several_sizes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the values of each size: those of a list, or so many at equal ratios, both ends included.

    Raises:
        MptuneError: not a whole number, one below 1, or a range that has not so many.
    """
    found = {}
    for name, text in parse_assignments(texts, "--sizes").items():
        given = f"--sizes {name}={text}"
        parts = text.split(":" if ":" in text else ",")
        values = [_whole(part.strip(), given) for part in parts]
        if ":" in text:
            if len(values) != 3 or values[2] < 2:
                raise MptuneError(f"{given}: expected {name}=A,B,... or {name}=FROM:TO:COUNT with a count from 2 on")
            values = _geometric(given, *values)
        for value in values:
            if not 1 <= value < _TOO_LARGE:
                raise MptuneError(f"{given}: expected sizes from 1 to 2^62, not {value:.6g}")
        found[name] = tuple(values)
    return found


def ready_sizes(
    kernel: Tunable, preset: str, sizes: Mapping[str, int], several: Mapping[str, Sequence[int]]
) -> list[dict[str, int]]:
    """Return the sizes that are tuned for one after the other; none if there is but one.

    Raises:
        MptuneError: the kernel cannot have them.
    """
    if not several:
        return []
    from mptune.tuning.sizes import sizes_together

    found = sizes_together(kernel, several, preset, sizes)
    for each in found:
        _make_ready(kernel, kernel.resolve_sizes(preset, {**sizes, **each}))
    return found


def _make_ready(kernel: Tunable, sizes: Mapping[str, int]) -> None:
    """Run an adopted program at sizes that it was not run at yet."""
    from mptune.adopt.sizes import make_ready
    from mptune.cli.display import print_note

    make_ready(kernel, sizes, on_progress=print_note)


def _geometric(given: str, low: int, high: int, count: int) -> list[int]:
    if not 1 <= low < high < _TOO_LARGE or high - low < count - 1:
        raise MptuneError(f"{given}: expected a range from 1 on, upwards, with at least {count} whole numbers in it")
    values = [low]
    for left in range(count - 1, 1, -1):
        # Where they are close the next whole number is the next size.
        values.append(max(values[-1] + 1, round(values[-1] * (high / values[-1]) ** (1 / left))))
    return [*values, high]


def parse_threshold(texts: Sequence[str]) -> float | Mapping[str, float] | None:
    """Return the threshold: one number, or numbers by name, or None.

    A name is an output (``OUTPUT=X``), or a metric or an output and a metric (``METRIC:X``, ``OUTPUT.METRIC:X``); empty
    is that of a number given beside these, which limits all other outputs. A tolerance such as ``1e-6+1e-4*abs`` is a
    metric with the limit 1.

    Raises:
        MptuneError: not a positive number, or two for the same name.
    """
    if not texts:
        return None
    from mptune.accuracy.metrics import tolerance_name  # which imports NumPy

    found: dict[str, float] = {}
    for text in texts:
        *name, value = text.rsplit(":", 1) if ":" in text else text.split("=", 1)
        key = name[0].strip() if name else ""
        if name and not key:
            raise MptuneError(f"--max-error {text!r}: expected X, OUTPUT=X, METRIC:X or OUTPUT.METRIC:X")
        if key in found:
            what = f"{key} is given twice" if key else "a number is given twice"
            raise MptuneError(f"--max-error {text!r}: {what}; expected one for each output or metric")
        if (tolerance := tolerance_name(value)) is not None:
            found[f"{key}.{tolerance}" if key else tolerance] = 1.0
        else:
            found[key] = _positive(value, text)
    return found[""] if found.keys() == {""} else found or None


def _positive(number: str, text: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not 0.0 < value < math.inf:
        exact = " (1e-300 accepts exact answers only)" if value == 0 else ""
        raise MptuneError(f"--max-error {text!r}: expected a positive number such as 1e-4{exact}")
    return value


# -- shared options ------------------------------------------------------------------------------


class WithArguments(click.Command):
    """A command that takes, behind ``--``, the arguments of a program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what is behind ``--`` as the parameter ``arguments``."""
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        ctx.params["arguments"] = tuple(args[at + 1 :])
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return what the line of usage shows."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS]"]


kernel_name = click.argument("kernel", metavar="KERNEL|FILE.py")
kernels_or_program = click.argument("kernel", metavar="KERNEL|FILE.py|DIR|PROGRAM.cu...", nargs=-1, required=True)
kernel_of_run = option(
    "--kernel",
    "KERNEL|FILE.py|DIR",
    "The kernel of the run. Only a bundled one is found without it: the path in a run file is never opened.",
)
defines = option(
    "--define -D defines",
    "NAME=VALUE...",
    "A macro of the program's command line.",
    parse=lambda texts: {name: value for name, _, value in (text.partition("=") for text in texts)},
)
includes = option("--include -I includes", "DIR...", "A folder of the program's headers.")
_OF_PROGRAMS: Final = (
    option("--types", "N", "Make at most this many precision parameters of a program.", type=int, show_default="8"),
    defines,
    includes,
    option("--compile-commands", "FILE", "Take a program's files, macros and folders from this compilation database."),
    option("--kernel kernels", "NAME...", "Tune this kernel of a program; others keep their own types and blocks."),
    option(
        "--loop loops", "FUNCTION|FILE:LINE...", "Make a loop of C++ a kernel that OpenMP does not have in parallel."
    ),
    option(
        "--vary",
        "SHARE",
        "By what part of it each number of a program changes at most for fresh inputs; 0 for none.",
        type=float,
        show_default="0.1, or less where the answer needs it",
    ),
)


def of_programs(command: Command) -> Command:
    """Declare the options that say how a program is adopted."""
    for declare in reversed(_OF_PROGRAMS):
        command = declare(command)
    return command


def taken_of_programs(given: dict[str, Any]) -> dict[str, Any]:
    """Take from what a command was given how a program is adopted, by the fields of ``AdoptSettings``."""
    names = ("types", "defines", "includes", "compile_commands", "kernels", "loops", "vary")
    found = {name: given.pop(name) for name in names}
    return {name: value for name, value in found.items() if value is not None and value not in ((), {})}


as_json = option("--json", "", "Print one JSON document.")
backend = option("--backend", "NAME", "auto, host, cuda, hip or opencl.", default="auto")
size = option("--size", "PRESET|NAME=VALUE...", "A preset's name, or one size.")
several_sizes = option(
    "--sizes several_sizes",
    "NAME=A,B,...|NAME=A:B:COUNT...",
    "Tune for each of these sizes, or for so many at equal ratios, under one budget.",
    parse=parse_several_sizes,
)
max_error = option(
    "--max-error",
    "X|OUTPUT=X|METRIC:X...",
    "Largest error allowed: of all outputs, of one, or by a metric of its own such as 'NRMSE over rows max:1e-3', "
    "y.MaxAE:0.1 or 1e-6+1e-4*abs.",
    parse=parse_threshold,
)
other_max_error = option(
    "--max-error",
    "X|OUTPUT=X|METRIC:X...",
    "Use another error limit than the run's: of all outputs, of one, or by one of the run's metrics.",
    parse=parse_threshold,
)
objective = option(
    "--objective",
    "NAME",
    "What to optimise: time, memory, energy, edp, error, a metric, or a formula of metrics.",
    default="time",
)
objectives = option(
    "--objectives",
    "A,B",
    "Find the trade-offs between two or three objectives; the best configuration is the best in the first.",
    parse=parse_names,
)
maximise = option("--maximise", "", "Make the objective as large as possible instead of small.")
constraints = option(
    "--constraint constraints", "LIMIT...", "A limit on a metric, such as 'energy_j <= 1.5'; all must hold."
)
penalty = option(
    "--penalty", "NAME", "How to score configurations over the error limit: hard, linear or decay.", default="decay"
)
alpha = option("--alpha", "X", "Slope of the linear penalty.", default=1.0)
beta = option("--beta", "X", "Rate of the decay penalty.", default=1.0)
strategy = option(
    "--strategy",
    "NAME",
    "How to search; 'mptune list --strategies' describes the strategies. With several objectives, bayesian means "
    "bayesian-pareto.",
    default="bayesian",
)
strategy_option = option(
    "--strategy-option strategy_options",
    "NAME=VALUE...",
    "An option of the strategy.",
    parse=lambda texts: parse_assignments(texts, "--strategy-option"),
)
sources = option(
    "--from sources",
    "SOURCE...",
    "Start from what an earlier run or a recording found, on another device or at other sizes (single kernels).",
    parse=lambda texts: tuple(map(Path, texts)),
)
first = option(
    "--first",
    "FILE|NAME=VALUE,...",
    "Evaluate this configuration before any other: values of parameters, or the best of a run file or of JSON.",
    multiple=True,
    parse=lambda texts: tuple(map(parse_first, texts)),
)
seed_of_runs = option("--seed", "N", "Seed of the first run; the next ones take the next numbers.", default=0)
