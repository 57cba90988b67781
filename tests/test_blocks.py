"""Long arrays in blocks, by several threads."""

import os

import numpy as np
import pytest

from mptune.data.blocks import BLOCK, in_blocks, uniform

COUNTS = (1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17)


def test_what_fails_in_a_thread_is_raised(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})

    def fail(part):
        raise ZeroDivisionError(part.start)

    with pytest.raises(ZeroDivisionError, match="0"):
        in_blocks(fail, 4, 1)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.MT19937])
def test_uniform_numbers_are_those_of_the_generator(count, bits):
    mine, theirs = (np.random.Generator(bits(7)) for _ in range(2))
    for rng in (mine, theirs):
        rng.integers(5, size=3, dtype=np.uint32)  # leaves half a number behind
    assert np.array_equal(uniform(mine, -2.0, 3.5, count), theirs.uniform(-2.0, 3.5, count))
    assert np.array_equal(mine.integers(9, size=5, dtype=np.uint32), theirs.integers(9, size=5, dtype=np.uint32))
    assert mine.normal() == theirs.normal()
