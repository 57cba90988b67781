"""Fixtures of the tests of charts and reports."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _charts(charts: None) -> None:
    """Have charts loaded before the first test."""
    pytest.importorskip("sklearn.ensemble")
