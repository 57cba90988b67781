"""The emitted files compile, run and give the reported error, without mptune."""

from __future__ import annotations

import functools
import re
import runpy
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import own_kernel
import pytest
from awkward_kernel import AWKWARD, NASTY, measured, run_of
from programs import (
    CLANG,
    RUNTIME_COMPILERS,
    build,
    check_hip,
    compile_for,
    compiled,
    conversions_of,
    emitted,
    needs_clang,
    needs_hip_headers,
    nvcc,
    outputs_of,
    run_program,
)
from stepper_kernel import STEPPER, stepped

from mptune.backends.host_compiler import find_compiler
from mptune.emit import emit_all_devices, winner_of
from mptune.kernel import In, Kernel, Out, Scalar
from mptune.precision import COMPOUND
from mptune.source.loading import load_kernel
from mptune.space.parameters import PrecisionParameter
from tests.tiers import few

POLY = own_kernel.kernel
#: Narrow types of every kind, the nasty text among the values.
NARROW = {"register": NASTY, "order": (2, 0, 1), "x_type": "bf16", "a_type": "fp16", "w_type": "fp8_e4m3"}
GEMM = load_kernel("gemm")
KMEANS = load_kernel("kmeans").changed(sizes={"default": {"n": 331, "features": 15, "clusters": 40}})
TILES = {"MWG": 16, "NWG": 16, "KWG": 8, "MDIMC": 8, "NDIMC": 4, "MDIMA": 8, "NDIMB": 4, "VWM": 2, "VWN": 2}
SINGLE = dict.fromkeys(("a_type", "b_type", "accumulator_type", "c_type"), "fp32")


def gemm(a: int = 0, b: int = 0) -> Kernel:
    return GEMM.changed(sizes={"default": {"M": 37, "N": 29, "K": 301, "transposed_a": a, "transposed_b": b}})


def kmeans(sums: str) -> dict[str, Any]:
    narrow = "fp64" if COMPOUND[sums].size_bytes == 8 else "fp32"
    return {"point_type": narrow, "centre_type": narrow, "use_shared": True, "distance_type": sums}


#: By name: a kernel, values, and between what the measured error is.
CASES: dict[str, tuple[Kernel, dict[str, Any], float, float]] = {
    "poly": (POLY, {"x_type": "fp16", "y_type": "fp32", "unroll": 2}, 1e-5, 1e-2),
    "awkward": (AWKWARD, NARROW, 1e-5, 1e-1),
    "stepper": (STEPPER, {}, 0, 1e-14),
    # Sums in compound types: of one kernel the output has them, of the other scalars do.
    "kmeans_fp32x2": (KMEANS, kmeans("fp32x2"), 0, 2.0**-42),
    "kmeans_fp64_neumaier": (KMEANS, kmeans("fp64_neumaier"), 0, 2.0**-50),
    "kmeans_fp32_neumaier": (KMEANS, kmeans("fp32_neumaier"), 0, 2.0**-21),
    "gemm_bf16x3": (gemm(), SINGLE | TILES | {"accumulator_type": "bf16x3"}, 0, 2.0**-18),
    "gemm_transposed": (gemm(1, 1), SINGLE | TILES, 0, 1e-6),
    "gemm_transposed_a": (gemm(1, 0), SINGLE | TILES, 0, 1e-6),
}
Emitted = Callable[[str], tuple[Path, float]]


@pytest.fixture(scope="module")
def emitted_case(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    """A function that emits a case, once, and returns the folder and the measured error."""

    @functools.cache
    def emit_once(name: str) -> tuple[Path, float]:
        folder = tmp_path_factory.mktemp(name)
        return folder, emitted(*CASES[name][:2], folder)

    return emit_once


@pytest.mark.parametrize("name", few(CASES, 2, 5))
@pytest.mark.full
def test_the_host_program_has_the_measured_error(name: str, emitted_case: Emitted, tmp_path: Path) -> None:
    folder, error = emitted_case(name)
    kernel, _, least, most = CASES[name]
    assert least <= error <= most
    found = outputs_of(build(folder, f"tuned_{kernel.name}_host.cpp"), kernel, None, tmp_path)
    assert found == pytest.approx(error, rel=1e-9, abs=1e-16)


@pytest.mark.parametrize(("backend", "architecture"), RUNTIME_COMPILERS)
@pytest.mark.parametrize("name", few(["awkward", "kmeans_fp32x2", "gemm_bf16x3"], 1, 1))
def test_runtime_compilers_take_the_source_and_what_the_cupy_example_adds(
    name: str, backend: str, architecture: str, emitted_case: Emitted
) -> None:
    folder, kernel = emitted_case(name)[0], CASES[name][0]
    conversions = conversions_of(folder / f"tuned_{kernel.name}_cupy.py")
    if name == "awkward":
        assert "store_fp8_e4m3" in conversions
        assert "fetch_long_long" in conversions
    functions = [kernel.function, *re.findall(r"void (store_\w+)\(", conversions)[: 1 if name == "awkward" else None]]
    compile_for(backend, architecture, folder / f"tuned_{kernel.name}.cu", *functions, also=conversions)


@pytest.mark.nightly
@pytest.mark.nvcc
@pytest.mark.parametrize("name", ["awkward", "stepper", "kmeans_fp32x2"])
def test_nvcc_compiles_the_cuda_example(name: str, emitted_case: Emitted, tmp_path: Path) -> None:
    nvcc(emitted_case(name)[0] / f"tuned_{CASES[name][0].name}_cuda.cu", tmp_path)


@needs_hip_headers
@pytest.mark.parametrize("side", few(["host", "device"], 0, 1))
@pytest.mark.parametrize("name", few(["awkward", "kmeans_fp32x2", "gemm_bf16x3"], 1, 1))
def test_clang_accepts_the_hip_example(name: str, side: str, emitted_case: Emitted, tmp_path: Path) -> None:
    check_hip(emitted_case(name)[0] / f"tuned_{CASES[name][0].name}_hip.hip", side, tmp_path)


def test_a_source_leaves_half_to_what_includes_it(emitted_case: Emitted) -> None:
    """For HIP its own half has another name, by a macro."""
    awkward, _ = emitted_case("awkward")
    text = "".join(f'#include "{awkward / name}"\n' for name in ("tuned_awkward.cu", "tuned_awkward.hpp"))
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
@needs_clang
def test_nothing_that_is_emitted_makes_a_compiler_warn_and_constraints_are_kept(tmp_path: Path) -> None:
    emitted(UNROLLED, {"unroll": 2}, tmp_path, threshold=1.0)
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
            compiled(compiler, *checked, "-march=native", "-c", "-x", "c++", source, "-o", "object", folder=tmp_path)
    program = build(tmp_path, "sizes.cpp", flags="-std=c++17")
    said = {n: run_program(program, n).stdout for n in (31, 32, 5003, 7000)}
    assert said == {31: "unrolled: block <= n does not hold at these sizes", 32: "1", 5003: "79", 7000: "110"}


@pytest.mark.full
def test_host_program_restores_inputs_before_each_launch_and_writes_only_outputs(
    emitted_case: Emitted, tmp_path: Path
) -> None:
    folder, _ = emitted_case("stepper")
    u = np.random.default_rng(3).uniform(0.5, 1, 103)
    u.tofile(tmp_path / "u.f64")
    (tmp_path / "out").mkdir()
    assert run_program(build(folder, "tuned_stepper_host.cpp"), tmp_path, tmp_path / "out", 3).returncode == 0
    # Neither what is not compared nor a scratch buffer is an output.
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["v.f64"]
    np.testing.assert_allclose(np.fromfile(tmp_path / "out" / "v.f64"), stepped(u, 4), rtol=1e-14)


@pytest.mark.full
def test_host_program_refuses_arrays_of_another_size(emitted_case: Emitted, tmp_path: Path) -> None:
    program = build(emitted_case("poly")[0], "tuned_poly_host.cpp")
    np.ones(5002).tofile(tmp_path / "x.f64")
    short = run_program(program, tmp_path, tmp_path)
    assert short.returncode == 1
    assert f"x.f64 has {8 * 5002} bytes; expected {8 * 5003}" in short.stderr
    (tmp_path / "x.f64").unlink()
    assert "cannot open" in run_program(program, tmp_path, tmp_path).stderr
    assert run_program(program).returncode == 2


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
    emitted(halved, {}, tmp_path)
    flags = "-std=c++17 -O2 -march=native -ffast-math -Wno-nan-infinity-disabled"
    program = build(tmp_path, "tuned_halved_host.cpp", flags=flags)
    np.full(64, 1e-310).tofile(tmp_path / "x.f64")
    assert run_program(program, tmp_path, tmp_path).returncode == 0
    np.testing.assert_allclose(np.fromfile(tmp_path / "y.f64"), 0.5e-310, rtol=1e-9)


class FakeCupy(types.ModuleType):
    """NumPy in place of CuPy: conversions convert, and kernels are functions of Python."""

    def __init__(self, kernel: Callable[..., None]) -> None:
        super().__init__("cupy")
        for name in ("empty", "zeros", "asarray", "int64", "fromfile"):
            setattr(self, name, getattr(np, name))

        def function(name: str) -> Callable[..., None]:
            def convert(grid: Any, block: Any, arguments: tuple[Any, Any, int]) -> None:
                target, source, count = arguments
                assert count == source.size
                target[...] = source

            return convert if name.startswith(("store_", "fetch_")) else kernel

        self.asnumpy = np.asarray
        self.RawModule = lambda **options: types.SimpleNamespace(get_function=function, **options)


def test_the_cupy_example_launches_as_the_kernel_was_measured(
    emitted_case: Emitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches: list[tuple[Any, ...]] = []

    def poly(grid: Any, block: Any, arguments: Any, shared_mem: int = 0) -> None:
        launches.append((grid, block, shared_mem, *arguments))
        arguments[0][...] = 2

    monkeypatch.setitem(sys.modules, "cupy", FakeCupy(poly))
    script = runpy.run_path(str(emitted_case("poly")[0] / "tuned_poly_cupy.py"))
    np.linspace(0, 1, 5003).tofile(tmp_path / "x.f64")
    (tmp_path / "out").mkdir()
    script["main"](tmp_path, tmp_path / "out")
    assert np.array_equal(np.fromfile(tmp_path / "out" / "y.f64"), np.full(5003, 2.0))
    ((grid, block, shared, y, x, n),) = launches
    shape = POLY.launch_shape(POLY.configuration(CASES["poly"][1]), POLY.resolve_sizes())
    assert (grid, block, shared) == (shape.grid, shape.block, 0)
    assert (y.dtype, x.dtype, n.dtype, n) == (np.float32, np.float16, np.int32, 5003)
    assert np.array_equal(x, np.linspace(0, 1, 5003).astype(np.float16))
    for given, message in (
        ({"x": np.zeros(3)}, r"x has shape \(3,\); expected \(5003,\)"),
        ({}, "there is no input x"),
        ({"x": np.zeros(5003), "n": 4}, "n is 4"),
    ):
        with pytest.raises(ValueError, match=message):
            script["launch"](given)


def test_header_computes_the_grid_of_free_sizes_and_throws_for_fixed_ones(
    emitted_case: Emitted, tmp_path: Path
) -> None:
    awkward, _ = emitted_case("awkward")
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


@pytest.mark.parametrize(
    "compiler", few([pytest.param("", id="default"), pytest.param(CLANG, marks=needs_clang, id="clang++")], 0, 1)
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
    emitted(POLY, {"block": 64}, tmp_path)
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
