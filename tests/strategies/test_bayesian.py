from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from mixed_precision import PRECISIONS, SIGNATURE, Kernel
from searches import drive

from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.model_based.coordinates import alignment, features
from tests.tiers import few

STRICT, MEDIUM, LOOSE = 1e-7, 3e-6, 1e-2
BACO_QUICK = {"trees": 10, "fit_samples": 3, "fit_starts": 1, "iterations": 15, "refit": 1.25}


def _signature(trial: Trial) -> tuple[object, ...]:
    return trial.configuration.subset(SIGNATURE)


@pytest.mark.parametrize(
    ("threshold", "budget", "seeds"),
    [(MEDIUM, 40, 1), *(pytest.param(t, 70, 3, marks=pytest.mark.nightly) for t in (STRICT, MEDIUM, LOOSE))],
)
def test_finds_nearly_the_best_feasible_configuration(threshold: float, budget: int, seeds: int) -> None:
    kernel = Kernel(threshold)
    regrets = [kernel.regret(kernel.search("bayesian", budget, seed)) for seed in range(seeds)]
    assert max(regrets) < 0.05
    assert np.mean(regrets) < 0.02


@pytest.mark.nightly
def test_beats_random_by_far() -> None:
    kernel = Kernel(MEDIUM)
    ours = [kernel.regret(kernel.search("bayesian", 40, seed)) for seed in range(4)]
    random = [kernel.regret(kernel.search("random", 160, seed)) for seed in range(4)]
    assert max(ours) < min(random)


@pytest.mark.parametrize("batch", few([5, 1]))
def test_proposes_no_signature_known_to_be_over_the_threshold(batch: int) -> None:
    kernel = Kernel(STRICT)
    trials = kernel.search("bayesian", 60, seed=1, batch=batch)
    inaccurate: dict[tuple[object, ...], list[Configuration]] = {}
    for start in range(0, len(trials), batch):
        asked = trials[start : start + batch]
        for trial in asked:
            before = inaccurate.get(_signature(trial), [])
            assert not before or any(len({c[name] for c in before}) == 1 for name in ("block", "tile", "vector"))
            # Evidence against a signature is collected when nothing else promises much any more.
            assert not before or kernel.regret(trials[:start]) < 0.02
        for trial in asked:
            if trial.status is Status.INACCURATE:
                inaccurate.setdefault(_signature(trial), []).append(trial.configuration)
    assert len(inaccurate) > 5


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2))
def test_one_wrong_configuration_condemns_no_signature(seed: int) -> None:
    """The first configuration of every signature is wrong: the search still finds one as good as it would."""
    kernel = Kernel(MEDIUM, fail=False)
    seen: set[tuple[object, ...]] = set()

    def evaluate(configuration: Configuration) -> Trial:
        trial = kernel.evaluate(configuration)
        if _signature(trial) in seen:
            return trial
        seen.add(_signature(trial))
        wrong = {**trial.measurement.metrics, "error": 2.0, "log10_error": 0.3}
        return dataclasses.replace(trial, status=Status.INACCURATE, measurement=Measurement(wrong))

    strategy = make("bayesian", kernel.space, kernel.objective, signature=SIGNATURE, seed=seed)
    trials = drive(strategy, evaluate, 100)
    assert len(trials) == 100
    best = kernel.objective.best(trials)
    assert best is not None
    assert kernel.error(best.configuration) <= MEDIUM
    assert kernel.regret(trials) < 0.3


def test_goes_on_where_nothing_meets_the_threshold() -> None:
    kernel = Kernel(1e-30, fail=False)
    assert len(kernel.search("bayesian", 30, seed=0)) == 30


@pytest.mark.parametrize("seed", few(range(4)))
def test_finds_something_feasible_soon_where_it_is_rare(seed: int) -> None:
    kernel = Kernel(STRICT, types=("fp16", "bf16", "fp32", "fp64"))
    assert kernel.feasible_signatures() < 0.05
    trials = kernel.search("bayesian", 5, seed)
    assert kernel.objective.best(trials) is not None


def test_finds_something_feasible_where_the_widest_types_fail_to_run() -> None:
    space = SearchSpace(
        [
            *(PrecisionParameter(n, ["fp64", "fp32", "fp16", "bf16"]) for n in "abcd"),
            OrdinalParameter("block", [1, 2, 4, 8]),
        ]
    )
    objective = Objective(threshold=1e-6)

    def evaluate(configuration: object) -> Trial:
        values = dict(configuration)  # type: ignore[call-overload]
        doubles = sum(values[n] == "fp64" for n in "abcd")
        if doubles > 1:
            return Trial(configuration, Status.COMPILE_ERROR, "no double precision")  # type: ignore[arg-type]
        error = sum({"fp64": 1e-16, "fp32": 6e-8, "fp16": 5e-4, "bf16": 4e-3}[values[n]] for n in "abcd")
        metrics = {"time_ms": 1.0 + doubles + values["block"], "error": error}
        status = Status.OK if error <= 1e-6 else Status.INACCURATE
        return Trial(configuration, status, measurement=Measurement(metrics))  # type: ignore[arg-type]

    strategy = make("bayesian", space, objective, signature="abcd")
    assert any(map(objective.is_feasible, drive(strategy, evaluate, 30)))


def test_starts_as_wide_as_the_constraints_allow() -> None:
    types = ["fp16", "bf16", "fp32", "fp64"]
    space = SearchSpace(
        [*(PrecisionParameter(n, types) for n in "abc"), OrdinalParameter("block", [1, 2, 4, 8])],
        ["not (a == 'fp64' and b == 'fp64')"],
    )
    (first,) = make("bayesian", space, Objective(threshold=1e-9), signature="abc").ask(1)
    assert sorted(str(first[n]) for n in "abc") == ["fp32", "fp64", "fp64"]


@pytest.mark.full
def test_works_on_samples_of_a_space_too_large_to_hold() -> None:
    kernel = Kernel(MEDIUM)
    regrets = [kernel.regret(kernel.search("bayesian", 70, s, max_candidates=500, sample=300)) for s in range(2)]
    assert np.mean(regrets) < 0.05


@pytest.mark.full
def test_finds_the_best_beside_a_hidden_constraint() -> None:
    kernel = Kernel(None, shared_limit=1024)
    sample = kernel.space.configurations(kernel.space.sample(1000, np.random.default_rng(0)))
    assert np.mean([not kernel.evaluate(c).is_valid for c in sample]) > 0.3
    assert np.mean([kernel.regret(kernel.search("bayesian", 50, seed)) for seed in range(2)]) < 0.02


@pytest.mark.full
def test_batches_cost_little() -> None:
    kernel = Kernel(MEDIUM)
    regrets = [kernel.regret(kernel.search("bayesian", 80, seed, batch=8)) for seed in range(2)]
    assert np.mean(regrets) < 0.05


@pytest.mark.full
def test_inaccurate_trials_teach_the_time() -> None:
    kernel = Kernel(STRICT)
    fp16 = [c for c in kernel.space.configurations(range(0, kernel.space.size, 7)) if c["x_type"] == "fp16"][:60]
    strategy = make("bayesian", kernel.space, kernel.objective, signature=SIGNATURE, seed=0)
    strategy.tell([kernel.evaluate(c) for c in fp16])
    assert kernel.regret(drive(strategy, kernel.evaluate, 25)) < 0.15


def test_types_beside_those_of_the_baseline_are_explored_at_once() -> None:
    kernel = Kernel(MEDIUM)
    fp64 = kernel.space.restrict({name: ["fp64"] for name in PRECISIONS} | {"policy": ["accurate"]})
    strategy = make("bayesian", kernel.space, kernel.objective, signature=SIGNATURE, seed=0)
    strategy.tell([kernel.evaluate(c) for c in fp64.configurations(range(12))])
    trials = [kernel.evaluate(c) for c in strategy.ask(10)]
    assert len({_signature(t) for t in trials}) > 5


def test_ends_when_all_that_is_left_is_known_to_be_inaccurate() -> None:
    space = SearchSpace([OrdinalParameter("block", [1, 2, 4, 8]), PrecisionParameter("x", ["fp64", "fp16"])])
    objective = Objective(threshold=1e-6)
    strategy = make("bayesian", space, objective, signature=["x"], seed=0)
    asked = []
    while found := strategy.ask(1):
        error = 1e-16 if found[0]["x"] == "fp64" else 1e-3
        status = Status.OK if error < 1e-6 else Status.INACCURATE
        strategy.tell([Trial(found[0], status, measurement=Measurement({"time_ms": 1.0, "error": error}))])
        asked.append(found[0]["x"])
    # It takes two to know that fp16 is inaccurate.
    assert sorted(asked) == ["fp16", "fp16", "fp64", "fp64", "fp64", "fp64"]


def test_without_a_threshold_the_signature_does_not_matter() -> None:
    kernel = Kernel(None, fail=False)
    runs = []
    for signature in ((), SIGNATURE):
        strategy = make("bayesian", kernel.space, kernel.objective, signature=signature, seed=2)
        runs.append([t.configuration for t in drive(strategy, kernel.evaluate, 20)])
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("name", "options", "least"),
    [("bayesian", {}, 99.5), *(("bayesian-baco", BACO_QUICK | {"log": log}, 99.0) for log in (True, False))],
)
def test_maximises_where_the_objective_says_so(name: str, options: dict[str, object], least: float) -> None:
    space = SearchSpace([OrdinalParameter("a", range(1, 40)), OrdinalParameter("b", range(1, 40))])
    objective = Objective(metric="bandwidth", minimise=False)

    def evaluate(c: Configuration) -> Trial:
        value = 100.0 - (float(c["a"]) - 11.0) ** 2 / 20 - (float(c["b"]) - 30.0) ** 2 / 20  # type: ignore[arg-type]
        return Trial(c, Status.OK, measurement=Measurement({"bandwidth": value}))

    trials = drive(make(name, space, objective, seed=0, options=options), evaluate, 40)
    assert max(t.metric("bandwidth") for t in trials) > least


@pytest.mark.full
def test_more_observations_than_the_model_holds() -> None:
    kernel = Kernel(None)
    trials = kernel.search("bayesian", 70, seed=0, max_observations=30)
    assert len({t.configuration for t in trials}) == 70
    assert kernel.regret(trials) < 0.1


# -- features --------------------------------------------------------------------------------------


def test_alignment_is_the_power_of_two_in_a_size() -> None:
    table = alignment(OrdinalParameter("block", [16, 32, 48, 64, 80, 96]))
    assert table is not None
    np.testing.assert_allclose(table, np.array([0, 1, 0, 2, 0, 1]) / 2)


@pytest.mark.parametrize(
    "values", [[1, 2, 4, 8], [1, 3, 5, 7], [0, 1, 2, 3, 4], [1, 2, 3], [0.5, 1.0, 1.5, 2.0], ["a", "b", "c", "d"]]
)
def test_alignment_is_left_out_where_it_says_nothing_new(values: list[object]) -> None:
    assert alignment(OrdinalParameter("p", values)) is None  # type: ignore[arg-type]


def test_features_leave_out_what_does_not_vary() -> None:
    space = SearchSpace(
        [
            OrdinalParameter("fixed", [7]),
            OrdinalParameter("block", [16, 32, 48, 64]),
            PrecisionParameter("x", ["fp64", "fp32"]),
        ]
    )
    rows = features(space).at(space.codes(range(space.size)))
    assert rows.shape == (space.size, features(space).count) == (8, 4)
    assert (np.ptp(rows, axis=0) == 1.0).all()


@pytest.mark.parametrize("seed", few(range(3)))
def test_learns_where_a_measured_constraint_holds(seed: int) -> None:
    """The faster half of the space breaks it, which is learnt like a failure; unlearnt, the optimum takes 48 trials."""
    space = SearchSpace([OrdinalParameter("a", list(range(1, 33))), OrdinalParameter("b", list(range(1, 17)))])
    objective = Objective(constraints=("energy_j <= 1.0",))
    strategy = make("bayesian", space, objective, seed=seed)
    best = np.inf
    for _ in range(24):
        (configuration,) = strategy.ask(1)
        a, b = float(configuration["a"]), float(configuration["b"])  # type: ignore[arg-type]
        metrics = {"time_ms": 1.0 + 1.0 / a + 0.01 * b, "error": 0.0, "energy_j": 2.0 if a > 16 else 0.5}
        trial = objective.judge(Trial(configuration, Status.OK, measurement=Measurement(metrics)))
        assert (trial.status is Status.VIOLATION) == (a > 16)
        if trial.status is Status.OK:
            best = min(best, trial.time_ms)
        strategy.tell([trial])
    assert best == 1.0 + 1.0 / 16 + 0.01


def test_a_space_of_types_alone_in_which_nothing_is_accurate_is_searched_to_its_end() -> None:
    space = SearchSpace([PrecisionParameter(name, ["fp32", "fp16"]) for name in "ab"])
    strategy = make("bayesian", space, Objective(threshold=1e-6), signature=["a", "b"])
    asked = []
    while found := strategy.ask():
        asked += found
        measured = Measurement({"time_ms": 1.0, "error": 1.0})
        strategy.tell([Trial(found[0], Status.INACCURATE, measurement=measured)])
    assert len(set(asked)) == len(asked) == space.size
