"""Finding out what a definition is made of, from a program and a run of it: kernels, buffers and calls."""

from __future__ import annotations

import dataclasses
import itertools
import keyword
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from mptune.adopt.blocks import UNROLL
from mptune.adopt.capture import FOR_KERNEL, Allocation, Capture, Copy, Fill, Launch, Place
from mptune.adopt.classes import TypeClass, TypeClasses
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
from mptune.adopt.number_types import PRECISIONS
from mptune.adopt.numbers import GIVEN, Numbers, elements_of
from mptune.adopt.parsing import ProgramError
from mptune.adopt.progress import Turns, came_to_nothing
from mptune.adopt.reading import Memory, Parameter, Program
from mptune.adopt.scratch import scratch_parameters
from mptune.adopt.template import Template, class_of, template
from mptune.kernel.application import TAKEN
from mptune.precision import POLICIES

#: The types offered for one that is written in the program, the program's own first.
OFFERED: Final = {
    "double": ("fp64", "fp32", "fp16", "bf16"),
    "float": ("fp32", "fp16", "bf16"),
}
#: Names that a definition file may have of its own.
_OF_MODULE: Final = ("HERE", "Live", "Path", "application", "inputs", "steps")
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
    numbers: Numbers | None = None,
    draws: Draws | None = None,
) -> Findings:
    """Find out what a definition of a program is made of; see :func:`mptune.adopt.writing.write` for the arguments.

    Raises:
        ProgramError: what the program did cannot be adopted.
    """
    known = _Known(program, classes, parameter_of, capture, numbers or Numbers())
    launched, launch_at = find_launched(program, capture, lambda kernel: known.unused(kernel.identifier, _OF_MODULE))
    launched = _with_own_blocks(known, launched)
    passed = _whole_numbers(launched)
    known.numbers.passed = passed
    if known.numbers.fixed is None:
        alone = {name: next(iter(values)) for name, values in passed.items() if len(values) == 1}
        known.numbers.fixed = {name: value for name, value in alone.items() if value > 1}
    memory = _buffers(known, launched)
    used = {need.name for each in launched for need in each.kernel.needs if need.kind in ("constant", "device")}
    symbols = [each for each in capture.allocations.values() if each.kind == "symbol" and each.name in used]
    kernels = {each.launched.name: each for each in _kernels(known, launched, memory, symbols)}
    given, written = _given_and_written(capture, launched)
    results = {number: each for number, each in _results(known, launched, memory).items() if number in written}
    if not results:
        raise ProgramError(
            "nothing that the program copies back is computed by kernels that are adopted; copy back what these write"
        )
    progress = _progress(capture, {number: memory[number] for number in results})
    buffers = [
        dataclasses.replace(
            buffer,
            is_given=number in given,
            is_written=number in written,
            is_output=number in results and buffer.name not in progress,
            results=results.get(number, {}) if buffer.name not in progress else {},
        )
        for number, buffer in memory.items()
    ]
    if draws is None or draws.of == "data":
        draws = _draws(known, buffers, symbols, kernels.values(), draws)
    buffers = _with_fields(known, buffers)
    labels = {each.kernel.label for each in launched}
    return Findings(
        kernels=kernels,
        buffers=tuple(buffers),
        parameters=tuple(_parameters(known, kernels.values())),
        kept=tuple(each for each in classes.classes if each.kept and labels & set(each.kernels)),
        sizes={**known.numbers.sizes, **{name: n for name, n in known.sizes.items() if name in known.named}},
        varying={each.name: tuple(_varying(each, known.numbers)) for each in launched},
        launch_at=launch_at,
        progress=progress,
        draws=draws,
        looks_early=_looks_early(capture),
        notes=tuple(known.notes),
        layout=_layout(known, buffers, kernels),
    )


def _layout(known: _Known, buffers: Iterable[AdoptedBuffer], kernels: Mapping[str, AdoptedKernel]) -> str:
    parts: list[str] = []
    for buffer in buffers:
        parts.append(f"{buffer.allocation} {buffer.declared}")
        # Programs swap memory of the device: what comes to a place on the host is the answer, whatever has it.
        if buffer.is_output and known.capture.allocations[buffer.allocation].kind != "device":
            parts.append("output")
    for name, each in kernels.items():
        parts += [name, *(argument.declared for argument in each.arguments), str(len(each.geometry.grid))]
    return "\n".join((*parts, *(f"{name}: {seen.text}" for name, seen in known.numbers.seen.items())))


# -- names, types and numbers --------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    """What is given, with what is gathered on the way.

    Attributes:
        numbers: how numbers are written; they are told what each is in this run.
        taken: the names that nothing else can have.
        named: the sizes that are in a text.
        notes: what a user should know.
    """

    program: Program
    classes: TypeClasses
    parameter_of: Mapping[str, str]
    capture: Capture
    numbers: Numbers
    taken: set[str] = field(default_factory=lambda: {*TAKEN, *keyword.kwlist, "draw"})
    named: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    @property
    def sizes(self) -> Mapping[str, int]:
        """The numbers that may be sizes, by name."""
        return self.numbers.fixed or {}

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
        for need in (need for kernel in self.program.kernels for need in kernel.needs if need.name == symbol.name):
            if need.memory is not None and not need.memory.has_pointers:
                scalar = need.memory.numbers[0]
                if scalar in INTEGERS:
                    return scalar, ""
                if scalar in NUMPY:
                    return scalar, self._precision_of(self._class_in(need.memory), scalar)
        raise ProgramError(f"the variable {symbol.name} is of a type that cannot be adopted; use arrays of numbers")

    def _class_in(self, memory: Memory) -> TypeClass | None:
        """Return the class of the numbers that structs in memory are made of."""
        return class_of(self.classes, memory.fields[0].name, memory.fields[0].struct)

    def _precision_of(self, found: TypeClass | None, scalar: str) -> str:
        parameter = self.parameter_of.get(found.name) if found is not None else None
        return parameter or PRECISIONS[scalar]

    def of_launch(
        self, each: LaunchedKernel, name: str, values: Sequence[int], natural: str = "", block: int = 1
    ) -> str:
        """Return how a number of a kernel's launches is written; it is passed by its name where that differs."""
        if len(set(values)) > 1:
            return name
        text = self.numbers.text(f"{each.name} {name}", values, natural or self.expression(values[0]), block=block)
        return name if text == GIVEN else text

    def of_threads(self, each: LaunchedKernel, axis: int) -> str:
        """Return how many threads a kernel has along an axis, which are always as many."""
        total, block = each.threads[0][axis], each.launches[0].block[axis]
        found = str(total)
        # A size itself explains it better than a sum that happens to fit.
        sizes = set(self.sizes.values())
        for missing in sorted(range(block), key=lambda missing: missing > 0 and total - missing not in sizes):
            text = self.expression(total - missing)
            if not text.isdigit():
                found = text if not missing else f"({text} + {block - 1}) // {block} * {block}"
                break
        return self.of_launch(each, f"threads_{AXES[axis]}", [total], found, block)

    def expression(self, value: int) -> str:
        """Return a number as an expression over sizes, the shortest, or the number."""
        sizes = {name: size for name, size in self.sizes.items() if name.isidentifier()}
        terms = [(f"{name} + {more}" if more else name, n + more) for name, n in sizes.items() for more in range(3)]
        for count in (1, 2, 3):
            for chosen in itertools.combinations_with_replacement(terms, count):
                if math.prod(n for _, n in chosen) == value:
                    self.named.update(text.partition(" ")[0] for text, _ in chosen)
                    return " * ".join(text if count == 1 or text.isidentifier() else f"({text})" for text, _ in chosen)
        return str(value)


def _whole_numbers(launched: Iterable[LaunchedKernel]) -> dict[str, set[int]]:
    """Return the whole numbers that kernels are given, by the name of the parameter: they may be sizes."""
    found: dict[str, set[int]] = {}
    for each in launched:
        for index, parameter in enumerate(each.parameters):
            is_whole = parameter.role == "scalar" and INTEGERS.get(parameter.element, "")[-2:] in ("32", "64")
            if is_whole and not keyword.iskeyword(parameter.name):
                found.setdefault(parameter.name, set()).update(each.values(index))
    return found


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
) -> Iterator[AdoptedKernel]:
    """Yield the kernels; of all of them one part after the other, in which order runs at other sizes are compared."""
    threads = [_virtual_threads(known, each) for each in launched]
    templates = [
        template(
            *(known.program, each.kernel, known.classes, known.parameter_of, each.offsets, of_it),
            *(_most_in_block(each, known.numbers), each.nulls, each.apart, {symbol.name for symbol in constants}),
        )
        for each, of_it in zip(launched, threads, strict=True)
    ]
    geometries = [_geometry(known, *each) for each in zip(launched, threads, templates, strict=True)]
    for each, made, geometry in zip(launched, templates, geometries, strict=True):
        used = {known.precision(each, p) for p in each.parameters if numbers_of(p)[0] in PRECISIONS} | made.parameters
        precisions = tuple(name for name in dict.fromkeys(known.parameter_of.values()) if name in used)
        shared = [launch.shared_bytes for launch in each.launches]
        shared_bytes = known.of_launch(each, "shared_bytes", shared, str(shared[0]))
        arguments = tuple(_arguments(known, each, memory, constants))
        yield AdoptedKernel(each, made, precisions, arguments, geometry, shared_bytes)


def _parameters(known: _Known, kernels: Collection[AdoptedKernel]) -> Iterator[AdoptedParameter]:
    """Yield the precision parameters that kernels have."""
    for name in dict.fromkeys(known.parameter_of.values()):
        if any(name in each.precisions for each in kernels):
            classes = tuple(each for each in known.classes.classes if known.parameter_of.get(each.name) == name)
            yield AdoptedParameter(name, max((OFFERED[each.scalar] for each in classes), key=len), classes)


def _virtual_threads(known: _Known, each: LaunchedKernel) -> list[str]:
    """Return how many threads there are along each axis, where a thread may do the work of several; or nothing.

    The numbers are written into the source, so that they have to be few. What is called would not be told which thread
    it is for.
    """
    is_looked_up = any(known.numbers.is_given(f"{each.name} threads_{axis}") for axis in AXES)
    if not each.is_free or each.kernel.asks_elsewhere or len(each.threads) > 1 or is_looked_up:
        return []
    return [known.of_threads(each, axis) for axis in range(each.dimensions)]


def _most_in_block(each: LaunchedKernel, numbers: Numbers) -> int:
    """Return how many threads a block has at most."""
    if any(numbers.is_given(f"{each.name} block_{axis}") for axis in AXES):
        return _LARGEST_BLOCK
    return max(map(math.prod, each.blocks))


def _geometry(known: _Known, each: LaunchedKernel, threads: Sequence[str], made: Template) -> Geometry:
    """Return how a kernel is launched."""
    first, axes = each.launches[0], range(each.dimensions)
    if not each.is_free:
        grids = {one.grid for one in each.launches}
        grid = [known.of_launch(each, f"grid_{AXES[a]}", [g[a] for g in grids], block=first.block[a]) for a in axes]
        block = [known.of_launch(each, f"block_{AXES[a]}", [b[a] for b in each.blocks]) for a in axes]
        return Geometry({}, (), tuple(grid), tuple(block))
    has_rows = made.is_tiled and len(axes) > 1
    choices: dict[str, Sequence[int]] = {
        **({"per_thread": _PER_THREAD} if threads else {}),
        **({"per_thread_y": _ROWS_PER_THREAD} if has_rows else {}),
        **({UNROLL: _UNROLLS} if made.unrolls else {}),
    }
    copies = " * ".join(choices)
    grid, block, divided = [], [], []
    for axis in axes:
        totals = {threads[axis] for threads in each.threads}
        values = _widths(each, axis, is_divided=not threads)
        width = str(values[0])
        if len(values) > 1:
            width = "block" if len(axes) == 1 else f"block_{AXES[axis]}"
            choices[width] = values
        block.append(width)
        if threads:
            of_each = " * per_thread" if axis == 0 else " * per_thread_y" if has_rows and axis == 1 else ""
            grid.append(f"ceildiv({threads[axis]}, {width}{of_each})")
        elif len(totals) == 1 and len(values) == 1 and not known.numbers.texts and not known.numbers.is_draft:
            grid.append(str(first.grid[axis]))
        else:
            total = known.of_threads(each, axis) if len(totals) == 1 else f"threads_{AXES[axis]}"
            grid.append(f"{total} // {width}")
            if len(values) > 1 and known.numbers.texts:
                divided.append(f"{total} % {width} == 0")
    constraints = []
    names = [text for text in block if not text.isdigit()]
    if len(names) > 1:
        fixed = math.prod(int(text) for text in block if text.isdigit())
        product = " * ".join([*names, *([str(fixed)] if fixed > 1 else [])])
        constraints.append(f"{min(32, math.prod(first.block))} <= {product} <= {_LARGEST_BLOCK}")
    if has_rows or made.unrolls:
        constraints.append(f"{copies} <= {_MOST_COPIES}")
    return Geometry(choices, (*constraints, *divided), tuple(grid), tuple(block))


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
            passed = [buffers[place.allocation] for place in each.values(index)]
            shapes = {buffer.shape for buffer in passed}
            shape = passed[0].shape if len(shapes) == 1 else (f"{parameter.name}_size",)
            dtype = passed[0].dtype
        role = _ROLES[parameter.role] if parameter.is_pointer else "Scalar"
        yield Argument(role, parameter.name, shape, precision, "" if precision else dtype)
    for name in each.offsets:
        yield Argument("Scalar", f"{name}_offset", (), "", "int64")
    for symbol in _used_by(each, constants):
        scalar, precision = known.symbol(symbol)
        yield Argument("Constant", symbol.name, symbol.bytes // bytes_of(scalar), precision, INTEGERS.get(scalar, ""))


def _used_by(each: LaunchedKernel, constants: Iterable[Allocation]) -> list[Allocation]:
    """Return the variables in the device's memory that both the host and a kernel use."""
    names = {need.name for need in each.kernel.needs if need.kind in ("constant", "device")}
    return [symbol for symbol in constants if symbol.name in names]


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
        memory = _common_memory([other for _, other in passed])
        scalar, components = memory.numbers[0], memory.components
        elements = known.capture.allocations[allocation].bytes // bytes_of(scalar) // components
        count = known.numbers.text(elements_of(name), [elements], known.expression(elements))
        found[allocation] = AdoptedBuffer(
            allocation,
            name,
            scalar,
            (count, *([str(components)] if components > 1 else [])),
            elements * components,
            known.precision(each, parameter) if scalar in PRECISIONS else "",
            INTEGERS.get(scalar, ""),
            memory if memory.is_mixed else None,
            has_fields=components > 1 and len(memory.fields) > 1 and bool(memory.declared),
        )
    return found


def _host_name(known: _Known, each: LaunchedKernel, parameter: Parameter) -> str:
    """Return what the program calls the memory it passes, where it first launches a kernel; or nothing."""
    names = [own.name for own in each.kernel.parameters]
    place = names.index(parameter.name) if parameter.name in names else -1
    for site in known.program.launches:
        if site.kernel == each.kernel.label and 0 <= place < len(site.arguments):
            text = known.program.text(site.arguments[place])
            return text if text.isidentifier() and text not in known.taken else ""
    return ""


def _common_memory(parameters: Sequence[Parameter]) -> Memory:
    """Return what an element is made of that is passed as several parameters.

    Raises:
        ProgramError: these do not agree, or it cannot be adopted.
    """
    memories = [parameter.memory for parameter in parameters if parameter.memory is not None]
    scalars = {memory.numbers[0]: other for memory, other in zip(memories, parameters, strict=True)}
    if len(scalars) > 1 and not scalars.keys() <= INTEGERS.keys():
        one, other = list(scalars.values())[:2]
        raise ProgramError(
            f"{other.extent}: {other.name} is memory of {other.element}, which {one.name} ({one.extent}) takes for "
            f"{one.element}; mptune cannot tell what is in it: give them memory of their own"
        )
    first = memories[0]
    memory = next((memory for memory in memories if memory.is_mixed), first)
    if first.has_pointers or memory.numbers[0] not in (*NUMPY, *INTEGERS):
        what = "pointers" if first.has_pointers else first.name
        raise ProgramError(
            f"{parameters[0].extent}: {parameters[0].name} is memory of {what}, which cannot be adopted; use arrays of "
            "numbers"
        )
    return memory


def _results(
    known: _Known, launched: Iterable[LaunchedKernel], buffers: Mapping[int, AdoptedBuffer]
) -> dict[int, dict[int, NDArray[Any]]]:
    """Return what the outputs are at the end: what the program copied back, or else what kernels wrote."""
    places = [(copy.source, copy.contents) for copy in known.capture.outputs]
    if not places:
        known.notes.append("the program copies nothing back: what its kernels wrote is compared")
        for launch in known.capture.launches():
            places += ((Place(number, 0), launch.after[number]) for number in launch.changed)
    found: dict[int, dict[int, NDArray[Any]]] = {}
    left = _left_by_launches(known.capture)
    for place, key in places:
        if place is None or place.allocation not in buffers:
            continue
        buffer, pieces = buffers[place.allocation], found.setdefault(place.allocation, {})
        is_whole = key is not None and known.capture.contents(key).size == buffer.bytes
        if is_whole and left.get(place.allocation, key) != key:
            key = left[place.allocation]
            known.notes.append(
                f"the host changes {buffer.name} after the last kernel or parallel loop that does: what that left is "
                "compared (--loop makes a loop of C++ a kernel)"
            )
        if key is not None:
            values = known.capture.contents(key)[: buffer.bytes - place.offset]
            pieces[place.offset // buffer.stored.itemsize] = _numbers_in(values, buffer.stored)
    seen = _seen(known, launched) if known.program.originals else set(found)
    return {number: pieces for number, pieces in found.items() if number in seen} or found


def _left_by_launches(capture: Capture) -> dict[int, int]:
    """Return for memory that the host shares the key of what the last launch left there that it was passed to."""
    found: dict[int, int] = {}
    for launch in capture.launches():
        for id in found.keys() & {each.allocation for each in launch.arguments if isinstance(each, Place)}:
            del found[id]  # unless its data were kept
        kept = {id: key for id, key in launch.after.items() if key is not None}
        found |= {id: key for id, key in kept.items() if capture.allocations[id].kind in ("managed", "mapped", "host")}
    return found


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
    scratch = scratch_parameters(known.program)
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


def _given_and_written(capture: Capture, launched: Iterable[LaunchedKernel]) -> tuple[set[int], set[int]]:
    """Return the memory that the program writes to before kernels use it, and that which is written to after that."""
    is_written: dict[int, bool] = {}
    for each in launched:
        for index, parameter in each.pointers:
            for place in each.values(index):
                is_written[place.allocation] = is_written.get(place.allocation, False) or parameter.role != "in"
    used, given = set[int](), set[int]()
    written = {number for number, is_written_to in is_written.items() if is_written_to}
    for operation in capture.operations():
        match operation:
            case Launch(arguments=arguments):
                used |= {value.allocation for value in arguments if isinstance(value, Place)}
            case Fill(target=Place(number)) | Copy(kind="to_device", target=Place(number)):
                (written if number in used else given).add(number)
            case Copy(kind="on_device", target=Place(number)):
                written.add(number)
            case _:
                pass
    return given, written


def _draws(
    known: _Known,
    buffers: Collection[AdoptedBuffer],
    symbols: Iterable[Allocation],
    kernels: Iterable[AdoptedKernel],
    wanted: Draws | None,
) -> Draws:
    """Return what is changed for fresh inputs before the program sees a result.

    That is what it copies to the device or, where this has no floating-point numbers, what kernels are passed.
    """
    floating = {each.allocation for each in buffers if each.has_numbers}
    floating |= {each.id for each in symbols if known.symbol(each)[1]}
    draws = wanted or Draws()
    for operation in known.capture.operations():
        match operation:
            case Copy(host=host) if host == FOR_KERNEL:
                pass
            case Copy(kind="to_host"):
                break
            case Copy(kind="to_device", target=Place(number), contents=key) if number in floating:
                if key is None or known.capture.contents(key).any():
                    return draws
            case _:
                pass
    has_numbers = any(
        isinstance(value, float) for each in kernels for one in each.launched.launches for value in one.arguments
    )
    return dataclasses.replace(draws, of="numbers") if has_numbers else Draws("nothing", 0.0)


def _looks_early(capture: Capture) -> bool:
    """Whether the host reads results of one place that change; programs that measure themselves read the same again."""
    return any(copy.digest != copies[-1].digest for copies in capture.taken_back.values() for copy in copies)


def _varying(each: LaunchedKernel, numbers: Numbers) -> list[str]:
    """Return the numbers of a kernel's geometry that differ from launch to launch, by name."""
    seen = [each.geometry(launch) for launch in {id(launch): launch for launch in each.launches}.values()]
    return [n for n in seen[0] if len({one[n] for one in seen}) > 1 or numbers.is_given(f"{each.name} {n}")]
