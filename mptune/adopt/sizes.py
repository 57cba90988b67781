"""Sizes that are arguments of a program: found by running it with others."""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mptune.adopt.capture import Capture, capture
from mptune.adopt.classes import TypeClasses
from mptune.adopt.finding import find
from mptune.adopt.live import with_sizes
from mptune.adopt.numbers import ELEMENTS, Numbers, UnexplainedError, decided
from mptune.adopt.parsing import ProgramError
from mptune.adopt.reading import Program
from mptune.adopt.running import Built, stopwatch

#: How long it may take to find the sizes of a program, and each run for that, which may take as often its own.
_FINDING_S: Final = 10.0
_LONGESTRUN_S: Final = 3.0
_TIMES: Final = 5.0
#: Smaller sizes are not halved.
_HALVED: Final = 8
#: A whole number among the arguments, by itself or in one word with the option that it is of (``--nx=300``).
_WHOLE: Final = re.compile(r"(?:-{0,2}([A-Za-z][\w-]*)=)?([1-9]\d{0,8})")
_OPTION: Final = re.compile(r"--?([A-Za-z][\w-]*)")
_BY_DEFAULT: Final = re.compile(
    r"(\w+)\s*=(?!=)[^;,?]*\bargc\b[^;,?]*\?[^;,:]*\bargv\s*\[\s*(\d+)\s*\][^;,:]*:\s*(\d+)\s*[;,]"
)
#: Names that definitions have for something else.
_TAKEN: Final = re.compile(r"(per_thread(_y)?|unroll|policy|shared_bytes|size|(block|grid|threads)(_[xyz])?|\w+_type)")


@dataclass(frozen=True, slots=True)
class FoundSizes:
    """The arguments of a program that are sizes.

    Attributes:
        positions: the arguments that are sizes, by name; the program's first is 1.
        numbers: how a definition writes its numbers; None if no argument is a size.
        refused: why other whole numbers among the arguments are none, in words.
        computed: the other whole numbers of kernels that change with an argument, by name.
    """

    positions: Mapping[str, int]
    numbers: Numbers | None
    refused: tuple[str, ...]
    computed: tuple[str, ...] = ()


def find_sizes(
    program: Program,
    classes: TypeClasses,
    parameter_of: Mapping[str, str],
    built: Built,
    captured: Capture,
    scratch: Path,
) -> FoundSizes:
    """Find out which arguments are sizes: each is changed in a run of its own, and what changes with it is looked at.

    Args:
        program: the program.
        classes: its type classes.
        parameter_of: the precision parameter of each class that has one, by the class's name.
        built: the program, to be run.
        captured: its own run.
        scratch: a folder for the records of runs, made if need be.

    Raises:
        ProgramError: what the program did in its own run cannot be adopted.
    """
    spent = stopwatch()
    own = {place: int(m[2]) for place, text in enumerate(captured.arguments, 1) if (m := _WHOLE.fullmatch(text))}
    if not own:
        return FoundSizes({}, None, ())
    if captured.seconds > _LONGESTRUN_S:
        why = f"its run took {captured.seconds:.1f} s, which is too long to run it with others; adopt a smaller problem"
        return FoundSizes({}, None, (f"whether its arguments are sizes was not looked at: {why}",))

    def drafted(ran: Capture, sizes: Mapping[str, int]) -> tuple[Numbers, str]:
        numbers = Numbers(sizes=sizes, is_draft=True)
        return numbers, find(program, classes, parameter_of, ran, numbers).layout

    base, layout = drafted(captured, {})
    names = _names(program, captured.arguments, own, base)
    base.sizes = {names[place]: value for place, value in own.items()}
    accepted: dict[str, Sequence[Numbers]] = {}
    refused: list[str] = []
    computed: set[str] = set()
    for place, value in own.items():
        name, why = names[place], "there was no time to find out"
        tried: list[Numbers] = []
        for other in _others(value):
            if spent() > _FINDING_S:
                break
            arguments = with_sizes(captured.arguments, {place: other})
            try:
                ran = capture(
                    built,
                    arguments,
                    scratch / f"{place}_{other}",
                    time_limit_s=max(_TIMES * captured.seconds, _FINDING_S),
                    is_repeated=False,
                )
                numbers, its_layout = drafted(ran, {**base.sizes, name: other})
                computed |= {n for n, known in (base.fixed or {}).items() if (numbers.fixed or {}).get(n) != known}
                if its_layout != layout:
                    raise ProgramError("the program launches something else, or on other buffers")
                tried.append(numbers)
                known = [base, *itertools.chain(*(runs for size, runs in accepted.items() if size != name))]
                chosen, texts = _explained(known, tried)
            except ProgramError as error:
                why = f"with {other} instead, {str(error).splitlines()[0]}"
                if isinstance(error, UnexplainedError):
                    accepted.pop(name, None)
                continue
            if _uses(texts, name) or ran.does_otherwise(captured):
                accepted[name] = chosen
            why = "it changes nothing of what the program does on the device"
            # A further run tells what divides an argument from what does so by chance.
            if len(tried) > 1 or all(base.seen[each].block > 1 for each in _divided(texts, name)):
                break
        if name not in accepted:
            refused.append(f"argument {place} ({value}) is no size: {why}")
    places = {name: place for place, name in names.items()}
    while accepted:
        runs = [base, *itertools.chain(*accepted.values())]
        kept = {name: base.sizes[name] for name in accepted}
        for run in runs:
            run.sizes = {name: run.sizes[name] for name in kept}
        try:
            texts = decided(runs)
        except UnexplainedError as error:  # it was explained by what is no size
            name = [name for name in accepted if name in error.sizes][-1]
            del accepted[name]
            refused.append(f"argument {places[name]} ({base.sizes[name]}) is no size: {error}")
            continue
        fixed = {
            name: value
            for name, value in (base.fixed or {}).items()
            if name not in kept and all((run.fixed or {}).get(name) == value for run in runs)
        }
        positions = {name: places[name] for name in accepted}
        return FoundSizes(
            positions, Numbers(texts, kept, fixed), tuple(refused), tuple(sorted(computed - accepted.keys()))
        )
    return FoundSizes({}, None, tuple(refused), tuple(sorted(computed)))


def _explained(known: Sequence[Numbers], tried: Sequence[Numbers]) -> tuple[Sequence[Numbers], dict[str, str]]:
    """Return the runs with another value of an argument whose numbers expressions give, all or the last, and these.

    Raises:
        ProgramError: no expressions do.
    """
    try:
        return tried, decided([*known, *tried])
    except UnexplainedError as error:
        alone = decided([*known, tried[-1]])
        # What did not change in it is no better explained by it.
        is_same = tried[-1].seen[error.name].value == known[0].seen[error.name].value
        if is_same or any(each.startswith(ELEMENTS) for size in error.sizes for each in _divided(alone, size)):
            raise
        return tried[-1:], alone


def _divided(texts: Mapping[str, str], name: str) -> list[str]:
    """Return the numbers that a division of a size gives, which fits two runs by chance at times."""
    return [each for each, text in texts.items() if "//" in text and _uses({each: text}, name)]


def _others(value: int) -> Iterator[int]:
    """Yield what a size may be instead, what tells most first: that half is not a multiple shows what is rounded up."""
    if value >= _HALVED:
        yield value // 2 + 1
        yield value // 2
    yield value + 1
    yield 2 * value


def _uses(texts: Mapping[str, str], name: str) -> bool:
    return any(name in re.findall(r"[A-Za-z_]\w*", text) for text in texts.values())


def _names(program: Program, arguments: Sequence[str], own: Mapping[int, int], base: Numbers) -> dict[int, str]:
    """Return what the arguments are called: by their option, by the program, by a kernel, or by their number.

    A kernel says what the argument is called that has the value it is passed, if no other one has.
    """
    passed = base.passed
    pointers = {p.name for kernel in program.kernels for p in kernel.parameters if p.is_pointer}
    found: dict[int, str] = {}
    for place, value in own.items():
        is_alone = list(own.values()).count(value) == 1
        of_kernels = [name for name, values in passed.items() if is_alone and set(values) == {value}]
        for name in (*_option(arguments, place), *_read_into(program, place), *of_kernels):
            is_another = name in passed and set(passed[name]) != {value}
            is_free = name.isidentifier() and not keyword.iskeyword(name) and not _TAKEN.fullmatch(name)
            if is_free and not is_another and name not in pointers and name not in found.values():
                found[place] = name
                break
        else:
            found[place] = f"argument_{place}"
    return found


def _option(arguments: Sequence[str], place: int) -> Iterator[str]:
    """Yield the word of the option that an argument is of: ``nx`` for ``--nx 300``, ``--nx=300`` and ``nx=300``."""
    own = _WHOLE.fullmatch(arguments[place - 1])
    before = _OPTION.fullmatch(arguments[place - 2]) if place > 1 else None
    for found in (own[1] if own is not None else None, before[1] if before is not None else None):
        if found:
            yield found.replace("-", "_")
            return


def _read_into(program: Program, place: int) -> Iterator[str]:
    """Yield the variables that the text of a program reads an argument into."""
    for file in program.files:
        yield from re.findall(rf"(\w+)\s*=(?!=)[^;,]*?\bargv\s*\[\s*{place}\s*\]", file.text)
        yield from re.findall(rf"scanf\s*\(\s*argv\s*\[\s*{place}\s*\][^;]*?&\s*(\w+)", file.text)


def not_given(program: Program, arguments: Sequence[str]) -> Iterator[str]:
    """Yield what a program takes for arguments that it is not given: ``n = argc > 1 ? atoi(argv[1]) : 256``."""
    for file in program.files:
        for name, place, value in _BY_DEFAULT.findall(file.text):
            if int(place) > len(arguments):
                yield (
                    f"{name} is {value}, since argument {place} is not given; with it behind -- ({value}, or another) "
                    "it can be a size that --size changes"
                )
