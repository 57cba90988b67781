"""gemm against cuBLAS, with and without the two optimisations of Lin 2025: double buffering and fine-grained prefetch.

For each size, each of the types and each setting of the two switches there is a search of its own in the space these
leave, as long for one setting as for another. It begins with the tiles that were fastest with other settings and at the
size before, and with tiles picked by hand. The fastest of each then take turns with cuBLAS, which gets the very same
matrices.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from benchmarks.gpu_sections.searching import described, evaluator_of, fastest, search
from benchmarks.gpu_sections.section import Options, Section, table
from benchmarks.gpu_sections.vendor import TYPES, Cublas
from mptune.buffers import DataManager
from mptune.errors import BackendUnavailableError
from mptune.evaluators.device import DeviceEvaluator
from mptune.kernel import Kernel, Sizes
from mptune.objective import Objective
from mptune.registry import load_kernel
from mptune.results import Trial
from mptune.space.configuration import Configuration
from mptune.tuner import device_constraints

__all__ = ["SECTION"]

TARGET: Final = 0.9
SWITCHES: Final = {
    "neither": (False, False),
    "double buffering": (True, False),
    "prefetch": (False, True),
    "both": (True, True),
}
#: What of a size's time goes into its searches.
SEARCHING: Final = 0.7
#: The searches in these types are so many times as long as others: fp32 is what has a target.
WEIGHTS: Final = {"fp32": 2.0}
#: Configurations of other settings that a search begins with.
RELATIVES: Final = 8
_TILE: Final = ("MWG", "NWG", "KWG", "MDIMC", "NDIMC", "MDIMA", "NDIMB", "VWM", "VWN")
#: Tiles as they are usual on GPUs; a configuration takes seconds to compile, so a search hardly comes upon such.
TILES: Final = (
    (128, 128, 16, 16, 16, 16, 16, 4, 4),
    (128, 128, 8, 16, 16, 32, 32, 4, 4),
    (128, 64, 16, 16, 16, 16, 16, 4, 2),
    (64, 64, 16, 16, 16, 16, 16, 2, 2),
    (64, 64, 16, 8, 8, 8, 8, 4, 4),
    (64, 64, 8, 8, 8, 8, 8, 4, 4),
)


def measure(options: Options, until: float) -> dict[str, Any]:
    """Measure every size."""
    kernel = load_kernel("gemm")
    sizes_of = [kernel.resolve_sizes("default", dict.fromkeys("MNK", n)) for n in options.matrices]
    products: list[dict[str, Any]] = []
    notes: dict[str, str] = {}
    earlier: Sequence[Trial] = ()
    for number, sizes in enumerate(sizes_of):
        now = time.monotonic()
        if now >= until:
            break
        ends = now + (until - now) / (len(sizes_of) - number)
        with evaluator_of(kernel, sizes, options) as evaluator:
            earlier = _search(evaluator, kernel, sizes, now + SEARCHING * (ends - now), options.seed, earlier)
            products += _products(evaluator, kernel, sizes, options, earlier, notes)
    expected = len(sizes_of) * len(TYPES) * len(SWITCHES)
    return {"products": products, **notes, "complete": sum(len(p["kernels"]) for p in products) == expected}


def _products(
    evaluator: DeviceEvaluator,
    kernel: Kernel,
    sizes: Sizes,
    options: Options,
    found: Sequence[Trial],
    notes: dict[str, str],
) -> Iterator[dict[str, Any]]:
    """Measure the fastest that were found at one size again; yield the products, one for each of the types."""
    data = DataManager(kernel, sizes, seed=options.seed)
    for name in TYPES:
        finalists = {
            variant: fastest(found, {**_types(name), **_switches(variant)}, math.inf, options.candidates)
            for variant in SWITCHES
        }
        yield {
            "n": sizes.N,
            "type": name,
            **_in_turn(evaluator, data, name, finalists, options, notes),
            "evaluated": len(fastest(found, _types(name), math.inf, len(found))),
        }


def _search(
    evaluator: DeviceEvaluator, kernel: Kernel, sizes: Sizes, until: float, seed: int, earlier: Sequence[Trial]
) -> Sequence[Trial]:
    """Return the trials of one search for each of the types and switches; each has its share of the time.

    ``earlier`` are those of another size.
    """
    ready = evaluator.start()
    space = kernel.search_space(sizes, device_constraints(kernel, ready.constraints))
    known: dict[Configuration, Trial] = {}
    wanted = list(itertools.product(TYPES, SWITCHES))
    weights = [WEIGHTS.get(name, 1.0) for name, _ in wanted]
    for number, (name, variant) in enumerate(wanted):
        now = time.monotonic()
        ends = now + (until - now) * weights[number] / math.fsum(weights[number:])
        part = space.restrict({**_types(name), **_switches(variant)})
        best = [
            trial
            for trials in (known.values(), earlier)
            for trial in fastest(trials, _types(name), math.inf, RELATIVES)
        ]
        first = [_switched(kernel, trial.configuration, variant) for trial in best] + tiles(kernel, name, variant)
        search(evaluator, kernel, part, Objective(), known, ends, seed, first)
    return tuple(known.values())


def tiles(kernel: Kernel, name: str, variant: str) -> list[Configuration]:
    """Return the tiles picked by hand in some types, with the switches of a variant; not all need be valid."""
    fixed = {parameter: value for parameter, (value,) in {**_types(name), **_switches(variant)}.items()}
    known = {parameter.name: parameter.values for parameter in kernel.parameters}
    picked = [{**dict(zip(_TILE, tile, strict=True)), "STRM": True, "STRN": True, **fixed} for tile in TILES]
    return [kernel.configuration(each) for each in picked if all(value in known[name] for name, value in each.items())]


def _switched(kernel: Kernel, configuration: Configuration, variant: str) -> Configuration:
    """Return a configuration with other switches."""
    return kernel.configuration({**configuration, **{name: value for name, (value,) in _switches(variant).items()}})


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
                vendor.multiply()
                vendor_ms.append(statistics.median(vendor.multiply() for _ in range(9)))
                error = vendor.error()
            for trial in evaluator.remeasure(trials, 1).trials:
                if trial.is_valid:
                    times[trial.configuration].append(trial.time_ms)
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
        return None


def _types(name: str) -> dict[str, list[Any]]:
    inputs, result = TYPES[name]
    return {"a_type": [inputs], "b_type": [inputs], "accumulator_type": [result], "c_type": [result]}


def _switches(variant: str) -> dict[str, list[Any]]:
    double_buffer, fine_prefetch = SWITCHES[variant]
    return {"double_buffer": [double_buffer], "fine_prefetch": [fine_prefetch]}


def lines(document: Mapping[str, Any]) -> list[str]:
    """Render the section."""
    rows = []
    for product in document["products"]:
        flops = 2.0 * product["n"] ** 3
        vendor_ms = statistics.median(product["vendor_ms"]) if product["vendor_ms"] else math.nan
        ours = {variant: statistics.median(entry["times_ms"]) for variant, entry in product["kernels"].items()}
        shares = [f"{vendor_ms / ours[v]:.1%}" if v in ours and product["vendor_ms"] else "" for v in SWITCHES]
        rates = [f"{flops / ours[v] / 1e9:.4g}" if v in ours else "" for v in SWITCHES]
        rate = f"{flops / vendor_ms / 1e9:.4g}" if product["vendor_ms"] else ""
        rows.append((product["n"], product["type"], product["evaluated"], *rates, rate, *shares))
    shown = [*SWITCHES, "cuBLAS", *(f"{variant}, of cuBLAS" for variant in SWITCHES)]
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
        "fp16 is the type of A and B, with sums and C in fp32, for which cuBLAS uses tensor cores and this kernel does "
        "not. Medians of rounds in which the fastest configurations of each variant take turns with cuBLAS; each "
        f"variant has had a search of its own. Target: {TARGET:.0%} of cuBLAS in fp32"
        + (f": {_verdict(document)}." if any(p["vendor_ms"] for p in document["products"]) else "."),
        *(["", f"Not compared: {missing}."] if missing else []),
        "",
        *table(("M = N = K", "type", "valid trials", *shown), rows),
        *found,
    ]


def _verdict(document: Mapping[str, Any]) -> str:
    shares = {
        product["n"]: max(
            statistics.median(product["vendor_ms"]) / statistics.median(entry["times_ms"])
            for entry in product["kernels"].values()
        )
        for product in document["products"]
        if product["type"] == "fp32" and product["vendor_ms"] and product["kernels"]
    }
    return ", ".join(f"{'met' if share >= TARGET else 'missed'} at {n} ({share:.1%})" for n, share in shares.items())


SECTION: Final = Section("gemm", "gemm against cuBLAS", measure, lines)
