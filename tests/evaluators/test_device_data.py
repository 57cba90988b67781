from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from mptune.accuracy.pairs import Pairs, count_unwritten
from mptune.backends.host import HostBackend, HostBuffer, HostDevice
from mptune.data import DataManager
from mptune.errors import OutOfMemoryError
from mptune.kernel import In, InOut, Kernel, Out, Scalar
from mptune.measure.buffers import GUARD_BYTES, Buffers, Memory
from mptune.measure.program import Program
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
        template='extern "C" __global__ void k({{ t }}* y, {{ t }}* z, const {{ t }}* x, {{ t }} a) {}',
    )
    return DataManager(kernel, kernel.resolve_sizes(), cache_dir=tmp_path)


def bind(memory: Memory, backend: HostBackend, data: DataManager, t: str) -> Buffers:
    configuration = data.kernel.configuration({"t": t})
    return memory.bind(Program(data.kernel, configuration, data.sizes, backend), data)


def test_poison_shows_until_it_is_written(data: DataManager) -> None:
    backend = HostBackend()
    buffers = bind(Memory(backend, repeats=True), backend, data, "fp16")
    buffers.poison()
    reference = data.references["y"]
    assert count_unwritten(Pairs.of(buffers.stored("y"), reference)) == N
    written = np.zeros(N, np.float16)
    written[7:] = buffers.stored("y")[7:]
    buffers.memory["y"].write(written)
    assert count_unwritten(Pairs.of(buffers.stored("y"), reference)) == N - 7


def test_restore_undoes_what_a_launch_did(data: DataManager) -> None:
    backend = HostBackend()
    buffers = bind(Memory(backend, repeats=True), backend, data, "fp64")
    buffers.memory["z"].write(np.full(N, 5.0))
    buffers.restore()
    np.testing.assert_array_equal(buffers.stored("z"), data.inputs["z"])


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
    memory = Memory(backend, 10**9, repeats=True)
    for name in ("fp64", "fp32", "fp16", "bf16", "fp8_e5m2", "fp64"):
        bind(memory, backend, data, name)
    memory.free()
    assert all(buffer.freed for buffer in Small.held)
