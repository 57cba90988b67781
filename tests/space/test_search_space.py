"""The search space against brute force: every combination through Python's own evaluation of the constraints."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mptune.errors import ConstraintError, EmptySpaceError, MptuneError, UnknownNameError
from mptune.precision import precision
from mptune.space import tree as building
from mptune.space.configuration import Configuration
from mptune.space.parameters import (
    BooleanParameter,
    CategoricalParameter,
    IntegerParameter,
    OrdinalParameter,
    Parameter,
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


def test_an_empty_space_is_reported_also_where_the_constraints_before_cannot_be_counted() -> None:
    with pytest.raises(EmptySpaceError, match="the search space is empty: constraint 'a > 9' leaves no value of a"):
        SearchSpace([IntegerParameter("a", 0, 4), IntegerParameter("b", 0, 4)], ["a % b == 0", "b > 0", "a > 9"])


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
