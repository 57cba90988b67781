"""Every program of ``benchmarks`` runs at its smallest size, ends well, and prints a finite number."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from vendor_compilers import needs

from benchmarks import transfer
from mptune.interop import write_run
from mptune.interop.recorded import Record, assemble
from mptune.results.trial import Measurement, Status
from tests.support.simulator import environment

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
NUMBER = r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
NARROW = "--restrict y_type=fp32 --restrict x_type=fp32 --restrict a_type=fp32 --sample 2 --size smoke"
ONE = "--seeds 1 --slow-seeds 1 --budget 20 --strategies random --peers none --processes 1"
BBAC = "--applications bbac --parts ways --size bbac:cells=200 --size bbac:years=4"
#: Words, in which {out} is a folder and {data} the project's recordings, and what stands before the number.
PROGRAMS = {
    "adopt": (
        "--programs friction --parts programs --thresholds 1e-3 --budget 2 --output {out}/a.md",
        r"[|] friction [|].*[|] passed [|] [^|]* [|] ",
    ),
    "applications": (f"{BBAC} --seeds 1 --budget 9 --output {{out}}/a.md", "[|] bbac [|] "),
    "kernels": (
        "--kernels axpy --size smoke --rounds 2 --candidates 1 --budget 3 --runs {out} --output {out}/a.md --json",
        '"speedup": ',
    ),
    "papers": ("h-t2 l-f15 --quick --budget 4 --output {out} --work {out}", "configurations differs by "),
    "mistakes": ("work_queue --budget 4", '"wall_s": '),
    "opencl": ("--alone --budget 3 --rounds 1 --elements 1031 --output {out}/a.md --json", '"per_second": '),
    "pareto_quality": (
        "--data {data} --only axpy --tools 'mptune random' --seeds 1 --budget 6 --work {out}/w --output {out}",
        "axpy-host time,error [|] ",
    ),
    "record": (f"axpy --work {{out}}/w --output {{out}} {NARROW}", "axpy-host-0: "),
    "search_quality": (
        f"--sections timing,mixed --spaces {{out}} --data {{data}} --only axpy,toy-one {ONE} --work {{out}}/w "
        "--output {out}",
        "mptune random [|] ",
    ),
    "sizes": ("--errors --kernels axpy --types 1 --draws 2 --output {out}/a.md", "_axpy_ [|] "),
    "startup": ("--rounds 1 --output {out}/a.md", "mptune --help` [|] "),
    "throughput": ("--budget 3 --rounds 1 --alone --output {out}/a.md --json", '"per_second": '),
    "timing_quality": ("statistics --output {out}/a.md", "always busy [|] "),
    "trust": ("--seeds 1 --budget 8 --only work_queue --output {out}/a.md", "wrong winners [|] "),
    "unseen": ("--kernels axpy --budget 3 --draws 5 --output {out}/a.md", "axpy [|] 0.01 [|] "),
}
NEEDS = {"opencl": needs("opencl")}
#: Their exit code 1 says that a limit was missed, as it may be on a busy machine.
MAY_MISS = ("startup", "trust")


def write_recordings(folder: Path) -> None:
    """Write one kernel's recordings on two devices."""
    for device, scale in (("one", 1.0), ("two", 5.0)):
        records = []
        for row in itertools.product(range(1, 21), range(1, 11)):
            time_ms = scale * (1.0 + (row[0] - 13) ** 2 / 40 + (row[1] - 4) ** 2 / 9)
            spent = {"compile": 0.5, "timing": 0.5}
            records.append(Record(row, Status.OK, measurement=Measurement({"time_ms": time_ms}, durations_s=spent)))
        recorded = assemble(f"toy-{device}", ("block", "tile"), {}, records, kernel="k", device=f"ACME {device}")
        write_run(recorded, folder / f"toy-{device}.json.gz", "cache")


def run(name: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *words]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)


def number_after(pattern: str, text: str) -> float:
    found = re.search(pattern + NUMBER, text)
    assert found is not None, text
    return float(found[1])


@pytest.mark.parametrize("name", [pytest.param(name, marks=NEEDS.get(name, ())) for name in PROGRAMS])
def test_a_program_ends_well_and_prints_a_finite_number(name: str, tmp_path: Path) -> None:
    words, pattern = PROGRAMS[name]
    write_recordings(tmp_path)
    words = words.format(out=tmp_path, data=ROOT / "benchmarks" / "data")
    done = run(name, *shlex.split(words))
    assert done.returncode in ((0, 1) if name in MAY_MISS else (0,)), done.stderr
    pages = [path.read_text() for path in sorted(tmp_path.glob("*.md"))]
    assert math.isfinite(number_after(pattern, "\n".join([done.stdout, done.stderr, *pages])))


def test_scripts_of_a_folder_are_run(tmp_path: Path) -> None:
    scripts = {"runs": "", "refuses": ", texmem_args={'x': x}", "fails": ", answer=[x[1:], None]"}
    for name, more in scripts.items():
        (tmp_path / f"{name}.py").write_text(
            "import numpy, kernel_tuner\n"
            "x = numpy.arange(64, dtype=numpy.float32)\n"
            "text = '__global__ void twice(float *y, const float *x) { int i = threadIdx.x; y[i] = 2 * x[i]; }'\n"
            f"kernel_tuner.tune_kernel('twice', text, 64, [x * 0, x], {{'block_size_x': [64]}}{more})\n"
        )
    done = run("front_door", str(tmp_path), "--output", str(tmp_path / "page.md"))
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.md").read_text()
    assert "1 of 3 scripts ran" in page
    assert "texmem_args" in page
    assert number_after(r"[|] runs.py [|] ran [|] \d+ [|] ", page) == 1


def test_searches_from_earlier_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_SOURCE", 40)
    monkeypatch.setattr(transfer, "_BUDGET", 12)
    write_recordings(tmp_path)
    assert transfer.main(["--spaces", str(tmp_path), "--seeds", "1", "--output", str(tmp_path / "t.md")]) == 0
    assert number_after("[|] toy-one [|] ", capsys.readouterr().out) >= 0


def test_axpy_on_a_simulated_gpu_and_what_is_compiled_beforehand_is_not_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "simulated").mkdir()
    variables = {**environment(tmp_path / "simulated"), "MPTUNE_CACHE_DIR": str(tmp_path / "cache")}
    words = f"--output {tmp_path}/gpu.md --size smoke --sections axpy --candidates 1 --rounds 2".split()

    def compiled(*more: str) -> set[Path]:
        done = run("gpu", *words, *more, **variables)
        assert done.returncode == 0, done.stderr
        return {path for path in (tmp_path / "cache" / "binaries").rglob("*") if path.is_file()}

    assert compiled("--compile", "sm_90") == compiled() != set()
    rows = json.loads((tmp_path / "gpu.json").read_text())["rows"]
    assert [row["result"]["device"].partition(" (")[0] for row in rows.values()] == ["CUDA device"] * 4
    for row in rows.values():
        assert len(set(row["result"]["times_ms"])) == 1  # by the device's clock, not this machine's
