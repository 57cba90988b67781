"""What a definition is made of: what was found out from a program and a run of it, and is written as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.adopt.classes import TypeClass, told
from mptune.adopt.launched import INTEGERS, NUMPY, KernelLaunch, LaunchedKernel
from mptune.adopt.reading import Field, Memory
from mptune.adopt.template import Template

#: Default error metrics: of outputs whose values have one sign, and of outputs with values of both signs.
UNSIGNED: Final = "NRMSE"
SIGNED: Final = "NMAE"
#: Values below this share of the largest magnitude have no sign: rounding may have left them of a 0.
_NO_SIGN: Final = 1e-9
#: Components of vectors whose mean magnitudes differ by more are judged each for itself; what is below such a share of
#: the largest is what rounding left of a 0.
_ALIKE: Final = 100.0
_ROUNDING: Final = 1e-14


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a kernel, as its definition declares it.

    Attributes:
        role: "In", "Out", "InOut", "Scalar" or "Constant".
        name: its name.
        shape: its axes, as expressions over sizes; how many numbers a constant has.
        precision: the parameter that sets its type, or a fixed precision; "" for integers.
        dtype: the type of integers; "" for others.
    """

    role: str
    name: str
    shape: tuple[str, ...] | int
    precision: str
    dtype: str

    @property
    def declared(self) -> str:
        """The text of its declaration."""
        given = (str(self.shape),) if isinstance(self.shape, int) else self.shape
        axes = [axis if axis.isdigit() else f'"{axis}"' for axis in given]
        shape = f", ({', '.join(axes)})" if len(axes) > 1 else "".join(f", {axis}" for axis in axes)
        type_of_it = f'precision="{self.precision}"' if self.precision else f'dtype="{self.dtype}"'
        return f'{self.role}("{self.name}"{shape}, {type_of_it})'


@dataclass(frozen=True, slots=True)
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
        structs: what its elements are, if they are structs of several types: it is bytes then.
        has_fields: whether its elements are structs of several fields of one type: its last axis.
        field_of: the buffer and the field that it is to hold at the end, for what is compared of structs.
        is_given: whether the program writes to it before a kernel uses it.
        is_written: whether something is written to it after that.
        is_output: whether the program copied it back at the end.
        results: what it was then, as far as that is known: pieces by the element they begin at.
    """

    allocation: int
    name: str
    type: str
    shape: tuple[str, ...]
    elements: int
    precision: str
    dtype: str
    structs: Memory | None = None
    has_fields: bool = False
    field_of: tuple[str, str] | None = None
    is_given: bool = False
    is_written: bool = False
    is_output: bool = False
    results: Mapping[int, NDArray[Any]] = field(default_factory=dict)

    @property
    def stored(self) -> np.dtype[Any]:
        """The type of the program's own memory."""
        return np.dtype(self.dtype or NUMPY[self.type])

    @property
    def bytes(self) -> int:
        """How long it is."""
        return self.elements * self.stored.itemsize

    @property
    def inner_axes(self) -> tuple[int, ...]:
        """All of its axes but the first."""
        return tuple(map(int, self.shape[1:]))

    @property
    def has_numbers(self) -> bool:
        """Whether its elements are, or have, floating-point numbers."""
        has_fields = self.structs is not None and any(each.scalar in NUMPY for each in self.structs.fields)
        return self.stored.kind == "f" or has_fields

    @property
    def is_apart(self) -> bool:
        """Whether each number of an element is judged for itself: a field of a struct, or vectors of unlike numbers."""
        if self.has_fields or len(self.inner_axes) != 1:
            return self.has_fields
        scales = np.array([np.abs(values).mean() if values.size else 0.0 for values in self._results_apart()])
        scales = scales[scales > _ROUNDING * scales.max(initial=0.0)]
        return scales.size > 1 and bool(scales.max() / _ALIKE > scales.min())

    @property
    def metric(self) -> str:
        """The default error metric: NRMSE divides by the mean, which is near 0 for values of both signs."""
        values = self._results_apart()
        is_apart = self.is_apart
        one = SIGNED if any(map(_has_signs, values if is_apart else [np.concatenate(values)])) else UNSIGNED
        return over_each(one) if is_apart else one

    def _results_apart(self) -> list[NDArray[np.float64]]:
        """Return the finite numbers of the results by their place in an element."""
        count = math.prod(self.inner_axes)
        found = []
        for place in range(count):
            parts = (values[(place - start) % count :: count] for start, values in self.results.items())
            values = np.concatenate([np.empty(0), *(part.astype(np.float64) for part in parts)])
            found.append(values[np.isfinite(values)])
        return found

    @property
    def role(self) -> str:
        """What it is for the program."""
        if self.is_output:
            return "output"
        return "scratch" if not self.is_given else "input, written" if self.is_written else "input"

    @property
    def declared(self) -> str:
        """The text of its declaration."""
        return Argument("Scratch", self.name, self.shape, self.precision, self.dtype).declared


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
        return tuple(told(member for each in self.classes for member in each.members))

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of what has its type."""
        return tuple(dict.fromkeys(each.role for each in self.classes))


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a kernel is launched, as expressions over sizes and over what may be chosen.

    Attributes:
        choices: the values of what may be chosen, by name.
        own: the program's own value of each.
        constraints: that what is chosen has to meet.
        grid: blocks along each axis.
        block: threads of a block along each axis.
        shared_bytes: of dynamic shared memory; "" for none.
        extents: the sizes that only a launch has: what each is of the launch, by name.
    """

    choices: Mapping[str, Sequence[int]]
    own: Mapping[str, int]
    constraints: tuple[str, ...]
    grid: tuple[str, ...]
    block: tuple[str, ...]
    shared_bytes: str
    extents: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AdoptedKernel:
    """A kernel of what a program became.

    Attributes:
        launched: the program's own.
        template: its template.
        precisions: its precision parameters.
        arguments: as they are declared.
        geometry: how it is launched.
        most_in_block: threads of a block at most; 0 for any number.
    """

    launched: LaunchedKernel
    template: Template
    precisions: tuple[str, ...]
    arguments: tuple[Argument, ...]
    geometry: Geometry
    most_in_block: int


@dataclass(frozen=True, slots=True)
class Draws:
    """What is changed for every draw of the inputs but the first, which is the program's own.

    Attributes:
        of: "data": what the program copies to the device before it sees a result; "numbers": the floating-point
            numbers that kernels are passed until then; "nothing".
        by: the largest change of a number, as a part of it.
        names: buffers and variables whose data are changed; empty for all.
    """

    of: str = "data"
    by: float = 0.1
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found out.

    Attributes:
        kernels: those launched, by name.
        buffers: of the application.
        parameters: its precision parameters.
        kept: the type classes that keep their type.
        sizes: the arguments of the program that are sizes: place and value, by name.
        launch_at: the name and the launch of each that is different, by its index in the capture.
        progress: the names of buffers that only tell the host how far a loop has come, which are no outputs.
        draws: what is changed for fresh inputs.
        looks_early: whether the host reads results that change later, by which it may decide what to launch.
        notes: what a user should know.
    """

    kernels: Mapping[str, AdoptedKernel]
    buffers: tuple[AdoptedBuffer, ...]
    parameters: tuple[AdoptedParameter, ...]
    kept: tuple[TypeClass, ...]
    sizes: Mapping[str, tuple[int, int]]
    launch_at: Mapping[int, tuple[str, KernelLaunch]]
    progress: tuple[str, ...]
    draws: Draws
    looks_early: bool
    notes: tuple[str, ...]

    @property
    def zeros(self) -> tuple[str, ...]:
        """The outputs of which the program left nothing but zeros."""
        return tuple(
            each.name
            for each in self.buffers
            if each.is_output and each.results and not any(part.any() for part in each.results.values())
        )


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def over_each(metric: str) -> str:
    """Return a metric of each number of an element for itself, of which the worst counts: one is a column."""
    return f"{metric} over columns max"


def _has_signs(values: NDArray[np.float64]) -> bool:
    """Whether values have both signs, however many of each: their balance would change with the size of a problem."""
    least = _NO_SIGN * float(np.abs(values).max(initial=0.0))
    return bool((values > least).any() and (values < -least).any())


def record_of(memory: Memory) -> dict[str, Any]:
    """Return the type of a struct, of which NumPy makes one of its own."""
    return {
        "names": [number.name for number in memory.fields],
        "formats": [_format(number) for number in memory.fields],
        "offsets": [number.offset for number in memory.fields],
        "itemsize": memory.bytes,
    }


def _format(number: Field) -> str:
    kind = np.dtype(INTEGERS.get(number.scalar) or NUMPY[number.scalar]).str[1:]
    return f"{number.count}{kind}" if number.count > 1 else kind
