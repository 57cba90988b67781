"""The launches of a run, with their kernels and their arguments as the kernels' templates take them."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from mptune.adopt.capture import FOR_KERNEL, Capture, Copy, Launch, Place, Scalar, Structure, plain_name
from mptune.adopt.classes import TypeClass, TypeClasses
from mptune.adopt.classing import type_classes
from mptune.adopt.number_types import NUMBERS, SCALARS, vector_of
from mptune.adopt.parsing import Extent, KernelRefusedError, Refusal
from mptune.adopt.patching_loops import tied_in_text, with_types_in_text
from mptune.adopt.reading import Kernel, Parameter, Program
from mptune.adopt.template import class_of, fields_of, layout_of

#: NumPy's names of C++'s types: whole numbers, and those of floating-point types.
NUMPY: Final = {name: each.numpy for name, each in NUMBERS.items() if each.precision and each.numpy}
INTEGERS: Final = {name: each.numpy for name, each in NUMBERS.items() if name not in SCALARS}
AXES: Final = "xyz"
_WHOLE: Final = re.compile(r"\b(?:(?:long|short|unsigned|signed|int|char)\b\s*)+")

Number = int | float
Shape = tuple[int, int, int]
#: What a launch passes: the parameter, of a struct each field; the struct; and what it is.
_Passed = tuple[Parameter, str, Scalar | Place | str | None]


@dataclass(frozen=True, slots=True)
class KernelLaunch:
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


@dataclass(frozen=True)
class LaunchedKernel:
    """A kernel that was launched, with all of its launches.

    Attributes:
        kernel: what was launched.
        name: what it is called.
        parameters: that its template has.
        nulls: the pointers that are null in all launches, or that it does not use: its template has none of them.
        owners: what each number and pointer it is passed is called in the program, and whose it is: the kernel's, or a
            struct's; by the name of the parameter.
        launches: in order.
        is_fixed: whether nothing about it is tuned.
        has_fixed_blocks: whether its blocks are not.
    """

    kernel: Kernel
    name: str
    parameters: tuple[Parameter, ...]
    nulls: frozenset[str]
    owners: Mapping[str, tuple[str, str]]
    launches: tuple[KernelLaunch, ...]
    is_fixed: bool
    has_fixed_blocks: bool = False

    def values(self, index: int) -> list[Any]:
        """Return what an argument was in each launch."""
        return [launch.arguments[index] for launch in self.launches]

    @property
    def roles(self) -> dict[str, str]:
        """The roles of its parameters by name."""
        return {parameter.name: parameter.role for parameter in self.parameters}

    @property
    def pointers(self) -> Iterator[tuple[int, Parameter]]:
        """The parameters that are pointers, with their places."""
        return ((i, p) for i, p in enumerate(self.parameters) if p.is_pointer)

    @cached_property
    def offsets(self) -> dict[str, str]:
        """The pointers that are not always at the start of their buffer, each with the argument that says where."""
        found, taken = {}, {parameter.name for parameter in self.parameters}
        for index, parameter in self.pointers:
            if any(place.offset for place in self.values(index)):
                name = f"{parameter.name}_offset"
                while name in taken:
                    name += "_"
                found[parameter.name] = name
        return found

    @property
    def apart(self) -> frozenset[str]:
        """The pointers to memory that no launch writes to through another one, nor reads what they write there."""
        uses = {p.name: (p.role != "in", [place.allocation for place in self.values(i)]) for i, p in self.pointers}

        def may_meet(one: str, other: str) -> bool:
            (writes, places), (other_writes, others) = uses[one], uses[other]
            return (writes or other_writes) and any(map(operator.eq, places, others))

        return frozenset(one for one in uses if not any(may_meet(one, other) for other in uses if other != one))

    @cached_property
    def blocks(self) -> list[Shape]:
        """The blocks it was launched with, each once."""
        return list(dict.fromkeys(launch.block for launch in self.launches))

    @cached_property
    def threads(self) -> list[Shape]:
        """How many threads it was launched with along each axis, each once."""
        return list(dict.fromkeys(launch.threads for launch in self.launches))

    @cached_property
    def dimensions(self) -> int:
        """Along how many axes it has more than one thread, at least one."""
        return max((axis + 1 for axis in range(3) if any(threads[axis] > 1 for threads in self.threads)), default=1)

    def geometry(self, launch: KernelLaunch) -> dict[str, int]:
        """Return what says how it is launched, by name: threads where they may be in blocks of any size."""
        extents = {"threads": launch.threads} if self.is_free else {"grid": launch.grid, "block": launch.block}
        named = {f"{what}_{axis}": n for what, found in extents.items() for axis, n in zip(AXES, found, strict=True)}
        return {**named, "shared_bytes": launch.shared_bytes}

    @property
    def is_free(self) -> bool:
        """Whether it does the same in blocks of any size."""
        is_told = self.is_fixed or self.has_fixed_blocks
        return self.kernel.is_flat and not (self.kernel.has_barrier or self.kernel.has_shared or is_told)


def find_launched(
    program: Program, capture: Capture, name_for: Callable[[Kernel], str]
) -> tuple[list[LaunchedKernel], dict[int, tuple[str, KernelLaunch]]]:
    """Return the kernels that were launched; and the name and launch of each that is different, by its index.

    Args:
        program: the program.
        capture: its run.
        name_for: gives the name of a kernel, and is asked once for each.

    Raises:
        KernelRefusedError: a launch cannot be adopted.
    """
    seen: dict[int, tuple[Launch, Kernel, list[_Passed]]] = {}
    used: dict[str, set[str]] = {}
    for index in dict.fromkeys(capture.sequence.tolist()):
        launch = capture.different[index]
        if isinstance(launch, Launch):
            kernel = _kernel_of(program, launch)
            passed = list(_passed_by(kernel, launch))
            seen[index] = launch, kernel, passed
            names = (leaf.flat for leaf, _, value in passed if value is not None and leaf.is_used)
            used.setdefault(kernel.label, set()).update(names)
    launch_at = {
        index: _launch(program, launch, kernel, [each for each in passed if each[0].flat in used[kernel.label]])
        for index, (launch, kernel, passed) in seen.items()
    }
    launches: dict[str, list[KernelLaunch]] = {label: [] for label in used}
    for index in capture.sequence.tolist():
        if index in seen:
            launches[seen[index][1].label].append(launch_at[index])
    found: dict[str, LaunchedKernel] = {}
    for _, kernel, _ in seen.values():
        label = kernel.label
        if label not in found:
            leaves = [each for parameter in kernel.parameters for each in fields_of(parameter)]
            found[label] = LaunchedKernel(
                kernel,
                name_for(kernel),
                tuple(dataclasses.replace(leaf, name=leaf.flat) for leaf, _ in leaves if leaf.flat in used[label]),
                frozenset(leaf.flat for leaf, _ in leaves if leaf.flat not in used[label]),
                {leaf.flat: (leaf.name, struct or label) for leaf, struct in leaves},
                tuple(launches[label]),
                is_fixed=bool(program.tuned) and label not in program.tuned,
            )
    names_at = {index: (found[seen[index][1].label].name, launch) for index, launch in launch_at.items()}
    return list(found.values()), names_at


def _launch(program: Program, launch: Launch, kernel: Kernel, passed: Iterable[_Passed]) -> KernelLaunch:
    arguments: list[Place | Number] = []
    for leaf, _, value in passed:
        if isinstance(value, Place):
            arguments.append(value)
        elif isinstance(value, Scalar):
            arguments.append(int(value.value) if value.type[0] == "b" else value.value)
        else:
            given, remedy = "a pointer of the host", "pass memory of the device"
            if program.originals:
                given = "memory of which it is not known where it ends"
                remedy = "let it be an array, a std::vector, or from new or malloc"
            given = "a null pointer at times" if value is None else given
            raise _refused(launch, kernel.label, f"gets {given} for {leaf.name}", remedy)
    return KernelLaunch(launch.grid, launch.block, launch.shared_bytes, tuple(arguments))


# -- what a run says of the program --------------------------------------------------------------


def classes_in(program: Program, capture: Capture) -> TypeClasses:
    """Return the type classes of a program, with what a run of it, its text and the user say of them.

    Those that have the same memory in the run are one, as are those that its text can only give the same type. Where
    the text can have no other type, a class keeps its own: tuning finds no types that cannot be written. Kernels that
    are not to be tuned keep theirs, and so does memory of kernels that are not adopted.
    """
    classes = type_classes(
        program,
        lambda classes: _sharing(program, classes, capture).values(),
        lambda classes: tied_in_text(program, classes),
        lambda classes: _given_to_libraries(_sharing(program, classes, capture), capture),
    )
    classes = with_types_in_text(program, classes)
    of_others = {
        copy.source.allocation
        for copy in capture.different
        if isinstance(copy, Copy) and copy.host == FOR_KERNEL and copy.source is not None
    }
    memory = _sharing(program, classes, capture)
    given_away = {name for allocation in of_others & memory.keys() for name in memory[allocation]}

    def kept(each: TypeClass) -> TypeClass:
        others = [label for label in each.kernels if program.tuned and label not in program.tuned]
        why = f"the kernel {others[0]} has it, which is not to be tuned" if others else ""
        if each.name in given_away:
            why = f"it is memory that {' or '.join(capture.own)} uses, which is not adopted"
        return dataclasses.replace(each, kept=each.kept or why)

    return dataclasses.replace(classes, classes=tuple(map(kept, classes.classes)))


def _given_to_libraries(sharing: Mapping[int, set[str]], capture: Capture) -> dict[str, str]:
    """Return the names of the type classes whose memory calls of libraries take for the type it has, each with why."""
    calls = {id: each.library for id, each in capture.of_libraries.items()}
    return {name: f"{calls[id]} takes its memory for this type" for id in calls for name in sharing.get(id, ())}


def _sharing(program: Program, classes: TypeClasses, capture: Capture) -> dict[int, set[str]]:
    """Return the names of type classes that a run has in the same memory, by allocation."""
    found: dict[int, set[str]] = {}
    kernels: dict[str, list[Kernel]] = {}
    for kernel in program.kernels:
        kernels.setdefault(kernel.name, []).append(kernel)
    for launch in (each for each in capture.different if isinstance(each, Launch)):
        instantiations = kernels.get(plain_name(launch.kernel), [])
        for leaf, struct, value in _passed_by(instantiations[0], launch) if len(instantiations) == 1 else ():
            if isinstance(value, Place) and (each := class_of(classes, leaf.name, struct or instantiations[0].label)):
                found.setdefault(value.allocation, set()).add(each.name)
    return found


# -- the kernel and the arguments of a launch ----------------------------------------------------


def _kernel_of(program: Program, launch: Launch) -> Kernel:
    """Return the kernel that was launched: that of the place in the source, since names may be a template's."""
    name = plain_name(launch.kernel)
    sites = [
        site
        for site in program.launches
        if site.extent.file.name == launch.file.name and plain_name(site.kernel) == name
    ]
    near = sorted(sites, key=lambda site: abs(site.extent.line - launch.line))
    labels = [near[0].kernel] if near else []
    here = [site.kernel for site in near if site.extent == near[0].extent]
    if len(here) > 1:  # in a template of the host
        labels = _instantiation(program, launch, here)
        if len(labels) > 1:
            what = "is launched in one place with several template arguments, which cannot be told from each other"
            raise _refused(launch, name, what, "launch each in a place of its own")
    labels += [kernel.label for kernel in program.kernels if kernel.name == name]
    for label in labels:
        try:
            return program.kernel(label)
        except KeyError:
            continue
    raise _refused(launch, name, "is launched by a name that no kernel was read by", "launch it by its own name")


def _refused(launch: Launch, kernel: str, what: str, remedy: str) -> KernelRefusedError:
    place = Extent(launch.file, 0, 0, launch.line)
    return KernelRefusedError(Refusal(place, what, remedy, kernel))


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


def _passed_by(kernel: Kernel, launch: Launch) -> Iterator[_Passed]:
    """Yield what a launch passes a kernel, of a struct each field: the parameter, its struct, and what it is.

    Raises:
        KernelRefusedError: a struct has more than numbers and pointers.
    """
    if len(launch.arguments) < len(kernel.parameters):
        left_out = kernel.parameters[len(launch.arguments)].name
        what = f"is launched without {left_out}, which has a default"
        raise _refused(launch, kernel.label, what, "write it out")
    for parameter, value in zip(kernel.parameters, launch.arguments, strict=True):
        if not isinstance(value, Structure):
            yield parameter, "", value
            continue
        try:
            places, size, _ = layout_of(parameter, lambda leaf, _: bytes_of(leaf.element))
        except (KeyError, ValueError):
            places, size = [], -1
        if size != len(value.data):
            what = f"takes the struct {parameter.name} by value, which has more than numbers and pointers"
            raise _refused(launch, kernel.label, what, "pass its fields")
        for (leaf, place), (_, struct) in zip(places, fields_of(parameter), strict=True):
            yield leaf, struct, _field(leaf, value, place)


def _field(leaf: Parameter, value: Structure, place: int) -> Scalar | Place | str | None:
    """Return what a field of a struct is."""
    if leaf.is_pointer:
        return value.pointers.get(place, "unknown" if any(value.data[place : place + 8]) else None)
    kind = np.dtype(INTEGERS.get(leaf.element) or NUMPY[leaf.element])
    return Scalar(f"{kind.kind}{kind.itemsize}", value.data[place : place + kind.itemsize])


def numbers_of(parameter: Parameter) -> tuple[str, int]:
    """Return the type of the numbers that a parameter is or points at, and how many an element has."""
    if parameter.memory is not None:
        return parameter.memory.numbers
    return vector_of(parameter.element) or (parameter.element, 1)


def bytes_of(element: str) -> int:
    """Return the bytes of an element."""
    scalar, components = vector_of(element) or (element, 1)
    return components * np.dtype(INTEGERS.get(scalar) or NUMPY[scalar]).itemsize


def _without_spaces(name: str) -> str:
    """Return the name of a type or a kernel without what two compilers write differently."""
    name = re.sub(r"\b(const|__restrict(__)?)\b", "", name)
    name = _WHOLE.sub(lambda found: _in_order(found[0].split()), name)
    return re.sub(r"\s", "", name)


def _in_order(words: Sequence[str]) -> str:
    """Return the words of a type of whole numbers (``long unsigned int``) in one order."""
    return "".join(sorted(word for word in words if word != "int" or len(words) == 1))
