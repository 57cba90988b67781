"""What ships: every package is listed, the wheel has the bundled files, importing stays light."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import mptune

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


def test_version_is_one() -> None:
    assert PROJECT["project"]["version"] == mptune.__version__


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
