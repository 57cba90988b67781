"""A search among what is balanced: which configurations are left, by which speeds, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import caller
from made_up_devices import MadeUp, MadeUpDevices, replace_devices

from mptune.backends import get_backend
from mptune.errors import EmptySpaceError, KernelError, MptuneError
from mptune.evaluators import roofline, worker
from mptune.evaluators.bench import SPEEDS, Bench
from mptune.evaluators.protocol import MeasureRates
from mptune.kernel import Kernel, Rates
from mptune.registry import load_kernel
from mptune.run import Run
from mptune.store import RunFile
from mptune.tuner import tune

RATES = Rates({"fp64": 1e11, "fp32": 2e11}, shared_bytes_per_s=5e11, global_bytes_per_s=4e10)


def by_unroll(rates: Rates, slack: float) -> Sequence[str]:
    """Balanced where a block moves in a second as much as it unrolls: made up, and easy to tell."""
    return (f"unroll * {rates.global_bytes_per_s!r} <= {slack!r} * 4e10",)


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return load_kernel(Path(__file__).with_name("own_kernel.py")).changed(balance=by_unroll)


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> MadeUpDevices:
    errors = {"fp64": 1e-16, "fp32": 1e-7, "fp16": 1e-3}
    found = replace_devices(monkeypatch, lambda c: MadeUp(1.0, max(errors[c[f"{name}_type"]] for name in "xy")))
    found.rates = RATES
    return found


def tuned(kernel: Kernel, balance: float | None = 2.0, **changes: Any) -> Run:
    usual = {"backend": "host", "strategy": "exhaustive", "budget": 108, "verify": 0, "max_error": 1e-5}
    return tune(kernel, balance=balance, **usual | changes)


@pytest.mark.usefixtures("devices")
def test_only_balanced_configurations_are_evaluated(kernel: Kernel) -> None:
    whole, balanced = tuned(kernel, None), tuned(kernel)
    assert {trial.configuration["unroll"] for trial in whole.trials} == {1, 2, 4}
    assert {trial.configuration["unroll"] for trial in balanced.trials} == {1, 2}
    assert (balanced.info.balance, balanced.info.speeds) == (2.0, RATES.numbers)
    assert (whole.info.balance, whole.info.speeds) == (None, {})
    assert balanced.info.configurations == len(balanced.trials)


def test_a_resumed_run_keeps_its_speeds(kernel: Kernel, devices: MadeUpDevices, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    tuned(kernel, output=path, budget=4)
    devices.rates = Rates(RATES.flops_per_s, RATES.shared_bytes_per_s, 2 * RATES.global_bytes_per_s)
    resumed = tuned(kernel, output=path, resume=True)
    assert resumed.info.speeds == RATES.numbers
    assert {trial.configuration["unroll"] for trial in resumed.trials} == {1, 2}
    with RunFile.open(path, read_only=True) as file:
        assert Rates.of(file.info.speeds) == RATES
    assert {trial.configuration["unroll"] for trial in tuned(kernel).trials} == {1}


def test_what_was_kept_is_shown(
    kernel: Kernel,
    devices: MadeUpDevices,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert devices.rates == RATES
    tuned(kernel, output=tmp_path / "run.db")
    shown = " ".join(caller(monkeypatch, capfd)("show", tmp_path / "run.db").out.split())
    assert "balanced to a factor of 2 at " in shown
    for speed in ("fp64 100 GFlop/s", "fp32 200 GFlop/s", "shared memory 500 GB/s", "memory 40 GB/s"):
        assert speed in shown


@pytest.mark.usefixtures("devices")
def test_nothing_balanced_is_said(kernel: Kernel) -> None:
    never = kernel.changed(balance=lambda rates, slack: (f"unroll > {slack * rates.fma_per_s('fp32')!r}",))
    with pytest.raises(EmptySpaceError, match=r"balanced to a factor of 2 at the speeds .*fp32 200 GFlop/s.*--balance"):
        tuned(never)


@pytest.mark.parametrize("balance", [1.0, 0.0, -2.0, math.nan, math.inf])
def test_a_factor_is_above_one(kernel: Kernel, balance: float) -> None:
    with pytest.raises(MptuneError, match=r"balance \S+: expected a number above 1, such as 2"):
        tuned(kernel, balance)


@pytest.mark.parametrize("name", ["kernel convolution2d", "application bbac"])
def test_a_kernel_without_refuses(name: str) -> None:
    with pytest.raises(MptuneError, match=rf"{name} does not say what is to be balanced .* kernels gemm does"):
        tune(name.split()[1], backend="host", balance=2.0)


def test_the_command_refuses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mptune = caller(monkeypatch, capfd)
    without = mptune("tune", "convolution2d", "--balance", 2)
    assert (without.code, "kernels gemm does" in " ".join(without.err.split())) == (2, True)
    too_small = mptune("tune", "gemm", "--balance", 0.5)
    assert (too_small.code, "expected a number above 1" in too_small.err) == (2, True)


# -- speeds ------------------------------------------------------------------------------------------


def test_operations_of_a_compound_type_are_those_it_is_computed_in() -> None:
    assert RATES.fma_per_s("fp64") == 5e10
    assert RATES.fma_per_s("fp32") == 1e11
    assert RATES.fma_per_s("bf16") == 1e11
    assert RATES.fma_per_s("fp32x2") == 2e11 / 14
    assert RATES.fma_per_s("fp64_neumaier") == 1e11 / 8


@pytest.mark.parametrize(
    ("flops", "speed"), [({"fp64": 1.0}, 1.0), ({"fp32": 0.0}, 1.0), ({"fp32": 1.0}, math.nan), ({"fp32": 1.0}, -1.0)]
)
def test_impossible_speeds(flops: dict[str, float], speed: float) -> None:
    with pytest.raises(KernelError, match=r"speed"):
        Rates(flops, speed, 1.0)
    with pytest.raises(KernelError, match=r"speed"):
        Rates.of({"global_bytes_per_s": 1.0, **{f"flops_per_s.{n}": v for n, v in flops.items()}})


def test_a_worker_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    phases: list[str] = []
    bench = Bench.__new__(Bench)
    bench._announce, bench._backend = phases.append, get_backend("host")
    monkeypatch.setattr(roofline.Roofline, "rates", lambda _: RATES)
    assert worker._answer(bench, MeasureRates()).rates == RATES
    assert phases == [SPEEDS]

    def fail(_: object) -> Rates:
        raise MptuneError("it does not compile")

    monkeypatch.setattr(roofline.Roofline, "rates", fail)
    assert worker._answer(bench, MeasureRates()).rates is None


def test_speeds_that_cannot_be_measured(kernel: Kernel, devices: MadeUpDevices) -> None:
    devices.rates = None
    with pytest.raises(MptuneError, match=r"speeds of the device could not be measured"):
        tuned(kernel)
