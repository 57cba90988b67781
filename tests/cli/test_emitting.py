"""``mptune emit`` as a user meets it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import own_kernel
import pytest
from awkward_kernel import run_of
from command_line import Call
from described import create

from mptune.results.trial import Measurement, Status, Trial
from mptune.store import RunFile

OWN = Path(own_kernel.__file__)
POLY = own_kernel.kernel
FILES = {"README.md", *(f"tuned_poly{end}" for end in (".cu", ".hpp", "_host.cpp", "_cuda.cu", "_hip.hip", "_cupy.py"))}


@pytest.fixture
def emit(mptune: Call) -> Call:
    return partial(mptune, "emit")


def run_file(path: Path, **settings: Any) -> Path:
    trials = [
        Trial(POLY.configuration({}), Status.OK, "", Measurement({"time_ms": 2.0, "error": 1e-16}), key="a"),
        Trial(
            POLY.configuration({"x_type": "fp32"}), Status.OK, "", Measurement({"time_ms": 1.5, "error": 1e-8}), key="b"
        ),
        Trial(
            POLY.configuration({"x_type": "fp16"}),
            Status.INACCURATE,
            "error 0.01 is above the threshold",
            Measurement({"time_ms": 1.0, "error": 1e-2}),
            key="c",
        ),
    ]
    run = run_of(POLY, trials, kernel_path=str(OWN), threshold=1e-3, **settings)
    with create(path, run) as file:
        for trial in trials:
            file.add(trial)
    return path


def test_the_winner_is_written_with_all_its_files(emit: Call, tmp_path: Path) -> None:
    run = run_file(tmp_path / "run.db")
    code, out, err = emit(run, "--kernel", OWN)
    assert code == 0, err
    assert {path.name for path in (tmp_path / "tuned" / "poly").iterdir()} == FILES
    assert "1.5 ms, speedup 1.33x (unsettled), error 1e-08" in out
    assert "tuned/poly/tuned_poly.cu" in out


def test_another_threshold_is_another_winner_and_none_is_exit_code_one(emit: Call, tmp_path: Path) -> None:
    run = run_file(tmp_path / "run.db")
    for threshold, time_ms in (("1e-10", 2.0), ("0.1", 1.0)):
        code, out, _ = emit(run, "--kernel", OWN, "-o", "there", "--max-error", threshold, "--json")
        assert code == 0
        document = json.loads(out)
        assert document["time_ms"] == time_ms
        assert document["threshold"] == float(threshold)
        assert set(document["files"]) == FILES
    code, out, err = emit(run, "--kernel", OWN, "-o", "nowhere", "--max-error", "1e-30", "--json")
    assert (code, out) == (1, "")
    assert "no trial satisfies the threshold; the closest: error 1e-16 is above the threshold\n" in err
    assert not (tmp_path / "nowhere").exists()


def test_the_readme_has_the_warnings_and_says_whether_it_was_verified(emit: Call, tmp_path: Path) -> None:
    doubt = "the baseline's error, 0.1, is more than rounding explains"
    path, readme = run_file(tmp_path / "run.db"), tmp_path / "tuned" / "poly" / "README.md"
    assert emit(path, "--kernel", OWN).code == 0
    assert "It was not verified on unseen inputs: run `mptune verify`." in readme.read_text()
    with RunFile.open(path) as file:
        file.update(replace(file.state, warnings=(doubt, "the machine was busy"), unverified="none could be made"))
    assert emit(path, "--kernel", OWN).code == 0
    before, _, meaning = readme.read_text().partition("## What the error means")
    assert "Warning of the run: `the machine was busy`" in before
    assert f"**The run warned:** `{doubt}`" in meaning
    assert "It was verified on no unseen input: `none could be made`" in meaning
    with RunFile.open(path) as file:
        file.update(replace(file.state, warnings=()))
        trial = file.trials()[1]
        seen = {"unseen_inputs": 5.0, "unseen_violations": 0.0, "unseen_error": 1e-8}
        file.add(trial.with_measurement(metrics={**trial.measurement.metrics, **seen}))
    assert emit(path, "--kernel", OWN).code == 0
    assert "\nVerified: within 1e-3 on 5 of 5 unseen inputs" in readme.read_text()


def test_several_devices_need_the_option_and_get_a_header(emit: Call, tmp_path: Path) -> None:
    runs = [run_file(tmp_path / f"{name}.db", device=name) for name in ("A 100", "MI/250")]
    code, _, err = emit(*runs, "--kernel", OWN)
    assert code == 2
    assert "add --all-devices" in err
    code, out, err = emit("--all-devices", *runs, "--kernel", OWN, "-o", "both")
    assert code == 0, err
    assert "both/tuned_poly.hpp" in out
    assert {path.name for path in (tmp_path / "both").iterdir()} == {"tuned_poly.hpp", "a_100", "mi_250"}
    code, _, err = emit("--all-devices", *runs, "--configuration", "1")
    assert code == 2
    assert "exclude each other" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-error", "0"), "expected a positive number"),
        (("--configuration", "77"), "the run has the trials 1 to 3"),
        (("--kernel", "axpy"), "the run is of kernel 'poly', not of 'axpy'"),
    ],
)
def test_mistakes_are_told(emit: Call, tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    kernel = () if "--kernel" in options else ("--kernel", OWN)
    code, out, err = emit(run_file(tmp_path / "run.db"), *kernel, *options)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
