"""Using what a run found: a kernel, or an application, in its best configuration, called with arrays."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from mptune.backends import BACKENDS, get_backend
from mptune.backends.base import Backend, options_of
from mptune.emit import select
from mptune.errors import BackendUnavailableError, EmptySpaceError, KernelError, MptuneError
from mptune.kernel import Application, Kernel, Role, Sizes, Tunable
from mptune.kernel.limits import space_on, widest
from mptune.measure.arrays import Arrays, arrays_of
from mptune.measure.buffers import Memory
from mptune.measure.program import Program, first_that_runs
from mptune.results.unseen import CONFIDENCE
from mptune.run import Run
from mptune.source.loading import remarks, sizes_of, tunable_of_run
from mptune.space.configuration import Configuration
from mptune.wisdom import BySize, Choice, Wisdom, gather, read_sources, sizes_of_arrays

__all__ = ["TunedApplication", "TunedKernel"]


class _Tuned:
    """A kernel or an application in the configuration that is known to be the best, as a function of arrays.

    Args:
        tunable: the definition.
        source: the run, or wisdom by size, that says what is best.
        backend: where it runs.
        matches: whether the run is of the backend's device.
        sizes: of the arrays, where they do not tell.
        chosen: the configuration to use whatever the sizes; None for the best.
    """

    def __init__(
        self,
        tunable: Tunable,
        source: Run | BySize,
        backend: Backend,
        matches: bool,
        sizes: Mapping[str, int],
        chosen: Configuration | None = None,
    ) -> None:
        self._tunable = tunable
        self._source = source
        self._backend = backend
        self._matches = matches
        self._chosen = chosen
        self._lock = threading.Lock()
        self._memory = Memory(backend)
        self._programs: dict[Configuration, Program] = {}
        self._at: dict[tuple[tuple[str, int], ...], tuple[Configuration, str]] = {}
        if isinstance(source, BySize):
            self._options, notes = source.options, source.remarks
        else:
            self._options, notes = options_of(source.info, backend.name), remarks(source.info, tunable)
        self._own_sizes = tunable.resolve_sizes("default", sizes)
        self._choose_at(self._own_sizes)
        for remark in notes if isinstance(source, BySize) or not self.reason else ():
            _warn(f"{tunable.name}: {remark}")

    def __repr__(self) -> str:
        what = "chosen" if self._chosen is not None else "baseline" if self.reason else "best"
        return f"{type(self).__name__}({self._tunable.name} on {self._backend.name}, {what}: {self.configuration})"

    def close(self) -> None:
        """Give device memory and code back; a later call takes them anew."""
        with self._lock:
            self._memory.free()
            while self._programs:
                self._programs.popitem()[1].unload()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def choose(self, sizes: Mapping[str, int]) -> Choice:
        """Return what calls at some sizes use, and why; those that are not given are those of the last call.

        Raises:
            UnknownNameError: there is no size of a name given.
            KernelError: no size is given, or not even a baseline is valid there.
            MptuneError: there is one configuration for all sizes.
        """
        called = self._tunable.called
        if not isinstance(self._source, BySize) or self._chosen is not None:
            raise MptuneError(
                f"{called} has one configuration: give wisdom, and no configuration=, or runs at several sizes"
            )
        if not sizes:
            raise KernelError(f"{called}: choose(sizes) takes sizes by name, such as {dict(self.sizes)}")
        return self._source.choose(self._tunable.resolve_sizes("default", {**self.sizes, **sizes}))

    def _call(self, sizes: Sizes, inputs: Mapping[str, Any], converted: bool) -> dict[str, Any]:
        arrays = arrays_of(self._tunable, sizes, self._backend, inputs)
        with self._lock:
            self._choose_at(sizes)
            needs_baseline, outputs = bool(self.reason), dict[str, Any]()
            if not needs_baseline:
                outputs = self._run(self.configuration, arrays)
                masked = () if isinstance(self._source, BySize) else self._source.info.masked
                trouble = _doubts(arrays, outputs, masked)
                if trouble and self._chosen is None:
                    needs_baseline = True
                    _warn(f"{self._tunable.name} uses the baseline for this call: {trouble}")
            if needs_baseline:
                _, outputs = first_that_runs(self._baselines(sizes), lambda each: self._run(each, arrays))
            found = {name: arrays.returned(array, converted) for name, array in outputs.items()}
            arrays.settle()
        return found

    def _choose_at(self, sizes: Sizes) -> None:
        """Set the configuration of calls at these sizes; warn of the baseline the first time."""
        key = tuple(sizes.items())
        if key not in self._at:
            self._at[key] = (self._chosen, "") if self._chosen is not None else self._choice(sizes)
            if reason := self._at[key][1]:
                _warn(f"{self._tunable.name} uses the baseline: {reason}")
        self.sizes, (self.configuration, self.reason) = sizes, self._at[key]

    def _choice(self, sizes: Sizes) -> tuple[Configuration, str]:
        """Return the best configuration where the source speaks for this device and these sizes, else the baseline."""
        if isinstance(self._source, BySize):
            choice = self._source.choose(sizes)
            return self._tunable.own(choice.configuration), choice.reason
        run = self._source
        recorded, best = sizes_of(run.info, self._tunable), run.best
        if not self._matches:
            device = self._backend.describe()
            reason = f"the run is of {run.info.device}, this is {device.name} ({device.architecture})"
        elif dict(recorded) != dict(sizes):
            reason = f"the run was made at {recorded}, not at {sizes}, where errors may differ"
        elif best is None:
            reason = "the run has no feasible trial"
        else:
            return self._tunable.own(best.configuration), ""
        return next(self._baselines(sizes)), reason

    def _baselines(self, sizes: Sizes) -> Iterator[Configuration]:
        """Yield configurations with a baseline's values: the source's own, where it is valid here, and further ones.

        Raises:
            KernelError: no such configuration is valid at these sizes on this device.
        """
        tunable, limits = self._tunable, self._backend.device.facts()
        if (known := self._at.get(tuple(sizes.items()))) is not None and known[1]:
            yield known[0]
        try:
            if isinstance(self._source, BySize):
                yield self._source.baseline(sizes).configuration
            elif (baseline := self._source.baseline) is not None:
                space = space_on(tunable, sizes, limits).restrict(tunable.baseline_values())
                if baseline.configuration in space:
                    yield baseline.configuration
            yield from widest(tunable, sizes, limits)
        except EmptySpaceError as error:
            raise KernelError(f"{tunable.called} has no baseline to fall back on at {sizes}: {error}") from error

    def _run(self, configuration: Configuration, arrays: Arrays) -> dict[str, Any]:
        """Return the outputs by name as they are stored."""
        tunable, program = self._tunable, self._programs.get(configuration)
        if program is None or program.sizes != arrays.sizes:
            if program is not None:
                self._programs.pop(configuration).unload()
            program = Program(tunable, configuration, arrays.sizes, self._backend, self._options)
            self._programs[configuration] = program
        arrays.settle()
        buffers = self._memory.bind(program, arrays)
        # As where it was measured: what is read before anything wrote it is NaN.
        buffers.poison()
        arrays.settle()
        program.run(buffers)
        return {
            output.name: arrays.fetch(
                buffers.places[output.name], arrays.shape_of(output), program.dtype_of(output.name)
            )
            for output in tunable.outputs
        }


class TunedKernel(_Tuned):
    """The best configuration that is known for this device, and these sizes, as a function of arrays.

    Where no run is of this device, at these sizes, with a feasible trial, it is the baseline: the widest types and the
    accurate policy, slower and right. A warning says why. The same goes for a call whose inputs overflow in the types
    of the best configuration, or whose outputs are not finite in it. (NaN is allowed in outputs
    whose reference has NaN.) It says what is newer than the run.

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
        self._given = dict(sizes or {})
        sources = read_sources(runs)
        loaded = [source for _, source in sources if isinstance(source, Run)]
        of_one_size = len(loaded) == len(sources) and len({(*sorted(run.info.sizes.items()),) for run in loaded}) == 1
        for run in loaded:
            kernel = tunable_of_run(run.info, kernel, kind=Kernel, on_warning=lambda _: None)
        if of_one_size and max_error is None:
            chosen_backend, run, matches = _matched(loaded, backend)
            assert isinstance(kernel, Kernel)
            self.kernel = kernel
            super().__init__(kernel, run, chosen_backend, matches, {**sizes_of(run.info, kernel), **self._given})
            return
        by_size = BySize(gather(sources), kernel, backend, max_error, confidence, metric)
        if not isinstance(by_size.kernel, Kernel):
            raise KernelError(
                f"the wisdom is of the {by_size.kernel.called}: mptune.TunedApplication runs it, TunedKernel is for "
                "single kernels"
            )
        self.kernel = by_size.kernel
        super().__init__(by_size.kernel, by_size, by_size.backend, True, {**by_size.sizes, **self._given})

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
        found = self._call(self._sizes_of(inputs), inputs, converted)
        return next(iter(found.values())) if len(found) == 1 else found

    def _sizes_of(self, inputs: dict[str, Any]) -> Sizes:
        """Return the sizes of a call; those that are no argument are taken from the inputs."""
        if not isinstance(self._source, BySize):
            return self.sizes
        arguments = {argument.name for argument in self.kernel.arguments}
        told = {name: inputs.pop(name) for name in self.kernel.sizes["default"] if name in inputs.keys() - arguments}
        found = sizes_of_arrays(self.kernel, inputs, {**self._given, **told}, self._source.common_sizes)
        return self.kernel.resolve_sizes("default", found)


class TunedApplication(_Tuned):
    """The best configuration a run of an application found for this device, as a function of arrays.

    Where the run is of another device, or has no feasible trial, or a call is of other sizes than the run, it is the
    baseline: the widest types and the accurate policy, slower and right. A warning says why. The same goes for a call
    whose inputs overflow in the types of the best configuration, or whose outputs are not finite in it. (NaN is allowed
    in outputs whose reference has NaN.) It says what is newer than the run. A configuration that is asked for is used
    whatever the sizes. Of wisdom, each call has the configuration for its sizes, as :class:`TunedKernel` has.

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
        (found,) = (found for _, found in read_sources([run]))
        source: Run | BySize
        if isinstance(found, Wisdom):
            source = BySize(found, application, backend)
            if not isinstance(source.kernel, Application):
                raise KernelError(f"the wisdom is of the {source.kernel.called}: mptune.TunedKernel calls it")
            self.application, chosen_backend, matches = source.kernel, source.backend, True
            sizes: Mapping[str, int] = source.sizes
        else:
            source = found
            self.application = tunable_of_run(source.info, application, kind=Application, on_warning=lambda _: None)
            chosen_backend, _, matches = _matched([source], backend)
            sizes = sizes_of(source.info, self.application)
        chosen = None if configuration is None else self._named(source, configuration)
        super().__init__(self.application, source, chosen_backend, matches, sizes, chosen)

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
        return self._call(self._sizes_of(size, inputs), inputs, converted)

    def _named(self, source: Run | BySize, configuration: int | str | Mapping[str, Any]) -> Configuration:
        if isinstance(configuration, Mapping):
            return self.application.configuration(configuration)
        if isinstance(source, BySize):
            raise MptuneError(
                f"configuration {str(configuration)!r}: wisdom has no trials to name; give values by parameter"
            )
        trial = select(source, configuration=str(configuration), kernel=self.application)
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


def _doubts(arrays: Arrays, outputs: Mapping[str, Any], masked: Collection[str]) -> str:
    """Say why outputs are not to be relied on: inputs overflow in their types, or outputs are infinite or NaN."""
    lost = [f"input {name!r} overflows in {precision}" for name, precision in arrays.overflows()]
    infinite = [
        f"output {name!r} is not finite"
        for name, array in outputs.items()
        if not arrays.all_finite(array, or_nan=name in masked)
    ]
    return "; ".join((*lost, *infinite))


def _warn(text: str) -> None:
    """Warn at the line of the user's that led here."""
    level, frame = 1, sys._getframe()
    while frame.f_globals.get("__name__") == __name__ and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


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
