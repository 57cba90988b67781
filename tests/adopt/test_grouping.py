"""Few precision parameters for many type classes."""

import math

import pytest

from mptune import load_kernel
from mptune.adopt.grouping import group, sensitivities
from mptune.measure.instrument import Instrument


@pytest.fixture(scope="module")
def axpy():
    kernel = load_kernel("axpy")
    return Instrument(kernel, kernel.resolve_sizes("smoke"))


CLASSES = {"a": ["a_type"], "x": ["x_type"], "y": ["y_type"]}


def test_each_class_is_run_in_narrower_types_alone(axpy):
    found = sensitivities(axpy, CLASSES)
    assert list(found) == ["a", "x", "y"]
    for name in CLASSES:
        assert found[name]["fp32"] == axpy.errors({f"{name}_type": "fp32"})["error"]
        assert found[name]["fp16"] > 100 * found[name]["fp32"]
    assert found["y"]["fp16"] > 10 * found["x"]["fp16"]
    assert len(axpy.binaries) == 1


def test_parameters_of_one_class_change_together(axpy):
    found = sensitivities(axpy, {"all": ["a_type", "x_type", "y_type"]}, types=["bf16"])
    assert found["all"]["bf16"] == axpy.errors(dict.fromkeys(("a_type", "x_type", "y_type"), "bf16"))["error"]


def test_types_that_there_is_no_time_for_are_left_out_for_all(axpy):
    ticks = iter(range(100))
    found = sensitivities(axpy, CLASSES, limit_s=2, clock=lambda: next(ticks))
    assert [list(types) for types in found.values()] == [["fp32"]] * 3
    assert all("fp32" in types for types in sensitivities(axpy, CLASSES, limit_s=-1).values())


def test_the_widest_type_says_nothing(axpy):
    assert sensitivities(axpy, {"x": ["x_type"]}, types=["fp64", "fp8_e5m2"]) == {"x": {}}


def test_classes_keep_their_own_while_there_are_few():
    errors = {"u": {"fp16": 1e-3}, "r": {"fp16": 1e-5}}
    assert group(errors, {"u": "buffer", "r": "local"}, 2) == {"u": "u", "r": "r"}


def test_what_bears_the_same_is_joined_first_and_buffers_last():
    errors = {
        "u": {"fp16": 1e-3},
        "v": {"fp16": 1.1e-3},
        "fine": {"fp16": 1e-3},
        "rough": {"fp16": 1e-9},
        "coarse": {"fp16": 2e-9},
    }
    roles = {"u": "buffer", "v": "buffer", "fine": "local", "rough": "local", "coarse": "argument"}
    four = group(errors, roles, 4)
    assert four == {"u": "u", "v": "v", "fine": "fine", "rough": "rough_coarse", "coarse": "rough_coarse"}
    assert group(errors, roles, 3) == {**four, "u": "u_v", "v": "u_v"}
    two = group(errors, roles, 2)
    assert two["u"] == two["v"] == two["fine"] != two["rough"] == two["coarse"]
    assert len(set(group(errors, roles, 1).values())) == 1


def test_sixty_classes_become_eight():
    errors = {f"x{i}": {"fp32": 10.0 ** (-8 - i % 5), "fp16": 10.0 ** (-4 - i % 5)} for i in range(60)}
    roles = {name: "buffer" if i < 3 else ("local", "argument")[i % 2] for i, name in enumerate(errors)}
    found = group(errors, roles)
    names = list(dict.fromkeys(found.values()))
    assert len(names) == 8
    assert names[:3] == ["x0", "x1", "x2"]
    assert all(name.isidentifier() for name in names)
    # What is joined of the values bears the same.
    for name in names[3:]:
        decades = {round(math.log10(errors[each]["fp16"])) for each in errors if found[each] == name}
        assert len(decades) == 1


def test_groups_of_one_role_are_called_after_it():
    errors = {f"x{i}": {"fp16": 1e-4} for i in range(5)} | {"u": {"fp16": 1e-4}}
    roles = dict.fromkeys(errors, "local") | {"u": "buffer"}
    assert set(group(errors, roles, 2).values()) == {"locals", "u"}


def test_names_differ_also_where_classes_are_called_alike():
    errors = {
        "a": {"fp16": 1e-4},
        "b": {"fp16": 1.0},
        "a_b": {"fp16": 1e-9},
        "c": {"fp16": 1e-4},
        "a_c": {"fp16": 1e-14},
    }
    found = group(errors, dict.fromkeys(errors, "local"), 4)
    assert len(set(found.values())) == 4


def test_numbered_ones_are_one_in_the_plural():
    errors = {"step_cast": {"fp16": 1e-4}, "step_cast_2": {"fp16": 1e-4}, "u": {"fp16": 1e-1}}
    found = group(errors, dict.fromkeys(errors, "local"), 2)
    assert set(found.values()) == {"step_casts", "u"}


def test_what_is_not_finite_is_as_bad_as_can_be():
    errors = {"a": {"fp16": math.inf}, "b": {"fp16": 1e-4}, "c": {"fp16": math.nan}}
    found = group(errors, dict.fromkeys(errors, "local"), 2)
    assert found == {"a": "a_c", "c": "a_c", "b": "b"}


def test_no_group_at_all_is_refused():
    with pytest.raises(ValueError, match="limit=0"):
        group({"a": {}}, {"a": "local"}, 0)
