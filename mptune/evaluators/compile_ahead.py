"""Compiling configurations before their turn comes.

A compiler is a process of its own for every backend, so threads suffice to run several at a time. What they compile
reaches the worker through the binary cache; where that cannot be written, the worker compiles itself.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager

from mptune.backends.base import Backend, CompileOptions

__all__ = ["CompileAhead"]


class CompileAhead:
    """Compiles sources in the background, in the order they are submitted.

    Args:
        backend: compiles; never asked for its device.
        function: name of the kernel's function.
        options: how to compile, as :meth:`Backend.resolved` returns them.
        compilers: compilations at a time.
    """

    def __init__(self, backend: Backend, function: str, options: CompileOptions, compilers: int) -> None:
        self._backend = backend
        self._function = function
        self._options = options
        self._threads = ThreadPoolExecutor(compilers, thread_name_prefix="compile ahead")
        self._compilations: dict[str, Future[float]] = {}

    def submit(self, source: str) -> None:
        """Begin to compile a source as soon as a compiler is free; one under way already is not begun again."""
        if source not in self._compilations:
            self._compilations[source] = self._threads.submit(self._compile, source)

    def take(self, source: str) -> float:
        """Wait for a source to be compiled, and forget it; return how long its compiler ran, in seconds.

        Raises:
            CompileError: the compiler rejected the source, crashed or ran out of time.
        """
        self.submit(source)
        try:
            return self._compilations[source].result()
        finally:
            self._compilations.pop(source, None)

    def paused(self) -> AbstractContextManager[None]:
        """Hold up the compilers for the length of a block, if they would disturb what is measured in it."""
        return self._backend.compilations_paused()

    def close(self) -> None:
        """Give up what has not been compiled yet."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._backend.give_up_compilations()
        self._threads.shutdown()

    def _compile(self, source: str) -> float:
        return self._backend.compile(source, self._function, self._options).compile_s
