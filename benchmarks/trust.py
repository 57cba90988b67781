"""How often a wrong kernel wins, and how often a right one is not found: kernels with a mistake, tuned.

Each kernel of ``mistakes.py`` is tuned with several seeds, in a process of its own. With ``--before PYTHON`` the same
is done by the mptune of another interpreter, so that two versions stand side by side.

    python benchmarks/trust.py [--seeds 3] [--budget 24] [--only NAME ...] [--before PYTHON] [--output FILE.md]
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.mistakes import MISTAKES, THRESHOLD, Mistake  # noqa: E402

OUTPUT: Final = Path(__file__).parent / "results" / "trust.md"
#: Other pages whose findings belong here: a title, the page, and how the lines begin that say it.
ALSO: Final = (
    ("Inputs nobody measured", "unseen", "|"),
    ("Speedups", "timing_quality", "- "),
)
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


def run_apart(python: str, case: Mistake, seed: int, budget: int) -> Result:
    """Tune a kernel in a process of its own."""
    command = [
        python,
        str(ROOT / "benchmarks" / "mistakes.py"),
        case.name,
        "--seed",
        str(seed),
        "--budget",
        str(budget),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_RUN_S, check=False)
    except subprocess.TimeoutExpired:
        return Result(Outcome.FAILED, f"it took longer than {LONGEST_RUN_S:g} s")
    if done.returncode:
        return Result(Outcome.FAILED, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return judge(case, json.loads(done.stdout))


def counted(results: Sequence[Result]) -> str:
    """Return how runs ended, in a table's cell."""
    counts = Counter(result.outcome for result in results)
    return ", ".join(
        f"{count} {outcome}" if outcome is Outcome.RIGHT else f"**{count} {outcome}**"
        for outcome in Outcome
        if (count := counts[outcome])
    )


def wrong_baselines(results: Sequence[Result]) -> list[str]:
    """Say which seeds of a kernel had a wrong baseline, and which that was."""
    return [f"seed {seed}: {r.wrong_baseline}" for seed, r in enumerate(results) if r.wrong_baseline]


def report(found: dict[str, dict[str, list[Result]]], seeds: int, budget: int, command: str) -> str:
    """Return the results as a page.

    Args:
        found: by version ("before", "now") and kernel, the results of the seeds.
        seeds: how many there were.
        budget: evaluations of each run.
        command: what it was measured with.
    """
    from mptune.backends.processor import processor, usable_cores

    names = list(next(iter(found.values())))

    def row(title: str, is_counted: Callable[[Result], bool]) -> str:
        runs = [[result for each in by_name.values() for result in each] for by_name in found.values()]
        return f"| {title} | " + " | ".join(f"{sum(map(is_counted, each))} of {len(each)}" for each in runs) + " |"

    lines = [
        "# Kernels that are wrong by mistake",
        "",
        f"    {command}",
        "",
        f"{processor().name}, {usable_cores()} cores; {datetime.now(UTC):%Y-%m-%d}. {len(names)} kernels, up to "
        f"{seeds} seeds each, {budget} evaluations of 48 configurations, threshold {THRESHOLD:g}. A winner is wrong if "
        "its answer, or that of a launch its time was taken of, is wrong by construction; all have right "
        "configurations.",
        "",
        "| | " + " | ".join(found) + " |",
        "|---|" + "--:|" * len(found),
    ]
    lines += [
        row("wrong winners", lambda result: result.outcome is Outcome.WRONG),
        row("false 'nothing feasible'", lambda result: result.outcome is Outcome.NOTHING),
        row("failed runs", lambda result: result.outcome is Outcome.FAILED),
        row("wrong baselines", lambda result: bool(result.wrong_baseline)),
    ]
    wrong = [
        f"- {name}, {version}, {which}"
        for version, by_name in found.items()
        for name in names
        for which in wrong_baselines(by_name[name])
    ]
    lines += ["", "The wrong baselines:", "", *wrong] if wrong else []
    lines += ["", "| kernel | what it does | " + " | ".join(found) + " |", "|---|---|" + "---|" * len(found)]
    for name in names:
        cells = [counted(by_name[name]) for by_name in found.values()]
        lines.append(f"| {name} | {MISTAKES[name].what} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, *also(), ""])


def also() -> list[str]:
    """Return what the other benchmarks of trust found: the first table of a page, or its conclusions."""
    lines: list[str] = []
    for title, name, wanted in ALSO:
        page = OUTPUT.with_name(f"{name}.md")
        found = page.read_text().splitlines() if page.exists() else []
        shown = [line for line in found if line.startswith(wanted)]
        if wanted == "|":
            # Up to the end of the first table.
            start = next((i for i, line in enumerate(found) if line.startswith("|")), len(found))
            shown = list(itertools.takewhile(lambda line: line.startswith("|"), found[start:]))
        if shown:
            lines += ["", f"## {title}", "", f"From `{name}.md`:", "", *shown]
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when no run of the present version ended wrong or had a wrong baseline, 1 when one did."""
    parser = argparse.ArgumentParser(description="How often kernels with a mistake win.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=int, default=24)
    parser.add_argument("--only", nargs="+", choices=sorted(MISTAKES), metavar="NAME", default=list(MISTAKES))
    parser.add_argument("--before", metavar="PYTHON", help="interpreter of the mptune to compare with")
    parser.add_argument("--before-seeds", type=int, default=3, help="seeds of the mptune to compare with")
    parser.add_argument("--output", type=Path, default=None, help=f"by default {OUTPUT.name}, if all kernels are tuned")
    given = parser.parse_args(arguments)
    versions = {**({"before": given.before} if given.before else {}), "now": sys.executable}
    found: dict[str, dict[str, list[Result]]] = {version: {} for version in versions}
    for name in given.only:
        for version, python in versions.items():
            seeds = given.before_seeds if version == "before" else given.seeds
            results = [run_apart(python, MISTAKES[name], seed, given.budget) for seed in range(seeds)]
            found[version][name] = results
            bad = [f"{r.outcome}: {r.detail}" for r in results if r.outcome is not Outcome.RIGHT]
            bad = [*bad[:1], *(f"wrong baseline, {which}" for which in wrong_baselines(results))]
            print(f"{name:24} {version:7} {counted(results)}  {'; '.join(bad)}", file=sys.stderr, flush=True)
    options = f"--seeds {given.seeds}" + (
        f" --before PYTHON --before-seeds {given.before_seeds}" if given.before else ""
    )
    text = report(found, given.seeds, given.budget, f"python benchmarks/trust.py {options}")
    print(text)
    output = given.output or (OUTPUT if len(given.only) == len(MISTAKES) else None)
    if output is not None:
        output.write_text(text)
    return int(
        any(r.outcome is not Outcome.RIGHT or r.wrong_baseline for results in found["now"].values() for r in results)
    )


if __name__ == "__main__":
    sys.exit(main())
