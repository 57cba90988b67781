"""What the command line says of a program that was given other types."""

from __future__ import annotations

import pytest

from mptune.cli.adopting import excess_text, print_patched


def test_times_checks_and_files_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    document = {
        "types": [],
        "notes": [],
        "compiled": {},
        "arguments": ["64"],
        "kernels_s": {"original": 1.5, "patched": 0.5},
        "program_s": {"original": 2.0, "patched": 1.0},
        "check": {"original": "passed", "patched": "failed"},
        "metric": "NRMSE",
        "threshold": {"NRMSE": 1e-3},
        "error": 2e-4,
        "printed": None,
        "wrong": None,
        "complaints": {"original": "", "patched": "row 0 is wrong"},
        "exit_codes": None,
        "written": [
            {"name": "u.csv", "how": "9 numbers in 3 lines of text", "error": 2e-4, "within": True},
            {"name": "u.bin", "how": "not compared: other bytes", "error": None, "within": None},
        ],
        "files": ["new.cu"],
    }
    print_patched(document)
    printed = capsys.readouterr()
    assert "warning: its output on standard error differs" in printed.err
    last = printed.err.splitlines()[-1]
    assert last.endswith("warning: NOT compared with the original's: u.bin (other bytes)")
    lines = printed.out.splitlines()
    rows = {tuple(part.strip() for part in line.split("  ") if part) for line in lines}
    times = {("time of its kernels (s)", "1.5", "0.5"), ("time of the whole program (s)", "2", "1")}
    assert {*times, ("its own check", "passed", "failed")} <= rows
    assert any(line.split("  ")[0] == "u.csv" and line.endswith("0.0002") for line in lines)
    assert lines[-1] == "new.cu"


@pytest.mark.parametrize(
    ("different", "why"),
    [
        (("wrong",), "prints something else"),
        (("exit_codes",), "ends with another exit code"),
        (("wrong", "exit_codes"), "prints something else and ends with another exit code"),
    ],
)
def test_what_is_not_the_original_s_is_told_in_one_line(different: tuple[str, ...], why: str) -> None:
    said = {name: {"original": "x 1", "patched": "x nan"} for name in different}
    document = {"output": "new.cu", "within": False, "slower": False, "wrong": None, "exit_codes": None, **said}
    assert excess_text(document) == f"new.cu is written, but NOT right: it {why}"
