"""NaN in the reference is a mask: every error is that of the other elements alone."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from test_arrays import agree, pair
from test_metrics import close, defined_by_formula, exact, moderate
from test_regions import REGIONS, regions_of

from mptune.accuracy import METRICS, evaluate_outputs, resolve
from mptune.accuracy.evaluate import first_look, judging
from mptune.accuracy.pairs import CHUNK, Pairs, count_unwritten, poisoned
from mptune.errors import MetricError
from mptune.kernel.regions import RegionalMetric

TOLERANCE = "1e-6+1e-3*abs"
LOGARITHMIC = ("RMSLE", "MALE")
garbage = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -7.0, 1e308])


@st.composite
def masked(draw, shapes, elements=moderate):
    """An output, its reference, and where the reference is NaN: nowhere to almost everywhere."""
    shape = draw(shapes)
    output, reference = (draw(hnp.arrays(np.float64, shape, elements=elements, fill=st.nothing())) for _ in "yr")
    mask = draw(hnp.arrays(np.bool_, shape))
    mask.flat[draw(st.integers(0, mask.size - 1))] = False
    output[mask] = draw(hnp.arrays(np.float64, int(mask.sum()), elements=garbage, fill=st.nothing()))
    reference[mask] = math.nan
    return output, reference, mask


def positive(name, output, reference, mask):
    if name in LOGARITHMIC:
        output[~mask], reference[~mask] = np.abs(output[~mask]), np.abs(reference[~mask])


lengths = st.integers(1, 40)


@pytest.mark.parametrize("name", [*METRICS, TOLERANCE])
@given(data=masked(lengths), piece=st.integers(1, 50))
@settings(max_examples=40, deadline=None)
def test_masking_is_removing(name, data, piece):
    output, reference, mask = data
    positive(name, *data)
    metric = resolve(name)
    removed = metric(output[~mask], reference[~mask])
    assert close(metric(output, reference), removed, rel=1e-14)
    assert agree(removed, metric.measure(pair(output, reference, piece)))
    if name in defined_by_formula:
        assert close(removed, exact(name, output[~mask], reference[~mask]))


@pytest.mark.parametrize("size", [1, CHUNK - 1, CHUNK + 1, 3 * CHUNK + 7])
def test_means_are_exact_sums_over_the_elements_that_are_compared(size):
    rng = np.random.default_rng(size)
    reference = rng.integers(1, 1 << 20, size).astype(float)
    output = reference + rng.integers(-9, 10, size)
    mask = rng.random(size) < 0.4
    mask[0] = False
    errors = [Fraction(int(abs(d))) for d in (output - reference)[~mask].tolist()]
    norm = sum(map(Fraction, reference[~mask].tolist()))
    reference[mask], output[mask] = math.nan, 1e300
    wanted = {
        "MAE": sum(errors) / len(errors),
        "MSE": sum(e * e for e in errors) / len(errors),
        "MaxAE": max(errors),
        "NMAE": sum(errors) / norm,
    }
    for name, value in wanted.items():
        assert METRICS[name](output, reference) == pytest.approx(float(value), rel=1e-14)
    squares = math.sqrt(wanted["MSE"])
    assert METRICS["NRMSE"](output, reference) == pytest.approx(squares * len(errors) / float(norm), rel=1e-14)


def test_a_complex_reference_is_masked_where_either_part_is_nan():
    reference = np.array([1 + 1j, complex(math.nan, 1), complex(1, math.nan), 2 - 1j])
    output = np.array([1 + 2j, 0, complex(math.inf, math.nan), 2 - 1j])
    for name in ("MAE", "RMSE", "NRMSE", "NMAE", "MaxRE"):
        assert METRICS[name](output, reference) == METRICS[name](output[[0, 3]], reference[[0, 3]])
    output[3] = complex(2, math.nan)
    assert math.isnan(METRICS["MAE"](output, reference))


@pytest.mark.parametrize("over", REGIONS)
@given(
    data=masked(hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=6)),
    name=st.sampled_from([*METRICS, TOLERANCE]),
    reduce=st.sampled_from(["max", 0.25, 0.5]),
    piece=st.integers(1, 50),
)
@settings(max_examples=100, deadline=None)
def test_regions_without_their_masked_elements(over, data, name, reduce, piece):
    output, reference, mask = data
    positive(name, *data)
    metric = resolve(RegionalMetric(name, over, reduce))
    whole, errors = resolve(name), []
    for region in regions_of(output.shape, over):
        there = ~mask[region]
        if there.any():  # one that is masked throughout is left out
            errors.append(whole(output[region][there], reference[region][there]))
    errors.sort()
    wanted = errors[-1] if reduce == "max" else next(e for i, e in enumerate(errors) if (i + 1) / len(errors) >= reduce)
    assert close(metric(output, reference), wanted)
    assert agree(metric(output, reference), metric.measure(pair(output, reference, piece)))


# -- what never passes ---------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [*METRICS, TOLERANCE, "NRMSE over rows max", "MaxAE over rows 0.5"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("pairing", [lambda output, reference: output, pair])
def test_what_is_not_finite_where_the_reference_is_a_number_does_not_pass(metric, bad, pairing):
    reference = np.ones((6, 5))
    reference[1], reference[3, 2] = math.nan, math.nan
    output = reference.copy()
    output[3, 2] = -1.0
    assert evaluate_outputs({"y": pairing(output, reference)}, {"y": reference}, metric).error == 0
    output[5, 4] = bad
    result = evaluate_outputs({"y": pairing(output, reference)}, {"y": reference}, metric)
    assert str(result.error) == str(bad)
    assert result.non_finite == {"y": 1}
    assert result.message.startswith("output 'y' has NaN or infinity in 1 element, first at index [5, 4]")


@pytest.mark.parametrize("metric", [*METRICS, TOLERANCE, "NRMSE over rows", lambda y, r: 0.0])
def test_a_reference_that_is_nan_throughout_is_one_clear_line(metric):
    nothing = np.full((3, 4), math.nan)
    with pytest.raises(MetricError, match=r"^output 'y': the reference is NaN in all of its 12 elements: nothing"):
        evaluate_outputs({"y": np.ones((3, 4))}, {"y": nothing}, metric)


# -- a user's own --------------------------------------------------------------------------------


def test_a_user_s_function_is_given_the_elements_that_are_compared():
    shapes = []

    def largest(output, reference):
        shapes.append(reference.shape)
        return float(np.abs(output - reference).max())

    reference = np.zeros((3, 4))
    output = reference + np.arange(12.0).reshape(3, 4)
    assert resolve(largest)(output, reference) == 11
    reference[2, 1:] = reference[1] = math.nan
    assert resolve(largest)(output, reference) == 8
    assert resolve(RegionalMetric(largest, "rows", 0.5))(output, reference) == 3
    assert shapes == [(3, 4), (5,), (4,), (1,)]
    assert not first_look(judging(["y"], largest), {"y": reference})


def test_one_that_sees_the_inputs_is_given_all():
    def residual(output, reference, inputs):
        assert np.isnan(reference[1])
        return float(np.nanmax(np.abs(output - inputs["x"])))

    reference = np.array([1.0, math.nan, 3.0])
    assert evaluate_outputs({"y": reference}, {"y": reference}, residual, {"x": np.ones(3)}).error == 2


# -- unwritten elements --------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("pairing", [Pairs.of, pair])
def test_an_unwritten_element_counts_unless_it_is_masked(stored, pairing):
    reference = np.ones((9, 7))
    reference[::2] = math.nan
    output = poisoned((9, 7), np.dtype(stored))
    assert count_unwritten(pairing(output, reference)) == 28
    output[1] = 1
    assert count_unwritten(pairing(output, reference)) == 21
    assert count_unwritten(pairing(output, np.ones((9, 7)))) == 56


def test_what_numpy_has_masked_is_not_compared():
    reference = np.ma.masked_array([[1.0, 2.0, 3.0]], mask=[[False, True, False]])
    found = evaluate_outputs({"y": np.array([[1.0, 99.0, 3.5]])}, {"y": reference}, "MaxAE")
    assert found.error == 0.5
