"""Compiling configurations before their turn comes.

A compiler is a process of its own for every backend, so threads suffice to run several at a time. What they compile
reaches the worker through the binary cache; where that cannot be written, the worker compiles itself.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext

from mptune.backends.base import CompileOptions, Compiler
from mptune.errors import CompileError
from mptune.evaluators.bench import Request
from mptune.results import Status, Trial

__all__ = ["CompileAhead", "compiled_first"]


class CompileAhead:
    """Compiles sources in the background, in the order they are submitted.

    Args:
        compiler: compiles.
        function: name of the kernel's function.
        options: how to compile, as :meth:`Compiler.resolved` returns them.
        compilers: compilations at a time.
    """

    def __init__(self, compiler: Compiler, function: str, options: CompileOptions, compilers: int) -> None:
        self._compiler = compiler
        self._function = function
        self._options = options
        self._threads = ThreadPoolExecutor(compilers, thread_name_prefix="compile ahead")
        self._compilations: dict[str, Future[float]] = {}
        self._lock = threading.Lock()

    def submit(self, source: str) -> Future[float]:
        """Begin to compile a source as soon as a compiler is free; one under way already is not begun again.

        Returns how long its compiler is going to have run, in seconds.
        """
        with self._lock:
            if source not in self._compilations:
                self._compilations[source] = self._threads.submit(self._compile, source)
            return self._compilations[source]

    def take(self, source: str) -> float:
        """Wait for a source to be compiled, and forget it; return how long its compiler ran, in seconds.

        Raises:
            CompileError: the compiler rejected the source, crashed or ran out of time.
        """
        try:
            return self.submit(source).result()
        finally:
            with self._lock:
                self._compilations.pop(source, None)

    def paused(self) -> AbstractContextManager[None]:
        """Hold up the compilers for the length of a block, if they would disturb what is measured in it."""
        return self._compiler.paused()

    def close(self) -> None:
        """Give up what has not been compiled yet."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._compiler.close()
        self._threads.shutdown()

    def _compile(self, source: str) -> float:
        return self._compiler.compile(source, self._function, self._options).compile_s


def compiled_first(
    ahead: CompileAhead | None,
    request: Request,
    evaluate: Callable[[Request, Callable[[], AbstractContextManager[None]]], Trial],
) -> Trial:
    """Return the trial of a configuration when its compiler is done; the wait is part of its phases.

    Args:
        ahead: compiles; None leaves it to whoever evaluates.
        request: what to evaluate.
        evaluate: does so, given also what holds up the compilers while it measures.
    """
    if ahead is None:
        return evaluate(request, nullcontext)
    start = time.perf_counter()
    try:
        ahead.take(request.source)
        waited_s = time.perf_counter() - start
        trial = evaluate(request, ahead.paused)
    except CompileError as error:
        waited_s = time.perf_counter() - start
        trial = Trial(request.configuration, Status.COMPILE_ERROR, str(error))
    durations_s = {**trial.measurement.durations_s}
    durations_s["compile"] = durations_s.get("compile", 0.0) + waited_s
    return dataclasses.replace(trial, measurement=dataclasses.replace(trial.measurement, durations_s=durations_s))
