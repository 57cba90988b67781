"""g++ that stays, its precompiled prelude and fibers in assembly: used where possible, never needed, switched off."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mptune.backends.base import Availability, Binary, CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host import HostBackend
from mptune.backends.host_compiler import HostCompiler, find_compiler
from mptune.cli import main
from mptune.cpp.prelude import prelude
from mptune.errors import CompileError, MptuneError
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.testing.backends import launch_on_arrays
from tests.tiers import few

pytestmark = pytest.mark.skipif(find_compiler().family != "gcc", reason="only g++ stays and precompiles the prelude")

#: Fibers, a function of the math library and half precision. Barriers are counted across the end of the prelude.
BODY = """
#line 1 "reverse.cu.j2"
extern "C" __global__ void reverse(double* y, const half* x) {
    __shared__ double tile[64];
    tile[threadIdx.x] = mp::pow(static_cast<double>(x[blockIdx.x * 64 + threadIdx.x]), 1.5);
    __syncthreads();
    y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
}
MPTUNE_HOST_ENTRY(reverse, 64)
"""
X = np.random.default_rng(0).random(192).astype(np.float16)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BinaryCache:
    monkeypatch.setenv("MPTUNE_CACHE_DIR", str(tmp_path))
    for variable in ("COMPILER_SERVER", "PRECOMPILED_PRELUDE", "FIBER_ASSEMBLY", "HOST_ARCH"):
        monkeypatch.delenv(f"MPTUNE_{variable}", raising=False)
    return BinaryCache(tmp_path / "binaries")


def compiled(cache: BinaryCache, body: str = BODY, *flags: str) -> Binary:
    return HostCompiler(cache=cache).compile(prelude() + body, "reverse", CompileOptions(flags=flags))


def precompiled(cache: BinaryCache) -> list[Path]:
    return sorted((cache.directory / "headers").glob("*.gch"))


def assert_reverses(binary: Binary) -> None:
    backend, y = HostBackend(workers=2), np.full(192, np.nan)
    launch_on_arrays(backend, backend.device.load(binary), (3,), (64,), y, X)
    np.testing.assert_allclose(y.reshape(3, 64)[:, ::-1].ravel(), X.astype(float) ** 1.5, rtol=1e-14)


# -- the precompiled prelude -----------------------------------------------------------------------


def test_prelude_is_precompiled_once_and_used(cache: BinaryCache) -> None:
    # -H lists what is included, a precompiled header with an exclamation mark.
    first = compiled(cache, BODY, "-H")
    (header,) = precompiled(cache)
    made = header.stat().st_ino
    second = compiled(cache, BODY.replace("63 -", "64 - 1 -"), "-H")
    assert [path.stat().st_ino for path in precompiled(cache)] == [made]
    for binary in (first, second):
        assert f"! {header}" in binary.log
        assert_reverses(binary)
    with pytest.raises(CompileError, match=r"reverse\.cu\.j2:3:.*error"):
        compiled(cache, BODY.replace("tile[threadIdx.x] =", "nothing ="))


@pytest.mark.full
def test_header_that_is_gone_or_damaged_and_a_cache_that_cannot_be_written_cost_only_time(
    cache: BinaryCache, tmp_path: Path
) -> None:
    for change in range(3):
        assert_reverses(compiled(cache, BODY.replace("63 -", f"{63 - change} + {change} -")))
        if change == 0:
            precompiled(cache)[0].write_bytes(b"damaged")
        elif change == 1:
            shutil.rmtree(cache.directory / "headers")
    (tmp_path / "file").write_text("in the way")
    assert_reverses(compiled(BinaryCache(tmp_path / "file")))


def test_sources_that_begin_otherwise_are_compiled_whole(cache: BinaryCache) -> None:
    assert_reverses(HostCompiler(cache=cache).compile(f"// mine\n{prelude()}{BODY}", "reverse", CompileOptions()))
    assert precompiled(cache) == []


# -- compilers that stay ---------------------------------------------------------------------------


@contextlib.contextmanager
def staying(cache: BinaryCache) -> Iterator[HostCompiler]:
    compiled(cache)
    compiler = HostCompiler(cache=cache)
    compiler.stay(1, CompileOptions())
    with contextlib.closing(compiler):
        yield compiler


def servers() -> list[int]:
    """Return the compilers that are children of this process."""
    listed = " ".join(tasks.read_text() for tasks in Path("/proc/self/task").glob("*/children"))
    return [pid for pid in map(int, listed.split()) if b"cc1plus" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_the_prelude_of_compilers_that_stay_is_there_before_a_source(cache: BinaryCache) -> None:
    with contextlib.closing(HostCompiler(cache=cache)) as compiler:
        compiler.stay(1, CompileOptions())
        (header,) = precompiled(cache)
        assert not compiler.compile(prelude() + BODY, "reverse", CompileOptions()).cached
        assert precompiled(cache) == [header]
        assert len(servers()) == 1


def test_code_is_the_same(tmp_path: Path, cache: BinaryCache, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = load_kernel("axpy")
    source = render(kernel, kernel.configuration({}), kernel.resolve_sizes("smoke"))
    with staying(cache) as compiler:
        monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # keeps the assembly
        compiler.compile(source, kernel.function, CompileOptions())
        assert len(servers()) == 1
    HostCompiler(cache=BinaryCache(tmp_path / "alone")).compile(source, kernel.function, CompileOptions())
    # The name of the source is the one difference.
    served, alone = (re.sub(r"\t\.file\t.*", "", path.read_text()) for path in tmp_path.rglob("kernel.s"))
    assert served == alone


def test_a_server_that_dies_or_is_late_costs_only_time(cache: BinaryCache) -> None:
    with staying(cache) as compiler:

        def compile_body(change: object, options: CompileOptions | None = None) -> None:
            body = BODY.replace("63 -", f"63 + 0 * {change} -")
            assert not compiler.compile(prelude() + body, "reverse", options or CompileOptions()).cached

        with pytest.raises(CompileError, match=r"rejected reverse .*\n.*nothing"):
            compile_body("nothing")
        (server,) = servers()
        with pytest.raises(CompileError, match=r"did not finish reverse within 0\.001 s"):
            compile_body(1, CompileOptions(timeout_s=0.001))
        compile_body(2)
        (another,) = servers()
        assert another != server
        os.kill(another, signal.SIGKILL)
        compile_body(3)
    assert servers() == []


# -- switches --------------------------------------------------------------------------------------

X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="an architecture of x86")


@pytest.mark.parametrize(
    ("variable", "value"),
    few(
        [
            ("MPTUNE_PRECOMPILED_PRELUDE", "0"),
            ("MPTUNE_COMPILER_SERVER", "0"),
            ("MPTUNE_FIBER_ASSEMBLY", "0"),
            pytest.param("MPTUNE_HOST_ARCH", "x86-64-v3", marks=X86),
        ],
        3,
    ),
)
def test_results_are_the_same_with_each_switched_off(
    variable: str, value: str, cache: BinaryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = HostBackend().identity(CompileOptions())
    monkeypatch.setenv(variable, value)
    backend = HostBackend(workers=2)
    backend.compiler.stay(1, CompileOptions())
    with contextlib.closing(backend.compiler):
        binary = backend.compiler.compile(prelude() + BODY, "reverse", CompileOptions())
    assert_reverses(binary)
    assert bool(precompiled(cache)) == (variable != "MPTUNE_PRECOMPILED_PRELUDE")
    assert (b"swapcontext" in binary.image) == (variable == "MPTUNE_FIBER_ASSEMBLY")
    # What influences timings is part of what trials are known by.
    changes = variable in ("MPTUNE_FIBER_ASSEMBLY", "MPTUNE_HOST_ARCH")
    assert (HostBackend().identity(CompileOptions()) != before) == changes
    if value == "0":
        monkeypatch.setenv(variable, "no")
        message = f"{variable} is 'no'; expected 0 (off) or 1 (on)"
        with pytest.raises(MptuneError, match=re.escape(message)):
            HostBackend().compiler.compile(prelude() + BODY, "reverse", CompileOptions())
        assert HostBackend.availability() == Availability(can_compile=False, can_run=False, reason=message)


@X86
def test_an_unknown_architecture_is_one_line_before_anything_is_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("MPTUNE_HOST_ARCH", "x86-64-v9")
    run = tmp_path / "run.db"
    monkeypatch.setattr("sys.argv", ["mptune", "tune", "axpy", "--backend", "host", "-o", str(run), "--budget", "2"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "unknown architecture in MPTUNE_HOST_ARCH: 'x86-64-v9'; did you mean 'x86-64-v4'?" in line
    assert not run.exists()
    assert not HostBackend.availability().can_run
