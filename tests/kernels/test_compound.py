"""Kernels whose sums are in compound precisions: everywhere they compile, and what they keep of the digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launching import Launcher, launcher, nrmse
from vendor_compilers import needs

from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.errors import MptuneError, UnknownNameError
from mptune.kernel import Kernel, Sizes
from mptune.precision import COMPOUND, PRECISIONS
from mptune.source.loading import load_kernel
from mptune.source.render import render
from mptune.space.configuration import Configuration, Value
from mptune.space.parameters import PrecisionParameter
from tests.tiers import few

#: Of each kernel what its sums have.
SUMS = {
    "gemm": "accumulator_type",
    "convolution2d": "accumulator_type",
    "kmeans": "distance_type",
    "coulombic": "potential_type",
}
#: Numbers that fp32 holds, so that no type rounds them before it computes.
AWKWARD: dict[str, dict[str, int]] = {
    "gemm": {"M": 37, "N": 29, "K": 1021},
    "convolution2d": {"width": 61, "height": 23},
    "kmeans": {"n": 331},
    "coulombic": {"width": 37, "height": 11, "charges": 1009},
}
#: Of each kernel an optimisation of every sort, small: what is unrolled takes long to compile.
OPTIMISED: dict[str, dict[str, Value]] = {
    "gemm": {"MWG": 16, "NWG": 16, "KWG": 8, "MDIMC": 8, "NDIMC": 4, "MDIMA": 8, "NDIMB": 4, "VWM": 2, "VWN": 2},
    "convolution2d": {"block_size_y": 4, "tile_size_x": 2, "tile_size_y": 2, "vector_width": 2, "use_shared": True},
    "kmeans": {"points_per_thread": 2, "use_shared": True},
    "coulombic": {"block_size_x": 64, "tile_size_x": 2, "tile_size_y": 2, "policy": "accurate"},
}


def tier(sums: str) -> pytest.MarkDecorator:
    """Of each vendor one type is in the full tier."""
    return pytest.mark.full if sums == "fp32x2" else pytest.mark.nightly


#: The two architectures of Nvidia are one compiler's.
TARGETS = [
    pytest.param(name, architecture, sums, marks=[*needs(name), tier(sums)], id=f"{name}-{architecture}-{sums}")
    for name, architecture, every in (
        ("cuda", "sm_80", ("fp32x2", "bf16x3")),
        ("cuda", "sm_90", ("fp32_neumaier", "fp64_neumaier")),
        ("hip", "gfx90a", COMPOUND),
        ("opencl", "", ("fp32x2",)),
    )
    for sums in every
]


def types_of(kernel: Kernel, narrow: str, sums: str) -> dict[str, Value]:
    """Return that type for everything, and for the sums theirs."""
    return {p.name: narrow for p in kernel.parameters if isinstance(p, PrecisionParameter)} | {SUMS[kernel.name]: sums}


def optimised(kernel: Kernel, narrow: str, sums: str) -> Configuration:
    return kernel.configuration(OPTIMISED[kernel.name] | types_of(kernel, narrow, sums))


def exactly_in_fp32(kernel: Kernel) -> Launcher:
    def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
        drawn = kernel.inputs(rng, size)
        return {name: np.float64(np.float32(value)) for name, value in drawn.items()}

    return launcher(kernel.changed(inputs=inputs), AWKWARD[kernel.name], seed=19)


@pytest.mark.parametrize("name", few(sorted(SUMS), 0, 2))
def test_sums_keep_what_fp32_loses(name: str) -> None:
    run = exactly_in_fp32(load_kernel(name))
    (output,) = run.kernel.outputs
    reference = run.data.references[output.name]

    def error(sums: str, narrow: str = "fp32") -> float:
        return nrmse(run.run(optimised(run.kernel, narrow, sums))[output.name], reference)

    u, plain = 2.0**-24, error("fp32")
    assert error("fp32_neumaier") <= 1.5 * u
    assert error("bf16x3") <= 3 * plain
    if name == "coulombic":
        # Terms are computed in the type of the positions.
        assert error("fp32x2") <= 1.5 * u
        assert error("fp32x2", "fp64") < 2.0**-42
    else:
        # What is stored is fp32 in gemm and convolution2d, and in kmeans the type of the distances.
        assert error("fp32x2") <= (2.0**-42 if name == "kmeans" else u)
        assert error("fp32x2", "fp64") < 2.0**-42
    # A reference that were summed up in fp64 would err by more than this.
    assert error("fp64_neumaier", "fp64") < 2.0**-53
    assert error("fp64_neumaier", "fp64") < 0.8 * error("fp64", "fp64")
    assert plain > 1.02 * error("fp32_neumaier"), "nothing was lost that could be kept"


@pytest.mark.parametrize(("backend", "architecture", "sums"), TARGETS)
@pytest.mark.parametrize(
    "name", [name if name == "kmeans" else pytest.param(name, marks=pytest.mark.nightly) for name in SUMS]
)
def test_they_compile_for_every_vendor(name: str, backend: str, architecture: str, sums: str) -> None:
    kernel = load_kernel(name)
    source = render(kernel, optimised(kernel, "fp32", sums), kernel.resolve_sizes("smoke"))
    get_backend(backend).compiler.compile(source, kernel.function, CompileOptions(architecture=architecture))


def test_searches_have_them_only_where_they_are_asked_for() -> None:
    for name, parameter in SUMS.items():
        kernel = load_kernel(name)
        found = next(p for p in kernel.parameters if p.name == parameter)
        assert found.values == ("fp64", "fp32", "fp16", "bf16")
        asked = found.restricted(["fp32", "fp32x2", "double"])
        assert asked.values == ("fp64", "fp32x2", "fp32")
        assert asked.restricted(["fp32x2"]).values == ("fp32x2",)


def test_memory_has_a_plain_type() -> None:
    kernel = load_kernel("kmeans")
    (distance,) = kernel.outputs
    for name, entry in COMPOUND.items():
        configuration = kernel.configuration({"distance_type": name})
        assert kernel.precision_of(distance, configuration) is entry.stored
        assert kernel.own(configuration) == configuration


def test_operations_are_counted_as_those_they_are_made_of() -> None:
    kernel = load_kernel("gemm")
    sizes = kernel.resolve_sizes("default")
    plain = kernel.work(kernel.configuration({"accumulator_type": "fp32"}), sizes)
    assert plain.flops_by_precision == {"fp32": 2 * 640**3}
    for name, entry in COMPOUND.items():
        work = kernel.work(kernel.configuration({"accumulator_type": name}), sizes)
        assert work.flops_by_precision == {str(entry.computed_in): entry.flops_of_fma * 640**3}


def test_mistakes_are_named() -> None:
    with pytest.raises(UnknownNameError, match="fp32x2"):
        load_kernel("gemm").configuration({"accumulator_type": "fp32x3"})
    with pytest.raises(UnknownNameError, match="a_type"):
        load_kernel("gemm").configuration({"a_type": "fp32x2"})
    with pytest.raises(MptuneError, match=r"fp32x2 is a compound precision: declare on_request=\['fp32x2'\]$"):
        PrecisionParameter("t", ["fp64", "fp32x2"])
    with pytest.raises(MptuneError, match="'fp32x2' twice"):
        PrecisionParameter("t", ["fp64"], on_request=["fp32x2", "df64"])
    assert not COMPOUND.keys() & PRECISIONS.keys()
