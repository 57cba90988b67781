"""Atomic functions of every type: none of the additions of many threads is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from prelude_library import precision_of
from vendor_compilers import needs

from mptune.backends import BACKENDS
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host import HostBackend
from mptune.cpp.prelude import prelude
from mptune.testing.backends import launch_on_arrays

TEXT = Path(__file__).with_name("prelude_atomics.cu").read_text(encoding="utf-8")
THREADS = 64


@pytest.mark.full
def test_on_the_host(tmp_path):
    backend = HostBackend(workers=3, cache=BinaryCache(tmp_path))
    function = backend.device.load(backend.compiler.compile(prelude() + TEXT, "atomics", CompileOptions()))
    numbers = [np.zeros(6, precision_of(name).dtype) for name in ("double", "float", "half", "bfloat16")]
    for array in numbers:
        array[2] = 100
    narrow, signed, unsigned = (
        np.zeros(2, precision_of("fp8_e4m3").dtype),
        np.zeros(3, np.int32),
        np.zeros(2, np.uint32),
    )
    launch_on_arrays(backend, function, (THREADS // 8,), (8,), *numbers, narrow, signed, unsigned)
    for array in numbers:
        assert list(array.astype(float)) == [1.5 * THREADS, -THREADS, 101 - THREADS, THREADS - 1, 1, THREADS - 1]
    assert list(narrow.astype(float)) == [8, 7]
    assert list(signed) == [THREADS, -THREADS, 1 - THREADS]
    assert list(unsigned) == [THREADS - 1, 7]


@pytest.mark.parametrize(
    ("backend", "architecture"),
    [
        pytest.param("cuda", "sm_80", marks=[*needs("cuda"), pytest.mark.full]),
        pytest.param("hip", "gfx90a", marks=[*needs("hip"), pytest.mark.full]),
    ],
)
def test_gpus_compile_them(backend, architecture, tmp_path):
    handle = BACKENDS[backend](cache=BinaryCache(tmp_path))
    binary = handle.compiler.compile(prelude() + TEXT, "atomics", CompileOptions(architecture))
    assert binary.log == ""
