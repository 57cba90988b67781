"""Sizes that are arguments of a program: an argument is one if another value changes what happens on the device."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mptune.adopt.capture import Capture, Launch, capture, plain_name
from mptune.adopt.launched import INTEGERS, find_launched
from mptune.adopt.live import with_sizes
from mptune.adopt.parsing import ProgramError
from mptune.adopt.reading import Program
from mptune.adopt.running import Built, stopwatch

#: Seconds for all runs with other arguments, and for the program's own run if there are to be any.
_FINDING_S: Final = 10.0
_LONGEST_RUN_S: Final = 5.0
#: A size up to this one is increased by 1, a larger one is halved.
_SMALL: Final = 8
#: A whole number among the arguments, by itself or in one word with the option that it is of (``--nx=300``).
_WHOLE: Final = re.compile(r"(?:-{0,2}([A-Za-z][\w-]*)=)?([1-9]\d{0,8})")
_OPTION: Final = re.compile(r"--?([A-Za-z][\w-]*)")
#: A number that a program takes for an argument that it is not given.
BY_DEFAULT: Final = re.compile(
    r"(\w+)\s*=(?!=)[^;,?]*\bargc\b[^;,?]*\?[^;,:]*\bargv\s*\[\s*(\d+)\s*\][^;,:]*:\s*(\d+)\s*[;,]"
)
#: Names that definitions have for something else.
_TAKEN: Final = re.compile(r"(per_thread(_y)?|unroll|policy|shared_bytes|size|(block|grid|threads)(_[xyz])?|\w+_type)")


@dataclass(frozen=True, slots=True)
class FoundSizes:
    """The arguments of a program that are sizes.

    Attributes:
        arguments: by name, the place of an argument (the program's first is 1) and its value.
        refused: why other whole numbers among the arguments are none, in words.
        other_blocks: the kernels whose blocks change with a size, by name.
    """

    arguments: Mapping[str, tuple[int, int]]
    refused: tuple[str, ...] = ()
    other_blocks: frozenset[str] = frozenset()


def find_sizes(program: Program, built: Built, captured: Capture, scratch: Path, run_in: Path) -> FoundSizes:
    """Find out which arguments are sizes, by one run for each in which it has another value.

    Args:
        program: the program.
        built: the program, to be run.
        captured: its own run.
        scratch: a folder for the records of runs, made if need be.
        run_in: the folder in which the program runs.
    """
    spent = stopwatch()
    values = {place: int(m[2]) for place, text in enumerate(captured.arguments, 1) if (m := _WHOLE.fullmatch(text))}
    if values and captured.seconds > _LONGEST_RUN_S:
        why = f"the program runs for {captured.seconds:.1f} s; adopt a smaller problem"
        return FoundSizes({}, (f"no argument was tried as a size: {why}",))
    names = _names(program, captured, values)
    found: dict[str, tuple[int, int]] = {}
    refused: list[str] = []
    blocks = _blocks(captured)
    other_blocks: set[str] = set()
    for place, value in values.items():
        other = value // 2 if value > _SMALL else value + 1
        try:
            if spent() > _FINDING_S:
                raise ProgramError("there was no time to try")
            ran = capture(
                built,
                with_sizes(captured.arguments, {place: other}),
                scratch / str(place),
                run_in=run_in,
                time_limit_s=_FINDING_S,
                is_repeated=False,
                may_fail=True,
                own=captured.own,
            )
            if not launches_of(ran) <= launches_of(captured):
                raise ProgramError(f"with {other} instead, the program launches other kernels, or on other memory")
            if _operations(ran) == _operations(captured):
                raise ProgramError(f"with {other} instead, the program does the same on the device")
        except ProgramError as error:
            refused.append(f"argument {place} ({value}) is no size: {str(error).splitlines()[0]}")
            continue
        found[names[place]] = place, value
        other_blocks |= {name for name, seen in _blocks(ran).items() if not seen <= blocks.get(name, set())}
    return FoundSizes(found, tuple(refused), frozenset(other_blocks))


def launches_of(ran: Capture) -> set[tuple[str, Path, int, int]]:
    """Return the launches of a run by kernel, place in the source, and memory."""
    launches = [each for each in ran.different if isinstance(each, Launch)]
    return {(each.kernel, each.file, each.line, id) for each in launches for id in each.allocations or {-1}}


def _operations(ran: Capture) -> list[object]:
    """Return all operations of a run without the data of its copies."""
    return [each if isinstance(each, Launch) else (type(each), getattr(each, "bytes", 0)) for each in ran.operations()]


def _blocks(ran: Capture) -> dict[str, set[tuple[int, int, int]]]:
    found: dict[str, set[tuple[int, int, int]]] = {}
    for launch in ran.different:
        if isinstance(launch, Launch):
            found.setdefault(plain_name(launch.kernel), set()).add(launch.block)
    return found


def _names(program: Program, captured: Capture, values: Mapping[int, int]) -> dict[int, str]:
    """Return what the arguments are called: by their option, by the program, by a kernel, or by their number.

    A kernel's parameter names the argument of its value, if no other argument has that.
    """
    launched = find_launched(program, captured, lambda kernel: kernel.identifier)[0]
    passed: dict[str, set[int]] = {}
    for each in launched:
        for index, parameter in enumerate(each.parameters):
            if parameter.role == "scalar" and INTEGERS.get(parameter.element, "")[-2:] in ("32", "64"):
                passed.setdefault(parameter.name, set()).update(each.values(index))
    pointers = {p.name for kernel in program.kernels for p in kernel.parameters if p.is_pointer}
    found: dict[int, str] = {}
    for place, value in values.items():
        is_alone = list(values.values()).count(value) == 1
        of_kernels = [name for name, known in passed.items() if is_alone and known == {value}]
        for name in (*option_of(captured.arguments, place), *read_into(program, place), *of_kernels):
            is_another = name in passed and passed[name] != {value}
            is_free = name.isidentifier() and not keyword.iskeyword(name) and not _TAKEN.fullmatch(name)
            if is_free and not is_another and name not in pointers and name not in found.values():
                found[place] = name
                break
        else:
            found[place] = f"argument_{place}"
    return found


def option_of(arguments: Sequence[str], place: int) -> Iterator[str]:
    """Yield the word of the option that an argument is of: ``nx`` for ``--nx 300``, ``--nx=300`` and ``nx=300``."""
    own = _WHOLE.fullmatch(arguments[place - 1])
    before = _OPTION.fullmatch(arguments[place - 2]) if place > 1 else None
    for found in (own[1] if own is not None else None, before[1] if before is not None else None):
        if found:
            yield found.replace("-", "_")
            return


def read_into(program: Program, place: int) -> Iterator[str]:
    """Yield the variables that the text of a program reads an argument into."""
    for file in program.files:
        yield from re.findall(rf"(\w+)\s*=(?!=)[^;,]*?\bargv\s*\[\s*{place}\s*\]", file.text)
        yield from re.findall(rf"scanf\s*\(\s*argv\s*\[\s*{place}\s*\][^;]*?&\s*(\w+)", file.text)


def not_given(program: Program, arguments: Sequence[str]) -> Iterator[str]:
    """Yield what a program takes for arguments that it is not given: ``n = argc > 1 ? atoi(argv[1]) : 256``."""
    for file in program.files:
        for name, place, value in BY_DEFAULT.findall(file.text):
            if int(place) > len(arguments):
                yield (
                    f"{name} is {value}, since argument {place} is not given; with it behind -- ({value}, or another) "
                    "it can be a size that --size changes"
                )
