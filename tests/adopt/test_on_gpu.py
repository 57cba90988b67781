"""Programs that are recorded on a GPU: compiled by nvcc, and run with what stands in for CUDA's runtime."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from mptune.adopt import on_gpu as on_a_gpu
from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.capture import Capture, Copy, capture
from mptune.adopt.parsing import ProgramError, SourceFile
from mptune.adopt.running import Built, build, build_for_gpu
from mptune.backends.cuda import CudaBackend
from mptune.errors import BackendUnavailableError, UnknownNameError

GPU = Path(__file__).parent / "gpu"
PROGRAMS = Path(__file__).parent / "programs"


def on_stand_in(folder: Path) -> Built:
    """Compile the program with nvcc; in place of CUDA's runtime comes the stand-in."""
    stand_in = folder / "stand_in.o"
    subprocess.run(["nvcc", "-O1", "-std=c++17", "-c", str(GPU / "stand_in.cpp"), "-o", str(stand_in)], check=True)
    source = GPU / "recorded.cu"
    flags = ("-arch=sm_90", "-cudart", "none", "-Xlinker", str(stand_in))
    return build_for_gpu("nvcc", [source], [SourceFile.read(source)], flags=flags)


@pytest.fixture(scope="module")
def on_gpu(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    folder = tmp_path_factory.mktemp("gpu")
    return capture(on_stand_in(folder), ["77"], folder / "capture")


@pytest.fixture(scope="module")
def on_processor(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    source = GPU / "recorded.cu"
    return capture(build([source], [SourceFile.read(source)]), ["77"], tmp_path_factory.mktemp("processor"))


@pytest.fixture
def gpu_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaBackend, "device_count", lambda: 1)
    monkeypatch.setattr(on_a_gpu, "find_nvcc", lambda: "nvcc")


@pytest.mark.full
@pytest.mark.nvcc
def test_the_record_is_the_same_on_a_gpu(on_gpu: Capture, on_processor: Capture) -> None:
    # The stand-in's memory is out of the host's reach, and not zero at first.
    assert on_gpu.check == on_processor.check == "passed"
    assert on_gpu.differences == on_processor.differences == ()
    assert on_gpu.output == on_processor.output
    assert list(on_gpu.operations()) == list(on_processor.operations())
    keys = {copy.contents for copy in on_gpu.operations() if isinstance(copy, Copy) and copy.kind == "to_host"}
    assert len(keys) > 1
    for key in keys:
        assert key is not None
        np.testing.assert_array_equal(on_gpu.contents(key), on_processor.contents(key))


@pytest.mark.full
@pytest.mark.nvcc
def test_a_record_says_what_it_was_made_on(on_gpu: Capture, on_processor: Capture) -> None:
    assert on_gpu.device == "a stand-in"
    assert on_processor.device == "this machine's processor"


@pytest.mark.nightly
@pytest.mark.nvcc
def test_files_find_each_others_device_functions_and_headers_of_samples(tmp_path: Path) -> None:
    main = tmp_path / "main.cu"
    main.write_text(
        '#include "helper_cuda.h"\n'
        "__device__ double twice(double);\n__global__ void k(double* x) { *x = twice(*x); }\n"
        "int main() { double* x; checkCudaErrors(cudaMalloc(&x, 8)); k<<<1, 1>>>(x); return cudaFree(x); }\n"
    )
    helper = tmp_path / "helper.cu"
    helper.write_text("__device__ double twice(double x) { return x + x; }\n")
    files = [main, helper]
    assert build_for_gpu("nvcc", files, [SourceFile.read(file) for file in files], flags=("-arch=sm_90",)).image
    helper.write_text("__device__ double twice(double x) { return x + y; }\n")
    with pytest.raises(
        ProgramError, match=r"helper.cu does not compile for this machine's GPU:\n.*helper.cu\(1\): error"
    ):
        build_for_gpu("nvcc", files, [SourceFile.read(file) for file in files], flags=("-arch=sm_90",))


@pytest.mark.nightly
@pytest.mark.nvcc
def test_programs_are_recorded_on_the_gpu_that_is_here(
    gpu_here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = on_stand_in(tmp_path)
    monkeypatch.setattr(on_a_gpu, "build_for_gpu", lambda *_: made)
    _, document = adopt(AdoptSettings((GPU / "recorded.cu",), ("77",)), tmp_path / "adopted")
    assert document["program"]["device"] == "a stand-in"
    assert document["program"]["backend"] == "cuda"
    assert document["size_arguments"] == {"n": 1}
    assert max(document["errors"].values()) == 0.0
    assert not any("GPU" in note for note in document["notes"])


@pytest.mark.full
@pytest.mark.usefixtures("gpu_here")
def test_a_program_that_the_gpu_does_not_take_is_recorded_on_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Built:
        raise ProgramError("recorded.cu does not compile for this machine's GPU:\n  a line")

    monkeypatch.setattr(on_a_gpu, "build_for_gpu", fails)
    settings = AdoptSettings((GPU / "recorded.cu",), ("77",))
    _, document = adopt(settings, tmp_path / "adopted")
    assert document["program"]["device"] == "this machine's processor"
    assert document["program"]["backend"] == "host"
    why = "recorded.cu does not compile for this machine's GPU: a line"
    assert f"recorded on the processor, not on the GPU: {why}" in document["notes"]
    with pytest.raises(ProgramError, match="does not compile for this machine's GPU"):
        adopt(AdoptSettings((GPU / "recorded.cu",), ("77",), backend="cuda"), tmp_path / "asked for")


@pytest.mark.full
@pytest.mark.usefixtures("gpu_here")
def test_programs_of_other_kinds_are_recorded_on_the_processor(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailableError, match=r"stencil.cpp has no kernels for a GPU: its loops run on the"):
        adopt(AdoptSettings((PROGRAMS / "stencil.cpp",), backend="cuda"), tmp_path / "adopted")
    with pytest.raises(ProgramError, match=r"hip_spelling.hip is a program of HIP, which is recorded on the processor"):
        adopt(AdoptSettings((PROGRAMS / "hip_spelling.hip",), backend="cuda"), tmp_path / "adopted")


@pytest.mark.full
def test_a_gpu_that_is_asked_for_has_to_be_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> int:
        raise BackendUnavailableError("no CUDA device: the NVIDIA driver finds none")

    monkeypatch.setattr(CudaBackend, "device_count", none)
    with pytest.raises(BackendUnavailableError, match="no CUDA device"):
        adopt(AdoptSettings((GPU / "recorded.cu",), ("77",), backend="cuda"), tmp_path / "adopted")
    with pytest.raises(UnknownNameError, match=r"unknown backend 'hots'; did you mean 'host'\?"):
        adopt(AdoptSettings((GPU / "recorded.cu",), ("77",), backend="hots"), tmp_path / "adopted")
    with pytest.raises(UnknownNameError, match="programs of HIP are recorded on the processor"):
        adopt(AdoptSettings((GPU / "recorded.cu",), ("77",), backend="hip"), tmp_path / "adopted")
