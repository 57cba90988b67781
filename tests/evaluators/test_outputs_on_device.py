"""Where outputs are compared with their references: on the device, on the host where that is not possible."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated import install
from strict_arrays import Namespace, Strict

from mptune.backends import BACKENDS, get_backend
from mptune.backends.base import Backend
from mptune.backends.host import HostBackend, HostBuffer, HostDevice
from mptune.kernel import Kernel
from mptune.measure.bench import Bench, Request
from mptune.measure.buffers import Memory
from mptune.measure.timing import TimingPlan
from mptune.results.trial import Status, Trial
from mptune.source.loading import load_kernel
from mptune.source.render import render

PLAN = TimingPlan(warmups=0, min_repeats=2, max_repeats=2)
N = 1001


class ArraysDevice(HostDevice):
    """The host with a namespace of arrays as a GPU has one; counts what is read back."""

    def __init__(self) -> None:
        super().__init__(workers=1)
        self.namespace: Any = Namespace()
        self.views = 0

    def array_namespace(self) -> Any:
        return self.namespace

    def array(self, buffer: Any, dtype: np.dtype[Any]) -> Any:
        self.views += 1
        return Strict(np.frombuffer((ctypes.c_char * buffer.nbytes).from_address(buffer.address), dtype))


class Arrays(HostBackend):
    """Runs kernels on the host, and compares their outputs there with the arrays of the device."""

    shares_memory = False
    device: ArraysDevice

    def __init__(self) -> None:
        super().__init__()
        self.device = ArraysDevice()


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return load_kernel(Path(__file__).with_name("overrunning.py"))


@pytest.fixture
def no_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the arrays to what is compared."""
    monkeypatch.setattr(Memory, "checksum", lambda *_: 0)


def evaluate(backend: Backend, kernel: Kernel, metric: str | Callable[..., float] = "MaxAE", **values: Any) -> Trial:
    bench = Bench(kernel, kernel.resolve_sizes(), backend, metric=metric, plan=PLAN)
    configuration = kernel.configuration(values)
    trial = bench.evaluate(Request(configuration, render(kernel, configuration, bench.sizes)))
    bench.close()
    return trial


@pytest.mark.parametrize("t", ["fp32", "fp16"])
def test_errors_are_those_of_the_host(kernel: Kernel, t: str, no_checksums: None) -> None:
    backend = Arrays()
    there, here = evaluate(backend, kernel, "NRMSE", t=t), evaluate(HostBackend(workers=1), kernel, "NRMSE", t=t)
    assert there.status is here.status is Status.OK
    assert backend.device.views == 6
    for name in ("error", "error.y", "error.z", "error.labels"):
        assert there.metric(name) == pytest.approx(here.metric(name), rel=1e-12)


def test_no_output_is_read_back(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    plain = HostBuffer.read
    monkeypatch.setattr(HostBuffer, "read", lambda self, data: (sizes.append(self.nbytes), plain(self, data))[0])
    evaluate(Arrays(), kernel)
    on_device = set(sizes)
    sizes.clear()
    # The host looks at them where they are, a user's metric gets copies.
    evaluate(HostBackend(workers=1), kernel)
    assert set(sizes) <= on_device
    evaluate(HostBackend(workers=1), kernel, lambda output, reference: float(np.abs(output - reference).max()))
    assert set(sizes) - on_device == {8 * N, 4 * N}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda function: None, "TypeError"),
        (
            lambda function: lambda *given, **named: function(*given, **named) * 1.001,
            "MetricError: the MaxAE of float64",
        ),
    ],
)
def test_a_namespace_that_does_not_work_here_is_told_of_and_not_used(
    kernel: Kernel, wrong: Callable[[Any], Any], reason: str
) -> None:
    class Broken(Namespace):
        def __getattr__(self, name: str) -> Any:
            function = super().__getattr__(name)
            return wrong(function) if name == "abs" else function

    backend = Arrays()
    backend.device.namespace = Broken()
    bench = Bench(kernel, kernel.resolve_sizes(), backend, metric="MaxAE", plan=PLAN)
    told = bench.ready.unavailable["comparing outputs on the device"]
    assert told.startswith(reason)
    assert told.endswith("they are compared on the host")
    bench.close()
    assert evaluate(backend, kernel).status is Status.OK
    assert backend.device.views == 0


@pytest.mark.full
@pytest.mark.parametrize("is_simulated", [True, pytest.param(False, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", ["cuda", "hip"])
def test_errors_guards_and_poison_on_a_device(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, name: str, is_simulated: bool
) -> None:
    if is_simulated:
        install(monkeypatch, name)
    elif not (found := BACKENDS[name].availability()).can_run:
        pytest.skip(found.reason)
    backend = get_backend(name)
    for t in ("fp16",) if is_simulated else ("fp64", "fp32", "fp16"):
        there, here = evaluate(backend, kernel, "NRMSE", t=t), evaluate(HostBackend(workers=1), kernel, "NRMSE", t=t)
        assert there.status is Status.OK
        assert there.error == pytest.approx(here.error, rel=1e-12)
    for fault, status in (("past", "corrupt"), ("input", "corrupt"), ("none", "ok"), ("read", "non_finite")):
        assert evaluate(backend, kernel, fault=fault).status == status
