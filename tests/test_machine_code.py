"""What is told of a GPU's machine code, compiled for a device that is not here."""

from __future__ import annotations

import pytest

from mptune.backends.base import CompileOptions, DeviceInfo
from mptune.backends.cuda import CudaBackend
from mptune.errors import LaunchError
from mptune.probing import _MachineCode
from mptune.source.loading import load_kernel


class Absent:
    """A driver that says what device there would be, and can do nothing else."""

    def describe(self) -> DeviceInfo:
        return DeviceInfo("cuda", "an absent GPU", "sm_90", 1 << 30)

    def load(self, image: bytes) -> None:
        raise LaunchError("there is no GPU")


@pytest.mark.full
@pytest.mark.nvrtc
def test_conversions_and_bytes() -> None:
    kernel = load_kernel("axpy")
    sizes = kernel.resolve_sizes("smoke")
    code = _MachineCode(kernel, sizes, CudaBackend(driver=Absent()), CompileOptions())  # type: ignore[arg-type]
    one = kernel.configuration({"a_type": "fp64", "x_type": "fp64", "y_type": "fp64"})
    two = kernel.configuration({"a_type": "fp64", "x_type": "fp16", "y_type": "fp64"})
    found = code.compared(two, one)
    assert found["winner.conversions"] == 0
    assert found["conversions"] > 0
    assert "registers" not in found
    assert found["scalar_operations"] > 0
    assert "stack_stores" not in found
    assert "same_code" not in found
    assert code.compared(one, one)["same_code"] == 1.0
    # Nothing can be launched, so that no bandwidth is known.
    assert "memory_bound_ms" not in found
    assert found["traffic_bytes"] < found["winner.traffic_bytes"]
