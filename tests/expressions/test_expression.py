"""Expressions: what is allowed, what is refused and how the refusal reads, and that columns are really columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mptune.errors import ExpressionError
from mptune.space.expressions import Expression
from mptune.space.parameters import parse_values

COLUMNS: dict[str, Any] = {
    "a": np.array([0, 1, 2, 3, 4]),
    "b": np.array([8, 8, 7, 9, 0]),
    "x": np.array([0.5, 1.0, -2.5, 4.0, 0.0]),
    "t": np.array(["fp64", "fp32", "fp16", "bf16", "fp64"]),
    "flag": np.array([True, False, True, False, True]),
}


def by_rows(text: str) -> list[Any]:
    rows = zip(*(column.tolist() for column in COLUMNS.values()), strict=True)
    return [Expression(text).evaluate(dict(zip(COLUMNS, row, strict=True))) for row in rows]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7 // 2 - -7 // 2", 7),
        ("2 ** -1", 0.5),
        ("1 and 0 or 'x'", "x"),
        ("ceildiv(7, 2) + ceildiv(-7, 2)", 1),
        ("sizeof('double') + sizeof('e4m3')", 9),
        ("round(2.5) + int(3.9) + abs(-2)", 7),
        ("sum([i * j for i in range(3) for j in range(i) if j != 1])", 0),
        (" \n 1 +\n 2 ", 3),
    ],
)
def test_evaluates_as_python_does(text: str, value: Any) -> None:
    found = Expression(text).evaluate({})
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("(1).real", "attribute access (.real) is not allowed in an expression: '(1).real'"),
        ("lambda: 1", "is not allowed in an expression: 'lambda: 1'"),
        ("[*a]", "is not allowed in an expression: '*a'"),
        ("a @ b", "is not allowed in an expression: 'a @ b'"),
        ("min(a, key=b)", "is not allowed in an expression: 'min(a, key=b)'"),
        ("__import__('os')", "unknown function '__import__'"),
        ("mim(a, b)", "unknown function 'mim'; did you mean 'min'? in 'mim(a, b)' (valid: min, max, abs"),
        ("a +* b", "cannot parse 'a +* b': invalid syntax at '*' (column 4)"),
        ("3 +", "invalid syntax at the end (column 4)"),
        ("", "the expression is empty"),
        ("(" * 300 + ")" * 300, "cannot parse"),
        ("a" * 100_001, "the expression has 100001 characters; at most 100000 are read"),
    ],
)
def test_refusals_name_the_token(text: Any, token: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression(text)
    assert token in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("9 ** 9 ** 9", "9**387420489 has more than 4096 bits"),
        ("1 << 10 ** 9", "a shift by 1000000000 is more than 4096 bits"),
        ("10.0 ** 400", "Numerical result out of range"),
        ("sqrt(-1)", "math domain error"),
        ("sizeof('fp33')", "unknown precision 'fp33'; did you mean 'fp32'?"),
    ],
)
def test_failures_and_bounds_say_why(text: str, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression(text).evaluate({})
    assert reason in str(caught.value)
    assert text in str(caught.value)


def test_a_failure_holds_the_values_it_fails_at() -> None:
    with pytest.raises(ExpressionError, match=r"expression 'b % a == 0' fails at a=0, b=8: .*zero"):
        Expression("b % a == 0").evaluate({"a": 0, "b": 8, "c": 1})
    with pytest.raises(ExpressionError, match=r"fails at a=0, b=8"):
        Expression("b % a == 0").evaluate_columns(COLUMNS, 5)


def test_a_missing_name_is_named_with_those_that_may_be_used() -> None:
    wanted = r"unknown name 'blok' in 'blok \* 2'; did you mean 'block'\? \(names that may be used: block, grid\)"
    with pytest.raises(ExpressionError, match=wanted):
        Expression("blok * 2").evaluate({"block": 1, "grid": 2})
    with pytest.raises(ExpressionError, match=wanted):
        Expression("blok * 2").evaluate_columns({"block": np.ones(2), "grid": np.ones(2)}, 2)
    with pytest.raises(ExpressionError, match=r"names that may be used: none"):
        Expression("x").evaluate({})


@pytest.mark.parametrize(
    "text",
    [
        "a == 0 or b // a > 3",
        "not (a > 1 and flag)",
        "(b // a if a else -1) + 2",
        "t != 'fp64' and t in ('fp32', 'bf16')",
        "a in (1, 2, 4) or b not in [7, 8]",
        "2 ** a + (1 << a) + (b >> a)",
        "sum((a, b, 1)) + sum([flag])",
        "ceildiv(b, a + 1)",
        "sqrt(a) + log2(b + 1)",
    ],
)
def test_columns_hold_what_rows_do(text: str) -> None:
    found = Expression(text).evaluate_columns(COLUMNS, 5)
    assert found.shape == (5,)
    assert found.tolist() == by_rows(text)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("2 ** i", {"i": np.array([3, 62, 63, 64, 200])}),
        ("i * i * i", {"i": np.array([2**21, 2**31, -(2**40)])}),
        ("abs(i)", {"i": np.array([-(2**63), 5])}),
        ("i / 3", {"i": np.array([2**62 + 1, 2**53 + 1])}),
        ("i == 9007199254740992.0", {"i": np.array([2**53, 2**53 + 1])}),
        ("i & 2 ** 70", {"i": np.array([1, 2])}),
        ("o[0] == 1", {"o": np.array([(0, 1), (1, 0), None], dtype=object)[:2]}),
        ("sum([k for k in range(i)])", {"i": np.array([3, 4])}),
        ("i if i > 1 else x", {"i": np.array([1, 2]), "x": np.array([0.5, 0.5])}),
        ("u > 3", {"u": np.array([2**63 + 1, 1], dtype=np.uint64)}),
        ("(i if i > 2 else 2.0) ** 40 % 7", {"i": np.array([1, 3, 8])}),
        ("s == 'x\\0'", {"s": np.array(["x", "y"])}),
    ],
)
def test_what_numpy_would_get_wrong_is_exact(text: str, columns: dict[str, Any]) -> None:
    n = len(next(iter(columns.values())))
    rows = [{name: column.tolist()[r] for name, column in columns.items()} for r in range(n)]
    expected = [Expression(text).evaluate(row) for row in rows]
    assert Expression(text).evaluate_columns(columns, n).tolist() == expected


@pytest.mark.parametrize("text", ["abs(a, b)", "sum([t]) == t", "bool(a, b)"])
def test_what_fails_in_rows_fails_in_columns_and_changes_none(text: str) -> None:
    before = {name: column.copy() for name, column in COLUMNS.items()}
    with pytest.raises(ExpressionError):
        Expression(text).evaluate_columns(COLUMNS, 5)
    assert all(np.array_equal(COLUMNS[name], column) for name, column in before.items())


def test_loop_variables_end_with_their_loops() -> None:
    assert Expression("i + sum([i for i in range(3)])").evaluate({"i": 10}) == 13
    assert Expression("[min, [min for min in [1]]]").names == {"min"}
    with pytest.raises(ExpressionError, match="unknown name '__builtins__'"):
        Expression("(__builtins__, [__builtins__ for __builtins__ in [1]])").evaluate({})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[1, 2, 4]", [1, 2, 4]),
        ("(0.5, 1)", [0.5, 1]),
        ("range(3)", [0, 1, 2]),
        ("[1, 2, 4, 8, 16] + list(range(32, 1024+1, 32))", [1, 2, 4, 8, 16, *range(32, 1025, 32)]),
        ("[2**i for i in range(0, 6)]", [1, 2, 4, 8, 16, 32]),
        ("['a', True]", ["a", True]),
    ],
)
def test_reads_t1_values(text: str, values: list[Any]) -> None:
    assert parse_values(text) == values
