"""pymoo's NSGA-II on integers, with constraints as its documentation recommends.

Genes are the positions of the values of each parameter; crossover, mutation and rounding are those of its page on
discrete variables. A configuration that is not recorded violates a constraint, which survival ranks below every
feasible one, and costs no evaluation. The first population are random recorded configurations: a sample of all
combinations would be nearly all infeasible. The population is 20, as in its examples of mixed variables, since its
default of 100 is nearly the whole budget.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.problem import ElementwiseProblem
from pymoo.operators.crossover.sbx import SBX
from pymoo.operators.mutation.pm import PM
from pymoo.operators.repair.rounding import RoundingRepair
from pymoo.optimize import minimize

from benchmarks.fronts.problem import FrontProblem, FrontRecorder
from benchmarks.search.problem import BudgetSpent

__all__ = ["prepare"]

_POPULATION = 20
_UNKNOWN = 1e3


class _Recorded(ElementwiseProblem):  # type: ignore[misc]
    def __init__(self, problem: FrontProblem, recorder: FrontRecorder) -> None:
        self._values = problem.problem.values
        self._recorder = recorder
        upper = np.array([len(values) - 1 for values in self._values])
        super().__init__(
            n_var=len(upper),
            n_obj=problem.levels.shape[1],
            n_ieq_constr=1,
            xl=np.zeros(len(upper), dtype=int),
            xu=upper,
            vtype=int,
        )

    def _evaluate(self, x: Any, out: dict[str, Any], *_: Any, **__: Any) -> None:
        configuration = tuple(values[int(code)] for values, code in zip(self._values, x, strict=True))
        levels = self._recorder.propose(configuration)
        out["F"] = np.full(self.n_obj, _UNKNOWN) if levels is None else levels
        out["G"] = [1.0 if levels is None else -1.0]


def prepare(problem: FrontProblem) -> Any:
    """Return a function that runs it with a recorder and a seed."""
    codes = np.array(
        [
            [values.index(value) for values, value in zip(problem.problem.values, row, strict=True)]
            for row in problem.problem.configurations
        ]
    )

    def run(recorder: FrontRecorder, seed: int) -> None:
        first = np.random.default_rng(seed).permutation(len(codes))[:_POPULATION]
        algorithm = NSGA2(
            pop_size=_POPULATION,
            sampling=codes[first],
            crossover=SBX(prob=1.0, eta=3.0, vtype=float, repair=RoundingRepair()),
            mutation=PM(prob=1.0, eta=3.0, vtype=float, repair=RoundingRepair()),
            eliminate_duplicates=True,
        )
        with contextlib.suppress(BudgetSpent):
            minimize(_Recorded(problem, recorder), algorithm, ("n_eval", 10**6), seed=seed, verbose=False)

    return run
