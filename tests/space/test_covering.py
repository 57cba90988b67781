"""Covering sets have every value, representatives every combination; against listing the space."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mptune.errors import EmptySpaceError
from mptune.space import search_space
from mptune.space.parameters import BooleanParameter, IntegerParameter, PrecisionParameter
from mptune.space.search_space import SearchSpace

CONSTRAINTS = (
    "a + b <= 8",
    "not c or a * b % 3 == 0",
    "t != 'fp16' or b > 2",
    "a != 5",
    "b % (a - 3) == 0 or t == 'fp64'",
)


def spaces() -> st.SearchStrategy[SearchSpace]:
    @st.composite
    def draw(choose: st.DrawFn) -> SearchSpace:
        parameters = [
            IntegerParameter("a", 4, choose(st.integers(4, 9))),
            IntegerParameter("b", 0, choose(st.integers(0, 6))),
            BooleanParameter("c"),
            PrecisionParameter("t", ["fp64", "fp32", "fp16"]),
        ]
        constraints = [c for c in CONSTRAINTS if choose(st.booleans())]
        try:
            return SearchSpace(parameters, constraints)
        except EmptySpaceError:
            return SearchSpace(parameters)

    return draw()


def distinct(space: SearchSpace, names: tuple[str, ...]) -> set[tuple[Any, ...]]:
    return {c.subset(names) for c in space.configurations(np.arange(space.size))}


@pytest.fixture(params=["listed", "sampled"])
def pooled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either all configurations are in the pool, or so few that most values have to be looked for."""
    if request.param == "sampled":
        monkeypatch.setattr(search_space, "_POOL", 2)
        monkeypatch.setattr(search_space, "_LISTED", 2)
    return str(request.param)


@pytest.mark.usefixtures("pooled")
class TestBothPools:
    @settings(max_examples=20)
    @given(space=spaces(), seed=st.integers(0, 2**32 - 1))
    def test_every_valid_value_comes(self, space: SearchSpace, seed: int) -> None:
        chosen = space.covering(np.random.default_rng(seed))
        found = space.configurations(chosen)
        for name in space.names:
            assert {c.subset((name,)) for c in found} == distinct(space, (name,))
        # The greedy choice never takes one that adds nothing.
        assert len(chosen) == len(set(chosen.tolist())) <= 1 + sum(len(p.values) - 1 for p in space.parameters)

    @settings(max_examples=20)
    @given(space=spaces(), names=st.permutations("abct"), n=st.integers(0, 4), seed=st.integers(0, 2**32 - 1))
    def test_every_valid_combination_comes_once(self, space: SearchSpace, names: list[str], n: int, seed: int) -> None:
        chosen = space.representatives(names[:n], np.random.default_rng(seed))
        found = [c.subset(tuple(names[:n])) for c in space.configurations(chosen)]
        assert len(found) == len(set(found))
        assert set(found) == distinct(space, tuple(names[:n]))


def test_representatives_are_in_the_order_of_their_combinations(monkeypatch: pytest.MonkeyPatch) -> None:
    space = SearchSpace([IntegerParameter("a", 1, 6), IntegerParameter("b", 1, 6), IntegerParameter("c", 1, 6)])
    expected = list(itertools.product(range(1, 7), range(1, 7)))
    for listed in (2**18, 5):
        monkeypatch.setattr(search_space, "_LISTED", listed)
        chosen = space.representatives(["c", "a"], np.random.default_rng(0))
        assert [c.subset(("c", "a")) for c in space.configurations(chosen)] == expected
