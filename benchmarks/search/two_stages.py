"""Tuning precision and everything else one after the other (Heldens 2026, Sec. V-G), on a recorded space.

Of the two kinds of parameters, precision ones are the types and the policies, optimisation ones all others. The first
stage searches one kind while the other is fixed: precision to its most accurate values, optimisation to its plainest.
The second stage fixes what the first found best and searches the other kind. The budget is divided in proportion to
the number of parameters of each kind; what a small first stage leaves over goes to the second, or in a strict split is
not spent: where both kinds have few combinations, what is passed on is enough to try them all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from benchmarks.search.driving import drive
from mptune.interop import read_run
from mptune.measure.base import Replay
from mptune.precision import POLICIES, precision
from mptune.results.objective import Objective
from mptune.results.trial import Trial
from mptune.run import Run
from mptune.space.configuration import Configuration, Value
from mptune.space.parameters import PolicyParameter, PrecisionParameter
from mptune.strategies import make

__all__ = ["DENSE", "ORDERS", "TARGET", "Halves", "search_in_stages"]

#: The target of :func:`search_in_stages`.
TARGET: Final = "benchmarks.search.two_stages:search_in_stages"
#: Below this part of all combinations a stage would mostly ask for what is not recorded.
DENSE: Final = 0.5
#: Which kind of parameters is searched first.
ORDERS: Final[Mapping[str, str]] = {
    "performance then precision": "optimisation",
    "precision then performance": "precision",
}


@dataclass(frozen=True)
class Halves:
    """A recorded space as two kinds of parameters."""

    recorded: Run

    @cached_property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the parameters of each kind, those with one value left out."""
        varied = [parameter for parameter in self.recorded.space.parameters if len(parameter.values) > 1]
        is_precision = {p.name: isinstance(p, PrecisionParameter | PolicyParameter) for p in varied}
        return {
            "precision": tuple(name for name, yes in is_precision.items() if yes),
            "optimisation": tuple(name for name, yes in is_precision.items() if not yes),
        }

    @cached_property
    def trials(self) -> Mapping[Configuration, Trial]:
        """The recorded trials by configuration."""
        return {trial.configuration: trial for trial in self.recorded.trials}

    @property
    def density(self) -> float:
        """How many of the combinations of recorded precisions and recorded optimisations are recorded.

        Where few are, most of what a stage would try is not there.
        """
        combinations = math.prod(len({c.subset(names) for c in self.trials}) for names in self.names.values())
        return len(self.trials) / combinations

    def budgets(self, order: str, budget: int) -> tuple[int, int]:
        """Return the evaluations of the first and of the second stage."""
        counts = {kind: len(names) for kind, names in self.names.items()}
        first = round(budget * counts[ORDERS[order]] / max(sum(counts.values()), 1))
        first = min(max(first, 1), budget - 1)
        return first, budget - first

    @cached_property
    def start(self) -> Configuration:
        """The most accurate of the recorded configurations; of those, the plainest that ran.

        Plainest: nearest to the first value of every optimisation parameter.
        """
        return min(self.trials.values(), key=self._from_start).configuration

    def _from_start(self, trial: Trial) -> tuple[float, bool, int, tuple[int, ...]]:
        values = trial.configuration
        inaccuracy = sum(_inaccuracy(values[name]) for name in self.names["precision"])
        space = self.recorded.space
        codes = tuple(space.parameter(name).values.index(values[name]) for name in self.names["optimisation"])
        return inaccuracy, not trial.is_valid, sum(codes), codes


def _inaccuracy(value: Value) -> float:
    """Return the bits a type lacks, or the place of a policy from the accurate one on."""
    if value in POLICIES:
        return float(POLICIES.index(str(value)))
    return math.log2(precision(str(value)).unit_roundoff)


def search_in_stages(settings: Mapping[str, Any]) -> Callable[[int], dict[str, Any]]:
    """Return a function of the seed that tunes one kind of parameters after the other.

    Args:
        settings: ``space``: a file; ``budget``; ``tool``: settings of a strategy; ``max_error``; ``order``: one of
            :data:`ORDERS`; ``strict``: whether what the first stage leaves over is not spent (False).

    Returns:
        A function whose result holds ``best`` (best feasible time after each evaluation of both stages, None while
        there is none), ``strategy_s``, and ``stages`` (evaluations of each stage).
    """
    halves = Halves(read_run(settings["space"]))
    tool, order, budget = settings["tool"], settings["order"], settings["budget"]
    goal = Objective(threshold=settings["max_error"], penalty=tool["penalty"])
    goal = halves.recorded.derive(objective=goal).objective
    first_budget, second_budget = halves.budgets(order, budget)
    first = ORDERS[order]
    second = next(kind for kind in halves.names if kind != first)
    # A tuner of performance alone does not know of errors.
    first_goal = goal if first == "precision" else replace(goal, threshold=None)

    def run(seed: int) -> dict[str, Any]:
        started = time.perf_counter()
        trials, spent_s = _search(halves, second, halves.start, first_goal, tool, first_budget, seed)
        found = first_goal.best(trials)
        # Where the first stage finds nothing, one goes on from where one was.
        base = halves.start if found is None else found.configuration
        left = second_budget if settings.get("strict", False) else budget - len(trials)
        more, more_s = _search(halves, first, base, goal, tool, left, seed)
        return {
            "best": _best_so_far([*trials, *more], goal),
            "strategy_s": spent_s + more_s,
            "wall_s": time.perf_counter() - started,
            "stages": [len(trials), len(more)],
        }

    return run


def _search(
    halves: Halves, fixed: str, base: Configuration, goal: Objective, tool: Mapping[str, Any], budget: int, seed: int
) -> tuple[list[Trial], float]:
    """Return the trials of a search with one kind of parameters as in ``base``, and the seconds the strategy took."""
    space = halves.recorded.space.restrict({name: [base[name]] for name in halves.names[fixed]})
    evaluator = Replay(halves.recorded)
    signature = halves.recorded.info.signature
    strategy = make(tool["strategy"], space, goal, signature=signature, seed=seed, options=tool["options"])
    trials: list[Trial] = []

    def evaluate(asked: Sequence[Configuration]) -> list[Trial]:
        found = list(evaluator.evaluate(asked))
        trials.extend(found)
        return found

    return trials, sum(drive(strategy, evaluate, budget).seconds)


def _best_so_far(trials: list[Trial], goal: Objective) -> list[float | None]:
    best: list[float | None] = []
    for trial in trials:
        last = best[-1] if best else None
        if goal.is_feasible(trial):
            value = goal.value(trial)
            best.append(value if last is None else min(last, value))
        else:
            best.append(last)
    return best
