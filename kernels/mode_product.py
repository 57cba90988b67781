"""A tensor times a matrix along its middle mode: Y[i][r][j] = sum over k of U[r][k] X[i][k][j].

The step of Tucker decompositions, and what becomes of a spectral image (rows x bands x columns) behind filters
(filters x bands). Each element of X serves all filters and each of U all pixels, so reuse decides. Which of the two
stays in registers, and how long a sum does, follows from the order of the loops over rows, filters and bands:
``loop_order``, a permutation. Every order adds the bands one after the other by fused multiply-add, so all of them give
the same numbers.

Precisions: a product is added in the widest type of image, filters and sum; what is kept of it has that of the sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mptune.kernel import In, Kernel, Out, Sizes
from mptune.space.parameters import OrdinalParameter, PermutationParameter, PrecisionParameter

TYPES = ("fp64", "fp32", "fp16", "bf16")
PRODUCTS = "rows * filters * bands * columns"


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """Reflectances of a landscape under the sun, and the responses of a camera's filters.

    Pixels mix four materials, whose spectra are smooth; noise of 1% is that of the sensor. Filters are bell-shaped,
    spread over the bands, leak 1e-4 everywhere, and pass as much light each, so that what they see is a mean: between 0
    and 1.
    """
    band = (np.arange(size.bands) + 0.5) / size.bands
    peaks, widths = rng.uniform(0, 1, (4, 3, 1)), rng.uniform(0.05, 0.4, (4, 3, 1))
    spectra = 0.1 + 0.25 * np.exp(-(((band - peaks) / widths) ** 2)).sum(axis=1)
    shares = rng.dirichlet(np.ones(4), (size.rows, size.columns))
    image = np.einsum("ijm,mk->ikj", shares, spectra) * (1 + 0.01 * rng.standard_normal((size.rows, size.bands, 1)))
    centre = (np.arange(size.filters) + rng.random()) / size.filters
    response = 1e-4 + np.exp(-(((band - centre[:, None]) * min(size.filters, size.bands)) ** 2))
    return {"image": image, "response": response / response.sum(axis=1, keepdims=True)}


kernel = Kernel(
    name="mode_product",
    description="a tensor times a matrix along its middle mode, with loops in any order",
    parameters=[
        OrdinalParameter("block_size", [32, 64, 128, 256]),
        OrdinalParameter("tile_columns", [1, 2, 4, 8, 16]),
        OrdinalParameter("tile_filters", [1, 2, 4, 8]),
        OrdinalParameter("tile_rows", [1, 2, 4]),
        PermutationParameter("loop_order", 3),
        PrecisionParameter("image_type", TYPES),
        PrecisionParameter("response_type", TYPES),
        PrecisionParameter("sum_type", TYPES),
        PrecisionParameter("output_type", TYPES),
    ],
    # More sums than these do not stay in registers.
    constraints=["tile_columns * tile_filters * tile_rows <= 64"],
    arguments=[
        Out("output", ("rows", "filters", "columns"), precision="output_type"),
        In("image", ("rows", "bands", "columns"), precision="image_type"),
        In("response", ("filters", "bands"), precision="response_type"),
    ],
    sizes={
        "smoke": {"rows": 7, "bands": 29, "filters": 5, "columns": 67},
        "default": {"rows": 64, "bands": 64, "filters": 32, "columns": 160},
        # Of no paper: a scene of the airborne spectrometer AVIRIS, 512 x 614 pixels in 224 bands.
        "paper": {"rows": 512, "bands": 224, "filters": 64, "columns": 614},
    },
    inputs=inputs,
    grid=[
        "ceildiv(columns, block_size * tile_columns)",
        "ceildiv(filters, tile_filters)",
        "ceildiv(rows, tile_rows)",
    ],
    block=["block_size"],
    metric="NRMSE",
    flops={("image_type", "response_type", "sum_type"): f"2 * {PRODUCTS}"},
)
