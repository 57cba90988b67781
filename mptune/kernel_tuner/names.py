"""The modules of Kernel Tuner that scripts import, with what stands behind them here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from mptune.errors import KernelError
from mptune.kernel_tuner import accuracy, interface, observers, results


class PythonKernel:
    """A kernel that is called from Python.

    Args:
        kernel_name: as in ``run_kernel``, like all others but these.
        kernel_string: the source.
        problem_size: threads along each axis.
        arguments: of the kernel in their order.
        params: the values of parameters.
        inputs: whether each argument is given anew in calls; all by default.
        outputs: whether each argument is returned by calls; all by default.
        results_file: a file of ``store_results`` with the values of parameters.
        others: further arguments of ``run_kernel``.
    """

    def __init__(
        self,
        kernel_name: str,
        kernel_string: Any,
        problem_size: Any,
        arguments: Sequence[Any],
        params: dict[str, Any] | None = None,
        inputs: Sequence[bool] | None = None,
        outputs: Sequence[bool] | None = None,
        *,
        results_file: str | None = None,
        verbose: bool = True,
        **others: Any,
    ) -> None:
        del verbose
        self.params = dict(params or {})
        if results_file is not None:
            self.params |= results.TuneResults(results_file).get_best_config(problem_size=problem_size)
        self._kernel = kernel_name, kernel_string, problem_size
        self._arguments, self._others = list(arguments), others
        self._inputs = list(inputs or [True] * len(arguments))
        self._outputs = list(outputs or [True] * len(arguments))

    def __call__(self, *args: Any) -> list[Any]:
        """Run the kernel, and return the arrays among its outputs."""
        if len(args) != len(self._arguments):
            raise KernelError(f"{self._kernel[0]} takes {len(self._arguments)} arguments, not {len(args)}")
        given = [
            new if is_input else known for new, known, is_input in zip(args, self._arguments, self._inputs, strict=True)
        ]
        self._arguments = interface.run_kernel(*self._kernel, given, self.params, **self._others)
        found = []
        for is_output, own, array in zip(self._outputs, args, self._arguments, strict=True):
            if is_output and np.ndim(own):
                found.append(array)
                if str(self._others.get("lang", "")).upper() == "CUPY" and own is not array:
                    own[...] = type(own)(array) if hasattr(own, "get") else array  # CuPy's arrays are changed in place
        return found

    run_kernel = __call__


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
}
_OBSERVERS = (
    "BenchmarkObserver", "IterationObserver", "OutputObserver", "PrologueObserver", "RegisterObserver",
)  # fmt: skip
_ACCURACY = ("AccuracyObserver", "Tunable", "TunablePrecision", "error_metric_from_name")


class _Module(ModuleType):
    """A module of Kernel Tuner that names what it lacks."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise KernelError(f"{self.__name__}.{name} of Kernel Tuner is not supported by mptune")


def _of(module: ModuleType, *names: str) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names}


def install() -> None:
    """Make ``import kernel_tuner`` and its submodules these."""
    functions = _of(interface, "tune_kernel", "run_kernel")
    classes = _of(observers, *_OBSERVERS)
    modules: dict[str, dict[str, Any]] = {
        "": {**functions, "__version__": "1.5.0"},
        "interface": functions,
        "accuracy": _of(accuracy, *_ACCURACY),
        "file_utils": _of(results, "store_output_file", "store_metadata_file", "get_t4_results", "get_t4_metadata"),
        "util": {
            **_of(results, "get_config_string", "get_best_config", "get_pareto_results"),
            **results.ERRORS,
            "NpEncoder": results.Encoder,
        },
        "integration": _of(results, "store_results", "create_device_targets", "TuneResults"),
        "kernelbuilder": {"PythonKernel": PythonKernel},
        "observers": classes,
        "observers.observer": classes,
        "observers.register": _of(observers, "RegisterObserver"),
        **{f"observers.{module}": {name: _unavailable(name)} for module, name in _SENSORS.items()},
        "strategies": {},
        **{f"strategies.{name}": {} for name in interface.STRATEGIES},
    }
    for name, contents in modules.items():
        full = f"kernel_tuner.{name}" if name else "kernel_tuner"
        module = sys.modules[full] = _Module(full)
        module.__dict__.update(contents, __path__=[])
        parent, _, last = full.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)


def install_arrays() -> bool:
    """Make ``import cupy`` NumPy where CuPy finds no device; return whether it is."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception:  # the package is missing, or the driver's error is of CuPy's own types
        sys.modules["cupy"] = np
        return True
    return False
