"""Metrics on a device's arrays give what they give on the host, and touch nothing but the device's namespace."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strict_arrays import Namespace, Strict

from mptune.accuracy import METRICS, evaluate_outputs, resolve
from mptune.accuracy.metrics import rehearse
from mptune.accuracy.pairs import Elements, Pairs, bits_type, can_decode, count_unwritten, poisoned
from mptune.errors import MetricError
from mptune.precision import PRECISIONS

DEVICE = Namespace()
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32"]
STORED = [*(p.dtype for p in PRECISIONS.values()), *map(np.dtype, INTEGERS)]


def there(array, namespace=DEVICE):
    array = np.ascontiguousarray(array)
    bits = Strict(array.reshape(-1).view(bits_type(array.dtype)))
    return Elements(namespace, bits, array.dtype, array.shape)


def pair(output, reference, piece=7):
    return Pairs.of(there(output), there(reference), piece=piece)


def both(name, output, reference, piece=7):
    """The metric on the host and on the device: numbers, or the messages of errors."""
    found = []
    for measure in (lambda m: m(output, reference), lambda m: m.measure(pair(output, reference, piece))):
        try:
            found.append(measure(METRICS[name]))
        except MetricError as error:
            found.append(str(error))
    return found


def agree(here, over_there):
    if isinstance(here, str) or isinstance(over_there, str):
        return here == over_there
    if math.isnan(here):
        return math.isnan(over_there)
    return over_there == here or math.isclose(here, over_there, rel_tol=1e-12)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("stored", STORED, ids=str)
def test_every_stored_type_by_every_metric(name, stored):
    rng = np.random.default_rng(5)
    reference = rng.uniform(1.0, 100.0, (13, 41))
    if stored.kind in "iu":
        reference = np.round(reference).astype(stored)
        output = np.where(rng.random(reference.shape) < 0.3, reference + stored.type(1), reference)
    else:
        output = (reference * (1 + 1e-3 * rng.standard_normal(reference.shape))).astype(stored)
    here, over_there = both(name, output, reference, piece=100)
    assert here > 0
    assert agree(here, over_there), (here, over_there)


@pytest.mark.parametrize("stored", [p.dtype for p in PRECISIONS.values() if p.size_bytes <= 2], ids=str)
def test_every_value_of_a_small_type_is_decoded(stored):
    bits = np.arange(2 ** (8 * stored.itemsize), dtype=bits_type(stored))
    decoded = there(bits.view(stored)).numbers(slice(None), np.dtype(np.float64))
    with np.errstate(invalid="ignore"):
        expected = bits.view(stored).astype(np.float64)
    np.testing.assert_array_equal(decoded.of, expected)
    assert np.array_equal(np.signbit(decoded.of), np.signbit(expected))


values = st.one_of(
    st.floats(-1e3, 1e3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1e308, -1e308, 1e-300]),
)


@pytest.mark.parametrize("name", METRICS)
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_awkward_data_by_every_metric(name, data):
    elements = data.draw(st.lists(st.tuples(values, values), min_size=1, max_size=30))
    output, reference = np.array(elements).T
    if data.draw(st.booleans()):
        output, reference = np.abs(output), np.abs(reference)
    here, over_there = both(name, output, reference, data.draw(st.integers(1, 40)))
    assert agree(here, over_there), (here, over_there)


def test_nothing_is_used_that_a_device_s_namespace_lacks():
    for name in METRICS:
        both(name, [1.0, 2.0, 0.0, 1e308], [1.5, -2.0, 1e-3, -1e308])
        both(name, [1.0, 2.0, 0.0], [9.0, 2.0, 1e-3])
    assert len(DEVICE.used) > 10
    cupy = pytest.importorskip("cupy", reason='CuPy is not installed: pip install "mptune[cuda]"')
    assert {name for name in DEVICE.used if not hasattr(cupy, name)} == set()


@pytest.mark.parametrize("name", [*METRICS, "NRMSE over rows max", "MaxRE over columns 0.5", "ULP over block 2x1x3"])
def test_a_rehearsal_finds_the_device_to_agree(name):
    rehearse(Namespace(), resolve(name))


class TestOutputs:
    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_what_is_not_finite_is_counted_and_placed_alike(self, bad):
        reference = np.ones((20, 30))
        output = reference.astype(ml_dtypes.bfloat16)
        output[3, 4] = output[19, 29] = bad
        here = evaluate_outputs({"y": output}, {"y": reference}, "MAE")
        over_there = evaluate_outputs({"y": pair(output, reference)}, {"y": reference}, "MAE")
        assert over_there.non_finite == here.non_finite == {"y": 2}
        assert over_there.message == here.message
        assert "first at index [3, 4] (of 600)" in over_there.message
        assert str(over_there.error) == str(here.error)

    @pytest.mark.parametrize("dtype", ["int64", "uint64", "complex128", "longdouble"])
    def test_what_doubles_do_not_hold_is_not_decoded(self, dtype):
        assert not can_decode(np.dtype(dtype))


class TestPoison:
    @pytest.mark.parametrize("stored", STORED, ids=str)
    def test_unwritten_elements_are_counted(self, stored):
        output = poisoned((10, 11), stored)
        reference = np.ones((10, 11), stored if stored.kind in "iu" else np.float64)
        assert count_unwritten(pair(output, reference, 30)) == 110
        output[2:4] = 1
        assert count_unwritten(pair(output, reference, 30)) == 88
        output[:] = 1
        assert count_unwritten(pair(output, reference, 30)) == 0
