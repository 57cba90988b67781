"""What ships and what is said: packages, the README, misspelt names, and plugins that fail."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

import mptune
from mptune.accuracy.metrics import resolve
from mptune.backends import BACKENDS
from mptune.errors import MptuneError
from mptune.observers import OBSERVERS
from mptune.source.loading import load_kernel
from mptune.strategies import STRATEGIES
from mptune.tuning import TuneSettings, tune

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_is_listed() -> None:
    inside = {
        f"mptune.{p.parent.relative_to(ROOT / 'mptune')}".replace("/", ".")
        for p in (ROOT / "mptune").rglob("__init__.py")
    }
    inside = {"mptune" if name == "mptune.." else name for name in inside}
    templates = ("templates", "templates.matrix", "templates.prelude")
    bundled = {f"mptune.{name}" for name in ("applications", "kernels", *templates, "references")}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == inside | bundled


@pytest.mark.full
def test_wheel_has_kernels_templates_references_and_the_prelude(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "runs", "__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("applications", "kernels", "templates", "references"):
        files = [p for p in (ROOT / folder).rglob("*") if p.is_file() and p.suffix in (".py", ".j2", ".hpp")]
        assert files
        for file in files:
            assert f"mptune/{file.relative_to(ROOT)}" in names
    for folder, ending in (("emit/files", ".j2"), ("show/files", ""), ("schemas", ".json")):
        files = list((ROOT / "mptune" / folder).glob(f"*{ending}"))
        assert files
        for file in files:
            assert str(file.relative_to(ROOT)) in names
    assert "mptune/py.typed" in names
    assert not any(name.startswith("tests/") for name in names)


def test_every_public_name_is_there() -> None:
    for name in mptune.__all__:
        assert getattr(mptune, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'tnue'"):
        _ = mptune.tnue


# -- what the README shows works as it stands --------------------------------------------------------

README_ROOT = Path(__file__).parent.parent
README = (README_ROOT / "README.md").read_text()


@pytest.mark.full
def test_own_kernel_has_thirty_lines_and_tunes_outside_the_project(tmp_path: Path) -> None:
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "kernel = Kernel(" in block)
    assert len(code.splitlines()) <= 30
    path = tmp_path / "saxpby.py"
    path.write_text(code)
    settings = TuneSettings(backend="host", sizes={"n": 10_007}, max_error=1e-3, budget=8)
    run = tune(path, settings, output=tmp_path / "run.db")
    assert run.best is not None
    assert run.best.error <= 1e-3
    assert run.statuses.keys() <= {"ok", "inaccurate"}


# -- errors ------------------------------------------------------------------------------------------


# -- a third party's entry point that fails is named, wherever it is met -----------------------------

USES: dict[str, Callable[[], object]] = {
    "kernels": lambda: load_kernel("broken"),
    "metrics": lambda: resolve("broken"),
    "backends": lambda: BACKENDS["broken"],
    "strategies": lambda: STRATEGIES["broken"],
    "observers": lambda: OBSERVERS["broken"],
}


@pytest.mark.parametrize("group", USES)
def test_entry_point_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch, group: str) -> None:
    point = EntryPoint("broken", "no_such_module:thing", f"mptune.{group}")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **which: EntryPoints([point]).select(**which))
    with pytest.raises(MptuneError, match=r"entry point 'no_such_module:thing' .*'broken' cannot be loaded: ModuleNot"):
        USES[group]()
