"""The vendors' compilers, which need no device, and g++: what to skip where they are not installed, and PTX."""

from __future__ import annotations

import shutil

import pytest

from mptune.backends import BACKENDS
from mptune.backends.cuda import _nvrtc_paths
from mptune.backends.gpu import RuntimeCompiler

#: The marks of tests that need a vendor's runtime compiler, and no device, by backend.
_MARKS = {"cuda": pytest.mark.nvrtc, "hip": pytest.mark.hiprtc}
#: The programs that tests with other marks call.
_PROGRAMS = {"gxx": ("g++",), "nvcc": ("nvcc", "g++")}


def needs(backend: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a test that compiles for a backend; it is skipped where the compiler is not installed."""
    if backend in _MARKS:
        return [_MARKS[backend]]
    reason = missing(backend)
    return [pytest.mark.skipif(bool(reason), reason=reason)]


def missing(backend: str) -> str:
    """Return why a backend cannot compile here, empty if it can."""
    found = BACKENDS[backend].availability()
    return "" if found.can_compile else found.reason or "not installed"


def skip_where_missing(item: pytest.Item) -> None:
    """Skip a test that is marked for a compiler that is not installed."""
    for mark, programs in _PROGRAMS.items():
        if item.get_closest_marker(mark) and (lacking := [name for name in programs if shutil.which(name) is None]):
            pytest.skip(f"{' and '.join(lacking)} is not installed")
    for backend, mark in _MARKS.items():
        if item.get_closest_marker(mark.name) and (reason := missing(backend)):
            pytest.skip(reason)


def nvrtc(source: str, name: str, architecture: str, *flags: str) -> tuple[str, str]:
    """Return the PTX that NVRTC makes of a kernel's source, and what it says about it."""
    compiler = RuntimeCompiler("NVRTC", "nvrtc", "PTX", _nvrtc_paths(), "")
    ptx, log = compiler.compile(
        source, name, [f"--gpu-architecture={architecture}", "--std=c++17", *flags], timeout_s=600.0
    )
    return ptx.decode(), log
