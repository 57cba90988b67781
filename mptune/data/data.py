"""A kernel's draws of inputs and their references, from its functions and checked against its declarations."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from mptune.data.blocks import in_blocks
from mptune.data.conversion import round_to
from mptune.errors import KernelError, MptuneError, ReferenceDataError, UnknownNameError, did_you_mean
from mptune.kernel import Argument, Role, Sizes, Tunable
from mptune.precision import PRECISIONS, holds_real_numbers, precision
from mptune.space.parameters import PrecisionParameter

#: Most elements of data that are made a second time for a comparison.
_MANY: Final = 1 << 22
#: Elements of an argument that are tested for being exact in a type.
_SAMPLED: Final = 1 << 15
#: Largest difference, relative to the largest magnitude, that counts as another order of rounding.
_ROUNDED: Final = 1e-9


class Stream(IntEnum):
    """The purpose of draws; the random numbers of one stream are independent of another's."""

    SEARCH = 0
    UNSEEN = 1  #: for the verification of reported trials, unused by searches


@dataclass(frozen=True, slots=True)
class Draw:
    """One sample of a kernel's inputs."""

    stream: Stream = Stream.SEARCH
    number: int = 0  #: within the stream, from 0

    def __str__(self) -> str:
        return f"{'unseen ' if self.stream is Stream.UNSEEN else ''}input {self.number + 1}"

    @property
    def spawn_key(self) -> tuple[int, ...]:
        """Its key in :class:`numpy.random.SeedSequence`; empty for the first draw, which uses the seed itself."""
        return (int(self.stream), self.number) if self.stream or self.number else ()

    def generator(self, seed: int) -> np.random.Generator:
        """Return the generator of the draw in a run with this seed."""
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=self.spawn_key))


FIRST: Final = Draw()


def make_inputs(kernel: Tunable, sizes: Sizes, seed: int, draw: Draw = FIRST) -> Mapping[str, Any]:
    """Call ``kernel.inputs`` and return read-only C-contiguous fp64 (or integer) arrays and scalars by argument name.

    A missing scalar that is named like a size has the size's value.
    """
    try:
        given = cast(Callable[..., Any], kernel.inputs)(draw.generator(seed), sizes)
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
            raise KernelError(f"inputs of {kernel.called} has {name!r}, which is an output only: declare it InOut")
    return MappingProxyType({name: _input(kernel, a, given, sizes) for name, a in by_name.items() if a.is_input})


def rounded_inputs(
    kernel: Tunable, sizes: Sizes, seed: int, inputs: Mapping[str, Any]
) -> dict[str, dict[str, dict[str, float]]]:
    """Find types that round the inputs less at these sizes than at neighbouring sizes.

    The 32 points of a grid are exact in fp16, 31 or 33 points are not. Inputs that are exact at all of these sizes,
    such as whole numbers, are not listed.

    Returns:
        By precision parameter, type and size: the ratio, below 1, of the root mean squares of the rounding errors,
        estimated from the fractions of rounded numbers.
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
    """Return the fraction of nonzero numbers that a type rounds, by argument, its parameter and the type."""
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
        raise KernelError(f"{what} has type {value.dtype}; expected real numbers (kept in fp64)")
    # Inputs that no reference computes with need no fp64.
    keeps_type = getattr(kernel.inputs, "keeps_types", False) and argument.precision in PRECISIONS
    array = _as_declared(kernel, argument, value, sizes, what, KernelError, keeps_type=keeps_type)
    return array.item() if argument.role is Role.SCALAR else array


def require_unmasked(array: Any, what: str) -> None:
    """Raise KernelError for a masked NumPy array."""
    if np.ma.is_masked(array):
        raise KernelError(f"{what} has masked elements, which a kernel cannot see; give it as .filled(...)")


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
    """Return references as C-contiguous read-only arrays; raise ReferenceDataError if they do not match the outputs."""
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
    """Return the smallest of the given sizes and the kernel's presets; None if even its data are large."""
    given = [argument for argument in kernel.arguments if argument.is_input or argument.is_output]

    def elements(place: Sizes) -> int:
        return sum(math.prod(kernel.shape_of(argument, place)) for argument in given)

    least = min((sizes, *map(kernel.resolve_sizes, kernel.sizes)), key=elements)
    return least if elements(least) <= _MANY else None


def require_repeatable(
    kernel: Tunable, sizes: Sizes, seed: int, inputs: Mapping[str, Any], references: Mapping[str, NDArray[Any]]
) -> None:
    """Check that a kernel's functions return the same inputs and references when called again.

    They are called at the sizes of :func:`least_sizes`. ``inputs`` are the first draw at the given sizes, and
    ``references`` are its references.
    """
    try:
        least = least_sizes(kernel, sizes)
        if least is None:
            return
        if least != sizes:
            inputs = make_inputs(kernel, least, seed)
            references = compute_references(kernel, inputs, least)
        inputs_again = make_inputs(kernel, least, seed)
        references_again = compute_references(kernel, inputs, least)
    except (MptuneError, MemoryError):
        return  # a smaller preset may fail; errors at the given sizes are reported elsewhere
    for name in inputs:
        if _differ(inputs[name], inputs_again[name]):
            raise KernelError(
                f"inputs of {kernel.called}: {name!r} differs when it is made again; take every random number from "
                "the generator rng, not from numpy.random or random"
            )
    for name in references:
        # A reference in narrow types declares a larger difference.
        if _differ(references[name], references_again[name], getattr(kernel.reference, "largest_difference", _ROUNDED)):
            raise ReferenceDataError(
                f"the reference of {kernel.called}: output {name!r} differs when it is computed again from the same "
                "inputs, so errors against it are meaningless"
            )


def _differ(first: Any, second: Any, share: float = _ROUNDED) -> bool:
    """Whether two arrays or numbers differ by more than a fraction of the largest magnitude."""
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
            raise ReferenceDataError(f"{what} has masked elements, which integers cannot represent as NaN")
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
    keeps_type: bool = False,
) -> NDArray[Any]:
    """Check an array against its declaration; return it in fp64 or the integer type, C-contiguous and read-only.

    With ``keeps_type``, an array of the type that the argument always has stays in it.
    """
    shape = kernel.shape_of(argument, sizes)
    if array.shape != shape:
        raise refusal(f"{what} has shape {array.shape}; expected {shape} at {sizes}")
    if argument.dtype is None:
        with np.errstate(all="ignore"):
            own = PRECISIONS[str(argument.precision)].dtype if keeps_type else np.float64
            array = np.asarray(array, dtype=own if array.dtype == own else np.float64, order="C")
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
    # A view, so that the flag of the user's own array does not change.
    view = array.view()
    view.flags.writeable = False
    return view
