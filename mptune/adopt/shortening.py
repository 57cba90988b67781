"""Runs that take too long on a processor, made shorter: repeats first, then steps, then sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from mptune.adopt.capture import Capture, CheckFailedError
from mptune.adopt.live import with_sizes
from mptune.adopt.parsing import ProgramError
from mptune.adopt.reading import Program
from mptune.adopt.rewriting import blanked, closed
from mptune.adopt.running import TooLargeError
from mptune.adopt.sizes import option_of, read_into

#: Seconds that a run may take before it is made shorter, and if it cannot be made shorter any more.
_SHORT_S: Final = 3.0
_LONG_S: Final = 10.0
#: Attempts with smaller numbers of a program that fails with its own.
_MOST_FAILURES: Final = 3
#: By what power of two numbers are divided at once, and those that stay.
_POWER: Final = 4
_LEAST_STEPS: Final = 4
_LEAST_SIZE: Final = 32
_NUMBER: Final = re.compile(r"(?:-{0,2}[A-Za-z][\w-]*=)?([1-9]\d{0,11})")
_REPEATS: Final = re.compile(
    r"(?i)\w*repeat\w*|(?:n|num|number_?of|max|total)?_?(?:reps?|repetitions?|runs?|trials?|pass(?:es)?|loops?|times|"
    r"warm_?ups?)(?:_?(?:count|num|n))?"
)
_STEPS: Final = re.compile(r"(?i)\w*(?:iter|step|cycle|epoch|generation|frame|sweep)\w*|it_?max|max_?it")
#: Names of problems, for which many programs have a small one.
_LARGE: Final = frozenset(("medium", "large", "big", "huge"))
_LAUNCH: Final = re.compile(r"<<<|\bhipLaunchKernelGGL\b")
_FOR: Final = re.compile(r"\bfor\s*\(")


def recorded(
    record: Callable[[Sequence[str], float], Capture], program: Program, arguments: Sequence[str], time_limit_s: float
) -> Capture:
    """Record a run with these arguments, or with smaller numbers in them if that is too long.

    Args:
        record: records a run with arguments and a time limit.
        program: the program.
        arguments: its arguments as its Makefile has them.
        time_limit_s: how long a run may take whose arguments cannot be made smaller.

    Raises:
        ProgramError: no run ended as it should.
    """
    values = {place: int(m[1]) for place, text in enumerate(arguments, 1) if (m := _NUMBER.fullmatch(text))}
    small = ["small" if word in _LARGE else word for word in arguments]
    if not values and small == list(arguments):
        return record(arguments, time_limit_s)
    try:
        return record(arguments, min(_SHORT_S, time_limit_s))
    except CheckFailedError:
        raise
    except ProgramError as error:
        first, is_large = error, isinstance(error, TooLargeError)
    if small != list(arguments):
        try:
            return record(small, _SHORT_S)
        except TooLargeError:
            arguments = small
        except ProgramError:
            pass
    kept: set[int] = set()
    failures = 0
    repeats, steps = _repeats_and_steps(program, arguments)
    while change := _smaller({place: value for place, value in values.items() if place not in kept}, repeats, steps):
        try:
            return record(with_sizes(arguments, values | change), min(_SHORT_S, time_limit_s))
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
    return record(with_sizes(arguments, values), min(_LONG_S, time_limit_s))


def _smaller(values: Mapping[int, int], repeats: set[int], steps: set[int]) -> dict[int, int]:
    """Return smaller numbers for some arguments, by their places; nothing if all are small."""
    if more := {place: 1 for place in repeats & values.keys() if values[place] > 1}:
        return more
    if more := {place: values[place] for place in steps & values.keys() if values[place] > _LEAST_STEPS}:
        return {place: max(value >> _POWER, _LEAST_STEPS) for place, value in more.items()}
    sizes = {place: value for place, value in values.items() if place not in repeats | steps}
    largest = max(sizes.values(), default=0)
    alike = [place for place, value in sizes.items() if value == largest]
    power = max(_POWER // max(len(alike), 1), 1)
    while power and largest >> power < _LEAST_SIZE:
        power -= 1
    return dict.fromkeys(alike, largest >> power) if power else {}


def _repeats_and_steps(program: Program, arguments: Sequence[str]) -> tuple[set[int], set[int]]:
    """Return the places of arguments that say how often something is repeated, and how many steps there are."""
    texts = [file.text for file in program.files]
    bounds = {name for text in texts for name in _bounds_of_launches(text)}
    repeats, steps = set[int](), set[int]()
    for place in range(1, len(arguments) + 1):
        names = {*option_of(arguments, place), *read_into(program, place), *_read_by_option(texts, arguments, place)}
        if any(map(_REPEATS.fullmatch, names)):
            repeats.add(place)
        elif names & bounds or any(map(_STEPS.fullmatch, names)):
            steps.add(place)
    return repeats, steps


def _bounds_of_launches(text: str) -> Iterator[str]:
    """Yield the names in the conditions of loops around launches."""
    code = blanked(text)
    for found in _FOR.finditer(code):
        end = closed(code, found.end() - 1) or len(code)
        head = code[found.end() : end].split(";")
        start = end + len(code[end:]) - len(code[end:].lstrip())
        stop = closed(code, start) if code[start : start + 1] == "{" else code.find(";", start)
        if len(head) == 3 and _LAUNCH.search(code, start, max(stop or len(code), start)):
            yield from re.findall(r"[A-Za-z_]\w*", head[1])


def _read_by_option(texts: Sequence[str], arguments: Sequence[str], place: int) -> Iterator[str]:
    """Yield the variables that a program reads the value of an option into: ``case 'n': runs = atoi(optarg)``."""
    option = arguments[place - 2] if place > 1 else ""
    if re.fullmatch(r"--?[A-Za-z][\w-]*", option):
        spelled = rf"\"{option}\"" if len(option) > 2 else rf"(?:\"{option}\"|'{option[1:]}')"
        for text in texts:
            yield from re.findall(rf"{spelled}[^=]{{0,80}}?(\w+)\s*=(?!=)[^;]*(?:argv|optarg)", text)
