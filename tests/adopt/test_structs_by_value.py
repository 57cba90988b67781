"""Structs that kernels take by value: arrays and enumerations in them, pointers that nobody set, launches left out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.capture import Launch, Structure, capture
from mptune.adopt.reading import read
from mptune.adopt.running import build
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.kernel import Application
from mptune.source.loading import load_tunable
from mptune.source.render import render
from tests.application_runs import adopted_answer, first_answer, sizes_of_launch
from tests.vendor_compilers import needs

PROGRAM = Path(__file__).parent / "programs" / "struct_of_fields.cu"
ARCHITECTURES = {"cuda": "sm_80", "hip": "gfx90a"}
ONE_PART_EACH = """
#include <cstdio>
#include <cuda_runtime.h>
// What it writes is said nowhere to be but a part.
__global__ void mark(double* x, int part) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i % 8 == part) x[i] = 0.1 * part + i;
}
int main() {
    double x[256], *d_x;
    cudaMalloc(&d_x, sizeof x);
    for (int part = 0; part < 8; part++) mark<<<8, 32>>>(d_x, part);
    cudaMemcpy(x, d_x, sizeof x, cudaMemcpyDeviceToHost);
    bool good = true;
    for (int i = 0; i < 256; i++) good = good && x[i] == 0.1 * (i % 8) + i;
    printf(good ? "PASS\\n" : "FAIL\\n");
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("adopted") / "waves"
    adopt(AdoptSettings((PROGRAM,), ("300", "42")), found)
    return found


@pytest.fixture(scope="module")
def application(folder: Path) -> Application:
    found = load_tunable(folder)
    assert isinstance(found, Application)
    return found


def expected(n: int, steps: int) -> np.ndarray:
    u = 1.5 * np.sin(2 * np.pi * np.arange(n, dtype=np.longdouble) / n)
    v = np.zeros_like(u)
    for _ in range(steps):
        v = v * np.longdouble(0.999) + 0.25 * (np.roll(u, 1) - 2 * u + np.roll(u, -1))
        u = u + 0.5 * v
    return u.astype(np.float64)


@pytest.mark.full
@pytest.mark.parametrize(
    ("precision", "least", "most"), [("fp64", 0, 1e-14), ("fp32", 1e-9, 1e-5), ("fp16", 1e-5, 0.1)]
)
def test_the_answer_is_that_of_the_arithmetic(
    application: Application, precision: str, least: float, most: float
) -> None:
    (found,) = adopted_answer(application, precision).values()
    found = found.reshape(-1)[:300]
    exact = expected(300, 42)
    assert least <= np.linalg.norm(found - exact) / np.linalg.norm(exact) < most


@pytest.mark.full
@pytest.mark.parametrize(("precision", "most"), [("fp64", 1e-15), ("fp32", 1e-6), ("fp16", 1e-2), ("bf16", 1e-1)])
def test_classes_are_made_by_constructors_and_have_private_numbers(
    precision: str, most: float, closed: Application
) -> None:
    (found,) = adopted_answer(closed, precision).values()
    exact = 0.7 * (1 + 0.01 * np.arange(300)) + 0.25
    np.testing.assert_allclose(found.reshape(-1), exact, rtol=most)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Application:
    folder = tmp_path_factory.mktemp("adopted") / "relax"
    adopt(AdoptSettings((PROGRAM.with_name("closed_class.cu"),)), folder)
    found = load_tunable(folder)
    assert isinstance(found, Application)
    return found


@pytest.mark.nightly
def test_fields_of_structs_without_names_are_there_once(tmp_path: Path) -> None:
    _, record = adopt(AdoptSettings((PROGRAM.with_name("nameless_structs.cu"),)), tmp_path / "warm")
    found = load_tunable(tmp_path / "warm")
    assert isinstance(found, Application)
    names = [argument.name for argument in found.kernels["warm"].arguments]
    assert sorted(names) == [
        *("field", "law_high", "law_low", "law_now_rate", "law_now_rest", "law_taps_0_weight", "law_taps_1_weight"),
        "n",
    ]
    told = [member for parameter in record["parameters"] for member in parameter["members"]]
    assert "(unnamed struct at nameless_structs.cu:7).rate" in told
    (answer,) = adopted_answer(found, "fp32").values()
    x = 0.5 * (1 + np.arange(256) % 3) + 0.25
    np.testing.assert_allclose(answer.reshape(-1), np.clip(2 * x - 0.5, 0, 1.5), rtol=1e-6)


@pytest.mark.full
def test_only_used_fields_of_structs_are_parameters(folder: Path, application: Application) -> None:
    record = json.loads((folder / "adopted.json").read_text())
    assert {k["name"]: k["launches"] for k in record["kernels"]} == {"begin": 3, "step_1": 126}
    names = [argument.name for argument in application.kernels["step_1"].arguments]
    pointers = [name for name in names if re.fullmatch(r"waves_\w+_[uv]|waves_spare", name)]
    assert pointers == ["waves_now_u", "waves_now_v", "waves_next_u", "waves_next_v"]
    assert {"waves_weights_0", "waves_weights_1", "waves_ends", "waves_mark", "damping"} < set(names)


@pytest.mark.full
def test_structs_are_passed_at_other_sizes(folder: Path, application: Application) -> None:
    assert json.loads((folder / "adopted.json").read_text())["sizes"] == {"n": 300, "steps": 42}
    sizes = application.resolve_sizes("default", {"n": 77, "steps": 6})
    (found,) = first_answer(application, sizes).values()
    np.testing.assert_allclose(found.reshape(-1)[:77], expected(77, 6), rtol=0, atol=1e-13)


@pytest.mark.nightly
def test_launches_whose_parts_are_the_answer_stay(tmp_path: Path) -> None:
    (tmp_path / "parts.cu").write_text(ONE_PART_EACH)
    _, document = adopt(AdoptSettings((tmp_path / "parts.cu",)), tmp_path / "parts")
    assert [kernel["launches"] for kernel in document["kernels"]] == [8]
    assert document["errors"] == {"d_x": 0.0}


@pytest.mark.full
def test_two_runs_are_the_same_whatever_is_in_fields_that_nobody_set(tmp_path: Path) -> None:
    program = read([PROGRAM])
    found = capture(build(program.sources, program.files, optimisation="-O1"), ("64", "2"), tmp_path)
    assert found.differences == ()
    launch = next(operation for operation in found.operations() if isinstance(operation, Launch))
    (waves, _) = launch.arguments
    assert isinstance(waves, Structure)
    assert [to if isinstance(to, str) else to.offset for _, to in sorted(waves.pointers.items())] == [
        *(0, 512, 0, 512, "unknown", 0),  # nowhere.u is null
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("vendor", [pytest.param(name, marks=needs(name)) for name in ARCHITECTURES])
@pytest.mark.parametrize("narrow", ["fp64", "fp16", "bf16"])
def test_templates_compile_for_both_vendors(application: Application, vendor: str, narrow: str) -> None:
    backend = get_backend(vendor)
    options = CompileOptions(architecture=ARCHITECTURES[vendor])
    for kernel in application.kernels.values():
        chosen = {p.name: narrow for p in kernel.parameters if narrow in p.values}
        source = render(kernel, kernel.configuration(chosen), sizes_of_launch(kernel))
        assert backend.compiler.compile(source, kernel.function, options).image


@pytest.mark.nightly
def test_a_variable_may_be_called_as_a_field_is_that_is_passed_alone(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((Path(__file__).parent / "programs" / "field_names.cu",)), tmp_path / "names")
    assert max(document["errors"].values()) < 1e-15
    text = (tmp_path / "names" / "blur.cu.j2").read_text()
    assert "    int grid_nx,\n" in text
    assert "    const int grid_nx = grid.nx;\n" in text
    assert "atomicAdd(&hits[0], 1u);" in text


@pytest.mark.nightly
def test_fields_of_structs_in_a_namespace_have_the_types_of_their_classes(tmp_path: Path) -> None:
    program = Path(__file__).parent / "programs" / "owned_arrays.cu"
    _, document = adopt(AdoptSettings((program,), ("80",)), tmp_path / "owned")
    assert {buffer["type"] for buffer in document["buffers"]} == {"at_type"}
    assert [note for note in document["notes"] if "trials fail" in note] == []
    assert all(kernel["place"].startswith("owned_arrays.cu:") for kernel in document["kernels"])
    found = load_tunable(tmp_path / "owned")
    assert isinstance(found, Application)
    errors = [
        np.abs(adopted_answer(found, precision)["a_at"] - adopted_answer(found, "fp64")["a_at"]).max()
        for precision in ("fp32", "fp16")
    ]
    assert 1e-10 < errors[0] < 1e-6 < errors[1] < 1e-2
