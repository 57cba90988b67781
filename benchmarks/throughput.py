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
import json
import shlex
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.rates import (  # noqa: E402
    Outcome,
    columns_s,
    empty_cache,
    load_narrowed,
    require_kernel_tuner,
    run_kernel_tuner,
    run_mptune,
)
from mptune.backends.host_compiler import HostCompiler, find_compiler  # noqa: E402
from mptune.backends.processor import processor, usable_cores  # noqa: E402
from mptune.errors import MptuneError  # noqa: E402
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


def median(outcomes: Sequence[Outcome], value: Callable[[Outcome], float]) -> float:
    """Return the median of a value over the rounds."""
    return statistics.median(value(outcome) for outcome in outcomes)


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


# -- the report ------------------------------------------------------------------------------------


def markdown(document: Mapping[str, Any]) -> str:
    """Return the results as a page."""
    lines = [
        "# Throughput",
        "",
        f"Machine: {document['machine']}. Command: `{document['command']}`.",
        "",
        f"{document['kernel']} at {SIZE['n']} elements, {document['budget']} configurations in fp64 and fp32 drawn at "
        f"random, medians of {document['rounds']} rounds in which the tools take turns; seconds by phase, of which a "
        "tool's own overhead, search and the start of its processes are the rest.",
        "",
        "| tool | evaluations/s | wall s | compile | transfer | accuracy | timing | rest |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, tool in document["tools"].items():
        cells = columns_s(tool["phases_s"], tool["wall_s"])
        lines.append(
            f"| {name} | {tool['per_second']:.2f} | {tool['wall_s']:.1f} | "
            + " | ".join(f"{cell:.1f}" for cell in cells)
            + " |"
        )
    lines += [
        "",
        "Compile: time an evaluation waits for its compiler; in turn, g++ is started for each configuration, ahead, it "
        "is started once for each compilation at a time and forks. Accuracy: the launch that is checked, and the "
        "comparison.",
        "",
    ]
    for name, ratio in document["ratios"].items():
        verdict = "met" if ratio >= TARGETS[name] else "missed"
        lines.append(f"- {ratio:.2f}x the evaluations per second of {name} (target {TARGETS[name]:g}x: {verdict})")
    if document["biases"]:
        lines += [
            "",
            f"Times of {document['biased']} configurations against those compiled and timed in turn (medians of "
            f"{document['rounds']} rounds; median and quartiles of the ratios over configurations):",
            "",
            "| compilers | median | quartiles |",
            "|---|---|---|",
        ]
        for way, ratios in document["biases"].items():
            low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
            lines.append(f"| {way} | {middle:.3f} | {low:.3f} to {high:.3f} |")
    return "\n".join(lines) + "\n"


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Run everything."""
    kernel = load_narrowed("axpy", tuple(TYPES))
    # The speeds of the device are measured once on a machine, by the first run there is.
    tune(kernel, backend="host", sizes=SIZE, strategy="random", budget=2, on_warning=lambda _: None)
    tools: dict[str, Callable[[int], Outcome]] = {
        AHEAD: lambda seed: run_mptune(kernel, SIZE, given.budget, seed, None),
        IN_TURN: lambda seed: run_mptune(kernel, SIZE, given.budget, seed, 0),
    }
    if not given.alone:
        tools[PEER] = lambda seed: run_peer(kernel, given.budget, seed)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in tools}
    for turn in range(given.rounds):
        for name, run in tools.items():
            outcome = run(turn)
            outcomes[name].append(outcome)
            print(f"round {turn + 1}, {name}: {outcome.per_second:.2f} evaluations/s", file=sys.stderr, flush=True)
    rates = {name: median(runs, lambda run: run.per_second) for name, runs in outcomes.items()}
    return {
        "machine": f"{processor().name}, {usable_cores()} cores, {find_compiler().version}",
        "command": shlex.join(["python", "benchmarks/throughput.py", *sys.argv[1:]]),
        "kernel": kernel.name,
        "budget": given.budget,
        "rounds": given.rounds,
        "tools": {
            name: {
                "per_second": rates[name],
                "wall_s": median(runs, lambda run: run.wall_s),
                "phases_s": {
                    phase: median(runs, lambda run, phase=phase: run.phases_s[phase])  # type: ignore[misc]
                    for phase in runs[0].phases_s
                },
            }
            for name, runs in outcomes.items()
        },
        "ratios": {name: rates[AHEAD] / rates[name] for name in tools if name != AHEAD},
        "biased": given.biased,
        "biases": biases(kernel, given.biased, given.rounds, seed=1) if given.biased else {},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when it ended well, 2 for wrong input."""
    parser = argparse.ArgumentParser(description="Evaluations per second, beside Kernel Tuner.")
    parser.add_argument("--budget", type=int, default=192, help="configurations of a run, at most 192")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each tool")
    parser.add_argument("--biased", type=int, default=24, help="configurations timed in every way; 0 for none")
    parser.add_argument("--alone", action="store_true", help="measure mptune alone")
    parser.add_argument("--output", type=Path, help="write the page to this file, the figures beside it as JSON")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args(arguments)
    try:
        if not given.alone:
            require_kernel_tuner(" (or --alone to measure mptune alone)")
        document = measure(given)
    except MptuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    page = markdown(document)
    print(json.dumps(document, indent=1) if given.json else page)
    if given.output is not None:
        given.output.write_text(page)
        given.output.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
