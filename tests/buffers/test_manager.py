"""The data manager: inputs as declared, typed copies under a budget, poison, footprints, memory."""

from __future__ import annotations

import importlib.util
import os
import random
import sys

import ml_dtypes
import numpy as np
import pytest
from kernels_for_data import inputs, kernel, reference, simple

from mptune.accuracy.pairs import Pairs, count_unwritten, poisoned
from mptune.data import DataManager, Draw, Stream, rounded_inputs
from mptune.data.reference_cache import reference_key
from mptune.errors import KernelError, MptuneError, OutOfMemoryError, ReferenceDataError, UnknownNameError
from mptune.kernel import In, Out
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


# -- references: as declared or refused, and cached on disk by what they depend on -------------------


def references(definition, cache_dir, seed=0, **sizes):
    manager = DataManager(definition, definition.resolve_sizes(overrides=sizes), seed=seed, cache_dir=cache_dir)
    return manager.references


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": None}, "lacks output y"),
        ({"cuont": np.zeros(3)}, r"gives 'cuont', which is no output; did you mean 'count'\?"),
        ({"y": np.zeros(37)}, r"output 'y' of kernel example has shape \(37,\); expected \(37, 5\) at .*n=37"),
        ({"y": np.zeros((37, 5), np.float32)}, "type float32; expected float64: it must be exact beside fp64"),
        ({"y": np.full((37, 5), np.nan)}, "is NaN in all of its 185 elements: nothing can be compared"),
        ({"y": np.where(np.arange(185) == 184, np.inf, np.nan).reshape(37, 5)}, r"1 values .* first at \(36, 4\)"),
        ({"count": np.full(37, 40_000)}, "values outside int16"),
    ],
)
def test_references_that_are_not_as_declared(tmp_path, change, message):
    def changed(given, size):
        return {name: value for name, value in (reference(given, size) | change).items() if value is not None}

    with pytest.raises(ReferenceDataError, match=message):
        references(kernel(reference=changed), tmp_path)


def test_a_reference_that_changes_its_inputs_is_told_so(tmp_path):
    def in_place(given, size):
        values = given["x"]
        values += 1
        return values

    with pytest.raises(
        ReferenceDataError, match="changes its inputs, which every trial needs unchanged: work on a copy"
    ):
        references(simple(np.zeros(4), reference=in_place), tmp_path)

    def rebind(given, size):
        given["x"] = 1

    with pytest.raises(ReferenceDataError, match="failed: TypeError"):
        references(simple(np.zeros(4), reference=rebind), tmp_path)


# -- the cache ---------------------------------------------------------------------------------

SOURCE = """
import {helper}
calls = []

def reference(inputs, size):
    calls.append(1)
    return {helper}.factor() * inputs["x"]
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a reference and a module it uses, both written long ago."""
    monkeypatch.syspath_prepend(tmp_path)
    helper = f"helper_{abs(hash(str(tmp_path)))}"
    write(tmp_path / f"{helper}_base.py", "TWO = 2.0\n\ndef two():\n    return TWO\n")
    write(tmp_path / f"{helper}.py", f"from {helper}_base import two\n\ndef factor():\n    return two()\n")
    write(tmp_path / "scale.py", SOURCE.format(helper=helper))
    yield tmp_path
    for name in (helper, f"{helper}_base"):
        sys.modules.pop(name, None)


def write(path, text):
    path.write_text(text)
    os.utime(path, (1e9, 1e9))


def load(project):
    spec = importlib.util.spec_from_file_location("scale_reference", project / "scale.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scale(module, values=(1.0, 2.0, 3.0), **changes):
    return simple(np.array(values), reference=module.reference, **changes)


def test_what_a_cached_reference_depends_on(project, tmp_path, monkeypatch):
    module, cache = load(project), tmp_path / "cache"
    references(scale(module), cache)

    def computed(definition, **sizes):
        before = len(module.calls)
        references(definition, cache, **sizes)
        return len(module.calls) - before

    assert computed(scale(module)) == 0
    assert computed(scale(module, precisions=("fp64", "fp32"))) == 0
    assert computed(scale(module, values=(1.0, 2.0, 4.0))) == 1
    assert computed(scale(module, values=(1.0, 2.0))) == 1
    assert computed(scale(module, name="another")) == 1
    monkeypatch.setattr(np, "__version__", "99.0")
    assert computed(scale(module)) == 1


def test_editing_the_reference_or_a_module_beside_it_counts(project, tmp_path):
    definition = scale(load(project))
    sizes = definition.resolve_sizes()

    def key():
        return reference_key(definition, "inputs", sizes)

    first = key()
    write(project / "unrelated.py", "x = 1\n")
    assert key() == first
    keys = [first]
    for path in (*sorted(project.glob("helper_*.py")), project / "scale.py"):
        write(path, path.read_text() + "# a remark\n")
        keys.append(key())
    assert len(set(keys)) == len(keys) == 4


def test_what_cannot_be_known_by_its_source_is_not_cached(project, tmp_path):
    module = load(project)

    class Callable:
        def __call__(self, given, size):
            return given["x"]

    unknown = [lambda given, size: module.reference(given, size), Callable()]
    namespace = {}
    exec("def typed_in(given, size): return given['x']", namespace)
    unknown.append(namespace["typed_in"])
    for function in unknown:
        definition = simple(np.zeros(3), reference=function)
        assert reference_key(definition, "inputs", definition.resolve_sizes()) is None
        references(definition, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-30]),
        lambda path: path.write_bytes(path.read_bytes().replace(np.float64(2.0).tobytes(), np.float64(7.0).tobytes())),
        lambda path: np.savez(path, **{"output.y": np.zeros(3, np.float32)}),
        lambda path: (path.unlink(), path.mkdir()),
    ],
)
def test_a_damaged_file_is_ignored(project, tmp_path, damage):
    module, cache = load(project), tmp_path / "cache"
    references(scale(module), cache)
    (path,) = cache.iterdir()
    damage(path)
    np.testing.assert_array_equal(references(scale(module), cache)["y"], [2.0, 4.0, 6.0])
    assert module.calls == [1, 1]
    if path.is_file():
        references(scale(module), cache)
        assert module.calls == [1, 1], "it was rebuilt"


# -- functions that give something else the next time ------------------------------------------


def checked(definition, cache_dir):
    manager = DataManager(definition, definition.resolve_sizes(), cache_dir=cache_dir)
    manager.require_repeatable()
    return manager.references


def restless(spread, **changes):
    """A kernel whose reference is off by a random share of itself."""
    rng = np.random.default_rng(1)
    give = lambda given, size: given["x"] * (1 + spread * rng.random(size.n))  # noqa: E731
    return simple(np.arange(1.0, 6.0), reference=give, **changes)


def test_a_reference_that_differs_from_call_to_call_is_refused(tmp_path):
    with pytest.raises(ReferenceDataError, match="output 'y' differs when it is computed again"):
        checked(restless(1e-6), tmp_path)
    # What was added up in another order is the same.
    assert set(checked(restless(1e-15), tmp_path)) == {"y"}


@pytest.mark.parametrize(
    "give",
    [
        lambda rng, size: {"x": np.full(size.n, random.random())},
    ],
)
def test_inputs_that_are_not_made_of_their_random_numbers_are_refused(tmp_path, give):
    definition = simple(np.arange(5.0), inputs=give)
    with pytest.raises(KernelError, match=r"'x' differs when it is made again; .* the generator rng, not from"):
        checked(definition, tmp_path)
