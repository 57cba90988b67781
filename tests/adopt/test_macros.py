"""Macros of a program whose values are tuned."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import caller

from mptune.adopt.into import IntoSettings, into
from mptune.results.trial import Status
from mptune.run import Run

#: A stencil in shared memory whose block is a macro of the host and the device.
PROGRAM = r"""
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
#define BLOCK 128
__global__ void smooth(const double *a, double *b, int n) {
    __shared__ double s[BLOCK + 2];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    s[threadIdx.x + 1] = i < n ? a[i] : 0.0;
    if (threadIdx.x == 0) s[0] = i > 0 ? a[i - 1] : 0.0;
    if (threadIdx.x == BLOCK - 1) s[BLOCK + 1] = i + 1 < n ? a[i + 1] : 0.0;
    __syncthreads();
    if (i < n) b[i] = s[threadIdx.x] + s[threadIdx.x + 1] * 0.5 + s[threadIdx.x + 2];
}
int main() {
    int n = 1003;
    std::vector<double> a(n), b(n);
    for (int i = 0; i < n; ++i) a[i] = 1.0 / (i + 3);
    double *da, *db;
    cudaMalloc(&da, n * sizeof(double));
    cudaMalloc(&db, n * sizeof(double));
    cudaMemcpy(da, a.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    smooth<<<(n + BLOCK - 1) / BLOCK, BLOCK>>>(da, db, n);
    cudaMemcpy(b.data(), db, n * sizeof(double), cudaMemcpyDeviceToHost);
    printf("%.12f\n", b[n / 2]);
}
"""


@pytest.mark.full
def test_a_macro_is_tuned_on_host_and_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mptune = caller(monkeypatch, capfd)
    (tmp_path / "smooth.cu").write_text(PROGRAM)
    command = ["tune", "smooth.cu", "--macro", "BLOCK=32,64,128", "--max-error", "1e-5", "--backend", "host"]
    assert mptune(*command, "--budget", "12", "--verify", "2", "-o", "run.db").code == 0
    run = Run.load("run.db")
    assert {trial.configuration["BLOCK"] for trial in run.trials} == {32, 64, 128}
    exact = [
        each for each in run.trials if {v for n, v in each.configuration.items() if n.endswith("_type")} == {"fp64"}
    ]
    assert exact
    assert all(trial.error == 0 for trial in exact)
    of_64 = next(each for each in run.trials if each.status is Status.OK and each.configuration["BLOCK"] == 64)
    other = into(run, of_64, run.objective, IntoSettings(Path("smooth.cu"), Path("new.cu")), on_progress=lambda _: None)
    assert other["error"] == pytest.approx(of_64.error, rel=0.5, abs=1e-15)
    assert "#define BLOCK 64\n" in Path("new.cu").read_text()
    assert "in the text: #define BLOCK 64 instead of 128" in other["notes"]


@pytest.mark.full
def test_a_macro_that_no_file_defines_is_told_and_the_original_keeps_the_value_of_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mptune = caller(monkeypatch, capfd)
    text = PROGRAM.replace("b[n / 2]", "b[n / 2] + BLOCK + PART - PART").replace(
        "#define BLOCK 128", "#define BLOCK 256 // threads"
    )
    (tmp_path / "smooth.cu").write_text(text)
    adopted = mptune(
        "adopt", "smooth.cu", "--macro", "BLOCK=32,64", "--macro", "PART=1,2", "--backend", "host", "-o", "made"
    )
    assert adopted.code == 0, adopted.err
    assert mptune("tune", "made", "--max-error", "1e-5", "--backend", "host", "--budget", "8", "-o", "run.db").code == 0
    run = Run.load("run.db")
    trial = next(each for each in run.trials if each.status is Status.OK and each.configuration["PART"] == 2)
    block = trial.configuration["BLOCK"]
    made = into(run, trial, run.objective, IntoSettings(Path("smooth.cu"), Path("new.cu")), on_progress=lambda _: None)
    assert f"#define BLOCK {block} // threads\n" in Path("new.cu").read_text()
    assert "compile it with -D PART=2" in made["notes"]
    assert f"in the text: #define BLOCK {block} instead of 256" in made["notes"]
    assert made["printed"]["original"].startswith("256.")
    assert made["printed"]["patched"].startswith(f"{block}.")


@pytest.mark.full
def test_values_that_the_program_does_not_take_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mptune = caller(monkeypatch, capfd)
    (tmp_path / "smooth.cu").write_text(PROGRAM)
    taken = mptune("adopt", "smooth.cu", "--macro", "BLOCK=64,128,2048", "--backend", "host")
    assert taken.code == 0
    assert "BLOCK=2048 is left out" in taken.err
    missing = mptune("adopt", "smooth.cu", "--macro", "BLOCKS=64,128", "--backend", "host")
    assert missing.code == 2
    assert "did you mean 'BLOCK'" in missing.err
    (tmp_path / "sums.cu").write_text(PROGRAM.replace("cudaMalloc(&db, n *", "cudaMalloc(&db, (n + BLOCK) *"))
    sized = mptune("adopt", "sums.cu", "--macro", "BLOCK=64,128", "--backend", "host")
    assert sized.code == 2
    assert "BLOCK=64 is left out: the program allocates memory of other sizes" in sized.err
