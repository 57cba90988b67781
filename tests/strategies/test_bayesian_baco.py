from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pytest
from mixed_precision import SIGNATURE, Kernel
from searches import drive

from mptune.errors import MptuneError
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter, PermutationParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies import make
from mptune.strategies.bayesian_baco import (
    BayesianBacoStrategy,
)
from mptune.testing.strategies import StrategyConformance
from tests.tiers import few

#: Cheaper than the defaults, where the defaults are not what is tested.
QUICK = {"trees": 10, "fit_samples": 3, "fit_starts": 1, "iterations": 15, "refit": 1.25}
SMALL = Kernel(None, types=("fp32", "fp16"))


class TestConformance(StrategyConformance):
    """The defaults are tested beside those of the other strategies; here are samples and local search.

    The probability to run that a candidate needs is often one that no candidate has.
    """

    strategy = BayesianBacoStrategy
    options: ClassVar = QUICK | {
        "points": 20,
        "starts": 2,
        "elite": 1,
        "neighbours": 5,
        "iterations": 5,
        "permutation": "kendall",
        "neighbourhood": "adjacent",
        "log": False,
        "fit_samples": 1,
        "trees": 2,
        "least_feasible": 1.0,
    }


def _strategy(kernel: Kernel, seed: int = 0, **options: object) -> BayesianBacoStrategy:
    made = make(
        "bayesian-baco", kernel.space, kernel.objective, signature=SIGNATURE, seed=seed, options=QUICK | options
    )
    assert isinstance(made, BayesianBacoStrategy)
    return made


# -- how well it finds -----------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("threshold", [None, 3e-6])
def test_beats_random_in_the_mean(threshold: float | None) -> None:
    kernel = Kernel(threshold)
    ours = [kernel.regret(kernel.search("bayesian-baco", 50, seed, **QUICK)) for seed in range(3)]
    random = [kernel.regret(kernel.search("random", 150, seed)) for seed in range(3)]
    assert np.mean(ours) < 0.5 * np.mean(random)


@pytest.mark.parametrize(
    "options",
    few(
        [
            {"log": False},
            {"points": 200},
            {"points": 200, "neighbourhood": "adjacent"},
            {"points": 200, "local_search": False, "sampling": "biased"},
            {"surrogate": "random-forest"},
            {"surrogate": "random-forest", "points": 200},
            {"log_parameters": False, "length_shape": 1, "length_rate": 1e-9},
        ],
        3,
    ),
)
def test_finds_something_good_in_samples_and_without_its_parts(options: dict[str, object]) -> None:
    assert SMALL.regret(SMALL.search("bayesian-baco", 30, 0, **(QUICK | options))) < 0.1
    assert SMALL.regret(SMALL.search("random", 30, 0)) > 0.2


@pytest.mark.parametrize("permutation", few(["spearman", "kendall", "hamming", "naive"]))
def test_finds_the_best_order_of_loops(permutation: str) -> None:
    space = SearchSpace([PermutationParameter("loops", 5), OrdinalParameter("tile", [1, 2, 4, 8])])
    target = (2, 0, 4, 1, 3)

    def evaluate(c: Configuration) -> Trial:
        moved = sum(abs(c["loops"].index(e) - target.index(e)) for e in range(5))  # type: ignore[union-attr]
        time_ms = 1.0 + moved + abs(math.log2(float(c["tile"])) - 2.0)  # type: ignore[arg-type]
        return Trial(c, Status.OK, measurement=Measurement({"time_ms": time_ms}))

    strategy = make("bayesian-baco", space, Objective(), seed=0, options=QUICK | {"permutation": permutation})
    assert min(trial.time_ms for trial in drive(strategy, evaluate, 50)) <= 3.0


# -- what it learns from ---------------------------------------------------------------------------


def test_a_resumed_run_needs_no_initial_sample() -> None:
    told = SMALL.search("random", 30, 0)
    assert SMALL.regret(told) > 0.2
    resumed = _strategy(SMALL, initial=30)
    resumed.tell(told)
    assert SMALL.regret(drive(resumed, SMALL.evaluate, 12)) < 0.1


# -- its options -----------------------------------------------------------------------------------


def test_a_naive_distance_of_many_orders_is_refused() -> None:
    space = SearchSpace([PermutationParameter("loops", 7)])
    with pytest.raises(MptuneError, match="loops: naive distances are for up to 720 orders, it has 5,040"):
        make("bayesian-baco", space, Objective(), options={"permutation": "naive"})


# -- its models ------------------------------------------------------------------------------------
