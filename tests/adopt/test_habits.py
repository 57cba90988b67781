"""What programs do that nobody thought of: ways of writing, runs that crash or take too long, missing barriers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mptune.adopt.adopting import AdoptSettings, _made_smaller, adopt
from mptune.adopt.origins import origin
from mptune.adopt.parsing import ProgramError
from mptune.adopt.reading import read
from mptune.adopt.sizes import not_given
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.source.loading import load_tunable
from mptune.source.render import render
from mptune.tuning.check import check_application
from tests.application_runs import sizes_of_launch

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.full
def test_ways_of_writing_that_many_programs_have(tmp_path: Path) -> None:
    made, document = adopt(AdoptSettings((PROGRAMS / "habits",)), tmp_path / "habits")
    assert document["program"]["check"] == "passed"
    assert document["program"]["sources"] == [str(PROGRAMS / "habits" / "main.cu")]
    # Loops of the host are not taken for kernels, nor is what they check for an answer.
    assert [kernel["name"] for kernel in document["kernels"]] == ["sharpen_Grow_double_int", "cut"]
    assert {buffer["name"] for buffer in document["buffers"] if buffer["role"] == "output"} == {"d_out", "d_whole"}
    assert document["errors"]["d_out"] < 1e-14
    template = (tmp_path / "habits" / "sharpen_Grow_double_int.cu.j2").read_text()
    assert "#define POLE (mp::sqrt<{{ policy }}>(3.0_num) - 2.0_num)" in template
    assert "#define SHARE mp::pow<{{ policy }}>(0.5_num, 3.0_num)" in template
    assert "#define ADDED(a, T) (a + static_cast<int>(T))" in template
    assert {name: len(each.launched.launches) for name, each in made.found.kernels.items()} == {
        "sharpen_Grow_double_int": 1,
        "cut": 1,
    }


@pytest.mark.nightly
def test_the_body_of_a_function_may_be_a_try(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "caught.cu",)), tmp_path / "caught")
    assert document["program"]["check"] == "passed"
    assert [(kernel["name"], kernel["launches"]) for kernel in document["kernels"]] == [("damp", 2)]


@pytest.mark.nightly
def test_half_is_a_name_like_any_other_without_the_header_of_16_bit_types(tmp_path: Path) -> None:
    adopt(AdoptSettings((PROGRAMS / "half_steps.cu",)), tmp_path / "half_steps")
    application = load_tunable(tmp_path / "half_steps")
    for kernel in application.kernels.values():
        chosen = {parameter.name: "fp16" for parameter in kernel.parameters if "fp16" in parameter.values}
        source = render(kernel, kernel.configuration(chosen), sizes_of_launch(kernel))
        get_backend("host").compiler.compile(source, kernel.function, CompileOptions())


@pytest.mark.nightly
def test_a_launch_that_leaves_out_a_parameter_with_a_default_is_told(tmp_path: Path) -> None:
    for file in (PROGRAMS / "habits").iterdir():
        (tmp_path / file.name).write_text(file.read_text().replace("d_out, n, false)", "d_out, n)"))
    _, document = adopt(AdoptSettings((tmp_path / "main.cu",)), tmp_path / "adopted")
    (note,) = (each for each in document["notes"] if "sharpen is not adopted" in each)
    assert note.endswith("it is launched without halves, which has a default (main.cu:20); write it out")


def test_macros_that_a_makefile_gives_are_named(tmp_path: Path) -> None:
    text = (PROGRAMS / "out_of_step.cu").read_text().replace("#define WIDTH 32\n", "")
    (tmp_path / "lacking.cu").write_text(text)
    (tmp_path / "Makefile").write_text("main: lacking.cu\n\tnvcc -O3 -DWIDTH=32 -DOTHER=1 -o main lacking.cu\n")
    with pytest.raises(ProgramError, match=r"'WIDTH'[^\n]*\nMakefile gives the compiler macros; add -D WIDTH=32$"):
        adopt(AdoptSettings((tmp_path / "lacking.cu",)), tmp_path / "lacking")


@pytest.mark.full
def test_files_that_were_not_given_are_named(tmp_path: Path) -> None:
    text = (PROGRAMS / "led_astray.cu").read_text().replace("int main() {", "int cells();\nint main() {")
    (tmp_path / "alone.cu").write_text(text.replace("int n = 1000;", "int n = cells();"))
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "cells.cpp").write_text("int cells() { return 1000; }\n")
    with pytest.raises(
        ProgramError, match=r"undefined (reference|symbol)[^$]*common/cells.cpp may have it: give all files"
    ):
        adopt(AdoptSettings((tmp_path / "alone.cu",)), tmp_path / "adopted")


@pytest.mark.full
def test_a_template_that_does_not_compile_is_told_with_its_line(tmp_path: Path) -> None:
    text = (PROGRAMS / "led_astray.cu").read_text()
    text = text.replace("__global__", "template <class T>\n__constant__ T share = 0.5;\n\n__global__", 1)
    (tmp_path / "vague.cu").write_text(text.replace("double weight = 0.5;", "double weight = share<double>;"))
    with pytest.raises(
        ProgramError, match=r"^vague.cu:13: kernel pick cannot be adopted: it does not compile .*\(.*share.*\)"
    ) as raised:
        adopt(AdoptSettings((tmp_path / "vague.cu",)), tmp_path / "vague")
    assert "weight = share<double>;; write it, or what it uses, in plainer C++" in str(raised.value)


@pytest.mark.nightly
def test_a_template_that_does_not_compile_in_narrower_types_is_told_as_it_is_adopted(tmp_path: Path) -> None:
    text = (PROGRAMS / "led_astray.cu").read_text()
    text = text.replace("double weight = 0.5;", 'double weight = 0.5;\n    static_assert(sizeof(weight) == 8, "of 8");')
    (tmp_path / "wide.cu").write_text(text)
    _, document = adopt(AdoptSettings((tmp_path / "wide.cu",)), tmp_path / "wide")
    (note,) = (each for each in document["notes"] if "narrower" in each)
    assert re.match(
        r"trials fail: wide.cu:11: kernel pick cannot have narrower types: it does not compile as a template "
        r"\(static assertion failed.*\): static_assert\(sizeof\(weight\) == 8",
        note,
    )


def test_the_line_that_a_template_s_line_was_made_of_is_found() -> None:
    program = read([PROGRAMS / "library_words.cu"])
    kernel = program.kernel("weigh")
    text = (PROGRAMS / "library_words.cu").read_text().splitlines()
    template = [
        "__device__ {{ grown_type }} grown({{ x_type }} x) { return x * static_cast<{{ growth_type }}>(growth); }",
        "    for (int k = 0; k < 3; k++) sum += weights[k] * in[(i + k) % n];",
        "    const auto next = in[(i + 1) % n];",
        "    {{ parts_type }} parts[3], kept[3];",
        "    memset(parts, 0, sizeof(parts));",
        "    for (int k = 0; k < 3; k++) parts[k] += weights[k] * next;",
        "    memcpy(kept, parts, 3 * sizeof({{ parts_type }}));",
    ]
    expected = [
        "__device__ double grown",
        "sum +=",
        "const auto next",
        "parts[3]",
        "sizeof(parts)",
        "parts[k]",
        "3 * sizeof",
    ]
    for number, part in enumerate(expected, 1):
        place, line = origin(program, kernel, "\n".join(template), number) or pytest.fail("no line is like it")
        assert part in line
        assert text[place.line - 1].strip() == line


def test_what_fills_a_struct_is_made_of_the_parameter() -> None:
    program = read([PROGRAMS / "owned_arrays.cu"])
    lines = ["    a.at = a_at;", "    a.count = static_cast<decltype(a.count)>(a_count);"]
    found = [origin(program, program.kernel("stretch"), "\n".join(lines), number) for number in (1, 2)]
    assert [(str(place), text) for place, text in filter(None, found)] == [("owned_arrays.cu:23", "Arrays a")] * 2


@pytest.mark.nightly
def test_data_that_come_later_have_the_shape_of_their_buffer(tmp_path: Path) -> None:
    text = (PROGRAMS / "habits" / "main.cu").read_text()
    again = "cudaMemcpy(d_in, in.data(), n * sizeof(double2), cudaMemcpyHostToDevice);"
    launch = "sharpen<<<(n + 127) / 128, 128>>>(d_in, Grow<double>(), d_out, n, false);"
    (tmp_path / "main.cu").write_text(text.replace(launch, f"{launch}\n    in[0].x += 1;\n    {again}\n    {launch}"))
    (tmp_path / "kernels.cu").write_text((PROGRAMS / "habits" / "kernels.cu").read_text())
    _, document = adopt(AdoptSettings((tmp_path / "main.cu",)), tmp_path / "later")
    assert document["kernels"][0]["launches"] == 2
    assert max(document["errors"][name] for name in ("out", "d_out") if name in document["errors"]) < 1e-14


@pytest.mark.full
def test_threads_that_count_on_running_in_step_are_told_where_a_barrier_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ProgramError) as raised:
        adopt(AdoptSettings((PROGRAMS / "out_of_step.cu",)), tmp_path / "turned")
    first, second = str(raised.value).splitlines()
    assert first.endswith("its own check fails on this machine's processor: FAILED at 0")
    assert second.endswith("__syncthreads() has to stand between, in turned (out_of_step.cu:7)")


@pytest.mark.nightly
def test_types_that_lead_out_of_an_array_are_hopeless_and_the_rest_goes_on(tmp_path: Path) -> None:
    adopt(AdoptSettings((PROGRAMS / "led_astray.cu",)), tmp_path / "alone")
    # A program without sizes is checked as any other.
    (checked,) = check_application(load_tunable(tmp_path / "alone"), get_backend("host"), sample=1)
    assert [compilation.message for compilation in checked.compilations] == [""]


@pytest.mark.full
def test_a_run_that_takes_too_long_is_told_with_its_kernels_and_what_to_make_smaller(tmp_path: Path) -> None:
    text = (
        (PROGRAMS / "misbehaving.cu").read_text().replace("#include <vector>", "#include <vector>\n#define CELLS 5000")
    )
    (tmp_path / "endless.cu").write_text(text)
    with pytest.raises(ProgramError) as raised:
        adopt(AdoptSettings((tmp_path / "endless.cu",), ("hang",), time_limit_s=1.0), tmp_path / "endless")
    first, second = str(raised.value).splitlines()
    assert "with arguments hang, did not end within 1 s and was ended: " in first
    assert " launches of fill took " in first
    assert (
        "smaller arguments behind --, or macros (CELLS=5000) with -D NAME=VALUE; adopt --time-limit SECONDS" in second
    )


@pytest.mark.full
def test_what_to_make_smaller_is_what_the_program_has(tmp_path: Path) -> None:
    text = "__global__ void k(float* x) { x[0] = 1; }\n#define NUM 512\n#define BLOCK_SIZE 128\n"
    text += "int main(ARGUMENTS) { return 0; }\n"
    arguments = "int argc, char** argv"
    for name, given, wanted in (
        ("cavity", "", ["macros (NUM=512) with -D NAME=VALUE"]),
        ("both", arguments, ["smaller arguments behind --", "macros (NUM=512) with -D NAME=VALUE"]),
    ):
        (tmp_path / f"{name}.cu").write_text(text.replace("ARGUMENTS", given))
        assert _made_smaller(read([tmp_path / f"{name}.cu"])) == wanted
    (tmp_path / "neither.cu").write_text(text[: text.index("#")])
    (way,) = _made_smaller(read([tmp_path / "neither.cu"]))
    assert way.startswith("smaller numbers")


def test_an_argument_that_is_not_given_is_named_with_what_is_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "steps.cu").write_text(
        "__global__ void k(float* x) { x[0] = 1; }\nint main(int argc, char** argv) {\n"
        "  const int n = argc > 1 ? atoi(argv[1]) : 256;\n  int steps = argc > 2 ? atoi(argv[2]) : 10;\n}\n"
    )
    program = read([tmp_path / "steps.cu"])
    assert list(not_given(program, ["300", "5"])) == []
    (steps,) = not_given(program, ["300"])
    assert steps.startswith("steps is 10, since argument 2 is not given; with it behind -- (10, or another) it can be")
    assert [text.split(",")[0] for text in not_given(program, [])] == ["n is 256", "steps is 10"]


@pytest.mark.nightly
def test_variables_in_constant_memory_of_one_declaration_are_all_set(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "tables_in_one.cu",)), tmp_path / "tables")
    assert document["errors"]["d_out"] < 1e-14
    template = (tmp_path / "tables" / "blend.cu.j2").read_text()
    assert template.count("slope[1], start[1];") == 1
    assert template.count("ahead[3], behind[3], factors[3];") == 1


@pytest.mark.nightly
def test_what_hip_calls_otherwise_is_in_templates_as_cuda_has_it(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "hip_spelling.hip",)), tmp_path / "hip")
    assert document["program"]["check"] == "passed"
    assert max(document["errors"].values()) == 0
    assert len(document["kernels"]) == 3
    for kernel in document["kernels"]:
        text = (tmp_path / "hip" / f"{kernel['name']}.cu.j2").read_text()
        assert "hip" not in text.split("\n", 1)[1].lower()
    text = (tmp_path / "hip" / "total.cu.j2").read_text()
    assert "extern __shared__ {{ partial_type }} partial[]" in text
