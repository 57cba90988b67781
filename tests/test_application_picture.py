"""The picture of an application's answer: its own function, called with what the winner and the widest types give."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from awkward_kernel import run_of
from command_line import caller
from described import create
from test_application import application

from mptune.errors import KernelError, PlotError
from mptune.plots import plot
from mptune.results import Measurement, Status, Trial

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

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
        file.add_all(trials)
    return path


def drawn(outputs: Any, inputs: Any, size: Any) -> Any:
    from matplotlib.figure import Figure

    assert outputs["value"].dtype == outputs["x"].dtype == np.float64
    assert (inputs["a"].shape, outputs["x"].shape) == ((size.n, size.n), (size.n,))
    assert abs(outputs["x"]) == pytest.approx(abs(np.linalg.eigh(inputs["a"])[1][:, -1]), rel=1e-2)
    figure = Figure(figsize=(2.0, 1.5))
    figure.add_subplot().plot(outputs["x"])
    return figure


@pytest.mark.full
def test_the_winner_is_drawn_beside_the_widest_types(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STEPS, "picture", drawn, raising=False)
    figure = plot(path, "answer", kernel=APPLICATION)
    assert [axes.get_title().split()[:2] for axes in figure.axes] == [["in", "the"], ["the", "winner:"]]
    assert " ".join(figure.axes[1].get_title().split()).startswith("the winner: NRMSE ")
    assert figure.get_size_inches()[0] == 4.0
    # Something was drawn, and at the size that the picture has.
    images = [axes.images[0].get_array() for axes in figure.axes]
    assert {image.shape for image in images} == {(450, 600, 4)}
    assert all(image.std() > 0 for image in images)


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (
            None,
            "application power has no picture of its answer: define picture(outputs, inputs, size) beside its steps",
        ),
        (
            lambda outputs, inputs, size: outputs["y"],
            "the picture of application power failed: KeyError: 'y' (test_application_picture.py:",
        ),
        (lambda outputs, inputs, size: outputs["x"], "it returned ndarray; expected a matplotlib Figure"),
    ],
)
def test_what_cannot_be_drawn_says_why(picture: Any, message: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STEPS, "picture", picture, raising=False)
    with pytest.raises((KernelError, PlotError), match=re.escape(message)):
        plot(path, "answer", kernel=APPLICATION)


@pytest.mark.full
def test_all_kinds_run_nothing(path: Path, tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.setattr("mptune.plots.answer.draw", lambda *_: pytest.fail("it was run"))
    done = caller(monkeypatch, capfd)("plot", path, "--kind", "all", "-o", tmp_path / "a.svg")
    assert done.code == 0, done.err
    assert "a-pareto.svg" in done.out
    assert "answer" not in done.out
