from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr

from mptune.errors import UnknownNameError
from mptune.precision import precision
from mptune.space.parameters import (
    BooleanParameter,
    CategoricalParameter,
    IntegerParameter,
    OrdinalParameter,
    Parameter,
    PermutationParameter,
    PolicyParameter,
    PrecisionParameter,
    RealParameter,
)
from mptune.space.search_space import SearchSpace
from mptune.strategies.model_based.coordinates import PERMUTATION_DISTANCES, distances, normalised
from mptune.strategies.model_based.gaussian_process import matern52


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


def test_categories_are_the_same_or_not() -> None:
    np.testing.assert_allclose(_table(CategoricalParameter("p", ["a", "b", "c", 4, 5])), 1.0 - np.eye(5))
    np.testing.assert_allclose(_table(BooleanParameter("p")), 1.0 - np.eye(2))


def test_what_is_ordered_differs_by_rank() -> None:
    ranks = np.arange(3)
    expected = (ranks[:, None] - ranks[None, :]) ** 2 / 4
    np.testing.assert_allclose(_table(PolicyParameter("p")), expected)
    np.testing.assert_allclose(_table(OrdinalParameter("p", ["small", "medium", "large"])), expected)


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


@pytest.mark.parametrize("permutation", PERMUTATION_DISTANCES)
def test_covariances_of_permutations_are_positive_definite(permutation: str) -> None:
    table = _table(PermutationParameter("p", 5), permutation)
    assert table.max() == pytest.approx(1.0)
    for length in (0.2, 1.0, 5.0):
        assert np.linalg.eigvalsh(matern52(table / length**2)).min() > 0


def test_without_logarithms_numbers_are_as_far_apart_as_they_differ() -> None:
    plain = distances([OrdinalParameter("p", [1, 2, 4, 8, 16])], log=False)
    np.testing.assert_allclose(plain.at(np.arange(5)[:, None])[:, 0], [0, 1 / 15, 3 / 15, 7 / 15, 1])


def test_distances_add_up_by_parameter() -> None:
    parameters = [
        OrdinalParameter("a", [1, 2, 4]),
        OrdinalParameter("only", [7]),
        CategoricalParameter("b", ["x", "y", "z"]),
        PermutationParameter("c", 3),
    ]
    made = distances(parameters, "kendall")
    rng = np.random.default_rng(0)
    codes = np.column_stack([rng.integers(len(p.values), size=20) for p in parameters])
    first, second = rng.integers(20, size=(2, 50))
    coordinates = made.at(codes)
    assert set(made.owners) == {0, 2, 3}
    for column in (0, 2, 3):
        own = coordinates[:, made.owners == column]
        found = ((own[first] - own[second]) ** 2).sum(axis=1)
        table = _table(parameters[column], "kendall")
        np.testing.assert_allclose(found, table[codes[first, column], codes[second, column]], atol=1e-14)


def test_an_unknown_distance_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'kendall'"):
        distances([BooleanParameter("p")], "kendal")


# -- the normalised space ----------------------------------------------------------------------


def _apart(space: SearchSpace) -> np.ndarray:
    x = normalised(space.parameters).at(space.codes(np.arange(space.size)))
    return np.asarray(np.sqrt(np.square(x[:, None] - x[None, :]).sum(axis=2)))


def test_values_are_spaced_linearly_whatever_they_are() -> None:
    for parameter in (
        OrdinalParameter("p", [1, 2, 4, 1024]),
        OrdinalParameter("p", [10, 20, 30, 40]),
        OrdinalParameter("p", ["tiny", "small", "large", "huge"]),
    ):
        x = normalised([parameter]).at(np.arange(4)[:, None])
        np.testing.assert_allclose(x, [[0.0], [1 / 3], [2 / 3], [1.0]])


def test_constant_parameters_are_pruned() -> None:
    space = SearchSpace([OrdinalParameter("one", [7]), BooleanParameter("b"), PrecisionParameter("t", ["fp32"])])
    coordinates = normalised(space.parameters).at(space.codes([0, 1]))
    np.testing.assert_array_equal(coordinates, [[0.0], [1.0]])
    only = normalised([OrdinalParameter("one", [7])])
    assert only.at(np.zeros((1, 1), dtype=np.int32)).shape == (1, 0)


def test_categories_are_equally_far_apart() -> None:
    apart = _apart(SearchSpace([CategoricalParameter("c", ["a", "b", "c"])]))
    np.testing.assert_allclose(apart, 1.0 - np.eye(3))


@pytest.mark.parametrize("order", [["fp64", "fp32", "fp16", "bf16"], ["bf16", "fp64", "fp16", "fp32"]])
def test_precisions_are_placed_by_what_they_are_not_by_their_order(order: list[str]) -> None:
    apart = _apart(SearchSpace([PrecisionParameter("t", order)]))
    at = {name: order.index(name) for name in order}
    assert apart[at["fp16"], at["bf16"]] < apart[at["fp32"], at["fp16"]] < apart[at["fp64"], at["fp16"]]
    assert apart.max() == pytest.approx(1.0)
