"""Kernel Tuner's interface: its scripts run as they stand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mptune.errors import MptuneError
from mptune.kernel_tuner import AccuracyObserver, TunablePrecision, run_kernel, tune_kernel

ADD = """
#include <cuda_fp16.h>
using half = __half;
template <typename T>
__global__ void __launch_bounds__(256) add(int n, const T* left, const T* right, T* output) { // f(int k)
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { output[i] = left[i] + right[i]; }
}
"""
TILED = """
extern "C" __global__ void scale(float *y, float *x, int n) {
    for (int k = 0; k < tile; ++k) {
        int i = (blockIdx.x * tile + k) * block_size_x + threadIdx.x;
        if (i < n) y[i] = factor[0] * x[i];
    }
}
"""


@pytest.mark.full
def test_a_kernel_runs_once() -> None:
    x = np.random.default_rng().random(1001, np.float32)
    text = "__constant__ float factor[1];\n" + TILED
    y, same, n = run_kernel(
        *("scale", text, x.size, [np.zeros_like(x), x, np.int32(x.size)], {"block_size_x": 32, "tile": 3}),
        grid_div_x=["block_size_x", "tile"],
        cmem_args={"factor": np.array([2.5], np.float32)},
        backend="host",
    )
    np.testing.assert_array_equal(y, np.float32(2.5) * x)
    assert np.array_equal(same, x)
    assert n == x.size


@pytest.mark.full
def test_every_configuration_is_evaluated(tmp_path: Path) -> None:
    x = np.random.default_rng().random(4001, np.float32)
    given = [np.zeros_like(x), x, np.int32(x.size)]
    results, env = tune_kernel(
        *("scale", "__constant__ float factor[1];\n" + TILED, "4001", given),
        {"block_size_x": [32, 64], "tile": [1, 2, 4]},
        grid_div_x=["block_size_x * tile"],
        restrictions=["block_size_x * tile <= 128", lambda p: p["tile"] < 4 or p["block_size_x"] == 32],
        answer=[3 * x, None, None],
        cmem_args={"factor": np.array([3], np.float32)},
        metrics={"GB/s": "8 * 4001 / time / 1e6", "double": lambda p: 2 * p["time"]},
        cache=str(tmp_path / "cache"),
        backend="host",
        quiet=True,
    )
    assert sorted((each["block_size_x"], each["tile"]) for each in results) == [
        (32, 1),
        (32, 2),
        (32, 4),
        (64, 1),
        (64, 2),
    ]
    assert all(each["double"] == 2 * each["time"] and each["GB/s"] > 0 for each in results)
    assert env["best_config"] in results
    assert len(json.loads((tmp_path / "cache.json").read_text())["cache"]) == 5


@pytest.mark.full
def test_a_wrong_answer_is_a_failed_configuration() -> None:
    x = np.random.default_rng().random(500, np.float32)
    results, env = tune_kernel(
        *("scale", "__constant__ float factor[1];\n" + TILED, 500, [np.zeros_like(x), x, np.int32(x.size)]),
        {"block_size_x": [32], "tile": [1, 2]},
        answer=[x, None, None],
        cmem_args={"factor": np.array([3], np.float32)},
        backend="host",
    )
    assert all("__error__" in each for each in results)
    assert env["best_config"] is None


@pytest.mark.full
def test_types_are_parameters_and_errors_are_observed(tmp_path: Path) -> None:
    a, b = np.random.default_rng().random((2, 3000))
    given = [np.int32(3000), *(TunablePrecision("real", array) for array in (a, b, np.zeros_like(a)))]
    results, _ = tune_kernel(
        *("add<real>", ADD, 3000, given, {"block_size_x": [64], "real": ["half", "float", "double"]}),
        answer=[None, None, None, a + b],
        observers=[AccuracyObserver("RMSE", "rmse"), AccuracyObserver(lambda r, o: np.abs(r - o).max(), "largest")],
        backend="host",
    )
    errors = {each["real"]: each for each in results}
    for real, kind in (("half", np.float16), ("float", np.float32), ("double", np.float64)):
        expected = (a.astype(kind) + b.astype(kind)).astype(np.float64) - (a + b)
        assert errors[real]["rmse"] == pytest.approx(np.sqrt(np.mean(expected**2)), rel=1e-6, abs=1e-300)
        assert errors[real]["largest"] == pytest.approx(np.abs(expected).max(), rel=1e-6, abs=1e-300)


@pytest.mark.full
def test_a_script_runs_as_it_stands(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy, kernel_tuner\n"
        "from kernel_tuner.file_utils import store_output_file\n"
        "x = numpy.arange(100, dtype=numpy.float32)\n"
        "kernel = '''__global__ void twice(float *y, float *x, int n) {\n"
        "    int i = blockIdx.x * block_size_x + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }'''\n"
        "given = [numpy.zeros_like(x), x, numpy.int32(100)]\n"
        "results, env = kernel_tuner.tune_kernel('twice', kernel, 100, given, {'block_size_x': [32, 64, 128]},\n"
        "                                        answer=[2 * x, None, None], lang='CUDA', device=0)\n"
        "store_output_file('out.json', results, {})\n"
        "print('found', len(results))\n"
    )
    command = [sys.executable, "-m", "mptune.kernel_tuner", "--budget", "2", "--backend", "host", str(script)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "found 2" in ran.stdout
    assert len(json.loads((tmp_path / "out.json").read_text())["results"]) == 2


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"kernel_name": "scala"}, ("scala", "scale")),
        ({"lang": "fortran"}, ("fortran", "CUDA")),
        ({"texmem_args": {"x": 1}}, ("texmem_args",)),
        ({"iteratons": 3}, ("iteratons", "iterations")),
        ({"strategy": "genetic_algoritm"}, ("genetic_algoritm", "genetic_algorithm")),
        ({"arguments": [1, 2]}, ("3 arguments", "2")),
        ({"answer": [None]}, ("answer", "3")),
        ({"restrictions": [5]}, ("restriction", "5")),
    ],
)
def test_wrong_arguments_are_named(given: dict[str, Any], names: tuple[str, ...]) -> None:
    x = np.zeros(8, np.float32)
    call: dict[str, Any] = {
        "kernel_name": "scale",
        "kernel_source": TILED,
        "problem_size": 8,
        "arguments": [x, x, np.int32(8)],
        "tune_params": {"block_size_x": [32], "tile": [1]},
    }
    with pytest.raises(MptuneError) as error:
        tune_kernel(**{**call, **given})
    assert all(name in str(error.value) for name in names)


@pytest.mark.full
def test_a_kernel_that_crashes_leaves_the_script_alive() -> None:
    x = np.zeros(100, np.float32)
    with pytest.raises(MptuneError, match="beyond its arrays"):
        run_kernel(
            "scale",
            TILED.replace("factor[0]", "2"),
            10**8,
            [x, x, np.int32(10**8)],
            {"block_size_x": 64, "tile": 1},
            backend="host",
        )


@pytest.mark.full
def test_configurations_that_do_not_compile_fail_alone_and_a_function_verifies() -> None:
    x = np.random.default_rng().random(300, np.float32)
    text = "#if block_size_x == 32\n#error too small\n#endif\n" + TILED.replace("factor[0]", "2")
    results, _ = tune_kernel(
        *("scale", text, 300, [np.zeros_like(x), x, np.int32(300)], {"block_size_x": [32, 64], "tile": [1]}),
        answer=[np.sum(2 * x), None, None],
        verify=lambda answer, result, atol=None: bool(np.isclose(answer[0], np.sum(result[0]), rtol=1e-4)),
        compiler_options=["--use_fast_math", "-O2"],
        backend="host",
    )
    failed = {each["block_size_x"]: each.get("__error__") for each in results}
    assert failed == {32: "CompilationFailedConfig", 64: None}
    results, _ = tune_kernel(
        "scale",
        text,
        300,
        [np.zeros_like(x), x, np.int32(300)],
        {"block_size_x": [32, 64], "tile": [1]},
        backend="host",
    )
    assert ["__error__" in each for each in sorted(results, key=lambda each: each["block_size_x"])] == [True, False]
