"""What is emitted of a run on OpenCL: a source and a program in C++ that give the reported answer, without mptune."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from awkward_kernel import AWKWARD, NASTY, data_folder, file_name, measured, run_of
from stepper_kernel import STEPPER, stepped

from mptune.accuracy.evaluate import evaluate_outputs
from mptune.backends.host_compiler import find_compiler
from mptune.backends.opencl import OpenclBackend
from mptune.data import DataManager
from mptune.emit import emit, winner_of
from mptune.kernel import Kernel, Sizes


def _missing() -> str:
    found = OpenclBackend.availability()
    if not found.can_run:
        return found.reason
    text = "#include <CL/opencl.hpp>\nint main() { return cl::Platform().getInfo<CL_PLATFORM_NAME>().empty(); }"
    command = [
        *find_compiler().command,
        "-std=c++17",
        "-DCL_HPP_TARGET_OPENCL_VERSION=300",
        "-x",
        "c++",
        "-",
        "-o",
        "/dev/null",
        "-lOpenCL",
    ]
    built = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return "OpenCL's headers or its loader are not installed" if built.returncode else ""


MISSING = _missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "all is there")


def program_of(
    kernel: Kernel, values: dict[str, object], folder: Path, sizes: Sizes | None = None
) -> tuple[Path, float]:
    """Return the emitted program of a configuration, built as it says, and the error that was measured."""
    backend = OpenclBackend()
    (trial,) = measured(kernel, values, sizes=sizes, backend=backend)
    winner = winner_of(run_of(kernel, [trial], sizes, backend), configuration="1", kernel=kernel)
    assert winner is not None
    emit(winner, folder)
    name = f"tuned_{kernel.name}_opencl"
    assert f"`{name}.cpp`" in (folder / "README.md").read_text()
    flags = (folder / f"{name}.cpp").read_text().partition("//     g++ ")[2].partition(name)[0].split()
    command = [*find_compiler().command, *flags, "-Wall", "-Wextra", f"{name}.cpp", "-o", name, "-lOpenCL"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / name, trial.error


def run_program(program: Path, given: Path, answers: Path) -> None:
    answers.mkdir()
    done = subprocess.run([program, given, answers, "3"], capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.removesuffix(" ms\n")) > 0


@pytest.fixture(scope="module")
def stepper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The emitted program of a kernel, in a folder that tests may not change."""
    return program_of(STEPPER, {}, tmp_path_factory.mktemp("stepper"))[0]


@pytest.mark.full
def test_narrow_types_constants_and_dynamic_shared_memory(tmp_path: Path) -> None:
    narrow = {"register": NASTY, "order": (2, 0, 1), "x_type": "bf16", "a_type": "fp16", "w_type": "fp8_e4m3"}
    program, error = program_of(AWKWARD, narrow, tmp_path)
    data = DataManager(AWKWARD, AWKWARD.resolve_sizes())
    run_program(program, data_folder(data, tmp_path / "in"), tmp_path / "out")
    outputs = {
        argument.name: np.fromfile(tmp_path / "out" / file_name(argument), dtype=argument.dtype or np.float64)
        for argument in AWKWARD.outputs
    }
    assert error > 1e-5
    assert evaluate_outputs(outputs, data.references, AWKWARD.metric).error == pytest.approx(error, rel=1e-9)


@pytest.mark.nightly
def test_inputs_are_restored_before_each_launch_and_only_outputs_are_written(stepper: Path, tmp_path: Path) -> None:
    u = np.random.default_rng(3).uniform(0.5, 1, 103)
    (tmp_path / "in").mkdir()
    u.tofile(tmp_path / "in" / "u.f64")
    run_program(stepper, tmp_path / "in", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["v.f64"]
    np.testing.assert_allclose(np.fromfile(tmp_path / "out" / "v.f64"), stepped(u, 4), rtol=1e-14)


@pytest.mark.full
@pytest.mark.skipif(any(Path("/etc/OpenCL/vendors").glob("*.icd")), reason="the system has drivers of its own")
def test_without_a_driver_it_says_how_one_is_found(
    stepper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = os.environ.get("OCL_ICD_FILENAMES", "")

    def run() -> subprocess.CompletedProcess[str]:
        command = [stepper, tmp_path, tmp_path / "out"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)

    for name in ("OCL_ICD_FILENAMES", "OCL_ICD_VENDORS"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    done = run()
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: no OpenCL driver is found: clGetPlatformIDs: CL_PLATFORM_NOT_FOUND_KHR (-1001)"
    )
    (says,) = re.findall(r"^    export (.*)$", done.stderr, re.MULTILINE)
    assert "libintelocl.so" in (stepper.parent / "README.md").read_text()
    if not library:
        pytest.skip("Intel's driver is not the one of its wheel")
    for name, _, value in (word.partition("=") for word in says.split()):
        assert value == "/path/to/lib/libintelocl.so"
        monkeypatch.setenv(name, library)
    # The driver is found as it says; what is missing now is the input.
    assert "u.f64" in run().stderr
    monkeypatch.setenv("MPTUNE_OPENCL_DEVICE", "no such")
    assert re.match(
        r"error: no OpenCL device is called no such \(MPTUNE_OPENCL_DEVICE\); there are\n    .*Intel", run().stderr
    )


@pytest.mark.full
def test_an_error_of_the_driver_has_its_number_and_name(stepper: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(stepper.parent, tmp_path / "copy")
    source = next(folder.glob("*.cl"))

    def says() -> str:
        command = [folder / stepper.name, tmp_path, tmp_path / "out"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200).stderr

    source.write_text(text := source.read_text() + "no declaration\n")
    assert says().startswith("error: the driver rejected the source: clBuildProgram: CL_BUILD_PROGRAM_FAILURE (-11)\n")
    source.write_text(text.replace("no declaration", "").replace("step", "another"))
    assert says() == "error: clCreateKernel: CL_INVALID_KERNEL_NAME (-46)\n"
