"""What all tests of adopted programs share."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import pytest

from mptune.adopt.reading import read
from mptune.adopt.running import build


@functools.cache
def compiled() -> None:
    """Build a program that does nothing: the compiled layer is kept from then on."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nothing.cu"
        path.write_text("__global__ void nothing() {}\nint main() { nothing<<<1, 1>>>(); }\n")
        program = read([path])
        build(program.sources, program.files, optimisation="-O0")


# (Processor time of fixtures of the session would count as the first test's own.)
@pytest.fixture(scope="module", autouse=True)
def _layer() -> None:
    compiled()
