"""What errors of an adopted program leave out, since its steps do what the host did in one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from mptune.adopt.capture import Capture, Copy, Launch, Place
from mptune.adopt.findings import Findings
from mptune.adopt.sequence import Call

#: Numbers with so few digits are written in the program.
_FEW_DIGITS: Final = 6
#: As many in a row as show whether they go up evenly, as times do.
_SEVERAL: Final = 3


def caveats(capture: Capture, found: Findings) -> Iterator[str]:
    """Say what the errors of runs leave out; each text has the word, by which runs know what it is about."""
    if found.zeros:
        yield (
            f"errors are 0 in all types of {listed(found.zeros)}, which the program leaves all zero: give it arguments "
            "or data with which it computes something else"
        )
    for place in capture.taken_back:
        if name := found.left_out.get(place.allocation):
            yield (
                f"errors leave out the variable {name}, which the program copies to the host: only emit --into "
                "compares it"
            )
    for name in found.progress:
        yield (
            f"errors leave out {name}, which the program copies to the host again and again, at last nearly zero: that "
            "says how far a loop has come, and is no answer"
        )
    names = {buffer.allocation: buffer.name for buffer in found.buffers if buffer.field_of is None}
    copies = _earlier_copies(capture)
    judged = {number: name for number, name in names.items() if name not in found.progress}
    earlier = [f"{name} {copies[number]}" for number, name in judged.items() if number in copies]
    if earlier:
        yield (
            "errors are those of what is copied to the host last: what was there in earlier copies "
            f"({listed(earlier)}) only emit --into compares"
        )

    def numbers(index: int) -> Iterator[tuple[str, float]]:
        kernel, launch = found.launch_at[index]
        for parameter, value in zip(found.kernels[kernel].launched.parameters, launch.arguments, strict=True):
            if isinstance(value, float):
                yield f"{parameter.name} of {kernel}", value

    given = after_results(capture, numbers, lambda number: names.get(number, capture.allocations[number].name))
    if (given := tuple(filter(None, given))) and not found.is_live:
        yield (
            f"errors may be far larger: the host gives the device {listed(given)} after it could see results, and "
            "where it computes that from them, each run here has it as in the program's own types; only emit --into "
            "compares whole programs"
        )
    same = same_in_all_draws(
        found.calls,
        {name: each.launched.roles for name, each in found.kernels.items()},
        [*found.varied, *(b.name for b in found.buffers if found.draws.of == "data" and b.has_numbers)],
        has_varied_numbers=found.draws.of == "numbers",
    )
    if same and found.draws.of != "nothing" and not found.is_live:
        yield f"errors on other data are not known of {listed(same)}: it is the same in every draw"


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _earlier_copies(capture: Capture) -> dict[int, int]:
    """Return how often memory was copied to the host that held something else at the end, by allocation."""
    found: dict[int, int] = {}
    for place, copies in capture.taken_back.items():
        others = sum(copy.digest != copies[-1].digest for copy in copies)
        if others:
            found[place.allocation] = found.get(place.allocation, 0) + others
    return found


def after_results(
    capture: Capture, numbers: Callable[[int], Iterable[tuple[str, float]]], name_of: Callable[[int], str]
) -> tuple[str, ...]:
    """Return what the host gave the device for the first time after it could have seen results, which may go by them.

    Args:
        capture: the run.
        numbers: gives the floating-point numbers of a launch by its index in ``capture.different``, with their names.
        name_of: gives the name of an allocation.
    """
    is_shared = {id: each.kind not in ("device", "symbol") for id, each in capture.allocations.items()}
    found: dict[str, None] = {}
    series: dict[str, list[float]] = {}
    known: set[float] = set()
    contents: set[int] = set()
    used: set[int] = set()
    has_looked = may_have_looked = False
    for index in capture.sequence.tolist():
        match capture.different[index]:
            case Copy(kind="to_host"):
                has_looked = True
            case Copy(kind="to_device", target=Place(allocation), contents=key):
                is_late = has_looked or (is_shared[allocation] and allocation in used)
                if is_late and key not in contents and (key is None or capture.contents(key).any()):
                    found[name_of(allocation)] = None
                contents |= {key} if key is not None else set()
            case Launch() as launch:
                for name, value in numbers(index):
                    series.setdefault(name, []).append(value)
                    if not (has_looked or may_have_looked):
                        known.add(value)
                used |= (given := set(_given(launch)))
                may_have_looked |= any(is_shared[allocation] for allocation in given)
    least = 1 if has_looked else _SEVERAL
    for name, values in series.items():
        new = {value for value in values if value not in known and not _is_short(value)}
        if new and len(values) >= least and not _is_even(values):
            found[name] = None
    return tuple(found)


def _given(launch: Launch) -> Iterator[int]:
    for argument in launch.arguments:
        if isinstance(argument, Place):
            yield argument.allocation


def _is_short(value: float) -> bool:
    digits = min((repr(value), str(np.float32(value)) if np.float32(value) == value else repr(value)), key=len)
    return sum(each.isdigit() for each in digits.partition("e")[0].strip("-0.")) <= _FEW_DIGITS


def _is_even(values: Sequence[float]) -> bool:
    """Whether numbers are the same, or go up evenly."""
    steps = np.diff(values)
    return len(values) >= _SEVERAL and bool(np.ptp(steps) <= 1e-9 * np.max(np.abs(values)))


def same_in_all_draws(
    calls: Sequence[Call], roles: Mapping[str, Mapping[str, str]], varied: Iterable[str], *, has_varied_numbers: bool
) -> tuple[str, ...]:
    """Return the kernels that work on the same data whichever input is drawn.

    Args:
        calls: all that is done, in order.
        roles: of the arguments of each kernel: "in", "out", "inout" or "scalar".
        varied: the buffers, and tables of what is passed, that have other data in each draw at first.
        has_varied_numbers: whether the floating-point numbers that kernels are passed differ, too.
    """
    other, varied = set[str](), set(varied)
    for call in calls:
        role_of = roles.get(call.function)
        if role_of is None:  # copies on the device have their source first
            buffers = [buffer for _, buffer in call.buffers]
            varied |= set(buffers if call.function == "vary" or buffers[0] in varied else ())
            continue
        reads = {buffer for name, buffer in call.buffers if role_of.get(name) != "out"}
        reads |= {table for _, table in call.tables}
        has_other_number = has_varied_numbers and any(isinstance(value, float) for _, value in call.values)
        if has_other_number or reads & varied:
            other.add(call.function)
            varied |= {buffer for name, buffer in call.buffers if role_of.get(name) != "in"}
    return tuple(name for name in roles if name not in other)
