"""Measures evaluations per second of mptune's OpenCL backend beside Kernel Tuner's on one device.

    python benchmarks/opencl.py [--budget 96] [--rounds 3] [--elements 1048576,8000000] [--output FILE.md] [--json]

The tools take turns, each with an empty binary cache. They have the same kernel (axpy in fp64, fp32 and fp16), the same
parameters and the same device, the first that PyOpenCL finds. Each draws the same number of configurations at random
and measures the error of every one.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import bench, rates  # noqa: E402
from benchmarks.rates import (  # noqa: E402
    Outcome,
    load_narrowed,
    measure_tools,
    rates_page,
    require_kernel_tuner,
    run_kernel_tuner,
    run_mptune,
)
from mptune.backends import get_backend  # noqa: E402
from mptune.errors import BackendUnavailableError  # noqa: E402
from mptune.kernel import Kernel, Sizes  # noqa: E402

#: Elements of the kernel's vectors: that of the other benchmark of throughput, and the kernel's default.
SIZES: Final = "1048576,8000000"
TYPES: Final = {"fp64": "double", "fp32": "float", "fp16": "half"}
OURS, PEER = "mptune", "Kernel Tuner, OpenCL backend"
TARGETS: Final = {PEER: 2.0}

#: axpy as a user of Kernel Tuner's OpenCL backend writes it, and as mptune's template has it: only the last block can
#: reach past the end, and a block is as large as is said. Parameters arrive as macros.
PEER_SOURCE: Final = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

__attribute__((reqd_work_group_size(block_size, 1, 1)))
__kernel void axpy(__global y_type* restrict y, __global const x_type* restrict x, a_type a, int n) {
    const int first = (get_group_id(0) * block_size + get_local_id(0)) * vector_width;
    if ((get_group_id(0) + 1) * block_size * vector_width <= n) {
        #pragma unroll
        for (int v = 0; v < vector_width; ++v) y[first + v] = a * x[first + v] + y[first + v];
    } else {
        for (int i = first; i < n && i < first + vector_width; ++i) y[i] = a * x[i] + y[i];
    }
}
"""


def run_peer(kernel: Kernel, sizes: Sizes, budget: int, seed: int) -> Outcome:
    """Tune with Kernel Tuner's OpenCL backend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_kernel_tuner(
            kernel,
            sizes,
            budget,
            seed,
            PEER_SOURCE,
            TYPES,
            problem_size=sizes["n"],
            grid_div_x=["block_size", "vector_width"],
            block_size_names=["block_size"],
            lang="OpenCL",
        )


def measure(options: argparse.Namespace, sheet: bench.Sheet) -> None:
    """Run the tools in turn at each size.

    Raises:
        BackendUnavailableError: there is no OpenCL device, or no Kernel Tuner.
    """
    # Kernel Tuner builds through PyOpenCL, which keeps binaries of its own; it looks at this when it is imported.
    os.environ["PYOPENCL_NO_CACHE"] = "1"
    backend = get_backend("opencl")
    if not (found := backend.availability()).can_run:
        raise BackendUnavailableError(found.reason)
    if not options.alone:
        require_kernel_tuner(" (or --alone to measure mptune alone)")
    kernel, device = load_narrowed("axpy", tuple(TYPES)), backend.describe().name
    for elements in map(int, options.elements.split(",")):
        sizes = kernel.resolve_sizes("default", {"n": elements})
        # The speeds of the device are measured once on a machine, by the first run there is.
        run_mptune(kernel, sizes, 2, 0, None, "opencl")
        tools: dict[str, Callable[[int], Outcome]] = {
            OURS: lambda seed, sizes=sizes: run_mptune(kernel, sizes, options.budget, seed, None, "opencl")  # type: ignore[misc]
        }
        if not options.alone:
            tools[PEER] = lambda seed, sizes=sizes: run_peer(kernel, sizes, options.budget, seed)  # type: ignore[misc]
        group = f"axpy at {elements:,} elements on {device}, {options.budget} configurations"
        measure_tools(sheet, group, tools, options.rounds, budget=options.budget)


def page(_: argparse.Namespace, results: Mapping[str, Any]) -> str:
    """Return the page."""
    return rates_page(results, TARGETS)


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    made = bench.parser(__doc__, bench.BUILD / "opencl.md")
    made.add_argument("--budget", type=int, default=96, help="configurations of a run")
    made.add_argument("--rounds", type=int, default=3, help="runs of each tool")
    made.add_argument("--elements", default=SIZES, metavar="N,N", help=f"of the vectors [{SIZES}]")
    made.add_argument("--alone", action="store_true", help="measure mptune alone")
    return made


if __name__ == "__main__":
    sys.exit(bench.main(parser(), "OpenCL", measure, page, scripts=[Path(rates.__file__)]))
