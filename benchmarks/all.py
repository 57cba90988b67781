"""Run every benchmark, one after the other, and say which ended well.

    python benchmarks/all.py --quick [--only search_quality,adopt] [--output FOLDER]
    python benchmarks/all.py [--output benchmarks/results]

``--quick`` runs one small row of each: it shows that the programs work, in ten minutes at most. Without it they run at
their full size, which takes a day on two cores.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import bench  # noqa: E402
from mptune.errors import MptuneError  # noqa: E402


@dataclass(frozen=True, slots=True)
class Program:
    """A benchmark.

    Attributes:
        quick: words of its small row; ``{out}`` is a folder for results, ``{work}`` one for progress.
        full: words of its full size.
        may_miss: its exit code 1 says that a target was missed.
        needs: pattern of files beside the checkout without which it is skipped.
    """

    quick: str
    full: str = "--output {out}/{name}.md"
    may_miss: bool = False
    needs: str = ""


_SEARCH: Final = "--seeds 1 --slow-seeds 1 --budget 20 --strategies random --peers none --processes 1"
#: By the name of the file; the cheapest first.
PROGRAMS: Final[Mapping[str, Program]] = {
    "pareto_quality": Program(
        "--only axpy --tools 'mptune random' --seeds 1 --budget 6 --work {work} --output {out}", "--output {out}"
    ),
    "search_quality": Program(
        f"--sections mixed --only axpy {_SEARCH} --work {{work}} --output {{out}}", "--output {out}"
    ),
    "papers": Program("h-t2 --quick --output {out} --work {work}", "all --output {out}"),
    "timing_quality": Program("statistics --output {out}/{name}.md"),
    "sizes": Program("--errors --kernels axpy --types 1 --draws 2 --output {out}/{name}.md"),
    "startup": Program("--rounds 1 --output {out}/{name}.md", may_miss=True),
    "throughput": Program("--budget 3 --rounds 1 --alone --output {out}/{name}.md"),
    "kernels": Program(
        "--kernels axpy --size smoke --rounds 2 --candidates 1 --budget 3 --runs {work} --output {out}/{name}.md",
        "--runs {work} --output {out}/{name}.md",
    ),
    "unseen": Program("--kernels axpy --budget 3 --draws 5 --output {out}/{name}.md"),
    "trust": Program("--seeds 1 --budget 8 --only work_queue --output {out}/{name}.md", may_miss=True),
    "adopt": Program("--programs friction --thresholds 1e-3 --budget 2 --output {out}/{name}.md"),
    "applications": Program(
        "--applications bbac --parts ways --size bbac:cells=200 --size bbac:years=4 --seeds 1 --budget 4 "
        "--output {out}/{name}.md"
    ),
    "transfer": Program("--seeds 1 --only pnpoly --output {out}/{name}.md", needs="shared/spaces/pnpoly-*.json.gz"),
}


def run(name: str, words: str, folder: Path) -> tuple[int, float]:
    """Run a program; return its exit code and seconds."""
    paths = {"out": shlex.quote(str(folder)), "work": shlex.quote(str(folder / "work")), "name": name}
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *shlex.split(words.format(**paths))]
    start = time.monotonic()
    with (folder / f"{name}.log").open("w") as log:
        code = subprocess.run(command, stdout=log, stderr=log, cwd=ROOT, env=os.environ, check=False).returncode
    return code, time.monotonic() - start


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks; return 0 if all ended well, 1 if one did not, 2 for wrong input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small row of each")
    parser.add_argument("--only", default="", help="names, separated by commas [all]")
    parser.add_argument("--output", type=Path, help="folder of results (benchmarks/results; quick: build/benchmarks)")
    options = parser.parse_args(arguments)
    try:
        names = bench.names_in(options.only, PROGRAMS, "benchmark") or tuple(PROGRAMS)
    except MptuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    folder = (options.output or (ROOT / "build" / "benchmarks" if options.quick else bench.RESULTS)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    rows, failed = [], False
    for name in names:
        program = PROGRAMS[name]
        if program.needs and not any(ROOT.parent.glob(program.needs)):
            rows.append((name, f"skipped: there is no {program.needs}", "-"))
            continue
        code, seconds = run(name, program.quick if options.quick else program.full, folder)
        is_well = code == 0 or (code == 1 and program.may_miss)
        failed = failed or not is_well
        rows.append((name, "ended well" if is_well else f"**exit code {code}**, see {name}.log", f"{seconds:.0f}"))
        print(f"{name}: {rows[-1][1]}, {seconds:.0f} s", file=sys.stderr, flush=True)
    print(bench.table(("benchmark", "result", "s"), rows))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
