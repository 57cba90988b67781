"""What the command line says of a program that was given other types."""

from __future__ import annotations

import pytest

from mptune.cli.adopting import print_patched, why_not_within


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
    assert "warning: on standard error it writes 'row 0 is wrong', the original nothing" in printed.err
    last = printed.err.splitlines()[-1]
    assert last.endswith("warning: NOT compared with the original's: u.bin (other bytes)")
    lines = printed.out.splitlines()
    blocks = {"flat": "256", "plane": "16 x 4", "column": "(as it was) x 8"}
    assert {f"blocks of {name}: {threads} threads" for name, threads in blocks.items()} <= set(lines)
    assert "its own check: passed as it was, FAILED now" in lines
    assert any(line.split("  ")[0] == "u.csv" and line.endswith("0.0002") for line in lines)
    assert lines[-1] == "new.cu"


@pytest.mark.parametrize(
    ("wrong", "codes", "why"),
    [
        (("x 1", "x nan"), None, "prints 'x nan' where the original prints 'x 1'"),
        (("x 1", ""), None, "prints nothing where the original prints 'x 1'"),
        (None, (0, 3), "ends with exit code 3, the original with 0"),
        (
            ("", "row 0 is wrong"),
            (0, 3),
            "prints 'row 0 is wrong' where the original prints nothing, and ends with exit code 3, the original with 0",
        ),
    ],
)
def test_what_is_not_the_original_s_is_told_in_one_line(
    wrong: tuple[str, str] | None, codes: tuple[int, int] | None, why: str
) -> None:
    names = ("original", "patched")
    said = {
        "wrong": wrong and dict(zip(names, wrong, strict=True)),
        "exit_codes": codes and dict(zip(names, codes, strict=True)),
    }
    assert why_not_within({"output": "new.cu", **said}) == f"new.cu is written, but NOT right: it {why}"
