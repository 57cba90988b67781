"""Accuracy-aware mixed-precision tuning of CUDA, HIP and C++ kernels.

All names for kernel definitions and scripts can be imported from here. Each is loaded at first use, so importing mptune
is quick and loads no device library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mptune.errors import MptuneError as MptuneError
    from mptune.from_source import tune_source as tune_source
    from mptune.kernel import Application as Application
    from mptune.kernel import Buffer as Buffer
    from mptune.kernel import Constant as Constant
    from mptune.kernel import In as In
    from mptune.kernel import InOut as InOut
    from mptune.kernel import Kernel as Kernel
    from mptune.kernel import Out as Out
    from mptune.kernel import Scalar as Scalar
    from mptune.kernel import Scratch as Scratch
    from mptune.kernel.regions import RegionalMetric as RegionalMetric
    from mptune.precision import COMPOUND as COMPOUND
    from mptune.progress import tune as tune
    from mptune.progress import tune_sizes as tune_sizes
    from mptune.run import Run as Run
    from mptune.show import plot as plot
    from mptune.show import write_report as write_report
    from mptune.source.loading import load_application as load_application
    from mptune.source.loading import load_kernel as load_kernel
    from mptune.space.parameters import BooleanParameter as BooleanParameter
    from mptune.space.parameters import CategoricalParameter as CategoricalParameter
    from mptune.space.parameters import IntegerParameter as IntegerParameter
    from mptune.space.parameters import OrdinalParameter as OrdinalParameter
    from mptune.space.parameters import PermutationParameter as PermutationParameter
    from mptune.space.parameters import PolicyParameter as PolicyParameter
    from mptune.space.parameters import PrecisionParameter as PrecisionParameter
    from mptune.space.parameters import RealParameter as RealParameter
    from mptune.space.search_space import SearchSpace as SearchSpace
    from mptune.tuned import TunedApplication as TunedApplication
    from mptune.tuned import TunedKernel as TunedKernel
    from mptune.tuning import TuneSettings as TuneSettings
    from mptune.tuning.explain import explain as explain
    from mptune.tuning.simulation import simulate as simulate

_MODULES = {
    "errors": ("MptuneError",),
    "from_source": ("tune_source",),
    "kernel": ("Application", "Buffer", "Constant", "In", "InOut", "Kernel", "Out", "Scalar", "Scratch"),
    "progress": ("tune", "tune_sizes"),
    "precision": ("COMPOUND",),
    "kernel.regions": ("RegionalMetric",),
    "source.loading": ("load_application", "load_kernel"),
    "run": ("Run",),
    "show": ("plot", "write_report"),
    "tuning.explain": ("explain",),
    "tuning.simulation": ("simulate",),
    "space.parameters": (
        "BooleanParameter", "CategoricalParameter", "IntegerParameter", "OrdinalParameter", "PermutationParameter",
        "PolicyParameter", "PrecisionParameter", "RealParameter",
    ),
    "space.search_space": ("SearchSpace",),
    "tuned": ("TunedApplication", "TunedKernel"),
    "tuning": ("TuneSettings",),
}  # fmt: skip
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mptune' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mptune.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
