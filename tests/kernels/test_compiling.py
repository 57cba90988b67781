"""Every bundled kernel compiles for every vendor; no device is needed, only the vendor's runtime compiler.

One configuration of each for one vendor in the full tier; every value nightly.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence

import pytest
from application_runs import run_once
from vendor_compilers import needs

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.errors import CompileError, EmptySpaceError
from mptune.kernel import Application, Kernel, Sizes
from mptune.kernel.limits import device_constraints
from mptune.source.loading import bundled_applications, bundled_kernels, load_kernel, load_tunable
from mptune.source.render import render
from mptune.space.configuration import Configuration
from mptune.space.parameters import PrecisionParameter
from mptune.space.search_space import SearchSpace
from mptune.tuning.check import select

#: What a compiler is known to need minutes for, as constraints that leave it out; a tuner gives up on it as on any
#: other error of a compiler. gfx90a computes bf16 in float and rounds with integers; unrolled for sixteen points that
#: is more code without a jump than hiprtc gets through (30 s to minutes; 3 s for eight points).
TOO_SLOW = {("kmeans", "hip"): "distance_type != 'bf16' or points_per_thread <= 8"}


#: Backends whose device is this machine's processor.
RUNS_HERE = ("host", "opencl")

TARGETS = [
    pytest.param(name, architecture, marks=needs(name), id=f"{name}-{architecture}" if architecture else name)
    for name, architecture in (("host", ""), ("cuda", "sm_90"), ("hip", "gfx90a"), ("opencl", ""), ("cuda", "sm_80"))
]

Choose = Callable[[SearchSpace, Sequence[str]], Iterable[Configuration]]


def failures(kernel: Kernel, sizes: Sizes, backend: str, architecture: str, choose: Choose) -> str:
    if (kernel.name, backend) in TOO_SLOW:
        kernel = dataclasses.replace(kernel, constraints=(*kernel.constraints, TOO_SLOW[kernel.name, backend]))
    compiler, found = get_backend(backend).compiler, []
    # A processor that is here rules out what is for GPUs alone: no search compiles that for it.
    here = get_backend(backend).device.facts() if backend in RUNS_HERE else {}
    limits = device_constraints(kernel, {**get_backend(backend).facts(architecture), **here})
    for configuration in choose(kernel.search_space(sizes, limits), kernel.signature_names):
        try:
            source = render(kernel, configuration, sizes)
            compiler.compile(source, kernel.function, CompileOptions(architecture=architecture))
        except CompileError as error:
            found.append(f"{configuration}: {error}")
    return "\n".join(found)


def one(space: SearchSpace, _: Sequence[str]) -> Iterable[Configuration]:
    """Choose the first configuration in types of 16 bits, wherever there are."""
    for parameter in space.parameters:
        if isinstance(parameter, PrecisionParameter) and "fp16" in parameter.values:
            with contextlib.suppress(EmptySpaceError):
                space = space.restrict({parameter.name: ("fp16",)})
    return [space.configuration(0)]


@pytest.mark.parametrize(
    ("name", "backend", "architecture"),
    [
        # Each for one vendor, in turn; for the others every value is compiled at night.
        pytest.param(name, *target.values, marks=[*target.marks, pytest.mark.full], id=f"{name}-{target.id}")
        for number, name in enumerate(bundled_kernels())
        for target in TARGETS[1 + number % 3 :][:1]
    ],
)
def test_one_configuration_of_a_bundled_kernel_compiles(name: str, backend: str, architecture: str) -> None:
    kernel = load_kernel(name)
    assert failures(kernel, kernel.resolve_sizes(), backend, architecture, one) == ""


@pytest.mark.nightly
@pytest.mark.parametrize(("backend", "architecture"), TARGETS)
@pytest.mark.parametrize("name", bundled_kernels())
def test_a_bundled_kernel_compiles(name: str, backend: str, architecture: str) -> None:
    kernel = load_kernel(name)
    assert failures(kernel, kernel.resolve_sizes(), backend, architecture, select) == ""


@functools.cache
def launched(name: str) -> list[tuple[Kernel, Sizes]]:
    """Return the kernels of an application, each with the sizes of its launches; it runs on the host for that."""
    application = load_tunable(name)
    assert isinstance(application, Application)
    sizes = application.resolve_sizes("smoke")
    space = application.search_space(sizes).restrict(application.baseline_values())
    _, launched, _ = run_once(application, space.configurations([0])[0], sizes=sizes)
    assert {one.kernel for one in launched} == set(application.kernels)
    # One launched on several buffers compiles once.
    different = dict.fromkeys((one.kernel, one.sizes) for one in launched)
    return [(application.kernels[name], Sizes(dict(sizes))) for name, sizes in different]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("choose", "backend", "architecture"),
    [
        *(pytest.param(one, *t.values, marks=[*t.marks, pytest.mark.full], id=t.id) for t in TARGETS[1:4]),
        *(pytest.param(select, *t.values, marks=[*t.marks, pytest.mark.nightly], id=f"values-{t.id}") for t in TARGETS),
    ],
)
@pytest.mark.parametrize("name", bundled_applications())
def test_the_kernels_of_a_bundled_application_compile(
    name: str, choose: Choose, backend: str, architecture: str
) -> None:
    for kernel, sizes in launched(name):
        assert failures(kernel, sizes, backend, architecture, choose) == "", kernel.name
