from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr

from mptune.precision import precision
from mptune.space.parameters import (
    IntegerParameter,
    OrdinalParameter,
    Parameter,
    PermutationParameter,
    PrecisionParameter,
    RealParameter,
)
from mptune.strategies.model_based.coordinates import distances


def _table(parameter: Parameter, permutation: str = "spearman") -> np.ndarray:
    """Return the squared distance of every value to every other."""
    n = len(parameter.values)
    rows, columns = np.divmod(np.arange(n * n), n)
    coordinates = distances([parameter], permutation).at(np.arange(n)[:, None])
    return np.asarray(((coordinates[rows] - coordinates[columns]) ** 2).sum(axis=1).reshape(n, n))


def _positions(order: tuple[int, ...]) -> list[int]:
    return [order.index(element) for element in range(len(order))]


@pytest.mark.parametrize(
    "parameter",
    [IntegerParameter("p", 3, 11, 2), OrdinalParameter("p", [1, 2, 3, 10], log=False), RealParameter("p", 0.5, 2.0, 7)],
)
def test_numbers_are_as_far_apart_as_they_differ(parameter: Parameter) -> None:
    values = np.array(parameter.values, dtype=float)
    expected = ((values[:, None] - values[None, :]) / (values.max() - values.min())) ** 2
    np.testing.assert_allclose(_table(parameter), expected, atol=1e-15)


@pytest.mark.parametrize(
    "parameter", [OrdinalParameter("p", [512, 1, 2, 8, 64]), RealParameter("p", 1e-6, 1.0, 5, log=True)]
)
def test_exponential_numbers_are_as_far_apart_as_their_logarithms(parameter: Parameter) -> None:
    assert parameter.log_scale
    logs = np.log(np.array(parameter.values, dtype=float))
    np.testing.assert_allclose(_table(parameter), ((logs[:, None] - logs[None, :]) / np.ptp(logs)) ** 2, atol=1e-14)


def test_precisions_differ_by_the_logarithms_of_roundoff_and_bytes() -> None:
    names = ["fp64", "fp32", "fp16", "bf16", "fp8_e4m3"]
    table = _table(PrecisionParameter("p", names))
    types = [precision(name) for name in names]
    roundoffs, sizes = np.log([t.unit_roundoff for t in types]), np.log([t.size_bytes for t in types])
    expected = ((roundoffs[:, None] - roundoffs) / np.ptp(roundoffs)) ** 2 + (
        (sizes[:, None] - sizes) / np.ptp(sizes)
    ) ** 2
    np.testing.assert_allclose(table, expected / expected.max(), atol=1e-14)
    # Of one size, but not the same.
    assert 0 < table[2, 3] < table[1, 2]


@pytest.mark.parametrize("n", [2, 3, 5])
def test_permutations_against_rank_correlations(n: int) -> None:
    parameter = PermutationParameter("p", n)
    spearman, kendall = _table(parameter, "spearman"), _table(parameter, "kendall")
    rng = np.random.default_rng(n)
    for a, b in rng.integers(len(parameter.values), size=(60, 2)):
        first, second = (_positions(parameter.values[i]) for i in (a, b))  # type: ignore[arg-type]
        assert spearman[a, b] == pytest.approx((1.0 - spearmanr(first, second).statistic) / 2.0, abs=1e-12)
        assert kendall[a, b] == pytest.approx((1.0 - kendalltau(first, second).statistic) / 2.0, abs=1e-12)


def test_the_papers_own_example() -> None:
    # Loops 1, 2, 3, 4 to 4, 1, 3, 2 (Hellsten 2023, Fig. 3): the sum of squared movements is 14 of at most 20,
    # four of six pairs are discordant, three of four elements have moved.
    parameter = PermutationParameter("p", 4)
    a, b = parameter.values.index((0, 1, 2, 3)), parameter.values.index((3, 0, 2, 1))
    expected = {"spearman": 14 / 20, "kendall": 4 / 6, "hamming": 3 / 4}
    assert {name: _table(parameter, name)[a, b] for name in expected} == pytest.approx(expected)


# -- the normalised space ----------------------------------------------------------------------
