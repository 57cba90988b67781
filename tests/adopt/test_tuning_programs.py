"""``mptune tune PROGRAM``: it is adopted as ``mptune adopt`` does, with the same options."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_line import caller

PROGRAMS = Path(__file__).parent / "programs"


def test_a_program_is_adopted_with_the_options_of_adopt_and_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(PROGRAMS / "named_loop.cpp", tmp_path / "mean.cpp")
    how = ("-D", "WIDTH=9", "--loop", "blur", "--types", "2", "--kernel", "blur_loop")
    limits = ("--max-error", "1e-3", "--budget", "3", "--inputs", "1", "--verify", "0", "--output", "mean.db", "--json")
    done = caller(monkeypatch, capfd)("tune", "mean.cpp", *how, *limits)
    assert done.code == 0, done.err
    assert "adopted mean.cpp into" in done.err
    assert json.loads(done.out)["best"]["error"] <= 1e-3
    record = json.loads((tmp_path / "adopted" / "mean" / "adopted.json").read_text())
    assert [kernel["name"] for kernel in record["kernels"]] == ["blur_loop"]
    assert len(record["parameters"]) == 2
    assert record["program"]["defines"] == {"WIDTH": "9"}


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("--loop", ("--loop", "blur")),
        ("--kernel", ("--kernel", "blur")),
        ("--types", ("--types", "4")),
        ("-D", ("-D", "N=4")),
        ("-I", ("-I", ".")),
        ("--compile-commands", ("--compile-commands", "x.json")),
        ("arguments behind --", ("--", "3")),
    ],
)
def test_what_is_no_program_takes_none_of_them(
    option: str, given: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    done = caller(monkeypatch, capfd)("tune", "axpy", *given)
    assert (done.code, done.err) == (2, f"error: axpy takes no {option}: it is no program\n")
