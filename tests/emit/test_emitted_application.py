"""What is emitted of an application compiles, runs without mptune, and gives what the tuned application gives."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import awkward_application
import numpy as np
import pytest
from awkward_kernel import run_of
from command_line import caller
from described import create
from programs import CLANG, RUNTIME_COMPILERS, compile_for, compiled, needs_clang, nvcc

from mptune import TunedApplication
from mptune.backends.host_compiler import find_compiler
from mptune.data.conversion import convert
from mptune.data.data import make_inputs
from mptune.emit import emit, winner_of
from mptune.emit.taking import take_along
from mptune.errors import KernelError
from mptune.precision import PRECISIONS
from mptune.results.trial import Measurement, Status, Trial
from mptune.run import Run

AWKWARD = awkward_application.application
FILE = Path(awkward_application.__file__)
NARROW = {"x_type": "fp32", "y_type": "bf16", "smooth.w_type": "fp16", "smooth.a_type": "fp16"}
NAME = "tuned_awkward_steps"


def a_run(**settings: Any) -> Run:
    trials = [
        Trial(AWKWARD.configuration(values), Status.OK, "", Measurement({"time_ms": time_ms, "error": error}), key=key)
        for key, values, time_ms, error in (("a", {}, 4.0, 1e-16), ("b", NARROW, 1.0, 1e-3))
    ]
    described = {"threshold": 1e-2, "metric": "relative", "kernels": list(AWKWARD.kernels), "kernel_path": str(FILE)}
    return run_of(AWKWARD, trials, **{**described, **settings})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("awkward")
    winner = winner_of(a_run(), kernel=AWKWARD)
    assert winner is not None
    emit(winner, folder)
    return folder


@pytest.fixture(scope="module")
def built(folder: Path) -> Path:
    """The same with the library of the processor."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    flags = re.search(r"^HOST_CXX \?= (.*)", (folder / "Makefile").read_text(), re.MULTILINE)
    assert flags is not None
    compiler = flags[1].replace("python3", sys.executable)
    command = ["make", "-j2", f"HOST_CXX={compiler} -Wall -Wextra -Werror"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def program(built: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(built))
    return loaded(NAME, built / f"{NAME}.py")


def tuned(sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return inputs and what the tuned application makes of them."""
    given = dict(make_inputs(AWKWARD, sizes, 0))
    with TunedApplication(a_run(), AWKWARD, configuration=NARROW) as tuned:
        return given, tuned(**given)


@pytest.mark.parametrize("n", [1003, 517])
def test_the_program_gives_what_the_tuned_application_gives(program: ModuleType, n: int) -> None:
    given, expected = tuned(AWKWARD.resolve_sizes("default", {"n": n}))
    found = program.solve({name: value for name, value in given.items() if name != "shift"})
    assert list(found) == ["result", "count", "total"]
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        assert np.array_equal(found[name], values)
    made = program.made_inputs(program.Sizes(program.SIZES, n=n))
    assert all(np.array_equal(made[name], given[name]) for name in made)
    assert 1e-4 < np.ptp(found["result"]) < 1


def test_sizes_are_those_of_arrays_and_others_are_given(program: ModuleType) -> None:
    sizes = AWKWARD.resolve_sizes("default", {"n": 517, "shift": 6})
    given = make_inputs(AWKWARD, sizes, 0)
    arrays = {name: value for name, value in given.items() if name != "shift"}
    with TunedApplication(a_run(), AWKWARD, configuration=NARROW) as application:
        found = application(**arrays, shift=6)
        with pytest.raises(KernelError, match=r"input 'x' .* expected .9,. at n=9"):
            application(**arrays, shift=6, n=9)
    expected = program.solve(arrays, {"shift": 6})
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert found["total"] == given["extra"].sum() + sizes["shift"]
    with pytest.raises(ValueError, match="size n is 9 as given, but 517 in x, index"):
        program.sizes_of(arrays, {"n": 9})
    with pytest.raises(ValueError, match="size n is 516 in x, but 517 in index"):
        program.sizes_of({**arrays, "x": arrays["x"][1:]})
    for n, message in ((2**62, "is too large at these sizes"), (2**64, "size n is 18446744073709551616; ")):
        with pytest.raises((ValueError, RuntimeError), match=message):
            program.Application(program.Sizes(program.SIZES, n=n))
    assert "Kernels have taps written into them and refuse another value" in Path(program.__file__).read_text()


@pytest.mark.parametrize(
    ("changes", "size", "message"),
    [
        (None, None, "inputs are a NoneType; expected arrays by name: x, index, extra"),
        ({"x": None}, None, "there is no input x"),
        ({"x": lambda x: x + 1j}, None, "input x is of type complex128; expected real numbers"),
        ({"x": lambda x: x.reshape(1, -1)}, {"n": 1003}, "input x has shape .1, 1003.; expected .1003,. at"),
        ({"x": lambda x: x[:0], "index": lambda i: i[:0]}, None, "size n is 0; expected an integer from 1"),
        ({"index": lambda i: i + 0.5}, None, "input index has values that are no integers"),
        ({"index": lambda i: i + 2**31}, None, "input index has values beyond int32"),
        ({"gain": lambda gain: [gain, gain]}, None, "input gain has shape .2,.; expected one number"),
        ({}, {"taps": 2}, "smooth: nothing was compiled for .*taps = 2"),
        ({}, {"tap": 2}, "there is no size tap; the sizes are n, taps, shift"),
    ],
)
def test_inputs_that_are_wrong_are_refused(program: ModuleType, changes: Any, size: Any, message: str) -> None:
    inputs = None if changes is None else program.made_inputs(program.Sizes(program.SIZES))
    for name, change in (changes or {}).items():
        if change is None:
            del inputs[name]
        else:
            inputs[name] = change(inputs[name])
    with pytest.raises((TypeError, ValueError, RuntimeError), match=message) as raised:
        program.solve(inputs, size)
    assert "\n" not in str(raised.value)


def test_inputs_of_any_layout_and_type_are_taken(program: ModuleType) -> None:
    inputs = dict(program.made_inputs(program.Sizes(program.SIZES)))
    inputs["x"] = inputs["x"].astype(np.float32)
    expected = program.solve(inputs)
    spread = {"x": np.repeat(inputs["x"].astype(">f8"), 2)[::2], "index": inputs["index"].astype(float)}
    found = program.solve({**inputs, **spread, "extra": list(inputs["extra"])})
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    inputs["x"] = inputs["x"] * np.nan
    assert np.isnan(program.solve(inputs)["result"]).all()


def test_threads_that_solve_at_once_get_what_each_gets_alone(built: Path) -> None:
    (built / "threads.py").write_text(f"""
import os
from concurrent.futures import ThreadPoolExecutor
import numpy as np, {NAME} as tuned

given = [tuned.made_inputs(tuned.Sizes(tuned.SIZES, n=n), seed) for seed, n in enumerate((200, 517, 1003, 517))]
size = {{"shift": 5}}
with ThreadPoolExecutor(4) as threads:
    together = list(threads.map(lambda inputs: tuned.solve(inputs, size), given * 10))
    busy = [threads.submit(tuned.solve, inputs, size) for inputs in given * 5]
    if (child := os.fork()) == 0:
        tuned.solve(given[0], size)
        os._exit(0)
assert os.waitpid(child, 0)[1] == 0
for number, found in enumerate(together):
    alone = tuned.solve(given[number % 4], size)
    assert all(np.array_equal(found[name], alone[name]) for name in alone)
""")
    done = subprocess.run(
        [sys.executable, "threads.py"], cwd=built, capture_output=True, text=True, check=False, timeout=280
    )
    (built / "threads.py").unlink()
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_it_needs_no_mptune_and_compares_with_the_widest_types(built: Path, tmp_path: Path) -> None:
    without = "import runpy, sys; sys.modules['mptune'] = None; sys.path.insert(0, '.'); sys.argv.pop(0); "
    without += "runpy.run_path(sys.argv[0], run_name='__main__')"

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", without, f"{NAME}.py", *map(str, words)]
        return subprocess.run(command, cwd=built, capture_output=True, text=True, check=False, timeout=280)

    done = run("--check", "--runs", "2", "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    first, *lines = done.stdout.splitlines()
    words = r"(\S+) ms \(2 runs by the clock; the shortest (\S+) ms\)"
    times = re.fullmatch(words, first)
    assert times is not None
    assert 0 < float(times[2]) <= float(times[1])
    found = [re.fullmatch(r"relative of (\w+): (\S+), within 0.01", line) for line in lines]
    errors = {match[1]: float(match[2]) for match in found if match}
    assert 1e-4 < errors["result"] < 1e-2
    assert errors["count"] == errors["total"] == 0
    given, expected = tuned(AWKWARD.resolve_sizes())
    assert np.array_equal(np.load(tmp_path / "out" / "result.npy"), expected["result"])
    np.savez(tmp_path / "inputs.npz", **given)
    assert run("--inputs", tmp_path / "inputs.npz", "--output", tmp_path / "again", "--runs", "1").returncode == 0
    assert np.array_equal(np.load(tmp_path / "again" / "count.npy"), expected["count"])
    (tmp_path / "bad.npz").write_text("hello")
    other_library = importlib.util.find_spec("_ctypes").origin  # type: ignore[union-attr]
    for words, error in (
        (("--size", "taps=2"), "smooth: nothing was compiled for x in fp32, y in bf16, n = 1003, taps = 2, as the run"),
        (("--size", "tap=2"), "--size tap=2: expected NAME=N, with one of the sizes n, taps, shift"),
        (("--check", "--seed", "3"), "--check: the answer is known for the inputs of the run alone"),
        (("--inputs", tmp_path / "none.npz"), "No such file"),
        (("--inputs", tmp_path / "bad.npz"), "bad.npz cannot be read: expected arrays of numbers"),
        (("--output", "/dev/full"), "/dev/full"),
        (("--library", "no.so"), "no.so"),
        (("--library", other_library), "is not the library of"),
        (("--size", f"n={10**15}"), "allocate"),
    ):
        done = run(*words)
        assert done.returncode == (2 if done.stderr.startswith("usage") else 1)
        assert error in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""


def test_a_wrong_answer_fails_the_check(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program.tuned_awkward_steps_steps, "WEIGHTS", np.array([0.5, 0.3, 0.25]))
    with pytest.raises(SystemExit, match="an error against the answer in the widest types is over its limit"):
        program.main(["--check", "--runs", "1"])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert re.fullmatch(r"relative of result: 0\.\d+, over 0\.01", lines[0])
    assert lines[1:] == ["relative of count: 0, within 0.01", "relative of total: 0, within 0.01"]
    inputs = program.made_inputs(program.Sizes(program.SIZES))
    outputs = program.solve(inputs)
    outputs["count"] = outputs["count"] + 1
    outputs["total"][0] = np.nan
    errors = program.errors(outputs, inputs)
    assert errors["relative of count"][0] > 0
    assert np.isnan(errors["relative of total"][0])


@pytest.mark.parametrize("name", awkward_application.EVERY)
def test_the_library_rounds_once_as_mptune_does(program: ModuleType, name: str) -> None:
    rng = np.random.default_rng(2)
    chosen = PRECISIONS[name]
    exponents = rng.uniform(np.log2(chosen.smallest_normal) - 8, np.log2(chosen.largest) + 2, 990)
    values = rng.choice([-1.0, 1.0], 990) * np.exp2(np.clip(exponents, -1000, 1000))
    # Half-way between two numbers, and just beside that.
    step = 2.0**-chosen.significand_bits
    ties = [1 + step, 1 + 3 * step, 1 + step + 2.0**-40, 1 + 3 * step - 2.0**-40]
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, chosen.largest, -chosen.largest, chosen.largest * 1.01]
    values = np.concatenate([values, ties, special])
    application = program.Application(program.Sizes(program.SIZES, n=values.size))
    try:
        application.write(f"in_{name}", values)
        expected = convert(values, chosen)[0].astype(np.float64)
        np.testing.assert_array_equal(application.read(f"in_{name}"), expected)
        assert np.array_equal(np.signbit(application.read(f"in_{name}")[:990]), values[:990] < 0)
    finally:
        application.close()


# -- other compilers -----------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize(("backend", "architecture"), RUNTIME_COMPILERS)
def test_runtime_compilers_take_each_kernel(folder: Path, backend: str, architecture: str) -> None:
    for kernel in sorted(folder.glob(f"{NAME}_kernel_*.cu")):
        compile_for(backend, architecture, kernel, f"{kernel.stem}_function")


@pytest.mark.nightly
@pytest.mark.nvcc
def test_nvcc_compiles_it(folder: Path, tmp_path: Path) -> None:
    for source in (f"{NAME}.cu", f"{NAME}_kernel_smooth_1.cu"):
        nvcc(folder / source, tmp_path, "-Xcompiler", "-Wall,-Wextra,-Werror")


@pytest.mark.full
@needs_clang
def test_clang_links_all_kernels_without_a_warning(folder: Path, tmp_path: Path) -> None:
    flags = ("-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-x", "c++")
    compiled(CLANG, *flags, *folder.glob("*.cu"), "-o", tmp_path / "library.so", folder=folder)


def test_another_library_uses_the_library(built: Path, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("""
#include "tuned_awkward_steps.h"
#include <stdio.h>
int main(void) {
    tuned_awkward_steps_sizes sizes = {64, 3, 5};
    enum { x = tuned_awkward_steps_buffer_x, y = tuned_awkward_steps_buffer_y };
    const int extra = tuned_awkward_steps_buffer_extra;
    double given[64], found[64];
    const double weights[] = {1, 0, 0};
    tuned_awkward_steps *one = tuned_awkward_steps_create(&sizes);
    for (int i = 0; i < 64; ++i) given[i] = i;
    if (!one || tuned_awkward_steps_write(one, x, given)) return 1;
    if (tuned_awkward_steps_launch_smooth(one, x, weights, y, 2.0, 64, 3)) return 2;
    if (tuned_awkward_steps_read(one, y, found)) return 3;
    printf("%g %g %lld\\n", found[1], found[63], tuned_awkward_steps_extent(one, extra, 0));
    if (!tuned_awkward_steps_launch_smooth(one, x, weights, y, 2.0, 65, 3)) return 4;
    puts(tuned_awkward_steps_error());
    if (!tuned_awkward_steps_swap(one, x, y)) return 5;
    puts(tuned_awkward_steps_error());
    if (!tuned_awkward_steps_copy(one, y, 77)) return 6;
    puts(tuned_awkward_steps_error());
    tuned_awkward_steps_free(one);
    sizes.n = 0;
    if (tuned_awkward_steps_create(&sizes)) return 7;
    puts(tuned_awkward_steps_error());
    return 0;
}
""")
    library = built / f"{NAME}_host.so"
    command = [*find_compiler().command, "-x", "c", "-std=c99", "-Wall", "-Wextra", "-Werror", "main.c"]
    command += ["-x", "none", f"-I{built}", str(library), "-o", "main"]
    done = subprocess.run([*command, f"-Wl,-rpath,{built}"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines() == [
        "2.5 126.5 7",
        "smooth: x is to have 65 elements at these sizes, and buffer x has 64",
        "swap: x and y need one shape and type",
        "copy: there is no buffer 77",
        "size n is below 1",
    ]


def test_the_readme_says_what_was_measured(folder: Path) -> None:
    readme = (folder / "README.md").read_text()
    assert "| speedup | 4x (unsettled) | 1 |" in readme
    assert "| `y` | (n) | bf16 |" in readme
    assert "`x_type=bf16, y_type=fp32, w_type=fp16, a_type=fp16, block=32`, for taps = 3" in readme
    assert "It was not verified on unseen inputs" in readme
    names = set(re.findall(r"^\| `(\S+?)`(?:, `(\S+?)`)? \| ", readme.partition("## Files")[2], re.MULTILINE))
    assert {name for pair in names for name in pair if name} | {"README.md"} == {
        path.name for path in folder.iterdir() if path.suffix not in (".o", ".so") and path.name != "__pycache__"
    }


def test_the_command_line(monkeypatch: Any, capfd: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    run = a_run()
    with create(tmp_path / "run.db", run) as file:
        for trial in run.trials:
            file.add(trial)
    call = caller(monkeypatch, capfd)
    done = call("emit", "run.db", "--kernel", FILE, "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["output"] == "tuned/awkward_steps"
    assert f"{NAME}.py" in document["files"]
    for words, message in (
        ((), "give its definition with --kernel"),
        (("--kernel", FILE, "--all-devices"), "a header that selects by device is for single kernels"),
    ):
        done = call("emit", "run.db", *words)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert message in done.err


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[str, tuple[str, ...]]]:
    """A function that returns what is taken along of a definition."""

    def take(text: str) -> tuple[str, tuple[str, ...]]:
        (tmp_path / "helper.py").write_text("def helped(): ...\n")
        (tmp_path / "own.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        module = loaded("own", tmp_path / "own.py")
        return take_along("application own", [module.inputs, module.steps])

    return take


def test_what_is_used_comes_along_and_nothing_else(taken: Any) -> None:
    text, names = taken("""
import math, sys
import numpy as np
from mptune import Kernel
# Of each step.
WIDTH: float = math.pi; OTHER = 3
UNUSED = Kernel
def inputs(rng, size): return {}
def helper(a: Kernel = None) -> Kernel:
    update = a  # not the kernel below
    return update
@np.vectorize
def twice(x):
    return [WIDTH * y for y in x]
update = Kernel
def steps(run: Kernel, size):
    found: Kernel = helper(twice(size))
    return found, later
later = 4
""")
    assert names == ("inputs", "steps")
    assert [line for line in text.splitlines() if "import" in line] == ["import math", "import numpy as np"]
    assert "UNUSED" not in text
    assert "OTHER" not in text
    assert "update = Kernel" not in text
    assert "@np.vectorize\ndef twice" in text
    assert "later = 4" in text


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("import helper\ndef steps(run, size): helper.helped()", "steps uses 'helper' .import helper, line 2 of"),
        ("import mptune\nx = mptune.Kernel\ndef steps(run, size): x", "x uses 'mptune' .*which is of mptune"),
        ("def steps(run, size): nothing()", "steps uses 'nothing', which own.py does not define"),
        ("steps = lambda run, size: 3", "<lambda> of own.py is none"),
        ("def made():\n    def steps(run, size): ...\n    return steps\nsteps = made()", "made.<locals>.steps of own"),
        ("from functools import partial\nsteps = partial(print)", "emit takes functions of a file along"),
    ],
)
def test_what_cannot_be_taken_along_is_named(taken: Any, steps: str, message: str) -> None:
    with pytest.raises(KernelError, match=f"application own: .*{message}"):
        taken(f"def inputs(rng, size): return {{}}\n{steps}\n")
