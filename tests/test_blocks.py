"""Long arrays in blocks, by several threads."""

import os
import threading

import numpy as np
import pytest

from mptune.data.blocks import BLOCK, in_blocks, uniform

COUNTS = (1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17)


@pytest.mark.parametrize("count", [0, *COUNTS])
def test_parts_cover_everything_once_and_in_order(count):
    parts = in_blocks(lambda part: list(range(count))[part], count)
    assert [i for part in parts for i in part] == list(range(count))
    assert all(len(part) <= BLOCK for part in parts)


def test_several_threads_work_at_a_time(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    meeting = threading.Barrier(3)
    in_blocks(lambda _: meeting.wait(timeout=60), 9, 3)  # (alone, each would wait for ever)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("blocks")]


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
