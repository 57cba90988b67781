"""A key covers what the numbers depend on: each of these once gave the key of something else."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mptune.accuracy.metrics import METRICS
from mptune.kernel import In, InOut, Kernel
from mptune.measure.device import launch_identity, metric_identity, unversioned
from mptune.source.loading import load_kernel

OWN = Path(__file__).parent.parent / "own_kernel.py"


def own(version: str = "", name: str = "worst") -> Callable[..., float]:
    def metric(output: Any, reference: Any) -> float:
        return float(abs(output - reference).max())

    metric.__name__ = name
    if version:
        metric.version = version  # type: ignore[attr-defined]
    return metric


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (METRICS["MAE"], METRICS["MRE"]),
        (own("1"), own("2")),
        (own("1"), own("1", "largest")),
        (own("1", "MAE"), METRICS["MAE"]),
        ({"y": "MAE", "z": own("1")}, {"y": "MAE", "z": own("2")}),
    ],
)
def test_different_metrics_are_told_apart(one: Any, other: Any) -> None:
    assert metric_identity(one) != metric_identity(other)
    assert not unversioned(one)


def test_a_function_without_a_version_is_named() -> None:
    assert unversioned(own()) == ("worst",)
    assert unversioned({"y": "MAE", "z": own(), "w": own("1"), "v": own()}) == ("worst",)
    assert unversioned(functools.partial(own(), name=1)) == ("partial",)
    assert unversioned("nrmse") == unversioned({"y": "MAE"}) == ()


CHANGES: dict[str, dict[str, Any]] = {
    "grid": {"grid": ["ceildiv(n, block)"]},
    "shared memory": {"shared_bytes": "8 * block"},
    "precision of an argument": {"arguments": 1},
    "role of an argument": {"arguments": 0},
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_the_source_does_not_show_is_in_the_key(case: str) -> None:
    kernel = load_kernel(OWN)
    changes = dict(CHANGES[case])
    if "arguments" in changes:
        y, x, n = kernel.arguments
        changes["arguments"] = (
            [InOut("y", "n", precision="y_type"), x, n]
            if changes["arguments"] == 0
            else [y, In("x", "n", precision="fp64"), n]
        )
    other: Kernel = dataclasses.replace(kernel, **changes)
    configuration = kernel.configuration({"x_type": "fp32", "unroll": 2})
    sizes = kernel.resolve_sizes()
    assert launch_identity(kernel, configuration, sizes) != launch_identity(other, configuration, sizes)
