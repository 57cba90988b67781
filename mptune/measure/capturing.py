"""Single launches of an application with the data they really had, each as a kernel that can be evaluated alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.errors import KernelError
from mptune.kernel import Application, Kernel, Role, Sizes
from mptune.measure.stepping import Captured, Launched

__all__ = ["CapturedLaunch", "in_context", "kept"]


@dataclass(frozen=True, slots=True)
class CapturedLaunch:
    """A launch of an application.

    Attributes:
        launched: what it was.
        count: how often it is made in a run.
        time_ms: how long all of them took, in the configuration they were captured in.
        path: of the file that holds the data of one of them.
        not_finite: the arguments some of whose values were NaN or infinite, or never written; what stands for these is
            finite (:func:`kept`).
        partly: the arguments that it may not have written everywhere.
    """

    launched: Launched
    count: int
    time_ms: float
    path: str
    not_finite: tuple[str, ...] = ()
    partly: tuple[str, ...] = ()


def kept(captured: Captured, path: Path) -> tuple[str, ...]:
    """Write the data of a launch to a file, and return the names of the arguments that are not finite throughout.

    For what is not, a finite value of the same array stands: a launch alone can then be timed and compared, whatever
    nobody writes or reads there (the rim of a grid, say). What was not written everywhere is given that way, too.

    Raises:
        KernelError: the file cannot be written; none of it is left.
    """
    given = {name: np.asarray(value) for name, value in captured.given.items()}
    left = dict(captured.left)
    not_finite = [name for arrays in (given, left) for name, array in arrays.items() if not np.isfinite(array).all()]
    given |= {name: np.full_like(left[name], _stand_in(left[name])) for name in not_finite if name not in given}
    arrays: dict[str, Any] = {f"given {name}": _finite(array) for name, array in given.items()}
    arrays |= {f"left {name}": _finite(array) for name, array in left.items()}
    try:
        np.savez(path, **arrays)
    except OSError as error:
        path.unlink(missing_ok=True)
        hint = "free space there, or name another folder in TMPDIR"
        raise KernelError(f"cannot write to {path.parent}: {error.strerror or error}; {hint}") from error
    return tuple(dict.fromkeys(not_finite))


def _finite(array: NDArray[Any]) -> NDArray[Any]:
    is_finite = np.isfinite(array)
    return array if is_finite.all() else np.where(is_finite, array, _stand_in(array))


def _stand_in(array: NDArray[Any]) -> float:
    """Return a finite value of an array, 0 if it has none."""
    found = array[np.isfinite(array)]
    return float(found[0]) if found.size else 0.0


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
    # What is not written everywhere keeps what it is given there.
    may_be_left = {*launch.not_finite, *launch.partly}
    unwritten = {a.name for a in kernel.outputs if a.role is Role.OUT and a.name in may_be_left}
    arguments = [dataclasses.replace(a, role=Role.INOUT) if a.name in unwritten else a for a in kernel.arguments]
    shapes = {argument.name: kernel.shape_of(argument, sizes) for argument in arguments}
    given = {a.name: shapes[a.name] for a in arguments if a.is_input}
    written = {a.name: shapes[a.name] for a in arguments if a.is_output}
    return kernel.changed(
        arguments=arguments,
        sizes={"default": sizes},
        inputs=_FromFile(launch.path, "given", given),
        reference=_FromFile(launch.path, "left", written),
    )
