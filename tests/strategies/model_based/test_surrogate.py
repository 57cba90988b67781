from __future__ import annotations

import numpy as np
import pytest

from mptune.strategies.model_based.surrogate import Scale


def test_values_are_standardised_in_order() -> None:
    values = np.log(np.random.default_rng(0).lognormal(size=50))
    for warp in (0.0, 1.0, 5.0):
        z = Scale.of(values, warp).apply(values)
        assert z.mean() == pytest.approx(0.0, abs=1e-12)
        assert z.std() == pytest.approx(1.0)
        assert (np.argsort(z) == np.argsort(values)).all()


def test_bad_values_are_compressed_and_good_ones_are_not() -> None:
    values = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 50.0, 100.0])
    z = Scale.of(values, 1.0).apply(values)
    steps = np.diff(z)
    assert steps[0] == pytest.approx(steps[1]) == pytest.approx(steps[2])
    assert steps[5] / 50.0 < 0.05 * steps[0]
    plain = Scale.of(values, 0.0).apply(values)
    assert np.diff(plain)[5] / 50.0 == pytest.approx(np.diff(plain)[0])


@pytest.mark.parametrize("values", [[3.0], [2.0, 2.0, 2.0], [-709.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 700.0]])
def test_awkward_values_stay_finite(values: list[float]) -> None:
    z = Scale.of(np.array(values), 1.0).apply(np.array([*values, 5.0]))
    assert np.isfinite(z).all()
