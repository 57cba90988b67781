"""A kernel's draws of inputs and their references, made by its functions and checked against its declarations."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.data.blocks import in_blocks
from mptune.data.conversion import round_to
from mptune.errors import KernelError, MptuneError, ReferenceDataError, UnknownNameError, did_you_mean
from mptune.kernel import Argument, Role, Sizes, Tunable
from mptune.precision import holds_real_numbers, precision
from mptune.space.parameters import PrecisionParameter

#: Data of more elements are not made again only to be compared.
_MANY: Final = 1 << 22
#: Numbers of an argument that are rounded to see whether they are exact.
_SAMPLED: Final = 1 << 15
#: Of the largest magnitude; what differs by less was rounded in another order.
_ROUNDED: Final = 1e-9


class Stream(IntEnum):
    """The purpose of draws; the random numbers of one stream are independent of another's."""

    SEARCH = 0
    UNSEEN = 1  #: No search uses them: reported trials are verified on them.


@dataclass(frozen=True, slots=True)
class Draw:
    """One sample of a kernel's inputs."""

    stream: Stream = Stream.SEARCH
    number: int = 0  #: within the stream, from 0

    def __str__(self) -> str:
        return f"{'unseen ' if self.stream is Stream.UNSEEN else ''}input {self.number + 1}"

    @property
    def spawn_key(self) -> tuple[int, ...]:
        """Of the :class:`numpy.random.SeedSequence` it comes from; the first draw of a search has the seed itself."""
        return (int(self.stream), self.number) if self.stream or self.number else ()

    def generator(self, seed: int) -> np.random.Generator:
        """Return the random numbers the draw is made from in a run with this seed."""
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=self.spawn_key))


FIRST: Final = Draw()


def make_inputs(kernel: Tunable, sizes: Sizes, seed: int, draw: Draw = FIRST) -> Mapping[str, Any]:
    """Call ``kernel.inputs`` and return read-only C-contiguous fp64 (or integer) arrays and scalars by argument name.

    A scalar that is missing and named like a size has its value.
    """
    try:
        given = kernel.inputs(draw.generator(seed), sizes)
    except (MptuneError, MemoryError):
        raise
    except Exception as error:
        raise KernelError(f"inputs of {kernel.called} failed: {type(error).__name__}: {error}") from error
    if not isinstance(given, Mapping):
        raise KernelError(f"inputs of {kernel.called} returned {type(given).__name__}, not arrays by argument")
    by_name = {argument.name: argument for argument in kernel.arguments}
    for name in given:
        if name not in by_name:
            declared = [n for n, a in by_name.items() if a.is_input]
            hint = "Declare an argument of that name (In, InOut, Scalar) or leave it out."
            raise UnknownNameError(f"input of {kernel.called}:", name, declared, hint)
        if not by_name[name].is_input:
            raise KernelError(f"inputs of {kernel.called} has {name!r}, which the kernel only writes: declare it InOut")
    return MappingProxyType({name: _input(kernel, a, given, sizes) for name, a in by_name.items() if a.is_input})


def rounded_inputs(
    kernel: Tunable, sizes: Sizes, seed: int, inputs: Mapping[str, Any]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return how much types round the inputs beside those at the sizes next to these, where that is less.

    The points of a grid are exact in fp16 where there are 32 of them, and not where there are 31 or 33. What is exact
    everywhere, as whole numbers are, is a property of the kernel, and not of the size.

    Returns:
        By precision parameter, type and size: the ratio, below 1, of the root mean squares of what rounding changes,
        by how many numbers it changes.
    """
    here = _inexact(kernel, inputs)
    if min(here.values(), default=1.0) == 1 or sum(np.size(value) for value in inputs.values()) > _MANY:
        return {}
    found: dict[str, dict[str, dict[str, float]]] = {}
    for size in (name for name in sizes if name not in kernel.forms):
        there = []
        for value in (sizes[size] - 1, sizes[size] + 1):
            with contextlib.suppress(MptuneError, MemoryError):
                there.append(_inexact(kernel, make_inputs(kernel, Sizes({**sizes, size: value}), seed)))
        for (name, parameter, kind), share in here.items():
            most = max([share, *(other.get((name, parameter, kind), 0.0) for other in there)])
            if share < most:
                of_type = found.setdefault(parameter, {}).setdefault(kind, {})
                of_type[size] = min(math.sqrt(share / most), of_type.get(size, 1.0))
    return found


def _inexact(kernel: Tunable, inputs: Mapping[str, Any]) -> dict[tuple[str, str, str], float]:
    """Return of how many of its numbers a type is not exact, zeros aside: by argument, its parameter, and type."""
    types = {p.name: p.values for p in kernel.parameters if isinstance(p, PrecisionParameter)}
    found = {}
    for argument in kernel.arguments:
        if argument.name in inputs and argument.dtype is None and argument.precision in types:
            values = np.asarray(inputs[argument.name], np.float64).reshape(-1)
            values = values[:: max(1, len(values) // _SAMPLED)]
            values = values[values != 0]
            for kind in types[argument.precision] if len(values) else ():
                if precision(str(kind)).significand_bits < 53:
                    changed = round_to(values, precision(str(kind))).astype(np.float64) != values
                    found[argument.name, argument.precision, str(kind)] = float(changed.mean())
    return found


def _input(kernel: Tunable, argument: Argument, given: Mapping[str, Any], sizes: Sizes) -> Any:
    name = argument.name
    what = f"input {name!r} of {kernel.called}"
    if name in given:
        require_unmasked(given[name], what)
        value = np.asarray(given[name])
    elif argument.role is Role.SCALAR and name in sizes:
        value = np.asarray(sizes[name])
    else:
        raise KernelError(f"inputs of {kernel.called} lacks {name!r}")
    if argument.dtype is None and not holds_real_numbers(value.dtype):
        raise KernelError(f"{what} has type {value.dtype}; expected real numbers (they are held in fp64)")
    array = _as_declared(kernel, argument, value, sizes, what, KernelError)
    return array.item() if argument.role is Role.SCALAR else array


def require_unmasked(array: Any, what: str) -> None:
    """Raise KernelError for a masked array of NumPy, whose mask a kernel would not see."""
    if np.ma.is_masked(array):
        raise KernelError(f"{what} has masked elements, and a kernel sees no mask; give it as .filled(...)")


def compute_references(kernel: Tunable, inputs: Mapping[str, Any], sizes: Sizes) -> Mapping[str, NDArray[Any]]:
    """Call ``kernel.reference`` and return the fp64 (or integer) outputs by name, checked and read-only."""
    if kernel.reference is None:
        stem = kernel.path.stem if kernel.path is not None else kernel.name
        raise ReferenceDataError(
            f"{kernel.called} has no reference: give Kernel(reference=...), or define reference(inputs, size) "
            f"in references/{stem}.py, the folder beside that of the kernel's file"
        )
    try:
        given = kernel.reference(inputs, sizes)
    except (MptuneError, MemoryError):
        raise
    except Exception as error:
        what = f"failed: {type(error).__name__}: {error}"
        if isinstance(error, ValueError) and "read-only" in str(error):
            what = f"changes its inputs, which every trial needs unchanged: work on a copy ({error})"
        raise ReferenceDataError(f"the reference of {kernel.called} {what}") from error
    if not isinstance(given, Mapping):
        if len(kernel.outputs) != 1:
            names = ", ".join(argument.name for argument in kernel.outputs)
            raise ReferenceDataError(
                f"the reference of {kernel.called} returned {type(given).__name__}; expected a dict of its "
                f"outputs {names}"
            )
        given = {kernel.outputs[0].name: given}
    return checked_references(kernel, given, sizes)


def checked_references(kernel: Tunable, given: Mapping[str, Any], sizes: Sizes) -> Mapping[str, NDArray[Any]]:
    """Return references as C-contiguous read-only arrays; raise ReferenceDataError if they do not fit the outputs."""
    outputs = {argument.name: argument for argument in kernel.outputs}
    for name in given:
        if name not in outputs:
            raise ReferenceDataError(
                f"the reference of {kernel.called} gives {name!r}, which is no output"
                f"{did_you_mean(str(name), outputs)} (outputs: {', '.join(outputs)})"
            )
    if missing := [name for name in outputs if name not in given]:
        raise ReferenceDataError(f"the reference of {kernel.called} lacks output {', '.join(missing)}")
    return MappingProxyType({name: _reference(kernel, outputs[name], given[name], sizes) for name in outputs})


def least_sizes(kernel: Tunable, sizes: Sizes) -> Sizes | None:
    """Return the smallest of the given sizes and the kernel's presets; None if its data are large, too."""
    given = [argument for argument in kernel.arguments if argument.is_input or argument.is_output]

    def elements(place: Sizes) -> int:
        return sum(math.prod(kernel.shape_of(argument, place)) for argument in given)

    least = min((sizes, *map(kernel.resolve_sizes, kernel.sizes)), key=elements)
    return least if elements(least) <= _MANY else None


def require_repeatable(
    kernel: Tunable, sizes: Sizes, seed: int, inputs: Mapping[str, Any], references: Mapping[str, NDArray[Any]]
) -> None:
    """Check that a kernel's functions give the same inputs and references when they are called again.

    They are called at the sizes of :func:`least_sizes`. ``inputs`` are the first draw at the given sizes,
    ``references`` theirs.
    """
    try:
        least = least_sizes(kernel, sizes)
        if least is None:
            return
        if least != sizes:
            inputs = make_inputs(kernel, least, seed)
            references = compute_references(kernel, inputs, least)
        again, anew = make_inputs(kernel, least, seed), compute_references(kernel, inputs, least)
    except (MptuneError, MemoryError):
        return  # a preset nobody asked for need not work; what is wrong at the sizes asked for is said there
    for name in inputs:
        if _differ(inputs[name], again[name]):
            raise KernelError(
                f"inputs of {kernel.called}: {name!r} is not the same when the same input is made again; take "
                "every random number from the generator they are given (rng), not from numpy.random or random"
            )
    for name in references:
        # A reference may know by how much it differs: one in narrow types does so by more.
        if _differ(references[name], anew[name], getattr(kernel.reference, "largest_difference", _ROUNDED)):
            raise ReferenceDataError(
                f"the reference of {kernel.called}: output {name!r} is not the same when it is computed again "
                "from the same inputs, so that no error against it means anything"
            )


def _differ(first: Any, second: Any, share: float = _ROUNDED) -> bool:
    """Whether two arrays or numbers differ by more than rounding: than a share of the largest magnitude."""
    one, other = np.asarray(first), np.asarray(second)
    if one.dtype.kind != "f":
        return not np.array_equal(one, other)
    if not np.array_equal(np.isnan(one), np.isnan(other)):
        return True
    return bool(np.nanmax(np.abs(one - other), initial=0.0) > share * np.nanmax(np.abs(one), initial=0.0))


def _reference(kernel: Tunable, argument: Argument, given: Any, sizes: Sizes) -> NDArray[Any]:
    what = f"the reference of output {argument.name!r} of {kernel.called}"
    if np.ma.is_masked(given):
        if argument.dtype is not None:
            raise ReferenceDataError(f"{what} has masked elements, and integers have no NaN to stand for them")
        given = given.filled(np.nan) if given.dtype.kind == "f" else given
    value = np.asarray(given)
    if argument.dtype is None and (value.dtype.kind != "f" or value.dtype.itemsize < 8):
        raise ReferenceDataError(f"{what} has type {value.dtype}; expected float64: it must be exact beside fp64")
    reference = _as_declared(kernel, argument, value, sizes, what, ReferenceDataError, takes_nan=True)
    if argument.dtype is None and np.isnan(reference.flat[0]) and np.isnan(reference).all():
        raise ReferenceDataError(f"{what} is NaN in all of its {reference.size} elements: nothing can be compared")
    return reference


def _as_declared(
    kernel: Tunable,
    argument: Argument,
    array: NDArray[Any],
    sizes: Sizes,
    what: str,
    refusal: type[MptuneError],
    *,
    takes_nan: bool = False,
) -> NDArray[Any]:
    """Return an array as fp64 or the declared integer type, C-contiguous and read-only, once it fits the declaration.

    It may be NaN only where it ``takes_nan``.
    """
    shape = kernel.shape_of(argument, sizes)
    if array.shape != shape:
        raise refusal(f"{what} has shape {array.shape}; expected {shape} at {sizes}")
    if argument.dtype is None:
        with np.errstate(all="ignore"):
            array = np.asarray(array, dtype=np.float64, order="C")
        flat = array.reshape(-1)
        if not all(in_blocks(lambda part: bool(np.isfinite(flat[part]).all()), flat.size)):
            bad = np.flatnonzero(np.isinf(flat) if takes_nan else ~np.isfinite(flat))
            if bad.size:
                kinds = "infinite" if takes_nan else "NaN or infinite"
                where = f", the first at {tuple(map(int, np.unravel_index(bad[0], shape)))}" if shape else ""
                remedy = "" if takes_nan else "; give missing data a number, and the kernel a mask"
                raise refusal(f"{what} has {bad.size} values that are {kinds}{where}{remedy}")
    else:
        if array.dtype.kind not in "iub":
            raise refusal(f"{what} has type {array.dtype}; expected integers for {argument.dtype}")
        limits = np.iinfo(argument.dtype)
        low, high = int(array.min()), int(array.max())
        if low < limits.min or high > limits.max:
            raise refusal(f"{what} has values outside {argument.dtype}: from {low} to {high}")
        array = np.asarray(array, dtype=argument.dtype, order="C")
    # A view: the flag must not change on an array that is the user's own.
    view = array.view()
    view.flags.writeable = False
    return view
