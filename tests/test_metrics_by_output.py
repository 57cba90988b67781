"""An error metric for each output: measured, told, part of a trial's identity, and replaced by --metric."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import caller
from ml_dtypes import bfloat16

from mptune.kernel import Kernel
from mptune.results.trial import Trial
from mptune.run import Run
from mptune.source.loading import load_kernel

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


@pytest.mark.full
@pytest.mark.parametrize("options", [[], ["--metric", "MAE"]])
def test_each_output_has_its_own_which_the_command_line_replaces(
    options: list[str],
    expected: dict[str, float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    settings = ("--backend", "host", "--budget", 4, "--inputs", 1, "--verify", 0, "--json", "--output")
    done = caller(monkeypatch, capfd)("tune", OWN, *settings, tmp_path / "own.db", *options)
    assert done.code == 0, done.err
    found = narrow(Run.load(tmp_path / "own.db"))
    assert json.loads(done.out)["metric"] == ("MAE" if options else "label: MAE, distance: NRMSE")
    assert found.metric("error.label") == pytest.approx(expected["error.label"])
    distance = expected["mae.distance" if options else "error.distance"]
    assert found.metric("error.distance") == pytest.approx(distance, rel=1e-6)
    assert found.error == max(found.metric("error.label"), found.metric("error.distance"))
