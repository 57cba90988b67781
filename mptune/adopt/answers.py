"""The answer of a run of a program: what it copied to the host, as numbers of the types that the program has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from mptune.adopt.capture import Capture, Launch, Place, Structure, plain_name
from mptune.adopt.classes import TypeClasses
from mptune.adopt.findings import record_of
from mptune.adopt.number_types import PRECISIONS as PRECISION_OF
from mptune.adopt.progress import Turns
from mptune.adopt.reading import Memory, Parameter, Program
from mptune.adopt.template import class_of, fields_of, layout_of
from mptune.precision import PRECISIONS

#: Begins the name of an output that has none in the run; its number follows.
UNNAMED: Final = "output "
_DECORATION: Final = re.compile(r"\b(const|volatile|struct|__restrict__|__restrict)\b|[*&]")
_VECTOR: Final = re.compile(r"^(double|float|int)[1-4]$")
#: Bits of C++'s integers, by the word that decides their size.
_BITS: Final = {"bool": 8, "char": 8, "short": 16, "long": 64}
#: The operation that combines the partial results of a reduction, by its operator.
_COMBINED: Final[Mapping[str, Callable[[NDArray[Any]], Any]]] = {
    "+": np.sum, "-": np.sum, "*": np.prod, "max": np.max, "min": np.min,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answers:
    """Reads the answers of a program's runs.

    Attributes:
        program: the program.
        classes: its type classes.
        types: the precision of each, by name.
    """

    program: Program
    classes: TypeClasses
    types: Mapping[str, str]

    def of(self, captured: Capture) -> dict[str, Turns]:
        """Return what a run copied back of variables and of the memory kernels and libraries are given, by allocation.

        Structs of numbers of several types come last, each of their fields for itself, as adopting has them.
        """
        names = {each.id: each.name for each in captured.allocations.values() if each.kind == "symbol"}
        stored = {id: self._of_symbol(name) for id, name in names.items()}
        elements = {id: _VECTOR.sub(r"\1", copy.element) for id, copy in captured.of_libraries.items()}
        stored |= {id: _held("", element) for id, element in elements.items()}
        for launch in captured.launches():
            stored.update(self._of_launch(launch))
        whole, fields = list[tuple[str, Turns]](), list[tuple[str, Turns]]()
        for id, turns in captured.turns.items():
            kind, name = stored.get(id), names.get(id, "")
            if kind is None:
                continue
            copies = [None if each is None else _elements(each, kind) for each in map(captured.joined, turns)]
            if kind.names is None:
                whole.append((name, [None if each is None else _widened(each) for each in copies]))
            for part in kind.names or ():
                numbers = [None if each is None else _widened(each[part]) for each in copies]
                fields.append((f"{name}.{part}" if name else "", numbers))
        return {name or f"{UNNAMED}{i}": turns for i, (name, turns) in enumerate([*whole, *fields])}

    def reduced(self, captured: Capture) -> dict[str, tuple[float, bool]]:
        """Return what loops reduce to, by their kernels and variables, and whether it is rounding errors alone.

        (It is what their last launches left, but for what was in the variable before.)
        """
        found: dict[str, tuple[float, bool]] = {}
        launches = {launch.kernel: launch for launch in captured.launches()}
        kernels = {kernel.name: [each.name for each in kernel.parameters] for kernel in self.program.kernels}
        for loop in (loop for loop in self.program.loops if loop.kernel in launches.keys() & kernels.keys()):
            launch = launches[loop.kernel]
            stored = dict(self._of_launch(launch))
            for name, sign in loop.reduced.items():
                place = launch.arguments[kernels[loop.kernel].index(f"{name}_parts")]
                kind = stored.get(place.allocation) if isinstance(place, Place) else None
                turns = captured.turns.get(place.allocation, ()) if isinstance(place, Place) else ()
                data = captured.joined(turns[0]) if turns else None
                if data is None or kind is None or sign not in _COMBINED:
                    continue
                parts = _widened(_elements(data, kind))[: launch.grid[0]].astype(np.float64)
                with np.errstate(over="ignore", invalid="ignore"):
                    value = float(_COMBINED[sign](parts))
                    rounding = launch.grid[0] * launch.block[0] * np.finfo(np.float64).eps * np.abs(parts).sum()
                found[f"{loop.kernel}.{name}"] = value, sign != "*" and abs(value) <= rounding
        return found

    def _of_symbol(self, name: str) -> np.dtype[Any] | None:
        """Return how a variable in the device's memory holds its numbers; None if it is not known."""
        own = next((c for c in self.classes.classes for m in c.members if (m.function, m.name) == ("", name)), None)
        if own is not None:
            return _held(self.types[own.name], own.scalar)
        needs = (need.memory for kernel in self.program.kernels for need in kernel.needs if need.name == name)
        return self._of_memory(next(needs, None))

    def _of_memory(self, memory: Memory | None) -> np.dtype[Any] | None:
        """Return how structs hold their numbers: a type of NumPy's with fields if these have several types."""
        if memory is None or not memory.fields or memory.has_pointers:
            return None
        if memory.is_mixed:
            kind: np.dtype[Any] = np.dtype(cast("Any", record_of(memory)))
            return kind
        return self._of_field(memory.fields[0].name, memory.fields[0].struct, memory.numbers[0])

    def _of_field(self, name: str, struct: str, scalar: str) -> np.dtype[Any] | None:
        own = class_of(self.classes, name, struct)
        return _held("", scalar) if own is None else _held(self.types[own.name], own.scalar)

    def _of_launch(self, launch: Launch) -> Iterator[tuple[int, np.dtype[Any]]]:
        """Yield how each allocation that a launch is given holds its numbers."""
        name = plain_name(launch.kernel).split("::")[-1]
        kernels = [kernel for kernel in self.program.kernels if kernel.name == name]
        for index, (argument, spelled) in enumerate(zip(launch.arguments, launch.types, strict=False)):
            if isinstance(argument, Place):
                element = " ".join(_DECORATION.sub("", spelled).split())
                structs = [memory for each in kernels if (memory := each.parameters[index].memory) is not None]
                of_name = next((each for each in structs if each.name == element), next(iter(structs), None))
                scalar = _VECTOR.sub(r"\1", element)
                if (kind := _held("", scalar) or self._of_memory(of_name)) is not None:
                    yield argument.allocation, kind
            elif isinstance(argument, Structure) and kernels:
                yield from self._of_fields(kernels[0].parameters[index], argument)

    def _of_fields(self, struct: Parameter, given: Structure) -> Iterator[tuple[int, np.dtype[Any]]]:
        """Yield the same of the allocations that the fields of a struct point at."""

        def held(field: Parameter, owner: str) -> np.dtype[Any] | None:
            return self._of_field(field.name, owner, field.element) or self._of_memory(field.memory)

        def bytes_of(field: Parameter, owner: str) -> int:
            kind = held(field, owner)
            return 1 if kind is None else kind.itemsize

        kinds = {leaf.name: held(leaf, owner) for leaf, owner in fields_of(struct) if leaf.is_pointer}
        places, size, _ = layout_of(struct, bytes_of)
        found = {place: kinds[leaf.name] for leaf, place in places if leaf.is_pointer}
        if size != len(given.data):
            # What a number is in the text is not always how it is stored; in which order pointers come is the same.
            found = dict(zip(sorted(given.pointers), kinds.values(), strict=False))
        for at, to in given.pointers.items():
            if isinstance(to, Place) and (kind := found.get(at)) is not None:
                yield to.allocation, kind


def _held(precision: str, scalar: str) -> np.dtype[Any] | None:
    """Return how numbers of a precision, or else of a type of C++, are held; None if it is not known."""
    kind = precision or PRECISION_OF.get(scalar, "")
    if kind in PRECISIONS:
        return PRECISIONS[kind].dtype
    if scalar == "long double":
        return np.dtype("longdouble")
    words = scalar.split()
    if not words or not {"int", "signed", "unsigned", *_BITS}.issuperset(words):
        return None
    bits = next((bits for word, bits in _BITS.items() if word in words), 32)
    return np.dtype(f"{'u' * ('unsigned' in words or 'bool' in words)}int{bits}")


def _elements(data: NDArray[np.uint8], kind: np.dtype[Any]) -> NDArray[Any]:
    return data[: data.size // kind.itemsize * kind.itemsize].view(kind)


def _widened(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.float64) if values.dtype.kind not in "iu" else values
