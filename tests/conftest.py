"""Settings of every test: hypothesis draws the same examples each time, however slow the machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("mptune", deadline=None, derandomize=True)
settings.load_profile("mptune")
