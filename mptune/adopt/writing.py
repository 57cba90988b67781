"""Writing what a program became: the definition, a template for each kernel, and the data it worked on.

The steps replay what the program launched. Where it launches the same again and again they have loops, and where it
swaps its pointers they swap buffers.
"""

from __future__ import annotations

import dataclasses
import itertools
import keyword
import math
import operator
import os
import re
import shutil
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.adopt.capture import Allocation, Capture, Copy, Fill, Launch, Place, Scalar, Structure
from mptune.adopt.caveats import after_results, earlier_copies, same_in_all_draws
from mptune.adopt.classes import TypeClass, TypeClasses, type_classes
from mptune.adopt.numbers import GIVEN, Numbers, elements_of
from mptune.adopt.parsing import ProgramError
from mptune.adopt.reading import Field, Kernel, Memory, Parameter, Program
from mptune.adopt.scratch import scratch_parameters
from mptune.adopt.sequence import Call, Number, literal, replay
from mptune.adopt.template import Template, class_of, fields_of, layout_of, template
from mptune.adopt.tiling import UNROLL
from mptune.kernel.application import TAKEN
from mptune.precision import POLICIES

__all__ = [
    "Adopted",
    "AdoptedBuffer",
    "AdoptedParameter",
    "Draws",
    "classes_in",
    "common_folder",
    "draft",
    "name_of",
    "needed",
    "write",
    "write_data",
]

#: The types offered for one that is written in the program, the program's own first.
OFFERED: Final = {
    "double": ("fp64", "fp32", "fp16", "bf16"),
    "float": ("fp32", "fp16", "bf16"),
}
_PRECISIONS: Final = {"double": "fp64", "float": "fp32", "__half": "fp16", "__nv_bfloat16": "bf16"}
_INTEGERS: Final = {
    "char": "int8", "signed char": "int8", "unsigned char": "uint8", "bool": "uint8", "short": "int16",
    "unsigned short": "uint16", "int": "int32", "unsigned int": "uint32", "long": "int64", "unsigned long": "uint64",
    "long long": "int64", "unsigned long long": "uint64",
}  # fmt: skip
_NUMPY: Final = {"double": "float64", "float": "float32", "__half": "float16"}
_VECTOR: Final = re.compile(r"(double|float|int)([1-4])")
_WHOLE: Final = re.compile(r"\b(?:(?:long|short|unsigned|signed|int|char)\b\s*)+")
#: Names that a definition file may have of its own.
_OF_MODULE: Final = frozenset(
    (
        *(
            "HERE",
            "OWN",
            "Path",
            "RECORDS",
            "TABLES",
            "application",
            "data",
            "functools",
            "importlib",
            "inputs",
            "move",
        ),
        *("near", "np", "put", "steps", "vary"),
    )
)
_AXES: Final = "xyz"
_BLOCKS: Final = (32, 64, 128, 256, 512, 1024)
_SMALL_BLOCKS: Final = (1, 2, 4, 8, 16)
_LARGEST_BLOCK: Final = 1024
#: Of how many threads of the program a thread does the work.
_PER_THREAD: Final = (1, 2, 4, 8, 16, 32, 64)
#: What a search can number, with some room left.
_MOST_CONFIGURATIONS: Final = 10**18
_ROWS_PER_THREAD: Final = (1, 2, 4, 8)
_UNROLLS: Final = (1, 2, 4)
#: How often what a thread of the program does may be written out: compilers take minutes over more.
_MOST_COPIES: Final = 256
_WIDTH: Final = 110


# -- what is written -----------------------------------------------------------------------------


@dataclass(slots=True)
class AdoptedBuffer:
    """A buffer of the application that a program became.

    Attributes:
        allocation: its number in the capture.
        name: its name, from the program.
        type: the type of its numbers in the program.
        shape: its axes, as expressions over sizes.
        elements: how many there are.
        precision: the parameter that sets its type, or a fixed precision; "" for integers.
        dtype: the type of integers; "" for others.
        initial: what the program gave it before the first launch; None if nothing.
        is_written: whether a step writes to it.
        is_output: whether the program copied it back at the end.
        results: what it was then, as far as that is known: pieces by the element they begin at.
        structs: what its elements are, if they are structs of several types: it is bytes then.
        field_of: the buffer and the field that it is to hold at the end, for what is compared of structs.
    """

    allocation: int
    name: str
    type: str
    shape: tuple[str, ...]
    elements: int
    precision: str
    dtype: str
    initial: NDArray[Any] | None = None
    is_written: bool = False
    is_output: bool = False
    results: dict[int, NDArray[Any]] = field(default_factory=dict)
    structs: Memory | None = None
    field_of: tuple[str, str] | None = None

    @property
    def stored(self) -> np.dtype[Any]:
        """The type of the program's own memory."""
        return np.dtype(self.dtype or _NUMPY[self.type])

    @property
    def role(self) -> str:
        """As what it is declared."""
        if self.initial is not None:
            return "InOut" if self.is_written else "Buffer"
        return "Scratch"

    @property
    def declared(self) -> str:
        """The text of its declaration."""
        shape = f"({', '.join(map(_quoted, self.shape))})" if len(self.shape) > 1 else f'"{self.shape[0]}"'
        what = f'precision="{self.precision}"' if self.precision else f'dtype="{self.dtype}"'
        return f'{self.role}("{self.name}", {shape}, {what})'


@dataclass(frozen=True, slots=True)
class AdoptedParameter:
    """A precision parameter of what a program became.

    Attributes:
        name: its name.
        types: its values.
        classes: the type classes it sets.
    """

    name: str
    types: tuple[str, ...]
    classes: tuple[TypeClass, ...]

    @property
    def members(self) -> tuple[str, ...]:
        """What has its type, in the program."""
        members = [m for c in self.classes for m in c.members if m.kind not in ("cast", "size")]
        named = (f"{m.name}()" if m.kind == "result" else f"{m.function}.{m.name}".strip(".") for m in members)
        return tuple(dict.fromkeys(named))

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of what has its type."""
        return tuple(dict.fromkeys(each.role for each in self.classes))


@dataclass(frozen=True, slots=True)
class Draws:
    """What is changed for every draw of the inputs but the first, which is the program's own.

    Attributes:
        of: "data": what the program copies to the device; "computed": what its first launches compute without any;
            "numbers": the floating-point numbers that kernels are passed; "nothing".
        by: the largest change of a number, as a part of it.
    """

    of: str = "data"
    by: float = 0.1


@dataclass(frozen=True, slots=True)
class Adopted:
    """What a program became.

    Attributes:
        name: of the application.
        folder: where it is.
        kernels: those launched, by name, and how often each is.
        buffers: of the application.
        parameters: its precision parameters.
        kept: the type classes that keep their type.
        sizes: by name.
        notes: what a user should know.
        caveats: what the errors of its runs leave out.
        layout: what runs of the program at other sizes have to have in common with this one.
        draws: what is changed for fresh inputs.
    """

    name: str
    folder: Path
    kernels: Mapping[str, int]
    buffers: tuple[AdoptedBuffer, ...]
    parameters: tuple[AdoptedParameter, ...]
    kept: tuple[TypeClass, ...]
    sizes: Mapping[str, int]
    notes: tuple[str, ...]
    caveats: tuple[str, ...]
    layout: str
    draws: Draws


def write(
    program: Program,
    classes: TypeClasses,
    parameter_of: Mapping[str, str],
    capture: Capture,
    folder: Path,
    *,
    metric: str | None = None,
    zeroed: bool = False,
    numbers: Numbers | None = None,
    draws: Draws | None = None,
) -> Adopted:
    """Write what a program became to a folder, which ``mptune tune`` then takes.

    Args:
        program: the program.
        classes: its type classes.
        parameter_of: the precision parameter of each class that has one, by the class's name.
        capture: what it did in a run.
        folder: is made, or what an earlier call wrote there is replaced.
        metric: how the outputs are compared.
        zeroed: whether memory that nothing is copied to is zero at first, as for programs that leave some of it out.
        numbers: how its numbers are written, if that was found out.
        draws: what is changed for fresh inputs if it can be; by default what the program copies to the device, or else
            what it computes.

    Raises:
        ProgramError: what it did cannot be replayed.
    """
    name = name_of(folder.name)
    writer = _Writer(program, classes, parameter_of, capture, name, numbers, draws)
    if zeroed:
        writer.zero()
    texts = {**writer.templates(), f"{name}.py": writer.definition(metric)}
    folder.mkdir(parents=True, exist_ok=True)
    for name_of_file, text in texts.items():
        (folder / name_of_file).write_text(text, encoding="utf-8")
    writer.save_data(folder)
    sources = folder / "program"
    shutil.rmtree(sources, ignore_errors=True)
    root = common_folder([file.path for file in program.files])
    for file in program.files:
        target = sources / file.path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.path, target)
    return writer.adopted(folder)


def write_data(
    program: Program,
    classes: TypeClasses,
    parameter_of: Mapping[str, str],
    capture: Capture,
    folder: Path,
    *,
    zeroed: bool,
    numbers: Numbers,
    draws: Draws,
) -> str:
    """Write the data alone of what a program did in a run at other sizes; return its layout.

    Raises:
        ProgramError: what it did cannot be replayed.
    """
    writer = _Writer(program, classes, parameter_of, capture, "", numbers, draws)
    if zeroed:
        writer.zero()
    writer.save_data(folder)
    return writer.layout


def classes_in(program: Program, capture: Capture) -> TypeClasses:
    """Return the type classes of a program, with what a run of it and the user say of them.

    Those that have the same memory in the run are one. Kernels that are not to be tuned keep theirs.
    """
    classes = type_classes(program)
    classes = classes.joined(_sharing(program, classes, capture))

    def kept(each: TypeClass) -> TypeClass:
        others = [label for label in each.kernels if program.tuned and label not in program.tuned]
        why = f"the kernel {others[0]} has it, which is not to be tuned" if others else ""
        return dataclasses.replace(each, kept=each.kept or why)

    return dataclasses.replace(classes, classes=tuple(map(kept, classes.classes)))


def _sharing(program: Program, classes: TypeClasses, capture: Capture) -> list[set[str]]:
    """Return the names of type classes that a run has in the same memory, for each memory."""
    found: dict[int, set[str]] = {}
    kernels: dict[str, list[Kernel]] = {}
    for kernel in program.kernels:
        kernels.setdefault(kernel.name, []).append(kernel)
    for launch in (each for each in capture.different if isinstance(each, Launch)):
        instantiations = kernels.get(re.sub(r"<.*", "", launch.kernel).strip(), [])
        for leaf, struct, value in _passed_by(instantiations[0], launch) if len(instantiations) == 1 else ():
            if isinstance(value, Place) and (each := class_of(classes, leaf.name, struct or instantiations[0].label)):
                found.setdefault(value.allocation, set()).add(each.name)
    return list(found.values())


def needed(program: Program, capture: Capture) -> Capture:
    """Return a capture without the launches that nothing of the program's answer comes from, if these are most.

    Programs that measure themselves do the same again and again from new initial values. What a launch writes but does
    not read is taken to be written as a whole here: the answer of what is left has to be compared.
    """
    named = {allocation.name: allocation.id for allocation in capture.allocations.values()}
    known: dict[int, tuple[set[int | str], set[int | str]]] = {}
    answered: set[tuple[int, int]] = set()
    live: set[int | str] = set()
    kept: list[int] = []
    for index in reversed(capture.sequence.tolist()):
        operation = capture.different[index]
        match operation:
            case Launch():
                if index not in known:
                    known[index] = _read_and_written(program, operation, named)
                read, written = known[index]
                if not written & live:
                    continue
                live = live - (written - read) | read
            case Copy(kind="to_host", source=Place(allocation, offset)) if (allocation, offset) not in answered:
                answered.add((allocation, offset))
                live.add(allocation)
            case Fill(target=Place(allocation, 0)) | Copy(target=Place(allocation, 0)):
                if operation.bytes == capture.allocations[allocation].bytes:
                    live.discard(allocation)
                if isinstance(operation, Copy) and operation.source is not None:
                    live.add(operation.source.allocation)
            case _:
                pass
        kept.append(index)
    left_out = len(capture.sequence) - len(kept)
    launches = sum(isinstance(capture.different[index], Launch) for index in kept)
    if not answered or left_out <= launches:
        return capture
    return dataclasses.replace(capture, sequence=np.array(kept[::-1], np.uint32))


def _read_and_written(
    program: Program, launch: Launch, named: Mapping[str, int]
) -> tuple[set[int | str], set[int | str]]:
    """Return the memory that a launch reads and that it writes: by number, variables of no allocation by name."""
    kernel = _kernel_of(program, launch)
    own = {named.get(need.name, need.name) for need in kernel.needs if need.kind == "device"}
    read, written = set[int | str](own), set[int | str](own)
    for leaf, _, value in _passed_by(kernel, launch):
        if isinstance(value, Place) and leaf.is_used:
            if leaf.role != "out":
                read.add(value.allocation)
            if leaf.role != "in":
                written.add(value.allocation)
    return read, written


def draft(
    program: Program, classes: TypeClasses, parameter_of: Mapping[str, str], capture: Capture, sizes: Mapping[str, int]
) -> tuple[Numbers, str]:
    """Return the numbers of what would be written, and its layout without them.

    Raises:
        ProgramError: what the program did cannot be replayed.
    """
    numbers = Numbers(sizes=sizes, is_draft=True)
    writer = _Writer(program, classes, parameter_of, capture, "", numbers)
    numbers.fixed = writer.found_sizes
    return numbers, writer.layout


def name_of(text: str) -> str:
    """Return what an application can be called, made of another name."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"program_{name}".rstrip("_")


def common_folder(files: Sequence[Path]) -> Path:
    """Return the folder that files share."""
    return Path(os.path.commonpath([file.parent for file in files]))


Shape = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Launch:
    """A launch with its arguments as its template takes them: a struct is passed by its fields."""

    grid: Shape
    block: Shape
    shared_bytes: int
    arguments: tuple[Place | Number, ...]

    @property
    def threads(self) -> Shape:
        """How many threads there are along each axis."""
        x, y, z = (g * b for g, b in zip(self.grid, self.block, strict=True))
        return x, y, z


@dataclass(slots=True)
class _Launched:
    """A kernel that was launched, with all of its launches."""

    kernel: Kernel
    name: str
    parameters: tuple[Parameter, ...]
    launches: list[_Launch] = field(default_factory=list)
    #: Pointers that are not always at the start of their buffer.
    offsets: list[str] = field(default_factory=list)
    #: Whether nothing about it is tuned, and whether its blocks are not.
    is_fixed: bool = False
    has_fixed_blocks: bool = False

    def values(self, index: int) -> list[Any]:
        """Return what an argument was in each launch."""
        return [launch.arguments[index] for launch in self.launches]

    @property
    def pointers(self) -> Iterator[tuple[int, Parameter]]:
        """The parameters that are pointers, with their places."""
        return ((i, p) for i, p in enumerate(self.parameters) if p.is_pointer)

    @property
    def apart(self) -> frozenset[str]:
        """The pointers to memory that no launch writes to through another one, nor reads what they write there."""
        uses = {p.name: (p.role != "in", [place.allocation for place in self.values(i)]) for i, p in self.pointers}

        def may_meet(one: str, other: str) -> bool:
            (writes, places), (other_writes, others) = uses[one], uses[other]
            return (writes or other_writes) and any(map(operator.eq, places, others))

        return frozenset(one for one in uses if not any(may_meet(one, other) for other in uses if other != one))

    @property
    def blocks(self) -> list[Shape]:
        """The blocks it was launched with, each once."""
        return list(dict.fromkeys(launch.block for launch in self.launches))

    @property
    def threads(self) -> list[Shape]:
        """How many threads it was launched with along each axis, each once."""
        return list(dict.fromkeys(one.threads for one in self.launches))

    def geometry(self, launch: _Launch) -> dict[str, int]:
        """Return what says how it is launched, by name: threads where they may be in blocks of any size."""
        extents = {"threads": launch.threads} if self.is_free else {"grid": launch.grid, "block": launch.block}
        named = {f"{what}_{axis}": n for what, found in extents.items() for axis, n in zip(_AXES, found, strict=True)}
        return {**named, "shared_bytes": launch.shared_bytes}

    @property
    def is_free(self) -> bool:
        """Whether it does the same in blocks of any size."""
        is_told = self.is_fixed or self.has_fixed_blocks
        return self.kernel.is_flat and not (self.kernel.has_barrier or self.kernel.has_shared or is_told)


class _Writer:
    """Finds out what to write.

    Attributes:
        buffers: of the application.
        replay: its steps.
    """

    def __init__(
        self,
        program: Program,
        classes: TypeClasses,
        parameter_of: Mapping[str, str],
        capture: Capture,
        name: str,
        numbers: Numbers | None = None,
        draws: Draws | None = None,
    ) -> None:
        self._program, self._classes, self._capture = program, classes, capture
        self._numbers = numbers or Numbers()
        self._parameter_of, self._name = parameter_of, name
        self._class_of = {(m.function, m.name): each for each in classes.classes for m in each.members}
        self._taken = {*TAKEN, *keyword.kwlist, "draw"}
        #: Of each parameter of a kernel its name in the program, and whose it is: the kernel's, or a struct's.
        self._declared: dict[tuple[str, str], tuple[str, str]] = {}
        self.notes: list[str] = []
        self._launched = self._find_launched()
        for each in self._launched.values():
            each.is_fixed = bool(program.tuned) and each.kernel.label not in program.tuned
        self._bound_space()
        self._sizes = dict(self._find_sizes() if self._numbers.fixed is None else self._numbers.fixed)
        self._named: set[str] = set()
        self._buffer_of = self._find_buffers()
        self._virtual = {name: self._virtual_threads(each) for name, each in self._launched.items()}
        self._geometries = {name: self._geometry(each) for name, each in self._launched.items()}
        self._shared = {name: self._shared_bytes(each) for name, each in self._launched.items()}
        #: Which numbers of a launch's geometry differ from launch to launch, by the kernel's name.
        self._varying: dict[str, list[str]] = {}
        self._later: dict[str, list[NDArray[Any]]] = {}
        self._row_of: dict[str, dict[bytes, int]] = {}
        self._symbols = {a.id: a for a in capture.allocations.values() if a.kind == "symbol"}
        needs = (need for each in self._launched.values() for need in each.kernel.needs)
        constants = {need.name for need in needs if need.kind == "constant"}
        #: Of which the definition knows nothing.
        self._own_symbols = [symbol for symbol in self._symbols.values() if symbol.name not in constants]
        self.notes += (
            f"the variable {symbol.name} in the device's memory is no buffer of what is written: runs begin with what "
            "the one before has left in it"
            for symbol in self._own_symbols
        )
        self._symbols = {number: symbol for number, symbol in self._symbols.items() if symbol.name in constants}
        calls = list(self._without_repeats(self._calls()))
        self.buffers = tuple(self._buffer_of.values())
        self._find_results()
        self._drop_scratch()
        self.draws, calls = self._drawn(calls, draws)
        self.caveats = tuple(self._find_caveats(calls))
        self.replay = replay(
            calls,
            may_swap=self._may_swap,
            text_of=self._text_of,
            written=self._written,
            has_draws=self.draws.of == "numbers",
        )
        self._move_results()
        self.buffers += tuple(field for buffer in self.buffers if buffer.structs for field in self._fields_of(buffer))
        self._finite = {} if self._numbers.is_draft else dict(self._find_finite())

    @cached_property
    def _templates(self) -> dict[str, Template]:
        return {
            name: template(
                self._program,
                each.kernel,
                self._classes,
                self._parameter_of,
                each.offsets,
                self._virtual[name],
                self._in_block(each),
                self._nulls[each.kernel.label],
                each.apart,
            )
            for name, each in self._launched.items()
        }

    def zero(self) -> None:
        """Let memory that nothing is copied to be zero at first."""
        for buffer in self.buffers:
            if buffer.initial is None and buffer.field_of is None:
                buffer.initial = np.zeros(buffer.elements, buffer.stored)
                self.notes.append(f"{buffer.name} is zero at first: the program uses of it what it never wrote")

    # -- what was launched, on what ------------------------------------------------------------

    def _find_launched(self) -> dict[str, _Launched]:
        found: dict[str, _Launched] = {}
        known: dict[int, tuple[str, _Launch]] = {}
        self._nulls = self._find_nulls()
        for index in self._capture.sequence:
            operation = self._capture.different[index]
            if not isinstance(operation, Launch):
                continue
            if index not in known:
                kernel = _kernel_of(self._program, operation)
                if kernel.label not in found:
                    parameters = tuple(p for p in _flattened(kernel) if p.name not in self._nulls[kernel.label])
                    for parameter in kernel.parameters:
                        for leaf, struct in fields_of(parameter):
                            self._declared[kernel.label, leaf.flat] = leaf.name, struct or kernel.label
                    found[kernel.label] = _Launched(kernel, self._unused(kernel.identifier, _OF_MODULE), parameters)
                known[index] = kernel.label, self._launch_of(operation, found[kernel.label])
            label, launch = known[index]
            found[label].launches.append(launch)
        for each in found.values():
            for index, parameter in each.pointers:
                if any(place.offset for place in each.values(index)):
                    each.offsets.append(parameter.name)
        self._launch_at = known
        return {each.name: each for each in found.values()}

    def _bound_space(self) -> None:
        """Let the kernels that do least have the program's own blocks, where there would be too many configurations."""
        # Buffers have one type in all kernels, everything else has one in each.
        typed = [each for each in self._classes.classes if each.name in self._parameter_of]
        of_all = {self._parameter_of[each.name] for each in typed if each.role == "buffer"}
        types = len(of_all)
        for kernel in (each.kernel.label for each in self._launched.values()):
            types += len({self._parameter_of[each.name] for each in typed if kernel in each.kernels} - of_all)
        room = _MOST_CONFIGURATIONS // len(OFFERED["double"]) ** types
        room //= len(POLICIES) ** len(self._launched)
        free = [each for each in self._launched.values() if each.is_free]
        for each in sorted(
            free, key=lambda each: sum(math.prod(t) for t in (one.threads for one in each.launches)), reverse=True
        ):
            dimensions = max((a + 1 for a in range(3) for t in each.threads if t[a] > 1), default=1)
            tiles = len(_PER_THREAD) * len(_ROWS_PER_THREAD) * len(_UNROLLS)
            configurations = tiles * (len(_BLOCKS) + len(_SMALL_BLOCKS)) ** dimensions
            if configurations > room:
                each.has_fixed_blocks = True
                self.notes.append(f"{each.name} has the program's own blocks: there are too many kernels to search all")
            else:
                room //= configurations

    def _find_nulls(self) -> dict[str, frozenset[str]]:
        """Return the pointers of each kernel that are null in all of its launches, or that it does not use."""
        passed: dict[str, dict[str, bool]] = {}
        for index in np.unique(self._capture.sequence):
            operation = self._capture.different[index]
            if isinstance(operation, Launch):
                kernel = _kernel_of(self._program, operation)
                known = passed.setdefault(kernel.label, {})
                for leaf, _, value in _passed_by(kernel, operation):
                    is_null = value is None or not leaf.is_used
                    known[leaf.flat] = known.get(leaf.flat, True) and is_null
        return {label: frozenset(name for name, null in known.items() if null) for label, known in passed.items()}

    def _launch_of(self, launch: Launch, each: _Launched) -> _Launch:
        arguments: list[Place | Number] = []
        for leaf, _, value in _passed_by(each.kernel, launch):
            if leaf.flat in self._nulls[each.kernel.label]:
                continue
            if isinstance(value, Place):
                arguments.append(value)
            elif isinstance(value, Scalar):
                arguments.append(int(value.value) if value.type[0] == "b" else value.value)
            else:
                given, remedy = "a pointer of the host", "pass memory of the device"
                if self._program.originals:
                    given = "memory of which it is not known where it ends"
                    remedy = "let it be an array, a std::vector, or from new or malloc"
                given = "a null pointer at times" if value is None else given
                raise ProgramError(
                    f"{launch.file.name}:{launch.line}: kernel {each.kernel.label} gets {given} for {leaf.name}, which "
                    f"cannot be adopted; {remedy}"
                )
        return _Launch(launch.grid, launch.block, launch.shared_bytes, tuple(arguments))

    def _unused(self, wanted: str, others: Collection[str] = ()) -> str:
        name, number = wanted, 2
        while name in self._taken or name in others:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name

    def _find_sizes(self) -> dict[str, int]:
        """Return the whole numbers that kernels are always given under the same name: they may be sizes."""
        found: dict[str, set[int]] = {}
        for each in self._launched.values():
            for index, parameter in enumerate(each.parameters):
                is_whole = parameter.role == "scalar" and _INTEGERS.get(parameter.element, "")[-2:] in ("32", "64")
                if is_whole and not keyword.iskeyword(parameter.name):
                    found.setdefault(parameter.name, set()).update(each.values(index))
        return {name: value for name, (value, *others) in found.items() if not others and value > 1}

    def _find_buffers(self) -> dict[int, AdoptedBuffer]:
        uses: dict[int, list[tuple[_Launched, int]]] = {}
        for each in self._launched.values():
            for index, _ in each.pointers:
                for pointer in dict.fromkeys(each.values(index)):
                    uses.setdefault(pointer.allocation, []).append((each, index))
        return {allocation: self._buffer(allocation, each) for allocation, each in sorted(uses.items())}

    def _buffer(self, allocation: int, uses: Sequence[tuple[_Launched, int]]) -> AdoptedBuffer:
        parameters = [(each, each.parameters[index]) for each, index in uses]
        each, parameter = parameters[0]
        name = self._unused(self._host_name(*uses[0]) or parameter.name)
        scalars = {_memory(other).numbers[0]: other for _, other in parameters}
        structs = next((_memory(other) for _, other in parameters if _memory(other).is_mixed), None)
        if len(scalars) > 1 and not scalars.keys() <= _INTEGERS.keys():
            one, other = list(scalars.values())[:2]
            raise ProgramError(
                f"{other.extent}: {other.name} is memory of {other.element}, which {one.name} ({one.extent}) takes for "
                f"{one.element}; mptune cannot tell what is in it: give them memory of their own"
            )
        memory = structs or _memory(parameter)
        scalar, components = memory.numbers[0], memory.components
        if _memory(parameter).has_pointers or scalar not in (*_NUMPY, *_INTEGERS):
            what = "pointers" if _memory(parameter).has_pointers else _memory(parameter).name
            raise ProgramError(
                f"{parameter.extent}: {parameter.name} is memory of {what}, which cannot be adopted; use arrays of "
                "numbers"
            )
        precision = self._precision(each.kernel, parameter) if scalar in _PRECISIONS else ""
        elements = self._capture.allocations[allocation].bytes // _size(scalar) // components
        count = self._numbers.text(elements_of(name), [elements], self._expression(elements))
        shape = (count, *([str(components)] if components > 1 else []))
        dtype = _INTEGERS.get(scalar, "")
        return AdoptedBuffer(allocation, name, scalar, shape, elements * components, precision, dtype, structs=structs)

    def _fields_of(self, buffer: AdoptedBuffer) -> Iterator[AdoptedBuffer]:
        """Yield a buffer for each field of the structs that the program copies back, in which it is compared."""
        if not buffer.is_output or buffer.structs is None:
            return
        buffer.is_output = False  # what is in it is
        record = _record(buffer.structs)
        pieces = {start // record.itemsize: v for start, v in buffer.results.items() if start % record.itemsize == 0}
        buffer.results = {}
        for number in buffer.structs.fields:
            name = self._unused(f"{buffer.name}_{number.name.replace('.', '_')}")
            shape = (buffer.shape[0], *([str(number.count)] if number.count > 1 else []))
            elements = buffer.elements // record.itemsize * number.count
            precision, dtype = _PRECISIONS.get(number.scalar, ""), _INTEGERS.get(number.scalar, "")
            made = AdoptedBuffer(buffer.allocation, name, number.scalar, shape, elements, precision, dtype)
            made.is_output, made.field_of = True, (buffer.name, number.name)
            for start, values in pieces.items():
                whole = values[: values.size // record.itemsize * record.itemsize].view(record)
                made.results[start * number.count] = np.ascontiguousarray(whole[number.name]).reshape(-1)
            yield made

    def _host_name(self, each: _Launched, index: int) -> str:
        """Return what the program calls the memory it passes, where it first launches a kernel."""
        names = {parameter.name: place for place, parameter in enumerate(each.kernel.parameters)}
        place = names.get(each.parameters[index].name, -1)
        for site in self._program.launches:
            if site.kernel == each.kernel.label and 0 <= place < len(site.arguments):
                text = self._program.text(site.arguments[place])
                return text if text.isidentifier() and text not in self._taken else ""
        return ""

    def _precision(self, kernel: Kernel, parameter: Parameter) -> str:
        """Return the precision parameter of a kernel's parameter, or its fixed precision."""
        found = class_of(self._classes, *self._declared[kernel.label, parameter.name])
        if found is None and parameter.memory is not None and parameter.memory.fields:  # structs of numbers
            first = parameter.memory.fields[0].name.rpartition(".")[2]
            found = class_of(self._classes, first, parameter.memory.name)
        if found is not None and found.name in self._parameter_of:
            return self._parameter_of[found.name]
        return _PRECISIONS[_numbers(parameter)[0]]

    def _expression(self, value: int) -> str:
        """Return a number as an expression over sizes, the shortest, or the number."""
        names = [name for name in self._sizes if name.isidentifier()]
        terms = [(text, n) for name in names for text, n in self._terms(name)]
        for count in (1, 2, 3):
            for chosen in itertools.combinations_with_replacement(terms, count):
                product = math.prod(n for _, n in chosen)
                if product == value:
                    self._named.update(word for text, _ in chosen for word in re.findall(r"[A-Za-z_]\w*", text))
                    return " * ".join(text if count == 1 or text.isidentifier() else f"({text})" for text, _ in chosen)
        return str(value)

    def _terms(self, name: str) -> Iterator[tuple[str, int]]:
        value = self._sizes[name]
        yield name, value
        yield f"{name} + 1", value + 1
        yield f"{name} + 2", value + 2

    # -- the steps -----------------------------------------------------------------------------

    def _calls(self) -> Iterator[Call]:
        """Yield what was called until the last result was copied back, and learn what each buffer is for."""
        operations = list(self._capture.operations())
        last = max((i for i, o in enumerate(operations) if isinstance(o, Copy) and o.kind == "to_host"), default=-1)
        if last < 0:
            last = max(i for i, o in enumerate(operations) if isinstance(o, Launch))
        launches = [i for i, o in enumerate(operations) if isinstance(o, Launch)]
        looks = sum(isinstance(o, Copy) and o.kind == "to_host" for o in operations[: launches[-1]])
        if looks:
            self.notes.append(
                f"the program looks at results {looks} times before its last launch: if it decides by them what to "
                "launch, the steps launch what it did in this run"
            )
        live: set[int] = set()
        for index, operation in zip(self._capture.sequence[: last + 1], operations, strict=False):
            match operation:
                case Launch():
                    label, launch = self._launch_at[index]
                    each = next(e for e in self._launched.values() if e.kernel.label == label)
                    yield self._launch(each, launch, live)
                case Copy(kind="to_device", target=Place(allocation)) if allocation in self._symbols:
                    self._set_symbol(operation)
                case Fill(target=Place(allocation)) | Copy(kind="to_device", target=Place(allocation)) if (
                    allocation in self._buffer_of
                ):
                    yield from self._given(operation, live)
                case Copy(kind="on_device", target=Place(allocation)) if allocation in self._buffer_of:
                    yield self._copy(operation, live)
                case _:
                    pass

    def _without_repeats(self, calls: Iterable[Call]) -> Iterator[Call]:
        """Leave out launches that do again what the one before has done: programs repeat them to time them."""
        before: Call | None = None
        left_out: dict[str, int] = {}
        for call in calls:
            if call == before and self._can_be_repeated(call):
                left_out[call.function] = left_out.get(call.function, 1) + 1
                continue
            yield call
            before = call
        for name, count in left_out.items():
            self.notes.append(
                f"{name} is launched {count} times on the same data, which gives the same: once is enough"
            )

    def _drawn(self, calls: list[Call], wanted: Draws | None) -> tuple[Draws, list[Call]]:
        """Return what is changed for fresh inputs, and the calls with what that takes."""
        wanted = wanted or Draws("data" if any(map(self._has_numbers, self.buffers)) else "computed")
        if wanted.of == "computed":
            written: dict[str, None] = {}
            for place, call in enumerate(calls):
                roles = (
                    {p.name: p.role for p in self._launched[call.function].parameters}
                    if call.function in self._launched
                    else {}
                )
                if any(buffer in written and roles.get(name) != "out" for name, buffer in call.buffers):
                    vary = Call("vary", tuple(("", name) for name in written))
                    return wanted, [*calls[:place], vary, *calls[place:]]
                floating = {buffer.name for buffer in self.buffers if buffer.stored.kind == "f"}
                written |= dict.fromkeys(b for name, b in call.buffers if roles.get(name) != "in" and b in floating)
            wanted = Draws("numbers", wanted.by)
        if wanted.of == "numbers" and not any(
            isinstance(value, float) for call in calls if call.function in self._launched for _, value in call.values
        ):
            wanted = Draws("nothing", 0.0)
        return wanted, calls

    def _find_caveats(self, calls: Sequence[Call]) -> Iterator[str]:
        """Say what the errors of runs leave out; each text has the word, by which runs know what it is about."""
        copies = earlier_copies(self._capture)
        own = {symbol.id: symbol.name for symbol in self._own_symbols}
        for place in self._capture.taken_back:
            if name := own.get(place.allocation):
                yield (
                    f"errors leave out the variable {name}, which the program copies to the host: only emit --into "
                    "compares it"
                )
        names = [f"{buffer.name} {copies[id]}" for id, buffer in self._buffer_of.items() if id in copies]
        if names:
            yield (
                "errors are those of what is copied to the host last: what was there in earlier copies "
                f"({_listed(names)}) only emit --into compares"
            )

        def numbers(index: int) -> Iterator[tuple[str, float]]:
            label, launch = self._launch_at[index]
            each = next(e for e in self._launched.values() if e.kernel.label == label)
            for parameter, value in zip(each.parameters, launch.arguments, strict=True):
                if isinstance(value, float):
                    yield f"{parameter.name} of {each.name}", value

        def name_of(id: int) -> str:
            return self._buffer_of[id].name if id in self._buffer_of else self._capture.allocations[id].name

        if given := [name for name in after_results(self._capture, numbers, name_of) if name]:
            # (Loops of C++ are not written back.)
            who = "" if self._program.originals else "; only emit --into compares whole programs"
            yield (
                f"errors may be far larger: the host gives the device {_listed(given)} after it could see results, and "
                f"where it computes that from them, each run here has it as in the program's own types{who}"
            )
        roles = {
            each.name: {parameter.name: parameter.role for parameter in each.parameters}
            for each in self._launched.values()
        }
        varied = [buffer.name for buffer in self.buffers if self.draws.of == "data" and self._has_numbers(buffer)]
        same = same_in_all_draws(calls, roles, varied, has_varied_numbers=self.draws.of == "numbers")
        if same and self.draws.of != "nothing":
            yield f"errors on other data are not known of {_listed(same)}: it is the same in every draw"

    def _has_numbers(self, buffer: AdoptedBuffer) -> bool:
        """Whether there are floating-point numbers in a buffer at first that are not all zero."""
        has_fields = buffer.structs is not None and any(each.scalar in _NUMPY for each in buffer.structs.fields)
        has_any = buffer.initial is not None and bool(buffer.initial.any())
        return has_any and (buffer.stored.kind == "f" or has_fields)

    def _can_be_repeated(self, call: Call) -> bool:
        """Whether a launch reads nothing of what it writes."""
        if call.function not in self._launched:
            return False
        role_of = {parameter.name: parameter.role for parameter in self._launched[call.function].parameters}
        written = [buffer for name, buffer in call.buffers if role_of[name] == "out"]
        read = {buffer for name, buffer in call.buffers if role_of[name] == "in"}
        return all(role_of[name] != "inout" for name, _ in call.buffers) and not read & set(written)

    def _find_results(self) -> None:
        """Learn what the outputs are at the end: what the program copied back, or else what kernels wrote."""
        found = [(c.source, c.contents) for c in self._capture.outputs]
        if not found:
            self.notes.append("the program copies nothing back: what its kernels wrote is compared")
            for launch in self._capture.launches():
                found += ((Place(id, 0), launch.after[id]) for id in launch.changed)
        for place, key in found:
            buffer = None if place is None else self._buffer_of.get(place.allocation)
            if buffer is None or place is None:
                continue
            buffer.is_output = True
            if key is not None:
                values = self._capture.contents(key)[: buffer.elements * buffer.stored.itemsize - place.offset]
                start = place.offset // buffer.stored.itemsize
                buffer.results[start] = values[: values.size // buffer.stored.itemsize * buffer.stored.itemsize].view(
                    buffer.stored
                )

    def _drop_scratch(self) -> None:
        """Let memory of plain C++ be no output that only its loops look at, unless there is no other."""
        scratch = scratch_parameters(self._program) if self._program.originals else set()
        seen: dict[int, bool] = {}
        for each in self._launched.values():
            for index, parameter in each.pointers:
                name, _ = self._declared[each.kernel.label, parameter.name]
                for place in dict.fromkeys(each.values(index)):
                    is_scratch = (each.kernel.label, name) in scratch
                    seen[place.allocation] = seen.get(place.allocation, False) or not is_scratch
        outputs = [buffer for buffer in self.buffers if buffer.is_output]
        if any(seen[buffer.allocation] for buffer in outputs):
            for buffer in outputs:
                if not seen[buffer.allocation]:
                    buffer.is_output, buffer.results = False, {}

    def _move_results(self) -> None:
        """Give each result to the buffer that has it at the end: swaps may have moved it."""
        by_name = {buffer.name: buffer for buffer in self.buffers}
        found = {name: (by_name[name].is_output, by_name[name].results) for name in self.replay.places}
        for name, place in self.replay.places.items():
            by_name[place].is_output, by_name[place].results = found[name]

    def _find_finite(self) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """Yield for each output that is not finite everywhere where it is."""
        for buffer in self.buffers:
            finite = np.ones(buffer.elements, np.bool_)
            for start, values in buffer.results.items():
                finite[start : start + values.size] = np.isfinite(values)
            if not finite.all():
                self.notes.append(
                    f"{np.count_nonzero(~finite):,} of {buffer.elements:,} elements of {buffer.name} are not finite in "
                    "the program's answer either, and are not compared"
                )
                yield buffer.name, finite.reshape(-1, *map(int, buffer.shape[1:]))

    def _launch(self, each: _Launched, launch: _Launch, live: set[int]) -> Call:
        buffers: list[tuple[str, str]] = []
        values: list[tuple[str, Number]] = []
        tables: list[tuple[str, str]] = []
        for parameter, value in zip(each.parameters, launch.arguments, strict=True):
            if isinstance(value, Place):
                buffer = self._buffer_of[value.allocation]
                buffer.is_written |= parameter.role != "in"
                live.add(value.allocation)
                buffers.append((parameter.name, buffer.name))
                if parameter.name in each.offsets:
                    values.append((f"{parameter.name}_offset", value.offset // _memory(parameter).bytes))
            else:
                values.append((parameter.name, value))
        for symbol in self._constants_of(each):
            values.append((symbol.name, len(self._later[symbol.name]) - 1))
            tables.append((symbol.name, f"{symbol.name}_given"))
        values += self._geometry_passed(each, launch)
        return Call(each.name, tuple(buffers), tuple(values), tuple(tables))

    def _constants_of(self, each: _Launched) -> list[Allocation]:
        """Return the variables in the device's memory that the program sets and a kernel uses."""
        names = {need.name for need in each.kernel.needs if need.kind == "constant"}
        return [symbol for symbol in self._symbols.values() if symbol.name in names]

    def _set_symbol(self, copy: Copy) -> None:
        assert copy.target is not None
        symbol = self._symbols[copy.target.allocation]
        element = np.dtype(self._symbol_type(symbol)[1])
        rows = self._later.setdefault(symbol.name, [])
        values = rows[-1].copy() if rows else np.zeros(symbol.bytes // element.itemsize, element)
        values.view(np.uint8)[copy.target.offset : copy.target.offset + copy.bytes] = self._contents(copy)
        rows.append(values)

    def _symbol_type(self, symbol: Allocation) -> tuple[str, str]:
        """Return how a variable in the device's memory is declared, and its type for NumPy."""
        found = self._class_of.get(("", symbol.name))
        if found is not None:
            declared = f"precision={_quoted(self._parameter_of.get(found.name, _PRECISIONS[found.scalar]))}"
            return declared, _NUMPY[found.scalar]
        for kernel in self._program.kernels:
            for need in kernel.needs:
                if need.name == symbol.name and need.memory is not None and not need.memory.has_pointers:
                    scalar = need.memory.numbers[0]
                    if scalar in _INTEGERS:
                        return f'dtype="{_INTEGERS[scalar]}"', _INTEGERS[scalar]
                    if scalar in _NUMPY:  # structs of numbers
                        first = need.memory.fields[0].name.rpartition(".")[2]
                        found = class_of(self._classes, first, need.memory.name)
                        precision = self._parameter_of.get(found.name, "") if found is not None else ""
                        return f"precision={_quoted(precision or _PRECISIONS[scalar])}", _NUMPY[scalar]
        raise ProgramError(f"the variable {symbol.name} is of a type that cannot be adopted; use arrays of numbers")

    def _contents(self, copy: Copy) -> NDArray[np.uint8]:
        if copy.contents is None:
            raise ProgramError(
                f"the program copies more to the device than was kept of it ({copy.bytes} bytes are missing); give it "
                "a smaller problem"
            )
        return self._capture.contents(copy.contents)

    def _given(self, operation: Fill | Copy, live: set[int]) -> Iterator[Call]:
        """Take what the program writes to memory: as initial values, unless something has used the memory before."""
        assert operation.target is not None
        allocation, offset = operation.target.allocation, operation.target.offset
        buffer = self._buffer_of[allocation]
        whole = buffer.elements * buffer.stored.itemsize
        if allocation not in live:
            if buffer.initial is None:
                buffer.initial = np.zeros(buffer.elements, buffer.stored)
            given = buffer.initial.view(np.uint8)[offset : offset + operation.bytes]
            given[:] = operation.byte & 0xFF if isinstance(operation, Fill) else self._contents(operation)[: given.size]
            return
        buffer.is_written = True
        if isinstance(operation, Fill) and operation.bytes >= whole:
            value = np.full(buffer.stored.itemsize, operation.byte & 0xFF, np.uint8).view(buffer.stored)[0].item()
            yield Call("fill", (("", buffer.name),), (("", value),))
            return
        is_part = operation.bytes < whole
        start, count = self._elements(buffer, offset), self._elements(buffer, operation.bytes)
        if isinstance(operation, Fill):
            value = np.full(buffer.stored.itemsize, operation.byte & 0xFF, np.uint8).view(buffer.stored)[0].item()
            yield Call("put", (("", buffer.name),), (("start", start), ("count", count), ("value", value)))
            return
        # Rows of a table are of one length.
        table = f"{buffer.name}_{count}" if is_part else buffer.name
        later = self._later.setdefault(table, [])
        contents = self._contents(operation)[:whole].view(buffer.stored)
        key = contents.tobytes()
        rows = self._row_of.setdefault(table, {})
        if key not in rows:
            rows[key] = len(later)
            later.append(contents)
        row, tables = ("row", rows[key]), (("row", f"{table}_given"),)
        if is_part:
            yield Call("put", (("", buffer.name),), (("start", start), ("count", count), row), tables)
        else:
            yield Call("write", (("", buffer.name),), (row,), tables)

    def _elements(self, buffer: AdoptedBuffer, count: int) -> int:
        """Return how many elements so many bytes of a buffer are."""
        if count % buffer.stored.itemsize:
            raise ProgramError(
                f"the program writes to a part of an element of {buffer.name} between launches, which cannot be adopted"
            )
        return count // buffer.stored.itemsize

    def _copy(self, copy: Copy, live: set[int]) -> Call:
        assert copy.target is not None
        assert copy.source is not None
        target, source = self._buffer_of[copy.target.allocation], self._buffer_of.get(copy.source.allocation)
        if source is None or source.stored != target.stored:
            raise ProgramError(
                f"the program copies to {target.name} on the device what no kernel takes for the same numbers, which "
                "cannot be adopted; copy numbers of its type that a kernel works on"
            )
        is_whole = copy.bytes >= target.elements * target.stored.itemsize and source.elements == target.elements
        target.is_written = True
        live |= {copy.source.allocation, copy.target.allocation}
        buffers = (("", source.name), ("", target.name))
        if is_whole:
            return Call("copy", buffers)
        start, to = self._elements(source, copy.source.offset), self._elements(target, copy.target.offset)
        return Call("move", buffers, (("start", start), ("to", to), ("count", self._elements(target, copy.bytes))))

    def _may_swap(self, one: str, other: str) -> bool:
        by_name = {buffer.name: buffer for buffer in self._buffer_of.values()}
        a, b = by_name[one], by_name[other]
        same = (a.elements, a.type, a.precision, a.dtype) == (b.elements, b.type, b.precision, b.dtype)
        return same and a.is_written and b.is_written

    def _text_of(self, call: Call, argument: str, value: Number) -> str:
        if call.function in self._launched and self._sizes.get(argument) == value and argument in self._named:
            return f"size.{argument}"
        return literal(value)

    def _written(self, name: str, values: Sequence[Number], natural: str) -> str | None:
        """Return how a number of the steps is written; None if it is looked up."""
        text = self._numbers.text(name, values, natural, is_of_steps=True)
        if text is natural or self._numbers.is_draft:
            return text
        return None if text == GIVEN else re.sub(r"[A-Za-z_]\w*", r"size.\g<0>", text)

    # -- geometry ------------------------------------------------------------------------------

    def _in_block(self, each: _Launched) -> int:
        """Return how many threads a block has at most."""
        if any(self._numbers.is_given(f"{each.name} block_{axis}") for axis in _AXES):
            return _LARGEST_BLOCK
        return max(map(math.prod, each.blocks))

    def _geometry_passed(self, each: _Launched, launch: _Launch) -> list[tuple[str, Number]]:
        """Return the numbers of a launch's geometry that differ from launch to launch."""
        if each.name not in self._varying:
            self._varying[each.name] = [name for name in each.geometry(launch) if self._varies(each, name)]
        own = each.geometry(launch)
        return [(name, own[name]) for name in self._varying[each.name]]

    def _varies(self, each: _Launched, name: str) -> bool:
        seen = {each.geometry(launch)[name] for launch in {id(one): one for one in each.launches}.values()}
        return len(seen) > 1 or self._numbers.is_given(f"{each.name} {name}")

    def _geometry(self, each: _Launched) -> tuple[list[str], list[str], list[str], list[str]]:
        """Return the texts of the parameters, constraints, grid and block of a kernel."""
        first = each.launches[0]
        dimensions = max(
            (a + 1 for a in range(3) if any(one.grid[a] * one.block[a] > 1 for one in each.launches)), default=1
        )
        if not each.is_free:
            grids = {one.grid for one in each.launches}
            grid = [self._same(each, [g[a] for g in grids], f"grid_{_AXES[a]}") for a in range(dimensions)]
            block = [self._same(each, [b[a] for b in each.blocks], f"block_{_AXES[a]}") for a in range(dimensions)]
            return [], [], grid, block
        parameters, grid, block, divided = [], [], [], []
        if threads := self._virtual[each.name]:
            parameters.append(f'OrdinalParameter("per_thread", {list(_PER_THREAD)})')
        made = self._templates[each.name]
        if has_rows := made.is_tiled and dimensions > 1:
            parameters.append(f'OrdinalParameter("per_thread_y", {list(_ROWS_PER_THREAD)})')
        if made.unrolls:
            parameters.append(f'OrdinalParameter("{UNROLL}", {list(_UNROLLS)})')
        for axis in range(dimensions):
            totals = {threads[axis] for threads in each.threads}
            own = {one[axis] for one in each.blocks}
            values = sorted({*own, *_BLOCKS, *(() if dimensions == 1 else _SMALL_BLOCKS)})
            if dimensions == 1:
                values = [b for b in values if b >= min(32, *own)]
            if not threads:
                values = [b for b in values if all(total % b == 0 for total in totals)]
            values = [b for b in values if b <= max(totals) or b in own]
            name = "block" if dimensions == 1 else f"block_{_AXES[axis]}"
            width = name if len(values) > 1 else str(values[0])
            if len(values) > 1:
                parameters.append(f'OrdinalParameter("{name}", {values})')
            block.append(width)
            if threads and axis == 0:
                grid.append(f"ceildiv({threads[0]}, {width} * per_thread)")
            elif threads:
                rows = " * per_thread_y" if has_rows and axis == 1 else ""
                grid.append(f"ceildiv({threads[axis]}, {width}{rows})")
            elif len(totals) == 1 and len(values) == 1 and not self._numbers.texts and not self._numbers.is_draft:
                grid.append(str(first.grid[axis]))
            else:
                total = self._threads(each, axis) if len(totals) == 1 else f"threads_{_AXES[axis]}"
                grid.append(f"{total} // {width}")
                if len(values) > 1 and self._numbers.texts:
                    divided.append(f"{total} % {width} == 0")
        names = [text for text in block if not text.isdigit()]
        fixed = math.prod(int(text) for text in block if text.isdigit())
        product = " * ".join([*names, *([str(fixed)] if fixed > 1 else [])])
        constraints = [f"{min(32, math.prod(first.block))} <= {product} <= {_LARGEST_BLOCK}"] if len(names) > 1 else []
        if has_rows or made.unrolls:
            copies = ["per_thread", *(["per_thread_y"] if has_rows else []), *([UNROLL] if made.unrolls else [])]
            constraints.append(f"{' * '.join(copies)} <= {_MOST_COPIES}")
        return parameters, [*constraints, *divided], grid, block

    def _virtual_threads(self, each: _Launched) -> list[str]:
        """Return how many threads there are along each axis, where a thread may do the work of several; or nothing.

        The numbers are written into the source, so that they have to be few. What is called would not be told which
        thread it is for.
        """
        if not each.is_free or each.kernel.asks_elsewhere or len(each.threads) > 1:
            return []
        if any(self._numbers.is_given(f"{each.name} threads_{axis}") for axis in _AXES):
            return []
        totals = each.threads[0]
        dimensions = max((axis + 1 for axis in range(3) if totals[axis] > 1), default=1)
        return [self._threads(each, axis) for axis in range(dimensions)]

    def _same(self, each: _Launched, values: Sequence[int], name: str) -> str:
        if len(set(values)) > 1:
            return name
        block = each.launches[0].block[_AXES.index(name[-1])] if name.startswith("grid") else 1
        text = self._numbers.text(f"{each.name} {name}", values, self._expression(values[0]), block=block)
        return name if text == GIVEN else text

    def _threads(self, each: _Launched, axis: int) -> str:
        """Return how many threads there are along an axis as an expression over sizes, or the number."""
        (total,), block = {threads[axis] for threads in each.threads}, each.launches[0].block[axis]
        name, found = f"threads_{_AXES[axis]}", str(total)
        # A size itself explains it better than a sum that happens to fit.
        sizes = set(self._sizes.values())
        for missing in sorted(range(block), key=lambda missing: missing > 0 and total - missing not in sizes):
            text = self._expression(total - missing)
            if not text.isdigit():
                found = text if not missing else f"({text} + {block - 1}) // {block} * {block}"
                break
        text = self._numbers.text(f"{each.name} {name}", [total], found, block=block)
        return name if text == GIVEN else text

    # -- text ----------------------------------------------------------------------------------

    def templates(self) -> dict[str, str]:
        """Return the text of each template by file."""
        return {f"{name}.cu.j2": each.text for name, each in self._templates.items()}

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes by name, those that are arguments of the program first."""
        named = {name: self._sizes[name] for name in self._sizes if name in self._named}
        return {**self._numbers.sizes, **named}

    @property
    def found_sizes(self) -> Mapping[str, int]:
        """The numbers that may be sizes, by name."""
        return self._sizes

    @property
    def layout(self) -> str:
        """What runs of the program at other sizes have to have in common with this one."""
        parts = [buffer.declared for buffer in self.buffers]
        parts += [repr([buffer.name for buffer in self.buffers if buffer.is_output])]
        for name, each in self._launched.items():
            _, _, grid, _ = self._geometries[name]
            parts += [name, *self._arguments(each), str(len(grid))]
        parts += [f"{name}: {seen.text}" for name, seen in self._numbers.seen.items() if not seen.is_of_steps]
        return "\n".join((*parts, *self.replay.lines, *self._finite))

    def save_data(self, folder: Path) -> None:
        """Write the data that the definition reads."""
        given: dict[str, Any] = {
            b.name: b.initial.reshape(-1, *map(int, b.shape[1:])) for b in self.buffers if b.initial is not None
        }
        np.savez_compressed(folder / "inputs.npz", **given)
        if self.tables:
            saved: dict[str, Any] = dict(self.tables)
            np.savez_compressed(folder / "steps.npz", **saved)

    def adopted(self, folder: Path) -> Adopted:
        """Return what was made."""
        kernels = {name: len(each.launches) for name, each in self._launched.items()}
        labels = {each.kernel.label for each in self._launched.values()}
        kept = tuple(each for each in self._classes.classes if each.kept and labels & set(each.kernels))
        parameters = tuple(self._parameters())
        sizes, notes = self.sizes, tuple(self.notes)
        draws, layout = self.draws, self.layout
        return Adopted(
            self._name, folder, kernels, self.buffers, parameters, kept, sizes, notes, self.caveats, layout, draws
        )

    def _parameters(self) -> Iterator[AdoptedParameter]:
        for name in dict.fromkeys(self._parameter_of.values()):
            classes = tuple(each for each in self._classes.classes if self._parameter_of.get(each.name) == name)
            is_used = any(name in self._of_kernel(each) for each in self._launched)
            if is_used:
                offered = [OFFERED[each.scalar] for each in classes]
                yield AdoptedParameter(name, max(offered, key=len), classes)

    def _of_kernel(self, name: str) -> list[str]:
        """Return the precision parameters of a kernel."""
        each, used = self._launched[name], set(self._templates[name].parameters)
        for parameter in each.parameters:
            if _numbers(parameter)[0] in _PRECISIONS:
                used.add(self._precision(each.kernel, parameter))
        return [p for p in dict.fromkeys(self._parameter_of.values()) if p in used]

    def definition(self, metric: str | None) -> str:
        """Return the text of the definition file.

        Raises:
            ProgramError: there is nothing to tune.
        """
        if not any(
            self._of_kernel(n) or self._geometries[n][0] or self._templates[n].has_policy for n in self._launched
        ):
            raise ProgramError(
                f"{self._name} has nothing to tune: no floating-point type that may change, and no kernel whose blocks "
                "may have another size"
            )
        source = _in_text(self._program.sources[0].name)
        launched = "; ".join(
            f"{n} {len(e.launches)} times" if len(e.launches) > 1 else n for n, e in self._launched.items()
        )
        parts = [
            f'"""{self._name}, adopted from {source}{self._as_run()}."""',
            self._imports(),
            f"HERE = Path(__file__).parent\n{self._tables()}{self._records()}",
            "# The types, each below what has it in the program.\n" + "\n".join(self._parameter_texts()),
            *(self._kernel_text(name) for name in self._launched),
            self._functions(),
            self._inputs(),
            f"def steps(run, size):\n{self._steps(launched)}",
            self._application_text(source, metric),
        ]
        return "\n\n".join(part.rstrip() for part in parts if part) + "\n"

    def _as_run(self) -> str:
        arguments = _in_text(" ".join(self._capture.arguments))
        return f", as it ran with the arguments {arguments}" if arguments else ""

    def _imports(self) -> str:
        names = {"Application", "Kernel", *(buffer.role for buffer in self.buffers)}
        names |= {"PrecisionParameter"} if self._parameter_of else set()
        names |= {"PolicyParameter"} if any(each.has_policy for each in self._templates.values()) else set()
        names |= {"OrdinalParameter"} if any(parameters for parameters, *_ in self._geometries.values()) else set()
        for each in self._launched.values():
            names |= {_ROLES[p.role] for p in each.parameters} | ({"Constant"} if self._constants_of(each) else set())
        names |= {"Scalar"} if self._has_draw else set()
        imports = _wrapped("from mptune import ", sorted(names), "", "")
        first = "import functools\nimport importlib\n" if self.sizes else ""
        return f"{first}from pathlib import Path\n\nimport numpy as np\n\n{imports}"

    @property
    def _has_draw(self) -> bool:
        """Whether the steps are told which draw it is."""
        return self.draws.of in ("computed", "numbers")

    def _functions(self) -> str:
        """Return the text of what the steps use besides."""
        used = "\n".join(self.replay.lines)
        return "\n\n\n".join(text for name, text in _FUNCTIONS.items() if f"{name}(run," in used)

    def _inputs(self) -> str:
        """Return the text of what makes the inputs."""
        given = "{}"
        if any(buffer.initial is not None for buffer in self.buffers):
            given = 'dict(data("inputs.npz", **size))' if self.sizes else 'dict(np.load(HERE / "inputs.npz"))'
        text = _INPUTS[self.draws.of if given != "{}" or self._has_draw else "nothing"]
        if self.draws.of == "data" and any(b.structs is not None and b.initial is not None for b in self.buffers):
            text = text.replace("    return given", f"{_STRUCTS}    return given")
        share = f"{100 * self.draws.by:g}%"
        return text.replace("GIVEN", given).replace("BY", repr(self.draws.by)).replace("SHARE", share)

    def _tables(self) -> str:
        if self.sizes:
            own = ", ".join(f'"{name}": {value}' for name, value in self.sizes.items())
            return _DATA.replace("SIZES", f"{{{own}}}")
        return (
            '#: Numbers that differ from launch to launch.\nTABLES = dict(np.load(HERE / "steps.npz"))'
            if self.tables
            else ""
        )

    @property
    def tables(self) -> dict[str, NDArray[Any]]:
        """The numbers that the steps look up, by name."""
        axes = {buffer.name: tuple(map(int, buffer.shape[1:])) for buffer in self.buffers}
        given = {
            f"{name}_given": np.stack([each.reshape(-1, *axes[name]) if axes.get(name) else each for each in values])
            for name, values in self._later.items()
        }
        return {**self.replay.tables, **given, **{f"{name}_is_finite": where for name, where in self._finite.items()}}

    def _records(self) -> str:
        """Return the text of what is known of buffers of structs."""
        found = [buffer for buffer in self.buffers if buffer.structs is not None and buffer.structs.fields]
        if not found:
            return ""
        lines = ["", "#: How the program lays out the structs that are in buffers.", "RECORDS = {"]
        for buffer in found:
            assert buffer.structs is not None
            lines.append(f'    "{buffer.name}": np.dtype({{')
            fields = buffer.structs.fields
            for key, values in (
                ("names", [number.name for number in fields]),
                ("formats", [_format(number) for number in fields]),
                ("offsets", [number.offset for number in fields]),
            ):
                lines.append(_broken(f'        "{key}": {values},'.replace("'", '"')))
            lines.append(f'        "itemsize": {buffer.structs.bytes},')
            lines.append("    }),")
        return "\n".join([*lines, "}"])

    def _parameter_texts(self) -> Iterator[str]:
        for parameter in self._parameters():
            types = ", ".join(f'"{each}"' for each in parameter.types)
            yield f"# {_listed(parameter.members)}"
            yield f'{parameter.name} = PrecisionParameter("{parameter.name}", [{types}])'

    def _kernel_text(self, name: str) -> str:
        each, made = self._launched[name], self._templates[name]
        parameters, constraints, grid, block = self._geometries[name]
        policy = 'PolicyParameter("policy", ["accurate"])' if each.is_fixed else 'PolicyParameter("policy")'
        names = [*self._of_kernel(name), *parameters, *([policy] if made.has_policy else [])]
        shared = self._shared[name]
        lines = [
            f'name="{name}",',
            *([f'function="{made.function}",'] if made.function != name else []),
            _wrapped("parameters=", names, "[", "],"),
            "arguments=[",
            *(f"    {text}," for text in self._arguments(each)),
            "],",
            f"grid={_strings(grid)},",
            f"block={_strings(block)},",
            *([f"shared_bytes={shared if shared.isdigit() else _quoted(shared)},"] if shared != "0" else []),
            *([f"constraints={_strings(constraints)},"] if constraints else []),
            f'template="{name}.cu.j2",',
        ]
        body = "\n".join(lines)
        return f"{name} = Kernel(\n{textwrap.indent(body, '    ')}\n)"

    def _shared_bytes(self, each: _Launched) -> str:
        values, name = [one.shared_bytes for one in each.launches], "shared_bytes"
        if len(set(values)) > 1:
            return name
        text = self._numbers.text(f"{each.name} {name}", values, str(values[0]))
        return name if text == GIVEN else text

    def _arguments(self, each: _Launched) -> Iterator[str]:
        for index, parameter in enumerate(each.parameters):
            scalar = _numbers(parameter)[0]
            type_of_it = f'dtype="{_INTEGERS.get(scalar, "int32")}"'
            if scalar in _PRECISIONS:
                type_of_it = f"precision={_quoted(self._precision(each.kernel, parameter))}"
            elif parameter.is_pointer:
                type_of_it = f'dtype="{self._buffer_of[each.values(index)[0].allocation].dtype}"'
            if not parameter.is_pointer:
                yield f'Scalar("{parameter.name}", {type_of_it})'
                continue
            shapes = {self._buffer_of[pointer.allocation].shape for pointer in each.values(index)}
            shape = shapes.pop() if len(shapes) == 1 else (f"{parameter.name}_size",)
            text = f'"{shape[0]}"' if len(shape) == 1 else f"({', '.join(map(_quoted, shape))})"
            yield f'{_ROLES[parameter.role]}("{parameter.name}", {text}, {type_of_it})'
        for name in each.offsets:
            yield f'Scalar("{name}_offset", dtype="int64")'
        for symbol in self._constants_of(each):
            declared, stored = self._symbol_type(symbol)
            yield f'Constant("{symbol.name}", {symbol.bytes // np.dtype(stored).itemsize}, {declared})'

    def _steps(self, launched: str) -> str:
        lines = [f'"""What the program launched: {launched}."""']
        if self.sizes and self.tables:
            lines += [
                "# Numbers that differ from launch to launch, and from size to size.",
                'given = data("steps.npz", **size)',
            ]
        lines += self.replay.lines
        fields = [buffer for buffer in self.buffers if buffer.field_of is not None]
        names = dict.fromkeys(buffer.field_of[0] for buffer in fields if buffer.field_of is not None)
        lines += (f'{name}_structs = run.read(run.{name}).view(RECORDS["{name}"])' for name in names)
        for buffer in fields:
            assert buffer.field_of is not None
            axes = ", ".join(["-1", *buffer.shape[1:]])
            lines.append(
                f'run.write(run.{buffer.name}, {buffer.field_of[0]}_structs["{buffer.field_of[1]}"].reshape({axes}))'
            )
        if self._finite:
            lines.append("# What is not finite in the program's own answer is not compared.")
        lines += (
            f'run.write(run.{name}, np.where(TABLES["{name}_is_finite"], run.read(run.{name}), 0))'
            for name in self._finite
        )
        if self.sizes:
            lines = [line.replace('TABLES["', 'given["') for line in lines]
        return "\n".join(_broken(f"    {line}") for line in lines)

    def _application_text(self, source: str, metric: str | None) -> str:
        outputs = [buffer.name for buffer in self.buffers if buffer.is_output]
        sizes = ", ".join(f'"{name}": {value}' for name, value in self.sizes.items())
        return "\n".join(
            (
                "application = Application(",
                f'    name="{self._name}",',
                f"    {_wrapped('kernels=', list(self._launched), '[', '],')}",
                "    buffers=[",
                *(f"        {buffer.declared}," for buffer in self.buffers),
                *(['        Scalar("draw", dtype="int64"),'] if self._has_draw else []),
                "    ],",
                f'    sizes={{"default": {{{sizes}}}}},',
                "    inputs=inputs,",
                "    steps=steps,",
                f"    outputs={_strings(outputs)},",
                *([f"    metric={metric!r},"] if metric else []),
                *(["    instrumented=True,"] if self._parameter_of else []),
                f'    description="adopted from {source}",',
                ")",
            )
        )


_ROLES: Final = {"in": "In", "out": "Out", "inout": "InOut", "scalar": "Scalar"}
_DATA: Final = '''
#: The sizes of the run that was adopted.
OWN = SIZES


@functools.cache
def data(file, **size):
    """Return the arrays of a file that a run of the program at a size has left; it is run if it was not yet."""
    folder = HERE if size == OWN else HERE / "_".join(f"{name}{value}" for name, value in size.items())
    if not (folder / file).is_file():
        importlib.import_module("mptune.adopt.sizes").run_at(HERE, size)
    with np.load(folder / file) as found:
        return {name: values if values.ndim else values[()] for name, values in found.items()}
'''.strip()
#: What the steps use besides what every run of steps offers.
_FUNCTIONS: Final = {
    "put": '''
def put(run, buffer, start, count, values):
    """Write to a part of a buffer, from an element on."""
    whole = np.array(run.read(buffer))
    whole.reshape(-1)[start : start + count] = values
    run.write(buffer, whole)
'''.strip(),
    "move": '''
def move(run, source, target, start, to, count):
    """Copy a part of a buffer, from an element on, to a part of another one, or of the same."""
    whole = np.array(run.read(target))
    whole.reshape(-1)[to : to + count] = np.array(run.read(source)).reshape(-1)[start : start + count]
    run.write(target, whole)
'''.strip(),
}
_DRAW: Final = '''

def inputs(rng, size):
    """What the program copied to the device, and which draw it is."""
    given = GIVEN
    is_first = not rng.bit_generator.seed_seq.spawn_key
    return {**given, "draw": 0 if is_first else int(rng.integers(1, 1 << 31))}
'''
#: The text of what makes the inputs, by what is changed in every draw but the first.
_INPUTS: Final = {
    "data": '''
def inputs(rng, size):
    """What the program copied to the device; in every draw but the first, each number is up to SHARE off."""
    given = GIVEN
    if rng.bit_generator.seed_seq.spawn_key:
        for name, values in given.items():
            if values.dtype.kind == "f":
                given[name] = values * (1 + BY * rng.uniform(-1, 1, values.shape))
    return given
'''.strip(),
    "computed": '''
def vary(run, *buffers):
    """Change what was computed, in every draw but the first: each number by up to SHARE."""
    if run.draw:
        rng = np.random.default_rng(run.draw)
        for buffer in buffers:
            values = run.read(buffer)
            run.write(buffer, values * (1 + BY * rng.uniform(-1, 1, values.shape)))
'''.strip()
    + "\n"
    + _DRAW.rstrip(),
    "numbers": '''
def near(run, number):
    """Return a number; in every draw but the first one that is up to SHARE off, always the same for the same."""
    if not run.draw:
        return number
    rng = np.random.default_rng([run.draw, *np.float64(number).tobytes()])
    return number * (1 + BY * rng.uniform(-1, 1))
'''.strip()
    + "\n"
    + _DRAW.rstrip(),
    "nothing": '''
def inputs(rng, size):
    """What the program copied to the device; there is nothing to change for fresh inputs."""
    return GIVEN
'''.strip(),
}


_STRUCTS: Final = """
        for name in [name for name in RECORDS if name in given]:
            given[name] = given[name].copy()
            structs = given[name].view(RECORDS[name])
            for field in structs.dtype.names:
                if structs[field].dtype.kind == "f":
                    structs[field] *= 1 + BY * rng.uniform(-1, 1, structs[field].shape)
""".lstrip("\n")


def _flattened(kernel: Kernel) -> tuple[Parameter, ...]:
    """Return the parameters of a kernel as its template has them: of a struct, its fields."""
    leaves = (leaf for parameter in kernel.parameters for leaf, _ in fields_of(parameter))
    return tuple(dataclasses.replace(leaf, name=leaf.flat) for leaf in leaves)


def _kernel_of(program: Program, launch: Launch) -> Kernel:
    """Return the kernel that was launched: that of the place in the source, since names may be a template's."""
    name = re.sub(r"<.*", "", launch.kernel).strip()
    sites = [
        site
        for site in program.launches
        if site.extent.file.name == launch.file.name and re.sub(r"<.*", "", site.kernel) == name
    ]
    near = sorted(sites, key=lambda site: abs(site.extent.line - launch.line))
    labels = [near[0].kernel] if near else []
    here = [site.kernel for site in near if site.extent == near[0].extent]
    if len(here) > 1:  # in a template of the host
        labels = _instantiation(program, launch, here)
        if len(labels) > 1:
            raise ProgramError(
                f"{near[0].extent}: several instantiations of {name} are launched in one place, which cannot be "
                "told from each other; launch each in a place of its own"
            )
    labels += [kernel.label for kernel in program.kernels if kernel.name == name]
    for label in labels:
        try:
            return program.kernel(label)
        except KeyError:
            continue
    raise ProgramError(
        f"{launch.file.name}:{launch.line}: the kernel {launch.kernel} is not among those that were read"
    )


def _instantiation(program: Program, launch: Launch, labels: Sequence[str]) -> list[str]:
    """Return the instantiations of a kernel that a launch can be of, by its template arguments or its types."""
    named = [label for label in labels if _without_spaces(label) == _without_spaces(launch.kernel)]
    if named:
        return named
    types = [_without_spaces(each) for each in launch.types]
    agreeing = {
        kernel.label: sum(
            _without_spaces(one.canonical) == other for one, other in zip(kernel.parameters, types, strict=False)
        )
        for kernel in program.kernels
        if kernel.label in labels
    }
    return [label for label in agreeing if agreeing[label] == max(agreeing.values())]


def _passed_by(kernel: Kernel, launch: Launch) -> Iterator[tuple[Parameter, str, Scalar | Place | str | None]]:
    """Yield what a launch passes a kernel, of a struct each field: the parameter, its struct, and what it is.

    Raises:
        ProgramError: a struct has more than numbers and pointers.
    """
    where = f"{launch.file.name}:{launch.line}: kernel {kernel.label}"
    if len(launch.arguments) < len(kernel.parameters):
        left_out = kernel.parameters[len(launch.arguments)].name
        raise ProgramError(
            f"{launch.file.name}:{launch.line}: {kernel.name} is launched without {left_out}, which has a default; "
            "write it out"
        )
    for parameter, value in zip(kernel.parameters, launch.arguments, strict=True):
        if not isinstance(value, Structure):
            yield parameter, "", value
            continue
        if parameter.element.startswith(("cuda", "hip")):
            raise ProgramError(
                f"{where} takes a {parameter.element} by value, which is CUDA's own, and cannot be adopted; pass what "
                "is in it"
            )
        try:
            places, size, _ = layout_of(parameter, lambda leaf, _: _size(leaf.element))
        except (KeyError, ValueError):
            places, size = [], -1
        if size != len(value.data):
            raise ProgramError(
                f"{where} takes the struct {parameter.name} by value, which has more than numbers and pointers and "
                "cannot be adopted; pass its fields"
            )
        for (leaf, place), (_, struct) in zip(places, fields_of(parameter), strict=True):
            yield leaf, struct, _field(leaf, value, place)


def _field(leaf: Parameter, value: Structure, place: int) -> Scalar | Place | str | None:
    """Return what a field of a struct is."""
    if leaf.is_pointer:
        return value.pointers.get(place, "unknown" if any(value.data[place : place + 8]) else None)
    kind = np.dtype(_INTEGERS.get(leaf.element) or _NUMPY[leaf.element])
    return Scalar(f"{kind.kind}{kind.itemsize}", value.data[place : place + kind.itemsize])


def _memory(parameter: Parameter) -> Memory:
    assert parameter.memory is not None
    return parameter.memory


def _numbers(parameter: Parameter) -> tuple[str, int]:
    """Return the type of the numbers that a parameter is or points at, and how many an element has."""
    return parameter.memory.numbers if parameter.memory is not None else _scalar(parameter.element)


def _record(memory: Memory) -> np.dtype[Any]:
    """Return the type of a struct for NumPy."""
    return np.dtype(
        {
            "names": [number.name for number in memory.fields],
            "formats": [_format(number) for number in memory.fields],
            "offsets": [number.offset for number in memory.fields],
            "itemsize": memory.bytes,
        }
    )


def _format(number: Field) -> str:
    kind = np.dtype(_INTEGERS.get(number.scalar) or _NUMPY[number.scalar]).str[1:]
    return f"{number.count}{kind}" if number.count > 1 else kind


def _scalar(element: str) -> tuple[str, int]:
    """Return the type of the numbers in an element of an array, and how many they are."""
    found = _VECTOR.fullmatch(element)
    return (found[1], int(found[2])) if found else (element, 1)


def _size(element: str) -> int:
    """Return the bytes of an element."""
    scalar, components = _scalar(element)
    return components * np.dtype(_INTEGERS.get(scalar) or _NUMPY[scalar]).itemsize


def _without_spaces(name: str) -> str:
    """Return the name of a type or a kernel without what two compilers write differently."""
    name = re.sub(r"\b(const|__restrict(__)?)\b", "", name)
    name = _WHOLE.sub(lambda found: _in_order(found[0].split()), name)
    return re.sub(r"\s", "", name)


def _in_order(words: Sequence[str]) -> str:
    """Return the words of a type of whole numbers (``long unsigned int``) in one order."""
    return "".join(sorted(word for word in words if word != "int" or len(words) == 1))


def _in_text(text: str) -> str:
    """Return a text as it stands between quotation marks in Python."""
    return "".join(
        f"\\{each}" if each in '"\\' else each if each.isprintable() else f"\\U{ord(each):08x}" for each in text
    )


def _quoted(text: str) -> str:
    return f'"{text}"'


def _strings(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_quoted, texts))}]"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _wrapped(before: str, items: Sequence[str], opening: str, closing: str) -> str:
    """Return a list on one line, or on as many as it has items."""
    line = f"{before}{opening}{', '.join(items)}{closing}"
    if len(line) <= _WIDTH - 8:
        return line
    opening, closing = opening or "(", closing or ")"
    return "\n".join((f"{before}{opening}", *(f"    {item}," for item in items), closing))


def _broken(line: str) -> str:
    """Return a line of a function's body, a call that is too long for it broken after commas."""
    if len(line) <= _WIDTH:
        return line
    indent = line[: len(line) - len(line.lstrip())] + "    "
    return "\n".join(
        textwrap.wrap(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    )
