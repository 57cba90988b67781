"""Using what a run found: a kernel, or an application, in its best configuration, called with arrays."""

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
from mptune.results.unseen import CONFIDENCE
from mptune.run import Run
from mptune.source.loading import remarks, sizes_of, tunable_of_run
from mptune.space.arguments import Between, checked
from mptune.space.configuration import Configuration
from mptune.tuning.session import warn_caller
from mptune.wisdom import BySize, Choice, Wisdom, gather, on_device, read_sources, sizes_of_arrays

Source = Run | Wisdom | str | Path


class _OneRun:
    """A run as the source of configurations: the best at its own sizes, on its own device, else a baseline."""

    def __init__(self, runs: Sequence[Run], kernel: Tunable, backend: str | Backend) -> None:
        self.kernel = kernel
        self.backend, own = on_device([run.info for run in runs], backend)
        self.run = next((run for run in runs if run.info is own), runs[0])
        self.options = options_of(self.run.info, self.backend.name)
        self.remarks = remarks(self.run.info, kernel)
        self.sizes = self.common_sizes = sizes_of(self.run.info, kernel)
        self.masked = self.run.info.masked
        device, info = self.backend.describe(), self.run.info
        here = f"{device.name} ({device.architecture})"
        self._elsewhere = "" if own is info else f"the run is of {info.device}, this is {here}"

    def choose(self, sizes: Sizes) -> Choice:
        """Return what to use at some sizes."""
        best, reason = self.run.best, self._elsewhere
        if not reason and dict(self.sizes) != dict(sizes):
            reason = f"the run was made at {self.sizes}, not at {sizes}, where errors may differ"
        if best is not None and not reason:
            return Choice(best.configuration, "the best of the run", speedup=self.run.speedup(best))
        reason = reason or "the run has no feasible trial"
        return dataclasses.replace(self.baseline(sizes), why=f"the baseline, since {reason}", reason=reason)

    def baseline(self, sizes: Sizes) -> Choice:
        """Return the baseline of the run where it is valid at some sizes here, else another one."""
        limits = self.backend.device.facts()
        try:
            space = space_on(self.kernel, sizes, limits).restrict(self.kernel.baseline_values())
        except EmptySpaceError as error:
            raise KernelError(f"{self.kernel.called} has no baseline to fall back on at {sizes}: {error}") from error
        baseline = self.run.baseline
        if baseline is not None and baseline.configuration in space:
            return Choice(baseline.configuration, "the baseline of the run")
        return Choice(widest(self.kernel, sizes, limits)[0], "the widest types, not tuned")


class TunedKernel:
    """The best configuration that is known for this device and the sizes of a call, as a function of arrays.

    The baseline takes its place, with a warning that says why, on another device than that of the run, at other sizes,
    where no trial is feasible, and in a call whose inputs overflow in its types or whose outputs are not finite in
    them. The baseline has the widest types and the accurate policy: it is slower and right.

    Wisdom, runs at several sizes, or a run with an error limit given here, decide for the sizes of each call: the
    fastest configuration whose error keeps the limit there with the confidence wanted, else the baseline
    (:mod:`mptune.wisdom.choosing`).

    Arrays come as NumPy's or, with the backend cuda, as CuPy's; what comes back is of the same kind. Calls from several
    threads take turns.

    Args:
        runs: a run or wisdom, its file, or a list of these; of runs at one size that of this device is taken.
        kernel: the definition, unless it is a bundled one; or which of the wisdom's.
        configuration: used at all sizes instead of the best: the number of a trial, what ``mptune emit
            --configuration`` takes, or values by parameter, the first of each elsewhere.
        backend: a backend's name, or "auto": that of the run which is of a device here.
        sizes: sizes that are fixed; arrays tell the others.
        max_error: the error limit: a number, or numbers by output or metric. By default the runs' own, the smallest.
        confidence: with which errors keep the limit at sizes that were not tuned.
        metric: what errors are measured by, where the wisdom has several.

    Attributes:
        kernel: the definition.
        sizes: those of the last call, before it those of the run or the largest of the wisdom.
        configuration: what calls at these sizes use.
        reason: why that is the baseline; empty if it is the best, or was asked for.

    Raises:
        RunFileError, WisdomError: a file cannot be read, or wisdom does not say what is wanted.
        KernelError: the runs are of different kernels or of the other kind, or the definition is not found or has
            changed.
        MptuneError: no trial, or several, are meant by the configuration.
        UnknownNameError: no parameter, or no value of one, has a name given.
        BackendUnavailableError: nothing can run here.
        CompileError: not even the baseline compiles.
    """

    _kind: ClassVar[type[Tunable]] = Kernel

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
            return self.kernel.configuration(configuration)
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
        """Give device memory and code back; a later call takes them anew."""
        with self._lock:
            self._memory.free()
            while self._programs:
                self._programs.popitem()[1].unload()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def choose(self, sizes: Mapping[str, int]) -> Choice:
        """Return what calls at some sizes use, and why; those that are not given are those of the last call.

        Raises:
            UnknownNameError: there is no size of a name given.
            KernelError: no size is given, or not even a baseline is valid there.
        """
        if not sizes:
            raise KernelError(f"{self.kernel.called}: choose(sizes) takes sizes by name, such as {dict(self.sizes)}")
        return self._choice(self.kernel.resolve_sizes("default", {**self.sizes, **sizes}))

    def __call__(self, *, converted: bool = True, **inputs: Any) -> Any:
        """Run the kernel and return its output; several outputs, and those of an application, are a dict by name.

        Args:
            converted: whether outputs come in fp64 (integers in their type) rather than as they are stored.
            inputs: by the names of arguments, of the declared shapes, in any real type, and by the names of sizes those
                that no array tells. Inputs are rounded to the types of the configuration, and not changed.

        Raises:
            UnknownNameError: no input or size has a name given.
            KernelError: an input is missing or not as declared, or the steps fail.
            CompileError: a kernel does not compile.
            LaunchError: the device refused.
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
                trouble = _doubts(arrays, outputs, self._source.masked)
                if trouble and self._chosen is None:
                    needs_baseline = True
                    warn_caller(f"{self.kernel.name} uses the baseline for this call: {trouble}")
            if needs_baseline:
                _, outputs = first_that_runs(self._baselines(), lambda each: self._run(each, arrays))
            found = {name: arrays.returned(array, converted) for name, array in outputs.items()}
            arrays.settle()
        is_single = isinstance(kernel, Kernel) and len(found) == 1
        return next(iter(found.values())) if is_single else found

    def _choose_at(self, sizes: Sizes) -> None:
        """Set the configuration of calls at these sizes; warn of the baseline the first time."""
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
        """Yield configurations with a baseline's values at the present sizes: the chosen one, and further ones."""
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


class TunedApplication(TunedKernel):
    """The same of an application: a call takes the arrays of its buffers and returns all outputs by name."""

    _kind = Application


def _doubts(arrays: Arrays, outputs: Mapping[str, Any], masked: Collection[str]) -> str:
    """Say why outputs are not to be relied on: inputs overflow in their types, or outputs are infinite or NaN."""
    lost = [f"input {name!r} overflows in {precision}" for name, precision in arrays.overflows()]
    infinite = [
        f"output {name!r} is not finite"
        for name, array in outputs.items()
        if not arrays.all_finite(array, or_nan=name in masked)
    ]
    return "; ".join((*lost, *infinite))
