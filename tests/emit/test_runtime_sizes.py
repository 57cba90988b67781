"""Sizes that a launch gives: one emitted source computes for sizes that were never tuned, and dispatch serves them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from awkward_kernel import run_of
from programs import RUNTIME_COMPILERS, build, compile_for, run_program
from runs_by_size import trial
from test_dispatching import FLAGS, wisdom_of

from mptune.data import DataManager
from mptune.emit import emit_dispatch
from mptune.emit.sizes import opened
from mptune.kernel import In, Kernel, Out, Role, Sizes
from mptune.kernel.limits import widest
from mptune.run import Run
from mptune.source.loading import bundled_kernels, load_kernel
from mptune.space.configuration import Configuration
from mptune.space.expressions import Expression
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from tests.tiers import few

SINGLE = "fp32"

#: By kernel two tuned sizes, one that is not, and values of parameters beside the widest types.
CASES: dict[str, tuple[Mapping[str, int], Mapping[str, int], Mapping[str, int], Mapping[str, Any]]] = {
    "gemm": (
        {"M": 64, "N": 64, "K": 64},
        {"M": 96, "N": 96, "K": 96},
        {"M": 67, "N": 83, "K": 71},
        dict.fromkeys(("MDIMC", "NDIMC", "MDIMA", "NDIMB"), 8)
        | {"MWG": 32, "NWG": 32, "KWG": 16, "VWM": 4, "VWN": 4, "double_buffer": True, "fine_prefetch": False},
    ),
    "convolution2d": (
        {"width": 96, "height": 40},
        {"width": 200, "height": 80},
        {"width": 131, "height": 53},
        {"block_size_x": 16, "block_size_y": 4, "vector_width": 4},
    ),
    "coulombic": (
        {"width": 64, "height": 40, "charges": 50},
        {"width": 128, "height": 80, "charges": 100},
        {"width": 79, "height": 59, "charges": 77},
        {"tile_size_x": 4, "tile_size_y": 2},
    ),
    "kmeans": ({"n": 3000}, {"n": 9000}, {"n": 5003, "clusters": 37}, {"points_per_thread": 4}),
}


def single(kernel: Kernel, configuration: Configuration) -> dict[str, Any]:
    types = {p.name for p in kernel.parameters if isinstance(p, PrecisionParameter)}
    return {**configuration, **dict.fromkeys(types, SINGLE)}


def run_at(kernel: Kernel, sizes: Mapping[str, int], wide: Configuration) -> Run:
    """Return a run in which fp32 is the winner, and its error is far below the limit."""
    trials = [trial(4, 1e-16, kernel=kernel, **wide), trial(1, 1e-9, kernel=kernel, **single(kernel, wide))]
    return run_of(kernel, trials, sizes=kernel.resolve_sizes("default", sizes), threshold=1e-3)


def emitted(name: str, folder: Path) -> Kernel:
    kernel = load_kernel(name)
    small, large, _, values = CASES[name]
    first = widest(kernel, kernel.resolve_sizes("default", small), {"is_gpu": False})[0]
    wide = kernel.configuration({**first, **values})
    written = emit_dispatch(wisdom_of(run_at(kernel, small, wide), run_at(kernel, large, wide)), folder, kernel=kernel)
    assert set(kernel.runtime_sizes).isdisjoint(written.fixed)
    return kernel


def program_of(kernel: Kernel, folder: Path, sizes: Sizes) -> Path:
    """Build a program that runs what dispatch chooses for a backend."""
    name = f"tuned_{kernel.name}"
    setting = "\n".join(f"sizes.{size} = {value};" for size, value in sizes.items())
    (folder / "main.cpp").write_text(
        f"""
        #include "{name}.hpp"
        #include <cstdio>
        #include <cstring>
        #include <fstream>
        #include <iterator>
        #include <string>
        #include <vector>
        int main(int, char** words) {{
            {name}::Sizes sizes;
            {setting}
            {name}::Device device = {name}::devices[0];
            if (std::strcmp(words[1], device.backend)) device = {{words[1], "another"}};
            const auto* variant = {name}::dispatch(device, sizes);
            std::puts(variant ? variant->configuration : "none");
            if (!variant) return 0;
            const std::string kinds = words[2];
            std::vector<std::vector<char>> data;
            std::vector<void*> pointers, arguments;
            for (std::size_t i = 0; i < kinds.size(); ++i) {{
                std::ifstream file(std::to_string(i), std::ios::binary);
                data.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
            }}
            for (auto& bytes : data) pointers.push_back(bytes.data());
            for (std::size_t i = 0; i < kinds.size(); ++i)
                arguments.push_back(kinds[i] == 'b' ? static_cast<void*>(&pointers[i]) : pointers[i]);
            if ({name}::launch(*variant, sizes, arguments.data(), 2)) return 1;
            for (std::size_t i = 0; i < kinds.size(); ++i)
                std::ofstream(std::to_string(i), std::ios::binary).write(data[i].data(), data[i].size());
        }}
        """
    )
    sources = sorted(path.name for path in folder.glob(f"{name}_[0-9]*.cu"))
    return build(folder, "main.cpp", *sources, flags=FLAGS)


def launched(
    kernel: Kernel, folder: Path, program: Path, backend: str, sizes: Sizes
) -> tuple[str, dict[str, np.ndarray[Any, Any]]]:
    """Run what dispatch chooses; return its configuration, and the outputs."""
    types = "float64" if backend == "cuda" else "float32"
    data = DataManager(kernel, sizes)
    kinds = ""
    for number, argument in enumerate(kernel.passed):
        dtype = argument.dtype or types
        values = np.zeros(data.shape_of(argument)) if argument.role is Role.OUT else data.inputs[argument.name]
        np.asarray(values).astype(dtype).tofile(folder / str(number))
        kinds += "s" if argument.role is Role.SCALAR else "b"
    done = run_program("env", "-C", folder, program, backend, kinds)
    assert done.returncode == 0, done.stderr
    outputs = {
        argument.name: np.fromfile(folder / str(number), argument.dtype or types).reshape(data.shape_of(argument))
        for number, argument in enumerate(kernel.passed)
        if argument.is_output
    }
    return done.stdout.strip(), outputs


@pytest.mark.parametrize("name", few(sorted(CASES, key=lambda name: name not in ("gemm", "coulombic")), 0, 2))
def test_dispatch_computes_at_sizes_that_were_never_tuned(name: str, tmp_path: Path) -> None:
    kernel = emitted(name, tmp_path)
    sizes = kernel.resolve_sizes("default", CASES[name][2])
    references = DataManager(kernel, sizes).references
    program = program_of(kernel, tmp_path, sizes)
    for backend, types, tolerance in (("host", "fp32", 3e-3), ("cuda", "fp64", 1e-10)):
        configuration, outputs = launched(kernel, tmp_path, program, backend, sizes)
        assert f"type={types}" in configuration
        for output, values in outputs.items():
            scale = np.abs(references[output]).max()
            np.testing.assert_allclose(values, references[output], rtol=tolerance, atol=tolerance * scale)


@pytest.mark.full
@pytest.mark.parametrize(("backend", "architecture"), RUNTIME_COMPILERS)
def test_runtime_compilers_take_sizes_as_parameters(backend: str, architecture: str, tmp_path: Path) -> None:
    emitted("gemm", tmp_path)
    source = next(p for p in sorted(tmp_path.glob("*_[0-9]*.cu")) if "launched_M" in p.read_text())
    compile_for(backend, architecture, source, source.read_text().partition("#define gemm ")[2].split()[0])


# -- what a template does with a size ------------------------------------------------------------


def asking(text: str, runtime_sizes: tuple[str, ...] = ("n", "m")) -> Kernel:
    return Kernel(
        name="asking",
        parameters=[OrdinalParameter("block", [32]), PrecisionParameter("t", ["fp64"])],
        arguments=[Out("y", "n", precision="t"), In("x", "n", precision="t")],
        sizes={"default": {"n": 100, "m": 7}},
        inputs=lambda rng, size: {"x": rng.random(size.n)},
        reference=lambda given, size: {"y": given["x"]},
        grid=["ceildiv(n, block)"],
        block=["block"],
        template='extern "C" __global__ void asking({{ t }}* y, const {{ t }}* x /* ) */) { int k = ' + text + "; }",
        runtime_sizes=runtime_sizes,
    )


@pytest.mark.parametrize(
    ("text", "names", "printed", "asked"),
    [
        ("{{ n }}", ("n", "m"), "launched_n", ()),
        ("{{ n + 2 * m - 1 }}", ("n", "m"), "((launched_n + (2 * launched_m)) - 1)", ()),
        ("{{ min(n, 64) }}", ("n", "m"), "64", ("n > 64",)),
        ("{{ min(64, n) }}", ("n", "m"), "64", ("not (n < 64)",)),
        ("{{ min(640, n) }}", ("n", "m"), "launched_n", ("n < 640",)),
        ("{{ min(640, n) | int }}", ("m",), "100", ()),
        ("{{ 1 if m else 2 }}", ("n", "m"), "1", ("m != 0",)),
        ("{% for i in range(m) %}{{ i }}{% endfor %}", ("n",), "0123456", ()),
        ("{{ n / 2 }} {{ m ** 2 }}", ("m",), "50.0 (launched_m * launched_m)", ()),
        ("{{ '%d' % n }}", ("m",), "100", ()),
        ("{{ {7: 'seven'}[m] }}", ("n",), "seven", ()),
    ],
)
def test_what_a_template_prints_and_asks(
    text: str, names: tuple[str, ...], printed: str, asked: tuple[str, ...]
) -> None:
    kernel = asking(text)
    found = opened(kernel, kernel.configuration({}), kernel.resolve_sizes())
    assert found is not None
    assert found.names == names
    parameters = "".join(f", int launched_{name}" for name in names)
    assert found.body.endswith(f"const double* x /* ) */{parameters}) {{ int k = {printed}; }}")
    assert tuple(each for each in found.conditions if not each.startswith("abs(")) == asked


def test_numbers_stay_within_what_an_int_holds() -> None:
    kernel = asking("{{ n * n * m }}")
    found = opened(kernel, kernel.configuration({}), kernel.resolve_sizes())
    assert found is not None

    def holds(n: int, m: int) -> bool:
        return all(Expression(each).evaluate({"n": n, "m": m}) for each in found.conditions)

    assert holds(1000, 2147)
    assert not holds(1000, 2148)
    assert not holds(2**40, 1)


@pytest.mark.parametrize("name", [name for name in bundled_kernels() if load_kernel(name).runtime_sizes])
def test_bundled_kernels_take_their_sizes_as_parameters_at_their_default_size(name: str) -> None:
    kernel = load_kernel(name)
    sizes = kernel.resolve_sizes()
    found = opened(kernel, widest(kernel, sizes, {"matrix_units": ""})[0], sizes)
    assert found is not None
    assert set(found.names) == set(kernel.runtime_sizes)
