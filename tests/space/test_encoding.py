"""Configurations as numbers."""

from __future__ import annotations

import numpy as np
import pytest

from mptune.space.parameters import (
    BooleanParameter,
    CategoricalParameter,
    IntegerParameter,
    OrdinalParameter,
    Parameter,
    PermutationParameter,
    PolicyParameter,
    PrecisionParameter,
    RealParameter,
)
from mptune.space.search_space import SearchSpace


@pytest.mark.parametrize(
    ("parameter", "columns"),
    [
        (OrdinalParameter("o", [1, 2, 4, 16]), [[0, 0.25, 0.5, 1]]),
        (OrdinalParameter("o", [1, 2, 4, 16], log=False), [[0, 1 / 15, 0.2, 1]]),
        (OrdinalParameter("o", [64, 16, 32]), [[1, 0, 0.5]]),
        (OrdinalParameter("o", ["small", "medium", "large"]), [[0, 0.5, 1]]),
        (IntegerParameter("i", -1, 3, 2), [[0, 0.5, 1]]),
        (RealParameter("r", 0.01, 1.0, 3, log=True), [[0, 0.5, 1]]),
        (BooleanParameter("b"), [[0, 1]]),
        (CategoricalParameter("c", ["x", "y", 3]), [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
        (PolicyParameter("m"), [[0, 0.5, 1]]),
        (
            PermutationParameter("p", 3),
            [[0, 0, 0.5, 1, 0.5, 1], [0.5, 1, 0, 0, 1, 0.5], [1, 0.5, 1, 0.5, 0, 0]],
        ),
        (
            # Unit roundoffs 2**-53, 2**-24, 2**-11, 2**-8 and 8, 4, 2, 2 bytes.
            PrecisionParameter("t", ["fp64", "fp32", "fp16", "bf16"]),
            [[0, 29 / 45, 42 / 45, 1], [1, 0.5, 0, 0]],
        ),
        (PrecisionParameter("t", ["fp16", "bf16"]), [[0, 1]]),
        (IntegerParameter("i", 3, 3), []),
    ],
)
def test_each_kind_has_its_encoding(parameter: Parameter, columns: list[list[float]]) -> None:
    space = SearchSpace([parameter])
    features = space.features([space.index({parameter.name: value}) or 0 for value in parameter.values])
    assert pytest.approx(np.array(columns).reshape(len(columns), len(parameter.values))) == features.T
