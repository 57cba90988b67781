"""Writing what a program became: the definition, a template for each kernel, and the data it worked on.

The steps replay what the program launched. Where it launches the same again and again they have loops, and where it
swaps its pointers they swap buffers.
"""

from __future__ import annotations

import itertools
import keyword
import math
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.adopt.capture import Capture, DeviceCopy, Download, Launch, Memset, Shape, Upload
from mptune.adopt.classes import TypeClass, TypeClasses
from mptune.adopt.parsing import ProgramError
from mptune.adopt.reading import Kernel, Parameter, Program
from mptune.adopt.sequence import Call, Number, replay
from mptune.adopt.template import POLICY, Template, template
from mptune.kernel.application import TAKEN

__all__ = ["Adopted", "AdoptedBuffer", "AdoptedParameter", "write"]

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
_AXES: Final = "xyz"
_BLOCKS: Final = (32, 64, 128, 256, 512, 1024)
_LARGEST_BLOCK: Final = 1024
_WIDTH: Final = 110


# -- what is written -----------------------------------------------------------------------------


@dataclass(slots=True)
class AdoptedBuffer:
    """A buffer of the application that a program became.

    Attributes:
        allocation: its number in the capture.
        name: its name, from the program.
        type: the type of its elements in the program.
        shape: its axes, as expressions over sizes.
        elements: how many there are.
        precision: the parameter that sets its type, or a fixed precision; "" for integers.
        dtype: the type of integers; "" for others.
        initial: what the program gave it before the first launch; None if nothing.
        is_written: whether a step writes to it.
        is_output: whether the program copied it back at the end.
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

    @property
    def stored(self) -> np.dtype[Any]:
        """The type of the program's own memory."""
        return np.dtype(self.dtype or _NUMPY[_scalar(self.type)[0]])

    @property
    def role(self) -> str:
        """As what it is declared."""
        if self.initial is not None:
            return "InOut" if self.is_written else "Buffer"
        return "Scratch"


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
        named = (f"{m.function}.{m.name}" if m.function else m.name for c in self.classes for m in c.members)
        return tuple(dict.fromkeys(named))

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of what has its type."""
        return tuple(dict.fromkeys(each.role for each in self.classes))


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
    """

    name: str
    folder: Path
    kernels: Mapping[str, int]
    buffers: tuple[AdoptedBuffer, ...]
    parameters: tuple[AdoptedParameter, ...]
    kept: tuple[TypeClass, ...]
    sizes: Mapping[str, int]
    notes: tuple[str, ...]


def write(
    program: Program,
    classes: TypeClasses,
    parameter_of: Mapping[str, str],
    capture: Capture,
    folder: Path,
    *,
    metric: str | None = None,
) -> Adopted:
    """Write what a program became to a folder, which ``mptune tune`` then takes.

    Args:
        program: the program.
        classes: its type classes.
        parameter_of: the precision parameter of each class that has one, by the class's name.
        capture: what it did in a run.
        folder: is made, or what an earlier call wrote there is replaced.
        metric: how the outputs are compared.

    Raises:
        ProgramError: what it did cannot be replayed.
    """
    name = re.sub(r"\W+", "_", folder.name)
    writer = _Writer(program, classes, parameter_of, capture, name)
    texts = {**writer.templates(), f"{name}.py": writer.definition(metric)}
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    np.savez_compressed(folder / "inputs.npz", **{b.name: b.initial for b in writer.buffers if b.initial is not None})
    if writer.tables:
        np.savez_compressed(folder / "steps.npz", **writer.tables)
    sources = folder / "program"
    shutil.rmtree(sources, ignore_errors=True)
    root = _common([file.path.parent for file in program.files])
    for file in program.files:
        target = sources / file.path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.path, target)
    return writer.adopted(folder)


def _common(folders: Sequence[Path]) -> Path:
    first = folders[0]
    return next(parent for parent in (first, *first.parents) if all(f.is_relative_to(parent) for f in folders))


@dataclass(slots=True)
class _Launched:
    """A kernel that was launched, with all of its launches."""

    kernel: Kernel
    name: str
    launches: list[Launch] = field(default_factory=list)
    #: Pointers that are not always at the start of their buffer.
    offsets: list[str] = field(default_factory=list)

    def values(self, index: int) -> list[Any]:
        """Return what an argument was in each launch."""
        return [launch.arguments[index] for launch in self.launches]

    @property
    def pointers(self) -> Iterator[tuple[int, Parameter]]:
        """The parameters that are pointers, with their places."""
        return ((i, p) for i, p in enumerate(self.kernel.parameters) if p.is_pointer)

    @property
    def blocks(self) -> list[Shape]:
        """The blocks it was launched with, each once."""
        return list(dict.fromkeys(launch.block for launch in self.launches))

    @property
    def threads(self) -> list[Shape]:
        """How many threads it was launched with along each axis, each once."""
        found = (tuple(g * b for g, b in zip(one.grid, one.block, strict=True)) for one in self.launches)
        return list(dict.fromkeys(found))

    @property
    def is_free(self) -> bool:
        """Whether it does the same in blocks of any size."""
        return self.kernel.is_flat and not (self.kernel.has_barrier or self.kernel.has_shared)


class _Writer:
    """Finds out what to write.

    Attributes:
        buffers: of the application.
        replay: its steps.
    """

    def __init__(
        self, program: Program, classes: TypeClasses, parameter_of: Mapping[str, str], capture: Capture, name: str
    ) -> None:
        self._program, self._classes, self._capture = program, classes, capture
        self._parameter_of, self._name = parameter_of, name
        self._class_of = {(m.function, m.name): each for each in classes.classes for m in each.members}
        self._taken = {*TAKEN, *keyword.kwlist}
        self._launched = self._find_launched()
        self._sizes = self._find_sizes()
        self._named: set[str] = set()
        self._buffer_of = self._find_buffers()
        self._geometries = {name: self._geometry(each) for name, each in self._launched.items()}
        self._later: dict[str, list[NDArray[Any]]] = {}
        calls = list(self._calls())
        self.buffers = tuple(self._buffer_of.values())
        self.replay = replay(calls, may_swap=self._may_swap, text_of=self._text_of)
        self._templates = {
            name: template(program, each.kernel, classes, parameter_of, each.offsets)
            for name, each in self._launched.items()
        }

    # -- what was launched, on what ------------------------------------------------------------

    def _find_launched(self) -> dict[str, _Launched]:
        found: dict[str, _Launched] = {}
        for operation in self._capture.operations:
            if isinstance(operation, Launch):
                if operation.kernel not in found:
                    kernel = self._program.kernel(operation.kernel)
                    found[operation.kernel] = _Launched(kernel, self._unused(kernel.identifier))
                found[operation.kernel].launches.append(operation)
        for each in found.values():
            for index, parameter in each.pointers:
                if any(pointer.offset for pointer in each.values(index)):
                    each.offsets.append(parameter.name)
        return {each.name: each for each in found.values()}

    def _unused(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name

    def _find_sizes(self) -> dict[str, int]:
        """Return the whole numbers that kernels are always given under the same name: they may be sizes."""
        found: dict[str, set[int]] = {}
        for each in self._launched.values():
            for index, parameter in enumerate(each.kernel.parameters):
                if parameter.role == "scalar" and _INTEGERS.get(parameter.element, "")[-2:] in ("32", "64"):
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
        parameters = [(each, each.kernel.parameters[index]) for each, index in uses]
        scalars = {_scalar(parameter.element)[0]: parameter for _, parameter in parameters}
        each, parameter = parameters[0]
        name = self._unused(self._host_name(*uses[0]) or parameter.name)
        if len(scalars) > 1:
            one, other = list(scalars.values())[:2]
            raise ProgramError(
                f"{other.extent}: {other.name} is memory of {other.element}, which {one.name} ({one.extent}) takes for "
                f"{one.element}; mptune cannot tell what is in it: give them memory of their own"
            )
        scalar, components = _scalar(parameter.element)
        if scalar not in _PRECISIONS and scalar not in _INTEGERS:
            raise ProgramError(
                f"{parameter.extent}: memory of {parameter.element} ({parameter.name}) cannot be adopted; use arrays of "
                "numbers"
            )
        precision = self._precision(each.kernel, parameter) if scalar in _PRECISIONS else ""
        elements = self._capture.allocations[allocation] // _size(scalar) // components
        shape = (self._expression(elements), *([str(components)] if components > 1 else []))
        return AdoptedBuffer(
            allocation, name, parameter.element, shape, elements * components, precision, _INTEGERS.get(scalar, "")
        )

    def _host_name(self, each: _Launched, index: int) -> str:
        """Return what the program calls the memory it passes, where it first launches a kernel."""
        for site in self._program.launches:
            if site.kernel == each.kernel.label and index < len(site.arguments):
                text = self._program.text(site.arguments[index])
                return text if text.isidentifier() and text not in self._taken else ""
        return ""

    def _precision(self, kernel: Kernel, parameter: Parameter) -> str:
        """Return the precision parameter of a kernel's parameter, or its fixed precision."""
        found = self._class_of.get((kernel.label, parameter.name))
        if found is not None and found.name in self._parameter_of:
            return self._parameter_of[found.name]
        return _PRECISIONS[_scalar(parameter.element)[0]]

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
        operations = self._capture.operations
        last = max((i for i, o in enumerate(operations) if isinstance(o, Download)), default=-1)
        if last < 0:
            raise ProgramError(
                f"{self._program.sources[0].name} copies nothing back from the device: there is no result to compare"
            )
        live: set[int] = set()
        for operation in operations[: last + 1]:
            match operation:
                case Launch():
                    each = next(e for e in self._launched.values() if e.kernel.label == operation.kernel)
                    yield self._launch(each, operation, live)
                case Memset() | Upload() if operation.allocation in self._buffer_of:
                    yield from self._given(operation, live)
                case DeviceCopy() if operation.target in self._buffer_of:
                    yield self._copy(operation, live)
                case Download() if operation.allocation in self._buffer_of:
                    self._buffer_of[operation.allocation].is_output = True
                case _:
                    pass

    def _launch(self, each: _Launched, launch: Launch, live: set[int]) -> Call:
        buffers: list[tuple[str, str]] = []
        values: list[tuple[str, Number]] = []
        for parameter, value in zip(each.kernel.parameters, launch.arguments, strict=True):
            if parameter.is_pointer:
                buffer = self._buffer_of[value.allocation]
                buffer.is_written |= parameter.role != "in"
                live.add(value.allocation)
                buffers.append((parameter.name, buffer.name))
                if parameter.name in each.offsets:
                    values.append((f"{parameter.name}_offset", value.offset // _size(parameter.element)))
            elif parameter.role == "struct":
                raise ProgramError(
                    f"{parameter.extent}: kernel {each.kernel.label} takes the struct {parameter.name} by value, which "
                    "cannot be adopted yet; pass its fields"
                )
            else:
                values.append((parameter.name, value))
        values += self._geometry_passed(each, launch)
        return Call(each.name, tuple(buffers), tuple(values))

    def _given(self, operation: Memset | Upload, live: set[int]) -> Iterator[Call]:
        """Take what the program writes to memory: as initial values, unless something has used the memory before."""
        buffer = self._buffer_of[operation.allocation]
        type_of_it = buffer.stored
        whole = self._capture.allocations[operation.allocation]
        size = operation.size if isinstance(operation, Memset) else operation.data.nbytes
        if operation.allocation not in live:
            if buffer.initial is None:
                buffer.initial = np.zeros(whole // type_of_it.itemsize, type_of_it)
            given = buffer.initial.view(np.uint8)
            if isinstance(operation, Memset):
                given[operation.offset : operation.offset + size] = operation.value & 0xFF
            else:
                given[operation.offset : operation.offset + size] = operation.data
            return
        if size != whole:
            raise ProgramError(
                f"the program writes to a part of {buffer.name} between launches, which cannot be adopted; write all of it"
            )
        buffer.is_written = True
        if isinstance(operation, Memset):
            value = np.full(type_of_it.itemsize, operation.value & 0xFF, np.uint8).view(type_of_it)[0].item()
            yield Call("fill", (("", buffer.name),), (("", value),))
            return
        later = self._later.setdefault(buffer.name, [])
        later.append(operation.data.view(type_of_it))
        yield Call("write", (("", buffer.name),), (("", len(later) - 1),))

    def _copy(self, copy: DeviceCopy, live: set[int]) -> Call:
        target = self._buffer_of[copy.target]
        source = self._buffer_of.get(copy.source)
        whole = self._capture.allocations
        if source is None or not copy.size == whole[copy.source] == whole[copy.target]:
            raise ProgramError(
                f"the program copies a part of a buffer to {target.name} on the device, which cannot be adopted; copy "
                "all of it"
            )
        target.is_written = True
        live |= {copy.source, copy.target}
        return Call("copy", (("", source.name), ("", target.name)))

    def _may_swap(self, one: str, other: str) -> bool:
        by_name = {buffer.name: buffer for buffer in self._buffer_of.values()}
        a, b = by_name[one], by_name[other]
        return (a.shape, a.precision, a.dtype) == (b.shape, b.precision, b.dtype) and a.is_written and b.is_written

    def _text_of(self, call: Call, argument: str, value: Number) -> str:
        if call.function in self._launched and self._sizes.get(argument) == value and argument in self._named:
            return f"size.{argument}"
        return repr(value)

    # -- geometry ------------------------------------------------------------------------------

    def _geometry_passed(self, each: _Launched, launch: Launch) -> list[tuple[str, Number]]:
        """Return the numbers of a launch's geometry that differ from launch to launch."""
        threads = tuple(g * b for g, b in zip(launch.grid, launch.block, strict=True))
        found: list[tuple[str, Number]] = []
        if each.is_free:
            varying = [a for a in range(3) if len({t[a] for t in each.threads}) > 1]
            found += ((f"threads_{_AXES[a]}", threads[a]) for a in varying)
        else:
            grids = {one.grid for one in each.launches}
            found += ((f"grid_{_AXES[a]}", launch.grid[a]) for a in range(3) if len({g[a] for g in grids}) > 1)
            found += ((f"block_{_AXES[a]}", launch.block[a]) for a in range(3) if len({b[a] for b in each.blocks}) > 1)
        if len({one.shared_bytes for one in each.launches}) > 1:
            found.append(("shared_bytes", launch.shared_bytes))
        return found

    def _geometry(self, each: _Launched) -> tuple[list[str], list[str], list[str], list[str]]:
        """Return the texts of the parameters, constraints, grid and block of a kernel."""
        first = each.launches[0]
        dimensions = max(
            (a + 1 for a in range(3) if any(one.grid[a] * one.block[a] > 1 for one in each.launches)), default=1
        )
        if not each.is_free:
            grids = {one.grid for one in each.launches}
            grid = [self._same([g[a] for g in grids], f"grid_{_AXES[a]}") for a in range(dimensions)]
            block = [self._same([b[a] for b in each.blocks], f"block_{_AXES[a]}") for a in range(dimensions)]
            return [], [], grid, block
        parameters, grid, block = [], [], []
        for axis in range(dimensions):
            totals = {threads[axis] for threads in each.threads}
            own = {one[axis] for one in each.blocks}
            values = [b for b in sorted({*own, *_BLOCKS, 1, 2, 4, 8, 16}) if all(total % b == 0 for total in totals)]
            if dimensions == 1:
                values = [b for b in values if b >= min(32, *own)]
            name = "block" if dimensions == 1 else f"block_{_AXES[axis]}"
            total = self._threads(totals, first.block[axis]) if len(totals) == 1 else f"threads_{_AXES[axis]}"
            if len(values) > 1:
                parameters.append(f'OrdinalParameter("{name}", {values})')
                grid.append(f"{total} // {name}")
                block.append(name)
            else:
                grid.append(str(first.grid[axis]) if len(totals) == 1 else f"{total} // {values[0]}")
                block.append(str(values[0]))
        names = [text for text in block if not text.isdigit()]
        fixed = math.prod(int(text) for text in block if text.isdigit())
        product = " * ".join([*names, *([str(fixed)] if fixed > 1 else [])])
        constraints = [f"{min(32, math.prod(first.block))} <= {product} <= {_LARGEST_BLOCK}"] if len(names) > 1 else []
        return parameters, constraints, grid, block

    def _same(self, values: Sequence[int], name: str) -> str:
        return self._expression(values[0]) if len(set(values)) == 1 else name

    def _threads(self, totals: set[int], block: int) -> str:
        """Return how many threads there are along an axis as an expression over sizes, or the number."""
        (total,) = totals
        for missing in range(block):
            text = self._expression(total - missing)
            if not text.isdigit():
                return text if not missing else f"({text} + {block - 1}) // {block} * {block}"
        return str(total)

    # -- text ----------------------------------------------------------------------------------

    def templates(self) -> dict[str, str]:
        """Return the text of each template by file."""
        return {f"{name}.cu.j2": each.text for name, each in self._templates.items()}

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes by name."""
        return {name: self._sizes[name] for name in self._sizes if name in self._named}

    def adopted(self, folder: Path) -> Adopted:
        """Return what was made."""
        kernels = {name: len(each.launches) for name, each in self._launched.items()}
        labels = {each.kernel.label for each in self._launched.values()}
        kept = tuple(each for each in self._classes.classes if each.kept and labels & set(each.kernels))
        parameters = tuple(self._parameters())
        return Adopted(self._name, folder, kernels, self.buffers, parameters, kept, self.sizes, ())

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
        for parameter in each.kernel.parameters:
            if _scalar(parameter.element)[0] in _PRECISIONS:
                used.add(self._precision(each.kernel, parameter))
        return [p for p in dict.fromkeys(self._parameter_of.values()) if p in used]

    def definition(self, metric: str | None) -> str:
        """Return the text of the definition file."""
        source = self._program.sources[0].name
        launched = "; ".join(
            f"{n} {len(e.launches)} times" if len(e.launches) > 1 else n for n, e in self._launched.items()
        )
        parts = [
            f'"""{self._name}, adopted from {source}{self._as_run()}."""',
            self._imports(),
            f"HERE = Path(__file__).parent\n{self._tables()}",
            "# The types, and what has them in the program.\n" + "\n".join(self._parameter_texts()),
            *(self._kernel_text(name) for name in self._launched),
            _INPUTS,
            f"def steps(run, size):\n{self._steps(launched)}",
            self._application_text(source, metric),
        ]
        return "\n\n".join(part.rstrip() for part in parts if part) + "\n"

    def _as_run(self) -> str:
        arguments = " ".join(self._capture.arguments)
        return f", as it ran with the arguments {arguments}" if arguments else ""

    def _imports(self) -> str:
        names = {"Application", "Kernel", *(buffer.role for buffer in self.buffers)}
        names |= {"PrecisionParameter"} if self._parameter_of else set()
        names |= {"PolicyParameter"} if any(each.has_policy for each in self._templates.values()) else set()
        names |= {"OrdinalParameter"} if any(parameters for parameters, *_ in self._geometries.values()) else set()
        for each in self._launched.values():
            names |= {_ROLES[p.role] for p in each.kernel.parameters}
        return f"from pathlib import Path\n\nimport numpy as np\n\n{_wrapped('from mptune import ', sorted(names), '', '')}"

    def _tables(self) -> str:
        return (
            '#: Numbers that differ from launch to launch.\nTABLES = dict(np.load(HERE / "steps.npz"))'
            if self.tables
            else ""
        )

    @property
    def tables(self) -> dict[str, NDArray[Any]]:
        """The numbers that the steps look up, by name."""
        return {**self.replay.tables, **{f"{name}_given": np.stack(values) for name, values in self._later.items()}}

    def _parameter_texts(self) -> Iterator[str]:
        for parameter in self._parameters():
            types = ", ".join(f'"{each}"' for each in parameter.types)
            yield f'{parameter.name} = PrecisionParameter("{parameter.name}", [{types}])  # {_listed(parameter.members)}'

    def _kernel_text(self, name: str) -> str:
        each, made = self._launched[name], self._templates[name]
        parameters, constraints, grid, block = self._geometries[name]
        names = [*self._of_kernel(name), *parameters, *(['PolicyParameter("policy")'] if made.has_policy else [])]
        shared = {one.shared_bytes for one in each.launches}
        lines = [
            f'name="{name}",',
            *([f'function="{made.function}",'] if made.function != name else []),
            _wrapped("parameters=", names, "[", "],"),
            "arguments=[",
            *(f"    {text}," for text in self._arguments(each)),
            "],",
            f"grid={_strings(grid)},",
            f"block={_strings(block)},",
            *([f"shared_bytes={next(iter(shared))},"] if len(shared) == 1 and shared != {0} else []),
            *(['shared_bytes="shared_bytes",'] if len(shared) > 1 else []),
            *([f"constraints={_strings(constraints)},"] if constraints else []),
            f'template="{name}.cu.j2",',
        ]
        body = "\n".join(lines)
        return f"{name} = Kernel(\n{textwrap.indent(body, '    ')}\n)"

    def _arguments(self, each: _Launched) -> Iterator[str]:
        for index, parameter in enumerate(each.kernel.parameters):
            scalar, components = _scalar(parameter.element)
            type_of_it = f'dtype="{_INTEGERS.get(scalar, "int32")}"'
            if scalar in _PRECISIONS:
                type_of_it = f"precision={_quoted(self._precision(each.kernel, parameter))}"
            if not parameter.is_pointer:
                yield f'Scalar("{parameter.name}", {type_of_it})'
                continue
            shapes = {self._buffer_of[pointer.allocation].shape for pointer in each.values(index)}
            shape = shapes.pop() if len(shapes) == 1 else (f"{parameter.name}_size",)
            text = f'"{shape[0]}"' if len(shape) == 1 else f"({', '.join(map(_quoted, shape))})"
            yield f'{_ROLES[parameter.role]}("{parameter.name}", {text}, {type_of_it})'
        for name in each.offsets:
            yield f'Scalar("{name}_offset", dtype="int64")'

    def _steps(self, launched: str) -> str:
        lines = [f'"""What the program launched: {launched}."""', *self.replay.lines]
        return "\n".join(_broken(f"    {line}") for line in lines)

    def _application_text(self, source: str, metric: str | None) -> str:
        def declared(buffer: AdoptedBuffer) -> str:
            shape = f"({', '.join(map(_quoted, buffer.shape))})" if len(buffer.shape) > 1 else f'"{buffer.shape[0]}"'
            what = f'precision="{buffer.precision}"' if buffer.precision else f'dtype="{buffer.dtype}"'
            return f'        {buffer.role}("{buffer.name}", {shape}, {what}),'

        outputs = [buffer.name for buffer in self.buffers if buffer.is_output]
        sizes = ", ".join(f'"{name}": {value}' for name, value in self.sizes.items())
        return "\n".join(
            (
                "application = Application(",
                f'    name="{self._name}",',
                f"    {_wrapped('kernels=', list(self._launched), '[', '],')}",
                "    buffers=[",
                *(declared(buffer) for buffer in self.buffers),
                "    ],",
                f'    sizes={{"default": {{{sizes}}}}},',
                "    inputs=inputs,",
                "    steps=steps,",
                f"    outputs={_strings(outputs)},",
                *([f"    metric={metric!r},"] if metric else []),
                f'    description="adopted from {source}",',
                ")",
            )
        )


_ROLES: Final = {"in": "In", "out": "Out", "inout": "InOut", "scalar": "Scalar"}
_INPUTS: Final = '''
def inputs(rng, size):
    """What the program copied to the device; in every draw but the first, each number is up to a tenth off."""
    given = dict(np.load(HERE / "inputs.npz"))
    if rng.bit_generator.seed_seq.spawn_key:
        for name, values in given.items():
            if values.dtype.kind == "f":
                given[name] = values * (1 + 0.1 * rng.uniform(-1, 1, values.shape))
    return given
'''.strip()


def _scalar(element: str) -> tuple[str, int]:
    """Return the type of the numbers in an element of an array, and how many they are."""
    found = _VECTOR.fullmatch(element)
    return (found[1], int(found[2])) if found else (element, 1)


def _size(element: str) -> int:
    """Return the bytes of an element."""
    scalar, components = _scalar(element)
    return components * np.dtype(_INTEGERS.get(scalar) or _NUMPY[scalar]).itemsize


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
