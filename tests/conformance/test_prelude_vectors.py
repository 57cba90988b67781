"""vec2, vec3, vec4: members, layout, conversions, on the host and for GPUs."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest
from prelude_library import COMPILERS, library, pointer, precision_of
from vendor_compilers import needs, nvrtc

from mptune.backends import BACKENDS
from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.cpp.prelude import prelude

SOURCE = "prelude_vectors.cu"
TEXT = Path(__file__).with_name(SOURCE).read_text(encoding="utf-8")


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        ("double_float", "double", "float"),
        ("float_float", "float", "float"),
        ("half_double", "half", "double"),
        ("bfloat16_half", "bfloat16", "half"),
    ],
)
def test_they_are_rows_of_an_array_and_convert(compiler, name, source, target):
    places = np.random.default_rng(1).integers(-8, 8, (50, 3)).astype(precision_of(source).dtype)
    turned = np.full((50, 3), 7, precision_of(target).dtype)
    by = np.array([0, 0, 0, 3], precision_of(source).dtype)
    getattr(library(compiler, SOURCE), name)(*map(pointer, (places, turned, by)), ctypes.c_int(50))
    moved = places.astype(np.float64) - [0.5, 1, 0.25]
    odd = np.arange(50)[:, None] % 2
    back = np.stack([-moved[:, 1], 2 * moved[:, 0], np.zeros(50)], axis=1)
    assert np.array_equal(turned.astype(np.float64), np.where(odd, back, moved) + np.array([0, 0, 3]))


@pytest.mark.parametrize(
    ("backend", "architecture"),
    [
        pytest.param("cuda", "sm_80", marks=[*needs("cuda"), pytest.mark.full]),
        pytest.param("hip", "gfx90a", marks=[*needs("hip"), pytest.mark.full]),
    ],
)
def test_gpus_compile_them(backend, architecture, tmp_path):
    handle = BACKENDS[backend](cache=BinaryCache(tmp_path))
    binary = handle.compiler.compile(prelude() + TEXT, "shared", CompileOptions(architecture))
    assert binary.log == ""
    assert b"bfloat16_half" in binary.image


@pytest.mark.parametrize("architecture", [pytest.param("sm_90", marks=[*needs("cuda"), pytest.mark.full])])
def test_four_floats_are_moved_at_once(architecture):
    ptx, _ = nvrtc(prelude() + TEXT, "shared", architecture)
    body = re.search(r"\.entry shared\((.*?)\n\}", ptx, re.DOTALL)[1]
    assert len(re.findall(r"ld\.(?:global|shared)\S*\.v4\.", body)) == 2
    assert len(re.findall(r"st\.(?:global|shared)\S*\.v4\.", body)) == 2
