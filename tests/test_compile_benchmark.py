"""The benchmark of compile times: what it measures, what it keeps, and what it says to wrong input."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mptune.registry import load_kernel

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import compile_all as benchmark  # noqa: E402


def row_of(report: str) -> list[str]:
    (line,) = re.findall(r"^\| axpy \| host .* \| 64 \|.*$", report, re.MULTILINE)
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.full
def test_a_run_goes_on_from_what_is_remembered_and_keeps_the_notes(tmp_path: Path) -> None:
    work, output = tmp_path / "work.jsonl", tmp_path / "folder" / "compile.md"

    def run(sample: int) -> list[str]:
        options = {"--kernels": "axpy", "--backends": "host", "--jobs": "1", "--sample": str(sample)}
        paths = {"--work": str(work), "--output": str(output)}
        assert benchmark.main([text for option in (options | paths).items() for text in option]) == 0
        return row_of(output.read_text())

    first = run(1)
    assert first[2:5] == ["64", "1", "0"]
    assert float(first[7]) > 0.01
    output.write_text(output.read_text() + "\nWhat was found out.\n")
    remembered = work.read_text()
    # A second measurement would not agree to every digit, nor would it leave the file as it is.
    assert run(1) == first
    assert work.read_text() == remembered
    assert run(2)[3] == "2"
    assert work.read_text().startswith(remembered)
    assert len(work.read_text().splitlines()) == 2
    assert output.read_text().endswith(f"{benchmark.NOTES}\n\nWhat was found out.\n")


def test_failures_are_counted_and_shown() -> None:
    kernel = load_kernel("axpy")
    target = benchmark.Target("cuda", "sm_90")
    fine, broken = benchmark.chosen(kernel, target, 2)
    compiled = (benchmark.Compiled(fine, 0.2, ""), benchmark.Compiled(broken, 0.7, "line one\nline two"))
    row = benchmark.Row("axpy", target, 64, compiled)
    assert [c.configuration for c in row.over] == [broken]
    assert row.slowest.configuration == broken
    assert (row.quantile(0.5), row.quantile(0.95)) == (0.2, 0.7)
    lines = benchmark.failure_lines([row])
    assert str(broken) in lines[2]
    assert lines[2].endswith("      line one\n      line two\n      ")


def test_a_rejected_source_is_a_failure_with_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPTUNE_CACHE_DIR", "is restored afterwards")
    cpu_s, message = benchmark.compile_one(benchmark.Task(benchmark.Target("host", ""), "f", "#error nothing here\n"))
    assert "nothing here" in message
    assert cpu_s > 0


def test_the_time_of_a_child_that_lives_on_counts() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    before_s = benchmark._cpu_s()
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert 0.25 <= benchmark._cpu_s() - before_s < 3.0
        child.communicate(b"\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kernels", "axpi"], "did you mean 'axpy'"),
        (["--backends", "hots"], "did you mean 'host'"),
        (["--backends", "host", "--arch", "sm_90"], "--arch sm_90: cuda is not among the backends"),
        (["--backends", "host", "--jobs", "0"], "--jobs needs at least 1, not 0"),
        (["--backends", "host", "--sample", "0"], "--sample needs at least 1, not 0"),
    ],
)
def test_wrong_input(arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main([*arguments, "--output", str(tmp_path / "report.md")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "report.md").exists()
