"""The observers of a bench: which launches they see, and what becomes of those that cannot measure."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from mptune.errors import LaunchError, ObserverUnavailableError
from mptune.kernel import InOut, Kernel
from mptune.measure import bench
from mptune.measure.bench import Observation
from mptune.observers.base import LaunchContext, Observer, Target
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter

KERNEL = Kernel(
    name="scale",
    template='extern "C" __global__ void scale(double* y) {}',
    parameters=[OrdinalParameter("block", [32])],
    arguments=[InOut("y", "n", precision="fp64")],
    sizes={"default": {"n": 10}},
    inputs=lambda rng, size: {"y": np.ones(size["n"])},
    reference=lambda inputs, size: {"y": inputs["y"]},
    grid=["1"],
    block=["block"],
)
TARGET = Target(KERNEL, KERNEL.resolve_sizes(), "cuda", "sm_80", "0000:65:00.0", "nvml", True)


class Device:
    """Time and energy that only launches and restorations move."""

    def __init__(self, launch_s=0.01, restore_s=0.0):
        self.now_s = 0.0
        self.energy_j = 0.0
        self.launch_s, self.restore_s = launch_s, restore_s
        self.log: list[str] = []

    def clock(self):
        return self.now_s

    def run(self, what, seconds, watts):
        self.log.append(what)
        self.now_s += seconds
        self.energy_j += seconds * watts


class Program:
    """What an observation needs of a program."""

    def __init__(self, device):
        self.device = device
        self.fault = ""

    def enqueue(self, buffers, count=1):
        assert buffers.passed == ["y"]
        for _ in range(count):
            self.device.run("launch", self.device.launch_s, 300.0)

    def resources(self):
        return {"registers": 40.0}

    def wait(self):
        self.device.log.append("wait")
        if self.fault:
            raise LaunchError(self.fault)


class Bound:
    """Arguments; only restoring takes time."""

    passed: ClassVar[list[str]] = ["y"]

    def __init__(self, device, in_place):
        self.device = device
        self.pristine = {"working": "original"} if in_place else {}

    def restore(self):
        if self.pristine:
            self.device.run("restore", self.device.restore_s, 150.0)


class Seen(Observer):
    """Remembers what it was shown."""

    name = "seen"
    metrics = ("seen_ms",)
    opened: ClassVar[list[Target]] = []

    @classmethod
    def open(cls, target):
        cls.opened.append(target)
        return cls()

    def stop(self, context):
        return {"seen_ms": 2.0 * len(context.times_ms)}


class Steady(Seen):
    """Needs launches that follow on one another, and says what it sees in the device's log."""

    name = "steady"
    metrics = ("steady_ms",)
    steady_s = 1.0
    lead_s = 0.3
    discounts = True
    device: ClassVar[Any]

    def start(self):
        self.device.log.append("start")

    def stop(self, context):
        self.device.log.append("stop")
        assert context.steady_restorations in (0, 27)
        return {self.metrics[0]: float(context.steady_launches)}


class Brief(Steady):
    name = "brief"
    metrics = ("brief_ms",)
    steady_s = 0.2
    lead_s = 0.5
    discounts = False


@pytest.fixture(autouse=True)
def observers(monkeypatch):
    kinds = (Seen, Steady, Brief)
    monkeypatch.setattr(bench, "OBSERVERS", {kind.name: kind for kind in kinds})
    Seen.opened.clear()


def measured(names, device=None, *, in_place=False, times_ms=(10.0,), program=None):
    device = device or Device()
    Steady.device = device
    observation = Observation(names, TARGET, device.clock)
    context = LaunchContext(Configuration({"block": 32}), 80, times_ms)
    program = program or Program(device)
    bound: Any = Bound(device, in_place)
    metrics = observation.measure(context, program, bound)
    return observation, metrics, device.log


def test_launches_follow_on_one_another_for_as_long_as_the_neediest_needs():
    _, metrics, log = measured(["steady", "brief"])
    # 10 ms each: batches double until one lasts 0.1 s; 0.5 s before anything is measured, then 1 s.
    lead, rest = log[: log.index("start")], log[log.index("start") :]
    assert lead == [entry for n in (1, 2, 4, 8, 16, 16, 16) for entry in (*["launch"] * n, "wait")]
    assert rest == ["start"] * 2 + (["launch"] * 16 + ["wait"]) * 7 + ["stop"] * 2
    assert metrics == {"steady_ms": 112.0, "brief_ms": 112.0}


def test_restorations_are_measured_alone():
    _, metrics, log = measured(["steady"], Device(0.07, 0.04), in_place=True)
    around = log[log.index("start") :]
    assert around[1:3] == ["restore", "launch"]
    alone = around[around.index("stop") :]
    # 110 ms for both, one at a time; 40 ms for a restoration, so batches double until a second is over.
    batches = [entry for n in (1, 2, 4, 4, 4, 4, 4, 4) for entry in (*["restore"] * n, "wait")]
    assert alone == ["stop", "start", *batches, "stop"]
    assert metrics["steady_ms"] == around[: around.index("stop")].count("launch") == 10


def test_a_metric_that_was_promised_and_did_not_come():
    class Silent(Seen):
        name = "seen"

        def stop(self, context):
            return {}

    bench.OBSERVERS["seen"] = Silent
    with pytest.raises(ObserverUnavailableError, match="observer 'seen' could not measure seen_ms here"):
        measured(["seen"])
