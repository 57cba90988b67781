"""Elements that neighbouring threads have side by side: which are found, and that GPUs move them at once."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from vendor_compilers import needs, nvrtc

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.parsing import Edits
from mptune.adopt.reading import read
from mptune.adopt.tiling import side_by_side
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.hip import HipBackend
from mptune.backends.host import HostBackend
from mptune.kernel import Application
from mptune.kernel.limits import space_on
from mptune.paths import bundled_folder
from mptune.source.loading import load_tunable
from mptune.source.render import render
from mptune.testing.backends import launch_on_arrays
from tests.application_runs import sizes_of_launch
from tests.tiers import few

PROGRAM = Path(__file__).parent / "programs" / "side_by_side.cu"
START = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Application:
    folder = tmp_path_factory.mktemp("side_by_side") / "side_by_side"
    adopt(AdoptSettings((PROGRAM,), types=2), folder)
    found = load_tunable(folder)
    assert isinstance(found, Application)
    return found


MARKED = {
    "if (i < n) out[i] = in[i];": "if (HAS_WORK(i < n)) OWN_RESULT(0, out[i]) = OWN_INPUT(1, in[i]);",
    "if (i >= n) return; state[i] += 1;": "if (HAS_NONE(i >= n)) return; OWN_ELEMENT(0, state[i]) += 1;",
    "const long at = (long)m * n + i; out[at - 1] = 1;": "OWN_RESULT(0, out[at - 1]) = 1;",
    "out[i] = 1; out[n + i] = 2;": "OWN_RESULT(0, out[i]) = 1; OWN_RESULT(1, out[n + i]) = 2;",
    "if (i < n) { if (state[i] > 0) state[i] = 0; }": "OWN_ELEMENT(0, state[i]) > 0) OWN_ELEMENT(0, state[i]) = 0;",
    "out[first[i]] = 1;": "out[OWN_INPUT(0, first[i])] = 1;",
    # Beside others that are looked for, and in loops once all have come by.
    "double s = in[i] + in[i + m * first[0]]; out[m] = s;": "OWN_INPUT(0, in[i]) + in[i + m * first[0]]",
    "double s = in[i]; for (int k = 0; k < i; k++) s += in[i]; out[m] = s;": "s += OWN_INPUT(0, in[i])",
}
LEFT = [
    "out[2 * i] = 1;",
    "out[n - i] = 1;",
    "out[(short)i] = 1;",
    "out[i % n] = 1;",
    "i += m; out[i] = 1;",
    "out[threadIdx.y] = 1;",
    "if (m > 2) out[i] = 1; state[m] = 1;",  # some may not come by
    "out[0] = m > 2 ? in[i] : 0;",
    "out[0] = m > 2 && in[i] > 0;",
    "for (int k = 0; k < m; k++) out[i] = k;",
    "if (first[m] > 0) return; out[i] = 1;",  # memory says who has work
    "state[i] = state[i + 1];",  # what is a neighbour's
    "out[i] = 1; out[i + 1] += 2;",
    "out[i] = 1; double* last = out; last[n] = 2;",
    "out[i] = 1; set(out[i]);",
    "out[0] = *(&in[i] + 1);",
    "out[n] = 1; out[i] = 2;",
    "int k = m; state[i + k] = 1; k++; state[i + k] = 2;",
    "same[i] = 1;",  # may be another pointer's memory
]


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the marked text of bodies of kernels."""
    bodies = [*MARKED, *LEFT]
    given = "double* out, double* state, double* same, const double* in, const int* first, int n, int m"
    kernels = (f"__global__ void k{k}({given}) {{ {START} {body} }}" for k, body in enumerate(bodies))
    source = tmp_path_factory.mktemp("marks") / "marks.cu"
    source.write_text("\n".join(["__device__ void set(double& x) { x = 1; }", *kernels]))
    program = read([source])
    found = {}
    for k, body in enumerate(bodies):
        kernel, edits = program.kernel(f"k{k}"), Edits(program.files)
        known = side_by_side(program, kernel, edits, ["out", "state", "in", "first"])
        found[body] = edits.text(kernel.body)
        assert (known is None) == (found[body] == program.text(kernel.body))
    return found


@pytest.mark.parametrize("body", MARKED)
def test_they_are_marked(marks, body):
    assert MARKED[body] in marks[body]


@pytest.mark.parametrize("body", LEFT)
def test_what_is_not_known_to_be_a_thread_s_own_is_left_as_it_is(marks, body):
    assert "OWN" not in marks[body]


ARRAYS = {
    "advance": lambda rng: [rng.uniform(1, 2, 1221), rng.uniform(1, 2, 1221), np.float64(0.25), np.int32(407)],
    "smooth": lambda rng: [np.zeros(407), rng.uniform(1, 2, 407), rng.integers(0, 2, 407).astype(np.int32),
                           np.float64(0.1), np.int32(37), np.int32(11)],
    "split": lambda rng: [np.zeros(814), *(rng.uniform(1, 2, 407) for _ in range(3)), np.int32(407)],
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize(("per_thread", "vector_width", "offsets"), few([(2, 2, (0, 407)), (16, 4, (4, 8))], 1, 1))
@pytest.mark.parametrize("name", ARRAYS)
def test_vectors_give_the_same_answer(application, tmp_path, name, per_thread, vector_width, offsets):
    """What GPUs are given runs on the processor here: at edges, from unaligned elements on, in rows of odd length."""
    kernel = application.kernels[name]
    sizes = sizes_of_launch(kernel)
    arguments = ARRAYS[name](np.random.default_rng(1)) + [np.int64(offset) for offset in offsets if name == "advance"]
    vectors = (bundled_folder("templates") / "prelude" / "virtual_threads.hpp").read_text()
    backend = HostBackend(cache=BinaryCache(tmp_path))

    def result(**values: int):
        configuration = kernel.configuration(values)
        source = render(kernel, configuration, sizes)
        assert vectors in source
        if values:
            source = source.replace(vectors, f"#undef MPTUNE_HOST\n{vectors}\n#define MPTUNE_HOST\n")
        options = CompileOptions(flags=("-O1", "-Wno-narrowing"))
        function = backend.device.load(backend.compiler.compile(source, kernel.function, options))
        shape = kernel.launch_shape(configuration, sizes)
        given = [each.copy() for each in arguments]
        launch_on_arrays(backend, function, shape.grid, shape.block, *given)
        return given

    block = {"block_x": 8, "block_y": 4} if name == "smooth" else {"block": 32}
    for one, other in zip(result(), result(per_thread=per_thread, vector_width=vector_width, **block), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "precision", "vector_width", "loads", "stores"),
    [
        pytest.param(*each, marks=needs("cuda"))
        for each in (
            *(("advance", "fp64", 2, 2, 1), ("advance", "fp32", 4, 2, 1), ("advance", "fp16", 8, 2, 1)),
            *(("smooth", "fp32", 4, 1, 1), ("split", "fp64", 2, 2, 3), ("split", "bf16", 8, 2, 3)),
            ("advance", "fp32", 1, 0, 0),
        )
    ],
)
@pytest.mark.parametrize("architecture", ["sm_80", pytest.param("sm_90", marks=pytest.mark.nightly)])
def test_a_gpu_moves_16_bytes_at_once(application, name, architecture, precision, vector_width, loads, stores):
    kernel = application.kernels[name]
    types = {parameter.name: precision for parameter in kernel.parameters if parameter.kind == "precision"}
    values = {**types, "per_thread": 8, "vector_width": vector_width}
    source = render(kernel, kernel.configuration(values), sizes_of_launch(kernel))
    ptx, _ = nvrtc(source, kernel.function, architecture)
    moved = re.findall(r"\b(ld|st)\.global\S*\.(?:v2\.\w64|v4\.\w32) ", ptx)
    assert (moved.count("ld"), moved.count("st")) == (loads, stores)
    assert ".local" not in ptx  # it is in registers in between


@pytest.mark.nightly
@pytest.mark.parametrize("name", [pytest.param("split", marks=needs("hip"))])
def test_hiprtc_compiles_it(application, name):
    kernel = application.kernels[name]
    source = render(kernel, kernel.configuration({"per_thread": 8, "vector_width": 4}), sizes_of_launch(kernel))
    assert HipBackend().compiler.compile(source, kernel.function, CompileOptions(architecture="gfx90a")).image


@pytest.mark.full
def test_a_processor_is_not_asked_for_vectors(application):
    sizes = application.resolve_sizes("default")
    for kernel in application.kernels.values():
        here = space_on(kernel, sizes, get_backend("host").device.facts())
        assert {each["vector_width"] for each in here.configurations(range(0, here.size, 5))} == {1}
        assert here.size < space_on(kernel, sizes, {"max_threads_per_block": 1024}).size
