"""Speedups on GPUs that are estimated from counted operations, beside those that were measured and published.

    python benchmarks/estimates.py [--size smoke] [--output benchmarks/results/estimates.md]

Heldens & van Werkhoven 2026 name the largest speedup of some kernels at an error (Sec. V and VI). Of each, all choices
of types and functions run in an instrumented build, which gives their errors, and one more run counts operations. What
is compared is the estimated speed of the fastest choice within that error, relative to everything in fp64.
"""

from __future__ import annotations

import argparse
import itertools
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mptune.backends.processor import processor  # noqa: E402
from mptune.errors import ConstraintError  # noqa: E402
from mptune.measure.instrument import Instrument  # noqa: E402
from mptune.precision import COMPOUND  # noqa: E402
from mptune.results.estimates import estimates, metric_of  # noqa: E402
from mptune.source.loading import load_kernel  # noqa: E402
from mptune.space.configuration import Value  # noqa: E402

#: Kernel, GPU, log10 of the largest error, and the published speedup.
PUBLISHED: Final = (
    ("mriq", "a100", -1.9, 12.3),
    ("mriq", "mi250x", -5.9, 9.7),
    ("inverse_kinematics", "a100", -3.4, 4.4),
    ("inverse_kinematics", "mi250x", -3.4, 12.3),
    ("lavamd", "a100", -6.51, 3.5),
    ("lavamd", "a100", -7.0, 1.15),
    ("black_scholes", "a100", -3.68, 4.96),
)


def measured(name: str, size: str) -> Iterator[tuple[Mapping[str, Value], float, Mapping[str, float]]]:
    """Yield the choices of types and functions of a kernel, with error and estimates; everything in fp64 first."""
    kernel = load_kernel(name)
    sizes = kernel.resolve_sizes(size)
    counting = Instrument(kernel, sizes, is_counting=True)
    counts = counting.counts({})
    instrument = Instrument(kernel, sizes)
    offered = {
        p.name: [v for v in p.values if v not in COMPOUND]
        for p in kernel.parameters
        if p.name in kernel.signature_names
    }
    for values in itertools.product(*offered.values()):
        signature = dict(zip(offered, values, strict=True))
        try:
            error = instrument.errors(signature)["error"]
        except ConstraintError:
            continue
        yield signature, error, estimates(counts, signature)


def rows(size: str) -> Iterator[tuple[str, ...]]:
    """Yield a row for each published figure."""
    known = {name: list(measured(name, size)) for name in dict.fromkeys(name for name, *_ in PUBLISHED)}
    for name, gpu, decades, published in PUBLISHED:
        metric = metric_of(gpu)
        (_, _, widest), *_ = known[name]
        within = [(found[metric], error, types) for types, error, found in known[name] if error <= 10**decades]
        fastest, error, types = min(within, key=lambda each: each[:2])
        ratio = widest[metric] / fastest
        chosen = ", ".join(map(str, types.values()))
        yield (
            name,
            gpu,
            f"{decades:g}",
            f"{published:g}",
            f"{ratio:.2f}",
            f"{ratio / published:.2f}",
            f"{error:.1e}",
            chosen,
        )


def main() -> None:
    """Print the table, and write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", default="smoke", help="preset of the problem sizes")
    parser.add_argument("--output", type=Path, help="write the page to this file")
    given = parser.parse_args()
    head = ("kernel", "GPU", "log10 error", "published", "estimated", "ratio", "its error", "its types and functions")
    table = [head, ("---",) * len(head), *rows(given.size)]
    page = "\n".join(
        (
            "# Estimated speedups on GPUs beside published ones",
            "",
            f"Errors were measured and operations counted at size {given.size} on {processor().name}, by",
            f"`{shlex.join(['python', 'benchmarks/estimates.py', *sys.argv[1:]])}`.",
            "",
            *(f"| {' | '.join(cells)} |" for cells in table),
            "",
            "The estimate has no latencies, no caches and no instructions but arithmetic. The rates of 16-bit",
            "types are those of single numbers, half of what a GPU has for pairs; kernels of the paper use pairs,",
            "which may be why less is estimated where fp16 wins. AMD publishes no rates of conversions and functions:",
            "those of LLVM's scheduling model stand in for them.",
            "",
        )
    )
    print(page)
    if given.output is not None:
        given.output.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
