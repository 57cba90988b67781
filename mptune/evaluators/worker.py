"""The process that compiles and launches, so that whatever a kernel does leaves the tuner standing.

The parent starts an interpreter that calls :func:`main` with a file descriptor, a connection over which it
speaks the messages of :mod:`mptune.evaluators.protocol`. A new interpreter, rather than a
fork or ``multiprocessing``'s spawn, neither inherits the parent's threads nor runs its main module.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from mptune.backends import get_backend
from mptune.errors import MptuneError
from mptune.evaluators.bench import Bench, Request
from mptune.evaluators.protocol import Failed, Finished, Job, Phase, Quiet, Rounds, RoundsFinished, Started
from mptune.evaluators.rounds import remeasure

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


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
                connection.send(_answer(bench, connection.recv()))
        except (EOFError, ConnectionError):
            bench.close()


def _answer(bench: Bench, request: Any) -> Finished | RoundsFinished:
    if isinstance(request, Rounds):
        trials = remeasure(bench, request.requests, request.rounds)
        return RoundsFinished(tuple(trials), all(bench.is_usable(trial) for trial in trials))
    assert isinstance(request, Request)
    trial = bench.evaluate(request)
    return Finished(trial, bench.is_usable(trial))


def _start(connection: Connection) -> Bench:
    job: Any = connection.recv()
    assert isinstance(job, Job)
    kernel, sizes, metric = job.load()

    def announce(name: str) -> None:
        phase = Phase(name)
        connection.send(phase)
        if phase.wants_quiet:
            answer: Any = connection.recv()
            assert isinstance(answer, Quiet)

    return Bench(
        kernel,
        sizes,
        get_backend(job.backend),
        metric=metric,
        seed=job.seed,
        options=job.options,
        plan=job.plan,
        observers=job.observers,
        announce=announce,
    )


def _die_with_parent() -> None:
    """Ask Linux to kill this process when the parent dies; it may be deep in a kernel that never ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
