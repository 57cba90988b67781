"""References: as declared or refused, and cached on disk by what they depend on."""

from __future__ import annotations

import importlib.util
import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from kernels_for_data import kernel, reference, simple

from mptune.data import DataManager
from mptune.data.reference_cache import keep_references, load_references, reference_key
from mptune.errors import KernelError, ReferenceDataError


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


class Evil:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (self.marker,)


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


def test_nothing_is_unpickled(project, tmp_path):
    module, cache = load(project), tmp_path / "cache"
    references(scale(module), cache)
    (path,) = cache.iterdir()
    np.savez(path, **{"output.y": np.array([Evil(str(tmp_path / "opened"))] * 3, dtype=object)})
    references(scale(module), cache)
    assert not (tmp_path / "opened").exists()


def test_a_folder_that_cannot_be_written_does_no_harm(project, tmp_path, monkeypatch):
    module = load(project)
    (tmp_path / "file").touch()
    for cache in (tmp_path / "file", tmp_path / "file" / "deeper", Path("/proc/nowhere")):
        assert references(scale(module), cache)["y"][1] == 4.0

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    assert references(scale(module), tmp_path / "cache")["y"][1] == 4.0
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_least_recently_used_leave(tmp_path):
    for age, key in enumerate("dcba"):
        keep_references(tmp_path, key, {"y": np.zeros(100)})
        os.utime(tmp_path / f"{key}.npz", (1e9 - age, 1e9 - age))
    (tmp_path / "somebody's.txt").touch()
    assert load_references(tmp_path, "a") is not None
    keep_references(tmp_path, "e", {"y": np.zeros(100)}, folder_bytes=3500)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "d.npz", "e.npz", "somebody's.txt"]


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


def test_a_reference_may_say_by_how_much_it_differs(tmp_path):
    definition = restless(1e-7)
    definition.reference.largest_difference = 1e-6
    assert set(checked(definition, tmp_path)) == {"y"}
    definition.reference.largest_difference = 1e-8
    with pytest.raises(ReferenceDataError, match="differs when it is computed again"):
        checked(definition, tmp_path / "other")


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
