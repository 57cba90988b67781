"""mptune on the simulated devices: processes that find them by their environment, and by nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from awkward_kernel import AWKWARD, data_folder

from mptune.buffers import DataManager
from mptune.testing.simulator import environment
from mptune.tuner.joint import NOTHING_LEFT

TESTS = Path(__file__).resolve().parents[1]
BACKENDS = ("cuda", "hip")
#: The tests for devices that benchmarks/gpu.py runs, and which of them: those that show as much as all, in little time.
DEVICE_TESTS = {
    "conformance/test_backend.py": "",
    "backends/test_cuda.py": "",
    "backends/test_hip.py": "",
    "evaluators/test_outputs_on_device.py": "",
    "kernels/test_devices.py": "axpy or convolution2d",
    "conformance/test_prelude_pairs.py": "half-3-1 or fp8_e4m3-half or comparisons or together",
    # It has no registers, and writing what a kernel computes in place takes it as long as computing that does.
    "observers/test_on_device.py": "(energy and mriq) or clocks",
}
#: Libraries of sensors: of a device that takes 250 W.
SENSORS = {
    "pynvml": "nvml(nvmlDeviceGetTotalEnergyConsumption=lambda _: 250e3 * time.perf_counter())",
    "amdsmi": """amd_smi(
        amdsmi_get_energy_count=lambda _: {"energy_accumulator": 250e6 * time.perf_counter(), "counter_resolution": 1.0}
    )""",
}
SCRIPT = """
import sys
import numpy as np
import mptune
from awkward_kernel import AWKWARD
from mptune.buffers import DataManager
from mptune.accuracy.evaluate import evaluate_outputs

data = DataManager(AWKWARD, AWKWARD.resolve_sizes())
with mptune.TunedKernel(sys.argv[1], kernel=sys.argv[3]) as tuned:
    assert tuned.reason == "", tuned.reason
    given = dict(data.inputs)
    if sys.argv[2] == "cupy":
        import cupy

        given = {name: cupy.asarray(values) if np.ndim(values) else values for name, values in given.items()}
    print(evaluate_outputs({name: np.asarray(v) for name, v in tuned(**given).items()}, data.references, "NRMSE").error)
"""


@pytest.fixture(scope="module")
def variables(tmp_path_factory):
    found = environment(tmp_path_factory.mktemp("simulated"))
    path = f"{found['PYTHONPATH']}:{TESTS}:{TESTS / 'evaluators'}"
    return {**os.environ, **found, "PYTHONPATH": path, "MPTUNE_SIMULATED_DEVICES": "2"}


@pytest.fixture
def mptune(variables, tmp_path):
    """Run a command, in an empty folder."""

    def run(*words, codes=(0,)):
        command = [sys.executable, "-m", "mptune", *map(str, words)]
        done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode in codes, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    return run


@pytest.mark.full
@pytest.mark.parametrize("tests", DEVICE_TESTS)
def test_the_tests_for_devices(variables, tmp_path, tests):
    """They need the environment from the start, so they run in a process of their own."""
    for name, made in SENSORS.items():
        (tmp_path / f"{name}.py").write_text(
            f"import sys, time\nimport fake_devices\nsys.modules[__name__] = fake_devices.{made}\n"
        )
    # Before the real ones.
    path = f"{tmp_path}:{variables['PYTHONPATH']}:{TESTS / 'observers'}"
    options = ("-q", "-m", "gpu and not slow", "-p", "no:cacheprovider", "-k", DEVICE_TESTS[tests])
    command = [sys.executable, "-m", "pytest", *options, str(TESTS / tests)]
    found = {**variables, "PYTHONPATH": path}
    done = subprocess.run(command, env=found, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "deselected" in done.stdout.splitlines()[-1] or not DEVICE_TESTS[tests]
    assert "skipped" not in done.stdout.splitlines()[-1], done.stdout


def test_they_are_those_of_the_benchmark():
    sys.path.insert(0, str(TESTS.parent / "benchmarks"))
    try:
        import gpu
    finally:
        sys.path.pop(0)
    assert set(DEVICE_TESTS) == set(gpu.TESTS)


def test_both_can_compile_and_run(mptune):
    found = {row["backend"]: row for row in json.loads(mptune("backends", "--json"))["backends"]}
    for name in BACKENDS:
        assert (found[name]["can_compile"], found[name]["can_run"]) == (True, True), found[name]
        # What they compile must not be found in the cache by a real compiler.
        assert found[name]["versions"][{"cuda": "nvrtc", "hip": "hiprtc"}[name]].startswith("0.")


@pytest.mark.full
@pytest.mark.parametrize("backend", BACKENDS)
def test_faults_become_trials_and_the_search_goes_on_in_a_new_worker(mptune, backend):
    file = TESTS / "testing" / "faulty_once.py"
    options = ("--strategy", "exhaustive", "--budget", 100, "--trial-limit", 10, "--max-error", 1e-3, "--workers", 2)
    found = json.loads(mptune("tune", file, "--backend", backend, *options, "--json"))
    assert found["best"]["configuration"]["fault"] == "none"
    failed = {"launch_error": 2, "timeout": 1, "compile_error": 1, "unwritten": 1, "non_finite": 2}
    assert found["statuses"] == {"ok": 1, **failed, "inaccurate": 1}


@pytest.mark.full
def test_matrix_units_are_those_of_the_architecture(mptune):
    """AMD's take fp32 as it is; NVIDIA's would round it to eleven digits."""
    tile = {"MWG": 32, "NWG": 32, "KWG": 16, "MDIMC": 4, "warps_along_n": 2, "stages": 2, "resident": 1, "raster": 1}
    types = dict.fromkeys(("a_type", "accumulator_type", "c_type"), "fp32")
    words = [word for name, value in {"math": "mma", **tile, **types}.items() for word in ("-p", f"{name}={value}")]
    options = ("--size", "smoke", "--budget", 1, "--inputs", 1, "--verify", 1, "--max-error", 1e-5, "--json")
    found = json.loads(mptune("tune", "gemm", "--backend", "hip", *words, *options))
    assert found["statuses"] == {"ok": 1}
    assert 0 < found["best"]["error"] < 1e-6


@pytest.mark.full
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_application_is_tuned_and_resumed_by_two_workers(mptune, backend):
    file = TESTS / "awkward_application.py"
    options = ("--backend", backend, "--max-error", 0.05, "--seed", 1, "--output", "run.db", "--verify", 2, "--json")
    # Most of its time is the host's, which is not made up: which of two is faster may stay open, and whether anything
    # is worth another evaluation.
    found = [
        json.loads(mptune("tune", file, *options, "--budget", budget, *more, codes=(0, 1)))
        for budget, more in ((4, ()), (10, ("--resume", "--workers", 2)))
    ]
    for document in found:
        assert set(document["statuses"]) <= {"ok", "inaccurate"}
        assert document["baseline"]["error"] < 1e-15
        launches = {name: kernel["launches"] for name, kernel in document["baseline"]["kernels"].items()}
        assert launches == {"smooth": 4, "counts": 1}
    first, second = found
    assert 1 <= first["evaluations"] <= 4
    assert first["evaluations"] <= second["evaluations"] <= 10
    assert second["evaluations"] > 4 or second["ended"] == NOTHING_LEFT


@pytest.mark.full
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_is_resumed_emitted_and_used(mptune, variables, tmp_path, backend):
    file = TESTS / "awkward_kernel.py"
    options = ("--backend", backend, "--max-error", 0.05, "--seed", 1, "--output", "run.db", "--json")
    first = json.loads(mptune("tune", file, *options, "--budget", 3))
    second = json.loads(mptune("tune", file, *options, "--budget", 6, "--resume"))
    assert (first["evaluations"], second["evaluations"]) == (3, 6)
    assert second["statuses"] == {"ok": 6}
    best = second["best"]
    mptune("emit", "run.db", "--kernel", file, "-o", "tuned")

    def error(*words):
        done = subprocess.run(
            [sys.executable, *map(str, words)], env=variables, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    for arrays in ("numpy", *(["cupy"] if backend == "cuda" else [])):
        assert float(error("-c", SCRIPT, "run.db", arrays, file)) == pytest.approx(best["error"], rel=1e-6)
    if backend == "cuda":
        data = DataManager(AWKWARD, AWKWARD.resolve_sizes())
        inputs = data_folder(data, tmp_path / "in")
        (tmp_path / "out").mkdir()
        error("tuned/tuned_awkward_cupy.py", inputs, tmp_path / "out")
        off = np.fromfile(tmp_path / "out" / "y.f64") - data.references["y"]
        assert np.sqrt(np.mean(off**2)) / np.ptp(data.references["y"]) <= 2 * best["error"]
