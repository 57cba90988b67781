"""A finished run that the tests of several commands read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mptune.tuner import TuneSettings, tune


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run file of the tests' own kernel, tuned once."""
    path = tmp_path_factory.mktemp("tuned") / "run.db"
    settings = TuneSettings(backend="host", max_error=1e-5, budget=8, strategy="random")
    tune(Path(__file__).parents[1] / "own_kernel.py", settings, output=path)
    return path


@pytest.fixture
def run_file(tuned: Path, tmp_path: Path) -> Path:
    """Return a copy of that run file, in the test's own folder."""
    return Path(shutil.copy(tuned, tmp_path / "run.db"))
