"""Observers: what they report between before and after, and the registry."""

from __future__ import annotations

import importlib.metadata

import numpy as np
import pytest
from fake_devices import Ticking

from mptune.errors import MptuneError, UnknownNameError
from mptune.kernel import In, Kernel, Out
from mptune.observers import OBSERVERS
from mptune.observers.base import Observer
from mptune.observers.launches import ResourcesObserver, ThroughputObserver
from mptune.observers.sensors import ClocksObserver, EnergyObserver, EnergySource
from mptune.space.parameters import OrdinalParameter
from mptune.testing.observers import ObserverConformance

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


def test_names_of_a_registry():
    assert list(OBSERVERS) == sorted(MAKE)
    assert all(isinstance(make(), OBSERVERS[name]) and OBSERVERS[name].name == name for name, make in MAKE.items())
    assert "base" not in OBSERVERS
    assert len(OBSERVERS) == len(list(OBSERVERS))
    with pytest.raises(UnknownNameError, match="'enrgy'; did you mean 'energy'"):
        OBSERVERS["enrgy"]


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
