"""A search space that is a list of configurations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mptune.errors import EmptySpaceError
from mptune.space.configuration import Configuration
from mptune.space.parameters import BooleanParameter, CategoricalParameter, OrdinalParameter, Parameter
from mptune.space.search_space import SearchSpace

PARAMETERS: tuple[Parameter, ...] = (
    OrdinalParameter("block", (32, 64, 128)),
    CategoricalParameter("layout", ("row", "col")),
    BooleanParameter("padding"),
    OrdinalParameter("tile", (1, 2, 3, 4)),
)
SHAPE = tuple(len(p.values) for p in PARAMETERS)

rows = st.sets(st.tuples(*(st.integers(0, n - 1) for n in SHAPE)), min_size=1, max_size=20).map(sorted)


def configuration_of(row: tuple[int, ...]) -> Configuration:
    return Configuration({p.name: p.values[code] for p, code in zip(PARAMETERS, row, strict=True)})


@given(rows, st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_valid_is_what_was_given_and_nothing_else(given_rows: list[tuple[int, ...]], random: object) -> None:
    shuffled = [*given_rows, given_rows[0]]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    space = SearchSpace.from_codes(PARAMETERS, np.array(shuffled))
    assert space.size == len(space) == len(given_rows)
    assert space.cartesian_size == 48
    assert space.names == ("block", "layout", "padding", "tile")
    everything = np.array(list(np.ndindex(*SHAPE)))
    for row, index in zip(everything.tolist(), space.indices_of(everything).tolist(), strict=True):
        configuration = configuration_of(tuple(row))
        assert (tuple(row) in given_rows) == (index >= 0) == (configuration in space)
        if index >= 0:
            assert space.configuration(index) == configuration
            assert space.index(configuration) == index
            assert space.codes([index]).tolist() == [row]
    # The same set of rows in another order is the same space.
    assert (
        space.codes(range(space.size)).tolist()
        == SearchSpace.from_codes(PARAMETERS, np.array(given_rows)).codes(range(space.size)).tolist()
    )


@given(rows)
@settings(max_examples=20, deadline=None)
def test_samples_and_neighbours_stay_inside(given_rows: list[tuple[int, ...]]) -> None:
    space = SearchSpace.from_codes(PARAMETERS, np.array(given_rows))
    rng = np.random.default_rng(1)
    for drawn in (space.sample(space.size, rng), space.latin_hypercube(space.size, rng)):
        assert sorted(drawn.tolist()) == list(range(space.size))
    codes = space.codes(range(space.size))
    for index in range(space.size):
        differing = (codes != codes[index]).sum(axis=1)
        assert space.neighbours(index).tolist() == np.flatnonzero(differing == 1).tolist()
    features = space.features(range(space.size))
    assert len(features) == space.size
    assert np.all((features >= 0) & (features <= 1))


@given(rows, st.sampled_from([(32,), (64, 128)]), st.sampled_from([("row",), ("row", "col")]))
@settings(max_examples=30, deadline=None)
def test_a_restriction_keeps_the_rows_with_those_values(
    given_rows: list[tuple[int, ...]], blocks: tuple[int, ...], layouts: tuple[str, ...]
) -> None:
    space = SearchSpace.from_codes(PARAMETERS, np.array(given_rows))
    wanted = {c for c in map(configuration_of, given_rows) if c["block"] in blocks and c["layout"] in layouts}
    if not wanted:
        with pytest.raises(EmptySpaceError):
            space.restrict({"block": blocks, "layout": layouts})
        return
    restricted = space.restrict({"block": blocks, "layout": layouts})
    assert set(restricted.configurations(range(restricted.size))) == wanted
    again = restricted.restrict({"padding": (False, True)})
    assert again.size == restricted.size
