"""Optuna's tree-structured Parzen estimator, with constraints as its documentation recommends."""

from __future__ import annotations

import contextlib
import time

import optuna

from benchmarks.search.peers import PeerRun
from benchmarks.search.problem import BudgetSpent, Problem, Recorder
from mptune.space.configuration import Value

__all__ = ["prepare"]

_NUMBERS = ("ordinal", "integer", "real")


def prepare(problem: Problem) -> PeerRun:
    """Return a function that runs TPE."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def run(recorder: Recorder, seed: int) -> float | None:
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        started = time.perf_counter()
        with contextlib.suppress(BudgetSpent):
            while not recorder.done:
                _step(study, problem, recorder)
        return time.perf_counter() - started

    return run


def _step(study: optuna.Study, problem: Problem, recorder: Recorder) -> None:
    trial = study.ask()
    configuration = _suggest(trial, problem)
    if not problem.is_valid(configuration):
        recorder.count_proposal()
        trial.set_constraint("recorded", 1.0)
        # An infeasible trial needs some value; TPE ranks it by its violation alone.
        study.tell(trial, 0.0)
        return
    cost = recorder.propose(configuration)
    if cost is None:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return
    trial.set_constraint("recorded", 0.0)
    study.tell(trial, cost)


def _suggest(trial: optuna.Trial, problem: Problem) -> tuple[Value, ...]:
    configuration: list[Value] = []
    for name, kind, values in zip(problem.names, problem.kinds, problem.values, strict=True):
        if len(values) == 1:
            configuration.append(values[0])
        elif kind in _NUMBERS:
            configuration.append(values[trial.suggest_int(name, 0, len(values) - 1)])
        else:
            configuration.append(values[trial.suggest_categorical(name, list(range(len(values))))])
    return tuple(configuration)
