"""Recording a space: what was measured otherwise is not taken for it, and wrong input is told in words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import record  # noqa: E402
from mptune.interop import read_recording  # noqa: E402

TYPES = ("--restrict", "y_type=fp32", "--restrict", "x_type=fp32,fp16", "--restrict", "a_type=fp32", "--sample", "2")


def recorded(tmp_path: Path, *words: str) -> int:
    return record.main(["axpy", "--work", str(tmp_path / "work"), "--output", str(tmp_path), *words])


@pytest.mark.full
def test_times_of_one_size_are_none_of_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert recorded(tmp_path, *TYPES, "--size", "smoke") == 0
    space = read_recording(tmp_path / "axpy-host.json.gz")
    assert space.problem_size == {"n": 10_007}
    before = (tmp_path / "axpy-host.json.gz").read_bytes()
    capsys.readouterr()
    assert recorded(tmp_path, *TYPES, "--size", "default") == 2
    said = capsys.readouterr().err
    assert "axpy-host-0.db was measured with sizes {'n': 10007}, not {'n': 8000000}: give another --work folder" in said
    assert recorded(tmp_path, *TYPES, "--size", "smoke", "--seed", "1") == 2
    assert "was measured with seed 0, not 1" in capsys.readouterr().err
    assert (tmp_path / "axpy-host.json.gz").read_bytes() == before
    # The same again goes on with what is there.
    assert recorded(tmp_path, *TYPES, "--size", "smoke") == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--restrict", "x_tpye=fp32"), "unknown parameter 'x_tpye'; did you mean 'x_type'?"),
        (("--restrict", "x_type"), "--restrict x_type: expected NAME=VALUE,VALUE"),
        (("--sample", "-1"), "--sample must be at least 1, not -1"),
        (("--passes", "0"), "--passes must be at least 1, not 0"),
        (("--jobs", "0"), "--jobs must be at least 1, not 0"),
    ],
)
def test_wrong_input_is_told_and_nothing_is_written(
    words: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recorded(tmp_path, "--size", "smoke", *words) == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
