"""The answer of an application in its widest types: the reference of one that has no other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.evaluate import Metrics, evaluate_outputs
from mptune.backends.base import Backend, Buffer, CompileOptions
from mptune.buffers.conversion import poisoned
from mptune.errors import ConstraintError, KernelError
from mptune.kernel import Application, Role, Sizes
from mptune.kernel.limits import space_on
from mptune.space.configuration import Configuration
from mptune.stepping import Stepper

__all__ = ["OwnAnswer"]

#: Two runs in the widest types may differ by the order of additions, not by more.
_LARGEST_DIFFERENCE: Final = 1e-6
#: So many configurations are tried: what a launch rules out is not known before.
_TRIED: Final = 100


class OwnAnswer:
    """Runs an application in its widest types, twice, to make references of inputs.

    Args:
        application: the application.
        backend: compiles and launches.
        options: how to compile.
        metrics: by which two runs are compared.
    """

    def __init__(self, application: Application, backend: Backend, options: CompileOptions, metrics: Metrics) -> None:
        self._application = application
        self._backend = backend
        self._options = options
        self._metrics = metrics
        self._known: Configuration | None = None

    def __call__(self, inputs: Mapping[str, Any], sizes: Sizes) -> dict[str, NDArray[Any]]:
        """Return the outputs in fp64.

        Raises:
            KernelError: two runs differ, or no configuration in the widest types can be launched.
        """
        first, second = (self._run(inputs, sizes) for _ in range(2))
        if all(np.array_equal(first[name], second[name]) for name in first):
            return first
        error = evaluate_outputs(second, first, self._metrics, inputs).metrics["error"]
        if not error <= _LARGEST_DIFFERENCE:
            raise KernelError(
                f"{self._application.called} gives another answer from run to run, on the same inputs in its widest "
                f"types: the error of one against the other is {error:.3g}; give a reference, or find out what changes"
            )
        return first

    def _run(self, inputs: Mapping[str, Any], sizes: Sizes) -> dict[str, NDArray[Any]]:
        if self._known is not None:
            return self._outputs(self._known, inputs, sizes)
        refused: ConstraintError | None = None
        for configuration in self._candidates(sizes):
            try:
                outputs = self._outputs(configuration, inputs, sizes)
            except ConstraintError as error:
                refused = refused or error
                continue
            self._known = configuration
            return outputs
        raise KernelError(
            f"{self._application.called}: none of {_TRIED} configurations in the widest types runs: {refused}"
        )

    def _candidates(self, sizes: Sizes) -> list[Configuration]:
        application = self._application
        space = space_on(application, sizes, self._backend.device.constraints())
        space = space.restrict(application.baseline_values())
        spread = np.unique(np.linspace(0, space.size - 1, min(_TRIED, space.size)).astype(np.int64))
        return space.configurations(spread)

    def _outputs(
        self, configuration: Configuration, inputs: Mapping[str, Any], sizes: Sizes
    ) -> dict[str, NDArray[Any]]:
        application = self._application
        memory: dict[str, Buffer] = {}
        scalars: dict[str, float | int] = {}
        stepper = Stepper(application, configuration, sizes, self._backend, self._options)
        try:
            for argument in application.arguments:
                if argument.role is Role.SCALAR:
                    scalars[argument.name] = inputs[argument.name]
                    continue
                dtype = application.dtype_of(argument, configuration)
                shape = application.shape_of(argument, sizes)
                memory[argument.name] = self._backend.device.allocate(math.prod(shape) * dtype.itemsize)
                if argument.is_input:
                    stepper.write(argument.name, inputs[argument.name], memory[argument.name])
                else:
                    memory[argument.name].write(poisoned(shape, dtype))
            _, left = stepper.run(memory, scalars)
            return {output.name: stepper.read(output.name, left[output.name]) for output in application.outputs}
        finally:
            stepper.unload()
            for buffer in memory.values():
                buffer.free()
