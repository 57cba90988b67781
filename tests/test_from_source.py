"""A kernel as text with its arrays, tuned in one call."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mptune
from mptune.errors import MptuneError

ADVECT = r"""
__global__ void advect(double *u_new, const double *u, const double *speed, double dt, int nx, int ny) {
    int i = blockIdx.x * block_size_x + threadIdx.x;
    int j = blockIdx.y * block_size_y + threadIdx.y;
    if (i > 0 && i < nx - 1 && j < ny) {
        double slope = (u[j * nx + i + 1] - u[j * nx + i - 1]) * 0.5;
        u_new[j * nx + i] = u[j * nx + i] - dt * speed[j * nx + i] * slope;
    }
}
"""
SCALE = r"""
template <typename T> __global__ void scale(T *x, T factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = sqrt(x[i]) * factor;
}
"""


def advected(u: Any, speed: Any, dt: float) -> Any:
    expected = np.zeros_like(u)
    expected[:, 1:-1] = u[:, 1:-1] - dt * speed[:, 1:-1] * (u[:, 2:] - u[:, :-2]) * 0.5
    return expected


@pytest.fixture
def arrays() -> dict[str, Any]:
    u, speed = np.random.default_rng().random((2, 37, 101))
    return {"u_new": np.zeros_like(u), "u": u, "speed": speed, "dt": 0.1, "nx": np.int32(101), "ny": np.int32(37)}


@pytest.mark.full
def test_a_kernel_and_arrays_are_enough(
    tmp_path: Path, arrays: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {name: np.copy(value) for name, value in arrays.items()}
    run = mptune.tune_source(
        *(ADVECT, "advect", (101, 37), list(arrays.values())),
        tune={"block_size_x": [32, 64], "block_size_y": [1, 2]},
        max_error=1e-5,
        budget=8,
        backend="host",
        output="run.db",
        verify=2,
    )
    assert {"u_type", "u_new_type", "speed_type", "block_size_x", "block_size_y"} <= set(run.parameter_names)
    assert run.best is not None
    assert run.best.measurement is not None
    assert run.best.measurement.metrics["error"] <= 1e-5
    assert all(np.array_equal(before[name], value) for name, value in arrays.items())
    # Called with other arrays, the winner computes the same as NumPy.
    u, speed = np.random.default_rng().random((2, 37 * 101))
    found = run.tuned(np.zeros((37, 101)), u.reshape(37, 101), speed.reshape(37, 101), dt=0.25, nx=101, ny=37)
    assert found.shape == (37, 101)
    with pytest.raises(MptuneError, match="u of advect has 8 numbers"):
        run.tuned(np.zeros((37, 101)), np.zeros(8), speed, dt=0.25, nx=101, ny=37)
    expected = advected(u.reshape(37, 101), speed.reshape(37, 101), 0.25)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert "tuned_advect.cu" in run.emit(tmp_path / "emitted")


@pytest.mark.full
def test_types_stay_as_they_are_and_blocks_are_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng().random(1003)
    file = tmp_path / "scale.cu"
    file.write_text(SCALE)
    run = mptune.tune_source(
        *(file, "scale<double>", x.size, [x, 3.0, x.size]), types=None, budget=4, backend="host", verify=0
    )
    trials = [trial.configuration for trial in run.trials]
    assert {value for each in trials for name, value in each.items() if name.endswith("_type")} == {"fp64"}
    assert len({each["block"] for each in trials}) > 1


@pytest.mark.full
@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"u": np.zeros((37, 101), np.float32)}, ("u", "float64", "float32")),
        ({"u": np.zeros((74, 101))[::2]}, ("u", "contiguous")),
        ({"u": 1.0}, ("u", "array")),
        ({"nx": 1.5}, ("nx", "whole")),
        ({"dt": np.zeros(3)}, ("dt", "number")),
        ({"ny": None}, ("ny", "number")),
    ],
)
def test_wrong_arguments_are_named(
    tmp_path: Path, arrays: dict[str, Any], change: dict[str, Any], names: tuple[str, ...]
) -> None:
    given = list({**arrays, **change}.values())
    tune = {"block_size_x": [32], "block_size_y": [1]}
    with pytest.raises(MptuneError) as error:
        mptune.tune_source(ADVECT, "advect", (101, 37), given, tune=tune, folder=tmp_path / "made")
    assert all(name in str(error.value) for name in names)


@pytest.mark.full
def test_wrong_calls_are_refused(tmp_path: Path, arrays: dict[str, Any]) -> None:
    given, folder = list(arrays.values()), tmp_path / "made"
    tune = {"block_size_x": [32], "block_size_y": [1]}
    with pytest.raises(MptuneError, match="advect takes 6 arguments"):
        mptune.tune_source(ADVECT, "advect", (101, 37), given[:-1], tune=tune, folder=folder)
    with pytest.raises(MptuneError, match="advect"):
        mptune.tune_source(ADVECT, "advekt", (101, 37), given, tune=tune, folder=folder)
    with pytest.raises(MptuneError, match="problem_size"):
        mptune.tune_source(ADVECT, "advect", (), given, tune=tune, folder=folder)
    with pytest.raises(MptuneError, match=r"missing\.cu"):
        mptune.tune_source("missing.cu", "advect", 1, given, tune=tune, folder=folder)
    call = functools.partial(mptune.tune_source, ADVECT, "advect", (101, 37), given, folder=folder)
    with pytest.raises(MptuneError, match="block_size_x"):
        call(tune={"block_size_x": [], "block_size_y": [1]})
    with pytest.raises(MptuneError, match="block_size_y"):
        call(tune={"block_size_x": [32], "block_size_y": [0, 1]})
    with pytest.raises(MptuneError, match="blocks"):
        call(tune={**tune, "blocks": [1, 2]})
    with pytest.raises(MptuneError, match="fp33"):
        call(tune=tune, types="fp33")
    with pytest.raises(MptuneError, match=r"budgett.*did you mean 'budget'"):
        call(tune=tune, budgett=3)
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(MptuneError, match="made"):
        mptune.tune_source(ADVECT, "advect", (101, 37), given, tune=tune, folder=folder)
