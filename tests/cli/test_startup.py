"""What the command line imports before it answers: ``benchmarks/startup.py`` measures what that takes."""

from __future__ import annotations

import re
import subprocess
import sys

from mptune.accuracy.metrics import METRICS
from mptune.cli import app
from mptune.results.metric_expressions import OBJECTIVES
from mptune.results.objective import PENALTIES
from mptune.show import APPLICATION_KINDS, KINDS, SOURCES, SUFFIXES, WIDTHS

HEAVY = {"scipy", "sklearn", "pandas", "altair"}
#: Runs commands one after the other, then prints on standard error which packages were imported.
PROGRAM = """
import sys
from mptune import cli
for words in sys.argv[1:]:
    sys.argv[1:] = words.split()
    try:
        cli.main()
    except SystemExit:
        pass
print("IMPORTED", *{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
"""


def imported(*commands: str, program: str = PROGRAM) -> set[str]:
    """Return the packages that a process imports which runs these commands."""
    line = [sys.executable, "-c", program, *commands]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    found = set(done.stderr.partition("IMPORTED")[2].split())
    assert "mptune" in found
    return found


def test_importing_it_imports_nothing_heavy() -> None:
    found = imported(program="import sys, mptune; print('IMPORTED', *sys.modules, file=sys.stderr)")
    assert not found & (HEAVY | {"numpy", "rich", "jinja2", "cupy", "hip"})


def test_help_and_usage_errors_need_no_numpy() -> None:
    found = imported("--help", *(f"{name} --help" for name in app.commands), "tnue", "tune", "tune axpy --budgit 3")
    assert not found & (HEAVY | {"numpy", "rich"})


def test_errors_in_names_need_nothing_heavy() -> None:
    wrong = ("--size smok", "--strategy bayesain", "--metric NRSME")
    assert not imported(*(f"tune axpy {option}" for option in wrong), "show nothing.db") & HEAVY


def help_of(command: str, option: str) -> str:
    (found,) = (param for param in app.commands[command].params if option in param.opts)
    return str(getattr(found, "help", ""))


def test_help_names_what_there_is() -> None:
    assert all(name in help_of("tune", "--objective") for name in OBJECTIVES)
    assert all(name in help_of("tune", "--penalty") for name in PENALTIES)
    metrics = re.findall(r"\b(?:NR|M|Max)\w*E\b", help_of("tune", "--metric"))
    assert len(metrics) >= 3
    assert set(metrics) <= set(METRICS)
    assert all(kind in help_of("plot", "--kind") for kind in (*KINDS, *APPLICATION_KINDS))
    assert all(suffix in help_of("plot", "--output") for suffix in SUFFIXES)
    assert all(width in help_of("plot", "--width") for width in WIDTHS)
    assert {param.name: param.default for param in app.commands["report"].params}["sources"] == SOURCES
