"""Parallel loops of C++: which become kernels, what these look like, and that they compute the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.parsing import ProgramError
from mptune.adopt.reading import Program, read
from mptune.adopt.running import build, run
from mptune.source.loading import load_tunable
from tests.tiers import few

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def loops() -> Program:
    return read([PROGRAMS / "loops.cpp"])


@pytest.fixture(scope="module")
def stencil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adopted") / "stencil"
    adopt(AdoptSettings((PROGRAMS / "stencil.cpp",), ("40", "6")), folder)
    return folder


def text_of(program: Program, name: str) -> str:
    return program.text(program.kernel(name).extent)


def written(folder: Path, body: str, *, before: str = "") -> Program:
    """Read a program that has a function with a loop."""
    path = folder / "some.cpp"
    arrays = "double* a, double* b, int n, double& total"
    path.write_text(f"#include <cstdio>\n{before}\nvoid work({arrays}) {{\n{body}\n}}\nint main() {{ return 0; }}\n")
    return read([path])


# -- what they become ----------------------------------------------------------------------------


def test_loops_of_all_kinds_become_kernels(loops: Program) -> None:
    assert [kernel.name for kernel in loops.kernels] == [
        *("start_loop", "move_loop", "move_loop_2", "largest_loop", "fill_loop"),
        *("main_loop", "main_loop_2", "main_loop_3", "main_loop_4"),
    ]
    assert not loops.refusals


def test_kernels_are_where_the_loops_are(loops: Program) -> None:
    lines = (PROGRAMS / "loops.cpp").read_text().splitlines()
    for kernel in loops.kernels:
        assert lines[kernel.extent.line - 1].lstrip().startswith("for (")
    for launch in loops.launches:
        assert "#pragma omp" in lines[launch.extent.line - 1]


def test_a_thread_does_an_iteration(loops: Program) -> None:
    text = text_of(loops, "move_loop")
    assert "int i = 1 + (int)(blockIdx.x * blockDim.x + threadIdx.x);\n    if (i > count_ - 2) return;" in text
    assert "if (i % 7 == 0) return;" in text  # instead of continue
    assert "int i = count_ - 1 - (int)(blockIdx.x * blockDim.x + threadIdx.x);" in text_of(loops, "move_loop_2")
    assert "unsigned long i = 3 * (unsigned long)(blockIdx.x" in text_of(loops, "main_loop_2")


def test_loops_that_are_told_to_be_one_have_an_axis_each(loops: Program) -> None:
    text = text_of(loops, "main_loop")
    assert "int r = blockIdx.y * blockDim.y + threadIdx.y;" in text
    assert "int c = 1 + (int)(blockIdx.x * blockDim.x + threadIdx.x);" in text


def test_reductions_leave_a_part_for_each_block(loops: Program) -> None:
    text = text_of(loops, "largest_loop")
    assert "double most = most_start;" in text
    assert "if (threadIdx.x == 0) most_parts[blockIdx.x] = most_shared[0];" in text
    assert "count_shared[threadIdx.x] += count_shared[threadIdx.x + half];" in text_of(loops, "main_loop_4")


@pytest.mark.nightly
def test_several_variables_are_reduced_each_in_its_own_way(tmp_path: Path) -> None:
    path = tmp_path / "several.cpp"
    path.write_text("""#include <algorithm>
#include <cstdio>
int main() {
    const int n = 1000;
    double values[n], sum = 0.5, scaled = 1.0, unused = 3.0, most = -1.0, least = 9.0;
    for (int i = 0; i < n; i++) values[i] = 0.25 * (i % 7);
    #pragma omp parallel for reduction(+ : sum, unused) reduction(max:most) reduction(min : least) \\
        reduction(* : scaled)
    for (int i = 0; i < n; i++) {
        if (i == 5) continue;
        sum += values[i];
        most = std::max(most, values[i]);
        least = std::min(least, values[i]);
        if (i < 3) scaled *= 2.0;
    }
    printf("%g %g %g %g\\n", sum, most, least, scaled);
}
""")
    program = read([path])
    assert [kernel.name for kernel in program.kernels] == ["main_loop"]
    expected, found = (
        build(program.sources, files, gives_host_memory=True) for files in (program.originals, program.files)
    )
    (tmp_path / "record").mkdir()
    outputs = [
        run(each, writes=tmp_path, **more).output
        for each, more in ((expected, {}), (found, {"record": tmp_path / "record"}))
    ]
    assert outputs[0] == outputs[1] != ""


@pytest.mark.full
def test_the_program_does_the_same_with_kernels(loops: Program, tmp_path: Path) -> None:
    plain = build(loops.sources, loops.originals, gives_host_memory=True)
    kernels = build(loops.sources, loops.files, gives_host_memory=True)
    (tmp_path / "record").mkdir()
    expected = run(plain, writes=tmp_path)
    found = run(kernels, writes=tmp_path, record=tmp_path / "record")
    assert found.output == expected.output
    assert found.check == "passed"
    operations = (tmp_path / "record" / "operations.jsonl").read_text().splitlines()
    kinds = [json.loads(line) for line in operations]
    sizes = {each["bytes"] for each in kinds if each["op"] == "allocate" and each["kind"] == "host"}
    assert {40 * 48 * 8, 100 * 8, 10 * 8, 300 * 8} <= sizes  # of arrays of the file, of functions, and of the heap


# -- adopted -------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_program_of_loops_is_adopted(stencil: Path) -> None:
    record: dict[str, Any] = json.loads((stencil / "adopted.json").read_text())
    assert record["program"]["check"] == "passed"
    assert [(kernel["name"], kernel["launches"]) for kernel in record["kernels"]] == [
        *(("main_loop", 1), ("step_loop", 6), ("difference_loop", 1)),
    ]
    assert max(record["errors"].values()) < 1e-14
    (now,) = [each for each in record["parameters"] if each["name"] == "now_type"]
    assert {"step_loop.now", "step_loop.next", "main_loop.now"} <= set(now["members"])  # they change places


@pytest.mark.full
def test_what_is_written_of_it_reads_like_the_program(stencil: Path) -> None:
    text = (stencil / "step_loop.cu.j2").read_text()
    assert "#line" not in text
    assert "std::size_t" not in text
    share = "static_cast<{{ CONDUCTION_type }}>(CONDUCTION)"
    assert f"next[at] = now[at] + {share} * (neighbours - 4.0_num * now[at]) + source(row, column);" in text
    assert (stencil / "program" / "stencil.cpp").read_text() == (PROGRAMS / "stencil.cpp").read_text()
    application = load_tunable(stencil)
    assert application.name == "stencil"
    # Blocks and work per thread do not change what is rounded.
    assert all(name.endswith(("_type", "policy")) for name in application.signature_names)
    assert any("per_thread" in name for name in application.parameter_names)


@pytest.mark.full
def test_only_the_kernels_named_are_tuned(tmp_path: Path) -> None:
    settings = AdoptSettings((PROGRAMS / "stencil.cpp",), ("40", "6"), kernels=("difference_loop",))
    _, record = adopt(settings, tmp_path / "stencil")
    assert {name for each in record["parameters"] for name in each["classes"]} == {"d"}
    assert "reduces all of its numbers to one" in record["kept"]["sum"]
    assert record["kept"]["now"] == "the kernel step_loop has it, which is not to be tuned"
    text = (tmp_path / "stencil" / "stencil.py").read_text()
    assert "per_thread" not in text
    assert 'PolicyParameter("policy", ["accurate"])' in text
    with pytest.raises(ProgramError, match=r"there is no kernel differences in .* did you mean 'difference_loop'"):
        adopt(AdoptSettings((PROGRAMS / "stencil.cpp",), kernels=("differences",)), tmp_path / "stencil")


# -- what is refused -----------------------------------------------------------------------------

PARALLEL = "#pragma omp parallel for\n"
COUNTS = "for (int i = 0; i < n; i++) "


@pytest.mark.parametrize(
    ("body", "reason"),
    few([
        (COUNTS + "{ if (a[i] > 1.0) break; a[i] = 1.0; }", r"some\.cpp:5: .* ends before its last iteration"),
        (COUNTS + "{ if (a[i] > 1.0) return; a[i] = 1.0; }", "returns from the function"),
        (COUNTS + "{\na[i] = 1.0;\nstd::printf(\"%d\", i); }", r"some\.cpp:7: .* calls printf, which may do more"),
        (COUNTS + "total += a[i];", r"writes to total, which all iterations share; .*reduction\(\+:total\)"),
        (COUNTS + "b = a + i;", "writes to b, which all iterations share"),
        (COUNTS + "{ static int k = 0; a[i] = k++; }", "has the static variable k"),
        (COUNTS + "a[i] = elsewhere(b[i]);", "calls elsewhere, whose body is in another file"),
        (COUNTS + "a[i] = counts(b[i]);", "calls counts, which uses the variable calls"),
        (COUNTS + "a[i] = rows[i][0];", "uses rows, an array of arrays"),
        (COUNTS + "{ a[i] = 1.0;\n#pragma omp critical\nb[i] = 2.0; }", r"some\.cpp:6: .* has #pragma omp critical"),
        (COUNTS + "a[i] = *new double(2.0);", "allocates memory"),
        (COUNTS + "{ auto f = [&](int k) { return b[k]; }; a[i] = f(i); }", "has a lambda"),
        ("for (double x = 0; x < n; x += 1.0) a[int(x)] = x;", "does not count in whole numbers"),
        ("for (int i = 0; i < n && b[i] > 0; i++) a[i] = 1.0;", "does not count up or down to a bound"),
        ("for (int i = 1; i < n; i *= 2) a[i] = 1.0;", "does not count up or down to a bound"),
    ], 8),
)  # fmt: skip
def test_a_loop_that_may_not_be_parallel_is_refused_with_its_line(tmp_path: Path, body: str, reason: str) -> None:
    before = "int calls = 0; double counts(double x) { return x * ++calls; } double elsewhere(double); double** rows;"
    with pytest.raises(ProgramError, match=f"the loop in work cannot be adopted: it|{reason}") as caught:
        refused(written(tmp_path, PARALLEL + body, before=before))
    assert caught.match(reason)


SHARING = """#include <cstdlib>
void add(double& sum, double x) { sum += x; }
void add_to(double* sum, double x) { *sum += x; }
struct Tally { int count; void note(double x) { count += x > 0; } } tally;
void deposit(double* grid, int at, double x) {
#pragma omp atomic
    grid[at] += x;
}"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("add(total, a[i]);", "writes to total, which all iterations share"),
        ("add_to(&total, a[i]);", "writes to total, which all iterations share"),
        ("tally.note(a[i]);", "writes to tally, which all iterations share"),
        ("deposit(b, i % 8, a[i]);", r"some\.cpp:7: .* calls deposit, which has #pragma omp atomic in it"),
        ("{\n#pragma omp atomic capture\n{ a[i] = b[0]; b[0]++; } }", "has #pragma omp atomic capture"),
    ],
)
def test_a_loop_whose_iterations_change_what_they_share_is_refused(tmp_path: Path, body: str, reason: str) -> None:
    with pytest.raises(ProgramError, match=reason):
        refused(written(tmp_path, PARALLEL + COUNTS + body, before=SHARING))


def test_the_head_of_a_loop_may_only_compute(tmp_path: Path) -> None:
    body = PARALLEL + 'for (int i = 0; i < std::atoi("9"); i++) a[i] = 1.0;'
    with pytest.raises(ProgramError, match="calls atoi, which may do more than compute"):
        refused(written(tmp_path, body, before=SHARING))


@pytest.mark.parametrize(
    ("clause", "reason"),
    [
        ("* : b[:8]", r"reduces the array b by \*; reduce it by \+"),
        ("merge : total", "reduces total by merge; use one of "),
    ],
)
def test_a_reduction_that_is_not_known_is_named(tmp_path: Path, clause: str, reason: str) -> None:
    body = f"#pragma omp parallel for reduction({clause})\n{COUNTS}a[i] = 1.0;"
    with pytest.raises(ProgramError, match=reason):
        refused(written(tmp_path, body))


@pytest.mark.full
def test_members_that_loops_use_are_parameters(tmp_path: Path) -> None:
    held = "#include <vector>\nstruct Held { std::vector<double> of; double by; } held; Held* all = &held;"
    body = f"{PARALLEL}{COUNTS}a[i] = held.by * held.of[i] + all->of[i] * held.of.size();"
    program = written(tmp_path, body, before=held)
    assert "a[i] = held_by * held_of[i] + all_of[i] * held_of_size;" in text_of(program, "work_loop")
    (launch,) = program.launches
    arguments = [program.text(each) for each in launch.arguments]
    assert arguments == ["all->of.data()", "held.of.data()", "held.of.size()", "held.by", "a", "n"]
    with pytest.raises(ProgramError, match=r"passes the std::vector held\.of on; pass its address: held\.of\.data\(\)"):
        refused(written(tmp_path, f"{PARALLEL}{COUNTS}a[i] = first(held.of);", before=f"{held}\n{FIRST}"))


@pytest.mark.full
def test_members_and_variables_of_one_name_stay_apart(tmp_path: Path) -> None:
    held = "#include <vector>\nstruct Held { std::vector<double> of; double by; } held; double held_by;"
    body = f"{PARALLEL}{COUNTS}{{ const int held_of = i / 2; a[i] = held.by * held.of[held_of] + held_by; }}"
    program = written(tmp_path, body, before=held)
    assert "a[i] = held_by_ * held_of_[held_of] + held_by;" in text_of(program, "work_loop")
    (launch,) = program.launches
    assert [program.text(each) for each in launch.arguments] == ["held.of.data()", "held.by", "held_by", "a", "n"]
    with pytest.raises(ProgramError, match="uses two variables called n; give one of them another name"):
        refused(written(tmp_path, f"{PARALLEL}{COUNTS}a[i] = n + ::n;", before="double n;"))


FIRST = "double first(const std::vector<double>& of) { return of[0]; }"


def test_arrays_are_reduced_by_adding_to_them_at_once(tmp_path: Path) -> None:
    body = f"#pragma omp parallel for reduction(+ : b[:8])\n{COUNTS}{{ b[i % 8] += a[i]; b[0]++; b[1] -= a[i] + 1; }}"
    text = text_of(written(tmp_path, body), "work_loop")
    for statement in ("atomicAdd(&b[i % 8], a[i]);", "atomicAdd(&b[0], +1);", "atomicAdd(&b[1], -(a[i] + 1));"):
        assert statement in text


MATRIX = """#include <vector>
struct Matrix {
    double* cells;
    int width;
    double& operator()(int i, int j) { return cells[i * width + j]; }
};
Matrix m;
"""


@pytest.mark.full
@pytest.mark.parametrize("table", ["static const int table[3]", "constexpr double table[3]"])
def test_loops_may_read_tables_that_nobody_can_write(tmp_path: Path, table: str) -> None:
    path = tmp_path / "table.cpp"
    path.write_text(
        f"#include <cstdio>\n{table} = {{1, 2, 4}};\nint main() {{\nstatic double a[3000];\n"
        f'{PARALLEL}for (int i = 0; i < 3000; i++) a[i] = i / 7.0 + table[i % 3];\nstd::printf("%g\\n", a[5]);\n}}\n'
    )
    _, document = adopt(AdoptSettings((path,)), tmp_path / "table")
    assert max(document["errors"].values()) < 1e-15


@pytest.mark.nightly
def test_elements_may_be_given_by_functions_of_a_struct(tmp_path: Path) -> None:
    each = "for (int j = 0; j < n; j++) m(i, j) = b[j] + m(i, j + 1);"
    program = written(tmp_path, f"{PARALLEL}{COUNTS}{each}", before=MATRIX)
    (kernel,) = program.kernels
    assert {f.name: f.role for p in kernel.parameters for f in p.fields if f.is_pointer} == {"m.cells": "inout"}


def refused(program: Program) -> None:
    assert not program.kernels
    raise ProgramError("\n".join(map(str, program.refusals)))


@pytest.mark.full
def test_results_that_depend_on_the_order_of_iterations_are_found_out(tmp_path: Path) -> None:
    path = tmp_path / "racy.cpp"
    loop = f'{PARALLEL}for (int i = 1; i < 4096; i++) a[i] = a[i - 1] + 1.0;\nstd::printf("%f", a[4095]);'
    path.write_text(f"#include <cstdio>\nstatic double a[4096];\nint main() {{\n{loop}\n}}\n")
    with pytest.raises(ProgramError, match=r"racy\.cpp: with its loops as kernels \(racy\.cpp:5\) the program prints"):
        adopt(AdoptSettings((path,)), tmp_path / "adopted")


@pytest.mark.full
def test_memory_whose_end_is_not_known_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "within.cpp"
    path.write_text(
        "#include <cstdio>\nstruct Grid { double u[64]; };\nstatic void fill(double* u) {\n#pragma omp parallel for\n"
        'for (int i = 0; i < 64; i++) u[i] = i;\n}\nint main() { Grid g; fill(g.u); std::printf("%f", g.u[9]); }\n'
    )
    with pytest.raises(
        ProgramError, match=r"within\.cpp:4: .* memory of which it is not known where it ends for u; .*new"
    ):
        adopt(AdoptSettings((path,)), tmp_path / "adopted")


def test_a_program_whose_loops_are_all_refused_says_why(tmp_path: Path) -> None:
    path = tmp_path / "all.cpp"
    path.write_text(f'#include <cstdio>\nint main() {{\n{PARALLEL}for (int i = 0; i < 3; i++) std::puts("");\n}}\n')
    with pytest.raises(ProgramError, match=r"all\.cpp:4: the loop in main cannot be adopted: it calls puts"):
        adopt(AdoptSettings((path,)), tmp_path / "adopted")


@pytest.mark.nightly
def test_structs_of_c_plus_plus_may_have_the_names_of_cudas_vectors(tmp_path: Path) -> None:
    source = PROGRAMS / "own_vectors.cpp"
    _, document = adopt(AdoptSettings((source,)), tmp_path / "lengths")
    assert document["program"]["check"] == "passed"
    assert max(document["errors"].values()) < 1e-15
    assert {(buffer["name"], buffer["elements"], buffer["role"]) for buffer in document["buffers"]} == {
        ("points", 6000, "input"),
        ("lengths", 2000, "output"),
    }
    assert {"double3_.x", "double3_.y", "double3_.z"} in [set(each["members"]) for each in document["parameters"]]
    assert (tmp_path / "lengths" / "program" / source.name).read_text() == source.read_text()


@pytest.mark.full
def test_what_only_loops_look_at_is_no_answer(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "scratch.cpp",)), tmp_path / "means")
    roles = {buffer["name"]: buffer["role"] for buffer in document["buffers"]}
    assert {name for name, role in roles.items() if "output" in role} == {"means", "kept"}
    assert roles.keys() == {"places", "squares", "roots", "means", "kept"}
    assert max(document["errors"].values()) < 1e-15


@pytest.mark.nightly
def test_loops_end_where_they_do_with_or_without_braces(tmp_path: Path) -> None:
    inner = "for (int j = 0; j < 3; j++)"
    bodies = [
        ("collapse(2)", inner + " { a[3 * i + j] = b[i] + j; }"),
        ("collapse(2)", inner + "\n  a[3 * i + j] = b[i] + j;"),
        ("", inner + " if (j != 1) { a[3 * i + j] = b[i] + j; }"),
        ("", inner + " { int k = 0; do a[3 * i + j] = b[i] + k; while (++k < j); }"),
        ("", "if (i % 2) { a[i] = 2 * b[i]; } else { a[i] = b[i]; }"),
        ("", "if (i % 2) a[i] = 2 * b[i]; else a[i] = b[i];"),
        ("", "{ int j = i; while (j > 2) --j; a[i] = j; }"),
    ]
    loops = "".join(
        f"#pragma omp parallel for {clause}\nfor (int i = 0; i < 30; i++)\n  {body}\nshow();\n"
        for clause, body in bodies
    )
    path = tmp_path / "ends.cpp"
    path.write_text(
        "#include <cstdio>\nstatic double a[90], b[90];\n"
        'static void show() { for (double& value : a) { std::printf("%g ", value); value = -1; } }\n'
        f"int main() {{\nfor (int i = 0; i < 90; i++) b[i] = i;\n{loops}}}\n"
    )
    program = read([path])
    assert len(program.kernels) == len(bodies)
    printed = []
    for files in (program.originals, program.files):
        built = build(program.sources, files, optimisation="-O0", gives_host_memory=True)
        printed.append(run(built, writes=tmp_path).output)
    assert printed[0] == printed[1]
    assert len(printed[0].split()) == 90 * len(bodies)


@pytest.mark.full
def test_counters_stop_at_their_bounds_in_every_direction(tmp_path: Path) -> None:
    body = f"{PARALLEL}for (unsigned long i = n; i > 0; i--) a[i - 1] = i;\n"
    body += f"{PARALLEL}for (int i = 3; i < n; i += n % 3 + 1) a[i] = b[i];\n"
    body += f"{PARALLEL}for (unsigned i = n; i >= 2; i -= 2) {{ a[i] = 1; }}"
    program = written(tmp_path, body)
    assert "if (i <= 0 || i > n) return;" in text_of(program, "work_loop")  # past 0 it wraps
    assert "int i = 3 + (n % 3 + 1) * (int)(blockIdx.x" in text_of(program, "work_loop_2")
    assert "if (i < 2 || i > n) return;" in text_of(program, "work_loop_3")
    for head in ("int i = n; i != 0; i += -1", "int i = 0; true; i++"):
        with pytest.raises(ProgramError, match="does not count up or down to a bound"):
            refused(written(tmp_path, f"{PARALLEL}for ({head}) a[i] = 1.0;"))


@pytest.mark.full
def test_unsigned_counters_count_down_to_0(tmp_path: Path) -> None:
    path = tmp_path / "down.cpp"
    path.write_text(
        "#include <cstdio>\nstatic double a[300];\nint main() {\nunsigned long n = 300, sum = 0;\n"
        f"{PARALLEL}for (unsigned long i = n; i > 0; i--) a[i - 1] = i;\n"
        f"{PARALLEL}for (unsigned i = 294; i >= 1; i -= n % 7 + 1) a[i] += 0.5;\n"
        "#pragma omp parallel for reduction(+ : sum)\n"
        "for (unsigned long i = n; i > 0; i -= 2) sum += i * (a[i - 1] > 9);\n"
        'for (double each : a) std::printf("%g ", each);\nstd::printf("%lu\\n", sum);\n}\n'
    )
    program = read([path])
    assert len(program.kernels) == 3
    printed = []
    for files in (program.originals, program.files):
        built = build(program.sources, files, optimisation="-O0", gives_host_memory=True)
        printed.append(run(built, writes=tmp_path).output)
    assert printed[0] == printed[1]


@pytest.mark.nightly
def test_a_loop_may_run_over_grids_of_several_sizes(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "two_grids.cpp",)), tmp_path / "grids")
    assert set(document["errors"].values()) == {0.0}
    assert not any(note.startswith("trials fail") for note in document["notes"])


@pytest.mark.full
def test_loops_of_several_files_call_functions_of_headers(tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((PROGRAMS / "relaxation",)), tmp_path / "relaxation")
    assert [(kernel["name"], kernel["launches"]) for kernel in document["kernels"]] == [
        *(("relax_loop", 20), ("residual_loop", 1)),
    ]
    assert max(document["errors"].values()) < 1e-14
