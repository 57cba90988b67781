"""What a device allows, as constraints over a kernel's own parameters."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from mptune.kernel.application import Application
from mptune.kernel.declarations import Sizes
from mptune.kernel.definition import Kernel
from mptune.kernel.tunable import Constraint, Tunable
from mptune.space.configuration import Configuration
from mptune.space.constraints import compile_constraint
from mptune.space.search_space import SearchSpace

__all__ = ["device_constraints", "space_on", "spread", "whole_space", "widest"]

#: So many configurations are tried where a launch may rule one out.
_TRIED: Final = 100
#: What limits are of; an axis that a kernel does not have has one thread or block.
_LIMITED: Final = re.compile(r"\b(?:threads_per_block|shared_bytes|(?:block|grid)_[xyz]|matrix_(?:units|factor|sum))\b")
#: What a processor says of parameters that change nothing on it.
_NO_GPU: Final = "not gpu_only"


def device_constraints(kernel: Kernel, limits: Sequence[str]) -> tuple[Constraint, ...]:
    """Return a device's limits as constraints over the kernel's own parameters and sizes.

    Args:
        kernel: supplies what a block, its shared memory and the grid are made of.
        limits: constraints over ``threads_per_block``, ``shared_bytes`` and the axes ``block_x`` to ``grid_z``, those
            over what the kernel does not have are left out; over ``matrix_units``, ``matrix_factor`` and
            ``matrix_sum``, how a kernel that can multiply by matrix units does so and in which types; and ``not
            gpu_only``: parameters that change nothing on a processor have their first value, a constraint on each,
            which searches of a value see at a glance.
    """
    threads = "*".join(f"({axis})" for axis in kernel.block)
    meaning = {"threads_per_block": f"({threads})", "shared_bytes": f"({kernel.shared_bytes})"}
    for what, extents in (("block", kernel.block), ("grid", kernel.grid)):
        meaning |= {f"{what}_{axis}": f"({extent})" for axis, extent in zip("xyz", extents, strict=False)}
    meaning |= zip(("matrix_units", "matrix_factor", "matrix_sum"), kernel.matrix_units, strict=False)
    first = {parameter.name: parameter.values[0] for parameter in kernel.parameters}
    plain = [f"{name} == {first[name]!r}" for name in kernel.gpu_only if _NO_GPU in limits]
    ours = [limit for limit in limits if not meaning.keys().isdisjoint(_LIMITED.findall(limit))]
    texts = (*(_LIMITED.sub(lambda name: meaning.get(name[0], "1"), limit) for limit in ours), *plain)
    without_units = [f"{name} == 'simt'" for name in kernel.matrix_units[:1]]
    return tuple(
        dataclasses.replace(
            compile_constraint(text, kernel.parameter_names),
            why=f"this device has no matrix units that {kernel.called} can use",
        )
        if text in without_units
        else text
        for text in texts
    )


def space_on(tunable: Tunable, sizes: Sizes, limits: Sequence[str]) -> SearchSpace:
    """Return the configurations of a kernel or an application that are valid at these sizes within a device's limits.

    Raises:
        EmptySpaceError: there is none.
    """
    if isinstance(tunable, Application):
        kernels = tunable.kernels.values()
        lifted = [c for each in kernels for c in tunable.lifted(each, device_constraints(each, limits), sizes)]
        return tunable.search_space(sizes, lifted)
    assert isinstance(tunable, Kernel)
    return tunable.search_space(sizes, device_constraints(tunable, limits))


def whole_space(tunable: Tunable, sizes: Sizes, limits: Sequence[str] = ()) -> SearchSpace:
    """Return what :func:`space_on` does and what is searched on request alone: all that a file's trials can be.

    Raises:
        EmptySpaceError: nothing is valid.
    """
    every = {p.name: p.every_value for p in tunable.parameters if p.every_value != p.values}
    space = space_on(tunable, sizes, limits)
    return space.restrict(every) if every else space


def widest(tunable: Tunable, sizes: Sizes, limits: Sequence[str]) -> list[Configuration]:
    """Return some configurations with a baseline's types, from all over their space: what runs, only a launch knows.

    Raises:
        EmptySpaceError: there is none.
    """
    return spread(space_on(tunable, sizes, limits).restrict(tunable.baseline_values()))


def spread(space: SearchSpace) -> list[Configuration]:
    """Return some configurations from all over a space.

    Those come first whose parameters are near the middle of their values: the least work for a thread is slow, on a
    processor tens of times, and the most asks for much.
    """
    found = np.unique(np.linspace(0, space.size - 1, min(_TRIED, space.size)).astype(np.int64))
    last = np.array([len(parameter.values) - 1 for parameter in space.parameters])
    off = np.abs(space.codes(found) - last / 2) / np.maximum(last, 1)
    return space.configurations(found[np.argsort(off.sum(axis=1), kind="stable")])
