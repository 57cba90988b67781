"""The share of the device's copy bandwidth that axpy reaches in each precision.

All blocks and vector widths are tried with x, y and a of one type, as far as there is time. The fastest then take turns
with copies of as many bytes within the device, each round with both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from benchmarks.gpu_sections.searching import described
from benchmarks.gpu_sections.section import Options, Section, Source, table, verdict
from benchmarks.in_turn import Remeasured, measure_in_turn
from benchmarks.roofline import Roofline
from mptune.backends import get_backend
from mptune.backends.base import Backend
from mptune.kernel import Sizes
from mptune.measure.bench import Bench
from mptune.measure.timing import TimingPlan
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.space.search_space import SearchSpace
from mptune.tuning import device_constraints

__all__ = ["SECTION", "copy_bytes_per_s"]

TARGET: Final = 0.9
TYPES: Final = ("fp64", "fp32", "fp16", "bf16")
VISIT: Final = TimingPlan(warmups=1, min_repeats=5, max_repeats=15, relative_width=0.0, cap_s=0.05)
#: Seconds of copies from which on what it takes to wait for them does not show.
_LONG_S: Final = 0.05


def measure(options: Options, until: float) -> Iterator[dict[str, Any]]:
    """Measure every precision."""
    kernel = load_kernel("axpy")
    sizes = kernel.resolve_sizes(options.size or "paper")
    backend = get_backend(options.backend)
    space = kernel.search_space(sizes, device_constraints(kernel, backend.device.facts()))
    bench = Bench(kernel, sizes, backend, seed=options.seed)
    rows: list[dict[str, Any]] = []
    document = {"sizes": dict(sizes), "on_host": backend.shares_memory}
    try:
        for number, name in enumerate(TYPES):
            now = time.monotonic()
            if now >= until:
                break
            ends = now + (until - now) / (len(TYPES) - number)
            if row := _row(name, bench, backend, space, sizes, options, ends):
                rows.append(row)
                yield {**document, "rows": list(rows), "complete": False}
    finally:
        bench.close()
    complete = len(rows) == len(TYPES) and all(row["tried"] == row["configurations"] for row in rows)
    yield {**document, "rows": rows, "complete": complete}


def begins(options: Options, limits: Mapping[str, Any]) -> Iterator[Source]:
    """Yield all configurations of every precision."""
    kernel = load_kernel("axpy")
    sizes = kernel.resolve_sizes(options.size or "paper")
    space = kernel.search_space(sizes, device_constraints(kernel, limits))
    for name in TYPES:
        only = space.restrict({p: [name] for p in kernel.baseline_values()})
        yield from ((kernel, sizes, c) for c in only.configurations(np.arange(only.size)))


def _row(
    name: str, bench: Bench, backend: Backend, space: SearchSpace, sizes: Sizes, options: Options, until: float
) -> dict[str, Any] | None:
    """Return the figures of one precision; None if no configuration that was tried is valid."""
    kernel = bench.kernel
    only = space.restrict({p: [name] for p in kernel.baseline_values()})
    drawn = only.configurations(np.random.default_rng(options.seed).permutation(only.size))
    tried = 0
    measured: dict[Configuration, Remeasured] = {}
    for configuration in drawn:
        measured |= measure_in_turn(bench, [configuration], 1, VISIT)
        tried += 1
        if time.monotonic() >= until:
            break
    if not measured:
        return None
    finalists: dict[Configuration, list[float]] = {c: [] for c, _ in _sorted(measured)[: options.candidates]}
    traffic_bytes = kernel.work(next(iter(finalists)), sizes).traffic_bytes
    copies: list[float] = []
    for _ in range(options.rounds):
        copies.append(_bytes_per_s(backend, traffic_bytes))
        for configuration, remeasured in measure_in_turn(bench, finalists, 1, VISIT).items():
            finalists[configuration].append(remeasured.time_ms)
    best = min(finalists, key=lambda c: statistics.median(finalists[c]))
    rates = [traffic_bytes / time_ms * 1e3 for time_ms in finalists[best]]
    return {
        "type": name,
        "configuration": described(best),
        "tried": tried,
        "configurations": only.size,
        "traffic_bytes": traffic_bytes,
        "times_ms": finalists[best],
        "copies_bytes_per_s": copies,
        "share": statistics.median(rates) / statistics.median(copies),
    }


def _sorted(measured: Mapping[Configuration, Remeasured]) -> list[tuple[Configuration, Remeasured]]:
    return sorted(measured.items(), key=lambda entry: entry[1].time_ms)


def _bytes_per_s(backend: Backend, traffic_bytes: int) -> float:
    """Return the speed of copies of as much traffic; of the processor, that of a triad."""
    if backend.shares_memory:
        return Roofline(backend).bytes_per_s(traffic_bytes)
    return copy_bytes_per_s(backend, traffic_bytes // 2)


def copy_bytes_per_s(backend: Backend, nbytes: int) -> float:
    """Return the speed of a copy within the device, bytes read and written both counted.

    Copies follow on one another, and twice as many do: what it takes to start and to wait is in both.

    Args:
        backend: copies.
        nbytes: size of what is copied.
    """
    source, target = backend.device.allocate(nbytes), backend.device.allocate(nbytes)
    seen = np.empty(1, np.uint8)
    last = target.part(nbytes - 1, 1)

    def seconds(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            target.copy_from(source)
        last.read(seen)  # waits for the copies
        return time.perf_counter() - start

    try:
        source.fill(0)
        count = 1
        while seconds(count) < _LONG_S:
            count *= 2
        taken = statistics.median(seconds(2 * count) - seconds(count) for _ in range(5))
        return 2 * nbytes * count / taken
    finally:
        source.free()
        target.free()


def lines(document: Mapping[str, Any]) -> list[str]:
    """Render the section."""
    reference = "a triad of the same size" if document["on_host"] else "copies within the device of as many bytes"
    rows = [
        (
            row["type"],
            f"{statistics.median(row['times_ms']):.4g}",
            f"{row['traffic_bytes'] / statistics.median(row['times_ms']) / 1e6:.4g}",
            f"{statistics.median(row['copies_bytes_per_s']) / 1e9:.4g}",
            f"{row['share']:.1%}",
            verdict(document, is_met=row["share"] >= TARGET),
            f"block_size {row['configuration']['block_size']}, vector_width {row['configuration']['vector_width']}",
        )
        for row in document["rows"]
    ]
    return [
        f"y = a x + y on {document['sizes']['n']:,} elements, x, y and a in one type, against {reference}; medians of "
        f"rounds in which both take turns. Bytes are those that have to move: x and y read, y written. "
        f"Target {TARGET:.0%}.",
        "",
        *table(("type", "ms", "GB/s", "copy GB/s", "share", "target", "configuration"), rows),
    ]


SECTION: Final = Section("axpy", "axpy against copy bandwidth", measure, lines, begins)
