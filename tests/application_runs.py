"""Runs the steps of an application once, in one configuration: what tests of applications are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.backends import get_backend
from mptune.data import DataManager
from mptune.data.data import make_inputs
from mptune.kernel import Application, Kernel, Sizes
from mptune.kernel.limits import widest
from mptune.measure.buffers import Memory
from mptune.measure.buffers import run_once as run_program_once
from mptune.measure.program import Launched, Program, size_names
from mptune.space.configuration import Configuration


def run_once(
    application: Application,
    values: Mapping[str, Any],
    given: Mapping[str, Any] | None = None,
    sizes: Sizes | None = None,
    backend: str = "host",
) -> tuple[dict[str, NDArray[Any]], dict[Launched, tuple[int, float]], float]:
    """Return the outputs by name, what was launched how often and how long, and the milliseconds it took.

    Args:
        application: the application.
        values: of some of its parameters, or a whole configuration; others have their first value.
        given: the inputs; those of one seed unless given.
        sizes: its problem sizes; those of the default preset unless given.
        backend: by name.
    """
    sizes = sizes or application.resolve_sizes()
    given = application.inputs(np.random.default_rng(5), sizes) if given is None else given
    configuration = values if isinstance(values, Configuration) else application.configuration(values)
    memory = Memory(get_backend(backend))
    with Program(application, configuration, sizes, get_backend(backend)) as program:
        try:
            buffers = memory.bind(program, DataManager(application, sizes, inputs=given))
            elapsed_ms = program.run(buffers)
            return buffers.answer(), program.launched, elapsed_ms
        finally:
            memory.free()


def first_answer(
    application: Application, sizes: Sizes | None = None, chosen: Mapping[str, Any] | None = None, **draw: Any
) -> dict[str, NDArray[Any]]:
    """Return the outputs on the host on inputs of seed 0, in the widest types but for those chosen."""
    sizes = sizes or application.resolve_sizes()
    backend = get_backend("host")
    wide = widest(application, sizes, backend.device.facts())[0]
    with Program(application, application.configuration({**wide, **(chosen or {})}), sizes, backend) as program:
        return run_program_once(program, make_inputs(application, sizes, 0, **draw))


def adopted_answer(application: Application, precision: str) -> dict[str, Any]:
    """Return the outputs of an adopted application in which every type is this one that may be, others the widest."""
    chosen = {p.name: precision for p in application.parameters if precision in p.values and "_type" in p.name}
    return tuned_answer(application, chosen)


def tuned_answer(application: Application, chosen: Mapping[str, str]) -> dict[str, Any]:
    """Return the outputs of an adopted application with these types, others the widest."""
    return first_answer(application, chosen=chosen)


def sizes_of_launch(kernel: Kernel, extent: int = 1024) -> Sizes:
    """Return sizes with which a kernel of an adopted program can be rendered: all that only a launch has."""
    return Sizes(dict.fromkeys(size_names(kernel), extent))
