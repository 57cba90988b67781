"""Devices that run nothing: what a configuration takes and gives is made up, what is measured is as the plan says."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.data import Draw
from mptune.measure.bench import Ready, Request
from mptune.measure.policy import worst_errors
from mptune.measure.rounds import Finished
from mptune.observers.launches import time_metrics
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration

__all__ = ["MadeUp", "MadeUpDevices", "replace_devices"]


@dataclass(frozen=True)
class MadeUp:
    """What a configuration does: the time of a launch, its error, how a check of it ends, and what it occupies."""

    time_ms: float
    error: float
    status: Status = Status.OK
    memory_bytes: float = 1e6


class MadeUpDevices:
    """Evaluates requests by what is made up of their configurations; counts what is checked."""

    capacity = lead = 1
    may_overlap = False

    def __init__(self, made_up: Callable[[Configuration], MadeUp]) -> None:
        self._made_up = made_up
        #: The configurations that were checked, as often as they were.
        self.checks: list[Configuration] = []
        #: Metrics of a configuration on one draw of the inputs, in place of those it has on every draw.
        self.on_draw: Callable[[Configuration, Draw], Mapping[str, float]] = lambda *_: {}

    def start(self) -> Ready:
        return Ready(get_backend("host").describe(), "made up", "made up", {}, CompileOptions())

    def prepare(self, source: str) -> None:
        pass

    def submit(self, request: Request) -> Future[Trial]:
        ended: Future[Trial] = Future()
        ended.set_result(self._evaluate(request))
        return ended

    def ask(self, method: str, *arguments: Any) -> Any:
        if method == "remeasure":
            requests, rounds, _ = arguments
            return Finished(tuple(self._evaluate(r) for _ in range(rounds) for r in requests))
        requests, draws = arguments
        pairs = [(request, draw) for request in requests for draw in draws]
        return Finished(tuple(self._on(r, draw) for r, draw in pairs), draws=tuple(draw for _, draw in pairs))

    def close(self) -> None:
        pass

    def _on(self, request: Request, draw: Draw) -> Trial:
        trial = self._evaluate(request)
        metrics = {**trial.measurement.metrics, **self.on_draw(request.configuration, draw)}
        return dataclasses.replace(trial, measurement=Measurement(metrics))

    def _evaluate(self, request: Request) -> Trial:
        plan, does = request.plan, self._made_up(request.configuration)
        # With its share of vectors known, nobody compiles it to count its instructions.
        metrics = {"memory_bytes": does.memory_bytes, "vector_share": 1.0}
        times: tuple[float, ...] = ()

        def trial(status: Status) -> Trial:
            return Trial(request.configuration, status, "", Measurement(metrics, times, {}))

        def check() -> Status:
            self.checks.append(request.configuration)
            if does.status is Status.OK:
                log = math.log10(does.error) if does.error else -math.inf
                metrics.update({"error": does.error, "error.y": does.error, "log10_error": log})
            return does.status

        if not plan.known:
            if (status := check()) is not Status.OK:
                return trial(status)
            if not plan.times_after_check(metrics):
                return trial(Status.INACCURATE)
            if does.time_ms > plan.launch_limit_ms:
                metrics.update(plan.launch_limit(plan.launch_limit_ms / 1e3))
                return trial(Status.TIMEOUT)
        times = (does.time_ms,) * 5
        metrics.update(time_metrics(times))
        metrics.update(plan.known or worst_errors(metrics, metrics))
        return trial(Status.OK)


def replace_devices(monkeypatch: pytest.MonkeyPatch, made_up: Callable[[Configuration], MadeUp]) -> MadeUpDevices:
    """Have ``tune`` evaluate on made-up devices, which are returned."""
    devices = MadeUpDevices(made_up)
    monkeypatch.setattr("mptune.measure.device.Pool", lambda *_: devices)
    return devices
