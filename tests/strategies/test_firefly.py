from __future__ import annotations

import math

import numpy as np
import pytest

from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.space.parameters import OrdinalParameter
from mptune.space.search_space import SearchSpace
from mptune.strategies.firefly import FireflyOptions, FireflyStrategy, attracted


def test_a_move_computed_by_hand() -> None:
    options = FireflyOptions(attraction=0.5, absorption=2.0, randomness=0.2)
    moved = attracted(np.array([[0.0, 0.5]]), np.array([1.0, 0.5]), np.array([[0.5, 0.75]]), options)
    # r^2 = (1 + 0) / 2, so the share of the way is 0.5 / e; the random part is 0 and 0.2 x 0.25.
    assert moved == pytest.approx(np.array([[0.5 / math.e, 0.55]]))
    # Nothing leaves the cube.
    far = FireflyOptions(attraction=3.0, absorption=0.0, randomness=0.0)
    assert attracted(np.array([[0.2, 0.9]]), np.array([0.8, 0.1]), np.zeros((1, 2)), far).tolist() == [[1.0, 0.0]]


LINE = SearchSpace([OrdinalParameter("a", range(1001))])


def _after(told: list[int], **options: float) -> list[int]:
    """Return the second generation of as many fireflies; the higher ``a`` is, the brighter, and below 100 all fail."""
    size = 2 * len(told)
    strategy = FireflyStrategy(LINE, Objective(), options=FireflyOptions(population=size, randomness=0.0, **options))

    def trial(a: int) -> Trial:
        metrics = {"time_ms": 1001.0 - a} if a >= 100 else {}
        status = Status.OK if a >= 100 else Status.LAUNCH_ERROR
        return Trial(LINE.configuration(a), status, measurement=Measurement(metrics))

    # Half of the first generation are the best that were told, the others are drawn and made to fail here.
    strategy.tell([trial(a) for a in told])
    strategy.tell([Trial(c, Status.LAUNCH_ERROR) for c in strategy.ask(size - len(told))])
    return [int(c["a"]) for c in strategy.ask(len(told) - 1)]  # type: ignore[call-overload]


def test_fireflies_move_to_each_brighter_one_in_turn() -> None:
    # Half of the way each: the second to the first, the third to the first and then to the second.
    assert _after([900, 500, 300], attraction=0.5, absorption=0.0) == [700, 550]


def test_the_further_the_weaker() -> None:
    (moved,) = _after([800, 200], attraction=1.0, absorption=5.0)
    assert moved == round(200 + 600 * math.exp(-5.0 * 0.36))
