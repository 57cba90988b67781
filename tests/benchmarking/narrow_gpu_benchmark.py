"""benchmarks/gpu.py with a few configurations of each kernel, for a test of all of it on a simulated device."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import gpu, record
from benchmarks.gpu_sections import axpy, energy, gemm
from mptune.kernel import Kernel
from mptune.source.loading import load_kernel
from mptune.space.parameters import OrdinalParameter, PrecisionParameter

TYPES = ["fp64", "fp32"]
LEFT: dict[str, dict[str, Sequence[Any]]] = {
    "axpy": {"block_size": [256], "vector_width": [1, 2], "a_type": TYPES, "x_type": TYPES, "y_type": TYPES},
    "gemm": {
        **dict.fromkeys(("MWG", "NWG"), (32,)),
        "KWG": [16],
        **dict.fromkeys(("MDIMC", "MDIMA", "NDIMB"), (4,)),
        "NDIMC": [8, 32],  # of matrix units 32
        "warps_along_n": [1, 2],
        **dict.fromkeys(("VWM", "VWN", "VWK", "unroll", "resident", "raster", "stages"), (1,)),
        **dict.fromkeys(("STRM", "STRN", "large"), (False,)),
    },
}


def narrowed(name: str) -> Kernel:
    """Return a bundled kernel of which only some values are left."""
    kernel = load_kernel(name)
    values = LEFT[name]
    return dataclasses.replace(
        kernel,
        parameters=tuple(
            (PrecisionParameter if isinstance(p, PrecisionParameter) else OrdinalParameter)(p.name, values[p.name])
            if p.name in values
            else p
            for p in kernel.parameters
        ),
    )


for module in (axpy, gemm, energy, record):
    vars(module)["load_kernel"] = narrowed
axpy.TYPES = ("fp64", "fp32")  # type: ignore[misc]
gemm.TYPES = {name: gemm.TYPES[name] for name in ("fp32", "TF32", "fp16")}  # type: ignore[misc]
gpu.TESTS = ("backends/test_vendors.py",)  # type: ignore[misc]

if __name__ == "__main__":
    sys.exit(gpu.main())
