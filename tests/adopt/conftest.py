"""What all tests of adopted programs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from mptune.adopt.reading import read
from mptune.adopt.running import build


@pytest.fixture(scope="package", autouse=True)
def _layer(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compile what stands behind CUDA's headers, and parse the header of all programs: both are kept from then on."""
    path: Path = tmp_path_factory.mktemp("layer") / "nothing.cu"
    path.write_text("__global__ void nothing() {}\nint main() { nothing<<<1, 1>>>(); }\n")
    program = read([path])
    build(program.sources, program.files, optimisation="-O0")
