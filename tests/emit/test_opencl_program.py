"""What is emitted of a run on OpenCL: a source and a program in C++ that give the reported answer, without mptune."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from programs import compiled, emitted, outputs_of
from stepper_kernel import STEPPER
from test_programs import CASES

from mptune.backends.host_compiler import find_compiler
from mptune.backends.opencl import OpenclBackend
from mptune.kernel import Kernel


def _missing() -> str:
    found = OpenclBackend.availability()
    if not found.can_run:
        return found.reason
    text = "#include <CL/opencl.hpp>\nint main() { return cl::Platform().getInfo<CL_PLATFORM_NAME>().empty(); }"
    command = [*find_compiler().command, "-std=c++17", "-DCL_HPP_TARGET_OPENCL_VERSION=300", "-x", "c++", "-"]
    command += ["-o", "/dev/null", "-lOpenCL"]
    built = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return "OpenCL's headers or its loader are not installed" if built.returncode else ""


MISSING = _missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "all is there")


def program_of(kernel: Kernel, values: dict[str, object], folder: Path) -> tuple[Path, float]:
    """Return the emitted program of a configuration, built as it says, and the error that was measured."""
    error = emitted(kernel, values, folder, backend=OpenclBackend())
    name = f"tuned_{kernel.name}_opencl"
    assert f"`{name}.cpp`" in (folder / "README.md").read_text()
    flags = (folder / f"{name}.cpp").read_text().partition("//     g++ ")[2].partition(name)[0].split()
    command = [*find_compiler().command, *flags, "-Wall", "-Wextra", f"{name}.cpp", "-o", name, "-lOpenCL"]
    compiled(*command, folder=folder)
    return folder / name, error


@pytest.fixture(scope="module")
def stepper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The emitted program of a kernel, in a folder that tests may not change."""
    return program_of(STEPPER, {}, tmp_path_factory.mktemp("stepper"))[0]


@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["awkward", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("stepper", "kmeans_fp32x2"))]
)
def test_the_program_has_the_measured_error(name: str, tmp_path: Path) -> None:
    kernel, values, least, most = CASES[name]
    program, error = program_of(kernel, values, tmp_path / "tuned")
    assert least <= error <= most
    assert outputs_of(program, kernel, None, tmp_path) == pytest.approx(error, rel=1e-9, abs=1e-16)


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
