# ruff: noqa: N802 - declarations read like types
"""Declarations of a kernel's arguments and sizes, and checks of the names in their expressions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mptune.errors import KernelError, MptuneError, UnknownNameError
from mptune.precision import PRECISIONS, precision
from mptune.space.configuration import NamedValues
from mptune.space.expressions import Expression
from mptune.space.parameters import is_identifier

_INTEGER_DTYPES: Final = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


class Role(StrEnum):
    """How a kernel uses an argument."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"
    SCALAR = "scalar"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the kernel function, in the order of its signature."""

    name: str  #: the argument's name, also its key in the inputs and references
    role: Role
    shape: tuple[str, ...] = ()  #: one expression over the sizes per axis; empty for a scalar
    precision: str | None = None  #: name of the precision parameter that sets its type, or a fixed precision
    dtype: str | None = None  #: an integer type ("int32") in place of a precision
    is_constant: bool = False  #: whether it is a ``__constant__`` array of that name, not a parameter of the function
    is_compared: bool = True  #: whether a written buffer has a reference and its error counts

    def __post_init__(self) -> None:
        if not is_identifier(self.name):
            raise KernelError(f"argument name {self.name!r} is not an identifier")
        if (self.precision is None) == (self.dtype is None):
            raise KernelError(f"argument {self.name!r}: give either precision= or dtype=")
        if self.dtype is not None and self.dtype not in _INTEGER_DTYPES:
            hint = "A floating-point type is given as precision=."
            raise UnknownNameError(f"integer type of argument {self.name!r}:", self.dtype, _INTEGER_DTYPES, hint)
        if (self.role is Role.SCALAR) != (not self.shape):
            raise KernelError(f"argument {self.name!r}: a buffer needs a shape and a scalar has none")
        if self.is_constant and self.role is not Role.IN:
            raise KernelError(f"argument {self.name!r}: a kernel can only read constant memory")

    @property
    def is_input(self) -> bool:
        """Whether its initial value matters."""
        return self.role is not Role.OUT

    @property
    def is_output(self) -> bool:
        """Whether the kernel writes it and it has a reference."""
        return self.is_compared and self.role in (Role.OUT, Role.INOUT)


#: The extents of a buffer: for each axis a number, or an expression over the sizes.
Shape = str | int | Sequence[str | int]


def _buffer(name: str, role: Role, shape: Shape, precision: str | None, dtype: str | None, **further: bool) -> Argument:
    axes = (shape,) if isinstance(shape, str | int) else tuple(shape)
    return Argument(name, role, tuple(map(str, axes)), precision, dtype, **further)


def In(name: str, shape: Shape, *, precision: str | None = None, dtype: str | None = None) -> Argument:
    """Declare a buffer the kernel only reads."""
    return _buffer(name, Role.IN, shape, precision, dtype)


def Constant(name: str, shape: Shape, *, precision: str | None = None, dtype: str | None = None) -> Argument:
    """Declare an input in constant memory: ``__constant__ TYPE name[...];`` in the template, not a parameter.

    A GPU has 64 KiB of it, which is fast where all threads of a warp read the same element.
    """
    return _buffer(name, Role.IN, shape, precision, dtype, is_constant=True)


def Out(name: str, shape: Shape, *, precision: str | None = None, dtype: str | None = None) -> Argument:
    """Declare a buffer the kernel only writes; it is poisoned before a launch."""
    return _buffer(name, Role.OUT, shape, precision, dtype)


def InOut(
    name: str, shape: Shape, *, precision: str | None = None, dtype: str | None = None, compared: bool = True
) -> Argument:
    """Declare a buffer the kernel reads and writes; it is restored before every timed launch.

    It needs no reference unless it is ``compared``.
    """
    return _buffer(name, Role.INOUT, shape, precision, dtype, is_compared=compared)


def Scratch(name: str, shape: Shape, *, precision: str | None = None, dtype: str | None = None) -> Argument:
    """Declare a buffer for the kernel's own use, without initial values and without a reference; it is poisoned."""
    return _buffer(name, Role.OUT, shape, precision, dtype, is_compared=False)


def Buffer(name: str, shape: Shape, *, precision: str | None = None, dtype: str | None = None) -> Argument:
    """Declare a buffer of an application: an output if ``outputs`` names it, else an input that no kernel writes.

    Declare a buffer with initial values that is written as :func:`~mptune.InOut`, and a buffer for intermediate results
    as :func:`~mptune.Scratch`.
    """
    return _buffer(name, Role.IN, shape, precision, dtype)


def Scalar(name: str, *, precision: str | None = None, dtype: str | None = None) -> Argument:
    """Declare an argument passed by value; one named like a size takes its value from there."""
    return Argument(name, Role.SCALAR, (), precision, dtype)


class Sizes(NamedValues[int]):
    """The problem sizes by name, also readable as attributes (``size.n``)."""

    __slots__ = ()

    def __getattr__(self, name: str) -> int:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no size {name!r} (sizes: {', '.join(self)})") from None


def check_expression(text: str, known: Sequence[str], what: str, kernel: str) -> None:
    """Check that an expression parses and uses only known names; messages call it the ``what`` of the kernel."""
    try:
        names = Expression(text).names
    except MptuneError as error:
        raise type(error)(f"kernel {kernel}, {what}: {error}") from error
    for name in sorted(names):
        if name not in known:
            raise UnknownNameError(f"name in the {what} of kernel {kernel}:", name, known)


def check_precision(name: str, parameters: Iterable[str], what: str) -> None:
    """Raise UnknownNameError unless a name is one of the precision parameters or a fixed precision."""
    parameters = tuple(parameters)
    if name in parameters:
        return
    try:
        precision(name)
    except UnknownNameError as error:
        raise UnknownNameError(
            f"precision of {what}:",
            name,
            [*parameters, *PRECISIONS],
            aliases=[alias for entry in PRECISIONS.values() for alias in entry.aliases],
        ) from error
