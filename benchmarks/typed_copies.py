"""Whether typed copies of inputs are worth keeping on disk: converting them, against saving and loading the copies.

    python benchmarks/typed_copies.py [--count 120000000] [--folder FOLDER]

Prints milliseconds for each type, the fastest of three: converted from fp64 by all cores as trials have it, saved (and
written out), loaded from memory that the system still has of the file, and from the disk. The default is the number of
elements that axpy has in benchmarks/gpu.py; that of gemm at 4096 is 16777216.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mptune.data.conversion import convert
from mptune.precision import precision

TYPES = ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2")


def nothing() -> None:
    """Do nothing."""


def fastest_ms(function: Callable[[], Any], before: Callable[[], None] = nothing) -> float:
    """Return the least time of three calls."""
    taken = []
    for _ in range(3):
        before()
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return 1e3 * min(taken)


def main() -> None:
    """Measure every type and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=120_000_000, help="elements [120000000]")
    parser.add_argument("--folder", type=Path, help="on the disk to measure [the system's for temporary files]")
    given = parser.parse_args()
    values = np.random.default_rng(0).uniform(-1.0, 1.0, given.count)
    print(f"{given.count:,} elements, {len(os.sched_getaffinity(0))} cores; milliseconds")
    print(f"{'type':10}{'convert':>10}{'save':>10}{'load':>10}{'from disk':>12}")
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / "copy.npy"

        def save(octets: Any) -> None:
            with path.open("wb") as file:
                np.save(file, octets)
                file.flush()
                os.fsync(file.fileno())

        def forget() -> None:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

        for name in TYPES:
            to = precision(name)
            converted = fastest_ms(partial(convert, values, to))
            copy = convert(values, to)[0]
            octets = copy.view(f"u{copy.itemsize}")
            saved = fastest_ms(partial(save, octets))
            loaded, cold = fastest_ms(lambda: np.load(path)), fastest_ms(lambda: np.load(path), forget)
            print(f"{name:10}{converted:10.0f}{saved:10.0f}{loaded:10.0f}{cold:12.0f}", flush=True)


if __name__ == "__main__":
    main()
