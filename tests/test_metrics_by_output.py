"""An error metric for each output: measured, told, part of a trial's identity, and replaced by --metric."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from mptune.accuracy.evaluate import metric_text, metrics_by_output
from mptune.cli import main
from mptune.errors import MetricError, UnknownNameError
from mptune.evaluators.identity import metric_identity
from mptune.kernel import Kernel
from mptune.registry import load_kernel
from mptune.results import Trial
from mptune.run import Run
from mptune.tuner import tune

OWN = Path(__file__).with_name("labelled_kernel.py")


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return load_kernel(OWN)


def narrow(run: Run) -> Trial:
    return next(trial for trial in run.trials if trial.configuration["x_type"] == "bf16")


@pytest.fixture(scope="module")
def expected(kernel: Kernel) -> dict[str, float]:
    sizes = kernel.resolve_sizes()
    x = kernel.inputs(np.random.default_rng(0), sizes)["x"]
    exact, given = kernel.reference({"x": x}, sizes), x.astype(bfloat16)
    # 1 - x is exact for x from 0.5 to 1, where alone its being the smaller one matters.
    other = (1 - given.astype(np.float32)).astype(bfloat16)
    label, distance = other < given, np.minimum(other, given).astype(np.float64)
    off = distance - exact["distance"]
    return {
        "error.label": float(np.mean(label != exact["label"])),
        "error.distance": float(np.sqrt(np.mean(off**2)) / np.mean(exact["distance"])),
        "mae.distance": float(np.mean(np.abs(off))),
    }


def test_each_output_has_its_own_and_the_worst_counts(kernel: Kernel, expected: dict[str, float]) -> None:
    run = tune(kernel, backend="host", budget=4, inputs=1, verify=0)
    found = narrow(run)
    assert found.metric("error.label") == pytest.approx(expected["error.label"])
    assert found.metric("error.distance") == pytest.approx(expected["error.distance"], rel=1e-6)
    assert found.error == max(found.metric("error.label"), found.metric("error.distance"))
    assert run.info.metric == "label: MAE, distance: NRMSE"


def test_a_metric_of_the_settings_replaces_all(kernel: Kernel, expected: dict[str, float]) -> None:
    run = tune(kernel, backend="host", budget=4, inputs=1, verify=0, metric="MAE")
    assert narrow(run).metric("error.distance") == pytest.approx(expected["mae.distance"], rel=1e-6)
    assert run.info.metric == "MAE"


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        ([], 0, "label: MAE, distance: NRMSE"),
        (["--metric", "MAE"], 0, "MAE"),
        (["--metric", "NRSME"], 2, "did you mean 'NRMSE'"),
    ],
)
def test_the_command_line_tells_and_replaces_them(
    options: list[str],
    code: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    command = ["tune", str(OWN), "--backend", "host", "--budget", "4", "--json", "--output", str(tmp_path / "own.db")]
    monkeypatch.setattr("sys.argv", ["mptune", *command, *options])
    with pytest.raises(SystemExit) as leaving:
        main()
    captured = capfd.readouterr()
    assert leaving.value.code == code
    if code == 0:
        assert json.loads(captured.out)["metric"] == told
    else:
        assert told in captured.err


def test_a_misspelt_metric_of_an_output_gets_the_nearest_one(kernel: Kernel) -> None:
    wrong = dataclasses.replace(kernel, metric={"label": "MAE", "distance": "NRSME"})
    with pytest.raises(UnknownNameError, match="did you mean 'NRMSE'"):
        tune(wrong, backend="host", budget=1)


def test_every_output_needs_one_and_nothing_else_has() -> None:
    found = metrics_by_output(["y", "z"], {"y": "MAE", "z": "MRE"})
    assert {name: metric.name for name, metric in found.items()} == {"y": "MAE", "z": "MRE"}
    with pytest.raises(MetricError, match="'z' has no error metric"):
        metrics_by_output(["y", "z"], {"y": "MAE"})
    with pytest.raises(UnknownNameError, match="did you mean 'y'"):
        metrics_by_output(["y"], {"y": "MAE", "yy": "MAE"})


def test_identity_follows_what_each_output_has_and_not_the_order() -> None:
    one: dict[str, Any] = {"y": "MAE", "z": "MRE"}
    assert metric_identity(one) == metric_identity({"z": "MRE", "y": "MAE"})
    identities = {metric_identity(m) for m in (one, {"y": "MRE", "z": "MAE"}, {"y": "MAE", "z": "MAE"}, "MAE", "MRE")}
    assert len(identities) == 5
    assert metric_text(["y", "z"], one) == "y: MAE, z: MRE"
    assert metric_text(["y", "z"], "MAE") == metric_text(["y"], {"y": "MAE"}) == "MAE"
