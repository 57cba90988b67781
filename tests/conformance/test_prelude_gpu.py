"""The prelude for GPUs: everything it offers compiles, and to the instructions it is there for."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from prelude_library import precision_of
from vendor_compilers import needs, nvrtc

from mptune.backends import BACKENDS
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host import HostBackend
from mptune.cpp.prelude import prelude
from mptune.testing.backends import launch_on_arrays


def text_of(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def bodies(source: str, name: str, architecture: str = "sm_90") -> dict[str, str]:
    """Return the PTX of each kernel of a source."""
    ptx, log = nvrtc(prelude() + source, name, architecture)
    assert log == ""
    return dict(re.findall(r"\.entry (\w+)\((.*?)\n\}", ptx, re.DOTALL))


@pytest.mark.parametrize(
    ("backend", "architecture"),
    [
        pytest.param("cuda", "sm_80", marks=[*needs("cuda"), pytest.mark.full], id="sm_80"),
        pytest.param("hip", "gfx90a", marks=[*needs("hip"), pytest.mark.full], id="gfx90a"),
    ],
)
@pytest.mark.parametrize(
    ("source", "names"),
    [
        # Everything at once takes a machine that does much else more than a minute.
        pytest.param("prelude_gpu.cu", "functions types vectors wide rough", marks=pytest.mark.nightly),
        ("prelude_atomics.cu", "atomics"),
        ("prelude_literal.cpp", "body_half body_bfloat16"),
        ("prelude_vectors.cu", "shared bfloat16_half"),
    ],
)
def test_everything_compiles_without_a_warning(source, names, backend, architecture, tmp_path):
    compiler = BACKENDS[backend](cache=BinaryCache(tmp_path)).compiler
    binary = compiler.compile(prelude() + text_of(source), names.split()[0], CompileOptions(architecture))
    assert binary.log == ""
    assert all(name.encode() in binary.image for name in names.split())


@pytest.mark.full
@pytest.mark.parametrize("architecture", [pytest.param("sm_90", marks=needs("cuda"))])
def test_vectors_are_moved_whole_and_computed_in_pairs(architecture):
    # The other kernels take twenty seconds.
    _, _, looked_at = text_of("prelude_gpu.cu").partition("// What test_prelude_gpu.py looks for")
    found = bodies(f"//{looked_at}", "wide", architecture)
    wide, rough = found["wide"], found["rough"]
    assert len(re.findall(r"ld\.global\S*\.v4", wide)) == len(re.findall(r"st\.global\S*\.v4", wide)) == 1
    assert len(re.findall(r"fma\.rn\.f16x2", wide)) == 4
    assert "cvt" not in re.sub(r"cvta", "", wide)
    assert "ex2.approx.f16" in rough
    assert "sin.approx" in rough
    shared = bodies(text_of("prelude_vectors.cu"), "shared", architecture)["shared"]
    assert len(re.findall(r"ld\.(?:global|shared)\S*\.v4\.", shared)) == 2
    assert len(re.findall(r"st\.(?:global|shared)\S*\.v4\.", shared)) == 2


@pytest.mark.full
def test_none_of_the_additions_of_many_threads_is_lost(tmp_path):
    """Of the host: atomic functions of every type."""
    threads, backend = 64, HostBackend(workers=3, cache=BinaryCache(tmp_path))
    source = prelude() + text_of("prelude_atomics.cu")
    function = backend.device.load(backend.compiler.compile(source, "atomics", CompileOptions()))
    numbers = [np.zeros(6, precision_of(name).dtype) for name in ("double", "float", "half", "bfloat16")]
    for array in numbers:
        array[2] = 100
    narrow, signed, unsigned = (
        np.zeros(2, precision_of("fp8_e4m3").dtype),
        np.zeros(3, np.int32),
        np.zeros(2, np.uint32),
    )
    launch_on_arrays(backend, function, (threads // 8,), (8,), *numbers, narrow, signed, unsigned)
    for array in numbers:
        assert list(array.astype(float)) == [1.5 * threads, -threads, 101 - threads, threads - 1, 1, threads - 1]
    assert list(narrow.astype(float)) == [8, 7]
    assert list(signed) == [threads, -threads, 1 - threads]
    assert list(unsigned) == [threads - 1, 7]
