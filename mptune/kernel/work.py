"""The work of a kernel: its operations and bytes, from which rates and rooflines follow (Williams 2009).

A definition counts operations as it likes. The bundled kernels follow McMahon (The Livermore Fortran Kernels, 1986):

- 1 for an addition, a multiplication or a comparison, and so 2 for a fused multiply-add;
- 4 for a division, a square root or its reciprocal;
- 8 for an exponential, a logarithm, a trigonometric or an error function;
- 0 for conversions, selections and addresses.

A multiply-add in a compound precision counts as many operations of its base type as it takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mptune.errors import KernelError, MptuneError
from mptune.kernel.declarations import Sizes, check_expression, check_precision
from mptune.precision import precision, promoted
from mptune.space.configuration import Configuration, is_number
from mptune.space.constraints import canonical
from mptune.space.expressions import Expression
from mptune.space.parameters import listed

#: A number, an expression over sizes and parameters, or a function of the sizes.
Count = str | int | float | Callable[[Sizes], float]
#: A count; or counts by a precision parameter, a fixed precision, or a tuple of either whose types are promoted.
Flops = Count | Mapping[str | tuple[str, ...], Count]


@dataclass(frozen=True, slots=True)
class Work:
    """The least work of one launch."""

    traffic_bytes: int  #: bytes of all buffers, each read or written once, or both
    flops: float | None = None  #: floating-point operations; None if the kernel does not declare them
    flops_by_precision: Mapping[str, float] = field(default_factory=dict)  #: empty if the kernel does not declare them

    @property
    def intensity(self) -> float | None:
        """Operations per byte moved; None if the operations are unknown."""
        return None if self.flops is None or not self.traffic_bytes else self.flops / self.traffic_bytes


def check_flops(
    flops: Flops, kernel: str, sizes: Sequence[str], parameters: Sequence[str], precisions: Sequence[str]
) -> None:
    """Check a declaration of operations against the names of sizes, parameters and precision parameters."""
    if isinstance(flops, Mapping) and (not flops or () in flops):
        raise KernelError(f"kernel {kernel}: flops by precision names no precision; give one count instead")
    for types, count in _by_types(flops).items():
        for name in listed(types):
            check_precision(name, precisions, f"flops of kernel {kernel}")
        if isinstance(count, str):
            check_expression(count, (*sizes, *parameters), "flops", kernel)
        elif not callable(count):
            _check_count(count, f"kernel {kernel}: flops is {count!r}")


def count_flops(
    flops: Flops, kernel: str, configuration: Configuration, sizes: Sizes, precisions: frozenset[str]
) -> tuple[float, dict[str, float]]:
    """Return the operations of a configuration: the total, and by the name of their precision."""
    found: list[float] = []
    by_precision: dict[str, float] = {}
    for types, given in _by_types(flops).items():
        count = canonical(given, precisions) if isinstance(given, str) else given
        operations = _count(count, kernel, configuration, sizes)
        if types:
            chosen = promoted(*(precision(str(configuration.get(name, name))) for name in listed(types)))
            name = (chosen.computed_in or chosen).name
            operations *= chosen.flops_of_fma / 2
            by_precision[name] = by_precision.get(name, 0.0) + operations
        found.append(operations)
    return math.fsum(found), by_precision


def _by_types(flops: Flops) -> Mapping[str | tuple[str, ...], Count]:
    return flops if isinstance(flops, Mapping) else {(): flops}


def _count(count: Count, kernel: str, configuration: Configuration, sizes: Sizes) -> float:
    try:
        found: Any = count(sizes) if callable(count) else Expression(str(count)).evaluate({**sizes, **configuration})
    except MptuneError:
        raise
    except (Exception, SystemExit) as error:
        raise KernelError(f"flops of kernel {kernel} fails at {sizes}: {type(error).__name__}: {error}") from error
    _check_count(found, f"kernel {kernel}: flops is {found!r} at {sizes} and {configuration}")
    return float(found)


def _check_count(count: object, found: str) -> None:
    if not is_number(count) or count < 0:  # type: ignore[operator]
        raise KernelError(f"{found}; expected a finite number that is not negative")
