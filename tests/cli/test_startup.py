"""What the command line imports before it answers: ``benchmarks/startup.py`` measures what that takes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mptune
from mptune.accuracy.metrics import METRICS
from mptune.cli import app
from mptune.folders import bundled_folder
from mptune.metric_expressions import OBJECTIVES
from mptune.objective import PENALTIES
from mptune.plots import APPLICATION_KINDS, KINDS, SUFFIXES, WIDTHS_IN
from mptune.report import SOURCES

HEAVY = {"scipy", "sklearn", "pandas", "matplotlib"}
#: Runs the command line, then prints on standard error which packages were imported.
PROGRAM = """
import sys
from mptune import cli
try:
    cli.main()
finally:
    print("IMPORTED", *{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
"""


def imported(program: str, *arguments: str) -> set[str]:
    """Return the packages a program imports."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    return set(done.stderr.partition("IMPORTED")[2].split())


@pytest.mark.parametrize("module", ["mptune", "mptune.cli"])
def test_importing_it_imports_nothing_heavy(module: str) -> None:
    found = imported(f"import sys, {module}; print('IMPORTED', *sys.modules, file=sys.stderr)")
    assert module in found
    assert not found & (HEAVY | {"numpy", "rich", "jinja2"})


@pytest.mark.parametrize(
    "arguments",
    [["--help"], *([name, "--help"] for name in app.commands), ["tnue"], ["tune"], ["tune", "axpy", "--budgit", "3"]],
    ids=" ".join,
)
def test_help_and_usage_errors_need_no_numpy(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = imported(PROGRAM, *arguments)
    assert "mptune" in found
    assert not found & (HEAVY | {"numpy", "rich"})


def test_listing_kernels_needs_numpy_only_the_first_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MPTUNE_CACHE_DIR", str(tmp_path))
    first = imported(PROGRAM, "list")
    assert "numpy" in first
    assert not first & HEAVY
    assert "numpy" not in imported(PROGRAM, "list")


@pytest.mark.parametrize("arguments", [["tune", "convolutoin"], ["render", "convolutoin"], ["backends"]], ids=" ".join)
def test_commands_without_a_kernel_need_no_numpy(arguments: list[str]) -> None:
    found = imported(PROGRAM, *arguments)
    assert not found & HEAVY
    assert "numpy" not in found or found & {"cupy", "pyopencl"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["tune", "axpy", "--size", "smok"],
        ["tune", "axpy", "--strategy", "bayesain"],
        ["tune", "axpy", "--metric", "NRSME"],
        ["show", "nothing.db"],
    ],
    ids=" ".join,
)
def test_errors_in_names_need_nothing_heavy(arguments: list[str]) -> None:
    assert not imported(PROGRAM, *arguments) & HEAVY


def test_what_is_kept_of_the_list_is_never_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from mptune.cli import kernels

    monkeypatch.setenv("MPTUNE_CACHE_DIR", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "_describe", lambda name: {"kernel": name})
        first = kernels._kernels()
        assert kernels._kernels() == first
    (kept,) = (tmp_path / "list").iterdir()
    text = kept.read_bytes()
    (tmp_path / "kernels").mkdir()
    for file in bundled_folder("kernels").glob("*.py"):
        shutil.copy(file, tmp_path / "kernels")
    with (tmp_path / "kernels" / "axpy.py").open("a") as changed:
        changed.write("#")
    rows = [{"kernel": row["kernel"], "now": True} for row in first]
    monkeypatch.setattr(kernels, "_describe", lambda name: {"kernel": name, "now": True})
    for damaged in (
        b"",
        text.replace(b"axpy", b"apxy"),
        text[:-1],
        b"\xff" + text,
        b"[]",
        b"5",
        b'{"axpy":5}',
        b"[" * 200_000,
    ):
        kept.write_bytes(damaged)
        assert kernels._kernels() == rows
        assert [file.name for file in kept.parent.iterdir()] == ["kernels.json"]
    kept.write_bytes(text)
    assert kernels._kernels() == first
    monkeypatch.setattr(kernels, "bundled_folder", lambda _: tmp_path / "kernels")
    assert kernels._kernels() == rows


def help_of(command: str, option: str) -> str:
    (found,) = (param for param in app.commands[command].params if option in param.opts)
    return str(getattr(found, "help", ""))


def test_help_names_what_there_is() -> None:
    assert all(name in help_of("tune", "--objective") for name in OBJECTIVES)
    assert all(name in help_of("tune", "--penalty") for name in PENALTIES)
    assert all(name in METRICS for name in ("NRMSE", "MRE", "MaxAE") if name in help_of("tune", "--metric"))
    assert all(kind in help_of("plot", "--kind") for kind in (*KINDS, *APPLICATION_KINDS))
    assert all(suffix in help_of("plot", "--output") for suffix in SUFFIXES)
    assert all(width in help_of("plot", "--width") for width in WIDTHS_IN)
    assert {param.name: param.default for param in app.commands["report"].params}["sources"] == SOURCES


def test_every_public_name_is_there() -> None:
    assert {name for name in mptune.__all__ if getattr(mptune, name) is None} == set()
    assert set(mptune.__all__) <= set(dir(mptune))
    with pytest.raises(AttributeError, match="no attribute 'tunne'"):
        mptune.tunne  # noqa: B018
