"""What the command line says of a program that was given other types."""

from __future__ import annotations

import pytest

from mptune.cli.adopting import print_patched


def test_blocks_are_told_along_the_axes_that_are_tuned(capsys: pytest.CaptureFixture[str]) -> None:
    document = {
        "types": [],
        "blocks": {"flat": [256], "plane": [16, 4, 0], "column": [0, 8, 0]},
        "notes": [],
        "compiled": {},
        "arguments": ["64"],
        "time_s": {"original": 2.0, "patched": 1.0},
        "check": {"original": "passed", "patched": "failed"},
        "metric": "NRMSE",
        "threshold": {"NRMSE": 1e-3},
        "error": 2e-4,
        "printed": None,
        "wrong": None,
        "written": [{"name": "u.csv", "how": "9 numbers in 3 lines of text", "error": 2e-4, "within": True}],
        "files": ["new.cu"],
    }
    print_patched(document)
    lines = capsys.readouterr().out.splitlines()
    assert "blocks of flat: 256 threads" in lines
    assert "blocks of plane: 16 x 4 threads" in lines
    assert "blocks of column: (as it was) x 8 threads" in lines
    assert "its own check: passed as it was, FAILED now" in lines
    assert any(line.split("  ")[0] == "u.csv" and line.endswith("0.0002") for line in lines)
    assert lines[-1] == "new.cu"
