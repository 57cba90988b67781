"""Where outputs are compared with their references: on the device, on the host where that is not possible."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strict_arrays import Namespace, Strict

from mptune.accuracy import METRICS
from mptune.accuracy.pairs import DevicePairs
from mptune.backends import BACKENDS, get_backend
from mptune.backends.base import Backend
from mptune.backends.host import HostBackend, HostBuffer, HostDevice
from mptune.buffers import DataManager
from mptune.errors import OutOfMemoryError
from mptune.evaluators.bench import Bench, Request
from mptune.evaluators.device_data import BoundArguments, DeviceData
from mptune.evaluators.timing import TimingPlan
from mptune.kernel import Kernel
from mptune.registry import load_kernel
from mptune.rendering import render
from mptune.results import Status, Trial

PLAN = TimingPlan(warmups=0, min_repeats=2, max_repeats=2)
N = 1001
METRICS_OF = dict.fromkeys(["y", "z", "labels"], (METRICS["MaxAE"],))


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
    monkeypatch.setattr(DeviceData, "_checksum", lambda *_: 0)


def evaluate(backend: Backend, kernel: Kernel, metric: str | Callable[..., float] = "MaxAE", **values: Any) -> Trial:
    bench = Bench(kernel, kernel.resolve_sizes(), backend, metric=metric, plan=PLAN)
    configuration = kernel.configuration(values)
    trial = bench.evaluate(Request(configuration, render(kernel, configuration, bench.sizes)))
    bench.close()
    return trial


@pytest.mark.parametrize("t", ["fp64", "fp32", "fp16"])
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


def test_what_is_not_finite_or_unwritten_is_seen_there(kernel: Kernel) -> None:
    trial = evaluate(Arrays(), kernel, fault="read")
    assert trial.status is Status.NON_FINITE
    assert "first at index [1000] (of 1001)" in trial.message
    faulty = load_kernel(Path(__file__).with_name("faulty.py"))
    for y_type in ("fp64", "fp32"):
        unwritten = evaluate(Arrays(), faulty, "MRE", fault="unwritten", y_type=y_type)
        assert unwritten.status is Status.UNWRITTEN
        assert "never wrote 1 of 1001 elements of 'y'" in unwritten.message


def test_a_corrupt_trial_there_leaves_the_data_whole_and_the_worker_is_replaced(kernel: Kernel) -> None:
    backend = Arrays()
    bench = Bench(kernel, kernel.resolve_sizes(), backend, plan=PLAN)
    statuses = []
    for fault in ("none", "past", "none"):
        configuration = kernel.configuration({"fault": fault})
        trial = bench.evaluate(Request(configuration, render(kernel, configuration, bench.sizes)))
        assert bench.is_usable(trial) is (fault == "none")
        statuses.append(trial.status)
    assert statuses == [Status.OK, Status.CORRUPT, Status.OK]
    bench.close()


def test_a_user_s_metric_gets_its_arrays_on_the_host(kernel: Kernel, no_checksums: None) -> None:
    backend = Arrays()

    def mine(output: Any, reference: Any) -> float:
        assert type(output) is np.ndarray
        return float(np.abs(output - reference).max())

    assert evaluate(backend, kernel, mine).status is Status.OK
    assert backend.device.views == 0


def test_a_device_without_room_to_compare_leaves_it_to_the_host(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(Namespace):
        is_full = False

        def __getattr__(self, name: str) -> Any:
            if name == "abs" and self.is_full:
                raise MemoryError("no room for a piece")
            return super().__getattr__(name)

    backend = Arrays()
    backend.device.namespace = Full()
    plain = DeviceData.outputs
    monkeypatch.setattr(
        DeviceData, "outputs", lambda self, bound: (setattr(Full, "is_full", True), plain(self, bound))[1]
    )
    assert evaluate(backend, kernel, t="fp32").error == evaluate(HostBackend(workers=1), kernel, t="fp32").error


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


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["cuda", "hip"])
def test_errors_guards_and_poison_on_a_device(kernel: Kernel, name: str) -> None:
    found = BACKENDS[name].availability()
    if not found.can_run:
        pytest.skip(found.reason)
    backend = get_backend(name)
    for t in ("fp64", "fp32", "fp16"):
        there, here = evaluate(backend, kernel, "NRMSE", t=t), evaluate(HostBackend(workers=1), kernel, "NRMSE", t=t)
        assert there.status is Status.OK
        assert there.error == pytest.approx(here.error, rel=1e-12)
    for fault, status in (("past", "corrupt"), ("input", "corrupt"), ("none", "ok"), ("read", "non_finite")):
        assert evaluate(backend, kernel, fault=fault).status == status


class TestReferences:
    """They are uploaded once, and stay only while there is room."""

    @pytest.fixture
    def data(self, kernel: Kernel, tmp_path: Path) -> DataManager:
        return DataManager(kernel, kernel.resolve_sizes(), cache_dir=tmp_path)

    def test_they_are_uploaded_once(self, data: DataManager, monkeypatch: pytest.MonkeyPatch) -> None:
        device = DeviceData(Arrays(), data, 10**9, METRICS_OF)
        bound = device.bind(data.kernel.configuration({}))
        device.poison(bound)
        first = device.outputs(bound)
        assert all(isinstance(output, DevicePairs) for output in first.values())
        assert device.unwritten(bound, first) == {"y": N, "labels": N}
        monkeypatch.setattr(HostBuffer, "write", None)
        bound = device.bind(data.kernel.configuration({}))
        assert all(isinstance(output, DevicePairs) for output in device.outputs(bound).values())
        device.free()

    def test_without_room_in_the_budget_the_output_comes_to_the_host(self, data: DataManager) -> None:
        needed = 4 * 8 * N + 4 * N
        device = DeviceData(Arrays(), data, needed + 8 * N, METRICS_OF)
        bound = device.bind(data.kernel.configuration({}))
        found = device.outputs(bound)
        assert isinstance(found["y"], DevicePairs)
        # The reference of z takes the room of that of y, in the middle of which it would be used.
        assert [type(found[name]) for name in ("z", "labels")] == [np.ndarray] * 2
        device.free()

    def test_without_memory_the_output_comes_to_the_host(self, data: DataManager) -> None:
        backend = Arrays()
        device = DeviceData(backend, data, 10**9, METRICS_OF)
        bound = device.bind(data.kernel.configuration({}))

        def full(nbytes: int) -> HostBuffer:
            raise OutOfMemoryError(f"no {nbytes} bytes")

        backend.device.allocate = full  # type: ignore[method-assign]
        assert {type(output) for output in device.outputs(bound).values()} == {np.ndarray}
        device.free()

    def test_a_device_without_arrays_compares_on_the_host(self, data: DataManager) -> None:
        device = DeviceData(HostBackend(), data, 10**9, METRICS_OF)
        bound = device.bind(data.kernel.configuration({}))
        assert {type(output) for output in device.outputs(bound).values()} == {np.ndarray}
        device.free()


class TestDamage:
    """Where nothing keeps a kernel from the buffers of other configurations, they are looked at as well."""

    @pytest.fixture
    def data(self, kernel: Kernel) -> DataManager:
        return DataManager(kernel, kernel.resolve_sizes())

    def bound(self, device: DeviceData, data: DataManager, t: str) -> BoundArguments:
        return device.bind(data.kernel.configuration({"t": t}))

    @pytest.mark.parametrize(
        ("key", "offset", "message"),
        [
            (("x", "fp64", "read"), 17, "the kernel changed 'x' as it is kept in fp64, which is no argument of it"),
            (("x", "fp16", "read"), 2 * N - 1, "the kernel changed 'x', which is an input"),
            (
                ("z", "fp16", "read"),
                0,
                "the kernel changed the initial values of 'z', which are kept in another buffer",
            ),
            (("y", "", "reference"), 8, "the kernel changed the reference of 'y', which is no argument of it"),
        ],
    )
    def test_a_changed_byte_is_named_wherever_it_is(
        self, data: DataManager, key: tuple[str, str, str], offset: int, message: str
    ) -> None:
        device = DeviceData(Arrays(), data, 10**9, METRICS_OF)
        self.bound(device, data, "fp64")
        bound = self.bound(device, data, "fp16")
        device.outputs(bound)
        assert device.damage(bound) == []
        found = np.empty(1, np.uint8)
        part = device._buffers[key].data.part(offset, 1)
        part.read(found)
        part.write(found ^ 1)
        assert device.damage(bound) == [message]
        part.write(found)
        assert device.damage(bound) == []
        # What a kernel writes is its own.
        device._buffers["y", "fp16", "write"].data.fill(3)
        assert device.damage(bound) == []
        device.free()

    def test_zones_of_others_are_looked_at_where_a_kernel_can_reach_them(self, data: DataManager) -> None:
        for backend, expected in ((Arrays(), ["of 'x': 4 bytes past its last element"]), (HostBackend(), [])):
            device = DeviceData(backend, data, 10**9)
            other = self.bound(device, data, "fp64").held["x", "fp64", "read"]
            bound = self.bound(device, data, "fp16")
            other._after.part(0, 4).fill(0)
            found = device.damage(bound)
            assert len(found) == len(expected)
            assert all(part in message for part, message in zip(expected, found, strict=True))
            device.free()

    def test_checksums_are_of_the_order_too(self, data: DataManager) -> None:
        there, here = DeviceData(Arrays(), data, 10**9), DeviceData(HostBackend(), data, 10**9)
        values = np.random.default_rng(0).integers(0, 256, 3 * 8 * (1 << 14) + 5).astype(np.uint8)
        sums = set()
        for i, j in (
            (0, 0),
            (0, 8),
            (8, 8 * (1 << 14)),
            (1, 2),
            (values.size - 1, values.size - 2),
            (3, values.size - 1),
        ):
            changed = values.copy()
            changed[[i, j]] = changed[[j, i]]
            for device in (there, here):
                buffer = HostBuffer(changed.nbytes)
                buffer.write(changed)
                sums.add((device is here, device._checksum(buffer)))
        assert len(sums) == 12
