"""A whole evaluation on the CUDA backend, with nothing made up but CuPy, the compiler and what the kernel does."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest
from fake_cupy import FakeCupy

from mptune.backends import cuda
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.cuda import CudaBackend
from mptune.backends.gpu import LEAD_BYTES
from mptune.evaluators.bench import Bench, Request
from mptune.evaluators.device_data import GUARD_BYTES
from mptune.evaluators.timing import TimingPlan
from mptune.kernel import Constant, In, InOut, Kernel, Out, Scalar
from mptune.results import Status
from mptune.space.parameters import OrdinalParameter, PrecisionParameter

N = 3000
CACHE = 1 << 16

KERNEL = Kernel(
    name="blend",
    parameters=[PrecisionParameter("t", ["fp64", "fp32", "fp16"]), OrdinalParameter("block", [64, 256, 1024])],
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
    template="the compiler is made up\n",
    metric="MaxAE",
)


class Compiler:
    name, version = "NVRTC", "13.0"

    def compile(self, source, function, flags, timeout_s):
        return b"cubin", ""


@pytest.fixture
def fake(monkeypatch):
    fake = FakeCupy()
    fake.install(monkeypatch)
    fake.free_bytes = 1 << 30
    properties = {**FakeCupy.properties(), "l2CacheSize": CACHE}
    monkeypatch.setattr(FakeCupy, "properties", staticmethod(lambda: properties))
    monkeypatch.setattr(CudaBackend, "require_device", staticmethod(lambda: None))
    monkeypatch.setattr(cuda, "_nvrtc", Compiler)
    weights = fake.malloc(16)
    fake.symbols["weights"] = weights
    fake.kernel = lambda arguments: blend(arguments, np.float64, weights)
    return fake


def memory(address, dtype, count):
    dtype = np.dtype(dtype)
    return np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype)


def blend(arguments, dtype, weights, past=0):
    """What the kernel does: the arguments are pointers to pointers and to n."""
    pointers = (ctypes.c_void_p * 4).from_address(arguments)
    n = ctypes.c_int32.from_address(pointers[3]).value
    y, z, x = (ctypes.c_void_p.from_address(pointers[i]).value for i in range(3))
    w = memory(weights, np.float64, 2)
    y, z, x = memory(y, dtype, n + past), memory(z, dtype, n), memory(x, dtype, n)
    y[:n] = w[0] * x + w[1] * z
    y[n:] = 1
    z[:] = z + x


@pytest.fixture
def bench(fake, tmp_path):
    backend = CudaBackend(cache=BinaryCache(tmp_path))
    made = Bench(KERNEL, KERNEL.resolve_sizes(), backend, plan=TimingPlan(warmups=1, min_repeats=3, max_repeats=3))
    yield made
    made.close()


def evaluate(bench, **values):
    return bench.evaluate(Request(KERNEL.configuration(values), "source"))


def test_a_trial_is_ok_and_nothing_but_guard_zones_and_spots_comes_back_to_the_host(bench, fake):
    fake.calls.clear()
    trial = evaluate(bench)
    assert trial.status is Status.OK, trial.message
    assert trial.error == 0.0
    assert trial.measurement.times_ms == (1.5,) * 3
    back = [nbytes for _, _, nbytes, kind, _ in fake.named("memcpyAsync") if kind == 2]
    zones = {GUARD_BYTES, GUARD_BYTES + -8 * N % GUARD_BYTES}
    constant = {16}
    spots = {8 * (N // 64)}
    assert set(back) == zones | constant | spots


def test_timed_launches_find_restored_data_and_an_empty_cache(bench, fake):
    evaluate(bench)
    fake.calls.clear()
    evaluate(bench)
    steps = [call for call in fake.calls if call[0] in ("memcpyAsync", "memsetAsync", "launchKernel")]
    launches = [i for i, call in enumerate(steps) if call[0] == "launchKernel"]
    assert len(launches) == 1 + 1 + 3
    for i in launches[1:]:
        lead, flush, restore = steps[i - 1], steps[i - 2], steps[i - 3]
        assert (lead[0], lead[3]) == ("memsetAsync", LEAD_BYTES)
        assert (flush[0], flush[3]) == ("memsetAsync", 2 * CACHE)
        assert (restore[0], restore[3], restore[4]) == ("memcpyAsync", 8 * N, 3)
    # The one whose outputs are checked needs no empty cache.
    assert steps[launches[0] - 2][0] == "memcpyAsync"


def test_an_error_is_the_one_the_kernel_makes(bench, fake):
    weights = fake.symbols["weights"]
    fake.kernel = lambda arguments: blend(arguments, np.float32, weights)
    trial = evaluate(bench, t="fp32")
    assert trial.status is Status.OK
    assert 1e-8 < trial.error < 1e-6


def test_a_write_past_the_end_is_corrupt_and_the_next_trial_is_whole(bench, fake):
    weights, whole = fake.symbols["weights"], fake.kernel
    fake.kernel = lambda arguments: blend(arguments, np.float64, weights, past=5)
    trial = evaluate(bench)
    assert trial.status is Status.CORRUPT
    # Of 40 bytes, some may be what was there.
    assert re.search(r"out of bounds of 'y': (3\d|40) bytes past its last element \(element 3000 and", trial.message)
    assert not bench.is_usable(trial)
    fake.kernel = whole
    assert evaluate(bench).status is Status.OK


def test_a_kernel_that_does_nothing_leaves_its_outputs_unwritten(bench, fake):
    fake.kernel = lambda arguments: None
    trial = evaluate(bench)
    assert trial.status is Status.UNWRITTEN
    assert f"never wrote {N} of {N} elements of 'y'" in trial.message


def test_faults_have_their_statuses(bench, fake):
    assert "at most 640 threads fit a block" in evaluate(bench, block=1024).message
    fake.failing.add("launchKernel")
    trial = evaluate(bench)
    assert (trial.status, bench.is_usable(trial)) == (Status.LAUNCH_ERROR, True)
    fake.failing = {"synchronize", "streamSynchronize", "moduleUnload"}
    trial = evaluate(bench)
    assert (trial.status, bench.is_usable(trial)) == (Status.LAUNCH_ERROR, False)
    fake.failing.clear()


def test_resources_that_a_binary_does_not_tell_are_a_warning(fake, tmp_path):
    plan = TimingPlan(warmups=1, min_repeats=3, max_repeats=3)
    backend = CudaBackend(cache=BinaryCache(tmp_path))
    made = Bench(KERNEL, KERNEL.resolve_sizes(), backend, plan=plan, observers=["resources", "throughput"])
    trials = [evaluate(made, block=block) for block in (64, 256)]
    made.close()
    assert [trial.status for trial in trials] == [Status.OK] * 2
    (warning,) = {warning for trial in trials for warning in trial.warnings}
    assert re.match("resources are not measured: .*ELF", warning)
    for trial in trials:
        assert "registers" not in trial.measurement.metrics
        assert trial.metric("bandwidth_gb_s") > 0


def test_everything_is_given_back(fake, tmp_path):
    fake.kernel = lambda arguments: None
    before = set(fake.memory)
    made = Bench(KERNEL, KERNEL.resolve_sizes(), CudaBackend(cache=BinaryCache(tmp_path)))
    for t in ("fp64", "fp32", "fp16"):
        evaluate(made, t=t)
    made.close()
    (lead,) = set(fake.memory) - before
    assert len(fake.memory[lead]) == LEAD_BYTES  # the driver's own
