"""Finding out what a definition is made of, from a program and a run of it: kernels, buffers and calls."""

from __future__ import annotations

import dataclasses
import itertools
import keyword
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from mptune.adopt.capture import Allocation, Capture, Copy, Fill, Launch, Place
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
    table_of,
)
from mptune.adopt.launched import (
    AXES,
    INTEGERS,
    NUMPY,
    KernelLaunch,
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
from mptune.adopt.sequence import Call, Number, literal, replay
from mptune.adopt.template import VECTOR_WIDTH, Template, class_of, template
from mptune.adopt.tiling import UNROLL
from mptune.kernel.application import TAKEN
from mptune.precision import POLICIES

#: The types offered for one that is written in the program, the program's own first.
OFFERED: Final = {
    "double": ("fp64", "fp32", "fp16", "bf16"),
    "float": ("fp32", "fp16", "bf16"),
}
#: Names that a definition file may have of its own.
_OF_MODULE: Final = (
    *("HERE", "OWN", "Path", "RECORDS", "TABLES", "application", "data", "functools", "importlib", "inputs", "move"),
    *("near", "np", "put", "steps", "vary"),
)
_ROLES: Final = {"in": "In", "out": "Out", "inout": "InOut", "scalar": "Scalar"}
_BLOCKS: Final = (32, 64, 128, 256, 512, 1024)
_SMALL_BLOCKS: Final = (1, 2, 4, 8, 16)
_LARGEST_BLOCK: Final = 1024
#: Of how many threads of the program a thread does the work.
_PER_THREAD: Final = (1, 2, 4, 8, 16, 32, 64)
_ROWS_PER_THREAD: Final = (1, 2, 4, 8)
_UNROLLS: Final = (1, 2, 4, 8, 16)
_VECTOR_WIDTHS: Final = (1, 2, 4, 8)
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
    *,
    zeroed: bool = False,
    is_live: bool = False,
) -> Findings:
    """Find out what a definition of a program is made of; see :func:`mptune.adopt.writing.write` for the arguments.

    Raises:
        ProgramError: what the program did cannot be replayed.
    """
    known = _Known(program, classes, parameter_of, capture, numbers or Numbers())
    launched, launch_at = find_launched(program, capture, lambda kernel: known.unused(kernel.identifier, _OF_MODULE))
    launched = _with_own_blocks(known, launched)
    if known.numbers.fixed is None:
        known.numbers.fixed = _whole_numbers(launched)
    memory = _buffers(known, launched)
    symbols = [each for each in capture.allocations.values() if each.kind == "symbol"]
    needs = {need.name for each in launched for need in each.kernel.needs if need.kind == "constant"}
    constants = {symbol.id: symbol for symbol in symbols if symbol.name in needs}
    left_out = {symbol.id: symbol.name for symbol in symbols if symbol.name not in needs}
    kernels = {each.launched.name: each for each in _kernels(known, launched, memory, constants.values())}
    known.notes.extend(
        f"the variable {name} in the device's memory is no buffer of what is written: runs begin with what the one "
        "before has left in it"
        for name in left_out.values()
    )
    steps = _Steps(known, launched, launch_at, memory, constants)
    roles = {each.name: each.roles for each in launched}
    calls = list(_without_repeats(known, steps.calls(_looked_at(known, is_live=is_live)), roles))
    results = {number: each for number, each in _results(known, launched, memory).items() if number in steps.written}
    if not results:
        raise ProgramError(
            "nothing that the program copies back is computed by kernels that are adopted; copy back what these write"
        )
    progress = _progress(capture, {number: memory[number] for number in results}, is_live=is_live)
    results = {number: pieces for number, pieces in results.items() if memory[number].name not in progress}
    buffers = [
        dataclasses.replace(
            buffer,
            initial=steps.initial.get(number),
            is_written=number in steps.written,
            is_output=number in results,
            results=results.get(number, {}),
        )
        for number, buffer in memory.items()
    ]
    buffers, not_finite = _with_finite_inputs(known, buffers)
    tables = steps.tables_of(buffers)
    contents = {symbol.name: tables.get(table_of(symbol.name)) for symbol in constants.values()}
    floating = [
        name for name, table in contents.items() if table is not None and table.dtype.kind == "f" and table.any()
    ]
    draws, calls = _drawn(calls, buffers, floating, roles, draws)
    replayed = replay(
        calls,
        may_swap=_may_swap(buffers),
        text_of=lambda call, name, value: known.of_size(name, value) if call.function in roles else literal(value),
        written=known.of_steps,
        has_draws=draws.of == "numbers",
        varied=[*map(table_of, floating)] if draws.of == "constants" else (),
    )
    if is_live:
        buffers = [dataclasses.replace(buffer, initial=None) for buffer in buffers]
    buffers = _with_fields(known, buffers if is_live else _moved(buffers, replayed.places))
    finite = {} if known.numbers.is_draft else dict(_finite(known, buffers))
    if zeroed and not is_live:
        buffers = _zeroed(known, buffers)
    labels = {each.kernel.label for each in launched}
    return Findings(
        kernels=kernels,
        buffers=tuple(buffers),
        parameters=tuple(_parameters(known, kernels.values())),
        kept=tuple(each for each in classes.classes if each.kept and labels & set(each.kernels)),
        sizes={**known.numbers.sizes, **{name: n for name, n in known.sizes.items() if name in known.named}},
        calls=tuple(calls),
        launch_at=launch_at,
        replay=replayed,
        tables={
            **replayed.tables,
            **tables,
            **{f"{name}_is_finite": where for name, where in finite.items()},
            **{f"{name}_not_finite": values for name, values in not_finite.items()},
        },
        finite=tuple(finite),
        not_finite=tuple(not_finite),
        progress=progress,
        left_out=left_out,
        draws=draws,
        constants=tuple(floating),
        notes=tuple(known.notes),
        layout=_layout(buffers, progress, kernels, known.numbers, [*replayed.lines, *finite, *not_finite]),
        is_live=is_live,
    )


def _layout(
    buffers: Sequence[AdoptedBuffer],
    progress: Collection[str],
    kernels: Mapping[str, AdoptedKernel],
    numbers: Numbers,
    steps: Iterable[str],
) -> str:
    parts = [buffer.declared for buffer in buffers]
    # (How far a loop comes is another thing at another size.)
    parts += [repr([buffer.name for buffer in buffers if buffer.is_output or buffer.name in progress])]
    for name, each in kernels.items():
        parts += [name, *(argument.declared for argument in each.arguments), str(len(each.geometry.grid))]
    parts += [f"{name}: {seen.text}" for name, seen in numbers.seen.items() if not seen.is_of_steps]
    return "\n".join((*parts, *steps))


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

    def of_size(self, name: str, value: Number) -> str:
        """Return how a number of a launch that has a name is written in the steps."""
        return f"size.{name}" if name in self.named and self.sizes.get(name) == value else literal(value)

    def of_steps(self, name: str, values: Sequence[Number], natural: str) -> str | None:
        """Return how a number of the steps is written; None if it is looked up."""
        text = self.numbers.text(name, values, natural, is_of_steps=True)
        if text is natural or self.numbers.is_draft:
            return text
        return None if text == GIVEN else re.sub(r"[A-Za-z_]\w*", r"size.\g<0>", text)

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


def _whole_numbers(launched: Iterable[LaunchedKernel]) -> dict[str, int]:
    """Return the whole numbers that kernels are always given under the same name: they may be sizes."""
    found: dict[str, set[int]] = {}
    for each in launched:
        for index, parameter in enumerate(each.parameters):
            is_whole = parameter.role == "scalar" and INTEGERS.get(parameter.element, "")[-2:] in ("32", "64")
            if is_whole and not keyword.iskeyword(parameter.name):
                found.setdefault(parameter.name, set()).update(each.values(index))
    return {name: value for name, (value, *others) in found.items() if not others and value > 1}


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
            *(_most_in_block(each, known.numbers), each.nulls, each.apart),
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
        **({VECTOR_WIDTH: _VECTOR_WIDTHS} if made.has_vectors else {}),
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
    if made.has_vectors:
        constraints += [f"{VECTOR_WIDTH} <= per_thread", f"device.is_gpu or {VECTOR_WIDTH} == {_VECTOR_WIDTHS[0]}"]
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
    """Return the variables in the device's memory that the program sets and a kernel uses."""
    names = {need.name for need in each.kernel.needs if need.kind == "constant"}
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


def _progress(capture: Capture, outputs: Mapping[int, AdoptedBuffer], *, is_live: bool) -> tuple[str, ...]:
    """Return the names of outputs that only say how far a loop has come.

    A program that runs itself takes as many turns as it takes, and then all of a residual is another one.
    """
    answer: dict[str, Turns] = {}
    for number, turns in capture.turns.items():
        if (buffer := outputs.get(number)) is not None:
            data = map(capture.joined, turns)
            answer[buffer.name] = [None if each is None else _numbers_in(each, buffer.stored) for each in data]
    return came_to_nothing(answer, 1.0) if is_live else came_to_nothing(answer)


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


def _moved(buffers: Iterable[AdoptedBuffer], places: Mapping[str, str]) -> Iterator[AdoptedBuffer]:
    """Give each result to the buffer that has it at the end: swaps may have moved it."""
    by_name = {buffer.name: buffer for buffer in buffers}
    source = {**by_name, **{place: by_name[name] for name, place in places.items()}}
    for name, buffer in by_name.items():
        yield dataclasses.replace(buffer, is_output=source[name].is_output, results=source[name].results)


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


def _with_finite_inputs(
    known: _Known, buffers: Iterable[AdoptedBuffer]
) -> tuple[list[AdoptedBuffer], dict[str, NDArray[Any]]]:
    """Return buffers with 0 for what is NaN or infinite at first, which steps write there, and that of each."""
    found, not_finite = [], {}
    for buffer in buffers:
        values = buffer.initial
        if values is not None and values.dtype.kind == "f" and not (are := np.isfinite(values)).all():
            not_finite[buffer.name] = np.where(are, 0, values).reshape(-1, *buffer.inner_axes)
            buffer = dataclasses.replace(buffer, initial=np.where(are, values, 0), is_written=True)
            known.notes.append(
                f"{np.count_nonzero(~are):,} of {buffer.elements:,} elements of {buffer.name} are NaN or infinite at "
                "first, and are the same in every draw"
            )
        found.append(buffer)
    return found, not_finite


def _finite(known: _Known, buffers: Iterable[AdoptedBuffer]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield for each output that is not finite everywhere where it is."""
    for buffer in buffers:
        finite = np.ones(buffer.elements, np.bool_)
        for start, values in buffer.results.items():
            finite[start : start + values.size] = np.isfinite(values)
        if not finite.all():
            known.notes.append(
                f"{np.count_nonzero(~finite):,} of {buffer.elements:,} elements of {buffer.name} are not finite in the "
                "program's answer either, and are not compared"
            )
            yield buffer.name, finite.reshape(-1, *buffer.inner_axes)


def _zeroed(known: _Known, buffers: Iterable[AdoptedBuffer]) -> list[AdoptedBuffer]:
    """Let memory that nothing is copied to be zero at first."""
    found = []
    for buffer in buffers:
        if buffer.initial is None and buffer.field_of is None:
            known.notes.append(f"{buffer.name} is zero at first: the program uses of it what it never wrote")
            buffer = dataclasses.replace(buffer, initial=np.zeros(buffer.elements, buffer.stored))
        found.append(buffer)
    return found


def _may_swap(buffers: Iterable[AdoptedBuffer]) -> Callable[[str, str], bool]:
    """Return what tells whether two buffers can change places."""
    kinds = {b.name: (b.elements, b.type, b.precision, b.dtype) for b in buffers if b.is_written}
    return lambda one, other: one in kinds and kinds[one] == kinds.get(other)


# -- calls ---------------------------------------------------------------------------------------


def _looked_at(known: _Known, *, is_live: bool) -> list[int]:
    """Return the operations until the last result was copied back."""
    sequence: list[int] = known.capture.sequence.tolist()
    launches, looks = _launches_and_looks(known.capture)
    if (early := early_looks(known.capture)) and not is_live:
        known.notes.append(
            f"the program looks at results {early} time{'s' * (early > 1)} before its last launch: if it decides by "
            "them what to launch, the steps launch what it did in this run"
        )
    return sequence[: max(looks or launches) + 1]


def early_looks(capture: Capture) -> int:
    """Return how often a program copied results to the host before its last launch, which may depend on them."""
    launches, looks = _launches_and_looks(capture)
    return sum(place < launches[-1] for place in looks)


def _launches_and_looks(capture: Capture) -> tuple[list[int], list[int]]:
    operations = list(capture.operations())
    looks = [place for place, each in enumerate(operations) if isinstance(each, Copy) and each.kind == "to_host"]
    return [place for place, each in enumerate(operations) if isinstance(each, Launch)], looks


class _Steps:
    """What was called, and what each buffer is for, which is learnt from one call after the other.

    Attributes:
        initial: what the program gave memory before it was used, by its number.
        written: the memory that is written to.
    """

    def __init__(
        self,
        known: _Known,
        launched: Iterable[LaunchedKernel],
        launch_at: Mapping[int, tuple[str, KernelLaunch]],
        buffers: Mapping[int, AdoptedBuffer],
        constants: Mapping[int, Allocation],
    ) -> None:
        self._known, self._launch_at, self._buffers, self._constants = known, launch_at, buffers, constants
        self._kernels = {each.name: each for each in launched}
        self._varying = {each.name: _varying(each, known.numbers) for each in launched}
        #: What was used, of which nothing is initial any more.
        self._live: set[int] = set()
        #: Rows of tables, and where each is in a table that has every row once.
        self._rows: dict[str, list[NDArray[Any]]] = {}
        self._row_of: dict[str, dict[bytes, int]] = {}
        self.initial: dict[int, NDArray[Any]] = {}
        self.written: set[int] = set()

    def calls(self, indices: Iterable[int]) -> Iterator[Call]:
        """Yield what operations are as calls."""
        for index in indices:
            operation = self._known.capture.different[index]
            match operation:
                case Launch():
                    yield self._launch(*self._launch_at[index])
                case Copy(kind="to_device", target=Place(number)) if number in self._constants:
                    self._set(self._constants[number], operation)
                case Fill(target=Place(number)) | Copy(kind="to_device", target=Place(number)) if (
                    number in self._buffers
                ):
                    yield from self._given(self._buffers[number], operation)
                case Copy(kind="on_device", target=Place(number)) if number in self._buffers:
                    yield self._copy(self._buffers[number], operation)
                case _:
                    pass

    def tables_of(self, buffers: Iterable[AdoptedBuffer]) -> dict[str, NDArray[Any]]:
        """Return the tables of what was copied to the device, by name."""
        axes = {buffer.name: buffer.inner_axes for buffer in buffers}
        return {
            f"{name}_given": np.stack([row.reshape(-1, *axes[name]) if axes.get(name) else row for row in rows])
            for name, rows in self._rows.items()
        }

    def _launch(self, name: str, launch: KernelLaunch) -> Call:
        each = self._kernels[name]
        buffers: list[tuple[str, str]] = []
        values: list[tuple[str, Number]] = []
        for parameter, value in zip(each.parameters, launch.arguments, strict=True):
            if not isinstance(value, Place):
                values.append((parameter.name, value))
                continue
            self._live.add(value.allocation)
            if parameter.role != "in":
                self.written.add(value.allocation)
            buffers.append((parameter.name, self._buffers[value.allocation].name))
            if parameter.name in each.offsets and parameter.memory is not None:
                values.append((f"{parameter.name}_offset", value.offset // parameter.memory.bytes))
        constants = [symbol.name for symbol in _used_by(each, self._constants.values())]
        values += ((constant, len(self._rows[constant]) - 1) for constant in constants)
        own = each.geometry(launch)
        values += ((varying, own[varying]) for varying in self._varying[name])
        tables = tuple((constant, f"{constant}_given") for constant in constants)
        return Call(name, tuple(buffers), tuple(values), tables)

    def _set(self, symbol: Allocation, copy: Copy) -> None:
        """Take what the program writes to a variable in the device's memory."""
        assert copy.target is not None
        scalar, _ = self._known.symbol(symbol)
        element = np.dtype(INTEGERS.get(scalar) or NUMPY[scalar])
        rows = self._rows.setdefault(symbol.name, [])
        values = rows[-1].copy() if rows else np.zeros(symbol.bytes // element.itemsize, element)
        values.view(np.uint8)[copy.target.offset : copy.target.offset + copy.bytes] = self._contents(copy)
        rows.append(values)

    def _contents(self, copy: Copy) -> NDArray[np.uint8]:
        if copy.contents is None:
            raise ProgramError(
                f"the program copies more to the device than was kept of it ({copy.bytes} bytes are missing); give it "
                "a smaller problem"
            )
        return self._known.capture.contents(copy.contents)

    def _given(self, buffer: AdoptedBuffer, operation: Fill | Copy) -> Iterator[Call]:
        """Take what the program writes to memory: as initial values, unless something has used the memory before."""
        assert operation.target is not None
        number, offset = operation.target.allocation, operation.target.offset
        byte = operation.byte & 0xFF if isinstance(operation, Fill) else 0
        if number not in self._live:
            initial = self.initial.setdefault(number, np.zeros(buffer.elements, buffer.stored))
            given = initial.view(np.uint8)[offset : offset + operation.bytes]
            given[:] = byte if isinstance(operation, Fill) else self._contents(operation)[: given.size]
            return
        self.written.add(number)
        buffers, is_whole = (("", buffer.name),), operation.bytes >= buffer.bytes
        filled = ("value", np.full(buffer.stored.itemsize, byte, np.uint8).view(buffer.stored)[0].item())
        if isinstance(operation, Fill) and is_whole:
            yield Call("fill", buffers, (filled,))
            return
        part = (("start", _elements(buffer, offset)), ("count", count := _elements(buffer, operation.bytes)))
        if isinstance(operation, Fill):
            yield Call("put", buffers, (*part, filled))
            return
        table = buffer.name if is_whole else f"{buffer.name}_{count}"  # rows of a table are of one length
        row, tables = ("row", self._row(table, buffer, operation)), (("row", f"{table}_given"),)
        yield Call("write", buffers, (row,), tables) if is_whole else Call("put", buffers, (*part, row), tables)

    def _row(self, table: str, buffer: AdoptedBuffer, copy: Copy) -> int:
        """Return where what is copied to a buffer is in a table."""
        contents = self._contents(copy)[: buffer.bytes].view(buffer.stored)
        rows, row_of = self._rows.setdefault(table, []), self._row_of.setdefault(table, {})
        row = row_of.setdefault(contents.tobytes(), len(rows))
        if row == len(rows):
            rows.append(contents)
        return row

    def _copy(self, target: AdoptedBuffer, copy: Copy) -> Call:
        assert copy.target is not None
        assert copy.source is not None
        source = self._buffers.get(copy.source.allocation)
        if source is None or source.stored != target.stored:
            raise ProgramError(
                f"the program copies to {target.name} on the device what no kernel takes for the same numbers, which "
                "cannot be adopted; copy numbers of its type that a kernel works on"
            )
        self.written.add(copy.target.allocation)
        self._live |= {copy.source.allocation, copy.target.allocation}
        buffers = (("", source.name), ("", target.name))
        if copy.bytes >= target.bytes and source.elements == target.elements:
            return Call("copy", buffers)
        start, to = _elements(source, copy.source.offset), _elements(target, copy.target.offset)
        return Call("move", buffers, (("start", start), ("to", to), ("count", _elements(target, copy.bytes))))


def _elements(buffer: AdoptedBuffer, count: int) -> int:
    """Return how many elements so many bytes of a buffer are."""
    if count % buffer.stored.itemsize:
        raise ProgramError(
            f"the program writes to a part of an element of {buffer.name} between launches, which cannot be adopted"
        )
    return count // buffer.stored.itemsize


def _varying(each: LaunchedKernel, numbers: Numbers) -> list[str]:
    """Return the numbers of a kernel's geometry that differ from launch to launch, by name."""
    seen = [each.geometry(launch) for launch in {id(launch): launch for launch in each.launches}.values()]
    return [n for n in seen[0] if len({one[n] for one in seen}) > 1 or numbers.is_given(f"{each.name} {n}")]


def _without_repeats(known: _Known, calls: Iterable[Call], roles: Mapping[str, Mapping[str, str]]) -> Iterator[Call]:
    """Leave out launches that do again what the one before has done: programs repeat them to time them."""
    before: Call | None = None
    left_out: dict[str, int] = {}
    for call in calls:
        if call == before and _can_be_repeated(call, roles.get(call.function)):
            left_out[call.function] = left_out.get(call.function, 1) + 1
            continue
        yield call
        before = call
    known.notes.extend(
        f"{name} is launched {count} times on the same data, which gives the same: once is enough"
        for name, count in left_out.items()
    )


def _can_be_repeated(call: Call, role_of: Mapping[str, str] | None) -> bool:
    """Whether a call is of a kernel, and reads nothing of what it writes."""
    if role_of is None:
        return False
    of_role = {
        role: {buffer for name, buffer in call.buffers if role_of[name] == role} for role in ("in", "out", "inout")
    }
    return not of_role["inout"] and not of_role["in"] & of_role["out"]


def _drawn(
    calls: list[Call],
    buffers: Collection[AdoptedBuffer],
    constants: Collection[str],
    roles: Mapping[str, Mapping[str, str]],
    wanted: Draws | None,
) -> tuple[Draws, list[Call]]:
    """Return what is changed for fresh inputs, and the calls with what that takes."""
    of_data = "data" if any(buffer.has_numbers for buffer in buffers) else "constants" if constants else "computed"
    draws = wanted or Draws(of_data)
    if draws.of == "computed":
        floating = {buffer.name for buffer in buffers if buffer.stored.kind == "f"}
        computed: dict[str, None] = {}
        for place, call in enumerate(calls):
            role_of = roles.get(call.function, {})
            if any(buffer in computed and role_of.get(name) != "out" for name, buffer in call.buffers):
                vary = Call("vary", tuple(("", name) for name in computed))
                return draws, [*calls[:place], vary, *calls[place:]]
            computed |= dict.fromkeys(b for name, b in call.buffers if role_of.get(name) != "in" and b in floating)
        draws = Draws("numbers", draws.by)
    numbers = (value for call in calls if call.function in roles for _, value in call.values)
    if draws.of == "numbers" and not any(isinstance(value, float) for value in numbers):
        draws = Draws("nothing", 0.0)
    return draws, calls
