from __future__ import annotations
from typing import Any
import numpy as np
from mptune.kernel import In, Kernel, Out, Sizes
from mptune.space.parameters import OrdinalParameter, BooleanParameter, PrecisionParameter
TYPES = ("fp64", "fp32", "fp16", "bf16")
def inputs(rng, size):
    return {"input": rng.random((size.height + size.filter_height - 1, size.width + size.filter_width - 1)),
            "filter": rng.random((size.filter_height, size.filter_width))/200}
kernel = Kernel(
    name="convolution2d",
    description="17x17 filter on an image, bound by arithmetic",
    parameters=[
        OrdinalParameter("block_size_x", [8, 16, 32, 64, 128]),
        OrdinalParameter("block_size_y", [1, 2, 4, 8, 16]),
        OrdinalParameter("tile_size_x", [1, 2, 4]),
        OrdinalParameter("tile_size_y", [1, 2, 4, 8]),
        OrdinalParameter("vector_width", [1, 2, 4, 8, 16, 32]),
        BooleanParameter("use_shared"),
        OrdinalParameter("padding", [0, 1]),
        PrecisionParameter("input_type", TYPES),
        PrecisionParameter("filter_type", TYPES),
        PrecisionParameter("accumulator_type", TYPES),
        PrecisionParameter("output_type", TYPES),
    ],
    arguments=[
        Out("output", ("height", "width"), precision="output_type"),
        In("input", ("height + filter_height - 1", "width + filter_width - 1"), precision="input_type"),
        In("filter", ("filter_height", "filter_width"), precision="filter_type"),
    ],
    sizes={
        "smoke": {"width": 203, "height": 101, "filter_width": 17, "filter_height": 17},
        "default": {"width": 1200, "height": 900, "filter_width": 17, "filter_height": 17},
        "paper": {"width": 8192, "height": 8192, "filter_width": 17, "filter_height": 17},
    },
    inputs=inputs,
    grid=["ceildiv(width, block_size_x * tile_size_x * min(vector_width, width))", "ceildiv(height, block_size_y * min(tile_size_y, height))"],
    block=["block_size_x", "block_size_y"],
    metric="NRMSE",
)
