"""T1 input and T4 results files: values, conditions, units, validity, and text that would like to be run."""

from __future__ import annotations

import copy
import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recordings import entries, t4_document, write

from mptune.errors import EmptySpaceError, SpaceFileError
from mptune.interop import read_run, read_t1
from mptune.results.trial import Status
from mptune.run import Run
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


# -- t4 results files: units, validity, and the same recording in two formats ------------------------

ONE = {
    "configuration": {"a": 1},
    "times": {"runtimes": [2.0], "compilation": 5.0},
    "invalidity": "correct",
    "correctness": 1,
    "measurements": [{"name": "time", "value": 2.0, "unit": "ms"}],
    "objectives": ["time"],
}


def t4_read(tmp_path: Path, document: Any) -> Run:
    return read_run(write(tmp_path / "axpy.t4.json.gz", json.dumps(document)))


def one(**changes: Any) -> dict[str, Any]:
    return {"results": [{**copy.deepcopy(ONE), **changes}], "schema_version": "1.0.0"}


@pytest.mark.parametrize(
    ("timeunit", "unit", "factor"),
    [
        ("miliseconds", "", 1.0),
        ("Seconds", "", 1e3),
        ("ns", "ns", 1e-6),
        (None, "s", 1e3),
    ],
)
def test_times_are_taken_with_their_unit(tmp_path: Path, timeunit: str | None, unit: str | None, factor: float) -> None:
    recorded = t4_read(tmp_path, t4_document(timeunit, unit, factor))
    assert recorded.name == "axpy.t4"
    assert (recorded.info.objective.metric, recorded.space.size) == ("time_ms", 12)
    expected = [e for e in entries().values() if isinstance(e["time"], float) and e["time"] < 1e20]
    ran = [t for t in recorded.trials if t.status is Status.OK]
    assert len(ran) == len(expected) == 10
    for entry in expected:
        (trial,) = [
            t
            for t in ran
            if (t.configuration["block"], t.configuration["tile"]) == (entry["block"], entry["tile"])
            and t.configuration["type"] == {"double": "fp64", "half": "fp16"}[entry["type"]]
        ]
        assert trial.time_ms == pytest.approx(entry["time"], rel=1e-14)
        assert trial.measurement.times_ms == pytest.approx(entry["times"], rel=1e-14)
        assert trial.measurement.durations_s["compile"] == pytest.approx(0.25, rel=1e-14)
        assert trial.error == entry["error"]
    failed = [t for t in recorded.trials if not t.is_valid]
    assert [t.status for t in failed] == [Status.LAUNCH_ERROR] * 2
    assert recorded.info.signature == ("type",)


def test_an_unknown_unit_is_refused_and_the_nearest_named(tmp_path: Path) -> None:
    with pytest.raises(SpaceFileError, match="unknown unit of time 'secnds'; did you mean 'seconds'"):
        t4_read(tmp_path, one(measurements=[{"name": "time", "value": 2.0, "unit": "secnds"}]))
    with pytest.raises(SpaceFileError, match="unknown unit of time 'fortnights'"):
        t4_read(tmp_path, {**t4_document(), "metadata": {"timeunit": "fortnights"}})


@pytest.mark.parametrize(
    ("invalidity", "status"),
    [
        ("correct", Status.OK),
        ("compile", Status.COMPILE_ERROR),
        ("runtime", Status.LAUNCH_ERROR),
        ("timeout", Status.TIMEOUT),
        ("constraints", Status.CONSTRAINT),
        ("correctness", Status.ERROR),
    ],
)
def test_invalidity_gives_the_status(tmp_path: Path, invalidity: str, status: Status) -> None:
    (trial,) = t4_read(tmp_path, one(invalidity=invalidity)).trials
    assert trial.status is status
    assert bool(trial.measurement.metrics) == (status is Status.OK)


def test_an_incorrect_result_is_never_valid(tmp_path: Path) -> None:
    (trial,) = t4_read(tmp_path, one(correctness=0)).trials
    assert trial.status is Status.ERROR
    assert "incorrect" in trial.message


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"results": {}}, "'results' should be a list of objects"),
        ({"results": []}, "the file records no configuration"),
        ({"results": [ONE, {**ONE, "configuration": {"b": 1}}]}, "result 0 has no value for parameter 'b'"),
        (one(invalidity="sunny"), "result 0: unknown invalidity 'sunny'"),
        (one(configuration={"a": None}), "parameter 'a' has the value None"),
    ],
)
def test_documents_that_are_not_t4_say_why(tmp_path: Path, document: Any, message: str) -> None:
    with pytest.raises(SpaceFileError, match=message):
        t4_read(tmp_path, document)
