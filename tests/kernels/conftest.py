"""The prelude is compiled once for all tests of kernels, and not in the first of them."""

from __future__ import annotations

import pytest
from launching import host

from mptune.backends.base import CompileOptions
from mptune.cpp.prelude import prelude


@pytest.fixture(scope="session", autouse=True)
def _prelude() -> None:
    source = f'{prelude()}\nextern "C" __global__ void nothing() {{}}\nMPTUNE_HOST_ENTRY(nothing, 1, 1, 1)\n'
    host().compiler.compile(source, "nothing", CompileOptions())
