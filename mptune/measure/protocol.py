"""What the tuner and its worker process say to each other.

The tuner sends a :class:`Job`; the worker answers with a :class:`~mptune.measure.bench.Ready`, or the error why it
cannot start. Each :class:`~mptune.measure.bench.Request`, and whatever else is :data:`Asked`, is answered with the
phases as they begin and, at the end, :class:`Finished`.
"""

from __future__ import annotations

import io
import marshal
import math
import pickle
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any, TypeAlias

import cloudpickle

from mptune.accuracy.evaluate import Metrics
from mptune.backends.base import CompileOptions
from mptune.data import Draw
from mptune.errors import KernelError
from mptune.kernel import Kernel, Rates, Sizes, Tunable
from mptune.measure.bench import Request
from mptune.measure.capturing import CapturedLaunch
from mptune.measure.timing import TimingPlan
from mptune.results.trial import Trial
from mptune.source.loading import load_tunable, loaded_modules, loaded_version

__all__ = [
    "Asked",
    "Capture",
    "Finished",
    "Job",
    "MeasureRates",
    "OnDraws",
    "PhaseBegins",
    "Quiet",
    "Rounds",
    "Traced",
    "together",
]


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker needs to know to start.

    Attributes:
        kernel: path of the definition file, or the kernel itself, pickled by value, where no file holds it as it is.
        version: of the file at that path.
        sizes: the problem sizes.
        backend: name of the backend.
        metric: error metric instead of the kernel's own.
        seed: seeds the inputs.
        options: how to compile.
        plan: how often to launch.
        function: name of the kernel's function; None for an application, whose kernels the worker compiles.
        observers: names of the optional observers to switch on.
    """

    kernel: str | bytes
    version: tuple[int, ...] | None
    sizes: dict[str, int]
    backend: str
    metric: bytes
    seed: int
    options: CompileOptions
    plan: TimingPlan
    function: str | None
    observers: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        kernel: Tunable,
        sizes: Sizes,
        backend: str,
        metric: Metrics | None,
        seed: int,
        options: CompileOptions,
        plan: TimingPlan,
        observers: tuple[str, ...] = (),
    ) -> Job:
        """Describe a job in a form that crosses to another interpreter.

        Raises:
            KernelError: the kernel is not as a file defines it and cannot be pickled.
        """
        version = loaded_version(kernel)
        function = kernel.function if isinstance(kernel, Kernel) else None
        for module in loaded_modules():
            cloudpickle.register_pickle_by_value(module)
        try:
            packed = _pickled(kernel) if version is None else str(kernel.path)
            named = _pickled(metric)
            return cls(packed, version, dict(sizes), backend, named, seed, options, plan, function, observers)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise KernelError(
                f"{kernel.called} cannot be sent to a worker process ({error}); put its definition in a file"
            ) from error

    def load(self) -> tuple[Tunable, Sizes, Metrics | None]:
        """Return kernel, sizes and metric; the bytes come from the parent process alone.

        Raises:
            KernelError: the definition file has changed or cannot be loaded any more, or something pickled is not
                importable here.
        """
        try:
            kernel = load_tunable(self.kernel) if isinstance(self.kernel, str) else pickle.loads(self.kernel)
            if loaded_version(kernel) != self.version:
                raise KernelError(
                    f"{self.kernel!r} has changed since the run began; --resume goes on with it as it is now"
                )
            return kernel, Sizes(self.sizes), pickle.loads(self.metric)
        except (ImportError, AttributeError, pickle.UnpicklingError) as error:
            raise KernelError(f"the kernel or its error metric cannot be used in a worker process: {error}") from error


def _pickled(value: object) -> bytes:
    """Return what another interpreter can load, functions of a script or a notebook included."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        # To find where a function comes from, every imported module is looked into, deprecated ones too.
        warnings.simplefilter("ignore")
        _Pickler(file).dump(value)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        # From 3.1.3 on cloudpickle leaves out in which file code is, which messages name and steps are told by.
        if isinstance(obj, CodeType):
            return marshal.loads, (marshal.dumps(obj),)
        return super().reducer_override(obj)


@dataclass(frozen=True, slots=True)
class PhaseBegins:
    """A phase of the current evaluation begins; one that wants quiet waits for the tuner's answer."""

    name: str

    @property
    def wants_quiet(self) -> bool:
        """Whether nothing else may run on the processor."""
        return self.name in ("timing", "observe")


@dataclass(frozen=True, slots=True)
class Reached:
    """A kernel reached where it may not, near which buffer, in words; the worker ends of it."""

    where: str


@dataclass(frozen=True, slots=True)
class Quiet:
    """Nothing else runs: a timing may begin."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """Configurations to measure again in turn, so many rounds (:func:`~mptune.measure.rounds.remeasure`)."""

    requests: tuple[Request, ...]
    rounds: int
    visit: TimingPlan


@dataclass(frozen=True, slots=True)
class OnDraws:
    """Configurations to check on draws of the inputs, each on each.

    Attributes:
        requests: the configurations.
        draws: the draws.
    """

    requests: tuple[Request, ...]
    draws: tuple[Draw, ...]


@dataclass(frozen=True, slots=True)
class MeasureRates:
    """The speeds of the device are wanted (:class:`~mptune.kernel.Rates`)."""


@dataclass(frozen=True, slots=True)
class Capture:
    """An application is to run in a configuration, and to leave the data of its launches in a folder."""

    request: Request
    folder: Path


@dataclass(frozen=True, slots=True)
class Traced:
    """A configuration whose errors are wanted from an instrumented build."""

    request: Request


#: What a worker answers besides single evaluations.
Asked: TypeAlias = Rounds | OnDraws | MeasureRates | Capture | Traced


@dataclass(frozen=True, slots=True)
class Finished:
    """A request or rounds are done.

    Attributes:
        trials: of the request, of each turn of the rounds in the order in which they came, or of each configuration on
            each draw.
        is_usable: whether the worker can do anything else.
        draws: the draw of each trial, where it was asked for on draws.
        unmade: draws whose inputs or references could not be made, and why.
        tasks_per_core: of rounds, how many other tasks wanted each core meanwhile; NaN if not known.
        calibration_ms: of rounds, how long the same work of no kernel took after each turn; empty if not known.
        launches: those of an application, where their data was asked for.
        rates: the speeds of the device, where they were asked for and could be measured.
    """

    trials: tuple[Trial, ...]
    is_usable: bool = True
    draws: tuple[Draw, ...] = ()
    unmade: Mapping[Draw, str] = field(default_factory=dict)
    tasks_per_core: float = math.nan
    calibration_ms: tuple[float, ...] = ()
    launches: tuple[CapturedLaunch, ...] = ()
    rates: Rates | None = None


def together(answers: Sequence[Finished]) -> Finished:
    """Return several answers as one."""
    tasks = [answer.tasks_per_core for answer in answers if not math.isnan(answer.tasks_per_core)]
    is_calibrated = all(len(answer.calibration_ms) == len(answer.trials) for answer in answers)
    return Finished(
        tuple(trial for answer in answers for trial in answer.trials),
        all(answer.is_usable for answer in answers),
        tuple(draw for answer in answers for draw in answer.draws),
        {draw: reason for answer in answers for draw, reason in answer.unmade.items()},
        statistics.fmean(tasks) if tasks else math.nan,
        calibration_ms=tuple(ms for answer in answers for ms in answer.calibration_ms) if is_calibrated else (),
    )
