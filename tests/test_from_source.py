"""A kernel as text with its arrays, tuned in one call."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mptune
import mptune.from_source
from mptune.data.data import Draw, make_inputs
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


CLIP = r"""
#include "factor.h"
struct Limits { double low, high; int n; };
__global__ void clip(double *out, const double *u, Limits limits, double2 *z) {
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < limits.n) {
        double value = u[i] * FACTOR;
        out[i] = value < limits.low ? limits.low : value > limits.high ? limits.high : value;
        z[i].x += z[i].y * value;
    }
}
"""


def clipped(out: Any, u: Any, limits: Any, z: Any) -> dict[str, Any]:
    return {"out": np.clip(1.5 * u, limits["low"], limits["high"]), "z": z + z.imag * 1.5 * u}


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
def test_functions_structs_and_complex_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "factor.h").write_text("#define FACTOR 1.5\n")
    (tmp_path / "clip.cu").write_text(CLIP)
    rng = np.random.default_rng()
    u, z = rng.random(999), rng.random(999) + 1j * rng.random(999)
    limits = np.array((0.25, 1.25, 999), [("low", "f8"), ("high", "f8"), ("n", "i4")])
    run = mptune.tune_source(
        *("clip.cu", "clip", 999, [np.zeros(999), u, limits, z]),
        tune={"block_size_x": [32, 64]},
        grid=lambda c: -(-999 // c["block_size_x"]),
        types={"u": "float", "out": ["float"], "value": "float"},
        reference=clipped,
        inputs=lambda rng: {"u": rng.random(999)},
        max_error=1e-5,
        budget=4,
        backend="host",
        verify=1,
    )
    assert run.best is not None
    assert run.verified(run.best) is not None
    assert {run.best.configuration[name] for name in ("u_type", "out_type")} == {"fp32"}
    assert {run.best.configuration["z_type"]} == {"fp64"}
    table = run.table()
    assert next(iter(table["feasible"]))
    # The user's text has the types; it compiles, and computes the same.
    assert "float *out, const float *u, Limits limits, double2 *z" in run.source
    assert f"#define block_size_x {run.best.configuration['block_size_x']}" in run.source
    found = run.tuned(np.zeros(999), u.astype(np.float32), limits, z.astype(np.complex64))
    right = clipped(None, u, limits, z)
    assert found["z"].dtype == complex
    for name in ("out", "z"):
        np.testing.assert_allclose(found[name], right[name], rtol=1e-5)


@pytest.mark.full
def test_answers_of_a_raw_kernel(tmp_path: Path) -> None:
    x = np.random.default_rng().random(500)
    code = 'extern "C" ' + SCALE.replace("template <typename T> ", "").replace("T ", "REAL ")
    raw = SimpleNamespace(code=code, name="scale", options=("-DREAL=double",))
    run = mptune.tune_source(
        *(raw, None, 500, [x, 3.0, np.int32(500)]),
        answer=[3 * np.sqrt(x) * (1 + 1e-3), None, None],
        types={"x": "float"},
        max_error=1e-2,
        budget=1,
        backend="host",
        folder=tmp_path / "made",
    )
    assert run.best is not None
    assert 1e-5 < run.best.error < 1e-2
    assert "scale(float *x, REAL factor, int n)" in run.source


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
    with pytest.raises(MptuneError, match="answer: expected 6"):
        call(tune=tune, answer=[None])
    with pytest.raises(MptuneError, match="grid: the function failed at"):
        call(tune={**tune, "block_size_x": [32, 64]}, grid=lambda c: c["block"])
    with pytest.raises(MptuneError, match=r"budgett.*did you mean 'budget'"):
        call(tune=tune, budgett=3)
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(MptuneError, match="made"):
        mptune.tune_source(ADVECT, "advect", (101, 37), given, tune=tune, folder=folder)


@pytest.mark.full
def test_a_definition_to_start_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scale.cu").write_text(SCALE)
    command = [sys.executable, "-m", "mptune", "init", "scale.cu", "--kernel", "scale<double>"]
    assert "mptune tune ./scale.py" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "rng.random(65536)" in (tmp_path / "scale.py").read_text()
    run = mptune.tune("./scale.py", max_error=1e-6, budget=2, backend="host", verify=1)
    assert run.best is not None
    assert "x_type" in run.parameter_names
    with pytest.raises(MptuneError, match=r"scale\.py is there already"):
        mptune.from_source.write_definition(Path("scale.cu"), "scale<double>")


def test_inputs_are_arrays() -> None:
    x = np.random.default_rng().random(100)
    kernel = mptune.Kernel(
        name="twice",
        parameters=[mptune.PrecisionParameter("t", ["fp64", "fp32"])],
        arguments=[mptune.InOut("x", 100, precision="t"), mptune.Scalar("by", precision="fp64")],
        inputs={"x": x, "by": 2},
        reference=lambda inputs, size: inputs["by"] * inputs["x"],
        grid=[1],
        block=[100],
        template='extern "C" __global__ void twice({{ t }} *x, double by) { x[threadIdx.x] *= by; }',
    )
    sizes = kernel.resolve_sizes("default", {})
    first, other = (make_inputs(kernel, sizes, 0, draw) for draw in (Draw(), Draw(number=1)))
    assert np.array_equal(first["x"], x)
    assert 0.01 < np.max(np.abs(other["x"] / x - 1)) <= 0.1
    assert first["by"] == other["by"] == 2
