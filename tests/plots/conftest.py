"""What the tests of plots share."""

from __future__ import annotations

import pytest

from mptune.plots import importance


@pytest.fixture
def quick_forest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make forests of a few trees, where a test is of the picture and not of the ranking."""
    monkeypatch.setattr(importance, "_TREES", 6)
    monkeypatch.setattr(importance, "_SHUFFLES", 1)
