"""The data manager: inputs as declared, typed copies under a budget, poison, footprints, memory."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from kernels_for_data import ARGUMENTS, inputs, kernel, simple

import mptune.data.manager
from mptune.accuracy.pairs import Pairs, count_unwritten, poisoned
from mptune.data import DataManager, Draw, Stream, rounded_inputs
from mptune.data.conversion import round_to
from mptune.errors import KernelError, MptuneError, OutOfMemoryError, UnknownNameError
from mptune.kernel import In, Out, Scalar
from mptune.precision import PRECISIONS, precision
from mptune.source.loading import load_kernel


def manager(definition, sizes=None, **options):
    return DataManager(definition, definition.resolve_sizes(overrides=sizes), **options)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MPTUNE_CACHE_DIR", str(tmp_path / "cache"))


def argument(definition, name):
    return next(a for a in definition.arguments if a.name == name)


# -- inputs ------------------------------------------------------------------------------------


def test_it_is_found_which_types_are_exact_at_these_sizes_and_not_beside_them():
    mriq = load_kernel("mriq")

    def rounded(side):
        data = manager(mriq, {"side": side, "samples": 50})
        return rounded_inputs(mriq, data.sizes, 0, data.inputs)

    # Its positions are multiples of 24 / side, between which a half is left out or not.
    assert rounded(6)["position_type"]["bf16"] == {"side": 0.0}
    assert set(rounded(6)) == {"position_type"}
    assert "fp64" not in rounded(6)["position_type"]
    assert rounded(5) == rounded(7) == {}


def test_inputs_are_seeded_fp64_and_read_only():
    data = manager(kernel(), seed=3)
    expected = inputs(np.random.default_rng(3), data.sizes)
    assert set(data.inputs) == {"x", "index", "state", "a", "n"}
    for name in ("x", "state"):
        np.testing.assert_array_equal(data.inputs[name], expected[name])
        assert data.inputs[name].dtype == np.float64
    assert data.inputs["index"].dtype == np.int32
    assert data.inputs["a"] == 2.5
    assert type(data.inputs["a"]) is float
    assert data.inputs["n"] == 37
    with pytest.raises(ValueError, match="read-only"):
        data.inputs["x"][0, 0] = 1.0
    assert not np.array_equal(manager(kernel(), seed=4).inputs["x"], data.inputs["x"])


@pytest.mark.parametrize(
    "given",
    [
        np.arange(5, dtype=np.float16),
        np.arange(5).astype(ml_dtypes.bfloat16),
        np.arange(5).astype(ml_dtypes.float8_e4m3fn),
        np.arange(5, dtype=">f8"),
        np.arange(10.0)[::2] / 2,
        range(5),
    ],
    ids=repr,
)
def test_anything_real_becomes_contiguous_fp64(given):
    held = manager(kernel_of_one_input(given)).inputs["x"]
    np.testing.assert_array_equal(held, np.arange(5.0))
    assert held.dtype == np.float64
    assert held.dtype.isnative
    assert held.flags.c_contiguous


def kernel_of_one_input(given, **changes):
    return simple(np.zeros(5), inputs=lambda rng, size: {"x": given}, **changes)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": None}, KernelError, r"inputs of kernel example lacks 'x'"),
        (
            {"idnex": 1},
            UnknownNameError,
            r"unknown input of kernel example: 'idnex'; did you mean 'index'\?.*Declare an argument",
        ),
        ({"y": np.zeros((37, 5))}, KernelError, r"'y', which is an output only: declare it InOut"),
        (
            {"x": np.zeros((37, 1))},
            KernelError,
            r"'x' of kernel example has shape \(37, 1\); expected \(37, 5\) at .*n=37",
        ),
        ({"x": np.zeros((37, 5), complex)}, KernelError, "'x' of kernel example has type complex128; expected real"),
        ({"x": np.full((37, 5), "a")}, KernelError, "has type <U1"),
        (
            {"index": np.zeros(37)},
            KernelError,
            "'index' of kernel example has type float64; expected integers for int32",
        ),
        ({"index": np.full(37, 2**31)}, KernelError, "values outside int32: from 2147483648 to 2147483648"),
        ({"a": np.nan}, KernelError, "'a' of kernel example has 1 values that are NaN or infinite"),
    ],
)
def test_inputs_that_are_not_as_declared(change, error, message):
    def changed(rng, size):
        given = inputs(rng, size) | change
        return {name: value for name, value in given.items() if value is not None}

    with pytest.raises(error, match=message):
        _ = manager(kernel(inputs=changed)).inputs


def test_inputs_that_fail():
    def broken(rng, size):
        return {"x": size.width}

    with pytest.raises(KernelError, match="inputs of kernel example failed: AttributeError: no size 'width'"):
        _ = manager(kernel(inputs=broken)).inputs
    with pytest.raises(KernelError, match="returned list, not arrays by argument"):
        _ = manager(kernel(inputs=lambda rng, size: [1])).inputs

    def too_large(rng, size):
        raise MemoryError

    with pytest.raises(OutOfMemoryError, match=r"n=37.* the inputs of example ran out of memory"):
        _ = manager(kernel(inputs=too_large)).inputs


# -- typed copies ------------------------------------------------------------------------------


@pytest.fixture
def conversions(monkeypatch):
    """Counts how often values are converted."""
    made = []

    def counted(values, wanted):
        made.append(wanted.name)
        return convert(values, wanted)

    convert = mptune.data.manager.convert
    monkeypatch.setattr(mptune.data.manager, "convert", counted)
    return made


def test_typed_copies_are_rounded_contiguous_and_read_only(conversions):
    data = manager(kernel())
    x = argument(data.kernel, "x")
    for entry in PRECISIONS.values():
        copy = data.typed(x, entry)
        assert copy.dtype == entry.dtype
        np.testing.assert_array_equal(copy, round_to(data.inputs["x"].reshape(-1), entry).reshape(37, 5))
        assert copy.flags.c_contiguous
        assert not copy.flags.writeable
    assert data.typed(x, precision("fp64")) is data.inputs["x"]
    assert data.typed(argument(data.kernel, "index"), None) is data.inputs["index"]
    assert conversions == ["fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2"]


def test_copies_are_kept_and_the_least_recently_used_leaves(conversions):
    data = manager(simple(np.arange(100.0)), budget_bytes=600)
    x = data.kernel.arguments[0]

    def ask(*names):
        del conversions[:]
        for name in names:
            data.typed(x, precision(name))
        return conversions

    assert ask("fp32", "fp32", "fp16", "fp32") == ["fp32", "fp16"]
    assert ask("bf16") == ["bf16"], "fp16, not used for longer than fp32, has left"
    assert ask("fp32", "bf16") == []
    assert ask("fp16") == ["fp16"], "fp32 has left"
    assert ask("bf16", "fp8_e5m2", "fp8_e4m3") == ["fp8_e5m2", "fp8_e4m3"]
    assert sum(array.nbytes for array in data._typed.values()) <= 600


# -- warnings ----------------------------------------------------------------------------------


def test_warnings_cover_scalars_and_fixed_precisions_but_no_outputs():
    definition = simple(
        [1.0],
        inputs=lambda rng, size: {"x": [1.0], "a": 1e5, "b": 1e-9},
        arguments=[
            In("x", "n", precision="fp64"),
            Scalar("a", precision="x_type"),
            Scalar("b", precision="fp16"),
            Out("y", "n", precision="fp16"),
        ],
    )
    data = manager(definition)
    found = data.warnings(definition.configuration({"x_type": "fp16"}))
    assert [text.split(":")[0] for text in found] == ["input 'a' overflows in fp16", "input 'b' underflows in fp16"]


# -- poison ------------------------------------------------------------------------------------


def poison(data, output, chosen):
    return poisoned(data.shape_of(output), np.dtype(output.dtype) if chosen is None else chosen.dtype)


def unwritten(data, output, array):
    return count_unwritten(Pairs.of(array, data.references[output.name]))


def test_an_integer_result_that_looks_like_poison_is_a_result():
    # 165 is the byte 0xA5: an image has such pixels, and pixels that are off by one.
    pixels = np.arange(256)
    definition = simple(
        pixels,
        arguments=[In("x", "n", precision="x_type"), Out("y", "n", dtype="uint8")],
        reference=lambda inputs, size: pixels,
    )
    data = manager(definition)
    output = definition.arguments[1]
    assert unwritten(data, output, pixels.astype(np.uint8)) == 0
    assert unwritten(data, output, (pixels + 1).astype(np.uint8)) == 0
    assert unwritten(data, output, poison(data, output, None)) == 256 - 33


# -- accounts ----------------------------------------------------------------------------------


def test_footprint_counts_every_argument_once_in_its_precision():
    data = manager(kernel())
    fixed = 37 * 4 + 37 * 4 + 37 * 2 + 4  # index, state, count, n
    for x_type, x_bytes in (("fp64", 8), ("fp32", 4), ("bf16", 2), ("fp8_e5m2", 1)):
        for y_type, y_bytes in (("fp64", 8), ("fp16", 2)):
            configuration = data.kernel.configuration({"x_type": x_type, "y_type": y_type})
            assert data.footprint_bytes(configuration) == fixed + 185 * x_bytes + 185 * y_bytes + x_bytes


def test_sizes_that_do_not_fit_are_refused_before_anything_is_made():
    made = []
    definition = kernel(inputs=lambda rng, size: made.append(1))
    data = manager(definition, {"n": 10**12})
    with pytest.raises(OutOfMemoryError, match=r"n=1000000000000, m=5: kernel example needs .* TB of host memory"):
        _ = data.inputs
    with pytest.raises(OutOfMemoryError):
        _ = data.references
    assert made == []
    assert issubclass(OutOfMemoryError, MptuneError)


def test_the_data_key_depends_on_data_and_sizes_alone():
    def key(seed=0, sizes=None, **changes):
        return manager(kernel(**changes), sizes, seed=seed).data_key

    first = key()
    assert key() == first
    assert len({first, key(seed=1), key(sizes={"n": 36}), key(reference=other_reference)}) == 4
    assert key(block=("2 * block",)) == first
    assert key_of_zeros(("n", "m")) != key_of_zeros(("m", "n"))
    renamed = (*ARGUMENTS[:-1], Scalar("k", dtype="int32"))
    assert key(arguments=renamed, inputs=lambda rng, size: inputs(rng, size) | {"k": size.n}) != first


def key_of_zeros(shape):
    definition = simple(
        np.zeros(1),
        arguments=[In("x", shape, precision="x_type"), Out("y", "n", precision="x_type")],
        sizes={"default": {"n": 2, "m": 3}},
        inputs=lambda rng, size: {"x": np.zeros([size[axis] for axis in shape])},
    )
    return manager(definition).data_key


def other_reference(given, size):
    outputs = {"y": given["a"] * given["x"], "state": 2 * given["state"], "count": np.minimum(given["index"], 300)}
    outputs["y"][36, 4] = np.nextafter(outputs["y"][36, 4], 0)
    return outputs


# -- draws -------------------------------------------------------------------------------------


def drawn(draw, definition=None, seed=3):
    return manager(definition or kernel(), seed=seed, draw=draw).inputs


def test_the_first_draw_of_a_search_is_that_of_the_seed_and_no_two_draws_are_alike():
    seen = [
        drawn(Draw(stream, number), seed=seed)["x"].tobytes()
        for seed in (3, 4)
        for stream in Stream
        for number in range(3)
    ]
    assert seen[0] == manager(kernel(), seed=3).inputs["x"].tobytes()
    assert len(set(seen)) == len(seen)
    assert drawn(Draw(Stream.UNSEEN, 2))["x"].tobytes() == drawn(Draw(Stream.UNSEEN, 2))["x"].tobytes()
