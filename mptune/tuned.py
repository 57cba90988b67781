"""Using what a run found: a kernel, or an application, in its best configuration, called with arrays."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from mptune.backends import BACKENDS, get_backend
from mptune.backends.base import Backend, options_of
from mptune.emit import select, sizes_of
from mptune.errors import BackendUnavailableError, EmptySpaceError, KernelError, MptuneError
from mptune.kernel import Application, Kernel, Role, Sizes, Tunable
from mptune.kernel.limits import space_on, widest
from mptune.measure.launching import ApplicationLauncher, Arrays, Launcher, in_memory_of, inputs_from, run_first
from mptune.results.unseen import CONFIDENCE
from mptune.run import Run
from mptune.source.loading import remarks, tunable_of_run
from mptune.space.configuration import Configuration
from mptune.wisdom import BySize, Choice, Wisdom, gather, read_sources, sizes_of_arrays

__all__ = ["TunedApplication", "TunedKernel"]


class TunedKernel:
    """The best configuration that is known for this device, and these sizes, as a function of arrays.

    Where no run is of this device, at these sizes, with a feasible trial, it is the baseline: the widest types and the
    accurate policy, slower and right. A warning says why. The same goes for a call whose inputs overflow in the types
    of the best configuration, or whose outputs are not finite in it. It says what is newer than the run.

    Of wisdom, of runs at several sizes, or with an error limit of its own, each call has the configuration for the
    sizes of its arrays, tuned or not: the fastest whose error keeps the limit there with the confidence that is wanted,
    or else the baseline (:mod:`mptune.wisdom.choosing`). What was chosen once for some sizes is so again.

    Arrays come as NumPy's or, with the backend cuda, as CuPy's; what comes back is of the same kind. Calls from several
    threads take turns.

    Args:
        runs: run files, or runs, of one kernel, that of this device is taken; or wisdom, or its files.
        kernel: the definition, unless it is a bundled kernel; or which kernel of the wisdom.
        backend: a backend's name, or "auto": that of the run which is of a device here.
        sizes: the sizes of the arrays, where they are not those of the run; those that arrays do not tell.
        max_error: the error limit: a number, or such by output or metric. By default the runs' own, the smallest.
        confidence: with which errors keep it at sizes that were not tuned.
        metric: what errors are measured by, where the wisdom has several.

    Attributes:
        kernel: the definition.
        sizes: the sizes of the arrays: of the last call, where they may differ.
        configuration: what calls use, at these sizes.
        reason: why that is the baseline; empty if it is the best.

    Raises:
        RunFileError: a run file cannot be read.
        WisdomError: so is wisdom, or it does not say what is wanted.
        KernelError: the runs are of different kernels or of an application, or the definition is not found or has
            changed.
        BackendUnavailableError: nothing can run here.
        CompileError: not even the baseline compiles.
    """

    def __init__(
        self,
        *runs: Run | Wisdom | str | Path,
        kernel: Kernel | str | Path | None = None,
        backend: str | Backend = "auto",
        sizes: Mapping[str, int] | None = None,
        max_error: float | Mapping[str, float] | None = None,
        confidence: float = CONFIDENCE,
        metric: str | None = None,
    ) -> None:
        if not runs:
            raise MptuneError("a tuned kernel needs a run")
        self._lock = threading.Lock()
        self._launchers: dict[Configuration, Launcher] = {}
        self._given = dict(sizes or {})
        self._at: dict[tuple[tuple[str, int], ...], Choice] = {}
        sources = read_sources(runs)
        loaded = [source for _, source in sources if isinstance(source, Run)]
        of_one_size = len(loaded) == len(sources) and len({(*sorted(run.info.sizes.items()),) for run in loaded}) == 1
        for run in loaded:
            kernel = tunable_of_run(run.info, kernel, kind=Kernel, on_warning=lambda _: None)
            assert isinstance(kernel, Kernel)
            self.kernel = kernel
        self._by_size = None
        if not of_one_size or max_error is not None:
            self._by_size = BySize(gather(sources), kernel, backend, max_error, confidence, metric)
            if not isinstance(self._by_size.kernel, Kernel):
                raise KernelError(
                    f"the wisdom is of the {self._by_size.kernel.called}: mptune.TunedApplication runs it, TunedKernel "
                    "is for single kernels"
                )
            self.kernel, self._backend, notes = self._by_size.kernel, self._by_size.backend, self._by_size.remarks
            self._options = self._by_size.options
            self._choose_at(self.kernel.resolve_sizes("default", {**self._by_size.sizes, **self._given}))
        else:
            self._backend, self._run, matches = _matched(loaded, backend)
            self._options = options_of(self._run.info, self._backend.name)
            self.sizes = self.kernel.resolve_sizes("default", {**sizes_of(self._run, self.kernel), **self._given})
            self.configuration, self.reason = _choose(self.kernel, self.sizes, self._backend, self._run, matches)
            notes = () if self.reason else remarks(self._run.info, self.kernel)
            if self.reason:
                warnings.warn(f"{self.kernel.name} uses the baseline: {self.reason}", stacklevel=2)
        for remark in notes:
            warnings.warn(f"{self.kernel.name}: {remark}", stacklevel=2)

    def __repr__(self) -> str:
        what = "baseline" if self.reason else "best"
        return f"TunedKernel({self.kernel.name} on {self._backend.name}, {what}: {self.configuration})"

    def __call__(self, *, converted: bool = True, **inputs: Any) -> Any:
        """Run the kernel and return its output, or a dict of outputs by name if there are several.

        Args:
            converted: whether outputs come in fp64 (integers in their type) rather than as they are stored.
            inputs: by the names of arguments, of the declared shapes at ``sizes``, in any real type; a scalar named
                like a size may be left out. Where configurations depend on sizes, each call's sizes are those of its
                arrays; a size that is no extent of an array is given by its name. Inputs are rounded to the types of
                the configuration, and not changed.

        Raises:
            UnknownNameError: no input has a name given.
            KernelError: an input is missing or not as declared.
            LaunchError: the device refused.
        """
        sizes = self._sizes_of(inputs)
        given = inputs_from(self.kernel, sizes, inputs)
        arrays = in_memory_of(self._backend, given)
        with self._lock:
            if self._by_size is not None:
                self._choose_at(sizes)
            outputs, trouble = self._launcher(self.configuration).run(given, sizes, arrays)
            if trouble and not self.reason:
                warnings.warn(f"{self.kernel.name} uses the baseline for this call: {trouble}", stacklevel=2)
                outputs, _ = self._launcher(self._safe(sizes)).run(given, sizes, arrays)
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

    def choose(self, sizes: Mapping[str, int]) -> Choice:
        """Return what calls at some sizes use, and why; those that are not given are those of the last call.

        Raises:
            UnknownNameError: the kernel has no size of a name given.
            KernelError: no size is given, or not even a baseline is valid there.
        """
        if self._by_size is None:
            raise MptuneError(f"{self.kernel.called} has one configuration: give runs at several sizes, or wisdom")
        return _chosen_at(self._by_size, self.sizes, sizes)

    def _choose_at(self, sizes: Sizes) -> None:
        """Set what calls at these sizes use; warn of the baseline the first time."""
        assert self._by_size is not None
        key = tuple(sizes.items())
        if key not in self._at:
            self._at[key] = self._by_size.choose(sizes)
            if reason := self._at[key].reason:
                warnings.warn(f"{self.kernel.name} uses the baseline: {reason}", stacklevel=3)
        self.sizes, self.configuration, self.reason = sizes, self._at[key].configuration, self._at[key].reason

    def _sizes_of(self, inputs: dict[str, Any]) -> Sizes:
        """Return the sizes of a call; those that are no argument are taken from the inputs."""
        if self._by_size is None:
            return self.sizes
        arguments = {argument.name for argument in self.kernel.arguments}
        told = {name: inputs.pop(name) for name in self.kernel.sizes["default"] if name in inputs.keys() - arguments}
        found = sizes_of_arrays(self.kernel, inputs, {**self._given, **told}, self._by_size.common_sizes)
        return self.kernel.resolve_sizes("default", found)

    def _safe(self, sizes: Sizes) -> Configuration:
        if self._by_size is not None:
            return self._by_size.baseline(sizes).configuration
        return _baseline(self.kernel, sizes, self._backend, self._run)

    def _launcher(self, configuration: Configuration) -> Launcher:
        if configuration not in self._launchers:
            self._launchers[configuration] = Launcher(self.kernel, configuration, self._backend, self._options)
        return self._launchers[configuration]


class TunedApplication:
    """The best configuration a run of an application found for this device, as a function of arrays.

    Where the run is of another device, or has no feasible trial, or a call is of other sizes than the run, it is the
    baseline: the widest types and the accurate policy, slower and right. A warning says why. The same goes for a call
    whose inputs overflow in the types of the best configuration, or whose outputs are not finite in it. It says what is
    newer than the run. A configuration that is asked for is used whatever the sizes. Of wisdom, each call has the
    configuration for its sizes, as :class:`TunedKernel` has.

    Arrays come as NumPy's or, with the backend cuda, as CuPy's; what comes back is of the same kind. Calls from several
    threads take turns.

    Args:
        run: a run file, or a run; or wisdom, or its file.
        application: the definition, unless it is a bundled application.
        configuration: another one than the best: the number of a trial, what ``mptune emit --configuration`` takes, or
            values by parameter, the first of each elsewhere.
        backend: a backend's name, or "auto": that of the run where it is of a device here.

    Attributes:
        application: the definition.
        sizes: those of the last call, before it those of the run or the largest of the wisdom.
        configuration: what calls at these sizes use.
        reason: why that is the baseline; empty if it is the best, or was asked for.

    Raises:
        RunFileError: the run file cannot be read.
        KernelError: the run is of a kernel, or the definition is not found or has changed.
        MptuneError: no trial, or several, are meant by the configuration.
        UnknownNameError: no parameter, or no value of one, has a name given.
        BackendUnavailableError: nothing can run here.
    """

    def __init__(
        self,
        run: Run | Wisdom | str | Path,
        application: Application | str | Path | None = None,
        configuration: int | str | Mapping[str, Any] | None = None,
        backend: str | Backend = "auto",
    ) -> None:
        (source,) = (found for _, found in read_sources([run]))
        self._by_size, self._run = None, source
        if isinstance(source, Wisdom):
            self._by_size = BySize(source, application, backend)
            if not isinstance(self._by_size.kernel, Application):
                raise KernelError(f"the wisdom is of the {self._by_size.kernel.called}: mptune.TunedKernel calls it")
            self.application, self._backend = self._by_size.kernel, self._by_size.backend
            self._own_sizes = self.application.resolve_sizes("default", self._by_size.sizes)
            self._options, notes = self._by_size.options, self._by_size.remarks
        else:
            self.application = tunable_of_run(source.info, application, kind=Application, on_warning=lambda _: None)
            self._backend, _, self._matches = _matched([source], backend)
            self._options = options_of(source.info, self._backend.name)
            self._own_sizes = sizes_of(source, self.application)
            notes = remarks(source.info, self.application)
        self._chosen = None if configuration is None else self._named(configuration)
        self._lock = threading.Lock()
        self._at: dict[tuple[tuple[str, int], ...], tuple[Configuration, str]] = {}
        self._launchers: dict[Configuration, ApplicationLauncher] = {}
        self._choose_at(self._own_sizes)
        for remark in () if self.reason else notes:
            warnings.warn(f"{self.application.name}: {remark}", stacklevel=2)

    def __repr__(self) -> str:
        what = "chosen" if self._chosen is not None else "baseline" if self.reason else "best"
        return f"TunedApplication({self.application.name} on {self._backend.name}, {what}: {self.configuration})"

    def __call__(
        self, *, size: str | Mapping[str, int] | None = None, converted: bool = True, **inputs: Any
    ) -> dict[str, Any]:
        """Run the application and return its outputs by name.

        Args:
            size: a preset's name, or sizes that replace those of the run. Others are those of the run, and where an
                axis of an input is a size, that of the array.
            converted: whether outputs come in fp64 (integers in their type) rather than as they are stored.
            inputs: by the names of buffers and scalars, of the declared shapes, in any real type. They are rounded to
                the types of the configuration, and not changed.

        Raises:
            UnknownNameError: no input, preset or size has a name given.
            KernelError: an input is missing or not as declared, two arrays or an array and ``size`` disagree about a
                size, or the steps fail.
            CompileError: a kernel does not compile.
            LaunchError: the device refused.
        """
        sizes = self._sizes_of(size, inputs)
        given = inputs_from(self.application, sizes, inputs)
        arrays = in_memory_of(self._backend, given)
        with self._lock:
            self._choose_at(sizes)
            if self.reason:
                outputs = self._run_baseline(sizes, given, arrays)
            else:
                outputs, trouble = self._launcher(self.configuration).run(given, sizes, arrays)
                if trouble and self._chosen is None:
                    warnings.warn(f"{self.application.name} uses the baseline for this call: {trouble}", stacklevel=2)
                    outputs = self._run_baseline(sizes, given, arrays)
            found = {name: arrays.returned(array, converted) for name, array in outputs.items()}
            arrays.settle()
        return found

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

    def choose(self, sizes: Mapping[str, int]) -> Choice:
        """Return what calls at some sizes use, and why; those that are not given are those of the last call.

        Raises:
            UnknownNameError: the application has no size of a name given.
            KernelError: no size is given, or not even a baseline is valid there.
            MptuneError: a configuration was asked for, or it is of a run.
        """
        if self._by_size is None or self._chosen is not None:
            raise MptuneError(f"{self.application.called} has one configuration: give wisdom, and no configuration=")
        choice = _chosen_at(self._by_size, self.sizes, sizes)
        return dataclasses.replace(choice, configuration=self.application.own(choice.configuration))

    def _named(self, configuration: int | str | Mapping[str, Any]) -> Configuration:
        if isinstance(configuration, int):
            configuration = str(configuration)
        if not isinstance(configuration, str):
            return self.application.configuration(configuration)
        if isinstance(self._run, Wisdom):
            raise MptuneError(
                f"configuration {configuration!r}: wisdom has no trials to name; give values by parameter"
            )
        trial = select(self._run, configuration=configuration, kernel=self.application)
        assert trial is not None
        return self.application.own(trial.configuration)

    def _sizes_of(self, size: str | Mapping[str, int] | None, inputs: Mapping[str, Any]) -> Sizes:
        application = self.application
        if isinstance(size, str):
            return application.resolve_sizes(size)
        if not isinstance(size, Mapping | None):
            raise KernelError(
                f"{application.called}: size= takes a preset's name or sizes by name, such as {dict(self._own_sizes)}, "
                f"not {size!r}"
            )
        told = dict(size or {})
        said: dict[str, dict[int, dict[str, None]]] = {}
        for argument in application.arguments:
            if argument.name in inputs and argument.role is not Role.SCALAR:
                shape = getattr(inputs[argument.name], "shape", None) or np.shape(inputs[argument.name])
                axes = list(zip(argument.shape, shape, strict=False)) if len(shape) == len(argument.shape) else []
                # One that is transposed says nothing, and is refused with what is expected.
                if all(int(axis) == extent for axis, extent in axes if axis.isdecimal()):
                    for axis, extent in axes:
                        if axis in self._own_sizes:
                            said.setdefault(axis, {}).setdefault(int(extent), {})[argument.name] = None
        for axis, arrays in said.items():
            extents = [f"{extent} in {', '.join(map(repr, names))}" for extent, names in arrays.items()]
            if axis in told and set(arrays) != {told[axis]}:
                extents.insert(0, f"{told[axis]} in size=")
            if len(extents) > 1:
                raise KernelError(f"{application.called}: size {axis} is {', but '.join(extents)}")
        found = {axis: extent for axis, arrays in said.items() for extent in arrays}
        return application.resolve_sizes("default", {**self._own_sizes, **found, **told})

    def _choose_at(self, sizes: Sizes) -> None:
        """Set what calls at these sizes use; warn of the baseline the first time."""
        self.sizes = sizes
        self.configuration, self.reason = (self._chosen, "") if self._chosen is not None else self._choice(sizes)

    def _choice(self, sizes: Sizes) -> tuple[Configuration, str]:
        key = tuple(sizes.items())
        if key not in self._at:
            if isinstance(self._run, Run):
                self._at[key] = _choose(self.application, sizes, self._backend, self._run, self._matches)
            else:
                assert self._by_size is not None
                choice = self._by_size.choose(sizes)
                self._at[key] = self.application.own(choice.configuration), choice.reason
            if reason := self._at[key][1]:
                warnings.warn(f"{self.application.name} uses the baseline: {reason}", stacklevel=4)
        return self._at[key]

    def _run_baseline(self, sizes: Sizes, given: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
        if isinstance(self._run, Run):
            configurations = _baselines(self.application, sizes, self._backend, self._run)
        else:
            assert self._by_size is not None
            known = [self._by_size.baseline(sizes).configuration]
            configurations = known + widest(self.application, sizes, self._backend.device.facts())
        return run_first(map(self._launcher, configurations), given, sizes, arrays)[1]

    def _launcher(self, configuration: Configuration) -> ApplicationLauncher:
        if configuration not in self._launchers:
            self._launchers[configuration] = ApplicationLauncher(
                self.application, configuration, self._backend, self._options
            )
        return self._launchers[configuration]


def _chosen_at(by_size: BySize, last: Sizes, sizes: Mapping[str, int]) -> Choice:
    """Return what is used at some sizes; those that are not given are those of the last call."""
    if not sizes:
        raise KernelError(f"{by_size.kernel.called}: choose(sizes) takes sizes by name, such as {dict(last)}")
    return by_size.choose(by_size.kernel.resolve_sizes("default", {**last, **sizes}))


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


def _choose(kernel: Tunable, sizes: Sizes, backend: Backend, run: Run, matches: bool) -> tuple[Configuration, str]:
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


def _baseline(kernel: Tunable, sizes: Sizes, backend: Backend, run: Run) -> Configuration:
    """Return the run's baseline where it is valid here, else the first configuration with a baseline's values."""
    return _baselines(kernel, sizes, backend, run)[0]


def _baselines(kernel: Tunable, sizes: Sizes, backend: Backend, run: Run) -> list[Configuration]:
    """Return configurations with a baseline's values: the run's own, where it is valid here, and further ones.

    Raises:
        KernelError: no such configuration is valid at these sizes on this device.
    """
    try:
        space = space_on(kernel, sizes, backend.device.facts()).restrict(kernel.baseline_values())
        found = widest(kernel, sizes, backend.device.facts())
    except EmptySpaceError as error:
        raise KernelError(f"{kernel.called} has no baseline to fall back on at {sizes}: {error}") from error
    known = run.baseline
    return [known.configuration, *found] if known is not None and known.configuration in space else found
