"""What the README shows works as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mptune.source.loading import bundled_kernels
from mptune.tuning import TuneSettings, tune

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


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


def test_table_of_kernels_is_complete() -> None:
    assert tuple(re.findall(r"^\| (\w+) \| .* \| (?:NRMSE|MRE|NMAE) \|$", README, re.MULTILINE)) == bundled_kernels()
