"""What a device can do at most, measured on it, and how long a kernel's work takes at that rate.

The roofline of Williams, Waterman and Patterson (2009): no launch is faster than its bytes at the speed of memory, nor
than its operations at the speed of the arithmetic units. Both speeds are measured by kernels that do nothing else,
compiled by the same compiler and run by the same backend as those they are compared with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from mptune.backends.base import Backend
from mptune.data import DataManager
from mptune.kernel import Argument, In, InOut, Kernel, Out, Scalar, Sizes, Work
from mptune.measure.buffers import Memory
from mptune.measure.program import Program
from mptune.measure.timing import TimingPlan, repeat_launches
from mptune.precision import ARITHMETIC, precision
from mptune.space.expressions import Expression
from mptune.space.parameters import BooleanParameter, OrdinalParameter, Parameter, PrecisionParameter

__all__ = ["Bound", "Roofline"]

_PLAN: Final = TimingPlan(warmups=2, min_repeats=10, max_repeats=200, relative_width=0.001, cap_s=0.3)
#: Smaller arrays take longer to launch than to stream.
_LEAST_BYTES: Final = 1 << 20
#: Features of processors that compute in fp16; none computes in bf16 but for products of matrices.
_HALF_UNITS: Final = ("avx512_fp16", "asimdhp")
#: A launch of as many blocks as keep a GPU busy takes minutes where arithmetic is emulated: there are fewer then.
_LEAST_BLOCKS: Final = 8
_LAUNCH_S: Final = 0.2
_CHAINS: Final = 12
_OPERATIONS_PER_THREAD: Final = 1 << 23

_MULTIPLY_ADD: Final = """
// Chains of dependent operations: as many as hide the latency of two units with four cycles each, and no more than fit
// into sixteen registers.
{% if t in ("fp64", "fp32", "fp16") %}
#if defined(MPTUNE_HOST)
using number = {{ "_Float16" if t == "fp16" else t }};
typedef number group __attribute__((vector_size({{ lanes }} * sizeof(number))));
#define MULTIPLY_ADD(x, a, b) ((x) * (a) + (b))
#elif defined(MPTUNE_OPENCL){{ " && defined(MPTUNE_NATIVE_HALF)" if t == "fp16" }}
using number = {{ "_Float16" if t == "fp16" else t }};
typedef number group __attribute__((ext_vector_type({{ lanes }})));
#define MULTIPLY_ADD(x, a, b) ((x) * (a) + (b))
#endif
{% endif %}
#if !defined(MULTIPLY_ADD)
using number = {{ t }};
using group = vec<number, {{ lanes }}>;
#define MULTIPLY_ADD(x, a, b) fma(x, a, b)
#endif

extern "C" __global__ void multiply_add(float* sums, {{ t }} factor, {{ t }} term) {
    const number a = static_cast<number>(static_cast<float>(factor));
    const number b = static_cast<number>(static_cast<float>(term));
    group x[{{ chains }}];
    #pragma unroll
    for (int c = 0; c < {{ chains }}; ++c) {
        for (int i = 0; i < {{ lanes }}; ++i) x[c][i] = static_cast<number>(static_cast<float>(c + i));
    }
    for (int step = 0; step < {{ steps }}; ++step) {
        UNROLL({{ chains }})
        for (int c = 0; c < {{ chains }}; ++c) x[c] = MULTIPLY_ADD(x[c], a, b);
    }
    float sum = 0;
    #pragma unroll
    for (int c = 0; c < {{ chains }}; ++c) {
        for (int i = 0; i < {{ lanes }}; ++i) sum += static_cast<float>(x[c][i]);
    }
    sums[blockIdx.x * {{ threads }} + threadIdx.x] = sum;
}
"""

_STREAM: Final = """
extern "C" __global__ void stream(double* __restrict__ y, const double* __restrict__ x, const double* __restrict__ z,
                                  double a) {
    const long long i = (blockIdx.x * 256LL + threadIdx.x) * 2;
    // In place no line is fetched only to be overwritten; z then is not read.
    store(y + i, fma(a, load<2>(x + i), load<2>({{ "y" if in_place else "z" }} + i)));
}
"""


@dataclass(frozen=True, slots=True)
class Bound:
    """The least time a launch can take."""

    memory_ms: float  #: its bytes at the speed of memory
    compute_ms: float  #: its operations at the speed of the arithmetic units; 0 where they are not known

    @property
    def time_ms(self) -> float:
        """The longer one of the two."""
        return max(self.memory_ms, self.compute_ms)

    @property
    def name(self) -> str:
        """``"memory"`` or ``"compute"``: the one that holds."""
        return "memory" if self.memory_ms >= self.compute_ms else "compute"


@dataclass(frozen=True, slots=True)
class Launches:
    least_s: float  #: the shortest, by the device's clock
    wall_s: float  #: of each on average, by this process's clock; a simulated device's may differ


class Roofline:
    """The speeds of one device, each measured when it is first asked for.

    Args:
        backend: compiles and runs the measurements, on as many cores as other kernels.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._on_host = backend.shares_memory
        self._bytes_per_s: dict[int, float] = {}

    @cached_property
    def flops_per_s(self) -> Mapping[str, float]:
        """Multiplications and additions a second, two for a fused one, by the name of the precision.

        A precision that is missing is computed in fp32 here.
        """
        architecture = self._backend.describe().architecture
        types = [p.name for p in ARITHMETIC if p.size_bytes > 2]
        if not self._on_host:
            types = [p.name for p in ARITHMETIC]
        elif any(feature in architecture for feature in _HALF_UNITS):
            types.append("fp16")
        return MappingProxyType({name: self._peak(name) for name in types})

    def bytes_per_s(self, footprint_bytes: int) -> float:
        """Return the speed of a triad, y = x * a + z or y = x * a + y, over arrays that together are this large.

        Small ones stay in a cache, as the arrays of a kernel launched repeatedly do. Counted are the bytes read and
        written, as of a kernel's :class:`~mptune.kernel.Work`: no line fetched only to be overwritten.
        """
        size = max(footprint_bytes, _LEAST_BYTES)
        if size not in self._bytes_per_s:
            self._bytes_per_s[size] = max(self._stream(size, in_place) for in_place in (False, True))
        return self._bytes_per_s[size]

    def bound(self, work: Work, footprint_bytes: int) -> Bound:
        """Return the least time of a launch; operations of an unknown precision are taken to be in the fastest."""
        peaks = self.flops_per_s
        fastest = max(peaks.values())
        counted = [(flops, peaks.get(name, peaks["fp32"])) for name, flops in work.flops_by_precision.items()]
        seconds = sum(flops / peak for flops, peak in counted) if counted else (work.flops or 0.0) / fastest
        return Bound(work.traffic_bytes / self.bytes_per_s(footprint_bytes) * 1e3, seconds * 1e3)

    # -- measuring -----------------------------------------------------------------------------

    def _peak(self, name: str) -> float:
        """Return the best speed over the widths of vectors a processor may have; of a GPU, that of its pairs."""
        # As many as keep all of a device busy; a processor's threads are one after the other.
        workers = int(self._backend.describe().limits.get("workers", 1))
        threads, blocks = (1, 32 * workers) if self._on_host else (256, 4096)
        size_bytes = precision(name).size_bytes
        widths = [bits // 8 // size_bytes for bits in (128, 256, 512)] if self._on_host else [max(1, 4 // size_bytes)]
        steps = _OPERATIONS_PER_THREAD // (2 * _CHAINS * max(widths)) // (1 if self._on_host else 512)

        def computing(blocks: int) -> Kernel:
            return _kernel(
                "multiply_add",
                _MULTIPLY_ADD,
                [PrecisionParameter("t", [name]), OrdinalParameter("lanes", widths)],
                [
                    Out("sums", "blocks * threads", precision="fp32"),
                    Scalar("factor", precision="t"),
                    Scalar("term", precision="t"),
                ],
                {"blocks": blocks, "threads": threads, "steps": steps, "chains": _CHAINS},
                {"factor": 0.5, "term": 1.0},
            )

        operations = 2.0 * _CHAINS * steps * threads
        return max(lanes * operations * self._blocks_per_s(computing, blocks, {"lanes": lanes}) for lanes in widths)

    def _blocks_per_s(self, kernel_of: Callable[[int], Kernel], most: int, values: Mapping[str, Any]) -> float:
        """Return how many blocks end in a second, of so many at once, or of fewer where these would take long."""
        blocks = most
        if not self._on_host:
            blocks = min(most, max(_LEAST_BLOCKS, int(_LAUNCH_S / self._measured(kernel_of(1), values).wall_s)))
        return blocks / self._measured(kernel_of(blocks), values).least_s

    def _stream(self, footprint_bytes: int, in_place: bool) -> float:
        blocks = -(-footprint_bytes // (8 * 512 * (2 if in_place else 3)))
        unread = "2" if in_place else "n"
        kernel = _kernel(
            "stream",
            _STREAM,
            [BooleanParameter("in_place")],
            [
                InOut("y", "n", precision="fp64"),
                In("x", "n", precision="fp64"),
                In("z", unread, precision="fp64"),
                Scalar("a", precision="fp64"),
            ],
            {"n": 512 * blocks, "blocks": blocks, "threads": 256},
            {"a": 1e-9},
        )
        return 3 * 8 * 512 * blocks / self._measured(kernel, {"in_place": in_place}).least_s

    def _measured(self, kernel: Kernel, values: Mapping[str, Any]) -> Launches:
        sizes = kernel.resolve_sizes()
        memory = Memory(self._backend)
        with Program(kernel, kernel.configuration(values), sizes, self._backend) as program:
            try:
                buffers = memory.bind(program, DataManager(kernel, sizes))
                self._backend.device.wake()
                begun = time.perf_counter()
                times_ms = repeat_launches(lambda: program.run(buffers), _PLAN)
                wall_s = time.perf_counter() - begun
                return Launches(min(times_ms) / 1e3, wall_s / (_PLAN.warmups + len(times_ms)))
            finally:
                memory.free()


def _kernel(
    name: str,
    template: str,
    parameters: Sequence[Parameter],
    arguments: Sequence[Argument],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
) -> Kernel:
    def inputs(_: np.random.Generator, size: Sizes) -> dict[str, Any]:
        buffers = [a for a in arguments if a.is_input and a.name not in scalars]
        return {**scalars, **{a.name: np.ones(int(Expression(a.shape[0]).evaluate(size))) for a in buffers}}

    return Kernel(
        name=name,
        template=template,
        parameters=parameters,
        arguments=arguments,
        sizes={"default": sizes},
        inputs=inputs,
        grid=["blocks"],
        block=["threads"],
    )
