"""A tuned kernel is the best of its run on the device of its run, and anywhere else right."""

from __future__ import annotations

import ctypes
import types
import warnings
from typing import Any

import numpy as np
import own_kernel
import pytest
from awkward_kernel import AWKWARD, measured, run_of
from stepper_kernel import STEPPER, stepped

import mptune
from mptune.backends.host import HostBackend, HostDevice
from mptune.data import DataManager
from mptune.errors import KernelError, MptuneError, UnknownNameError
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run

POLY = own_kernel.kernel
NARROW = {"x_type": "bf16", "a_type": "fp16", "w_type": "fp8_e4m3"}


def timed(time_ms: float, error: float, status: Status = Status.OK, kernel: Any = POLY, **values: Any) -> Trial:
    measurement = Measurement({"time_ms": time_ms, "error": error})
    return Trial(kernel.configuration(values), status, "", measurement)


WIDE = timed(4, 1e-16)
BEST = timed(1, 1e-4, x_type="fp16", y_type="fp16", block=128)


def polynomial(x: Any) -> Any:
    return np.polyval([0.5, -1.0, 2.0, 1.0], x)


@pytest.fixture
def x() -> Any:
    return np.random.default_rng(5).uniform(0, 1, 5003)


def test_the_best_configuration_is_used_on_the_runs_own_device(x: Any) -> None:
    with mptune.TunedKernel(run_of(POLY, [WIDE, BEST], threshold=1e-3), kernel=POLY) as tuned:
        assert tuned.configuration == BEST.configuration
        assert tuned.reason == ""
        assert "best: block=128" in repr(tuned)
        y = tuned(x=x)
        assert y.dtype == np.float64
        assert 1e-5 < np.abs(y - polynomial(x)).max() < 1e-2
        stored = tuned(x=x, converted=False)
        assert stored.dtype == np.float16
        assert np.array_equal(stored, y)
        assert np.array_equal(tuned(x=x, n=5003), y)
        tuned.close()
        assert np.array_equal(tuned(x=x), y)


@pytest.mark.parametrize(
    ("run", "sizes", "reason"),
    [
        (run_of(POLY, [WIDE, BEST], device="another device"), None, "the run is of another device, this is"),
        (run_of(POLY, [WIDE, BEST], backend="cuda", device="H100"), None, "the run is of H100"),
        (run_of(POLY, [WIDE, BEST]), {"n": 41}, "the run was made at n=5003, not at n=41"),
        (run_of(POLY, [WIDE, BEST], measured_constraints=["time_ms < 1"]), None, "the run has no feasible trial"),
    ],
)
def test_the_baseline_is_used_elsewhere_with_a_warning(run: Run, sizes: Any, reason: str, x: Any) -> None:
    with pytest.warns(UserWarning, match=f"poly uses the baseline: {reason}"):
        tuned = mptune.TunedKernel(run, kernel=POLY, backend="host", sizes=sizes)
    assert reason in tuned.reason
    assert tuned.configuration["x_type"] == tuned.configuration["y_type"] == "fp64"
    x = x[: tuned.sizes["n"]]
    assert np.abs(tuned(x=x) - polynomial(x)).max() < 1e-14
    tuned.close()


@pytest.mark.parametrize("status", [Status.CRASH, Status.CORRUPT, Status.INACCURATE])
@pytest.mark.parametrize("device", [{}, {"device": "another device"}])
def test_a_run_in_which_nothing_is_feasible_is_refused(status: Status, device: dict[str, str]) -> None:
    run = run_of(POLY, [timed(9, 0.2, status)], threshold=1e-3, **device)
    for runs in (run, [run, run_of(POLY, [], threshold=1e-3, **device)]):
        with pytest.raises(MptuneError, match=r"no feasible trial and no accurate baseline .* tune again with"):
            mptune.TunedKernel(runs, POLY, backend="host")


def test_a_call_whose_data_does_not_fit_the_types_gets_the_baselines_answer(x: Any) -> None:
    tuned = mptune.TunedKernel(run_of(POLY, [WIDE, BEST]), kernel=POLY)
    large = x * 1e6
    with pytest.warns(UserWarning, match="for this call: input 'x' overflows in fp16"):
        y = tuned(x=large)
    assert np.allclose(y, polynomial(large), rtol=1e-14)
    middling = np.full(5003, 6e4)
    with pytest.warns(UserWarning, match="for this call: output 'y' is not finite"):
        y = tuned(x=middling)
    assert np.allclose(y, polynomial(middling), rtol=1e-14)
    # What is infinite or NaN to begin with is the user's own; the answer is the baseline's.
    middling[3] = np.nan
    with pytest.warns(UserWarning, match="not finite"):
        y = tuned(x=middling)
    assert np.isnan(y[3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned(x=x)


def test_inputs_are_checked_and_left_alone(x: Any) -> None:
    tuned = mptune.TunedKernel(run_of(POLY, [WIDE, BEST]), kernel=POLY)
    kept = x.copy()
    tuned(x=x)
    assert np.array_equal(x, kept)
    assert np.array_equal(tuned(x=np.repeat(x, 2)[::2]), tuned(x=x))
    assert np.array_equal(tuned(x=x.astype(np.float32)), tuned(x=x.astype(np.float32).astype(np.float64)))
    with pytest.raises(UnknownNameError, match="'z'"):
        tuned(z=x)
    with pytest.raises(KernelError, match="needs an input 'x'"):
        tuned()
    with pytest.raises(KernelError, match=r"input 'x' of kernel poly has 2 axes; expected"):
        mptune.TunedKernel([run_of(POLY, [WIDE], sizes={"n": n}) for n in (5003, 41)], POLY)(x=np.ones((2, 3)))
    with pytest.raises(KernelError, match="expected real numbers"):
        tuned(x=x + 1j)
    with pytest.raises(KernelError, match=r"has shape \(5003,\); expected \(4,\) at n=4"):
        tuned(x=x, n=4)
    with pytest.raises(MptuneError, match="needs a run"):
        mptune.TunedKernel([])
    with pytest.raises(MptuneError, match=r"the second argument is the kernel: give several runs as a list, not b\.db"):
        mptune.TunedKernel("a.db", "b.db")
    with pytest.raises(KernelError, match="not of 'poly'"):
        mptune.TunedKernel([run_of(POLY, [WIDE]), run_of(AWKWARD, [])], POLY)


def test_every_kind_of_argument_gets_there_and_several_outputs_come_back() -> None:
    trials = measured(AWKWARD, {}, NARROW)
    run = run_of(AWKWARD, [trials[0], timed(1e-9, trials[1].error, kernel=AWKWARD, **NARROW)])
    tuned = mptune.TunedKernel(run, kernel=AWKWARD)
    assert tuned.configuration["w_type"] == "fp8_e4m3"
    data = DataManager(AWKWARD, AWKWARD.resolve_sizes())
    outputs = tuned(**{name: value for name, value in data.inputs.items() if name != "n"})
    reference = data.references
    assert np.array_equal(outputs["count"], reference["count"])
    assert outputs["count"].dtype == np.int64
    error = np.sqrt(np.mean((outputs["y"] - reference["y"]) ** 2)) / np.mean(reference["y"])
    assert error == pytest.approx(trials[1].metric("error.y"), rel=1e-9)
    with pytest.raises(KernelError, match=r"integers from 0 to [0-9]+ do not fit int32"):
        tuned(**{**data.inputs, "index": data.inputs["index"] * np.int64(2**32)})
    with pytest.raises(KernelError, match="expected integers for int32"):
        tuned(**{**data.inputs, "index": data.inputs["y"]})


# -- arrays on a device --------------------------------------------------------------------------


class DeviceArray(np.ndarray):
    """A NumPy array that says it is a device's."""

    __cuda_array_interface__ = property(lambda self: {})

    def get(self) -> Any:
        return self.view(np.ndarray)


class ArraysDevice(HostDevice):
    """The processor as a device whose arrays are not NumPy's."""

    waits = 0

    def array_namespace(self) -> Any:
        def wait() -> None:
            ArraysDevice.waits += 1

        return types.SimpleNamespace(
            asnumpy=lambda array: array.view(np.ndarray),
            asarray=lambda array: np.asarray(array).view(DeviceArray),
            isfinite=np.isfinite,
            cuda=types.SimpleNamespace(runtime=types.SimpleNamespace(deviceSynchronize=wait)),
        )

    def array(self, buffer: Any, dtype: Any) -> Any:
        return np.frombuffer((ctypes.c_char * buffer.nbytes).from_address(buffer.address), dtype).view(DeviceArray)


def with_arrays() -> HostBackend:
    backend = HostBackend()
    backend.device = ArraysDevice(2)
    return backend


@pytest.mark.parametrize("values", [{}, {"x_type": "fp16", "y_type": "fp32"}])
def test_device_arrays_come_back_as_device_arrays(values: dict[str, Any], x: Any) -> None:
    best = timed(1, 1e-5, **values)
    run = run_of(POLY, [best])
    on_host = mptune.TunedKernel(run, kernel=POLY)(x=x)
    tuned = mptune.TunedKernel(run, kernel=POLY, backend=with_arrays())
    before = ArraysDevice.waits
    y = tuned(x=x.view(DeviceArray))
    assert isinstance(y, DeviceArray)
    assert y.dtype == np.float64
    assert np.array_equal(y, on_host)
    assert ArraysDevice.waits >= before + 3
    if values:
        assert isinstance(tuned(x=x.view(DeviceArray), converted=False), DeviceArray)
        with pytest.warns(UserWarning, match="input 'x' overflows in fp16"):
            large = tuned(x=(x * 1e6).view(DeviceArray))
        assert np.allclose(large, polynomial(x * 1e6), rtol=1e-14)
    assert not isinstance(tuned(x=x), DeviceArray)


# -- scratch buffers -----------------------------------------------------------


def test_scratch_buffers_are_made_and_inputs_stored_for_each_call() -> None:
    run = run_of(STEPPER, [timed(1, 1e-8, kernel=STEPPER, t="fp32")])
    u = np.random.default_rng(1).uniform(0.5, 1, 103)
    with mptune.TunedKernel(run, kernel=STEPPER) as tuned:
        assert tuned.configuration["t"] == "fp32"
        for given in (u, u + 1, u):
            np.testing.assert_allclose(tuned(u=given), stepped(given, 4), rtol=1e-6)
        with pytest.raises(UnknownNameError, match="'kept'"):
            tuned(u=u, kept=u)
        with pytest.warns(UserWarning, match="input 'u' overflows in fp32"):
            np.testing.assert_allclose(tuned(u=u * 1e100), stepped(u * 1e100, 4), rtol=1e-14)
