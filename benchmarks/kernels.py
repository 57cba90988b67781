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
import dataclasses
import datetime
import json
import math
import platform
import shlex
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.in_turn import Remeasured, measure_in_turn  # noqa: E402
from benchmarks.roofline import Bound, Roofline  # noqa: E402
from mptune.backends import get_backend  # noqa: E402
from mptune.backends.base import Backend  # noqa: E402
from mptune.data import DataManager  # noqa: E402
from mptune.errors import MptuneError, UnknownNameError  # noqa: E402
from mptune.kernel import Kernel  # noqa: E402
from mptune.measure.bench import Bench  # noqa: E402
from mptune.measure.timing import TimingPlan, repeat_launches  # noqa: E402
from mptune.measure.worker import Limits  # noqa: E402
from mptune.precision import precision  # noqa: E402
from mptune.results.trial import Trial  # noqa: E402
from mptune.run import Run, json_document  # noqa: E402
from mptune.source.loading import load_kernel  # noqa: E402
from mptune.space.configuration import Configuration  # noqa: E402
from mptune.space.parameters import PrecisionParameter  # noqa: E402
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


@dataclass(frozen=True, slots=True)
class Row:
    """The best of one class.

    Attributes:
        level: name of the class.
        threshold: its threshold, None for a type.
        time_ms: median of the medians of all rounds.
        spread_ms: interquartile range of those.
        speedup: over the best in fp64.
        error: in the kernel's metric.
        bound: the least time there is on this machine.
        blas: NumPy's time in the same type over this one; None where NumPy does not have it.
    """

    kernel: str
    level: str
    threshold: float | None
    configuration: Configuration
    time_ms: float
    spread_ms: float
    speedup: float
    error: float
    bound: Bound
    gflops_per_s: float
    gbytes_per_s: float
    blas: float | None = None

    @property
    def roofline(self) -> float:
        """The least time as a fraction of the measured one."""
        return self.bound.time_ms / self.time_ms


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    size: str
    budget: int
    time_limit_s: float
    seed: int
    rounds: int
    candidates: int
    runs: Path
    search: bool


# -- searching -------------------------------------------------------------------------------------


def classes_of(kernel: Kernel) -> tuple[Class, ...]:
    """Return what is looked for, fp64 first."""
    types = {p.name for p in kernel.parameters if isinstance(p, PrecisionParameter)}
    return (
        Class("fp64", math.inf, kernel.baseline_values()),
        *(Class(name, math.inf, dict.fromkeys(types, (name,))) for name in BLAS.get(kernel.name, ())),
        *(Class(level, tau, {}) for level, tau in zip(LEVELS, THRESHOLDS[kernel.name], strict=True)),
    )


def search(kernel: Kernel, options: Options) -> list[Trial]:
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


def _tune(kernel: Kernel, file: Path, max_error: float | None, budget: int, options: Options) -> None:
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


def winners(bench: Bench, trials: Sequence[Trial], options: Options) -> dict[Class, Remeasured]:
    """Return the best of each class, fp64 first, from the last rounds; a class nothing is in is missing."""

    def complain(trial: Trial) -> None:
        print(f"{bench.kernel.name} at {trial.configuration}: {trial.message}", file=sys.stderr)

    assert isinstance(bench.kernel, Kernel)
    classes = classes_of(bench.kernel)
    candidates = [c for wanted in classes for c in fastest(trials, wanted, options.candidates)]
    qualified = best_of(classes, measure_in_turn(bench, candidates, QUALIFYING_ROUNDS, VISIT, complain).values())
    finalists = [entry.trial.configuration for entry in qualified.values()]
    return best_of(classes, measure_in_turn(bench, finalists, options.rounds, VISIT, complain).values())


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


def benchmark(kernel: Kernel, options: Options, backend: Backend, roofline: Roofline) -> list[Row]:
    """Search, measure again and compare with the roofline, and with NumPy where it has the kernel."""
    sizes = kernel.resolve_sizes(options.size)
    trials = search(kernel, options)
    bench = Bench(kernel, sizes, backend, seed=options.seed)
    try:
        found = winners(bench, trials, options)
    finally:
        bench.close()
    threads = int(backend.describe().limits["workers"])
    data = DataManager(kernel, sizes, seed=options.seed)
    rows: list[Row] = []
    fp64_ms = next((finalist.time_ms for wanted, finalist in found.items() if wanted.name == "fp64"), math.nan)
    for wanted, finalist in found.items():
        trial = finalist.trial
        work = kernel.work(trial.configuration, sizes)
        bound = roofline.bound(work, int(trial.metric("memory_bytes")))
        in_numpy = kernel.name in BLAS and wanted.name in ("fp64", *BLAS[kernel.name])
        rows.append(
            Row(
                kernel=kernel.name,
                level=wanted.name,
                threshold=wanted.threshold if math.isfinite(wanted.threshold) else None,
                configuration=trial.configuration,
                time_ms=finalist.time_ms,
                spread_ms=finalist.spread_ms,
                speedup=fp64_ms / finalist.time_ms,
                error=trial.error,
                bound=bound,
                gflops_per_s=(work.flops or math.nan) / finalist.time_ms / 1e6,
                gbytes_per_s=work.traffic_bytes / finalist.time_ms / 1e6,
                blas=blas_ms(data, wanted.name, options.rounds, threads) / finalist.time_ms if in_numpy else None,
            )
        )
    return rows


# -- telling ---------------------------------------------------------------------------------------


def machine(backend: Backend, roofline: Roofline) -> dict[str, Any]:
    """Describe what the numbers were measured on."""
    device = backend.describe()
    libraries = [entry for entry in threadpool_info() if entry["user_api"] == "blas"]
    # SciPy may well bring another one.
    blas = next((entry for entry in libraries if "numpy" in entry["filepath"]), libraries[0] if libraries else {})
    return {
        "processor": f"{device.name} ({device.architecture})",
        "cores": device.limits["workers"],
        "compiler": device.versions["compiler"],
        "Python": platform.python_version(),
        "NumPy": f"{np.__version__} ({blas.get('internal_api', 'unknown BLAS')} {blas.get('version', '')})",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "triad over 256 MiB": f"{roofline.bytes_per_s(1 << 28) / 1e9:.1f} GB/s",
        **{f"peak in {name}": f"{peak / 1e9:.0f} GFlop/s" for name, peak in roofline.flops_per_s.items()},
    }


def markdown(described: Mapping[str, Any], rows: Sequence[Row], command: str) -> str:
    shown = [_cells(row) for row in rows]
    widths = [max(len(line[i]) for line in (COLUMNS, *shown)) for i in range(len(COLUMNS))]
    table = [COLUMNS, tuple("-" * width for width in widths), *shown]
    lines = ("| " + " | ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)) + " |" for line in table)
    configurations = "\n".join(f"- {row.kernel}, {row.level}: `{row.configuration}`" for row in rows)
    return (
        f"# The bundled kernels against the roofline\n\n    {command}\n\n"
        + "".join(f"- {name}: {value}\n" for name, value in described.items())
        + f"\n{NOTES}\n"
        + "\n".join(lines)
        + f"\n\n## Configurations\n\n{configurations}\n"
    )


COLUMNS: Final = (
    *("kernel", "accuracy", "threshold", "ms", "± ms", "speedup", "error", "GFlop/s", "GB/s", "bound by"),
    *("of roofline", "NumPy's speed"),
)
NOTES: Final = """\
Each kernel's first line is the best configuration in fp64 with accurate functions, which speedups are over; the others
are the best whose error, in the kernel's own metric, is within the threshold. Times are medians of rounds in which
these configurations took turns, ± the interquartile range of the rounds. NumPy's product has no alpha, beta and C.

The roofline is the longer one of two times: the bytes of inputs and outputs at the speed of a triad over arrays of the
same size on the same cores (so from a cache, where they fit one), and the operations at the speed of fused
multiplications and additions in their types; fp16 and bf16 at that of fp32 where the processor has no units for them.
Operations are counted by McMahon's convention: a division or square root is four, an exponential, logarithm,
trigonometric or error function eight. A processor spends more on most of them: kernels made of functions stay far
below their roofline.
"""


def _cells(row: Row) -> tuple[str, ...]:
    return (
        *(row.kernel, row.level, "" if row.threshold is None else f"{row.threshold:.1e}"),
        *(f"{row.time_ms:.3g}", f"{row.spread_ms:.2g}", f"{row.speedup:.2f}×", f"{row.error:.1e}"),
        *(f"{row.gflops_per_s:.3g}", f"{row.gbytes_per_s:.3g}", row.bound.name, f"{row.roofline:.0%}"),
        "" if row.blas is None else f"{row.blas:.2f}×",
    )


def document(described: Mapping[str, Any], rows: Sequence[Row], command: str) -> str:
    entries = [
        {name: getattr(row, name) for name in row.__dataclass_fields__}
        | {"bound": row.bound.name, "memory_ms": row.bound.memory_ms, "compute_ms": row.bound.compute_ms}
        | {"roofline": row.roofline}
        for row in rows
    ]
    return json.dumps(json_document({"command": command, "machine": described, "rows": entries}), indent=2)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The bundled kernels on this machine, against its roofline.")
    parser.add_argument("--kernels", default=",".join(THRESHOLDS), help="names, by commas [all]")
    parser.add_argument("--size", default="default", help="size preset [default]")
    parser.add_argument("--budget", type=int, default=120, help="evaluations a kernel, over all thresholds [120]")
    parser.add_argument(
        "--time-limit", dest="time_limit_s", type=float, default=45.0, help="seconds of search a kernel [45]"
    )
    parser.add_argument("--seed", type=int, default=0, help="of inputs and search [0]")
    parser.add_argument("--rounds", type=int, default=9, help="last rounds [9]")
    parser.add_argument("--candidates", type=int, default=4, help="configurations measured again per threshold [4]")
    parser.add_argument("--runs", type=Path, default=Path("runs/kernels"), help="folder of the run files, resumed")
    parser.add_argument(
        "--no-search", dest="search", action="store_false", help="only measure again what run files hold"
    )
    parser.add_argument("--output", type=Path, help="results file (Markdown), e.g. benchmarks/results/kernels.md")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when it ran, 2 for wrong input."""
    given = parse(arguments)
    command = shlex.join(["python", "benchmarks/kernels.py", *(sys.argv[1:] if arguments is None else arguments)])
    try:
        text = run(given, command)
    except MptuneError as error:
        print(error, file=sys.stderr)
        return 2
    print(text)
    return 0


def run(given: argparse.Namespace, command: str) -> str:
    """Return what is printed; write the results file where one is asked for."""
    options = Options(**{name: getattr(given, name) for name in Options.__dataclass_fields__})
    for name in ("budget", "rounds", "candidates"):
        if getattr(options, name) < 1:
            raise MptuneError(f"--{name} {getattr(options, name)}: expected at least 1")
    names = given.kernels.split(",")
    for name in set(names) - set(THRESHOLDS):
        raise UnknownNameError("kernel", name, THRESHOLDS)
    backend = get_backend("host")
    roofline = Roofline(backend)
    described = machine(backend, roofline)
    rows: list[Row] = []
    for name in names:
        start = time.monotonic()
        rows += benchmark(load_kernel(name), options, backend, roofline)
        print(f"{name}: {time.monotonic() - start:.0f} s", file=sys.stderr)
        if given.output:
            given.output.write_text(markdown(described, rows, command))
    return (document if given.json else markdown)(described, rows, command)


if __name__ == "__main__":
    sys.exit(main())
