"""Metrics of each row, column or block against their definitions in 60-digit arithmetic, and what they see."""

from __future__ import annotations

import itertools
import math
import pickle
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from test_arrays import agree, pair
from test_metrics import close, defined_by_formula, exact, moderate, wide_range

from mptune.accuracy import METRICS, evaluate_outputs, resolve
from mptune.accuracy.evaluate import first_look, judging
from mptune.accuracy.pairs import CHUNK, Pairs, count_unwritten, poisoned
from mptune.errors import MetricError, MptuneError, UnknownNameError
from mptune.kernel.regions import RegionalMetric, boxes

REGIONS = ["rows", "columns", "block 2x3", "block 3"]


def regions_of(shape, over):
    """Index every region of an array, from the definition in words."""
    rank, (kind, *block) = len(shape), over.split()
    if kind == "block":
        lengths = [int(n) for n in block[0].split("x")]
        lengths = [1] * (rank - len(lengths)) + lengths
    else:
        along = rank - 1 if kind == "rows" else rank - 2
        lengths = [n if axis == along else 1 for axis, n in enumerate(shape)]
    starts = [range(0, n, length) for n, length in zip(shape, lengths, strict=True)]
    for corner in itertools.product(*starts):
        yield tuple(slice(i, i + length) for i, length in zip(corner, lengths, strict=True))


def expected(name, over, reduce, output, reference):
    """The errors of all regions by the definition, and of them the worst or the quantile."""
    # A sum of doubles, as that of a mean, may span 2098 bits.
    digits = 700 if name == "NRMSE" else 60
    errors = sorted(exact(name, output[r], reference[r], digits) for r in regions_of(output.shape, over))
    if reduce == "max":
        return errors[-1]
    return next(e for i, e in enumerate(errors) if (i + 1) / len(errors) >= reduce)


def pairs_of(elements):
    shapes = hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=6)
    return shapes.flatmap(
        lambda shape: st.tuples(*(hnp.arrays(np.float64, shape, elements=elements, fill=st.nothing()) for _ in "yr"))
    )


# -- numbers ---------------------------------------------------------------------------------------------


@pytest.mark.full
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(defined_by_formula), st.sampled_from(REGIONS), pairs_of(wide_range))
def test_squares_may_over_and_underflow(name, over, pair):
    output, reference = map(np.abs, pair) if name in ("RMSLE", "MALE") else pair
    assert close(resolve(f"{name} over {over}")(output, reference), expected(name, over, "max", output, reference))


def test_complex_data_and_views_in_any_order():
    rng = np.random.default_rng(13)
    output, reference = (rng.random((7, 5)) + 1j * rng.random((7, 5)) for _ in "yr")
    for y, r in ((output, reference), (output.T, reference.T), (output[::-1, ::2], reference[::-1, ::2])):
        assert close(resolve("NRMSE over columns")(y, r), expected("NRMSE", "columns", "max", y, r))


@pytest.mark.parametrize("over", ["rows", "columns", "block 100x100"])
def test_several_chunks(over):
    rng = np.random.default_rng(17)
    reference = rng.uniform(1.0, 2.0, (130, 210))
    output = reference * (1 + 1e-6 * rng.standard_normal(reference.shape))
    output[129, 209] *= 1.1
    assert reference.size > 2 * CHUNK
    plain = resolve("NRMSE")
    worst = max(plain(output[r], reference[r]) for r in regions_of(reference.shape, over))
    assert resolve(f"NRMSE over {over}")(output, reference) == pytest.approx(worst, rel=1e-12)


def test_a_quantile_is_the_least_error_that_so_many_regions_do_not_exceed():
    reference = np.ones((100, 1))
    output = reference + np.arange(1.0, 101.0)[::-1, None]
    for reduce, wanted in ((0.07, 7), (0.99, 99), (0.991, 100), (0.001, 1), (1e-12, 1), ("max", 100), (1.0, 100)):
        assert resolve(RegionalMetric("MaxAE", "rows", reduce))(output, reference) == wanted


@given(
    hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=9),
    st.lists(st.integers(1, 12), min_size=4, max_size=4),
    st.integers(1, 50),
)
def test_boxes_cover_everything_once_with_whole_tiles(shape, lengths, most):
    tile = tuple(min(n, length) for n, length in zip(shape, lengths, strict=False))
    seen = np.zeros(shape, dtype=int)
    for box, own in boxes(shape, tile, most):
        part = seen[box]
        part += 1
        assert all(extent % length == 0 for extent, length in zip(part.shape, own, strict=True))
        assert all(length <= limit for length, limit in zip(own, tile, strict=True))
        assert part.size <= max(most, math.prod(own))
    assert (seen == 1).all()


# -- what never passes -----------------------------------------------------------------------------------


def test_an_infinity_a_quantile_overlooks_does_not_pass():
    reference = np.ones((100, 4))
    output = reference.copy()
    output[3, 0] = math.inf
    metric = resolve(RegionalMetric("NRMSE", "rows", 0.9))
    assert metric(output, reference) == 0.0
    result = evaluate_outputs({"y": output}, {"y": reference}, metric)
    assert (result.error, result.non_finite) == (math.inf, {"y": 1})


@pytest.mark.full
@settings(deadline=None)
@given(
    shape=hnp.array_shapes(min_dims=2, max_dims=4, min_side=2, max_side=9),
    seed=st.integers(0, 2**32 - 1),
    scattered=st.booleans(),
    garbage=st.sampled_from([0.0, 0.5, -1.0, 3.0, math.nan, math.inf]),
    limit=st.floats(1e-12, 0.1),
)
def test_destroying_18_percent_never_passes_the_worst_row(shape, seed, scattered, garbage, limit):
    """Whatever is destroyed, and however small it is beside the rest: some row has lost 18% of itself.

    Rows differ in scale by ten orders of magnitude, elements of a row by at most 2, and a destroyed element is wrong by
    half of itself at least: a row with 18% of these has an NRMSE of at least sqrt(0.18 * 0.25) / 2 = 0.106.
    """
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.uniform(-5, 5, (*shape[:-1], 1))
    reference = scales * rng.uniform(1.0, 2.0, shape)
    count = math.ceil(0.18 * reference.size)
    # What the plain mean overlooks most easily are the smallest elements.
    destroyed = rng.permutation(reference.size)[:count] if scattered else np.argsort(reference, axis=None)[:count]
    output = reference.copy()
    output.flat[destroyed] *= garbage
    assert not evaluate_outputs({"y": output}, {"y": reference}, "NRMSE over rows").error <= limit


# -- which regions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        ("NRMSE over rows", (8,), r"output 'y': shape \(8,\) has no rows, .* use blocks, such as 'block 64'"),
        ("NRMSE over block 2x2", (8,), r"shape \(8,\) has no block 2x2, which need 2 axes"),
    ],
)
def test_outputs_without_such_regions_are_refused(text, shape, message):
    with pytest.raises(MetricError, match=message):
        evaluate_outputs({"y": np.ones(shape)}, {"y": np.ones(shape)}, text)


# -- words -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "key"),
    [
        ("nrmse over rows", "NRMSE over rows max", "NRMSE_rows_max"),
        ("max abs over columns 0.99", "MaxAE over columns 0.99", "MaxAE_columns_0_99"),
        ("NRMSE over blocks 8x16 max", "NRMSE over block 8x16 max", "NRMSE_block_8x16_max"),
        ("mean relative error over row 0.5", "MRE over rows 0.5", "MRE_rows_0_5"),
    ],
)
def test_texts(text, name, key):
    metric = resolve(text)
    assert (metric.name, metric.key) == (name, key)
    assert resolve(key) == resolve(name) == metric
    assert metric.is_bundled
    assert pickle.loads(pickle.dumps(metric)) == metric


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("NRSME over rows max", "error metric 'NRSME'; did you mean 'NRMSE'"),
        ("NRMSE over rowss", "'rowss'; did you mean 'rows'"),
        ("NRMSE over block 8xq", "regions block 8xq: expected rows, columns, or blocks"),
        ("NRMSE over rows mean", "reduction 'mean' of regions"),
        ("NRMSE over rows 1.5", "reduction '1.5'"),
        ("NRMSE over rows max over columns max", "reduction 'max over columns max'"),
    ],
)
def test_nonsense_is_one_clear_line(metric, message):
    with pytest.raises(MptuneError, match=message) as error:
        resolve(metric)
    assert "\n" not in str(error.value)


# -- a user's own ----------------------------------------------------------------------------------------


def test_a_user_s_metric_is_given_one_region_at_a_time():
    shapes = []

    def largest(output, reference):
        shapes.append(output.shape)
        return float(np.max(np.abs(output - reference)))

    largest.version = "1"
    reference = np.zeros((2, 5, 4))
    output = np.arange(40.0).reshape(2, 5, 4)
    for over, wanted in (("rows", {(4,)}), ("columns", {(5,)}), ("block 3x3", {(3, 3), (3, 1), (2, 3), (2, 1)})):
        shapes.clear()
        metric = resolve(RegionalMetric(largest, over))
        assert metric(output, reference) == 39.0
        assert set(shapes) == wanted
        assert (metric.version, metric.is_bundled) == ("1", False)
    assert metric.name == "largest over block 3x3 max"


def test_a_metric_may_see_the_inputs():
    """A residual ||b - A x|| needs no reference at all."""

    def residual(output, reference, inputs):
        assert not inputs["A"].flags.writeable
        return float(np.linalg.norm(inputs["b"] - inputs["A"] @ output) / np.linalg.norm(inputs["b"]))

    a, x = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([1.0, 2.0])
    a.flags.writeable = False
    inputs = {"A": a, "b": a @ x}
    metric = resolve(residual)
    assert metric.sees_inputs
    assert metric(x, x * 0, inputs) == 0.0
    assert evaluate_outputs({"x": x + 1}, {"x": x}, residual, inputs).error == pytest.approx(5 / math.sqrt(65))
    by_name = evaluate_outputs({"x": x + 1}, {"x": x}, {"x": "MAE", "residual": residual}, inputs)
    assert (by_name.error, by_name.further["residual"]) == (1.0, pytest.approx(5 / math.sqrt(65)))
    with pytest.raises(MetricError, match="'residual' needs the inputs"):
        evaluate_outputs({"x": x}, {"x": x}, residual)
    with pytest.raises(MetricError, match="cannot be measured over rows max"):
        resolve(RegionalMetric(residual, "rows"))


# -- several metrics -------------------------------------------------------------------------------------


def test_further_metrics_of_all_outputs_and_of_one():
    metrics = {"a": "MAE", "b": "NRMSE", "MaxAE_rows_max": "MaxAE over rows", "b.MaxRE": "MaxRE"}
    outputs = {"a": np.ones((2, 2)) + 0.5, "b": np.full((2, 2), 3.0)}
    references = {"a": np.ones((2, 2)), "b": np.full((2, 2), 2.0)}
    result = evaluate_outputs(outputs, references, metrics)
    assert result.metrics == {
        "error": 0.5,
        "log10_error": math.log10(0.5),
        "error.a": 0.5,
        "error.b": 0.5,
        "error.MaxAE_rows_max": 1.0,
        "error.b.MaxRE": 0.5,
    }
    outputs["a"][1, 1] = math.nan
    broken = evaluate_outputs(outputs, references, metrics)
    assert math.isnan(broken.error)
    assert math.isnan(broken.further["MaxAE_rows_max"])
    assert broken.is_nan
    assert broken.further["b.MaxRE"] == 0.5


def test_a_name_that_is_neither_an_output_nor_the_metric_s_is_refused():
    for name in ("yy", "z.MaxAE", "y.MaxRE", "MaxRE"):
        with pytest.raises(UnknownNameError, match=r"did you mean 'y'|valid: y"):
            evaluate_outputs({"y": np.ones(2)}, {"y": np.ones(2)}, {"y": "MAE", name: "MaxAE"})


# -- naN in the reference is a mask: every error is that of the other elements alone -----------------

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
@pytest.mark.full
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
