"""A kernel that destroys a fifth of its output: a mean passes it, the worst row does not; metrics that see inputs."""

from __future__ import annotations

import dataclasses
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Call, caller

from mptune import TunedKernel
from mptune.accuracy.evaluate import metric_text
from mptune.backends import get_backend
from mptune.cli import main
from mptune.data import Draw, Stream
from mptune.errors import MptuneError
from mptune.kernel import In, Kernel, Out, Scalar
from mptune.kernel.regions import RegionalMetric
from mptune.measure.bench import Bench, Request
from mptune.results.trial import Status
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from mptune.tuning import TuneSettings, tune
from mptune.tuning.plan import TuningPlan
from mptune.wisdom import gather, read_sources

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

ROWS, COLUMNS = 40, 33

TEMPLATE = """
extern "C" __global__ void halve({{ y_type }}* y, const {{ x_type }}* x, int rows, int columns) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * columns) return;
    const bool lost = {{ lost }} && i / columns >= rows - rows / 5;
    y[i] = lost ? 0.0 : double(x[i]) * 0.5;
}
"""


def inputs(rng: np.random.Generator, size: Any) -> dict[str, Any]:
    """The last fifth of the rows is a millionth of the others."""
    scale = np.where(np.arange(size.rows) < size.rows - size.rows // 5, 1.0, 1e-6)
    return {"x": rng.uniform(1.0, 2.0, (size.rows, size.columns)) * scale[:, None]}


def residual(output: Any, reference: Any, inputs: Any) -> float:
    """How far twice the output is from the input; needs no reference."""
    assert reference.shape == output.shape == inputs["x"].shape
    assert inputs["x"].dtype == np.float64
    assert inputs["rows"] == ROWS
    return float(np.max(np.abs(2 * output - inputs["x"]) / inputs["x"]))


residual.version = "1"  # type: ignore[attr-defined]


def kernel_with(**given: Any) -> Kernel:
    return Kernel(
        name="halve",
        parameters=[
            OrdinalParameter("lost", [0, 1]),
            PrecisionParameter("x_type", ["fp64", "fp32"]),
            PrecisionParameter("y_type", ["fp64", "fp32"]),
        ],
        arguments=[
            Out("y", ("rows", "columns"), precision="y_type"),
            In("x", ("rows", "columns"), precision="x_type"),
            Scalar("rows", dtype="int32"),
            Scalar("columns", dtype="int32"),
        ],
        sizes={"default": {"rows": ROWS, "columns": COLUMNS}},
        inputs=inputs,
        reference=lambda inputs, size: inputs["x"] * 0.5,
        grid=["ceildiv(rows * columns, 64)"],
        block=["64"],
        template=TEMPLATE,
        signature=["lost"],
        **given,
    )


def tuned(kernel: Kernel, **settings: Any) -> Run:
    return tune(kernel, backend="host", budget=8, **settings)


def lossy(run: Run) -> list[bool]:
    """Whether each feasible trial has lost rows."""
    feasible = [trial for trial in run.trials if run.objective.is_feasible(trial)]
    return sorted({bool(trial.configuration["lost"]) for trial in feasible})


@pytest.mark.full
def test_a_mean_accepts_a_fifth_destroyed_and_the_worst_row_does_not() -> None:
    run = tuned(kernel_with(metric=["NRMSE", "MAE"], over="rows", reduce="max"), max_error=1e-4)
    assert lossy(run) == [False]
    assert run.info.metric == "NRMSE over rows max"
    lost = next(trial for trial in run.trials if trial.configuration["lost"])
    assert lost.error == pytest.approx(1.0, abs=0.1)
    assert lost.metric("error.MAE_rows_max") < 1e-6  # which is what a mean of all sees, several tests below


@pytest.mark.parametrize(
    ("given", "settings", "name"),
    [
        ({"metric": "NRMSE over rows"}, {}, "NRMSE over rows max"),
        ({"metric": {"y": RegionalMetric("NMAE", ("block", (4, 8)), 0.99)}}, {}, "NMAE over block 4x8 0.99"),
        ({"metric": "MRE"}, {"over": ("block", 11), "reduce": 0.9}, "MRE over block 11 0.9"),
        ({"metric": residual}, {}, "residual"),
        ({"metric": [residual, "MAE"]}, {}, "residual"),
        ({}, {"max_error": {"NRMSE_rows_0_99": 0.5}}, "NRMSE over rows 0.99"),
    ],
)
def test_every_spelling(given: dict[str, Any], settings: dict[str, Any], name: str) -> None:
    plan = TuningPlan.of(kernel_with(**given), TuneSettings(**{"max_error": 1e-4, **settings}))
    assert metric_text(["y"], plan.metric) == name


@pytest.mark.parametrize(
    ("given", "settings", "message"),
    [
        (
            {"metric": "NRMSE over block 2x2x2"},
            {},
            r"output 'y': shape \(40, 33\) has no block 2x2x2, which need 3 axes",
        ),
        ({}, {"reduce": 0.5}, "reduction 0.5 without regions"),
        ({"metric": residual}, {"over": "rows"}, "'residual' sees the inputs"),
    ],
)
def test_nonsense_is_refused_before_anything_runs(
    given: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(MptuneError, match=message):
        tuned(kernel_with(**given), **settings)


@pytest.mark.full
def test_the_command_line_tells_thresholds_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def mptune(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["mptune", *words])
        with pytest.raises(SystemExit) as leaving:
            main()
        captured = capfd.readouterr()
        return int(str(leaving.value.code)), captured.out, captured.err

    path = str(tmp_path / "lavamd.db")
    limits = ("--max-error", "NMAE over rows:1e-3", "--max-error", "force.MaxAE:10", "--max-error", "1e-2")
    code, out, _ = mptune(
        *("tune", "lavamd", "--backend", "host", "--size", "smoke", "--budget", "3", "--json"), *limits, "-o", path
    )
    document = json.loads(out)
    assert code == 0
    assert document["threshold"] == {"NMAE": 1e-2, "NMAE_rows_max": 1e-3, "force.MaxAE": 10.0}
    assert document["metric"] == {"NMAE": "NMAE", "NMAE_rows_max": "NMAE over rows max", "force.MaxAE": "MaxAE"}
    assert document["best"]["metrics"]["error.force.MaxAE"] <= 10.0
    code, out, _ = mptune("show", path)
    assert "threshold NMAE <= 0.01, NMAE over rows max <= 0.001, MaxAE of force <= 10," in out
    assert re.search(r"^NMAE over rows max +\d", out, re.MULTILINE)
    code, out, _ = mptune("emit", path, "--max-error", "force.MaxAE:9", "-o", str(tmp_path / "out"))
    readme = (tmp_path / "out" / "README.md").read_text()
    assert code == 0
    assert "- threshold: `MaxAE of force <= 9`\n" in readme
    assert "| NMAE over rows max |" in readme
    code, _, err = mptune(
        "tune", "lavamd", "--backend", "host", "--size", "smoke", "--budget", "2", "--max-error", "NMAE over rows:1e-30"
    )
    assert code == 1
    assert "no configuration meets the threshold; the closest has error " in err


# -- a kernel and an application whose results are NaN on land: what is not compared, and who --------

PATH = Path(__file__).with_name("ocean_kernel.py")
OCEAN = load_kernel(PATH)
REMARK = "12 of 60 elements of output 'u' are NaN in the reference and are not compared"


@pytest.fixture
def mptune(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    return caller(monkeypatch, capfd)


def ocean_tuned(mptune: Call, path: Path) -> Run:
    found = mptune(
        *("tune", PATH, "--backend", "host", "--size", "smoke", "--budget", 8, "--max-error", 1e-3, "--verify", 3),
        *("--first", "land=1", "--first", "land=2", "--first", "lost=1", "--output", path),
    )
    assert found.code == 0, found.err
    assert f"warning: {REMARK}" in " ".join((found.out + found.err).split())
    return Run.load(path)


@pytest.mark.full
def test_the_command_says_what_is_masked(mptune: Call, tmp_path: Path) -> None:
    """Some configurations leave land unwritten, others write garbage there; lost ones write NaN at sea."""
    run = ocean_tuned(mptune, tmp_path / "run.db")
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
    ocean_tuned(mptune, path)
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
