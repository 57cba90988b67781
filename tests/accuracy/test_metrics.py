"""Error metrics against their definitions in 60-digit arithmetic, and on awkward data."""

from __future__ import annotations

import importlib.metadata
import itertools
import math
import pickle
import sys
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from mpmath import inf, log, log1p, mp, mpc, mpf, sqrt

from mptune.accuracy import METRICS, evaluate_outputs, pairs, resolve
from mptune.accuracy.pairs import CHUNK
from mptune.errors import MetricError, UnknownNameError

LOGARITHMIC = ("RMSLE", "MALE")
RELATIVE = ("MRE", "RMSRE", "MaxRE")


def exact(name, output, reference, digits=60):
    """The metric's definition, element by element in so many digits."""
    with mp.workdps(digits):
        number = mpc if np.iscomplexobj(output) or np.iscomplexobj(reference) else mpf
        y, r = [number(v) for v in np.ravel(output).tolist()], [number(v) for v in np.ravel(reference).tolist()]
        n = len(y)
        difference = [abs(a - b) for a, b in zip(y, r, strict=True)]

        def over(a, b):
            return a / b if b else (inf if a else mpf(0))

        def logarithm(a):
            if name == "RMSLE":
                return log1p(a)
            return log(a) if a else -inf

        if name in LOGARITHMIC:
            difference = [mpf(0) if a == b else abs(logarithm(a) - logarithm(b)) for a, b in zip(y, r, strict=True)]
        if name in RELATIVE:
            difference = [over(d, abs(b)) for d, b in zip(difference, r, strict=True)]
        mean = sum(difference) / n
        rms = sqrt(sum(d * d for d in difference) / n)
        result = {
            "MAE": mean,
            "MRE": mean,
            "MALE": mean,
            "MSE": rms * rms,
            "RMSE": rms,
            "RMSRE": rms,
            "RMSLE": rms,
            "MaxAE": max(difference),
            "MaxRE": max(difference),
            "NRMSE": over(rms, abs(sum(r) / n)),
            "NMAE": over(sum(difference), sum(map(abs, r))),
        }[name]
        return float(result)


def close(found, wanted, rel=1e-12):
    return found == wanted or found == pytest.approx(wanted, rel=rel, abs=1e-322)


defined_by_formula = [name for name in METRICS if name != "ULP"]
lengths = st.integers(1, 40)
moderate = st.floats(-1e6, 1e6).map(lambda v: v if abs(v) > 1e-6 or v == 0 else 0.0)
#: Squares over- and underflow; differences, quotients and sums do not.
wide_range = st.one_of(st.just(0.0), st.floats(1e-150, 1e150), st.floats(-1e150, -1e-150))


def pairs_of(elements):
    return lengths.flatmap(
        lambda n: st.tuples(
            hnp.arrays(np.float64, n, elements=elements, fill=st.nothing()),
            hnp.arrays(np.float64, n, elements=elements, fill=st.nothing()),
        )
    )


@pytest.mark.parametrize("name", defined_by_formula)
@given(pair=pairs_of(wide_range))
@settings(max_examples=30)
def test_squares_may_over_and_underflow(name, pair):
    output, reference = map(np.abs, pair) if name in LOGARITHMIC else pair
    # A sum of doubles may span 2098 bits.
    digits = 700 if name == "NRMSE" else 60
    assert close(METRICS[name](output, reference), exact(name, output, reference, digits))


@pytest.mark.parametrize("name", defined_by_formula)
@pytest.mark.parametrize(("scale", "n"), [(1e-16, 300), (1e-9, 1023), (1e-3, 300)])
def test_small_errors_and_several_chunks(name, scale, n, monkeypatch):
    monkeypatch.setattr(pairs, "CHUNK", 500)
    rng = np.random.default_rng(7)
    reference = rng.lognormal(sigma=3, size=n)
    output = reference * (1 + scale * rng.standard_normal(n))
    found = METRICS[name](output, reference)
    assert close(found, exact(name, output, reference))
    assert found > 0


@given(pairs_of(moderate), st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_complex_data_use_the_modulus_of_the_difference(pair, random):
    output, reference = (v + 1j * np.array(random.sample(v.tolist(), len(v))) for v in pair)
    for name in defined_by_formula:
        if name in LOGARITHMIC:
            with pytest.raises(MetricError, match="complex"):
                METRICS[name](output, reference)
        else:
            assert close(METRICS[name](output, reference), exact(name, output, reference))


@given(pairs_of(moderate), st.sampled_from([n for n in METRICS if n not in LOGARITHMIC]))
@settings(max_examples=40)
def test_negating_the_data_changes_nothing(pair, name):
    output, reference = pair
    assert METRICS[name](-output, -reference) == METRICS[name](output, reference)


# -- overflow, underflow, cancellation ---------------------------------------------------------


def test_what_overflows_is_infinite():
    big = np.finfo(np.float64).max
    opposite = np.array([big, big]), np.array([-big, big])
    for name in ("MAE", "RMSE", "NMAE", "MRE", "MaxRE", "MaxAE", "ULP", "NRMSE"):
        assert METRICS[name](*opposite) == math.inf
    # A normaliser that overflows hides no error.
    huge = np.full(4, big)
    for name in ("NMAE", "NRMSE"):
        assert METRICS[name](0.5 * huge, huge) == math.inf


def test_errors_whose_squares_overflow_only_in_sum_are_finite():
    reference = np.zeros(4 * CHUNK)
    for error in (1e151, 1e152, 1e153):
        assert METRICS["RMSE"](reference + error, reference) == pytest.approx(error, rel=1e-12)


def test_references_whose_sums_overflow_to_both_sides_have_an_infinite_error():
    reference = np.repeat([1e308, -1e308], CHUNK)
    assert METRICS["NRMSE"](reference * 0.5, reference) == math.inf


def test_a_mean_that_cancels_is_zero_or_known_to_some_digits():
    rng = np.random.default_rng(3)
    half = rng.standard_normal(3 * CHUNK)
    reference = np.concatenate([half, -half])
    rng.shuffle(reference)
    assert METRICS["NRMSE"](reference + 1.0, reference) == math.inf
    reference[0] += 1.0
    assert METRICS["NRMSE"](reference + 1.0, reference) == pytest.approx(len(reference), rel=1e-7)


# -- NaN and infinity --------------------------------------------------------------------------


@pytest.mark.parametrize("name", METRICS)
def test_a_nan_in_a_late_chunk_is_the_result(name):
    reference = np.ones(3 * CHUNK)
    output = reference.copy()
    # Sums that overflow hide it as little as an infinity does.
    for large in (math.inf, 1e304):
        output[: 2 * CHUNK], output[-1] = large, math.nan
        assert math.isnan(METRICS[name](output, reference))


@pytest.mark.parametrize("name", METRICS)
def test_an_infinity_against_anything_else_is_infinite(name):
    pairs = [(math.inf, 1.0), (1.0, math.inf), (math.inf, 0.0), (0.0, math.inf)]
    if name not in LOGARITHMIC:
        pairs += [(math.inf, -math.inf), (-math.inf, math.inf), (-math.inf, 0.0), (0.0, -math.inf)]
    for output, reference in pairs:
        assert METRICS[name]([1.0, output], [2.0, reference]) == math.inf


@pytest.mark.parametrize("name", METRICS)
def test_equal_infinities_are_no_error_and_no_normaliser(name):
    signs = np.array([1, 1, 1]) if name in LOGARITHMIC else np.array([1, -1, 1])
    both = signs * math.inf
    finite = METRICS[name]([1.0, 4.0], [2.0, 4.0])
    found = METRICS[name](np.concatenate([[1.0, 4.0], both]), np.concatenate([[2.0, 4.0], both]))
    assert METRICS[name](both, both) == 0
    if name in ("MaxAE", "MaxRE", "ULP"):
        assert found == finite
    elif name in ("MSE", "MAE", "MRE", "MALE"):
        assert found == pytest.approx(finite * 2 / 5)
    elif name == "NMAE":
        assert found == pytest.approx(1 / 6)
    elif name == "NRMSE":
        assert found == pytest.approx(math.sqrt(1 / 5) / 3)
    else:
        assert found == pytest.approx(finite * math.sqrt(2 / 5))


# -- logarithms --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOGARITHMIC)
def test_negative_data_are_refused_with_their_place(name):
    good, bad = np.ones((2, CHUNK)), np.ones((2, CHUNK))
    bad[1, 5] = bad[1, 7] = -1e-9
    with pytest.raises(MetricError, match=r"output has 2 elements, first at index \[1, 5\]"):
        METRICS[name](bad, good)
    with pytest.raises(MetricError, match=r"reference has 2 elements, first at index \[1, 5\]"):
        METRICS[name](good, bad)


@pytest.mark.parametrize("name", LOGARITHMIC)
@pytest.mark.parametrize("place", [0, -1])
def test_a_nan_counts_for_more_than_a_negative_output(name, place):
    output = np.ones(2 * CHUNK)
    output[CHUNK // 2] = -1
    output[place] = math.nan
    assert math.isnan(METRICS[name](output, np.ones(2 * CHUNK)))


# -- ULP ---------------------------------------------------------------------------------------

STORED = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


@pytest.mark.parametrize("dtype", STORED)
def test_rounding_to_the_output_s_type_costs_at_most_half_a_unit(dtype):
    rng = np.random.default_rng(5)
    reference = np.longdouble(1) * rng.uniform(-8, 8, 5000) * (1 + np.longdouble(2) ** -60 * rng.integers(0, 99, 5000))
    error = METRICS["ULP"](reference.astype(np.float64).astype(dtype), reference)
    assert 0.4 < error <= 0.501


@pytest.mark.parametrize("dtype", STORED)
def test_neighbours_are_one_unit_apart(dtype):
    info = ml_dtypes.finfo(dtype)
    for value in (1.0, 1.5, float(info.smallest_normal), float(info.smallest_subnormal), 0.0):
        reference = np.array([value]).astype(dtype)
        above = np.nextafter(reference, np.array([2.0]).astype(dtype))
        assert METRICS["ULP"](above, reference) == 1
        assert METRICS["ULP"](reference, reference) == 0


def test_units_are_those_of_the_output_not_of_the_reference():
    reference = np.array([1.0])
    assert METRICS["ULP"](np.array([1.0 + 2.0**-10]), reference) == 2.0**42
    assert METRICS["ULP"](np.array([1.0 + 2.0**-10], dtype=np.float16), reference) == 1
    assert METRICS["ULP"](np.array([1.0 + 2.0**-10]), reference.astype(np.float16)) == 2.0**42
    assert METRICS["ULP"](np.array([3, 9]), np.array([3, 5])) == 4
    assert METRICS["ULP"](np.array([1 + 1j * 2.0**-23], dtype=np.complex64), np.array([1.0])) == 1


# -- types, shapes, memory ---------------------------------------------------------------------


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize(
    "dtype",
    [*STORED, np.bool_, np.int8, np.uint16, np.int32, np.int64, np.uint64, ml_dtypes.int4, np.longdouble, ">f8", ">i4"],
)
def test_any_numeric_output_type_gives_the_error_of_its_values(name, dtype):
    output = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    reference = np.array([[0.25, 1.5, 1.0], [0.75, 0.5, 2.0]])
    if name == "ULP":
        assert METRICS[name](output, reference) > 0
    else:
        assert close(METRICS[name](output, reference), exact(name, output.astype(np.float64), reference))


def test_integers_a_double_cannot_hold_are_compared_exactly():
    assert METRICS["MaxAE"](np.array([2**53 + 1]), np.array([2**53])) == 1
    assert METRICS["MaxAE"](np.array([2**64 - 1], dtype=np.uint64), np.array([2**64 - 2], dtype=np.uint64)) == 1
    assert METRICS["MaxAE"](np.array([0], dtype=np.uint8), np.array([255], dtype=np.uint8)) == 255
    assert METRICS["MaxAE"](np.array([-128], dtype=np.int8), np.array([127], dtype=np.int8)) == 255


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="long double is double here")
def test_long_double_stays():
    reference = np.ones(3, dtype=np.longdouble)
    assert METRICS["MaxAE"](reference + np.longdouble(2) ** -60, np.ones(3)) == 2.0**-60


@pytest.mark.parametrize("dtype", [object, "U3", "M8[s]", [("a", float)]])
def test_what_is_not_a_number_is_refused(dtype):
    array = np.zeros(2, dtype=dtype)
    with pytest.raises(MetricError, match="the output has type"):
        METRICS["MAE"](array, np.zeros(2))
    with pytest.raises(MetricError, match="the reference has type"):
        METRICS["MAE"](np.zeros(2), array)


@pytest.mark.parametrize("shape", [(2, CHUNK + 7), (CHUNK + 7, 2), (3, 50, 201), (50, 3, 2, 101)])
def test_elements_have_their_places_in_any_memory_order(shape):
    reference = np.random.default_rng(3).random(shape)
    for place in (0, reference.size // 3, reference.size - 1):
        output = reference.copy()
        output.flat[place:] = math.nan
        index = ", ".join(map(str, np.unravel_index(place, shape)))
        for y, r in itertools.product((output, np.asfortranarray(output)), (reference, np.asfortranarray(reference))):
            result = evaluate_outputs({"y": y}, {"y": r}, "MAE")
            assert f"in {reference.size - place} element" in result.message
            assert f"first at index [{index}]" in result.message


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, dtype) for name in METRICS for dtype in (np.float64, ml_dtypes.bfloat16)),
        *((name, np.complex64) for name in METRICS if name not in LOGARITHMIC),
    ],
)
def test_the_arrays_are_never_copied_as_a_whole(name, dtype):
    n = 600_000
    rng = np.random.default_rng(1)
    reference = rng.random(n)
    reference[::3] = 0  # the slower way of the relative metrics too
    output = reference.astype(dtype)
    output[5] *= 2
    METRICS[name](output[:10], reference[:10])
    tracemalloc.start()
    METRICS[name](output, reference)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000  # ten chunks of 16-byte elements; a copy as double takes 4.8 MB


# -- names and callables -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        *((name.lower(), name) for name in METRICS),
        ("max absolute", "MaxAE"),
        ("normalized root-mean squared error", "NRMSE"),
    ],
)
def test_names_and_aliases(name, canonical):
    assert resolve(name) is METRICS[canonical]
    assert resolve(METRICS[canonical]) is METRICS[canonical]


def test_third_parties_add_metrics_by_entry_points(monkeypatch):
    points = importlib.metadata.EntryPoints(
        importlib.metadata.EntryPoint(name, f"{__name__}:{value}", "mptune.metrics")
        for name, value in (("my-mean", "weighted"), ("ready", "READY"))
    )
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **which: points.select(**which))
    assert resolve("My Mean").name == "my-mean"
    assert resolve("MY_MEAN")([1.0, 2.0], [1.5, 2.0]) == 0.5
    assert resolve("ready") is READY
    with pytest.raises(UnknownNameError, match="did you mean 'my-mean'"):
        resolve("mymeen")


def weighted(output, reference):
    return float(np.mean(np.abs(output - reference) * 2))


READY = resolve(weighted)


def test_a_callable_is_given_double_precision_and_cannot_change_the_data():
    metric = resolve(weighted)
    assert metric.name == "weighted"
    assert metric(np.array([1.0, 2.0], dtype=np.float16), np.array([1.5, 2.0])) == 0.5
    assert pickle.loads(pickle.dumps(metric)) == metric
    seen = []
    resolve(lambda y, r: seen.append((y.dtype, y.shape)) or 0.0)(np.ones((2, 1), ml_dtypes.bfloat16), np.ones((2, 1)))
    assert seen == [(np.float64, (2, 1))]

    def spoil(output, reference):
        reference[0] = 0
        return 0.0

    with pytest.raises(MetricError, match="'spoil' failed: ValueError"):
        resolve(spoil)(np.ones(2), np.ones(2))
    assert np.ones(2).flags.writeable


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda y, r: "many", "one real number"),
        (lambda y, r: 10**400, "one real number"),
        (lambda y, r: sys.exit(3), r"failed: SystemExit: 3 \(test_metrics.py:"),
        (lambda y, r: False, "gave False; it must give one real number"),
        (lambda y, r: np.zeros(1), "one real number"),
        (lambda y, r: -1.0, "at least 0"),
        (lambda y, r: y[10], "IndexError"),
        (lambda y: 0.0, "does not accept the arguments"),
    ],
)
def test_a_callable_that_gives_no_error_is_refused(function, message):
    with pytest.raises(MetricError, match=message):
        resolve(function)(np.ones(3), np.ones(3))


# -- tolerances ----------------------------------------------------------------------------------


@given(pair=pairs_of(moderate), absolute=st.sampled_from([1e-6, 0.5]), relative=st.sampled_from([0.0, 1e-4]))
@settings(max_examples=30)
def test_a_tolerance_is_that_of_each_element(pair, absolute, relative):
    output, reference = pair
    units = [abs(mpf(y) - mpf(r)) / (absolute + relative * abs(mpf(r))) for y, r in zip(*pair, strict=True)]
    assert close(resolve(f"{absolute}+{relative}*abs")(output, reference), float(max(units)))
    within = np.allclose(output, reference, rtol=relative, atol=absolute)
    assert within is bool(resolve(f"{absolute}+{relative}*abs")(output, reference) <= 1 + 1e-12)


def test_a_tolerance_has_one_name_and_finite_parts():
    metric = resolve("1e-6 + 1e-4 * abs")
    assert metric.name == "tolerance 1e-06+0.0001*abs"
    assert resolve(metric.name) == metric == pickle.loads(pickle.dumps(metric))
    assert metric.is_bundled
    assert resolve("1.23456789e-6+0*abs")([1.23456789e-6], [0.0]) == 1
    with pytest.raises(UnknownNameError):
        resolve("1.2.3+1*abs")
    assert metric.key.isidentifier()
    assert resolve("0+1e-4*abs")([1.0], [0.0]) == math.inf
    assert math.isnan(metric([math.nan], [0.0]))
    for text in ("0+0*abs", "1e999+1*abs"):
        with pytest.raises(MetricError, match="expected finite numbers"):
            resolve(text)
