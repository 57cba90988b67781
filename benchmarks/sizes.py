"""Wisdom at sizes that were never tuned: its speed relative to tuning at each size, and violations of error limits.

    python benchmarks/sizes.py [--kernels NAME,...] [--budget 60] [--unseen 20] [--draws 40] [--quick] [--resume]
    python benchmarks/sizes.py --errors [--kernels NAME,...] [--types 8] [--draws 40] [--resume]

Each kernel is tuned for five sizes together, with five times the budget, and wisdom is gathered from the runs. At
each of 20 other sizes, between them and up to a factor of two beyond, wisdom chooses a configuration, and the kernel
is tuned there as well. Four configurations are timed in turn: the choice, the winner of that size, the fp64 baseline
(used at such sizes without wisdom), and the winner of the middle size. The choice also runs on fresh draws of the
inputs. The header emitted from the wisdom is compiled, and its choice is timed. ``--quick`` only checks in a few
minutes that the benchmark works.

``--errors`` measures errors alone, of all bundled kernels: how many fresh draws exceed the limit predicted from other
sizes (:mod:`benchmarks.size_errors`).

Results are saved beside the page as JSON after each size, and the runs in a folder beside it; ``--resume`` continues
from there.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from benchmarks import size_errors  # noqa: E402
from benchmarks.unseen import times_of  # noqa: E402
from mptune.backends.processor import processor, usable_cores  # noqa: E402
from mptune.data import Draw, Stream  # noqa: E402
from mptune.emit import emit_dispatch  # noqa: E402
from mptune.kernel import Kernel  # noqa: E402
from mptune.measure.device import DeviceEvaluator  # noqa: E402
from mptune.results.trial import Status  # noqa: E402
from mptune.run import Run  # noqa: E402
from mptune.source.loading import load_kernel  # noqa: E402
from mptune.space.configuration import Configuration  # noqa: E402
from mptune.tuning import tune, tune_sizes  # noqa: E402
from mptune.tuning.sizes import label_of  # noqa: E402
from mptune.wisdom import BySize, Wisdom, gather, read_sources  # noqa: E402

#: By kernel, the sizes that are varied together, their smallest and largest tuned values, and the error limit.
KERNELS: Final[Mapping[str, tuple[tuple[str, ...], int, int, float]]] = {
    "axpy": (("n",), 20_000, 2_000_000, 1e-4),
    "gemm": (("M", "N", "K"), 64, 512, 1e-4),
    "convolution2d": (("width", "height"), 96, 768, 1e-4),
    "coulombic": (("charges",), 100, 1600, 1e-4),
}
TARGETS: Final = {"mean": 0.95, "least": 0.85, "selection_ns": 1000}
WAYS: Final = ("own", "wisdom", "one", "fp64")
_TUNED: Final = 5
#: Evaluations, unseen sizes and draws of ``--quick``.
_QUICK: Final = (6, 2, 5)
#: Seed of the fresh draws, which no run has.
_FRESH: Final = 1_000_003


def ladder(names: Sequence[str], low: int, high: int, count: int) -> list[dict[str, int]]:
    """Return sizes in geometric steps, all names with the same value."""
    return [dict.fromkeys(names, round(value)) for value in np.geomspace(low, high, count)]


def unseen_sizes(names: Sequence[str], low: int, high: int, count: int) -> list[dict[str, int]]:
    """Return sizes from half the smallest tuned one to twice the largest, none of which is tuned."""
    tuned = ladder(names, low, high, _TUNED)
    return [sizes for sizes in ladder(names, low // 2, 2 * high, count) if sizes not in tuned]


def tuned_at(
    kernel: Kernel, sizes: Mapping[str, int], limit: float, budget: int, seed: int, folder: Path | None = None
) -> Run:
    path = None if folder is None else folder / f"{kernel.name}-own-{label_of(sizes)}.db"
    return tune(
        kernel,
        backend="host",
        sizes=sizes,
        max_error=limit,
        budget=budget,
        seed=seed,
        output=path,
        resume=path is not None and path.exists(),
        on_warning=lambda _: None,
    )


def tuned_together(
    kernel: Kernel,
    together: Sequence[Mapping[str, int]],
    limit: float,
    budget: int,
    seed: int,
    folder: Path | None = None,
) -> list[Run]:
    """Return the runs of several sizes, which share a budget of so many evaluations each."""
    return tune_sizes(
        kernel,
        {name: [sizes[name] for sizes in together] for name in together[0]},
        backend="host",
        max_error=limit,
        budget=budget * len(together),
        seed=seed,
        output=None if folder is None else folder / f"{kernel.name}.db",
        resume=folder is not None,
        on_warning=lambda _: None,
    )


def selection_ns(wisdom: Wisdom, kernel: Kernel, sizes: Sequence[Mapping[str, int]]) -> float | None:
    """Return the longest time in ns that the emitted header takes to choose; None without a compiler."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None
    name = f"tuned_{kernel.name}"
    values = ",\n".join(f"{{{', '.join(str(each[size]) for size in kernel.sizes['default'])}}}" for each in sizes)
    with tempfile.TemporaryDirectory(prefix="mptune-") as folder:
        written = emit_dispatch(wisdom, folder, kernel=kernel)
        # Only the choice is timed, so the variants are stubs.
        stubs = "\n".join(
            f'extern "C" long long {file[:-3]}(void**, const unsigned*, unsigned, const void* const*) {{ return 0; }}'
            for file in written.files
            if file.endswith(".cu")
        )
        (Path(folder) / "time.cpp").write_text(_TIMED.format(name=name, stubs=stubs, values=values))
        program = Path(folder) / "time"
        subprocess.run(
            [compiler, "-std=c++17", "-O2", "time.cpp", "-o", program], cwd=folder, check=True, capture_output=True
        )
        return float(subprocess.run([program], check=True, capture_output=True, text=True).stdout)


_TIMED: Final = """
#include "{name}.hpp"
#include <chrono>
#include <cstdio>
{stubs}
int main() {{
    const {name}::Sizes all[] = {{ {values} }};
    double longest = 0;
    unsigned long sum = 0;
    for (const auto& sizes : all) {{
        double least = 1e9;
        for (int turn = 0; turn < 200; ++turn) {{
            const auto start = std::chrono::steady_clock::now();
            for (int i = 0; i < 100; ++i) {{
                const auto* variant = {name}::dispatch({name}::devices[0], sizes);
                sum += variant ? variant->number : 1;
            }}
            const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
            if (took.count() / 100 < least) least = took.count() / 100;
        }}
        if (least > longest) longest = least;
    }}
    std::printf("%g", sum + 1 ? longest : 0);
}}
"""


def compared(kernel: Kernel, wisdom: BySize, one: Configuration | None, own: Run, draws: int) -> dict[str, Any]:
    """Return the times of the winner, wisdom's choice, the winner of the middle size and fp64, and violations."""
    sizes = own.info.sizes
    choice = wisdom.choose(sizes)
    winner, baseline = own.best, own.baseline
    found = {
        "own": None if winner is None else winner.configuration,
        "wisdom": choice.configuration,
        "one": one,
        "fp64": None if baseline is None else baseline.configuration,
    }
    configurations = [*dict.fromkeys(each for each in found.values() if each is not None)]
    limits = own.info.objective.limits
    with DeviceEvaluator(kernel, kernel.resolve_sizes("default", sizes), "host", seed=_FRESH) as evaluator:
        trials = evaluator.run_on_draws([choice.configuration], [Draw(Stream.UNSEEN, i) for i in range(draws)]).trials
        times = times_of(evaluator, configurations)
    broken = sum(
        trial.status is not Status.OK or any(not trial.metric(name) <= limit for name, limit in limits.items())
        for trial in trials
    )
    return {
        "sizes": dict(sizes),
        "why": choice.why,
        "times_ms": {way: times.get(each) for way, each in found.items() if each is not None},
        "draws": len(trials),
        "violations": broken,
    }


def speeds(entries: Sequence[Mapping[str, Any]], way: str) -> list[float]:
    """Return the speeds of a way relative to tuning at each size, where both are known."""
    times = [entry["times_ms"] for entry in entries]
    return [each["own"] / each[way] for each in times if (each.get("own") or 0) > 0 and (each.get(way) or 0) > 0]


def markdown(document: Mapping[str, Any]) -> str:
    """Return the results as a page."""
    lines = [
        "# Sizes that were never tuned",
        "",
        f"Machine: {document['machine']}. Command: `{document['command']}`.",
        "",
    ]
    lines += [
        f"Budget {document['budget']} at each size. Speeds are relative to tuning at the size: geometric mean and "
        f"least over the unseen sizes. Targets for wisdom: mean ≥ {TARGETS['mean']:g}, least ≥ {TARGETS['least']:g}, "
        "no violation.",
        "",
        "| kernel | unseen sizes | wisdom, mean | least | one size, mean | least | fp64, mean | least | violations |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    every = [entry for kernel in document["kernels"].values() for entry in kernel]
    groups = {**document["kernels"], "all": every} if len(document["kernels"]) > 1 else document["kernels"]
    for name, entries in groups.items():
        cells = [_cells(speeds(entries, way)) for way in WAYS[1:]]
        broken, draws = (sum(entry[what] for entry in entries) for what in ("violations", "draws"))
        lines.append(f"| {name} | {len(entries)} | {' | '.join(cells)} | {broken:,} of {draws:,} draws |")
    lines += _selection(document)
    lines += ["", "| kernel | sizes | wisdom | one size | fp64 | violations | why |", "|---|---|---|---|---|---|---|"]
    for name, entries in document["kernels"].items():
        for entry in entries:
            shown = [speeds([entry], way) for way in WAYS[1:]]
            cells = [f"{found[0]:.2f}" if found else "-" for found in shown]
            sizes = ", ".join(f"{size}={value}" for size, value in entry["sizes"].items())
            lines.append(f"| {name} | {sizes} | {' | '.join(cells)} | {entry['violations']} | {entry['why']} |")
    return "\n".join([*lines, ""])


def _selection(document: Mapping[str, Any]) -> list[str]:
    """Return lines on the time of the choice, and on the gain of tuning gemm by size over one size."""
    found = {name: ns for name, ns in document.get("selection_ns", {}).items() if ns is not None}
    lines = []
    if found:
        each = ", ".join(f"{name} {ns:.0f} ns" for name, ns in found.items())
        lines += [
            "",
            f"The emitted `dispatch(device, sizes)` chooses in at most (target {TARGETS['selection_ns']} ns): {each}.",
        ]
    gains = [1 / speed for speed in speeds(document["kernels"].get("gemm", ()), "one")]
    if gains:
        lines += [
            "",
            f"Lin 2025, Fig. 15: gemm tuned for its size is {statistics.geometric_mean(gains):.2f} times as fast as "
            f"the header of one size in the geometric mean, and up to {max(gains):.2f} times.",
        ]
    return lines


def _cells(found: Sequence[float]) -> str:
    return f"{statistics.geometric_mean(found):.3f} | {min(found):.2f}" if found else "- | -"


def main() -> None:
    """Run the benchmark and write its page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default="")
    parser.add_argument("--budget", type=int, default=60)
    parser.add_argument("--unseen", type=int, default=20)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "sizes.md")
    parser.add_argument("--quick", action="store_true", help="few evaluations at few sizes")
    parser.add_argument("--errors", action="store_true", help="measure errors alone, of all bundled kernels")
    parser.add_argument("--types", type=int, default=8, help="choices of types with --errors")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    if options.errors:
        errors_at_sizes(options)
        return
    if options.quick:
        options.budget, options.unseen, options.draws = _QUICK
    options.kernels = options.kernels or ",".join(KERNELS)
    kept = options.output.with_suffix(".json")
    document: dict[str, Any] = {
        "machine": f"{processor().name}, {usable_cores()} cores",
        "command": shlex.join(["python", "benchmarks/sizes.py", *sys.argv[1:]]),
        "budget": options.budget,
        "kernels": {},
        "selection_ns": {},
    }
    folder = options.output.with_suffix(".runs")
    if not options.resume:
        shutil.rmtree(folder, ignore_errors=True)
    elif kept.exists():
        document |= {name: json.loads(kept.read_text())[name] for name in ("kernels", "selection_ns")}
    for name in options.kernels.split(","):
        names, low, high, limit = KERNELS[name]
        kernel = load_kernel(name)
        entries = document["kernels"].setdefault(name, [])
        asked = [{**kernel.sizes["default"], **sizes} for sizes in unseen_sizes(names, low, high, options.unseen)]
        left = [sizes for sizes in asked if sizes not in [entry["sizes"] for entry in entries]]
        if not left:
            continue
        runs = tuned_together(kernel, ladder(names, low, high, _TUNED), limit, options.budget, options.seed, folder)
        gathered = gather(read_sources(runs))
        document["selection_ns"][name] = selection_ns(gathered, kernel, [*asked, *(run.info.sizes for run in runs)])
        wisdom = BySize(gathered, kernel, "host")
        middle = runs[_TUNED // 2].best
        for sizes in left:
            start = time.perf_counter()
            own = tuned_at(kernel, sizes, limit, options.budget, options.seed, folder)
            entries.append(compared(kernel, wisdom, middle.configuration if middle else None, own, options.draws))
            kept.write_text(json.dumps(document, indent=1) + "\n")
            print(f"{name} {sizes}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    page = markdown(document)
    options.output.write_text(page)
    print(page)


def errors_at_sizes(options: argparse.Namespace) -> None:
    """Measure errors at several sizes, and write how often they exceed the limit predicted from the others."""
    page = options.output.with_name("size_errors.md")
    kept = page.with_suffix(".json")
    found: dict[str, Any] = json.loads(kept.read_text()) if options.resume and kept.exists() else {}
    for name in options.kernels.split(",") if options.kernels else size_errors.LADDERS:
        if name not in found:
            start = time.perf_counter()
            found[name] = size_errors.measured(load_kernel(name), options.types, options.draws, options.seed)
            kept.write_text(json.dumps(found) + "\n")
            print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    command = shlex.join(["python", "benchmarks/sizes.py", *sys.argv[1:]])
    text = size_errors.markdown(found, f"{processor().name}, {usable_cores()} cores", command)
    page.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
