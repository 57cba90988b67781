"""What the tests of charts and reports share."""

from __future__ import annotations

from pathlib import Path

import pytest
from reported_runs import small_run

from mptune.show import plot, save, write_report


@pytest.fixture(scope="session", autouse=True)
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Let what libraries load, and the cached script of Vega, not be the time of the test that needs them first."""
    pytest.importorskip("altair", reason="altair is not installed")
    pytest.importorskip("sklearn.ensemble")
    folder = tmp_path_factory.mktemp("loaded")
    for suffix in ("png", "svg", "pdf", "html"):
        save(plot(small_run()), folder / f"a.{suffix}")
    write_report(small_run(), folder / "report.html")
    return folder
