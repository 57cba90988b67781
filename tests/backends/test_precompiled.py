"""The prelude precompiled: used where it can be, never needed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from mptune.backends.base import Binary, CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host import HostBackend
from mptune.backends.host_compiler import find_compiler
from mptune.cpp.prelude import prelude
from mptune.errors import CompileError
from mptune.testing.backends import launch_on_arrays

pytestmark = pytest.mark.skipif(find_compiler().family != "gcc", reason="only g++ precompiles the prelude")

#: Reverses each block by way of shared memory: whether it has barriers is counted across the prelude's end.
BODY = """
#line 1 "reverse.cu.j2"
extern "C" __global__ void reverse(float* y, const half* x) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
    __syncthreads();
    y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
}
MPTUNE_HOST_ENTRY(reverse, 64)
"""


def compiled(cache: BinaryCache, body: str = BODY, *flags: str) -> Binary:
    return HostBackend(workers=2, cache=cache).compiler.compile(
        prelude() + body, "reverse", CompileOptions(flags=flags)
    )


def precompiled(cache: BinaryCache) -> list[Path]:
    return sorted((cache.directory / "headers").glob("*.gch"))


def assert_reverses(binary: Binary) -> None:
    backend = HostBackend(workers=2)
    x = np.arange(192, dtype=np.float16)
    y = np.full(192, np.nan, np.float32)
    launch_on_arrays(backend, backend.device.load(binary), (3,), (64,), y, x)
    assert (y.reshape(3, 64) == x.reshape(3, 64)[:, ::-1]).all()


def test_prelude_is_precompiled_once_and_used(tmp_path: Path) -> None:
    cache = BinaryCache(tmp_path)
    # -H lists what is included, a precompiled header with an exclamation mark.
    first = compiled(cache, BODY, "-H")
    (header,) = precompiled(cache)
    assert f"! {header}" in first.log
    made = header.stat().st_ino
    second = compiled(cache, BODY.replace("63 -", "64 - 1 -"), "-H")
    assert f"! {header}" in second.log
    assert [path.stat().st_ino for path in precompiled(cache)] == [made]
    assert_reverses(first)
    assert_reverses(second)


@pytest.mark.full
def test_header_that_is_gone_or_damaged_is_not_needed(tmp_path: Path) -> None:
    cache = BinaryCache(tmp_path)
    backend = HostBackend(workers=2, cache=cache)
    for change in range(3):
        body = BODY.replace("63 -", f"{63 - change} + {change} -")
        assert_reverses(backend.compiler.compile(prelude() + body, "reverse", CompileOptions()))
        if change == 0:
            precompiled(cache)[0].write_bytes(b"damaged")
        elif change == 1:
            shutil.rmtree(tmp_path / "headers")


def test_cache_that_cannot_be_written_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert_reverses(compiled(BinaryCache(tmp_path / "file")))


def test_sources_that_begin_otherwise_are_compiled_whole(tmp_path: Path) -> None:
    cache = BinaryCache(tmp_path)
    source = "// mine\n" + prelude() + BODY
    assert_reverses(HostBackend(workers=2, cache=cache).compiler.compile(source, "reverse", CompileOptions()))
    assert precompiled(cache) == []


def test_errors_name_the_template_s_lines(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"reverse\.cu\.j2:3:.*error"):
        compiled(BinaryCache(tmp_path), BODY.replace("tile[threadIdx.x] =", "nothing ="))
