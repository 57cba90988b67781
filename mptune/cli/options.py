"""Shared options of commands, and parsers of their values.

The help repeats names that other modules define (strategies, metrics, kinds of plots, ...), so it imports none of them;
a test compares the names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from mptune.cli.display import DOCUMENT, reserved_stdout
from mptune.errors import MptuneError

if TYPE_CHECKING:
    from mptune.kernel import Tunable

Command = TypeVar("Command", bound=Callable[..., Any])

FILE: Final = click.Path(path_type=Path)


# -- values --------------------------------------------------------------------------------------


def parse_names(text: str | None) -> tuple[str, ...]:
    """Split a list at commas outside parentheses."""
    return tuple(part.strip() for part in re.split(r",(?![^()]*\))", text or "") if part.strip())


def parse_assignments(texts: Sequence[str], option: str) -> dict[str, str]:
    """Split ``NAME=VALUE`` options; raise MptuneError for a duplicate name."""
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
    """Split ``-p NAME=VALUE,VALUE`` options."""
    return {name: parse_names(text) for name, text in parse_assignments(texts, "-p").items()}


def parse_macros(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the values of each macro, in ascending order."""
    found = {}
    for name, text in parse_assignments(texts, "--macro").items():
        given = f"--macro {name}={text}"
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise MptuneError(f"{given}: expected the name of a macro, not {name!r}")
        found[name] = tuple(sorted({_parse_whole(value, given) for value in parse_names(text)}))
        if len(found[name]) < 2:
            raise MptuneError(f"{given}: expected two values or more; -D {name}=VALUE sets one")
    return found


def parse_first(text: str) -> dict[str, str] | Path:
    """Return the values of a configuration by name, or the path of its file."""
    return parse_assignments(parse_names(text), "--first") if "=" in text and not Path(text).exists() else Path(text)


def _parse_whole(text: str, given: str) -> int:
    """Return a whole number such as 100 or 1e5."""
    try:
        return int(float(text)) if float(text).is_integer() else int(text)
    except (ValueError, OverflowError):
        wrong = "" if given.endswith(f"={text}") else f" for {text or 'nothing'}"
        raise MptuneError(f"{given}: expected a whole number{wrong}") from None


def _parse_place(texts: Sequence[str]) -> dict[str, int]:
    return {n: _parse_whole(v, f"--size {n}={v}") for n, v in parse_assignments(texts, "--size").items()}


def parse_places(texts: Sequence[str]) -> list[str | dict[str, int]]:
    """Return a preset or sizes by name for each ``--size``."""
    return [_parse_place(parse_names(text)) if "=" in text else text for text in texts]


def parse_sizes(kernel: Tunable, texts: Sequence[str]) -> tuple[str, dict[str, int]]:
    """Return the preset and the single sizes."""
    presets = [text for text in texts if "=" not in text] or ["default"]
    sizes = _parse_place([text for text in texts if "=" in text])
    for preset in presets:
        if preset.isdigit() and kernel.sizes and preset not in kernel.sizes:
            names = ", ".join(kernel.sizes["default"])
            raise MptuneError(f"--size {preset}: expected NAME={preset}" + (f" with one of {names}" if names else ""))
        kernel.resolve_sizes(preset, sizes)
    if len(presets) > 1:
        raise MptuneError(f"--size: expected one preset, not {', '.join(presets)}")
    return presets[0], sizes


def parse_several_sizes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the values of each size: a list, or COUNT values at equal ratios including both ends."""
    found = {}
    for name, text in parse_assignments(texts, "--sizes").items():
        given = f"--sizes {name}={text}"
        values = [_parse_whole(part.strip(), given) for part in re.split("[:,]", text)]
        for value in values:
            if not 1 <= value < 2**62:
                raise MptuneError(f"{given}: expected sizes from 1 to 2^62, not {value:.6g}")
        if ":" in text:
            if len(values) != 3 or values[2] < 2:
                raise MptuneError(f"{given}: expected {name}=A,B,... or {name}=FROM:TO:COUNT with a count of 2 or more")
            low, high, count = values
            if high - low < count - 1:
                raise MptuneError(f"{given}: expected an ascending range of at least {count} whole numbers")
            values = [low]
            for left in range(count - 1, 1, -1):
                # Ratios below 1.5 may round to the same whole number.
                values.append(max(values[-1] + 1, round(values[-1] * (high / values[-1]) ** (1 / left))))
            values.append(high)
        found[name] = tuple(values)
    return found


def parse_threshold(texts: Sequence[str]) -> float | Mapping[str, float] | None:
    """Return the threshold: one number, numbers by name, or None.

    Names are outputs (``OUTPUT=X``), metrics (``METRIC:X``) or both (``OUTPUT.METRIC:X``). A number without a name
    limits all other outputs and has the empty name. A tolerance such as ``1e-6+1e-4*abs`` is a metric with the limit 1.
    """
    if not texts:
        return None
    from mptune.accuracy.metrics import tolerance_metric

    found: dict[str, float] = {}
    for text in texts:
        *name, value = text.rsplit(":", 1) if ":" in text else text.split("=", 1)
        key = name[0].strip() if name else ""
        if name and not key:
            raise MptuneError(f"--max-error {text!r}: expected X, OUTPUT=X, METRIC:X or OUTPUT.METRIC:X")
        if key in found:
            what = f"{key} is given twice" if key else "a number is given twice"
            raise MptuneError(f"--max-error {text!r}: {what}; expected one for each output or metric")
        if (tolerance := tolerance_metric(value)) is not None:
            found[f"{key}.{tolerance}" if key else tolerance.name] = 1.0
            continue
        try:
            found[key] = float(value)
        except ValueError:
            found[key] = math.nan
        if not 0.0 < found[key] < math.inf:
            exact = " (1e-300: exact results only)" if found[key] == 0 else ""
            raise MptuneError(f"--max-error {text!r}: expected a positive number such as 1e-4{exact}")
    return found[""] if found.keys() == {""} else found or None


def parse_vary(texts: Sequence[str]) -> dict[str, Any]:
    """Return the share of a number and the names to change for fresh inputs, by fields of AdoptSettings."""
    shares, names = [], []
    for text in texts:
        try:
            shares.append(float(text))
        except ValueError:
            names.append(text)
    if len(shares) > 1:
        raise MptuneError(f"--vary: expected one share, not {', '.join(f'{share:g}' for share in shares)}")
    return {"vary": shares[0] if shares else None, "varied": tuple(names)}


# -- options -------------------------------------------------------------------------------------

_LIMITS: Final = "X|OUTPUT=X|METRIC:X"
_LIST: Final = "A,B"
#: Types and parsers of values by their name in the help.
_TYPES: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("FILE", "FILE.html", "DIR", "RUN.db", "PROGRAM.cu|DIR"), FILE),
    **dict.fromkeys(("X", "SECONDS"), float),
    "N": int,
}
_PARSERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    _LIST: parse_names,
    "NAME=VALUE,VALUE": parse_values,
    "NAME[=VALUE]": lambda texts: {name: value for name, _, value in (text.partition("=") for text in texts)},
    "FILE|NAME=VALUE,": lambda texts: tuple(map(parse_first, texts)),
    '"FLAGS|..."': lambda text: tuple(part.strip() for part in text.split("|")) if text else (),
    "NAME=A,B,...|NAME=A:B:COUNT": parse_several_sizes,
    _LIMITS: parse_threshold,
    "SOURCE": lambda texts: tuple(map(Path, texts)),
}


def option(
    names: str, metavar: str, text: str, *, parse: Callable[[Any], Any] | None = None, **settings: Any
) -> Callable[[Command], Command]:
    """Declare an option as :func:`click.option` does, with names separated by spaces.

    Args:
        names: names of the option.
        metavar: name of the value in the help, which decides its type; empty for a switch, with dots if repeatable.
        text: the help.
        parse: converts the given value to the command's argument.
        settings: further arguments of :func:`click.option`.
    """
    what = metavar.removesuffix("...")
    settings.setdefault("type", _TYPES.get(what))
    if what != metavar:
        settings["multiple"] = True
        text += " May be repeated."
    if what == "NAME=VALUE":
        parse = parse or (lambda texts: parse_assignments(texts, names.split()[0]))
    if parse := parse or _PARSERS.get(what):
        settings["callback"] = lambda _context, _option, given: parse(given)
    return click.option(*names.split(), metavar=what or None, is_flag=not what or None, help=text, **settings)


def file_argument(name: str, metavar: str) -> Callable[[Command], Command]:
    """Declare the path of an input file, or of one or more if ``metavar`` ends in dots."""
    return click.argument(name, metavar=metavar, type=FILE, nargs=-1 if metavar.endswith("...") else 1, required=True)


def _reserve_stdout(context: click.Context, _option: object, json: bool) -> bool:
    if json:
        context.meta[DOCUMENT] = context.with_resource(reserved_stdout())
    return json


def _declared(*declarations: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def declare(command: Command) -> Command:
        for each in reversed(declarations):
            command = each(command)
        return command

    return declare


class WithArguments(click.Command):
    """A command with the arguments of a program after ``--``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments before ``--``; the others become the parameter ``arguments``, None without ``--``."""
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        ctx.params["arguments"] = tuple(args[at + 1 :]) if at < len(args) else None
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the parts of the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS]"]


def restricted(what: str) -> Callable[[Command], Command]:
    """Declare the option that restricts parameters to some values."""
    return option(
        "--parameter -p restrict", "NAME=VALUE,VALUE...", f"{what} only where a parameter has one of these values."
    )


def pop_adoption(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the given options of adoption from a command's arguments, and return them by fields of AdoptSettings."""
    names = ("types", "defines", "macros", "includes", "compile_commands", "kernels", "vary")
    found = {name: given.pop(name) for name in names}
    found |= parse_vary(found.pop("vary"))
    return {name: value for name, value in found.items() if value is not None and value not in ((), {})}


kernel_of_run = option("--kernel", "KERNEL|FILE.py|DIR", "The run's kernel, needed unless it is a bundled one.")
as_json = click.option("--json", is_flag=True, callback=_reserve_stdout, help="Print one JSON document.")
backend = option("--backend", "NAME", "auto, host, cuda, hip or opencl.", default="auto")
size = option("--size", "PRESET|NAME=VALUE...", "A preset's name, or one size.")
configuration = option(
    "--configuration", "TRIAL", "A trial's number, key or NAME=VALUE,...", default="", show_default="the best"
)
other_max_error = option("--max-error", f"{_LIMITS}...", "Use this error limit instead of the run's.")
sources = option("--from sources", "SOURCE...", "Start from an earlier run or a recording.")
seed_of_runs = option("--seed", "N", "Seed of the first run; later runs have consecutive seeds.", default=0)
defines = option("--define -D defines", "NAME[=VALUE]...", "A macro of the program's command line.")
includes = option("--include -I includes", "DIR...", "A folder of the program's headers.")
#: Options of adoption.
adoption = _declared(
    option("--types", "N", "Make at most this many precision parameters of a program.", show_default="8"),
    defines,
    option(
        "--macro macros",
        "NAME=VALUE,VALUE...",
        "Tune the value of this macro of the program, such as BLOCK=64,128,256.",
        parse=parse_macros,
    ),
    includes,
    option("--compile-commands", "FILE", "Take a program's files, macros and folders from this compilation database."),
    option("--kernel kernels", "NAME...", "Tune this kernel of a program; other kernels keep their types and blocks."),
    option(
        "--vary",
        "SHARE|NAME...",
        "Largest relative change of a program's numbers for fresh inputs, or a buffer or variable to change.",
        show_default="0.1, all that do not break the program",
    ),
)
#: Options of objectives and error limits.
goals = _declared(
    option(
        "--max-error",
        f"{_LIMITS}...",
        "Largest error allowed: of all outputs, of one output, or by another metric such as "
        "'NRMSE over rows max:1e-3', y.MaxAE:0.1 or 1e-6+1e-4*abs.",
    ),
    option("--objective", "NAME", "time, memory, energy, edp, error, a metric, or a formula of them.", default="time"),
    option("--objectives", _LIST, "Find the trade-offs between two or three objectives; the first decides the best."),
    option("--maximise", "", "Make the objective as large as possible instead of small."),
    option("--constraint constraints", "LIMIT...", "A limit on a metric, such as 'energy_j <= 1.5'; all must hold."),
    option("--penalty", "NAME", "Score of configurations over the limit: hard, linear or decay.", default="decay"),
    option("--alpha", "X", "Slope of the linear penalty.", default=1.0),
    option("--beta", "X", "Rate of the decay penalty.", default=1.0),
)
search = _declared(
    option("--strategy", "NAME", "Search strategy; 'mptune list --strategies' describes all.", default="bayesian"),
    option("--strategy-option strategy_options", "NAME=VALUE...", "An option of the strategy."),
)
