"""``mptune explain``: a table, a few sentences, and what is said where nothing can be measured."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from command_line import Call
from made_up_devices import MadeUpDevices

from mptune.schemas import schema

OWN = Path(__file__).parent.parent / "own_kernel.py"


@pytest.fixture
def explain(mptune: Call) -> Call:
    return partial(mptune, "explain")


@pytest.mark.usefixtures("made_up")
def test_a_table_and_sentences(explain: Call, run_file: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    first = explain(run_file, "--kernel", OWN)
    assert first.code == 0, first.err
    lines = first.out.rstrip().splitlines()
    assert lines[0].startswith("poly, winner: ")
    header = next(line for line in lines if line.startswith("parameter"))
    assert header.split() == ["parameter", "from", "to", "digits", "speed", "error", "feasible"]
    rows = lines[lines.index(header) + 1 :]
    assert {row.split()[0] for row in rows} == {"x_type", "y_type"}
    assert all(row.split()[-1] in ("yes", "no") for row in rows)
    assert "One digit more (error <= 1e-06)" in first.out
    assert "One digit less (error <= 0.0001)" in first.out
    # Everything is known now.
    found = json.loads(explain(run_file, "--kernel", OWN, "--json").out)
    jsonschema.Draft202012Validator(schema("explain")).validate(found)
    assert found["unmeasured"] == ""
    assert all(change["outcome"]["speed_interval"] for change in found["changes"])


def test_without_the_kernel(explain: Call, run_file: Path) -> None:
    outcome = explain(run_file)
    assert outcome.code == 0
    assert "Not measured: " in outcome.out
    assert "give its definition with --kernel" in outcome.out
    found = json.loads(explain(run_file, "--json").out)
    assert "--kernel" in found["unmeasured"]
    assert {change["parameter"] for change in found["changes"]} == {"x_type", "y_type"}


def test_an_interrupt_says_how_to_go_on(explain: Call, run_file: Path, made_up: MadeUpDevices) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    made_up.ask = interrupt  # type: ignore[method-assign]
    outcome = explain(run_file, "--kernel", OWN)
    assert outcome.code == 130
    assert "the same command goes on" in outcome.err
