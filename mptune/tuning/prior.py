"""Errors of instrumented runs, taken before a search as a prior of its model of errors; they rule nothing out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mptune.errors import EmptySpaceError, MptuneError
from mptune.kernel import Tunable
from mptune.kernel.limits import spread
from mptune.measure.device import DeviceEvaluator
from mptune.results.trial import Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import PrecisionParameter, baseline_values, uniform_types
from mptune.space.search_space import SearchSpace

__all__ = ["PRIOR_DOUBT", "instrumented_prior"]

#: Decades by which instrumented errors differ from measured ones: a factor of two (``benchmarks/instrument.py``).
PRIOR_DOUBT: Final = 0.3


def instrumented_prior(
    kernel: Tunable, space: SearchSpace, evaluator: DeviceEvaluator, warn: Callable[[str], None]
) -> list[Trial]:
    """Return trials with the errors of an instrumented build; empty unless the kernel asks for it.

    Each uniform type is run, and each parameter alone in each narrower type with all others in the widest.
    """
    if not kernel.instrumented or not evaluator.policy.objective.limits:
        return []
    try:
        widest = spread(space.restrict(baseline_values(space.parameters)))[0]
    except EmptySpaceError:
        return []
    types = [p for p in map(space.parameter, kernel.signature_names) if isinstance(p, PrecisionParameter)]
    changes = [*uniform_types(space.parameters).values(), *({p.name: value} for p in types for value in p.values)]
    asked = dict.fromkeys(Configuration({**widest, **change}) for change in changes)
    try:
        return evaluator.instrumented([configuration for configuration in asked if configuration in space])
    except MptuneError as error:
        warn(f"the search begins without a prior of errors, as the instrumented run failed: {error}")
        return []
