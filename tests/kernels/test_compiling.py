"""Every bundled kernel compiles for every vendor; no device is needed, only the vendor's runtime compiler."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mptune.backends import BACKENDS, get_backend
from mptune.checking import Selection, check
from mptune.registry import bundled_kernels, load_kernel

#: Kernels that compile fast, and which of their accuracy signatures; ``benchmarks/compile_all.py`` compiles all.
SMALL: dict[str, Selection] = {"axpy": "signatures", "kmeans": 20}

#: What a compiler is known to need minutes for, as constraints that leave it out; a tuner gives up on it as on any
#: other error of a compiler. gfx90a computes bf16 in float and rounds with integers; unrolled for sixteen points that
#: is more code without a jump than hiprtc gets through (30 s to minutes; 3 s for eight points).
TOO_SLOW = {("kmeans", "hip"): "distance_type != 'bf16' or points_per_thread <= 8"}


def target(name: str, architecture: str, *marks: pytest.MarkDecorator) -> Any:
    availability = BACKENDS[name].availability()
    missing = "" if availability.can_compile else availability.reason
    skip = pytest.mark.skipif(bool(missing), reason=missing or "installed")
    return pytest.param(name, architecture, marks=[*marks, skip], id=f"{name}-{architecture}" if architecture else name)


TARGETS = [
    target("host", ""),
    target("cuda", "sm_80", pytest.mark.nvrtc),
    target("cuda", "sm_90", pytest.mark.nvrtc),
    target("hip", "gfx90a", pytest.mark.hiprtc),
]


def failures(kernel: str, backend: str, architecture: str, sample: Selection) -> str:
    definition = load_kernel(kernel)
    if (kernel, backend) in TOO_SLOW:
        constraints = (*definition.constraints, TOO_SLOW[kernel, backend])
        definition = dataclasses.replace(definition, constraints=constraints)
    result = check(definition, get_backend(backend), architecture=architecture, sample=sample)
    assert result.compilations
    return "\n".join(f"{failure.configuration}: {failure.message}" for failure in result.failures)


@pytest.mark.parametrize(("backend", "architecture"), TARGETS)
@pytest.mark.parametrize("kernel", bundled_kernels())
def test_every_value_of_every_parameter_compiles(kernel: str, backend: str, architecture: str) -> None:
    assert failures(kernel, backend, architecture, "values") == ""


@pytest.mark.parametrize(("backend", "architecture"), TARGETS)
@pytest.mark.parametrize("kernel", SMALL)
def test_accuracy_signatures_of_a_small_kernel_compile(kernel: str, backend: str, architecture: str) -> None:
    assert failures(kernel, backend, architecture, SMALL[kernel]) == ""
