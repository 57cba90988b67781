"""The outputs of a kernel or an application in its widest types, as its reference if it has no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from mptune.accuracy.evaluate import masked_elements
from mptune.accuracy.pairs import still_poisoned
from mptune.backends.base import Backend, CompileOptions
from mptune.errors import ConstraintError, KernelError
from mptune.kernel import Sizes, Tunable
from mptune.kernel.limits import widest
from mptune.measure.buffers import run_once
from mptune.measure.program import Program, first_that_runs
from mptune.space.configuration import Configuration

_Tunable = TypeVar("_Tunable", bound=Tunable)


@dataclass(eq=False)
class OwnAnswer:
    """Runs a kernel or an application in its widest types to make references.

    ``announce`` is called with "reference" when a run begins, and with "inputs" when it has ended.
    """

    #: Maximum relative difference of two runs in the widest types (maybe fp32): the order of additions may vary.
    largest_difference: ClassVar[float] = 1e-6

    tunable: Tunable
    backend: Backend
    options: CompileOptions
    announce: Callable[[str], None] = lambda _: None
    known: Configuration | None = None  #: of the last run

    def __call__(self, inputs: Mapping[str, Any], sizes: Sizes) -> dict[str, NDArray[Any]]:
        """Return the outputs in fp64."""
        tunable, backend = self.tunable, self.backend

        def run(configuration: Configuration) -> dict[str, NDArray[Any]]:
            with Program(tunable, configuration, sizes, backend, self.options) as program:
                self.announce("reference")
                return run_once(program, inputs)

        candidates = [self.known] if self.known else widest(tunable, sizes, backend.device.facts())
        try:
            self.known, outputs = first_that_runs(candidates, run)
        except ConstraintError as error:
            raise KernelError(
                f"{tunable.called}: none of {len(candidates)} configurations in its widest types runs: {error}"
            ) from error
        finally:
            self.announce("inputs")
        for name, values in outputs.items():
            flat = values.reshape(-1)
            what = f"of {flat.size} elements of its output {name!r}"
            unwritten, is_infinite = still_poisoned(flat).size, np.isinf(flat)
            # An integer may equal the pattern by chance.
            if unwritten and (flat.dtype.kind == "f" or unwritten == flat.size):
                raise KernelError(f"{tunable.called} never writes {unwritten} {what}")
            if is_infinite.any():
                raise KernelError(
                    f"{tunable.called} gives infinity for {np.count_nonzero(is_infinite)} {what} in its widest "
                    f"types, the first is element {is_infinite.argmax()}: nothing to compare narrower types with"
                )
        return outputs


def masked_remarks(tunable: Tunable, references: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    """Return remarks on outputs with elements that are not compared, as their reference is NaN."""
    is_own = isinstance(tunable.reference, OwnAnswer)
    where = "run in the widest types, which is the reference," if is_own else "reference"
    return tuple(
        f"{count} of {references[name].size} elements of output {name!r} are NaN in the {where} and are not compared"
        for name, count in masked_elements(references).items()
    )


def with_reference(
    tunable: _Tunable,
    backend: Backend,
    options: CompileOptions,
    announce: Callable[[str], None] = lambda _: None,
) -> _Tunable:
    """Return a kernel or an application with its own outputs as a reference, if it has none."""
    if tunable.reference is not None:
        return tunable
    return tunable.changed(reference=OwnAnswer(tunable, backend, options, announce))
