"""mptune on the simulated devices, which workers find by their environment, and by nothing else."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from awkward_kernel import AWKWARD, data_folder
from simulated import install

import mptune
from mptune.accuracy.evaluate import evaluate_outputs
from mptune.backends import BACKENDS
from mptune.backends.cuda import CudaBackend
from mptune.backends.hip import HipBackend
from mptune.data import DataManager
from mptune.emit import emit, winner_of
from mptune.measure.worker import Limits
from mptune.testing.backends import BackendConformance
from mptune.tuning import tune
from tests.support.simulator import environment

TESTS = Path(__file__).resolve().parents[1]
#: The second device needs all that the first does.
MORE = [pytest.param("cuda", marks=pytest.mark.full), pytest.param("hip", marks=pytest.mark.nightly)]
AWKWARD_FILE = TESTS / "awkward_kernel.py"


@pytest.fixture(scope="module")
def variables(tmp_path_factory):
    return environment(tmp_path_factory.mktemp("simulated"))


@pytest.fixture(scope="module", params=["cuda", "hip"])
def backend(request, variables):
    """The name of a backend with two simulated devices for workers, and one in this process, which compiles."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**variables, "MPTUNE_SIMULATED_DEVICES": "2"}.items():
            patch.setenv(name, value)
        patch.syspath_prepend(variables["ROCM_PATH"])
        install(patch, request.param)
        patch.setattr(BACKENDS[request.param], "device_count", staticmethod(lambda: 2))
        yield request.param


@pytest.fixture(scope="module")
def runs(backend, tmp_path_factory):
    """A run of one trial, the same run resumed for another one, and its file."""
    file = tmp_path_factory.mktemp("run") / "run.db"
    first = tune(AWKWARD_FILE, **settings(backend, file), budget=1)
    return first, tune(AWKWARD_FILE, **settings(backend, file), budget=2, resume=True), file


def settings(backend, file, **more):
    return {
        "backend": backend,
        "max_error": 0.05,
        "seed": 1,
        "strategy": "random",
        "output": file,
        "inputs": 1,
        "verify": 1,
        "on_warning": print,
    } | more


def test_a_run_is_resumed(runs):
    first, second, _ = runs
    assert (first.statuses, second.statuses) == ({"ok": 1}, {"ok": 2})
    assert {trial.configuration for trial in first.trials} < {trial.configuration for trial in second.trials}
    assert second.best is not None
    assert second.baseline is not None


def test_the_winner_is_used_and_emitted(backend, runs, tmp_path, monkeypatch):
    _, run, file = runs
    data = DataManager(AWKWARD, AWKWARD.resolve_sizes())
    with mptune.TunedKernel(file, kernel=AWKWARD_FILE) as tuned:
        assert tuned.reason == ""
        kinds = [np.asarray, sys.modules["cupy"].asarray] if backend == "cuda" else [np.asarray]
        for kind in kinds:
            given = {name: kind(values) if np.ndim(values) else values for name, values in data.inputs.items()}
            found = {name: np.asarray(values) for name, values in tuned(**given).items()}
            error = evaluate_outputs(found, data.references, "NRMSE").error
            assert error == pytest.approx(run.best.error, rel=1e-6)
    winner = winner_of(run, kernel=AWKWARD_FILE)
    assert winner is not None
    emit(winner, tmp_path / "tuned")
    if backend == "cuda":
        (tmp_path / "out").mkdir()
        script, inputs = tmp_path / "tuned" / "tuned_awkward_cupy.py", data_folder(data, tmp_path / "in")
        monkeypatch.setattr(sys, "argv", list(map(str, (script, inputs, tmp_path / "out"))))
        runpy.run_path(str(script), run_name="__main__")
        off = np.fromfile(tmp_path / "out" / "y.f64") - data.references["y"]
        assert np.sqrt(np.mean(off**2)) / np.ptp(data.references["y"]) <= 2 * max(run.best.error, 1e-16)


def test_commands_find_both(variables, tmp_path):
    command = [sys.executable, "-m", "mptune", "backends", "--json"]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    found = {row["backend"]: row for row in json.loads(done.stdout)["backends"]}
    for name, compiler in (("cuda", "nvrtc"), ("hip", "hiprtc")):
        assert (found[name]["can_compile"], found[name]["can_run"]) == (True, True), found[name]
        # What they compile must not be found in the cache by a real compiler.
        assert found[name]["versions"][compiler].startswith("0.")


@pytest.mark.parametrize("backend", MORE, indirect=True)
def test_faults_become_trials_and_the_search_goes_on_in_a_new_worker(backend, tmp_path):
    each_once = {"strategy": "exhaustive", "restrict": {"block": [64], "y_type": ["fp32"]}}
    given = settings(backend, None, **each_once, workers=2, limits=Limits(run_s=10.0), max_error=1e-3)
    run = tune(TESTS / "evaluators" / "faulty.py", **given)
    assert run.best.configuration["fault"] == "none"
    failed = {"launch_error": 3, "timeout": 1, "compile_error": 1, "unwritten": 1, "non_finite": 2}
    assert run.statuses == {"ok": 1, **failed, "inaccurate": 1}


@pytest.mark.parametrize("backend", MORE, indirect=True)
def test_an_application_is_tuned_and_resumed_by_two_workers(backend, tmp_path):
    file, given = TESTS / "awkward_application.py", settings(backend, tmp_path / "run.db")
    first, second = (
        tune(file, **given, budget=budget, **more) for budget, more in ((2, {}), (4, {"resume": True, "workers": 2}))
    )
    for run in (first, second):
        assert set(run.statuses) <= {"ok", "inaccurate"}
        assert run.baseline.error < 1e-15
        launches = {name: run.baseline.metric(f"launches.{name}") for name in ("smooth", "counts")}
        assert launches == {"smooth": 4, "counts": 1}
    assert 1 <= first.evaluations <= 2
    assert first.evaluations <= second.evaluations <= 4


@pytest.fixture(scope="class")
def conformance_device(request):
    with pytest.MonkeyPatch.context() as patch:
        install(patch, request.cls.backend_class.name)
        yield


@pytest.mark.usefixtures("conformance_device")
class TestCuda(BackendConformance):
    backend_class = CudaBackend

    @pytest.mark.full  # compiles once for each type
    def test_scalars_and_buffers_of_every_arithmetic_type(self) -> None:
        super().test_scalars_and_buffers_of_every_arithmetic_type()


@pytest.mark.full
@pytest.mark.usefixtures("conformance_device")
class TestHip(BackendConformance):
    backend_class = HipBackend
