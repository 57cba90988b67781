"""Observers as Kernel Tuner has them: classes of the user's, called around launches of each configuration."""

from __future__ import annotations

import inspect
import math
import numbers
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from mptune.errors import KernelError
from mptune.kernel_tuner.accuracy import AccuracyObserver
from mptune.kernel_tuner.problem import ArgumentGiven
from mptune.observers.base import LaunchContext, Observer, Target


class BenchmarkObserver(ABC):
    """Measures around each of several launches of a configuration, in the process that launches."""

    dev: Any = None

    def register_device(self, dev: Any) -> None:
        """Take the device, which has a ``name`` and, where the driver reports it, ``num_regs``."""
        self.dev = dev

    def register_configuration(self, params: Mapping[str, Any]) -> None:  # noqa: B027 - optional
        """Take the configuration that is launched next."""

    def before_start(self) -> None:  # noqa: B027 - optional
        """Begin, before a launch."""

    def after_start(self) -> None:  # noqa: B027 - optional
        """Go on when a launch has begun."""

    def during(self) -> None:  # noqa: B027 - optional
        """Look again, as often as a launch allows."""

    def after_finish(self) -> None:  # noqa: B027 - optional
        """End, after a launch."""

    @abstractmethod
    def get_results(self) -> Mapping[str, Any]:
        """Return the results of a configuration."""


class IterationObserver(BenchmarkObserver):
    """An observer of each launch."""


class OutputObserver(BenchmarkObserver):
    """An observer of the outputs, which is not asked whether they are right."""

    @abstractmethod
    def process_output(self, answer: Any, output: Any) -> None:
        """Take the answer and the arguments as the kernel left them."""


class PrologueObserver(BenchmarkObserver):
    """An observer of one launch before the others."""


class RegisterObserver(BenchmarkObserver):
    """The registers of a thread, where the driver reports them."""

    def get_results(self) -> Mapping[str, Any]:  # noqa: D102
        if not hasattr(self.dev, "num_regs"):
            raise KernelError(f"RegisterObserver: {self.dev.name} does not report registers")
        return {"num_regs": self.dev.num_regs}


class Observed(Observer):
    """Calls the user's observers around launches of a configuration that has been timed."""

    name: ClassVar[str] = "kernel_tuner"

    def __init__(self, observers: Sequence[Any], iterations: int, own: Callable[[Any], dict[str, Any]]) -> None:
        self._observers, self._iterations, self._own = list(observers), iterations, own

    @classmethod
    def open(cls, target: Target) -> Self:  # noqa: D102
        raise NotImplementedError

    def stop(self, context: LaunchContext) -> Mapping[str, float]:  # noqa: D102
        raise NotImplementedError

    def observe(self, launch: Callable[[], float], context: LaunchContext) -> Mapping[str, float]:  # noqa: D102
        device = SimpleNamespace(name="mptune")
        if "registers" in context.resources:
            device.num_regs = int(context.resources["registers"])
        for each in self._observers:
            each.register_device(device)
            each.register_configuration(self._own(context.configuration))
        first = [each for each in self._observers if _is_a(each, "PrologueObserver")]
        others = [each for each in self._observers if each not in first]
        for group, count in ((first, 1), (others, self._iterations)):
            for _ in range(count if group else 0):
                _around(launch, group)
        found: dict[str, Any] = {}
        for each in self._observers:
            found |= each.get_results()
        return {name: float(number) for name, number in found.items() if _is_number(name, number)}


def _around(launch: Callable[[], float], observers: Sequence[Any]) -> None:
    for each in observers:
        each.before_start()
    is_over = threading.Event()

    def watch() -> None:
        for each in observers:
            each.after_start()
        while not is_over.wait(1e-6):
            for each in observers:
                each.during()

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        launch()
    finally:
        is_over.set()
        watching.join()
    for each in observers:
        each.after_finish()


def _is_number(name: str, number: Any) -> bool:
    if isinstance(number, numbers.Real) and math.isfinite(float(number)):
        return True
    raise KernelError(f"an observer returned {name} = {number!r}; expected a finite number")


def _is_a(observer: Any, name: str) -> bool:
    """Whether an observer is of a class of this name, mptune's or Kernel Tuner's own."""
    return any(kind.__name__ == name for kind in type(observer).__mro__)


def made(observers: Sequence[Any] | None) -> list[Any]:
    """Return observers; a function in place of one is called with a description of the device.

    Raises:
        KernelError: one is no observer, or needs a sensor for power.
    """
    found = []
    for given in observers or ():
        each = given
        while inspect.isclass(each) or (callable(each) and not hasattr(each, "get_results")):
            takes_none = inspect.isclass(each) and not inspect.signature(each).parameters
            each = each() if takes_none else each({"device": 0, "platform": 0, "compiler": None, "lang": None})
        if hasattr(each, "continuous_observer"):
            raise KernelError(
                f"{type(each).__name__} reads a sensor by Kernel Tuner's code; use mptune's energy observer"
            )
        if not isinstance(each, AccuracyObserver) and not hasattr(each, "get_results"):
            raise KernelError(f"observer {each!r} is no BenchmarkObserver")
        found.append(each)
    return found


class Outputs:
    """The outputs of a launch together, for a user's ``verify`` and observers of outputs.

    Metrics get one output at a time, in order; the last one has them all.
    """

    def __init__(
        self,
        answer: Sequence[Any] | None,
        given: Sequence[ArgumentGiven],
        outputs: Sequence[str],
        verify: Callable[..., Any] | None,
        observers: Sequence[Any],
        atol: float,
    ) -> None:
        self._answer, self._given, self._last = answer, list(given), outputs[-1]
        self._verify, self._observers, self._atol = verify, list(observers), atol
        self._arrays: dict[str, NDArray[Any]] = {}
        #: The first outputs are the reference, by which mptune tries the metrics.
        self._is_tried = False

    def metrics(self, outputs: Sequence[str]) -> dict[str, Callable[..., float]]:
        """Return the error of each output: 1 at the last one if the outputs are wrong, else 0."""
        return {name: _OutputMetric(self, name) for name in outputs}

    def seen(self, name: str, output: NDArray[Any]) -> float:
        """Take an output, and return its error."""
        own = next(each for each in self._given if each.name == name).values
        self._arrays[name] = output.astype(own.dtype).reshape(own.shape)
        if name != self._last:
            return 0.0
        if not self._is_tried:
            self._is_tried = True
            return 0.0
        result = [self._arrays.get(each.name) for each in self._given]
        for observer in self._observers:
            observer.process_output(self._answer, result)
        if self._verify is None:
            return 0.0
        takes_atol = "atol" in inspect.signature(self._verify).parameters
        more = {"atol": self._atol} if takes_atol else {}
        return float(not self._verify(self._answer, result, **more))


class _OutputMetric:
    def __init__(self, outputs: Outputs, name: str) -> None:
        self._outputs, self._name = outputs, name
        self.__name__ = self.__qualname__ = "verified"

    def __call__(self, output: NDArray[Any], reference: NDArray[Any]) -> float:
        del reference
        return self._outputs.seen(self._name, output)
