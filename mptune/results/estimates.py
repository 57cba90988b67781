"""Estimated times of a kernel on GPUs that are not here: what an instrumented run counts, over published rates.

The estimate is a roofline (Williams, Waterman & Patterson 2009): each kernel takes as long as the busiest of the
device's memory, its unit for fp64, its unit for fp32, fp16 and bf16, its unit for conversions and the first
approximation of functions, and its unit for shuffles. Launches themselves are left out: on a processor a problem is run
at a size at which they would be most of a GPU's time. Which types are accurate is measured; which of them is fastest is
estimated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mptune.errors import UnknownNameError
from mptune.precision import PRECISIONS, Precision, precision, promoted
from mptune.results.objective import Objective
from mptune.space.configuration import Value

#: Names of estimates among the metrics of a trial, before and after the name of a GPU.
_BEFORE, _AFTER = "estimated_", "_ms"


@dataclass(frozen=True, slots=True)
class Gpu:
    """Published peak rates of a GPU.

    Operations are multiply-adds of single numbers, in 1e12 a second: half the published operations, and in 16 bits a
    quarter, since these are published for pairs of numbers. A type without arithmetic of its own has the rate of fp32.
    """

    name: str
    fp64: float
    fp32: float
    fp16: float
    bf16: float
    conversions_fp64: float  #: conversions from and to fp64, in 1e12 a second
    conversions: float  #: other conversions
    functions: float  #: first approximations of functions, quotients and roots
    shuffles: float  #: words of 32 bits between the threads of a warp
    memory: float  #: in 1e12 bytes a second
    source: str


#: Words that a core shuffles a clock: by the same table of the Programming Guide, and as LDS reads (CDNA ISA) on AMD's.
_SHUFFLES: Final = 32


def _gpu(name: str, cores: int, ghz: float, a_clock: Sequence[int], memory: float, source: str) -> Gpu:
    """Return the rates of a GPU by what one of its cores (a multiprocessor or compute unit) does a clock."""
    rates = (each * cores * ghz * 1e-3 for each in (*a_clock, _SHUFFLES))
    fp64, fp32, fp16, bf16, wide, narrow, functions, shuffles = rates
    return Gpu(name, fp64, fp32, fp16, bf16, wide, narrow, functions, shuffles, memory, source)


# The white papers' operations a second follow from the clocks here. Conversions and functions of NVIDIA's GPUs are of
# the CUDA C++ Programming Guide (throughput of native arithmetic instructions) by compute capability; the "other
# conversions" of 8.9 and 9.0 are not checked. AMD publishes neither these nor single numbers in fp16 on the MI300X:
# they are of LLVM's SISchedule.td (WriteDoubleCvt 1, WriteFloatCvt 4, WriteTrans32 4).
#: Of each GPU its cores, GHz, and results a clock and core: fp64, fp32, fp16, bf16; conversions of fp64, others,
#: functions.
GPUS: Final[Mapping[str, Gpu]] = {
    # 7.8, 15.7 and 31.4 TFLOPS, 900 GB/s; 7.0
    "v100": _gpu("V100 SXM2", 80, 1.53, (32, 64, 64, 64, 16, 16, 16), 0.9, "NVIDIA Tesla V100 white paper"),
    # 9.7, 19.5, 78 and 39 TFLOPS, 1555 GB/s; 8.0
    "a100": _gpu("A100 SXM", 108, 1.41, (32, 64, 128, 64, 16, 16, 16), 1.555, "NVIDIA A100 white paper"),
    # 33.5, 66.9, 133.8 and 133.8 TFLOPS, 3.35 TB/s, 16 special function units a multiprocessor; 9.0
    "h100": _gpu("H100 SXM", 132, 1.98, (64, 128, 128, 128, 16, 64, 16), 3.35, "NVIDIA H100 white paper"),
    # 35.6 TFLOPS in fp32 and fp16, 1/64 in fp64, 936 GB/s; 8.6
    "rtx3090": _gpu("RTX 3090", 82, 1.695, (2, 128, 64, 64, 2, 16, 16), 0.936, "NVIDIA GA102 white paper"),
    # 82.6 TFLOPS in fp32 and fp16, 1/64 in fp64, 1008 GB/s; 8.9
    "rtx4090": _gpu("RTX 4090", 128, 2.52, (2, 128, 64, 64, 2, 16, 16), 1.008, "NVIDIA Ada white paper"),
    # 128 FLOPS a clock and compute unit in fp64 and fp32; 3.28 TB/s for both dies
    "mi250x": _gpu("MI250X, one die", 110, 1.7, (64, 64, 64, 64, 64, 16, 16), 1.638, "AMD CDNA 2 white paper"),
    # 128 FLOPS a clock and compute unit in fp64, 256 in fp32; 5.3 TB/s
    "mi300x": _gpu("MI300X", 304, 2.1, (64, 128, 64, 128, 64, 16, 16), 5.3, "AMD CDNA 3 white paper"),
}

#: Arithmetic instructions in fp64 and in narrower types beside one first approximation, on the usual path of what nvcc
#: 13 compiles for sm_80; a function is the mean of exp, log, sin, cos and pow.
_STEPS: Final = {"quotient": (8, 5), "root": (8, 4), "function": (35, 20)}
#: Under the policies fast and approx of narrower types.
_QUICK_STEPS: Final = 2


@dataclass(frozen=True, slots=True)
class Count:
    """Operations of one kind whose type depends on the same parameters.

    Attributes:
        kind: "sum", "product", "fused", "quotient", "root", "function", "conversion" or "shuffle".
        types: precision parameters and names of precisions; the widest is the operation's.
        of: those of a conversion's operand.
        policy: of a function: the name of its parameter, or of a policy.
        number: how many there were.
    """

    kind: str
    types: tuple[str, ...]
    of: tuple[str, ...]
    policy: str
    number: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What a kernel does in all of its launches of one run.

    Attributes:
        operations: as executed.
        elements: numbers that it moves, by the precision parameter of their buffer or a precision: each element of a
            buffer once a launch, or twice if the kernel reads and writes it.
        integer_bytes: of buffers of integers, likewise.
        is_partial: whether operations of types that the template names itself are left out.
    """

    operations: tuple[Count, ...]
    elements: Mapping[str, int]
    integer_bytes: int
    is_partial: bool = False


def metric_of(gpu: str) -> str:
    """Return the name of the metric of a GPU's estimate; raises UnknownNameError."""
    if gpu.lower() not in GPUS:
        raise UnknownNameError("GPU", gpu, GPUS)
    return f"{_BEFORE}{gpu.lower()}{_AFTER}"


def gpu_of_program(record: Mapping[str, Any]) -> str | None:
    """Return the most common GPU of the vendor that an adopted program is written for, by its record; else None."""
    program = record.get("program", {})
    language = program.get("language") if isinstance(program, Mapping) else None
    return {"cuda": "a100", "hip": "mi250x"}.get(str(language))


#: Every estimate, with its GPU.
METRICS: Final[Mapping[str, Gpu]] = {metric_of(name): gpu for name, gpu in GPUS.items()}


def is_estimated(objective: Objective) -> bool:
    """Whether an objective or its constraints read an estimate."""
    return not (objective.names | objective.constraint_names).isdisjoint(METRICS)


def estimates(counts: Mapping[str, Counts], configuration: Mapping[str, Value]) -> dict[str, float]:
    """Return the estimated milliseconds of a configuration on each GPU, by metric.

    They have three digits, so that of types that are estimated alike the most accurate are the best.
    """
    return {
        metric: float(f"{1e3 * sum(_seconds(each, gpu, configuration) for each in counts.values()):.3g}")
        for metric, gpu in METRICS.items()
    }


def _seconds(counts: Counts, gpu: Gpu, configuration: Mapping[str, Value]) -> float:
    names = {*counts.elements, *(name for each in counts.operations for name in (*each.types, *each.of))}
    types = {name: precision(str(configuration.get(name, name))) for name in names}

    def chosen(names: Iterable[str]) -> Precision:
        return promoted(*(types[name] for name in names))

    # Sums and products of one type are fused as far as there are pairs of them.
    sums, products, steps = dict[str, float](), dict[str, float](), dict[str, float]()
    of_fp64 = others = functions = words = 0.0
    for each in counts.operations:
        of, operand = chosen(each.types), chosen(each.of) if each.of else None
        computed = of.computed_in or of
        number = each.number * of.flops_of_fma / 2
        name = computed.name
        if each.kind == "conversion":
            assert operand is not None
            if operand is not of:
                of_fp64 += number if "fp64" in (operand.name, name) else 0.0
                others += number if "fp64" not in (operand.name, name) else 0.0
        elif each.kind == "shuffle":
            words += each.number * max(of.size_bytes / 4, 1)
        elif each.kind == "sum":
            sums[name] = sums.get(name, 0.0) + number
        elif each.kind == "product":
            products[name] = products.get(name, 0.0) + number
        elif each.kind == "fused":
            steps[name] = steps.get(name, 0.0) + number
        else:
            is_narrow = name != "fp64"
            is_quick = (
                is_narrow and each.kind == "function" and configuration.get(each.policy, each.policy) != "accurate"
            )
            steps[name] = steps.get(name, 0.0) + number * (_QUICK_STEPS if is_quick else _STEPS[each.kind][is_narrow])
            functions += number
    for name in {*sums, *products}:
        steps[name] = steps.get(name, 0.0) + max(sums.get(name, 0.0), products.get(name, 0.0))
    rates = {"fp64": gpu.fp64, "fp32": gpu.fp32, "fp16": gpu.fp16, "bf16": gpu.bf16}
    busy = {name: number / rates[name] * 1e-12 for name, number in steps.items()}
    moved = counts.integer_bytes + sum(n * types[name].in_memory.size_bytes for name, n in counts.elements.items())
    return max(
        moved / gpu.memory * 1e-12,
        busy.pop("fp64", 0.0),
        math.fsum(busy.values()),
        words / gpu.shuffles * 1e-12,
        (of_fp64 / gpu.conversions_fp64 + others / gpu.conversions + functions / gpu.functions) * 1e-12,
    )


# -- what a traced kernel has counted (``templates/prelude/traced.hpp``) ----------------------------

#: Different operations there is room for.
ROOM: Final = 4096
DEFINED: Final = f"#define MPTUNE_COUNTED {ROOM}\n"
_KINDS: Final = ("sum", "product", "fused", "quotient", "root", "function", "conversion", "shuffle")
_POLICIES: Final = ("accurate", "fast", "approx")
_TABLE: Final = np.dtype([("of", "<u8", 2), ("from", "<u8", 2), ("kind", "<i8"), ("number", "<i8")])
#: Bits of the types that a template names itself.
_NAMED: Final = {1 << (120 + k): name for k, name in enumerate(PRECISIONS)}


def table() -> NDArray[np.void]:
    """Return room for what a kernel has counted."""
    return np.zeros(ROOM, _TABLE)


def decoded(found: NDArray[np.void], parameters: Callable[[int], str], policies: Callable[[int], str]) -> list[Count]:
    """Return the counts of a kernel; precision parameters and policy parameters have numbers in it."""
    counts = []
    for row in found[found["number"] > 0]:
        policy, kind = divmod(int(row["kind"]), 16)
        counts.append(
            Count(
                _KINDS[kind],
                _types_in(row["of"], parameters),
                _types_in(row["from"], parameters) if _KINDS[kind] == "conversion" else (),
                _POLICIES[policy] if policy < 8 else policies(policy - 8),
                int(row["number"]),
            )
        )
    return counts


def _types_in(halves: NDArray[np.uint64], parameters: Callable[[int], str]) -> tuple[str, ...]:
    bits = int(halves[0]) | int(halves[1]) << 64
    named = [name for bit, name in _NAMED.items() if bits & bit]
    chosen = [parameters(k) for k in range(120) if bits >> k & 1]
    return (*chosen, *named)
