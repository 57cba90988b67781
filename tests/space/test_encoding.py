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


def features_of(parameter: Parameter) -> dict[str, list[float]]:
    """The features of each value of a parameter, by column."""
    space = SearchSpace([parameter])
    features = space.features([space.index({parameter.name: value}) or 0 for value in parameter.values])
    assert space.feature_parameters == (parameter.name,) * len(space.feature_names)
    return {name: pytest.approx(column.tolist()) for name, column in zip(space.feature_names, features.T, strict=True)}


@pytest.mark.parametrize(
    ("parameter", "columns"),
    [
        (OrdinalParameter("o", [1, 2, 4, 16]), {"o": [0, 0.25, 0.5, 1]}),
        (OrdinalParameter("o", [1, 2, 4, 16], log=False), {"o": [0, 1 / 15, 0.2, 1]}),
        (OrdinalParameter("o", [64, 16, 32]), {"o": [1, 0, 0.5]}),
        (OrdinalParameter("o", ["small", "medium", "large"]), {"o": [0, 0.5, 1]}),
        (IntegerParameter("i", -1, 3, 2), {"i": [0, 0.5, 1]}),
        (RealParameter("r", 0.01, 1.0, 3, log=True), {"r": [0, 0.5, 1]}),
        (BooleanParameter("b"), {"b": [0, 1]}),
        (CategoricalParameter("c", ["x", "y", 3]), {"c=x": [1, 0, 0], "c=y": [0, 1, 0], "c=3": [0, 0, 1]}),
        (PolicyParameter("m"), {"m": [0, 0.5, 1]}),
        (
            PermutationParameter("p", 3),
            {
                "p[0]": [0, 0, 0.5, 1, 0.5, 1],
                "p[1]": [0.5, 1, 0, 0, 1, 0.5],
                "p[2]": [1, 0.5, 1, 0.5, 0, 0],
            },
        ),
        (
            # Unit roundoffs 2**-53, 2**-24, 2**-11, 2**-8 and 8, 4, 2, 2 bytes.
            PrecisionParameter("t", ["fp64", "fp32", "fp16", "bf16"]),
            {"t.roundoff": [0, 29 / 45, 42 / 45, 1], "t.bytes": [1, 0.5, 0, 0]},
        ),
        (PrecisionParameter("t", ["fp16", "bf16"]), {"t.roundoff": [0, 1]}),
        (IntegerParameter("i", 3, 3), {}),
    ],
)
def test_each_kind_has_its_encoding(parameter: Parameter, columns: dict[str, list[float]]) -> None:
    assert features_of(parameter) == columns


def test_columns_stand_in_the_order_of_the_parameters() -> None:
    space = SearchSpace(
        [
            IntegerParameter("a", 1, 3),
            IntegerParameter("one", 1, 1),
            CategoricalParameter("c", ["x", "y"]),
            BooleanParameter("b"),
        ],
        ["a > 1 or b"],
    )
    assert space.feature_names == ("a", "c=x", "c=y", "b")
    assert space.feature_parameters == ("a", "c", "c", "b")
    for index in range(space.size):
        values = space.configuration(index)
        a = values["a"]
        assert isinstance(a, int)
        expected = [(a - 1) / 2, float(values["c"] == "x"), float(values["c"] == "y"), float(values["b"] is True)]
        assert space.features([index])[0].tolist() == pytest.approx(expected)


def test_the_embedding_is_the_published_one() -> None:
    # Heldens 2026, Sec. III-E: points 0.5 e, 1.5 e, ..., with e = 1 / (most values of any parameter).
    space = SearchSpace([IntegerParameter("a", 1, 5), PrecisionParameter("t", ["fp64", "fp32", "fp16"])])
    index = space.index({"a": 4, "t": "fp32"})
    assert space.embedding([index]).tolist() == [[pytest.approx(0.7), pytest.approx(0.3)]]
    embedded = space.embedding(np.arange(space.size))
    assert embedded.min() == pytest.approx(0.1)
    assert embedded.max() == pytest.approx(0.9)


def test_no_indices_give_no_rows() -> None:
    space = SearchSpace([IntegerParameter("a", 1, 5), BooleanParameter("b")], ["a > 1 or b"])
    assert space.features([]).shape == (0, 2)
    assert space.embedding([]).shape == (0, 2)
    assert space.codes([]).shape == (0, 2)
    assert space.configurations([]) == []
    assert space.indices_of(np.empty((0, 2), dtype=np.int32)).shape == (0,)
