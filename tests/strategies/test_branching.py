"""The least sum of terms over many choices, against listing all of them."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mptune.strategies.model_based.branching import Term, ascending


@st.composite
def problems(draw):
    radices = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    terms = []
    for _ in range(draw(st.integers(0, 4))):
        columns = tuple(sorted(draw(st.sets(st.integers(0, len(radices) - 1)))))
        shape = [radices[column] for column in columns]
        values = st.one_of(st.integers(0, 9).map(float), st.just(math.inf))
        flat = draw(st.lists(values, min_size=math.prod(shape), max_size=math.prod(shape)))
        factor = st.sampled_from([0.5, 1.0, 2.0])
        factors = [draw(st.lists(factor, min_size=radix, max_size=radix)) for radix in radices]
        scaling = draw(st.sampled_from([(), tuple(map(np.array, factors))]))
        terms.append(Term(columns, np.array(flat, dtype=float).reshape(shape), scaling))
    return radices, terms


def listed(radices, terms):
    found = []
    for codes in itertools.product(*map(range, radices)):
        total = 0.0
        for term in terms:
            factor = math.prod(factors[code] for factors, code in zip(term.factors, codes, strict=False))
            total += float(term.table[tuple(codes[c] for c in term.columns)] * factor)
        if total < math.inf:
            found.append((total, codes))
    return sorted(found)


@pytest.mark.full
@settings(max_examples=50)
@given(problems())
def test_all_come_and_the_least_first(problem):
    radices, terms = problem
    found = list(ascending(radices, terms))
    assert sorted(found) == listed(radices, terms)
    assert [total for total, _ in found] == sorted(total for total, _ in found)


def test_a_large_product_is_not_listed():
    rng = np.random.default_rng(3)
    radices = [6] * 20  # 3.7e15 combinations
    terms = [Term((i, i + 1), rng.uniform(1, 9, (6, 6))) for i in range(19)]
    best, codes = next(ascending(radices, terms))
    # A chain is solved exactly by going along it.
    least = np.zeros(6)
    for term in terms:
        least = (least[:, None] + term.table).min(axis=0)
    assert best == pytest.approx(least.min(), rel=1e-12)
    assert best == pytest.approx(sum(t.table[codes[t.columns[0]], codes[t.columns[1]]] for t in terms), rel=1e-12)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="has shape"):
        next(ascending([2, 3], [Term((0, 1), np.zeros((2, 2)))]))
    with pytest.raises(ValueError, match="not ascending"):
        next(ascending([2, 2], [Term((1, 0), np.zeros((2, 2)))]))
    with pytest.raises(ValueError, match="there are factors for"):
        next(ascending([2, 2], [Term((0,), np.zeros(2), [np.ones(2), np.ones(3)])]))
