"""The header that is emitted of wisdom chooses as Python does, and launches what it chooses."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from awkward_kernel import AWKWARD, NASTY, run_of
from command_line import caller
from runs_by_size import POLY, at_size, trial, undecided
from test_programs import CLANG, HIP_HEADERS, _missing, build, run_program

from mptune.backends.base import CompileOptions
from mptune.backends.cuda import CudaBackend
from mptune.backends.hip import HipBackend
from mptune.data import DataManager
from mptune.emit import emit_dispatch
from mptune.errors import KernelError
from mptune.kernel import In, Kernel, Out, Sizes
from mptune.run import Run
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from mptune.wisdom import Chooser, Wisdom, gather, read_sources

FLAGS = "-std=c++17 -O1 -march=native -x c++"


def wisdom_of(*runs: Run) -> Wisdom:
    return gather(read_sources(runs))


#: Two sizes that differ at a launch, a constraint on them, and errors that grow with one of them.
PLANE = Kernel(
    name="plane",
    parameters=[OrdinalParameter("block", [32, 64, 128]), PrecisionParameter("t", ["fp64", "fp32", "fp16"])],
    constraints=["block <= width or block == 32"],
    arguments=[Out("y", ("height", "width"), precision="t"), In("x", ("height", "width"), precision="t")],
    sizes={"default": {"width": 100, "height": 100}},
    inputs=lambda rng, size: {"x": rng.random((size.height, size.width))},
    reference=lambda given, size: {"y": 2 * given["x"]},
    grid=["ceildiv(width, block)", "height"],
    block=["block"],
    template="""
extern "C" __global__ void plane({{ t }}* y, const {{ t }}* x) {
    const int i = blockIdx.x * {{ block }} + threadIdx.x;
    y[i] = x[i] + x[i];
}
""",
)


def plane_at(width: int, height: int, rng: np.random.Generator, **settings: Any) -> Run:
    trials = []
    for kind, time_ms, error in (("fp64", 4.0, 1e-16), ("fp32", 2.0, 1e-7), ("fp16", 1.0, 1e-4)):
        for block in (32, 64, 128):
            grown = error * (height / 100) ** 0.5 * rng.uniform(0.9, 1)
            draws = int(rng.choice([1, 3, 23]))
            noisy = time_ms * rng.uniform(1, 1.5)
            further = {"error.y": grown}
            trials.append(trial(noisy, grown, draws, kernel=PLANE, further=further, block=block, t=kind))
    sizes = PLANE.resolve_sizes("default", {"width": width, "height": height})
    return run_of(PLANE, trials, sizes=sizes, threshold={"": 1e-3, "y": 4e-4}, **settings)


def asked(folder: Path, kernel: Kernel, device: Sequence[str], sizes: Sequence[Mapping[str, int]]) -> list[str]:
    """Return the configurations that the header chooses, empty for none."""
    names = list(kernel.sizes["default"])
    reading = " && ".join(f'std::scanf("%lld", &sizes.{name}) == 1' for name in names)
    (folder / "ask.cpp").write_text(
        f"""
        #include "tuned_{kernel.name}.hpp"
        #include <cstdio>
        int main(int, char** words) {{
            const tuned_{kernel.name}::Device device{{words[1], words[2], words[3]}};
            tuned_{kernel.name}::Sizes sizes;
            while ({reading}) {{
                const auto* variant = tuned_{kernel.name}::dispatch(device, sizes);
                std::puts(variant ? variant->configuration : "");
            }}
        }}
        """
    )
    program = folder / "program"
    if not program.exists():
        build(folder, "ask.cpp", flags="-std=c++17")
    text = "\n".join(" ".join(str(each[name]) for name in names) for each in sizes)
    done = subprocess.run([program, *device], input=text, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def expected(chooser: Chooser, sizes: Sequence[Mapping[str, int]], *, widest: bool = False) -> list[str]:
    choose = chooser.widest if widest else chooser.choose
    known = {candidate.configuration for candidate in chooser.candidates}
    found = []
    for each in sizes:
        try:
            configuration = choose(chooser.kernel.resolve_sizes("default", each)).configuration
        except KernelError:
            configuration = None
        found.append(str(configuration) if configuration in known else "")
    return found


@pytest.mark.full
def test_the_header_chooses_as_python_does_at_a_thousand_sizes(tmp_path: Path) -> None:
    runs = [at_size(n, threshold=2e-4) for n in (1000, 4000, 30_000)]
    there = [at_size(n, 0.9, 2e-4, backend="cuda", device="H100", architecture="sm_90") for n in (2000, 9000)]
    # At one of the sizes no winner was named, and nothing is surely faster than the baseline there.
    wisdom = Wisdom((*undecided(wisdom_of(*runs), 4000, (0.9, 1.1)).kernels, *wisdom_of(*there).kernels))
    written = emit_dispatch(wisdom, tmp_path, kernel=POLY)
    assert 4 <= len(written.variants) <= 12
    assert written.fixed == ()
    rng = np.random.default_rng(1)
    sizes = [{"n": int(n)} for n in (*np.exp(rng.uniform(4, 13, 1000)), 1000, 4000, 30_000, 2000, 9000, 1)]
    by_name = {known.device: known for known in wisdom.kernels}
    h100 = by_name.pop("H100")
    (here,) = by_name.values()
    budget = {"error": 2e-4}
    first = wisdom.kernels[0]
    for device, chooser, is_wide in (
        ((here.backend, here.device, here.architecture), Chooser(here, POLY, budget=budget), False),
        (("cuda", "H100", ""), Chooser(h100, POLY, budget=budget), False),
        (("cuda", "H200", "sm_90"), Chooser(h100, POLY, budget=budget, is_own=False), False),
        (("hip", "MI300X", "gfx942"), Chooser(first, POLY, budget=budget), True),
    ):
        found = asked(tmp_path, POLY, device, sizes)
        assert found == expected(chooser, sizes, widest=is_wide)
        assert len(set(found)) >= (1 if is_wide else 3)


def test_wisdom_of_which_nothing_is_valid_is_refused(tmp_path: Path) -> None:
    strict = dataclasses.replace(POLY, constraints=("block > 100_000",))
    with pytest.raises(KernelError, match="kernel poly: no configuration of the wisdom is valid at its sizes"):
        emit_dispatch(wisdom_of(at_size(1000)), tmp_path, kernel=strict)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("count", [pytest.param(4, marks=pytest.mark.full), 8])
def test_the_table_of_many_sizes_is_small(count: int, tmp_path: Path) -> None:
    names = tuple(f"n{i}" for i in range(count))
    many = Kernel(
        name="many",
        parameters=[PrecisionParameter("t", ["fp64", "fp32"])],
        arguments=[Out("y", names, precision="t"), In("x", names, precision="t")],
        sizes={"default": dict.fromkeys(names, 16)},
        inputs=lambda rng, size: {},
        reference=lambda given, size: {},
        grid=[names[0]],
        block=[32],
        template='extern "C" __global__ void many({{ t }}* y, const {{ t }}* x) {}',
    )
    trials = [trial(2.0, 1e-16, kernel=many), trial(1.0, 1e-7, kernel=many, t="fp32")]
    emit_dispatch(wisdom_of(run_of(many, trials, threshold=1e-3)), tmp_path, kernel=many)
    assert (tmp_path / "tuned_many.hpp").stat().st_size < 100_000


@pytest.mark.full
def test_there_is_no_variant_for_sizes_that_an_argument_cannot_hold(tmp_path: Path) -> None:
    wisdom = wisdom_of(at_size(1000), at_size(10**9))
    emit_dispatch(wisdom, tmp_path, kernel=POLY)
    (known,) = wisdom.kernels
    sizes = [{"n": n} for n in (0, 1000, 10**9, 2**31 - 1 - 2**16, 2**31 - 1, 2**31, 2**53)]
    found = asked(tmp_path, POLY, (known.backend, known.device, known.architecture), sizes)
    assert [bool(each) for each in found] == [False, True, True, True, False, False, False]


@pytest.mark.full
def test_so_it_does_where_errors_are_zero_at_some_sizes_and_beside_them(tmp_path: Path) -> None:
    exact = {1024: ["fp16"], 4096: ["fp16", "fp32"], 65_536: ["fp16"], 10**6: ["fp16", "fp32"]}
    exact[2_000_000_011] = ["fp16", "fp32"]
    wisdom = wisdom_of(at_size(3000), *(at_size(n, exact=kinds) for n, kinds in exact.items()))
    emit_dispatch(wisdom, tmp_path, kernel=POLY)
    (known,) = wisdom.kernels
    at = (600, 1024, 2000, 3000, 4096, 9000, 40_000, 65_536, 10**6, 2_000_000_011)
    sizes = [{"n": n + step} for n in at for step in (-1, 0, 1)]
    found = asked(tmp_path, POLY, (known.backend, known.device, known.architecture), sizes)
    assert found == expected(Chooser(known, POLY), sizes)
    assert ["fp16" in each for each in found[-9:]] == [False, True, False] * 3


@pytest.mark.full
def test_so_it_does_for_several_sizes_several_limits_and_constraints(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    runs = [plane_at(w, h, rng) for w, h in ((40, 100), (300, 100), (40, 900), (2000, 5000), (600, 600))]
    kinder = {1: {"fp16": {"width": 0.5}}, 3: {"fp16": {"width": 0.0}, "fp32": {"height": 0.3}}}
    for number, shares in kinder.items():
        runs[number] = Run(dataclasses.replace(runs[number].info, rounded={"t": shares}), runs[number].trials)
    wisdom = wisdom_of(*runs)
    emit_dispatch(wisdom, tmp_path, kernel=PLANE)
    values = np.exp(rng.uniform(2, 9.5, (1000, 2)))
    sizes = [{"width": int(w), "height": int(h)} for w, h in values]
    sizes += [dict(record.sizes) for record in wisdom.kernels[0].tuned]
    (known,) = wisdom.kernels
    found = asked(tmp_path, PLANE, (known.backend, known.device, known.architecture), sizes)
    assert found == expected(Chooser(known, PLANE), sizes)
    assert len(set(found)) >= 5


@pytest.mark.full
def test_what_is_chosen_is_launched_and_gives_its_answer(tmp_path: Path) -> None:
    written = emit_dispatch(wisdom_of(at_size(1000), at_size(4000)), tmp_path, kernel=POLY, max_error=1.5e-4)
    (tmp_path / "main.cpp").write_text(
        """
        #include "tuned_poly.hpp"
        #include <cstdio>
        #include <cstring>
        #include <vector>
        template <class T> double run(const tuned_poly::Variant& variant, int n, T value) {
            std::vector<T> x(n, value), y(n + 1);
            T *px = x.data(), *py = y.data();
            void* arguments[] = {&py, &px, &n};
            tuned_poly::Sizes sizes;
            sizes.n = n;
            if (tuned_poly::launch(variant, sizes, arguments, 2)) return -1;
            return y[n] == 0 ? y[n - 1] : -2;
        }
        int main() {
            for (int n : {1100, 3900, 90000}) {
                tuned_poly::Sizes sizes;
                sizes.n = n;
                const auto* variant = tuned_poly::dispatch(tuned_poly::devices[0], sizes);
                if (!variant) return 1;
                double y = -3;
                if (!std::strcmp(variant->types.x, "fp16")) y = run<unsigned short>(*variant, n, 0x3800);
                if (!std::strcmp(variant->types.x, "fp32")) y = run<float>(*variant, n, 0.5f);
                if (!std::strcmp(variant->types.x, "fp64")) y = run<double>(*variant, n, 0.5);
                std::printf("%s %d %.17g\\n", variant->types.x, variant->is_baseline, y);
            }
        }
        """
    )
    sources = [name for name in written.files if name.endswith(".cu")]
    lines = run_program(build(tmp_path, "main.cpp", *sources, flags=FLAGS)).stdout.splitlines()
    value = np.polyval([0.5, -1.0, 2.0, 1.0], 0.5)
    assert lines == [f"fp16 0 {np.float16(value).view(np.uint16)}", f"fp32 0 {value}", f"fp64 1 {value}"]


def awkward_at(n: int, taps: int) -> Run:
    narrow = {"register": NASTY, "order": (2, 0, 1), "x_type": "bf16", "w_type": "fp8_e4m3"}
    trials = [trial(4.0, 1e-16, kernel=AWKWARD), trial(1.0, 1e-3, kernel=AWKWARD, **narrow)]
    return run_of(AWKWARD, trials, sizes=AWKWARD.resolve_sizes("default", {"n": n, "taps": taps}), threshold=1e-2)


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("awkward")
    sizes = [{"n": 1003, "taps": 7}]
    written = emit_dispatch(wisdom_of(awkward_at(1003, 3), awkward_at(500, 5)), folder, kernel=AWKWARD, sizes=sizes)
    assert written.fixed == ("taps",)
    assert sorted({fixed["taps"] for _, fixed in written.variants}) == [3, 5, 7]
    return folder


@pytest.mark.full
def test_sizes_that_are_written_into_sources_have_variants_of_their_own(awkward: Path, tmp_path: Path) -> None:
    data = DataManager(AWKWARD, Sizes({"n": 700, "taps": 5}))
    for name in ("y", "x", "weights"):
        np.asarray(data.inputs[name], np.float64).tofile(tmp_path / name)
    data.inputs["index"].astype(np.int32).tofile(tmp_path / "index")
    (awkward / "main.cpp").write_text(
        """
        #include "tuned_awkward.hpp"
        #include <cstdio>
        #include <fstream>
        #include <string>
        #include <vector>
        template <class T> std::vector<T> read(const std::string& path, int n) {
            std::vector<T> values(n);
            std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(values.data()), n * sizeof(T));
            return values;
        }
        int main(int, char** words) {
            const auto here = tuned_awkward::devices[0];
            tuned_awkward::Sizes sizes;
            sizes.n = 700;
            for (int taps : {3, 4, 5, 7}) {
                sizes.taps = taps;
                const auto* chosen = tuned_awkward::dispatch(here, sizes);
                std::printf("%d %s\\n", taps, chosen ? chosen->types.x : "none");
            }
            sizes.taps = 5;
            const auto* wide = tuned_awkward::dispatch({"cuda", "H100"}, sizes);
            const std::string folder = words[1];
            auto y = read<double>(folder + "/y", 700), x = read<double>(folder + "/x", 700);
            auto weights = read<double>(folder + "/weights", 5);
            auto index = read<int>(folder + "/index", 700);
            std::vector<long long> count(700);
            double *py = y.data(), *px = x.data(), a = 0.3;
            int *pindex = index.data(), n = 700;
            long long* pcount = count.data();
            void* arguments[] = {&py, &px, &a, &pindex, &pcount, &n};
            const void* constants[] = {weights.data()};
            std::printf("%lld\\n", tuned_awkward::launch(*wide, sizes, arguments, 2, constants));
            std::ofstream(folder + "/out", std::ios::binary).write(reinterpret_cast<char*>(py), 700 * sizeof(double));
            try {
                sizes.taps = 4;
                tuned_awkward::grid(*wide, sizes);
            } catch (const std::invalid_argument& error) {
                std::puts(error.what());
            }
        }
        """
    )
    sources = sorted(path.name for path in awkward.glob("tuned_awkward_[0-9]*.cu"))
    lines = run_program(build(awkward, "main.cpp", *sources, flags=FLAGS), tmp_path).stdout.splitlines()
    # What was never tuned has no winner. fp8, in which the weights are, may overflow with more taps than were tuned.
    assert lines == [
        "3 bf16",
        "4 none",
        "5 bf16",
        "7 fp64",
        "0",
        "awkward: this variant does not compute for these sizes",
    ]
    np.testing.assert_allclose(np.fromfile(tmp_path / "out"), data.references["y"], rtol=1e-14)


# -- other compilers -----------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.nvrtc
@pytest.mark.skipif(bool(_missing(CudaBackend)), reason=_missing(CudaBackend) or "NVRTC is there")
def test_nvrtc_compiles_the_variants(awkward: Path) -> None:
    source = (awkward / "tuned_awkward_1.cu").read_text()
    whole = source.replace('#include "tuned_awkward_prelude.hpp"', (awkward / "tuned_awkward_prelude.hpp").read_text())
    options = CompileOptions("sm_80")
    assert CudaBackend().compiler.compile(whole, "tuned_awkward_1_function", options).image


@pytest.mark.nightly
@pytest.mark.hiprtc
@pytest.mark.skipif(bool(_missing(HipBackend)), reason=_missing(HipBackend) or "hiprtc is there")
def test_hiprtc_compiles_the_variants(awkward: Path) -> None:
    source = (awkward / "tuned_awkward_1.cu").read_text()
    whole = source.replace('#include "tuned_awkward_prelude.hpp"', (awkward / "tuned_awkward_prelude.hpp").read_text())
    assert HipBackend().compiler.compile(whole, "tuned_awkward_1_function", CompileOptions("gfx90a")).image


@pytest.mark.nightly
@pytest.mark.nvcc
def test_nvcc_compiles_the_variants_and_the_header(awkward: Path, tmp_path: Path) -> None:
    (awkward / "use.cu").write_text(
        '#include "tuned_awkward.hpp"\nint main() {\n'
        "    return tuned_awkward::dispatch(tuned_awkward::devices[0], {}) == nullptr;\n}\n"
    )
    for source in ("tuned_awkward_1.cu", "use.cu"):
        command = ["nvcc", "-std=c++17", "-O0", "-arch=sm_80", "-c", source, "-o", tmp_path / "object.o"]
        done = subprocess.run(command, cwd=awkward, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.skipif(CLANG is None or HIP_HEADERS is None, reason="clang++ or the HIP headers are not installed")
def test_clang_accepts_the_variants_for_hip_and_warns_of_nothing_in_the_header(awkward: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / ".hipVersion").write_text("HIP_VERSION_MAJOR=5\nHIP_VERSION_MINOR=2\nHIP_VERSION_PATCH=0\n")
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "hip").symlink_to(HIP_HEADERS / "hip")
    command = [CLANG, "-x", "hip", "--cuda-host-only", "--offload-arch=gfx90a", f"--rocm-path={tmp_path}"]
    command += ["-nogpulib", "-std=c++17", "-fsyntax-only", "-w", "tuned_awkward_1.cu"]
    done = subprocess.run(command, cwd=awkward, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (tmp_path / "use.cpp").write_text('#include "tuned_awkward.hpp"\nint main() {}\n')
    command = [
        CLANG,
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{awkward}",
        "-fsyntax-only",
        tmp_path / "use.cpp",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# -- the command ---------------------------------------------------------------------------------


@pytest.mark.full
def test_the_command_writes_what_wisdom_chooses_among(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import own_kernel

    mptune = caller(monkeypatch, capfd)
    path = tmp_path / "poly.wisdom.json"
    wisdom_of(at_size(1000), at_size(4000)).save(path)
    target = tmp_path / "out"
    done = mptune("emit", path, "--kernel", own_kernel.__file__, "--max-error", "1.5e-4", "-o", target)
    assert done.code == 0, done.err
    assert "kernel poly: " in done.out
    assert "variants for any n" in done.out
    assert (target / "tuned_poly.hpp").is_file()
    again = mptune("emit", path, "--kernel", own_kernel.__file__, "-o", target, "--json")
    document = json.loads(again.out)
    assert document["threshold"] == {"error": 1e-3}
    assert {"block": 64, "unroll": 1, "x_type": "fp16", "y_type": "fp16"} in [
        variant["configuration"] for variant in document["variants"]
    ]
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    from mptune.schemas import schema

    jsonschema.Draft202012Validator(schema("emit")).validate(document)
    for words, message in (
        ((path, "--all-devices"), "--all-devices"),
        ((path, "--configuration", "1"), "--configuration"),
        ((path, path), "one wisdom file"),
        (
            (path, "--kernel", own_kernel.__file__, "--max-error", "q=1"),
            "unknown output or error metric in the wisdom: 'q'",
        ),
    ):
        refused = mptune("emit", *words, "-o", target)
        assert refused.code == 2
        assert message in refused.err
    (target / "README.md").write_text("mine")
    assert "was not written by mptune emit" in mptune("emit", path, "--kernel", own_kernel.__file__, "-o", target).err
