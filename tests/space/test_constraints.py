"""Constraints: what they depend on, what they may use, and how failures read."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

from mptune.errors import ConstraintError
from mptune.space.constraints import compile_constraint
from mptune.space.expressions import known_of

NAMES = ("block", "tile", "t")


def test_constants_are_put_in_and_are_no_parameters() -> None:
    constraint = compile_constraint("block * tile <= n // 2 and k > 0", NAMES, {"n": 64, "k": 1})
    assert constraint.names == {"block", "tile"}
    assert constraint.holds({"block": 8, "tile": 4})
    assert not constraint.holds({"block": 8, "tile": 5})
    mask = constraint.mask({"block": np.array([8, 8]), "tile": np.array([4, 5])}, 2)
    assert mask.tolist() == [True, False]


def fits(block: int, tile: int, n: int, spare: int = 0) -> bool:
    return block * tile + spare <= n


def test_a_callable_takes_what_it_needs_by_name() -> None:
    constraint = compile_constraint(fits, NAMES, {"n": 32, "other": 1})
    assert (constraint.text, constraint.names) == ("fits(block, tile, n, spare)", {"block", "tile"})
    assert constraint.holds({"block": 8, "tile": 4, "t": "fp64"})
    assert constraint.mask({"block": np.array([8, 8]), "tile": np.array([4, 5])}, 2).tolist() == [True, False]
    assert constraint.bind({"tile": 5, "t": "fp64"}).names == {"block"}
    assert not constraint.bind({"tile": 5}).holds({"block": 8})


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (
            "blok > 2",
            "unknown name 'blok' in 'blok > 2'; did you mean 'block'? (names that may be used: block, tile, t, n)",
        ),
        (lambda bloc: True, "unknown name 'bloc' in '<lambda>(bloc)'; did you mean 'block'?"),
        (3, "a constraint is text or a callable, not 3"),
        (dict, "its arguments cannot be determined"),
    ],
)
def test_refusals(constraint: Any, message: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        compile_constraint(constraint, NAMES, {"n": 32})
    assert message in str(caught.value)


def test_failures_hold_the_constraint_and_the_values() -> None:
    wanted = r"constraint: expression 'tile % block == 0' fails at block=0, tile=3: .*zero"
    constraint = compile_constraint("tile % block == 0", NAMES)
    with pytest.raises(ConstraintError, match=wanted):
        constraint.holds({"block": 0, "tile": 3})
    with pytest.raises(ConstraintError, match=wanted):
        constraint.mask({"block": np.array([1, 0]), "tile": np.array([2, 3])}, 2)

    def divides(tile: int, block: int) -> bool:
        return tile % block == 0

    with pytest.raises(
        ConstraintError, match=r"constraint: expression 'divides\(tile, block\)' fails at block=0, tile=3: ZeroDiv"
    ):
        compile_constraint(divides, NAMES).holds({"block": 0, "tile": 3})


def test_aliases_of_precisions_compare_equal() -> None:
    for text in ("t == 'double'", "'float64' == t", "t in ('double', 'half')", "not t != 'FP64'"):
        constraint = compile_constraint(text, NAMES, precisions={"t"})
        assert constraint.holds({"t": "fp64"}), text
        assert not constraint.holds({"t": "bf16"}), text
        assert constraint.text == text
    assert compile_constraint("t == 'double'", NAMES).holds({"t": "double"})


VALUES = {"a": [0, 1], "b": [1, 2], "s": ["x"], "t": ["fp64"], "x": [0.5]}
FACTS = {name: known_of(values) for name, values in VALUES.items()}


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("a < 2 and b < 3 and a < b", ["a < 2", "b < 3", "a < b"]),
        ("a < 2 and (b < 3 and s == 'x')", ["a < 2", "b < 3", "s == 'x'"]),
        ("a < 2 or b < 3", ["a < 2 or b < 3"]),
        # A divisor that can be zero keeps what protects it; one that cannot does not need to.
        ("a != 0 and b % a == 0", ["a != 0", "a != 0 and b % a == 0"]),
        ("a < 2 and a % b == 0", ["a < 2", "a % b == 0"]),
        ("a < 2 and 2 ** a > 1", ["a < 2", "a < 2 and 2 ** a > 1"]),
        ("a < 2 and s < 3", ["a < 2", "a < 2 and s < 3"]),
        ("a < 2 and (b if a else s) < 3", ["a < 2", "a < 2 and (b if a else s) < 3"]),
        ("a < 2 and sizeof(s) > 1", ["a < 2", "a < 2 and sizeof(s) > 1"]),
    ],
)
def test_a_conjunction_is_split_where_that_cannot_fail(text: str, pieces: list[str]) -> None:
    constraint = compile_constraint(text, ("a", "b", "s", "t", "x"))
    found = constraint.split(FACTS)
    assert [ast.unparse(piece.tree) for piece in found] == pieces
    assert all(piece.text == text for piece in found)
