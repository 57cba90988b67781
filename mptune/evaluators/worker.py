"""The process that compiles and launches, so that whatever a kernel does leaves the tuner standing.

Run as ``python -m mptune.evaluators.worker FD``; the file descriptor is a connection the parent
speaks :class:`Job`, :class:`Request` and the messages below over. A new interpreter, rather than a
fork or ``multiprocessing``'s spawn, neither inherits the parent's threads nor runs its main module.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.errors import KernelError, MptuneError
from mptune.evaluators.bench import Bench, Ready, Request
from mptune.evaluators.timing import TimingPlan
from mptune.kernel import Kernel, Sizes
from mptune.registry import load_kernel
from mptune.results import Trial

__all__ = ["Failed", "Finished", "Job", "Phase", "Started", "main"]

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker needs to know to start.

    Attributes:
        kernel: path of the definition file, or the kernel itself, pickled by value.
        sizes: the problem sizes.
        backend: name of the backend.
        metric: error metric instead of the kernel's own.
        seed: seeds the inputs.
        options: how to compile.
        plan: how often to launch.
    """

    kernel: str | bytes
    sizes: dict[str, int]
    backend: str
    metric: bytes
    seed: int
    options: CompileOptions
    plan: TimingPlan

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        sizes: Sizes,
        backend: str,
        metric: str | Callable[..., float] | None,
        seed: int,
        options: CompileOptions,
        plan: TimingPlan,
    ) -> Job:
        """Describe a job in a form that crosses to another interpreter.

        Raises:
            KernelError: the kernel was not loaded from a file and cannot be pickled.
        """
        try:
            packed = str(kernel.path) if kernel.path is not None else cloudpickle.dumps(kernel)
            return cls(packed, dict(sizes), backend, cloudpickle.dumps(metric), seed, options, plan)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise KernelError(
                f"kernel {kernel.name} cannot be sent to a worker process ({error}); put its definition in a file"
            ) from error

    def load(self) -> tuple[Kernel, Sizes, str | Callable[..., float] | None]:
        """Return kernel, sizes and metric; the bytes come from the parent process alone."""
        kernel = load_kernel(self.kernel) if isinstance(self.kernel, str) else pickle.loads(self.kernel)
        return kernel, Sizes(self.sizes), pickle.loads(self.metric)


@dataclass(frozen=True, slots=True)
class Started:
    """The worker is ready for requests."""

    ready: Ready


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of the current evaluation begins."""

    name: str


@dataclass(frozen=True, slots=True)
class Finished:
    """One evaluation is done."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker cannot start, by a user's mistake."""

    error: MptuneError


def main(descriptor: int) -> None:
    """Serve requests until the connection closes."""
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with Connection(descriptor) as connection:
        try:
            bench = _start(connection)
        except MptuneError as error:
            connection.send(Failed(error))
            return
        connection.send(Started(bench.ready))
        try:
            while True:
                request: Any = connection.recv()
                assert isinstance(request, Request)
                connection.send(Finished(bench.evaluate(request)))
        except (EOFError, ConnectionError):
            bench.close()


def _start(connection: Connection) -> Bench:
    job: Any = connection.recv()
    assert isinstance(job, Job)
    kernel, sizes, metric = job.load()

    def announce(name: str) -> None:
        connection.send(Phase(name))

    return Bench(
        kernel,
        sizes,
        get_backend(job.backend),
        metric=metric,
        seed=job.seed,
        options=job.options,
        plan=job.plan,
        announce=announce,
    )


def _die_with_parent() -> None:
    """Ask Linux to kill this process when the parent dies; it may be deep in a kernel that never ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]))
