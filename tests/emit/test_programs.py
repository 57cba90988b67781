"""The emitted files compile, run and give the reported error, without mptune."""

from __future__ import annotations

import ast
import re
import runpy
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import own_kernel
import pytest
from awkward_kernel import AWKWARD, NASTY, data_folder, file_name, measured, run_of
from stepper_kernel import STEPPER, stepped

from mptune.accuracy.evaluate import evaluate_outputs
from mptune.backends.base import Backend, CompileOptions
from mptune.backends.cuda import CudaBackend
from mptune.backends.hip import HipBackend
from mptune.backends.host_compiler import find_compiler
from mptune.data import DataManager
from mptune.emit import emit, emit_all_devices, winner_of
from mptune.errors import BackendUnavailableError
from mptune.kernel import In, Kernel, Out, Scalar
from mptune.run import Run
from mptune.space.parameters import PrecisionParameter
from tests.tiers import few

POLY = own_kernel.kernel
CLANG = shutil.which("clang++") or next(map(str, sorted(Path("/usr/lib").glob("llvm-*/bin/clang++"))), None)
HIP_HEADERS = next((p for p in (Path("/usr/include"), Path("/opt/rocm/include")) if (p / "hip").is_dir()), None)

#: Narrow types of every kind, the nasty text among the values.
NARROW = {"register": NASTY, "order": (2, 0, 1), "x_type": "bf16", "a_type": "fp16", "w_type": "fp8_e4m3"}


def _missing(backend: type[CudaBackend] | type[HipBackend]) -> str:
    try:
        backend.runtime_compiler()
    except BackendUnavailableError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def awkward_run() -> Run:
    return run_of(AWKWARD, measured(AWKWARD, {}, NARROW), threshold=1.0, command=f"mptune tune '{NASTY}'")


@pytest.fixture(scope="module")
def awkward(awkward_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the narrow configuration of the awkward kernel."""
    folder = tmp_path_factory.mktemp("awkward")
    winner = winner_of(awkward_run, configuration="2", kernel=AWKWARD)
    assert winner is not None
    emit(winner, folder)
    return folder


@pytest.fixture(scope="module")
def poly(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A folder with a kernel of one free size, fp16 to fp32."""
    folder = tmp_path_factory.mktemp("poly")
    trials = measured(POLY, {}, {"x_type": "fp16", "y_type": "fp32", "unroll": 2})
    run = run_of(POLY, trials)
    winner = winner_of(run, configuration="x_type=fp16", kernel=POLY)
    assert winner is not None
    emit(winner, folder)
    return run, folder


def emitted_command(source: Path) -> list[str]:
    """Return the command, up to the files, that the comment of an emitted program says to compile it with."""
    command = re.search(rf"^//     ((?:g\+\+|python3 -m ziglang c\+\+) .*?){source.name}", source.read_text(), re.M)
    assert command is not None
    assert "-march=" in command[1]
    return [sys.executable if word == "python3" else word for word in command[1].split()]


def build(folder: Path, *sources: str, flags: str | None = None, compiler: str = "") -> Path:
    """Compile emitted files as they say, or with flags and a compiler, by default that of this machine."""
    program = folder / "program"
    compilers = [compiler] if compiler else find_compiler().command
    command = emitted_command(folder / sources[-1]) if flags is None else [*compilers, *flags.split()]
    command += ["-Wall", "-Wextra", "-Werror", *sources, "-o", str(program), "-pthread"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def run_program(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, timeout=600)


def error_of(kernel: Kernel, data: DataManager, folder: Path) -> float:
    outputs = {}
    for argument in kernel.outputs:
        values = np.fromfile(folder / file_name(argument), dtype=argument.dtype or np.float64)
        outputs[argument.name] = values.reshape(data.shape_of(argument))
    return evaluate_outputs(outputs, data.references, kernel.metric).error


def test_a_source_leaves_half_to_what_includes_it(awkward: Path) -> None:
    """For HIP its own half has another name, by a macro."""
    text = "".join(f'#include "{path}"\n' for path in (awkward / "tuned_awkward.cu", awkward / "tuned_awkward.hpp"))
    text += "half of_the_program;\n"
    command = [*find_compiler().command, "-E", "-P", "-D__HIP__", "-x", "c++", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    assert "struct mptune_half" in done.stdout
    assert "= ::mptune_half;" in done.stdout
    assert done.stdout.endswith("\nhalf of_the_program;\n")


UNROLLED = POLY.changed(
    name="unrolled",
    constraints=["block <= n", "n % unroll != 7 or n > 5000"],
    template=POLY.template.replace(
        "int i = (", "#pragma unroll 2\n        for (int again = 0; again < 1; ++again) (void)again;\n        int i = ("
    ),
)


@pytest.mark.full
@pytest.mark.gxx
@pytest.mark.skipif(CLANG is None, reason="clang++ is not installed")
def test_nothing_that_is_emitted_makes_a_compiler_warn_and_constraints_are_kept(tmp_path: Path) -> None:
    run = run_of(UNROLLED, measured(UNROLLED, {"unroll": 2}), threshold=1.0)
    winner = winner_of(run, configuration="1", kernel=UNROLLED)
    assert winner is not None
    emit(winner, tmp_path)
    (tmp_path / "sizes.cpp").write_text(
        """#include <cstdio>
#include <cstdlib>
#include "tuned_unrolled.hpp"
int main(int, char** words) {
    tuned_unrolled::Sizes sizes;
    sizes.n = std::atoi(words[1]);
    try {
        std::printf("%u", tuned_unrolled::grid(sizes).x);
    } catch (const std::exception& error) {
        std::printf("%s", error.what());
    }
}
"""
    )
    checked = ("-std=c++17", "-Wall", "-Wextra", "-Werror")
    for compiler in ("g++", CLANG):
        for source in ("tuned_unrolled_host.cpp", "tuned_unrolled.cu"):
            command = [str(compiler), *checked, "-march=native", "-c", "-x", "c++", source, "-o", "object"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
    program = build(tmp_path, "sizes.cpp", flags="-std=c++17")
    said = {n: run_program(program, n).stdout for n in (31, 32, 5003, 7000)}
    assert said == {
        31: "unrolled: block <= n does not hold at these sizes",
        32: "1",
        5003: "79",
        7000: "110",
    }


@pytest.fixture(scope="module")
def poly_program(poly: tuple[Run, Path]) -> Path:
    return build(poly[1], "tuned_poly_host.cpp")


@pytest.mark.parametrize("which", few(["poly", "awkward"]))
def test_host_program_gets_the_reported_error(which: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if which == "poly":
        kernel, run = POLY, request.getfixturevalue("poly")[0]
        program = request.getfixturevalue("poly_program")
    else:
        kernel, run = AWKWARD, request.getfixturevalue("awkward_run")
        program = build(request.getfixturevalue("awkward"), "tuned_awkward_host.cpp")
    data = DataManager(kernel, kernel.resolve_sizes())
    inputs = data_folder(data, tmp_path / "in")
    (tmp_path / "out").mkdir()
    done = run_program(program, inputs, tmp_path / "out", 3)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.removesuffix(" ms\n")) > 0
    reported = run.trials[1].error
    assert reported > 1e-5
    assert error_of(kernel, data, tmp_path / "out") == pytest.approx(reported, rel=1e-9)


def stepper_folder(folder: Path) -> Path:
    winner = winner_of(run_of(STEPPER, measured(STEPPER, {})), configuration="1", kernel=STEPPER)
    assert winner is not None
    emit(winner, folder)
    return folder


@pytest.mark.full
def test_host_program_restores_inputs_before_each_launch_and_writes_only_outputs(tmp_path: Path) -> None:
    program = build(stepper_folder(tmp_path), "tuned_stepper_host.cpp")
    u = np.random.default_rng(3).uniform(0.5, 1, 103)
    u.tofile(tmp_path / "u.f64")
    (tmp_path / "out").mkdir()
    done = run_program(program, tmp_path, tmp_path / "out", 3)
    assert done.returncode == 0, done.stderr
    # Neither what is not compared nor a scratch buffer is an output.
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["v.f64"]
    np.testing.assert_allclose(np.fromfile(tmp_path / "out" / "v.f64"), stepped(u, 4), rtol=1e-14)
    text = (tmp_path / "tuned_stepper_host.cpp").read_text()
    assert "u.f64: 103 elements of float64 (103,), read; stored" in text
    assert "kept.f64" not in text


def test_the_cupy_example_launches_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module that stands for CuPy copies where it converts, and launches a function of Python."""

    def function(name: str) -> Any:
        def convert(grid: Any, block: Any, arguments: Any) -> None:
            arguments[0][...] = arguments[1]

        def step(grid: Any, block: Any, arguments: Any, shared_mem: int) -> None:
            u, v, kept, n = arguments
            assert int(n) == 103
            kept[:] = u * u
            v[:] = stepped(u, 4)

        return step if name == "stepper" else convert

    module = types.SimpleNamespace(get_function=function)
    names = ("empty", "zeros", "asarray", "int64")
    cupy = types.SimpleNamespace(
        RawModule=lambda **_: module, asnumpy=np.asarray, **{name: getattr(np, name) for name in names}
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    example = runpy.run_path(str(stepper_folder(tmp_path) / "tuned_stepper_cupy.py"))
    u = np.random.default_rng(3).uniform(0.5, 1, 103)
    outputs = example["launch"]({"u": u})
    assert list(outputs) == ["v"]
    np.testing.assert_allclose(outputs["v"], stepped(u, 4), rtol=1e-14)


@pytest.mark.full
def test_host_program_keeps_denormals_as_they_were_when_measured(tmp_path: Path) -> None:
    halved = Kernel(
        name="halved",
        parameters=[PrecisionParameter("t", ["fp64", "fp32"])],
        arguments=[Out("y", "n", precision="t"), In("x", "n", precision="t"), Scalar("n", dtype="int32")],
        sizes={"default": {"n": 64}},
        inputs=lambda _, size: {"x": np.full(size.n, 1e-310)},
        reference=lambda given, _: {"y": given["x"] / 2},
        grid=[1],
        block=["n"],
        template='extern "C" __global__ void halved({{t}}* y, const {{t}}* x, int)\n'
        "{ y[threadIdx.x] = x[threadIdx.x] * {{t}}(0.5); }",
    )
    winner = winner_of(run_of(halved, measured(halved, {})), configuration="1", kernel=halved)
    assert winner is not None
    emit(winner, tmp_path)
    program = build(
        tmp_path, "tuned_halved_host.cpp", flags="-std=c++17 -O2 -march=native -ffast-math -Wno-nan-infinity-disabled"
    )
    np.full(64, 1e-310).tofile(tmp_path / "x.f64")
    assert run_program(program, tmp_path, tmp_path).returncode == 0
    np.testing.assert_allclose(np.fromfile(tmp_path / "y.f64"), 0.5e-310, rtol=1e-9)


def test_host_program_refuses_arrays_of_another_size(poly_program: Path, tmp_path: Path) -> None:
    program = poly_program
    np.ones(5002).tofile(tmp_path / "x.f64")
    short = run_program(program, tmp_path, tmp_path)
    assert short.returncode == 1
    assert f"x.f64 has {8 * 5002} bytes; expected {8 * 5003}" in short.stderr
    (tmp_path / "x.f64").unlink()
    assert "cannot open" in run_program(program, tmp_path, tmp_path).stderr
    assert run_program(program).returncode == 2


def test_header_computes_the_grid_of_free_sizes_and_throws_for_fixed_ones(awkward: Path, tmp_path: Path) -> None:
    sizes = [1, 31, 32, 33, 64, 1003, 65537]
    (tmp_path / "check.cpp").write_text(
        """
        #include "tuned_awkward.hpp"
        #include <cstdio>
        #include <cstring>
        #include <initializer_list>
        static_assert(tuned_awkward::grid().x == 32 && tuned_awkward::block.x == 32);
        static_assert(tuned_awkward::shared_bytes == 256);
        static_assert(tuned_awkward::elements::weights() == 3 && tuned_awkward::parameters::order[0] == 2);
        static_assert(tuned_awkward::arguments[2].is_constant && tuned_awkward::arguments[0].element_bytes == 2);
        int main() {
            std::puts(tuned_awkward::parameters::register_);
            for (long long n : {SIZES}) {
                tuned_awkward::Sizes sizes;
                sizes.n = n;
                std::printf("%u %lld\\n", tuned_awkward::grid(sizes).x, tuned_awkward::elements::count(sizes));
            }
            for (int which : {0, 1, 2}) {
                tuned_awkward::Sizes sizes;
                (which == 0 ? sizes.taps : sizes.n) = which == 2 ? 0 : which == 1 ? 1000000000000 : 4;
                try {
                    tuned_awkward::grid(sizes);
                } catch (const std::invalid_argument& error) {
                    std::puts(error.what());
                }
            }
        }
        """.replace("SIZES", ", ".join(map(str, sizes)))
    )
    program = build(tmp_path, "check.cpp", flags=f"-std=c++17 -Wall -Wextra -Werror -I{awkward}")
    lines = run_program(program).stdout.splitlines()
    assert lines[0] == NASTY
    configuration = AWKWARD.configuration(NARROW)
    expected = [AWKWARD.launch_shape(configuration, AWKWARD.resolve_sizes("default", {"n": n})).grid[0] for n in sizes]
    assert lines[1:-3] == [f"{blocks} {n}" for blocks, n in zip(expected, sizes, strict=True)]
    assert lines[-3:] == [
        "awkward: compiled for taps = 3 only; for another taps run mptune again",
        "awkward: the grid is empty or too large at these sizes",
        "awkward: n is below 1",
    ]


@pytest.mark.nvrtc
@pytest.mark.skipif(bool(_missing(CudaBackend)), reason=_missing(CudaBackend) or "NVRTC is there")
def test_nvrtc_compiles_the_source_and_what_the_cupy_example_adds(awkward: Path) -> None:
    script = (awkward / "tuned_awkward_cupy.py").read_text()
    assigned = {
        node.targets[0].id: node.value
        for node in ast.parse(script).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    conversions = ast.literal_eval(assigned["CONVERSIONS"])
    assert "store_fp8_e4m3" in conversions
    assert "fetch_long_long" in conversions
    source = (awkward / "tuned_awkward.cu").read_text() + conversions
    assert CudaBackend().compiler.compile(source, "awkward", CompileOptions("sm_80")).image


@pytest.mark.hiprtc
@pytest.mark.skipif(bool(_missing(HipBackend)), reason=_missing(HipBackend) or "hiprtc is there")
def test_hiprtc_compiles_the_source(awkward: Path) -> None:
    backend: Backend = HipBackend()
    source = (awkward / "tuned_awkward.cu").read_text()
    assert b"gfx90a" in backend.compiler.compile(source, "awkward", CompileOptions("gfx90a")).image


@pytest.mark.nightly
@pytest.mark.nvcc
def test_nvcc_compiles_the_cuda_example(awkward: Path, tmp_path: Path) -> None:
    command = ["nvcc", "-std=c++17", "-O0", "-arch=sm_80", "-c", "tuned_awkward_cuda.cu", "-o", tmp_path / "awkward.o"]
    done = subprocess.run(command, cwd=awkward, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = stepper_folder(tmp_path / "stepper")
    command = ["nvcc", "-std=c++17", "-O0", "-arch=sm_80", "-c", "tuned_stepper_cuda.cu", "-o", tmp_path / "stepper.o"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(CLANG is None or HIP_HEADERS is None, reason="clang++ or the HIP headers are not installed")
@pytest.mark.parametrize("side", few(["host", "device"], 0, 1))
def test_clang_accepts_the_hip_example(side: str, awkward: Path, tmp_path: Path) -> None:
    # A ROCm of headers alone: enough to check every name and type, not to link.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / ".hipVersion").write_text("HIP_VERSION_MAJOR=5\nHIP_VERSION_MINOR=2\nHIP_VERSION_PATCH=0\n")
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "hip").symlink_to(HIP_HEADERS / "hip")
    command = [CLANG, "-x", "hip", f"--cuda-{side}-only", "--offload-arch=gfx90a", f"--rocm-path={tmp_path}"]
    command += ["-nogpulib", "-std=c++17", "-fsyntax-only", "-w", "tuned_awkward_hip.hip"]
    done = subprocess.run(command, cwd=awkward, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "compiler",
    few(
        [
            pytest.param("", id="default"),
            pytest.param(
                CLANG, marks=[pytest.mark.skipif(CLANG is None, reason="clang++ is not installed")], id="clang++"
            ),
        ],
        0,
        1,
    ),
)
def test_header_of_all_devices_selects_and_both_link_into_one_program(tmp_path: Path, compiler: str) -> None:
    wide, narrow = measured(POLY, {}, {"x_type": "fp16", "y_type": "fp16", "block": 64})
    runs = [
        run_of(POLY, [wide], device='one "quoted" \\ device'),
        run_of(POLY, [narrow], device="other <device>", backend="cuda", architecture="sm_90"),
    ]
    winners = [winner for run in runs if (winner := winner_of(run, kernel=POLY)) is not None]
    emissions = emit_all_devices(winners, tmp_path)
    assert [emission.folder.name for emission in emissions] == ["one_quoted_device", "other_device"]
    (tmp_path / "both.cpp").write_text(
        r"""
        #include "tuned_poly.hpp"
        #include <cstdio>
        #include <filesystem>
        #include <iterator>
        int main() {
            const auto* one = tuned_poly::select("host", "one \"quoted\" \\ device");
            const auto* other = tuned_poly::select("cuda", "other <device>");
            if (!one || !other) return 1;
            if (tuned_poly::select("cuda", "other") || tuned_poly::select("hip", "other <device>")) return 1;
            std::printf("%s %s %s %u %u\n", one->types.x, other->types.x, other->source, other->block.x, one->block.x);
            tuned_poly::Sizes sizes;
            sizes.n = 64;
            const tuned_poly::Extents grid = other->grid(sizes);
            alignas(64) double x[64], y[64];
            alignas(64) unsigned short x16[64], y16[64];
            for (int i = 0; i < 64; ++i) x[i] = 0.1, x16[i] = 0x3800;
            void *px = x, *py = y, *px16 = x16, *py16 = y16;
            int n = 64;
            void* wide[] = {&py, &px, &n};
            void* narrow[] = {&py16, &px16, &n};
            const unsigned wide_grid[] = {one->grid(sizes).x, 1, 1}, wide_block[] = {one->block.x, 1, 1};
            const unsigned narrow_grid[] = {grid.x, 1, 1}, narrow_block[] = {other->block.x, 1, 1};
            if (tuned_poly_one_quoted_device_launch(wide, wide_grid, wide_block, 0, 3) < 0) return 2;
            if (tuned_poly_other_device_launch(narrow, narrow_grid, narrow_block, 0, 3) < 0) return 3;
            // Both run on the same threads.
            const std::filesystem::directory_iterator threads("/proc/self/task");
            if (std::distance(begin(threads), end(threads)) != 3) return 4;
            std::printf("%.17g %x\n", y[63], y16[63]);
        }
        """
    )
    sources = [str(emission.folder / emission.files[0]) for emission in emissions]
    program = build(tmp_path, "-x", "c++", "both.cpp", *sources, flags="-std=c++17 -O1", compiler=compiler)
    done = run_program(program)
    assert done.returncode == 0
    first, second = done.stdout.splitlines()
    assert first == "fp64 fp16 other_device/tuned_poly_other_device.cu 64 32"
    wide_y, narrow_y = second.split()
    assert float(wide_y) == pytest.approx(np.polyval([0.5, -1.0, 2.0, 1.0], 0.1), rel=1e-15)
    assert int(narrow_y, 16) == np.float16(np.polyval([0.5, -1.0, 2.0, 1.0], 0.5)).view(np.uint16)


@pytest.mark.full
def test_threads_that_launch_at_once_take_turns(tmp_path: Path) -> None:
    winner = winner_of(run_of(POLY, measured(POLY, {}, {"block": 64})), kernel=POLY)
    assert winner is not None
    emit(winner, tmp_path)
    (tmp_path / "threads.cpp").write_text(
        """
        #include "tuned_poly.hpp"
        #include <sys/wait.h>
        #include <thread>
        #include <unistd.h>
        #include <vector>
        static int wrong_launches(int size) {
            std::vector<double> x(size), y(size);
            tuned_poly::Sizes sizes;
            sizes.n = size;
            double *px = x.data(), *py = y.data();
            void* arguments[] = {&py, &px, &size};
            const unsigned grid[] = {tuned_poly::grid(sizes).x, 1, 1}, block[] = {tuned_poly::block.x, 1, 1};
            int wrong = 0;
            for (int turn = 1; turn <= 50; ++turn) {
                for (double& value : x) value = turn;
                const double t = turn, expected = ((0.5 * t - 1) * t + 2) * t + 1;
                wrong += tuned_poly_launch(arguments, grid, block, 0, 1 + turn % 3) < 0;
                for (double value : y) wrong += value != expected;
            }
            return wrong;
        }
        int main() {
            int wrong[4] = {}, status = 1;
            std::vector<std::thread> threads;
            for (int i = 0; i < 4; ++i) threads.emplace_back([&wrong, i] { wrong[i] = wrong_launches(500 * (i + 1)); });
            const pid_t child = fork();  // while one of them has its turn, as like as not
            if (child == 0) _exit(wrong_launches(300) != 0);
            for (std::thread& thread : threads) thread.join();
            waitpid(child, &status, 0);
            return status != 0 || wrong[0] + wrong[1] + wrong[2] + wrong[3] != 0;
        }
        """
    )
    program = build(tmp_path, "-x", "c++", "threads.cpp", "tuned_poly.cu", flags="-std=c++17 -O1")
    done = subprocess.run([program], check=False, timeout=100)
    assert done.returncode == 0
