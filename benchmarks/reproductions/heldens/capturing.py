"""Single launches of an application with the data they really had, each as a kernel that can be tuned alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mptune.backends.base import Buffer
from mptune.kernel import Application, Kernel, Role, Sizes
from mptune.measure.program import Program
from mptune.measure.steps import Handle


@dataclass(frozen=True, slots=True)
class FromFile:
    """Inputs of a launch, or what it wrote, in the shapes of the kernel's arguments; a worker can load it."""

    path: str
    shapes: Mapping[str, tuple[int, ...]]
    what: str

    def __call__(self, *_: Any) -> dict[str, Any]:
        with np.load(self.path) as arrays:
            return {name: arrays[f"{self.what} {name}"].reshape(shape) for name, shape in self.shapes.items()}


class Capturing(Program):
    """An application whose first launch of each kernel keeps the data it is given and what it writes, in fp64."""

    def launch(self, name: str, given: Mapping[str, Any], memory: Mapping[str, Buffer]) -> None:
        captured = self.__dict__.setdefault("captured", {})
        buffers = {argument: each.name for argument, each in given.items() if isinstance(each, Handle)}
        if name in captured:
            super().launch(name, given, memory)
            return
        before = {n: value for n, value in given.items() if n not in buffers}
        before |= {argument: self.read(buffer, memory[buffer]) for argument, buffer in buffers.items()}
        super().launch(name, given, memory)
        captured[name] = before, {n: self.read(buffer, memory[buffer]) for n, buffer in buffers.items()}

    def kernels(self, folder: Path) -> list[Kernel]:
        """Return the kernels with their inputs; what they wrote is the reference, and all of that lies in a folder."""
        application: Any = self.tunable
        assert isinstance(application, Application)
        sizes_of = {launched.kernel: Sizes(dict(launched.sizes)) for launched in reversed(self.launched)}
        found = []
        for name, (before, after) in self.__dict__["captured"].items():
            kernel, sizes, path = application.kernels[name], sizes_of[name], folder / f"{name}.npz"
            # What is not written everywhere keeps what it was given.
            partly = {n for n in after if np.any(before[n] == after[n]) and np.isfinite(before[n]).all()}
            arguments = [
                dataclasses.replace(a, role=Role.INOUT) if a.role is Role.OUT and a.name in partly else a
                for a in kernel.arguments
            ]
            shapes = {argument.name: kernel.shape_of(argument, sizes) for argument in arguments}
            arrays: dict[str, Any] = {f"given {a.name}": before.get(a.name, sizes.get(a.name, 0)) for a in arguments}
            arrays |= {f"left {n}": values for n, values in after.items()}
            np.savez(path, **arrays)
            inputs = {a.name: shapes[a.name] for a in arguments if a.is_input}
            outputs = {a.name: shapes[a.name] for a in arguments if a.is_output}
            found.append(
                kernel.changed(
                    arguments=arguments,
                    sizes={"default": sizes},
                    inputs=FromFile(str(path), inputs, "given"),
                    reference=FromFile(str(path), outputs, "left"),
                )
            )
        return found
