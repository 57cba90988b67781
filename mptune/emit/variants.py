"""Variants of kernels in one program: configurations, types and sizes of one or more kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mptune.cpp.prelude import include_lines, prelude
from mptune.emit.common import as_a_file
from mptune.emit.sizes import Condition, Opened, conditions, formula, truth
from mptune.kernel import Argument, Kernel, Role, Sizes, Tunable
from mptune.measure.program import size_names
from mptune.source.dialect import INTEGERS
from mptune.source.render import render, render_body
from mptune.space.configuration import Configuration
from mptune.space.expressions import Expression

_FLOATS: Final = ("float64", "float32", "float16")


@dataclass(frozen=True, slots=True)
class Launch:
    """A compiled kernel and the sizes that are fixed in its source."""

    kernel: Kernel
    configuration: Configuration
    sizes: Sizes  #: the problem sizes
    free: frozenset[str]  #: the sizes that may differ
    #: a source that takes some of the free sizes as parameters; None if the source does not depend on them
    opened: Opened | None = None

    @property
    def fixed(self) -> dict[str, int]:
        """The sizes that are fixed in the source."""
        return {name: value for name, value in self.sizes.items() if name not in self.free}


def parameter_of(name: str) -> str:
    """Return the unique name of a parameter in the library."""
    return f"{name}_"


def variant_of(launch: Launch, symbol: str, called: Callable[[str], str] = parameter_of) -> dict[str, Any]:
    """Return the values of the files of a kernel.

    Args:
        launch: the compiled kernel.
        symbol: name of the function that launches it, unless it is the only kernel of a program.
        called: returns the name of a size in C++.
    """
    kernel, configuration, sizes = launch.kernel, launch.configuration, launch.sizes
    values = {**configuration, **sizes}
    free = {size: called(size) for size in launch.free}
    source, body = render(kernel, configuration, sizes), render_body(kernel, configuration, sizes)
    before, _, ending = source.removeprefix(prelude()).partition(body)
    opened = launch.opened
    asked = opened.conditions if opened else ()
    shape = kernel.launch_shape(configuration, sizes)
    arguments = [
        {
            **argument_of(kernel, configuration, sizes, argument),
            "kind": _kind_of(kernel, argument),
            # The number of elements, as C++.
            "elements": " * ".join(f"({formula(axis, values, free)})" for axis in argument.shape) or "1LL",
        }
        for argument in kernel.arguments
    ]
    grid = [formula(text, values, free) for text in kernel.expressions("grid")] or [f"{n}LL" for n in shape.grid]
    return {
        "symbol": symbol,
        "kernel": kernel.name,
        "function": kernel.function,
        "configuration": str(configuration),
        "types": configuration,
        "includes": include_lines(body),
        "body": as_a_file(before.strip() + "\n" + (opened.body if opened else body).rstrip("\n")),
        "ending": as_a_file(ending.strip("\n")),
        "arguments": arguments,
        "constants": [a["name"] for a in arguments if a["kind"] == "constant"],
        "fixed": [{"id": parameter_of(n), "name": n, "value": v} for n, v in launch.fixed.items()],
        "passed": len(kernel.passed),
        "opened": [parameter_of(name) for name in opened.names] if opened else [],
        "conditions": [
            *(Condition(each, truth(Expression(each).tree, values, free)) for each in asked),
            *conditions(kernel, configuration, sizes, free)[0],
        ],
        "grid": [*grid, "1LL", "1LL"][:3],
        "grid_now": shape.grid,
        "block": shape.block,
        "shared_bytes": shape.shared_bytes,
    }


def argument_of(tunable: Tunable, configuration: Configuration, sizes: Sizes, argument: Argument) -> dict[str, Any]:
    """Return the facts of an argument for the files; its C++ types are defined in the source."""
    precision = tunable.precision_of(argument, configuration)
    dtype = np.dtype(argument.dtype) if precision is None else precision.dtype
    is_scalar, is_plain = argument.role is Role.SCALAR, dtype.kind in "iu" or dtype.name in _FLOATS
    shape = tunable.shape_of(argument, sizes)
    size = argument.name if is_scalar and argument.name in sizes else ""
    return {
        "name": argument.name,
        "id": parameter_of(argument.name),
        "role": "scratch" if argument.role is Role.OUT and not argument.is_output else argument.role.value,
        # The stored type: its name, in C++, and a NumPy type of the same size.
        "type": str(argument.dtype) if precision is None else precision.name,
        "cpp": INTEGERS[str(argument.dtype)] if precision is None else precision.cpp,
        "is_integer": precision is None,
        "is_narrow": precision is not None and dtype.itemsize < 4,
        "numpy": dtype.name if is_plain else f"uint{8 * dtype.itemsize}",
        "itemsize": dtype.itemsize,
        "axes": argument.shape,
        "count": math.prod(shape),
        "shape": shape,
        # The data file of the programs, and its types.
        "file": f"{argument.name}.{'f64' if precision is not None else f'{dtype.kind}{8 * dtype.itemsize}'}",
        "file_cpp": INTEGERS[str(argument.dtype)] if precision is None else "double",
        "file_numpy": str(argument.dtype) if precision is None else "float64",
        "size": size,
        "is_constant": argument.is_constant,
        "is_scalar": is_scalar,
        "is_input": argument.role is not Role.OUT and not size,
        "is_output": argument.is_output,
    }


def _kind_of(kernel: Kernel, argument: Argument) -> str:
    if argument.is_constant:
        return "constant"
    if argument.role is not Role.SCALAR:
        return "buffer"
    if argument.name in size_names(kernel):
        return "size"
    return "real" if argument.dtype is None else "integer"
