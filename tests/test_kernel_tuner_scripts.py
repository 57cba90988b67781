"""Kernel Tuner's interface: its scripts run as they stand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mptune.backends import get_backend
from mptune.errors import BackendUnavailableError, MptuneError
from mptune.kernel_tuner import AccuracyObserver, Tunable, TunablePrecision, run_kernel, tune_kernel
from mptune.kernel_tuner.names import PythonKernel
from mptune.kernel_tuner.observers import BenchmarkObserver, OutputObserver
from mptune.kernel_tuner.results import TuneResults, create_device_targets, store_output_file, store_results

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
        ({"lang": "C", "kernel_source": "void scale(float *y) { cudaMalloc(0, 1); }"}, ("CUDA runtime", "lang='C'")),
        ({"simulation_mode": True, "cache": "nowhere"}, ("nowhere", "does not exist")),
        ({"objective": "fish"}, ("fish", "objective_higher_is_better")),
        ({"observers": [3]}, ("observer 3",)),
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


SUM_C = """
#include <omp.h>
#include <math.h>
float roots(double *total, const float *x, int n) {
    double start = omp_get_wtime(), sum = 0;
    #pragma omp parallel for num_threads(threads) reduction(+:sum)
    for (int i = 0; i < n; i++) sum += sqrt((double)x[i]);
    *total = sum;
    return (float)((omp_get_wtime() - start) * 1e3);
}
"""
SCALE_CL = """
__kernel void scale(__global real *y, __global const real *x, const int n) {
    int i = get_group_id(0) * block_size_x + get_local_id(0);
    if (i < n) y[i] = 3 * x[i];
}
"""


@pytest.mark.full
def test_c_runs_on_the_processor() -> None:
    x = np.random.default_rng().random(10_000, np.float32)
    expected = np.sqrt(x.astype(np.float64)).sum()
    results, _ = tune_kernel(
        *("roots", SUM_C, 1, [np.zeros(1), x, np.int32(x.size)], {"threads": [1, 2]}),
        answer=[np.array([expected]), None, None],
        compiler_options=["-fopenmp", "-O2"],
    )
    assert len(results) == 2
    assert not any("__error__" in each for each in results)


@pytest.mark.full
def test_opencl_c_runs_as_it_stands() -> None:
    try:
        get_backend("opencl").describe()
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    x = np.random.default_rng().random(1000)
    given = [TunablePrecision("real", np.zeros_like(x)), TunablePrecision("real", x), np.int32(x.size)]
    results, _ = tune_kernel(
        *("scale", SCALE_CL, x.size, given, {"block_size_x": [32], "real": ["float", "double"]}),
        answer=[3 * x, None, None],
        observers=[AccuracyObserver("max", "largest")],
    )
    errors = {each["real"]: each["largest"] for each in results}
    assert errors["double"] == 0
    assert errors["float"] == pytest.approx(np.abs(3 * x.astype(np.float32) - 3 * x).max(), rel=1e-3)


class Counting(BenchmarkObserver):
    """Counts launches, and knows what was launched."""

    def register_configuration(self, params: Any) -> None:
        self.block, self.begun, self.ended = params["block_size_x"], 0, 0

    def before_start(self) -> None:
        self.begun += 1

    def after_finish(self) -> None:
        self.ended += 1

    def get_results(self) -> dict[str, float]:
        return {"begun": self.begun, "ended": self.ended, "block": self.block}


class Largest(OutputObserver):
    """Looks at the outputs."""

    def process_output(self, answer: Any, output: Any) -> None:
        self.largest = output[0].max() - np.max(answer[0])

    def get_results(self) -> dict[str, float]:
        return {"largest": self.largest}


@pytest.mark.full
def test_sources_are_functions_and_observers_are_called(tmp_path: Path) -> None:
    x = np.random.default_rng().random(600, np.float32)

    def source(params: Any) -> str:
        kind = f"float{params['vector']}" if params["vector"] > 1 else "float"
        return f"""
        __global__ void twice({kind} *y, {kind} *x, int n) {{
            int i = blockIdx.x * {params["block_size_x"]} + threadIdx.x;
            if (i < n / {params["vector"]}) {{ auto v = x[i]; v{".x" * (params["vector"] > 1)} *= 2;
                {"v.y *= 2;" * (params["vector"] > 1)} y[i] = v; }}
        }}"""

    call = ("twice", source, 600, [np.zeros_like(x), x, np.int32(600)], {"block_size_x": [32, 64], "vector": [1, 2]})
    options: dict[str, Any] = {
        "grid_div_x": lambda p: p["block_size_x"] * p["vector"],
        "lang": "CUDA",
        "answer": [2 * x, None, None],
        "cache": str(tmp_path / "cache"),
        "backend": "host",
        "quiet": True,
    }
    results, _ = tune_kernel(*call, observers=[Counting(), Largest], iterations=3, budget=3, **options)
    assert len(results) == 3
    for each in results:
        assert (each["begun"], each["ended"], each["block"]) == (3, 3, each["block_size_x"])
        assert each["largest"] == 0
    # The rest is evaluated later, and what the cache has is not evaluated again.
    again, env = tune_kernel(*call, **options)
    assert len(again) == 4
    assert sum("begun" in each for each in again) == 3
    assert env["best_config"] in again
    simulated, env = tune_kernel(*call, **options, simulation_mode=True, strategy="genetic_algorithm")
    assert env["best_config"]["time"] == min(each["time"] for each in again)
    assert len(simulated) == 4


@pytest.mark.full
def test_an_argument_is_one_of_several_arrays_and_functions_verify_all_outputs() -> None:
    rows = np.random.default_rng().random((20, 20), np.float32)
    text = """
    __global__ void sums(float *out, float *count, float *a) {
        int i = blockIdx.x * block_size_x + threadIdx.x;
        if (i >= 20) return;
        float sum = 0;
        for (int k = 0; k < 20; ++k) sum += by_column ? a[k * 20 + i] : a[i * 20 + k];
        out[i] = sum;
        count[i] = 20;
    }"""
    results, _ = tune_kernel(
        "sums",
        text,
        20,
        [np.zeros(20, np.float32), np.zeros(20, np.float32), Tunable("by_column", [rows, rows.T.copy()])],
        {"block_size_x": [32], "by_column": [0, 1]},
        answer=[rows.sum(1), np.full(20, 20.0), None],
        verify=lambda answer, result: all(
            np.allclose(a, r) for a, r in zip(answer, result, strict=True) if a is not None
        ),
        backend="host",
        quiet=True,
    )
    assert ["__error__" in each for each in results] == [False, False]


@pytest.mark.full
def test_a_kernel_is_called_from_python() -> None:
    x = np.random.default_rng().random(100, np.float32)
    text = TILED.replace("factor[0]", "2")
    call = PythonKernel(
        *("scale", text, 100, [np.zeros_like(x), x, np.int32(100)], {"block_size_x": 32, "tile": 1}),
        outputs=[True, False, False],
        backend="host",
    )
    (found,) = call(np.zeros_like(x), x, np.int32(100))
    np.testing.assert_array_equal(found, 2 * x)


def test_results_are_stored_as_kernel_tuner_stores_them(tmp_path: Path) -> None:
    results = [
        {"n": n, "kind": "a", "time": float(abs(n - 3) + 1), "times": [1.0], "compile_time": 2} for n in range(6)
    ]
    failed = {"n": 9, "kind": "a", "__error__": "CompilationFailedConfig"}
    parameters = {"n": [*range(6), 9], "kind": ["a"]}
    store_output_file(str(tmp_path / "t4"), [*results, failed], parameters)
    rows = json.loads((tmp_path / "t4.json").read_text())["results"]
    assert [each["invalidity"] for each in rows] == ["correct"] * 6 + ["compile"]
    assert rows[0]["measurements"] == [{"name": "time", "value": 4.0, "unit": "ms"}]
    file = tmp_path / "results.json"
    for device, size in (("Device A", 5), ("Device A", (6, 7)), ("B", 5)):
        store_results(file, "k", "text {}", parameters, size, results, {"device_name": device}, top=120)
    found = TuneResults(file)
    assert {each["problem_size"] for each in found.data} == {"5", "6x7"}
    assert len(found.data) == 9
    assert found.get_best_config("Device A", 5) == {"n": 3, "kind": "a"}
    create_device_targets(tmp_path / "targets.h", file)
    program = tmp_path / "program.cpp"
    program.write_text('#include "targets.h"\nint a = 0; static_assert(n == 3, "");')
    ran = subprocess.run(["g++", "-DTARGET_Device_A", "-Dkind=kind", "-fsyntax-only", program], check=False)
    assert ran.returncode == 0


def test_a_cache_is_simulated_without_a_device(tmp_path: Path) -> None:
    names, entries = ["block_size_x", "tile"], {}
    for block in (32, 64, 128):
        for tile in (1, 2):
            entries[f"{block},{tile}"] = {"block_size_x": block, "tile": tile, "time": block / 32 + tile}
    entries["32,2"] = {"block_size_x": 32, "tile": 2, "__error__": "RuntimeFailedConfig"}
    document = {"device_name": "GPU", "kernel_name": "scale", "problem_size": 8, "tune_params_keys": names}
    document |= {"tune_params": {"block_size_x": [32, 64, 128], "tile": [1, 2]}, "cache": entries}
    (tmp_path / "cache.json").write_text(json.dumps(document))
    x = np.zeros(8, np.float32)
    results, env = tune_kernel(
        *("scale", TILED, 8, [x, x, np.int32(8)], document["tune_params"]),
        restrictions=["block_size_x <= 64", lambda p: p["tile"] < 2 or p["block_size_x"] == 32],
        cache=tmp_path / "cache.json",
        simulation_mode=True,
        strategy="random_sample",
        strategy_options={"max_fevals": 10},
        metrics={"speed": lambda p: 1 / p["time"]},
        objective="speed",
        objective_higher_is_better=True,
    )
    assert {(each["block_size_x"], each["tile"]) for each in results} == {(32, 1), (32, 2), (64, 1)}
    assert env["device_name"] == "GPU"
    assert (env["best_config"]["block_size_x"], env["best_config"]["speed"]) == (32, 0.5)


@pytest.mark.full
def test_types_are_tuned_of_a_kernel_without_parameters_of_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the definition is written
    x = np.random.default_rng().random(256, np.float32)
    text = TILED.replace("factor[0]", "2").replace('extern "C" ', "")
    results, env = tune_kernel(
        *("scale", text, 256, [np.zeros_like(x), x, np.int32(256)], {"block_size_x": [32, 64], "tile": [1]}),
        restrictions=["block_size_x * tile < 64"],
        types="auto",
        max_error=1e-2,
        budget=3,
        backend="host",
    )
    assert all((each["block_size_x"], each["tile"]) == (32, 1) for each in results)
    assert len({(each["x_type"], each["y_type"]) for each in results}) == 3
    assert env["best_config"] in results
