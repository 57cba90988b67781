from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mptune.adopt.sequence import Call, replay


def call(function: str, buffers: str = "", **values: float) -> Call:
    """Return a call; buffers are written as ``argument=buffer argument=buffer``."""
    pairs = (each.split("=") for each in buffers.split())
    return Call(function, tuple((argument, buffer) for argument, buffer in pairs), tuple(values.items()))


class Run:
    """Notes what steps call, each buffer by the memory that has its name at the time."""

    def __init__(self, buffers: set[str]) -> None:
        self._memory = {name: name for name in buffers}
        self.calls: list[Call] = []

    def __getattr__(self, name: str) -> Any:
        if name in self._memory:
            return SimpleNamespace(name=name)

        def function(*buffers: Any, **given: Any) -> None:
            if name == "swap":
                one, other = (buffer.name for buffer in buffers)
                self._memory[one], self._memory[other] = self._memory[other], self._memory[one]
                return
            passed = {k: self._memory[v.name] for k, v in given.items() if isinstance(v, SimpleNamespace)}
            numbers = {k: v for k, v in given.items() if not isinstance(v, SimpleNamespace)}
            self.calls.append(Call(name, tuple(passed.items()), tuple(numbers.items())))

        return function


def check(calls: list[Call], lines: int) -> str:
    """Check that the text of calls makes them again, in so many lines; return it."""
    found = replay(calls)
    text = "\n".join(found.lines)
    run = Run({buffer for each in calls for _, buffer in each.buffers})
    exec(text, {"run": run, "TABLES": found.tables})
    assert run.calls == calls
    assert len(found.lines) == lines
    return text


def test_what_comes_again_is_a_loop() -> None:
    calls = [call("start", "u=u"), *[call("step", "u=u", dt=0.1)] * 1000, call("end", "u=u")]
    assert "for _ in range(1000):" in check(calls, lines=4)


@pytest.mark.parametrize("steps", [7, 50])
def test_a_time_loop_swaps_its_buffers(steps: int) -> None:
    calls, now, then = [], "u", "v"
    for _ in range(steps):
        calls.append(call("step", f"now={now} then={then}", r=0.25))
        now, then = then, now
    text = check(calls, lines=3)
    assert f"range({steps})" in text
    assert "run.swap(run.u, run.v)" in text


@pytest.mark.parametrize("steps", [12, 13, 14])
def test_what_comes_after_a_time_loop_finds_its_buffers(steps: int) -> None:
    calls, names = [], ["a", "b", "c"]
    for _ in range(steps):
        calls.append(call("leap", f"past={names[0]} now={names[1]} next={names[2]}"))
        names = [*names[1:], names[0]]
    calls.append(call("measure", "of=a beside=b and=c"))
    check(calls, lines=5)
    places = replay(calls).places
    assert {places.get(name, name) for name in "abc"} == set("abc")
    assert bool(places) == (steps % 3 != 0)


def test_three_buffers_take_turns() -> None:
    names = ["a", "b", "c"]
    calls = []
    for step in range(30):
        calls.append(call("leap", f"past={names[0]} now={names[1]} next={names[2]}", step=step))
        names = [*names[1:], names[0]]
    assert check(calls, lines=4).count("swap") == 2


def test_buffers_that_cannot_be_swapped_are_passed_in_turn() -> None:
    calls = [call("step", f"now={'uv'[i % 2]} then={'vu'[i % 2]}") for i in range(20)]
    found = replay(calls, may_swap=lambda one, other: False)
    assert [line.strip() for line in found.lines] == [
        "for _ in range(10):",
        "run.step(now=run.u, then=run.v)",
        "run.step(now=run.v, then=run.u)",
    ]


def test_numbers_follow_the_loops() -> None:
    calls = []
    for i in range(20):
        calls.append(call("start", "p=p"))
        for j in range(30):
            calls += [
                call("red", "p=p", at=3 * j, t=0.5 * i),
                call("black", "p=p", at=j * j, t=0.5 * i, both=i * 31 ^ j),
            ]
    text = check(calls, lines=5)
    assert "at=3 * j" in text
    assert "t=0.0 + 0.5 * i" in text
    assert 'at=TABLES["black_at"][j]' in text
    assert 'both=TABLES["black_both"][i, j]' in text


def test_inner_loops_of_other_lengths_each_time() -> None:
    rng = np.random.default_rng(0)
    calls = []
    for _ in range(200):
        calls.append(call("fluxes", "u=u", dt=float(rng.random())))
        for _ in range(rng.integers(2, 40)):
            calls += [call("red", "p=p"), call("black", "p=p", w=float(rng.random()))]
    text = check(calls, lines=6)
    assert 'range(TABLES["count"][i])' in text
    assert "w=next(next_black_w)" in text


def test_a_sequence_without_pattern_stays_as_it_is() -> None:
    rng = np.random.default_rng(1)
    calls = [call(f"kernel{rng.integers(40)}", "u=u", x=float(rng.random())) for _ in range(100)]
    found = replay(calls)
    assert sum("run." in line for line in found.lines) <= 100
    check(calls, lines=len(found.lines))


@pytest.mark.full
def test_tens_of_thousands_of_calls_are_short() -> None:
    calls = []
    for step in range(2000):
        calls += [call("a", "u=u", t=0.1 * step), *[call("b", "u=u v=v")] * 20, call("c", "v=v")]
    check(calls, lines=5)
