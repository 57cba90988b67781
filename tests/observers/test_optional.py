"""Clocks, resources and throughput: what they tell, and what they say they cannot."""

from __future__ import annotations

import pytest

from mptune.backends import BACKENDS
from mptune.kernel import In, Kernel, Out
from mptune.observers.base import LaunchContext, Target
from mptune.observers.launches import ResourcesObserver, ThroughputObserver
from mptune.observers.sensors import ClocksObserver
from mptune.space.configuration import Configuration
from mptune.space.parameters import PrecisionParameter

BUS = "0000:65:00.0"


def kernel(**more):
    return Kernel(
        name="scale",
        template='extern "C" __global__ void scale({{ t }}* y, const {{ t }}* x) {}',
        parameters=[PrecisionParameter("t", ["fp64", "fp32"])],
        arguments=[Out("y", "n", precision="t"), In("x", "n", precision="t")],
        sizes={"default": {"n": 1000}},
        inputs=lambda rng, size: {"x": rng.standard_normal(size["n"])},
        reference=lambda inputs, size: {"y": 2 * inputs["x"]},
        grid=["n"],
        block=["1"],
        **more,
    )


def target(backend="host", architecture="", **more):
    made = kernel(**more)
    family = BACKENDS[backend]
    sensors = {"host": "processor", "cuda": "nvml", "hip": "amd-smi"}[backend]
    return Target(made, made.resolve_sizes(), backend, architecture, BUS, sensors, family.tells_resources)


def context(t="fp64", times_ms=(1.0, 2.0, 40.0), **more):
    return LaunchContext(Configuration({"t": t}), 64, times_ms, **more)


def observe(observer, around):
    observer.start()
    return dict(observer.stop(around))


# -- throughput --------------------------------------------------------------------------------


def test_rates_are_the_declared_work_over_the_median_time():
    observer = ThroughputObserver.open(target(flops="5*n"))
    assert not observer.missing
    # 1000 numbers of 8 bytes read and written, 5000 operations, in 2 ms.
    assert observe(observer, context()) == pytest.approx(
        {"bandwidth_gb_s": 16000 / 2e-3 / 1e9, "flop_rate_gflop_s": 2.5e-3}
    )
    assert observe(observer, context("fp32"))["bandwidth_gb_s"] == pytest.approx(8000 / 2e-3 / 1e9)


def test_no_rates_without_times_or_operations():
    observer = ThroughputObserver.open(target())
    assert dict(observer.missing) == {"flop_rate_gflop_s": "kernel scale does not declare its operations (flops=...)"}
    assert list(observe(observer, context())) == ["bandwidth_gb_s"]
    assert observe(observer, context(times_ms=())) == {}


# -- resources ---------------------------------------------------------------------------------


def test_resources_of_the_launch():
    observer = ResourcesObserver.open(target("cuda", "sm_80"))
    taken = dict.fromkeys(ResourcesObserver.metrics, 40.0)
    assert observe(observer, context(resources=taken)) == taken
    assert not observer.missing
    assert observe(observer, context()) == {}


# -- clocks ------------------------------------------------------------------------------------


def test_clocks_are_means_and_the_temperature_the_highest():
    seen = {"clock_mhz": [1000.0, 1500.0], "memory_clock_mhz": [2600.0, 2600.0], "temperature_c": [70.0, 60.0]}
    readers = {metric: iter(values).__next__ for metric, values in seen.items()}
    observer = ClocksObserver(readers, interval_s=3600.0)
    found = observe(observer, context())
    assert found["clock_mhz"] == pytest.approx(1250.0)
    assert found["memory_clock_mhz"] == 2600.0
    assert found["temperature_c"] == 70.0
