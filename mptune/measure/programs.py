"""What a configuration is once it is compiled: something to launch on bound arguments."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mptune.backends.base import Backend, Binary, Buffer, CompileOptions
from mptune.errors import KernelError
from mptune.kernel import Application, Kernel, Sizes
from mptune.measure.capturing import CapturedLaunch, kept
from mptune.measure.device_data import BoundArguments
from mptune.measure.stepping import Stepper
from mptune.results.kernel_times import FEWEST, HOST_MS, LAUNCHES, MOST, TIME_MS
from mptune.space.configuration import Configuration

__all__ = ["ApplicationProgram", "KernelProgram", "Program"]


class Program(ABC):
    """One configuration, compiled and loaded."""

    #: Its code; None where there is more than one.
    binary: Binary | None = None

    @abstractmethod
    def set_constants(self, bound: BoundArguments) -> None:
        """Write what goes into constant memory."""

    @abstractmethod
    def changed_constants(self, bound: BoundArguments) -> list[str]:
        """Say which constants are not what was set."""

    @abstractmethod
    def launch(self, bound: BoundArguments) -> float:
        """Run it once to its end and return milliseconds.

        Raises:
            LaunchError: the device refused or aborted a launch.
        """

    @abstractmethod
    def enqueue(self, bound: BoundArguments, count: int = 1) -> None:
        """Run it so many times, without waiting where the device allows it; only after :meth:`launch`."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until everything enqueued has run."""

    def resources(self) -> Mapping[str, float]:
        """Return registers, shared memory and occupancy of its one kernel, where the driver reports them."""
        return {}

    def metrics(self) -> Mapping[str, float]:
        """Return what is known of its latest launch besides the time."""
        return {}

    @abstractmethod
    def unload(self) -> None:
        """Release the code."""


class KernelProgram(Program):
    """A configuration of one kernel.

    Raises:
        KernelError: an extent of the grid is below 1.
        LaunchError: the binary cannot be loaded.
    """

    def __init__(
        self, backend: Backend, binary: Binary, kernel: Kernel, configuration: Configuration, sizes: Sizes
    ) -> None:
        self._shape = kernel.launch_shape(configuration, sizes)
        self.binary = binary
        self._function = backend.device.load(binary)

    def set_constants(self, bound: BoundArguments) -> None:
        for name, values in bound.constants.items():
            self._function.set_constant(name, values)

    def changed_constants(self, bound: BoundArguments) -> list[str]:
        changed = []
        for name, values in bound.constants.items():
            found = np.empty_like(values)
            self._function.read_constant(name, found)
            if found.tobytes() != values.tobytes():
                changed.append(f"the kernel changed its constant {name!r}")
        return changed

    def launch(self, bound: BoundArguments) -> float:
        return self._function.launch(self._shape, bound.launch)

    def enqueue(self, bound: BoundArguments, count: int = 1) -> None:
        self._function.enqueue(self._shape, bound.launch, count)

    def wait(self) -> None:
        self._function.wait()

    def resources(self) -> Mapping[str, float]:
        return self._function.resources(self._shape)

    def unload(self) -> None:
        self._function.unload()


class ApplicationProgram(Program):
    """A configuration of an application: a launch is a run of its steps, on the wall clock.

    Its kernels are compiled as launches need them, so that a failure of one shows in the first launch.
    """

    def __init__(
        self,
        backend: Backend,
        options: CompileOptions,
        application: Application,
        configuration: Configuration,
        sizes: Sizes,
    ) -> None:
        self._stepper = Stepper(application, configuration, sizes, backend, options)
        self._elapsed_ms = math.nan
        #: By kernel, how often it was launched in each of the runs on the same arguments.
        self._bound: BoundArguments | None = None
        self._launches: dict[str, list[int]] = {}

    def set_constants(self, bound: BoundArguments) -> None:
        pass  # each launch of a kernel sets its own

    def changed_constants(self, bound: BoundArguments) -> list[str]:  # noqa: ARG002
        return []

    def launch(self, bound: BoundArguments) -> float:
        memory = {name: value for name, value in bound.passed.items() if isinstance(value, Buffer)}
        scalars = {name: value.item() for name, value in bound.passed.items() if not isinstance(value, Buffer)}
        self._elapsed_ms, left = self._stepper.run(memory, scalars)
        if bound is not self._bound:
            self._bound, self._launches = bound, {name: [] for name in self._stepper.application.kernels}
        for name, count in self._count().items():
            self._launches[name].append(count)
        # What changed places with another buffer is looked for where it was.
        moved = [o for o in bound.outputs if left[o.argument.name] is not memory[o.argument.name]]
        values = [np.empty(output.buffer.nbytes, np.uint8) for output in moved]
        for output, array in zip(moved, values, strict=True):
            left[output.argument.name].read(array)
        for output, array in zip(moved, values, strict=True):
            output.buffer.write(array)
        return self._elapsed_ms

    def enqueue(self, bound: BoundArguments, count: int = 1) -> None:
        for _ in range(count):
            self.launch(bound)

    def wait(self) -> None:
        pass  # a run ends with what it launched

    def metrics(self) -> Mapping[str, float]:
        found: dict[str, float] = {LAUNCHES + name: count for name, count in self._count().items()}
        times_ms = dict.fromkeys(self._stepper.application.kernels, 0.0)
        for launched, time_ms in self._stepper.times_ms.items():
            times_ms[launched.kernel] += time_ms
        found |= {TIME_MS + name: time_ms for name, time_ms in times_ms.items()}
        found[HOST_MS] = max(0.0, self._elapsed_ms - math.fsum(times_ms.values()))
        for name, counts in self._launches.items():
            if len(set(counts)) > 1:
                found |= {FEWEST + name: min(counts), MOST + name: max(counts)}
        return found

    def _count(self) -> dict[str, int]:
        """Return how often each kernel was launched in the latest run."""
        found = dict.fromkeys(self._stepper.application.kernels, 0)
        for launched, count in self._stepper.counts.items():
            found[launched.kernel] += count
        return found

    def capture(self, bound: BoundArguments, folder: Path) -> tuple[CapturedLaunch, ...]:
        """Run it twice, and write to a folder the data of the middle one of all launches that are alike.

        Raises:
            KernelError: it launches nothing, or not again what it launched the first time.
        """
        called = self._stepper.application.called
        bound.restore()
        self.launch(bound)
        counts, times_ms = self._stepper.counts, self._stepper.times_ms
        if not counts:
            raise KernelError(f"the steps of {called} launch no kernel")
        self._stepper.capture({launched: (count + 1) // 2 for launched, count in counts.items()})
        bound.restore()
        self.launch(bound)
        captured = self._stepper.captured
        self._stepper.capture({})
        if not captured:
            names = ", ".join(dict.fromkeys(launched.kernel for launched in counts))
            raise KernelError(
                f"the steps of {called} launch differently from run to run: no launch of {names} was made the second "
                "time as it was the first, on the same inputs"
            )
        launches = []
        for number, each in enumerate(captured):
            path = folder / f"{each.launched.kernel}-{number}.npz"
            not_finite = kept(each, path)
            partly = tuple(name for name in each.left if name in each.given)
            count, time_ms = counts[each.launched], times_ms[each.launched]
            launches.append(CapturedLaunch(each.launched, count, time_ms, str(path), not_finite, partly))
        return tuple(launches)

    def unload(self) -> None:
        self._stepper.unload()
