"""Programs that are given by their folder: the Makefile says the rest, and long runs are made shorter."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.makefiles import project_in
from mptune.adopt.parsing import ProgramError
from mptune.adopt.reading import read
from mptune.adopt.running import TooLargeError
from mptune.adopt.shortening import macros_of, recorded

#: A rod whose middle is read from a file, relaxed in steps that are all repeated.
ROD = r"""
#include <cstdio>
#include <cstdlib>
#include <vector>
#include "check.h"
__global__ void relax(const double* u, double* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = i == 0 || i == n - 1 ? u[i] : u[i] + RATE * (u[i - 1] - 2 * u[i] + u[i + 1]);
}
int main(int argc, char** argv) {
    int n = atoi(argv[1]);
    int repeat = atoi(argv[2]);
    FILE* file = fopen(argv[3], "r");
    double middle = 0;
    if (!file || fscanf(file, "%lf", &middle) != 1) return 3;
    fclose(file);
    std::vector<double> u(n), v(n);
    for (int i = 0; i < n; i++) u[i] = i == n / 2 ? middle : 1.0 + 0.25 * (i % 7);
    double *d_u, *d_v;
    cudaMalloc(&d_u, n * sizeof(double));
    cudaMalloc(&d_v, n * sizeof(double));
    cudaMemcpy(d_u, u.data(), n * sizeof(double), cudaMemcpyHostToDevice);
    for (int i = 0; i < repeat; i++) relax<<<(n + 63) / 64, 64>>>(d_u, d_v, n);
    cudaMemcpy(v.data(), d_v, n * sizeof(double), cudaMemcpyDeviceToHost);
    puts(is_finite(v[n / 2]) ? "PASS" : "FAIL");
    return 0;
}
"""
MAKEFILE = """\
CXXFLAGS := -O3 -std=c++17 -I../shared -DRATE=0.25
rod: rod.o
\tnvcc $(CXXFLAGS) rod.o -o $@ -lm
rod.o: rod.cu ../shared/check.h
\tnvcc $(CXXFLAGS) -c $< -o $@
run: rod
\t./rod 1000 4000000 ../shared/middle.txt
"""


@pytest.fixture
def rod(tmp_path: Path) -> Path:
    """Write a program with headers and data beside its folder, for far too many repeats; return its folder."""
    (tmp_path / "rod").mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "rod" / "rod.cu").write_text(ROD)
    (tmp_path / "rod" / "Makefile").write_text(MAKEFILE)
    (tmp_path / "shared" / "check.h").write_text("static bool is_finite(double x) { return x - x == 0; }\n")
    (tmp_path / "shared" / "middle.txt").write_text("3.5\n")
    return tmp_path / "rod"


@pytest.mark.full
def test_a_program_is_adopted_tuned_and_written_with_nothing_but_its_folder(rod: Path, tmp_path: Path) -> None:
    def mptune(*words: str | Path) -> str:
        command = [sys.executable, "-m", "mptune", *map(str, words)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    before = sorted(path.name for path in rod.iterdir())
    said = " ".join(mptune("adopt", "rod", "--output", "adopted").split())
    assert f"as {rod / 'Makefile'} says: rod.cu -D RATE=0.25 -I {tmp_path / 'shared'} -- 1000 4000000 ../shared" in said
    assert "run with 1000 1 ../shared/middle.txt (Makefile says 1000 4000000 ../shared/middle.txt" in said
    assert "its own check passed" in said
    given = json.loads((tmp_path / "adopted" / "adopted.json").read_text())["program"]
    assert (given["run_in"], given["defines"]) == (str(rod), {"RATE": "0.25"})
    mptune("tune", "./adopted", "--max-error", "1e-3", "--budget", "8", "--output", "run.db")
    assert "rod.cu" in mptune("emit", "run.db", "--into", "rod", "--output", "new")
    assert "float" in (tmp_path / "new" / "rod.cu").read_text()
    assert sorted(path.name for path in rod.iterdir()) == before


@pytest.mark.full
def test_arguments_of_the_command_line_are_not_changed(rod: Path, tmp_path: Path) -> None:
    _, document = adopt(AdoptSettings((rod,), ("70", "3", "../shared/middle.txt")), tmp_path / "adopted")
    assert document["program"]["arguments"] == ["70", "3", "../shared/middle.txt"]
    assert document["size_arguments"] == {"n": 1, "repeat": 2}


def test_the_commands_of_a_makefile_say_what_a_program_is_made_of(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "include").mkdir()
    for name in ("main.cu", "sub/sums.cpp", "tool.cpp", "sub/other.c", "unused.cu"):
        (tmp_path / name).write_text("int x;\n")
    (tmp_path / "sub" / "Makefile").write_text(
        "libsums.a: sums.o other.o\n\tar rcs $@ $^\n%.o: %.cpp\n\tg++ -DDEPTH=4 -DLOG -ULOG -c $< -o $@\n"
        "%.o: %.c\n\tgcc -D 'NAME=\"a b\"' -c $<\n"
    )
    (tmp_path / "Makefile").write_text(
        "ARCH = sm_90\nall: build/main tool\nMakefile: main.cu\n\ttouch made\n"
        "build/main: main.cu\n\t$(MAKE) -C sub\n\tmkdir -p build && nvcc -arch $(ARCH) -isystem include \\\n"
        "\t  -std=c++20 -Xcompiler=-DFAST,-fopenmp -I/no/such/folder main.cu -o build/main -Lsub -lsums\n"
        "tool: tool.cpp\n\tg++ tool.cpp -o tool\n"
        "run: all\n\t# ./build/main 1\n\t./tool 3 > tool.txt\n"
        "\tcd sub; mpirun -n 1 ../build/main --file 'a file' o*.c 12 2>&1 > out.txt\n\t./build/main 5\n"
    )
    project = project_in(tmp_path)
    assert project is not None
    assert {path.relative_to(tmp_path) for path in project.sources} == {
        *map(Path, ("main.cu", "sub/sums.cpp", "sub/other.c")),
    }
    assert project.defines == {"FAST": "", "DEPTH": "4", "NAME": '"a b"'}
    assert project.includes == (tmp_path / "include",)
    assert project.arguments == ("--file", "a file", "other.c", "12")
    assert project.run_in == tmp_path / "sub"
    assert project.notes == (
        "Makefile has 2 commands that run main: the first is taken",
        "Makefile says -std=c++20: the program is read as C++17",
    )
    assert not (tmp_path / "build").exists()
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("makefile", "why"),
    [
        ("main: main.cu\n    nvcc main.cu\n", r"Makefile:2: \*\*\* missing separator"),
        ("main: main.cu lost.h\n\tnvcc main.cu -o main\n", r"No rule to make target 'lost.h', needed by 'main'"),
        ("all:\n\tpython setup.py build\n", "none of its commands compiles a program"),
    ],
)
def test_a_makefile_that_cannot_be_followed_is_said_in_one_line(tmp_path: Path, makefile: str, why: str) -> None:
    (tmp_path / "main.cu").touch()
    (tmp_path / "Makefile").write_text(makefile)
    project = project_in(tmp_path)
    assert project is not None
    (note,) = project.notes
    assert re.fullmatch(rf"Makefile is not followed \(.*{why}.*\): all sources in its folder are compiled", note)
    assert project.sources == ()


def test_several_programs_without_a_run_are_told_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.cu").touch()
    (tmp_path / "Makefile").write_text("all:\n\tnvcc a.cu -o a\n\tnvcc b.cu -o b\n")
    with pytest.raises(ProgramError, match=r"^Makefile builds several programs \(a, b\): give the files of one$"):
        project_in(tmp_path)


def test_a_folder_with_a_compilation_database_needs_no_option(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    entry = {"directory": str(tmp_path / "build"), "file": "../main.cu", "command": "nvcc -DN=3 -I.. -c ../main.cu"}
    (tmp_path / "build" / "compile_commands.json").write_text(json.dumps([entry]))
    project = project_in(tmp_path)
    assert project is not None
    assert (project.defines, project.includes, project.root) == ({"N": "3"}, (tmp_path,), tmp_path)
    assert [path.resolve() for path in project.sources] == [tmp_path / "main.cu"]


# -- shorter runs --------------------------------------------------------------------------------


def test_repeats_are_cut_before_steps_and_sizes(tmp_path: Path) -> None:
    (tmp_path / "main.cu").write_text(ROD.replace('#include "check.h"', "").replace("atoi(argv[1])", "atoi(argv[4])"))
    program = read([tmp_path / "main.cu"], {"RATE": "0.25"})

    def found(arguments: str, ends: Callable[[list[int]], bool | ProgramError]) -> str:
        def record(words: Sequence[str], _: Mapping[str, int], __: float) -> str:
            outcome = ends([int(word) for word in words if word.isdigit()])
            if isinstance(outcome, ProgramError):
                raise outcome
            if not outcome:
                raise TooLargeError("too long")
            return " ".join(words)

        return recorded(record, program, arguments.split(), {}, 60.0)

    def by_work(most: int) -> Callable[[list[int]], bool]:
        return lambda numbers: math.prod(numbers) <= most

    assert found("1 1000 data.txt 4096", by_work(10**7)) == "1 1000 data.txt 4096"
    assert found("1 1000 data.txt 4096", by_work(4096)) == "1 1 data.txt 4096"
    assert found("1 1000 data.txt 4096", by_work(500)) == "1 1 data.txt 256"
    assert found("512 1000 512 4096", by_work(512 * 512 * 256)) == "512 1 512 256"
    assert found("512 1000 512 512", by_work(128**3)) == "128 1 128 128"

    def of_4096(numbers: list[int]) -> bool | ProgramError:
        return ProgramError("expected 4096 columns") if numbers[0] != 4096 else numbers[2] <= 64

    assert found("4096 1000 data.txt 512", of_4096) == "4096 1 data.txt 32"
    with pytest.raises(ProgramError, match="no such file"):
        found("1 1000 data.txt 4096", lambda _: ProgramError("no such file"))
    with pytest.raises(TooLargeError):
        found("1 1000 data.txt 4096", lambda _: False)


def test_the_value_of_an_option_may_be_a_number_of_repeats(tmp_path: Path) -> None:
    text = """#include <getopt.h>
    #include <cstdlib>
    __global__ void k(float* x) { x[0] += 1; }
    void turned(float* x, int n) { k<<<n, 1>>>(x); }
    int main(int argc, char** argv) {
        int runs = 10, turns = 1, n = 1, c;
        while ((c = getopt(argc, argv, "r:t:n:")) != -1) switch (c) {
            case 'r': runs = atoi(optarg); break;
            case 't': turns = atoi(optarg); break;
            case 'n': n = atoi(optarg); break;
        }
        float* x;
        cudaMalloc(&x, 4 * n);
        for (int i = 0; i < runs; i++)
            for (int turn = 0; turn < turns; turn++) turned(x, n);
    }
    """
    (tmp_path / "main.cu").write_text(text)
    by_place = text.replace("int runs = 10", "int side = argc > 1 ? atoi(argv[1]) : 64, runs = 0")
    (tmp_path / "other.cu").write_text(by_place)
    assert tried(tmp_path / "other.cu", "") == ["", "8", "8"]
    assert tried(tmp_path / "main.cu", "-n 64") == ["-n 64", "-n 64 -r 1", "-n 8 -r 1", "-n 8 -r 1"]
    assert tried(tmp_path / "main.cu", "-n 64 -r 100 -t 200") == [
        "-n 64 -r 100 -t 200",
        "-n 64 -r 1 -t 200",
        "-n 64 -r 1 -t 12",
        "-n 64 -r 1 -t 4",
        "-n 8 -r 1 -t 4",
        "-n 8 -r 1 -t 4",
    ]


def tried(program: Path, arguments: str) -> list[str]:
    """Return the numbers with which a program is tried that always takes too long."""
    found: list[str] = []

    def record(words: Sequence[str], macros: Mapping[str, int], _: float) -> None:
        found.append(" ".join([*words, *(f"{name}={value}" for name, value in macros.items())]))
        raise TooLargeError("too long")

    read_program = read([program])
    with pytest.raises(TooLargeError):
        recorded(record, read_program, arguments.split(), macros_of(read_program), 60.0)
    return found


def test_macros_are_made_smaller_where_there_are_no_arguments(tmp_path: Path) -> None:
    (tmp_path / "main.cu").write_text(
        "#define REPEAT 100\n#define BLOCK_SIZE 256\n#define SEED 1070\n#define NUM (1024)\n#define ROWS 1024\n"
        "__global__ void k(float* x) { x[0] += NUM * ROWS * BLOCK_SIZE * SEED; }\nint main() { return REPEAT; }\n"
    )
    assert tried(tmp_path / "main.cu", "") == [
        "",
        "REPEAT=1",
        "REPEAT=1 NUM=256 ROWS=256",
        "REPEAT=1 NUM=64 ROWS=64",
        "REPEAT=1 NUM=16 ROWS=16",
        "REPEAT=1 NUM=8 ROWS=8",
        "REPEAT=1 NUM=8 ROWS=8",
    ]
