from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from mptune.errors import KernelError, MptuneError
from mptune.kernel import In, Kernel, LaunchShape, Out, Scalar
from mptune.kernel.limits import device_constraints, widest
from mptune.space.parameters import OrdinalParameter, PolicyParameter, PrecisionParameter


def make(**changes: Any) -> Kernel:
    given: dict[str, Any] = {
        "name": "scale",
        "parameters": [
            OrdinalParameter("block", [32, 64]),
            OrdinalParameter("unroll", [1, 2]),
            PrecisionParameter("x_type", ["fp64", "fp32", "fp16"]),
            PolicyParameter("policy"),
        ],
        "arguments": [
            Out("y", ("rows", "2*cols"), precision="x_type"),
            In("x", ("rows", "2*cols"), precision="x_type"),
            Scalar("a", precision="fp32"),
            Scalar("rows", dtype="int32"),
        ],
        "sizes": {"default": {"rows": 10, "cols": 3}, "paper": {"rows": 1000, "cols": 3}},
        "inputs": lambda rng, size: {"x": rng.random((size.rows, 2 * size.cols)), "a": 2.0},
        "grid": ["ceildiv(rows, block)"],
        "block": ["block"],
    }
    return Kernel(**(given | changes))


def test_names_shapes_and_launch() -> None:
    kernel = make(signature=["unroll"])
    sizes = kernel.resolve_sizes()
    assert kernel.function == "scale"
    assert kernel.signature_names == ("unroll", "x_type", "policy")
    assert kernel.shape_of(kernel.arguments[0], sizes) == (10, 6)
    configuration = kernel.configuration({"block": "64", "x_type": "half"})
    assert dict(configuration) == {"block": 64, "unroll": 1, "x_type": "fp16", "policy": "accurate"}
    big = kernel.resolve_sizes("paper", {"rows": 129})
    assert kernel.launch_shape(configuration, big) == LaunchShape((3, 1, 1), (64, 1, 1), 0)
    assert kernel.signature_of(configuration) == (1, "fp16", "accurate")


def test_baseline_is_widest_and_accurate() -> None:
    assert make().baseline_values() == {"x_type": ("fp64",), "policy": ("accurate",)}
    narrow = make(
        parameters=[
            OrdinalParameter("block", [32]),
            OrdinalParameter("unroll", [1]),
            PrecisionParameter("x_type", ["fp16", "fp32"]),
        ]
    )
    assert narrow.baseline_values() == {"x_type": ("fp32",)}


def test_what_can_run_in_the_widest_types_begins_in_the_middle() -> None:
    tiles = [OrdinalParameter(name, [1, 2, 4, 8, 16]) for name in ("wide", "high")]
    kernel = make(parameters=[*make().parameters, *tiles], constraints=["wide * high <= 64"])
    found = widest(kernel, kernel.resolve_sizes(), {})
    assert len(set(found)) == 4 * 22
    assert {(c["x_type"], c["policy"]) for c in found} == {("fp64", "accurate")}
    assert (found[0]["wide"], found[0]["high"]) == (4, 4)
    assert {found[-1]["wide"], found[-1]["high"]} <= {1, 16}


def bad_definitions() -> Mapping[str, tuple[dict[str, Any], str]]:
    x = In("x", "rows", precision="x_type")
    y = Out("y", "rows", precision="x_type")
    return {
        "name": ({"name": "a b"}, "not an identifier"),
        "no output": ({"arguments": [x]}, "no argument is an output"),
        "no default": ({"sizes": {"smoke": {"rows": 1, "cols": 1}}}, "preset named 'default'"),
        "presets differ": (
            {"sizes": {"default": {"rows": 1, "cols": 1}, "paper": {"rows": 1}}},
            "'paper' does not name cols",
        ),
        "clash": ({"sizes": {"default": {"rows": 1, "cols": 1, "block": 2}}}, "block is both a size and a parameter"),
        "precision": ({"arguments": [Out("y", "rows", precision="xtype")]}, "did you mean 'x_type'"),
        "shape": ({"arguments": [Out("y", "rosw", precision="fp64")]}, "did you mean 'rows'"),
        "grid": ({"grid": ["ceildiv(rows, blokc)"]}, "did you mean 'block'"),
        "axes": ({"grid": ["1"] * 4}, "one to three axes"),
        "signature": ({"signature": ["unrol"]}, "did you mean 'unroll'"),
        "twice": ({"arguments": [y, y]}, "two arguments are called 'y'"),
        "word of Jinja": (
            {"parameters": [OrdinalParameter("loop", [1]), PrecisionParameter("x_type", ["fp64"])]},
            "'loop' is a reserved word of templates and expressions",
        ),
        "word of Python": ({"sizes": {"default": {"rows": 1, "cols": 1, "in": 1}}}, "'in' is a reserved word"),
        "arrays": ({"inputs": {"x": [1.0]}}, r"inputs= is a function inputs\(rng, size\) -> .*, not {'x': "),
        "no parameter": ({"parameters": "block"}, "parameters has 'block', expected a Parameter"),
        "no presets": ({"sizes": {"rows": 1}}, "not sizes by name"),
        "syntax": ({"grid": ["ceildiv(rows,"]}, "grid"),
    }


@pytest.mark.parametrize("case", bad_definitions())
def test_a_wrong_definition_says_what_is_wrong(case: str) -> None:
    changes, message = bad_definitions()[case]
    with pytest.raises(MptuneError, match=message):
        make(**changes)


KERNEL = make()
WRONG_CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "a precision as dtype": (lambda: Out("y", "n", dtype="fp64"), "A floating-point type is given as precision="),
    "dtype": (lambda: Scalar("n", dtype="int23"), "did you mean 'int32'"),
    "preset": (lambda: KERNEL.resolve_sizes("papre"), "did you mean 'paper'"),
    "size of none": (lambda: KERNEL.resolve_sizes("default", {"rows": 0}), "rows=0"),
    "parameter": (lambda: KERNEL.configuration({"blok": 3}), "did you mean 'block'"),
    "value": (lambda: KERNEL.configuration({"block": 48}), "48"),
}


@pytest.mark.parametrize("case", WRONG_CALLS)
def test_a_wrong_argument_size_or_value_says_what_is_wrong(case: str) -> None:
    call, message = WRONG_CALLS[case]
    with pytest.raises(MptuneError, match=message):
        call()


def test_grid_block_and_shared_memory_may_be_functions_of_configuration_and_sizes() -> None:
    kernel = make(
        grid=lambda c: (-(-c.rows // c["block"]), c.unroll),
        block=lambda c: c.block,
        shared_bytes=lambda c: 8 * c.block,
    )
    shape = kernel.launch_shape(kernel.configuration({"unroll": 2}), kernel.resolve_sizes("paper"))
    assert shape == LaunchShape((32, 2, 1), (32, 1, 1), 256)
    assert kernel.search_space(kernel.resolve_sizes(), device_constraints(kernel, {"max_threads_per_block": 32})).size


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": lambda c: c.blok}, "function grid= failed: no size"),
        ({"grid": lambda _: sys.exit(3)}, r"function grid= failed: SystemExit\(3\)"),
        ({"block": lambda c: c.block / 2}, "function block= returned 16.0, not whole numbers"),
        ({"grid": lambda _: (1, 1, 1, 1)}, r"the grid is \(1, 1, 1, 1\)"),
        ({"shared_bytes": lambda _: "n"}, "function shared_bytes= returned 'n'"),
    ],
)
def test_a_function_of_a_launch_that_fails_is_named(changes: dict[str, Any], message: str) -> None:
    kernel = make(**changes)
    with pytest.raises(KernelError, match=message):
        kernel.launch_shape(kernel.configuration({}), kernel.resolve_sizes())
