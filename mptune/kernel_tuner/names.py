"""The modules of Kernel Tuner that scripts import, with what stands behind them here."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from mptune import __version__
from mptune.errors import KernelError
from mptune.interop import write_run
from mptune.kernel_tuner import accuracy, interface


def store_output_file(output_filename: str | Path, results: interface.Results, *_: Any, **__: Any) -> None:
    """Write results in the T4 format."""
    write_run(results.run, Path(output_filename).with_suffix(".json"), "t4")


def store_metadata_file(metadata_filename: str | Path, *_: Any, **__: Any) -> None:
    """Write the machine's description as JSON."""
    metadata = {"mptune": __version__, "python": platform.python_version(), "machine": platform.machine()}
    Path(metadata_filename).with_suffix(".json").write_text(json.dumps(metadata, indent=2), encoding="utf-8")


def get_config_string(params: Mapping[str, Any], keys: Iterable[str] | None = None, *_: Any) -> str:
    """Return a configuration or a result as text."""
    keys = list(params if keys is None else keys)
    texts = {name: f"{value:.3f}" if isinstance(value, float) else str(value) for name, value in params.items()}
    return ", ".join(f"{name}={text}" for name, text in texts.items() if name in keys)


def get_best_config(results: Sequence[Any], objective: str, objective_higher_is_better: bool = False) -> Any:
    """Return the best result."""
    return interface.best_config(results, objective, objective_higher_is_better)


class BenchmarkObserver:
    """Base of observers, which mptune does not call."""


def _unavailable(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise KernelError(f"{name} of Kernel Tuner is not supported by mptune; mptune's own observers measure energy")

    return refuse


_SENSORS = {
    "nvml": "NVMLObserver",
    "ncu": "NCUObserver",
    "pmt": "PMTObserver",
    "powersensor": "PowerSensorObserver",
    "tegra": "TegraObserver",
    "register": "RegisterObserver",
}


class _Module(ModuleType):
    """A module of Kernel Tuner that names what it lacks."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise KernelError(f"{self.__name__}.{name} of Kernel Tuner is not supported by mptune")


def install() -> None:
    """Make ``import kernel_tuner`` and its submodules these."""
    run, tune = interface.run_kernel, interface.tune_kernel
    modules: dict[str, dict[str, Any]] = {
        "": {"tune_kernel": tune, "run_kernel": run, "__version__": "1.5.0"},
        "interface": {"tune_kernel": tune, "run_kernel": run},
        "accuracy": {name: getattr(accuracy, name) for name in _ACCURACY},
        "file_utils": {"store_output_file": store_output_file, "store_metadata_file": store_metadata_file},
        "util": {"get_config_string": get_config_string, "get_best_config": get_best_config},
        "observers": {"BenchmarkObserver": BenchmarkObserver, "OutputObserver": BenchmarkObserver},
        **{f"observers.{module}": {name: _unavailable(name)} for module, name in _SENSORS.items()},
    }
    for name, contents in modules.items():
        full = f"kernel_tuner.{name}" if name else "kernel_tuner"
        module = sys.modules[full] = _Module(full)
        module.__dict__.update(contents, __path__=[])
        parent, _, last = full.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)


_ACCURACY = ("AccuracyObserver", "Tunable", "TunablePrecision", "error_metric_from_name")
