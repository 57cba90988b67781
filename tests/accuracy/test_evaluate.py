"""The error of several outputs together: the worst counts, and nothing non-finite passes."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mptune.accuracy import METRICS, AccuracyResult, evaluate_outputs
from mptune.accuracy.evaluate import first_look, judging
from mptune.errors import MetricError, ReferenceDataError, UnknownNameError

ONE = np.ones(4)


@pytest.mark.full
@given(st.dictionaries(st.text(max_size=3), st.floats(min_value=0), min_size=1, max_size=5), st.data())
def test_nan_is_the_worst_error_whatever_the_order(errors, data):
    names = data.draw(st.permutations([*errors, "nan"]))
    result = AccuracyResult({name: errors.get(name, math.nan) if name != "nan" else math.nan for name in names})
    assert math.isnan(result.error)
    assert math.isnan(result.log10_error)
    assert AccuracyResult(errors).error == max(errors.values())


@pytest.mark.parametrize("order", list(itertools.permutations("xyz")))
def test_a_nan_in_any_output_is_never_lost(order):
    values = {"x": ONE, "y": np.array([1, math.nan, 1, math.nan]), "z": np.array([1, 1, math.inf, 1])}
    result = evaluate_outputs({name: values[name] for name in order}, dict.fromkeys("xyz", ONE), "NRMSE")
    assert math.isnan(result.error)
    assert result.errors["z"] == math.inf
    assert result.non_finite == {"y": 2, "z": 1}
    assert result.non_finite
    assert "output 'y' has NaN or infinity in 2 elements, first at index [1] (of 4)" in result.message
    assert "output 'z' has NaN or infinity in 1 element, first at index [2] (of 4)" in result.message


def test_overflow_in_a_stored_type():
    reference = {"y": np.array([1.0, 1e6])}
    with np.errstate(over="ignore"):
        for dtype, error in ((np.float16, math.inf), (ml_dtypes.float8_e5m2, math.inf), (ml_dtypes.bfloat16, None)):
            result = evaluate_outputs({"y": reference["y"].astype(dtype)}, reference, "MAE")
            assert result.error == error or (error is None and math.isfinite(result.error))
            assert bool(result.non_finite) == (error is not None)
        result = evaluate_outputs({"y": reference["y"].astype(ml_dtypes.float8_e4m3fn)}, reference, "MAE")
    assert math.isnan(result.error)  # E4M3 has no infinity


def test_infinities_the_reference_has_too_are_no_fault():
    reference = np.array([1.0, math.inf, -math.inf])
    result = evaluate_outputs({"y": reference.astype(np.float32)}, {"y": reference}, "MAE")
    assert (result.error, result.non_finite, result.message) == (0, {}, "")
    missed = evaluate_outputs({"y": np.array([1.0, 3.0, -math.inf])}, {"y": reference}, "MAE")
    assert missed.error == math.inf
    assert missed.non_finite == {}
    opposite = evaluate_outputs({"y": -reference}, {"y": reference}, "MAE")
    assert opposite.non_finite == {"y": 2}


@pytest.mark.parametrize(("bad", "expected"), [(math.nan, "nan"), (math.inf, "inf")])
def test_a_metric_that_overlooks_nan_does_not_let_it_pass(bad, expected):
    def blind(output, reference):
        with np.errstate(invalid="ignore"):
            return float(np.nanmean(np.where(np.isfinite(output), np.abs(output - reference), 0)))

    result = evaluate_outputs({"y": np.array([1.0, bad])}, {"y": np.ones(2)}, blind)
    assert str(result.error) == expected
    assert result.non_finite == {"y": 1}
    assert evaluate_outputs({"y": np.ones(2)}, {"y": np.ones(2)}, blind).error == 0


def test_a_metric_for_each_output():
    outputs = {"a": ONE + 1, "b": ONE + 1}
    references = {"a": ONE, "b": ONE * 2}
    result = evaluate_outputs(outputs, references, {"a": "max_abs", "b": lambda y, r: 7.0})
    assert result.errors == {"a": 1.0, "b": 7.0}
    with pytest.raises(UnknownNameError, match=r"'c'.*valid: a, b"):
        evaluate_outputs(outputs, references, {"a": "MAE", "b": "MAE", "c": "MAE"})
    with pytest.raises(MetricError, match="output 'b' has no error metric"):
        evaluate_outputs(outputs, references, {"a": "MAE"})


def test_outputs_and_references_must_have_the_same_names():
    with pytest.raises(ReferenceDataError, match="outputs a, b and references a do not match"):
        evaluate_outputs({"a": ONE, "b": ONE}, {"a": ONE}, "MAE")
    with pytest.raises(ReferenceDataError, match="outputs a and references a, b do not match"):
        evaluate_outputs({"a": ONE}, {"a": ONE, "b": ONE}, "MAE")
    with pytest.raises(MetricError, match="no output"):
        evaluate_outputs({}, {}, "MAE")


# -- before anything runs ----------------------------------------------------------------------


def looked(metric, reference):
    return first_look(judging(["y"], metric), {"y": reference})


def test_a_mean_near_zero_is_said_with_what_suits():
    rng = np.random.default_rng(0)
    reference = rng.standard_normal((300, 400))
    (hint,) = looked("NRMSE", reference)
    assert hint.startswith("NRMSE divides by the mean of the reference, which is near 0 for output 'y'")
    assert hint.endswith("--metric NMAE divides by that magnitude")
    # It is right: the same error by both.
    shifted = reference + 0.01 * np.abs(reference).mean()
    said = float(hint.partition("everywhere gives ")[2].partition(";")[0])
    assert METRICS["NRMSE"](shifted, reference) == pytest.approx(said, rel=0.01)
    assert METRICS["NMAE"](shifted, reference) == pytest.approx(0.01)
    (rows,) = looked("NRMSE over rows max", 1.0 + np.where(np.arange(300)[:, None] == 7, reference - 1.0, 0.0))
    assert "--metric 'NMAE over rows max' divides" in rows
    (zero,) = looked(["NMAE", "NRMSE"], np.array([1.0, -1.0]))
    assert "everywhere gives inf" in zero
    with pytest.raises(
        MetricError, match=r"output 'y': NRMSE divides by the mean .* which is 0: .* give --metric NMAE"
    ):
        looked("NRMSE", np.array([1.0, -1.0]))


def test_a_user_s_metric_is_tried_before_anything_runs():
    seen = []

    def own(output, reference):
        seen.append((output != reference).all())
        return "0"

    with pytest.raises(MetricError, match=r"^output 'y': error metric 'own' gave '0'; it must give one real number$"):
        looked(own, np.ones(4))
    assert seen == [True]
    assert looked(lambda output, reference: 0.0, np.ones(4, dtype=np.int32)) == ()
