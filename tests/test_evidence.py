"""What checked trials say of the assumption that errors depend on the accuracy signature alone."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mptune.evidence import dependence, disagree
from mptune.results import Measurement, Status, Trial
from mptune.space.configuration import Configuration

FP32 = 2.0**-24
BLOCKS, UNROLLS, TILES = (32, 64, 128), (1, 2, 4), (True, False)
FREE = ("block", "unroll", "tile")


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


@given(st.sampled_from(FREE), st.integers(0, 2**32 - 1))
def test_the_parameter_that_errors_depend_on_is_found(guilty: str, seed: int) -> None:
    """Whatever configurations were checked, the guilty parameter is named, alone or among those it may be."""
    rng = np.random.default_rng(seed)
    every = [dict(zip(FREE, values, strict=True)) for values in itertools.product(BLOCKS, UNROLLS, TILES)]
    wrong = {"block": 64, "unroll": 2, "tile": True}[guilty]
    siblings = {}
    for signature in ("fp32", "fp64"):
        chosen = rng.choice(len(every), size=int(rng.integers(2, len(every) + 1)), replace=False)
        # Rounding makes the others differ a little.
        siblings[(signature,)] = [
            trial(2.0 if every[i][guilty] == wrong else float(1e-6 * rng.uniform(0.5, 2.0)), **every[i]) for i in chosen
        ]
    if all(len({t.error > 1 for t in each}) < 2 for each in siblings.values()):
        return
    said = dependence(siblings, FREE, FP32)
    assert guilty in said
    assert said.startswith(("it depends on ", "which parameter it depends on is not known yet: "))


def test_how_it_depends_is_said() -> None:
    configurations = [dict(zip(FREE, values, strict=True)) for values in itertools.product(BLOCKS, UNROLLS, TILES)]
    siblings = {("fp32",): [trial(2.0 if c["block"] == 64 else 1e-4, **c) for c in configurations]}
    said = dependence(siblings, FREE, FP32)
    assert said == "it depends on block (1.0e-04 where it is 32 or 128; 2.0e+00 where it is 64)"
    two = {("fp32",): [trial(2.0, block=64, unroll=1, tile=True), trial(1e-4, block=32, unroll=2, tile=True)]}
    assert dependence(two, FREE, FP32) == "which parameter it depends on is not known yet: block or unroll"
    both = [trial(2.0 if c["block"] == 64 and c["unroll"] == 2 else 1e-4, **c) for c in configurations]
    said = dependence({("fp32",): both}, FREE, FP32)
    assert said.startswith("no parameter alone explains it; the largest error is that of ")
    assert "block=64, unroll=2" in said
