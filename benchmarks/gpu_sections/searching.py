"""Several searches over one kernel that share a worker and their trials."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from benchmarks.gpu_sections.section import Options
from mptune.kernel import Kernel, Sizes
from mptune.measure.device import DeviceEvaluator
from mptune.measure.pool import compilers_ahead
from mptune.measure.timing import TimingPlan
from mptune.results.objective import Objective
from mptune.results.trial import Trial
from mptune.space.configuration import Configuration
from mptune.space.search_space import SearchSpace
from mptune.strategies import make

__all__ = ["PLAN", "described", "evaluator_of", "fastest", "search"]

#: A search only has to find candidates, which are timed again afterwards.
PLAN: Final = TimingPlan(warmups=1, min_repeats=3, max_repeats=30, cap_s=0.03, patience_s=0.2)


def evaluator_of(kernel: Kernel, sizes: Sizes, options: Options, observers: Sequence[str] = ()) -> DeviceEvaluator:
    """Return an evaluator of a kernel that compiles ahead."""
    return DeviceEvaluator(
        kernel,
        sizes,
        options.backend,
        seed=options.seed,
        plan=PLAN,
        compilers=compilers_ahead(options.backend),
        observers=observers,
    )


def search(
    evaluator: DeviceEvaluator,
    kernel: Kernel,
    space: SearchSpace,
    objective: Objective,
    known: dict[Configuration, Trial],
    until: float,
    seed: int,
    first: Sequence[Configuration] = (),
) -> None:
    """Search a space with Bayesian optimisation until a deadline, and add the trials to the known ones.

    Args:
        evaluator: evaluates.
        kernel: the kernel.
        space: the space or a part of it.
        objective: what is searched for.
        known: trials by configuration, of this space or not; the search learns from those in it.
        until: what the monotonic clock shows at the end.
        seed: seeds the search.
        first: configurations to begin with, as far as they are in the space and not known.
    """
    strategy = make("bayesian", space, objective, signature=kernel.signature_names, seed=seed)
    strategy.tell(list(known.values()))
    asked = [c for c in dict.fromkeys(first) if c in space and c not in known]
    while time.monotonic() < until and (asked := asked or strategy.ask(evaluator.lead)):
        trials = []
        for trial in evaluator.evaluate(asked):
            trials.append(trial)
            if time.monotonic() >= until:
                break
        known |= {trial.configuration: trial for trial in trials}
        strategy.tell(trials)
        asked = []


def fastest(trials: Iterable[Trial], values: Mapping[str, Sequence[Any]], tau: float, count: int) -> list[Trial]:
    """Return the fastest valid trials that have the given values and an error of at most ``tau``."""
    admitted = [
        trial
        for trial in trials
        if trial.is_valid and trial.error <= tau and all(trial.configuration[name] in values[name] for name in values)
    ]
    return sorted(admitted, key=lambda trial: trial.time_ms)[:count]


def described(configuration: Configuration) -> dict[str, Any]:
    """Return a configuration as a JSON object."""
    return dict(configuration)
