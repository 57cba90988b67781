"""A finished run that the tests of several commands read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mptune.tuner import TuneSettings, tune


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run file of the tests' own kernel, tuned once: with a winner, and a front of several.

    Times are real, so that noise may leave a single one on the front; then another seed is tried.
    """
    for seed in range(5):
        path = tmp_path_factory.mktemp("tuned") / "run.db"
        settings = TuneSettings(backend="host", max_error=1e-5, budget=8, strategy="random", seed=seed)
        run = tune(Path(__file__).parents[1] / "own_kernel.py", settings, output=path, on_warning=lambda _: None)
        if run.best is not None and run.best is not run.baseline and len(run.pareto()) > 1:
            break
    return path


@pytest.fixture
def run_file(tuned: Path, tmp_path: Path) -> Path:
    """Return a copy of that run file, in the test's own folder."""
    return Path(shutil.copy(tuned, tmp_path / "run.db"))
