"""Renders, compiles and runs one configuration of a kernel: what every kernel's tests are made of."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.pairs import Pairs, count_unwritten, poisoned
from mptune.backends.base import Argument as LaunchArgument
from mptune.backends.base import Backend, Buffer, CompileOptions, Function
from mptune.backends.host import HostBackend
from mptune.data import DataManager
from mptune.errors import EmptySpaceError
from mptune.kernel import Argument, Kernel, Role, Sizes
from mptune.source.render import render
from mptune.space.configuration import Configuration, Value
from mptune.space.parameters import PrecisionParameter
from mptune.space.search_space import SearchSpace


@functools.cache
def host() -> Backend:
    return HostBackend()


@dataclass(frozen=True)
class Launcher:
    """A kernel with its data at given sizes, ready to run any of its configurations; on the host unless told."""

    kernel: Kernel
    data: DataManager
    options: CompileOptions = field(default_factory=CompileOptions)
    backend: Backend = field(default_factory=host)

    def run(self, configuration: Configuration) -> dict[str, NDArray[np.float64]]:
        """Return the outputs in fp64; fails where an element was left unwritten.

        Outputs are poisoned before the launch, and nothing may be written past their ends.
        """
        with self.function(configuration) as function:
            arguments = [self.argument(argument, configuration) for argument in self.kernel.arguments]
            function.launch(self.kernel.launch_shape(configuration, self.data.sizes), arguments)
            return {
                argument.name: self.read(argument, configuration, buffer)
                for argument, buffer in zip(self.kernel.arguments, arguments, strict=True)
                if argument.is_output and isinstance(buffer, Buffer)
            }

    @contextlib.contextmanager
    def function(self, configuration: Configuration) -> Iterator[Function]:
        """Compile and load a configuration, and unload it at the end."""
        source = render(self.kernel, configuration, self.data.sizes)
        function = self.backend.device.load(self.backend.compiler.compile(source, self.kernel.function, self.options))
        try:
            yield function
        finally:
            function.unload()

    def initial(self, argument: Argument, configuration: Configuration) -> NDArray[Any]:
        if argument.role is Role.OUT:
            return poisoned(self.data.shape_of(argument), self.kernel.dtype_of(argument, configuration))
        return self.data.typed(argument, self.kernel.precision_of(argument, configuration))

    def argument(self, argument: Argument, configuration: Configuration) -> LaunchArgument:
        if argument.role is Role.SCALAR:
            return self.data.scalar(argument, self.kernel.precision_of(argument, configuration))
        initial = np.ascontiguousarray(self.initial(argument, configuration))
        buffer = self.backend.device.allocate(initial.nbytes + len(_GUARD))
        buffer.write(np.concatenate([initial.reshape(-1).view(np.uint8), _GUARD]))
        return buffer

    def read(self, argument: Argument, configuration: Configuration, buffer: Buffer) -> NDArray[np.float64]:
        content = np.empty(buffer.nbytes, dtype=np.uint8)
        buffer.read(content)
        buffer.free()
        output, guard = np.split(content, [-len(_GUARD)])
        assert np.array_equal(guard, _GUARD), f"{argument.name} was written past its end by {configuration}"
        array = output.view(self.kernel.dtype_of(argument, configuration)).reshape(self.data.shape_of(argument))
        left = count_unwritten(Pairs.of(array, self.data.references[argument.name]))
        assert left == 0, f"{left} elements of {argument.name} were not written by {configuration}"
        return array.astype(np.float64)


# What lies past the end of a buffer: near 1 in half, small in the other types, so that arithmetic on it shows.
_GUARD = np.full(256, 0x3C, dtype=np.uint8)


def launcher(
    kernel: Kernel, sizes: Mapping[str, int] | None = None, *, preset: str = "smoke", seed: int = 0
) -> Launcher:
    """Return a launcher at a preset's sizes, some of them replaced."""
    return Launcher(kernel, DataManager(kernel, kernel.resolve_sizes(preset, sizes), seed=seed))


def all_in(kernel: Kernel, name: str) -> dict[str, Value]:
    """Return one precision for every type of a kernel."""
    return {p.name: name for p in kernel.parameters if isinstance(p, PrecisionParameter)}


def is_valid(kernel: Kernel, configuration: Configuration, sizes: Sizes) -> bool:
    """Return whether a configuration satisfies the kernel's constraints; the whole space is not built."""
    parameters = [p.restricted([configuration[p.name]]) for p in kernel.parameters]
    try:
        SearchSpace(parameters, kernel.constraints, dict(sizes), explains=False)
    except EmptySpaceError:
        return False
    return True


def nrmse(output: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    """Return the root mean square error over the mean of the reference, in plain NumPy."""
    return float(np.sqrt(np.mean((output - reference) ** 2)) / np.mean(reference))


def nmae(output: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    """Return the mean absolute error over the mean absolute reference."""
    return float(np.abs(output - reference).sum() / np.abs(reference).sum())


def mre(output: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    """Return the mean relative error."""
    return float(np.mean(np.abs(output - reference) / np.abs(reference)))


def covering_sample(
    kernel: Kernel, sizes: Sizes, fixed: Mapping[str, Value], rng: np.random.Generator
) -> list[Configuration]:
    """Return few configurations with these values that between them have every valid value of the others."""
    space = kernel.search_space(sizes).restrict({name: (value,) for name, value in fixed.items()})
    return space.configurations(space.covering(rng))
