"""Caches are emptied between timed launches, not while one is timed, and where that matters."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mptune.backends.base import DeviceInfo
from mptune.backends.host import HostBackend, HostBuffer, HostDevice
from mptune.kernel import InOut, Kernel, Scalar
from mptune.measure.bench import Bench, Request
from mptune.measure.policy import Plan
from mptune.measure.timing import TimingPlan
from mptune.results.trial import Status
from mptune.source.render import render
from mptune.space.parameters import PrecisionParameter

CACHE = 1 << 16

KERNEL = Kernel(
    name="twice",
    parameters=[PrecisionParameter("t", ["fp64", "fp32", "fp16"])],
    arguments=[InOut("y", "n", precision="t"), Scalar("n", dtype="int32")],
    sizes={"default": {"n": CACHE // 8}, "tiny": {"n": 16}, "huge": {"n": 100 * CACHE}},
    inputs=lambda rng, size: {"y": rng.random(size.n)},
    reference=lambda inputs, size: 2.0 * inputs["y"],
    grid=["ceildiv(n, 64)"],
    block=["64"],
    flops="n",
    template="""
extern "C" __global__ void twice({{ t }}* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = y[i] + y[i];
}
""",
)


class CachedDevice(HostDevice):
    """The host with a small cache, which tells of what is launched."""

    def __init__(self, cache_bytes: int) -> None:
        super().__init__(workers=1)
        self.cache_bytes = cache_bytes
        self.events: list[str] = []

    def describe(self) -> DeviceInfo:
        info = super().describe()
        return dataclasses.replace(info, limits={**info.limits, "cache_bytes": self.cache_bytes})

    def load(self, binary: Any) -> Any:
        function = super().load(binary)
        launch = function.launch

        def told(shape: Any, arguments: Any) -> float:
            self.events.append("launch")
            return launch(shape, arguments)

        function.launch = told  # type: ignore[method-assign]
        return function


class Cached(HostBackend):
    """The host with a small cache, posing as a GPU; tells of what is copied and launched."""

    shares_memory = False

    def __init__(self, cache_bytes: int = CACHE) -> None:
        super().__init__()
        self.device = CachedDevice(cache_bytes)
        self.events = self.device.events


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Cached:
    backend = Cached()
    copy = HostBuffer.copy_from

    def copied(self: HostBuffer, other: HostBuffer) -> None:
        if self.nbytes == CACHE:
            backend.events.append("restore")
        elif backend.events[-1:] != ["flush"]:
            backend.events.append("flush")
        copy(self, other)

    monkeypatch.setattr(HostBuffer, "copy_from", copied)
    return backend


def events(backend: Cached, flush_cache: str, measured: Plan | None = None) -> list[str]:
    plan = TimingPlan(warmups=1, min_repeats=2, max_repeats=2, flush_cache=flush_cache)
    bench = Bench(KERNEL, KERNEL.resolve_sizes(), backend, plan=plan)
    configuration = KERNEL.configuration({})
    request = Request(configuration, render(KERNEL, configuration, bench.sizes), measured or Plan())
    backend.events.clear()
    assert bench.evaluate(request).status is Status.OK
    bench.close()
    return backend.events


def test_each_timed_launch_finds_restored_data_and_an_empty_cache(told: Cached) -> None:
    known = Plan({"error": 0.0, "log10_error": -300.0})
    assert events(told, "on", known) == ["restore", "flush", "launch"] * 3
