"""The HIP backend down to the calls it makes of HIP Python: against a stand-in, and against the real one."""

# ruff: noqa: N801, N802 - the library's names

from __future__ import annotations

import pytest
from simulated import install, named

from mptune.backends import hip as hip_backend
from mptune.backends.base import CompileOptions
from mptune.backends.hip import HipBackend
from mptune.errors import BackendUnavailableError, LaunchError, OutOfMemoryError
from mptune.kernel import LaunchShape
from mptune.kernel.limits import device_constraints
from mptune.source.loading import load_kernel
from mptune.testing.backends import source_of
from tests.support.simulator import compiler_version
from tests.support.simulator.hip import SimulatedHip

SHAPE = LaunchShape((5, 2, 1), (32, 4, 1), 60_000)


class SimulatedHip7(SimulatedHip):
    """As it is up to version 7: properties are filled into what is given, and names are bytes."""

    class hipDeviceProp_t:
        pass

    def hipGetDeviceProperties(self, prop, deviceId):
        status, found = super().hipGetDeviceProperties(deviceId)
        vars(prop).update({name: getattr(found, name) for name in dir(found) if name[0] != "_"})
        prop.name, prop.gcnArchName = found.name.encode(), found.gcnArchName.encode()
        return (status,)


@pytest.fixture(params=[SimulatedHip7, SimulatedHip], ids=["7", "10"])
def simulated(request):
    return request.param()


@pytest.fixture
def device(monkeypatch, simulated):
    return install(monkeypatch, "hip", simulated)


@pytest.fixture
def backend(device):
    return HipBackend()


@pytest.fixture
def function(backend):
    source = source_of("nothing", 'extern "C" __global__ void nothing(double* x) { }')
    return backend.device.load(backend.compiler.compile(source, "nothing", CompileOptions()))


def test_it_describes_the_device(backend):
    info = backend.describe()
    assert (info.name, info.architecture, info.memory_bytes) == (
        "HIP device (simulated: times are made up)",
        "gfx90a",
        1 << 30,
    )
    assert info.limits["warp_size"] == 64
    assert info.limits["cache_bytes"] == 1 << 20
    assert info.versions == {"hip": "70051831", "hiprtc": compiler_version()}
    limits = {"max_shared_bytes": 65536, "max_block_z": 1024, "max_grid_y": 65536}
    assert backend.device.facts().items() >= limits.items()


def test_a_grid_of_too_many_threads_along_an_axis_is_no_launch(backend, device, function):
    """HIP has no more than 32 bits for them, and older ones do not say so."""
    limits = backend.device.facts()
    kernel = load_kernel("axpy")
    assert "((ceildiv(n, block_size * vector_width)) * (block_size)) <= 4294967295" in device_constraints(
        kernel, limits
    )
    buffer = backend.device.allocate(8)
    with pytest.raises(LaunchError, match=r"less than 2\*\*32 threads along an axis, not a grid \(16777216, 1, 1\)"):
        function.launch(LaunchShape((2**24, 1, 1), (256, 1, 1)), [buffer])
    assert not named(device, "launch")


def test_a_hip_library_of_another_version_is_explained(backend, simulated):
    def missing(*_):
        raise RuntimeError("failed to dlsym 'hipGetDevicePropertiesR0600'")

    simulated.hipGetDeviceProperties = missing
    with pytest.raises(BackendUnavailableError, match=r"does not match the installed HIP library .*R0600.*: install"):
        backend.describe()


class TestRealHipPython:
    """Without a device every call gets as far as the library, which says so: its arguments are of the right types."""

    @pytest.fixture
    def driver(self):
        try:
            from hip import hip
        except (ImportError, RuntimeError) as error:
            pytest.skip(f'HIP Python is not installed: pip install "mptune[hip]" ({error})')
        try:
            status, count = hip.hipGetDeviceCount()
        except RuntimeError as error:
            pytest.skip(f"there is no HIP library: {error}")
        if status == hip.hipError_t.hipSuccess and count:
            pytest.skip("there is a device, on which made-up addresses would do harm")
        driver = hip_backend.HipDevice(HipBackend)
        driver._hip, driver.stream, driver._start, driver._end, driver._is_open = hip, None, None, None, True
        driver.lead = 4096
        return driver

    @pytest.mark.parametrize(
        ("call", "arguments"),
        [
            ("reserve", (64,)),
            ("release", (4096,)),
            ("copy", (4096, 8192, 64, "HostToDevice")),
            ("copy", (4096, 8192, 64, "DeviceToHost")),
            ("copy", (4096, 8192, 64)),
            ("fill", (4096, 0xA5, 64)),
            ("call", ("moduleLoadData", b"\x7fELF")),
            ("call", ("moduleUnload", None)),
            ("call", ("moduleGetFunction", None, "axpy")),
            ("attribute", (None, "MAX_THREADS_PER_BLOCK")),
            ("call", ("occupancyMaxActiveBlocksPerMultiprocessor", None, 256, 1024)),
            ("call", ("moduleGetGlobal", None, "weights")),
            ("launch", (None, SHAPE, 4096)),
            ("enqueue", (None, SHAPE, 4096)),
            ("synchronize", ()),
        ],
    )
    def test_calls_reach_the_library(self, driver, call, arguments):
        with pytest.raises((LaunchError, OutOfMemoryError), match="hipError"):
            getattr(driver, call)(*arguments)

    def test_the_device_is_asked_for_as_this_version_has_it(self, driver):
        with pytest.raises(BackendUnavailableError, match=r"hipError|does not match the installed HIP library"):
            driver.describe()

    def test_opening_a_device_that_is_not_there(self, driver):
        with pytest.raises(BackendUnavailableError, match=r"hipError|no HIP device"):
            HipBackend().describe()
