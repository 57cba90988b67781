"""A thread's own time, by made-up clocks: what other tasks take is none of it."""

import time
from types import SimpleNamespace

import pytest

from mptune.own_time import OwnTime


@pytest.fixture
def machine():
    return SimpleNamespace(now=10**9, worked=10**6, given_up=5)


@pytest.fixture
def own(machine):
    return OwnTime(lambda: machine.now, lambda: machine.worked, lambda: machine.given_up)


def passes(machine, elapsed_ms, worked_ms, given_up=0):
    machine.now += round(elapsed_ms * 1e6)
    machine.worked += round(worked_ms * 1e6)
    machine.given_up += given_up


@pytest.mark.parametrize(
    ("elapsed_ms", "worked_ms", "given_up", "counts_ms"),
    [
        pytest.param(5.0, 5.0, 0, 5.0, id="undisturbed"),
        pytest.param(9.0, 2.0, 0, 2.0, id="another task had the processor"),
        pytest.param(9.0, 2.0, 1, 9.0, id="it slept"),
        pytest.param(0.02, 0.01, 0, 0.02, id="too short to ask"),
    ],
)
def test_a_lap(machine, own, elapsed_ms, worked_ms, given_up, counts_ms):
    passes(machine, elapsed_ms, worked_ms, given_up)
    assert own.lap_ms() == pytest.approx(counts_ms)


def test_each_lap_is_by_itself(machine, own):
    passes(machine, 9.0, 2.0, 1)
    assert own.lap_ms() == pytest.approx(9.0)
    passes(machine, 9.0, 2.0)
    assert own.lap_ms() == pytest.approx(2.0)
    own.start()
    assert own.lap_ms() == 0.0


def test_sleeping_counts_and_so_does_work():
    own = OwnTime()
    time.sleep(0.03)
    assert own.lap_ms() >= 30.0
    before = time.thread_time()
    while time.thread_time() - before < 0.01:
        pass
    assert own.lap_ms() >= 10.0
