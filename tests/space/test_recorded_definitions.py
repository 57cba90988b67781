"""Search spaces people tune, from T1 files: the sizes others report, and brute force on a part of each."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mptune.space.parameters import OrdinalParameter, parse_values
from mptune.space.search_space import SearchSpace

FOLDER = Path(__file__).parents[3] / "shared" / "spaces" / "t1"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the folder of T1 files is not here")


def load(name: str) -> SearchSpace:
    document = json.loads((FOLDER / f"{name}.json").read_text())["ConfigurationSpace"]
    parameters = [OrdinalParameter(p["Name"], parse_values(p["Values"])) for p in document["TuningParameters"]]
    return SearchSpace(parameters, [condition["Expression"] for condition in document["Conditions"]])


@pytest.mark.parametrize(
    ("name", "cartesian", "valid"),
    [
        ("gemm_milo", 663_552, 116_928),
        ("hotspot_milo", 4_440_000, 82_984),
        ("dedispersion_milo", 22_272, 11_130),
        ("convolution_milo", 10_240, 4_362),
    ],
)
def test_sizes_are_the_known_ones(name: str, cartesian: int, valid: int) -> None:
    space = load(name)
    assert (space.cartesian_size, space.size) == (cartesian, valid)
    every = np.arange(space.size)
    assert (space.indices_of(space.codes(every)) == every).all()
    # Equal subtrees are stored once: a space takes less than two bytes for each configuration.
    assert len(pickle.dumps(space)) < 2 * valid


@pytest.mark.parametrize("name", ["gemm_milo", "hotspot_milo", "dedispersion_milo", "convolution_milo"])
def test_random_combinations_are_valid_exactly_when_python_says_so(name: str) -> None:
    space = load(name)
    rng = np.random.default_rng(7)
    rows = np.stack([rng.integers(0, len(p.values), 3000) for p in space.parameters], axis=1)
    found = space.indices_of(rows) >= 0
    for row, valid in zip(rows, found, strict=True):
        values: dict[str, Any] = {p.name: p.values[code] for p, code in zip(space.parameters, row, strict=True)}
        assert valid == all(eval(c.text, {"__builtins__": {}}, values) for c in space.constraints)
    assert found.any()
