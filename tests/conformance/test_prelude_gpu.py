"""The prelude for GPUs: everything it offers compiles, and to the instructions it is there for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mptune.backends import BACKENDS
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.cuda import _nvrtc_paths
from mptune.backends.runtime_compiler import RuntimeCompiler
from mptune.errors import BackendUnavailableError
from mptune.prelude import prelude

SOURCE = (Path(__file__).parent / "prelude_gpu.cu").read_text(encoding="utf-8")


def missing(backend):
    try:
        BACKENDS[backend].runtime_compiler()
    except BackendUnavailableError as error:
        return str(error)
    return ""


def target(backend, architecture, mark):
    reason = missing(backend)
    skip = pytest.mark.skipif(bool(reason), reason=reason or "installed")
    return pytest.param(backend, architecture, marks=[mark, skip], id=architecture)


@pytest.mark.parametrize(
    ("backend", "architecture"),
    [target("cuda", "sm_80", pytest.mark.nvrtc), target("hip", "gfx90a", pytest.mark.hiprtc)],
)
def test_everything_compiles_without_a_warning(backend, architecture, tmp_path):
    handle = BACKENDS[backend](cache=BinaryCache(tmp_path))
    binary = handle.compiler.compile(prelude() + SOURCE, "functions", CompileOptions(architecture))
    assert binary.log == ""
    for name in (b"functions", b"types", b"vectors", b"wide", b"rough"):
        assert name in binary.image


@pytest.mark.nvrtc
@pytest.mark.skipif(bool(missing("cuda")), reason=missing("cuda") or "installed")
def test_vectors_are_moved_whole_and_computed_in_pairs():
    compiler = RuntimeCompiler("NVRTC", "nvrtc", "PTX", _nvrtc_paths(), "")
    image, log = compiler.compile(prelude() + SOURCE, "wide", ["--gpu-architecture=sm_90", "--std=c++17"], 60.0)
    assert log == ""
    bodies = dict(re.findall(r"\.entry (\w+)\((.*?)\n\}", image.decode(), re.DOTALL))
    wide, rough = bodies["wide"], bodies["rough"]
    assert {"functions", "types", "vectors"} <= bodies.keys()
    assert len(re.findall(r"ld\.global\S*\.v4", wide)) == 1
    assert len(re.findall(r"st\.global\S*\.v4", wide)) == 1
    assert len(re.findall(r"fma\.rn\.f16x2", wide)) == 4
    assert "cvt" not in re.sub(r"cvta", "", wide)
    assert "ex2.approx.f16" in rough
    assert "sin.approx" in rough
