from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mptune.adopt import finding
from mptune.adopt.adopting import AdoptSettings, _error, adopt
from mptune.adopt.parsing import ProgramError
from mptune.adopt.reading import read
from mptune.adopt.writing import name_of
from mptune.backends import host_compiler
from mptune.backends.base import compile_cached
from mptune.backends.host import HostBackend
from mptune.cli.adopting import print_adopted
from mptune.data.data import FIRST, make_inputs
from mptune.errors import MptuneError
from mptune.kernel import Application, Sizes
from mptune.kernel.limits import widest
from mptune.measure.buffers import run_once
from mptune.measure.program import Program
from mptune.schemas import schema
from mptune.source.loading import load_tunable
from mptune.source.render import render
from mptune.space.configuration import Configuration
from mptune.space.parameters import uniform_types

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")

PROGRAMS = Path(__file__).parent / "programs"


#: Two answers, one with values of either sign.
WAVES = """
#include <cstdio>
#include <cuda_runtime.h>
__global__ void wave(double* height, double* slope, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    height[i] = 2.0 + sin(0.1 * i);
    slope[i] = 0.1 * cos(0.1 * i);
}
int main() {
    const int n = 64;
    double height[n] = {}, slope[n], *d_height, *d_slope;
    cudaMalloc(&d_height, sizeof height);
    cudaMalloc(&d_slope, sizeof slope);
    wave<<<1, 64>>>(d_height, d_slope, n);
    /* and */ cudaMemcpy(height, d_height, sizeof height, cudaMemcpyDeviceToHost);
    cudaMemcpy(slope, d_slope, sizeof slope, cudaMemcpyDeviceToHost);
    printf("%.12g %.12g\\n", height[9], slope[9]);
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What programs are adopted into: a time loop, and sums of blocks."""
    found = tmp_path_factory.mktemp("adopted")
    adopt(AdoptSettings((PROGRAMS / "swapped_buffers.cu",), ("200", "51")), found / "waves")
    adopt(AdoptSettings((PROGRAMS / "shared_reduction.cu",), types=4), found / "sums")
    return found


@pytest.mark.nightly
def test_threads_do_the_work_of_one_where_a_function_asks_which_it_is(tmp_path: Path) -> None:
    asks = {kernel.name: kernel.asks_elsewhere for kernel in read([PROGRAMS / "index_functions.cu"]).kernels}
    assert asks == {"slopes": True, "squares": False}
    adopt(AdoptSettings((PROGRAMS / "index_functions.cu",)), tmp_path / "slopes")
    slopes, squares = (loaded(tmp_path / "slopes").kernels[name] for name in ("slopes", "squares"))
    assert {"per_thread", "block"} <= set(squares.parameter_names)
    assert "block" in slopes.parameter_names
    assert "per_thread" not in slopes.parameter_names
    assert "GRID_THREADS" not in (tmp_path / "slopes" / "slopes.cu.j2").read_text()


def loaded(folder: Path) -> Application:
    found = load_tunable(folder)
    assert isinstance(found, Application)
    return found


@pytest.mark.full
def test_the_record_is_as_its_schema_says(folder: Path) -> None:
    for name in ("waves", "sums"):
        jsonschema.Draft202012Validator(schema("adopt")).validate(record(folder / name))


def record(folder: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((folder / "adopted.json").read_text())
    return found


@pytest.mark.full
def test_kernels_go_on_beside_one_that_is_refused(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "partly_refused.cu",), ("3",)), tmp_path / "partly")
    assert [(kernel["name"], kernel["launches"]) for kernel in document["kernels"]] == [("smooth", 6), ("lift", 3)]
    means, recursion = document["refused"]
    assert "partly_refused.cu:15: kernel means cannot be adopted: it calls total recursively; write it as" in means
    assert "kernel never cannot be adopted: it calls factorial recursively" in recursion
    (note,) = [note for note in document["notes"] if "not adopted" in note]
    assert note.startswith("means is not adopted: it runs on the host")
    # What it was given last is compared, though the program never looks at it.
    assert {buffer["name"] for buffer in document["buffers"] if buffer["role"] == "output"} == {"one", "mean"}
    assert max(document["errors"].values()) == 0.0


@pytest.mark.nightly
def test_what_a_refused_kernel_alone_writes_is_no_output(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "refused_first.cu",)), tmp_path / "halves")
    roles = {buffer["name"]: buffer["role"] for buffer in document["buffers"]}
    assert roles == {"d_values": "input", "d_halves": "output"}
    assert document["errors"] == {"d_halves": 0.0}
    text = (PROGRAMS / "refused_first.cu").read_text()
    (tmp_path / "none.cu").write_text(
        text.replace("cudaMemcpy(halves.data(), d_halves", "if (n < 0) cudaMemcpy(halves.data(), d_halves").replace(
            "- 2 * halves[i]", "* 0.0"
        )
    )
    with pytest.raises(ProgramError, match="nothing that the program copies back is computed by kernels"):
        adopt(AdoptSettings((tmp_path / "none.cu",)), tmp_path / "none")


@pytest.mark.full
def test_a_program_all_of_whose_launched_kernels_are_refused_is(tmp_path: Path) -> None:
    text = (PROGRAMS / "partly_refused.cu").read_text().replace("smooth<<<", "if (argc > 5) smooth<<<")
    (tmp_path / "all.cu").write_text(text.replace("lift<<<", "if (argc > 5) lift<<<"))
    with pytest.raises(ProgramError, match=r"^all\.cu:15: kernel means cannot be adopted: it calls total recursively"):
        adopt(AdoptSettings((tmp_path / "all.cu",), ("3",)), tmp_path / "all")


@pytest.mark.full
def test_the_answer_is_the_programs(folder: Path) -> None:
    assert max(record(folder / "waves")["errors"].values()) < 1e-14
    assert max(record(folder / "sums")["errors"].values()) < 1e-14


@pytest.mark.full
def test_what_has_either_sign_is_compared_with_its_mean_magnitude(tmp_path: Path) -> None:
    program = tmp_path / "waves.cu"
    program.write_text(WAVES)
    _, document = adopt(AdoptSettings((program,)), tmp_path / "waves")
    assert dict(loaded(tmp_path / "waves").metric) == {"d_height": "NRMSE", "d_slope": "NMAE"}
    assert document["notes"] == [
        "d_slope has values of either sign, by whose mean NRMSE would divide: errors are compared with the mean "
        "magnitude instead (NMAE; --metric chooses another)"
    ]
    adopt(AdoptSettings((program,), metric="MaxAE"), tmp_path / "waves")
    assert loaded(tmp_path / "waves").metric == "MaxAE"
    program.write_text(WAVES.replace("/* and */", "// "))
    adopt(AdoptSettings((program,)), tmp_path / "waves")
    assert loaded(tmp_path / "waves").metric == "NMAE"


@pytest.mark.full
def test_types_and_literals_became_parameters(folder: Path) -> None:
    application = loaded(folder / "waves")
    kernel = application.kernels["step"]
    types = [p for p in kernel.parameters if "fp32" in p.values]
    narrow = kernel.configuration({p.name: "fp16" if "fp16" in p.values else "fp32" for p in types})
    source = render(kernel, narrow, Sizes({"threads_x": 256}))
    body = source[source.index("step, adopted from") :]
    assert "half" in body
    assert "double" not in body
    template = (folder / "waves" / "step.cu.j2").read_text()
    assert template.startswith("// step, adopted from swapped_buffers.cu:")
    assert "_num" in template


@pytest.mark.full
def test_kernels_may_have_an_offset_of_their_own_for_a_pointer_into_a_buffer(tmp_path: Path) -> None:
    path = tmp_path / "shifted.cu"
    path.write_text("""#include <cstdio>
__global__ void scale(const double* x, double* y, int x_offset, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, y_offset = 2;
    if (i < n) y[i + y_offset] = x[i + x_offset] * 2.0;
}
int main() {
    double h[1024], *d, *e;
    for (int i = 0; i < 1024; i++) h[i] = i / 7.0;
    cudaMalloc(&d, sizeof h);
    cudaMalloc(&e, sizeof h);
    cudaMemcpy(d, h, sizeof h, cudaMemcpyHostToDevice);
    cudaMemset(e, 0, sizeof h);
    for (int k = 0; k < 3; k++) scale<<<2, 128>>>(d + 10 * k, e + 300 * k, 3, 250);
    cudaMemcpy(h, e, sizeof h, cudaMemcpyDeviceToHost);
    printf("%.9g\\n", h[617]);
}
""")
    _, document = adopt(AdoptSettings((path,)), tmp_path / "shifted")
    assert document["errors"] == {"y": 0.0}
    text = (tmp_path / "shifted" / "scale.cu.j2").read_text()
    assert "x += x_offset_;" in text
    assert "y += y_offset;" in text


@pytest.mark.nightly
def test_pointers_that_never_meet_are_restricted(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "pointers_that_meet.cu",), types=2), tmp_path / "meet")
    assert max(document["errors"].values()) < 1e-14

    def restricted(kernel: str) -> list[str]:
        text = (tmp_path / "meet" / f"{kernel}.cu.j2").read_text()
        return re.findall(r"\* __restrict__ (?:const )?(\w+)", text[text.index('extern "C"') :])

    assert restricted("scale") == ["by"]  # the others are the same array at times
    assert restricted("fold") == []  # where its halves end is not known
    assert restricted("square") == ["out", "a", "b", "pair_first", "pair_second"]


@pytest.mark.full
def test_a_kernel_with_shared_memory_keeps_its_blocks(folder: Path) -> None:
    sums = loaded(folder / "sums")
    assert "block" not in {parameter.name for parameter in sums.kernels["squares"].parameters}
    assert "block" in {p.name for p in loaded(folder / "waves").kernels["step"].parameters}


@pytest.mark.full
def test_as_many_types_as_asked_for(folder: Path) -> None:
    assert len(record(folder / "sums")["parameters"]) <= 4
    members = [member for parameter in record(folder / "waves")["parameters"] for member in parameter["members"]]
    assert {"step.now", "step.next"} <= set(members)
    assert not any(member.endswith(".double") for member in members)


@pytest.mark.full
def test_the_sources_are_kept(folder: Path) -> None:
    kept = (folder / "waves" / "program" / "swapped_buffers.cu").read_text()
    assert kept == (PROGRAMS / "swapped_buffers.cu").read_text()
    assert record(folder / "waves")["program"]["arguments"] == ["200", "51"]


@pytest.mark.parametrize("name", ["grid_sync", "texture", "inline_assembly", "recursion"])
def test_what_cannot_be_adopted_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=rf"{name}\.cu:\d+: .*cannot be adopted: it .*; "):
        adopt(AdoptSettings((PROGRAMS / "refused" / f"{name}.cu",)), tmp_path / name)
    assert not (tmp_path / name).exists()


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ProgramError, match=r"empty has no source file; expected \.cu"):
        adopt(AdoptSettings((tmp_path / "empty",)))
    (tmp_path / "broken.json").write_text("[{}]")
    with pytest.raises(ProgramError, match=r"broken\.json is not a compilation database"):
        adopt(AdoptSettings((), compile_commands=tmp_path / "broken.json"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"types": 0}, "--types 0: expected at least one precision parameter"),
        ({"metric": "NRSME"}, "unknown error metric 'NRSME'; did you mean 'NRMSE'"),
        ({"includes": (Path("nowhere"),)}, "-I nowhere is no folder"),
    ],
)
def test_wrong_settings_are_said_before_anything_is_done(settings: Mapping[str, Any], message: str) -> None:
    with pytest.raises(MptuneError, match=re.escape(message)):
        adopt(AdoptSettings((PROGRAMS / "swapped_buffers.cu",), **settings))


def test_files_of_two_programs_are_told_apart(tmp_path: Path) -> None:
    for name in ("one.cu", "two.cu"):
        shutil.copy(PROGRAMS / "swapped_buffers.cu", tmp_path / name)
    with pytest.raises(ProgramError, match=r"main is in one\.cu:\d+ and in two\.cu:\d+: give the files of one program"):
        adopt(AdoptSettings((tmp_path,)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_written_is_said_before_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder, message in ((tmp_path / "file", "is a file"), (tmp_path / "file" / "in", "cannot write to .*in: ")):
        with pytest.raises(ProgramError, match=f"{message}.*; choose another --output"):
            adopt(AdoptSettings((PROGRAMS / "misbehaving.cu",)), folder)


@pytest.mark.full
def test_changes_of_the_user_are_not_lost(folder: Path, tmp_path: Path) -> None:
    mine = tmp_path / "waves"
    shutil.copytree(folder / "waves", mine)
    with (mine / "step.cu.j2").open("a") as template:
        template.write("// tried by hand\n")
    with pytest.raises(ProgramError, match=r"has changes that would be lost \(step\.cu\.j2\); choose another --output"):
        adopt(AdoptSettings((PROGRAMS / "swapped_buffers.cu",), ("50", "4")), mine)
    assert (mine / "step.cu.j2").read_text().endswith("// tried by hand\n")
    shutil.copy(folder / "waves" / "step.cu.j2", mine)
    for name in ("mine.npz", "kept/inputs.npz"):
        (mine / name).parent.mkdir(exist_ok=True)
        (mine / name).touch()
        with pytest.raises(ProgramError, match=rf"would be lost \({name}\); choose another --output"):
            adopt(AdoptSettings((PROGRAMS / "swapped_buffers.cu",), ("50", "4")), mine)
        (mine / name).unlink()
    adopt(AdoptSettings((PROGRAMS / "swapped_buffers.cu",), ("50", "4")), mine)
    assert record(mine)["program"]["arguments"] == ["50", "4"]


@pytest.mark.nightly
def test_a_link_to_a_folder_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    adopt(AdoptSettings((PROGRAMS / "swapped_buffers.cu",), ("50", "4")), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert record(tmp_path / "real")["program"]["arguments"] == ["50", "4"]


@pytest.mark.nightly
def test_numbers_of_16_bits_keep_their_type(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "half_blend.cu",)), tmp_path / "blend")
    assert document["errors"] == {"d_mixed": 0.0}
    assert {b["name"]: b["type"] for b in document["buffers"]} == dict.fromkeys(("d_a", "d_b", "d_mixed"), "fp16")
    assert "mp::__float2half(" in (tmp_path / "blend" / "blend.cu.j2").read_text()


@pytest.mark.nightly
def test_what_the_host_does_after_the_last_loop_is_not_compared(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "openmp.cpp",)), tmp_path / "gravity")
    assert [kernel["name"] for kernel in document["kernels"]] == ["gravity_loop"]
    assert document["errors"] == {"potential": pytest.approx(0.0, abs=1e-15)}  # compared with contraction


@pytest.mark.full
def test_a_program_without_a_type_that_may_change_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
__device__ void square(double* v) { *v *= *v; }
__device__ void square(float* v) { *v = 0; }
__global__ void squares(double* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) square(x + i);
}
int main() {
    double host[256], *x;
    for (int i = 0; i < 256; ++i) host[i] = 1 + i % 7;
    cudaMalloc(&x, sizeof host);
    cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
    squares<<<4, 64>>>(x, 256);
    cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
}
"""
    (tmp_path / "squares.cu").write_text(text)
    _, document = adopt(AdoptSettings((tmp_path / "squares.cu",)), tmp_path / "adopted")
    assert document["kept"] == {"v": "chooses between functions named square"}
    print_adopted(document)
    out, err = capsys.readouterr()
    assert "parameter  role" not in out
    why = "there is no precision parameter to tune: each of its floating-point types is kept as it is (v)"
    assert why in " ".join(err.split())


def test_large_answers_are_compared_without_warnings() -> None:
    assert _error(np.array([1.0, 2e200]), np.array([1.0, 1e200])) == math.inf


@pytest.mark.full
def test_a_program_with_nothing_to_tune_says_so(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="counted has nothing to tune: no floating-point type that may change"):
        adopt(AdoptSettings((PROGRAMS / "counted.cu",)), tmp_path / "counted")


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(ProgramError, match="not written by mptune adopt; choose another --output"):
        adopt(AdoptSettings((PROGRAMS / "swapped_buffers.cu",), ("50", "4")), tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").exists()


@pytest.mark.full
def test_a_compilation_database_has_files_macros_and_folders(tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / "swapped_buffers.cu", tmp_path / "waves.cu")
    (tmp_path / "include").mkdir()
    entry = {
        "directory": str(tmp_path),
        "file": "waves.cu",
        "command": "nvcc -DREAL=double -D QUIET -Iinclude waves.cu",
    }
    (tmp_path / "compile_commands.json").write_text(json.dumps([entry]))
    settings = AdoptSettings((), ("60", "5"), compile_commands=tmp_path / "compile_commands.json")
    _, document = adopt(settings, tmp_path / "out" / "waves")
    assert document["program"]["defines"] == {"REAL": "double", "QUIET": ""}
    assert document["program"]["includes"] == [str(tmp_path / "include")]
    assert document["kernels"] == [{"name": "step", "launches": 5, "place": document["kernels"][0]["place"]}]


@pytest.mark.nightly
def test_parts_of_memory_are_written_between_launches_and_pointers_are_null(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "partial_writes.cu",)), tmp_path / "parts")
    assert document["errors"] == {"d_y": 0.0}
    assert "const double* weight = nullptr;" in (tmp_path / "parts" / "add.cu.j2").read_text().replace(
        "{{ weight_type }}", "double"
    )


@pytest.mark.nightly
def test_infinities_words_of_python_and_texts_are_what_they_were(tmp_path: Path) -> None:
    given = ('"""+x', "\\", "\n")
    _, document = adopt(AdoptSettings((PROGRAMS / "odd_names.cu",), given), tmp_path / "odd")
    assert document["errors"] == {"d_best": 0.0}
    assert document["program"]["arguments"] == list(given)
    template = (tmp_path / "odd" / "relax.cu.j2").read_text()
    assert 'sizeof("{{ "{" }}{a{{ "}" }}}")' in template


def test_kernels_that_launch_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "nested.cu").write_text(
        "__global__ void inner(double* y) { y[threadIdx.x] *= 2; }\n"
        "__global__ void outer(double* y) { inner<<<1, 32>>>(y); }\n"
        "int main() { double* y; cudaMalloc(&y, 256); outer<<<1, 1>>>(y); }\n"
    )
    with pytest.raises(ProgramError, match=r"nested\.cu:2: kernel outer cannot be adopted: it launches a ker"):
        adopt(AdoptSettings((tmp_path / "nested.cu",)), tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "name"),
    [("a b", "a_b"), ("class", "program_class"), ("3d", "program_3d"), ("ü", "program"), ("w-1", "w_1")],
)
def test_names_are_made_of_any_text(text: str, name: str) -> None:
    assert name_of(text) == name


def test_a_file_with_a_line_break_in_its_name_is_refused(tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / "swapped_buffers.cu", tmp_path / "new\nline.cu")
    with pytest.raises(ProgramError, match="give the file a name without control characters"):
        adopt(AdoptSettings((tmp_path / "new\nline.cu",)), tmp_path / "out")


def test_arguments_of_a_compilation_database_are_texts(tmp_path: Path) -> None:
    database = tmp_path / "compile_commands.json"
    database.write_text(json.dumps([{"directory": str(tmp_path), "file": "waves.cu", "arguments": [1, 2]}]))
    with pytest.raises(ProgramError, match="is not a compilation database"):
        adopt(AdoptSettings((), compile_commands=database), tmp_path / "out")


@pytest.mark.full
def test_functions_of_float_round_as_in_the_program(tmp_path: Path) -> None:
    program = tmp_path / "waves.cu"
    program.write_text(WAVES.replace("sin(0.1 * i)", "sinf(0.1 * i)"))
    _, document = adopt(AdoptSettings((program,)), tmp_path / "waves")
    # What is left is of sums whose products are fused, which may fall to the other side of a float.
    assert document["errors"]["d_height"] < 1e-6


@pytest.mark.nightly
def test_what_makes_much_of_the_last_digit_is_compared_with_literals_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = AdoptSettings((PROGRAMS / "last_digits.cu",))
    _, document = adopt(settings, tmp_path / "right")
    assert 1e-4 < document["errors"]["d_x"] < 1e-2
    written = (tmp_path / "right" / "turn.cu.j2").read_text()
    assert "3.9_num * x[i] * (1.0_num - x[i])" in written
    real = finding.template

    def wrong(*given: Any) -> Any:
        made = real(*given)
        assert "3.9" in made.text
        return dataclasses.replace(made, text=made.text.replace("3.9", "3.9000008"))

    monkeypatch.setattr(finding, "template", wrong)
    # (Which is off by little more than what roundings do.)
    with pytest.raises(ProgramError, match=r"is not the program's: d_x is off by 0\.00\d+ \(NRMSE\)"):
        adopt(settings, tmp_path / "wrong")


@pytest.mark.nightly
def test_a_search_begins_with_what_adoption_has_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPTUNE_CACHE_DIR", str(tmp_path / "cache"))
    adopt(AdoptSettings((PROGRAMS / "vector_choices.cu",)), tmp_path / "made")
    application = load_tunable(tmp_path / "made")
    assert isinstance(application, Application)
    sizes, backend = application.resolve_sizes(), HostBackend()
    compiled: list[bool] = []

    def noted(*given: Any) -> Any:
        binary = compile_cached(*given)
        compiled.append(not binary.cached)
        return binary

    monkeypatch.setattr(host_compiler, "compile_cached", noted)
    first = widest(application, sizes, backend.device.facts())[0]
    for types in list(uniform_types(application.parameters).values())[:2]:
        with Program(application, Configuration({**first, **types}), sizes, backend) as program:
            run_once(program, make_inputs(application, sizes, 0, FIRST))
    assert compiled == [False] * 2 * len(application.kernels)


#: Random numbers with a SEED are doubled by THREADS in a block.
TWICE = """
#include <cstdio>
#include <cuda_runtime.h>
#include <random>
__global__ void twice(const double* x, double* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }
int main() {
    double x[64], *d_x, *d_y;
    std::mt19937 numbers(SEED);
    for (double& each : x) each = std::uniform_real_distribution<>()(numbers);
    cudaMalloc(&d_x, sizeof x);
    cudaMalloc(&d_y, sizeof x);
    cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
    twice<<<1, THREADS>>>(d_x, d_y);
    cudaMemcpy(x, d_y, sizeof x, cudaMemcpyDeviceToHost);
    printf("%.9f\\n", x[3]);
}
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("seed", "threads", "message"),
    [
        ("1", "2048", r"^twice\.cu, run with arguments \(none\), launched no kernel: each launch failed"),
        ("std::random_device{}()", "64", r"d_y is off by \S+ \(NRMSE\).*; the program itself .* in each run: .* seed$"),
    ],
)
def test_a_program_without_a_launch_or_a_fixed_seed_is_refused_with_the_reason(
    tmp_path: Path, seed: str, threads: str, message: str
) -> None:
    (tmp_path / "twice.cu").write_text(TWICE.replace("SEED", seed).replace("THREADS", threads))
    with pytest.raises(ProgramError, match=message):
        adopt(AdoptSettings((tmp_path / "twice.cu",)), tmp_path / "made")
