"""Using what a run found: a kernel in its best configuration, called with arrays."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mptune.backends import BACKENDS, get_backend
from mptune.backends.base import Backend
from mptune.emit import sizes_of
from mptune.errors import BackendUnavailableError, EmptySpaceError, KernelError, MptuneError
from mptune.kernel import Kernel, Sizes
from mptune.launching import Launcher, in_memory_of, inputs_from
from mptune.registry import kernel_of_run, remarks
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.tuner import device_constraints

__all__ = ["TunedKernel"]


class TunedKernel:
    """The best configuration a run found for this device, as a function of arrays.

    Where no run is of this device, at these sizes, with a feasible trial, it is the baseline: the widest types and the
    accurate policy, slower and right. A warning says why. The same goes for a call whose inputs overflow in the types
    of the best configuration, or whose outputs are not finite in it. It says what is newer than the run.

    Arrays come as NumPy's or, with the backend cuda, as CuPy's; what comes back is of the same kind. Calls from several
    threads take turns.

    Args:
        runs: run files, or runs, of one kernel; that of this device is taken.
        kernel: the definition, unless it is a bundled kernel.
        backend: a backend's name, or "auto": that of the run which is of a device here.
        sizes: the sizes of the arrays, where they are not those of the run.

    Attributes:
        kernel: the definition.
        sizes: the sizes of the arrays.
        configuration: what calls use.
        reason: why that is the baseline; empty if it is the best.

    Raises:
        RunFileError: a run file cannot be read.
        KernelError: the runs are of different kernels or of an application, or the definition is not found or has
            changed.
        BackendUnavailableError: nothing can run here.
        CompileError: not even the baseline compiles.
    """

    def __init__(
        self,
        *runs: Run | str | Path,
        kernel: Kernel | str | Path | None = None,
        backend: str | Backend = "auto",
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        if not runs:
            raise MptuneError("a tuned kernel needs a run")
        loaded = [run if isinstance(run, Run) else Run.load(run) for run in runs]
        for run in loaded:
            self.kernel = kernel = kernel_of_run(run.info, kernel, on_warning=lambda _: None)
        self._backend, run, matches = _matched(loaded, backend)
        recorded = sizes_of(run, self.kernel)
        self.sizes = self.kernel.resolve_sizes("default", {**recorded, **(sizes or {})})
        self.configuration, self.reason = _choose(self.kernel, self.sizes, self._backend, run, matches)
        self._run = run
        self._lock = threading.Lock()
        self._launchers: dict[Configuration, Launcher] = {}
        if self.reason:
            warnings.warn(f"{self.kernel.name} uses the baseline: {self.reason}", stacklevel=2)
        for remark in () if self.reason else remarks(run.info, self.kernel):
            warnings.warn(f"{self.kernel.name}: {remark}", stacklevel=2)

    def __repr__(self) -> str:
        what = "baseline" if self.reason else "best"
        return f"TunedKernel({self.kernel.name} on {self._backend.name}, {what}: {self.configuration})"

    def __call__(self, *, converted: bool = True, **inputs: Any) -> Any:
        """Run the kernel and return its output, or a dict of outputs by name if there are several.

        Args:
            converted: whether outputs come in fp64 (integers in their type) rather than as they are stored.
            inputs: by the names of arguments, of the declared shapes at ``sizes``, in any real type; a scalar named
                like a size may be left out. Sizes that come from the data are those of the arrays, in every call anew.
                Inputs are rounded to the types of the configuration, and not changed.

        Raises:
            UnknownNameError: no input has a name given.
            KernelError: an input is missing or not as declared.
            LaunchError: the device refused.
        """
        given, sizes = inputs_from(self.kernel, self.sizes, inputs)
        arrays = in_memory_of(self._backend, given)
        with self._lock:
            outputs, trouble = self._launcher(self.configuration).run(given, sizes, arrays)
            if trouble and not self.reason:
                safe = _baseline(self.kernel, self.sizes, self._backend, self._run)
                warnings.warn(f"{self.kernel.name} uses the baseline for this call: {trouble}", stacklevel=2)
                outputs, _ = self._launcher(safe).run(given, sizes, arrays)
            found = {name: arrays.returned(array, converted) for name, array in outputs.items()}
            arrays.settle()
        return next(iter(found.values())) if len(found) == 1 else found

    def close(self) -> None:
        """Give device memory and code back; a later call takes them anew."""
        with self._lock:
            while self._launchers:
                self._launchers.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _launcher(self, configuration: Configuration) -> Launcher:
        if configuration not in self._launchers:
            self._launchers[configuration] = Launcher(self.kernel, configuration, self._backend)
        return self._launchers[configuration]


def _matched(runs: list[Run], backend: str | Backend) -> tuple[Backend, Run, bool]:
    """Return the backend to use, the run to go by, and whether the run is of the backend's device."""
    if isinstance(backend, Backend) or backend != "auto":
        chosen = backend if isinstance(backend, Backend) else get_backend(backend)
        matching = next((run for run in runs if _is_of(run, chosen)), None)
        return chosen, matching or runs[0], matching is not None
    for run in runs:
        name = run.info.backend
        if name in BACKENDS and BACKENDS[name].availability().can_run:
            chosen = BACKENDS[name]()
            if _is_of(run, chosen):
                return chosen, run, True
    return get_backend("auto"), runs[0], False


def _is_of(run: Run, backend: Backend) -> bool:
    try:
        device = backend.describe()
    except BackendUnavailableError:
        return False
    recorded = (run.info.backend, run.info.device, run.info.architecture)
    return recorded == (device.backend, device.name, device.architecture)


def _choose(kernel: Kernel, sizes: Sizes, backend: Backend, run: Run, matches: bool) -> tuple[Configuration, str]:
    """Return the best configuration where the run speaks for this device and these sizes, else the baseline and why."""
    recorded, best = sizes_of(run, kernel), run.best
    if not matches:
        device = backend.describe()
        reason = f"the run is of {run.info.device}, this is {device.name} ({device.architecture})"
    elif dict(recorded) != dict(sizes):
        reason = f"the run was made at {recorded}, not at {sizes}, where errors may differ"
    elif best is None:
        reason = "the run has no feasible trial"
    else:
        return kernel.own(best.configuration), ""
    return _baseline(kernel, sizes, backend, run), reason


def _baseline(kernel: Kernel, sizes: Sizes, backend: Backend, run: Run) -> Configuration:
    """Return the run's baseline where it is valid here, else the first configuration with a baseline's values.

    Raises:
        KernelError: no such configuration is valid at these sizes on this device.
    """
    try:
        space = kernel.search_space(sizes, device_constraints(kernel, backend.device.constraints()))
        space = space.restrict(kernel.baseline_values())
    except EmptySpaceError as error:
        raise KernelError(f"kernel {kernel.name} has no baseline to fall back on at {sizes}: {error}") from error
    known = run.baseline
    return known.configuration if known is not None and known.configuration in space else space.configuration(0)
