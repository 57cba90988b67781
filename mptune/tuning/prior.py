"""What instrumented runs say of errors before a search: a prior of its model of errors, which rules nothing out."""

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

    They are of one type throughout, and of the widest types but one in each narrower type.
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
        warn(f"nothing is known of errors before the search, as there is no instrumented run: {error}")
        return []
