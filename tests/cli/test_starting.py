"""Runs that start from earlier ones, at the command line: what is said of the sources, and which are refused."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
import sqlite3
from pathlib import Path

import pytest
from command_line import Call

from mptune.interop import read_run, write_run
from mptune.results.trial import Status, Trial
from mptune.run import Run

OWN = Path(__file__).parent.parent / "own_kernel.py"
TUNE = ("tune", OWN, "--backend", "host", "--size", "smoke", "--max-error", "1e-5", "--verify", 0)

pytestmark = pytest.mark.usefixtures("made_up")


def test_a_run_starts_from_earlier_ones_and_keeps_them_when_it_is_resumed(
    mptune: Call, tuned: Path, tmp_path: Path
) -> None:
    shutil.copy(tuned, tmp_path / "earlier.db")
    path = tmp_path / "run.db"
    begun = mptune(*TUNE, "--from", tmp_path / "earlier.db", "--budget", 4, "--output", path)
    assert begun.code == 0, begun.err
    assert re.search(r"earlier\.db +8 +\d\.\d\d +block, unroll, x_type, y_type\n", begun.out)
    resumed = mptune(*TUNE, "--budget", 6, "--output", path, "--resume", "--json")
    (use,) = json.loads(resumed.out)["sources"]
    assert use["source"] == str(tmp_path / "earlier.db")
    assert (use["trials"], use["parameters"]) == (8, ["block", "unroll", "x_type", "y_type"])
    assert "earlier.db" in mptune("show", path).out
    (tmp_path / "earlier.db").unlink()
    gone = mptune(*TUNE, "--budget", 6, "--output", path, "--resume")
    assert "earlier.db of the run no longer exists: the search continues without it" in gone.err
    (tmp_path / "damaged.db").write_bytes(path.read_bytes()[:3000])
    (tmp_path / "empty.db").touch()
    everything = mptune(*TUNE, "--from-all", "--budget", 4, "--output", tmp_path / "third.db", "--json")
    assert [Path(use["source"]).name for use in json.loads(everything.out)["sources"]] == ["run.db"]
    (said,) = [line for line in everything.err.splitlines() if "cannot be read" in line]
    assert f"run files in {tmp_path} that cannot be read are left out: 2, the first is " in said
    assert f"{tmp_path}/damaged.db" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tune", "axpy", "--backend", "host", "--from"), r"is of kernel 'poly', not 'axpy': expected the same kernel"),
        ((*TUNE, "--objective", "energy_j", "--from"), r"metric of source .*: 'energy_j'|energy"),
        ((*TUNE, "--strategy", "random", "--from"), "strategy random cannot start from earlier runs"),
    ],
)
def test_what_cannot_be_a_source_is_refused_in_a_line(
    mptune: Call, run_file: Path, tmp_path: Path, arguments: tuple[object, ...], message: str
) -> None:
    done = mptune(*arguments, run_file, "--output", tmp_path / "new.db")
    assert (done.code, done.out) == (2, "")
    assert re.search(message, done.err), done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "new.db").exists()


def test_recordings_that_are_no_source(mptune: Call, run_file: Path, tmp_path: Path) -> None:
    """Each is refused in a line that names it, and what was there is as it was."""
    recorded = read_run(run_file)
    in_seconds = dataclasses.replace(recorded.info, units={"time_ms": "s"})
    write_run(Run(in_seconds, recorded.trials), tmp_path / "seconds.json", "space")
    failed = [Trial(t.configuration, Status.LAUNCH_ERROR, "no") for t in recorded.trials]
    write_run(recorded.derive(trials=failed), tmp_path / "failed.json", "space")
    shutil.copy(run_file, tmp_path / "newer.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "newer.db")) as newer:
        newer.execute("PRAGMA user_version = 99")
    (tmp_path / "empty.db").touch()
    before = run_file.read_bytes()
    for source, message in (
        (tmp_path / "seconds.json", "seconds.json has time_ms in s, the search has it in ms"),
        (tmp_path / "failed.json", "failed.json: none of its 8 trials ran, so their times are unknown"),
        (tmp_path / "newer.db", r"newer.db has format 99 and this mptune reads \d+: upgrade mptune"),
        (tmp_path / "empty.db", "empty.db: the file is empty"),
        (tmp_path, "is a folder: expected a run file or a recorded space .*--from-all"),
    ):
        for command in ((*TUNE, "--output", run_file, "--resume"), ("simulate", run_file)):
            done = mptune(*command, "--from", source)
            assert (done.code, done.out) == (2, "")
            assert re.search(message, done.err), done.err
            assert done.err.count("\n") == 1
    assert run_file.read_bytes() == before
