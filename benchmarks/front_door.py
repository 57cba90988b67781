"""Scripts written for Kernel Tuner, each run as it stands by ``python -m mptune.kernel_tuner``.

Every script of a folder that calls ``tune_kernel``, ``run_kernel`` or ``PythonKernel`` is run in a copy of its folder.
Where Kernel Tuner itself can run one on a processor (C and OpenCL), it evaluates as many configurations for comparison.

    python benchmarks/front_door.py FOLDER [--budget 10] [--limit 600] [--only NAME,...] [--peer] [--output FILE.md]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import bench  # noqa: E402
from mptune.memory import available_memory_bytes  # noqa: E402

_CALLS: Final = re.compile(r"\b(?:tune_kernel|run_kernel|PythonKernel)\s*\(")
#: A line that a search prints for a configuration: parameters, then a time or an error.
_EVALUATED: Final = re.compile(r"^\w+=[^\n]*?(?:, time=|\b\w+Config\b)", re.MULTILINE)
_FAILED: Final = re.compile(r"^\w+=[^\n]*\b(\w+Config)\b", re.MULTILINE)
#: Scripts that Kernel Tuner runs on a processor.
_ON_PROCESSOR: Final = re.compile(r"__kernel\b|\.cl['\"]|omp\.h")
#: Runs a script by Kernel Tuner, with as many evaluations of each search.
_PEER: Final = """
import runpy, sys
from mptune.backends.opencl import OpenclBackend
OpenclBackend.availability()  # registers the drivers of wheels
import kernel_tuner, kernel_tuner.interface as interface
theirs, budget = interface.tune_kernel, int(sys.argv[1])
def limited(*arguments, **options):
    options.setdefault("strategy", "random_sample")
    options["strategy_options"] = {**(options.get("strategy_options") or {}), "max_fevals": budget}
    return theirs(*arguments, **options)
kernel_tuner.tune_kernel = interface.tune_kernel = limited
script = sys.argv[2]
sys.argv = [script]
runpy.run_path(script, run_name="__main__")
"""


def scripts(folder: Path, only: Sequence[str]) -> list[Path]:
    """Return the scripts of a folder that call Kernel Tuner."""
    found = sorted(path for path in folder.rglob("*.py") if _CALLS.search(path.read_text(encoding="utf-8")))
    return [path for path in found if not only or any(name in str(path.relative_to(folder)) for name in only)]


def ended(command: Sequence[str], folder: Path, limit_s: float, spare_bytes: int) -> tuple[str, str, float]:
    """Run a command; return how it ended, what it printed and its seconds.

    It is ended when its time is over, or the machine has less memory left than ``spare_bytes``.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}", "MPTUNE_CACHE_DIR": f"{folder}/.mptune"}
        start = time.monotonic()
        child = subprocess.Popen(
            command, cwd=folder, stdout=printed, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        how = ""
        while child.poll() is None and not how:
            time.sleep(0.1)
            how = "too long" if time.monotonic() - start > limit_s else ""
            how = "too much memory" if available_memory_bytes() < spare_bytes else how
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        code, took_s = child.wait(), time.monotonic() - start
        printed.seek(0)
        text = printed.read()
    return how or ("ran" if code == 0 else "refused" if code == 2 else "failed"), text, took_s


def outcome(script: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run a script by mptune, and by Kernel Tuner where that is asked for."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "scripts"
        shutil.copytree(script.parent, folder)
        is_test = script.name.startswith("test_")
        how = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", script.name] if is_test else [script.name]
        command = [sys.executable, "-m", "mptune.kernel_tuner", "--budget", str(options.budget), *how]
        spare_bytes = int(options.spare * 2**30)
        state, text, took_s = ended(command, folder, options.limit, spare_bytes)
        if is_test and re.search(r"^\d+ skipped", text, re.MULTILINE):
            state, text = "refused", f"error: skips itself: {text}"
        lines = [line for line in text.strip().splitlines() if line.strip()]
        # The last error is the reason, or the last line.
        errors = [line for line in lines if re.match(r"(?:error|\w+Error|SKIPPED)\b", line)]
        searched = re.sub(r"^BEST PERFORMING[^\n]*\n[^\n]*", "", text, flags=re.MULTILINE)
        found: dict[str, Any] = {
            "state": state,
            "s": took_s,
            "configurations": len(_EVALUATED.findall(searched)),
            "failed": len(_FAILED.findall(text)),
            "why": "" if state == "ran" else (errors or lines or [""])[-1].removeprefix("error: ")[:200],
        }
        if options.keep:
            (options.keep / f"{script.parent.name}-{script.stem}.txt").write_text(text, encoding="utf-8")
        sources = "".join(
            each.read_text(encoding="utf-8") for each in (script, *script.parent.glob(f"{script.stem}.c*"))
        )
        if options.peer and state == "ran" and _ON_PROCESSOR.search(sources) and not is_test:
            peer = [sys.executable, "-c", _PEER, str(options.budget), script.name]
            found["peer"], text, found["peer_s"] = ended(peer, folder, options.limit, spare_bytes)
            if found["peer"] != "ran":
                found["peer"] = (text.strip().splitlines() or [""])[-1][:80]
    return found


def page(options: argparse.Namespace, results: Mapping[str, Any]) -> str:
    """Return the table."""
    ran = [row for row in results.values() if row["state"] == "ran"]
    rows = []
    for name, row in results.items():
        peer = f"{row['peer_s']:.0f}" if row.get("peer") == "ran" else row.get("peer", "")
        configurations = f"{row['configurations'] - row['failed']} of {row['configurations']}"
        rows.append((name, row["state"], f"{row['s']:.0f}", configurations, peer, row["why"].replace("|", "\\|")))
    return (
        f"{len(ran)} of {len(results)} scripts ran, with at most {options.budget} configurations of each search.\n\n"
        + bench.table(("script", "", "s", "valid configurations", "Kernel Tuner, s", "why not"), rows)
    )


def measure(options: argparse.Namespace, sheet: bench.Sheet) -> int:
    """Run every script."""
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    for script in scripts(options.folder, options.only.split(",") if options.only else ()):
        name = str(script.relative_to(options.folder))
        row = sheet.add(name, lambda script=script: outcome(script, options), budget=options.budget)  # type: ignore[misc]
        print(f"{name}: {row['state']} {row['why']}", file=sys.stderr)
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    made = bench.parser(__doc__, bench.BUILD / "front_door.md")
    made.add_argument("folder", type=Path, metavar="FOLDER", help="the folder of the scripts")
    made.add_argument("--budget", type=int, default=10, help="configurations of each search")
    made.add_argument("--limit", type=float, default=600.0, help="seconds of a script")
    made.add_argument("--spare", type=float, default=1.0, help="GiB of memory that stay free on this machine")
    made.add_argument("--only", default="", help="parts of the names of scripts, with commas")
    made.add_argument("--peer", action="store_true", help="also run Kernel Tuner where it runs on a processor")
    made.add_argument("--keep", type=Path, help="a folder for what the scripts print")
    return made


if __name__ == "__main__":
    sys.exit(bench.main(parser(), "Scripts written for Kernel Tuner", measure, page))
