"""Runs the steps of an application once, in one configuration: what tests of applications are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.data.data import make_inputs
from mptune.kernel import Application, Role, Sizes
from mptune.kernel.limits import widest
from mptune.measure.launching import ApplicationLauncher, Arrays, inputs_from
from mptune.measure.stepping import Stepper
from mptune.space.configuration import Configuration


def run_once(
    application: Application,
    values: Mapping[str, Any],
    given: Mapping[str, Any] | None = None,
    sizes: Sizes | None = None,
    backend: str = "host",
) -> tuple[dict[str, NDArray[Any]], Stepper, float]:
    """Return the outputs by name, the stepper, which knows what was launched, and the milliseconds it took.

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
    stepper = Stepper(application, configuration, sizes, get_backend(backend))
    memory, scalars = {}, {}
    try:
        for argument in application.arguments:
            if argument.role is Role.SCALAR:
                scalars[argument.name] = given[argument.name]
                continue
            dtype = application.dtype_of(argument, configuration)
            elements = math.prod(application.shape_of(argument, sizes))
            memory[argument.name] = get_backend(backend).device.allocate(elements * dtype.itemsize)
            if argument.name in given:
                stepper.write(argument.name, given[argument.name], memory[argument.name])
        elapsed_ms, left = stepper.run(memory, scalars)
        outputs = {output.name: stepper.read(output.name, left[output.name]) for output in application.outputs}
        return outputs, stepper, elapsed_ms
    finally:
        stepper.unload()
        for buffer in memory.values():
            buffer.free()


def adopted_answer(application: Application, precision: str) -> dict[str, Any]:
    """Return the outputs of an adopted application in which every type is this one that may be, others the widest."""
    chosen = {p.name: precision for p in application.parameters if precision in p.values and "_type" in p.name}
    return tuned_answer(application, chosen)


def tuned_answer(application: Application, chosen: Mapping[str, str]) -> dict[str, Any]:
    """Return the outputs of an adopted application with these types, others the widest."""
    sizes = application.resolve_sizes()
    backend = get_backend("host")
    wide = widest(application, sizes, backend.device.facts())[0]
    given = inputs_from(application, sizes, make_inputs(application, sizes, 0))
    launcher = ApplicationLauncher(
        application, application.configuration({**wide, **chosen}), backend, CompileOptions()
    )
    try:
        return launcher.run(given, sizes, Arrays())[0]
    finally:
        launcher.close()
