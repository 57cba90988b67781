"""What a device does a second, by which a kernel tells where fetching and computing take as long as each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from mptune.errors import KernelError
from mptune.precision import precision
from mptune.space.configuration import NamedValues

__all__ = ["Rates"]

_FLOPS: Final = "flops_per_s."


@dataclass(frozen=True, slots=True)
class Rates:
    """The speeds of a whole device.

    Attributes:
        flops_per_s: additions and multiplications a second by the name of the precision, two for a fused one; fp32
            among them, in which a type is computed that is missing.
        shared_bytes_per_s: speed of the shared memories of all multiprocessors together; on a processor, of the first
            caches of its cores.
        global_bytes_per_s: speed of its memory.

    Raises:
        KernelError: a speed is not positive and finite, or that of fp32 is missing.
    """

    flops_per_s: Mapping[str, float]
    shared_bytes_per_s: float
    global_bytes_per_s: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "flops_per_s", NamedValues(self.flops_per_s))
        if "fp32" not in self.flops_per_s:
            raise KernelError("the speeds of a device need that of fp32")
        for name, speed in self.numbers.items():
            if not 0 < speed < math.inf:
                raise KernelError(f"the speed {name} of a device is {speed!r}: expected a positive number")

    def fma_per_s(self, name: str) -> float:
        """Return how many multiplications and additions a second there are in a precision, a compound one included."""
        found = precision(name)
        computed_in = (found.computed_in or found).name
        return self.flops_per_s.get(computed_in, self.flops_per_s["fp32"]) / found.flops_of_fma

    @property
    def numbers(self) -> dict[str, float]:
        """The speeds by name, as a run file keeps them."""
        memory = {"shared_bytes_per_s": self.shared_bytes_per_s, "global_bytes_per_s": self.global_bytes_per_s}
        return memory | {f"{_FLOPS}{name}": speed for name, speed in self.flops_per_s.items()}

    @classmethod
    def of(cls, numbers: Mapping[str, float]) -> Self:
        """Return the speeds that a run file has kept.

        Raises:
            KernelError: one is missing or impossible.
        """
        flops = {n.removeprefix(_FLOPS): speed for n, speed in numbers.items() if n.startswith(_FLOPS)}
        memory = (numbers.get(f"{name}_bytes_per_s", math.nan) for name in ("shared", "global"))
        return cls(flops, *memory)

    def __str__(self) -> str:
        flops = (f"{name} {speed / 1e9:.3g} GFlop/s" for name, speed in self.flops_per_s.items())
        memory = (
            f"shared memory {self.shared_bytes_per_s / 1e9:.3g} GB/s, memory {self.global_bytes_per_s / 1e9:.3g} GB/s"
        )
        return f"{', '.join(flops)}, {memory}"
