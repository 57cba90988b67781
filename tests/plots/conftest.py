"""What the tests of plots share."""

from __future__ import annotations

import pytest

from mptune.plots import parameters


@pytest.fixture
def quick_forest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make forests of a few trees, where a test is of the picture and not of the ranking."""
    monkeypatch.setattr(parameters, "_TREES", 6)
    monkeypatch.setattr(parameters, "_SHUFFLES", 1)
