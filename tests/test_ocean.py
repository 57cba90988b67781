"""A kernel and an application whose results are NaN on land: what is not compared, and who says so."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Call, caller

from mptune import Application, Buffer, OrdinalParameter, TunedKernel
from mptune.backends import get_backend
from mptune.data import Draw, Stream
from mptune.kernel import Kernel
from mptune.measure.bench import Bench, Request
from mptune.results.trial import Status
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.space.configuration import Configuration
from mptune.tuning import tune
from mptune.wisdom import gather, read_sources

PATH = Path(__file__).with_name("ocean_kernel.py")
OCEAN = load_kernel(PATH)
REMARK = "12 of 60 elements of output 'u' are NaN in the reference and are not compared"

# Runs warn of masks, and that types are not what is wrong with configurations that lose values.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def mptune(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    return caller(monkeypatch, capfd)


def tuned(mptune: Call, path: Path) -> Run:
    found = mptune(
        *("tune", PATH, "--backend", "host", "--size", "smoke", "--budget", 8, "--max-error", 1e-3, "--verify", 3),
        *("--first", "land=1", "--first", "land=2", "--first", "lost=1", "--output", path),
    )
    assert found.code == 0, found.err
    assert f"warning: {REMARK}" in " ".join((found.out + found.err).split())
    return Run.load(path)


def test_the_command_says_what_is_masked(mptune: Call, tmp_path: Path) -> None:
    """Some configurations leave land unwritten, others write garbage there; lost ones write NaN at sea."""
    run = tuned(mptune, tmp_path / "run.db")
    assert REMARK in run.describe().warnings
    assert run.best is not None
    assert run.verified(run.best).inputs == 3
    for trial in run.trials:
        assert (trial.status is Status.NON_FINITE) is bool(trial.configuration["lost"]), trial
        if trial.is_valid:
            assert trial.error < (1e-15 if trial.configuration["u_type"] == "fp64" else 1e-2)
    assert {trial.configuration["land"] for trial in run.trials if trial.is_valid} == {0, 1, 2}


@pytest.mark.full
def test_what_follows_a_run_takes_nan_as_a_mask(mptune: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    tuned(mptune, path)
    sizes = OCEAN.resolve_sizes("smoke")
    given = OCEAN.inputs(np.random.default_rng(7), sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a call with NaN on land is no reason to fall back on the baseline
        for source in (path, gather(read_sources([path]))):
            answer = TunedKernel(source, kernel=OCEAN)(x=given["x"], land=given["land"])
            assert np.isfinite(answer[given["land"] == 0]).all()
    said = mptune("verify", path, "--kernel", PATH, "--inputs", 2)
    assert said.code == 0, said.err
    assert f"the run warned: {REMARK}" in " ".join(said.err.split())
    shown = mptune("show", path)
    assert REMARK in " ".join(shown.out.split())


def errors(kernel: Kernel, **values: Any) -> Any:
    """Trials on the first draw, one of the search and one unseen."""
    sizes = kernel.resolve_sizes("smoke")
    configuration = Configuration({"land": 0, "lost": 0, "u_type": "fp32", "block": 32, **values})
    bench = Bench(kernel, sizes, get_backend("host"))
    try:
        request = Request(configuration, render(kernel, configuration, sizes))
        draws = [Draw(Stream.SEARCH, 1), Draw(Stream.UNSEEN, 0)]
        trials = [bench.evaluate(request)]
        for draw in draws:
            bench.make(draw)
            trials.append(bench.check_on(request, draw))
        return trials, bench.ready.remarks
    finally:
        bench.close()


def test_a_user_s_metric_sees_what_is_compared() -> None:
    def largest(output: Any, reference: Any) -> float:
        return float(np.abs(output - reference).max())

    trials, _ = errors(dataclasses.replace(OCEAN, metric=largest), land=2)
    assert all(0 < trial.error < 1e-6 for trial in trials)


def test_a_mask_that_the_first_draw_has_not_is_said() -> None:
    """As 0/0 in a reference may be."""

    def inputs(rng: np.random.Generator, size: Any) -> dict[str, Any]:
        return {"x": rng.uniform(1.0, 2.0, (6, 10)), "land": np.zeros((6, 10), np.int32)}

    first = inputs(Draw().generator(0), None)["x"][0, 0]

    def accident(inputs: Any, size: Any) -> Any:
        return np.where((inputs["x"] < 1.5) & (inputs["x"][0, 0] != first), np.nan, 0.5 * inputs["x"])

    trials, remarks = errors(dataclasses.replace(OCEAN, inputs=inputs, reference=accident))
    assert remarks == ()
    assert all(0 < trial.error < 1e-6 for trial in trials)
    said = "elements of output 'u' are NaN in the references of some draws, though not in that of the first"
    assert [[said in warning for warning in trial.warnings] for trial in trials] == [[], [True], [True]]


def test_a_reference_of_nothing_but_nan_is_one_clear_line(mptune: Call, tmp_path: Path) -> None:
    text = PATH.read_text().replace("0.5 * inputs", "np.nan * inputs")
    (tmp_path / "ocean_kernel.py").write_text(text)
    found = mptune("tune", tmp_path / "ocean_kernel.py", "--backend", "host", "--size", "smoke")
    assert found.code == 2
    assert "output 'u' of kernel ocean is NaN in all of its 60 elements: nothing can be compared" in found.err


# -- applications --------------------------------------------------------------------------------


def sea() -> Application:
    """Launches the kernel, and has no reference but its own answer."""

    def steps(run: Any, size: Any) -> None:
        run.ocean(u=run.u, x=run.x, land=run.land)

    parts = ("name", "arguments", "grid", "block", "template", "signature")
    parameters = [OrdinalParameter("land", [0]) if each.name == "land" else each for each in OCEAN.parameters]
    return Application(
        name="sea",
        kernels=[Kernel(parameters=parameters, **{name: getattr(OCEAN, name) for name in parts})],
        buffers=[
            Buffer("x", ("rows", "columns"), precision="u_type"),
            Buffer("land", ("rows", "columns"), dtype="int32"),
            Buffer("u", ("rows", "columns"), precision="u_type"),
        ],
        sizes=OCEAN.sizes,
        inputs=OCEAN.inputs,
        steps=steps,
        outputs=["u"],
        metric="MaxRE",
    )


OWN = REMARK.replace("the reference", "the run in the widest types, which is the reference,")


@pytest.mark.full
def test_an_application_s_own_answer_may_have_nan() -> None:
    run = tune(sea(), backend="host", size="smoke", budget=12, verify=2, max_error=1e-3)
    assert OWN in run.describe().warnings
    assert run.best is not None
    assert run.verified(run.best).inputs == 2
    for trial in run.trials:
        assert (trial.status is Status.NON_FINITE) is bool(trial.configuration["ocean.lost"]), trial
    assert any(0 < trial.error < 1e-6 for trial in run.trials)
