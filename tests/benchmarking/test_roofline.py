"""The roofline: what bounds a launch follows from the measured speeds; the measurements give speeds."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from vendor_compilers import needs

from benchmarks.roofline import Bound, Launches, Roofline
from mptune.backends import get_backend
from mptune.backends.base import CompileOptions
from mptune.kernel import Kernel, Work
from mptune.source.render import render

MEGABYTE = 1 << 20


class Timed(Roofline):
    """A roofline whose launches take a made-up time."""

    def __init__(
        self, name: str = "host", architecture: str = "x86-64-v4", seconds: float = 0.5, wall_s: float = 1e-5
    ) -> None:
        device = SimpleNamespace(architecture=architecture, limits={"workers": 3})
        super().__init__(SimpleNamespace(shares_memory=name == "host", describe=lambda: device))
        self.took = Launches(least_s=seconds, wall_s=wall_s)
        self.launched: list[tuple[Kernel, Mapping[str, Any]]] = []

    def _measured(self, kernel: Kernel, values: Mapping[str, Any]) -> Launches:
        self.launched.append((kernel, values))
        return self.took


def with_speeds(flops_per_s: Mapping[str, float], bytes_per_s: float) -> Roofline:
    roofline = Timed()
    roofline.__dict__["flops_per_s"] = flops_per_s
    roofline.bytes_per_s = lambda footprint_bytes: bytes_per_s
    return roofline


def test_the_longer_of_the_two_times_holds() -> None:
    roofline = with_speeds({"fp64": 1e9, "fp32": 2e9}, 1e8)
    bound = roofline.bound(Work(10**6, 3e6, {"fp64": 1e6, "fp32": 2e6}), MEGABYTE)
    assert bound == Bound(memory_ms=10.0, compute_ms=2.0)
    assert (bound.time_ms, bound.name) == (10.0, "memory")
    bound = roofline.bound(Work(10**5, 3e6, {"fp64": 1e6, "fp32": 2e6}), MEGABYTE)
    assert (bound.time_ms, bound.name) == (2.0, "compute")


def test_a_type_without_units_of_its_own_is_computed_in_fp32() -> None:
    roofline = with_speeds({"fp64": 1e9, "fp32": 2e9}, 1e8)
    assert roofline.bound(Work(1, 4e6, {"fp16": 2e6, "bf16": 2e6}), MEGABYTE).compute_ms == 2.0


@pytest.mark.parametrize(
    ("name", "architecture", "types"),
    [
        ("host", "x86-64-v4+avx512_bf16", ["fp64", "fp32"]),
        ("host", "x86-64-v4+avx512_fp16+avx512_bf16", ["fp64", "fp32", "fp16"]),
        ("host", "aarch64+asimdhp+bf16", ["fp64", "fp32", "fp16"]),
        ("cuda", "sm_90", ["fp64", "fp32", "fp16", "bf16"]),
    ],
)
def test_the_types_with_units_of_their_own_are_measured(name: str, architecture: str, types: list[str]) -> None:
    assert list(Timed(name, architecture).flops_per_s) == types


def test_the_peak_counts_every_lane_of_every_block() -> None:
    roofline = Timed(seconds=0.5)
    peak = roofline.flops_per_s["fp32"]
    kernel, _ = next(entry for entry in roofline.launched if entry[0].parameters[0].values == ("fp32",))
    sizes = kernel.resolve_sizes()
    lanes = max(kernel.parameters[1].values)
    assert lanes == 512 // 32
    assert peak == 2 * sizes.chains * sizes.steps * lanes * sizes.blocks * sizes.threads / 0.5
    assert sizes.blocks % 3 == 0


def test_a_triad_has_the_footprint_that_is_asked_for_and_is_measured_once() -> None:
    roofline = Timed(seconds=0.5)
    assert roofline.bytes_per_s(12 * MEGABYTE) == roofline.bytes_per_s(12 * MEGABYTE)
    assert len(roofline.launched) == 2
    speeds = []
    for kernel, values in roofline.launched:
        sizes = kernel.resolve_sizes()
        arrays = 2 if values["in_place"] else 3
        assert 12 * MEGABYTE <= arrays * 8 * sizes.n < 12 * MEGABYTE + 8 * 512 * arrays
        assert sizes.n == 512 * sizes.blocks
        speeds.append(3 * 8 * sizes.n / 0.5)
    assert roofline.bytes_per_s(12 * MEGABYTE) == max(speeds)
    roofline.bytes_per_s(1)
    assert {kernel.resolve_sizes().n * 8 // MEGABYTE for kernel, values in roofline.launched[2:]} == {0}
    assert roofline.bytes_per_s(1) == roofline.bytes_per_s(MEGABYTE)
    assert len(roofline.launched) == 4


@pytest.mark.full
@pytest.mark.parametrize("name", ["host", pytest.param("opencl", marks=[*needs("opencl"), pytest.mark.nightly])])
def test_a_processor_has_speeds(name: str) -> None:
    roofline = Roofline(get_backend(name))
    peaks = roofline.flops_per_s
    # Any processor of this century, under whatever load, and none of the next.
    assert all(1e7 < peak < 1e15 for peak in peaks.values())
    assert 1e7 < roofline.bytes_per_s(2 * MEGABYTE) < 1e14


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("backend", "architecture"),
    [
        pytest.param("cuda", "sm_90", marks=pytest.mark.nvrtc),
        pytest.param("hip", "gfx90a", marks=pytest.mark.hiprtc),
        pytest.param("opencl", "", marks=needs("opencl")),
    ],
)
def test_the_measurements_compile_for_gpus(backend: str, architecture: str) -> None:
    family = get_backend(backend)
    if not family.availability().can_compile:
        pytest.skip(family.availability().reason)
    roofline = Timed(backend, architecture)
    assert len(roofline.flops_per_s) == 4
    roofline.bytes_per_s(MEGABYTE)
    for kernel, values in roofline.launched:
        source = render(kernel, kernel.configuration(values), kernel.resolve_sizes())
        assert family.compiler.compile(source, kernel.function, CompileOptions(architecture=architecture)).image
