"""Programs whose host computes from results: a run of the definition is one of the program itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.data.data import Draw, Stream
from mptune.kernel import Application
from mptune.measure.device import DeviceEvaluator
from mptune.results.trial import Status, Trial
from mptune.source.loading import load_tunable

PROGRAMS = Path(__file__).parent / "programs"
#: Vectors x and y of n numbers, and what each step does to them; the host decides by what it reads back.
PROGRAM = """
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

struct Body { double place; int charge; };
struct Law { double factor; int shift; };
__constant__ double table[4];
static __device__ double seen = 0.5;
__device__ double sums[2];

__global__ void step(const double* x, double* y, double scale, int n) {
    int i = threadIdx.x + blockDim.x * blockIdx.x;
    if (i < n) y[i] = x[i] * scale + 0.125;
}
__global__ void by_law(double* x, Law law, int n) {
    int i = threadIdx.x + blockDim.x * blockIdx.x;
    if (i < n) x[i] = x[i] * law.factor + law.shift;
}
__global__ void by_table(double* x, int n) {
    int i = threadIdx.x + blockDim.x * blockIdx.x;
    if (i < n) x[i] += table[i % 4];
}
__global__ void move(Body* bodies, const double* x, double scale, int n) {
    int i = threadIdx.x + blockDim.x * blockIdx.x;
    if (i < n) bodies[i].place = bodies[i].place * scale + x[i] * bodies[i].charge;
}
__global__ void look(const double* x) {
    seen += x[threadIdx.x];
    sums[1] = seen / 3;
}
__global__ void shuffle(double* x) { x[threadIdx.x] = __shfl_sync(~0u, x[threadIdx.x], 31 - threadIdx.x); }
int main(int argc, char** argv) {
    const int n = argc > 1 ? atoi(argv[1]) : 500;
    std::vector<double> h(n), g(n);
    for (int i = 0; i < n; ++i) h[i] = 1 + i % 7 / 3.0;
    double *x, *y;
    BODY
    double sum = 0;
    for (double each : h) sum += each;
    printf("sum %.6f\\n", sum);
    return std::isfinite(sum) ? 0 : 3;
}
"""
START = "cudaMalloc(&x, 8 * n); cudaMalloc(&y, 8 * n); cudaMemcpy(x, h.data(), 8 * n, cudaMemcpyHostToDevice);"
#: What the host does with the first number that it reads back; each is another way for that to reach the device.
BODIES = {
    "a number": "double s = 1 / h[0]; step<<<(n + 127) / 128, 128>>>(y, x, s, n);",
    "a struct by value": "Law law{1 / h[0], 2}; by_law<<<(n + 127) / 128, 128>>>(x, law, n);",
    "constant memory": (
        "double t[4] = {h[0], h[1] / 3, h[2], 1 / h[3]}; cudaMemcpyToSymbol(table, t, sizeof t);"
        "by_table<<<(n + 127) / 128, 128>>>(x, n);"
    ),
    "part of a buffer": (
        "double t[3] = {1 / h[0], h[1] / 3, h[2]}; cudaMemcpy(x + 100, t, sizeof t, cudaMemcpyHostToDevice);"
        "step<<<(n + 127) / 128, 128>>>(x, y, 0.75, n); std::swap(x, y);"
    ),
    "structs of several types": (
        "std::vector<Body> b(n); for (int i = 0; i < n; ++i) b[i] = Body{h[i] / 7, i % 3};"
        "Body* d; cudaMalloc(&d, sizeof(Body) * n); cudaMemcpy(d, b.data(), sizeof(Body) * n, cudaMemcpyHostToDevice);"
        "move<<<(n + 127) / 128, 128>>>(d, x, 1 / h[0], n);"
        "cudaMemcpy(b.data(), d, sizeof(Body) * n, cudaMemcpyDeviceToHost);"
    ),
    "variables of the device": (
        "double s[2] = {0, 0}, t; look<<<1, 1>>>(y); look<<<1, 1>>>(x); cudaMemcpyFromSymbol(s, sums, sizeof s);"
        "cudaMemcpyFromSymbol(&t, seen, sizeof t); step<<<(n + 127) / 128, 128>>>(y, x, s[1] + t, n);"
    ),
    "a kernel that is refused": "shuffle<<<1, 32>>>(y); step<<<(n + 127) / 128, 128>>>(y, x, 1 / h[0], n);",
    "a pointer into a buffer": "double s = 1 / h[0]; step<<<1, 128>>>(x + 64, y + 64, s, 128); std::swap(x, y);",
}


def body(way: str) -> str:
    first = "step<<<(n + 127) / 128, 128>>>(x, y, 0.3, n); cudaMemcpy(h.data(), y, 8 * n, cudaMemcpyDeviceToHost);"
    return f"{START} {first} {BODIES[way]} cudaMemcpy(h.data(), x, 8 * n, cudaMemcpyDeviceToHost);"


@contextmanager
def adopted(text: str, folder: Path, *arguments: str) -> Iterator[tuple[Application, DeviceEvaluator]]:
    (folder / "given.cu").write_text(text)
    adopt(AdoptSettings((folder / "given.cu",), arguments=arguments), folder / "made")
    found = load_tunable(folder / "made")
    assert isinstance(found, Application)
    assert found.timed == "launches"
    with DeviceEvaluator(found, found.resolve_sizes(), "host") as evaluator:
        yield found, evaluator


def trial(made: tuple[Application, DeviceEvaluator], **types: str) -> Trial:
    """Return the trial of a configuration in fp64 but for some types, each that of all with a part of its name."""
    kernel, evaluator = made
    offered = {p.name: p.values for p in kernel.parameters if p.name.endswith("_type")}
    values = {name: next((types[part] for part in types if part in name), "fp64") for name in offered}
    values = {name: value if value in offered[name] else "fp32" for name, value in values.items()}
    (found,) = evaluator.evaluate([kernel.configuration(values)])
    return found


@pytest.mark.full
@pytest.mark.parametrize("way", [*BODIES])
def test_what_the_host_computes_from_results_is_in_the_error(way: str, tmp_path: Path) -> None:
    with adopted(PROGRAM.replace("BODY", body(way)), tmp_path) as made:
        wide = trial(made)
        assert wide.status is Status.OK, wide.message
        assert wide.measurement.metrics["error"] < 1e-15
        narrow = trial(made, _type="fp32")
        assert narrow.status is Status.OK, narrow.message
        assert 1e-9 < narrow.measurement.metrics["error"] < 1e-6
        # What the host does takes no part in the time of a run.
        assert 0 < wide.time_ms < 50


@pytest.mark.full
def test_the_answer_is_that_of_the_same_arithmetic(tmp_path: Path) -> None:
    with adopted(PROGRAM.replace("BODY", body("a number")), tmp_path) as made:
        found = trial(made, x_type="fp32")
        n = 500
        x = (1 + np.arange(n) % 7 / 3).astype(np.float32)
        y = (x.astype(np.float64) * 0.3 + 0.125).astype(np.float32)
        scale = 1 / np.float64(y[0])
        ours = (y.astype(np.float64) * scale + 0.125).astype(np.float32).astype(np.float64)
        exact = (1 + np.arange(n) % 7 / 3) * 0.3 + 0.125
        exact = exact * (1 / exact[0]) + 0.125
        error = np.sqrt(np.mean((ours - exact) ** 2)) / np.mean(exact)
        assert found.measurement.metrics["error"] == pytest.approx(error, rel=0.5)


@pytest.mark.full
def test_a_loop_runs_until_it_converges_in_each_type(tmp_path: Path) -> None:
    with adopted((PROGRAMS / "until_converged.cu").read_text(), tmp_path) as made:
        wide = trial(made)
        narrow = trial(made, _type="fp32")
        assert (wide.status, narrow.status) == (Status.OK, Status.OK), narrow.message
        assert narrow.measurement.metrics["error"] < 1e-5
        # The program finds that it has not converged: that is a trial's status, with its words.
        coarse = trial(made, _type="bf16")
        assert coarse.status is Status.ERROR
        assert "exited with code 1" in coarse.message
        assert "FAIL" in coarse.message


@pytest.mark.full
def test_fresh_inputs_change_what_the_program_copies_first(tmp_path: Path) -> None:
    with adopted(PROGRAM.replace("BODY", body("a number")), tmp_path) as made:
        wide = made[0].configuration({})
        draws = [Draw(Stream.UNSEEN, number) for number in range(3)]
        for each in made[1].run_on_draws([wide], draws).trials:
            assert each.status is Status.OK, each.message
            assert each.measurement.metrics["error"] < 1e-15
