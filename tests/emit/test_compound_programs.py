"""What is emitted of sums in compound types compiles for every vendor, and has the error that was measured."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from awkward_kernel import data_folder, measured, run_of
from test_opencl_program import MISSING as NO_OPENCL
from test_opencl_program import program_of as opencl_program_of
from test_opencl_program import run_program as run_opencl
from test_programs import CLANG, HIP_HEADERS, build, error_of, run_program
from vendor_compilers import needs

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.data import DataManager
from mptune.emit import emit, winner_of
from mptune.kernel import Kernel
from mptune.precision import COMPOUND
from mptune.source.loading import load_kernel
from tests.tiers import few

Emitted = Callable[[str, str], tuple[Path, float]]

#: Small kernels: of one the output has a compound type, of the other scalars have; each with its error in fp32 sums.
SMALL: dict[str, Kernel] = {
    "kmeans": load_kernel("kmeans").changed(sizes={"default": {"n": 331, "features": 15, "clusters": 40}}),
    "gemm": load_kernel("gemm").changed(
        sizes={"default": {"M": 37, "N": 29, "K": 301, "transposed_a": 0, "transposed_b": 0}}
    ),
}
TYPES = {
    "kmeans": {"point_type": "fp64", "centre_type": "fp64", "use_shared": True},
    "gemm": {"MWG": 16, "NWG": 16, "KWG": 8, "MDIMC": 8, "NDIMC": 4, "MDIMA": 8, "NDIMB": 4, "VWM": 2, "VWN": 2},
}
SUMS = {"kmeans": "distance_type", "gemm": "accumulator_type"}
#: The most that a sum errs by in each type, of numbers that are doubles or floats.
MOST = {"fp32x2": 2.0**-42, "fp64_neumaier": 2.0**-50, "fp32_neumaier": 2.0**-21, "bf16x3": 2.0**-18}
EVERY = pytest.mark.parametrize("sums", COMPOUND)
NAMES = pytest.mark.parametrize("name", ["kmeans", pytest.param("gemm", marks=pytest.mark.nightly)])


def values_of(name: str, sums: str) -> dict[str, object]:
    narrow = "fp64" if COMPOUND[sums].size_bytes == 8 else "fp32"
    types = {p.name: narrow for p in SMALL[name].parameters if p.kind == "precision"}
    return types | TYPES[name] | {SUMS[name]: sums}


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    """A function that emits a kernel with sums in a type, once, and returns the folder and the measured error."""

    @functools.cache
    def emit_once(name: str, sums: str) -> tuple[Path, float]:
        (trial,) = measured(SMALL[name], values_of(name, sums))
        winner = winner_of(run_of(SMALL[name], [trial]), configuration="1", kernel=SMALL[name])
        assert winner is not None
        folder = tmp_path_factory.mktemp(f"{name}_{sums}")
        emit(winner, folder)
        return folder, trial.error

    return emit_once


@pytest.mark.nightly
@NAMES
@EVERY
def test_the_host_program_has_the_measured_error(name: str, sums: str, emitted: Emitted, tmp_path: Path) -> None:
    folder, error = emitted(name, sums)
    kernel = SMALL[name]
    data = DataManager(kernel, kernel.resolve_sizes())
    program = build(folder, f"tuned_{name}_host.cpp")
    inputs = data_folder(data, tmp_path / "in")
    (tmp_path / "out").mkdir()
    done = run_program(program, inputs, tmp_path / "out", 1)
    assert done.returncode == 0, done.stderr
    assert error <= MOST[sums]
    assert error_of(kernel, data, tmp_path / "out") == pytest.approx(error, rel=1e-9)


@pytest.mark.nightly
@pytest.mark.skipif(bool(NO_OPENCL), reason=NO_OPENCL or "all is there")
@pytest.mark.parametrize("sums", ["fp32x2"])
def test_the_opencl_program_has_the_measured_error(sums: str, tmp_path: Path) -> None:
    kernel = SMALL["kmeans"]
    program, error = opencl_program_of(kernel, values_of("kmeans", sums), tmp_path)
    data = DataManager(kernel, kernel.resolve_sizes())
    run_opencl(program, data_folder(data, tmp_path / "in"), tmp_path / "out")
    assert error <= MOST[sums]
    assert error_of(kernel, data, tmp_path / "out") == pytest.approx(error, rel=1e-9)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("backend", "architecture"),
    [pytest.param("cuda", "sm_80", marks=needs("cuda")), pytest.param("hip", "gfx90a", marks=needs("hip"))],
)
@NAMES
@EVERY
def test_runtime_compilers_take_the_source_and_what_the_cupy_example_adds(
    name: str, sums: str, backend: str, architecture: str, emitted: Emitted
) -> None:
    folder, _ = emitted(name, sums)
    script = (folder / f"tuned_{name}_cupy.py").read_text()
    (conversions,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(script).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CONVERSIONS"
    )
    source = (folder / f"tuned_{name}.cu").read_text() + conversions
    options = CompileOptions(architecture)
    assert get_backend(backend).compiler.compile(source, SMALL[name].function, options).image
    for function in re.findall(r"void (store_\w+)\(", conversions):
        assert get_backend(backend).compiler.compile(source, function, options).image


@pytest.mark.nightly
@pytest.mark.nvcc
@pytest.mark.parametrize(("name", "sums"), [("kmeans", "fp32x2"), ("gemm", "fp64_neumaier")])
def test_nvcc_compiles_the_cuda_example(name: str, sums: str, emitted: Emitted, tmp_path: Path) -> None:
    folder, _ = emitted(name, sums)
    command = ["nvcc", "-std=c++17", "-O0", "-arch=sm_80", "-c", f"tuned_{name}_cuda.cu", "-o", tmp_path / "one.o"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(CLANG is None or HIP_HEADERS is None, reason="clang++ or the HIP headers are not installed")
@pytest.mark.parametrize(
    ("name", "sums", "side"),
    few([("kmeans", "fp32x2", "device"), ("kmeans", "fp32x2", "host"), ("gemm", "bf16x3", "device")], fast=0, full=1),
)
def test_clang_accepts_the_hip_example(name: str, sums: str, side: str, emitted: Emitted, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / ".hipVersion").write_text("HIP_VERSION_MAJOR=5\nHIP_VERSION_MINOR=2\nHIP_VERSION_PATCH=0\n")
    (tmp_path / "include").mkdir()
    assert HIP_HEADERS is not None
    (tmp_path / "include" / "hip").symlink_to(HIP_HEADERS / "hip")
    command = [CLANG, "-x", "hip", f"--cuda-{side}-only", "--offload-arch=gfx90a", f"--rocm-path={tmp_path}"]
    command += ["-nogpulib", "-std=c++17", "-fsyntax-only", "-w", f"tuned_{name}_hip.hip"]
    done = subprocess.run(command, cwd=emitted(name, sums)[0], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
