"""Programs that run on the processor, and what is recorded of them."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mptune.adopt.blocks import split_kernels
from mptune.adopt.capture import (
    Capture,
    Copy,
    Fill,
    Place,
    Scalar,
    Structure,
    capture,
    other_lines,
    other_words,
    steady,
    told_apart,
    wrong_numbers,
)
from mptune.adopt.parsing import ProgramError, SourceFile
from mptune.adopt.reading import read
from mptune.adopt.rewriting import facts_of, rewritten
from mptune.adopt.running import Built, Ran, build, run, stopwatch

PROGRAMS = Path(__file__).parent / "programs"


def compiled(*names: str) -> Built:
    paths = [PROGRAMS / name for name in names]
    return build(
        [path for path in paths if path.suffix != ".h"], [SourceFile.read(p) for p in paths], optimisation="-O1"
    )


@pytest.fixture(scope="session")
def rod(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return capture(compiled("rod.cu"), ["300", "7"], tmp_path_factory.mktemp("rod"))


def steps_of_rod(n: int, steps: int) -> np.ndarray:
    width = 1.0 / (n + 1)
    now = np.sin(np.pi * (np.arange(n) + 1) * width)
    for _ in range(steps):
        wide = np.concatenate([[0.0], now, [0.0]])
        now = now + 0.25 * (wide[:-2] - 2.0 * now + wide[2:])
    return now


def test_a_program_runs_and_its_check_passes(rod: Capture) -> None:
    assert rod.check == "passed"
    assert rod.differences == ()
    assert rod.left_out == ()
    assert [launch.kernel for launch in rod.launches()] == ["warm"] + ["diffuse"] * 7


def test_launches_say_what_they_were_given(rod: Capture) -> None:
    first = next(rod.launches("diffuse"))
    assert (first.grid, first.block, first.shared_bytes) == ((3, 1, 1), (128, 1, 1), 0)
    assert first.types == ("int", "double", "const double*", "double*")
    assert first.arguments == (
        Scalar("i4", (300).to_bytes(4, "little")),
        Scalar("f8", np.float64(0.25).tobytes()),
        Place(0, 0),
        Place(1, 0),
    )
    assert [a.value for a in first.arguments if isinstance(a, Scalar)] == [300, 0.25]
    assert (first.file, first.line) == (PROGRAMS / "rod.cu", 31)
    assert [launch.arguments[2] for launch in rod.launches("diffuse")] == [Place(i % 2, 0) for i in range(7)]


def test_what_the_program_takes_back_is_its_output(rod: Capture) -> None:
    (output,) = rod.outputs
    assert output.source == Place(1, 0)
    assert output.contents is not None
    np.testing.assert_allclose(rod.contents(output.contents).view(np.float64), steps_of_rod(300, 7), rtol=1e-13)


@pytest.fixture(scope="session")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return capture(compiled("runtime_calls.cu"), [], tmp_path_factory.mktemp("calls"))


def test_calls_of_the_runtime_do_what_they_say(calls: Capture) -> None:
    # The program checks symbols, shared memory, warps, atomics, indices, pitched copies, errors and events itself.
    assert calls.check == "passed"
    assert calls.differences == ()
    labels = ["weigh", "sums", "wrap", "scale_rows", "power<double, 3>"]
    assert [launch.kernel for launch in calls.launches()] == labels


def test_variables_in_device_memory_are_allocations_with_names(calls: Capture) -> None:
    symbols = {a.name: a for a in calls.allocations.values() if a.kind == "symbol"}
    assert {name: a.bytes for name, a in symbols.items()} == {"weights": 32, "visits": 4}
    weights = next(c for c in calls.operations() if isinstance(c, Copy) and c.target == Place(symbols["weights"].id, 0))
    assert weights.bytes == 32


def test_structures_say_where_their_pointers_point(calls: Capture) -> None:
    (field,) = next(calls.launches("weigh")).arguments
    assert isinstance(field, Structure)
    assert [calls.allocations[place.allocation].bytes for place in field.pointers.values()] == [8000]
    assert field.data[8:12] == (1000).to_bytes(4, "little")


def test_what_the_host_writes_to_shared_memory_is_a_copy(calls: Capture) -> None:
    managed = next(a.id for a in calls.allocations.values() if a.kind == "managed")
    copies = [c for c in calls.operations() if isinstance(c, Copy) and c.target == Place(managed, 0)]
    assert [copy.kind for copy in copies] == ["to_device"]
    assert not copies[0].is_zero
    assert [(found.byte, found.bytes) for found in calls.operations() if isinstance(found, Fill)] == [(255, 16)]


@pytest.mark.parametrize(("name", "arguments"), [("rod.cu", ["300", "7"]), ("runtime_calls.cu", [])])
def test_the_device_s_memory_is_read_by_copies_alone(
    name: str, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = capture(compiled(name), arguments, tmp_path / "plain")
    monkeypatch.setenv("MPTUNE_APART", "1")
    apart = capture(compiled(name), arguments, tmp_path / "apart")
    assert list(apart.operations()) == list(plain.operations())
    assert apart.check == "passed"


def test_a_host_that_reads_the_device_s_memory_does_not_get_far_where_that_is_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "reads.cu"
    path.write_text("int main() { int* x; cudaMalloc(&x, 4); return *x; }\n")
    built = build([path], [SourceFile.read(path)])
    run(built, writes=tmp_path)
    monkeypatch.setenv("MPTUNE_APART", "1")
    with pytest.raises(ProgramError, match=r"reads\.cu, run without arguments, was ended by SIGSEGV"):
        run(built, writes=tmp_path)


@pytest.mark.full
def test_several_files_are_compiled_and_linked(tmp_path: Path) -> None:
    files = [f"several_files/{name}" for name in ("main.cu", "physics.cu", "physics.h")]
    assert run(compiled(*files), writes=tmp_path).check == "passed"


def test_hip_is_cuda_by_other_names(tmp_path: Path) -> None:
    assert run(compiled("hip_spelling.hip"), writes=tmp_path).check == "passed"


@pytest.fixture(scope="session")
def misbehaving() -> Built:
    return compiled("misbehaving.cu")


@pytest.fixture(scope="session")
def clocks() -> Built:
    return compiled("clocks.cu")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        pytest.param(
            "hang",
            r"with arguments hang, did not end within 2 s and was ended: "
            r"(fill, launched at misbehaving\.cu:\d+, had been running for \d\.\d s; )?"
            r"[\d,]+ launches of fill took \d\.\d s",
            marks=pytest.mark.full,
        ),
        ("stray", r"SIGSEGV \(segmentation fault\) in stray, launched at misbehaving\.cu:16"),
        ("code", r"run with arguments code, exited with code 3; the last it printed: no file named data\.txt"),
        ("fail", r"its own check fails on this machine's processor: error 0\.5: Verification FAILED"),
        ("half", r"value 63 is wrong: FAILED; of 512 bytes on the device it takes back only half: is the size of that"),
        ("nothing", r"launches no kernel: does it need other arguments"),
    ],
)
def test_a_program_that_ends_otherwise_is_one_clear_line(
    misbehaving: Built, tmp_path: Path, how: str, message: str
) -> None:
    with pytest.raises(ProgramError, match=message) as raised:
        capture(misbehaving, [how], tmp_path, time_limit_s=2 if how == "hang" else 60)
    assert "\n" not in str(raised.value)


def test_what_a_run_took_is_what_it_worked_and_not_what_it_waited(misbehaving: Built, tmp_path: Path) -> None:
    seconds = stopwatch()
    time.sleep(0.4)
    assert seconds() < 0.3
    subprocess.run([sys.executable, "-c", "sum(range(5_000_000))"], check=True)
    assert seconds() > 0.03
    with pytest.raises(ProgramError, match=r"; of all this it was on a processor for 0\.\d s: the machine is busy"):
        run(misbehaving, ["sleep"], writes=tmp_path, time_limit_s=1)


def test_memory_is_limited(misbehaving: Built, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"used more than 200 MB of memory"):
        run(misbehaving, ["memory"], writes=tmp_path, memory_limit_bytes=200_000_000)


def test_a_program_that_does_something_else_the_second_time_is_told_apart(misbehaving: Built, tmp_path: Path) -> None:
    found = capture(misbehaving, ["clock"], tmp_path)
    assert "the launch of fill at misbehaving.cu:27" in found.differences[0]


@pytest.mark.parametrize("how", ["processor", "clock()", "time of day", "events"])
def test_printed_times_are_those_that_another_clock_changes(clocks: Built, tmp_path: Path, how: str) -> None:
    """A number that a run with a faster clock prints alike is an answer, however coarse the times are."""
    printed = [
        run(clocks, [how], writes=tmp_path, is_clock_fast=is_fast).output.splitlines() for is_fast in (False, True)
    ]
    assert [steady(lines) for lines in zip(*printed, strict=True)] == [[False, True], [True]]
    assert told_apart(["\n".join(each) for each in printed], "took 9.9 s, sum 2.5\nstep 12", 1e-6) is None
    other = "took 9.9 s, sum 2.75\nstep 12"
    assert told_apart(["\n".join(each) for each in printed], other, 1e-6) == (printed[0][0], other.splitlines()[0])


@pytest.mark.parametrize(
    ("original", "new", "line"),
    [
        ("start\nsum 3.5", "start\nsum nan", 1),
        ("sum 3.5", "sum -inf", 0),
        ("sum 3.5", "sum 9.5", 0),
        ("sum 3.5", "sum -3.5", 0),
        ("energy 4.1e-21", "energy 0", 0),
        ("total 4096000", "total 2048", 0),
        ("x y\n1.5 2.5", "x y\n1.5 0.5", 1),
    ],
)
def test_numbers_that_cannot_be_an_answer_are_told(original: str, new: str, line: int) -> None:
    assert wrong_numbers([original], new, 1e-6) == (original.splitlines()[line], new.splitlines()[line])
    assert wrong_numbers([new], new, 1e-6) is None


@pytest.mark.parametrize(
    ("original", "new"),
    [
        ("sum 3.5", "sum 3.4"),
        ("max error 1e-16", "max error 3e-8"),
        ("iterations 57", "iterations 1000"),
        ("residual\n1e-12", "residual\n1e-7"),
        ("sum 1.5\nmomentum 1e-17", "sum 1.5\nmomentum -3e-8"),
        ("cells above 0.5: 120", "cells above 0.5: 40"),
        ("sum nan", "sum nan"),
        ("step 1 max 2.5\nstep 2 max 0.5", "step 1 max 2.5"),
    ],
)
def test_numbers_that_other_types_may_change_are_not(original: str, new: str) -> None:
    assert wrong_numbers([original], new, 1e-6) is None


def test_numbers_that_differ_from_run_to_run_are_no_answer() -> None:
    originals = ["0.5 s, sum 2.5", "0.7 s, sum 2.5"]
    assert wrong_numbers(originals, "12 s, sum 2.4", 1e-6) is None
    assert wrong_numbers(originals, "0.6 s, sum 9.5", 1e-6) == ("0.5 s, sum 2.5", "0.6 s, sum 9.5")
    assert told_apart(["took 3 s", "took 40 ms"], "took 9 h") is None
    assert told_apart(["a 1", "a 1\nb 2"], "c 3") is None


def test_lines_and_numbers_that_only_one_run_prints_are_told_apart() -> None:
    assert told_apart(["sum 2.5"], "sum 2.5\nrow 0 is wrong") == ("", "row 0 is wrong")
    assert told_apart(["1 2\n3"], "1 2") == ("3", "")
    assert told_apart(["1 2"], "1 2 3") == ("1 2", "1 2 3")
    assert told_apart(["1 2\n"], "1 2\n\n") is None


def test_long_lines_are_cut_around_their_first_difference() -> None:
    same = "energy of all particles after ten steps is "
    found = told_apart([f"{same}potential -1.2345678901 kinetic 3.4"], f"{same}potential -1.2345999901 kinetic 3.4")
    assert found == ("... potential -1.2345678901 kinetic 3.4", "... potential -1.2345999901 kinetic 3.4")
    assert told_apart(["a" * 80], "b" * 80) == (f"{'a' * 36} ...", f"{'b' * 36} ...")
    assert told_apart(["x" * 80 + "a"], "x" * 80 + "b") == (f"... {'x' * 20}a", f"... {'x' * 20}b")


@pytest.mark.parametrize(
    ("original", "new", "apart"),
    [
        ("mean 0.828", "mean 0.828\nrow 0 is wrong", ("", "row 0 is wrong")),
        ("mean 0.828\ndone\n", "mean 0.828\n", ("done", "")),
        ("a 1\nb 2", "a 1\nfar off: 3\nb 2", ("b 2", "far off: 3")),
        ("x 1\n\ny 2", "x 1\ny 2\n", None),
        ("max =100.5 near", "max = 99.5 near", None),
        ("sum 3.5 hash 12ab", "sum nan hash 1234", None),
        ("PASS", "FAIL", None),
        ("2 of 3 are right", "2 of 3 are not right", ("2 of 3 are right", "2 of 3 are not right")),
        ("iteration 1: 0.5\nsum 3", "iteration 1: 0.5\niteration 2: 0.25\nsum 3", None),
        ("turn residual\n1 0.5", "turn residual\n1 0.5\n2 0.25", None),
        ("sum 3", "sum 3\nerror: row 0", ("", "error: row 0")),
    ],
)
def test_lines_with_other_words_or_none(original: str, new: str, apart: tuple[str, str] | None) -> None:
    assert other_lines(original, new) == apart


def test_other_words() -> None:
    assert other_words("PASS 1.5", "FAIL 1.5") == ("PASS 1.5", "FAIL 1.5")
    assert other_words("", "giving up") == ("", "giving up")
    assert other_words("bad 0, x 1e-3 inf\n", "bad 1, x -2.5 0x1f\n\n") is None


def test_files_go_to_a_folder_of_their_own_and_times_may_differ(misbehaving: Built, tmp_path: Path) -> None:
    found = capture(misbehaving, ["file"], tmp_path / "capture", run_in=tmp_path)
    assert not (tmp_path / "result.txt").exists()
    assert found.contents(found.files["result.txt"]).tobytes() == b"2\n"
    assert found.output.startswith("read 2, ")
    assert found.differences == ()


def test_a_source_that_does_not_compile_names_its_line(tmp_path: Path) -> None:
    source = tmp_path / "odd.cu"
    source.write_text("__global__ void k(int* x) { x[0] = nowhere; }\nint main() { k<<<1, 1>>>(nullptr); }\n")
    with pytest.raises(ProgramError, match=r"odd\.cu:1:\d+: error: .*nowhere"):
        build([source], [SourceFile.read(source)])


def test_what_the_linker_rejects_is_named(tmp_path: Path) -> None:
    files = []
    for name, text in (
        ("a.cpp", "int counted;\n"),
        ("b.cpp", "int counted;\nint main() { return counted; }\n"),
    ):
        (tmp_path / name).write_text(text)
        files.append(SourceFile.read(tmp_path / name))
    with pytest.raises(ProgramError, match=r"(multiple definition of .|duplicate symbol: )counted"):
        build([file.path for file in files], files)


@pytest.mark.full
def test_dynamic_shared_memory_is_found_in_vectors_too(tmp_path: Path) -> None:
    source = tmp_path / "line.cu"
    source.write_text("""#include <cstdio>
__global__ void total(const double* given, double* result, int n) {
    extern __shared__ double line[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) line[i] = given[i];
    __syncthreads();
    {
        double sum = 0;
        for (int i = 0; i < n; i++) sum += line[i];
        line[n] = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) result[i] = line[i] + line[n];
}
int main() {
    double host[40], *given, *result;
    for (int i = 0; i < 40; i++) host[i] = i;
    cudaMalloc(&given, sizeof host);
    cudaMalloc(&result, sizeof host);
    cudaMemcpy(given, host, sizeof host, cudaMemcpyHostToDevice);
    total<<<1, 64, 41 * sizeof(double)>>>(given, result, 40);
    cudaMemcpy(host, result, sizeof host, cudaMemcpyDeviceToHost);
    printf("%g %g", host[0], host[39]);
}
""")
    program = read([source])
    built = build(program.sources, split_kernels(program))
    assert run(built, writes=tmp_path).output == "780 819"


def test_launches_are_rewritten_where_they_stand() -> None:
    text = """// k<<<1, 2>>>(x) in a comment
template <class T, int N> __global__ void t(T* x) { step(x); }
__device__ void step(double* x) { __syncthreads(); }
__global__ void k(double* x) { atomicAdd(x, 1.0); }
#define RUN(f) f<<<grid,   \\
    dim3((n + 1) >> 3, max(1, 2))>>>
void host() { k<<<1, 2>>>(x); t<T, (N > 3)><<<1, 2, 0, s>>>(x); RUN(k)(x); puts("a<<<b>>>c"); }
"""
    facts = facts_of([text])
    assert (facts["t"].has_address, facts["t"].waits, facts["t"].counts) == (False, True, False)
    assert (facts["k"].has_address, facts["k"].waits, facts["k"].counts) == (True, False, True)
    new = rewritten(text, facts)
    assert new.count("\n") == text.count("\n")
    lines = new.splitlines()
    assert lines[0] == "// k<<<1, 2>>>(x) in a comment"
    assert "launcher<::mptune_layer::kernel(&::k), 2>{" in lines[6]
    assert "spelled<T>(), ::mptune_layer::spelled<(N > 3)>()" in lines[6]
    assert 'puts("a<<<b>>>c")' in lines[6]
    assert lines[4].endswith("\\")


def test_shared_memory_of_a_size_given_at_launch_is_found_in_any_spelling() -> None:
    for declaration in (
        "extern __shared__ double s[];",
        "extern volatile __shared__ __align__(16) double s[];",
        "__shared__ extern double s[];",
    ):
        new = rewritten(f"__global__ void k() {{ {declaration} s[0] = 1; }}", {})
        assert "* const s = static_cast<" in new, declaration
        assert "extern" not in new
    assert "dynamic_array<float> all{}" in rewritten("extern __shared__ float all[];", {})


@pytest.mark.parametrize(
    ("printed", "check"),
    [
        ("PASS", "passed"),
        ("Test PASSED!", "passed"),
        ("12 tests passed, 0 failed", "passed"),
        ("passed: 3, failures: 0", "passed"),
        ("no failures, all checks passed", "passed"),
        ("PASS 1 of 2 done\nPASS", "passed"),
        ("Verification successful", "passed"),
        ("results are correct", "passed"),
        ("none of 100 values failed: PASS", "passed"),
        ("the check was not passed", "failed"),
        ("it did not pass", "failed"),
        ("the test didn't pass", "failed"),
        ("FAIL", "failed"),
        ("error 0.5: Verification FAILED", "failed"),
        ("10 tests failed", "failed"),
        ("3 failures", "failed"),
        ("failed tests: 2", "failed"),
        ("failed tests: 0", ""),
        ("results are not correct", "failed"),
        ("verification was not successful", "failed"),
        ("PASS, then FAILED", "failed"),
        ("PASS 1 of 2 done", ""),
        ("the second pass took 3 ms", ""),
        ("low-pass filter of order 2", ""),
        ("passed to the solver: 3 arrays", ""),
        ("mean time to failure: 2050 h", ""),
        ("probability of failure 0.1, failure rate 3", ""),
        ("compass, surpassed, failsafe", ""),
        ("0 passed", ""),
    ],
)
def test_what_programs_say_of_their_results(printed: str, check: str) -> None:
    assert Ran(printed, "", 0.0, {}, {}).check == check
