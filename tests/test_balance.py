"""A search among what is balanced: which configurations are left, by which speeds, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from made_up_devices import MadeUp, MadeUpDevices, replace_devices

from mptune.errors import EmptySpaceError, MptuneError
from mptune.kernel import Kernel, Rates
from mptune.run import Run
from mptune.source.loading import load_kernel
from mptune.store import RunFile
from mptune.tuning import tune

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


# -- speeds ------------------------------------------------------------------------------------------


def test_operations_of_a_compound_type_are_those_it_is_computed_in() -> None:
    assert RATES.fma_per_s("fp64") == 5e10
    assert RATES.fma_per_s("fp32") == 1e11
    assert RATES.fma_per_s("bf16") == 1e11
    assert RATES.fma_per_s("fp32x2") == 2e11 / 14
    assert RATES.fma_per_s("fp64_neumaier") == 1e11 / 8


def test_speeds_that_cannot_be_measured(kernel: Kernel, devices: MadeUpDevices) -> None:
    devices.rates = None
    with pytest.raises(MptuneError, match=r"speeds of the device could not be measured"):
        tuned(kernel)
