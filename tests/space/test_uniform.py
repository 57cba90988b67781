"""The same type for everything, as far as the parameters offer it."""

from __future__ import annotations

from mptune.space.parameters import OrdinalParameter, PolicyParameter, PrecisionParameter
from mptune.space.uniform import baseline_values, uniform_types

BLOCK = OrdinalParameter("block", [32, 64])
X = PrecisionParameter("x_type", ["fp16", "fp32"])
Y = PrecisionParameter("y_type", ["fp64", "bf16"])


def test_a_baseline_has_the_widest_types_and_accurate_functions() -> None:
    assert baseline_values([BLOCK]) == {}
    policies = [PolicyParameter("policy", ["fast", "accurate"]), PolicyParameter("other", ["approx", "fast"])]
    assert baseline_values([BLOCK, X, Y, *policies]) == {
        "x_type": ("fp32",),
        "y_type": ("fp64",),
        "policy": ("accurate",),
        "other": (policies[1].values[0],),
    }


def test_a_missing_precision_is_the_next_wider_one() -> None:
    assert uniform_types([BLOCK]) == {}
    assert uniform_types([BLOCK, X, Y]) == {
        "fp64": {"x_type": "fp32", "y_type": "fp64"},
        "fp16": {"x_type": "fp16", "y_type": "fp64"},
        "bf16": {"x_type": "fp16", "y_type": "bf16"},
    }
