"""What is wrong with an application is said in one line that names it, on the command line as well."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import caller
from test_application import application, power

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.errors import KernelError, LaunchError
from mptune.measure.answers import OwnAnswer
from mptune.measure.worker import Limits
from mptune.results.trial import Status
from mptune.tuning import TuneSettings, tune
from tests.tiers import few

PAGE = Path(__file__).parents[1] / "docs" / "applications.md"
FILE = re.findall(r"```python\n(import.*?)```", PAGE.read_text(), re.DOTALL)[0]


def answer(**changes: Any) -> Any:
    app = application(**changes)
    sizes = app.resolve_sizes()
    given = app.inputs(np.random.default_rng(5), sizes)
    return OwnAnswer(app, get_backend("host"), CompileOptions())(given, sizes)


def nothing(run: Any, size: Any) -> None:
    run.matvec(a=run.a, x=run.x, y=run.y)


def not_finite(run: Any, size: Any) -> None:
    power(run, size)
    run.write(run.value, np.inf)


def two_shapes(run: Any, size: Any) -> None:
    run.matvec(a=run.a, x=run.x, y=run.y)
    run.scale(v=run.y, factor=1.0, m=2 * size.n)


def of_its_own(run: Any, size: Any) -> None:
    raise ZeroDivisionError("no norm")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (nothing, "application power never writes 1 of 1 elements of its output 'value'"),
        (not_finite, "application power gives infinity for 1 of 1 elements of its output 'value' in its widest"),
        (two_shapes, "launch of scale: 'v' is to have shape (74,) at m=74, and buffer 'y' has shape (37,)"),
        (of_its_own, "steps of application power failed: ZeroDivisionError: no norm (test_bad_applications.py:"),
    ],
)
def test_an_answer_that_is_none(steps: Callable[..., None], message: str) -> None:
    with pytest.raises(KernelError, match=re.escape(message)) as caught:
        answer(steps=steps)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    few(
        [
            (
                ("run.matvec(", "run.matvex("),
                "name after run. in the steps of application power: 'matvex'; did you mean",
            ),
            (("x=run.x, y=run.y", "x=run.x, z=run.y"), "argument of application power: launch of matvec: 'z'"),
            (
                ("    for _ in range(100):", "    1 / 0\n    for _ in range(100):"),
                "ZeroDivisionError: division by zero (p.py:",
            ),
        ]
    ),
)
def test_the_command_line(
    change: tuple[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    assert change[0] in FILE
    file = tmp_path / "p.py"
    file.write_text(FILE.replace(*change))
    options = ("--backend", "host", "--size", "smoke", "--budget", 2, "--output", tmp_path / "p.db")
    done = caller(monkeypatch, capfd)("tune", file, *options)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert message in done.err
    assert not (tmp_path / "p.db").exists()


def forever(run: Any, size: Any) -> None:
    while True:
        pass


@pytest.mark.full
def test_a_loop_that_never_ends_ends_the_command() -> None:
    settings = TuneSettings(backend="host", budget=2, limits=Limits(compile_s=1.0, run_s=0.25))
    with pytest.raises(
        LaunchError, match=r"^a run of the application's steps did not end within 2 s, in its widest types"
    ):
        tune(application(steps=forever), settings)


def one(inputs: Any, size: Any) -> dict[str, Any]:
    return {"value": np.ones(1), "x": np.ones(size.n)}


@pytest.mark.full
def test_with_a_reference_of_its_own_a_loop_that_never_ends_is_a_timeout() -> None:
    settings = TuneSettings(backend="host", budget=1, verify=0, limits=Limits(run_s=0.5))
    found = tune(application(steps=forever, reference=one), settings, on_warning=lambda _: None)
    assert {trial.status for trial in found.trials} == {Status.TIMEOUT}
    assert "--trial-limit gives it longer" in found.trials[0].message
