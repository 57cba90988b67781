"""How fast the bundled kernels are on this machine: best in fp64, best under three thresholds, against its roofline.

    python benchmarks/kernels.py [--kernels axpy,gemm] [--budget 120] [--time-limit 45] [--output FILE.md] [--json]

Each kernel is tuned for the three thresholds of Heldens 2026 (Table IV) in one run file, where a trial made for one
threshold serves all. The fastest few in fp64 and under each threshold are then measured again in turn, in one process,
so that a slow second hits them all; the best of each go through further such rounds, and those are the numbers shown.
What the machine can do at most is measured in the same process.

A kernel takes about a minute, all of them twelve. The search needs no quiet machine, the rest does: run it once with
a longer --time-limit, then again with --no-search, which takes a third of that.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import bench  # noqa: E402
from benchmarks import roofline as roofline_module  # noqa: E402
from benchmarks.in_turn import Remeasured, measure_in_turn  # noqa: E402
from benchmarks.roofline import Roofline  # noqa: E402
from mptune.adopt.blocks import phases_of_templates, split  # noqa: E402
from mptune.adopt.reading import read  # noqa: E402
from mptune.backends import get_backend  # noqa: E402
from mptune.backends.base import Backend, CompileOptions  # noqa: E402
from mptune.backends.host import HostBackend  # noqa: E402
from mptune.cpp.prelude import prelude  # noqa: E402
from mptune.data import DataManager  # noqa: E402
from mptune.kernel import Kernel  # noqa: E402
from mptune.measure.bench import Bench  # noqa: E402
from mptune.measure.timing import TimingPlan, repeat_launches  # noqa: E402
from mptune.measure.worker import Limits  # noqa: E402
from mptune.precision import precision  # noqa: E402
from mptune.results.trial import Trial  # noqa: E402
from mptune.run import Run  # noqa: E402
from mptune.source.loading import load_kernel  # noqa: E402
from mptune.space.configuration import Configuration  # noqa: E402
from mptune.space.parameters import PrecisionParameter  # noqa: E402
from mptune.testing.backends import launch_on_arrays  # noqa: E402
from mptune.tuning import tune  # noqa: E402

#: High, medium and low accuracy: Heldens 2026, Table IV; for kernels that it does not have, our choice.
THRESHOLDS: Final[Mapping[str, tuple[float, float, float]]] = {
    "axpy": (1e-8, 1e-4, 1e-2),
    "bessel": (1e-7, 10**-3.5, 1e-2),
    "black_scholes": (1e-8, 1e-4, 1e-2),
    "convolution2d": (1e-8, 1e-4, 1e-2),
    "coulombic": (1e-7, 1e-4, 1e-2),
    "gemm": (1e-8, 1e-4, 1e-2),
    "inverse_kinematics": (1e-8, 1e-4, 1e-3),
    "kmeans": (1e-8, 1e-5, 1e-3),
    "lavamd": (1e-7, 1e-5, 1e-2),
    "mode_product": (1e-8, 1e-4, 1e-2),
    "mriq": (1e-6, 1e-4, 1e-2),
    "newton_raphson": (1e-8, 1e-5, 1e-2),
}
#: Kernels that NumPy has, and the types it has them in: these are searched for in those types, too.
BLAS: Final[Mapping[str, tuple[str, ...]]] = {"gemm": ("fp32",)}
LEVELS: Final = ("high", "medium", "low")
#: A visit in a round: the launch that warms up, and those that count.
VISIT: Final = TimingPlan(warmups=1, min_repeats=3, max_repeats=10, relative_width=0.0, cap_s=0.03)
QUALIFYING_ROUNDS: Final = 3
#: In types the processor has no units for, some configurations take a thousand times as long as the best.
LIMITS: Final = Limits(run_s=5.0)


@dataclass(frozen=True, slots=True, eq=False)
class Class:
    """What configurations compete for: the best under a threshold, or in one type throughout.

    The threshold is infinite for a type; the values are those the configuration must have.
    """

    name: str
    threshold: float
    values: Mapping[str, tuple[Any, ...]]

    def admits(self, trial: Trial) -> bool:
        """Whether a trial may win."""
        within = trial.is_valid and trial.error <= self.threshold
        return within and all(trial.configuration[name] in values for name, values in self.values.items())


# -- searching -------------------------------------------------------------------------------------


def classes_of(kernel: Kernel) -> tuple[Class, ...]:
    """Return what is looked for, fp64 first."""
    types = {p.name for p in kernel.parameters if isinstance(p, PrecisionParameter)}
    return (
        Class("fp64", math.inf, kernel.baseline_values()),
        *(Class(name, math.inf, dict.fromkeys(types, (name,))) for name in BLAS.get(kernel.name, ())),
        *(Class(level, tau, {}) for level, tau in zip(LEVELS, THRESHOLDS[kernel.name], strict=True)),
    )


def search(kernel: Kernel, options: argparse.Namespace) -> list[Trial]:
    """Tune for every threshold, each time with what was found before; return all trials of the run files."""
    path = options.runs / f"{kernel.name}-{options.size}-{options.seed}.db"
    files = [path]
    for stage, tau in enumerate(THRESHOLDS[kernel.name], start=1):
        _tune(kernel, path, tau, options.budget * stage // len(LEVELS), options)
    for name in BLAS.get(kernel.name, ()):
        only = [f"{p.name} == {name!r}" for p in kernel.parameters if isinstance(p, PrecisionParameter)]
        narrowed = dataclasses.replace(kernel, constraints=(*kernel.constraints, *only))
        files.append(path.with_stem(f"{path.stem}-{name}"))
        _tune(narrowed, files[-1], None, options.budget // len(LEVELS), options)
    return [trial for file in files for trial in Run.load(file).trials]


def _tune(kernel: Kernel, file: Path, max_error: float | None, budget: int, options: argparse.Namespace) -> None:
    """Continue a run file up to a budget, for at most a third of a kernel's time."""
    if not options.search:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    tune(
        kernel,
        backend="host",
        size=options.size,
        max_error=max_error,
        budget=max(1, budget),
        time_limit_s=options.time_limit_s / len(LEVELS),
        baseline_share=0.25,
        seed=options.seed,
        limits=LIMITS,
        output=file,
        resume=True,
    )


# -- measuring again -------------------------------------------------------------------------------


def fastest(trials: Iterable[Trial], wanted: Class, count: int) -> list[Configuration]:
    """Return the fastest configurations that may win a class."""
    admitted = sorted((trial for trial in trials if wanted.admits(trial)), key=lambda trial: trial.time_ms)
    return list(dict.fromkeys(trial.configuration for trial in admitted))[:count]


def winners(opened: Bench, trials: Sequence[Trial], options: argparse.Namespace) -> dict[Class, Remeasured]:
    """Return the best of each class, fp64 first, from the last rounds; a class nothing is in is missing."""

    def complain(trial: Trial) -> None:
        print(f"{opened.kernel.name} at {trial.configuration}: {trial.message}", file=sys.stderr)

    assert isinstance(opened.kernel, Kernel)
    classes = classes_of(opened.kernel)
    candidates = [c for wanted in classes for c in fastest(trials, wanted, options.candidates)]
    qualified = best_of(classes, measure_in_turn(opened, candidates, QUALIFYING_ROUNDS, VISIT, complain).values())
    finalists = [entry.trial.configuration for entry in qualified.values()]
    return best_of(classes, measure_in_turn(opened, finalists, options.rounds, VISIT, complain).values())


def best_of(classes: Iterable[Class], measured: Collection[Remeasured]) -> dict[Class, Remeasured]:
    """Return the fastest of each class that has any."""
    admitted = {wanted: [entry for entry in measured if wanted.admits(entry.trial)] for wanted in classes}
    return {wanted: min(entries, key=lambda e: e.time_ms) for wanted, entries in admitted.items() if entries}


def blas_ms(data: DataManager, type_name: str, rounds: int, threads: int) -> float:
    """Return the time of NumPy's product of A and B: without alpha, beta and C, a little less than gemm does.

    It is the least of several: its threads wait for each other, so that another task on one core stops all of them.
    """
    a, b = (data.inputs[name].astype(precision(type_name).dtype) for name in ("A", "B"))
    out = np.empty((a.shape[0], b.shape[1]), a.dtype)

    def multiply() -> float:
        start = time.perf_counter()
        np.matmul(a, b, out=out)
        return (time.perf_counter() - start) * 1e3

    launches = rounds * VISIT.min_repeats
    with threadpool_limits(threads, user_api="blas"):
        return min(repeat_launches(multiply, TimingPlan(min_repeats=launches, max_repeats=launches)))


def benchmark(
    kernel: Kernel, options: argparse.Namespace, backend: Backend, roofline: Roofline
) -> list[dict[str, Any]]:
    """Search, measure again and compare with the roofline, and with NumPy where it has the kernel."""
    sizes = kernel.resolve_sizes(options.size)
    trials = search(kernel, options)
    with contextlib.closing(Bench(kernel, sizes, backend, seed=options.seed)) as opened:
        found = winners(opened, trials, options)
    threads = int(backend.describe().limits["workers"])
    data = DataManager(kernel, sizes, seed=options.seed)
    fp64_ms = next((finalist.time_ms for wanted, finalist in found.items() if wanted.name == "fp64"), math.nan)
    rows = []
    for wanted, finalist in found.items():
        trial, time_ms = finalist.trial, finalist.time_ms
        work = kernel.work(trial.configuration, sizes)
        bound = roofline.bound(work, int(trial.metric("memory_bytes")))
        in_numpy = kernel.name in BLAS and wanted.name in ("fp64", *BLAS[kernel.name])
        rows.append(
            {
                "kernel": kernel.name,
                "level": wanted.name,
                "threshold": wanted.threshold if math.isfinite(wanted.threshold) else None,
                "configuration": dict(trial.configuration),
                "time_ms": time_ms,
                "spread_ms": finalist.spread_ms,
                "speedup": fp64_ms / time_ms,
                "error": trial.error,
                "bound": bound.name,
                "roofline": bound.time_ms / time_ms,
                "gflops_per_s": (work.flops or math.nan) / time_ms / 1e6,
                "gbytes_per_s": work.traffic_bytes / time_ms / 1e6,
                "blas": blas_ms(data, wanted.name, options.rounds, threads) / time_ms if in_numpy else None,
            }
        )
    return rows


# -- the benchmark ---------------------------------------------------------------------------------


def machine(backend: Backend, roofline: Roofline) -> dict[str, Any]:
    """Return the speeds the roofline is made of, and the library of NumPy's products."""
    libraries = [entry for entry in threadpool_info() if entry["user_api"] == "blas"]
    # SciPy may well bring another one.
    blas = next((entry for entry in libraries if "numpy" in entry["filepath"]), libraries[0] if libraries else {})
    return {
        "compiler": backend.describe().versions["compiler"],
        "NumPy's BLAS": f"{blas.get('internal_api', 'unknown')} {blas.get('version', '')}",
        "triad over 256 MiB": f"{roofline.bytes_per_s(1 << 28) / 1e9:.1f} GB/s",
        **{f"peak in {name}": f"{peak / 1e9:.0f} GFlop/s" for name, peak in roofline.flops_per_s.items()},
    }


NOTES: Final = """\
Each kernel's first line is the best configuration in fp64 with accurate functions, which speedups are over; the others
are the best whose error, in the kernel's own metric, is within the threshold. Times are medians of rounds in which
these configurations took turns, ± the interquartile range of the rounds. NumPy's product has no alpha, beta and C.

The roofline is the longer one of two times: the bytes of inputs and outputs at the speed of a triad over arrays of the
same size on the same cores (so from a cache, where they fit one), and the operations at the speed of fused
multiplications and additions in their types; fp16 and bf16 at that of fp32 where the processor has no units for them.
Operations are counted by McMahon's convention: a division or square root is four, an exponential, logarithm,
trigonometric or error function eight. A processor spends more on most of them: kernels made of functions stay far
below their roofline."""


def page(_: argparse.Namespace, results: Mapping[str, Any]) -> str:
    """Return the page."""
    rows = [row for key, some in results.items() if key not in ("machine", "sums") for row in some]
    cells = [
        (
            *(row["kernel"], row["level"], "" if row["threshold"] is None else f"{row['threshold']:.1e}"),
            *(f"{row['time_ms']:.3g}", f"{row['spread_ms']:.2g}", f"{row['speedup'] or math.nan:.2f}×"),
            *(f"{row['error']:.1e}", f"{row['gflops_per_s'] or math.nan:.3g}", f"{row['gbytes_per_s']:.3g}"),
            *(row["bound"], f"{row['roofline']:.0%}", "" if row["blas"] is None else f"{row['blas']:.2f}×"),
        )
        for row in rows
    ]
    columns = ("kernel", "accuracy", "threshold", "ms", "± ms", "speedup", "error", "GFlop/s", "GB/s", "bound by")
    told = [f"- {name}: {value}" for name, value in results.get("machine", {}).items()]
    found = [
        f"- {row['kernel']}, {row['level']}: `{', '.join(f'{k}={v}' for k, v in row['configuration'].items())}`"
        for row in rows
    ]
    table = bench.table((*columns, "of roofline", "NumPy's speed"), cells)
    sums = [
        (row["elements"], *(f"{row[name]:.3g}" for name in list(row)[1:]), f"{row['shared'] / row['warps']:.2f}")
        for row in results.get("sums", [])
    ]
    of_sums = (
        bench.table(("numbers a thread", *list(results["sums"][0])[1:], "shared over warps"), sums) if sums else ""
    )
    parts = ("\n".join(told), NOTES, table, "## Sums of blocks (ms)", of_sums, "## Configurations", "\n".join(found))
    return "\n\n".join(parts)


#: Sums of blocks: by shuffles and by shared memory.
SUMS: Final = """
__global__ void warps(const double* x, double* sums, int n) {
    __shared__ double parts[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    double sum = 0.0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if (lane == 0) parts[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < blockDim.x / 32 ? parts[lane] : 0.0;
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
__global__ void shared(const double* x, double* sums, int n) {
    __shared__ double parts[256];
    double sum = 0.0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) parts[threadIdx.x] += parts[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = parts[0];
}
int main() { warps<<<1, 32>>>(nullptr, nullptr, 0); shared<<<1, 32>>>(nullptr, nullptr, 0); }
"""


def sums_of_blocks(options: argparse.Namespace) -> list[dict[str, float]]:
    """Return the milliseconds of sums by shuffles and by shared memory, by the numbers that each thread adds first."""
    backend, blocks, threads = HostBackend(workers=1), 500, 256
    functions: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sums.cu"
        path.write_text(SUMS, encoding="utf-8")
        program = read([path])
        (unit,) = program.units
        for function in (each for each in unit.functions if each.is_kernel):
            text = program.text(function.body)
            regions = split(unit, function, program.text, phases_of_templates(threads))
            assert regions is not None
            forms = {"": ("IN_PHASES();", f"{{\n{regions.body}\n}}"), " in turns": ("", text)}
            for form, (before, body) in forms.items():
                head = f'extern "C" __global__ void {function.name}(const double* x, double* sums, int n) '
                source = f"{prelude()}\n{before}{head}{body}\nMPTUNE_HOST_ENTRY({function.name})\n"
                binary = backend.compiler.compile(source, function.name, CompileOptions())
                functions[function.name + form] = backend.device.load(binary)
    rows = []
    for elements in (1, 4, 16, 64):
        x, sums = np.random.default_rng(options.seed).uniform(size=blocks * threads * elements), np.zeros(blocks)
        arguments = (x, sums, np.int32(x.size))
        times: dict[str, list[float]] = {name: [] for name in functions}
        for _ in range(options.rounds):
            for name, each in functions.items():
                times[name].append(launch_on_arrays(backend, each, (blocks,), (threads,), *arguments))
                assert np.isclose(sums.sum(), x.sum(), rtol=1e-12)
        rows.append({"elements": elements, **{name: min(each) for name, each in times.items()}})
    return rows


def measure(options: argparse.Namespace, sheet: bench.Sheet) -> None:
    """Search and measure every kernel."""
    bench.at_least(options, 1, "budget", "rounds", "candidates")
    backend = get_backend("host")
    roofline = Roofline(backend)
    sheet.put("machine", machine(backend, roofline))
    sheet.put("sums", sums_of_blocks(options))
    settings = {name: getattr(options, name) for name in ("size", "budget", "time_limit_s", "seed", "rounds")}
    for name in bench.names_in(options.kernels, THRESHOLDS, "kernel"):
        sheet.add(name, lambda name=name: benchmark(load_kernel(name), options, backend, roofline), **settings)  # type: ignore[misc]


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    made = bench.parser(__doc__, bench.BUILD / "kernels.md")
    made.add_argument("--kernels", default=",".join(THRESHOLDS), help="names, by commas [all]")
    made.add_argument("--size", default="default", help="size preset [default]")
    made.add_argument("--budget", type=int, default=120, help="evaluations a kernel, over all thresholds [120]")
    made.add_argument("--time-limit", dest="time_limit_s", type=float, default=45.0, help="seconds of search [45]")
    made.add_argument("--seed", type=int, default=0, help="of inputs and search [0]")
    made.add_argument("--rounds", type=int, default=9, help="last rounds [9]")
    made.add_argument("--candidates", type=int, default=4, help="configurations measured again per threshold [4]")
    made.add_argument("--runs", type=Path, default=Path("runs/kernels"), help="folder of the run files, resumed")
    made.add_argument("--no-search", dest="search", action="store_false", help="only measure again what runs hold")
    return made


if __name__ == "__main__":
    scripts = [Path(roofline_module.__file__)]
    sys.exit(bench.main(parser(), "The bundled kernels against the roofline", measure, page, scripts=scripts))
