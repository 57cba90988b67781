"""A third party's entry point that fails is named, wherever it is met."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from mptune.accuracy.metrics import resolve
from mptune.backends import BACKENDS
from mptune.errors import KernelError, MptuneError
from mptune.observers import OBSERVERS
from mptune.plugins import Registry, load_point
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


def test_a_member_is_found_however_its_name_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declarations = {
        "one": 'name: ClassVar[str] = "one"',
        "two": "name = 'two'",
        "three_words": 'name: str = "three-words"',
        "helper": 'name = "another"',
        "base": "name: ClassVar[str]",
    }
    (tmp_path / "things").mkdir()
    for module, declaration in {**declarations, "__init__": "pass"}.items():
        text = f"from typing import ClassVar\nclass Thing(dict):\n        {declaration}\n"
        (tmp_path / "things" / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    found: Registry[dict[str, str]] = Registry("thing", "things", dict)
    assert list(found) == ["one", "three-words", "two"]
    assert [found[name].name for name in found] == list(found)  # type: ignore[attr-defined]


def test_what_an_entry_point_says_itself_is_kept() -> None:
    class Refusing:
        name, value = "mine", "mine:kernel"

        def load(self) -> object:
            raise KernelError("sizes need a preset named 'default'")

    with pytest.raises(KernelError, match="preset named"):
        load_point(Refusing(), "kernel")  # type: ignore[arg-type]
