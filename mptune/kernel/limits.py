"""The search space of a kernel or an application on a device."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import numpy as np

from mptune.kernel.application import Application
from mptune.kernel.declarations import Sizes
from mptune.kernel.definition import Kernel
from mptune.kernel.tunable import Tunable
from mptune.space.configuration import Configuration
from mptune.space.expressions import Expression, fold
from mptune.space.search_space import SearchSpace


def device_constraints(kernel: Kernel, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a device's limits of launches (:meth:`Device.facts`) and the kernel's constraints on these facts.

    Constraints on unknown facts are left out. A grid or block given as a function is checked at its launch.
    """
    axes = {what: kernel.expressions(what) for what in ("block", "grid")}
    extents = {f"{what}_{axis}": extent for what in axes for axis, extent in zip("xyz", axes[what], strict=False)}
    pairs = zip("xyz", axes["grid"], axes["block"], strict=False)
    threads = {f"threads_{axis}": f"({grid}) * ({block})" for axis, grid, block in pairs}
    whole = dict(zip(("shared_bytes",), kernel.expressions("shared_bytes"), strict=False))
    if axes["block"]:
        whole["threads_per_block"] = " * ".join(f"({axis})" for axis in axes["block"])
    limited = {**whole, **extents, **threads}
    found = [f"({what}) <= {facts[f'max_{name}']}" for name, what in limited.items() if f"max_{name}" in facts]
    named = {f"device.{name}": value for name, value in facts.items()}
    for text in kernel.on_device:
        expression = Expression(text)
        tree = fold(expression.tree, named)
        holds = tree.values[-1] if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.Or) else tree
        is_always = isinstance(holds, ast.Constant) and bool(holds.value)
        if not is_always and all(name in named for name in expression.names if name.startswith("device.")):
            found.append(ast.unparse(tree))
    return tuple(found)


def space_on(tunable: Tunable, sizes: Sizes, facts: Mapping[str, Any]) -> SearchSpace:
    """Return the configurations of a kernel or an application that are valid at these sizes on a device."""
    if isinstance(tunable, Application):
        kernels = tunable.kernels.values()
        lifted = [c for each in kernels for c in tunable.lifted(each, device_constraints(each, facts), sizes)]
        return tunable.search_space(sizes, lifted)
    assert isinstance(tunable, Kernel)
    return tunable.search_space(sizes, device_constraints(tunable, facts))


def whole_space(tunable: Tunable, sizes: Sizes, facts: Mapping[str, Any] | None = None) -> SearchSpace:
    """Return :func:`space_on` with the values that are searched only on request: every trial of a file lies in it."""
    every = {p.name: p.every_value for p in tunable.parameters if p.every_value != p.values}
    space = space_on(tunable, sizes, facts or {})
    return space.restrict(every) if every else space


def widest(tunable: Tunable, sizes: Sizes, facts: Mapping[str, Any]) -> list[Configuration]:
    """Return configurations to compare answers with from all over their space, as some may not launch."""
    return spread(space_on(tunable, sizes, facts).restrict(tunable.reference_values()))


def spread(space: SearchSpace) -> list[Configuration]:
    """Return up to 100 configurations from all over a space, ordered by their distance from the middle.

    Extreme values are slow (little work for a thread, tens of times on a processor) or exceed the device's resources.
    """
    found = np.unique(np.linspace(0, space.size - 1, min(100, space.size)).astype(np.int64))
    last = np.array([len(parameter.values) - 1 for parameter in space.parameters])
    off = np.abs(space.codes(found) - last / 2) / np.maximum(last, 1)
    return space.configurations(found[np.argsort(off.sum(axis=1), kind="stable")])
