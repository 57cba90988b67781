"""Using what a run found: a kernel, or an application, in its best configuration, called with arrays."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

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
from mptune.space.configuration import Configuration
from mptune.tuning.session import warn_caller
from mptune.wisdom import BySize, Choice, Wisdom, gather, on_device, read_sources, sizes_of_arrays

__all__ = ["TunedApplication", "TunedKernel"]

Source = Run | Wisdom | str | Path


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

    def __init__(
        self,
        runs: Source | Sequence[Source],
        kernel: Tunable | str | Path | None = None,
        *,
        configuration: int | str | Mapping[str, Any] | None = None,
        backend: str | Backend = "auto",
        sizes: Mapping[str, int] | None = None,
        max_error: float | Mapping[str, float] | None = None,
        confidence: float = CONFIDENCE,
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
        self._source: Run | BySize
        if is_of_one_size and len(loaded) == len(sources) and max_error is None:
            assert isinstance(kernel, Tunable)
            self.kernel = kernel
            self._backend, own_info = on_device([run.info for run in loaded], backend)
            self._source = next((run for run in loaded if run.info is own_info), loaded[0])
            self._matches, info = own_info is not None, self._source.info
            self._options, notes = options_of(info, self._backend.name), remarks(info, kernel)
            own: Mapping[str, int] = sizes_of(info, kernel)
            self._run_sizes = own
        else:
            self._source = by_size = BySize(gather(sources), kernel, backend, max_error, confidence, metric)
            self.kernel, self._backend = by_size.kernel, by_size.backend
            self._options, notes = by_size.options, by_size.remarks
            self._run_sizes, own = by_size.common_sizes, by_size.sizes
            if not isinstance(self.kernel, self._kind):
                raise KernelError(
                    f"the wisdom is of the {self.kernel.called}: mptune.Tuned{self.kernel.what.capitalize()} runs it"
                )
        self._given = dict(sizes or {})
        self._lock = threading.Lock()
        self._memory = Memory(self._backend)
        self._programs: dict[Configuration, Program] = {}
        self._at: dict[tuple[tuple[str, int], ...], tuple[Configuration, str]] = {}
        self._chosen = None if configuration is None else self._named(configuration)
        self._choose_at(self.kernel.resolve_sizes("default", {**own, **self._given}))
        for remark in notes if isinstance(self._source, BySize) or not self.reason else ():
            warn_caller(f"{self.kernel.name}: {remark}")

    def _named(self, configuration: int | str | Mapping[str, Any]) -> Configuration:
        if isinstance(configuration, Mapping):
            return self.kernel.configuration(configuration)
        if isinstance(self._source, BySize):
            raise MptuneError(
                f"configuration {str(configuration)!r}: wisdom has no trials to name; give values by parameter"
            )
        trial = select(self._source, configuration=str(configuration), kernel=self.kernel)
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
            MptuneError: there is one configuration for all sizes.
        """
        called = self.kernel.called
        if not isinstance(self._source, BySize) or self._chosen is not None:
            raise MptuneError(
                f"{called} has one configuration: give wisdom, and no configuration=, or runs at several sizes"
            )
        if not sizes:
            raise KernelError(f"{called}: choose(sizes) takes sizes by name, such as {dict(self.sizes)}")
        return self._source.choose(self.kernel.resolve_sizes("default", {**self.sizes, **sizes}))

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
            "default", sizes_of_arrays(kernel, inputs, {**self._given, **told}, self._run_sizes)
        )
        arrays = arrays_of(kernel, sizes, self._backend, inputs)
        with self._lock:
            self._choose_at(sizes)
            needs_baseline, outputs = bool(self.reason), dict[str, Any]()
            if not needs_baseline:
                outputs = self._run(self.configuration, arrays)
                source = self._source if isinstance(self._source, BySize) else self._source.info
                trouble = _doubts(arrays, outputs, source.masked)
                if trouble and self._chosen is None:
                    needs_baseline = True
                    warn_caller(f"{self.kernel.name} uses the baseline for this call: {trouble}")
            if needs_baseline:
                _, outputs = first_that_runs(self._baselines(sizes), lambda each: self._run(each, arrays))
            found = {name: arrays.returned(array, converted) for name, array in outputs.items()}
            arrays.settle()
        is_single = isinstance(kernel, Kernel) and len(found) == 1
        return next(iter(found.values())) if is_single else found

    def _choose_at(self, sizes: Sizes) -> None:
        """Set the configuration of calls at these sizes; warn of the baseline the first time."""
        key = tuple(sizes.items())
        if key not in self._at:
            self._at[key] = (self._chosen, "") if self._chosen is not None else self._choice(sizes)
            if reason := self._at[key][1]:
                warn_caller(f"{self.kernel.name} uses the baseline: {reason}")
        self.sizes, (self.configuration, self.reason) = sizes, self._at[key]

    def _choice(self, sizes: Sizes) -> tuple[Configuration, str]:
        """Return the best configuration where the source speaks for this device and these sizes, else the baseline."""
        if isinstance(self._source, BySize):
            choice = self._source.choose(sizes)
            return self.kernel.own(choice.configuration), choice.reason
        run = self._source
        recorded, best = sizes_of(run.info, self.kernel), run.best
        if not self._matches:
            device = self._backend.describe()
            reason = f"the run is of {run.info.device}, this is {device.name} ({device.architecture})"
        elif dict(recorded) != dict(sizes):
            reason = f"the run was made at {recorded}, not at {sizes}, where errors may differ"
        elif best is None:
            reason = "the run has no feasible trial"
        else:
            return self.kernel.own(best.configuration), ""
        return next(self._baselines(sizes)), reason

    def _baselines(self, sizes: Sizes) -> Iterator[Configuration]:
        """Yield configurations with a baseline's values: the source's own, where it is valid here, and further ones.

        Raises:
            KernelError: no such configuration is valid at these sizes on this device.
        """
        tunable, limits = self.kernel, self._backend.device.facts()
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
        tunable, program = self.kernel, self._programs.get(configuration)
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
