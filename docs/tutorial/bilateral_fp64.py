"""The bilateral filter as it is, in double precision: does it agree with the reference?"""

import numpy as np

from mptune import In, Kernel, OrdinalParameter, Out, Scalar


def inputs(rng, size):
    """A noisy picture of a few smooth shapes with sharp edges, grey values in [0, 1]."""
    height, width = size.height + 2 * size.radius, size.width + 2 * size.radius
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    picture = 0.3 + 0.3 * x + 0.25 * (np.hypot(x - 0.4, y - 0.3) < 0.2) - 0.2 * (x + y > 1.2)
    return {"image": np.clip(picture + rng.normal(0, 0.03, picture.shape), 0, 1)}


def reference(inputs, size):
    """The same filter in NumPy, one shift of the whole picture at a time."""
    image, radius = inputs["image"], size.radius
    centre = image[radius : radius + size.height, radius : radius + size.width]
    total, weights = np.zeros_like(centre), np.zeros_like(centre)
    for j in range(2 * radius + 1):
        for i in range(2 * radius + 1):
            value = image[j : j + size.height, i : i + size.width]
            distance = (i - radius) ** 2 + (j - radius) ** 2
            weight = np.exp(-0.08 * distance - 50.0 * (value - centre) ** 2)
            total += weight * value
            weights += weight
    return total / weights


kernel = Kernel(
    name="bilateral",
    parameters=[OrdinalParameter("block_x", [16, 32, 64]), OrdinalParameter("block_y", [2, 4, 8])],
    arguments=[
        Out("out", ("height", "width"), precision="fp64"),
        In("image", ("height + 2 * radius", "width + 2 * radius"), precision="fp64"),
        Scalar("width", dtype="int32"),
        Scalar("height", dtype="int32"),
        Scalar("radius", dtype="int32"),
    ],
    sizes={
        "smoke": {"width": 101, "height": 67, "radius": 4},
        "default": {"width": 1280, "height": 720, "radius": 4},
    },
    inputs=inputs,
    reference=reference,
    grid=["ceildiv(width, block_x)", "ceildiv(height, block_y)"],
    block=["block_x", "block_y"],
    metric="MaxAE",
    template="bilateral.cu",
)
