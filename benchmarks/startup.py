"""How long the command line takes to answer, beside importing NumPy alone.

Commands are run in turn, round after round; a figure is the median of the rounds' processor time, user and system, of
the whole process and what it starts. The first round is not counted: it reads the files from disk and compiles byte
code, which is kept for the others even where ``PYTHONDONTWRITEBYTECODE`` is set, and finds what ``list`` keeps.

    python benchmarks/startup.py [--rounds 15] [--output FILE.md]
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import bench  # noqa: E402

NUMPY: Final = ("-c", "import numpy")
MPTUNE: Final = ("-m", "mptune")
#: Hides the packages of the GPU extras and their libraries.
WITHOUT_EXTRAS: Final = """
import ctypes, sys
for name in ("cupy", "cupy_backends", "nvidia", "cuda", "hip", "pynvml", "amdsmi"):
    sys.modules[name] = None
load = ctypes.CDLL
def without(name, *arguments, **options):
    if any(part in str(name) for part in ("nvrtc", "hiprtc", "amdhip", "libcuda")):
        raise OSError(f"{name} is hidden")
    return load(name, *arguments, **options)
ctypes.CDLL = without
from mptune.cli import main
main()
"""
#: Loads what ``backends`` loads of the extras, and nothing of mptune's but what finds it.
EXTRAS: Final = """
from mptune.backends import BACKENDS
for name in ("cuda", "hip"):
    BACKENDS[name].availability()
"""
EXTRAS_HIDDEN: Final = WITHOUT_EXTRAS.partition("from mptune.cli")[0] + EXTRAS


@dataclass(frozen=True, slots=True)
class Case:
    """A command and the most it may take, as a multiple of importing NumPy; None: it is there for comparison."""

    what: str
    command: tuple[str, ...]
    limit: float | None = None


def cases(run_file: Path) -> list[Case]:
    """Return what is measured.

    Args:
        run_file: a run for the commands that read one.
    """
    from mptune.cli import app

    def mptune(limit: float, *words: str) -> Case:
        shown = " ".join(("mptune", *words)).replace(str(run_file), "RUN.db")
        return Case(f"`{shown}`", (*MPTUNE, *words), limit)

    return [
        Case('`python -c "import numpy"`', NUMPY),
        mptune(1.5, "--help"),
        *(mptune(1.5, name, "--help") for name in app.commands),
        mptune(1.5, "list"),
        mptune(1.5, "tnue"),
        mptune(1.5, "tune"),
        mptune(1.5, "tune", "axpy", "--budgit", "3"),
        Case("`mptune backends` without GPU extras", ("-c", WITHOUT_EXTRAS, "backends"), 1.5),
        mptune(float("nan"), "backends"),
        Case("the GPU extras that are here", ("-c", EXTRAS)),
        Case("the same search without them", ("-c", EXTRAS_HIDDEN)),
        mptune(3, "show", str(run_file)),
        mptune(3, "tune", "convolutoin"),
        mptune(3, "tune", "axpy", "--size", "smok"),
        mptune(3, "tune", "axpy", "--metric", "NRSME"),
        mptune(3, "tune", "axpy", "--strategy", "bayesain"),
        mptune(3, "tune", "axpy", "--backend", "hots"),
        mptune(3, "render", "axpy", "-p", "xtype=fp16"),
    ]


def processor_s(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Return the processor time of a Python program and its children, in seconds."""
    process = subprocess.Popen(
        [sys.executable, *command], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    return used.ru_utime + used.ru_stime


def medians(measured: Sequence[Case], rounds: int) -> list[float]:
    """Return the median processor time of each case in seconds; a first round is not counted."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {"PYTHONPYCACHEPREFIX": f"{folder}/byte-code", "MPTUNE_CACHE_DIR": f"{folder}/mptune"}
        environment = {**os.environ, **kept}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        times = [[processor_s(case.command, environment) for case in measured] for _ in range(rounds + 1)][1:]
    return [statistics.median(each) for each in zip(*times, strict=True)]


def page(_: argparse.Namespace, results: Mapping[str, Any]) -> str:
    """Return the page."""
    rows = [
        (row["what"], f"{row['s'] * 1e3:.0f}", f"{row['ratio']:.2f}", *_limit(row)) for row in results["times"]["cases"]
    ]
    return (
        f"Processor time, median of {results['times']['rounds']} rounds in turn, beside importing NumPy alone; the "
        "ratio each may reach. A round before them is not counted: in it byte code is compiled.\n\n"
        + bench.table(("what", "ms", "ratio", "limit", "met"), rows)
    )


def _limit(row: Mapping[str, Any]) -> tuple[str, str]:
    return ("", "") if row["limit"] is None else (f"{row['limit']:.2g}", bench.verdict(row["ratio"] <= row["limit"]))


def times_of(rounds: int) -> dict[str, Any]:
    """Return the time of each case, and its limit."""
    with tempfile.TemporaryDirectory() as folder:
        run_file = Path(folder) / "run.db"
        tuning = ["tune", "axpy", "--backend", "host", "--size", "smoke", "--budget", "3", "--strategy", "random"]
        subprocess.run([sys.executable, *MPTUNE, *tuning, "--output", str(run_file)], check=True, capture_output=True)
        measured = cases(run_file)
        seconds = medians(measured, rounds)
    found = dict(zip((case.what for case in measured), seconds, strict=True))
    # What the extras take comes on top of a limit that is not a number.
    extra_s = max(found["the GPU extras that are here"] - found["the same search without them"], 0.0)
    rows = []
    for case, taken_s in zip(measured, seconds, strict=True):
        limit = 1.5 + extra_s / seconds[0] if case.limit is not None and math.isnan(case.limit) else case.limit
        rows.append({"what": case.what, "s": taken_s, "ratio": taken_s / seconds[0], "limit": limit})
    return {"rounds": rounds, "cases": rows}


def measure(options: argparse.Namespace, sheet: bench.Sheet) -> int:
    """Measure all cases; return 1 if one takes longer than it may."""
    found = sheet.add("times", lambda: times_of(options.rounds), rounds=options.rounds)
    return int(any(row["limit"] is not None and row["ratio"] > row["limit"] for row in found["cases"]))


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    made = bench.parser(__doc__, bench.RESULTS / "startup.md")
    made.add_argument("--rounds", type=int, default=15)
    return made


if __name__ == "__main__":
    sys.exit(bench.main(parser(), "How long the command line takes to answer", measure, page))
