"""A kernel of Kernel Float and its script for Kernel Tuner, the way of Heldens 2026, without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

KERNEL = """
#include "kernel_float.h"
namespace kf = kernel_float;

__global__ void add_scaled(kf::vec_ptr<SUM, WIDTH> sum, kf::vec_ptr<const TERM, WIDTH> term,
                           FACTOR factor, const int n) {
    int i = blockIdx.x * BLOCK_SIZE_X + threadIdx.x;
    if (i < n / WIDTH) sum[i] += factor * term[i];
}
"""
SCRIPT = """
import json
import numpy as np
from kernel_tuner import tune_kernel
from kernel_tuner.accuracy import AccuracyObserver, TunablePrecision

n = np.int32(120000)
factor = np.float64(np.random.rand())
term, total = np.random.randn(2, n)
arguments = [
    TunablePrecision("SUM", total), TunablePrecision("TERM", term), TunablePrecision("FACTOR", factor), n
]
metrics = {
    "GFLOP/s": lambda p: (2 * n / 1e9) / (p["time"] / 1e3),
    "fitness": lambda p: p["GFLOP/s"] if np.log10(p["rmse"]) < -7 else 0,
}
types = ["double", "float", "half"]
results, env = tune_kernel(
    "add_scaled", "add_scaled.cu", n, arguments,
    {"BLOCK_SIZE_X": [128], "SUM": types, "TERM": types, "FACTOR": types, "WIDTH": [3]},
    answer=[total + factor * term, None, None, None], observers=[AccuracyObserver("RMSE", "rmse")], metrics=metrics,
    objective="fitness", compiler_options=["-std=c++17"], grid_div_x=["BLOCK_SIZE_X", "WIDTH"],
)
print(json.dumps([env["best_config"], [dict(each) for each in results]], default=float))
"""


@pytest.mark.full
def test_types_of_arguments_are_found_by_fitness(tmp_path: Path) -> None:
    (tmp_path / "add_scaled.cu").write_text(KERNEL)
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "mptune.kernel_tuner", "--backend", "host", str(tmp_path / "script.py")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    best, results = json.loads(ran.stdout.splitlines()[-1])
    assert len(results) == 27
    # float has enough digits for 1e-7, half has not; the fastest of those that have them is the best one.
    for each in results:
        assert (each["fitness"] > 0) == ("half" not in (each["SUM"], each["TERM"], each["FACTOR"]))
    assert best["fitness"] == max(each["fitness"] for each in results)
