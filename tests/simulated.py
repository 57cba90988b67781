"""The simulated devices in this very process, for tests that look at what was asked of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from mptune.backends import BACKENDS, cuda, hip
from tests.support.simulator import SimulatedDevice, compiler_version
from tests.support.simulator.compiler import compile_source
from tests.support.simulator.cupy import SimulatedCupy
from tests.support.simulator.hip import SimulatedHip

__all__ = ["SIMULATED", "install", "named"]

SIMULATED: Mapping[str, Any] = {"cuda": SimulatedCupy, "hip": SimulatedHip}


class Compiler:
    """The runtime compiler of :func:`tests.support.simulator.environment` in this process: both share a cache."""

    trouble, code = "", "Code"

    def __init__(self, name: str) -> None:
        self.name, self.version = name, compiler_version()

    def compile(self, source: str, function: str, flags: tuple[str, ...], timeout_s: float) -> tuple[bytes, str]:
        return compile_source(source, flags), ""

    def paused(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        pass


def install(monkeypatch: pytest.MonkeyPatch, backend: str, simulated: Any = None) -> SimulatedDevice:
    """Have a backend find a simulated device; return that."""
    simulated = simulated or SIMULATED[backend]()
    for name, module in simulated.modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(BACKENDS[backend], "require_device", staticmethod(lambda: None))
    module, function, name = (cuda, "_nvrtc", "NVRTC") if backend == "cuda" else (hip, "_hiprtc", "hiprtc")
    monkeypatch.setattr(module, function, lambda: Compiler(name))
    device: SimulatedDevice = simulated.device
    return device


def named(device: SimulatedDevice, *names: str) -> list[tuple[Any, ...]]:
    """Return what calls of these names were given."""
    return [call for call in device.calls if call[0] in names]
