"""Measures mptune's OpenCL backend beside Kernel Tuner's on one device: evaluations per second, and the best time.

    python benchmarks/opencl.py [--budget 96] [--rounds 3] [--elements 1048576,8000000] [--output FILE.md] [--json]

The tools take turns, each with an empty binary cache. They have the same kernel (axpy in fp64, fp32 and fp16), the same
parameters and the same device, the first that PyOpenCL finds. Each draws the same number of configurations at random
and measures the error of every one. The fastest kernel of each is then timed again, by OpenCL's events in one queue,
the tools taking turns: their own times are no comparison, as Kernel Tuner times a few launches of a device that was
idle and mptune one that is at work.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.rates import (  # noqa: E402
    Outcome,
    columns_s,
    load_narrowed,
    require_kernel_tuner,
    run_kernel_tuner,
    run_mptune,
)
from mptune.backends import get_backend  # noqa: E402
from mptune.backends.base import CompileOptions  # noqa: E402
from mptune.backends.opencl_dialect import as_opencl  # noqa: E402
from mptune.backends.processor import usable_cores  # noqa: E402
from mptune.data import DataManager  # noqa: E402
from mptune.errors import BackendUnavailableError, MptuneError  # noqa: E402
from mptune.kernel import Kernel, Role, Sizes  # noqa: E402
from mptune.source.loading import load_kernel  # noqa: E402
from mptune.source.render import render  # noqa: E402
from mptune.space.configuration import Configuration  # noqa: E402
from mptune.tuning import tune  # noqa: E402

#: Elements of the kernel's vectors: that of the other benchmarks of throughput, and the kernel's default.
SIZES: Final = (2**20, 8_000_000)
TYPES: Final = {"fp64": "double", "fp32": "float", "fp16": "half"}
OURS, PEER = "mptune", "Kernel Tuner, OpenCL backend"
#: Evaluations per second against the other tool's, and how much longer the best kernel may take, for noise.
LEAST_RATE: Final = 2.0
MOST_TIME: Final = 1.05
#: How often each source is compiled to tell the front end's time from the back end's.
COMPILATIONS: Final = 9
#: Turns of each tool's fastest kernel, and its launches in a turn, the first of which warm up.
TURNS, WARM_UP, LAUNCHES = 15, 20, 30

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


def compilations_ms() -> dict[str, tuple[float, float]]:
    """Return what the driver's front end and its back end take for one configuration of either tool, by the source."""
    import pyopencl as cl

    kernel = load_kernel("axpy")
    types = {"y_type": "fp64", "x_type": "fp16", "a_type": "fp32"}
    configuration = kernel.configuration({**types, "block_size": 128, "vector_width": 4})
    sizes = kernel.resolve_sizes("default")
    of = _sources(kernel, configuration, sizes)
    ours = of[OURS][1]
    sources = {
        "an empty kernel, C++ for OpenCL": ("__kernel void axpy() {}", ours),
        f"{OURS}, C++ for OpenCL": of[OURS],
        "an empty kernel, OpenCL C": ("__kernel void axpy() {}", ()),
        f"{PEER}, OpenCL C": of[PEER],
    }
    context = cl.create_some_context(interactive=False)
    found = {}
    for name, (source, flags) in sources.items():
        times = []
        for turn in range(COMPILATIONS):
            start = time.perf_counter()
            program = cl.Program(context, source + "\n" * turn).compile(options=list(flags))
            compiled = time.perf_counter()
            cl.link_program(context, [program])
            times.append((compiled - start, time.perf_counter() - compiled))
        front, back = zip(*times, strict=True)
        found[name] = statistics.median(front) * 1e3, statistics.median(back) * 1e3
    return found


def _sources(kernel: Kernel, configuration: Configuration, sizes: Sizes) -> dict[str, tuple[str, Sequence[str]]]:
    """Return what either tool compiles of a configuration, and with which flags."""
    ours = get_backend("opencl").compiler.identity(CompileOptions())
    rendered = as_opencl(render(kernel, configuration, sizes))
    macros = [f"-D{name}={TYPES.get(str(value), value)}" for name, value in configuration.items()]
    return {OURS: (rendered, ours), PEER: (PEER_SOURCE, macros)}


def times_in_turn_ms(kernel: Kernel, sizes: Sizes, fastest: Mapping[str, Configuration]) -> dict[str, float]:
    """Return what the tools' fastest kernels take, each the median of its turns' medians."""
    import pyopencl as cl

    context = cl.create_some_context(interactive=False)
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    data = DataManager(kernel, sizes)
    launches: dict[str, Callable[[], float]] = {}
    for tool, configuration in fastest.items():
        source, flags = _sources(kernel, configuration, sizes)[tool]
        program = cl.Program(context, source).build(options=list(flags))
        launches[tool] = _launch(kernel, configuration, data, queue, program)
    turns: dict[str, list[float]] = {tool: [] for tool in launches}
    for _ in range(TURNS):
        for tool, launch in launches.items():
            turns[tool].append(statistics.median([launch() for _ in range(WARM_UP + LAUNCHES)][WARM_UP:]))
    return {tool: statistics.median(times) for tool, times in turns.items()}


def _launch(
    kernel: Kernel, configuration: Configuration, data: DataManager, queue: Any, program: Any
) -> Callable[[], float]:
    """Return a function that launches a kernel and returns its time in ms."""
    import pyopencl as cl

    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    given = [
        data.scalar(argument, kernel.precision_of(argument, configuration))
        if argument.role is Role.SCALAR
        else cl.Buffer(
            queue.context,
            flags,
            hostbuf=np.ascontiguousarray(data.typed(argument, kernel.precision_of(argument, configuration))),
        )
        for argument in kernel.arguments
    ]
    shape = kernel.launch_shape(configuration, data.sizes)
    threads = [blocks * of_block for blocks, of_block in zip(shape.grid, shape.block, strict=True)]
    function = getattr(program, kernel.function)

    def launch() -> float:
        event = function(queue, threads, list(shape.block), *given)
        event.wait()
        return float(event.profile.end - event.profile.start) * 1e-6

    return launch


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Run everything."""
    device = get_backend("opencl").describe()
    kernel = load_narrowed("axpy", tuple(TYPES))
    document = {
        "device": device.name,
        "versions": dict(device.versions),
        "command": shlex.join(["python", "benchmarks/opencl.py", *sys.argv[1:]]),
        "kernel": kernel.name,
        "budget": given.budget,
        "rounds": given.rounds,
        "sizes": {str(elements): _measure_size(kernel, elements, given) for elements in given.elements},
        "load": os.getloadavg()[0] / usable_cores(),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is a log
        return document | {"compilations_ms": compilations_ms()}


def _measure_size(kernel: Kernel, elements: int, given: argparse.Namespace) -> dict[str, Any]:
    sizes = kernel.resolve_sizes("default", {"n": elements})
    # The speeds of the device are measured once on a machine, by the first runs there are.
    for seed in range(given.rounds):
        tune(
            kernel,
            backend="opencl",
            sizes=sizes,
            strategy="random",
            budget=8,
            baseline_share=0.0,
            seed=seed,
            inputs=1,
            verify=0,
            on_warning=lambda _: None,
        )
    tools: dict[str, Callable[[int], Outcome]] = {
        OURS: lambda seed: run_mptune(kernel, sizes, given.budget, seed, None, "opencl")
    }
    if not given.alone:
        tools[PEER] = lambda seed: run_peer(kernel, sizes, given.budget, seed)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in tools}
    for turn in range(given.rounds):
        for name, run in tools.items():
            outcome = run(turn)
            outcomes[name].append(outcome)
            told = f"{elements} elements, round {turn + 1}, {name}: {outcome.per_second:.2f} evaluations/s"
            print(told, file=sys.stderr, flush=True)
    fastest = {name: min(runs, key=lambda run: run.best_ms).best for name, runs in outcomes.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is a log
        again = times_in_turn_ms(kernel, sizes, {name: best for name, best in fastest.items() if best is not None})
    return {name: _summary(runs) | {"again_ms": again[name]} for name, runs in outcomes.items()}


def _summary(runs: Sequence[Outcome]) -> dict[str, Any]:
    fastest = min(runs, key=lambda run: run.best_ms)
    return {
        "per_second": statistics.median(run.per_second for run in runs),
        "wall_s": statistics.median(run.wall_s for run in runs),
        "phases_s": {phase: statistics.median(run.phases_s[phase] for run in runs) for phase in runs[0].phases_s},
        "best_ms": statistics.median(run.best_ms for run in runs),
        "best": str(fastest.best),
    }


def markdown(document: Mapping[str, Any]) -> str:
    """Return the results as a page."""
    lines = [
        "# OpenCL",
        "",
        f"Device: {document['device']} ({', '.join(f'{k} {v}' for k, v in document['versions'].items())}). "
        f"Command: `{document['command']}`. Tasks that wanted each core of this machine: {document['load']:.1f}; "
        "from 2 on, rates say little.",
        "",
        f"{document['kernel']}, {document['budget']} configurations drawn at random in fp64, fp32 and fp16; medians of",
        f"{document['rounds']} rounds, in seconds; the tools take turns.",
    ]
    for elements, tools in document["sizes"].items():
        lines += ["", f"## {int(elements):,} elements", "", *_of_size(tools)]
    lines += [
        "",
        "Evaluations of mptune wait for what its compilers, one on each core, are not done with. The rest is the start",
        "of the worker and the compilers, with inputs, references and contexts, and the finals, in which the fastest",
        "are timed again in turns; the other tool starts no process, and has no finals.",
        "",
        "## Compilation",
        "",
        "What the driver takes for one configuration (fp64, fp32 and fp16 mixed), in milliseconds:",
        "",
        "| source | front end | back end |",
        "|---|---|---|",
        *(f"| {name} | {front:.0f} | {back:.0f} |" for name, (front, back) in document["compilations_ms"].items()),
    ]
    return "\n".join(lines) + "\n"


def _of_size(tools: Mapping[str, Any]) -> list[str]:
    lines = [
        "| tool | evaluations/s | wall s | compile | transfer | accuracy | timing | rest | best ms, told | in turn |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, tool in tools.items():
        cells = " | ".join(f"{cell:.1f}" for cell in columns_s(tool["phases_s"], tool["wall_s"]))
        times = f"{tool['best_ms']:.4f} | {tool['again_ms']:.4f}"
        lines.append(f"| {name} | {tool['per_second']:.2f} | {tool['wall_s']:.1f} | {cells} | {times} |")
    lines += ["", *(f"- the fastest of {name}: {tool['best']}" for name, tool in tools.items())]
    if PEER in tools:
        rate = tools[OURS]["per_second"] / tools[PEER]["per_second"]
        time = tools[OURS]["again_ms"] / tools[PEER]["again_ms"]
        lines += [
            f"- {rate:.2f}x the evaluations per second (target {LEAST_RATE:g}x: {_verdict(rate >= LEAST_RATE)})",
            f"- {time:.2f}x the time of the best kernel (target {MOST_TIME:g}x: {_verdict(time <= MOST_TIME)})",
        ]
    return lines


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "missed"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when it ended well, 2 for wrong input."""
    parser = argparse.ArgumentParser(description="The OpenCL backend, beside Kernel Tuner's.")
    parser.add_argument("--budget", type=int, default=96, help="configurations of a run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each tool")
    parser.add_argument(
        "--elements", type=_numbers, default=SIZES, metavar="N,N", help="of the vectors (default: %(default)s)"
    )
    parser.add_argument("--alone", action="store_true", help="measure mptune alone")
    parser.add_argument("--output", type=Path, help="write the page to this file")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args(arguments)
    # Kernel Tuner builds through PyOpenCL, which keeps binaries of its own; it looks at this when it is imported.
    os.environ["PYOPENCL_NO_CACHE"] = "1"
    try:
        if not (found := get_backend("opencl").availability()).can_run:
            raise BackendUnavailableError(found.reason)
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
