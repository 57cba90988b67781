"""What errors of adopted programs leave out, and that everything says so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import caller

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.progress import came_to_nothing

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.nightly
def test_a_run_says_what_its_errors_leave_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = caller(monkeypatch, capfd)
    (tmp_path / "batches.cu").write_text((PROGRAMS / "batches.cu").read_text())
    options = ("--max-error", "1e-2", "--budget", "4", "--verify", "5", "--output", "run.db")
    done = command("tune", "batches.cu", *options)
    assert done.code == 0, done.err
    said = "what was there in earlier copies (out 3) only emit --into compares"
    assert said in done.err + done.out
    document = json.loads((tmp_path / "adopted" / "batches" / "adopted.json").read_text())
    assert len(document["caveats"]) == 1
    done = command("show", "run.db")
    assert "; the warnings say what errors leave out" in done.out
    assert said in " ".join(done.out.split())
    done = command("verify", "run.db", "--kernel", "./adopted/batches", "--inputs", "2")
    assert said in " ".join(done.err.split())


def test_few_numbers_that_come_to_nothing_are_told_from_answers() -> None:
    x, falling = [np.ones(32)], [np.array([10.0 ** (turn - 9)]) for turn in range(10)]
    assert came_to_nothing({"x": x, "rho": falling}) == ("rho",)
    assert came_to_nothing({"x": x, "rho": [falling[0], None, *falling[6:]]}) == ("rho",)
    others = {
        "large still": [np.array([turn]) for turn in (0.002, 0.5, 0.7, 1.0)],
        "once": falling[:1],
        "thrice": [falling[0], falling[5], falling[0], falling[9]],
        "grown": falling[::-1],
        "whole": [np.array([turn]) for turn in (0, 1, 10, 100, 1000)],
        "not finite": [*falling, np.array([np.inf])],
        "not kept": [None, *falling],
        "smaller before": [np.array([turn]) for turn in (1e-4, 1.0, 2.0, 1e-5)],
    }
    assert came_to_nothing({"x": x, **others}) == ()
    assert came_to_nothing({"rho": falling}) == ()
    assert came_to_nothing({"rho": falling, "labels": [np.arange(32)]}) == ()


@pytest.mark.full
def test_earlier_copies_that_are_not_compared_are_told(tmp_path: Path) -> None:
    made, _ = adopt(AdoptSettings((PROGRAMS / "batches.cu",)), tmp_path / "batches")
    assert made.caveats == (
        "errors are those of what is copied to the host last: what was there in earlier copies (out 3) only emit "
        "--into compares",
    )
