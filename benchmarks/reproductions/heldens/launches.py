"""The kernels of an application as kernels of their own, each with the data of one launch within the application."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.backends.base import Backend, Buffer
from mptune.data import DataManager
from mptune.kernel import Application, Kernel, Role, Sizes
from mptune.measure.buffers import run_once
from mptune.measure.program import Handle, Program
from mptune.space.configuration import Configuration


class _Recording(Program):
    """Keeps what the middle launch of each kernel was given, and what it left."""

    def __init__(self, *args: Any, wanted: Mapping[str, int], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.made: dict[str, int] = {}
        self.kept: dict[str, tuple[dict[str, Any], dict[str, NDArray[Any]], Sizes]] = {}
        self._wanted = wanted

    def launch(self, name: str, given: Mapping[str, Any], memory: Mapping[str, Buffer]) -> None:
        """Launch a kernel of the application on arguments by name."""
        self.made[name] = self.made.get(name, 0) + 1
        if self.made[name] != self._wanted.get(name):
            super().launch(name, given, memory)
            return
        buffers = {argument: value.name for argument, value in given.items() if isinstance(value, Handle)}
        before = {argument: self.read(buffer, memory[buffer]) for argument, buffer in buffers.items()}
        super().launch(name, given, memory)
        after = {argument: self.read(buffer, memory[buffer]) for argument, buffer in buffers.items()}
        scalars = {argument: value for argument, value in given.items() if argument not in buffers}
        sizes = next(launched.sizes for launched in self.launched if launched.kernel == name)
        self.kept[name] = before | scalars, after, Sizes(dict(sizes))


def kernels_alone(
    application: Application, configuration: Configuration, sizes: Sizes, backend: Backend, seed: int
) -> list[Kernel]:
    """Return each kernel with the sizes and inputs of its middle launch; what that left is the reference."""
    data = DataManager(application, sizes, seed=seed)
    counting = _Recording(application, configuration, sizes, backend, wanted={})
    run_once(counting, data)
    wanted = {name: (count + 1) // 2 for name, count in counting.made.items()}
    recording = _Recording(application, configuration, sizes, backend, wanted=wanted)
    run_once(recording, data)
    return [_alone(application.kernels[name], *recording.kept[name]) for name in recording.kept]


def _alone(kernel: Kernel, before: Mapping[str, Any], after: Mapping[str, Any], sizes: Sizes) -> Kernel:
    # What a launch does not write everywhere keeps what it is given there.
    kept = {a.name for a in kernel.outputs if a.role is Role.OUT and np.any(before[a.name] == after[a.name])}
    arguments = [dataclasses.replace(a, role=Role.INOUT) if a.name in kept else a for a in kernel.arguments]
    shapes = {argument.name: kernel.shape_of(argument, sizes) for argument in arguments}
    given = {a.name: np.asarray(before[a.name]).reshape(shapes[a.name]) for a in arguments if a.is_input}
    left = {a.name: after[a.name].reshape(shapes[a.name]) for a in arguments if a.is_output}
    return kernel.changed(
        arguments=arguments,
        sizes={"default": sizes},
        inputs=functools.partial(_these, given),
        reference=functools.partial(_these, left),
    )


def _these(arrays: Mapping[str, Any], *_: Any) -> dict[str, Any]:
    return {name: np.array(array) for name, array in arrays.items()}
