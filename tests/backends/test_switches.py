"""What is clever can be ruled out: with each of it switched off, results are the same."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import numpy as np
import pytest

from mptune.backends.base import Availability, CompileOptions
from mptune.backends.host import HostBackend
from mptune.backends.host_compiler import find_compiler
from mptune.cli import main
from mptune.cpp.prelude import prelude
from mptune.errors import MptuneError
from mptune.testing.backends import launch_on_arrays
from tests.tiers import few

pytestmark = pytest.mark.skipif(find_compiler().family != "gcc", reason="only g++ precompiles")

#: Fibers, a function of the math library, and half precision.
BODY = """
extern "C" __global__ void reverse(double* y, const half* x) {
    __shared__ double tile[64];
    tile[threadIdx.x] = mp::pow(static_cast<double>(x[blockIdx.x * 64 + threadIdx.x]), 1.5);
    __syncthreads();
    y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
}
MPTUNE_HOST_ENTRY(reverse, 64)
"""
X = np.random.default_rng(0).random(192).astype(np.float16)
SWITCHES = ("MPTUNE_COMPILER_SERVER", "MPTUNE_PRECOMPILED_PRELUDE", "MPTUNE_FIBER_ASSEMBLY", "MPTUNE_HOST_ARCH")
X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="an architecture of x86")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MPTUNE_CACHE_DIR", str(tmp_path))
    for variable in SWITCHES:  # whatever the suite itself is run with
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / "binaries"


def compiled_and_run(body: str = BODY) -> tuple[bytes, np.ndarray]:
    """Return the library and the results."""
    backend, y = HostBackend(workers=2), np.zeros(192)
    backend.compiler.stay(1)
    try:
        binary = backend.compiler.compile(prelude() + body, "reverse", CompileOptions())
        launch_on_arrays(backend, backend.device.load(binary), (3,), (64,), y, X)
        return binary.image, y
    finally:
        backend.compiler.close()


@pytest.mark.parametrize(
    ("variable", "value"),
    few(
        [
            ("MPTUNE_PRECOMPILED_PRELUDE", "0"),
            ("MPTUNE_COMPILER_SERVER", "0"),
            ("MPTUNE_FIBER_ASSEMBLY", "0"),
            pytest.param("MPTUNE_HOST_ARCH", "x86-64-v3", marks=X86),
        ],
        3,
    ),
)
def test_results_are_the_same_with_each_switched_off(
    variable: str, value: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = HostBackend().identity(CompileOptions())
    monkeypatch.setenv(variable, value)
    image, y = compiled_and_run()
    np.testing.assert_allclose(y.reshape(3, 64)[:, ::-1].ravel(), X.astype(float) ** 1.5, rtol=1e-14)
    is_off = {variable} if value == "0" else set()
    assert (cache / "headers").exists() == is_off.isdisjoint({"MPTUNE_PRECOMPILED_PRELUDE"})
    assert (b"swapcontext" in image) == ("MPTUNE_FIBER_ASSEMBLY" in is_off)
    # What influences timings is part of what trials are known by.
    changes = variable in ("MPTUNE_FIBER_ASSEMBLY", "MPTUNE_HOST_ARCH")
    assert (HostBackend().identity(CompileOptions()) != before) == changes


@X86
def test_an_unknown_architecture_is_said_once_before_anything_is_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("MPTUNE_HOST_ARCH", "x86-64-v9")
    run = tmp_path / "run.db"
    monkeypatch.setattr("sys.argv", ["mptune", "tune", "axpy", "--backend", "host", "-o", str(run), "--budget", "2"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "unknown architecture in MPTUNE_HOST_ARCH: 'x86-64-v9'; did you mean 'x86-64-v4'?" in line
    assert not run.exists()
    availability = HostBackend.availability()
    assert not availability.can_run
    assert "unknown architecture in MPTUNE_HOST_ARCH: 'x86-64-v9'" in availability.reason


@pytest.mark.parametrize("name", ["MPTUNE_COMPILER_SERVER", "MPTUNE_FIBER_ASSEMBLY", "MPTUNE_PRECOMPILED_PRELUDE"])
def test_a_switch_is_0_or_1_whatever_is_compiled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "no")
    message = f"{name} is 'no'; expected 0 (off) or 1 (on)"
    with pytest.raises(MptuneError, match=re.escape(message)):
        HostBackend().compiler.compile(prelude() + BODY, "reverse", CompileOptions())
    assert HostBackend.availability() == Availability(can_compile=False, can_run=False, reason=message)
