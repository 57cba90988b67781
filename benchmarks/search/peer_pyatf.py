"""pyATF: chain of trees, AUC bandit over simulated annealing, pattern search and Torczon."""

from __future__ import annotations

import contextlib
import inspect
import random
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from pyatf import TP, Set, Tuner
from pyatf.abort_conditions.abort_condition import AbortCondition
from pyatf.search_space import SearchSpace
from pyatf.search_techniques import AUCBandit, PatternSearch, SimulatedAnnealing, Torczon
from pyatf.tuning_data import CostFunctionError, TuningData

from benchmarks.search.peers import PeerRun
from benchmarks.search.problem import BudgetSpent, Problem, Recorder

__all__ = ["prepare"]


class _Spent(AbortCondition):  # type: ignore[misc]
    """Stops when the budget of unique evaluations is spent; pyATF's own conditions count repetitions."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def stop(self, tuning_data: TuningData) -> bool:  # noqa: ARG002
        return self._recorder.done


def prepare(problem: Problem) -> PeerRun:
    """Return a function that runs pyATF; its search space is generated once."""
    space = SearchSpace(*_parameters(problem), verbosity=0)

    def run(recorder: Recorder, seed: int) -> float | None:
        random.seed(seed)
        spent_s = 0.0

        def cost(configuration: dict[str, Any]) -> float:
            nonlocal spent_s
            started = time.perf_counter()
            value = recorder.propose(tuple(configuration[name] for name in problem.names))
            spent_s += time.perf_counter() - started
            if value is None:
                raise CostFunctionError("failed on the device")
            return value

        # The default technique's default arguments are shared between instances, so they are made here.
        technique = AUCBandit((SimulatedAnnealing(), PatternSearch(), Torczon()))
        tuner = Tuner().search_space(space).search_technique(technique).verbosity(0)
        started = time.perf_counter()
        with contextlib.suppress(BudgetSpent):
            tuner.tune(cost, _Spent(recorder))
        return time.perf_counter() - started - spent_s

    return run


def _parameters(problem: Problem) -> list[TP]:
    """Return tuning parameters; each is constrained by those before it to the beginnings of recorded configurations."""
    parameters = []
    for position, (name, values) in enumerate(zip(problem.names, problem.values, strict=True)):
        beginnings = {configuration[: position + 1] for configuration in problem.configurations}
        constraint = _begins_one(problem.names[: position + 1], beginnings)
        parameters.append(TP(name, Set(*values), constraint))
    return parameters


def _begins_one(names: Sequence[str], beginnings: AbstractSet[tuple[Any, ...]]) -> Callable[..., bool]:
    def constraint(**values: Any) -> bool:
        return tuple(values[name] for name in names) in beginnings

    # pyATF finds out what a constraint depends on from the names of its arguments.
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    constraint.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return constraint
