"""What the tests of plots share."""

from __future__ import annotations

import io

import pytest

from mptune.plots import parameters


@pytest.fixture(scope="session", autouse=True)
def loaded() -> None:
    """Let what libraries load not be the time of the test that needs them first."""
    pytest.importorskip("sklearn.ensemble")
    figures = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed")
    for suffix in ("png", "svg", "pdf"):
        figures.Figure().add_subplot().figure.savefig(io.BytesIO(), format=suffix)


@pytest.fixture
def quick_forest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make forests of a few trees, where a test is of the picture and not of the ranking."""
    monkeypatch.setattr(parameters, "_TREES", 6)
    monkeypatch.setattr(parameters, "_SHUFFLES", 1)
