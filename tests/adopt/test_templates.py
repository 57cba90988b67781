"""Templates as adopted programs have them compute what their references say, in all types."""

from __future__ import annotations

from pathlib import Path

import pytest

from mptune.source.loading import load_kernel
from mptune.tuning import TuneSettings, tune
from tests.tiers import few

TEMPLATES = sorted((Path(__file__).parent / "templates").glob("*.py"))


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::UserWarning")  # of times that were noisy
@pytest.mark.parametrize("path", few(TEMPLATES, 1, 1), ids=lambda path: path.stem)
def test_they_are_accurate(path):
    run = tune(
        load_kernel(str(path)),
        TuneSettings(backend="host", size="smoke", max_error=1e-6, budget=6, verify=5, seed=3, compilers=0),
    )
    assert run.best is not None
    assert run.best.status == "ok"
    assert all(trial.status in ("ok", "inaccurate") for trial in run.trials)
