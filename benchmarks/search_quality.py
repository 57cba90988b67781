"""How well mptune searches, beside its peers in the same run.

    python benchmarks/search_quality.py [--sections timing,...] [--spaces ../shared/spaces] [--seeds 20]

Writes ``search.md`` and a folder ``search`` with JSON documents. Every finished run is remembered in
``--work``, so that a benchmark that was stopped goes on where it was. The peers come with ``pip install
mptune[benchmarks]``; one that is missing is left out and said to be missing.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.bench import names_in  # noqa: E402
from benchmarks.search.cells import Cache  # noqa: E402
from benchmarks.search.peers import PEERS  # noqa: E402
from benchmarks.search.report import write  # noqa: E402
from benchmarks.search.runner import run_jobs  # noqa: E402
from benchmarks.search.section import (  # noqa: E402
    SECTIONS,
    Settings,
    load,
)
from mptune.errors import MptuneError  # noqa: E402
from mptune.strategies import STRATEGIES  # noqa: E402


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when every run ended well, 1 when one failed, 2 for wrong input."""
    given = _parser().parse_args(arguments)
    try:
        return _run(given, ["benchmarks/search_quality.py", *(sys.argv[1:] if arguments is None else arguments)])
    except MptuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(given: argparse.Namespace, command: Sequence[str]) -> int:
    settings = _settings(given)
    sections = names_in(given.sections, SECTIONS, "section")
    cache = Cache(given.work)
    for peer in (PEERS[name] for name in settings.peers):
        if not peer.is_installed:
            print(f"{peer.name}: {peer.install}", file=sys.stderr)
    failed = False
    for name in sections:
        section = load(name)
        jobs = section.jobs(settings)
        if not jobs:
            print(f"{name}: nothing to run (spaces: {settings.spaces}, data: {settings.data})", file=sys.stderr)
            continue
        results = run_jobs(jobs, cache, given.processes, lambda line: print(line, file=sys.stderr, flush=True))
        failed = failed or bool(results.failures)
        report = section.report(settings, results)
        written = write(report, name, given.output, f"python {shlex.join(command)}")
        print(f"\n{report.markdown}\n\nwritten: {', '.join(map(str, written))}")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Search quality of mptune and its peers on recorded spaces.")
    parser.add_argument("--sections", default=",".join(SECTIONS), help=f"by commas, of {', '.join(SECTIONS)}")
    parser.add_argument(
        "--spaces", type=Path, default=ROOT.parent / "shared" / "spaces", help="folder of timing-only recorded spaces"
    )
    parser.add_argument(
        "--data", type=Path, default=ROOT / "benchmarks" / "data", help="folder of recorded mixed-precision spaces"
    )
    parser.add_argument("--only", default="", help="spaces whose file names have one of these parts, by commas")
    parser.add_argument("--seeds", type=int, default=20, help="runs of every tool on every space")
    parser.add_argument("--slow-seeds", type=int, default=5, help="runs of tools that take more than a minute for one")
    parser.add_argument("--budget", type=int, default=220, help="evaluations of a run")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds one run may take")
    strategies = [
        "bayesian",
        *(name for name in STRATEGIES if name not in ("bayesian", "bayesian-pareto", "exhaustive")),
    ]
    parser.add_argument("--strategies", default=",".join(strategies), help="strategies of mptune, by commas")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"by commas, of {', '.join(PEERS)}; or none")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="runs at a time")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "search", help="where finished runs are kept")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results", help="where the results go")
    return parser


def _settings(given: argparse.Namespace) -> Settings:
    for name in ("seeds", "slow_seeds", "budget", "processes"):
        if getattr(given, name) < 1:
            raise MptuneError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(given, name)}")
    return Settings(
        spaces=given.spaces,
        data=given.data,
        seeds=given.seeds,
        slow_seeds=min(given.slow_seeds, given.seeds),
        budget=given.budget,
        limit_s=given.limit,
        strategies=names_in(given.strategies, STRATEGIES, "strategy"),
        peers=() if given.peers == "none" else names_in(given.peers, PEERS, "peer"),
        only=tuple(part.strip() for part in given.only.split(",") if part.strip()),
    )


if __name__ == "__main__":
    sys.exit(main())
