"""What instrumented runs say of signatures that nobody has compiled: those that are hopeless need not be.

They run in a process of their own, on the host whatever the device, so that a kernel that fails there leaves everything
else standing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mptune.errors import MptuneError
from mptune.kernel import Tunable
from mptune.measure.bench import Request
from mptune.measure.protocol import Job, Traced
from mptune.measure.worker_process import DeviceWorker, Limits
from mptune.results.metric_expressions import is_error
from mptune.results.trial import Status, Trial
from mptune.space.configuration import Configuration, Value

__all__ = ["AGREEMENT", "Foretold", "Screening"]

#: Instrumented errors agree with measured ones within this factor (``benchmarks/instrument.py``), ...
AGREEMENT: Final = 2.0
#: ... but they rule nothing out before so many were seen beside measured ones, or where one is off by more than this.
_COMPARED: Final = 2
_UNUSABLE: Final = 30.0
#: Of the signatures that they rule out the first is measured all the same, and so is every one whose number is a power
#: of this: errors that agree where they are small may not where they are large.
_SAMPLED: Final = 8
#: What differs by less differs by the roundings of fp64.
_FLOOR: Final = 1e-14
#: Of the time that has passed, instrumented runs may take this share, and so many seconds besides.
_SHARE: Final = 0.25
_LEAST_S: Final = 10.0
#: A failure that says nothing of other signatures: kernels that do not have these types together.
_OF_ONE: Final = (Status.CONSTRAINT,)


@dataclass(frozen=True, slots=True)
class Foretold:
    """What an instrumented run says of a signature that nobody has measured.

    Attributes:
        trial: with the errors; a screened one (:attr:`~mptune.results.trial.Trial.is_screened`) if it is ruled out by
        them. agreement: by what factor these may exceed measured ones.
        is_sample: whether it is to be measured although they are so large, to see whether they hold.
    """

    trial: Trial
    agreement: float
    is_sample: bool = False


class Screening:
    """The instrumented errors of signatures, each run once, and how far they can be relied on.

    Args:
        tunable: what is tuned.
        job: what the process is told, of the host.
        limits: wall-clock limits.
        clock: of what the runs may take.
    """

    def __init__(self, tunable: Tunable, job: Job, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._tunable = tunable
        self._worker = DeviceWorker(job, limits)
        self._clock = clock
        self._began_s = clock()
        self._spent_s = 0.0
        self._known: dict[tuple[Value, ...], Mapping[str, float]] = {}
        #: By what factor instrumented errors of measured signatures were off, the worst of their metrics.
        self._off: dict[tuple[Value, ...], float] = {}
        #: The signatures that were to be ruled out, in order; some are measured instead.
        self._hopeless: dict[tuple[Value, ...], int] = {}
        #: Why there are no such runs any more; empty as long as there are.
        self._failure = ""

    @property
    def agreement(self) -> float:
        """By what factor an instrumented error may exceed a measured one; infinity as long as too few were seen."""
        return self.margin if len(self._off) >= _COMPARED else math.inf

    @property
    def margin(self) -> float:
        """By what factor it may as far as was seen, however few were; infinity where they are of no use."""
        return AGREEMENT * self._worst if self._worst <= _UNUSABLE else math.inf

    @property
    def why_not(self) -> str:
        """Why such runs rule nothing out, in one line; empty where they may."""
        if not self._failure and self._worst > _UNUSABLE:
            return (
                "no types are ruled out before they are compiled: an instrumented run was off by a factor of "
                f"{self._worst:.3g}"
            )
        return self._failure

    @property
    def _worst(self) -> float:
        return max(self._off.values(), default=1.0)

    def errors(self, configuration: Configuration) -> Mapping[str, float]:
        """Return the errors of a configuration's signature, by the names of their metrics; empty if not known."""
        signature = self._tunable.signature_of(configuration)
        if signature not in self._known and not self.why_not and self._is_in_time:
            began_s, is_first = self._clock(), not self._known
            self._known[signature] = self._run(configuration)
            # The first one compiles, which is done whether others follow or not.
            self._spent_s += 0.0 if is_first else self._clock() - began_s
        return self._known.get(signature, {})

    def is_sample(self, configuration: Configuration) -> bool:
        """Whether a signature that is about to be ruled out is measured instead, to see whether that is right."""
        number = self._hopeless.setdefault(self._tunable.signature_of(configuration), len(self._hopeless) + 1)
        while number % _SAMPLED == 0:
            number //= _SAMPLED
        return number == 1

    def compare(self, trials: Sequence[Trial]) -> None:
        """Learn how well errors agree from trials that were measured."""
        for trial in trials:
            signature = self._tunable.signature_of(trial.configuration)
            traced = self._known.get(signature, {})
            for name in filter(is_error, traced):
                measured = trial.metric(name)
                if math.isfinite(measured) and max(measured, traced[name]) > _FLOOR:
                    ratio = max(traced[name], _FLOOR) / max(measured, _FLOOR)
                    self._off[signature] = max(self._off.get(signature, 1.0), ratio, 1 / ratio)

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    @property
    def _is_in_time(self) -> bool:
        return self._spent_s <= _LEAST_S + _SHARE * (self._clock() - self._began_s)

    def _run(self, configuration: Configuration) -> Mapping[str, float]:
        try:
            answer = self._worker.ask(Traced(Request(configuration, "")))
        except MptuneError as error:
            self._give_up(str(error))
            return {}
        (trial,) = answer.trials
        if trial.status is Status.OK:
            return trial.measurement.metrics
        if trial.status is Status.CRASH and any(self._known.values()):
            return {"error": math.inf}  # others ran: rounded so, numbers lead the kernel out of its arrays
        if trial.status not in _OF_ONE:
            self._give_up(trial.message)
        return {}

    def _give_up(self, why: str) -> None:
        first, _, errors = why.partition("\n")
        shown = " ".join(f"{first} {errors.partition(chr(10))[0]}".split())
        self._failure = f"no types are ruled out before they are compiled, as there is no instrumented run: {shown}"
        self._worker.close()
