"""What it costs to check kernels as they are timed: processor time of an evaluation, beside that of another version.

Configurations of two bundled kernels are evaluated with the same number of launches and their binaries at hand, so that
what differs is what is done around the launches. Beside it stands what a compilation takes, once for every evaluation.

    python benchmarks/checking.py [--evaluations 12] [--kernels axpy convolution2d] [--before PYTHON] [--output FILE.md]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

OUTPUT: Final = Path(__file__).parent / "results" / "checking.md"
KERNELS: Final = ("axpy", "convolution2d")
_LAUNCHES: Final = 7
#: The first pass makes the data and warms up.
_PASSES: Final = 3


def measure(name: str, evaluations: int) -> dict[str, float]:
    """Return the processor time of an evaluation and of a compilation in milliseconds, the least of some passes."""
    from mptune.backends.host import HostBackend
    from mptune.measure.bench import Bench, Request
    from mptune.measure.timing import TimingPlan
    from mptune.source.loading import load_kernel
    from mptune.source.render import render
    from mptune.tuning import device_constraints

    kernel = load_kernel(name)
    sizes = kernel.resolve_sizes()
    plan = TimingPlan(min_repeats=_LAUNCHES, max_repeats=_LAUNCHES)
    bench = Bench(kernel, sizes, HostBackend(), plan=plan)
    space = kernel.search_space(sizes, device_constraints(kernel, bench.ready.facts))
    chosen = random.Random(0).sample(range(len(space)), evaluations)
    requests = [Request(c, render(kernel, c, sizes)) for c in map(space.configuration, chosen)]

    def processor_ms() -> float:
        mine, compilers = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return 1e3 * sum(usage.ru_utime + usage.ru_stime for usage in (mine, compilers))

    compiler = HostBackend().compiler
    start_ms = processor_ms()
    for request in requests:
        compiler.compile(request.source, kernel.function, bench.ready.options)
    # A compiler that stays for the next source is counted when it has ended.
    compiler.close()
    compile_ms = processor_ms() - start_ms
    passes = []
    for _ in range(_PASSES):
        start = time.process_time()
        statuses = [bench.evaluate(request).status for request in requests]
        passes.append(1e3 * (time.process_time() - start))
    if set(statuses) != {"ok"}:
        raise SystemExit(f"{name}: not every trial is ok: {sorted(set(statuses))}")
    bench.close()
    return {"evaluation": min(passes[1:]) / evaluations, "compilation": compile_ms / evaluations}


def report(found: dict[str, dict[str, dict[str, float]]], evaluations: int) -> str:
    """Return the results, by version and kernel, as a page."""
    from mptune.backends.processor import processor, usable_cores

    lines = [
        "# What checking costs",
        "",
        "    python benchmarks/checking.py",
        "",
        f"{processor().name}, {usable_cores()} cores; {datetime.now(UTC):%Y-%m-%d}. {evaluations} configurations of "
        f"each kernel at its default size, {_LAUNCHES} timed launches of each; processor time in milliseconds of an "
        "evaluation (data, launches, checks) whose binary is at hand, and of the compilation there is before it.",
        "",
        "| kernel | " + " | ".join(f"{version}: evaluation" for version in found) + " | compilation |",
        "|---|" + "--:|" * (len(found) + 1),
    ]
    for name in next(iter(found.values())):
        cells = [f"{by_name[name]['evaluation']:.1f}" for by_name in found.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {found['now'][name]['compilation']:.1f} |")
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every kernel in a process of its own and write the page."""
    parser = argparse.ArgumentParser(description="What it costs to check kernels as they are timed.")
    parser.add_argument("--evaluations", type=int, default=12)
    parser.add_argument("--kernels", nargs="+", metavar="KERNEL", default=list(KERNELS))
    parser.add_argument("--before", metavar="PYTHON", help="interpreter of the mptune to compare with")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--one", metavar="KERNEL", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        print(json.dumps(measure(given.one, given.evaluations)))
        return
    versions = {**({"before": given.before} if given.before else {}), "now": sys.executable}
    found: dict[str, dict[str, dict[str, float]]] = {version: {} for version in versions}
    for name in given.kernels:
        for version, python in versions.items():
            command = [python, __file__, "--one", name, "--evaluations", str(given.evaluations)]
            with tempfile.TemporaryDirectory() as folder:
                environment = {**os.environ, "MPTUNE_CACHE_DIR": folder}
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
            found[version][name] = json.loads(done.stdout)
            print(f"{name:16} {version:7} {found[version][name]}", file=sys.stderr, flush=True)
    text = report(found, given.evaluations)
    print(text)
    given.output.write_text(text)


if __name__ == "__main__":
    main()
