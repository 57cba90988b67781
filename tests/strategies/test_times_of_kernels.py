"""What is known of a kernel's times in a space of which the model looks at a sample only."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies.model_based.kernel_times import KernelTimes

TYPES = ("fp64", "fp32", "fp16", "bf16")
NAMES = [f"t{n}" for n in range(7)]
NARROW = dict.fromkeys(NAMES, "fp32")


def time_ms(configuration: Configuration) -> float:
    """A kernel that moves bytes, and whose blocks are best at 512."""
    bytes_moved = sum({"fp64": 8, "fp32": 4}.get(str(configuration[name]), 2) for name in NAMES)
    return bytes_moved * (1 + 0.2 * abs(math.log2(int(configuration["block"]) / 512)))


def told(count: int) -> KernelTimes:
    parameters = [PrecisionParameter(name, list(TYPES)) for name in NAMES]
    space = SearchSpace([*parameters, OrdinalParameter("block", [32, 64, 128, 256, 512, 1024])], ["block != 64"])
    times = KernelTimes(space, seed=1)
    assert not times.is_complete
    tell(times, space.configurations(space.sample(count, np.random.default_rng(2))))
    return times


def tell(times: KernelTimes, configurations: list[Configuration]) -> None:
    times.tell([Trial(c, Status.OK, "", measurement=Measurement({"time_ms": time_ms(c)})) for c in configurations])


def test_all_blocks_are_looked_at_in_types_of_which_the_sample_has_few():
    times = told(20)
    for types in itertools.islice(itertools.product(TYPES, repeat=7), 0, None, 1999):
        found = times.at_most(dict(zip(NAMES, types, strict=True)), ["block"])
        assert set(found) == {(32,), (128,), (256,), (512,), (1024,)}
        assert all(map(math.isfinite, found.values()))


def test_the_best_block_in_some_types_is_found():
    times = told(20)
    asked = 0
    while True:
        chosen, gain_ms = times.promising(NARROW, 1)
        if not chosen or gain_ms < 1e-6:
            break
        assert {name: chosen[0][name] for name in NAMES} == NARROW
        tell(times, chosen)
        asked += 1
    found = times.at_most(NARROW, ["block"])
    assert min(found, key=found.__getitem__) == (512,)
    assert found[(512,)] == pytest.approx(4 * 7, rel=1e-9)
    assert 1 <= asked <= 5


def test_every_combination_of_types_has_a_least_time():
    found = told(20).least(NAMES)
    assert found.shape == (4,) * 7
    # A combination is left out where the one configuration that was tried for it is not valid.
    assert np.isfinite(found).mean() > 0.9
    assert found[(1,) * 7] < found[(0,) * 7]
