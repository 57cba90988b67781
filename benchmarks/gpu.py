"""mptune on a GPU: axpy and gemm beside the vendor's libraries, and evaluations per second beside Kernel Tuner.

    python benchmarks/gpu.py [--sections axpy,gemm,peer] [--backend auto] [--time-limit 450] [--output FILE.md]
    python benchmarks/gpu.py --compile sm_90 [--sections axpy,gemm]

Each section takes at most --time-limit seconds and stores each row as soon as it is measured:

    axpy    share of the device's copy bandwidth by precision
    gemm    against cuBLAS, by threads and by matrix units
    peer    evaluations per second beside Kernel Tuner (needs ``mptune[benchmarks]``)

``--compile`` needs no device: what axpy and gemm begin with is compiled into the cache (``$MPTUNE_CACHE_DIR``).

The rest is measured by other programs: whole search spaces by ``python benchmarks/record.py kmeans --backend cuda
--size paper --work FOLDER --time-limit 200``, energy by ``mptune tune kmeans --backend cuda --objective energy``.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from benchmarks import bench, rates  # noqa: E402
from benchmarks.in_turn import Remeasured, measure_in_turn  # noqa: E402
from mptune.backends import BACKENDS, get_backend  # noqa: E402
from mptune.backends.base import Backend, CompileOptions  # noqa: E402
from mptune.backends.processor import usable_cores  # noqa: E402
from mptune.data import DataManager  # noqa: E402
from mptune.errors import BackendUnavailableError, CompileError, EmptySpaceError  # noqa: E402
from mptune.kernel import Kernel, Sizes  # noqa: E402
from mptune.measure.bench import Bench  # noqa: E402
from mptune.measure.device import DeviceEvaluator  # noqa: E402
from mptune.measure.pool import compilers_ahead, runnable_backend  # noqa: E402
from mptune.measure.timing import TimingPlan  # noqa: E402
from mptune.precision import precision  # noqa: E402
from mptune.results.objective import Objective  # noqa: E402
from mptune.results.trial import Trial  # noqa: E402
from mptune.source.loading import load_kernel  # noqa: E402
from mptune.source.render import render  # noqa: E402
from mptune.space.configuration import Configuration  # noqa: E402
from mptune.space.search_space import SearchSpace  # noqa: E402
from mptune.strategies import make  # noqa: E402
from mptune.tuning import device_constraints  # noqa: E402

#: A search only has to find candidates, which are timed again afterwards.
PLAN: Final = TimingPlan(warmups=1, min_repeats=3, max_repeats=30, cap_s=0.03, patience_s=0.2)
VISIT: Final = TimingPlan(warmups=1, min_repeats=5, max_repeats=15, relative_width=0.0, cap_s=0.05)
#: Share of a time that goes into searches; the rest is for measuring again.
SEARCHING: Final = 0.7
#: Stores a row: its key, the cells of the table, and further figures.
Put = Callable[..., None]


@dataclass(frozen=True)
class Work:
    """A kernel at its sizes, and its valid configurations on the device."""

    kernel: Kernel
    sizes: Sizes
    space: SearchSpace


def work_on(name: str, options: argparse.Namespace, n: int = 0) -> Work:
    """Return a kernel at the size of the command line; gemm for square matrices."""
    kernel, backend = load_kernel(name), get_backend(options.backend)
    sizes = kernel.resolve_sizes("default" if n else options.size or "paper", dict.fromkeys("MNK", n) if n else {})
    facts = backend.facts(options.compile) if options.compile else backend.device.facts()
    return Work(kernel, sizes, kernel.search_space(sizes, device_constraints(kernel, facts)))


def search(
    evaluator: DeviceEvaluator,
    work: Work,
    space: SearchSpace,
    known: dict[Configuration, Trial],
    until: float,
    first: Sequence[Configuration],
) -> None:
    """Search a part of a space until a deadline, beginning with some configurations, and add trials to the known."""
    strategy = make("bayesian", space, Objective(), signature=work.kernel.signature_names)
    strategy.tell(list(known.values()))
    asked = [c for c in dict.fromkeys(first) if c in space and c not in known]
    while time.monotonic() < until and (asked := asked or strategy.ask(evaluator.lead)):
        trials = []
        for trial in evaluator.evaluate(asked):
            trials.append(trial)
            if time.monotonic() >= until:
                break
        known |= {trial.configuration: trial for trial in trials}
        strategy.tell(trials)
        asked = []


def fastest(trials: Iterable[Trial], values: Mapping[str, Sequence[Any]], count: int) -> list[Trial]:
    """Return the fastest valid trials that have the given values."""
    admitted = [t for t in trials if t.is_valid and all(t.configuration[name] in values[name] for name in values)]
    return sorted(admitted, key=lambda trial: trial.time_ms)[:count]


def shared_out(until: float, names: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield names with the time at which each has to end, as long as there is time."""
    for number, name in enumerate(names):
        now = time.monotonic()
        if now >= until:
            return
        yield name, now + (until - now) / (len(names) - number)


# -- axpy ------------------------------------------------------------------------------------------

AXPY_TYPES: Final = ("fp64", "fp32", "fp16", "bf16")


def axpy_parts(work: Work) -> dict[str, SearchSpace]:
    """Return the configurations of each precision."""
    return {name: work.space.restrict({p: [name] for p in work.kernel.baseline_values()}) for name in AXPY_TYPES}


def axpy(options: argparse.Namespace, put: Put, until: float) -> None:
    """Measure the share of copy bandwidth of every precision."""
    work, backend = work_on("axpy", options), get_backend(options.backend)
    with contextlib.closing(Bench(work.kernel, work.sizes, backend, seed=options.seed)) as opened:
        for name, ends in shared_out(until, AXPY_TYPES):
            part, found = axpy_parts(work)[name], dict[Configuration, Remeasured]()
            for drawn in part.configurations(np.random.default_rng(options.seed).permutation(part.size)):
                found |= measure_in_turn(opened, [drawn], 1, VISIT)
                if time.monotonic() >= ends:
                    break
            few = sorted(found, key=lambda c: found[c].time_ms)[: options.candidates]
            again = measure_in_turn(opened, few, options.rounds, VISIT)
            if not again:
                continue
            best = min(again, key=lambda c: again[c].time_ms)
            traffic = work.kernel.work(best, work.sizes).traffic_bytes
            rate, copies = traffic / again[best].time_ms * 1e3, copy_bytes_per_s(backend, int(traffic) // 2)
            shown = {"type": name, "ms": again[best].time_ms, "GB/s": rate / 1e9, "copy GB/s": copies / 1e9}
            shown |= {"share": rate / copies, "tried": f"{len(found)} of {part.size}"}
            put(name, shown, configuration=dict(best), times_ms=again[best].times_ms)


def copy_bytes_per_s(backend: Backend, nbytes: int) -> float:
    """Return the speed of copies within the device, bytes read and written both counted.

    Copies follow on one another, and twice as many do: the time to start and to wait is in both.
    """
    source, target = backend.device.allocate(nbytes), backend.device.allocate(nbytes)
    seen, last = np.empty(1, np.uint8), target.part(nbytes - 1, 1)

    def seconds(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            target.copy_from(source)
        last.read(seen)  # waits for the copies
        return time.perf_counter() - start

    try:
        source.fill(0)
        count = 1
        while seconds(count) < 0.05:
            count *= 2
        taken = statistics.median(seconds(2 * count) - seconds(count) for _ in range(5))
        return 2 * nbytes * count / taken
    finally:
        source.free()
        target.free()


# -- gemm ------------------------------------------------------------------------------------------

#: The types of A and B, and of C and the sums, by what the section calls the product; those with a target first.
PRODUCTS: Final[Mapping[str, tuple[str, str]]] = {
    "fp32": ("fp32", "fp32"),
    "TF32": ("fp32", "fp32"),
    "fp16": ("fp16", "fp32"),
    "fp64": ("fp64", "fp64"),
    "bf16": ("bf16", "fp32"),
}
UNITS: Final = "matrix units"
VARIANTS: Final = ("threads", UNITS)
_TILE: Final = (
    *("MWG", "NWG", "KWG", "MDIMC", "NDIMC", "MDIMA", "NDIMB", "VWM", "VWN"),
    *("VWK", "unroll", "resident", "raster"),
)
#: Tiles to begin with, with few other instructions beside the multiplications in their loops on sm_90.
TILES: Final = (
    (128, 128, 16, 16, 16, 64, 16, 4, 4, 4, 4, 2, 1),
    (256, 128, 8, 16, 16, 128, 32, 4, 4, 4, 4, 1, 1),
    (128, 128, 8, 16, 16, 128, 32, 4, 4, 4, 4, 2, 4),
    (128, 64, 16, 16, 16, 16, 16, 4, 2, 1, 1, 1, 1),
    (64, 64, 16, 8, 8, 8, 8, 4, 4, 1, 1, 1, 1),
)
_UNITS_TILE: Final = ["MWG", "NWG", "KWG", "MDIMC", "warps_along_n", "stages", "resident", "raster"]
#: Those for matrix units: large parts of a tile for each warp, and several tiles on their way.
UNITS_TILES: Final = (
    (128, 128, 32, 4, 2, 4, 2, 4),
    (256, 128, 32, 8, 2, 4, 1, 4),
    (128, 64, 16, 4, 2, 4, 2, 4),
    (64, 64, 16, 4, 2, 4, 2, 1),
)


def set_by(name: str, variant: str) -> dict[str, list[Any]]:
    """Return the values that all configurations of a product and a variant have."""
    inputs, result = PRODUCTS[name]
    types = {"a_type": inputs, "b_type": inputs, "accumulator_type": result, "c_type": result}
    multiplied = "simt" if variant != UNITS else "tf32" if name == "TF32" else "mma"
    return {parameter: [value] for parameter, value in {**types, "math": multiplied}.items()}


def tiles(kernel: Kernel, name: str, variant: str) -> list[Configuration]:
    """Return the tiles to begin with; not all need be valid."""
    known = {parameter.name: parameter.values for parameter in kernel.parameters}
    shapes: list[dict[str, Any]] = [
        {**dict(zip(_TILE, tile, strict=True)), "STRM": True, "STRN": True} for tile in TILES
    ]
    if variant == UNITS:
        others = {parameter: values[0] for parameter, values in known.items()} | {"NDIMC": 32}
        shapes = [{**others, **dict(zip(_UNITS_TILE, tile, strict=True))} for tile in UNITS_TILES]
    fixed = {parameter: value for parameter, (value,) in set_by(name, variant).items()}
    picked = []
    for shape in shapes:
        if fixed["accumulator_type"] == "fp64":
            shape["resident"] = 1  # sums take twice as many registers
        large = max(shape["MWG"], shape["NWG"]) > 128 or shape["MDIMC"] * shape["NDIMC"] > 256
        plain = {"double_buffer": False, "fine_prefetch": False, "large": large, "parts_of_a": 2}
        picked.append({**shape, **plain, **fixed})
    return [kernel.configuration(each) for each in picked if all(value in known[name] for name, value in each.items())]


def parts_of(space: SearchSpace) -> dict[tuple[str, str], SearchSpace]:
    """Return the part of the space of each product and variant that this device has."""
    parts = {}
    for name, variant in itertools.product(PRODUCTS, VARIANTS):
        # Without matrix units TF32 is fp32, and bf16 no faster than fp16.
        if variant == UNITS or name not in ("TF32", "bf16"):
            with contextlib.suppress(EmptySpaceError):
                parts[name, variant] = space.restrict(set_by(name, variant), explains=False)
    return parts


def gemm(options: argparse.Namespace, put: Put, until: float) -> None:
    """Search each product and variant, then measure the fastest in turn with cuBLAS."""
    for n, ends in shared_out(until, options.matrices.split(",")):
        work = work_on("gemm", options, int(n))
        parts, now = parts_of(work.space), time.monotonic()
        step, known = SEARCHING * (ends - now) / len(parts), dict[Configuration, Trial]()
        ahead = compilers_ahead(options.backend)
        with DeviceEvaluator(work.kernel, work.sizes, options.backend, plan=PLAN, compilers=ahead) as evaluator:
            for number, ((name, variant), part) in enumerate(parts.items(), start=1):
                search(evaluator, work, part, known, now + number * step, tiles(work.kernel, name, variant))
            data = DataManager(work.kernel, work.sizes)
            for name in dict.fromkeys(name for name, _ in parts):
                few = {v: fastest(known.values(), set_by(name, v), options.candidates) for of, v in parts if of == name}
                found = _beside_cublas(evaluator, data, name, few, options)
                ms = {"cuBLAS": found["vendor_ms"]} | {v: each["time_ms"] for v, each in found["kernels"].items()}
                shown = {v: 2 * int(n) ** 3 / ms[v] / 1e9 if ms.get(v) else None for v in ("cuBLAS", *VARIANTS)}
                best = min((each["time_ms"] for each in found["kernels"].values()), default=math.nan)
                share = found["vendor_ms"] / best if found["vendor_ms"] else None
                put(f"{n} {name}", {"M = N = K": n, "type": name, **shown, "of cuBLAS": share}, **found)


def _beside_cublas(
    evaluator: DeviceEvaluator,
    data: DataManager,
    name: str,
    finalists: Mapping[str, Sequence[Trial]],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Return the times of the best of each variant and of cuBLAS, which take turns."""
    times: dict[Configuration, list[float]] = {t.configuration: [] for few in finalists.values() for t in few}
    trials = [t for few in finalists.values() for t in few]
    vendor_ms: list[float] = []
    missing = "" if options.backend == "cuda" else f"cuBLAS is not there on {options.backend}"
    vendor: Callable[[], float] | None = None
    try:
        vendor = None if missing else cublas(data, name)
    except Exception as error:  # whatever another library fails with, the kernels are measured
        missing = f"cuBLAS failed in {name}: {type(error).__name__}: {error}"
    for _ in range(options.rounds if trials else 0):
        if vendor is not None:
            vendor()
            vendor_ms.append(statistics.median(vendor() for _ in range(9)))
        turns = evaluator.remeasure(trials, 1).trials
        for trial in turns:
            if trial.is_valid:
                times[trial.configuration].append(trial.time_ms)
        failed = {trial.configuration for trial in turns if not trial.is_valid}
        trials = [trial for trial in trials if trial.configuration not in failed]
    kernels = {}
    for variant, few in finalists.items():
        measured = [(statistics.median(times[t.configuration]), t) for t in few if times[t.configuration]]
        if measured:
            time_ms, best = min(measured, key=lambda entry: entry[0])
            kernels[variant] = {"time_ms": time_ms, "error": best.error, "configuration": dict(best.configuration)}
    return {"kernels": kernels, "vendor_ms": statistics.median(vendor_ms) if vendor_ms else None, "missing": missing}


def cublas(data: DataManager, name: str) -> Callable[[], float]:
    """Return a function that multiplies by cuBLAS through CuPy, from the original C, and returns the milliseconds.

    fp32 is true fp32; fp16 and bf16 are summed in fp32, as matrix units do.
    """
    import cupy
    from cupy_backends.cuda.libs import cublas as library

    runtime, (inputs, result) = cupy.cuda.runtime, PRODUCTS[name]
    kinds = {"fp64": "64F", "fp32": "32F", "fp16": "16F", "bf16": "16BF"}
    read, written = (getattr(runtime, f"CUDA_R_{kinds[kind]}") for kind in (inputs, result))
    compute = getattr(library, f"CUBLAS_COMPUTE_{({'fp64': '64F', 'TF32': '32F_FAST_TF32'}).get(name, '32F')}")

    def on_device(matrix: str, kind: str) -> Any:
        argument = next(a for a in data.kernel.arguments if a.name == matrix)
        typed = data.typed(argument, precision(kind))
        # CuPy need not know bf16: its bits do.
        return cupy.asarray(typed.view(np.uint16) if kind == "bf16" else typed)

    a, b, original = on_device("A", inputs), on_device("B", inputs), on_device("C", result)
    c = original.copy()
    alpha, beta = (np.array(data.inputs[s], precision(result).dtype) for s in ("alpha", "beta"))
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    (m, k), (_, n) = a.shape, b.shape

    def multiply() -> float:
        none, handle = library.CUBLAS_OP_N, cupy.cuda.device.get_cublas_handle()
        c[...] = original
        start.record()
        # By columns, as the library takes them, these rows are the transposed matrices, and so is the product.
        library.gemmEx(
            *(handle, none, none, n, m, k, alpha.ctypes.data, b.data.ptr, read, n, a.data.ptr, read, k),
            *(beta.ctypes.data, c.data.ptr, written, n, compute, library.CUBLAS_GEMM_DEFAULT),
        )
        end.record()
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end))

    multiply()
    return multiply


# -- peer ------------------------------------------------------------------------------------------

PEER_TYPES: Final = {name: name for name in ("fp64", "fp32", "fp16")}


def peer(options: argparse.Namespace, put: Put, until: float) -> None:
    """Run both tools in turn on axpy, from the same sources, for as many rounds as there is time for.

    Raises:
        BackendUnavailableError: Kernel Tuner is not there.
    """
    rates.require_kernel_tuner()
    if options.backend != "cuda":
        raise BackendUnavailableError("section peer needs a CUDA device: Kernel Tuner runs there through CuPy")
    kernel = rates.load_narrowed("axpy", tuple(PEER_TYPES))
    sizes = dict(kernel.resolve_sizes(options.size or "default"))
    longest_s = 0.0
    for number in range(options.rounds):
        start = time.monotonic()
        if start + longest_s >= until:
            return
        own = rates.run_mptune(kernel, sizes, options.budget, options.seed + number, None, options.backend)
        # CuPy keeps what it compiled for as long as a process lasts.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            other = pool.submit(run_peer, sizes, options.budget, options.seed + number).result()
        longest_s = max(longest_s, time.monotonic() - start)
        shown = {"round": number, "mptune": own.per_second, "Kernel Tuner": other.per_second}
        put(str(number), shown | {"ratio": own.per_second / other.per_second})


def run_peer(sizes: Mapping[str, int], budget: int, seed: int) -> rates.Outcome:
    """Tune with Kernel Tuner, in a process that has compiled nothing yet."""
    kernel = rates.load_narrowed("axpy", tuple(PEER_TYPES))
    resolved = kernel.resolve_sizes("default", sizes)

    def configuration(values: Mapping[str, Any]) -> Configuration:
        return kernel.configuration({p.name: values[p.name] for p in kernel.parameters})

    return rates.run_kernel_tuner(
        kernel,
        resolved,
        budget,
        seed,
        lambda values: render(kernel, configuration(values), resolved),
        PEER_TYPES,
        # The rendered source needs no macros.
        defines={},
        problem_size=lambda values: kernel.launch_shape(configuration(values), resolved).grid,
        **{f"grid_div_{axis}": [1] for axis in "xyz"},
        block_size_names=list(kernel.expressions("block")),
        lang="CUPY",
        compiler_options=["--std=c++17"],
    )


# -- the command -----------------------------------------------------------------------------------

#: By name: what a section measures, its heading, and what its table shows.
SECTIONS: Final[Mapping[str, tuple[Callable[..., None], str, str]]] = {
    "axpy": (
        axpy,
        "axpy against copy bandwidth",
        "y = a x + y in one type, beside copies within the device. Target: a share of 0.9.",
    ),
    "gemm": (
        gemm,
        "gemm against cuBLAS",
        "TFlop/s on square matrices, in turn with cuBLAS. Targets: 0.9 of cuBLAS in fp32, 0.7 in TF32 and fp16.",
    ),
    "peer": (
        peer,
        "Evaluations per second beside Kernel Tuner",
        f"axpy in {', '.join(PEER_TYPES)}, the same sources, in turn. Target: a ratio of 3.",
    ),
}


def compile_first(options: argparse.Namespace, name: str) -> int:
    """Compile what a section begins with; return how many sources do not compile."""
    sources: list[tuple[Work, Configuration]] = []
    if name == "axpy":
        work = work_on("axpy", options)
        sources = [(work, c) for part in axpy_parts(work).values() for c in part.configurations(np.arange(part.size))]
    for n in options.matrices.split(",") if name == "gemm" else ():
        work = work_on("gemm", options, int(n))
        for (product, variant), part in parts_of(work.space).items():
            sources += [(work, tile) for tile in tiles(work.kernel, product, variant) if tile in part]
    compiler, flags = get_backend(options.backend).compiler, CompileOptions(architecture=options.compile)

    def fails(source: tuple[Work, Configuration]) -> bool:
        work, configuration = source
        try:
            compiler.compile(render(work.kernel, configuration, work.sizes), work.kernel.function, flags)
        except CompileError as error:
            print(f"{work.kernel.name} at {configuration}: {str(error).splitlines()[0]}", file=sys.stderr)
            return True
        return False

    with ThreadPoolExecutor(usable_cores()) as pool:
        failed = sum(pool.map(fails, sources))
    print(f"{name}: {len(sources) - failed} of {len(sources)} compiled for {options.compile}", flush=True)
    return failed


def measure(options: argparse.Namespace, sheet: bench.Sheet) -> int:
    """Measure sections; if one fails, with whatever error, the others still run."""
    names = bench.names_in(options.sections, SECTIONS, "section") or tuple(SECTIONS)
    if options.backend == "auto":
        runs = [name for name in ("cuda", "hip") if options.compile or BACKENDS[name].availability().can_run]
        if not runs:
            raise BackendUnavailableError("no GPU is available; --backend host tries the sections out")
        options.backend = runs[0]
    if options.compile:
        return 2 if sum(compile_first(options, name) for name in names) else 0
    device = get_backend(runnable_backend(options.backend)).describe()
    code = 0
    for name in names:

        def put(key: str, shown: Mapping[str, Any], name: str = name, **figures: Any) -> None:
            told = {"device": f"{device.name} ({device.architecture})", "versions": dict(device.versions)}
            sheet.put(f"{name}: {key}", {**told, "shown": shown, **figures})

        try:
            SECTIONS[name][0](options, put, time.monotonic() + options.time_limit)
        except BackendUnavailableError as error:
            print(f"section {name}: skipped: {error}", file=sys.stderr)
        except Exception as error:
            print(f"error: section {name}: {type(error).__name__}: {error}", file=sys.stderr)
            code = 2
    return code


def page(_: argparse.Namespace, results: Mapping[str, Any]) -> str:
    """Return the page: the rows of each section, or the command that measures it."""
    parts = []
    for name, (_measure, title, note) in SECTIONS.items():
        rows = [row for key, row in results.items() if key.startswith(f"{name}: ")]
        parts += [f"## {title}", note]
        if not rows:
            parts.append(f"Not measured. On a machine with a GPU: `python benchmarks/gpu.py --sections {name}`")
            continue
        columns = list(rows[0]["shown"])
        cells = [[_cell(row["shown"].get(column)) for column in columns] for row in rows]
        parts += [", ".join(dict.fromkeys(row["device"] for row in rows)), bench.table(columns, cells)]
    return "\n\n".join(parts)


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    made = bench.parser(__doc__, bench.RESULTS / "gpu.md")
    made.add_argument("--sections", default="", help="names, separated by commas [all]")
    made.add_argument("--backend", default="auto", help="auto (the first GPU), cuda, hip, or host to try it out")
    made.add_argument("--time-limit", type=float, default=450.0, help="seconds for each section, approximately [450]")
    made.add_argument("--compile", metavar="ARCH", default="", help="compile what sections begin with, measure nothing")
    made.add_argument("--size", help="size preset [paper; in peer: default]")
    made.add_argument("--matrices", default="1024,2048,4096", help="M = N = K of gemm")
    made.add_argument("--budget", type=int, default=100, help="evaluations of each tool in a round of peer [100]")
    made.add_argument("--candidates", type=int, default=3, help="fastest of each kind, measured again [3]")
    made.add_argument("--rounds", type=int, default=5, help="rounds in which the things compared take turns [5]")
    made.add_argument("--seed", type=int, default=0, help="seed of inputs and searches [0]")
    return made


if __name__ == "__main__":
    sys.exit(bench.main(parser(), "On a GPU", measure, page, keeps=True))
