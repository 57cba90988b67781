"""A kernel or an application in its best configuration, called with arrays."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from mptune.backends.base import Backend, options_of
from mptune.emit import select
from mptune.errors import EmptySpaceError, KernelError, MptuneError
from mptune.kernel import Application, Kernel, Sizes, Tunable
from mptune.kernel.limits import space_on, widest
from mptune.measure.arrays import Arrays, arrays_of
from mptune.measure.buffers import Memory
from mptune.measure.program import Program, first_that_runs
from mptune.results.trial import Trial
from mptune.results.unseen import CONFIDENCE
from mptune.run import Run
from mptune.source.loading import remarks, sizes_of, tunable_of_run
from mptune.space.arguments import Between, checked
from mptune.space.configuration import Configuration
from mptune.tuning.session import warn_caller
from mptune.wisdom import BySize, Choice, Wisdom, gather, on_device, read_sources, sizes_of_arrays

Source = Run | Wisdom | str | Path


class _OneRun:
    """Runs at one size as the source of configurations: the best on its own device, else a baseline."""

    def __init__(self, runs: Sequence[Run], kernel: Tunable, backend: str | Backend) -> None:
        self.kernel = kernel
        self.backend, own = on_device([run.info for run in runs], backend)
        self.run = next((run for run in runs if run.info is own), runs[0])
        info, device = self.run.info, self.backend.describe()
        self.options = options_of(info, self.backend.name)
        self.remarks = remarks(info, kernel)
        self.sizes = self.common_sizes = sizes_of(info, kernel)
        self.masked = info.masked
        here = f"{device.name} ({device.architecture})"
        self._elsewhere = "" if own is info else f"the run is of {info.device}, this is {here}"

    def choose(self, sizes: Sizes) -> Choice:
        """Return the configuration to use at some sizes."""
        best, reason = self.run.best, self._elsewhere
        if not reason and dict(self.sizes) != dict(sizes):
            reason = f"the run was made at {self.sizes}, not at {sizes}, where errors may differ"
        if best is None:
            reason = reason or "the run has no feasible trial"
        elif not reason:
            return Choice(best.configuration, "the best of the run", speedup=self.run.speedup(best))
        return dataclasses.replace(self.baseline(sizes), why=f"the baseline, since {reason}", reason=reason)

    def baseline(self, sizes: Sizes) -> Choice:
        """Return the baseline of the run, or another one if it is not valid at some sizes here."""
        limits, baseline, refused = self.backend.device.facts(), self.run.baseline, _refused([self.run])
        is_accurate = baseline is not None and baseline.configuration not in refused
        if self.run.best is None and not is_accurate:
            raise MptuneError(
                f"the run of {self.kernel.called} has no feasible trial and no accurate baseline to call: mptune show "
                "says why its trials failed; tune again with a larger budget or threshold"
            )
        try:
            space = space_on(self.kernel, sizes, limits).restrict(self.kernel.baseline_values())
        except EmptySpaceError as error:
            raise KernelError(f"{self.kernel.called} has no baseline to fall back on at {sizes}: {error}") from error
        if baseline is not None and is_accurate and baseline.configuration in space:
            return Choice(baseline.configuration, "the baseline of the run")
        for configuration in widest(self.kernel, sizes, limits):
            if configuration not in refused:
                return Choice(configuration, "the widest types, not tuned")
        raise KernelError(
            f"{self.kernel.called} has no baseline to fall back on at {sizes}: the run's trials in the widest types "
            "failed or were inaccurate"
        )


class Tuned:
    """A kernel or an application in its best configuration for this device and the sizes of a call.

    Use :class:`TunedKernel` or :class:`TunedApplication`. The baseline, in the widest types and with the accurate
    policy, is used instead on another device, at other sizes than those of a single run, without a feasible trial, and
    for a call whose inputs overflow or whose outputs are not finite. A warning gives the reason. A configuration is
    never called after a failed or inaccurate trial, unless the inaccurate one is given by ``configuration``.

    Wisdom, runs at several sizes, or a run with ``max_error`` choose by the sizes of each call: the fastest
    configuration whose error keeps the limit there, else the baseline (:mod:`mptune.wisdom.choosing`).

    Arrays are NumPy's or, with the backend cuda, CuPy's; results are of the same kind. Calls from several threads take
    turns.

    Args:
        runs: a run or wisdom, its file, or a list of these. Of runs at one size the one of this device is used.
        kernel: the definition, unless it is a bundled one; or the name of one in the wisdom.
        configuration: used at all sizes instead of the best: the number of a trial, as for ``mptune emit
            --configuration``, or values by parameter, the first value of each where missing.
        backend: name of the backend, or "auto" for that of the run of a device here.
        sizes: fixed sizes; arrays give the others.
        max_error: the error limit: a number, or numbers by output or metric. By default the smallest of the runs.
        confidence: probability that errors keep the limit at sizes that were not tuned.
        metric: the error metric; needed if the wisdom has several.

    Attributes:
        kernel: the definition.
        sizes: sizes of the last call; before the first call those of the run or the largest of the wisdom.
        configuration: configuration of calls at these sizes.
        reason: why that is the baseline; empty if it is the best, or was given.

    Raises:
        RunFileError, WisdomError: a file cannot be read, or the wisdom is of another kernel or metric.
        KernelError: the runs are of different kernels or of the other kind, or the definition is not found or has
            changed.
        MptuneError: the configuration matches no trial, or several, or its trial failed; or the run has neither a
            feasible trial nor an accurate baseline.
        UnknownNameError: there is no parameter, or no value of one, of that name.
        BackendUnavailableError: no backend can run here.
        CompileError: not even the baseline compiles.
    """

    _kind: ClassVar[type[Tunable]]

    @checked
    def __init__(
        self,
        runs: Source | Sequence[Source],
        kernel: Tunable | str | Path | None = None,
        *,
        configuration: int | str | Mapping[str, Any] | None = None,
        backend: str | Backend = "auto",
        sizes: Mapping[str, int] | None = None,
        max_error: float | Mapping[str, float] | None = None,
        confidence: Annotated[float, Between(0, 1)] = CONFIDENCE,
        metric: str | None = None,
    ) -> None:
        given: object = kernel
        if isinstance(given, Run | Wisdom) or str(given).endswith((".db", ".json")):
            raise MptuneError(f"the second argument is the kernel: give several runs as a list, not {given}")
        sources = read_sources([runs] if isinstance(runs, Source) else runs)
        if not sources:
            raise MptuneError(f"{type(self).__name__} needs a run")
        loaded = [source for _, source in sources if isinstance(source, Run)]
        for run in loaded:
            kernel = tunable_of_run(run.info, kernel, kind=self._kind, on_warning=lambda _: None)
        is_of_one_size = len({(*sorted(run.info.sizes.items()),) for run in loaded}) == 1
        self._source: _OneRun | BySize
        if is_of_one_size and len(loaded) == len(sources) and max_error is None:
            assert isinstance(kernel, Tunable)
            self._source = _OneRun(loaded, kernel, backend)
        else:
            self._source = BySize(gather(sources), kernel, backend, max_error, confidence, metric)
        self.kernel, self._backend = self._source.kernel, self._source.backend
        if not isinstance(self.kernel, self._kind):
            raise KernelError(
                f"the wisdom is of the {self.kernel.called}: mptune.Tuned{self.kernel.what.capitalize()} runs it"
            )
        self._refused = _refused([self._source.run] if isinstance(self._source, _OneRun) else loaded)
        self._given = dict(sizes or {})
        self._lock = threading.Lock()
        self._memory = Memory(self._backend)
        self._programs: dict[Configuration, Program] = {}
        self._at: dict[tuple[tuple[str, int], ...], Choice] = {}
        self._chosen = None if configuration is None else self._named(configuration)
        self._choose_at(self.kernel.resolve_sizes("default", {**self._source.sizes, **self._given}))
        for remark in self._source.remarks:
            warn_caller(f"{self.kernel.name}: {remark}")

    def _named(self, configuration: int | str | Mapping[str, Any]) -> Configuration:
        if isinstance(configuration, Mapping):
            named = self.kernel.configuration(configuration)
            trial = self._refused.get(named)
            if trial is not None and not trial.is_valid:
                raise MptuneError(f"configuration {named} did not run: {trial.status.value}, {trial.message}")
            return named
        if isinstance(self._source, BySize):
            raise MptuneError(
                f"configuration {str(configuration)!r}: wisdom has no trials to name; give values by parameter"
            )
        trial = select(self._source.run, configuration=str(configuration), kernel=self.kernel)
        assert trial is not None
        return self.kernel.own(trial.configuration)

    def __repr__(self) -> str:
        what = "chosen" if self._chosen is not None else "baseline" if self.reason else "best"
        return f"{type(self).__name__}({self.kernel.name} on {self._backend.name}, {what}: {self.configuration})"

    def close(self) -> None:
        """Free device memory and code; a later call allocates them again."""
        with self._lock:
            self._memory.free()
            while self._programs:
                self._programs.popitem()[1].unload()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def choose(self, sizes: Mapping[str, int]) -> Choice:
        """Return the configuration of calls at some sizes, and the reason.

        Args:
            sizes: sizes by name; missing ones are those of the last call.

        Raises:
            UnknownNameError: there is no size of that name.
            KernelError: no size is given, or no baseline is valid there.
        """
        if not sizes:
            raise KernelError(f"{self.kernel.called}: choose(sizes) takes sizes by name, such as {dict(self.sizes)}")
        return self._choice(self.kernel.resolve_sizes("default", {**self.sizes, **sizes}))

    def __call__(self, *, converted: bool = True, **inputs: Any) -> Any:
        """Run the kernel or application on arrays.

        Args:
            converted: whether outputs are converted to fp64 (integers keep their type) or stay as they are stored.
            inputs: arrays and scalars by the names of arguments, of the declared shapes, in any real type, and sizes
                that no array has. They are rounded to the types of the configuration, and not changed.

        Returns:
            The output of a kernel; of several outputs, and of an application, a dict by name.

        Raises:
            UnknownNameError: there is no input or size of that name.
            KernelError: an input is missing or not as declared, or the steps fail.
            CompileError: a kernel does not compile.
            LaunchError: the device refused the launch.
        """
        kernel = self.kernel
        by_name = {name for name in kernel.sizes["default"] if name not in {a.name for a in kernel.arguments}}
        told = {name: value for name, value in inputs.items() if name in by_name}
        inputs = {name: value for name, value in inputs.items() if name not in by_name}
        sizes = kernel.resolve_sizes(
            "default", sizes_of_arrays(kernel, inputs, {**self._given, **told}, self._source.common_sizes)
        )
        arrays = arrays_of(kernel, sizes, self._backend, inputs)
        with self._lock:
            self._choose_at(sizes)
            needs_baseline, outputs = bool(self.reason), dict[str, Any]()
            if not needs_baseline:
                outputs = self._run(self.configuration, arrays)
                trouble = _overflows(arrays, outputs, self._source.masked)
                if trouble and self._chosen is None:
                    needs_baseline = True
                    warn_caller(f"{self.kernel.name} uses the baseline for this call: {trouble}")
            if needs_baseline:
                accurate = (each for each in self._baselines() if each not in self._refused)
                _, outputs = first_that_runs(accurate, lambda each: self._run(each, arrays))
            found = {name: arrays.returned(array, converted) for name, array in outputs.items()}
            arrays.settle()
        is_single = isinstance(kernel, Kernel) and len(found) == 1
        return next(iter(found.values())) if is_single else found

    def _choose_at(self, sizes: Sizes) -> None:
        """Set the configuration for some sizes, with a warning if it is the baseline for the first time."""
        key = tuple(sizes.items())
        if key not in self._at:
            self._at[key] = self._choice(sizes)
            if reason := self._at[key].reason:
                warn_caller(f"{self.kernel.name} uses the baseline: {reason}")
        choice = self._at[key]
        self.sizes, self.configuration, self.reason = sizes, self.kernel.own(choice.configuration), choice.reason

    def _choice(self, sizes: Sizes) -> Choice:
        if self._chosen is not None:
            return Choice(self._chosen, "the configuration that was given")
        return self._source.choose(sizes)

    def _baselines(self) -> Iterator[Configuration]:
        """Yield the baseline to use at the current sizes, then others in case it does not run."""
        if self.reason:
            yield self.configuration
        yield self.kernel.own(self._source.baseline(self.sizes).configuration)
        yield from widest(self.kernel, self.sizes, self._backend.device.facts())

    def _run(self, configuration: Configuration, arrays: Arrays) -> dict[str, Any]:
        tunable, program = self.kernel, self._programs.get(configuration)
        if program is None or program.sizes != arrays.sizes:
            if program is not None:
                self._programs.pop(configuration).unload()
            program = Program(tunable, configuration, arrays.sizes, self._backend, self._source.options)
            self._programs[configuration] = program
        arrays.settle()
        buffers = self._memory.bind(program, arrays)
        # As in the measurements, outputs are NaN until they are written.
        buffers.poison()
        arrays.settle()
        program.run(buffers)
        return {
            output.name: arrays.fetch(
                buffers.places[output.name], arrays.shape_of(output), program.dtype_of(output.name)
            )
            for output in tunable.outputs
        }


class TunedKernel(Tuned):
    """A kernel as a function of arrays, in its best configuration (see :class:`Tuned`).

    A call takes inputs by the names of arguments and returns the output, or several outputs as a dict by name.
    """

    _kind = Kernel


class TunedApplication(Tuned):
    """An application as a function of its buffers, in its best configuration (see :class:`Tuned`).

    A call takes inputs by the names of buffers and returns all outputs as a dict by name.
    """

    _kind = Application


def _refused(runs: Sequence[Run]) -> dict[Configuration, Trial]:
    """Return the failed and the inaccurate trials by configuration."""
    return {t.configuration: t for run in runs for t in run.trials if run.info.objective.error_excess(t) > 0}


def _overflows(arrays: Arrays, outputs: Mapping[str, Any], masked: Collection[str]) -> str:
    """Return which inputs overflow in their types and which outputs are not finite; empty if there are none."""
    lost = [f"input {name!r} overflows in {precision}" for name, precision in arrays.overflows()]
    infinite = [
        f"output {name!r} is not finite"
        for name, array in outputs.items()
        if not arrays.all_finite(array, or_nan=name in masked)
    ]
    return "; ".join((*lost, *infinite))
