"""Runs that take too long on a processor, made shorter: repeats first, then steps, then sizes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from mptune.adopt.capture import CheckFailedError
from mptune.adopt.live import with_sizes
from mptune.adopt.parsing import ProgramError
from mptune.adopt.reading import Program
from mptune.adopt.rewriting import blanked, closed
from mptune.adopt.running import TooLargeError, stopwatch
from mptune.adopt.sizes import BY_DEFAULT, option_of, read_into

Recorded = TypeVar("Recorded")
#: Numbers by the places of arguments, from 1, and by the names of macros.
Numbers = dict[int | str, int]
#: Seconds that a run may take before it is made shorter, and if it cannot be made shorter any more.
_SHORT_S: Final = 3.0
_LONG_S: Final = 30.0
#: Seconds after which no further numbers are tried.
_ATTEMPTS_S: Final = 60.0
#: Attempts with smaller numbers of a program that fails with its own.
_MOST_FAILURES: Final = 3
#: By what power of two numbers are divided at once, and those that stay.
_POWER: Final = 4
_LEAST_STEPS: Final = 4
_LEAST_SIZE: Final = 8
_NUMBER: Final = re.compile(r"(?:-{0,2}[A-Za-z][\w-]*=)?([1-9]\d{0,11})")
_REPEATS: Final = re.compile(
    r"(?i)\w*repeat\w*|(?:n|num|number_?of|max|total)?_?(?:reps?|repetitions?|runs?|trials?|pass(?:es)?|loops?|times|"
    r"warm_?ups?)(?:_?(?:count|num|n|max))?"
)
_STEPS: Final = re.compile(r"(?i)\w*(?:iter|step|cycle|epoch|generation|frame|sweep)\w*|it_?max|max_?it")
#: Names of problems, for which many programs have a small one.
_LARGE: Final = frozenset(("medium", "large", "big", "huge"))
#: Macros that may say how much a program does, and names of those that do not.
COUNT: Final = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(?([1-9]\d{1,8})\)?[ \t]*(?:$|//|/\*)", re.MULTILINE)
_OF_BLOCKS: Final = re.compile(r"BLOCK|THREAD|TILE|WARP|GROUP|SEED|MAX|MIN|VEC", re.IGNORECASE)
_SIZES: Final = re.compile(
    r"(?i)[nm]|n[xyz]|num|num_\w+|n[A-Z]\w*|(?:\w+_?)?(?:size|rows?|cols?|columns|width|height|dims?|length|count|points|"
    r"samples|cells|elements|particles|atoms|bodies|options|nodes)"
)
_LAUNCH: Final = r"<<<|\bhipLaunchKernelGGL\b"
#: An option that has a value: ``case 'n': runs = atoi(optarg)``, ``if (... "-n") ...) runs = ...``.
_OPTION: Final = re.compile(
    r"(?:case\s*'(\w)'\s*:|\"(--?[A-Za-z][\w-]*)\"[^;{}=]{0,60}?\)\s*\{?)\s*(?:\w+(?:\.|->))*(\w+)\s*=(?!=)"
    r"[^;]*?\b(?:argv|optarg)\b"
)
_FOR: Final = re.compile(r"\bfor\s*\(")


def recorded(
    record: Callable[[Sequence[str], Mapping[str, int], float], Recorded],
    program: Program,
    arguments: Sequence[str],
    macros: Mapping[str, int],
    time_limit_s: float,
) -> Recorded:
    """Record a run with these arguments, or with smaller numbers in them or in macros if that is too long.

    Args:
        record: records a run with arguments and other values of macros, within a time limit.
        program: the program.
        arguments: its arguments as its Makefile has them.
        macros: the values of macros that may be smaller.
        time_limit_s: how long a run may take if there is no number to make smaller.

    Raises:
        ProgramError: no run ended as it should.
    """
    options = {option: name for file in program.files for option, name in _options(file.text)}
    smaller = ["small" if word in _LARGE else word for word in arguments]
    smaller += _not_given(program, arguments, options)
    values: Numbers = {place: int(m[1]) for place, text in enumerate(smaller, 1) if (m := _NUMBER.fullmatch(text))}
    values.update(macros)
    if not values and smaller == [*arguments]:
        return record(arguments, {}, time_limit_s)

    def tried(numbers: Numbers, limit_s: float) -> Recorded:
        places = {key: value for key, value in numbers.items() if isinstance(key, int)}
        others = {key: value for key, value in numbers.items() if isinstance(key, str) and value != macros[key]}
        return record(with_sizes(smaller, places), others, min(limit_s, time_limit_s))

    try:
        return record(arguments, {}, min(_SHORT_S, time_limit_s))
    except CheckFailedError:
        raise
    except ProgramError as error:
        first, is_large = error, isinstance(error, TooLargeError)
    if smaller[: len(arguments)] != [*arguments]:
        try:
            return tried(values, _SHORT_S)
        except TooLargeError:
            is_large = True
        except ProgramError:
            smaller[: len(arguments)] = arguments
    kept: set[int | str] = set()
    failures = 0
    repeats, steps = _repeats_and_steps(program, smaller, macros, options)
    spent = stopwatch()
    while spent() < _ATTEMPTS_S:
        change = _smaller({key: value for key, value in values.items() if key not in kept}, repeats, steps)
        if not change:
            break
        try:
            return tried(values | change, _SHORT_S)
        except TooLargeError:
            values, is_large = values | change, True
        except ProgramError:
            failures += 1
            if not is_large and failures >= _MOST_FAILURES:
                raise first from None
            if is_large:
                kept |= change.keys()
            else:  # perhaps it has no memory for its own numbers
                values |= change
    if not is_large:
        raise first
    return tried(values, _LONG_S)


def _smaller(values: Numbers, repeats: Collection[int | str], steps: Collection[int | str]) -> Numbers:
    """Return smaller values for some numbers, those of arguments first; nothing if all are small."""
    for kind in (int, str):
        if more := [key for key in repeats if isinstance(key, kind) and values.get(key, 0) > 1]:
            return dict.fromkeys(more, 1)
    for kind in (int, str):
        if more := [key for key in steps if isinstance(key, kind) and values.get(key, 0) > _LEAST_STEPS]:
            return {key: max(values[key] >> _POWER, _LEAST_STEPS) for key in more}
    for kind in (int, str):
        sizes = {k: v for k, v in values.items() if isinstance(k, kind) and k not in repeats and k not in steps}
        largest = max(sizes.values(), default=0)
        alike = [key for key, value in sizes.items() if value == largest]
        power = max(_POWER // max(len(alike), 1), 1)
        while power and largest >> power < _LEAST_SIZE:
            power -= 1
        if power:
            return dict.fromkeys(alike, largest >> power)
    return {}


def macros_of(program: Program) -> dict[str, int]:
    """Return the macros in the text of a program that say how much it does, by their names."""
    found = [each for file in program.files for each in COUNT.findall(file.text)]
    numbers = {name: int(value) for name, value in found if not _OF_BLOCKS.search(name)}
    patterns = (_REPEATS, _STEPS, _SIZES)
    return {name: value for name, value in numbers.items() if any(each.fullmatch(name) for each in patterns)}


def _repeats_and_steps(
    program: Program, arguments: Sequence[str], macros: Collection[str], options: Mapping[str, str]
) -> tuple[set[int | str], set[int | str]]:
    """Return the places of arguments, and the macros, that say how often something is repeated, and how many steps."""
    texts = [file.text for file in program.files]
    functions = {
        f.name: f.body for unit in program.units for f in unit.functions if not f.is_device and f.name != "main"
    }
    launching = [name for name, body in functions.items() if any(site.extent in body for site in program.launches)]
    launch = re.compile("|".join([_LAUNCH, *(rf"\b{name}\s*(?:<[^<>()]*>)?\(" for name in launching)]))
    bounds = {name for text in texts for name in _bounds_of_launches(text, launch)}
    names: dict[int | str, set[str]] = {name: {name} for name in macros}
    for place, option in zip(range(1, len(arguments) + 1), ["", *arguments], strict=False):
        names[place] = {*option_of(arguments, place), *read_into(program, place), options.get(option, "")}
    repeats = {key for key, known in names.items() if any(map(_REPEATS.fullmatch, known))}
    steps = {key for key, known in names.items() if known & bounds or any(map(_STEPS.fullmatch, known))}
    return repeats, steps - repeats


def _bounds_of_launches(text: str, launch: re.Pattern[str]) -> Iterator[str]:
    """Yield the names in the conditions of loops around launches, or calls of functions that launch."""
    code = blanked(text)
    for found in _FOR.finditer(code):
        end = closed(code, found.end() - 1) or len(code)
        head = code[found.end() : end].split(";")
        start = end + len(code[end:]) - len(code[end:].lstrip())
        stop = closed(code, start) if code[start : start + 1] == "{" else code.find(";", start)
        if len(head) == 3 and launch.search(code, start, max(stop or len(code), start)):
            yield from re.findall(r"[A-Za-z_]\w*", head[1])


def _options(text: str) -> Iterator[tuple[str, str]]:
    """Yield the options that have a value, each with the variable that the value is put into."""
    for letter, word, name in _OPTION.findall(text):
        yield word or f"-{letter}", name


def _not_given(program: Program, arguments: Sequence[str], options: Mapping[str, str]) -> Iterator[str]:
    """Yield the next arguments, and options for repeats, that are not given, with the values that the program has."""
    found = (each for file in program.files for each in BY_DEFAULT.findall(file.text))
    defaults = {int(place): value for _, place, value in found}
    for place in itertools.takewhile(defaults.__contains__, itertools.count(len(arguments) + 1)):
        yield defaults[place]
    for option, name in options.items():
        if _REPEATS.fullmatch(name) and option not in arguments:
            values = (re.search(rf"\b{name}\s*=\s*([1-9]\d*)\s*[;,]", file.text) for file in program.files)
            for value in [found[1] for found in values if found][:1]:
                yield from (option, value)
