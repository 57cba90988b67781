"""Kernels as they are compiled into one program: several configurations, types and sizes of one or more kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mptune.cpp.prelude import include_lines, prelude
from mptune.emit.common import INTEGERS, as_a_file
from mptune.emit.sizes import Opened, conditions, formula, what_has_to_hold
from mptune.kernel import Argument, Kernel, Role, Sizes
from mptune.measure.program import size_names
from mptune.source.render import render, render_body
from mptune.space.configuration import Configuration

__all__ = ["Launch", "kind_of", "parameter_of", "variant_of"]


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel as it is compiled, with the sizes that are written into it.

    Attributes:
        kernel: the definition.
        configuration: what is compiled.
        sizes: at which.
        free: the sizes that may differ.
        opened: the source that takes some of these as parameters, where there would be others without it.
    """

    kernel: Kernel
    configuration: Configuration
    sizes: Sizes
    free: frozenset[str]
    opened: Opened | None = None

    @property
    def fixed(self) -> dict[str, int]:
        """The sizes that are written into it."""
        return {name: value for name, value in self.sizes.items() if name not in self.free}


def variant_of(launch: Launch, symbol: str) -> dict[str, Any]:
    """Return what the file of a kernel that is one of several in a program is filled with; it is called ``symbol``."""
    kernel, configuration, sizes = launch.kernel, launch.configuration, launch.sizes
    values = {**configuration, **sizes}
    free = {size: parameter_of(size) for size in launch.free}
    source, body = render(kernel, configuration, sizes), render_body(kernel, configuration, sizes)
    before, _, ending = source.removeprefix(prelude()).partition(body)
    opened = launch.opened
    shape = kernel.launch_shape(configuration, sizes)
    arguments = []
    for argument in kernel.arguments:
        chosen = kernel.precision_of(argument, configuration)
        arguments.append(
            {
                "name": argument.name,
                "id": parameter_of(argument.name),
                "kind": kind_of(kernel, argument),
                "type": str(argument.dtype) if chosen is None else chosen.name,
                "cpp": INTEGERS[str(argument.dtype)] if chosen is None else chosen.cpp,
                "elements": " * ".join(f"({formula(axis, values, free)})" for axis in argument.shape) or "1LL",
            }
        )
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
            *what_has_to_hold(opened.conditions if opened else (), values, free),
            *conditions(kernel, configuration, sizes, free)[0],
        ],
        "grid": [*grid, "1LL", "1LL"][:3],
        "block": shape.block,
        "shared_bytes": shape.shared_bytes,
    }


def parameter_of(name: str) -> str:
    """Return what the library calls a parameter, which nothing else in it is called."""
    return f"{name}_"


def kind_of(kernel: Kernel, argument: Argument) -> str:
    """Return how the library takes an argument."""
    if argument.is_constant:
        return "constant"
    if argument.role is not Role.SCALAR:
        return "buffer"
    if argument.name in size_names(kernel):
        return "size"
    return "real" if argument.dtype is None else "integer"
