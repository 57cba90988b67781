"""What errors of adopted programs leave out, and that everything says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import caller

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.capture import Capture, capture
from mptune.adopt.caveats import _is_even, _is_short, after_results, same_in_all_draws
from mptune.adopt.parsing import SourceFile
from mptune.adopt.progress import came_to_nothing
from mptune.adopt.running import build
from mptune.adopt.sequence import Call
from tests.tiers import few

PROGRAMS = Path(__file__).parent / "programs"


def captured(text: str, folder: Path) -> Capture:
    path = folder / "program.cu"
    path.write_text(text)
    return capture(build([path], [SourceFile.read(path)], optimisation="-O0"), (), folder / "record")


def fed_back(found: Capture) -> tuple[str, ...]:
    return after_results(found, lambda _: (), lambda id: f"memory {id}")


STEPS = """
#include <cstdio>
#include <vector>
__global__ void step(const double* x, double* y) { y[threadIdx.x] = 0.5 * x[threadIdx.x]; }
int main() {
  const int n = 32;
  double *x, *y;
  MEMORY
  for (int turn = 0; turn < 3; ++turn) { BODY }
  printf("%g\\n", LAST);
}
"""
MANAGED = """cudaMallocManaged(&x, n * sizeof(double)); cudaMallocManaged(&y, n * sizeof(double));
  for (int i = 0; i < n; ++i) x[i] = 1 + i;"""
DEVICE = """cudaMalloc(&x, n * sizeof(double)); cudaMalloc(&y, n * sizeof(double));
  std::vector<double> h(n, 1.0), given(n, 2.0), zeros(n);"""
UP, DOWN = (
    "cudaMemcpy(x, h.data(), n * sizeof(double), cudaMemcpyHostToDevice);",
    "cudaMemcpy(h.data(), y, n * sizeof(double), cudaMemcpyDeviceToHost);",
)
STEP = "step<<<1, n>>>(x, y); cudaDeviceSynchronize();"


@pytest.mark.parametrize(
    ("memory", "body", "last", "found"),
    few(
        [
            (MANAGED, f"{STEP} for (int i = 0; i < n; ++i) x[i] = y[i];", "x[0]", ("memory 0",)),
            (MANAGED, f"{STEP} std::swap(x, y);", "x[0]", ()),
            (DEVICE, f"{UP} {STEP} {DOWN}", "h[0]", ("memory 0",)),
            (DEVICE, f"{STEP} {DOWN} {UP.replace('h.data', 'zeros.data')}", "h[0]", ()),
            (DEVICE, f"{UP.replace('h.data', 'given.data')} {STEP} {DOWN}", "h[0]", ()),
        ],
        2,
    ),
)
def test_what_the_host_writes_after_it_could_see_results_is_found(
    memory: str, body: str, last: str, found: tuple[str, ...], tmp_path: Path
) -> None:
    text = STEPS.replace("MEMORY", memory).replace("BODY", body).replace("LAST", last)
    assert (
        fed_back(captured(text.replace("#include <vector>", "#include <utility>\n#include <vector>"), tmp_path))
        == found
    )


def test_numbers_of_the_program_and_times_are_told_from_results() -> None:
    assert all(map(_is_short, (0.5, 1e-3, -2.0, 123456.0, float("0.1"), 0.10000000149011612)))
    assert not any(map(_is_short, (1 / 3, 0.1234567, 2**0.5)))
    assert _is_even([1 / 3] * 4)
    assert _is_even([0.1 / 3 * turn for turn in range(5)])
    assert not _is_even([1 / 3, 1 / 9, 1 / 27])
    assert not _is_even([1 / 3])


def test_kernels_that_see_the_same_in_every_draw_are_found() -> None:
    roles = {name: {"x": "in", "y": "out"} for name in ("start", "before", "after")}
    calls = [
        Call("start", (("y", "a"),)),
        Call("before", (("x", "a"), ("y", "b"))),
        Call("vary", (("", "b"),)),
        Call("copy", (("", "b"), ("", "c"))),
        Call("after", (("x", "c"), ("y", "d"))),
    ]
    assert same_in_all_draws(calls, roles, (), has_varied_numbers=False) == ("start", "before")
    assert same_in_all_draws(calls, roles, ("a",), has_varied_numbers=False) == ("start",)
    with_number = [Call("start", (("y", "a"),), (("width", 0.5),)), *calls[1:]]
    assert same_in_all_draws(with_number, roles, (), has_varied_numbers=True) == ()


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
    said = "errors leave out the variable largest, which the program copies to the host"
    assert said in done.err + done.out
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
        "half of them": [np.ones(16) * turn for turn in falling],
        "not finite": [*falling, np.array([np.inf])],
        "not kept": [None, *falling],
        "smaller before": [np.array([turn]) for turn in (1e-4, 1.0, 2.0, 1e-5)],
    }
    assert came_to_nothing({"x": x, **others}) == ()
    assert came_to_nothing({"rho": falling}) == ()
    assert came_to_nothing({"rho": falling, "labels": [np.arange(32)]}) == ()


@pytest.mark.full
def test_variables_and_earlier_copies_that_are_not_compared_are_told(tmp_path: Path) -> None:
    made, _ = adopt(AdoptSettings((PROGRAMS / "batches.cu",)), tmp_path / "batches")
    assert made.caveats[0].startswith("errors leave out the variable largest, which the program copies to the host")
    assert "what was there in earlier copies (out 3) only emit --into compares" in made.caveats[1]
