"""The prelude for GPUs: everything it offers compiles, and to the instructions it is there for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from vendor_compilers import needs, nvrtc

from mptune.backends import BACKENDS
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.cpp.prelude import prelude

SOURCE = (Path(__file__).parent / "prelude_gpu.cu").read_text(encoding="utf-8")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("backend", "architecture"),
    [
        pytest.param("cuda", "sm_80", marks=[*needs("cuda"), pytest.mark.full], id="sm_80"),
        pytest.param("hip", "gfx90a", marks=[*needs("hip"), pytest.mark.full], id="gfx90a"),
    ],
)
def test_everything_compiles_without_a_warning(backend, architecture, tmp_path):
    handle = BACKENDS[backend](cache=BinaryCache(tmp_path))
    # Everything at once takes a machine that does much else more than a minute.
    options = CompileOptions(architecture)
    binary = handle.compiler.compile(prelude() + SOURCE, "functions", options)
    assert binary.log == ""
    for name in (b"functions", b"types", b"vectors", b"wide", b"rough"):
        assert name in binary.image


@pytest.mark.parametrize("architecture", [pytest.param("sm_90", marks=[*needs("cuda"), pytest.mark.full])])
def test_vectors_are_moved_whole_and_computed_in_pairs(architecture):
    # The other kernels take twenty seconds.
    _, _, looked_at = SOURCE.partition("// What test_prelude_gpu.py looks for")
    ptx, log = nvrtc(f"{prelude()}//{looked_at}", "wide", architecture)
    assert log == ""
    bodies = dict(re.findall(r"\.entry (\w+)\((.*?)\n\}", ptx, re.DOTALL))
    wide, rough = bodies["wide"], bodies["rough"]
    assert len(re.findall(r"ld\.global\S*\.v4", wide)) == 1
    assert len(re.findall(r"st\.global\S*\.v4", wide)) == 1
    assert len(re.findall(r"fma\.rn\.f16x2", wide)) == 4
    assert "cvt" not in re.sub(r"cvta", "", wide)
    assert "ex2.approx.f16" in rough
    assert "sin.approx" in rough
