from __future__ import annotations

import pickle

import pytest

from mptune.results.trial import Measurement
from mptune.space.configuration import Configuration


def test_configuration_is_a_value() -> None:
    one = Configuration({"a": 1, "b": "fp32"})
    same = Configuration({"b": "fp32", "a": 1})
    assert one == same
    assert hash(one) == hash(same)
    assert one != Configuration({"a": 2, "b": "fp32"})
    assert one.subset(("b", "a")) == ("fp32", 1)
    assert str(one) == "a=1, b=fp32"
    assert pickle.loads(pickle.dumps(one)) == one


def test_configuration_as_json_keeps_order_and_types() -> None:
    one = Configuration({"i": 1, "f": 1.5, "s": "x", "t": True, "p": (2, 0, 1)})
    assert one.to_json() == '{"i":1,"f":1.5,"s":"x","t":true,"p":[2,0,1]}'


def test_measurement_cannot_be_changed_and_pickles() -> None:
    measurement = Measurement({"time_ms": 1}, (1.0, 2.0), {"compile": 0.1})
    with pytest.raises(TypeError):
        measurement.metrics["time_ms"] = 2.0  # type: ignore[index]
    assert pickle.loads(pickle.dumps(measurement)) == measurement
