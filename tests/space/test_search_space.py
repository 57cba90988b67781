"""The search space against brute force: every combination through Python's own evaluation of the constraints."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from mptune.errors import ConstraintError, EmptySpaceError, MptuneError, UnknownNameError
from mptune.precision import precision
from mptune.space import search_space
from mptune.space import tree as building
from mptune.space.configuration import Configuration
from mptune.space.parameters import (
    BooleanParameter,
    CategoricalParameter,
    IntegerParameter,
    OrdinalParameter,
    Parameter,
    PermutationParameter,
    PrecisionParameter,
    RealParameter,
)
from mptune.space.search_space import KINDS, SearchSpace

BUILTINS = {
    "min": min, "max": max, "abs": abs, "int": int, "any": any, "sizeof": lambda name: precision(name).size_bytes,
}  # fmt: skip


def brute_force(
    parameters: Sequence[Parameter],
    constraints: Sequence[str | Callable[..., Any]],
    constants: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """All valid configurations, constraints evaluated by Python in the order they are given."""
    names = [p.name for p in parameters]
    found = []
    for row in itertools.product(*(p.values for p in parameters)):
        values = dict(zip(names, row, strict=True))
        if all(_holds(constraint, values, dict(constants or {})) for constraint in constraints):
            found.append(values)
    return found


def _holds(constraint: str | Callable[..., Any], values: dict[str, Any], constants: dict[str, Any]) -> bool:
    if isinstance(constraint, str):
        return bool(eval(constraint, {"__builtins__": {}, **BUILTINS, **constants}, values))  # the independent answer
    wanted = constraint.__code__.co_varnames[: constraint.__code__.co_argcount]
    return bool(constraint(**{name: {**values, **constants}[name] for name in wanted}))


def check_against(space: SearchSpace, expected: list[dict[str, Any]]) -> None:
    """Check size, index and configuration, codes, membership and neighbours against the list of what is valid."""
    wanted = {Configuration(values) for values in expected}
    every = np.arange(space.size)
    assert space.size == len(space) == len(wanted)
    configurations = space.configurations(every)
    assert set(configurations) == wanted
    assert configurations == [space.configuration(i) for i in range(space.size)]
    assert [space.index(configuration) for configuration in configurations] == every.tolist()
    codes = space.codes(every)
    assert codes.shape == (space.size, len(space.parameters))
    assert codes.dtype == np.int32
    assert space.indices_of(codes).tolist() == every.tolist()
    for values, row in zip(configurations, codes, strict=True):
        assert [p.values[code] for p, code in zip(space.parameters, row, strict=True)] == list(values.values())
    grid = list(itertools.product(*(range(len(p.values)) for p in space.parameters)))[:3000]
    valid = [
        Configuration({p.name: p.values[c] for p, c in zip(space.parameters, row, strict=True)}) in wanted
        for row in grid
    ]
    assert (space.indices_of(np.array(grid)) >= 0).tolist() == valid


def check_neighbours(space: SearchSpace) -> None:
    codes = space.codes(np.arange(space.size))
    for index in range(0, space.size, max(space.size // 7, 1)):
        differs = codes != codes[index]
        one = differs.sum(axis=1) == 1
        assert space.neighbours(index).tolist() == np.flatnonzero(one).tolist()
        step = one & np.array([_is_step(space, codes[index], other) for other in codes])
        assert space.neighbours(index, "adjacent").tolist() == np.flatnonzero(step).tolist()


def _is_step(space: SearchSpace, a: Any, b: Any) -> bool:
    for parameter, x, y in zip(space.parameters, a, b, strict=True):
        if x == y:
            continue
        if parameter.kind == "permutation":
            p, q = parameter.values[x], parameter.values[y]
            assert isinstance(p, tuple)
            assert isinstance(q, tuple)
            at = [k for k in range(len(p)) if p[k] != q[k]]
            if not (len(at) == 2 and at[1] == at[0] + 1):
                return False
        elif parameter.kind != "categorical" and abs(int(x) - int(y)) != 1:
            return False
    return True


# -- random spaces ----------------------------------------------------------------------------------

KINDS_OF_PARAMETERS: list[Callable[[str], Parameter]] = [
    lambda name: OrdinalParameter(name, [1, 2, 4, 8]),
    lambda name: OrdinalParameter(name, [0, 3, 5]),
    lambda name: IntegerParameter(name, -2, 4, 2),
    lambda name: IntegerParameter(name, 1, 5),
    lambda name: RealParameter(name, 0.5, 2.0, 4),
    lambda name: OrdinalParameter(name, [7]),
    BooleanParameter,
]
TEXTS: list[Callable[[str], Parameter]] = [
    lambda name: PrecisionParameter(name, ["fp64", "fp32", "fp16"]),
    lambda name: PrecisionParameter(name, ["fp64", "bf16", "fp8_e5m2"]),
    lambda name: CategoricalParameter(name, ["fp64", "x"]),
]


@st.composite
def definitions(draw: st.DrawFn) -> tuple[list[Parameter], list[Any]]:
    numeric = [draw(st.sampled_from(KINDS_OF_PARAMETERS))(f"p{k}") for k in range(draw(st.integers(2, 5)))]
    texts = [draw(st.sampled_from(TEXTS))(f"t{k}") for k in range(draw(st.integers(0, 2)))]
    parameters = draw(st.permutations([*numeric, *texts]))
    number = st.sampled_from([p.name for p in numeric])
    sized = [p.name for p in texts if p.kind == "precision"]

    def fill(template: str) -> str:
        for slot in "ABCDE":
            template = template.replace(slot, draw(number))
        text = draw(st.sampled_from([p.name for p in texts])) if texts else "'fp64'"
        return template.replace("T", text).replace("S", f"sizeof({draw(st.sampled_from(sized))})" if sized else "4")

    templates = [
        "A * B <= 8", "A + B + C < n", "A < B", "A <= B <= C or D == 2", "A * B * C * D <= 16 and E > 0",
        "A != 0 and B % A == 0", "A == 0 or B // A >= 1", "A > 1", "T == 'fp64' or A > 1", "T != 'fp64'",
        "A * S <= 16", "S * A + B * S <= n", "A in (1, 2, 5)", "not (A == 2 and B == 2)", "(A if B > 1 else C) < 4",
        "min(A, B) < 3 or abs(C) > 1", "any([A > 2, B > 2])", "A / 2 + B < n", "A - B != C", "n > 3",
        "A * (B + C) > 2 * D", "A != 1 and int(B) < 5", "A < 5 and 9 // (B + 3) > 1 and A + C < n",
        "abs(A) > (B in (C, -1)) and int(D) < 8 and C > -1",
    ]  # fmt: skip
    constraints: list[Any] = [fill(draw(st.sampled_from(templates))) for _ in range(draw(st.integers(0, 5)))]
    if draw(st.booleans()):
        constraints.append(_callable(draw(number), draw(number)))
    return list(parameters), constraints


def _callable(a: str, b: str) -> Callable[..., bool]:
    names = a if a == b else f"{a}, {b}"
    made: Callable[..., bool] = eval(f"lambda {names}: {a} + {b} != 3")
    return made


ANY = {"definition": definitions(), "seed": st.integers(0, 2**32)}
SETTINGS = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
Definition = tuple[list[Parameter], list[Any]]


@settings(SETTINGS, max_examples=40)
@given(**ANY)
@pytest.mark.full
def test_random_spaces_are_what_brute_force_finds(definition: Definition, seed: int) -> None:
    check_random_space(definition, seed)


def check_random_space(definition: Definition, seed: int) -> None:
    parameters, constraints = definition
    constants = {"n": 6}
    expected = brute_force(parameters, constraints, constants)
    if not expected:
        with pytest.raises(EmptySpaceError):
            SearchSpace(parameters, constraints, constants)
        return
    space = SearchSpace(parameters, constraints, constants)
    check_against(space, expected)
    check_neighbours(space)
    rng = np.random.default_rng(seed)
    every = np.arange(space.size)
    points = space.latin_hypercube(min(space.size, 9), rng)
    assert len(set(points.tolist())) == min(space.size, 9)
    assert set(points.tolist()) <= set(every.tolist())
    assert space.nearest_valid(space.codes(every), rng).tolist() == every.tolist()
    anything = np.stack([rng.integers(0, len(p.values), 20) for p in parameters], axis=1)
    assert set(space.nearest_valid(anything, rng).tolist()) <= set(every.tolist())
    features = space.features(every)
    assert len(features) == space.size
    assert features.min(initial=0.0) >= 0.0
    assert features.max(initial=1.0) <= 1.0
    again = SearchSpace(parameters, constraints, constants)
    assert again.codes(every).tolist() == space.codes(every).tolist()


@pytest.mark.full
@settings(SETTINGS, max_examples=30)
@given(definition=definitions(), seed=st.integers(0, 2**32))
def test_a_restricted_space_is_what_brute_force_finds(definition: tuple[list[Parameter], list[Any]], seed: int) -> None:
    parameters, constraints = definition
    constants = {"n": 6}
    expected = brute_force(parameters, constraints, constants)
    if not expected:
        return
    space = SearchSpace(parameters, constraints, constants)
    rng = np.random.default_rng(seed)
    chosen = {
        p.name: [v for v in p.values if rng.random() < 0.7] or [p.values[0]] for p in parameters if rng.random() < 0.6
    }
    left = [values for values in expected if all(values[name] in kept for name, kept in chosen.items())]
    if left:
        check_against(space.restrict(chosen), left)
    else:
        with pytest.raises(EmptySpaceError):
            space.restrict(chosen)


# -- chosen spaces ----------------------------------------------------------------------------------


def test_parameters_by_name() -> None:
    space = SearchSpace([IntegerParameter("block", 1, 3)])
    assert space.parameter("block").values == (1, 2, 3)
    with pytest.raises(UnknownNameError, match="unknown parameter 'blok'; did you mean 'block'"):
        space.parameter("blok")
    with pytest.raises(UnknownNameError, match="unknown parameter 'blok'; did you mean 'block'"):
        space.restrict({"blok": [1]})
    with pytest.raises(UnknownNameError, match="unknown value of parameter block: '4'"):
        space.restrict({"block": [4]})
    with pytest.raises(UnknownNameError, match=f"unknown kind of neighbours 'near' .*{KINDS[0]}, {KINDS[1]}"):
        space.neighbours(0, "near")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parameters", "constants", "message"),
    [
        ([], {}, "a search space has 1 to 1000 parameters, not 0"),
        (
            [IntegerParameter(f"p{k}", 1, 100) for k in range(10)],
            {},
            r"1e\+20 configurations are valid; at most 9.22e\+18",
        ),
    ],
)
def test_refusals(parameters: list[Parameter], constants: dict[str, Any], message: str) -> None:
    with pytest.raises(MptuneError, match=message):
        SearchSpace(parameters, (), constants)


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (["a <= b", "a * b > 99"], "constraint 'a * b > 99'; all 10"),
        (["a >= b", "n % 7 == 0", "a > 9"], "constraint 'n % 7 == 0'; all 10"),
        (["a == 2", "b == 3", "a + b == 6"], "constraint 'a + b == 6'; all 1"),
        ([lambda a: a > 9], "constraint '<lambda>(a)'; all 16"),
    ],
)
def test_an_empty_space_names_the_first_constraint_that_empties_it(constraints: list[Any], message: str) -> None:
    with pytest.raises(EmptySpaceError) as caught:
        SearchSpace([IntegerParameter("a", 1, 4), IntegerParameter("b", 1, 4)], constraints, {"n": 32})
    expected = f"the search space is empty: no configuration is left after {message} before it violate it (with n=32)"
    assert str(caught.value) == expected


def test_a_guard_in_another_constraint_protects() -> None:
    parameters = [IntegerParameter("a", 0, 4), IntegerParameter("b", 0, 4), IntegerParameter("c", 0, 1)]
    constraints = ["a + c > 1", "b > 0 and c >= 0", "(a + c) % b == 0", "b % (a + c - 1) == 0"]
    check_against(SearchSpace(parameters, constraints), brute_force(parameters, constraints))
    # The order they are written in does not matter where a single parameter decides.
    check_against(SearchSpace(parameters, ["a % b == 0", "b != 0"]), brute_force(parameters, ["b != 0", "a % b == 0"]))


def test_a_constraint_that_fails_for_a_configuration_is_an_error() -> None:
    with pytest.raises(ConstraintError, match=r"constraint: expression 'a % b == 0' fails at a=\d, b=0: .*zero"):
        SearchSpace([IntegerParameter("a", 1, 4), IntegerParameter("b", 0, 4)], ["a % b == 0"])
    with pytest.raises(ConstraintError, match="unknown name 'c' in 'c > 1'"):
        SearchSpace([IntegerParameter("a", 1, 4)], ["c > 1"])


def test_numbers_beyond_64_bits_are_exact() -> None:
    parameters = [IntegerParameter("a", 1, 70), IntegerParameter("b", 1, 70)]
    constraints = ["2 ** a - 1 < 2 ** b", "2 ** a * 2 ** b % (2 ** 70 - 1) != 1"]
    check_against(SearchSpace(parameters, constraints), brute_force(parameters, constraints))


# -- large spaces -----------------------------------------------------------------------------------


def test_a_huge_product_is_counted_and_indexed_without_being_listed() -> None:
    # Three groups of dependent tile sizes: more than 1e11 combinations, 447,697,125 of them valid.
    parameters = [IntegerParameter(f"{group}{k}", 1, 17) for group in "abc" for k in range(3)]
    constraints = [f"{g}0 * {g}1 * {g}2 <= 1024 and {g}0 % {g}1 == 0" for g in "abc"]
    space = SearchSpace(parameters, constraints)
    one = brute_force(parameters[:3], constraints[:1])
    assert space.cartesian_size == 17**9
    assert space.size == len(one) ** 3
    indices = space.sample(2000, np.random.default_rng(1))
    assert space.indices_of(space.codes(indices)).tolist() == indices.tolist()
    for configuration in space.configurations(indices[:50]):
        assert all(_holds(constraint, dict(configuration), {}) for constraint in constraints)
    index = int(indices[0])
    values = space.configuration(index)
    expected = sum({**values, p.name: v} in space for p in parameters for v in p.values if v != values[p.name])
    assert len(space.neighbours(index)) == expected


def test_too_many_partial_configurations_name_what_couples_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "MAX_EDGES", 1000)
    parameters = [IntegerParameter(f"p{k}", 1, 20) for k in range(4)]

    def coupled(p0: int, p1: int, p2: int, p3: int) -> bool:
        return (p0 * 7 + p1 * 5 + p2 * 3 + p3) % 11 != 0

    wanted = (
        r"more than 1,000 partial configurations are needed at parameter p2, which 'coupled\(p0, p1, p2, p3\)' couples"
    )
    with pytest.raises(ConstraintError, match=wanted):
        SearchSpace(parameters, [coupled])


def test_samples_by_branches_prefer_what_allows_few_others() -> None:
    # One value of b beside a=0, 9 beside a=1, and c on its own.
    parameters = [OrdinalParameter("a", [0, 1]), OrdinalParameter("b", list(range(9))), OrdinalParameter("c", [0, 1])]
    space = SearchSpace(parameters, ["a == 1 or b == 4"])
    assert space.size == 20
    rng = np.random.default_rng(3)
    drawn = [int(space.sample_by_branches(1, rng)[0]) for _ in range(4000)]
    share = np.mean([space.configuration(index)["a"] == 0 for index in drawn])
    assert share == pytest.approx(0.5, abs=0.03)
    assert np.mean([space.configuration(index)["c"] == 0 for index in drawn]) == pytest.approx(0.5, abs=0.03)
    assert set(drawn) == set(range(20))


# -- a search space that is a list of configurations -------------------------------------------------

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


# -- covering sets have every value, representatives every combination; against listing the ----------

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


# -- samples: uniform without bias and without replacement, and Latin hypercubes that spread ---------

#: A tree that is much denser on one side: choosing children uniformly would be biased (Hellsten 2023, Sec. 4.2).
LOPSIDED = SearchSpace(
    [IntegerParameter("a", 1, 8), IntegerParameter("b", 1, 8), BooleanParameter("c")], ["b <= a or a == 1"]
)


def test_every_subset_is_equally_likely() -> None:
    rng = np.random.default_rng(12)
    space = SearchSpace([IntegerParameter("a", 0, 5)])
    subsets = dict.fromkeys(itertools.combinations(range(6), 3), 0)
    for _ in range(4000):
        subsets[tuple(sorted(space.sample(3, rng).tolist()))] += 1  # type: ignore[index]
    assert stats.chisquare(list(subsets.values())).pvalue > 0.01


def test_what_is_excluded_never_comes_and_the_rest_is_equally_likely() -> None:
    rng = np.random.default_rng(13)
    excluded = {0, 1, 5, 6, 7, LOPSIDED.size - 1, -3, LOPSIDED.size + 4}
    drawn = np.concatenate([LOPSIDED.sample(4, rng, exclude=excluded) for _ in range(4000)])
    counts = np.bincount(drawn, minlength=LOPSIDED.size)
    allowed = [i for i in range(LOPSIDED.size) if i not in excluded]
    assert counts[allowed].sum() == len(drawn)
    assert stats.chisquare(counts[allowed]).pvalue > 0.01


@pytest.mark.parametrize("n", [0, 40, 80, 81, 500])
def test_samples_are_distinct_up_to_the_last_configuration(n: int) -> None:
    space = SearchSpace([IntegerParameter("a", 1, 100)])
    excluded = set(range(3, 100, 5))
    drawn = space.sample(n, np.random.default_rng(n), exclude=excluded)
    assert drawn.dtype == np.int64
    assert len(drawn) == len(set(drawn.tolist())) == min(n, 80)
    assert not excluded & set(drawn.tolist())
    assert space.sample(3, np.random.default_rng(0), exclude=frozenset(range(100))).tolist() == []


def test_samples_of_a_space_near_the_limit_of_indices() -> None:
    space = SearchSpace([IntegerParameter(f"p{k}", 1, 1000) for k in range(6)])
    drawn = space.sample(1000, np.random.default_rng(3))
    assert len(set(drawn.tolist())) == 1000
    assert space.indices_of(space.codes(drawn)).tolist() == drawn.tolist()
    assert stats.kstest(drawn / space.size, "uniform").pvalue > 0.01
    assert len(set(space.latin_hypercube(300, np.random.default_rng(3)).tolist())) == 300


@pytest.mark.parametrize("n", [1, 2, 20, 60, LOPSIDED.size - 1, LOPSIDED.size, LOPSIDED.size + 50])
def test_a_latin_hypercube_is_distinct_and_valid(n: int) -> None:
    points = LOPSIDED.latin_hypercube(n, np.random.default_rng(n))
    assert points.dtype == np.int64
    assert len(set(points.tolist())) == len(points) == min(n, LOPSIDED.size)
    assert all(LOPSIDED.configuration(int(i)) in LOPSIDED for i in points)


def test_a_latin_hypercube_is_uniform_over_valid_configurations_and_spreads_more_than_chance() -> None:
    space = SearchSpace(
        [IntegerParameter(name, 1, 20) for name in "abcd"], ["a * b <= 100", "c + d > 10", "a + c != 7"]
    )
    rng = np.random.default_rng(8)
    everywhere = space.features(np.arange(space.size)).mean(axis=0)
    chance, designed, spread_by_chance, spread = [], [], [], []
    for _ in range(60):
        for draw, means, spreads in (
            (space.sample, chance, spread_by_chance),
            (space.latin_hypercube, designed, spread),
        ):
            points = space.features(draw(24, rng))
            means.append(points.mean(axis=0) - everywhere)
            distances = np.linalg.norm(points[:, None] - points[None], axis=2)
            spreads.append(distances[np.triu_indices(24, 1)].min())
    # Stratified means vary less about the true mean, and the closest two points are further apart.
    assert np.abs(np.mean(designed, axis=0)).max() < 0.02
    assert np.std(designed) < 0.6 * np.std(chance)
    assert np.mean(spread) > 1.3 * np.mean(spread_by_chance)


def test_the_nearest_valid_configuration_moves_as_little_as_it_can() -> None:
    space = SearchSpace(
        [IntegerParameter("a", 1, 9), OrdinalParameter("b", [1, 2, 4, 8]), CategoricalParameter("c", ["x", "y", "z"])],
        ["a in (2, 3, 8)", "c != 'y'"],
    )
    rows = np.array([[0, 1, 0], [4, 2, 2], [8, 3, 1], [1, 0, 0]])
    found = space.codes(space.nearest_valid(rows, np.random.default_rng(0)))
    assert found[:, 0].tolist() == [1, 2, 7, 1]
    assert found[:, 1].tolist() == [1, 2, 3, 0]
    assert found[[0, 1, 3], 2].tolist() == [0, 2, 0]
    assert found[2, 2] in (0, 2)


def test_ties_and_categories_are_drawn_when_the_nearest_is_not_unique() -> None:
    space = SearchSpace(
        [IntegerParameter("a", 1, 5), CategoricalParameter("c", ["x", "y", "z"]), PermutationParameter("p", 2)],
        ["a != 3 or c == 'x'", "c != 'y' or a == 9", "a < 3 or a > 3"],
    )
    rows = np.tile([2, 1, 0], (400, 1))
    found = space.codes(space.nearest_valid(rows, np.random.default_rng(1)))
    assert sorted(set(found[:, 0].tolist())) == [1, 3]
    assert sorted(set(found[:, 1].tolist())) == [0, 2]
    for column in (found[:, 0], found[:, 1]):
        assert min(np.unique(column, return_counts=True)[1]) > 130


@pytest.mark.full
def test_configurations_have_one_order_in_every_process() -> None:
    code = """
from mptune.kernel.limits import whole_space
from mptune.source.loading import load_kernel
kernel = load_kernel("gemm")
space = whole_space(kernel, kernel.resolve_sizes("default", {}), {})
print(*space.configurations(range(0, len(space), len(space) // 50)), sep="\\n")
"""
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    ]
    assert printed[0].count(b"\n") >= 50
    assert len(set(printed)) == 1
