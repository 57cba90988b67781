from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mixed_precision import SIGNATURE, Kernel
from searches import drive

from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.source.loading import load_kernel
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.bayesian import BayesianStrategy
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


@pytest.mark.parametrize("seed", few(range(4)))
def test_finds_something_feasible_soon_where_it_is_rare(seed: int) -> None:
    kernel = Kernel(STRICT, types=("fp16", "bf16", "fp32", "fp64"))
    assert kernel.feasible_signatures() < 0.05
    trials = kernel.search("bayesian", 5, seed)
    assert kernel.objective.best(trials) is not None


@pytest.mark.full
def test_finds_the_best_beside_a_hidden_constraint() -> None:
    kernel = Kernel(None, shared_limit=1024)
    sample = kernel.space.configurations(kernel.space.sample(1000, np.random.default_rng(0)))
    assert np.mean([not kernel.evaluate(c).is_valid for c in sample]) > 0.3
    assert np.mean([kernel.regret(kernel.search("bayesian", 50, seed)) for seed in range(2)]) < 0.02


@pytest.mark.full
@pytest.mark.parametrize(
    ("threshold", "budget", "batch", "options"),
    [
        (MEDIUM, 80, 8, {}),
        # Of a space too large to hold, and with more observations than the model holds.
        (MEDIUM, 70, 1, {"max_candidates": 500, "sample": 300}),
        (None, 70, 1, {"max_observations": 30}),
    ],
)
def test_batches_and_samples_cost_little(
    threshold: float | None, budget: int, batch: int, options: dict[str, Any]
) -> None:
    kernel = Kernel(threshold)
    trials = [kernel.search("bayesian", budget, seed, batch=batch, **options) for seed in range(2)]
    assert np.mean([kernel.regret(each) for each in trials]) < 0.05


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


# -- a focus: the best configuration of some types, learned from trials of all types -------------------

KERNEL = load_kernel("convolution2d")
SPACE = KERNEL.search_space(KERNEL.resolve_sizes("default"))
BASELINE = KERNEL.baseline_values()
BYTES = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2}


def time_ms(c: Configuration) -> float:
    """The best tuning is that of every type."""
    width, tile, block = (abs(np.log2(float(c[n])) - at) for n, at in TUNING.items())  # type: ignore[arg-type]
    types = BYTES[str(c["accumulator_type"])] + 0.1 * BYTES[str(c["input_type"])]
    return float((1 + 0.1 * width + 0.2 * tile + 0.1 * block + 0.3 * bool(c["use_shared"])) * types)


TUNING = {"vector_width": 3, "tile_size_y": 2, "block_size_y": 1}


def trial(c: Configuration) -> Trial:
    return Trial(c, Status.OK, measurement=Measurement({"time_ms": time_ms(c), "error": 1e-9}))


def focused(seed: int, told: list[Trial]) -> BayesianStrategy:
    strategy = BayesianStrategy(SPACE, Objective(threshold=1e-4), signature=KERNEL.signature_names, seed=seed)
    strategy.focus(BASELINE)
    strategy.tell(told)
    return strategy


@pytest.mark.parametrize("seed", few(range(3)))
def test_trials_of_other_types_teach_which_tuning_is_fast(seed: int) -> None:
    rng = np.random.default_rng(seed)
    only = SPACE.restrict(BASELINE)
    optimum = min(time_ms(only.configuration(i)) for i in range(only.size))
    own = [trial(only.configuration(int(i))) for i in only.sample(4, rng)]
    told = [trial(SPACE.configuration(int(i))) for i in SPACE.sample(40, rng)]
    found = {}
    for name, known in (("alone", own), ("shared", own + told)):
        strategy, best = focused(seed, known), min(t.time_ms for t in own)
        for _ in range(5):
            (proposed,) = strategy.ask(1)
            assert all(proposed[n] in values for n, values in BASELINE.items())
            best = min(best, time_ms(proposed))
            strategy.tell([trial(proposed)])
        found[name] = best
    assert found["shared"] <= 1.1 * optimum
    assert found["shared"] <= found["alone"]
