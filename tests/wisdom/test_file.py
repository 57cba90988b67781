"""Wisdom is made of runs and of other wisdom, in any order; what is wrong with a source is said in one line."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from awkward_kernel import run_of
from command_line import caller
from described import create
from runs_by_size import HALF, POLY, SINGLE, at_size, trial, undecided

from mptune.errors import NotAccurateError, WisdomError
from mptune.results.objective import Objective
from mptune.results.trial import Status
from mptune.run import Run
from mptune.schemas import schema
from mptune.wisdom import Wisdom, gather, read_sources


def wisdom_of(*runs: Any) -> Wisdom:
    return gather(read_sources(runs))


def saved(run: Run, path: Path) -> Path:
    with create(path, run) as file:
        file.add(*run.trials)
    return path


def test_a_file_holds_the_winner_the_baseline_and_what_is_tighter_with_errors_by_signature() -> None:
    found = wisdom_of(at_size(1000), at_size(4000))
    (known,) = found.kernels
    assert known.signature == ("x_type", "y_type")
    small, large = known.tuned
    assert small.sizes == {"n": 1000}
    assert small.threshold == {"error": 1e-3}
    assert small.best is not None
    assert dict(small.best.configuration) == {"block": 64, "unroll": 1, **HALF}
    assert (small.best.speedup, small.best.unseen, small.best.errors.draws) == (4.0, 20, 23)
    assert small.baseline is not None
    assert small.baseline.time_ms == 4.0
    # Of each types the fastest; blocks of 128 are not worth keeping.
    assert [timed.configuration["block"] for timed in small.configurations] == [64, 64, 64]
    assert large.by_signature["fp16", "fp16"].worst == {"error": pytest.approx(2e-4)}
    assert large.by_signature["fp16", "fp16"].draws == 23
    assert set(small.by_signature) == {("fp16", "fp16"), ("fp32", "fp32"), ("fp64", "fp64")}


def test_the_same_bytes_in_whatever_order_and_of_whatever_parts(tmp_path: Path) -> None:
    paths = [saved(at_size(n), tmp_path / f"{n}.db") for n in (1000, 4000, 20000)]
    text = wisdom_of(*paths).text()
    assert wisdom_of(*reversed(paths)).text() == text
    assert wisdom_of(*paths, *paths).text() == text
    wisdom_of(*paths).save(tmp_path / "all.wisdom.json")
    assert wisdom_of(tmp_path / "all.wisdom.json").text() == text
    wisdom_of(paths[0]).save(tmp_path / "one.wisdom.json")
    wisdom_of(*paths[1:]).save(tmp_path / "others.wisdom.json")
    merged = wisdom_of(tmp_path / "one.wisdom.json", tmp_path / "others.wisdom.json", *paths)
    assert merged.text() == text
    assert wisdom_of(tmp_path / "others.wisdom.json", tmp_path / "one.wisdom.json").text() == (
        wisdom_of(tmp_path / "one.wisdom.json", tmp_path / "others.wisdom.json").text()
    )
    # Every configuration stands on a line of its own.
    lines = text.splitlines()
    assert sum('{"configuration"' in line for line in lines) == sum(line.count('{"configuration"') for line in lines)


def test_a_file_is_as_its_schema_says(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    lost = run_of(POLY, [*at_size(500).trials[:2], trial(1, 1e-4, 1, Status.NON_FINITE, **HALF)], threshold=1e-3)
    document = json.loads(wisdom_of(at_size(1000), lost, at_size(20000, threshold=None)).text())
    jsonschema.Draft202012Validator(schema("wisdom")).validate(document)
    assert any(
        entry["errors"]["largest"] == {"error": None}
        for kernel in document["kernels"]
        for record in kernel["tuned"]
        for entry in record["signatures"]
    )
    path = tmp_path / "a.wisdom.json"
    path.write_text(json.dumps(document))
    assert wisdom_of(path).to_json() == document


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (run_of(POLY, []), "has no trials"),
        (at_size(1000, objective=Objective("error")), "was made with the objective error: wisdom is of the fastest"),
        (at_size(1000, sizes={}), "does not say at which sizes it was made"),
        (at_size(1000, template_hash="1"), "whose template was changed in between"),
    ],
)
def test_a_run_that_tells_nothing_is_refused_by_name(run: Run, message: str) -> None:
    first = at_size(4000, template_hash="0", definition_hash="0")
    with pytest.raises((WisdomError, NotAccurateError), match="the run of poly") as caught:
        wisdom_of(first, run)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def damaged(change: Callable[[Any], None]) -> str:
    document = copy.deepcopy(json.loads(wisdom_of(at_size(1000)).text()))
    change(document)
    return json.dumps(document)


def put(*path: Any, value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        entry = document["kernels"][0]
        for part in path[:-1]:
            entry = entry[part]
        entry[path[-1]] = value

    return change


TIMED = ("tuned", 0, "configurations", 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON: Expecting"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "not a wisdom file; mptune wisdom RUN.db... -o NAME.wisdom.json writes one"),
        ('{"mptune_wisdom": 7, "kernels": []}', "wisdom of version 7, and this mptune reads 2: gather it again"),
        ('{"mptune_wisdom": 2, "kernels": [3]}', "its field 'kernels' should be a list of objects with kernel,"),
        (damaged(put("tuned", 0, "sizes", value={"n": 0})), "its field 'sizes' should be whole numbers from 1 to"),
        (
            damaged(put(*TIMED, "time_ms", value="fast")),
            "kernels[0], tuned[0], configurations[0]: its field 'time_ms' should be a number from 1e-30",
        ),
        (
            damaged(put(*TIMED, "errors", "draws", value=0)),
            "configurations[0], errors: its field 'draws' should be a whole number from 1 to",
        ),
        (damaged(put("tuned", 0, "sizes", value={})), "kernel poly at {}: no size"),
        (damaged(put(*TIMED, "speedup", value=5e-324)), "should be a number from 1e-30 to 1e+30, and is 5e-324"),
        (damaged(put(*TIMED, "interval", value=[1])), "an interval should be two numbers"),
        (
            damaged(put("tuned", 0, "signatures", 0, "values", value=["fp64", math.nan])),
            "signatures[0]: its field 'values' should be a list of values, and is ['fp64', nan]",
        ),
        (damaged(put(*TIMED, "configuration", value={"block": 64})), "a configuration has no value of x_type"),
        (damaged(lambda document: document["kernels"].append(document["kernels"][0])), "two entries of one kernel"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_as_it_should_be_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.wisdom.json"
    path.write_text(text)
    with pytest.raises(WisdomError) as caught:
        wisdom_of(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_files_that_are_missing_too_large_or_no_wisdom_are_left_alone(tmp_path: Path) -> None:
    wisdom_of(at_size(1000)).save(tmp_path / "poly.wisdom.json")
    with pytest.raises(WisdomError, match=r"no file .*did you mean '.*poly.wisdom.json'"):
        Wisdom.load(tmp_path / "poly.wisdm.json")
    with pytest.raises(WisdomError, match="cannot read"):
        Wisdom.load(tmp_path)
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(20 << 20)
    with pytest.raises(WisdomError, match="more than 16 MiB"):
        Wisdom.load(large)
    mine = tmp_path / "mine.json"
    mine.write_text('{"mine": 1}')
    with pytest.raises(WisdomError, match="is there already and is no wisdom file"):
        wisdom_of(at_size(1000)).save(mine)
    assert mine.read_text() == '{"mine": 1}'
    wisdom_of(at_size(1000), at_size(2000)).save(tmp_path / "poly.wisdom.json")
    with pytest.raises(WisdomError, match="cannot write"):
        wisdom_of(at_size(1000)).save(mine / "x.json")


def test_what_a_run_found_later_replaces_what_was_known_of_it_before() -> None:
    def run(error: float, draws: int) -> Run:
        trials = [trial(4, 1e-16), trial(1, error, draws, **HALF), trial(2, 1e-7, **SINGLE)]
        return run_of(POLY, trials, threshold=1e-3, created_at="2026-01-02T03:04:05+00:00")

    before, after = wisdom_of(run(9e-4, 3)), wisdom_of(run(2e-3, 23))
    assert before.kernels[0].tuned[0].best is not None
    assert wisdom_of(before, after).text() == wisdom_of(after, before).text() == after.text()
    (record,) = wisdom_of(before, run(2e-3, 23)).kernels[0].tuned
    assert record.by_signature["fp16", "fp16"].worst == {"error": 2e-3}
    assert record.best is not None
    assert record.best.configuration["x_type"] == "fp32"
    # Another run of the same time has another seed.
    other = Run(dataclasses.replace(run(9e-4, 3).info, seed=1), run(9e-4, 3).trials)
    assert len(wisdom_of(after, other).kernels[0].tuned) == 2


def test_the_command_gathers_and_show_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    mptune = caller(monkeypatch, capfd)
    paths = [saved(at_size(n), tmp_path / f"{n}.db") for n in (1000, 4000)]
    target = tmp_path / "poly.wisdom.json"
    made = mptune("wisdom", *paths, "-o", target)
    assert made.code == 0, made.err
    assert "kernel poly on " in made.out
    assert "2 runs at 2 sizes" in made.out
    shown = mptune("show", target)
    assert shown.code == 0, shown.err
    for text in (
        "n 1000",
        "n 4000",
        "0.001",
        "block=64",
        "error at n 4000",
        "x_type=fp16, y_type=fp16",
    ):
        assert text in shown.out
    document = json.loads(mptune("show", target, "--json").out)
    assert document == json.loads(target.read_text())
    assert document == json.loads(mptune("wisdom", target, *paths, "-o", target, "--json").out)
    assert "no winner" not in made.err + shown.out
    undecided(Wisdom.load(target), 4000, (0.9, 1.1)).save(tmp_path / "open.wisdom.json")
    note = "no winner at n 4000: the baseline is used there, unless another configuration is clearly faster"
    assert note in mptune("show", tmp_path / "open.wisdom.json").out
    assert note in mptune("wisdom", tmp_path / "open.wisdom.json", "-o", tmp_path / "again.wisdom.json").err
    before = target.read_bytes()
    (tmp_path / "bad.json").write_text('{"mptune_wisdom": 3}')
    refused = mptune("wisdom", tmp_path / "bad.json", *paths, "-o", target)
    assert refused.code == 2
    assert "wisdom of version 3" in refused.err
    assert target.read_bytes() == before
    assert mptune("show", tmp_path / "bad.json").code == 2
