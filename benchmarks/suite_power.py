"""What the tests find: mutants of the code, and faults of the history that are put back, each alone.

    python benchmarks/suite_power.py record              # which tests run which lines of the fast tier, into build/
    python benchmarks/suite_power.py mutants --count 120 # small changes of the code, spread over its parts
    python benchmarks/suite_power.py faults              # mended faults (benchmarks/data/faults.txt), put back

The working tree is changed while a case runs and restored after it; uncommitted changes are refused. A mutant is tried
on the tests of the fast tier that run its line, the cheapest first, as many as take --seconds together. If it survives
and with --full, it is tried on the full tier's tests of its part, within four times --seconds. So what is found is a
lower bound. Lines that only other processes run have no such tests: their tests are those of their part.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = ROOT / "build" / "suite" / "lines.json"
FAULTS: Final = ROOT / "benchmarks" / "data" / "faults.txt"
FAST: Final = "not full and not nightly"
FULL: Final = "full and not nightly"
#: The outcome of a fault that cannot be put back any more.
_GONE: Final = "gone"

#: The parts of the product that mutants are spread over, by the paths that have them, and the tests of what only other
#: processes run.
PARTS: Final[dict[str, tuple[Sequence[str], Sequence[str]]]] = {
    "accuracy": (("mptune/accuracy",), ("tests/accuracy",)),
    "objective": (("mptune/results/objective.py", "mptune/results/pareto.py"), ("tests/test_objective.py",)),
    "policy": (
        ("mptune/measure/policy.py", "mptune/results/unseen.py"),
        ("tests/test_objective.py",),
    ),
    "finals": (
        ("mptune/results/speedup.py", "mptune/run.py", "mptune/tuning"),
        ("tests/test_finals.py", "tests/test_tuner.py"),
    ),
    "space": (("mptune/space",), ("tests/space", "tests/expressions")),
    "conversion": (("mptune/data", "mptune/precision.py"), ("tests/buffers",)),
    "store": (("mptune/store",), ("tests/test_store.py",)),
    "evaluators": (("mptune/measure",), ("tests/evaluators", "tests/faults")),
    "rendering": (("mptune/source/render.py", "mptune/source/flags.py", "mptune/kernel"), ("tests/test_rendering.py",)),
    "strategies": (("mptune/strategies",), ("tests/strategies",)),
    "adopt": (("mptune/adopt",), ("tests/adopt",)),
    "emit": (("mptune/emit", "mptune/wisdom"), ("tests/emit", "tests/wisdom")),
}

_COMPARED: Final = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_COMPUTED: Final = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*"}


@dataclass(frozen=True)
class Mutant:
    """One change of the code: ``old`` becomes ``new`` at a place of a file, counted in characters."""

    part: str
    file: str
    line: int
    start: int
    end: int
    old: str
    new: str


@dataclass(frozen=True)
class Outcome:
    """The result of one case: the tier that found it (empty if none did) and the first test that failed."""

    name: str
    part: str
    found_by: str
    failed: str
    wall_s: float


# -- mutants ---------------------------------------------------------------------------------------


def mutants(count: int, seed: int) -> list[Mutant]:
    """Return so many mutants, as many of each part as of the others, chosen at random."""
    rng = random.Random(seed)
    chosen: list[Mutant] = []
    for i, (part, (paths, _)) in enumerate(PARTS.items()):
        files = [f for p in paths for f in ([ROOT / p] if p.endswith(".py") else sorted((ROOT / p).rglob("*.py")))]
        known = [mutant for file in files for mutant in _mutants_of(part, file)]
        share = count // len(PARTS) + (i < count % len(PARTS))
        chosen += rng.sample(known, share)
    return chosen


def _mutants_of(part: str, path: Path) -> Iterator[Mutant]:
    text = path.read_text()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    # Positions of ast are in bytes; lines with other characters than ASCII are left out.
    plain = [line.isascii() for line in text.splitlines()]

    def at(node: ast.AST, *, end: bool = False) -> int:
        line, column = (node.end_lineno, node.end_col_offset) if end else (node.lineno, node.col_offset)  # type: ignore[attr-defined]
        return int(starts[line - 1] + column)

    def made(node: ast.AST, start: int, end: int, new: str) -> Iterator[Mutant]:
        line = node.lineno  # type: ignore[attr-defined]
        if all(plain[line - 1 : node.end_lineno]):  # type: ignore[attr-defined]
            yield Mutant(part, str(path.relative_to(ROOT)), line, start, end, text[start:end], new)

    for node in _code(ast.parse(text)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            between = at(node.left, end=True), at(node.comparators[0])
            yield from made(node, *between, f" {_COMPARED[type(node.ops[0])]} ")
        elif isinstance(node, ast.BoolOp):
            between = at(node.values[0], end=True), at(node.values[1])
            if text[slice(*between)].strip() in ("and", "or"):
                yield from made(node, *between, " or " if isinstance(node.op, ast.And) else " and ")
        elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
            between = at(node.left, end=True), at(node.right)
            if text[slice(*between)].strip() in ("+", "-", "*", "/", "//"):
                yield from made(node, *between, f" {_COMPUTED[type(node.op)]} ")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield from made(node, at(node), at(node) + len("not"), "not not")
        elif isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, ast.Compare | ast.BoolOp):
            test = at(node.test), at(node.test, end=True)
            yield from made(node.test, *test, f"(not ({text[slice(*test)]}))")
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield from made(node, at(node), at(node, end=True), str(node.value + 1))
        elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
            yield from made(node.value, at(node.value), at(node.value, end=True), "None")


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes of what runs: no annotations, no messages of errors, nothing for types alone."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Raise | ast.JoinedStr | ast.arg | ast.Assert):
            continue
        yield child
        if isinstance(child, ast.AnnAssign):
            yield from () if child.value is None else _code(child.value)
            continue
        yield from _code(child)


# -- tests -----------------------------------------------------------------------------------------


def record() -> None:
    """Run the fast tier with coverage and keep which tests run each line, and what each test takes."""
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    data, took = RECORD.with_name(".coverage"), RECORD.with_name("took.xml")
    _pytest(
        ["-n2", "--dist=worksteal", "-m", FAST, "--cov", "--cov-report=", "--cov-context=test", f"--junit-xml={took}"],
        COVERAGE_FILE=str(data),
    )
    from coverage import CoverageData

    measured = CoverageData(str(data))
    measured.read()
    lines: dict[str, dict[int, list[str]]] = {}
    tests: dict[str, int] = {}
    for file in sorted(measured.measured_files()):
        name = str(Path(file).relative_to(ROOT)) if Path(file).is_relative_to(ROOT) else ""
        if not name.startswith("mptune/"):
            continue
        lines[name] = {
            line: sorted({tests.setdefault(c.partition("|")[0], len(tests)) for c in contexts if c})  # type: ignore[misc]
            for line, contexts in measured.contexts_by_lineno(file).items()
        }
    RECORD.write_text(json.dumps({"tests": list(tests), "took_s": _times(took), "lines": lines}))


def _times(report: Path) -> dict[str, float]:
    from xml.etree import ElementTree

    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        # A class name is that of the module, and of a class in it.
        module, name = case.get("classname", ""), case.get("name", "")
        parts = module.split(".")
        place = next((i for i, part in enumerate(parts) if part.startswith("test_")), len(parts) - 1)
        node = "::".join(("/".join(parts[: place + 1]) + ".py", *parts[place + 1 :], name))
        found[node] = float(case.get("time", 0))
    return found


def tests_of(known: dict[str, Any], mutant: Mutant, most_s: float) -> dict[str, float]:
    """Return tests of the fast tier that run a mutant's line, the cheapest first, with the seconds each takes."""
    numbers = known["lines"].get(mutant.file, {}).get(str(mutant.line), [])
    took_s = {name: known["took_s"].get(name, 1.0) for name in (known["tests"][number] for number in numbers)}
    found: dict[str, float] = {}
    for name in sorted(took_s, key=took_s.__getitem__):
        if sum(found.values()) + took_s[name] <= most_s or not found:
            found[name] = took_s[name]
    return found


def _pytest(arguments: Sequence[str], timeout_s: float | None = None, **environment: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", *arguments]
    settings = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return -1, ""
    return done.returncode, done.stdout


def found_in(tier: str, tests: Sequence[str], timeout_s: float, usual_s: float = math.inf) -> str | None:
    """Return which tests fail, None if none does. Tests that hang are found if they usually take a sixth of that."""
    if not tests:
        return None
    # Exit code 5: none of the tests is in the tier.
    code, said = _pytest(["-x", "-m", tier, *tests], timeout_s)
    if code == -1 and usual_s < timeout_s / 6:
        return f"more than {timeout_s:.0f} s"
    if code in (0, 5, -1):
        return None
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].partition(" - ")[0] if failed else said.strip().splitlines()[-1][:200]


# -- cases -----------------------------------------------------------------------------------------


def try_mutant(known: dict[str, Any], mutant: Mutant, seconds: float, *, full: bool) -> Outcome:
    """Change the code, run the tests and restore it."""
    path, start = ROOT / mutant.file, time.monotonic()
    before = path.read_text()
    name = f"{mutant.file}:{mutant.line} {mutant.old.strip()!r} -> {mutant.new.strip()!r}"
    path.write_text(before[: mutant.start] + mutant.new + before[mutant.end :])
    try:
        fast = tests_of(known, mutant, seconds)
        limit_s, usual_s = (7 * seconds + 60, sum(fast.values())) if fast else (4 * seconds, math.inf)
        failed, tier = found_in(FAST, list(fast) or PARTS[mutant.part][1], limit_s, usual_s), "fast"
        if failed is None and full:
            failed, tier = found_in(FULL, PARTS[mutant.part][1], 4 * seconds), "full"
    finally:
        path.write_text(before)
    return Outcome(name, mutant.part, tier if failed else "", failed or "", time.monotonic() - start)


def try_fault(commit: str, subject: str, seconds: float, *, full: bool) -> Outcome:
    """Take back what a commit changed in the code, run the tests of the files that it changed, and restore the code."""
    start = time.monotonic()
    code = _git("show", "--format=", commit, "--", "mptune", "templates", "kernels", "applications")
    files = _git("show", "--format=", "--name-only", commit, "--", "tests").split()
    tests = [f for f in files if Path(f).name.startswith("test_") and f.endswith(".py") and (ROOT / f).exists()]
    applied = subprocess.run(["git", "apply", "-R", "-C1", "-"], cwd=ROOT, input=code, text=True, capture_output=True)
    if applied.returncode:
        return Outcome(f"{commit} {subject}", "history", _GONE, "the code it is in is gone", time.monotonic() - start)
    try:
        failed, tier = found_in(FAST, tests, 4 * seconds), "fast"
        if failed is None and full:
            failed, tier = found_in(FULL, tests, 8 * seconds), "full"
        if failed is None:
            # Its tests may have moved; those beside what it changed are tried, too.
            parts = {part for part, (paths, _) in PARTS.items() if any(f"a/{p}" in code for p in paths)}
            others = [t for part in parts for t in PARTS[part][1] if t not in tests]
            failed, tier = found_in(FAST, others, 4 * seconds), "fast"
    finally:
        _git("checkout", "-q", "--", "mptune", "templates", "kernels", "applications")
    return Outcome(f"{commit} {subject}", "history", tier if failed else "", failed or "", time.monotonic() - start)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("record", "mutants", "faults"))
    parser.add_argument("--count", type=int, default=120, help="how many mutants [120]")
    parser.add_argument("--seed", type=int, default=0, help="chooses the mutants [0]")
    parser.add_argument("--shard", default="0/1", help="which part of the cases: 0/2 is the first half [0/1]")
    parser.add_argument("--seconds", type=float, default=45.0, help="seconds of tests of one case [45]")
    parser.add_argument("--full", action="store_true", help="try what the fast tier does not find on the full one, too")
    parser.add_argument("--output", type=Path, help="a JSON lines file that outcomes are added to")
    given = parser.parse_args(arguments)
    if given.what == "record":
        record()
        return 0
    if _git("status", "--porcelain", "--untracked-files=no"):
        parser.error("the working tree has uncommitted changes: commit them first")
    shard, shards = map(int, given.shard.split("/"))
    outcomes: list[Outcome] = []
    cases: list[Any] = mutants(given.count, given.seed) if given.what == "mutants" else _faults()
    known = json.loads(RECORD.read_text()) if given.what == "mutants" else {}
    for case in cases[shard::shards]:
        if isinstance(case, Mutant):
            outcome = try_mutant(known, case, given.seconds, full=given.full)
        else:
            outcome = try_fault(case[0], case[1], given.seconds, full=given.full)
        outcomes.append(outcome)
        verdict = outcome.found_by or "SURVIVES"
        print(f"{verdict:8} {outcome.wall_s:5.0f} s  {outcome.name}  {outcome.failed}", flush=True)
        if given.output is not None:
            with given.output.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
    tried = [outcome for outcome in outcomes if outcome.found_by != _GONE]
    fast, found = (sum(o.found_by in tiers for o in tried) for tiers in (("fast",), ("fast", "full")))
    print(f"{len(tried)} {given.what}: the fast tier finds {fast}, both tiers {found}")
    return 0


def _faults() -> list[tuple[str, str]]:
    lines = [line for line in FAULTS.read_text().splitlines() if line and not line.startswith("#")]
    return [(commit, subject) for commit, _, subject in (line.partition(" ") for line in lines)]


if __name__ == "__main__":
    sys.exit(main())
