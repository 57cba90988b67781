"""How far a printed speedup can be trusted: on a quiet machine, and beside a load on every core that this makes.

    python benchmarks/timing_quality.py [PART...] [--pairs 200] [--seeds 10] [--output FILE.md] [--json]

Parts, each of less than a quarter of an hour on two cores; by default all of them:

- statistics: which statistic of launch times and which interval hold on synthetic noise (half a minute).
- aa-quiet, aa-busy: identical machine code twice, measured as finalists are. How often does the 95% interval of
  their ratio hold 1?
- demo-quiet: the demo (``make demo``) with ten seeds. How far apart are the speedups it prints?
- runs-busy: the demo with ten seeds, and two runs that are hard to time with five each, beside a load on every core.
  Does each name a winner, not slower than the baseline printed with it, whose error is below the threshold?

What a part finds is kept beside the page, in JSON, and the page shows all parts that have been run. The quiet parts are
to be run on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import bench  # noqa: E402
from benchmarks import noise as noise_module  # noqa: E402
from benchmarks.noise import NOISES, turns  # noqa: E402
from mptune.backends.processor import usable_cores  # noqa: E402
from mptune.errors import MptuneError  # noqa: E402
from mptune.kernel import Kernel  # noqa: E402
from mptune.measure.device import DeviceEvaluator  # noqa: E402
from mptune.measure.rounds import Turns  # noqa: E402
from mptune.results.speedup import Finals, Ratio  # noqa: E402
from mptune.source.loading import load_kernel  # noqa: E402
from mptune.space.configuration import Configuration  # noqa: E402
from mptune.space.parameters import OrdinalParameter  # noqa: E402
from mptune.tuning.finals import rounds_for_interval  # noqa: E402

#: Runs by name: the arguments of ``tune``, and how many seeds of ten are run beside a load.
RUNS: Final = {
    "demo": (("convolution2d", "--max-error", "1e-4", "--budget", "60"), 10),
    "axpy": (("axpy", "--budget", "20"), 5),
    "bbac": (("bbac", "--size", "smoke", "--max-error", "0.05", "--budget", "40"), 5),
}
#: Kernels and sizes of the A/A pairs: bound by arithmetic, by memory, and by the time a launch takes to start.
KERNELS: Final = (("convolution2d", "default"), ("axpy", "default"), ("gemm", "smoke"), ("axpy", "smoke"))
#: So many configurations are drawn, and the fastest of them measured: finalists are fast.
DRAWN, CONFIGURATIONS = 16, 5
#: Rounds before those that count, as the race of the finals takes, and the most that count.
FIRST_ROUNDS, MOST_ROUNDS = 6, 15
LEAST_COVERAGE, MOST_DEVIATION = 0.93, 0.07
REPETITIONS: Final = 400

_SPIN: Final = "while True: pass"
_STREAM: Final = "a = bytearray(1 << 26)\nwhile True: b = bytes(a)"


@contextlib.contextmanager
def load_on_every_core() -> Iterator[None]:
    """Run a task for each core: some compute, some move memory."""
    tasks = [
        subprocess.Popen([sys.executable, "-c", _SPIN if core % 2 == 0 else _STREAM]) for core in range(usable_cores())
    ]
    try:
        time.sleep(1.0)
        yield
    finally:
        for task in tasks:
            task.kill()
            task.wait()


# -- synthetic noise -------------------------------------------------------------------------------


def statistics_part(given: argparse.Namespace) -> dict[str, Any]:  # noqa: ARG001
    """Return, by noise and statistic of a turn, how often the interval holds the ratio, and how wide it is."""
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for noise in NOISES:
        for name, of_turn in (("shortest", np.min), ("median", np.median)):
            held, widths = 0, []
            for _ in range(REPETITIONS):
                first, second = of_turn(turns(noise, (1.2, 1.0), 15, 5, rng), axis=-1)
                ratio = Ratio.of((first / second).tolist())
                held += ratio.low <= 1.2 <= ratio.high
                widths.append((ratio.high - ratio.low) / ratio.value / 2)
            found.setdefault(noise, {})[name] = {
                "coverage": held / REPETITIONS,
                "half_width": statistics.median(widths),
            }
    return found


# -- identical code --------------------------------------------------------------------------------


def twice(kernel: Kernel) -> Kernel:
    """Return a kernel with a parameter that changes nothing, so that its code comes twice."""
    return dataclasses.replace(kernel, parameters=(*kernel.parameters, OrdinalParameter("copy", [1, 2])))


def pairs_of(name: str, size: str, count: int) -> Iterator[tuple[Ratio, float]]:
    """Yield the ratio of identical code, and how busy the machine was, so many times."""
    kernel = twice(load_kernel(name))
    sizes = kernel.resolve_sizes(size)
    space = kernel.search_space(sizes)
    rng = np.random.default_rng(0)
    with DeviceEvaluator(kernel, sizes, "host") as evaluator:
        drawn = [Configuration({**c, "copy": 1}) for c in space.configurations(space.sample(DRAWN, rng))]
        valid = [trial for trial in evaluator.evaluate(drawn) if trial.is_valid]
        fastest = sorted(valid, key=lambda trial: trial.time_ms)[:CONFIGURATIONS]
        for i in range(count):
            first = fastest[i % len(fastest)]
            second = dataclasses.replace(first, configuration=Configuration({**first.configuration, "copy": 2}))
            pair = [first.configuration, second.configuration]
            taken = Turns(evaluator, [first, second])
            before = taken.measure(pair, FIRST_ROUNDS)
            after = taken.measure(pair, min(rounds_for_interval(before, pair), MOST_ROUNDS))
            finals = Finals.of([*before, *after], len(before), taken.tasks_per_core)
            ratio = finals.ratio(*pair)
            assert ratio is not None
            yield ratio, finals.tasks_per_core or 0.0


def aa_part(given: argparse.Namespace) -> dict[str, Any]:
    """Return how often intervals of identical code held 1, by kernel."""
    found = {}
    share = -(-given.pairs // len(KERNELS))
    for name, size in KERNELS:
        ratios, tasks = zip(*pairs_of(name, size, share), strict=True)
        found[f"{name}, {size}"] = {
            "pairs": len(ratios),
            "held": sum(ratio.low <= 1.0 <= ratio.high for ratio in ratios),
            "told_apart": sum(ratio.is_slower or ratio.high < 1 / 1.01 for ratio in ratios),
            "half_width": statistics.median((ratio.high - ratio.low) / 2 for ratio in ratios),
            "farthest": max(max(ratio.value, 1 / ratio.value) for ratio in ratios),
            "tasks_per_core": statistics.fmean(tasks),
        }
        print(f"{name}, {size}: {found[f'{name}, {size}']}", file=sys.stderr, flush=True)
    return found


# -- runs ------------------------------------------------------------------------------------------


def _run(name: str, seed: int, folder: str) -> dict[str, Any]:
    """Return what a run of :data:`RUNS` prints of its baseline and its winner."""
    command = [sys.executable, "-m", "mptune", "tune", *RUNS[name][0], "--backend", "host", "--seed", str(seed)]
    command += ["--json", "-o", f"{folder}/{name}{seed}.db"]
    start = time.monotonic()
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1):
        raise MptuneError(f"{name} failed with seed {seed}: {ended.stderr[-2000:]}")
    run = json.loads(ended.stdout)
    wall_s, baseline = time.monotonic() - start, run["baseline"]
    best = None
    if run["best"] is not None:
        best = {key: run["best"][key] for key in ("time_ms", "speedup", "speedup_interval", "settled", "error")}
        types = [value for key, value in run["best"]["configuration"].items() if key.endswith("_type")]
        best["types"] = ", ".join(f"{types.count(each)} {each}" for each in dict.fromkeys(types))
        best["accurate"] = run["threshold"] is None or best["error"] <= run["threshold"]
    found = {"run": name, "seed": seed, "exit_code": ended.returncode, "wall_s": wall_s, "best": best}
    found["baseline_ms"] = baseline["time_ms"] if baseline else math.nan
    print(f"{name}, seed {seed}: {found}", file=sys.stderr, flush=True)
    return found


def demo_part(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Return what the demo prints, by seed."""
    with tempfile.TemporaryDirectory() as folder:
        return [_run("demo", seed, folder) for seed in range(given.seeds)]


def runs_part(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Return what the runs print, by seed."""
    with tempfile.TemporaryDirectory() as folder:
        return [
            _run(name, seed, folder)
            for name, (_, share) in RUNS.items()
            for seed in range(-(-share * given.seeds // 10))
        ]


# -- the report ------------------------------------------------------------------------------------


def _busily(part: Callable[[argparse.Namespace], Any]) -> Callable[[argparse.Namespace], Any]:
    def beside_a_load(given: argparse.Namespace) -> Any:
        with load_on_every_core():
            return part(given)

    return beside_a_load


PARTS: Final[Mapping[str, Callable[[argparse.Namespace], Any]]] = {
    "statistics": statistics_part,
    "aa-quiet": aa_part,
    "aa-busy": _busily(aa_part),
    "demo-quiet": demo_part,
    "runs-busy": _busily(runs_part),
}


def _statistics_page(found: Mapping[str, Any]) -> str:
    rows = [
        (noise, *(f"{by_name[n][key]:.1%}" for n in ("shortest", "median") for key in ("coverage", "half_width")))
        for noise, by_name in found.items()
    ]
    return (
        "## Which statistic\n\n"
        f"Two configurations that differ by a factor of 1.2, 15 rounds of 5 launches back and forth, {REPETITIONS} "
        "times with each synthetic noise: how often the 95% interval of the median ratio holds 1.2, and half its "
        "width, where the time of a turn is its shortest launch, and where it is the median.\n\n"
        + bench.table(("noise", "shortest: holds", "half width", "median: holds", "half width"), rows)
    )


def _aa_page(part: str, found: Mapping[str, Any]) -> str:
    pairs, held = (sum(each[name] for each in found.values()) for name in ("pairs", "held"))
    rows = [
        (
            *(name, each["pairs"], f"{each['held'] / each['pairs']:.1%}", f"{each['half_width']:.1%}"),
            *(f"{each['farthest']:.3f}", f"{each['tasks_per_core']:.1f}"),
        )
        for name, each in found.items()
    ]
    columns = ("kernel", "pairs", "the interval holds 1", "half width", "farthest ratio", "other tasks per core")
    return (
        f"## Identical code, {'beside a load on every core' if part == 'aa-busy' else 'quiet'}\n\n"
        + bench.table(columns, rows)
        + f"\n\n- it holds 1 in {held / pairs:.1%} of {pairs} pairs (target {LEAST_COVERAGE:.0%}: "
        f"{bench.verdict(held >= LEAST_COVERAGE * pairs)})"
    )


def _runs_page(part: str, found: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for each in found:
        best, cells = each["best"], ("-", "-", "no winner", "-", "-")
        if best is not None:
            ends = best["speedup_interval"]
            interval = f"{ends[0]:.3g} to {ends[1]:.3g}" if ends else "-"
            settled = "yes" if best["settled"] else "no"
            cells = (f"{best['time_ms']:.3g}", f"{best['speedup']:.3g}", interval, settled, best["types"])
        baseline = "-" if each["baseline_ms"] is None else f"{each['baseline_ms']:.3g}"
        rows.append((each["run"], each["seed"], baseline, *cells, f"{each['wall_s']:.0f}"))
    columns = ("run", "seed", "baseline ms", "best ms", "speedup", "95% interval", "settled", "types", "wall s")
    winners = [each["best"] for each in found if each["best"] is not None]
    if part == "demo-quiet":
        middle = statistics.median(best["speedup"] for best in winners)
        farthest = max(abs(best["speedup"] / middle - 1) for best in winners)
        is_met = len(winners) == len(found) and farthest <= MOST_DEVIATION
        title = "The demo, quiet"
        said = f"speedups are within {farthest:.1%} of their median, {middle:.3g} (target {MOST_DEVIATION:.0%}"
    else:
        slower = sum(best["speedup"] < 1 for best in winners)
        inaccurate = sum(not best["accurate"] for best in winners)
        failed = sum(each["exit_code"] != 0 for each in found)
        is_met = len(winners) == len(found) and not slower and not inaccurate and not failed
        title = "Runs beside a load on every core"
        said = (
            f"{len(winners)} of {len(found)} runs name a winner, {slower} of the winners are slower than the baseline, "
            f"{inaccurate} have an error above the threshold, {failed} runs end with another exit code than 0 (target: "
            "all, 0, 0, 0"
        )
    return f"## {title}\n\n{bench.table(columns, rows)}\n\n- {said}: {bench.verdict(is_met)})"


def page(_: argparse.Namespace, results: Mapping[str, Any]) -> str:
    """Return the page."""
    parts = []
    for name in (name for name in PARTS if name in results):
        if name == "statistics":
            parts.append(_statistics_page(results[name]))
        elif name.startswith("aa"):
            parts.append(_aa_page(name, results[name]))
        else:
            parts.append(_runs_page(name, results[name]))
    return "\n\n".join(parts)


def measure(options: argparse.Namespace, sheet: bench.Sheet) -> None:
    """Measure the parts that are asked for."""
    for name in bench.names_in(",".join(options.parts), PARTS, "part") or PARTS:
        sheet.add(name, functools.partial(PARTS[name], options), pairs=options.pairs, seeds=options.seeds)


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    made = bench.parser(__doc__, bench.RESULTS / "timing_quality.md")
    made.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; by default all")
    made.add_argument("--pairs", type=int, default=200, help="pairs of identical code")
    made.add_argument("--seeds", type=int, default=10, help="seeds of the demo; of the other runs half as many")
    return made


if __name__ == "__main__":
    scripts = [Path(noise_module.__file__)]
    title = "How far a speedup can be trusted"
    sys.exit(bench.main(parser(), title, measure, page, scripts=scripts, keeps=True))
