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
from mptune.accuracy.evaluate import first_look, judged, judging, metric_names_by_error, metric_text
from mptune.accuracy.thresholds import planned_threshold, recorded_metrics, recorded_threshold
from mptune.errors import MetricError, MptuneError, UnknownNameError

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


# -- thresholds by metric: which errors they make measured, under which names, and what is -----------

OUTPUTS = ["y", "z"]


def planned(threshold, metrics="NRMSE", *, is_own=True, outputs=OUTPUTS):
    """The metrics by the names of their errors, and the thresholds."""
    found, limits = planned_threshold(threshold, outputs, metrics, is_own=is_own)
    return {name: metric.name for name, (_, metric) in judged(outputs, found).items()}, limits


def test_a_metric_for_all_outputs_replaces_the_kernel_s_own():
    names, limits = planned({"NRMSE over rows": 1e-3, "max abs": 0.1})
    assert limits == {"NRMSE_rows_max": 1e-3, "MaxAE": 0.1}
    rows = "NRMSE over rows max"
    assert names == {"y": rows, "z": rows, "NRMSE_rows_max": rows, "MaxAE": "MaxAE"}


def test_but_not_one_that_is_asked_for_or_has_a_threshold():
    assert planned({"MaxAE": 0.1}, "MRE", is_own=False)[0] == {"y": "MRE", "z": "MRE", "MaxAE": "MaxAE"}
    names, limits = planned({"y": 1e-4, "MaxAE": 0.1})
    assert names == {"y": "NRMSE", "z": "NRMSE", "MaxAE": "MaxAE"}
    assert limits == {"y": 1e-4, "MaxAE": 0.1}
    names, limits = planned({"": 1e-4, "MaxAE": 0.1})
    assert names == {"y": "NRMSE", "z": "NRMSE", "NRMSE": "NRMSE", "MaxAE": "MaxAE"}
    assert limits == {"NRMSE": 1e-4, "MaxAE": 0.1}


def test_a_number_beside_outputs_is_for_each_of_the_others():
    outputs = ["u", "v", "div"]
    metrics = {"u": "MAE", "v": "MRE", "div": "MaxAE"}
    found, limits = planned_threshold({"": 1e-4, "div": 1e-3}, outputs, metrics, is_own=True)
    assert found is metrics
    assert limits == {"u": 1e-4, "v": 1e-4, "div": 1e-3}
    assert planned({"": 1e-4, "y": 1e-3, "y.MaxAE": 0.1})[1] == {"z": 1e-4, "y": 1e-3, "y.MaxAE": 0.1}
    with pytest.raises(MptuneError, match=r"threshold 0\.0001 .* each \(y, z\) has its own"):
        planned({"": 1e-4, "y": 1e-3, "z": 1.0})


def own(output, reference):
    return 0.0


def test_a_kernel_s_further_metrics_have_thresholds_by_their_names():
    assert set(judged(OUTPUTS, ["NRMSE", own, "MaxAE over rows"])) == {"y", "z", "own", "MaxAE_rows_max"}
    assert set(judged(OUTPUTS, {"y": ["NRMSE", own], "z": "MAE"})) == {"y", "z", "y.own"}
    names, limits = planned({"own": 0.5}, ["NRMSE", own])
    assert (names["y"], names["own"], limits) == ("own", "own", {"own": 0.5})
    # Its own metric leads if that has one, whatever the order.
    names, limits = planned({"own": 0.5, "NRMSE": 1e-4}, ["NRMSE", own])
    assert (names["y"], limits) == ("NRMSE", {"own": 0.5, "NRMSE": 1e-4})
    assert planned({"MaxAE": 0.1, "own": 0.5}, ["NRMSE", own])[0]["y"] == "MaxAE"
    names, limits = planned({"y.own": 0.5}, {"y": ["NRMSE", own], "z": "MAE"})
    assert (names["y"], names["y.own"], limits) == ("NRMSE", "own", {"y.own": 0.5})
    with pytest.raises(MetricError, match="empty list"):
        judged(OUTPUTS, [])


@pytest.mark.parametrize(
    ("threshold", "message"),
    [
        ({"NRSME": 1.0}, "output or error metric in the error threshold: 'NRSME'; did you mean 'NRMSE'"),
        ({"out_u": 1.0}, "output or error metric in the error threshold: 'out_u' (valid: y, z, "),
        ({"x.MaxAE": 1.0}, "output in the error threshold 'x.MaxAE': 'x'"),
        ({"MaxAE": 1.0, "max abs": 2.0}, "the error 'MaxAE' has two thresholds"),
    ],
)
def test_what_is_no_name_is_one_clear_line(threshold, message):
    with pytest.raises(MptuneError) as error:
        planned(threshold)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


NAMES = ("time_ms", "error", "error.y", "error.z", "error.NRMSE_rows_max", "error.y.MaxAE", "error_mean")
FURTHER = {"y": "NRMSE", "z": "NRMSE", "NRMSE_rows_max": "NRMSE over rows max", "y.MaxAE": "MaxAE"}


@pytest.mark.parametrize(
    ("threshold", "found"),
    [
        ({"NRMSE over rows": 1e-3}, {"NRMSE_rows_max": 1e-3}),
        ({"NRMSE_rows_max": 1e-3, "y.max abs": 2.0}, {"NRMSE_rows_max": 1e-3, "y.MaxAE": 2.0}),
        ({"NRMSE": 1e-3}, 1e-3),
        ({"": 1e-3, "y.MaxAE": 2.0}, {"": 1e-3, "y.MaxAE": 2.0}),
        ({"z.NRMSE": 1e-3}, {"z": 1e-3}),
        ({"": 1e-4, "z": 1e-3}, {"y": 1e-4, "z": 1e-3}),
        ({"": 1e-4, "NRMSE_rows_max": 1e-3}, {"": 1e-4, "NRMSE_rows_max": 1e-3}),
    ],
)
def test_recorded_errors_are_found_by_any_spelling(threshold, found):
    assert recorded_threshold(threshold, NAMES, "NRMSE", FURTHER) == found


@pytest.mark.parametrize(
    ("threshold", "metrics"),
    [
        (1e-3, "NRMSE"),
        (1e-3, ["NRMSE over rows", own]),
        (1e-3, {"y": "MAE", "z": "MaxRE over block 4 0.5"}),
        ({"MaxAE": 1.0, "z.own": 2.0}, {"y": "MAE", "z": ["MRE", own]}),
    ],
)
def test_a_run_s_metrics_are_found_again_by_what_it_recorded(threshold, metrics):
    measured, _ = planned_threshold(threshold, OUTPUTS, metrics, is_own=True)
    told = metric_text(OUTPUTS, measured), metric_names_by_error(OUTPUTS, measured)
    found = recorded_metrics(*told, OUTPUTS, metrics)
    assert (metric_text(OUTPUTS, found), metric_names_by_error(OUTPUTS, found)) == told
    assert (found is metrics) == (measured is metrics)
    assert metric_text(OUTPUTS, recorded_metrics("MaxAE", {}, OUTPUTS, metrics)) == "MaxAE"
    with pytest.raises(UnknownNameError):
        recorded_metrics("nobody's", {}, OUTPUTS, metrics)
