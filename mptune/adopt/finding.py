"""Finding out what a definition is made of, from a program and a run of it: kernels, buffers and calls."""

from __future__ import annotations

import dataclasses
import keyword
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from mptune.adopt.blocks import UNROLL
from mptune.adopt.capture import FOR_KERNEL, FOR_LIBRARY, Allocation, Capture, Copy, Fill, Launch, Place
from mptune.adopt.classes import OFFERED, TypeClass, TypeClasses
from mptune.adopt.findings import (
    AdoptedBuffer,
    AdoptedKernel,
    AdoptedParameter,
    Argument,
    Draws,
    Findings,
    Geometry,
    record_of,
)
from mptune.adopt.launched import (
    AXES,
    INTEGERS,
    NUMPY,
    LaunchedKernel,
    bytes_of,
    find_launched,
    numbers_of,
)
from mptune.adopt.live import SHARED
from mptune.adopt.number_types import PRECISIONS, vector_of
from mptune.adopt.parsing import KernelRefusedError, ProgramError, Refusal
from mptune.adopt.progress import Turns, came_to_nothing
from mptune.adopt.reading import Memory, Parameter, Program
from mptune.adopt.sizes import FoundSizes
from mptune.adopt.template import Template, class_of, template
from mptune.kernel.application import TAKEN
from mptune.precision import POLICIES

#: Names that a definition file may have of its own.
_OF_MODULE: Final = ("AdoptedApplication", "HERE", "Live", "Path", "application", "steps")
_ROLES: Final = {"in": "In", "out": "Out", "inout": "InOut", "scalar": "Scalar"}
_BLOCKS: Final = (32, 64, 128, 256, 512, 1024)
_SMALL_BLOCKS: Final = (1, 2, 4, 8, 16)
_LARGEST_BLOCK: Final = 1024
#: Of how many threads of the program a thread does the work.
_PER_THREAD: Final = (1, 2, 4, 8, 16, 32, 64)
_ROWS_PER_THREAD: Final = (1, 2, 4, 8)
_UNROLLS: Final = (1, 2, 4, 8, 16)
#: How often what a thread of the program does may be written out: compilers take minutes over more.
_MOST_COPIES: Final = 256
#: What a search can number, with some room left.
_MOST_CONFIGURATIONS: Final = 10**18


def find(
    program: Program,
    classes: TypeClasses,
    parameter_of: Mapping[str, str],
    capture: Capture,
    sizes: FoundSizes,
) -> Findings:
    """Find out what a definition of a program is made of; see :func:`mptune.adopt.writing.write` for the arguments.

    Raises:
        KernelRefusedError: what a kernel did cannot be adopted.
        ProgramError: no kernel that is adopted computes what the program copies back.
    """
    known = _Known(program, classes, parameter_of, capture)
    launched, launch_at = find_launched(program, capture, lambda kernel: known.unused(kernel.identifier, _OF_MODULE))
    if program.macros:  # the user says what is tuned of the launches
        launched = [dataclasses.replace(each, has_fixed_blocks=True) for each in launched]
    launched = _with_own_blocks(known, launched)
    memory = _buffers(known, launched)
    used = {need.name for each in launched for need in each.kernel.needs if need.kind in ("constant", "device")}
    symbols = [each for each in capture.allocations.values() if each.kind == "symbol" and each.name in used]
    kernels = {each.launched.name: each for each in _kernels(known, launched, memory, symbols, sizes.other_blocks)}
    given, computed = _given_and_computed(capture, launched)
    results = {number: each for number, each in _results(known, launched, memory).items() if number in computed}
    if not results:
        raise ProgramError(
            "nothing that the program copies back is computed by kernels that are adopted; copy back what these write"
        )
    progress = _progress(capture, {number: memory[number] for number in results})
    buffers = [
        dataclasses.replace(
            buffer,
            is_given=number in given,
            is_written=number in computed,
            is_output=number in results and buffer.name not in progress,
            results=results.get(number, {}) if buffer.name not in progress else {},
        )
        for number, buffer in memory.items()
    ]
    labels = {each.kernel.label for each in launched}
    return Findings(
        kernels=kernels,
        buffers=tuple(_with_fields(known, buffers)),
        parameters=tuple(_parameters(known, kernels.values())),
        kept=tuple(each for each in classes.classes if each.kept and labels & set(each.kernels)),
        sizes=sizes.arguments,
        launch_at=launch_at,
        progress=progress,
        draws=_draws(known, buffers, symbols, kernels.values()),
        looks_early=_looks_early(capture),
        notes=tuple(known.notes),
    )


# -- names and types -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    """What is given, with what is gathered on the way.

    Attributes:
        taken: the names that nothing else can have.
        notes: what a user should know.
    """

    program: Program
    classes: TypeClasses
    parameter_of: Mapping[str, str]
    capture: Capture
    taken: set[str] = field(default_factory=lambda: {*TAKEN, *keyword.kwlist, "draw"})
    notes: list[str] = field(default_factory=list)

    def unused(self, wanted: str, others: Collection[str] = ()) -> str:
        """Return a name that is not taken yet, and take it."""
        name, number = wanted, 2
        while name in self.taken or name in others:
            name, number = f"{wanted}_{number}", number + 1
        self.taken.add(name)
        return name

    def precision(self, each: LaunchedKernel, parameter: Parameter) -> str:
        """Return the precision parameter of a kernel's parameter, or its fixed precision."""
        found = class_of(self.classes, *each.owners[parameter.name])
        if found is None and parameter.memory is not None and parameter.memory.fields:
            found = self._class_in(parameter.memory)
        return self._precision_of(found, numbers_of(parameter)[0])

    def symbol(self, symbol: Allocation) -> tuple[str, str]:
        """Return the type of a variable in the device's memory in the program, and its precision; "" for integers."""
        for found in reversed(self.classes.classes):
            if any((member.function, member.name) == ("", symbol.name) for member in found.members):
                return found.scalar, self._precision_of(found, found.scalar)
        uses = [(n, kernel) for kernel in self.program.kernels for n in kernel.needs if n.name == symbol.name]
        for need, _ in uses:
            if need.memory is not None and not need.memory.has_pointers:
                scalar = need.memory.numbers[0]
                if scalar in INTEGERS:
                    return scalar, ""
                if scalar in NUMPY:
                    return scalar, self._precision_of(self._class_in(need.memory), scalar)
        need, kernel = uses[0]
        what = f"uses {symbol.name}, a variable of a type that cannot be adopted"
        raise KernelRefusedError(Refusal(need.extent, what, "use arrays of numbers", kernel.label))

    def _class_in(self, memory: Memory) -> TypeClass | None:
        """Return the class of the numbers that structs in memory are made of."""
        return class_of(self.classes, memory.fields[0].name, memory.fields[0].struct)

    def _precision_of(self, found: TypeClass | None, scalar: str) -> str:
        parameter = self.parameter_of.get(found.name) if found is not None else None
        return parameter or PRECISIONS[scalar]


# -- kernels -------------------------------------------------------------------------------------


def _with_own_blocks(known: _Known, launched: Iterable[LaunchedKernel]) -> list[LaunchedKernel]:
    """Let the kernels that do least have the program's own blocks, where there would be too many configurations."""
    found = {each.name: each for each in launched}
    # Buffers have one type in all kernels, everything else has one in each.
    typed = [(known.parameter_of[c.name], c) for c in known.classes.classes if c.name in known.parameter_of]
    of_all = {parameter for parameter, c in typed if c.role == "buffer"}
    in_each = [{p for p, c in typed if each.kernel.label in c.kernels} - of_all for each in found.values()]
    room = _MOST_CONFIGURATIONS // len(OFFERED["double"]) ** (len(of_all) + sum(map(len, in_each)))
    room //= len(POLICIES) ** len(found)
    free = [each for each in found.values() if each.is_free]
    for each in sorted(free, key=lambda each: -sum(math.prod(launch.threads) for launch in each.launches)):
        tiles = len(_PER_THREAD) * len(_ROWS_PER_THREAD) * len(_UNROLLS)
        configurations = tiles * (len(_BLOCKS) + len(_SMALL_BLOCKS)) ** each.dimensions
        if configurations > room:
            found[each.name] = dataclasses.replace(each, has_fixed_blocks=True)
            known.notes.append(f"{each.name} has the program's own blocks: there are too many kernels to search all")
        else:
            room //= configurations
    return list(found.values())


def _kernels(
    known: _Known,
    launched: Sequence[LaunchedKernel],
    memory: Mapping[int, AdoptedBuffer],
    constants: Collection[Allocation],
    other_blocks: Collection[str],
) -> Iterator[AdoptedKernel]:
    for each in launched:
        threads = _virtual_threads(each)
        is_other = each.kernel.name in other_blocks or known.program.macros
        in_block = _LARGEST_BLOCK if is_other else max(map(math.prod, each.blocks))
        made = template(
            *(known.program, each.kernel, known.classes, known.parameter_of, each.offsets, threads, in_block),
            *(each.nulls, each.apart, {symbol.name for symbol in constants}),
        )
        used = {known.precision(each, p) for p in each.parameters if numbers_of(p)[0] in PRECISIONS} | made.parameters
        precisions = tuple(name for name in dict.fromkeys(known.parameter_of.values()) if name in used)
        arguments = tuple(_arguments(known, each, memory, constants))
        most = in_block if each.kernel.has_barrier else 0
        geometry = _geometry(each, threads, made, AXES if known.program.macros else AXES[: each.dimensions])
        yield AdoptedKernel(each, made, precisions, arguments, geometry, most)


def _parameters(known: _Known, kernels: Collection[AdoptedKernel]) -> Iterator[AdoptedParameter]:
    """Yield the precision parameters that kernels have."""
    for name in dict.fromkeys(known.parameter_of.values()):
        if any(name in each.precisions for each in kernels):
            classes = tuple(each for each in known.classes.classes if known.parameter_of.get(each.name) == name)
            yield AdoptedParameter(name, min((each.types for each in classes), key=len), classes)


def _named(each: LaunchedKernel, number: str) -> str:
    """Return the name of a number of a launch's shape, which no parameter of the kernel has."""
    names = {parameter.name for parameter in each.parameters}
    while number in names:
        number += "_"
    return number


def _virtual_threads(each: LaunchedKernel) -> list[str]:
    """Return the names of the numbers of threads along each axis if a thread may do the work of several, else nothing.

    The numbers are written into the source, so there must be one of each. A function called by the kernel would not be
    told for which thread it works.
    """
    is_alone = len(each.threads) == 1 and math.prod(each.threads[0]) == 1
    if not each.is_free or each.kernel.asks_elsewhere or len(each.threads) > 1 or is_alone:
        return []
    return [_named(each, f"threads_{axis}") for axis in AXES[: each.dimensions]]


def _geometry(each: LaunchedKernel, threads: Sequence[str], made: Template, axes: Sequence[str]) -> Geometry:
    """Return how a kernel is launched."""
    has_shared = any(launch.shared_bytes for launch in each.launches)
    shared = _named(each, SHARED) if has_shared else ""
    extents = {shared: SHARED} if shared else {}
    if not each.is_free:
        grid, block = ([_named(each, f"{what}_{axis}") for axis in axes] for what in ("grid", "block"))
        keys = [f"{what}_{axis}" for what in ("grid", "block") for axis in axes]
        return Geometry(
            {}, {}, (), tuple(grid), tuple(block), shared, dict(zip((*grid, *block), keys, strict=True)) | extents
        )
    totals = [_named(each, f"threads_{axis}") for axis in axes]
    has_rows = made.is_tiled and len(axes) > 1
    choices: dict[str, Sequence[int]] = {
        **({"per_thread": _PER_THREAD} if threads else {}),
        **({"per_thread_y": _ROWS_PER_THREAD} if has_rows else {}),
        **({UNROLL: _UNROLLS} if made.unrolls else {}),
    }
    copies = " * ".join(choices)
    own = dict.fromkeys(choices, 1)
    found, block, divided = [], [], []
    for axis, total in enumerate(totals):
        values = _widths(each, axis, is_divided=not threads)
        width = str(values[0])
        if len(values) > 1:
            width = "block" if len(axes) == 1 else f"block_{AXES[axis]}"
            choices[width], own[width] = values, each.blocks[0][axis]
        block.append(width)
        if threads:
            of_each = " * per_thread" if axis == 0 else " * per_thread_y" if has_rows and axis == 1 else ""
            found.append(f"ceildiv({total}, {width}{of_each})")
        else:
            found.append(f"{total} // {width}" if width != "1" else total)
            divided += [f"{total} % {width} == 0"] if width != "1" else []
    constraints = []
    names = [text for text in block if not text.isdigit()]
    if len(names) > 1:
        fixed = math.prod(int(text) for text in block if text.isdigit())
        product = " * ".join([*names, *([str(fixed)] if fixed > 1 else [])])
        constraints.append(f"{min(32, math.prod(each.launches[0].block))} <= {product} <= {_LARGEST_BLOCK}")
    if has_rows or made.unrolls:
        constraints.append(f"{copies} <= {_MOST_COPIES}")
    extents |= {name: f"threads_{axis}" for name, axis in zip(totals, axes, strict=True)}
    return Geometry(choices, own, (*constraints, *divided), tuple(found), tuple(block), shared, extents)


def _widths(each: LaunchedKernel, axis: int, *, is_divided: bool) -> list[int]:
    """Return how many threads a block may have along an axis."""
    totals, own = {threads[axis] for threads in each.threads}, {block[axis] for block in each.blocks}
    values = {*own, *_BLOCKS}
    if each.dimensions == 1:
        values = {width for width in values if width >= min(32, *own)}
    else:
        values |= set(_SMALL_BLOCKS)
    if is_divided:
        values = {width for width in values if all(total % width == 0 for total in totals)}
    return sorted(width for width in values if width <= max(totals) or width in own)


def _arguments(
    known: _Known, each: LaunchedKernel, buffers: Mapping[int, AdoptedBuffer], constants: Collection[Allocation]
) -> Iterator[Argument]:
    """Yield the arguments of a kernel."""
    for index, parameter in enumerate(each.parameters):
        scalar = numbers_of(parameter)[0]
        precision = known.precision(each, parameter) if scalar in PRECISIONS else ""
        shape: tuple[str, ...] = ()
        dtype = INTEGERS.get(scalar, "int32")
        if parameter.is_pointer:
            shape = (_named(each, f"{parameter.name}_elements"),)
            dtype = buffers[each.values(index)[0].allocation].dtype
        role = _ROLES[parameter.role] if parameter.is_pointer else "Scalar"
        yield Argument(role, parameter.name, shape, precision, "" if precision else dtype)
    for name in each.offsets.values():
        yield Argument("Scalar", name, (), "", "int64")
    names = {need.name for need in each.kernel.needs if need.kind in ("constant", "device")}
    for symbol in (symbol for symbol in constants if symbol.name in names):
        scalar, precision = known.symbol(symbol)
        yield Argument("Constant", symbol.name, symbol.bytes // bytes_of(scalar), precision, INTEGERS.get(scalar, ""))


# -- buffers -------------------------------------------------------------------------------------


def _buffers(known: _Known, launched: Iterable[LaunchedKernel]) -> dict[int, AdoptedBuffer]:
    """Return the memory that kernels are passed, by its number, as it is before anything is in it."""
    uses: dict[int, list[tuple[LaunchedKernel, Parameter]]] = {}
    for each in launched:
        for index, parameter in each.pointers:
            for allocation in dict.fromkeys(place.allocation for place in each.values(index)):
                uses.setdefault(allocation, []).append((each, parameter))
    found: dict[int, AdoptedBuffer] = {}
    for allocation, passed in sorted(uses.items(), key=lambda use: use[0]):
        each, parameter = passed[0]
        name = known.unused(_host_name(known, each, parameter) or parameter.name)
        memory = _common_memory(passed)
        scalar, components = memory.numbers[0], memory.components
        elements = known.capture.allocations[allocation].bytes // bytes_of(scalar) // components
        found[allocation] = AdoptedBuffer(
            allocation,
            name,
            scalar,
            (str(elements), *([str(components)] if components > 1 else [])),
            elements * components,
            known.precision(each, parameter) if scalar in PRECISIONS else "",
            INTEGERS.get(scalar, ""),
            memory if memory.is_mixed else None,
            has_fields=components > 1 and len(memory.fields) > 1 and bool(memory.declared),
        )
    return found | {each.allocation: each for each in _buffers_of_libraries(known, found)}


def _buffers_of_libraries(known: _Known, others: Collection[int]) -> Iterator[AdoptedBuffer]:
    """Yield the memory that only calls of libraries are passed and the program copies back."""
    copied = {copy.source.allocation for copy in known.capture.outputs if copy.source is not None}
    for allocation, copy in known.capture.of_libraries.items():
        if allocation in others or allocation not in copied or not copy.element:
            continue
        scalar, components = vector_of(copy.element) or (copy.element, 1)
        elements = known.capture.allocations[allocation].bytes // bytes_of(copy.element)
        yield AdoptedBuffer(
            allocation,
            known.unused(re.sub(r"\W+", "_", f"{copy.library}_output")),
            scalar,
            (str(elements), *([str(components)] if components > 1 else [])),
            elements * components,
            PRECISIONS.get(scalar, ""),
            INTEGERS.get(scalar, ""),
        )


def _host_name(known: _Known, each: LaunchedKernel, parameter: Parameter) -> str:
    """Return what the program calls the memory it passes, where it first launches a kernel; or nothing."""
    names = [own.name for own in each.kernel.parameters]
    place = names.index(parameter.name) if parameter.name in names else -1
    for site in known.program.launches:
        if site.kernel == each.kernel.label and 0 <= place < len(site.arguments):
            text = known.program.text(site.arguments[place])
            return text if text.isidentifier() and text not in known.taken else ""
    return ""


def _common_memory(passed: Sequence[tuple[LaunchedKernel, Parameter]]) -> Memory:
    """Return what an element is made of that is passed as several parameters.

    Raises:
        KernelRefusedError: these do not agree, or it cannot be adopted.
    """

    def refused(each: LaunchedKernel, parameter: Parameter, what: str, remedy: str) -> KernelRefusedError:
        return KernelRefusedError(Refusal(parameter.extent, what, remedy, each.kernel.label))

    memories = [parameter.memory for _, parameter in passed if parameter.memory is not None]
    scalars = {memory.numbers[0]: other for memory, other in zip(memories, passed, strict=True)}
    if len(scalars) > 1 and not scalars.keys() <= INTEGERS.keys():
        (_, one), (kernel, other) = list(scalars.values())[:2]
        what = f"takes memory of {one.element} ({one.name}, {one.extent}) for {other.element} ({other.name})"
        raise refused(kernel, other, what, "give them memory of their own")
    first = memories[0]
    memory = next((memory for memory in memories if memory.is_mixed), first)
    if first.has_pointers or memory.numbers[0] not in (*NUMPY, *INTEGERS):
        kernel, parameter = passed[0]
        what = f"is given memory of {'pointers' if first.has_pointers else first.name} as {parameter.name}"
        raise refused(kernel, parameter, what, "use arrays of numbers")
    return memory


def _results(
    known: _Known, launched: Iterable[LaunchedKernel], buffers: Mapping[int, AdoptedBuffer]
) -> dict[int, dict[int, NDArray[Any]]]:
    """Return what the outputs are at the end: what the program copied back, or else what kernels wrote."""
    if known.capture.copies_nothing:
        known.notes.append("the program copies nothing back: what its kernels wrote is compared")
    found: dict[int, dict[int, NDArray[Any]]] = {}
    for copy in known.capture.outputs:
        if copy.source is None or copy.source.allocation not in buffers:
            continue
        buffer, pieces = buffers[copy.source.allocation], found.setdefault(copy.source.allocation, {})
        if copy.contents is not None:
            values = known.capture.contents(copy.contents)[: buffer.bytes - copy.source.offset]
            pieces[copy.source.offset // buffer.stored.itemsize] = _numbers_in(values, buffer.stored)
    seen = _seen(known, launched) if known.program.originals else set(found)
    return {number: pieces for number, pieces in found.items() if number in seen} or found


def _numbers_in(data: NDArray[np.uint8], type: np.dtype[Any]) -> NDArray[Any]:
    """Return the numbers of a type that are as a whole in data."""
    return data[: data.size // type.itemsize * type.itemsize].view(type)


def _progress(capture: Capture, outputs: Mapping[int, AdoptedBuffer]) -> tuple[str, ...]:
    """Return the names of outputs that only say how far a loop has come.

    The loop of a trial takes as many turns as it takes: all of a residual is another one then, however long it is.
    """
    answer: dict[str, Turns] = {}
    for number, turns in capture.turns.items():
        if (buffer := outputs.get(number)) is not None:
            data = map(capture.joined, turns)
            answer[buffer.name] = [None if each is None else _numbers_in(each, buffer.stored) for each in data]
    return came_to_nothing(answer)


def _seen(known: _Known, launched: Iterable[LaunchedKernel]) -> set[int]:
    """Return the memory of plain C++ that not only its loops look at."""
    scratch = {(loop.kernel, name) for loop in known.program.loops for name in loop.scratch}
    return {
        place.allocation
        for each in launched
        for index, parameter in each.pointers
        if (each.kernel.label, each.owners[parameter.name][0]) not in scratch
        for place in each.values(index)
    }


def _with_fields(known: _Known, buffers: Iterable[AdoptedBuffer]) -> list[AdoptedBuffer]:
    """Return buffers, with one for each field of the structs that the program copies back, in which it is compared."""
    found: list[AdoptedBuffer] = []
    fields: list[AdoptedBuffer] = []
    for buffer in buffers:
        if buffer.is_output and buffer.structs is not None:
            fields += _fields_of(known, buffer, buffer.structs)
            buffer = dataclasses.replace(buffer, is_output=False, results={})
        found.append(buffer)
    return [*found, *fields]


def _fields_of(known: _Known, buffer: AdoptedBuffer, structs: Memory) -> Iterator[AdoptedBuffer]:
    record = np.dtype(cast("Any", record_of(structs)))
    size = record.itemsize
    pieces = {
        start // size: values[: values.size // size * size].view(record)
        for start, values in buffer.results.items()
        if start % size == 0
    }
    for number in structs.fields:
        yield AdoptedBuffer(
            buffer.allocation,
            known.unused(f"{buffer.name}_{number.name.replace('.', '_')}"),
            number.scalar,
            (buffer.shape[0], *([str(number.count)] if number.count > 1 else [])),
            buffer.elements // size * number.count,
            PRECISIONS.get(number.scalar, ""),
            INTEGERS.get(number.scalar, ""),
            field_of=(buffer.name, number.name),
            is_output=True,
            results={
                start * number.count: np.ascontiguousarray(whole[number.name]).reshape(-1)
                for start, whole in pieces.items()
            },
        )


# -- what is given, and changed --------------------------------------------------------------------


def _given_and_computed(capture: Capture, launched: Iterable[LaunchedKernel]) -> tuple[set[int], set[int]]:
    """Return the memory written by the program before kernels use it, and what kernels compute, with copies of it."""
    uses = [
        (place.allocation, parameter.role)
        for each in launched
        for index, parameter in each.pointers
        for place in each.values(index)
    ]
    computed = {number for number, role in uses if role != "in"}
    used, given = set[int](), set[int]()
    for operation in capture.operations():
        match operation:
            case Launch():
                used |= operation.allocations
            case Fill(target=Place(number)) | Copy(kind="to_device", target=Place(number)):
                if isinstance(operation, Copy) and operation.library and operation.host == FOR_KERNEL:
                    computed.add(number)
                elif number not in used:
                    given.add(number)
                elif capture.allocations[number].kind == "device":
                    computed.add(number)
            case Copy(kind="on_device", target=Place(number)):
                computed.add(number)
            case _:
                pass
    return given, computed


def _draws(
    known: _Known,
    buffers: Collection[AdoptedBuffer],
    symbols: Iterable[Allocation],
    kernels: Iterable[AdoptedKernel],
) -> Draws:
    """Return what is changed for fresh inputs before the program sees a result.

    That is what it copies to the device or, where this has no floating-point numbers, what kernels are passed.
    """
    floating = {each.allocation for each in buffers if each.has_numbers}
    floating |= {each.id for each in symbols if known.symbol(each)[1]}
    for operation in known.capture.operations():
        match operation:
            case Copy(host=host) if host in (FOR_KERNEL, FOR_LIBRARY):
                pass
            case Copy(kind="to_host"):
                break
            case Copy(kind="to_device", target=Place(number), is_zero=False) if number in floating:
                return Draws()
            case _:
                pass
    has_numbers = any(
        isinstance(value, float) for each in kernels for one in each.launched.launches for value in one.arguments
    )
    return Draws("numbers") if has_numbers else Draws("nothing", 0.0)


def _looks_early(capture: Capture) -> bool:
    """Whether the host reads results of one place that change; programs that measure themselves read the same again."""
    return any(copy.digest != copies[-1].digest for copies in capture.taken_back.values() for copy in copies)
