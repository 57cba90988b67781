"""A whole evaluation on the CUDA backend, down to what is asked of a simulated device."""

from __future__ import annotations

import contextlib
import gc
import re
import sys

import numpy as np
import pytest
from simulated import install, named

from mptune.backends.binary_cache import BinaryCache
from mptune.backends.cuda import CudaBackend
from mptune.backends.gpu import LEAD_BYTES
from mptune.errors import LaunchError
from mptune.kernel import Constant, In, InOut, Kernel, Out, Scalar
from mptune.measure.bench import Bench, Request
from mptune.measure.buffers import GUARD_BYTES
from mptune.measure.timing import TimingPlan
from mptune.results.trial import Status
from mptune.source.render import render
from mptune.space.parameters import CategoricalParameter, OrdinalParameter, PrecisionParameter
from tests.support.simulator.device import Limits

N = 3000
CACHE = 1 << 20
FP8_TABLE_BYTES = 8 * 256
PLAN = TimingPlan(warmups=1, min_repeats=3, max_repeats=3)

KERNEL = Kernel(
    name="blend",
    parameters=[
        PrecisionParameter("t", ["fp64", "fp32", "fp16"]),
        OrdinalParameter("block", [64, 256, 1024]),
        CategoricalParameter("fault", ["none", "past", "far", "idle"]),
    ],
    arguments=[
        Out("y", "n", precision="t"),
        InOut("z", "n", precision="t"),
        In("x", "n", precision="t"),
        Constant("weights", 2, precision="fp64"),
        Scalar("n", dtype="int32"),
    ],
    sizes={"default": {"n": N}},
    inputs=lambda rng, size: {"x": rng.random(size.n), "z": rng.random(size.n), "weights": np.array([2.0, 3.0])},
    reference=lambda inputs, size: {"y": 2.0 * inputs["x"] + 3.0 * inputs["z"], "z": inputs["z"] + inputs["x"]},
    grid=["ceildiv(n, block)"],
    block=["block"],
    template="""
__constant__ double weights[2];
extern "C" __global__ void blend({{ t }}* y, {{ t }}* z, const {{ t }}* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
{% if fault == "far" %}
    if (i == 0) y[1 << 28] = {{ t }}(1.0f);
{% elif fault == "past" %}
    if (i >= n && i < n + 5) y[i] = {{ t }}(1.0f);
{% elif fault == "idle" %}
    return;
{% endif %}
    if (i >= n) return;
    const double u = static_cast<double>(x[i]), v = static_cast<double>(z[i]);
    y[i] = static_cast<{{ t }}>(weights[0] * u + weights[1] * v);
    z[i] = static_cast<{{ t }}>(u + v);
}
""",
    metric="MaxAE",
)


@pytest.fixture
def device(monkeypatch):
    return install(monkeypatch, "cuda")


@pytest.fixture
def bench(device):
    made = Bench(KERNEL, KERNEL.resolve_sizes(), CudaBackend(), plan=PLAN)
    yield made
    with contextlib.suppress(LaunchError):  # a fault has ended the device
        made.close()


def evaluate(bench, **values):
    configuration = KERNEL.configuration(values)
    return bench.evaluate(Request(configuration, render(KERNEL, configuration, bench.sizes)))


def test_a_trial_is_ok_and_nothing_but_guard_zones_comes_back_to_the_host(bench, device):
    device.calls.clear()
    trial = evaluate(bench)
    assert trial.status is Status.OK, trial.message
    assert trial.error < 1e-14
    assert len(trial.measurement.times_ms) == 3
    zones = {GUARD_BYTES, GUARD_BYTES + -8 * N % GUARD_BYTES}
    constant = {16}
    assert {nbytes for _, _, nbytes in named(device, "copy_out")} == zones | constant


def test_timed_launches_find_restored_data_and_an_empty_cache(bench, device):
    evaluate(bench)
    device.calls.clear()
    evaluate(bench)
    steps = [(name, what) for name, _, what in named(device, "copy", "fill", "launch")]
    launches = [i for i, (name, _) in enumerate(steps) if name == "launch"]
    assert len(launches) == 1 + 1 + 3
    for i in launches[1:]:
        restore, *flush, lead = steps[i - 33 : i]
        assert lead == ("fill", LEAD_BYTES)
        assert flush == [("copy", CACHE // 16)] * 31
        assert restore == ("copy", 8 * N)
    # The one whose outputs are checked needs no empty cache.
    assert steps[launches[0] - 2] == ("copy", 8 * N)


def test_a_write_past_the_end_is_corrupt_and_the_next_trial_is_whole(bench):
    trial = evaluate(bench, fault="past")
    assert trial.status is Status.CORRUPT
    # Of 40 bytes, some may be what was there.
    assert re.search(r"out of bounds of 'y': (3\d|40) bytes past its last element \(element 3000 and", trial.message)
    assert not bench.is_usable(trial)
    assert evaluate(bench).status is Status.OK


def test_a_kernel_that_does_nothing_leaves_its_outputs_unwritten(bench):
    trial = evaluate(bench, fault="idle")
    assert trial.status is Status.UNWRITTEN
    assert f"never wrote {N} of {N} elements of 'y'" in trial.message


def test_faults_have_their_statuses(bench, device, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(device, "max_threads", lambda function: 640)
        assert "at most 640 threads in a block" in evaluate(bench, block=1024).message
        patch.setattr(device, "limits", Limits(threads=32))
        trial = evaluate(bench)
        assert (trial.status, bench.is_usable(trial)) == (Status.LAUNCH_ERROR, True)
    trial = evaluate(bench, fault="far")
    assert (trial.status, bench.is_usable(trial)) == (Status.LAUNCH_ERROR, False)
    assert "illegal memory access" in trial.message


def test_resources_are_those_of_the_driver(device):
    made = Bench(KERNEL, KERNEL.resolve_sizes(), CudaBackend(), plan=PLAN, observers=["resources", "throughput"])
    trials = [evaluate(made, block=block) for block in (64, 256)]
    made.close()
    assert [trial.status for trial in trials] == [Status.OK] * 2
    for trial in trials:
        assert trial.metric("registers") > 0
        assert trial.metric("static_shared_bytes") == 0
        assert 0 < trial.metric("occupancy") <= 1
        assert trial.metric("bandwidth_gb_s") > 0


def test_everything_is_given_back(device, tmp_path):
    made = Bench(KERNEL, KERNEL.resolve_sizes(), CudaBackend(cache=BinaryCache(tmp_path)), plan=PLAN)
    for t in ("fp64", "fp32", "fp16"):
        evaluate(made, t=t)
    made.close()
    # Nothing but the driver's own is left, and what arrays of fp8 are decoded with; CuPy gives back what it keeps.
    gc.collect()
    sys.modules["cupy"].get_default_memory_pool().free_all_blocks()
    assert device.free_bytes() == device.limits.memory_bytes - LEAD_BYTES - 2 * FP8_TABLE_BYTES
    assert len(named(device, "load")) == len(named(device, "unload")) == 3
