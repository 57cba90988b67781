"""Why a winner has its types: on runs made by hand, and by measuring the winner's neighbours on made-up devices."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import own_kernel
import pytest
from application_trials import application_run
from described import described_run
from made_up_devices import MadeUp, MadeUpDevices, replace_devices

from mptune.explanation import Change, Explanation, explanation_of
from mptune.precision import precision
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.store import RunFile
from mptune.tuning import tune
from mptune.tuning.explain import explain

TYPES = ("fp64", "fp32", "fp16")
SETTINGS: dict[str, Any] = {
    "kernel": "dot",
    "threshold": 1e-4,
    "metric": "MRE",
    "objective": "time_ms",
    "baseline_values": {"x_type": ["fp64"], "sum_type": ["fp64"]},
    "signature": ["x_type", "sum_type"],
    "parameters": [
        {"name": "block", "kind": "ordinal", "values": [32, 64]},
        {"name": "x_type", "kind": "precision", "values": list(TYPES)},
        {"name": "sum_type", "kind": "precision", "values": list(TYPES)},
    ],
}
#: The sum's rounding counts a thousand times what that of the factors does.
ROUNDOFF = {"fp64": 1e-16, "fp32": 1e-8, "fp16": 1e-4}
BYTES = {"fp64": 8, "fp32": 4, "fp16": 2}


def trial(x: str, total: str, block: int = 32, **numbers: float) -> Trial:
    error = ROUNDOFF[x] + 1e3 * ROUNDOFF[total]
    time_ms = (BYTES[x] + 0.25 * BYTES[total]) * (1.0 if block == 32 else 1.5)
    metrics = {"time_ms": time_ms, "error": error, "memory_bytes": 1e6 * BYTES[x], **numbers}
    status = Status.OK if metrics["error"] <= 1e-4 else Status.INACCURATE
    configuration = Configuration({"block": block, "x_type": x, "sum_type": total})
    return Trial(configuration, status, "", Measurement(metrics), key=f"{x} {total} {block}")


def everything() -> list[Trial]:
    return [trial(x, total, block) for x, total, block in itertools.product(TYPES, TYPES, (32, 64))]


def run_of(trials: Sequence[Trial], **settings: Any) -> Run:
    return described_run({**SETTINGS, **settings}, trials)


def change(explanation: Explanation, parameter: str, after: str) -> Change:
    return next(c for c in explanation.changes if (c.parameter, c.after) == (parameter, after))


# -- from stored trials ----------------------------------------------------------------------------


def test_what_limits_the_accuracy_and_what_a_digit_costs() -> None:
    """The winner is fp32 factors with an fp32 sum: fp16 factors break the limit."""
    found = explanation_of(run_of(everything()))
    assert found.trial is not None
    assert (found.trial.configuration["x_type"], found.trial.configuration["sum_type"]) == ("fp32", "fp32")
    assert [(c.parameter, c.after) for c in found.changes] == list(
        itertools.product(("x_type", "sum_type"), ("fp64", "fp16"))
    )
    assert found.limiting is not None
    assert (found.limiting.parameter, found.limiting.after) == ("sum_type", "fp64")
    restored = change(found, "sum_type", "fp64")
    assert restored.outcome.digits == pytest.approx(math.log10((1e-8 + 1e-5) / (1e-8 + 1e-13)))
    assert restored.outcome.speed == pytest.approx(5 / 6)
    assert change(found, "x_type", "fp64").outcome.digits == pytest.approx(0, abs=1e-3)
    narrowed = change(found, "sum_type", "fp16")
    assert not narrowed.is_restored
    assert not narrowed.outcome.is_feasible
    assert narrowed.outcome.digits == pytest.approx(-4, abs=0.01)
    more, less = found.tradeoffs
    assert more.best is not None
    assert more.best.trial.configuration["sum_type"] == "fp64"
    assert more.best.speed == pytest.approx(5 / 6)
    assert less.best is not None
    assert less.best.trial.configuration["x_type"] == "fp16"
    assert less.best.speed == pytest.approx(5 / 3)
    assert found.missing == 0


def test_of_several_limits_the_closest_counts() -> None:
    outputs = {"error.y": 1e-3, "error.z": 1e-6}
    trials = [
        trial("fp32", "fp32", error=1e-3, **outputs),
        trial("fp32", "fp64", error=1e-3, **{**outputs, "error.z": 1e-9}),
    ]
    found = explanation_of(run_of(trials, threshold={"y": 1.0, "z": 1e-5}))
    restored = change(found, "sum_type", "fp64")
    # From 1 digit below the limit of z to 3 below that of y.
    assert restored.outcome.digits == pytest.approx(2)
    assert restored.outcome.error_text == "MRE of y 0.001 (limit 1)"


def test_of_an_application_the_kernel_and_the_buffers_are_named() -> None:
    found = explanation_of(application_run())
    assert found.limiting is not None
    assert (found.limiting.parameter, found.limiting.buffers) == ("step.sum_type", ())
    restored = change(found, "u_type", "fp64")
    assert (restored.buffers, restored.kernels) == (("u", "v"), ("step", "norm"))
    assert {c.parameter for c in found.changes} == {"u_type", "method", "step.sum_type"}


# -- with what is missing --------------------------------------------------------------------------

OPTIONS: dict[str, Any] = {
    "backend": "host", "max_error": 1e-5, "budget": 6, "strategy": "random", "inputs": 1, "verify": 0,
}  # fmt: skip


def does(configuration: Configuration) -> MadeUp:
    """The fewer the bytes, the faster; the narrowest type decides the error."""
    types = [precision(str(configuration[name])) for name in ("x_type", "y_type")]
    slow = int(configuration["block"]) + int(configuration["unroll"]) / 10
    return MadeUp(slow * sum(each.size_bytes for each in types) / 16, max(each.unit_roundoff for each in types))


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> MadeUpDevices:
    return replace_devices(monkeypatch, does)


@pytest.fixture
def path(devices: MadeUpDevices, tmp_path: Path) -> Path:
    run = tune(own_kernel.kernel, output=tmp_path / "run.db", on_warning=lambda _: None, **OPTIONS)
    assert run.best is not None
    return tmp_path / "run.db"


def test_neighbours_become_trials_timed_beside_the_winner(path: Path) -> None:
    before, measured = Run.load(path), []
    found = explain(path, own_kernel.kernel, on_trial=lambda: measured.append(1))
    assert (found.unmeasured, found.missing) == ("", 0)
    assert found.trial is not None
    assert measured
    after = Run.load(path)
    assert len(after.trials) == len(before.trials) + len(measured)
    assert after.speedup(found.trial) == before.speedup(found.trial)
    for each in found.changes:
        assert each.outcome.interval is not None
        assert each.outcome.interval[0] <= each.outcome.speed <= each.outcome.interval[1]
        speed = does(found.trial.configuration).time_ms / does(each.outcome.trial.configuration).time_ms
        assert each.outcome.speed == pytest.approx(speed)
    # They are as good as those of the search: a resumed run keeps all of them.
    warned: list[str] = []
    again = tune(own_kernel.kernel, output=path, resume=True, on_warning=warned.append, **OPTIONS)
    assert len(again.trials) == len(after.trials)
    assert not [message for message in warned if "not used" in message]
    # The second time is a matter of reading.
    if again.best is not None and again.best.configuration == found.trial.configuration:
        assert explain(path, own_kernel.kernel, on_trial=pytest.fail).missing == 0


def file_of(path: Path, run: Run, kept: Trial) -> Path:
    """Return a run file that has one trial of a run."""
    with RunFile.create(path, run.info) as file:
        file.add(kept)
    return path


def test_a_better_neighbour_becomes_the_winner(path: Path, tmp_path: Path) -> None:
    run = Run.load(path)
    assert run.baseline is not None
    metrics = {**run.baseline.measurement.metrics, "unseen_inputs": 7.0, "error_draws": 8.0}
    alone = file_of(tmp_path / "alone.db", run, run.baseline.with_measurement(metrics=metrics))
    found = explain(alone, own_kernel.kernel)
    assert found.trial is not None
    assert found.trial.configuration == run.baseline.configuration
    after = Run.load(alone)
    best = after.best
    assert best is not None
    assert best.metric("unseen_inputs") == 7
    assert after.speedup_interval(best) is not None
    assert sorted(str(best.configuration[name]) for name in ("x_type", "y_type")) == ["fp32", "fp64"]
    assert "_type fp32" in str(found)


def test_an_interrupted_explanation_goes_on(path: Path) -> None:
    before, measured, said = Run.load(path), [], []

    def interrupt() -> None:
        measured.append(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explain(path, own_kernel.kernel, on_trial=interrupt, on_warning=said.append)
    assert "the same command goes on" in said[-1]
    assert len(Run.load(path).trials) == len(before.trials) + 1
    assert explain(path, own_kernel.kernel).missing == 0


def test_what_cannot_be_measured_is_explained_from_the_trials(path: Path) -> None:
    run = Run.load(path)
    assert "give its definition with --kernel" in explain(path).unmeasured
    assert explanation_of(run).missing > 0
    with RunFile.open(path):
        assert "is being written" in explain(path, own_kernel.kernel).unmeasured
    assert "time limit" in explain(path, own_kernel.kernel, time_limit_s=1e-9).unmeasured
    for changes in (
        {"device": "another"},
        {"backend": "hip"},
        {"backend": "abacus"},
        {"metric": "my own"},
    ):
        other = Run(dataclasses.replace(run.info, **changes), run.trials, run.state)
        found = explain(other, own_kernel.kernel)
        assert found.missing > 0, changes
        assert found.unmeasured, changes
    edited = dataclasses.replace(own_kernel.kernel, template=own_kernel.kernel.template + "// edited\n")
    found = explain(path, edited, on_warning=lambda _: None)
    assert "--resume" in found.unmeasured
    assert len(Run.load(path).trials) == len(run.trials)


@pytest.mark.full
def test_digits_are_those_of_the_analysis(tmp_path: Path) -> None:
    from sum_kernel import ERRORS, kernel

    options = {**OPTIONS, "max_error": 1e-4, "budget": 12, "baseline_share": 0.0}
    run = tune(kernel, on_warning=lambda _: None, **options)
    narrow = {"block": (64,), "x_type": ("fp32",), "sum_type": ("fp32",)}
    path = file_of(tmp_path / "run.db", run, next(t for t in run.trials if t.configuration.is_among(narrow)))
    found = explain(path, kernel)
    assert found.unmeasured == ""
    assert found.trial is not None
    assert found.trial.error == pytest.approx(ERRORS["fp32"], rel=1e-6)
    # The sum decides, exactly as much as its rounding says; the factors are exact in every type.
    assert change(found, "sum_type", "fp64").outcome.digits == math.inf
    assert change(found, "sum_type", "bf16").outcome.digits == pytest.approx(
        math.log10(ERRORS["fp32"] / ERRORS["bf16"])
    )
    assert change(found, "x_type", "fp64").outcome.digits == change(found, "x_type", "bf16").outcome.digits == 0.0
    assert found.limiting is not None
    assert found.limiting.parameter == "sum_type"
    assert all(c.outcome.interval is not None for c in found.changes)
