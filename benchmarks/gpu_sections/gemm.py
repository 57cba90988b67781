"""gemm against cuBLAS: with double buffering and prefetch, the optimisations of Lin 2025, without, and by matrix units.

For each size, each of the types and each variant there is a search of its own in the space these leave, twice as long
where there is a target as elsewhere. It begins with the tiles that were fastest in other variants and at the size
before, and with tiles picked by counts of their instructions. The fastest of each then take turns with cuBLAS, which
gets the very same matrices.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final

from benchmarks.gpu_sections.searching import described, evaluator_of, fastest, search
from benchmarks.gpu_sections.section import Options, Section, Source, table, verdict
from benchmarks.gpu_sections.vendor import TYPES, Cublas
from mptune.data import DataManager
from mptune.errors import BackendUnavailableError, EmptySpaceError
from mptune.kernel import Kernel, Sizes
from mptune.measure.device import DeviceEvaluator
from mptune.results.objective import Objective
from mptune.results.trial import Trial
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.space.search_space import SearchSpace
from mptune.tuning import device_constraints

__all__ = ["SECTION", "tiles"]

#: Shares of cuBLAS's speed by what is multiplied: in TF32 and fp16, matrix units do it.
TARGETS: Final = {"fp32": 0.9, "TF32": 0.7, "fp16": 0.7}
UNITS: Final = "matrix units"
#: What each variant sets.
VARIANTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "neither": {"double_buffer": False, "fine_prefetch": False},
    "double buffering": {"double_buffer": True, "fine_prefetch": False},
    "prefetch": {"double_buffer": False, "fine_prefetch": True},
    "both": {"double_buffer": True, "fine_prefetch": True},
    UNITS: {"double_buffer": False, "fine_prefetch": False},
}
#: What only matrix units are to multiply: without them bf16 is no faster than fp16.
BY_UNITS_ALONE: Final = ("TF32", "bf16")
#: What of a size's time goes into its searches.
SEARCHING: Final = 0.7
#: Searches for what has a target are so many times as long as others.
WEIGHT: Final = 2.0
#: Configurations of other variants that a search begins with.
RELATIVES: Final = 8
_TILE: Final = (
    *("MWG", "NWG", "KWG", "MDIMC", "NDIMC", "MDIMA", "NDIMB", "VWM", "VWN"),
    *("VWK", "unroll", "resident", "raster"),
)
#: Tiles to begin with; a configuration takes seconds to compile, so a search hardly comes upon such. First those in
#: whose loops most instructions multiply and add in fp32 on sm_90, without spills, as benchmarks/sass.py counts them.
#: The last two, of 192 and 96 rows, are for prefetching alone, in thirds.
TILES: Final = (
    (128, 128, 16, 16, 16, 64, 16, 4, 4, 4, 4, 2, 1),
    (256, 128, 8, 16, 16, 128, 32, 4, 4, 4, 4, 1, 1),
    (128, 256, 16, 16, 32, 128, 32, 4, 4, 4, 4, 1, 4),
    (128, 128, 8, 16, 16, 128, 32, 4, 4, 4, 4, 2, 4),
    (128, 128, 16, 16, 16, 16, 16, 4, 4, 1, 1, 1, 1),
    (128, 64, 16, 16, 16, 16, 16, 4, 2, 1, 1, 1, 1),
    (64, 64, 16, 16, 16, 16, 16, 2, 2, 1, 1, 1, 1),
    (64, 64, 16, 8, 8, 8, 8, 4, 4, 1, 1, 1, 1),
    (64, 64, 8, 8, 8, 8, 8, 4, 4, 1, 1, 1, 1),
    (192, 128, 16, 16, 16, 64, 16, 4, 4, 4, 4, 1, 1),
    (96, 128, 16, 8, 16, 32, 16, 4, 4, 4, 2, 2, 4),
)
_UNITS_TILE: Final = ("MWG", "NWG", "KWG", "MDIMC", "warps_along_n", "stages", "resident", "raster")
#: Those for matrix units: large parts of a tile for each warp, and several tiles on their way; then smaller ones, of
#: which small matrices have enough for all multiprocessors.
UNITS_TILES: Final = (
    (128, 128, 32, 4, 2, 4, 2, 4),
    (256, 128, 32, 8, 2, 4, 1, 4),
    (128, 256, 32, 8, 4, 4, 1, 4),
    (128, 128, 32, 8, 2, 3, 2, 4),
    (128, 128, 16, 8, 2, 4, 1, 4),
    (128, 64, 16, 4, 2, 4, 2, 4),
    (64, 64, 32, 4, 2, 4, 2, 1),
    (64, 64, 16, 4, 2, 4, 2, 1),
)


def measure(options: Options, until: float) -> Iterator[dict[str, Any]]:
    """Measure every size."""
    kernel = load_kernel("gemm")
    sizes_of = [kernel.resolve_sizes("default", dict.fromkeys("MNK", n)) for n in options.matrices]
    products: list[dict[str, Any]] = []
    notes: dict[str, str] = {}
    earlier: Sequence[Trial] = ()
    missing = 0
    for number, sizes in enumerate(sizes_of):
        now = time.monotonic()
        if now >= until:
            missing += 1
            break
        ends = now + (until - now) / (len(sizes_of) - number)
        with evaluator_of(kernel, sizes, options) as evaluator:
            space = kernel.search_space(sizes, device_constraints(kernel, evaluator.start().facts))
            parts = _parts(space)
            earlier = _search(evaluator, kernel, parts, now + SEARCHING * (ends - now), options.seed, earlier)
            for product in _products(evaluator, kernel, sizes, options, list(parts), earlier, notes):
                products.append(product)
                missing -= len(product["kernels"])
                yield {"products": list(products), **notes, "complete": False}
        missing += len(parts)
    yield {"products": products, **notes, "complete": missing == 0}


def begins(options: Options, limits: Mapping[str, Any]) -> Iterator[Source]:
    """Yield the picked tiles of every search."""
    kernel = load_kernel("gemm")
    for n in options.matrices:
        sizes = kernel.resolve_sizes("default", dict.fromkeys("MNK", n))
        space = kernel.search_space(sizes, device_constraints(kernel, limits))
        for (name, variant), part in _parts(space).items():
            yield from ((kernel, sizes, tile) for tile in tiles(kernel, name, variant) if tile in part)


def _parts(space: SearchSpace) -> dict[tuple[str, str], SearchSpace]:
    """Return the part of the space that each search has, by types and variant; without those this device is not for."""
    parts = {}
    for name, variant in itertools.product(TYPES, VARIANTS):
        if variant == UNITS or name not in BY_UNITS_ALONE:
            with suppress(EmptySpaceError):
                parts[name, variant] = space.restrict(_set_by(name, variant), explains=False)
    return parts


def _products(
    evaluator: DeviceEvaluator,
    kernel: Kernel,
    sizes: Sizes,
    options: Options,
    searches: Sequence[tuple[str, str]],
    found: Sequence[Trial],
    notes: dict[str, str],
) -> Iterator[dict[str, Any]]:
    """Measure the fastest that were found at one size again; yield the products, one for each of the types."""
    data = DataManager(kernel, sizes, seed=options.seed)
    for name in dict.fromkeys(name for name, _ in searches):
        valid = {v: fastest(found, _set_by(name, v), math.inf, len(found)) for of, v in searches if of == name}
        finalists = {variant: trials[: options.candidates] for variant, trials in valid.items()}
        yield {
            "n": sizes.N,
            "type": name,
            **_in_turn(evaluator, data, name, finalists, options, notes),
            "evaluated": sum(map(len, valid.values())),
        }


def _search(
    evaluator: DeviceEvaluator,
    kernel: Kernel,
    parts: Mapping[tuple[str, str], SearchSpace],
    until: float,
    seed: int,
    earlier: Sequence[Trial],
) -> Sequence[Trial]:
    """Return the trials of one search for each of the types and variants; each has its share of the time.

    ``earlier`` are those of another size.
    """
    known: dict[Configuration, Trial] = {}
    weights = [WEIGHT if name in TARGETS and (name != "fp32") == (v == UNITS) else 1.0 for name, v in parts]
    for number, ((name, variant), part) in enumerate(parts.items()):
        now = time.monotonic()
        ends = now + (until - now) * weights[number] / math.fsum(weights[number:])
        alike = {each: values for each, values in _set_by(name, variant).items() if each not in VARIANTS[variant]}
        best = [trial for trials in (known.values(), earlier) for trial in fastest(trials, alike, math.inf, RELATIVES)]
        first = [kernel.configuration({**trial.configuration, **VARIANTS[variant]}) for trial in best]
        search(evaluator, kernel, part, Objective(), known, ends, seed, first + tiles(kernel, name, variant))
    return tuple(known.values())


def tiles(kernel: Kernel, name: str, variant: str) -> list[Configuration]:
    """Return the tiles that were picked, in some types, as a variant sets the rest; not all need be valid."""
    known = {parameter.name: parameter.values for parameter in kernel.parameters}
    shapes: list[dict[str, Any]] = [
        {**dict(zip(_TILE, tile, strict=True)), "STRM": True, "STRN": True} for tile in TILES
    ]
    if variant == UNITS:
        # What only threads have that multiply for themselves is as it is elsewhere.
        others = {parameter: values[0] for parameter, values in known.items()} | {"NDIMC": 32}
        shapes = [{**others, **dict(zip(_UNITS_TILE, tile, strict=True))} for tile in UNITS_TILES]
    fixed = {parameter: value for parameter, (value,) in _set_by(name, variant).items()}
    picked = []
    for shape in shapes:
        if fixed["accumulator_type"] == "fp64":
            # Sums take twice as many registers: of two blocks, or of more than 64 for a thread, some would be spilled.
            shape["resident"] = 1
            if shape["MWG"] * shape["NWG"] > 64 * shape["MDIMC"] * shape["NDIMC"]:
                continue
        large = max(shape["MWG"], shape["NWG"]) > 128 or shape["MDIMC"] * shape["NDIMC"] > 256
        picked.append({**shape, "large": large, "parts_of_a": 3 if shape["MWG"] % 3 == 0 else 2, **fixed})
    return [kernel.configuration(each) for each in picked if all(value in known[name] for name, value in each.items())]


def _in_turn(
    evaluator: DeviceEvaluator,
    data: DataManager,
    name: str,
    finalists: Mapping[str, Sequence[Trial]],
    options: Options,
    notes: dict[str, str],
) -> dict[str, Any]:
    """Measure finalists and cuBLAS in rounds; return the times of the best of each variant, and of cuBLAS."""
    trials = [trial for of_one in finalists.values() for trial in of_one]
    times: dict[Configuration, list[float]] = {trial.configuration: [] for trial in trials}
    vendor_ms: list[float] = []
    error = None
    with ExitStack() as stack:
        vendor = _vendor(data, name, options.backend, notes)
        if vendor is not None:
            stack.enter_context(vendor)
            notes["vendor"] = f"cuBLAS {vendor.version}"
        for _ in range(options.rounds if trials else 0):
            if vendor is not None:
                try:
                    vendor.multiply()
                    vendor_ms.append(statistics.median(vendor.multiply() for _ in range(9)))
                    error = vendor.error()
                except Exception as failure:  # whatever another library fails with, the kernels are measured
                    notes["vendor_missing"] = _failure(name, failure)
                    vendor = None
            turns = evaluator.remeasure(trials, 1).trials
            for trial in turns:
                if trial.is_valid:
                    times[trial.configuration].append(trial.time_ms)
            # What fails can leave the device unusable, and what comes after it in every round without a time.
            failed = {trial.configuration for trial in turns if not trial.is_valid}
            trials = [trial for trial in trials if trial.configuration not in failed]
    kernels = {}
    for variant, of_one in finalists.items():
        measured = {t.configuration: times[t.configuration] for t in of_one if times[t.configuration]}
        if measured:
            best = min(measured, key=lambda c: statistics.median(measured[c]))
            own = next(t.error for t in of_one if t.configuration == best)
            kernels[variant] = {"configuration": described(best), "times_ms": measured[best], "error": own}
    return {"kernels": kernels, "vendor_ms": vendor_ms, "vendor_error": error}


def _vendor(data: DataManager, name: str, backend: str, notes: dict[str, str]) -> Cublas | None:
    if backend != "cuda":
        notes["vendor_missing"] = f"cuBLAS is compared with on CUDA devices, not on {backend}"
        return None
    try:
        return Cublas(data, name)
    except BackendUnavailableError as error:
        notes["vendor_missing"] = str(error)
    except Exception as error:
        notes["vendor_missing"] = _failure(name, error)
    return None


def _failure(name: str, error: Exception) -> str:
    return f"cuBLAS failed in {name}: {type(error).__name__}: {error}"


def _set_by(name: str, variant: str) -> dict[str, list[Any]]:
    """Return the values that all configurations have in some types and a variant."""
    inputs, result = TYPES[name]
    types = {"a_type": inputs, "b_type": inputs, "accumulator_type": result, "c_type": result}
    multiplied = "simt" if variant != UNITS else "tf32" if name == "TF32" else "mma"
    return {parameter: [value] for parameter, value in {**types, **VARIANTS[variant], "math": multiplied}.items()}


def lines(document: Mapping[str, Any]) -> list[str]:
    """Render the section."""
    rows = []
    for product in document["products"]:
        flops = 2.0 * product["n"] ** 3
        vendor_ms = statistics.median(product["vendor_ms"]) if product["vendor_ms"] else math.nan
        ours = {variant: statistics.median(entry["times_ms"]) for variant, entry in product["kernels"].items()}
        shares = [f"{vendor_ms / ours[v]:.1%}" if v in ours and product["vendor_ms"] else "" for v in VARIANTS]
        rates = [f"{flops / ours[v] / 1e9:.4g}" if v in ours else "" for v in VARIANTS]
        rate = f"{flops / vendor_ms / 1e9:.4g}" if product["vendor_ms"] else ""
        rows.append((product["n"], product["type"], product["evaluated"], *rates, rate, *shares))
    shown = [*VARIANTS, "cuBLAS", *(f"{variant}, of cuBLAS" for variant in VARIANTS)]
    found = [
        f"- M = N = K = {product['n']}, {product['type']}, {variant}: "
        + ", ".join(f"{name}={value}" for name, value in entry["configuration"].items())
        + f" (error {entry['error']:.1e})"
        for product in document["products"]
        for variant, entry in product["kernels"].items()
    ]
    missing = document.get("vendor_missing")
    return [
        f"C = alpha A B + beta C on square matrices, TFlop/s; {document.get('vendor', 'cuBLAS')} on the same matrices. "
        "fp16 and bf16 are the types of A and B, with sums and C in fp32; in TF32 matrix units multiply what is fp32 "
        "rounded to eleven digits. cuBLAS uses matrix units for all but fp32. Medians of rounds in which the fastest "
        "configurations of each variant take turns with cuBLAS; each variant has had a search of its own.",
        "",
        *(f"- Target in {name}: {target:.0%} of cuBLAS{_verdict(document, name)}." for name, target in TARGETS.items()),
        *(["", f"Not compared: {missing}."] if missing else []),
        "",
        *table(("M = N = K", "type", "valid trials", *shown), rows),
        *found,
    ]


def _verdict(document: Mapping[str, Any], name: str) -> str:
    shares = {
        product["n"]: max(
            statistics.median(product["vendor_ms"]) / statistics.median(entry["times_ms"])
            for entry in product["kernels"].values()
        )
        for product in document["products"]
        if product["type"] == name and product["vendor_ms"] and product["kernels"]
    }
    said = [f"{verdict(document, is_met=share >= TARGETS[name])} at {n} ({share:.1%})" for n, share in shares.items()]
    return f": {', '.join(said)}" if said else ""


SECTION: Final = Section("gemm", "gemm against cuBLAS", measure, lines, begins)
