"""How often a wrong kernel wins, and how often a right one is not found: kernels with a mistake, tuned.

Each kernel of ``mistakes.py`` is tuned with several seeds, in a process of its own.

    python benchmarks/trust.py [--seeds 3] [--budget 24] [--only NAME ...] [--output FILE.md]
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import bench, mistakes  # noqa: E402
from benchmarks.mistakes import MISTAKES, THRESHOLD, Mistake  # noqa: E402

#: A run that takes longer has failed.
LONGEST_RUN_S: Final = 100.0


class Outcome(StrEnum):
    """How a run ended."""

    RIGHT = "right"
    WRONG = "wrong winner"
    NOTHING = "nothing feasible"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Result:
    """How one run ended, the last thing it said, and its baseline if that is wrong."""

    outcome: Outcome
    detail: str
    wrong_baseline: str = ""


def judge(case: Mistake, document: dict[str, Any]) -> Result:
    """Say how a run of a kernel ended."""
    baseline, best = document["baseline"], document["best"]
    is_wrong = baseline is not None and case.is_wrong(baseline["configuration"])
    wrong_baseline = f"{in_words(baseline['configuration'])} (error {baseline['error']})" if is_wrong else ""
    if best is None:
        statuses = ", ".join(f"{count} {status}" for status, count in document["statuses"].items())
        return Result(Outcome.NOTHING, statuses, wrong_baseline)
    outcome = Outcome.WRONG if case.is_wrong(best["configuration"]) else Outcome.RIGHT
    return Result(outcome, in_words(best["configuration"]), wrong_baseline)


def in_words(configuration: Mapping[str, Any]) -> str:
    """Return a configuration on one line."""
    return ", ".join(f"{name}={value}" for name, value in configuration.items())


def run_apart(case: Mistake, seed: int, budget: int) -> dict[str, Any]:
    """Tune a kernel in a process of its own."""
    words = [mistakes.__file__, case.name, "--seed", str(seed), "--budget", str(budget)]
    try:
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, timeout=LONGEST_RUN_S, check=False
        )
    except subprocess.TimeoutExpired:
        return as_row(case, seed, Result(Outcome.FAILED, f"it took longer than {LONGEST_RUN_S:g} s"))
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return as_row(case, seed, Result(Outcome.FAILED, last))
    return as_row(case, seed, judge(case, json.loads(done.stdout)))


def as_row(case: Mistake, seed: int, result: Result) -> dict[str, Any]:
    """Return what is stored of a run."""
    return {"kernel": case.name, "seed": seed, **dataclasses.asdict(result)}


def page(options: argparse.Namespace, results: Mapping[str, Any]) -> str:
    """Return the page."""
    rows = list(results.values())
    counts = Counter(row["outcome"] for row in rows)
    of = f"of {len(rows)}"
    totals = [
        (f"{outcome}s" if outcome == Outcome.WRONG else str(outcome), f"{counts[outcome]} {of}") for outcome in Outcome
    ]
    wrong = [row for row in rows if row["wrong_baseline"]]
    by_kernel = []
    for name in dict.fromkeys(row["kernel"] for row in rows):
        ends = Counter(row["outcome"] for row in rows if row["kernel"] == name)
        shown = ", ".join(f"{n} {end}" if end == Outcome.RIGHT else f"**{n} {end}**" for end, n in ends.items())
        by_kernel.append((name, MISTAKES[name].what, shown))
    details = [f"- {row['kernel']}, seed {row['seed']}: wrong baseline, {row['wrong_baseline']}" for row in wrong]
    details += [
        f"- {row['kernel']}, seed {row['seed']}: {row['outcome']}, {row['detail']}"
        for row in rows
        if row["outcome"] != Outcome.RIGHT
    ]
    return "\n\n".join(
        (
            f"{len(by_kernel)} kernels, {options.budget} evaluations of 48 configurations, threshold {THRESHOLD:g}. A "
            "winner is wrong if its answer, or that of a launch its time was taken of, is wrong by construction; all "
            "have right configurations.",
            bench.table(("runs", "count"), [*totals, ("wrong baselines", f"{len(wrong)} {of}")]),
            bench.table(("kernel", "what it does", "runs"), by_kernel),
            "\n".join(details),
        )
    )


def measure(options: argparse.Namespace, sheet: bench.Sheet) -> int:
    """Tune the kernels; return 1 if a run ended wrong or had a wrong baseline."""
    code = 0
    for name in options.only:
        for seed in range(options.seeds):
            run = functools.partial(run_apart, MISTAKES[name], seed, options.budget)
            row = sheet.add(f"{name}, {seed}", run, budget=options.budget)
            if row["outcome"] != Outcome.RIGHT or row["wrong_baseline"]:
                code = 1
    return code


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    made = bench.parser(__doc__, bench.BUILD / "trust.md")
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--budget", type=int, default=24)
    made.add_argument("--only", nargs="+", choices=sorted(MISTAKES), metavar="NAME", default=list(MISTAKES))
    return made


if __name__ == "__main__":
    title = "Kernels that are wrong by mistake"
    sys.exit(bench.main(parser(), title, measure, page, scripts=[Path(mistakes.__file__)]))
