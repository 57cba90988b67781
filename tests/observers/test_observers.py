"""Observers: what they report between before and after, and the registry."""

from __future__ import annotations

import importlib.metadata

import numpy as np
import pytest
from fake_devices import Ticking

from mptune.backends import BACKENDS, get_backend
from mptune.errors import BackendUnavailableError, MptuneError, ObserverUnavailableError
from mptune.kernel import In, Kernel, Out
from mptune.measure.bench import Bench, Request
from mptune.measure.timing import TimingPlan
from mptune.observers import OBSERVERS
from mptune.observers.base import LaunchContext, Observer, Target
from mptune.observers.launches import ResourcesObserver, ThroughputObserver
from mptune.observers.sensors import ClocksObserver, EnergyObserver, EnergySource, energy_source
from mptune.results.trial import Status
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from mptune.testing.observers import ObserverConformance
from tests.support.simulator import MADE_UP

KERNEL = Kernel(
    name="copy",
    template="",
    parameters=[OrdinalParameter("n", [1, 2])],
    arguments=[Out("y", "1000", dtype="int32"), In("x", "1000", dtype="int32")],
    sizes={"default": {"m": 1}},
    inputs=lambda rng, size: {"x": np.ones(1000)},
    reference=lambda inputs, size: {"y": inputs["x"]},
    grid=["1"],
    block=["1"],
    flops="250 * n",
)


def energy():
    gauge = EnergySource(lambda: 100.0, is_counter=False, lead_s=0.0)
    return EnergyObserver(gauge, interval_s=3600.0, clock=Ticking(0.5))


MAKE = {
    "clocks": lambda: ClocksObserver({"clock_mhz": lambda: 1500.0, "temperature_c": lambda: 60.0}, interval_s=3600.0),
    "energy": energy,
    "resources": ResourcesObserver,
    "throughput": lambda: ThroughputObserver(KERNEL, KERNEL.resolve_sizes()),
}
for _name, _made in MAKE.items():
    _title = f"Test{_name.capitalize()}"
    globals()[_title] = type(_title, (ObserverConformance,), {"make": lambda self, _made=_made: _made()})


class Counting(Observer):
    name = "counting"

    def stop(self, context):
        return {"count": 1.0}


def test_third_parties_add_observers_by_entry_points(monkeypatch):
    points = importlib.metadata.EntryPoints(
        importlib.metadata.EntryPoint(name, f"{__name__}:{value}", "mptune.observers")
        for name, value in (("counting", "Counting"), ("wrong", "KERNEL"))
    )
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **which: points.select(**which))
    assert OBSERVERS["counting"] is Counting
    assert "counting" in OBSERVERS
    with pytest.raises(MptuneError, match="observer 'wrong' is no subclass of Observer"):
        OBSERVERS["wrong"]


# -- observers on real devices: what they measure is plausible and agrees with what the driver -------


def reason_not(backend):
    found = get_backend(backend).availability()
    return "" if found.can_run else found.reason


def without_rapl():
    try:
        energy_source("processor")
    except ObserverUnavailableError as error:
        return str(error)
    return reason_not("host")


NO_CUDA, NO_HIP, NO_RAPL = reason_not("cuda"), reason_not("hip"), without_rapl()


def measured(backend, kernel, observers):
    definition = load_kernel(kernel)
    resolved = definition.resolve_sizes()
    bench = Bench(definition, resolved, get_backend(backend), plan=TimingPlan(), observers=observers)
    configuration = definition.search_space(resolved).configuration(0)
    trial = bench.evaluate(Request(configuration, render(definition, configuration, resolved)))
    bench.close()
    assert trial.status is Status.OK, trial.message
    return bench, trial


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(bool(NO_CUDA), reason=NO_CUDA or "can run")]),
        pytest.param("hip", marks=[pytest.mark.gpu, pytest.mark.skipif(bool(NO_HIP), reason=NO_HIP or "can run")]),
        pytest.param("host", marks=pytest.mark.skipif(bool(NO_RAPL), reason=NO_RAPL or "there is a counter")),
    ],
)
@pytest.mark.parametrize("kernel", ["axpy", "mriq"])  # in place, and not
def test_energy_is_that_of_a_device(backend, kernel):
    bench, trial = measured(backend, kernel, ["energy"])
    if "energy" in bench.ready.unavailable:
        pytest.skip(bench.ready.unavailable["energy"])
    power_w, energy_j = trial.metric("power_w"), trial.metric("energy_j")
    assert 1.0 < power_w < 3000.0
    if MADE_UP not in bench.ready.device.name:
        # Launches that follow on one another find data in the cache; alone they may not.
        assert 0.2 < energy_j / (power_w * trial.time_ms * 1e-3) < 2.0
    assert trial.measurement.durations_s["observe"] > 1.0


def test_every_optional_observer_opens_or_says_why_here():
    definition = load_kernel("axpy")
    sizes = definition.resolve_sizes("default", {"n": 1000})
    optional = list(OBSERVERS)
    try:
        bench = Bench(definition, sizes, get_backend("host"), observers=optional)
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    for name in optional:
        assert name in bench.ready.observers or len(bench.ready.unavailable[name]) > 20
    assert "throughput" in bench.ready.observers
    assert set(bench.ready.unavailable) & {"registers", "occupancy"} == {"registers", "occupancy"}
    bench.close()


# -- clocks, resources and throughput: what they tell, and what they say they cannot -----------------

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
