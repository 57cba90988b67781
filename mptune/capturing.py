"""Single launches of an application with the data they really had, each as a kernel that can be evaluated alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mptune.kernel import Application, Kernel, Sizes
from mptune.stepping import Captured, Launched

__all__ = ["CapturedLaunch", "in_context", "kept"]


@dataclass(frozen=True, slots=True)
class CapturedLaunch:
    """A launch of an application.

    Attributes:
        launched: what it was.
        count: how often it is made in a run.
        time_ms: how long all of them took, in the configuration they were captured in.
        path: of the file that holds the data of one of them.
    """

    launched: Launched
    count: int
    time_ms: float
    path: str


def kept(captured: Captured, path: Path) -> str:
    """Write the data of a launch to a file, and return its path."""
    arrays: dict[str, Any] = {f"given {name}": np.asarray(value) for name, value in captured.given.items()}
    arrays |= {f"left {name}": array for name, array in captured.left.items()}
    np.savez(path, **arrays)
    return str(path)


@dataclass(frozen=True, slots=True)
class _FromFile:
    """Inputs of a captured launch, or what it wrote, in the shapes of the kernel's arguments."""

    path: str
    what: str
    shapes: Mapping[str, tuple[int, ...]]

    def __call__(self, *_: Any) -> dict[str, Any]:
        with np.load(self.path, allow_pickle=False) as arrays:
            named = {name: arrays[f"{self.what} {name}"] for name in self.shapes if f"{self.what} {name}" in arrays}
        return {name: array.reshape(self.shapes[name]) for name, array in named.items()}


def in_context(application: Application, launch: CapturedLaunch) -> Kernel:
    """Return the kernel of a captured launch, with its sizes and inputs; what it wrote is the reference."""
    kernel = application.kernels[launch.launched.kernel]
    sizes = Sizes(dict(launch.launched.sizes))
    shapes = {argument.name: kernel.shape_of(argument, sizes) for argument in kernel.arguments}
    written = {name: shape for name, shape in shapes.items() if name in {output.name for output in kernel.outputs}}
    return kernel.changed(
        sizes={"default": sizes},
        inputs=_FromFile(launch.path, "given", shapes),
        reference=_FromFile(launch.path, "left", written),
    )
