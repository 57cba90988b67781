"""The header that is emitted of wisdom chooses as Python does, and launches what it chooses."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from awkward_kernel import AWKWARD, NASTY, run_of
from command_line import caller
from programs import (
    CLANG,
    RUNTIME_COMPILERS,
    build,
    check_hip,
    compile_for,
    compiled,
    needs_hip_headers,
    nvcc,
    run_program,
)
from runs_by_size import POLY, at_size, trial, undecided

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
    # No argument of the kernel can hold these sizes.
    assert asked(tmp_path, POLY, (here.backend, here.device, ""), [{"n": n} for n in (0, 2**31, 2**53)]) == ["", "", ""]


def test_wisdom_of_which_nothing_is_valid_is_refused(tmp_path: Path) -> None:
    strict = dataclasses.replace(POLY, constraints=("block > 100_000",))
    with pytest.raises(KernelError, match="kernel poly: no configuration of the wisdom is valid at its sizes"):
        emit_dispatch(wisdom_of(at_size(1000)), tmp_path, kernel=strict)
    assert not [*tmp_path.iterdir()]


def test_the_table_of_many_sizes_is_small(tmp_path: Path) -> None:
    names = tuple(f"n{i}" for i in range(8))
    many = PLANE.changed(
        parameters=[PrecisionParameter("t", ["fp64", "fp32"])],
        constraints=[],
        arguments=[Out("y", names, precision="t"), In("x", names, precision="t")],
        sizes={"default": dict.fromkeys(names, 16)},
        grid=[names[0]],
        block=[32],
        template='extern "C" __global__ void plane({{ t }}* y, const {{ t }}* x) {}',
    )
    trials = [trial(2.0, 1e-16, kernel=many), trial(1.0, 1e-7, kernel=many, t="fp32")]
    emit_dispatch(wisdom_of(run_of(many, trials, threshold=1e-3)), tmp_path, kernel=many)
    assert (tmp_path / "tuned_plane.hpp").stat().st_size < 100_000


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
@pytest.mark.parametrize(("backend", "architecture"), RUNTIME_COMPILERS)
def test_runtime_compilers_take_the_variants(awkward: Path, backend: str, architecture: str) -> None:
    compile_for(backend, architecture, awkward / "tuned_awkward_1.cu", "tuned_awkward_1_function")


@pytest.mark.nightly
@pytest.mark.nvcc
def test_nvcc_compiles_the_variants_and_the_header(awkward: Path, tmp_path: Path) -> None:
    (awkward / "use.cu").write_text(
        '#include "tuned_awkward.hpp"\nint main() {\n'
        "    return tuned_awkward::dispatch(tuned_awkward::devices[0], {}) == nullptr;\n}\n"
    )
    for source in ("tuned_awkward_1.cu", "use.cu"):
        nvcc(awkward / source, tmp_path)


@pytest.mark.full
@needs_hip_headers
def test_clang_accepts_the_variants_for_hip_and_warns_of_nothing_in_the_header(awkward: Path, tmp_path: Path) -> None:
    check_hip(awkward / "tuned_awkward_1.cu", "host", tmp_path)
    (tmp_path / "use.cpp").write_text('#include "tuned_awkward.hpp"\nint main() {}\n')
    warned = ("-Wall", "-Wextra", "-Werror", "-fsyntax-only")
    compiled(CLANG, "-std=c++17", *warned, f"-I{awkward}", tmp_path / "use.cpp", folder=tmp_path)


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
