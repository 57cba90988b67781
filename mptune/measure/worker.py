"""The worker process that compiles and launches, so that a kernel cannot end the tuner.

The tuner sends a :class:`Job`, then names of methods of :class:`WorkerBench` with their arguments. The worker answers
with tuples: ``("phase", name)`` as phases begin, ``("reached", where)`` if a kernel reached forbidden memory, and at
the end ``("answer", value, is_usable)`` or ``("raised", error)``.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import marshal
import math
import pickle
import re
import resource
import signal
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType
from typing import Any, ClassVar, Final

import cloudpickle

from mptune.accuracy.evaluate import Metrics
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.backends.processes import ChildEnded, PythonChild
from mptune.backends.processor import fixed_work_ms, other_tasks_per_core
from mptune.data import Draw
from mptune.errors import KernelError, LaunchError, MptuneError
from mptune.kernel import Sizes, Tunable
from mptune.measure.bench import Bench, Ready, Request
from mptune.measure.policy import Plan
from mptune.measure.rounds import Finished, remeasure
from mptune.measure.timing import TimingPlan
from mptune.memory import total_memory_bytes
from mptune.observers.base import Observer
from mptune.results.trial import Measurement, Status, Trial
from mptune.source.loading import load_tunable, loaded_modules, loaded_version
from mptune.space.configuration import Configuration

#: Phases that need an idle processor: the worker waits until the tuner has paused its compilers.
_QUIET: Final = ("timing", "observe")


@dataclass(frozen=True, slots=True)
class Job:
    """The kernel, data and options of a worker, in a form that pickles."""

    definition: bytes  #: kernel, error metric and observers that are objects (:func:`definition_of`)
    function: str | None  #: name of the kernel's function; None for an application
    sizes: dict[str, int]
    backend: str
    seed: int
    options: CompileOptions
    plan: TimingPlan
    observers: tuple[str, ...] = ()


def definition_of(kernel: Tunable, metric: Metrics | None, observers: Sequence[Observer] = ()) -> bytes:
    """Pickle a kernel, or path and version of its file if unchanged, an error metric, and observers."""
    version, file = loaded_version(kernel), io.BytesIO()
    for module in loaded_modules():
        cloudpickle.register_pickle_by_value(module)
    try:
        with warnings.catch_warnings():
            # cloudpickle searches all imported modules for a function, and deprecated modules warn.
            warnings.simplefilter("ignore")
            _Pickler(file).dump((kernel if version is None else (str(kernel.path), version), metric, tuple(observers)))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise KernelError(
            f"{kernel.called} cannot be sent to a worker process ({error}); put its definition in a file"
        ) from error
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        # Since 3.1.3 cloudpickle drops the file name of code objects, which error messages and steps need.
        if isinstance(obj, CodeType):
            return marshal.loads, (marshal.dumps(obj),)
        return super().reducer_override(obj)


def _defined(definition: bytes) -> tuple[Tunable, Metrics | None, tuple[Observer, ...]]:
    try:
        kernel, metric, observers = pickle.loads(definition)
        if isinstance(kernel, tuple):
            path, version = kernel
            kernel = load_tunable(path)
            if loaded_version(kernel) != version:
                raise KernelError(f"{path!r} has changed since the run began; --resume goes on with it as it is now")
    except (ImportError, AttributeError, pickle.UnpicklingError) as error:
        raise KernelError(f"the kernel or its error metric cannot be used in a worker process: {error}") from error
    return kernel, metric, observers


# -- in the worker process -------------------------------------------------------------------------


class WorkerBench(Bench):
    """A bench that measures several configurations together."""

    def remeasure(self, requests: Sequence[Request], rounds: int, visit: TimingPlan) -> Finished:
        """Return the trials of :func:`~mptune.measure.rounds.remeasure`, and the load of the machine."""
        trials: list[Trial] = []
        calibration_ms: list[float] = []
        tasks: list[float] = []
        for trial in remeasure(self, requests, rounds, visit):
            trials.append(trial)
            if self.backend.shares_memory:
                # Fixed work of about the duration of a launch shows the speed of the machine.
                launch_ms = min(trial.measurement.times_ms, default=0.0)
                calibration_ms.append(fixed_work_ms(min(max(launch_ms, 0.5), 5.0)))
                # Last, as the threads of a launch stay awake for a moment, and are no other tasks.
                tasks.append(other_tasks_per_core())
        known = [count for count in tasks if not math.isnan(count)]
        tasks_per_core = statistics.fmean(known) if known else None
        return Finished(tuple(trials), tasks_per_core=tasks_per_core, calibration_ms=tuple(calibration_ms))

    def run_on_draws(self, requests: Sequence[Request], draws: Sequence[Draw]) -> Finished:
        """Run all configurations on each draw of the inputs, up to a failure that leaves the device unusable.

        Each trial has the errors on its draw alone.
        """
        done = Finished(())
        with self.keeping_loaded():
            for draw in draws:
                try:
                    self.make(draw)
                except MptuneError as error:
                    done += Finished((), unmade={draw: str(error)})
                    continue
                for request in requests:
                    trial = self.check_on(request, draw)
                    done += Finished((trial,), (draw,))
                    if not self.is_usable(trial):
                        return done
        return done


def main(connection: Connection) -> None:
    """Call requested methods until the connection closes."""

    def announce(phase: str) -> None:
        connection.send(("phase", phase))
        if phase in _QUIET:
            connection.recv()

    try:
        job: Job = connection.recv()
        kernel, metric, own_observers = _defined(job.definition)
        bench = WorkerBench(
            kernel,
            Sizes(job.sizes),
            get_backend(job.backend),
            metric=metric,
            seed=job.seed,
            options=job.options,
            plan=job.plan,
            observers=job.observers,
            own_observers=own_observers,
            announce=announce,
        )
    except MptuneError as error:
        connection.send(("raised", error))
        return
    if bench.backend.shares_memory:
        _limit_memory()
        _tell_of_faults(lambda address: connection.send(("reached", bench.memory.nearest(address))))
    connection.send(("answer", bench.ready, True))
    try:
        while True:
            method, arguments = connection.recv()
            try:
                answer = getattr(bench, method)(*arguments)
            except MptuneError as error:
                connection.send(("raised", error))
                continue
            trials = [answer] if isinstance(answer, Trial) else answer.trials if isinstance(answer, Finished) else ()
            connection.send(("answer", answer, all(map(bench.is_usable, trials))))
    except (EOFError, ConnectionError):
        # After a fault a device refuses to free its memory, and the tuner is gone.
        with contextlib.suppress(MptuneError):
            bench.close()


def _limit_memory() -> None:
    """Limit allocations to the memory of the machine, and let the system end this process first if memory is short.

    Otherwise a kernel that allocates without end would end the tuner and other processes.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with contextlib.suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = total_memory_bytes()
        resource.setrlimit(resource.RLIMIT_DATA, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))


#: Flag of sigaction, and offset of the address in siginfo_t on 64-bit Linux.
_SA_SIGINFO: Final = 4
_ADDRESS_OFFSET: Final = 16
_HANDLER: Final = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    """The C library's struct sigaction, with 1024 signals in a set."""

    _fields_: ClassVar[list[Any]] = [
        ("handler", _HANDLER),
        ("mask", ctypes.c_ulong * (1024 // (8 * ctypes.sizeof(ctypes.c_ulong)))),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]


#: Kept alive, as the C library has only their addresses.
_kept: Final[list[_Action]] = []


def _tell_of_faults(tell: Callable[[int], None]) -> None:
    """Call a function with the address of a memory fault, before the signal ends this process.

    It runs in the faulting thread of a kernel, while all others wait for the kernel; not if that thread has no stack
    left.
    """
    library = ctypes.CDLL(None)

    def handle(number: int, information: int, _: int) -> None:
        # The faulting instruction runs again after this handler, and then ends the process.
        library.signal(number, signal.SIG_DFL)
        with contextlib.suppress(Exception):
            tell(ctypes.c_size_t.from_address(information + _ADDRESS_OFFSET).value)

    for number in (signal.SIGSEGV, signal.SIGBUS):
        _kept.append(_Action(handler=_HANDLER(handle), flags=_SA_SIGINFO))
        library.sigaction(number, ctypes.byref(_kept[-1]), None)


# -- in the tuner ----------------------------------------------------------------------------------

#: The most frequent cause of a signal that ends a kernel.
_USUAL_CAUSES: Final[Mapping[int, str]] = {
    signal.SIGSEGV: "usually an index out of bounds, or recursion that used up the stack",
    signal.SIGBUS: "usually a misaligned vector, or an index out of bounds",
    signal.SIGILL: "a trap in the kernel, or code for another processor",
    signal.SIGFPE: "usually a division of an integer by zero",
    signal.SIGKILL: "by somebody, or by the system because memory ran out",
}
_STEPS: Final = "a run of the application's steps"
#: Phases in which functions of the definition run, and phases without kernels.
_OF_FUNCTIONS: Final = ("start", "inputs")
_BEFORE_KERNELS: Final = (*_OF_FUNCTIONS, "compile")


@dataclass(frozen=True, slots=True)
class Limits:
    """Wall-clock limits of a trial."""

    compile_s: float = 60.0  #: of one compilation
    run_s: float = 30.0  #: of any other phase of a trial
    start_s: float = 900.0  #: of the worker's start
    launch_factor: float = math.inf  #: of a launch, as a multiple of the baseline's
    phase_factor: float = math.inf  #: of the phase of the first launch, as a multiple of the longest of a valid trial

    @classmethod
    def of(cls, trial_limit: float | str) -> Limits:
        """Return the limits of a trial for seconds, or for a multiple of the baseline's launch such as "10x"."""
        try:
            return cls(run_s=float(trial_limit))
        except ValueError:
            text = str(trial_limit)
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)?x", text) or not 1 < float(text[:-1]) < math.inf:
            raise MptuneError(
                f"trial limit {text!r}: expected seconds, or a multiple above 1x of the baseline's, such as 10x"
            )
        return cls(launch_factor=float(text[:-1]))


class WorkerDied(Exception):
    """The worker process ended, or was ended as a phase ran out of time."""

    def __init__(self, status: Status, message: str, measurement: Measurement) -> None:
        super().__init__(status, message, measurement)
        self.status, self.message, self.measurement = status, message, measurement

    def __str__(self) -> str:
        return self.message

    def trial_of(self, configuration: Configuration) -> Trial:
        """Return the trial of the configuration that ended the process."""
        return Trial(configuration, self.status, self.message, self.measurement)


class Worker:
    """A worker process, started when needed and replaced when a kernel ends it.

    One thread at a time may use it, and any may :meth:`abort` it. ``environment`` is added to the variables of this
    process.
    """

    def __init__(self, job: Job, limits: Limits, environment: Mapping[str, str] | None = None) -> None:
        self._job = job
        self._limits = limits
        self._environment = environment
        self.child: PythonChild | None = None  #: None if no process is running
        self._is_closed = False
        self._phase = "start"
        self._plan = Plan()  #: of the present evaluation
        self._reached = ""  #: place of a memory fault relative to the nearest buffer

    def start(self) -> Ready:
        """Start the process if it is not running; return its report."""
        if self.child is None:
            self._phase, self._reached = "start", ""
            self.child = PythonChild("mptune.measure.worker:main", environment=self._environment)
            if self._is_closed:
                self.abort()
            try:
                self._ready: Ready = self._answer(self.child, self._job, nullcontext)
            except WorkerDied as death:
                what = "" if death.message.startswith(_STEPS) else "the worker process could not start: "
                raise LaunchError(f"{what}{death.message}") from death
            except MptuneError:
                self._kill()
                raise
        return self._ready

    def call(
        self,
        method: str,
        *arguments: Any,
        quiet: Callable[[], AbstractContextManager[None]] = nullcontext,
        plan: Plan | None = None,
    ) -> Any:
        """Call a method of the process's :class:`WorkerBench`; raises MptuneError or WorkerDied.

        Launches are timed within ``quiet()``; ``plan`` limits them.
        """
        self.start()
        assert self.child is not None
        self._phase, self._plan = "compile", plan or Plan()
        return self._answer(self.child, (method, arguments), quiet)

    def abort(self) -> None:
        """Kill the process, from any thread, and start no other."""
        self._is_closed = True
        child = self.child
        if child is not None:
            child.signal(signal.SIGKILL)

    def close(self) -> None:
        """End the process after it has freed its device; kill it if it does not end."""
        self._is_closed = True
        if self.child is not None:
            self.child.hang_up()
            self.child = None

    def _answer(self, child: PythonChild, message: object, quiet: Callable[[], AbstractContextManager[None]]) -> Any:
        """Return the answer to a message; end a process that fails or is unusable."""
        began_s = time.perf_counter()
        try:
            child.send(message)
            kind, told = "", list[Any]()
            with ExitStack() as held:
                while kind != "answer":
                    kind, *told = child.receive(self._limit_s())
                    held.close()
                    if kind == "raised":
                        raise told[0]
                    if kind == "reached":
                        self._reached = told[0]
                    elif kind == "phase":
                        self._phase = told[0]
                        if self._phase in _QUIET:
                            held.enter_context(quiet())
                            child.send("quiet")
        except MptuneError:
            raise
        except (TimeoutError, ChildEnded) as error:
            self._kill()
            lost = {"lost": time.perf_counter() - began_s}
            if isinstance(error, ChildEnded):
                death = WorkerDied(Status.CRASH, self._cause_of_death(error), Measurement(durations_s=lost))
            else:
                # The exceeded limit is recorded, as a larger limit repeats the trial.
                limit_s, run_s = self._limit_s(), self._limits.run_s
                is_of_launch = self._phase == "launch" and limit_s < run_s
                is_of_launch &= limit_s < self._plan.phase_s
                exceeded = self._plan.launch_limit(limit_s) if is_of_launch else {"limit_s": run_s}
                death = WorkerDied(Status.TIMEOUT, self._late(), Measurement(exceeded, durations_s=lost))
            raise death from None
        except BaseException:
            self._kill()
            raise
        answer, is_usable = told
        if not is_usable:
            self._kill()
        return answer

    def _kill(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child = None

    def _limit_s(self) -> float:
        if self._phase in _OF_FUNCTIONS:
            return self._limits.start_s
        if self._phase == "reference":  # which includes compilations
            return self._limits.compile_s + 4 * self._limits.run_s
        if self._phase == "compile":
            # The compiler has a limit of its own; this is a fallback.
            return self._limits.compile_s + 10.0
        # 2 s more for restoring buffers on a busy machine.
        if self._phase != "launch":
            return self._limits.run_s
        return min(self._limits.run_s, self._plan.launch_limit_ms / 1e3 + 2.0, self._plan.phase_s)

    def _late(self) -> str:
        is_reference = self._phase == "reference"
        what = _STEPS if is_reference else f"the {self._phase} phase"
        hint = ", in its widest types: an endless loop?" if is_reference else ""
        longer = "" if self._phase in _BEFORE_KERNELS else "; --trial-limit gives it longer"
        return f"{what} did not end within {self._limit_s():.4g} s{hint}{longer}"

    def _cause_of_death(self, ended: ChildEnded) -> str:
        what = f"the worker {ended.how} in the {self._phase} phase"
        has_left, cause = ended.code is not None and ended.code >= 0, ""
        if has_left and self._phase in (*_OF_FUNCTIONS, "reference"):
            functions = "inputs, a reference, a metric or the steps of an application"
            cause = f"{functions} that end the process, as os._exit does"
        elif self._phase in _BEFORE_KERNELS:
            pass
        elif self._reached:
            cause = f"the kernel reached {self._reached}"
        elif ended.code is not None and ended.code < 0:
            cause = _USUAL_CAUSES.get(-ended.code, "")
        elif get_backend(self._job.backend).shares_memory:
            cause = "a kernel that calls exit, or the steps of an application that do"
        return f"{what}: {cause}" if cause else what
