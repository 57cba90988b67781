"""g++ that stays and forks for each source: the same code, never needed, and gone with its owner."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host_compiler import HostCompiler, find_compiler
from mptune.cpp.prelude import prelude
from mptune.errors import CompileError
from mptune.source.loading import load_kernel
from mptune.source.render import render

pytestmark = pytest.mark.skipif(find_compiler().family != "gcc", reason="only g++ stays")

BODY = """
extern "C" __global__ void scale(float* y, int n) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) y[i] *= FACTOR;
}
MPTUNE_HOST_ENTRY(scale, 64)
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a cache that has the precompiled prelude."""
    cache = BinaryCache(tmp_path_factory.mktemp("prepared"))
    HostCompiler(cache=cache).compile(prelude() + BODY.replace("FACTOR", "0"), "scale", CompileOptions())
    return cache.directory


@contextlib.contextmanager
def staying(prepared: Path, folder: Path) -> Iterator[HostCompiler]:
    compiler = HostCompiler(cache=BinaryCache(shutil.copytree(prepared, folder / "cache")))
    compiler.stay(1)
    with contextlib.closing(compiler):
        yield compiler


def compile_body(compiler: HostCompiler, factor: object, options: CompileOptions | None = None) -> None:
    source = prelude() + BODY.replace("FACTOR", str(factor))
    assert not compiler.compile(source, "scale", options or CompileOptions()).cached


def servers() -> list[int]:
    """Return the compilers that are children of this process."""
    listed = " ".join(tasks.read_text() for tasks in Path("/proc/self/task").glob("*/children"))
    return [pid for pid in map(int, listed.split()) if b"cc1plus" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_code_is_the_same(tmp_path: Path, prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # keeps the assembly
    kernel = load_kernel("axpy")
    sizes = kernel.resolve_sizes("smoke")
    (configuration,) = kernel.search_space(sizes).configurations([5])
    source = render(kernel, configuration, sizes)
    with staying(prepared, tmp_path) as compiler:
        compiler.compile(source, kernel.function, CompileOptions())
        assert len(servers()) == 1
    HostCompiler(cache=BinaryCache(tmp_path / "alone")).compile(source, kernel.function, CompileOptions())
    # The name of the source is the one difference.
    served, alone = (re.sub(r"\t\.file\t.*", "", path.read_text()) for path in tmp_path.rglob("kernel.s"))
    assert served == alone


def test_a_server_that_dies_or_is_late_costs_only_time(tmp_path: Path, prepared: Path) -> None:
    with staying(prepared, tmp_path) as compiler:
        with pytest.raises(CompileError, match=r"rejected scale .*\n.*nothing"):
            compile_body(compiler, "nothing")
        (server,) = servers()
        with pytest.raises(CompileError, match=r"did not finish scale within 0\.001 s"):
            compile_body(compiler, 1, CompileOptions(timeout_s=0.001))
        compile_body(compiler, 2)
        (another,) = servers()
        assert another != server
        os.kill(another, signal.SIGKILL)
        compile_body(compiler, 3)
    assert servers() == []
