"""A winner in the terms of the files that are written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mptune import __version__
from mptune.emit.definition import remarks
from mptune.emit.dependence import fixed_sizes
from mptune.emit.formulas import NotTranslatableError, formula
from mptune.emit.selection import Winner
from mptune.emit.text import identifier
from mptune.expressions import Expression
from mptune.kernel import Argument, Role

__all__ = ["HOST_FLAGS", "MARK", "EmittedArgument", "describe"]

#: What every emitted file says of itself.
MARK: Final = "Emitted by mptune"
#: What the host backend compiles with and the numbers depend on.
HOST_FLAGS: Final = "-std=c++17 -O3 -march=native -ffp-contract=fast -fno-math-errno -fno-trapping-math"
#: What g++ understands besides, for the speed.
GCC_FLAGS: Final = (
    "-fno-tree-loop-distribute-patterns --param=max-unswitch-insns=16000 --param=logical-op-non-short-circuit=0"
)

_INTEGERS: Final = {
    **{f"int{bits}": f"{name}" for bits, name in ((8, "signed char"), (16, "short"), (32, "int"), (64, "long long"))},
    **{
        f"uint{bits}": f"unsigned {name}" for bits, name in ((8, "char"), (16, "short"), (32, "int"), (64, "long long"))
    },
}


@dataclass(frozen=True, slots=True)
class EmittedArgument:
    """An argument of the kernel as the examples handle it.

    Attributes:
        name: its name in the definition.
        role: "in", "out", "inout" or "scalar".
        type: what it is stored as: a precision or an integer type.
        cpp: that type in C++, once the source is included.
        numpy: a NumPy type of as many bytes.
        itemsize: bytes of an element.
        elements: how many there are, as C++ over ``sizes``.
        count: how many there are at the run's sizes.
        shape: its shape at the run's sizes.
        file: the name of the file examples keep it in.
        file_cpp: the type in that file, in C++.
        file_numpy: the type in that file, in NumPy.
        size: the size whose value it has, empty for any other.
        is_constant: whether it is in constant memory.
    """

    name: str
    role: str
    type: str
    cpp: str
    numpy: str
    itemsize: int
    elements: str
    count: int
    shape: tuple[int, ...]
    file: str
    file_cpp: str
    file_numpy: str
    size: str
    is_constant: bool

    @property
    def is_scalar(self) -> bool:
        """Whether it is passed by value."""
        return self.role == Role.SCALAR

    @property
    def is_input(self) -> bool:
        """Whether it is read from a file."""
        return self.role != Role.OUT and not self.size

    @property
    def is_output(self) -> bool:
        """Whether it is written to a file."""
        return self.role in (Role.OUT, Role.INOUT)


def describe(winner: Winner, name: str) -> dict[str, Any]:
    """Return what the files of a winner are filled with.

    Args:
        winner: what is emitted.
        name: what the files and the C++ names begin with.

    Raises:
        MptuneError: the configuration cannot be rendered at the run's sizes.
    """
    kernel, sizes = winner.kernel, winner.sizes
    free = _free_sizes(winner)
    values = {**winner.configuration, **sizes}
    shape = winner.shape
    grid = [formula(str(axis), values, free) for axis in kernel.grid]
    return {
        "mark": f"{MARK} {__version__}",
        "name": name,
        "kernel": kernel.name,
        "function": kernel.function,
        "description": kernel.description,
        "configuration": str(winner.configuration),
        "parameters": [{"name": n, "value": value} for n, value in winner.configuration.items()],
        "sizes": [{"name": n, "value": value, "is_fixed": n not in free} for n, value in sizes.items()],
        "grid": [*grid, "1", "1"][:3],
        "grid_now": shape.grid,
        "block": shape.block,
        "shared_bytes": shape.shared_bytes,
        "arguments": [_argument(winner, argument, values, free) for argument in kernel.arguments],
        "host_flags": HOST_FLAGS,
        "gcc_flags": GCC_FLAGS,
        **_measured(winner),
    }


def _free_sizes(winner: Winner) -> dict[str, str]:
    """Return the sizes that may differ at a launch, with their names in C++."""
    kernel = winner.kernel
    fixed = fixed_sizes(kernel, winner.configuration, winner.sizes)
    free = {size: f"sizes.{identifier(size)}" for size in winner.sizes if size not in fixed}
    for text in (*kernel.grid, *(axis for argument in kernel.arguments for axis in argument.shape)):
        try:
            formula(str(text), {**winner.configuration, **winner.sizes}, free)
        except NotTranslatableError:
            free = {size: cpp for size, cpp in free.items() if size not in Expression(str(text)).names}
    return free


def _measured(winner: Winner) -> dict[str, Any]:
    run, trial, info = winner.run, winner.trial, winner.run.info
    metrics = trial.measurement.metrics
    prefix = "error."
    return {
        "backend": info.backend,
        "device": info.device,
        "architecture": info.architecture,
        "metric": info.metric,
        "command": info.command,
        "created_at": info.created_at,
        "seed": info.seed,
        "versions": info.versions,
        "threshold": _threshold(winner.threshold),
        "is_feasible": winner.threshold is not None or run.objective.is_feasible(trial),
        "time_ms": _number(trial.time_ms),
        "error": _number(trial.error),
        "errors": {n.removeprefix(prefix): _number(v) for n, v in metrics.items() if n.startswith(prefix)},
        "is_error_reused": trial.measurement.reused_error,
        "speedup": _number(run.speedup(trial), 3),
        "baseline": None if run.baseline is None else str(run.baseline.configuration),
        "baseline_ms": None if run.baseline is None else _number(run.baseline.time_ms),
        "remarks": (*trial.warnings, *remarks(run, winner.kernel)),
    }


def _argument(
    winner: Winner, argument: Argument, values: Mapping[str, Any], free: Mapping[str, str]
) -> EmittedArgument:
    precision = winner.kernel.precision_of(argument, winner.configuration)
    dtype = np.dtype(argument.dtype) if precision is None else precision.dtype
    shape = winner.kernel.shape_of(argument, winner.sizes)
    elements = [f"({formula(axis, values, free)})" for axis in argument.shape]
    integer = str(argument.dtype)
    return EmittedArgument(
        name=argument.name,
        role=argument.role.value,
        type=integer if precision is None else precision.name,
        cpp=_INTEGERS[integer] if precision is None else precision.cpp,
        numpy=dtype.name if dtype.kind in "iu" or dtype.name in _NUMPY else f"uint{8 * dtype.itemsize}",
        itemsize=dtype.itemsize,
        elements=" * ".join(elements) or "1",
        count=math.prod(shape),
        shape=shape,
        file=f"{argument.name}.{'f64' if precision is not None else f'{dtype.kind}{8 * dtype.itemsize}'}",
        file_cpp=_INTEGERS[integer] if precision is None else "double",
        file_numpy=integer if precision is None else "float64",
        size=argument.name if argument.role is Role.SCALAR and argument.name in winner.sizes else "",
        is_constant=argument.is_constant,
    )


#: The floating-point types NumPy and CuPy themselves have.
_NUMPY: Final = ("float64", "float32", "float16")


def _threshold(threshold: float | Mapping[str, float] | None) -> str:
    if threshold is None:
        return "none"
    if isinstance(threshold, Mapping):
        return ", ".join(f"{output} {tau:g}" for output, tau in threshold.items())
    return f"{threshold:g}"


def _number(value: float, digits: int = 6) -> str:
    return f"{value:.{digits}g}" if math.isfinite(value) else "unknown"
