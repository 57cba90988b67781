"""Shared memory that a kernel never wrote: no zero is there by chance; and what is beyond the end of shared memory."""

from __future__ import annotations

import contextlib
import re

import pytest
import simulated

from mptune.backends import get_backend
from mptune.errors import LaunchError
from mptune.kernel import In, Kernel, Out
from mptune.measure.bench import Bench, Request
from mptune.measure.policy import Plan
from mptune.measure.timing import TimingPlan
from mptune.results.trial import Status, Trial
from mptune.source.render import render
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from tests.tiers import few

PLAN = TimingPlan(warmups=0, min_repeats=1, max_repeats=1)
TYPES = ("fp64", "fp32", "fp16", "bf16")
FIXED = "__shared__ {{ type }} s[{{ block }}];"
DYNAMIC = "SHARED_DYNAMIC({{ type }}, s);"
PARTLY, WHOLLY = "if (threadIdx.x % 2 == 0) s[threadIdx.x] = x[i];", "s[threadIdx.x] = x[i];"


def kernel_of(declaration: str, fills: str, barrier: str = "__syncthreads();") -> Kernel:
    body = f"{declaration} const int i = blockIdx.x * blockDim.x + threadIdx.x; {fills} {barrier}"
    return Kernel(
        name="reads",
        parameters=[OrdinalParameter("block", [32]), PrecisionParameter("type", list(TYPES))],
        arguments=[Out("y", "n", precision="type"), In("x", "n", precision="type")],
        sizes={"default": {"n": 256}},
        inputs=lambda rng, size: {"x": rng.random(size.n)},
        reference=lambda inputs, size: inputs["x"],
        grid=["n // block"],
        block=["block"],
        shared_bytes="block * 8" if declaration == DYNAMIC else 0,
        template='extern "C" __global__ void reads({{ type }}* y, const {{ type }}* x) {'
        f"{body} y[i] = x[i] + s[threadIdx.x] - s[threadIdx.x]; }}",
    )


def run(kernel: Kernel, backend: str, name: str) -> Trial:
    configuration = kernel.configuration({"block": 32, "type": name})
    bench = Bench(kernel, kernel.resolve_sizes(), get_backend(backend), plan=PLAN)
    try:
        return bench.evaluate(Request(configuration, render(kernel, configuration, kernel.resolve_sizes()), Plan()))
    finally:
        with contextlib.suppress(LaunchError):  # a fault has ended the device
            bench.close()


@pytest.mark.parametrize("backend", few(["host", "cuda", "hip"]))
@pytest.mark.parametrize("declaration", [FIXED, DYNAMIC])
def test_what_was_never_written_shows(monkeypatch: pytest.MonkeyPatch, backend: str, declaration: str) -> None:
    if backend != "host":
        simulated.install(monkeypatch, backend)
    trial = run(kernel_of(declaration, PARTLY), backend, "fp32")
    assert trial.status is Status.NON_FINITE
    assert "128 elements, first at index [1]" in trial.message
    assert run(kernel_of(declaration, WHOLLY), backend, "fp32").status is Status.OK


@pytest.mark.parametrize("backend", few(["host", "cuda", "hip"]))
def test_a_write_just_past_the_end_of_shared_memory_is_an_error(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    if backend != "host":
        simulated.install(monkeypatch, backend)
    within = kernel_of(DYNAMIC, f"{WHOLLY} s[block + 0] = x[i];".replace("block", "{{ block }}")).changed(
        shared_bytes="block * 8 + 8"
    )
    assert run(within, backend, "fp64").status is Status.OK
    beyond = run(within.changed(shared_bytes="block * 8 + 4"), backend, "fp64")
    assert beyond.status is Status.LAUNCH_ERROR
    assert backend != "host" or "past the end of its 260 bytes of shared memory" in beyond.message


@pytest.mark.parametrize("backend", few(["cuda", "hip"]))
@pytest.mark.parametrize("declaration", [FIXED, DYNAMIC])
def test_a_simulated_device_stops_writes_beyond_shared_memory(
    monkeypatch: pytest.MonkeyPatch, backend: str, declaration: str
) -> None:
    simulated.install(monkeypatch, backend)
    beyond = kernel_of(declaration, f"{WHOLLY} s[threadIdx.x + {{{{ block }}}}] = x[i];")
    trial = run(beyond, backend, "fp64")
    assert trial.status is Status.LAUNCH_ERROR
    assert re.search("(?i)illegal.?(memory access|address)", trial.message)


def test_threads_that_run_in_a_loop_share_memory_too() -> None:
    assert run(kernel_of(FIXED, PARTLY, barrier=""), "host", "fp32").status is Status.NON_FINITE
    assert run(kernel_of(FIXED, WHOLLY, barrier=""), "host", "fp32").status is Status.OK
