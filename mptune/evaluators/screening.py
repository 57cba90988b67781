"""What instrumented runs say of signatures that nobody has compiled: those that are hopeless need not be.

They run in a process of their own, on the host whatever the device, so that a kernel that fails there leaves everything
else standing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from mptune.errors import MptuneError
from mptune.evaluators.bench import Request
from mptune.evaluators.protocol import Job, Traced
from mptune.evaluators.worker_process import DeviceWorker, Limits
from mptune.kernel import Tunable
from mptune.metric_expressions import is_error
from mptune.results import Status, Trial
from mptune.space.configuration import Configuration, Value

__all__ = ["AGREEMENT", "Screening"]

#: Instrumented errors agree with measured ones within this factor (``benchmarks/instrument.py``).
AGREEMENT: Final = 2.0
#: What differs by less differs by the roundings of fp64.
_FLOOR: Final = 1e-14
#: A failure that says nothing of other signatures: kernels that do not have these types together.
_OF_ONE: Final = (Status.CONSTRAINT,)


class Screening:
    """The instrumented errors of signatures, each run once.

    Args:
        tunable: what is tuned.
        job: what the process is told, of the host.
        limits: wall-clock limits.
    """

    def __init__(self, tunable: Tunable, job: Job, limits: Limits) -> None:
        self._tunable = tunable
        self._worker = DeviceWorker(job, limits)
        self._known: dict[tuple[Value, ...], Mapping[str, float]] = {}
        #: How many times as large as a measured error an instrumented one has been, at most.
        self._largest_excess = 1.0
        #: Why there are no such runs any more; empty as long as there are.
        self.why_not = ""

    @property
    def agreement(self) -> float:
        """By what factor an instrumented error may exceed a measured one, from what is known of this run."""
        return AGREEMENT * self._largest_excess

    def errors(self, configuration: Configuration) -> Mapping[str, float]:
        """Return the errors of a configuration's signature, by the names of their metrics; empty if not known."""
        signature = self._tunable.signature_of(configuration)
        if signature not in self._known and not self.why_not:
            self._known[signature] = self._run(configuration)
        return self._known.get(signature, {})

    def compare(self, trials: Sequence[Trial]) -> None:
        """Learn how well errors agree from trials that were measured."""
        for trial in trials:
            traced = self._known.get(self._tunable.signature_of(trial.configuration), {})
            for name in filter(is_error, traced):
                measured = max(trial.metric(name), _FLOOR)
                if math.isfinite(measured) and math.isfinite(traced[name]):
                    self._largest_excess = max(self._largest_excess, traced[name] / measured)

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    def _run(self, configuration: Configuration) -> Mapping[str, float]:
        try:
            answer = self._worker.ask(Traced(Request(configuration, "")))
        except MptuneError as error:
            self._give_up(str(error))
            return {}
        (trial,) = answer.trials
        if trial.status is Status.OK:
            return trial.measurement.metrics
        if trial.status not in _OF_ONE:
            self._give_up(trial.message)
        return {}

    def _give_up(self, why: str) -> None:
        self.why_not = (
            f"no types are ruled out before they are compiled, as there is no instrumented run: {' '.join(why.split())}"
        )
        self._worker.close()
