"""Explaining a run by measuring the winner's neighbours, on a kernel whose errors are known exactly."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mptune import probing
from mptune.errors import KernelError, MptuneError
from mptune.kernel import Work
from mptune.measure.roofline import Bound
from mptune.probing import explain
from mptune.results.trial import Measurement, Trial
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.store import RunFile
from mptune.tuning import TuneSettings, tune
from mptune.tuning.sensitivity import Change, Explanation

KERNEL = Path(__file__).parent / "sum_kernel.py"
DATA = Path(__file__).parents[1] / "benchmarks" / "data"
SETTINGS = TuneSettings(
    backend="host", max_error=1e-4, budget=12, baseline_share=0.0, strategy="random", inputs=1, verify=0
)


@pytest.fixture(scope="module")
def everything() -> Run:
    """Return a run that has measured every configuration."""
    found = tune(KERNEL, SETTINGS, on_warning=lambda _: None)
    assert found.evaluations == found.info.configurations == 12
    return found


MakeFile = Callable[..., Path]
Values = tuple[Any, ...]


@pytest.fixture
def run_file(everything: Run, tmp_path: Path) -> MakeFile:
    """Return a function that makes a run file of the trials with these values, and of changes to what the run is."""

    def make(values: Sequence[Values], **changes: object) -> Path:
        path = tmp_path / "run.db"
        info = dataclasses.replace(everything.info, **changes)  # type: ignore[arg-type]
        with RunFile.create(path, info) as file:
            file.add_all([trial_of(everything, *each) for each in values])
        return path

    return make


def trial_of(run: Run, block: int, x_type: str, sum_type: str) -> Trial:
    wanted = {"block": block, "x_type": x_type, "sum_type": sum_type}
    found = next(trial for trial in run.trials if dict(trial.configuration) == wanted)
    # Results do not depend on the block, so that it is as if each error had been measured. Who wins is not left to the
    # machine: what is narrower is faster, and the block does not matter.
    time_ms = {"fp64": 2.0, "fp32": 1.0, "bf16": 0.9}
    metrics = {**found.measurement.metrics, "time_ms": time_ms[x_type] * time_ms[sum_type]}
    return dataclasses.replace(found, measurement=Measurement(metrics))


WINNER = (64, "fp32", "fp32")


@pytest.fixture(autouse=True)
def roofline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the device have known speeds, which take no time to measure."""

    class Known:
        def __init__(self, backend: object) -> None:
            pass

        def bound(self, work: Work, footprint_bytes: int) -> Bound:
            return Bound(work.traffic_bytes / 1e6, (work.flops or 0.0) / 1e6)

    monkeypatch.setattr(probing, "Roofline", Known)


def change(explanation: Explanation, parameter: str, after: str) -> Change:
    return next(c for c in explanation.changes if (c.parameter, c.after) == (parameter, after))


def forbid_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a device was used")

    monkeypatch.setattr(probing, "DeviceEvaluator", refuse)
    monkeypatch.setattr(probing, "_MachineCode", refuse)


def phases(path: Path) -> dict[str, int]:
    connection = sqlite3.connect(path)
    found = dict(connection.execute("SELECT phase, count(*) FROM trials GROUP BY phase").fetchall())
    connection.close()
    return found


@pytest.mark.full
def test_digits_are_those_of_the_analysis(run_file: MakeFile, monkeypatch: pytest.MonkeyPatch) -> None:
    from sum_kernel import ERRORS

    path = run_file([WINNER])
    before = Run.load(path)
    measured: list[None] = []
    found = explain(path, KERNEL, on_probe=lambda: measured.append(None))
    assert found.unprobed == ""
    assert found.trial is not None
    assert found.trial.error == pytest.approx(ERRORS["fp32"], rel=1e-6)
    # The sum decides, exactly as much as its rounding says; the factors are exact in every type.
    assert change(found, "sum_type", "fp64").digits == math.inf
    assert change(found, "sum_type", "bf16").digits == pytest.approx(math.log10(ERRORS["fp32"] / ERRORS["bf16"]))
    assert change(found, "sum_type", "bf16").is_feasible is False
    assert change(found, "x_type", "fp64").digits == 0.0
    assert change(found, "x_type", "bf16").digits == 0.0
    assert found.limiting is not None
    assert found.limiting.parameter == "sum_type"
    assert (
        "sum_type limits the accuracy: restoring it from fp32 to fp64 leaves no error beside the reference"
        in found.sentences[0]
    )
    for each in found.changes:
        assert each.outcome is not None
        assert each.outcome.source == "probed"
        assert each.outcome.interval is not None
        assert each.outcome.interval[0] <= each.speed <= each.outcome.interval[1]
    # The winner and its four neighbours: nothing else was promising.
    assert len(measured) == 5

    # No evaluations of the run, and nothing it reports changes.
    after = Run.load(path)
    assert phases(path) == {"search": 1, "probe": 4}
    assert after.summary() == before.summary()
    assert len(after.probes) == 4

    # Twice the bytes in, and each of them converted; the winner converts its results alone.
    probes = {tuple(probe.configuration.values()): probe for probe in after.probes}
    code = probes[64, "fp64", "fp32"].measurement.metrics
    n, terms = 1024, 129
    assert code["traffic_bytes"] == 8 * n * terms + 8 * n
    assert code["winner.traffic_bytes"] == 4 * n * terms + 8 * n
    assert code["conversions"] > code["winner.conversions"]
    assert code["winner.vector_operations"] + code["winner.scalar_operations"] > 0
    assert code["winner.memory_bound_ms"] == pytest.approx(code["winner.traffic_bytes"] / 1e6)
    assert code["error_draws"] == code["winner.error_draws"] == 3

    # The second time is a matter of reading.
    forbid_devices(monkeypatch)
    assert explain(path, KERNEL).to_json() == found.to_json()


@pytest.mark.full
def test_what_was_measured_is_not_measured_again(
    run_file: MakeFile, everything: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run_file([tuple(trial.configuration.values()) for trial in everything.trials])
    monkeypatch.setattr(probing, "DeviceEvaluator", lambda *_, **__: pytest.fail("measured again"))
    monkeypatch.setattr(probing._Session, "_promising", lambda _: iter(()))
    found = explain(path, KERNEL)
    assert found.missing == 0
    valid = [c.outcome for c in found.changes if c.outcome is not None and c.outcome.trial.is_valid]
    assert {outcome.source for outcome in valid} == {"measured"}
    # What the compiler made of them is noted once.
    assert phases(path)["probe"] == 4
    forbid_devices(monkeypatch)
    assert explain(path, KERNEL).to_json() == found.to_json()


@pytest.mark.full
def test_an_interrupted_explanation_goes_on(run_file: MakeFile, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run_file([WINNER])
    monkeypatch.setattr(probing, "_GROUP", 1)
    measured, said = [], []

    def interrupt() -> None:
        measured.append(None)
        if len(measured) == 5:  # the winner and one neighbour, twice, then the winner again
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explain(path, KERNEL, on_probe=interrupt, on_warning=said.append)
    assert "the same command goes on" in said[-1]
    assert phases(path)["probe"] == 2
    rest: list[None] = []
    assert explain(path, KERNEL, on_probe=lambda: rest.append(None)).missing == 0
    assert len(rest) == 4


def test_what_cannot_be_measured_is_explained_from_the_trials(
    run_file: MakeFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_devices(monkeypatch)
    path = run_file([WINNER, (64, "fp32", "fp64")])
    found = explain(path)
    assert "give its definition with --kernel" in found.unprobed
    assert found.missing == 3
    assert change(found, "sum_type", "fp64").digits == math.inf
    assert found.sentences[-1].startswith("Not measured: 3 of 4 changes")
    assert phases(path) == {"search": 2}
    with RunFile.open(path):
        assert "is being written" in explain(path, KERNEL).unprobed
    path.unlink()
    elsewhere = run_file([WINNER], device="another processor")
    assert "the run is of another processor" in explain(elsewhere, KERNEL).unprobed
    elsewhere.unlink()
    absent = run_file([WINNER], backend="hip")
    assert "backend hip cannot run here" in explain(absent, KERNEL).unprobed
    absent.unlink()
    unknown = run_file([WINNER], backend="abacus")
    assert "no backend 'abacus'" in explain(unknown, KERNEL).unprobed


def test_recordings_and_runs_in_memory(everything: Run) -> None:
    found = explain(DATA / "axpy-host.json.gz")
    assert found.changes
    assert found.missing == 0 or found.unprobed == "a recording has no kernel to measure"
    run = Run(everything.info, [trial_of(everything, *WINNER)])
    assert explain(run, load_kernel(KERNEL), probe=False).missing == 4


def test_what_goes_wrong_while_measuring_is_told(run_file: MakeFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MptuneError("the device is on fire\nand more")

    monkeypatch.setattr(probing, "DeviceEvaluator", fail)
    found = explain(run_file([WINNER]), KERNEL)
    assert found.unprobed == "the device is on fire"
    assert found.missing == 4


def test_a_metric_nobody_knows_is_told(run_file: MakeFile) -> None:
    assert "error metric 'my own' is neither" in explain(run_file([WINNER], metric="my own"), KERNEL).unprobed


def test_the_wrong_kernel_is_refused(run_file: MakeFile) -> None:
    with pytest.raises(KernelError, match="of kernel 'sums', not of 'poly'"):
        explain(run_file([WINNER]), KERNEL.with_name("own_kernel.py"))
