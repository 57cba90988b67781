"""The picture of an application's answer: its own function, called with what the winner and the widest types give."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from awkward_kernel import run_of
from described import create
from test_application import application

from mptune.errors import KernelError, PlotError
from mptune.results.trial import Measurement, Status, Trial
from mptune.show import plot

pytestmark = pytest.mark.usefixtures("charts")

altair = pytest.importorskip("altair", reason="altair is not installed")

APPLICATION = application()
STEPS = sys.modules[APPLICATION.steps.__module__]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "power.db"
    narrow = {"a_type": "fp32", "x_type": "fp32", "matvec.sum_type": "fp32"}
    trials = [
        Trial(APPLICATION.configuration(values), Status.OK, "", Measurement({"time_ms": time_ms, "error": error}))
        for values, time_ms, error in (({}, 2.0, 0.0), (narrow, 1.0, 1e-7))
    ]
    run = run_of(APPLICATION, [], threshold=1e-3, kernels=list(APPLICATION.kernels))
    with create(path, run) as file:
        file.add(*trials)
    return path


def drawn(outputs: Any, inputs: Any, size: Any) -> Any:
    assert outputs["value"].dtype == outputs["x"].dtype == np.float64
    assert (inputs["a"].shape, outputs["x"].shape) == ((size.n, size.n), (size.n,))
    assert abs(outputs["x"]) == pytest.approx(abs(np.linalg.eigh(inputs["a"])[1][:, -1]), rel=1e-2)
    rows = [{"i": i, "x": float(x)} for i, x in enumerate(outputs["x"])]
    return altair.Chart(altair.InlineData(values=rows)).mark_line().encode(x="i:Q", y="x:Q")


@pytest.mark.full
def test_the_winner_is_drawn_beside_the_widest_types(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STEPS, "picture", drawn, raising=False)
    parts = plot(path, "answer", kernel=APPLICATION).to_dict()["vconcat"]
    titles = [" ".join(part["title"]["text"]) for part in parts]
    assert titles[0] == "in the widest types"
    assert titles[1].startswith("the winner: ")
    assert "speedup 2" in titles[1]


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (
            None,
            "application power has no picture: define picture(outputs, inputs, size) beside its steps",
        ),
        (
            lambda outputs, inputs, size: outputs["y"],
            "the picture of application power failed: KeyError: 'y' (test_application_picture.py:",
        ),
        (lambda outputs, inputs, size: outputs["x"], "it returned ndarray; expected a chart of Vega-Altair"),
    ],
)
def test_what_cannot_be_drawn_says_why(picture: Any, message: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STEPS, "picture", picture, raising=False)
    with pytest.raises((KernelError, PlotError), match=re.escape(message)):
        plot(path, "answer", kernel=APPLICATION)
