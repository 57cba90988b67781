"""Bundled definitions: presets, spaces, process boundaries, and the counts of Heldens 2026, Table II."""

import pytest

from mptune.errors import EmptySpaceError
from mptune.source.loading import bundled_kernels, load_kernel
from mptune.tuning.check import select
from tests.tiers import few

KERNELS = sorted(bundled_kernels(), key=lambda name: name == "gemm")


@pytest.mark.parametrize("name", few(KERNELS, len(KERNELS) - 1))
def test_every_value_is_valid_at_every_preset_and_there_is_a_baseline(name: str) -> None:
    kernel = load_kernel(name)
    assert kernel.description
    assert list(kernel.sizes) == ["smoke", "default", "paper"]
    offered = {(p.name, value) for p in kernel.parameters for value in p.values}
    for preset in kernel.sizes:
        space = kernel.search_space(kernel.resolve_sizes(preset))
        valid = {item for c in select(space, kernel.signature_names) for item in c.items()}
        assert valid == offered, preset
    assert kernel.search_space(kernel.resolve_sizes()).restrict(kernel.baseline_values()).size > 0


@pytest.mark.parametrize(
    ("name", "sizes", "large", "small"),
    [
        (
            "convolution2d",
            {},
            {"block_size_x": (64,), "tile_size_x": (2,), "vector_width": (16,), "accumulator_type": ("fp64",)},
            {"accumulator_type": ("fp32",)},
        ),
        ("lavamd", {"particles": 2000}, {"position_type": ("fp64",)}, {"position_type": ("fp16",)}),
    ],
)
def test_shared_memory_bounds_the_tiles(name, sizes, large, small):
    kernel = load_kernel(name)
    space = kernel.search_space(kernel.resolve_sizes("smoke", sizes)).restrict({"use_shared": (True,)})
    with pytest.raises(EmptySpaceError, match="sizeof"):
        space.restrict(large)
    assert space.restrict(small).size > 0
