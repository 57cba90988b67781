"""How well mptune finds the front of several objectives, beside its peers in the same run.

    python benchmarks/pareto_quality.py [--seeds 20] [--budget 120] [--only axpy,...]

Replays the recorded mixed-precision spaces with two and three objectives, and writes ``pareto.md``, ``pareto.json``
and ``pareto.png``. Every finished run is remembered in ``--work``. The peers come with ``pip install
mptune[benchmarks]``; one that is missing is left out and said to be missing.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.fronts.report import Cell, Figures, write  # noqa: E402
from benchmarks.fronts.running import TOOLS  # noqa: E402
from benchmarks.search.cells import Cache, Job  # noqa: E402
from benchmarks.search.runner import run_jobs  # noqa: E402
from mptune.errors import MptuneError, UnknownNameError  # noqa: E402

_OBJECTIVES: Final = (("time", "error"), ("time", "error", "memory"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when every run ended well, 1 when one failed, 2 for wrong input."""
    given = _parser().parse_args(arguments)
    try:
        return _run(given, ["benchmarks/pareto_quality.py", *(sys.argv[1:] if arguments is None else arguments)])
    except MptuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(given: argparse.Namespace, command: Sequence[str]) -> int:
    if min(given.seeds, given.budget, given.processes) < 1:
        raise MptuneError("--seeds, --budget and --processes must be at least 1")
    names = [name.strip() for name in given.tools.split(",") if name.strip()]
    for name in names:
        if name not in TOOLS:
            raise UnknownNameError("tool", name, TOOLS)
    missing = [name for name in names if not TOOLS[name].is_installed]
    for name in missing:
        print(f"{name}: not installed (pip install {TOOLS[name].distribution})", file=sys.stderr)
    tools = [name for name in names if name not in missing]
    parts = [part.strip() for part in given.only.split(",") if part.strip()]
    files = [f for f in sorted(given.data.glob("*.json.gz")) if not parts or any(part in f.name for part in parts)]
    if not files or not tools:
        raise MptuneError(f"nothing to run: {len(files)} recorded spaces in {given.data}, {len(tools)} tools")
    cells = [Cell(file, objectives) for objectives in _OBJECTIVES for file in files]
    jobs = [_job(cell, name, given) for name in tools for cell in cells]
    results = run_jobs(jobs, Cache(given.work), given.processes, lambda line: print(line, file=sys.stderr, flush=True))
    figures = Figures(cells, tools, results, given.budget)
    for path in write(figures, given.output, f"python {shlex.join(command)}"):
        print(f"written: {path}")
    return 1 if results.failures else 0


def _job(cell: Cell, tool: str, given: argparse.Namespace) -> Job:
    return Job(
        "pareto",
        cell.name,
        tool,
        "benchmarks.fronts.running:replay",
        {"space": str(cell.file.resolve()), "objectives": cell.objectives, "budget": given.budget, "tool": tool},
        tuple(range(given.seeds)),
        given.limit,
        (cell.file,),
        TOOLS[tool].version,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Quality of the fronts mptune and its peers find.")
    parser.add_argument("--data", type=Path, default=ROOT / "benchmarks" / "data", help="folder of recorded spaces")
    parser.add_argument("--only", default="", help="spaces whose file names have one of these parts, by commas")
    parser.add_argument("--tools", default=",".join(TOOLS), help=f"by commas, of {', '.join(TOOLS)}")
    parser.add_argument("--seeds", type=int, default=20, help="runs of every tool on every space")
    parser.add_argument("--budget", type=int, default=120, help="evaluations of a run")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds one run may take")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="runs at a time")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "search", help="where finished runs are kept")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results", help="where the results go")
    return parser


if __name__ == "__main__":
    sys.exit(main())
