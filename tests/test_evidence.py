"""Errors that rounding does not explain."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mptune.results.evidence import disagree
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration

FP32 = 2.0**-24


def trial(error: float, *, of: dict[str, float] | None = None, **values: Any) -> Trial:
    outputs = {f"error.{name}": each for name, each in (of or {"y": error}).items()}
    metrics = {"time_ms": 1.0, "error": error, **outputs}
    return Trial(Configuration({"x_type": "fp32", **values}), Status.OK, measurement=Measurement(metrics))


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        (1e-7, 1e-7, False),
        (1e-7, 9e-7, False),
        # Below some units of roundoff, 9.5e-7 here, whatever the factor.
        (0.0, 9e-7, False),
        (0.0, 1e-6, True),
        (1e-7, 1.1e-6, True),
        (1e-3, 9e-3, False),
        (1e-3, 1.1e-2, True),
        (2.0, 1e-16, True),
        (math.inf, 1.0, True),
        (math.inf, math.inf, False),
    ],
)
def test_errors_disagree_where_rounding_does_not_explain_it(first: float, second: float, apart: bool) -> None:
    assert disagree(trial(first), trial(second), FP32) is apart
    assert disagree(trial(second), trial(first), FP32) is apart


def test_every_output_has_to_agree() -> None:
    one, other = trial(1e-3, of={"y": 1e-3, "z": 1e-6}), trial(1e-3, of={"y": 1e-3, "z": 1e-3})
    assert disagree(one, other, FP32)
    assert not disagree(one, one, FP32)
