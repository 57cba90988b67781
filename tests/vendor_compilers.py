"""The vendors' runtime compilers, which need no device: what to skip where they are not installed, and PTX."""

from __future__ import annotations

import pytest

from mptune.backends import BACKENDS
from mptune.backends.cuda import _nvrtc_paths
from mptune.backends.runtime_compiler import RuntimeCompiler


def needs(backend: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a test that compiles for a backend."""
    found = BACKENDS[backend].availability()
    skip = pytest.mark.skipif(not found.can_compile, reason=found.reason or "installed")
    return [skip, *{"cuda": [pytest.mark.nvrtc], "hip": [pytest.mark.hiprtc]}.get(backend, [])]


def nvrtc(source: str, name: str, architecture: str, *flags: str) -> tuple[str, str]:
    """Return the PTX that NVRTC makes of a kernel's source, and what it says about it."""
    compiler = RuntimeCompiler("NVRTC", "nvrtc", "PTX", _nvrtc_paths(), "")
    ptx, log = compiler.compile(
        source, name, [f"--gpu-architecture={architecture}", "--std=c++17", *flags], timeout_s=600.0
    )
    return ptx.decode(), log
