"""Every bundled kernel compiles for every vendor; no device is needed, only the vendor's runtime compiler."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable

import pytest
from vendor_compilers import needs

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.checking import select
from mptune.errors import CompileError
from mptune.kernel import Kernel
from mptune.registry import bundled_kernels, load_kernel
from mptune.rendering import render
from mptune.space.configuration import Configuration

#: Kernels that compile fast: every pair of types, too; ``benchmarks/compile_all.py`` compiles all signatures.
SMALL = ("axpy", "kmeans")

#: What a compiler is known to need minutes for, as constraints that leave it out; a tuner gives up on it as on any
#: other error of a compiler. gfx90a computes bf16 in float and rounds with integers; unrolled for sixteen points that
#: is more code without a jump than hiprtc gets through (30 s to minutes; 3 s for eight points).
TOO_SLOW = {("kmeans", "hip"): "distance_type != 'bf16' or points_per_thread <= 8"}


TARGETS = [
    pytest.param(name, architecture, marks=needs(name), id=f"{name}-{architecture}" if architecture else name)
    for name, architecture in (("host", ""), ("cuda", "sm_80"), ("cuda", "sm_90"), ("hip", "gfx90a"))
]


def failures(name: str, backend: str, architecture: str, choose: Callable[[Kernel], Iterable[Configuration]]) -> str:
    kernel = load_kernel(name)
    if (name, backend) in TOO_SLOW:
        kernel = dataclasses.replace(kernel, constraints=(*kernel.constraints, TOO_SLOW[name, backend]))
    compiler, found = get_backend(backend).compiler, []
    for configuration in choose(kernel):
        try:
            source = render(kernel, configuration, kernel.resolve_sizes())
            compiler.compile(source, kernel.function, CompileOptions(architecture=architecture))
        except CompileError as error:
            found.append(f"{configuration}: {error}")
    return "\n".join(found)


def values(kernel: Kernel) -> Iterable[Configuration]:
    return select(kernel, kernel.resolve_sizes(), "values")


def pairs(kernel: Kernel) -> Iterable[Configuration]:
    """Choose few signatures in which every two parameters have every two values that go together."""
    offered = select(kernel, kernel.resolve_sizes(), "signatures")
    covered = [set(itertools.combinations([(n, c[n]) for n in kernel.signature_names], 2)) for c in offered]
    missing = set().union(*covered)
    while missing:
        best = max(range(len(offered)), key=lambda i: len(covered[i] & missing))
        missing -= covered[best]
        yield offered[best]


@pytest.mark.parametrize(("backend", "architecture"), TARGETS)
@pytest.mark.parametrize(
    ("kernel", "choose"), [*((name, values) for name in bundled_kernels()), *((name, pairs) for name in SMALL)]
)
def test_a_bundled_kernel_compiles(
    kernel: str, choose: Callable[[Kernel], Iterable[Configuration]], backend: str, architecture: str
) -> None:
    assert failures(kernel, backend, architecture, choose) == ""
