"""Compilers that serve: the same code as ever, and whatever goes wrong is left to a compiler of its own."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mptune.backends.base import Binary, CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.gcc import ASSEMBLY, CompilerServers
from mptune.backends.host import HostBackend
from mptune.backends.host_compiler import HostCompiler, Program, find_compiler
from mptune.backends.processes import ChildGroup
from mptune.cpp.prelude import prelude
from mptune.errors import CompileError
from mptune.kernel.limits import space_on
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.testing.backends import launch_on_arrays
from tests.tiers import few

pytestmark = pytest.mark.skipif(find_compiler().family != "gcc", reason="only g++ serves")

#: Needs libm or libmvec and, where the processor has no instruction for it, libgcc's conversion of half.
BODY = """
extern "C" __global__ void power(double* y, const half* x, int n) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) y[i] = mp::pow(static_cast<double>(x[i]), 1.5) + OFFSET;
}
MPTUNE_HOST_ENTRY(power, 64)
"""
#: Takes the compiler seconds.
SLOW = """
constexpr long count() {
    long sum = 0;
    for (int i = 0; i < 10; ++i)
        for (int j = 0; j < 100000; ++j) sum += i ^ j;
    return sum;
}
static_assert(count() != 1, "");
"""


def source(offset: int = 0) -> str:
    return prelude() + BODY.replace("OFFSET", str(offset))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a cache that has the precompiled prelude, and nothing else."""
    cache = BinaryCache(tmp_path_factory.mktemp("prepared"))
    HostCompiler(cache=cache).expect(CompileOptions(), 1)
    return cache.directory


@pytest.fixture
def cache(tmp_path: Path, prepared: Path) -> BinaryCache:
    return BinaryCache(shutil.copytree(prepared, tmp_path / "cache"))


@contextlib.contextmanager
def serving(cache: BinaryCache, *flags: str) -> Iterator[HostBackend]:
    backend = HostBackend(workers=2, cache=cache)
    backend.compiler.expect(CompileOptions(flags=flags), 1)
    try:
        yield backend
    finally:
        backend.compiler.close()


def idle(backend: HostBackend) -> list[int]:
    """Return the processes that wait for a source."""
    return [pid for pid in children(os.getpid()) if b"cc1plus" in command(pid)]


def children(pid: int) -> list[int]:
    found = [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]
    return [*found, *(grandchild for child in found for grandchild in children(child))]


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def compile_and_run(backend: HostBackend, offset: int, *flags: str) -> None:
    binary = backend.compiler.compile(source(offset), "power", CompileOptions(flags=flags))
    assert not binary.cached
    x = np.linspace(0.0, 9.0, 100).astype(np.float16)
    y = np.full(100, np.nan)
    launch_on_arrays(backend, backend.device.load(binary), (2,), (64,), y, x, np.int32(100))
    np.testing.assert_allclose(y, x.astype(float) ** 1.5 + offset, rtol=1e-14)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until_gone(pid: int) -> None:
    until = time.monotonic() + 120.0
    while not gone(pid):
        assert time.monotonic() < until
        time.sleep(0.01)


# -- what it makes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", few(["axpy", "gemm", "bessel"]))
def test_code_is_the_same_as_ever(name: str, tmp_path: Path, cache: BinaryCache) -> None:
    kernel = load_kernel(name)
    sizes = kernel.resolve_sizes("smoke")
    space = space_on(kernel, sizes, HostBackend().device.facts())
    compiler, processes = find_compiler(), ChildGroup()
    flags = compiler.flags()
    made = HostCompiler(cache=cache, processes=processes).precompiled(compiler, flags)
    assert made is not None
    servers = CompilerServers(processes)
    try:
        for configuration in space.configurations(space.sample(2, np.random.default_rng(7))):
            body = render(kernel, configuration, sizes).removeprefix(prelude())
            assert servers.compile(compiler.command, flags, made, body, tmp_path, 60.0)
            assert assembly(tmp_path / ASSEMBLY) == assembly(started(compiler, flags, made.header, body, tmp_path))
    finally:
        servers.close()


def started(compiler: Program, flags: tuple[str, ...], header: Path, body: str, folder: Path) -> Path:
    """Return the assembly a compiler makes that is started for the source."""
    written = folder / "started.s"
    common = [flag for flag in flags[: flags.index("-x")] if flag != "-shared"]
    command = [*compiler.command, "-include", str(header), *common, "-S", "-x", "c++", "-", "-o", str(written)]
    subprocess.run(command, input=body, text=True, check=True)
    return written


def assembly(path: Path) -> list[str]:
    # The name of the file it was read from is the one thing that differs.
    return [line for line in path.read_text().splitlines() if not line.startswith("\t.file\t")]


def test_results_are_right_and_the_server_stays(cache: BinaryCache) -> None:
    with serving(cache) as backend:
        compile_and_run(backend, 1)
        (server,) = idle(backend)
        compile_and_run(backend, 2)
        assert idle(backend) == [server]
    assert gone(server)


@pytest.mark.full
def test_each_compilation_at_a_time_has_a_server(cache: BinaryCache) -> None:
    with serving(cache) as backend:
        threads = [threading.Thread(target=compile_and_run, args=(backend, 10 + i)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        servers = idle(backend)
        assert 1 <= len(servers) <= 8
        assert len(set(servers)) == len(servers)


@pytest.mark.full
def test_flags_are_those_of_each_compilation(cache: BinaryCache) -> None:
    text = prelude() + BODY.replace("OFFSET", "SHIFT")
    x, y = np.zeros(1, np.float16), np.zeros(1)
    with serving(cache) as backend:
        for shift in (3, 4):
            binary = backend.compiler.compile(text, "power", CompileOptions(flags=(f"-DSHIFT={shift}",)))
            launch_on_arrays(backend, backend.device.load(binary), (1,), (64,), y, x, np.int32(1))
            assert y[0] == shift
        assert len(idle(backend)) == 2


# -- what goes wrong -------------------------------------------------------------------------------


def test_message_of_a_wrong_source_is_the_same_as_ever(cache: BinaryCache) -> None:
    wrong = prelude() + '\n#line 1 "wrong.cu"\nint f() { return nothing; }\n'
    with pytest.raises(CompileError) as alone:
        HostBackend(cache=cache).compiler.compile(wrong, "wrong", CompileOptions())
    with serving(cache) as backend:
        with pytest.raises(CompileError) as served:
            backend.compiler.compile(wrong, "wrong", CompileOptions())
        assert str(served.value) == str(alone.value)
        assert "wrong.cu:1" in str(served.value)
        (server,) = idle(backend)
        compile_and_run(backend, 1)
        assert idle(backend) == [server]


def test_compilation_that_takes_too_long_is_ended(cache: BinaryCache) -> None:
    with serving(cache) as backend:
        compile_and_run(backend, 1)
        (server,) = idle(backend)
        with pytest.raises(CompileError, match=r"did not finish slow within 0\.2 s"):
            backend.compiler.compile(prelude() + SLOW, "slow", CompileOptions(timeout_s=0.2))
        assert gone(server)
        compile_and_run(backend, 2)
        assert idle(backend) not in ([], [server])


def test_server_that_was_killed_is_done_without(cache: BinaryCache) -> None:
    with serving(cache) as backend:
        compile_and_run(backend, 1)
        os.kill(*idle(backend), signal.SIGKILL)
        compile_and_run(backend, 2)
        compile_and_run(backend, 3)
        assert idle(backend) == []


@pytest.mark.full
def test_compilation_that_crashes_is_tried_again_by_a_compiler_of_its_own(cache: BinaryCache) -> None:
    done: list[Binary] = []
    with serving(cache) as backend:
        compile_and_run(backend, 1)
        (server,) = idle(backend)
        text = prelude() + SLOW + BODY.replace("OFFSET", "2")
        thread = threading.Thread(target=lambda: done.append(backend.compiler.compile(text, "power", CompileOptions())))
        thread.start()
        copies = Path(f"/proc/{server}/task/{server}/children")
        while not (copy := copies.read_text()):
            assert thread.is_alive()
            time.sleep(0.001)
        os.kill(int(copy), signal.SIGSEGV)
        thread.join(600.0)
        assert done
        assert idle(backend) == [server]


@pytest.mark.full
@pytest.mark.parametrize("flag", few(["-flto", "-save-temps"]))
def test_flags_that_need_more_than_three_programs_are_not_served(flag: str, cache: BinaryCache) -> None:
    with serving(cache, flag) as backend:
        compile_and_run(backend, 1, flag)
        assert idle(backend) == []


# -- pauses and ends -------------------------------------------------------------------------------


def test_nothing_is_compiled_during_a_pause(cache: BinaryCache) -> None:
    with serving(cache) as backend:
        compile_and_run(backend, 1)
        thread = threading.Thread(target=compile_and_run, args=(backend, 2))
        with backend.compiler.paused():
            thread.start()
            thread.join(1.0)
            assert thread.is_alive()
        thread.join(250.0)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("paused", "hangup"),
    few([(True, signal.SIG_IGN), (False, signal.SIG_DFL)]),
)
def test_owner_killed_leaves_no_server_behind(cache: BinaryCache, paused: bool, hangup: signal.Handlers) -> None:
    script = f"""
        import contextlib, os, threading, time
        from pathlib import Path
        from mptune.backends.base import Binary, CompileOptions
        from mptune.backends.binary_cache import BinaryCache
        from mptune.backends.host import HostBackend
        from mptune.cpp.prelude import prelude
        backend = HostBackend(cache=BinaryCache(Path({str(cache.directory)!r})))
        backend.compiler.expect(CompileOptions(), 1)
        backend.compiler.compile(prelude() + {BODY.replace("OFFSET", "0")!r}, "power", CompileOptions())
        (server,) = [s._child.pid for each in backend.compiler._servers._idle.values() for s in each]
        slow = (prelude() + {SLOW!r}, "slow", CompileOptions())
        threading.Thread(target=backend.compiler.compile, args=slow, daemon=True).start()
        time.sleep(0.3)
        with backend.compiler.paused() if {paused} else contextlib.nullcontext():
            print(server, flush=True)
            os.kill(os.getpid(), 9)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        preexec_fn=functools.partial(signal.signal, signal.SIGHUP, hangup),
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    wait_until_gone(int(done.stdout))
