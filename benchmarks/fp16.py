"""How much faster fp16 is than fp32 on this processor: the fastest of some configurations of compute-bound kernels.

    python benchmarks/fp16.py [--configurations 14] [--output FILE.md]

Policies, where a kernel has them, are the fastest of each type: `fast` in fp32, `approx` in fp16. The other parameters
are drawn at random, the same for both types; a time is that of the shortest launch.
"""

from __future__ import annotations

import argparse
import random
import shlex
import sys
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mptune.backends.host import HostBackend  # noqa: E402
from mptune.backends.host_compiler import find_compiler  # noqa: E402
from mptune.backends.processor import processor, usable_cores  # noqa: E402
from mptune.measure.bench import Bench, Request  # noqa: E402
from mptune.source.loading import load_kernel  # noqa: E402
from mptune.source.render import render  # noqa: E402
from mptune.space.configuration import Configuration, Value  # noqa: E402

SIZES: Final = {
    "bessel": "default",
    "kmeans": "default",
    "coulombic": "smoke",
    "mriq": "smoke",
    "newton_raphson": "smoke",
    "black_scholes": "smoke",
    "inverse_kinematics": "smoke",
}
POLICIES: Final = {"fp32": "fast", "fp16": "approx"}


def shortest_ms(name: str, size: str, configurations: int) -> dict[str, float]:
    """Return the shortest launch of the fastest configuration in milliseconds, by type."""
    kernel = load_kernel(name)
    sizes = kernel.resolve_sizes(size)
    space = kernel.search_space(sizes)
    bench = Bench(kernel, sizes, HostBackend())
    drawn = random.Random(0).sample(range(space.size), min(20 * configurations, space.size))
    found: dict[str, float] = {}
    for precision, policy in POLICIES.items():
        types: dict[str, Value] = {p.name: precision for p in kernel.parameters if p.kind == "precision"}
        types |= {p.name: policy for p in kernel.parameters if p.kind == "policy"}
        typed = dict.fromkeys(Configuration({**c, **types}) for c in space.configurations(drawn))
        measured = [c for c in typed if c in space][:configurations]
        trials = [bench.evaluate(Request(c, render(kernel, c, sizes))) for c in measured]
        found[precision] = min(min(trial.measurement.times_ms) for trial in trials if trial.measurement.times_ms)
    bench.close()
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configurations", type=int, default=14)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    command = shlex.join(["python", "benchmarks/fp16.py", *(sys.argv[1:] if arguments is None else arguments)])
    lines = [
        "# fp16 beside fp32",
        "",
        f"Machine: {processor().name} ({processor().architecture}), {usable_cores()} cores, {find_compiler().version}. "
        f"Command: `{command}`.",
        "",
        "| kernel | size | fp32, ms | fp16, ms | fp32 / fp16 |",
        "|---|---|--:|--:|--:|",
    ]
    for name, size in SIZES.items():
        ms = shortest_ms(name, size, options.configurations)
        lines.append(f"| {name} | {size} | {ms['fp32']:.3f} | {ms['fp16']:.3f} | {ms['fp32'] / ms['fp16']:.2f} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if options.output is not None:
        options.output.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
