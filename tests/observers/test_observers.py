"""Observers: what they report between before and after, and the registry."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math

import numpy as np
import pytest
from fake_devices import Ticking

from mptune.errors import MptuneError, UnknownNameError
from mptune.kernel import In, Kernel, Out
from mptune.observers import OBSERVERS
from mptune.observers.accuracy import AccuracyObserver
from mptune.observers.base import Observer
from mptune.observers.clocks import ClocksObserver
from mptune.observers.energy import EnergyObserver
from mptune.observers.memory import MemoryObserver
from mptune.observers.resources import ResourcesObserver
from mptune.observers.sensors import EnergySource
from mptune.observers.throughput import ThroughputObserver
from mptune.observers.time import TimeObserver
from mptune.space.parameters import OrdinalParameter
from mptune.testing.observers import ObserverConformance, context, observe

REFERENCES = {"y": np.array([1.0, 2.0]), "z": np.array([4.0])}


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


def context_of(outputs):
    return dataclasses.replace(context(), read_outputs=lambda: outputs)


def energy():
    gauge = EnergySource("test", lambda: 100.0, is_counter=False, lead_s=0.0)
    return EnergyObserver(gauge, interval_s=3600.0, clock=Ticking(0.5))


MAKE = {
    "accuracy": lambda: AccuracyObserver(REFERENCES, "MAE"),
    "clocks": lambda: ClocksObserver({"clock_mhz": lambda: 1500.0, "temperature_c": lambda: 60.0}, interval_s=3600.0),
    "energy": energy,
    "memory": MemoryObserver,
    "resources": ResourcesObserver,
    "throughput": lambda: ThroughputObserver(KERNEL, KERNEL.resolve_sizes()),
    "time": TimeObserver,
}
for _name, _made in MAKE.items():
    _title = f"Test{_name.capitalize()}"
    globals()[_title] = type(_title, (ObserverConformance,), {"make": lambda self, _made=_made: _made()})


def test_accuracy_reports_the_worst_and_each_output():
    outputs = {"y": np.array([1.0, 2.5], dtype=np.float16), "z": np.array([4.001])}
    observer = AccuracyObserver(REFERENCES, {"y": "MAE", "z": "MaxAE"})
    results = observe(observer, context_of(outputs))
    assert results == pytest.approx(
        {"error": 0.25, "log10_error": math.log10(0.25), "error.y": 0.25, "error.z": 0.001}, rel=1e-9
    )


def test_accuracy_never_loses_a_nan():
    for bad in ("y", "z"):
        outputs = {name: value.copy() for name, value in REFERENCES.items()}
        outputs[bad][0] = math.nan
        observer = AccuracyObserver(REFERENCES, "MAE")
        results = observe(observer, context_of(outputs))
        assert math.isnan(results["error"])
        assert math.isnan(results["log10_error"])
        assert observer.result is not None
        assert observer.result.non_finite == {bad: 1}


def test_names_of_a_registry():
    assert list(OBSERVERS) == sorted(MAKE)
    assert all(isinstance(make(), OBSERVERS[name]) and OBSERVERS[name].name == name for name, make in MAKE.items())
    assert "base" not in OBSERVERS
    assert len(OBSERVERS) == len(list(OBSERVERS))
    with pytest.raises(UnknownNameError, match="'acuracy'; did you mean 'accuracy'"):
        OBSERVERS["acuracy"]


class Counting(Observer):
    name = "counting"

    def results(self):
        return {"count": 1.0}


def test_third_parties_add_observers_by_entry_points(monkeypatch):
    points = importlib.metadata.EntryPoints(
        importlib.metadata.EntryPoint(name, f"{__name__}:{value}", "mptune.observers")
        for name, value in (("counting", "Counting"), ("wrong", "REFERENCES"))
    )
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **which: points.select(**which))
    assert OBSERVERS["counting"] is Counting
    assert "counting" in OBSERVERS
    with pytest.raises(MptuneError, match="observer 'wrong' is no subclass of Observer"):
        OBSERVERS["wrong"]
