"""A kernel that destroys a fifth of its output: a mean passes it, the worst row does not; metrics that see inputs."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mptune.accuracy.evaluate import metric_text
from mptune.cli import main
from mptune.errors import MptuneError
from mptune.kernel import In, Kernel, Out, Scalar
from mptune.kernel.regions import RegionalMetric
from mptune.run import Run
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from mptune.tuning import TuneSettings, tune
from mptune.tuning.plan import TuningPlan

# Runs warn, and rightly: configurations with the baseline's types are destroyed, too.
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


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A run with three thresholds, and its file."""
    path = tmp_path_factory.mktemp("run") / "several.db"
    limits = {"NRMSE": 1e-4, "y.MaxRE over block 8x8 0.5": 1e-3, "MRE over columns": 0.5}
    return tune(kernel_with(), backend="host", budget=8, max_error=limits, output=path), path


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


@pytest.mark.full
def test_several_thresholds(several: tuple[Run, Path]) -> None:
    run, path = several
    assert run.info.objective.threshold == {"NRMSE": 1e-4, "y.MaxRE_block_8x8_0_5": 1e-3, "MRE_columns_max": 0.5}
    assert lossy(run) == [False, True]
    stored = Run.load(path)
    assert stored.info == run.info
    summary = json.loads(json.dumps(stored.summary()))
    assert summary["metric"] == {
        "NRMSE": "NRMSE",
        "y.MaxRE_block_8x8_0_5": "MaxRE over block 8x8 0.5",
        "MRE_columns_max": "MRE over columns max",
    }
    assert summary["threshold"].keys() == summary["metric"].keys()
    for trial in run.trials:
        errors = {name: trial.metric(f"error.{name}") for name in summary["metric"]}
        assert trial.error == trial.metric("error.y") == errors["NRMSE"]
        # A fifth of the rows, which are whole blocks: the median block is right.
        assert errors["MRE_columns_max"] == pytest.approx(0.2 if trial.configuration["lost"] else 0.0, abs=1e-6)
        assert errors["y.MaxRE_block_8x8_0_5"] < 1e-6


def test_the_tightest_one_decides_and_says_so(several: tuple[Run, Path]) -> None:
    run, _ = several
    objective = dataclasses.replace(
        run.info.objective, threshold=run.objective_within({"MRE over columns": 0.1}).threshold
    )
    judged = [objective.judge(trial) for trial in run.trials]
    assert {trial.message for trial in judged} == {"", "error.MRE_columns_max 0.2 is above its threshold 0.1"}
    assert all(objective.is_feasible(trial) != bool(trial.configuration["lost"]) for trial in judged)
    excess = max(objective.log10_excess(trial) for trial in judged)
    assert excess == pytest.approx(math.log10(2), abs=1e-3)


@pytest.mark.parametrize(
    ("given", "settings", "message"),
    [
        (
            {"metric": "NRMSE over block 2x2x2"},
            {},
            r"output 'y': shape \(40, 33\) has no block 2x2x2, which need 3 axes",
        ),
        ({}, {"reduce": 0.5}, "reduction 0.5 without regions"),
        ({}, {"max_error": {"residual": 1.0}}, "output or error metric in the error threshold: 'residual'"),
        ({}, {"max_error": {"MaxAE": -1.0}}, "threshold of 'MaxAE' must be positive and finite"),
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
