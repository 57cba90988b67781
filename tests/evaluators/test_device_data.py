from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from mptune.backends.host import HostBackend, HostBuffer, HostDevice
from mptune.data import DataManager
from mptune.errors import OutOfMemoryError
from mptune.kernel import In, InOut, Kernel, Out, Scalar
from mptune.measure.device_data import GUARD_BYTES, DeviceData
from mptune.space.parameters import PrecisionParameter

N = 1003


class Counted(HostBuffer):
    """Memory that knows whether it was given back."""

    freed = False

    def free(self) -> None:
        super().free()
        self.freed = True


@pytest.fixture
def data(tmp_path: Path) -> DataManager:
    kernel = Kernel(
        name="k",
        parameters=[PrecisionParameter("t", ["fp64", "fp32", "fp16", "bf16", "fp8_e5m2"])],
        arguments=[
            Out("y", "n", precision="t"),
            InOut("z", "n", precision="t"),
            In("x", "n", precision="t"),
            Scalar("a", precision="t"),
        ],
        sizes={"default": {"n": N}},
        inputs=lambda rng, size: {"x": rng.random(size.n), "z": rng.random(size.n), "a": 0.3},
        reference=lambda inputs, size: {"y": inputs["x"], "z": inputs["z"]},
        grid=["1"],
        block=["1"],
        template="\n",
    )
    return DataManager(kernel, kernel.resolve_sizes(), cache_dir=tmp_path)


def bind_all(device: DeviceData, data: DataManager) -> None:
    for name in ("fp64", "fp32", "fp16", "bf16", "fp8_e5m2"):
        device.bind(data.kernel.configuration({"t": name}))


def test_buffers_hold_the_values_in_their_precision(data: DataManager) -> None:
    device = DeviceData(HostBackend(), data, budget_bytes=10**9)
    for name in ("fp64", "fp32", "fp16", "bf16"):
        bound = device.bind(data.kernel.configuration({"t": name}))
        outputs = device.read_outputs(bound)
        expected = data.inputs["z"].astype(outputs["z"].dtype)
        bound.restore()
        np.testing.assert_array_equal(device.read_outputs(bound)["z"].astype(float), expected.astype(float))
    device.free()


def test_poison_shows_until_it_is_written(data: DataManager) -> None:
    device = DeviceData(HostBackend(), data, budget_bytes=10**9)
    bound = device.bind(data.kernel.configuration({"t": "fp16"}))
    device.poison(bound)
    assert device.unwritten(bound, device.read_outputs(bound)) == {"y": N}
    written = np.zeros(N, np.float16)
    written[7:] = device.read_outputs(bound)["y"][7:]
    bound.outputs[0].buffer.write(written)
    assert device.unwritten(bound, device.read_outputs(bound)) == {"y": N - 7}
    device.free()


def test_restore_undoes_what_a_launch_did(data: DataManager) -> None:
    device = DeviceData(HostBackend(), data, budget_bytes=10**9)
    bound = device.bind(data.kernel.configuration({"t": "fp64"}))
    working = next(o.buffer for o in bound.outputs if o.argument.name == "z")
    working.write(np.full(N, 5.0))
    bound.restore()
    np.testing.assert_array_equal(device.read_outputs(bound)["z"], data.inputs["z"])
    device.free()


def test_buffers_of_other_configurations_make_room_when_the_device_is_full(data: DataManager) -> None:
    class Small(HostDevice):
        """A device that holds what one configuration in fp64 needs, and no more."""

        held: ClassVar[list[Counted]] = []

        def allocate(self, nbytes: int) -> HostBuffer:
            self.held[:] = [buffer for buffer in self.held if not buffer.freed]
            if sum(buffer.nbytes for buffer in self.held) + nbytes > 4 * (
                8 * N + 2 * GUARD_BYTES + -8 * N % GUARD_BYTES
            ):
                raise OutOfMemoryError(f"{nbytes} bytes were asked for")
            self.held.append(Counted(nbytes))
            return self.held[-1]

    backend = HostBackend()
    backend.device = Small(1)
    device = DeviceData(backend, data, budget_bytes=10**9)
    bind_all(device, data)
    device.bind(data.kernel.configuration({"t": "fp64"}))
    device.free()
    assert all(buffer.freed for buffer in Small.held)
