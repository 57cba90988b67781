"""2D convolution: a 17x17 filter on an image (Heldens 2026, Table II and Sec. IV; 11 parameters).

Arithmetic bounds it: 289 multiplications and additions for each pixel, whose neighbours share nearly all of their
inputs. So reuse decides: of registers (tile sizes, vector width) and of shared memory; precisions decide how many
sums a register holds, and how much conversion between types costs.

The image comes with the border the filter reaches into: for an output of ``width`` x ``height`` pixels it is
``width + filter_width - 1`` wide and ``height + filter_height - 1`` high. The filter is not flipped, as usual in image
processing.

Lists of values are a reconstruction: Table II has only how many combinations there are of optimisation values (864),
of precisions (112), and valid ones on its A100 (72,112). Here: 826, 107 and 71,070.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.kernel import In, Kernel, Out, Sizes
from mptune.precision import COMPOUND
from mptune.space.parameters import BooleanParameter, OrdinalParameter, PrecisionParameter

TYPES = ("fp64", "fp32", "fp16", "bf16")
FILTER = {"filter_width": 17, "filter_height": 17}

# Statically allocated shared memory of a block is limited to 48 KiB on every CUDA and HIP device.
SHARED_BYTES = (
    "sizeof(accumulator_type)"
    " * (block_size_y * tile_size_y + filter_height - 1)"
    " * (block_size_x * tile_size_x * vector_width + filter_width - 1 + padding)"
)


def photograph(rng: np.random.Generator, height: int, width: int) -> NDArray[np.float64]:
    """Return a grey picture (height, width) in [0, 1] with the statistics of a photograph.

    Textured discs of all sizes hide each other in front of a shaded ground ("dead leaves"); a camera with photon
    noise sees their light and encodes it with a gamma of 2.2.
    """
    side = max(height, width)
    y, x = np.arange(height)[:, None] / side, np.arange(width)[None, :] / side
    light = 0.5 + 0.2 * np.cos(rng.uniform(2, 6) * x + rng.uniform(0, 6)) * np.cos(rng.uniform(2, 6) * y + 1)
    for radius in 0.3 / np.arange(1, 121) ** 0.75:
        centre_y, centre_x = rng.uniform(0, y.max() + radius), rng.uniform(0, x.max() + radius)
        rows = slice(*np.searchsorted(y[:, 0], [centre_y - radius, centre_y + radius]))
        columns = slice(*np.searchsorted(x[0], [centre_x - radius, centre_x + radius]))
        down, right = y[rows] - centre_y, x[:, columns] - centre_x
        wave_y, wave_x = rng.normal(0, 30, 2) / radius
        disc = rng.uniform(0.05, 0.9) * (1 + 0.15 * np.cos(wave_y * down + wave_x * right))
        light[rows, columns] = np.where(down**2 + right**2 < radius**2, disc, light[rows, columns])
    light += rng.normal(0, 0.02, light.shape) * np.sqrt(light)
    picture: NDArray[np.float64] = np.clip(light, 0.002, 1) ** (1 / 2.2)
    return picture


def point_spread(height: int, width: int) -> NDArray[np.float64]:
    """Return the blur of a lens (height, width): an oblique Gaussian with some coma, positive, of sum 1."""
    v = (np.arange(height)[:, None] - (height - 1) / 2) / (height / 3)
    u = (np.arange(width)[None, :] - (width - 1) / 2) / (width / 3)
    weights: NDArray[np.float64] = np.exp(-(u**2 + 0.5 * u * v + v**2) / 2) * (1 + 0.2 * u - 0.1 * v)
    weights /= weights.sum()
    return weights


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """A photograph, border included, and the blur of the lens it is to be seen through."""
    return {
        "input": photograph(rng, size.height + size.filter_height - 1, size.width + size.filter_width - 1),
        "filter": point_spread(size.filter_height, size.filter_width),
    }


kernel = Kernel(
    name="convolution2d",
    description="17x17 filter on an image, bound by arithmetic",
    parameters=[
        OrdinalParameter("block_size_x", [16, 32, 64]),
        OrdinalParameter("block_size_y", [1, 2, 4, 8]),
        OrdinalParameter("tile_size_x", [1, 2]),
        OrdinalParameter("tile_size_y", [1, 2, 4, 8]),
        OrdinalParameter("vector_width", [1, 2, 4, 8, 16]),
        BooleanParameter("use_shared"),
        OrdinalParameter("padding", [0, 1]),
        PrecisionParameter("input_type", TYPES),
        PrecisionParameter("filter_type", TYPES),
        PrecisionParameter("accumulator_type", TYPES, on_request=COMPOUND),
        PrecisionParameter("output_type", TYPES),
    ],
    constraints=[
        # A wavefront of AMD, two warps of Nvidia; beyond 256 threads too few registers are left for the sums of each.
        "64 <= block_size_x * block_size_y <= 256",
        "tile_size_x * tile_size_y * vector_width <= 64",
        "use_shared or padding == 0",
        f"not use_shared or {SHARED_BYTES} <= 48 * 1024",
        # What goes into a sum or comes out of it in a wider type than its own only moves more bytes.
        "sizeof(input_type) <= sizeof(accumulator_type)",
        "sizeof(filter_type) <= sizeof(accumulator_type)",
        "sizeof(output_type) <= sizeof(accumulator_type)",
    ],
    arguments=[
        Out("output", ("height", "width"), precision="output_type"),
        In("input", ("height + filter_height - 1", "width + filter_width - 1"), precision="input_type"),
        In("filter", ("filter_height", "filter_width"), precision="filter_type"),
    ],
    sizes={
        "smoke": {"width": 203, "height": 101, **FILTER},
        "default": {"width": 1024, "height": 768, **FILTER},
        "paper": {"width": 8192, "height": 8192, **FILTER},
    },
    runtime_sizes=["width", "height"],
    inputs=inputs,
    grid=[
        "ceildiv(width, block_size_x * tile_size_x * min(vector_width, width))",
        "ceildiv(height, block_size_y * min(tile_size_y, height))",
    ],
    block=["block_size_x", "block_size_y"],
    metric="NRMSE",
    flops={"accumulator_type": "2 * width * height * filter_width * filter_height"},
)
