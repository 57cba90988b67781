"""How long the command line takes to answer, beside importing NumPy alone.

Commands are run in turn, round after round; a figure is the median of the rounds' processor time, user and system, of
the whole process and what it starts. The first round is not counted: it reads the files from disk and compiles byte
code, which is kept for the others even where ``PYTHONDONTWRITEBYTECODE`` is set, and finds what ``list`` keeps.

    python benchmarks/startup.py [--rounds 15] [--output FILE.md]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

OUTPUT: Final = Path(__file__).parent / "results" / "startup.md"
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


def measure(measured: Sequence[Case], rounds: int) -> list[float]:
    """Return the median processor time of each case in seconds; a first round is not counted."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {"PYTHONPYCACHEPREFIX": f"{folder}/byte-code", "MPTUNE_CACHE_DIR": f"{folder}/mptune"}
        environment = {**os.environ, **kept}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        times = [[processor_s(case.command, environment) for case in measured] for _ in range(rounds + 1)][1:]
    return [statistics.median(each) for each in zip(*times, strict=True)]


def report(measured: Sequence[Case], medians: Sequence[float], rounds: int) -> tuple[str, int]:
    """Return the results as a page, and how many cases take longer than they may."""
    found = dict(zip((case.what for case in measured), medians, strict=True))
    numpy_s = medians[0]
    extras_s = found["the GPU extras that are here"] - found["the same search without them"]
    rows, late = [], 0
    for case, seconds in zip(measured, medians, strict=True):
        limit = case.limit
        if limit is not None and limit != limit:  # what the extras take comes on top
            limit = 1.5 + max(extras_s, 0.0) / numpy_s
        verdict = "" if limit is None else "yes" if seconds <= limit * numpy_s else "**no**"
        late += verdict == "**no**"
        shown = "" if limit is None else f"{limit:.2g}"
        rows.append(f"| {case.what} | {seconds * 1e3:.0f} | {seconds / numpy_s:.2f} | {shown} | {verdict} |")
    from mptune.backends.processor import processor, usable_cores

    machine = f"{processor().name}, {usable_cores()} cores"
    lines = [
        "# How long the command line takes to answer",
        "",
        "    python benchmarks/startup.py",
        "",
        f"Python {platform.python_version()}; {machine}; {datetime.now(UTC):%Y-%m-%d}. Processor time, median of "
        f"{rounds} rounds in turn, beside importing NumPy alone; the ratio each may reach. A round before them is not "
        "counted: in it byte code is compiled, and `mptune list` counts configurations, which it keeps.",
        "",
        "| what | ms | ratio | limit | met |",
        "|---|--:|--:|--:|---|",
        *rows,
        "",
    ]
    return "\n".join(lines), late


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when every limit is met, 1 when one is not."""
    parser = argparse.ArgumentParser(description="How long the command line takes to answer.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        run_file = Path(folder) / "run.db"
        tuning = ["tune", "axpy", "--backend", "host", "--size", "smoke", "--budget", "3", "--strategy", "random"]
        subprocess.run([sys.executable, *MPTUNE, *tuning, "--output", str(run_file)], check=True, capture_output=True)
        measured = cases(run_file)
        text, late = report(measured, measure(measured, given.rounds), given.rounds)
    given.output.write_text(text)
    print(text)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
