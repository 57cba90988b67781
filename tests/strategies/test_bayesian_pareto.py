"""The Bayesian search for a front: it finds it, exactly on small spaces, and uses what it is told."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from mixed_precision import SIGNATURE, Kernel
from numpy.typing import NDArray
from searches import drive

from mptune.errors import MptuneError, UnknownNameError
from mptune.results.objective import Objective
from mptune.results.pareto import FrontScale, front
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from tests.tiers import few

KERNEL = Kernel(None)
BYTES = {"fp64": 8, "fp32": 4, "fp16": 2}
TIME_AND_ERROR = Objective(also=("error",))


def _evaluate(configuration: Configuration) -> Trial:
    trial = KERNEL.evaluate(configuration)
    if not trial.is_valid:
        return trial
    metrics = dict(trial.measurement.metrics) | {"memory_bytes": _memory(configuration)}
    return Trial(configuration, trial.status, measurement=Measurement(metrics))


def _memory(configuration: Configuration) -> float:
    return float(sum(BYTES[str(configuration[name])] for name in SIGNATURE[:3]))


def _search(
    name: str, objective: Objective, budget: int, seed: int = 0, *, batch: int = 1, told: bool = True
) -> list[Trial]:
    def known(indices: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.array([_memory(c) for c in KERNEL.space.configurations(indices)])

    signature = SIGNATURE if told else ()
    strategy = make(
        name, KERNEL.space, objective, signature=signature, seed=seed, known={"memory_bytes": known} if told else {}
    )
    return drive(strategy, lambda c: objective.judge(_evaluate(c)), budget, batch)


@cache
def _scale(objective: Objective) -> FrontScale:
    every = [_evaluate(c) for c in KERNEL.space.configurations(range(KERNEL.space.size))]
    return FrontScale.of(np.array([objective.levels(t) for t in every if objective.is_feasible(t)]))


def _share(objective: Objective, trials: list[Trial]) -> float:
    return _scale(objective).share(np.array([objective.levels(t) for t in trials if objective.is_feasible(t)]))


@pytest.mark.nightly
@pytest.mark.parametrize(("batch", "least"), [(1, 0.97), (4, 0.95)])
def test_it_finds_nearly_the_whole_front(batch: int, least: float) -> None:
    shares = [_share(TIME_AND_ERROR, _search("bayesian-pareto", TIME_AND_ERROR, 60, s, batch=batch)) for s in range(2)]
    others = [_share(TIME_AND_ERROR, _search("nsga2", TIME_AND_ERROR, 120, s, batch=batch)) for s in range(2)]
    assert min(shares) > least
    assert min(shares) > max(others)


@pytest.mark.full
def test_under_a_threshold_it_spends_nothing_on_signatures_known_to_exceed_it() -> None:
    objective = Objective(threshold=1e-6, also=("error",))
    trials = _search("bayesian-pareto", objective, 50)
    bad = [t.configuration.subset(SIGNATURE) for t in trials if t.status is Status.INACCURATE]
    assert len(set(bad)) == len(bad) > 0
    assert _share(objective, trials) > 0.95


def _toy(seed: int) -> tuple[SearchSpace, dict[Configuration, Trial]]:
    """Return 64 configurations with random times, more for wider types, and errors by type."""
    space = SearchSpace(
        [
            OrdinalParameter("block", [1, 2, 4, 8]),
            OrdinalParameter("tile", [1, 2, 4, 8]),
            PrecisionParameter("type", ["fp64", "fp32", "fp16", "bf16"]),
        ]
    )
    rng = np.random.default_rng(seed)
    errors = {"fp64": 1e-16, "fp32": 1e-7, "fp16": 1e-3, "bf16": 1e-2}
    trials = {}
    for c in space.configurations(range(space.size)):
        far = (math.log2(float(c["block"])) - 2) ** 2 + (math.log2(float(c["tile"])) - 1) ** 2  # type: ignore[arg-type]
        width = {"fp64": 4.0, "fp32": 2.0}.get(str(c["type"]), 1.0)
        metrics = {"time_ms": width * (1 + 0.2 * far) * rng.uniform(1.0, 1.02), "error": errors[str(c["type"])]}
        trials[c] = Trial(c, Status.OK, measurement=Measurement(metrics))
    return space, trials


@pytest.mark.parametrize("seed", few(range(3)))
def test_it_finds_the_exact_front_of_a_small_space(seed: int) -> None:
    space, trials = _toy(seed)
    levels = np.array([TIME_AND_ERROR.levels(t) for t in trials.values()])
    wanted = {list(trials)[i] for i in front(levels, [True, True])}
    strategy = make("bayesian", space, TIME_AND_ERROR, signature=("type",), seed=seed)
    asked: list[Configuration] = []
    while not wanted <= set(asked):
        asked += strategy.ask(1)
        strategy.tell([trials[asked[-1]]])
    assert len(asked) <= 36


@pytest.mark.parametrize("name", ["genetic", "bayesian-baco"])
def test_a_strategy_of_one_objective_says_which_can_have_several(name: str) -> None:
    message = rf"{name} supports one objective.*time_ms, error.*: bayesian-pareto, exhaustive, nsga2, random"
    with pytest.raises(MptuneError, match=message):
        make(name, KERNEL.space, TIME_AND_ERROR)


def test_a_metric_no_trial_has_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match="'enery_j'.*valid: error, .*time_ms"):  # noqa: RUF043
        _search("bayesian-pareto", Objective(also=("enery_j",)), 5)


def test_a_negative_objective_is_refused_with_a_way_out() -> None:
    with pytest.raises(MptuneError, match=r"objective 'log10_error' is -\d+.*2 \*\* \(log10_error\)"):
        _search("bayesian-pareto", Objective(also=("log10_error",)), 5)


def test_an_error_of_zero_and_one_that_is_not_finite_do_no_harm() -> None:
    space, trials = _toy(0)

    def changed(trial: Trial) -> Trial:
        kind = trial.configuration["type"]
        if kind == "bf16":
            return Trial(trial.configuration, Status.NON_FINITE, "infinite")
        metrics = dict(trial.measurement.metrics) | ({"error": 0.0} if kind == "fp64" else {})
        return Trial(trial.configuration, Status.OK, measurement=Measurement(metrics))

    strategy = make("bayesian-pareto", space, TIME_AND_ERROR, signature=("type",))
    asked: list[Configuration] = []
    while found := strategy.ask(3):
        asked += found
        strategy.tell([changed(trials[c]) for c in found])
    assert len(set(asked)) == space.size
    # What is known not to be finite comes last.
    assert sum(c["type"] == "bf16" for c in asked[:40]) <= 8


@pytest.mark.full
def test_three_objectives_and_what_is_known_of_them() -> None:
    objective = Objective(also=("error", "memory_bytes"))
    informed, uninformed = (_share(objective, _search("bayesian-pareto", objective, 50, told=t)) for t in (True, False))
    assert informed > 0.97
    assert informed > uninformed > _share(objective, _search("random", objective, 50))
