"""Observers by name: sensors of the device, and metrics computed from the launch times.

Third parties add an :class:`~mptune.observers.base.Observer` subclass by an entry point of the group
``mptune.observers``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from mptune.observers.base import Observer
from mptune.observers.launches import TIME_METRICS
from mptune.plugins import Registry

__all__ = ["ALWAYS_ON", "OBSERVERS"]

#: Metrics of every trial, each with its description.
ALWAYS_ON: Final[Mapping[str, tuple[tuple[str, ...], str]]] = MappingProxyType(
    {
        "accuracy": (("error", "log10_error"), "Errors of the outputs against their references."),
        "memory": (("memory_bytes",), "Bytes that the arguments take on the device."),
        "time": (TIME_METRICS, "Median, minimum and interquartile range of the launch times."),
    }
)

_MODULES: Final = {"clocks": "sensors", "energy": "sensors", "resources": "launches", "throughput": "launches"}
#: Every optional observer class by name, third parties' included.
OBSERVERS: Final[Mapping[str, type[Observer]]] = Registry("observer", __name__, Observer, modules=_MODULES)
