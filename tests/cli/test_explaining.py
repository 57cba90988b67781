"""``mptune explain``: a table, a few sentences, and what is said where nothing can be measured."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from command_line import Call

from mptune import probing
from mptune.measure.roofline import Bound, Roofline
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run
from mptune.schemas import schema
from mptune.space.configuration import Configuration
from mptune.store import PROBE, RunFile
from mptune.tuning.sensitivity import WINNER, probe_key

OWN = Path(__file__).parent.parent / "own_kernel.py"
SPACE = Path(__file__).parents[2] / "benchmarks" / "data" / "axpy-host.json.gz"


@pytest.fixture
def explain(mptune: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setattr(Roofline, "bound", lambda *_: Bound(1e-3, 1e-3))
    return partial(mptune, "explain")


@pytest.mark.full
def test_a_table_and_sentences(explain: Call, run_file: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    first = explain(run_file, "--kernel", OWN)
    assert first.code == 0, first.err
    lines = first.out.splitlines()
    assert lines[0].startswith("poly, winner: ")
    header = next(line for line in lines if line.startswith("parameter"))
    assert header.split() == ["parameter", "from", "to", "digits", "speed", "error", "feasible"]
    # Two types of three values: two others for each.
    rows = lines[lines.index(header) + 1 :][:4]
    assert [row.split()[0] for row in rows] == ["x_type", "x_type", "y_type", "y_type"]
    assert all(row.split()[-1] in ("yes", "no") for row in rows)
    assert "One more digit (error <= 1e-06)" in first.out
    assert "One digit less (error <= 0.0001)" in first.out
    # Everything is known now.
    found = json.loads(explain(run_file, "--kernel", OWN, "--json").out)
    jsonschema.Draft202012Validator(schema("explain")).validate(found)
    assert found["unprobed"] == ""
    assert all(change["outcome"]["source"] in ("measured", "probed") for change in found["changes"])
    for sentence in found["sentences"]:
        assert sentence in first.out


def test_show_repeats_what_was_found_to_be_faster(mptune: Call, run_file: Path) -> None:
    assert "is against a baseline that is slower than this" not in mptune("show", run_file).out
    run = Run.load(run_file)
    assert run.best is not None
    configuration = Configuration({**run.best.configuration, "x_type": "fp64", "y_type": "fp64", "block": 32})
    theirs = {f"{WINNER}{name}": value for name, value in run.best.measurement.metrics.items()}
    ours = {"error": 1e-16, "time_ms": run.best.time_ms / 2, "speed_low": 1.9, "speed_high": 2.1}
    key = probe_key(run.best, run.info.template_hash, run.info.definition_hash)
    with RunFile.open(run_file) as file:
        file.add_all([Trial(configuration, Status.OK, measurement=Measurement({**theirs, **ours}), key=key)], PROBE)
    shown = " ".join(mptune("show", run_file).out.split())
    assert "it takes 0.5 times as long as the winner" in shown
    assert "is against a baseline that is slower than this; tune again with a larger --budget." in shown


def test_without_the_kernel(explain: Call, run_file: Path) -> None:
    outcome = explain(run_file)
    assert outcome.code == 0
    assert "Not measured: " in outcome.out
    assert "give its definition with --kernel" in outcome.out
    found = json.loads(explain(run_file, "--json").out)
    assert "--kernel" in found["unprobed"]
    # Two types of three values: two others for each.
    assert sorted(change["parameter"] for change in found["changes"]) == ["x_type"] * 2 + ["y_type"] * 2


def test_recorded_spaces(explain: Call) -> None:
    outcome = explain(SPACE)
    assert outcome.code == 0
    assert outcome.out.startswith("axpy")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.db",), "no file missing.db"),
        ((OWN,), "not a run file"),
        (("run.db", "--kernel", "axpy"), "the run is of kernel 'poly', not of 'axpy'"),
        (("run.db", "--kernel", "axpi"), "did you mean 'axpy'"),
    ],
)
@pytest.mark.usefixtures("run_file")
def test_wrong_files_and_kernels(explain: Call, arguments: tuple[object, ...], message: str) -> None:
    outcome = explain(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_an_interrupt_says_how_to_go_on(explain: Call, run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(probing._Session, "measure", interrupt)
    outcome = explain(run_file, "--kernel", OWN)
    assert outcome.code == 130
    assert "the same command goes on" in outcome.err
