"""Measures evaluations per second of mptune, compiling ahead and in turn, and of Kernel Tuner's C++ backend.

    python benchmarks/throughput.py [--budget 192] [--rounds 5] [--output FILE.md] [--json]

The tools take turns, each with an empty binary cache (what mptune measures of a device once on a machine, its speed,
stays). They have the same kernel (axpy in fp64 and fp32 with 2^20
elements; Kernel Tuner's backend has no narrower types), parameters, thread count and compiler flags. Each draws the
same number of configurations at random and measures the error of every one. Then the effect of compiling ahead on the
timings is measured: the same configurations are timed with nothing else running, with compilers that pause for each
timing, and with compilers that do not.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import bench, rates  # noqa: E402
from benchmarks.rates import (  # noqa: E402
    Outcome,
    empty_cache,
    load_narrowed,
    measure_tools,
    rates_page,
    require_kernel_tuner,
    run_kernel_tuner,
    run_mptune,
)
from mptune.backends.host_compiler import HostCompiler  # noqa: E402
from mptune.backends.processor import usable_cores  # noqa: E402
from mptune.kernel import Kernel  # noqa: E402
from mptune.measure.device import DeviceEvaluator  # noqa: E402
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


# -- what compiling ahead does to a timing ---------------------------------------------------------


@contextlib.contextmanager
def never_pausing() -> Iterator[None]:
    """Let compilers run while something is timed."""
    paused = HostCompiler.paused
    HostCompiler.paused = lambda _: contextlib.nullcontext()  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        HostCompiler.paused = paused  # type: ignore[method-assign]


def times_of(kernel: Kernel, configurations: Sequence[Any], compilers: int) -> list[float]:
    """Return the time of each configuration in milliseconds, evaluated in order, all to be compiled."""
    sizes = kernel.resolve_sizes("default", SIZE)
    with empty_cache(), DeviceEvaluator(kernel, sizes, "host", compilers=compilers) as evaluator:
        return [trial.time_ms for trial in evaluator.evaluate(configurations)]


def biases(kernel: Kernel, count: int, rounds: int, seed: int) -> dict[str, list[float]]:
    """Return by how much each way of compiling changes each configuration's time, as ratios to compiling in turn.

    "in turn, again" is the second half of the rounds in turn against the first: what noise alone does.
    """
    space = kernel.search_space(kernel.resolve_sizes("default", SIZE))
    configurations = space.configurations(space.sample(count, np.random.default_rng(seed)))
    ways: dict[str, list[list[float]]] = {"in turn": [], "in turn, again": [], "ahead": [], "ahead, not paused": []}
    for _ in range(rounds):
        ways["in turn"].append(times_of(kernel, configurations, 0))
        ways["ahead"].append(times_of(kernel, configurations, usable_cores()))
        with never_pausing():
            ways["ahead, not paused"].append(times_of(kernel, configurations, usable_cores()))
        ways["in turn, again"].append(times_of(kernel, configurations, 0))
    medians = {way: np.median(np.array(times), axis=0) for way, times in ways.items()}
    alone = medians.pop("in turn")
    return {way: sorted((times / alone).tolist()) for way, times in medians.items()}


# -- the benchmark ---------------------------------------------------------------------------------


def page(_: argparse.Namespace, results: Mapping[str, Any]) -> str:
    """Return the page."""
    parts = [
        "Compile: time an evaluation waits for its compiler; in turn, g++ is started for each configuration, ahead, it "
        "is started once for each compilation at a time and forks.",
        rates_page(results, TARGETS),
    ]
    if ways := results.get("biases"):
        rows = []
        for way, ratios in ways.items():
            low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
            rows.append((way, len(ratios), f"{middle:.3f}", f"{low:.3f} to {high:.3f}"))
        parts += [
            "Times of configurations against those compiled and timed in turn, over configurations:",
            bench.table(("compilers", "configurations", "median", "quartiles"), rows),
        ]
    return "\n\n".join(parts)


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
    if options.biased:
        settings = {"count": options.biased, "rounds": options.rounds}
        sheet.add("biases", lambda: biases(kernel, options.biased, options.rounds, seed=1), **settings)


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    made = bench.parser(__doc__, bench.RESULTS / "throughput.md")
    made.add_argument("--budget", type=int, default=192, help="configurations of a run, at most 192")
    made.add_argument("--rounds", type=int, default=5, help="runs of each tool")
    made.add_argument("--biased", type=int, default=24, help="configurations timed in every way; 0 for none")
    made.add_argument("--alone", action="store_true", help="measure mptune alone")
    return made


if __name__ == "__main__":
    sys.exit(bench.main(parser(), "Throughput", measure, page, scripts=[Path(rates.__file__)]))
