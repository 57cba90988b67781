"""Launches may take so many times as long as the baseline's, and a configuration that takes longer is a timeout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_devices import MadeUp, replace_devices

from mptune.errors import MptuneError
from mptune.results.trial import Status, Trial
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.tuning import TuneSettings, tune
from tests.faults.injecting import Definition

KERNEL = load_kernel(Path(__file__).with_name("own_kernel.py"))
#: The first thread works about a thousand times as long as all threads of the other configurations.
SLOW = "if (i == 0) for (volatile int k = 0; k < 20000000; k = k + 1) { }"

WIDE = {"x_type": "fp64", "y_type": "fp64"}


def slow_in_small_blocks(configuration: Configuration) -> MadeUp:
    """Take 2 ms, 20 times as long in blocks of 32, but for narrow types 50 times."""
    is_narrow = configuration["x_type"] == "fp16"
    return MadeUp(2.0 * ((50.0 if is_narrow else 20.0) if configuration["block"] == 32 else 1.0), 1e-9)


def tuned(output: Path, **changes: Any) -> Run:
    usual: dict[str, Any] = {"backend": "host", "strategy": "exhaustive", "budget": 12, "verify": 0, "max_error": 1e-3}
    usual["restrict"] = {"block": (32, 64), "unroll": (1,), "x_type": ("fp64", "fp16")}
    resume = changes.pop("resume", False)
    return tune(KERNEL, TuneSettings(**usual | changes), output=output, resume=resume, on_warning=lambda _: None)


def timeouts(run: Run) -> set[Configuration]:
    return {trial.configuration for trial in run.trials if trial.status is Status.TIMEOUT}


def test_a_resumed_run_keeps_timeouts_unless_its_limit_is_larger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = replace_devices(monkeypatch, slow_in_small_blocks)

    def launched(limit: float | str, *, resume: bool = True) -> tuple[Run, int]:
        """Return the run, and how many configurations were launched for it."""
        devices.checks.clear()
        run = tuned(tmp_path / "run.db", limits=limit, resume=resume, first=[{**WIDE, "block": 64}])
        return run, len(devices.checks)

    first, _ = launched("10x", resume=False)
    assert {c["block"] for c in timeouts(first)} == {32}
    assert (first.info.limit_s, first.info.limit_factor) == (30.0, 10.0)
    again, checks = launched("10x")
    assert (timeouts(again), checks) == (timeouts(first), 0)
    smaller, checks = launched("5x")
    assert (timeouts(smaller), checks) == (timeouts(first), 0)
    larger, checks = launched("30x")
    assert {c["x_type"] for c in timeouts(larger)} == {"fp16"}
    assert checks == len(timeouts(first))
    in_seconds, checks = launched(30)
    assert (timeouts(in_seconds), checks) == (set(), len(timeouts(larger)))
    assert (in_seconds.info.limit_s, in_seconds.info.limit_factor) == (30.0, None)


def test_until_there_is_a_baseline_every_launch_may_take_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_devices(monkeypatch, lambda c: MadeUp(2.0 if c["y_type"] == "fp64" else 200.0, 1e-9))
    given: dict[str, Any] = {"limits": "10x", "baseline_share": 0.0, "budget": 1}
    slow = {"x_type": "fp16", "y_type": "fp16"}
    assert not timeouts(tuned(tmp_path / "run.db", first=[slow], **given))
    run = tuned(tmp_path / "other.db", first=[WIDE, slow], **given | {"budget": 2})
    assert {c["x_type"] for c in timeouts(run)} == {"fp16"}


def own(tmp_path: Path, fault: str, **changes: Any) -> list[Trial]:
    """Return trials of a real kernel with a fault in blocks of 64, whose baseline is measured first."""
    path = replace(Definition(fault), blocks=(32, 64, 128)).write(tmp_path)
    settings = TuneSettings(
        backend="host",
        first=[{"block": 32}, {"block": 64}],
        budget=3,
        objective="memory",
        baseline_share=0.0,
        verify=0,
        limits="10x",
    )
    return tune(path, settings, on_warning=lambda _: None, **changes).trials


def test_a_kernel_that_takes_much_longer_is_a_timeout(tmp_path: Path) -> None:
    trials = own(tmp_path, SLOW)
    assert [trial.status for trial in trials] == [Status.OK, Status.TIMEOUT, Status.OK]
    assert "10 times the baseline's" in trials[1].message
    assert not trials[1].measurement.times_ms


@pytest.mark.parametrize("limit", ["x", "1x", "10 x"])
def test_a_limit_is_seconds_or_a_factor_above_1(limit: str) -> None:
    with pytest.raises(MptuneError, match=r"trial limit '.*': expected seconds, or a multiple above 1x"):
        TuneSettings(limits=limit)
