"""Who is measured again at the end of a run, and what becomes of it."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from described import described_run

from mptune.evaluators.device import DeviceEvaluator
from mptune.objective import Objective
from mptune.registry import load_kernel
from mptune.results import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.store import RunFile
from mptune.tuner import tune
from mptune.tuner.phases import ROUNDS, finalists, rounds_within

BASELINE = {"x_type": ("fp64",)}


def trial(x_type: str, block: int, time_ms: float, error: float, status: Status = Status.OK) -> Trial:
    configuration = Configuration({"x_type": x_type, "block": block})
    return Trial(configuration, status, measurement=Measurement({"time_ms": time_ms, "error": error}))


def chosen(objective: Objective, *trials: Trial) -> list[tuple[str, int]]:
    run = described_run({"objective": objective.metric}, list(trials))
    return [
        (str(t.configuration["x_type"]), int(t.configuration["block"]))  # type: ignore[arg-type]
        for t in finalists(run, objective, BASELINE)
    ]


TRIALS = (
    trial("fp64", 1, 4.0, 1e-16),
    trial("fp64", 2, 3.0, 1e-16),
    trial("fp64", 3, 5.0, 1e-16),
    trial("fp32", 1, 2.0, 1e-7),
    trial("fp32", 2, 2.5, 1e-7),
    trial("fp16", 1, 1.0, 1e-3, Status.INACCURATE),
    trial("fp16", 2, math.nan, math.nan, Status.CRASH),
)


def test_fastest_feasible_and_fastest_baselines() -> None:
    expected = [("fp32", 1), ("fp32", 2), ("fp64", 2), ("fp64", 1)]
    assert chosen(Objective(threshold=1e-5), *TRIALS) == expected


def test_without_threshold_the_inaccurate_can_win() -> None:
    assert chosen(Objective(), *TRIALS)[0] == ("fp16", 1)


def test_none_where_nothing_is_feasible_or_time_does_not_matter() -> None:
    assert chosen(Objective(threshold=1e-20), *TRIALS) == []
    assert chosen(Objective("error"), *TRIALS) == []


@pytest.mark.parametrize(("allowed_s", "rounds"), [(60.0, ROUNDS), (0.19, 3), (0.13, 2), (0.11, 0), (0.0, 0)])
def test_rounds_fit_into_the_time(allowed_s: float, rounds: int) -> None:
    assert rounds_within([trial("fp64", 1, 4.0, 0.0), trial("fp64", 2, 6.0, 0.0)], allowed_s) == rounds


def test_best_and_baseline_are_measured_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "poly.db"
    kernel = load_kernel(Path(__file__).with_name("own_kernel.py"))
    run = tune(kernel, backend="host", budget=9, max_error=1e-5, strategy="random", output=path)
    assert run.best is not None
    assert run.baseline is not None
    for each in (run.best, run.baseline):
        assert len(each.measurement.times_ms) % ROUNDS == 0
        assert not each.measurement.reused_error
        assert each.status is Status.OK
    assert run.evaluations == 9
    with RunFile.open(path, read_only=True) as file:
        assert {t.configuration: t.measurement for t in file.trials()} == {
            t.configuration: t.measurement for t in run.trials
        }
    again = tune(kernel, backend="host", budget=9, max_error=1e-5, strategy="random", output=path, resume=True)
    assert {t.configuration: t.measurement for t in again.trials} == {
        t.configuration: t.measurement for t in run.trials
    }


@pytest.mark.parametrize(
    ("status", "is_out"), [(Status.UNSTABLE, True), (Status.CRASH, True), (Status.OUT_OF_MEMORY, False)]
)
def test_finalist_that_fails_is_out_where_the_kernel_is_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: Status, is_out: bool
) -> None:
    remeasure = DeviceEvaluator.remeasure
    failed: set[Configuration] = set()

    def fail(self: DeviceEvaluator, trials: list[Trial], rounds: int) -> list[Trial]:
        if failed:
            return remeasure(self, trials, rounds)
        failed.add(trials[0].configuration)
        return [dataclasses.replace(trials[0], status=status, measurement=Measurement())]

    monkeypatch.setattr(DeviceEvaluator, "remeasure", fail)
    kernel = load_kernel(Path(__file__).with_name("own_kernel.py"))
    run = tune(kernel, backend="host", budget=6, max_error=1e-5, strategy="random", output=tmp_path / "poly.db")
    assert run.best is not None
    assert len(failed) == 1
    for trial in run.trials:
        assert trial.is_valid is not (is_out and trial.configuration in failed)
    # What takes its place is measured again too.
    assert is_out is not (run.best.configuration in failed)
    assert not is_out or len(run.best.measurement.times_ms) % ROUNDS == 0


def test_both_measurements_count_as_time_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = load_kernel(Path(__file__).with_name("own_kernel.py"))
    spent: dict[Configuration, tuple[float, float]] = {}
    remeasure = DeviceEvaluator.remeasure

    def watched(self: DeviceEvaluator, trials: list[Trial], rounds: int) -> list[Trial]:
        again = remeasure(self, trials, rounds)
        before = {t.configuration: t.measurement.durations_s for t in trials}
        for each in again:
            after = each.measurement.durations_s
            assert all(after[phase] >= seconds for phase, seconds in before[each.configuration].items())
            spent[each.configuration] = before[each.configuration]["timing"], after["timing"]
        return again

    monkeypatch.setattr(DeviceEvaluator, "remeasure", watched)
    tune(kernel, backend="host", budget=6, max_error=1e-5, strategy="random", output=tmp_path / "poly.db")
    assert spent
    assert all(after > before for before, after in spent.values())
