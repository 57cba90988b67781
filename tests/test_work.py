"""The work a kernel declares: operations by the type they are in, bytes by what its arguments are."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import pytest

from mptune.errors import KernelError, MptuneError
from mptune.kernel import In, InOut, Kernel, Out, Scalar, Work
from mptune.precision import PRECISIONS, promoted
from mptune.source.loading import load_kernel
from mptune.space.parameters import OrdinalParameter, PrecisionParameter

TYPES = ["fp64", "fp32", "fp16", "bf16"]


def make(flops: Any) -> Kernel:
    return Kernel(
        name="mix",
        parameters=[
            OrdinalParameter("unroll", [1, 2]),
            PrecisionParameter("x_type", TYPES),
            PrecisionParameter("y_type", TYPES),
        ],
        arguments=[
            Out("y", ("rows", "3"), precision="y_type"),
            In("x", "2 * rows", precision="x_type"),
            InOut("counts", "rows", dtype="int16"),
            In("weights", 7, precision="fp32"),
            Scalar("a", precision="x_type"),
        ],
        sizes={"default": {"rows": 10}},
        inputs=lambda rng, size: {},
        grid=["1"],
        block=["1"],
        flops=flops,
    )


def work(flops: Any, **values: Any) -> Work:
    kernel = make(flops)
    return kernel.work(kernel.configuration(values), kernel.resolve_sizes())


def test_bytes_are_read_once_written_once_and_both_for_inout() -> None:
    assert work(None, x_type="fp64", y_type="fp16") == Work(30 * 2 + 20 * 8 + 10 * 2 * 2 + 7 * 4)
    assert work(None, x_type="bf16", y_type="fp32") == Work(30 * 4 + 20 * 2 + 10 * 2 * 2 + 7 * 4)
    assert work(None).flops is None
    assert work(None).intensity is None


@pytest.mark.parametrize(
    ("flops", "expected"),
    [(5, 5), (2.5, 2.5), ("2 * rows", 20), ("rows * unroll", 20), (lambda size: 3 * size.rows, 30)],
)
def test_a_count_is_a_number_an_expression_or_a_function(flops: Any, expected: float) -> None:
    found = work(flops, unroll=2)
    assert found.flops == expected
    assert found.flops_by_precision == {}
    assert found.intensity == expected / found.traffic_bytes


def test_counts_by_precision_add_up_in_the_types_of_a_configuration() -> None:
    flops = {"x_type": "rows", ("x_type", "y_type"): "10 * rows", "fp32": 7, "double": lambda size: size.rows**2}
    found = work(flops, x_type="fp32", y_type="fp16")
    assert found.flops_by_precision == {"fp32": 10 + 100 + 7, "fp64": 100}
    assert found.flops == 217
    assert work(flops, x_type="bf16", y_type="fp16").flops_by_precision == {"bf16": 10, "fp32": 107, "fp64": 100}
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("flops", "message"),
    [
        ("2 * rwos", "did you mean 'rows'"),
        ({"z_type": 1}, "did you mean 'x_type'|did you mean 'y_type'"),
        ({("x_type", "fp23"): 1}, "did you mean 'fp32'"),
        ({}, "names no precision"),
        (-1, "finite number that is not negative"),
        ([1], "finite number that is not negative"),
    ],
)
def test_a_wrong_declaration_says_what_is_wrong(flops: Any, message: str) -> None:
    with pytest.raises(MptuneError, match=message):
        make(flops)


@pytest.mark.parametrize(
    ("flops", "message"),
    [
        ("rows - 11", "flops is -1 at rows=10"),
        (lambda size: True, "flops is True"),
        (lambda size: size.columns, "AttributeError: no size 'columns'"),
    ],
)
def test_a_count_without_a_value_says_where(flops: Any, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        work(flops)


def test_mixed_operands_promote_as_in_the_prelude() -> None:
    fp64, fp32, fp16, bf16, e4m3, e5m2 = PRECISIONS.values()
    for first, second in itertools.product(PRECISIONS.values(), repeat=2):
        if fp64 in (first, second):
            expected = fp64
        elif first is second and first in (fp16, bf16):
            expected = first
        else:
            expected = fp32
        assert promoted(first, second) is expected
    assert promoted(fp16) is fp16
    assert promoted(e5m2) is promoted(e4m3, e5m2) is fp32
    assert promoted(bf16, bf16, fp16) is fp32


# -- the bundled kernels ---------------------------------------------------------------------------


def default_work(name: str, overrides: dict[str, int] | None = None, **types: str) -> Work:
    kernel = load_kernel(name)
    sizes = kernel.resolve_sizes("default", overrides)
    return kernel.work(kernel.configuration(types), sizes)


def test_gemm_and_convolution_do_the_operations_of_their_definitions() -> None:
    gemm = default_work("gemm", {"M": 3, "N": 5, "K": 7}, a_type="fp16", b_type="fp16", accumulator_type="fp32")
    assert gemm.flops_by_precision == {"fp32": 2 * 3 * 5 * 7}
    assert gemm.traffic_bytes == 2 * 3 * 7 + 2 * 7 * 5 + 2 * 8 * 3 * 5
    image = default_work("convolution2d", {"width": 4, "height": 3, "filter_width": 2, "filter_height": 5})
    assert image.flops == 2 * 12 * 10


def test_lavamd_counts_the_pairs_there_are() -> None:
    def neighbours(boxes: int) -> int:
        cells = list(itertools.product(range(boxes), repeat=3))
        return sum(all(abs(a - b) <= 1 for a, b in zip(one, two, strict=True)) for one in cells for two in cells)

    for boxes in (1, 2, 3):
        found = default_work("lavamd", {"boxes": boxes, "particles": 5})
        assert found.flops == 25 * neighbours(boxes) * 25
