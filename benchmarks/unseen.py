"""Winners on inputs that nobody has seen: how many break their error limit, with and without verification.

    python benchmarks/unseen.py [--kernels NAME,...] [--budget 30] [--draws 10000] [--resume]

Each kernel is tuned at smoke size for three thresholds. The winner as it is now had its errors measured on
three draws and was verified on 20 unseen ones; the winner as it was before is the fastest of the same trials, in turn,
whose error is within the threshold on the first draw alone, so that what differs is not the luck of two searches. All
winners of a kernel then run on the same fresh draws, which none of the runs has drawn; a winner's rate is the share of
them on which its error is above its threshold or is none. Speeds are of launches in turn.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from benchmarks import bench, unseen_kernels  # noqa: E402
from benchmarks.unseen_kernels import KERNELS  # noqa: E402
from mptune.data import FIRST, Draw, Stream  # noqa: E402
from mptune.kernel import Kernel  # noqa: E402
from mptune.measure.device import DeviceEvaluator  # noqa: E402
from mptune.measure.rounds import Turns  # noqa: E402
from mptune.results.trial import Status, Trial  # noqa: E402
from mptune.results.unseen import CONFIDENCE, Verified  # noqa: E402
from mptune.run import Run  # noqa: E402
from mptune.source.loading import bundled_kernels, load_kernel  # noqa: E402
from mptune.space.configuration import Configuration  # noqa: E402
from mptune.tuning import tune  # noqa: E402

THRESHOLDS: Final = (1e-2, 1e-4, 1e-6)
WAYS: Final = ("before", "now")
#: Seeds the fresh draws; no run has it.
_FRESH: Final = 1_000_003
_AT_ONCE: Final = 250
_ROUNDS: Final = 9
#: So many configurations that seem faster than the winner are looked at as the one of before.
_RIVALS: Final = 8
TARGETS: Final = {"rate": 0.05, "speed": 0.95, "verification": 0.25}


def kernel_of(name: str) -> Kernel:
    """Return one of the five kernels here, or a bundled one."""
    return KERNELS[name] if name in KERNELS else load_kernel(name)


# -- rates -----------------------------------------------------------------------------------------


def rates(name: str, budget: int, draws: int, seed: int) -> dict[str, Any]:
    """Return the winners of a kernel and what fresh draws said of each."""
    kernel = kernel_of(name)
    winners: list[dict[str, Any]] = []
    configurations: dict[Configuration, None] = {}
    chosen: list[Configuration] = []
    for tau in THRESHOLDS:
        start = time.perf_counter()
        run = tune(
            kernel,
            backend="host",
            size="smoke",
            max_error=tau,
            budget=budget,
            seed=seed,
            on_warning=lambda _: None,
        )
        wall_s = time.perf_counter() - start
        now = run.best
        before = winner_before(kernel, run, now, tau, seed)
        for way, trial in zip(WAYS, (before, now), strict=True):
            if trial is None:
                continue
            verified = run.verified(trial) if way == "now" else None
            winners.append(
                {
                    "threshold": tau,
                    "way": way,
                    "configuration": str(trial.configuration),
                    "error": trial.error,
                    "verified": None if verified is None else verified.to_json(),
                    "fragile": run.statuses.get("fragile", 0),
                    "verification_s": run.state.verify_s,
                    "wall_s": wall_s,
                }
            )
            chosen.append(trial.configuration)
            configurations[trial.configuration] = None
    errors, times = fresh(kernel, list(configurations), draws)
    for entry, configuration in zip(winners, chosen, strict=True):
        broken = int(np.sum(~(errors[configuration] <= entry["threshold"])))
        entry |= {"draws": len(errors[configuration]), "violations": broken, "time_ms": times[configuration]}
    return {"kernel": name, "winners": winners}


def winner_before(kernel: Kernel, run: Run, now: Trial | None, tau: float, seed: int) -> Trial | None:
    """Return the fastest trial of a run, in turn, whose error is within the threshold on the first draw alone."""
    limit_ms = math.inf if now is None else now.time_ms
    known = [trial for trial in run.trials if trial.is_valid and trial.time_ms < limit_ms]
    rivals = {trial.configuration: trial for trial in sorted(known, key=lambda trial: trial.time_ms)}
    with DeviceEvaluator(kernel, kernel.resolve_sizes("smoke"), "host", seed=seed) as evaluator:
        checked = evaluator.run_on_draws(list(rivals), [FIRST]).trials
        right = [t.configuration for t in checked if t.status is Status.OK and t.error <= tau][:_RIVALS]
        if now is not None:
            right.append(now.configuration)
            rivals[now.configuration] = now
        times = times_of(evaluator, right)
    return rivals[min(times, key=lambda c: times[c])] if times else None


def fresh(
    kernel: Kernel, configurations: Sequence[Configuration], draws: int
) -> tuple[dict[Configuration, np.ndarray[Any, Any]], dict[Configuration, float]]:
    """Return the error of each configuration on each fresh draw, infinite for a failure, and its time in turn."""
    sizes = kernel.resolve_sizes("smoke")
    found: dict[Configuration, list[float]] = {c: [] for c in configurations}
    with DeviceEvaluator(kernel, sizes, "host", seed=_FRESH) as evaluator:
        for start in range(0, draws, _AT_ONCE):
            piece = [Draw(Stream.UNSEEN, number) for number in range(start, min(start + _AT_ONCE, draws))]
            for trial in evaluator.run_on_draws(configurations, piece).trials:
                found[trial.configuration].append(trial.error if trial.status is Status.OK else math.inf)
        return {c: np.array(errors) for c, errors in found.items()}, times_of(evaluator, configurations)


def times_of(evaluator: DeviceEvaluator, configurations: Sequence[Configuration]) -> dict[Configuration, float]:
    """Return the median over rounds of the shortest launch of each configuration, taken in turn."""
    trials = [trial for trial in evaluator.evaluate(configurations) if trial.is_valid]
    if not trials:
        return dict.fromkeys(configurations, math.nan)
    rounds = Turns(evaluator, trials).measure([trial.configuration for trial in trials], _ROUNDS)
    times = {c: [times_ms[c] for times_ms in rounds if c in times_ms] for c in configurations}
    return {c: statistics.median(each) if each else math.nan for c, each in times.items()}


# -- the page --------------------------------------------------------------------------------------


def summary(kernels: Sequence[Mapping[str, Any]], way: str) -> dict[str, float]:
    """Return what all winners of one way have in common: pooled rate, worst rate, and rates above what was printed."""
    entries = [entry for kernel in kernels for entry in kernel["winners"] if entry["way"] == way]
    rates_ = [entry["violations"] / entry["draws"] for entry in entries]
    above = [
        rate > entry["verified"]["at_most"]
        for rate, entry in zip(rates_, entries, strict=True)
        if entry["verified"] is not None
    ]
    return {
        "winners": len(entries),
        "pooled": sum(e["violations"] for e in entries) / max(1, sum(e["draws"] for e in entries)),
        "worst": max(rates_, default=math.nan),
        "with_any": sum(rate > 0 for rate in rates_),
        "verified": len(above),
        "above": sum(above),
        "share_s": sum(e["verification_s"] for e in entries) / max(1e-9, sum(e["wall_s"] for e in entries)),
        "most_share": max((e["verification_s"] / e["wall_s"] for e in entries), default=math.nan),
    }


def speeds(kernels: Sequence[Mapping[str, Any]], *, held: bool = False) -> list[float]:
    """Return how fast the winner of now is beside that of before, for each kernel and threshold that has both.

    Args:
        kernels: their winners.
        held: only where the winner of before breaks its threshold as seldom as is allowed.
    """
    found = []
    for kernel in kernels:
        for tau in THRESHOLDS:
            entries = {e["way"]: e for e in kernel["winners"] if e["threshold"] == tau}
            times = {way: entry["time_ms"] for way, entry in entries.items()}
            if len(times) < len(WAYS) or not all(time_ms > 0 for time_ms in times.values()):
                continue
            before = entries["before"]
            if not held or before["violations"] <= TARGETS["rate"] * before["draws"]:
                found.append(times["before"] / times["now"])
    return found


def mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean, NaN of nothing."""
    return statistics.geometric_mean(ratios) if ratios else math.nan


def page(options: argparse.Namespace, results: Mapping[str, Any]) -> str:
    """Return the page."""
    kernels = [row for row in results.values() if "winners" in row]
    return "\n\n".join(_rates_page(kernels, options) if kernels else [])


def _rates_page(kernels: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> list[str]:
    before, now = (summary(kernels, way) for way in WAYS)
    allowed = math.ceil((1 - CONFIDENCE) * now["verified"])
    speed, held = (mean(speeds(kernels, held=only)) for only in (False, True))
    rows = [
        ("winners", f"{before['winners']:.0f}", f"{now['winners']:.0f}", ""),
        (
            "draws that break the threshold",
            f"{before['pooled']:.3%}",
            f"{now['pooled']:.3%}",
            f"≤ {TARGETS['rate']:.0%}",
        ),
        ("winners with any such draw", f"{before['with_any']:.0f}", f"{now['with_any']:.0f}", ""),
        ("the worst winner's rate", f"{before['worst']:.2%}", f"{now['worst']:.2%}", ""),
        ("winners above the bound printed", "", f"{now['above']:.0f} of {now['verified']:.0f}", f"≤ {allowed}"),
        ("speed beside before, geometric mean", "1", f"{speed:.3f}", f"≥ {TARGETS['speed']:g}"),
        ("the same where before's winner holds", "1", f"{held:.3f}", ""),
        (
            "verification, of the runs' wall time",
            "",
            f"{now['share_s']:.1%}, at most {now['most_share']:.1%}",
            f"≤ {TARGETS['verification']:.0%}",
        ),
    ]
    columns = ("kernel", "threshold", "rate before", "rate now", "bound printed", "unseen inputs", "fragile", "speed")
    return [
        f"Winners of {len(kernels)} kernels at smoke size for the thresholds "
        f"{', '.join(f'{tau:g}' for tau in THRESHOLDS)}, budget {options.budget}, each on the same fresh draws as the "
        "other winners of its kernel. Now: errors of three draws, verified on 20 unseen ones. Before: the fastest of "
        "the same trials by errors of the first draw, nothing verified.",
        bench.table(("", "before", "now", "target"), rows),
        bench.table(columns, [row for kernel in kernels for row in _rows(kernel)]),
    ]


def _rows(kernel: Mapping[str, Any]) -> list[tuple[object, ...]]:
    rows = []
    for tau in THRESHOLDS:
        found = {e["way"]: e for e in kernel["winners"] if e["threshold"] == tau}

        def rate(way: str, found: Mapping[str, Any] = found) -> str:
            return f"{found[way]['violations'] / found[way]['draws']:.2%}" if way in found else "no winner"

        now = found.get("now")
        verified = now["verified"] if now else None
        known = Verified(verified["inputs"], verified["violations"], 0.0) if verified else None
        both = len(found) == len(WAYS)
        speed = f"{found['before']['time_ms'] / found['now']['time_ms']:.2f}" if both else "-"
        bound = (f"{known.at_most:.1%}", known.inputs) if known else ("-", "-")
        fragile = now["fragile"] if now else "-"
        rows.append((kernel["kernel"], f"{tau:g}", rate("before"), rate("now"), *bound, fragile, speed))
    return rows


def measure(options: argparse.Namespace, sheet: bench.Sheet) -> None:
    """Measure the kernels that are asked for."""
    known = (*bundled_kernels(), *KERNELS)
    names = bench.names_in(options.kernels, known, "kernel") or known
    for name in names:
        settings = {"budget": options.budget, "draws": options.draws, "seed": options.seed}
        sheet.add(name, functools.partial(rates, name, **settings), **settings)


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    made = bench.parser(__doc__, bench.RESULTS / "unseen.md")
    made.add_argument("--kernels", default="", help="names, separated by commas [all]")
    made.add_argument("--budget", type=int, default=30)
    made.add_argument("--draws", type=int, default=10_000)
    made.add_argument("--seed", type=int, default=0)
    return made


if __name__ == "__main__":
    scripts = [Path(unseen_kernels.__file__)]
    sys.exit(bench.main(parser(), "Unseen inputs", measure, page, scripts=scripts))
