"""Observers on real devices: what they measure is plausible and agrees with what the driver says."""

from __future__ import annotations

import pytest

from mptune.backends import get_backend
from mptune.errors import BackendUnavailableError, ObserverUnavailableError
from mptune.measure.bench import Bench, Request
from mptune.measure.timing import TimingPlan
from mptune.observers import OBSERVERS
from mptune.observers.sensors import energy_source
from mptune.results.trial import Status
from mptune.source.loading import load_kernel
from mptune.source.render import render
from tests.support.simulator import MADE_UP


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
