"""The bilateral filter with a type for every buffer and variable, a policy for exp, and runs of pixels."""

from bilateral_fp64 import inputs, reference

from mptune import In, Kernel, OrdinalParameter, Out, PolicyParameter, PrecisionParameter

kernel = Kernel(
    name="bilateral",
    parameters=[
        OrdinalParameter("block_x", [16, 32, 64]),
        OrdinalParameter("block_y", [2, 4, 8]),
        OrdinalParameter("run", [1, 2, 4, 8, 16]),
        PrecisionParameter("image_type", ["fp64", "fp32", "fp16"]),
        PrecisionParameter("work_type", ["fp64", "fp32", "fp16"]),
        PrecisionParameter("out_type", ["fp64", "fp32", "fp16"]),
        PolicyParameter("policy", ["accurate", "fast", "approx"]),
    ],
    constraints=[
        "64 <= block_x * block_y <= 256",
        "sizeof(image_type) <= sizeof(work_type) and sizeof(out_type) <= sizeof(work_type)",
    ],
    arguments=[
        Out("out", ("height", "width"), precision="out_type"),
        In("image", ("height + 2 * radius", "width + 2 * radius"), precision="image_type"),
    ],
    sizes={
        "smoke": {"width": 101, "height": 67, "radius": 4},
        "default": {"width": 1280, "height": 720, "radius": 4},
    },
    inputs=inputs,
    reference=reference,
    grid=["ceildiv(width, block_x * run)", "ceildiv(height, block_y)"],
    block=["block_x", "block_y"],
    metric="MaxAE",
    description="bilateral filter, bound by exponentials",
)
