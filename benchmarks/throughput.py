"""Measures evaluations per second of mptune, compiling ahead and in turn, and of Kernel Tuner's C++ backend.

    python benchmarks/throughput.py [--budget 192] [--rounds 5] [--output FILE.md] [--json]

The tools take turns, each with an empty binary cache (what mptune measures of a device once on a machine, its speed,
stays). They have the same kernel (axpy in fp64 and fp32 with 2^20
elements; Kernel Tuner's backend has no narrower types), parameters, thread count and compiler flags. Each draws the
same number of configurations at random and measures the error of every one.
"""

from __future__ import annotations

import argparse
import sys
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
from mptune.kernel import Kernel  # noqa: E402
from mptune.tuning import tune  # noqa: E402

SIZE: Final = {"n": 2**20}
TYPES: Final = {"fp64": "double", "fp32": "float"}
AHEAD, IN_TURN, PEER = "mptune, compiling ahead", "mptune, compiling in turn", "Kernel Tuner, C++ backend"
TARGETS: Final = {IN_TURN: 1.6, PEER: 3.0}

#: axpy as a user of Kernel Tuner's C++ backend writes it; parameters arrive as macros.
PEER_SOURCE: Final = """
#include <chrono>
#include <omp.h>

extern "C" float axpy(y_type* __restrict__ y, const x_type* __restrict__ x, a_type a, int n) {
    auto start = std::chrono::steady_clock::now();
    const int tile = block_size * vector_width;
    #pragma omp parallel for schedule(static)
    for (int first = 0; first < n; first += tile) {
        const int end = first + tile < n ? first + tile : n;
        for (int i = first; i < end; ++i) y[i] = a * x[i] + y[i];
    }
    std::chrono::duration<float, std::milli> took = std::chrono::steady_clock::now() - start;
    return took.count();
}
"""


def run_peer(kernel: Kernel, budget: int, seed: int) -> Outcome:
    """Tune with Kernel Tuner's C++ backend."""
    return run_kernel_tuner(
        kernel,
        kernel.resolve_sizes("default", SIZE),
        budget,
        seed,
        PEER_SOURCE,
        TYPES,
        problem_size=1,
        lang="C",
        compiler_options=["-O3", "-march=native", "-std=c++17", "-fopenmp"],
    )


# -- the benchmark ---------------------------------------------------------------------------------


def page(_: argparse.Namespace, results: Mapping[str, Any]) -> str:
    """Return the page."""
    told = (
        "Compile: time an evaluation waits for its compiler; in turn, g++ is started for each configuration, ahead, it "
        "is started once for each compilation at a time and forks."
    )
    return f"{told}\n\n{rates_page(results, TARGETS)}"


def measure(options: argparse.Namespace, sheet: bench.Sheet) -> None:
    """Run the tools in turn."""
    kernel = load_narrowed("axpy", tuple(TYPES))
    # The speeds of the device are measured once on a machine, by the first run there is.
    tune(kernel, backend="host", sizes=SIZE, strategy="random", budget=2, on_warning=lambda _: None)
    tools: dict[str, Callable[[int], Outcome]] = {
        AHEAD: lambda seed: run_mptune(kernel, SIZE, options.budget, seed, None),
        IN_TURN: lambda seed: run_mptune(kernel, SIZE, options.budget, seed, 0),
    }
    if not options.alone:
        require_kernel_tuner(" (or --alone to measure mptune alone)")
        tools[PEER] = lambda seed: run_peer(kernel, options.budget, seed)
    group = f"{kernel.name} at {SIZE['n']} elements, {options.budget} configurations"
    measure_tools(sheet, group, tools, options.rounds, budget=options.budget)


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    made = bench.parser(__doc__, bench.BUILD / "throughput.md")
    made.add_argument("--budget", type=int, default=192, help="configurations of a run, at most 192")
    made.add_argument("--rounds", type=int, default=5, help="runs of each tool")
    made.add_argument("--alone", action="store_true", help="measure mptune alone")
    return made


if __name__ == "__main__":
    sys.exit(bench.main(parser(), "Throughput", measure, page, scripts=[Path(rates.__file__)]))
