"""How often kernels are launched, by signature."""

import itertools

import numpy as np
import pytest

from mptune import CategoricalParameter, PrecisionParameter
from mptune.strategies.model_based.application import LaunchCounts

TYPES = ["fp64", "fp32", "fp16"]
PARAMETERS = [
    PrecisionParameter("a", TYPES),
    PrecisionParameter("b", TYPES),
    CategoricalParameter("method", ["plain", "refined"]),
]


def predicted(counts, codes):
    return counts.predict(np.array([codes], dtype=np.int32))[0]


def test_it_learns_what_each_value_does():
    counts = LaunchCounts(PARAMETERS)
    truth = {
        codes: 100 * (1, 1.1, 2)[codes[0]] * (1, 1, 1.5)[codes[1]] * (1, 1.2)[codes[2]]
        for codes in itertools.product(range(3), range(3), range(2))
    }
    for codes in [(0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 1, 0), (0, 2, 0), (0, 0, 1)]:
        counts.tell(codes, truth[codes])
    for codes, count in truth.items():
        assert predicted(counts, codes) == pytest.approx(count, rel=0.1)


def test_a_type_is_not_blamed_while_another_may_be_at_fault():
    counts = LaunchCounts(PARAMETERS)
    counts.tell((0, 0, 0), 100)
    counts.tell((1, 1, 0), 130)
    assert predicted(counts, (1, 1, 0)) == pytest.approx(130, rel=0.02)
    assert predicted(counts, (1, 0, 0)) == predicted(counts, (0, 1, 0)) == pytest.approx(100, rel=1e-3)
    counts.tell((0, 1, 0), 130)
    assert predicted(counts, (1, 0, 0)) == pytest.approx(100, rel=0.03)
    assert predicted(counts, (0, 1, 1)) > 110


def test_a_value_without_evidence_has_no_effect():
    counts = LaunchCounts(PARAMETERS)
    assert predicted(counts, (0, 0, 0)) == 0
    counts.tell((0, 0, 0), 25)
    for codes in ((0, 0, 0), (2, 2, 1)):
        assert predicted(counts, codes) == pytest.approx(25)


def test_without_parameters_there_is_a_number():
    counts = LaunchCounts([])
    counts.tell((), 7)
    assert predicted(counts, ()) == pytest.approx(7)
