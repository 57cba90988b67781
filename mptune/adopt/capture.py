"""What a program does on the device, recorded while it runs: its memory, the sequence of operations, and its answer.

A program is run twice. The first run shows which operations there are, and the second one whether the program does the
same again. Data are kept of what the program copies to the host last, and of small copies before.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import struct
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from mptune.adopt.parsing import ProgramError
from mptune.adopt.running import Built, Ran, run

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NUMBER: Final = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_NOT_FINITE: Final = re.compile(r"(?i)(?<![\w.])[-+]?(?:nan|inf(?:inity)?)(?:\([^)]*\))?(?![\w.])")
#: Something between spaces and signs, such as a word or a number in any notation.
_TOKEN: Final = re.compile(r"\w[\w.+-]*")
#: Lines on how far results are off, on how often something was done until they were not, and on where something is: a
#: program with other types may print anything there.
_NO_ANSWER: Final = re.compile(r"(?i)error|\berr\b|residu|\bdiff|deviat|toleranc|\biter|sweep|\bindex")
#: Printed numbers that are as small are what rounding leaves, as of a comparison with a reference.
_ROUNDING: Final = 1e-11
#: Numbers are not alike that differ by more than such a part of the larger one; of whole numbers, which may be counts.
_FAR: Final = 0.5
_FAR_OF_WHOLE: Final = 0.9
#: Of what a run printed, in messages.
_LAST_LINES: Final = 3
#: Characters of each of two lines that differ, in messages, and of those before the first difference.
_SHOWN_APART: Final = 40
_BEFORE_DIFFERENCE: Final = 20
#: In place of the number of a place on the host: the copy is for a kernel that counts as part of the host, or for a
#: call of a library that only answers the host.
FOR_KERNEL: Final = -2
#: The same: for a call of a library that changes memory, which is what counts.
FOR_LIBRARY: Final = -4
#: The same: the initial value of a variable, told when the host first uses it.
INITIAL: Final = -3
#: How many times as long as the first run a later one may take, which records data.
_LONGER: Final = 4
#: Bytes of earlier copies to the host that are kept, of each and of all together.
_SMALL_BYTES: Final = 1 << 16
_EARLIER_BYTES: Final = 1 << 26


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere in the device's memory.

    Attributes:
        allocation: its id.
        offset: from its beginning, in bytes.
    """

    allocation: int
    offset: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory of the device, or a variable in it. No two allocations of a run have one id.

    Attributes:
        id: a number.
        bytes: how much.
        kind: "device", "managed" (shared with the host), "mapped" (the host's, that kernels use), or "symbol" (a
            ``__device__`` or ``__constant__`` variable).
        name: of a symbol, as the program writes it.
    """

    id: int
    bytes: int
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Release:
    """An allocation is given back."""

    id: int


@dataclass(frozen=True, slots=True)
class Fill:
    """Bytes set to one value (``cudaMemset``)."""

    target: Place
    byte: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy to, from or on the device. What the host writes to memory it shares is a copy to the device, too.

    Attributes:
        kind: "to_device", "to_host" or "on_device".
        target: None on the host.
        source: None on the host.
        bytes: how many.
        contents: the key of what came to the host; None if it was not kept.
        digest: of what came to the host, the same for the same bytes; "" otherwise.
        host: the number of the place on the host that it came to, in the order of their first copies; -1 for memory
            that the host shares, :data:`FOR_KERNEL`, :data:`FOR_LIBRARY` or :data:`INITIAL`.
        is_zero: whether all bytes of what came to the device were 0.
        library: the call of a library that it is for or from ("cublasDgemm"); "" for none.
        element: the type of numbers that the library takes the memory for; "" if that is not known.
    """

    kind: str
    target: Place | None
    source: Place | None
    bytes: int
    contents: int | None
    digest: str
    host: int = -1
    is_zero: bool = False
    library: str = ""
    element: str = ""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number that a kernel is given.

    Attributes:
        type: "f8", "i4", "u8", "b1", ...: floating-point, signed, unsigned or bool, and its bytes.
        data: its bytes.
    """

    type: str
    data: bytes

    @property
    def value(self) -> float | int | bool:
        """The number; NaN for a floating-point type of another size than 4 or 8."""
        if self.type[0] == "f":
            return (
                float(struct.unpack({4: "<f", 8: "<d"}[len(self.data)], self.data)[0])
                if len(self.data) in (4, 8)
                else float("nan")
            )
        found = int.from_bytes(self.data, "little", signed=self.type[0] == "i")
        return bool(found) if self.type[0] == "b" else found


@dataclass(frozen=True, slots=True)
class Structure:
    """A struct that a kernel is given by value.

    Attributes:
        data: its bytes; those of pointers are zeros.
        pointers: what these point at, by their offset in bytes; "unknown" for memory of the host.
    """

    data: bytes
    pointers: Mapping[int, Place | str]


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch of a kernel.

    Attributes:
        kernel: its name at the launch with the template arguments written there, resolved (``find_wall<19>``).
        types: of its arguments, as the compiler spells them (``const double*``).
        file: the source the launch is in.
        line: and the line.
        grid: blocks along x, y and z.
        block: threads of a block along x, y and z.
        shared_bytes: of dynamic shared memory.
        arguments: in order; None for a null pointer, "unknown" for one to nowhere on the device.
    """

    kernel: str
    types: tuple[str, ...]
    file: Path
    line: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[Scalar | Structure | Place | str | None, ...]

    @property
    def allocations(self) -> frozenset[int]:
        """The memory that it is given."""
        places = itertools.chain.from_iterable(
            each.pointers.values() if isinstance(each, Structure) else (each,) for each in self.arguments
        )
        return frozenset(place.allocation for place in places if isinstance(place, Place))


Operation = Allocation | Release | Fill | Copy | Launch


@dataclass(frozen=True)
class Capture:
    """The record of a run.

    Attributes:
        arguments: of the program's command line.
        different: the operations that there are, each once.
        sequence: the run: indices into ``different``.
        output: what the program printed.
        check: what it says of its results: "passed", "failed", or "" if nothing.
        files: what it wrote, by the names it gave them: keys of the contents.
        seconds: how long it ran without data being kept.
        differences: how the second run differed from the first, in words; empty if it did not.
        left_out: what had no room, in words; empty if nothing.
        device: what it ran on, by its name.
        own: the kernels that counted as part of the host and were launched, by name.
        copies_nothing: whether the program copies nothing to the host: all that is left in memory was copied then.
    """

    arguments: tuple[str, ...]
    different: tuple[Operation, ...]
    sequence: NDArray[np.uint32]
    output: str
    check: str
    files: Mapping[str, int]
    seconds: float
    differences: tuple[str, ...]
    left_out: tuple[str, ...]
    device: str
    own: tuple[str, ...]
    copies_nothing: bool
    _contents: Mapping[int, NDArray[np.uint8]] = field(repr=False, compare=False)

    def operations(self) -> Iterator[Operation]:
        """Give the run's operations, in order."""
        return (self.different[i] for i in self.sequence)

    @cached_property
    def allocations(self) -> Mapping[int, Allocation]:
        """Every allocation of the run, by id."""
        return {found.id: found for found in self.different if isinstance(found, Allocation)}

    def launches(self, kernel: str | None = None) -> Iterator[Launch]:
        """Give the launches in order, of one kernel or of all."""
        for found in self.operations():
            if isinstance(found, Launch) and kernel in (None, found.kernel):
                yield found

    @cached_property
    def of_libraries(self) -> Mapping[int, Copy]:
        """For each allocation that libraries take a copy: of a result, if there is one, and of a known type."""
        copies = [each for each in self.different if isinstance(each, Copy) and each.library]
        copies.sort(key=lambda each: (bool(each.element), each.target is not None))
        places = ((place, each) for each in copies for place in (each.source, each.target) if place is not None)
        return {place.allocation: each for place, each in places}

    @cached_property
    def taken_back(self) -> Mapping[Place, Sequence[Copy]]:
        """What came to the host, by where it was: every copy, in order.

        Of memory that the host shares that is the last one. What a kernel of the host reads is part of the answer if no
        other kernel is given it later; what a library only answers the host about, if nothing computed is copied back.
        """
        found: dict[Place, list[Copy]] = {}
        asked: dict[Place, list[Copy]] = {}
        computed, has_answer = set[int](), False
        for each in self.operations():
            match each:
                case Copy(kind="to_host", source=Place() as place) if each.library and each.host == FOR_KERNEL:
                    asked[place] = [each]
                case Copy(kind="to_host", source=Place() as place) if each.host != FOR_LIBRARY:
                    if each.host < 0 or found.get(place, [each])[-1].host < 0:
                        found[place] = []
                    found.setdefault(place, []).append(each)
                    has_answer |= each.host != FOR_KERNEL and place.allocation in computed
                case Copy(kind="to_device", target=Place(allocation), host=host) if host == FOR_KERNEL:
                    computed.add(allocation)
                case Launch():
                    computed |= each.allocations
                    for place in [place for place in found if place.allocation in each.allocations]:
                        if found[place][-1].host == FOR_KERNEL:
                            del found[place]
        return found if has_answer else asked | found

    @property
    def outputs(self) -> tuple[Copy, ...]:
        """What the program took back last: of each allocation the last copies of its parts to the host."""
        return tuple(copies[-1] for copies in self.taken_back.values())

    @property
    def turns(self) -> Mapping[int, Sequence[Sequence[int | None]]]:
        """What the program took back, by allocation: keys of the last copies of its parts, of the last but one, ..."""
        parts: dict[int, list[list[int | None]]] = {}
        for place in sorted(self.taken_back, key=lambda place: (place.allocation, place.offset)):
            copies = self.taken_back[place]
            parts.setdefault(place.allocation, []).append([copy.contents for copy in copies[::-1]])
        return {
            id: [[each[turn] for each in keys if turn < len(each)] for turn in range(max(map(len, keys)))]
            for id, keys in parts.items()
        }

    def joined(self, keys: Sequence[int | None]) -> NDArray[np.uint8] | None:
        """Return data by their keys, one after the other; None if some were not kept."""
        import numpy as np

        known = [self.contents(key) for key in keys if key is not None]
        return np.concatenate(known) if len(known) == len(keys) else None

    def contents(self, key: int) -> NDArray[np.uint8]:
        """Return data by their key, as bytes."""
        return self._contents[key]


def capture(
    built: Built,
    arguments: Sequence[str],
    folder: Path,
    *,
    run_in: Path | None = None,
    time_limit_s: float = 300.0,
    is_repeated: bool = True,
    may_fail: bool = False,
    own: Collection[str] = (),
    paddings: Collection[Sequence[bool]] = (),
) -> Capture:
    """Run a program twice and record what it does.

    Args:
        built: the program.
        arguments: of its command line.
        folder: where the data of the record lie as long as it is used; made if need be.
        run_in: where the program runs; by default where this process does.
        time_limit_s: how long the first run may take; those after it, which keep data, four times as long.
        is_repeated: whether it is run twice. Of a single run no data are kept.
        may_fail: whether its own check may fail.
        own: the names of kernels that count as part of the host.
        paddings: of structs which of their bytes are between fields, which may differ in files of such.

    Raises:
        CheckFailedError: its own check failed.
        ProgramError: a run failed, or it does nothing on the device.
    """

    def ran(number: int, plan: Sequence[int] | None, *, keeps_left: bool = False) -> tuple[Ran, _Operations]:
        record = _made(folder / f"record{number}")
        found = run(
            built,
            arguments,
            writes=_made(folder / f"files{number}"),
            record=record,
            plan=plan,
            own=own,
            keeps_left=keeps_left,
            folder=run_in,
            time_limit_s=time_limit_s * (1 if number == 1 else _LONGER),
            may_fail=may_fail,
        )
        operations = _read(record)
        _check_passed(built, found, operations[0], may_fail)
        return found, operations

    first, before = ran(1, None)
    launched = {plain_name(kernel["kernel"]) for kernel in first.record.get("kernels", ())}
    if not launched:
        raise ProgramError(
            f"{built.name}, run with arguments {' '.join(arguments) or '(none)'}, launches no kernel: "
            f"does it need other arguments?{_last_words(first)}"
        )
    last, after = first, before
    differences: list[str] = []
    copies_nothing = not any(
        isinstance(each, Copy) and each.kind == "to_host" and each.host != FOR_LIBRARY for each in before[0]
    )
    if is_repeated:
        if copies_nothing:
            first, before = ran(0, None, keeps_left=True)
        last, after = ran(2, _plan(*before), keeps_left=copies_nothing)
        differences = _differences(first, last, before, after, paddings)
    data = _data(folder / "record2") if is_repeated else {}
    files = {name: len(data) + number for number, name in enumerate(last.files)}
    left_out = last.record.get("operations_left_out", 0)
    return Capture(
        tuple(arguments),
        *after,
        output=last.output,
        check=last.check,
        files=files,
        seconds=first.seconds,
        differences=tuple(differences),
        left_out=(f"the last {left_out} operations",) if left_out else (),
        device=last.record.get("device", ""),
        own=tuple(name for name in own if name in launched),
        copies_nothing=copies_nothing,
        _contents=data | {files[name]: _bytes_of(path) for name, path in last.files.items()},
    )


class CheckFailedError(ProgramError):
    """A program runs, and says that its results are wrong."""


def _last_words(ran: Ran) -> str:
    """Return the last lines that a run printed, as the end of a message."""
    lines = [line.strip() for line in f"{ran.output}\n{ran.errors}".splitlines() if line.strip()]
    return f"; the last it printed: {' / '.join(shown(line) for line in lines[-_LAST_LINES:])}" if lines else ""


def _check_passed(built: Built, ran: Ran, different: Sequence[Operation], may_fail: bool) -> None:
    """Raise CheckFailedError if a run says that its check failed."""
    if ran.check == "failed" and not may_fail:
        device = ran.record.get("device", "this machine")
        raise CheckFailedError(
            f"{built.name} runs, but its own check fails on {device}: {shown(ran.failure)}{_taken_in_part(different)}"
        )


def _taken_in_part(different: Sequence[Operation]) -> str:
    """Say of what a program takes back half, as with the size of a float where there are doubles; "" if of nothing."""
    sizes = {found.id: found.bytes for found in different if isinstance(found, Allocation)}
    ends: dict[int, int] = {}
    for copy in different:
        if isinstance(copy, Copy) and copy.kind == "to_host" and copy.source is not None:
            place = copy.source
            ends[place.allocation] = max(ends.get(place.allocation, 0), place.offset + copy.bytes)
    return "".join(
        f"; of {sizes[id]:,} bytes on the device it takes back only half: is the size of that copy of another type?"
        for id, end in ends.items()
        if 2 * end == sizes.get(id)
    )


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProgramError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    return folder


_Operations = tuple[tuple[Operation, ...], "NDArray[np.uint32]"]


def _plan(different: Sequence[Operation], sequence: NDArray[np.uint32]) -> list[int]:
    """Return the copies to the host whose data are kept, by their number in the run: the last ones, and small ones."""
    copies: dict[Place, list[tuple[int, int]]] = {}
    for number, index in enumerate(sequence):
        found = different[index]
        if (
            isinstance(found, Copy)
            and found.source is not None
            and found.kind == "to_host"
            and found.host != FOR_LIBRARY
        ):
            copies.setdefault(found.source, []).append((number, found.bytes))
    wanted = {each[-1][0] for each in copies.values()}
    room_bytes = _EARLIER_BYTES
    for number, size in sorted((copy for each in copies.values() for copy in each[:-1]), reverse=True):
        if size <= min(room_bytes, _SMALL_BYTES):
            room_bytes -= size
            wanted.add(number)
    return sorted(wanted)


def plain_name(kernel: str) -> str:
    """Return the name of a kernel without template arguments."""
    return re.sub(r"<.*", "", kernel).strip()


def _differences(
    first: Ran, second: Ran, before: _Operations, after: _Operations, paddings: Collection[Sequence[bool]]
) -> list[str]:
    """Say how a second run differs from the first one, but for the numbers that it prints."""
    found = []
    for what, one, two in (("prints", first.output, second.output), ("complains", first.errors, second.errors)):
        if apart := other_words(one, two):
            found.append(f"it {what} {_quoted(apart[1])} instead of {_quoted(apart[0])}")
    if len(before[1]) != len(after[1]):
        found.append(f"it does {len(after[1])} things on the device instead of {len(before[1])}")
    else:
        for i, j in zip(before[1], after[1], strict=True):
            if _bare(before[0][i]) != _bare(after[0][j]):
                found.append(f"it does something else on the device: {_in_words(after[0][j])}")
                break
    if first.files.keys() != second.files.keys():
        found.append("it writes other files")
    both = sorted(first.files.keys() & second.files.keys())
    changed_files = [
        name
        for name in both
        if (old := first.files[name].read_bytes()) != (new := second.files[name].read_bytes())
        and not same_fields(old, new, paddings)
    ]
    return found + [f"it writes something else to {name}" for name in changed_files]


def same_fields(one: bytes, other: bytes, paddings: Iterable[Sequence[bool]]) -> bool:
    """Whether bytes are the same but between the fields of structs of one of some types."""
    import numpy as np

    if len(one) != len(other):
        return False
    is_other = np.frombuffer(one, np.uint8) != np.frombuffer(other, np.uint8)
    fitting = (np.array(padding) for padding in paddings if len(one) % len(padding) == 0)
    return any(not (is_other.reshape(-1, padding.size) & ~padding).any() for padding in fitting)


def told_apart(originals: Sequence[str], new: str, tolerance: float = 0.0) -> tuple[str, str] | None:
    """Return the first lines in which a program prints something else than the original; None if there are none.

    A line that only one program printed is "" for the other. Numbers that differ between runs of the original, such as
    times, are not compared.

    Args:
        originals: what the original printed in each of its runs.
        new: what the other program printed.
        tolerance: by how much numbers may differ, relative to the larger.
    """
    for lines, other in _side_by_side(originals, new):
        is_same = steady(lines)
        (words, numbers), (new_words, others) = numbers_in(lines[0]), numbers_in(other)
        if is_same is None or lines[0] == other:
            continue
        if (words, len(numbers)) != (new_words, len(others)) or any(
            a != b and each and not math.isclose(float(a), float(b), rel_tol=tolerance, abs_tol=tolerance**2)
            for a, b, each in zip(numbers, others, is_same, strict=True)
        ):
            return _shown_apart(lines[0], other)
    return None


def wrong_numbers(originals: Sequence[str], new: str, tolerance: float) -> tuple[str, str] | None:
    """Return the first lines printed where the second program's numbers cannot be an answer; None if there are none.

    They are not finite where the original's are, or are of another size altogether. Errors and iterations do not count,
    nor does what differs between runs of the original.

    Args:
        originals: what the first program printed in each of its runs.
        new: what the second program printed.
        tolerance: numbers are alike whose difference is below that, beside 1 or the largest that the first printed.
    """
    most = max(len(_NOT_FINITE.findall(each)) for each in originals)
    if len(_NOT_FINITE.findall(new)) > most:
        for lines, other in _side_by_side(originals[:1], new):
            if len(_NOT_FINITE.findall(other)) > len(_NOT_FINITE.findall(lines[0])):
                return _shown_apart(lines[0], other)
    if len(originals[0].splitlines()) != len(new.splitlines()):  # which line is which is not known
        return None
    rows: list[tuple[str, str, list[tuple[str, str]]]] = []
    heading = ""
    for lines, other in _side_by_side(originals, new):
        heading = lines[0] if has_letters(lines[0]) else heading
        is_same, others = steady(lines), numbers_in(other)[1]
        if is_same is not None and len(is_same) == len(others) and not _NO_ANSWER.search(heading):
            pairs = zip(numbers_in(lines[0])[1], others, is_same, strict=True)
            rows.append((lines[0], other, [(a, b) for a, b, each in pairs if each]))
    largest = max((abs(float(a)) for _, _, pairs in rows for a, _ in pairs), default=0.0)
    least = tolerance * min(1.0, largest)
    far = (row for row in rows if any(_are_far(a, b, least) for a, b in row[2]))
    return next((_shown_apart(line, other) for line, other, _ in far), None)


def _side_by_side(originals: Sequence[str], new: str) -> Iterator[tuple[list[str], str]]:
    """Yield each line of all runs of a program, and of another program; "" for a line that is missing.

    Nothing is yielded if the program prints more lines in some runs than in others.
    """
    runs = [each.splitlines() for each in originals]
    if len(set(map(len, runs))) == 1:
        for *lines, other in itertools.zip_longest(*runs, new.splitlines(), fillvalue=""):
            yield lines, other


def steady(lines: Sequence[str]) -> list[bool] | None:
    """Return for each number of a line whether it is the same in all runs; None if the words are not."""
    words, numbers = zip(*map(numbers_in, lines), strict=True)
    if any(each != words[0] for each in words) or len(set(map(len, numbers))) > 1:
        return None
    return [len(set(each)) == 1 for each in zip(*numbers, strict=True)]


def other_lines(original: str, new: str) -> tuple[str, str] | None:
    """Return the first lines printed that only one program prints, "" for the other, or with more words or fewer.

    None if there are none. Lines on errors and iterations that both print may come more or less often.

    Args:
        original: what the first program printed.
        new: what the second program printed.
    """
    lines, others = (_with_headings(text.splitlines()) for text in (original, new))
    of_both = {tuple(_words(line)) for line, _ in lines} & {tuple(_words(line)) for line, _ in others}
    kept, new_kept = (
        [line for line, heading in each if not (_NO_ANSWER.search(heading) and tuple(_words(line)) in of_both)]
        for each in (lines, others)
    )
    return _first_apart(kept, new_kept, lambda a, b: len(_words(a)) == len(_words(b)))


def other_words(original: str, new: str) -> tuple[str, str] | None:
    """Return the first lines of two texts with other words, "" for one that is missing; None if there are none."""
    return _first_apart(original.splitlines(), new.splitlines(), lambda a, b: _words(a) == _words(b))


def _first_apart(
    lines: Iterable[str], others: Iterable[str], are_alike: Callable[[str, str], bool]
) -> tuple[str, str] | None:
    """Return the first lines that are not alike, but for blank ones; None if all are."""
    kept = (filter(str.strip, each) for each in (lines, others))
    pairs = itertools.zip_longest(*kept, fillvalue="")
    return next((_shown_apart(a, b) for a, b in pairs if not (a and b and are_alike(a, b))), None)


def _words(line: str) -> list[str]:
    """Return the words of a line: nothing with a digit in it, and no number that is not finite."""
    return [word for word in _TOKEN.findall(_NOT_FINITE.sub(" ", line)) if not any(map(str.isdigit, word))]


def _with_headings(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Return lines, each with the last one up to it that has words."""
    heading, found = "", list[tuple[str, str]]()
    for line in lines:
        heading = line if has_letters(line) else heading
        found.append((line, heading))
    return found


def _are_far(one: str, other: str, least: float) -> bool:
    a, b = float(one), float(other)
    if 0 < abs(a) <= _ROUNDING and abs(a) < abs(b) < 1:  # an error, whatever it is called
        return False
    share = _FAR_OF_WHOLE if one.lstrip("+-").isdigit() and other.lstrip("+-").isdigit() else _FAR
    return abs(a - b) > max(least, share * max(abs(a), abs(b)))


def shown(line: str) -> str:
    """Return a printed line for a message: a long one ends at a word."""
    return textwrap.shorten(line, 80, placeholder=" ...")


def _shown_apart(line: str, other: str) -> tuple[str, str]:
    """Return two printed lines for a message: long ones are cut so that the first difference can be seen."""
    one, two = (" ".join(each.split()) for each in (line, other))
    if max(len(one), len(two)) <= _SHOWN_APART:
        return one, two
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))
    start = max(same - _BEFORE_DIFFERENCE, 0)
    if start:
        start = max(one.find(" ", start, same), start - 1) + 1

    def cut(text: str) -> str:
        text = "... " * bool(start and text) + text[start:]
        return text if len(text) <= _SHOWN_APART else f"{text[: _SHOWN_APART - 4]} ..."

    return cut(one), cut(two)


def _quoted(line: str) -> str:
    return repr(line) if line else "nothing"


def has_letters(line: str) -> bool:
    """Whether a line has more than numbers, as headings do; the exponent of a number is none of its words."""
    words = _NUMBER.sub("", line)
    return words.upper() != words.lower()


def numbers_in(line: str) -> tuple[list[str], list[str]]:
    """Return the words of a line without its numbers, and the numbers as they are written."""
    return _NUMBER.sub("", line).split(), _NUMBER.findall(line)


def _bare(operation: Operation) -> Operation:
    """Return an operation without the key of its data."""
    return dataclasses.replace(operation, contents=None) if isinstance(operation, Copy) else operation


def _in_words(operation: Operation) -> str:
    if isinstance(operation, Launch):
        return f"the launch of {operation.kernel} at {operation.file.name}:{operation.line}"
    if isinstance(operation, Copy):
        return f"a copy {operation.kind.replace('_', ' ').replace('to host', 'to the host')} of {operation.bytes} bytes"
    return f"a {type(operation).__name__.lower()}"


def _read(record: Path) -> _Operations:
    import numpy as np

    lines = (record / "operations.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
    return tuple(operation(json.loads(line)) for line in lines), np.fromfile(record / "sequence.bin", np.uint32)


def _bytes_of(path: Path) -> NDArray[np.uint8]:
    """Return a file as bytes, which are read where they are used."""
    import numpy as np

    return np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)


def _data(record: Path) -> dict[int, NDArray[np.uint8]]:
    places = map(json.loads, (record / "contents.jsonl").read_text().splitlines())
    data = _bytes_of(record / "contents.bin")
    return {key: data[p["offset"] : p["offset"] + p["bytes"]] for key, p in enumerate(places)}


def operation(said: Mapping[str, Any]) -> Operation:
    """Return an operation as the recorder tells it."""
    kind = said["op"]
    if kind == "allocate":
        return Allocation(said["id"], said["bytes"], said["kind"], said["name"])
    if kind == "free":
        return Release(said["id"])
    if kind == "fill":
        return Fill(Place(*said["to"]), said["byte"], said["bytes"])
    if kind == "copy":
        target, source = (Place(*said[side]) if said[side] is not None else None for side in ("to", "from"))
        more = said.get("contents"), said.get("digest", ""), said.get("host", -1), said.get("zero", False)
        library = said.get("by", ""), said.get("type", "")
        return Copy(said["kind"], target, source, said["bytes"], *more, *library)
    return Launch(
        said["kernel"],
        tuple(said["types"]),
        Path(said["file"]),
        said["line"],
        cast(tuple[int, int, int], tuple(said["grid"])),
        cast(tuple[int, int, int], tuple(said["block"])),
        said["shared_bytes"],
        tuple(map(_argument, said["arguments"])),
    )


def _argument(said: Mapping[str, Any]) -> Scalar | Structure | Place | str | None:
    if said["kind"] == "pointer":
        to = said["to"]
        return Place(*to) if isinstance(to, list) else to
    data = bytes.fromhex(said["value"])
    if said["kind"] == "struct":
        return Structure(data, {offset: Place(*to) if isinstance(to, list) else to for offset, to in said["pointers"]})
    return Scalar(said["kind"], data)
