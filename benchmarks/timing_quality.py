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
import json
import math
import os
import shlex
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

from benchmarks.noise import NOISES, turns  # noqa: E402
from mptune.backends.host_compiler import find_compiler  # noqa: E402
from mptune.backends.processor import processor, usable_cores  # noqa: E402
from mptune.errors import MptuneError, UnknownNameError  # noqa: E402
from mptune.kernel import Kernel  # noqa: E402
from mptune.measure.device import DeviceEvaluator  # noqa: E402
from mptune.measure.rounds import Turns  # noqa: E402
from mptune.results.speedup import Finals, Ratio  # noqa: E402
from mptune.source.loading import load_kernel  # noqa: E402
from mptune.space.configuration import Configuration  # noqa: E402
from mptune.space.parameters import OrdinalParameter  # noqa: E402
from mptune.tuning.finals import rounds_for_interval  # noqa: E402

PAGE: Final = ROOT / "benchmarks" / "results" / "timing_quality.md"
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


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "missed"


def _statistics_lines(found: Mapping[str, Any]) -> list[str]:
    lines = [
        "",
        "## Which statistic",
        "",
        f"Two configurations that differ by a factor of 1.2, 15 rounds of 5 launches back and forth, {REPETITIONS} "
        "times with each synthetic noise: how often the 95% interval of the median ratio holds 1.2, and half its "
        "width, where the time of a turn is its shortest launch, and where it is the median.",
        "",
        "| noise | shortest: holds | half width | median: holds | half width |",
        "|---|---|---|---|---|",
    ]
    for noise, by_name in found.items():
        cells = [f"{by_name[n]['coverage']:.1%} | {by_name[n]['half_width']:.1%}" for n in ("shortest", "median")]
        lines.append(f"| {noise} | {' | '.join(cells)} |")
    return lines


def _aa_lines(part: str, found: Mapping[str, Any]) -> list[str]:
    pairs, held = (sum(each[name] for each in found.values()) for name in ("pairs", "held"))
    lines = [
        "",
        f"## Identical code, {'beside a load on every core' if part == 'aa-busy' else 'quiet'}",
        "",
        "| kernel | pairs | the interval holds 1 | half width | farthest ratio | other tasks per core |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {each['pairs']} | {each['held'] / each['pairs']:.1%} | {each['half_width']:.1%} | "
        f"{each['farthest']:.3f} | {each['tasks_per_core']:.1f} |"
        for name, each in found.items()
    ]
    is_met = held >= LEAST_COVERAGE * pairs
    lines += [
        "",
        f"- it holds 1 in {held / pairs:.1%} of {pairs} pairs (target {LEAST_COVERAGE:.0%}: {_verdict(is_met)})",
    ]
    return lines


def _run_lines(part: str, found: Sequence[Mapping[str, Any]]) -> list[str]:
    title = "The demo, quiet" if part == "demo-quiet" else "Runs beside a load on every core"
    lines = [
        *("", f"## {title}", ""),
        "| run | seed | baseline ms | best ms | speedup | 95% interval | settled | types of the best | wall s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in found:
        best = each["best"]
        what = "- | - | no winner | - | -"
        if best is not None:
            low, high = best["speedup_interval"] or (float("nan"),) * 2
            interval = f"{low:.3g} to {high:.3g} | {'yes' if best['settled'] else 'no'}"
            what = f"{best['time_ms']:.3g} | {best['speedup']:.3g} | {interval} | {best['types']}"
        lines.append(f"| {each['run']} | {each['seed']} | {each['baseline_ms']:.3g} | {what} | {each['wall_s']:.0f} |")
    winners = [each["best"] for each in found if each["best"] is not None]
    lines.append("")
    if part == "demo-quiet":
        middle = statistics.median(best["speedup"] for best in winners)
        farthest = max(abs(best["speedup"] / middle - 1) for best in winners)
        is_met = len(winners) == len(found) and farthest <= MOST_DEVIATION
        lines.append(
            f"- speedups are within {farthest:.1%} of their median, {middle:.3g} (target {MOST_DEVIATION:.0%}: "
            f"{_verdict(is_met)})"
        )
        return lines
    slower = sum(best["speedup"] < 1 for best in winners)
    inaccurate = sum(not best["accurate"] for best in winners)
    failed = sum(each["exit_code"] != 0 for each in found)
    is_met = len(winners) == len(found) and not slower and not inaccurate and not failed
    lines.append(
        f"- {len(winners)} of {len(found)} runs name a winner, {slower} of the winners are slower than the baseline, "
        f"{inaccurate} have an error above the threshold, {failed} runs end with another exit code than 0 (target: "
        f"all, 0, 0, 0: {_verdict(is_met)})"
    )
    return lines


def markdown(document: Mapping[str, Any]) -> str:
    """Return the results as a page."""
    lines = ["# How far a speedup can be trusted"]
    parts = document["parts"]
    for name in PARTS:
        if name not in parts:
            continue
        part = parts[name]
        if name == "statistics":
            lines += _statistics_lines(part["found"])
        elif name.startswith("aa"):
            lines += _aa_lines(name, part["found"])
        else:
            lines += _run_lines(name, part["found"])
        lines += [
            "",
            f"Machine: {part['machine']}. Command: `{part['command']}`; it took {part['wall_s'] / 60:.1f} min.",
        ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when it ended well, 2 for wrong input."""
    parser = argparse.ArgumentParser(description="How far a printed speedup can be trusted.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; by default all")
    parser.add_argument("--pairs", type=int, default=200, help="pairs of identical code")
    parser.add_argument("--seeds", type=int, default=10, help="seeds of the demo; of the other runs half as many")
    parser.add_argument("--output", type=Path, default=PAGE, help="write the page to this file, the figures beside it")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args(arguments)
    figures = given.output.with_suffix(".json")
    document: dict[str, Any] = json.loads(figures.read_text()) if figures.exists() else {"parts": {}}
    try:
        for name in given.parts:
            if name not in PARTS:
                raise UnknownNameError("part", name, PARTS)
        for name in given.parts or PARTS:
            start = time.monotonic()
            document["parts"][name] = {
                "found": PARTS[name](given),
                "machine": f"{processor().name}, {usable_cores()} of {os.cpu_count()} cores, {find_compiler().version}",
                "command": shlex.join(["python", "benchmarks/timing_quality.py", *sys.argv[1:]]),
                "wall_s": time.monotonic() - start,
            }
            figures.write_text(json.dumps(document, indent=1) + "\n")
            given.output.write_text(markdown(document))
    except MptuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(document, indent=1) if given.json else markdown(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
