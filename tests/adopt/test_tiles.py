"""Kernels for a tile of their threads at once: which become such, and that they compute the same."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest
from vendor_compilers import needs, nvrtc

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.blocks import Split, split, split_kernels, tiles_of_templates
from mptune.adopt.reading import read
from mptune.adopt.running import build, run
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.backends.host_compiler import HostCompiler, find_compiler
from mptune.kernel import Application
from mptune.measure.bench import Bench, Request
from mptune.measure.device import source_of
from mptune.source.loading import load_tunable
from mptune.source.render import render
from mptune.space.configuration import Configuration
from mptune.space.parameters import baseline_values
from tests.application_runs import sizes_of_launch
from tests.tiers import few

PROGRAM = Path(__file__).parent / "programs" / "tiled_threads.cu"
START = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Application:
    folder = tmp_path_factory.mktemp("tiled") / "tiled_threads"
    adopt(AdoptSettings((PROGRAM,), types=2), folder)
    found = load_tunable(folder)
    assert isinstance(found, Application)
    return found


@pytest.fixture(scope="module")
def bench(application: Application):
    made = Bench(application, application.resolve_sizes("default"), get_backend("host"))
    yield made
    made.close()


PRINTING = """
int main() {
    const int width = 45, height = 21, n = width * height;
    static double in[n], out[n], moved[n], table[TERMS] = {0.5, 0.25, 0.125};
    for (int i = 0; i < n; i++) in[i] = 1.0 + 0.01 * (i * 37 % 101);
    blend<<<dim3(3, 3), dim3(16, 8)>>>(out, in, table, width, height);
    shifted<<<(n + 63) / 64, 64>>>(moved, in, n, 4);
    for (int i = 0; i < n; i++) printf("%a %a\\n", out[i], moved[i]);
    printf("line %d\\n", __LINE__);
}
"""


@pytest.mark.full
def test_programs_compute_the_same_in_tiles_to_the_last_bit(tmp_path: Path) -> None:
    source = tmp_path / "printing.cu"
    source.write_text(PROGRAM.read_text().partition("int main")[0] + PRINTING)
    program = read([source])
    files = split_kernels(program)
    assert files[0].text.count("MPTUNE_TILES") == 2
    printed = []
    for number, given in enumerate((program.files, files)):
        (tmp_path / str(number)).mkdir()
        built = build(program.sources, given, gives_host_memory=True, optimisation="-O1")
        printed.append(run(built, writes=tmp_path / str(number)).output)
    assert printed[0] == printed[1]
    assert len(set(printed[0].split())) > 600


def test_kernels_whose_functions_ask_where_they_are_do_not_become_tiles(tmp_path: Path) -> None:
    source = tmp_path / "asking.cu"
    loop = "double sum = 0; for (int k = 0; k < n; k++) sum += x[k] * %s; x[n + threadIdx.x] = sum;"
    source.write_text(
        "__device__ int place() { return threadIdx.x; }\n__device__ int twice(int i) { return 2 * i; }\n"
        f"__global__ void asks(double* x, int n) {{ {loop % 'place()'} }}\n"
        f"__global__ void computes(double* x, int n) {{ {loop % 'twice(threadIdx.x)'} }}\n"
        "int main() { asks<<<1, 32>>>(nullptr, 0); computes<<<1, 32>>>(nullptr, 0); }\n"
    )
    (file,) = (file for file in split_kernels(read([source])) if file.path.name == "asking.cu")
    asks, computes = file.text.partition("__global__ void computes")[::2]
    assert "MPTUNE_TILES" not in asks
    assert "MPTUNE_TILES" in computes


def of_body(tmp_path: Path, body: str, helpers: str = "") -> Split | None:
    source = tmp_path / "one.cu"
    source.write_text(
        f"{helpers}\n"
        f"__global__ void one(double* out, const double* in, const int* first, int n, int m) {{\n{body}\n}}\n"
    )
    program = read([source])
    (unit,) = program.units
    function = next(function for function in unit.functions if function.name == "one")
    return split(unit, function, program.text, tiles_of_templates("UNROLL(4)"))


def test_what_is_computed_of_a_thread_s_own_number_stays_behind_it(tmp_path: Path) -> None:
    statements = [
        START,
        "const int side = direction(i);",
        "int cell = first[side == 1 ? i + k : i];",
        "int twice = cell * 2 + 1;",
        "out[i] += in[twice] * k;",
    ]
    loop = f"{START} for (int k = 0; k < n; k++) {{ {' '.join(statements[1:])} }}"
    found = of_body(tmp_path, loop, "__device__ int direction(int i) { return i & 1; }")
    assert found is not None
    places = [found.body.index(statement) for statement in statements]
    assert places == sorted(places)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("columns", "rows", "unroll"), few([(1, 1, 1), (4, 2, 2), (16, 1, 16), (8, 8, 1), (64, 4, 1)], 2, 2)
)
def test_any_tile_gives_the_same_answer(application, bench, columns, rows, unroll):
    # 45 by 21 threads of 48 by 24 are meant to work, and every third of them is not.
    wanted = {"per_thread": columns, "per_thread_y": rows, "unroll": unroll, "block_x": 8, "block_y": 4, "block": 64}
    wide = {name: values[0] for name, values in baseline_values(application.parameters).items()}
    sizes = {name: wanted[name.rpartition(".")[2]] for name in application.parameter_names if name not in wide}
    configuration = Configuration({name: {**wide, **sizes}[name] for name in application.parameter_names})
    trial = bench.evaluate(Request(configuration, source_of(application, configuration, bench.sizes)))
    assert trial.status == "ok", trial.message
    assert trial.error < 1e-14


@pytest.mark.full
@pytest.mark.parametrize("architecture", [pytest.param("sm_80", marks=needs("cuda"))])
def test_it_compiles_for_a_gpu(application, architecture):
    kernel = application.kernels["shifted"]
    configuration = kernel.configuration({"per_thread": 64, "unroll": 2})
    ptx, _ = nvrtc(render(kernel, configuration, sizes_of_launch(kernel)), "shifted", architecture)
    assert ".entry shifted" in ptx
    assert ".local" not in ptx  # what threads keep is in registers


@pytest.mark.full
@pytest.mark.gxx
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="looks for instructions of x86")
def test_whether_a_tile_is_whole_is_asked_for_many_threads_at_once(application):
    """One by one it takes as long as the work of a light kernel."""
    kernel = application.kernels["shifted"]
    source = render(kernel, kernel.configuration({"per_thread": 64}), sizes_of_launch(kernel))
    build = CompileOptions(architecture="x86-64-v4")
    listing = HostCompiler(find_compiler("g++")).listing(source, "shifted", build)
    assert re.search(r"vpcmpd\s.*zmm", listing)


def test_what_each_thread_keeps_is_kept_for_a_whole_tile(tmp_path):
    body = START + "double sum = 0; for (int k = 0; k < n; k++) { sum += in[k * m + i]; } if (i < m) out[i] = sum;"
    found = of_body(tmp_path, body)
    assert found is not None
    assert found.condition == ""
    lines = [line.strip() for line in found.body.splitlines()]
    assert lines[0] == "mp::per_tile<Tile, double> sum_of;"
    start = lines.index("UNROLL(4)")
    assert lines[start + 1 : start + 3] == ["for (int k = 0; k < n; k++) {", "EACH_THREAD {"]
    # The index is computed again rather than kept: compilers see from it that neighbours read neighbours.
    assert lines[start + 3 : start + 6] == ["OF_THREAD(sum);", START, "sum += in[k * m + i];"]


def test_numbers_of_one_axis_are_kept_once_for_a_column_or_row(tmp_path):
    body = """
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= m) return;
    double u = 0.5 * x, v = 0.25 * y, w = u * v, total = 0;
    for (int k = 0; k < n; k++) total += (u + v) * w * in[k];
    out[y * n + x] = total;"""
    found = of_body(tmp_path, body)
    assert found is not None
    assert [f"mp::per_{extent}<Tile, double> {name}_of;" in found.body for extent, name in
            (("column", "u"), ("row", "v"), ("tile", "w"), ("tile", "total"))] == [True] * 4  # fmt: skip
    assert "return !(x >= n || y >= m);" in found.condition


def test_what_is_the_same_for_all_threads_is_done_once(tmp_path):
    body = (
        START
        + """
    int at = 0;
    double sum = 0;
    for (int k = 0; k < n; k++) {
        double weight = in[at];
        sum += weight * in[at + i];
        at += m;
    }
    out[i] = sum;"""
    )
    found = of_body(tmp_path, body)
    assert found is not None
    each = found.body.split("EACH_THREAD {")
    assert "double weight = in[at];" in each[1]  # between the loops over the tile: in none of them
    assert "at += m;" in each[2].split("}")[1]


@pytest.mark.parametrize(
    "body",
    few(
        [
            "for (int k = first[i]; k < n; k++) out[i] += in[k];",  # rounds of its own
            "for (int k = 0; k < n; k++) { if (in[k] > in[i]) break; out[i] += in[k]; }",
            "for (int k = 0; k < n; k++) { if (in[k] > in[i]) return; out[i] += in[k]; }",
            "for (int k = 0; k < n; k++) { if (in[i] > k) k++; out[i] += in[k]; }",  # each counts for itself
            "for (int k = 0; k < n; k++) { if (in[i] > k) continue; out[i] += 1; m++; }",
            "int last = m; if (in[i] > 0) last++; for (int k = 0; k < last; k++) out[i] += in[k];",
            "int last = m; int* p = &last; *p = i; for (int k = 0; k < last; k++) out[i] += in[k];",
            "int last = m; int& one = last; one = i; for (int k = 0; k < last; k++) out[i] += in[k];",
            "int both[2] = {0, m}; int* p = both; p[1] = i; for (int k = 0; k < both[1]; k++) out[i] += in[k];",
            "int last = m; set(last, i); for (int k = 0; k < last; k++) out[i] += in[k];",
            "for (int k = 0; k < int(out[0]); k++) out[i] += in[k];",  # what threads write
            "if (first[i]) return; for (int k = 0; k < n; k++) out[i] += in[k];",  # memory decides who works
            "double last[2] = {in[i], 1}; for (int k = 0; k < n; k++) last[k % 2] += in[k]; out[i] = last[0];",
            "static int calls = 0; for (int k = 0; k < n; k++) out[i] += in[k];",
            "for (int k = 0; k < n; k++) atomicAdd(out, in[k]);",
        ],
        6,
    ),
)
def test_what_is_not_known_to_be_right_is_left_as_it_is(tmp_path, body):
    assert of_body(tmp_path, START + "\n" + body, "__device__ void set(int& x, int y) { x = y; }") is None


def test_a_name_that_means_two_things_is_left_as_it_is(tmp_path):
    body = START + "double s = 0; for (int k = 0; k < n; k++) { double s_of = in[k]; s += s_of * i; } out[i] = s;"
    assert of_body(tmp_path, body) is None
