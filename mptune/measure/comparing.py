"""How far outputs are from their references: compared on the device where it has arrays, else on the host."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mptune.accuracy.evaluate import Metrics, evaluate_outputs, judging
from mptune.accuracy.metrics import rehearse
from mptune.accuracy.pairs import Elements, Pairs, bits_type, can_decode, count_unwritten
from mptune.backends.base import Backend, Buffer
from mptune.data import DataManager
from mptune.kernel import Role, Tunable
from mptune.measure.buffers import Buffers, Memory
from mptune.results.trial import Status

__all__ = ["Comparison", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state of the outputs after a launch."""

    status: Status = Status.OK
    message: str = ""
    errors: Mapping[str, float] = field(default_factory=dict)  #: by metric
    digest: tuple[int, ...] = ()  #: checksums of the outputs; equal outputs need not be compared again
    masked: tuple[str, ...] = ()  #: outputs with elements that were not compared, as their reference is NaN


class Comparison:
    """Compares the outputs of configurations of one kernel or application.

    ``no_arrays`` says why the device's arrays cannot be computed with though it has some; empty otherwise.
    """

    def __init__(self, tunable: Tunable, backend: Backend, memory: Memory, metrics: Metrics) -> None:
        self._backend = backend
        self._memory = memory
        self._metrics = metrics
        by_output = judging([output.name for output in tunable.outputs], metrics)
        #: Outputs whose metrics are not a user's.
        self._anywhere = {name: own for name, own in by_output.items() if all(m.is_bundled for m in own)}
        #: By data and output, what metrics computed of a reference alone.
        self._known: weakref.WeakKeyDictionary[DataManager, dict[str, dict[Any, Any]]] = weakref.WeakKeyDictionary()
        self.no_arrays = ""
        if memory.namespace is not None:
            try:
                for metric in dict.fromkeys(metric for own in self._anywhere.values() for metric in own):
                    rehearse(memory.namespace, metric)
            except Exception as error:
                # A module that compiles what it computes fails in as many ways as there are installations.
                memory.namespace = None
                self.no_arrays = f"{type(error).__name__}: {error}"

    def outcome(self, buffers: Buffers, known: Outcome | None = None) -> Outcome:
        """Compare the outputs as they are now, unless they are those of an outcome that is known."""
        outputs = buffers.program.tunable.outputs
        digest = tuple(self._memory.checksum(buffers.places[output.name]) for output in outputs)
        if known is not None and known.digest == digest:
            return known
        try:
            outcome = self._compared(buffers, self._pair)
        except MemoryError:
            # The device holds the data but not what it takes to compare them.
            outcome = self._compared(buffers, self._host_pair)
        return dataclasses.replace(outcome, digest=digest)

    def _compared(self, buffers: Buffers, pair: Callable[[Buffers, str], Pairs]) -> Outcome:
        data = buffers.data
        outputs = {output.name: pair(buffers, output.name) for output in buffers.program.tunable.outputs}
        missing = [
            f"{count} of {pairs.size} elements of {name!r}"
            for name, pairs in outputs.items()
            if buffers.program.arguments[name].role is Role.OUT and (count := count_unwritten(pairs))
        ]
        if missing:
            return Outcome(Status.UNWRITTEN, f"the kernel never wrote {', '.join(missing)}")
        # A signalling NaN that a kernel copied from beyond a buffer is no reason to warn.
        with np.errstate(invalid="ignore"):
            result = evaluate_outputs(outputs, data.references, self._metrics, data.inputs)
        if result.non_finite or result.is_nan:
            return Outcome(Status.NON_FINITE, result.message, result.metrics)
        masked = tuple(name for name, pairs in outputs.items() if pairs.has_masked)
        return Outcome(errors=result.metrics, masked=masked)

    def _pair(self, buffers: Buffers, name: str) -> Pairs:
        """Return an output beside its reference, valid up to the next launch: on the device where it can be compared.

        It is compared on the host where the device has no arrays to compute with, the error metric is a user's, doubles
        do not hold the values, or there is no room for the reference.
        """
        stored, values = buffers.program.dtype_of(name), buffers.data.references[name]
        if self._memory.namespace is not None and name in self._anywhere and can_decode(stored):
            reference = self._memory.reference(buffers, name)
            if reference is not None:
                output = self._view(buffers.places[name], stored, values.shape)
                known = self._known.setdefault(buffers.data, {}).setdefault(name, {})
                return Pairs.of(output, self._view(reference, values.dtype, values.shape), known)
        return self._host_pair(buffers, name)

    def _host_pair(self, buffers: Buffers, name: str) -> Pairs:
        stored, values = buffers.program.dtype_of(name), buffers.data.references[name]
        # A user's metric may write to what it is given; others need no copy.
        seen = buffers.places[name].seen() if name in self._anywhere else None
        output = buffers.stored(name) if seen is None else seen.view(stored).reshape(values.shape)
        return Pairs.of(output, values, self._known.setdefault(buffers.data, {}).setdefault(name, {}))

    def _view(self, buffer: Buffer, stored: np.dtype[Any], shape: tuple[int, ...]) -> Elements:
        bits = self._backend.device.array(buffer, bits_type(stored))
        return Elements(self._memory.namespace, bits, stored, shape)
