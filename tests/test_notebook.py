"""A run and its progress as a notebook shows them: everything is text, nothing is run."""

from __future__ import annotations

import html.parser
import sys
import types
from typing import Any

import own_kernel
import pytest
from awkward_kernel import AWKWARD, NASTY, run_of
from made_up_devices import MadeUp, replace_devices

import mptune
from mptune import progress as notebook
from mptune import tuning as tuner
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run

POLY = own_kernel.kernel


class Reader(html.parser.HTMLParser):
    """Collects tags and text, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.tags.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


def awkward_run(**settings: Any) -> Run:
    good = Trial(
        AWKWARD.configuration({"register": NASTY}), Status.OK, "", Measurement({"time_ms": 2.0, "error": 1e-9})
    )
    failed = Trial(AWKWARD.configuration({"x_type": "bf16"}), Status.COMPILE_ERROR, f"<b>{NASTY}</b>")
    return run_of(AWKWARD, [good, failed], device="<script>alert(1)</script>", **settings)


def test_a_run_is_shown_and_everything_in_it_is_text() -> None:
    reader = Reader(awkward_run()._repr_html_())
    assert reader.tags <= {"p", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    text = "\n".join(reader.cells)
    assert NASTY in text
    assert "<script>alert(1)</script>" in text
    assert f"<b>{NASTY}</b>" in text
    assert "best, baseline" in text
    assert "time (ms)\n2\n" in text
    assert "compile_error\n1" in text


class Handle:
    def __init__(self, shown: list[str]) -> None:
        self.update = shown.append


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is displayed in a pretended notebook, one after the other in one place."""
    texts: list[str] = []
    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    display: Any = types.ModuleType("IPython.display")
    display.HTML = str

    def show(text: str, display_id: bool) -> Handle:
        assert display_id
        texts.append(text)
        return Handle(texts)

    display.display = show
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(notebook, "_REFRESH_S", 0.0)
    return texts


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_devices(monkeypatch, lambda configuration: MadeUp(1.0, 1e-16))


OPTIONS: dict[str, Any] = {"backend": "host", "size": "smoke", "strategy": "random", "budget": 3}


def test_tuning_in_a_notebook_shows_where_it_stands(shown: list[str]) -> None:
    run = mptune.tune(POLY, **OPTIONS)
    assert run.evaluations == 3
    first, *later, last = ["\n".join(Reader(text).cells) for text in shown]
    assert first == "preparing"
    assert "1/3 evaluations" in later[0]
    assert "3/3 evaluations" in last
    assert run.best is not None
    assert str(run.best.configuration)[:20] in last


def test_outside_a_notebook_nothing_is_shown(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert notebook.in_notebook()
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: None)
    assert not notebook.in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not notebook.in_notebook()
    assert mptune.tune.__doc__ == tuner.tune.__doc__
