from __future__ import annotations

import mpmath
import numpy as np
import pytest

from mptune.strategies.bayesian_multi import AdvancedMulti, Multi
from mptune.strategies.model_based.acquisition import ACQUISITIONS


@pytest.mark.parametrize("exploration", [0.0, 0.3])
def test_acquisition_functions_against_high_precision(exploration: float) -> None:
    rng = np.random.default_rng(5)
    mean, deviation, best = rng.normal(size=40), rng.random(40) + 0.01, -0.7
    mean[:3] = (8.0, 60.0, -9.0)
    improvement, probability, bound = (
        ACQUISITIONS[name](mean, deviation, best, exploration) for name in ("ei", "poi", "lcb")
    )
    with mpmath.workdps(60):
        for i in range(len(mean)):
            m, s = mpmath.mpf(mean[i]), mpmath.mpf(deviation[i])
            gap = mpmath.mpf(best) - mpmath.mpf(exploration) - m
            density = mpmath.exp(-((gap / s) ** 2) / 2) / mpmath.sqrt(2 * mpmath.pi)
            below = mpmath.erfc(-gap / s / mpmath.sqrt(2)) / 2
            assert improvement[i] == pytest.approx(float(mpmath.log(gap * below + s * density)), rel=1e-7, abs=1e-12)
            assert probability[i] == pytest.approx(float(mpmath.log(below)), rel=1e-10, abs=1e-15)
            assert bound[i] == pytest.approx(float(-(m - exploration * s)), rel=1e-12)


NAMES = ("ei", "poi", "lcb")
DISTINCT = {"ei": 1, "poi": 2, "lcb": 3}


def test_observations_are_discounted() -> None:
    portfolio = Multi(("ei", "poi"), threshold=5, discount=0.5)
    for ei, poi in ((4.0, 1.0), (2.0, 1.0), (1.0, 8.0)):
        portfolio.close({"ei": 1, "poi": 2}, {"ei": ei, "poi": poi})
    assert portfolio.scores == {"ei": 4.0 / 4 + 2.0 / 2 + 1.0, "poi": 1.0 / 4 + 1.0 / 2 + 8.0}


def test_multi_counts_duplicates_within_its_window_alone() -> None:
    observed = {"ei": 1.0, "poi": 3.0, "lcb": 9.0}
    for window, left in ((None, ("poi", "lcb")), (3, NAMES), (5, ("poi", "lcb"))):
        portfolio = Multi(NAMES, threshold=2, discount=0.65, window=window)
        for n in range(5):
            portfolio.close({"ei": 1, "poi": 1, "lcb": 2} if n % 2 == 0 else DISTINCT, observed)
        assert portfolio.active == left


def test_multi_keeps_the_best_of_those_that_duplicate_too_often() -> None:
    portfolio = Multi(NAMES, threshold=2, discount=0.65)
    observed = {"ei": 1.0, "poi": 3.0, "lcb": 9.0}
    conflict = {"ei": 1, "poi": 1, "lcb": 2}
    for _ in range(2):
        portfolio.close(conflict, observed)
        portfolio.close(DISTINCT, observed)
    assert portfolio.active == NAMES
    portfolio.close(conflict, observed)
    assert portfolio.active == ("poi", "lcb")


def test_multi_gives_the_one_it_keeps_a_clean_slate_and_ends_with_one() -> None:
    portfolio = Multi(NAMES, threshold=1, discount=0.65)
    equal = dict.fromkeys(NAMES, 1.0)
    for _ in range(2):
        portfolio.close({"ei": 1, "poi": 1, "lcb": 2}, equal)
    assert portfolio.active == ("ei", "lcb")
    portfolio.close({"ei": 1, "lcb": 1}, {"ei": 1.0, "lcb": 5.0})
    assert portfolio.active == ("ei", "lcb")
    portfolio.close({"ei": 1, "lcb": 1}, {"ei": 1.0, "lcb": 5.0})
    assert portfolio.active == ("lcb",)
    portfolio.close({"lcb": 1}, {"lcb": 0.0})
    assert portfolio.active == ("lcb",)


def test_advanced_multi_drops_what_is_worse_and_resets_the_counts() -> None:
    portfolio = AdvancedMulti(NAMES, threshold=3, discount=0.75, required=0.1)
    observed = {"ei": 1.04, "poi": 1.04, "lcb": 0.8}
    for _ in range(2):
        portfolio.close(DISTINCT, observed)
    assert portfolio.active == NAMES
    portfolio.close(DISTINCT, observed)
    assert portfolio.active == ("ei", "poi")
    for _ in range(30):
        portfolio.close(DISTINCT, {"ei": 1.0, "poi": 1.1})
    assert portfolio.active == ("ei", "poi")


def test_advanced_multi_promotes_what_is_better() -> None:
    portfolio = AdvancedMulti(NAMES, threshold=3, discount=0.75, required=0.1)
    # The mean is 1.04: the others are 8% worse, one is 15% better.
    observed = {"ei": 0.96, "poi": 1.2, "lcb": 0.96}
    for _ in range(2):
        portfolio.close(DISTINCT, observed)
    assert portfolio.active == NAMES
    portfolio.close(DISTINCT, observed)
    assert portfolio.active == ("poi",)


def test_the_worst_goes_before_the_best_is_promoted_and_the_score_breaks_ties() -> None:
    portfolio = AdvancedMulti(NAMES, threshold=1, discount=0.75, required=0.1)
    portfolio.close(DISTINCT, {"ei": 0.6, "poi": 0.5, "lcb": 3.0})
    assert portfolio.active == ("ei", "lcb")
    portfolio.close(DISTINCT, {"ei": 0.6, "lcb": 3.0})
    assert portfolio.active == ("lcb",)
