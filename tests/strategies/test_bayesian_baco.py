from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pytest
from mixed_precision import SIGNATURE, Kernel
from searches import drive

from mptune.errors import MptuneError
from mptune.objective import Objective
from mptune.results import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter, PermutationParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.bayesian_baco import BayesianBacoStrategy
from mptune.strategies.model_based.baco_forest import BacoForest
from mptune.testing.strategies import StrategyConformance

#: Cheaper than the defaults, where the defaults are not what is tested.
QUICK = {"trees": 10, "fit_samples": 3, "fit_starts": 1, "iterations": 15, "refit": 1.25}


class TestConformance(StrategyConformance):
    """The defaults are tested beside those of the other strategies; here are samples and local search."""

    strategy = BayesianBacoStrategy

    options: ClassVar = QUICK | {
        "points": 20,
        "starts": 2,
        "elite": 1,
        "iterations": 5,
        "permutation": "kendall",
        "neighbourhood": "adjacent",
        "log": False,
        "trees": 4,
    }


def _strategy(kernel: Kernel, seed: int = 0, **options: object) -> BayesianBacoStrategy:
    made = make(
        "bayesian-baco", kernel.space, kernel.objective, signature=SIGNATURE, seed=seed, options=QUICK | options
    )
    assert isinstance(made, BayesianBacoStrategy)
    return made


# -- how well it finds -----------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("threshold", [None, 3e-6])
def test_beats_random_in_the_mean(threshold: float | None) -> None:
    kernel = Kernel(threshold)
    ours = [kernel.regret(kernel.search("bayesian-baco", 50, seed, **QUICK)) for seed in range(3)]
    random = [kernel.regret(kernel.search("random", 150, seed)) for seed in range(3)]
    assert np.mean(ours) < 0.5 * np.mean(random)


@pytest.mark.parametrize("options", [{"points": 200}, {"points": 200, "neighbourhood": "adjacent"}, {"log": False}])
def test_finds_nearly_the_best_in_samples_and_without_the_transform(options: dict[str, object]) -> None:
    kernel = Kernel(None)
    regrets = [kernel.regret(kernel.search("bayesian-baco", 50, s, **(QUICK | options))) for s in range(2)]
    assert np.mean(regrets) < 0.1


@pytest.mark.parametrize("permutation", ["spearman", "kendall", "hamming", "naive"])
def test_finds_the_best_order_of_loops(permutation: str) -> None:
    space = SearchSpace([PermutationParameter("loops", 5), OrdinalParameter("tile", [1, 2, 4, 8])])
    target = (2, 0, 4, 1, 3)

    def evaluate(c: Configuration) -> Trial:
        moved = sum(abs(c["loops"].index(e) - target.index(e)) for e in range(5))  # type: ignore[union-attr]
        time_ms = 1.0 + moved + abs(math.log2(float(c["tile"])) - 2.0)  # type: ignore[arg-type]
        return Trial(c, Status.OK, measurement=Measurement({"time_ms": time_ms}))

    strategy = make("bayesian-baco", space, Objective(), seed=0, options=QUICK | {"permutation": permutation})
    assert min(trial.time_ms for trial in drive(strategy, evaluate, 50)) <= 3.0


@pytest.mark.full
def test_finds_the_best_beside_a_hidden_constraint() -> None:
    kernel = Kernel(None, shared_limit=1024)
    sample = kernel.space.configurations(kernel.space.sample(1000, np.random.default_rng(0)))
    assert np.mean([not kernel.evaluate(c).is_valid for c in sample]) > 0.3
    assert np.mean([kernel.regret(kernel.search("bayesian-baco", 50, s, **QUICK)) for s in range(2)]) < 0.05


def test_batches_cost_little_and_are_spread_out() -> None:
    kernel = Kernel(None)
    strategy = _strategy(kernel)
    trials = drive(strategy, kernel.evaluate, 56, batch=8)
    assert kernel.regret(trials) < 0.1
    batch = strategy.ask(8)
    codes = kernel.space.codes([kernel.space.index(c) for c in batch])
    assert len(np.unique(codes, axis=0)) == 8
    assert len(strategy._model._imagined) == 7


def test_a_failure_is_no_longer_imagined() -> None:
    kernel = Kernel(None)
    strategy = _strategy(kernel)
    drive(strategy, kernel.evaluate, 15)
    waiting = strategy.ask(3)
    failed, *others = (kernel.space.index(c) for c in waiting)
    strategy.tell([Trial(waiting[0], Status.CRASH, "")])
    strategy._update()
    assert failed not in strategy._model._imagined
    assert list(strategy._model._imagined) == others


# -- what it learns from ---------------------------------------------------------------------------


def test_failures_feed_the_forest_alone() -> None:
    kernel = Kernel(None, shared_limit=512)
    strategy = _strategy(kernel)
    trials = drive(strategy, kernel.evaluate, 25)
    ran = [t for t in trials if t.is_valid]
    assert 0 < len(ran) < 25
    assert len(strategy._observations) == len(ran)
    assert strategy._forest.is_grown


@pytest.mark.parametrize("penalty", ["hard", "linear", "decay"])
def test_inaccurate_trials_count_as_the_penalty_says(penalty: str) -> None:
    kernel = Kernel(1e-9)
    objective = Objective(threshold=1e-9, penalty=penalty)
    strategy = make("bayesian-baco", kernel.space, objective, seed=0, options=QUICK)
    assert isinstance(strategy, BayesianBacoStrategy)
    trials = drive(strategy, kernel.evaluate, 30)
    assert {o.score for o in strategy._observations.values()} == {objective.score(t) for t in trials if t.is_valid}
    assert strategy._fitted_to > 10


def test_a_resumed_run_needs_no_initial_sample() -> None:
    kernel = Kernel(None)
    first = _strategy(kernel, seed=1, initial=12)
    told = drive(first, kernel.evaluate, 12)
    resumed = _strategy(kernel, seed=2, initial=12)
    resumed.tell(told)
    resumed.ask()
    assert resumed._fitted_to == sum(t.is_valid for t in told)


def test_a_baseline_does_not_replace_the_initial_sample() -> None:
    kernel = Kernel(None)
    names = {name: ["fp64"] for name in SIGNATURE[:-1]}
    strategy = _strategy(kernel)
    strategy.tell([kernel.evaluate(c) for c in kernel.space.restrict(names).configurations(range(12))])
    asked = strategy.ask(10)
    assert strategy._pool is None
    assert len({c.subset(SIGNATURE) for c in asked}) > 5
    strategy.tell([kernel.evaluate(c) for c in asked])
    strategy.ask()
    # What was told is learnt from all the same.
    assert strategy._fitted_to > 12


def test_draws_at_random_until_something_runs() -> None:
    kernel = Kernel(None)
    strategy = _strategy(kernel, initial=3)
    for _ in range(8):
        strategy.tell([Trial(c, Status.CRASH, "") for c in strategy.ask()])
    assert strategy._pool is None
    strategy.tell([kernel.evaluate(c) for c in strategy.ask()])
    strategy.ask()
    assert strategy._pool is not None


# -- the acquisition function ----------------------------------------------------------------------


def _fitted(least_levels: int = 11, **options: object) -> tuple[Kernel, BayesianBacoStrategy]:
    kernel = Kernel(None, shared_limit=1024)
    strategy = _strategy(kernel, least_feasible_levels=least_levels, **options)
    drive(strategy, kernel.evaluate, 40)
    strategy._update()
    assert strategy._forest.is_grown
    return kernel, strategy


@pytest.mark.parametrize("least", [0.0, 0.05, 0.5, 0.95])
def test_the_leaders_are_those_of_the_whole_pool(least: float) -> None:
    _, strategy = _fitted()
    pool = strategy._pool
    assert pool is not None
    probability = strategy._forest.probability(pool.features)
    value = strategy._model.log_improvement() + np.log(np.maximum(probability, 1 / 11))
    value[(probability < least) | ~pool.free] = -np.inf
    expected = np.sort(value)[::-1][:10]
    found = strategy._leaders(pool, 10, least)
    np.testing.assert_allclose(value[found], expected[expected > -np.inf])
    assert (probability[found] >= least).all()


def test_the_least_probability_rules_out_what_promises_most() -> None:
    _, strategy = _fitted()
    pool = strategy._pool
    assert pool is not None
    anything, feasible = strategy._leaders(pool, 1, 0.0)[0], strategy._leaders(pool, 1, 1.0)[0]
    assert strategy._forest.probability(pool.features[[feasible]])[0] == 1.0
    improvement = strategy._model.log_improvement()
    assert improvement[anything] >= improvement[feasible]


def test_what_not_one_tree_believes_in_is_tried_if_nothing_is_ruled_out() -> None:
    strategy = _strategy(Kernel(None), trees=19)
    weight = strategy._weight(np.array([0.0, 0.1, 1.0]), 0.0)
    np.testing.assert_allclose(np.exp(weight), [1 / 20, 0.1, 1.0])
    assert strategy._weight(np.array([0.0, 0.1, 1.0]), 0.1).tolist() == [-np.inf, weight[1], 0.0]


def test_something_is_proposed_where_nothing_is_likely_enough() -> None:
    _, strategy = _fitted(least_feasible=1.0)
    strategy._probability = np.full(len(strategy._probability), 0.01)
    assert strategy._pool is not None
    assert not len(strategy._leaders(strategy._pool, 5, 0.02))
    assert strategy._next_by_model() is not None


@pytest.mark.parametrize("kind", ["hamming", "adjacent"])
def test_a_proposal_is_a_local_maximum_of_the_acquisition_function(kind: str) -> None:
    kernel, strategy = _fitted(least_levels=1, points=100, neighbourhood=kind)
    for _ in range(4):
        taken = set(strategy.seen)
        index = strategy._next_by_model()
        assert index is not None
        assert index not in taken
        around = [i for i in kernel.space.neighbours(index, kind).tolist() if i not in taken]  # type: ignore[arg-type]
        rows = strategy._rows([index, *around])
        probability = np.maximum(strategy._forest.probability(rows), 1 / 11)
        values = strategy._model.log_improvement_at(rows) + np.log(probability)
        assert values[0] >= values[1:].max()
        strategy.tell([kernel.evaluate(kernel.space.configuration(index))])


def test_local_search_starts_around_the_best_trials_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _, strategy = _fitted(points=50, starts=1, elite=2)
    looked_around: list[int] = []

    def around(index: int) -> np.ndarray:
        looked_around.append(index)
        return strategy.space.neighbours(index)

    monkeypatch.setattr(strategy, "_around", around)
    strategy._next_by_model()
    best = sorted(strategy._observations, key=lambda i: -strategy._observations[i].score)[:2]
    assert set(best) <= set(looked_around[:3])


def test_of_many_neighbours_a_part_is_looked_at() -> None:
    _, strategy = _fitted(neighbours=5)
    around = strategy._around(17)
    assert len(set(around.tolist())) == 5
    assert set(around.tolist()) <= set(strategy.space.neighbours(17).tolist())


# -- what it is without one of its parts ---------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"surrogate": "random-forest"},
        {"surrogate": "random-forest", "points": 200},
        {"points": 200, "local_search": False},
        {"points": 200, "sampling": "biased"},
        {"log_parameters": False, "length_shape": 1, "length_rate": 1e-9},
    ],
)
def test_finds_something_good_without_its_parts(options: dict[str, object]) -> None:
    kernel = Kernel(None)
    ours = [kernel.regret(kernel.search("bayesian-baco", 50, s, **(QUICK | options))) for s in range(2)]
    random = [kernel.regret(kernel.search("random", 50, s)) for s in range(2)]
    assert np.mean(ours) < np.mean(random)


def test_without_local_search_the_best_of_the_sample_is_proposed() -> None:
    kernel = Kernel(None)
    # (Of those that probably run; without a model of that, of all.)
    strategy = _strategy(kernel, points=100, local_search=False, feasibility=False)
    drive(strategy, kernel.evaluate, 15)
    for _ in range(3):
        index = strategy._next_by_model()
        assert strategy._pool is not None
        free = np.where(strategy._pool.free, strategy._model.log_improvement(), -np.inf)
        assert index == strategy._pool.indices[np.argmax(free)]


def test_without_the_model_of_what_runs_no_forest_is_grown() -> None:
    kernel = Kernel(None, shared_limit=512)
    strategy = _strategy(kernel, feasibility=False)
    trials = drive(strategy, kernel.evaluate, 25)
    assert not all(t.is_valid for t in trials)
    assert not strategy._forest.is_grown


def test_the_forest_s_mean_and_deviation_are_those_of_its_trees() -> None:
    kernel = Kernel(None)
    strategy = _strategy(kernel, surrogate="random-forest")
    drive(strategy, kernel.evaluate, 20)
    strategy._update()
    model, pool = strategy._model, strategy._pool
    assert isinstance(model, BacoForest)
    assert pool is not None
    some = pool.features[:50]
    trees = np.array([tree.predict(some.astype(np.float32)) for tree in model._forest.estimators_])  # type: ignore[union-attr]
    mean, deviation = model._predict(some)
    np.testing.assert_allclose(mean, trees.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(deviation, np.maximum(trees.std(axis=0), 0.01), rtol=1e-7)


def test_what_is_evaluated_counts_with_the_forest_s_mean_until_it_is_told() -> None:
    kernel = Kernel(None)
    strategy = _strategy(kernel, surrogate="random-forest")
    drive(strategy, kernel.evaluate, 20)
    waiting = strategy.ask(4)
    model = strategy._model
    assert isinstance(model, BacoForest)
    assert len(model._imagined) == 3
    told = kernel.space.index(waiting[0])
    strategy.tell([kernel.evaluate(waiting[0])])
    strategy._update()
    assert told not in model._imagined
    assert len(model._imagined) == 3


def test_a_naive_distance_of_many_orders_is_refused() -> None:
    space = SearchSpace([PermutationParameter("loops", 7)])
    with pytest.raises(MptuneError, match="loops: naive distances are for up to 720 orders, it has 5,040"):
        make("bayesian-baco", space, Objective(), options={"permutation": "naive"})
