"""How fast and how small search spaces are built, beside Kernel Tuner in the same process.

For each T1 file: the time from parameters and constraint texts to a space that can be counted, sampled and searched,
the memory allocated on the way and kept afterwards (both by ``tracemalloc``), and whether both tools find the same
set of configurations. Then a space of 10^11 combinations, which only mptune builds.

    python benchmarks/space_construction.py [--spaces ../shared/spaces] [--repeats 5] [--alone]
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mptune.errors import MptuneError
from mptune.interop.t4 import read_t1
from mptune.space.configuration import Value
from mptune.space.parameters import IntegerParameter, Parameter
from mptune.space.search_space import SearchSpace

DEFAULT_SPACES = Path(__file__).resolve().parents[1].parent / "shared" / "spaces"
INSTALL = "Kernel Tuner is not installed: pip install kernel-tuner (or --alone to measure mptune alone)"
MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class Cost:
    """What one construction costs: median time, memory at most and memory kept."""

    time_s: float
    peak_bytes: int
    kept_bytes: int


def measure(build: Callable[[], Any], repeats: int) -> Cost:
    """Return the cost of a construction; time and memory are taken in separate runs, tracing slows down."""
    build()
    times = []
    for _ in range(repeats):
        gc.collect()
        start = time.perf_counter()
        build()
        times.append(time.perf_counter() - start)
    gc.collect()
    tracemalloc.start()
    space = build()
    _, peak = tracemalloc.get_traced_memory()
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del space
    return Cost(statistics.median(times), peak, kept)


def tuples_of(space: SearchSpace) -> set[tuple[Value, ...]]:
    """Return every configuration of a space as a tuple of values, in the order of its parameters."""
    codes = space.codes(np.arange(space.size))
    columns = [
        [p.values[code] for code in column.tolist()] for p, column in zip(space.parameters, codes.T, strict=True)
    ]
    return set(zip(*columns, strict=True))


def kernel_tuner_builder(parameters: Sequence[Parameter], constraints: Sequence[str]) -> Callable[[], Any]:
    """Return a function that builds the same space with Kernel Tuner; its block-size limit is set out of the way."""
    from kernel_tuner.searchspace import Searchspace

    def build() -> Any:
        return Searchspace({p.name: list(p.values) for p in parameters}, list(constraints), max_threads=2**31)

    return build


def compare(path: Path, repeats: int, alone: bool) -> bool:
    """Measure one T1 file and print a row; return whether both tools agree on the configurations."""
    read = read_t1(path)
    texts = [constraint.text for constraint in read.constraints]
    ours = measure(lambda: SearchSpace(read.parameters, texts), repeats)
    row = f"{path.stem:20s} {read.cartesian_size:>12,} {read.size:>10,} {_shown(ours)}"
    if alone:
        print(row)
        return True
    build = kernel_tuner_builder(read.parameters, texts)
    theirs = measure(build, repeats)
    found = {tuple(entry) for entry in build().list}
    same = found == tuples_of(read)
    print(
        f"{row}   {_shown(theirs)}   {theirs.time_s / ours.time_s:>7.1f} {theirs.peak_bytes / ours.peak_bytes:>7.1f} "
        f"{theirs.kept_bytes / ours.kept_bytes:>7.1f}   {'yes' if same else f'NO ({len(found):,} there)'}"
    )
    return same


def _shown(cost: Cost) -> str:
    return f"{cost.time_s * 1e3:>8.1f} {cost.peak_bytes / MEBIBYTE:>8.2f} {cost.kept_bytes / MEBIBYTE:>8.3f}"


def tiled() -> SearchSpace:
    """Return three groups of dependent tile sizes: more than 10^11 combinations, more than 10^8 of them valid."""
    parameters = [IntegerParameter(f"{axis}_{level}", 1, 17) for axis in "mnk" for level in ("block", "warp", "thread")]
    constraints = [f"{a}_block % {a}_warp == 0 and {a}_block * {a}_warp * {a}_thread <= 1024" for a in "mnk"]
    return SearchSpace(parameters, constraints)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when every set of configurations agrees, 1 when one does not, 2 for wrong input."""
    parser = argparse.ArgumentParser(description="Time and memory of search-space construction.")
    parser.add_argument("--spaces", type=Path, default=DEFAULT_SPACES, help="folder that holds t1/*.json")
    parser.add_argument("--repeats", type=int, default=5, help="timed constructions of each space; the median counts")
    parser.add_argument("--alone", action="store_true", help="measure mptune without Kernel Tuner")
    given = parser.parse_args(arguments)
    files = sorted((given.spaces / "t1").glob("*.json"))
    if not files:
        print(f"no T1 files in {given.spaces / 't1'}: give the folder with --spaces", file=sys.stderr)
        return 2
    if given.repeats < 1:
        print(f"--repeats needs at least 1, not {given.repeats}", file=sys.stderr)
        return 2
    if not given.alone:
        try:
            import kernel_tuner.searchspace  # noqa: F401
        except ImportError:
            print(INSTALL, file=sys.stderr)
            return 2
    columns = f"{'time/ms':>8s} {'peak/MiB':>8s} {'kept/MiB':>8s}"
    print(f"{'':44s} {'mptune':^26s}" + ("" if given.alone else f"   {'Kernel Tuner':^26s}   {'times better':^23s}"))
    print(
        f"{'space':20s} {'combinations':>12s} {'valid':>10s} {columns}"
        + ("" if given.alone else f"   {columns}   {'time':>7s} {'peak':>7s} {'kept':>7s}   same set")
    )
    try:
        agree = [compare(path, given.repeats, given.alone) for path in files]
    except (MptuneError, json.JSONDecodeError) as error:
        print(error, file=sys.stderr)
        return 2
    space, cost = tiled(), measure(tiled, given.repeats)
    print(f"{'three tile groups':20s} {space.cartesian_size:>12.3g} {space.size:>10,} {_shown(cost)}")
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main())
