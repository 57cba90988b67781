"""The compiler and its flags as parameters of a kernel, and what a source says of them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host_compiler import HostCompiler, installed_compilers
from mptune.backends.processes import ChildGroup
from mptune.cpp.prelude import prelude, with_headers
from mptune.emit import emit, winner_of
from mptune.errors import BackendUnavailableError, MptuneError
from mptune.kernel import Application, Buffer, Kernel, Out, Scalar
from mptune.measure.device import DeviceEvaluator
from mptune.source.flags import Build, build_in, build_of, compilers_of, read_flags, with_build
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.space.parameters import OrdinalParameter
from mptune.tuning import TuneSettings, tune

needs_compiler = pytest.mark.skipif(not installed_compilers(), reason="no C++ compiler")


@pytest.fixture(scope="module")
def axpy() -> Kernel:
    return load_kernel("axpy")


def first_source(kernel: Kernel) -> str:
    sizes = kernel.resolve_sizes("smoke")
    return render(kernel, kernel.search_space(sizes).configuration(0), sizes)


def test_parameters_of_the_space_the_signature_and_the_source(axpy: Kernel) -> None:
    kernel = with_build(axpy, ["g++", "clang++"], ["", "-O2  -ffast-math"])
    sizes = kernel.resolve_sizes("smoke")
    space = kernel.search_space(sizes)
    assert space.size == 4 * axpy.search_space(sizes).size
    assert compilers_of(kernel) == ("g++", "clang++")
    assert {"compiler", "compiler_flags"} < set(kernel.signature_names)
    configuration = space.configuration(space.size - 1)
    build = Build("clang++", ("-O2", "-ffast-math"))
    assert build_of(kernel, configuration) == build
    assert build_in(render(kernel, configuration, sizes)) == build
    near = {render(kernel, space.configuration(i), sizes) for i in range(space.size - 4, space.size)}
    assert len(near) == 4


@pytest.mark.parametrize(
    ("compilers", "flags", "message"),
    [
        (["/tmp/evil"], [], "'/tmp/evil'"),
        (["sh"], [], "'sh'"),
        *(
            ([], [f"-O2 {flag}"], flag.split()[0])
            for flag in (
                *("-fplugin=evil.so", "-mllvm=-load=evil.so", "-mllvm", "-B/tmp", "-wrapper /tmp/evil", "@evil"),
                *("-fuse-ld=/tmp/evil", "--specs=evil", "-include", "-I.", "-o/tmp/evil", "-L.", "-levil", "-Wl,x"),
                *("-fsanitize=address", "-fprofile-use=evil", "-fdump-tree-all", "-fopenmp", "-fveclib=/tmp/evil"),
                *("-march=../evil", "-DX=/tmp/evil", "-D", "-x", "-O2,evil", "evil.o"),
            )
        ),
        ([], ["'"], "'"),
    ],
)
def test_what_comes_from_a_file_starts_no_program(
    axpy: Kernel, compilers: list[str], flags: list[str], message: str
) -> None:
    with pytest.raises(MptuneError, match=re.escape(message)):
        with_build(axpy, compilers, flags)
    lines = [*(f"// mptune compiler: {c}\n" for c in compilers), *(f"// mptune compiler_flags: {f}\n" for f in flags)]
    with pytest.raises(MptuneError, match=re.escape(message)):
        build_in("".join(lines))


def test_flags_of_optimisation_are_allowed() -> None:
    flags = (
        "-O0 -O1 -Ofast -ffast-math -funroll-loops -fno-tree-vectorize -fvect-cost-model=unlimited -ffp-contract=off "
        "-fno-slp-vectorize -fweb -falign-loops=32:16 -finline-limit=1000 -fno-signed-zeros -flto -fno-plt "
        "-fprefetch-loop-arrays -fdenormal-fp-math=ieee -fveclib=libmvec -fipa-pta -fno-trapping-math "
        "-march=x86-64-v3 -march=armv8-a+sve -mavx2 -mno-avx512f -mfma -msse4.2 -mprefer-vector-width=256 "
        "-mrecip=all,!sqrt -mno-red-zone -mdaz-ftz -DX -DX=1 -DY=-1.5e+3 --param=max-unroll-times=4"
    )
    assert read_flags(flags) == tuple(flags.split())


def test_missing_compilers_and_backends_without_a_choice(axpy: Kernel) -> None:
    there = ", ".join(program.label for program in installed_compilers()) or "none"
    with pytest.raises(BackendUnavailableError) as caught:
        get_backend("host").prepared(axpy, ["clang++-99"], [])
    assert str(caught.value) == f"compiler 'clang++-99' is not installed; available: {there}"
    with pytest.raises(BackendUnavailableError, match="cuda has one compiler"):
        get_backend("cuda").prepared(axpy, ["g++"], [])
    with pytest.raises(BackendUnavailableError, match="--compiler-flag-set is for backend host"):
        get_backend("cuda").prepared(axpy, [], ["-O2"])


@needs_compiler
def test_a_source_is_compiled_with_what_it_says(axpy: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    original = ChildGroup.run

    def run(self, command, **options):
        started.append(command)
        return original(self, command, **options)

    monkeypatch.setattr(ChildGroup, "run", run)
    compiler = HostCompiler(cache=BinaryCache(tmp_path))
    for program in installed_compilers():
        kernel = with_build(axpy, [program.label], ["-funroll-loops"])
        assert compiler.compile(first_source(kernel), "axpy", CompileOptions()).image
        assert started[-1][: len(program.command)] == list(program.command)
        assert "-funroll-loops" in started[-1]
        assert program.version in compiler.identity(CompileOptions(compilers=(program.label,)))


@pytest.mark.full
@needs_compiler
def test_tuned_recorded_resumed_and_emitted(tmp_path: Path) -> None:
    compiler = installed_compilers()[:2][-1]  # not the default one, if there is another
    name = compiler.label
    sets = ("-funroll-loops", "-fno-unroll-loops")
    settings = TuneSettings(
        backend="host",
        size="smoke",
        max_error=1e-1,
        budget=6,
        strategy="random",
        compiler=(name,),
        compiler_flag_sets=sets,
    )
    path = tmp_path / "axpy.db"
    first = tune("axpy", settings, output=path)
    assert {trial.configuration["compiler"] for trial in first.trials} == {name}
    assert {trial.configuration["compiler_flags"] for trial in first.trials} == set(sets)
    again = tune("axpy", settings, output=path, resume=True, budget=7)
    assert (again.evaluations, again.state.stale) == (7, 0)
    assert [t.configuration for t in again.trials[:6]] == [t.configuration for t in first.trials]
    emit(winner_of(again), tmp_path / "out")
    assert f"- `compiler`: `{compiler.version}`" in (tmp_path / "out" / "README.md").read_text()
    command = next((tmp_path / "out").glob("*_host.cpp")).read_text().split("//     ", 1)[1].split("-pthread")[0]
    assert command.startswith("python3 -m ziglang" if name == "zig" else f"{name} ")
    assert again.best is not None
    assert str(again.best.configuration["compiler_flags"]) in command


# -- headers of a user's: what they hold is part of the keys of binaries and of trials ---------------


def including(line: str) -> Kernel:
    return Kernel(
        name="answer",
        parameters=[OrdinalParameter("block", [32, 64])],
        arguments=[Out("y", "n", precision="fp64"), Scalar("n", dtype="int32")],
        sizes={"default": {"n": 64}},
        inputs=lambda rng, size: {},
        reference=lambda inputs, size: {"y": np.zeros(size.n)},
        grid=["1"],
        block=["block"],
        template=f"""{line}
extern "C" __global__ void answer(double* y, int n) {{ for (int i = 0; i < n; ++i) y[i] = ANSWER; }}
""",
    )


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ('#include "{folder}/one.h"', "-I/nowhere"),
        ("  #  include <one.h> // why", "-isystem {folder}"),
        ('#include "one.h"', "-I{folder}"),
        ('#include "one.h"', "CPATH"),
        ('#include "one.h"', "CXX"),
    ],
)
def test_a_header_counts_with_what_it_includes(
    line: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tmp_path / "one.h", tmp_path / "sub" / "two.h"
    two.parent.mkdir()
    one.write_text('#pragma once\n#include "sub/two.h"\n#include "one.h"\n')
    two.write_text("#define ANSWER 1\n")
    flags = how.format(folder=tmp_path).split()
    if not how.startswith("-"):
        monkeypatch.setenv(how, {"CPATH": f"{tmp_path}:/usr/nothing", "CXX": f"g++ -I{tmp_path}"}[how])
        flags = []
    source = f"{prelude()}\n{line.format(folder=tmp_path)}\n"
    before = with_headers(source, flags)
    assert "headers:" in before
    assert with_headers(source, flags) == before
    two.write_text("#define ANSWER 2\n")
    assert with_headers(source, flags) != before


@pytest.mark.full
def test_a_changed_header_makes_another_binary_and_another_trial(tmp_path: Path) -> None:
    header = tmp_path / "answer.h"
    kernel = including(f'#include "{header}"')
    sizes = kernel.resolve_sizes()
    configuration = kernel.search_space(sizes).configuration(0)
    application = Application(
        name="filling",
        kernels=[kernel],
        buffers=[Buffer("y", "n", precision="fp64")],
        outputs=["y"],
        sizes={"default": {"n": 64}},
        inputs=lambda rng, size: {},
        steps=lambda run, size: run.answer(y=run.y),
    )
    joint = application.search_space(sizes).configuration(0)
    compiler = HostCompiler(cache=BinaryCache(tmp_path / "cache"))
    source = f'{prelude()}\n#include "{header}"\nextern "C" int answer() {{ return ANSWER; }}\n'
    binaries, keys = [], []
    try:
        for text in ("#define ANSWER 1\n", "#define ANSWER 2\n"):
            header.write_text(text)
            binaries += [compiler.compile(source, "answer", CompileOptions()) for _ in range(2)]
            with (
                DeviceEvaluator(kernel, sizes, "host") as alone,
                DeviceEvaluator(application, application.resolve_sizes(), "host") as whole,
            ):
                keys.append((alone.key_of(configuration), whole.key_of(joint)))
    finally:
        compiler.close()
    assert [binary.cached for binary in binaries] == [False, True, False, True]
    assert binaries[1].image != binaries[3].image
    assert all(one != other for one, other in zip(*keys, strict=True))
