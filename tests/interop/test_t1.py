"""T1 input files: values, conditions, and text that would like to be run."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recordings import write

from mptune.errors import EmptySpaceError, SpaceFileError
from mptune.interop import read_t1
from mptune.space.parameters import BooleanParameter, CategoricalParameter, OrdinalParameter, PrecisionParameter
from mptune.space.search_space import SearchSpace


def document(parameters: Any, conditions: Any = ()) -> dict[str, Any]:
    return {
        "ConfigurationSpace": {
            "TuningParameters": [{"Name": name, "Type": kind, "Values": values} for name, kind, values in parameters],
            "Conditions": [{"Expression": text, "Parameters": []} for text in conditions],
        },
        "KernelSpecification": {},
    }


def read(tmp_path: Path, content: Any, name: str = "space.json") -> SearchSpace:
    return read_t1(write(tmp_path / name, json.dumps(content)))


@pytest.mark.parametrize("name", ["space.json", "space.json.gz"])
def test_the_space_is_what_the_conditions_leave(tmp_path: Path, name: str) -> None:
    space = read(
        tmp_path,
        document(
            [("x", "int", "[1, 2, 4] + list(range(32, 97, 32))"), ("y", "uint", "[2**i for i in range(0, 4)]")],
            ["x * y <= 128", "x % y == 0 or y == 1"],
        ),
        name,
    )
    expected = {
        (x, y)
        for x, y in itertools.product((1, 2, 4, 32, 64, 96), (1, 2, 4, 8))
        if x * y <= 128 and (x % y == 0 or y == 1)
    }
    assert {tuple(c.values()) for c in space.configurations(range(space.size))} == expected


def test_types_choose_the_parameter(tmp_path: Path) -> None:
    space = read(
        tmp_path,
        document(
            [
                ("i", "int", "[2, 1]"),
                ("f", "float", "[1, 2]"),
                ("b", "bool", "[0, 1]"),
                ("s", "string", "['row', 'col']"),
                ("p", "string", "['float', 'half']"),
            ]
        ),
    )
    kinds = [OrdinalParameter, OrdinalParameter, BooleanParameter, CategoricalParameter, PrecisionParameter]
    assert [type(p) for p in space.parameters] == kinds
    assert [p.values for p in space.parameters] == [
        (1, 2),
        (1.0, 2.0),
        (False, True),
        ("row", "col"),
        ("fp32", "fp16"),
    ]
    assert type(space.parameters[1].values[0]) is float


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        ("int", "[1.5]", "values of parameter 'x', '\\[1.5\\]': 1.5 is no int"),
        ("uint", "[-1]", "-1 is no uint"),
        ("float", "['a']", "could not convert"),
        ("int", "[]", "no values"),
        ("int", 3, "its field 'Values' should be a text or a list of anything"),
        ("itn", "[1]", "unknown type 'itn'; did you mean 'int'"),
    ],
)
def test_values_that_cannot_be_read_are_named(tmp_path: Path, kind: Any, values: Any, message: str) -> None:
    with pytest.raises(SpaceFileError, match=message):
        read(tmp_path, document([("x", kind, values)]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "not a T1 file"),
        (
            {"ConfigurationSpace": {"TuningParameters": [{"Name": "x"}]}},
            "tuning parameter 0: its field 'Values' should be",
        ),
        (document([("x", "int", "[1]")], [3]), "condition 0: its field 'Expression' should be a text"),
        (document([("x", "int", "[1]")], ["x +"]), "x \\+"),
        (document([("width", "int", "[1]")], ["widht > 0"]), "widht"),
    ],
)
def test_documents_that_are_not_t1_say_why(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(SpaceFileError, match=message):
        read(tmp_path, content)


@settings(max_examples=40)
@given(
    columns=st.lists(st.lists(st.integers(1, 64), min_size=1, max_size=6, unique=True), min_size=2, max_size=4),
    conditions=st.lists(
        st.sampled_from(
            ["a * b <= {}", "a % 2 == 0 or b > {}", "not (a > {} and b > 2)", "min(a, b) < {}", "a + b != {}"]
        ),
        max_size=3,
        unique=True,
    ),
    limit=st.integers(2, 200),
)
def test_any_space_is_what_python_makes_of_its_conditions(
    tmp_path_factory: pytest.TempPathFactory, columns: list[list[int]], conditions: list[str], limit: int
) -> None:
    names = "abcd"[: len(columns)]
    texts = [condition.format(limit) for condition in conditions]
    content = document([(name, "int", str(values)) for name, values in zip(names, columns, strict=True)], texts)
    rows = (dict(zip(names, row, strict=True)) for row in itertools.product(*columns))
    expected = {tuple(row.values()) for row in rows if all(eval(text, {"min": min}, row) for text in texts)}
    folder = tmp_path_factory.mktemp("t1")
    if not expected:
        with pytest.raises(EmptySpaceError):
            read(folder, content)
        return
    space = read(folder, content)
    assert {tuple(c.values()) for c in space.configurations(range(space.size))} == expected
    assert space.cartesian_size == math.prod(map(len, columns))


@pytest.mark.parametrize("where", ["values", "condition"])
@pytest.mark.parametrize("template", ["__import__('pathlib').Path({!r}).touch()"])
def test_text_in_a_file_is_never_run(tmp_path: Path, where: str, template: str) -> None:
    marker = tmp_path / "marker"
    attack = template.format(str(marker))
    content = document([("x", "int", attack if where == "values" else "[1]")], [attack] if where == "condition" else [])
    with pytest.raises(SpaceFileError):
        read(tmp_path, content)
    assert not marker.exists()
