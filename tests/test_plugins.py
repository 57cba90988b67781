"""A third party's entry point that fails is named, wherever it is met."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from mptune.accuracy.metrics import resolve
from mptune.backends import BACKENDS
from mptune.errors import MptuneError
from mptune.observers import OBSERVERS
from mptune.source.loading import load_kernel
from mptune.strategies import STRATEGIES

USES: dict[str, Callable[[], object]] = {
    "kernels": lambda: load_kernel("broken"),
    "metrics": lambda: resolve("broken"),
    "backends": lambda: BACKENDS["broken"],
    "strategies": lambda: STRATEGIES["broken"],
    "observers": lambda: OBSERVERS["broken"],
}


@pytest.mark.parametrize("group", USES)
def test_entry_point_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch, group: str) -> None:
    point = EntryPoint("broken", "no_such_module:thing", f"mptune.{group}")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **which: EntryPoints([point]).select(**which))
    with pytest.raises(MptuneError, match=r"entry point 'no_such_module:thing' .*'broken' cannot be loaded: ModuleNot"):
        USES[group]()
