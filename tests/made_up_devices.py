"""Devices that run nothing: what a configuration takes and gives is made up, what is measured is as the plan says."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.data import Draw
from mptune.kernel import Rates
from mptune.measure.bench import Ready, Request
from mptune.measure.devices import Devices
from mptune.measure.policy import worst_errors
from mptune.measure.protocol import Asked, Finished, MeasureRates, Rounds
from mptune.observers.time import time_metrics
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


class MadeUpDevices(Devices):
    """Evaluates requests by what is made up of their configurations; counts what is checked."""

    capacity = lead = 1
    may_overlap = False

    def __init__(self, made_up: Callable[[Configuration], MadeUp]) -> None:
        self._made_up = made_up
        self._ended: list[Trial] = []
        #: The configurations that were checked, as often as they were.
        self.checks: list[Configuration] = []
        #: The speeds of the device; None where they cannot be measured.
        self.rates: Rates | None = None
        #: Metrics of a configuration on one draw of the inputs, in place of those it has on every draw.
        self.on_draw: Callable[[Configuration, Draw], Mapping[str, float]] = lambda *_: {}

    def start(self) -> Ready:
        return Ready(get_backend("host").describe(), "made up", "made up", {}, CompileOptions())

    def prepare(self, source: str) -> None:
        pass

    def submit(self, request: Request) -> None:
        self._ended.append(self._evaluate(request))

    def finished(self) -> list[Trial]:
        ended, self._ended = self._ended, []
        return ended

    def ask(self, asked: Asked) -> Finished:
        if isinstance(asked, MeasureRates):
            return Finished((), rates=self.rates)
        if isinstance(asked, Rounds):
            return Finished(tuple(self._evaluate(r) for _ in range(asked.rounds) for r in asked.requests))
        pairs = [(request, draw) for request in asked.requests for draw in asked.draws]
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
        times = (does.time_ms,) * 5
        metrics.update(time_metrics(times))
        metrics.update(plan.known or worst_errors(metrics, metrics))
        return trial(Status.OK)


def replace_devices(monkeypatch: pytest.MonkeyPatch, made_up: Callable[[Configuration], MadeUp]) -> MadeUpDevices:
    """Have ``tune`` evaluate on made-up devices, which are returned."""
    devices = MadeUpDevices(made_up)
    monkeypatch.setattr("mptune.measure.device.LocalDevices", lambda *_: devices)
    return devices
