"""A picture the tuning has not seen: written for the emitted program, and compared with what that made of it.

python picture.py write    writes picture/image.f64
python picture.py compare  compares smooth/out.f64 with the reference
"""

import sys
from pathlib import Path

import numpy as np
from bilateral_fp64 import inputs, reference

from mptune import Run, load_kernel

kernel = load_kernel("./bilateral.py")
sizes = kernel.resolve_sizes("default", Run.load("bilateral.db").info.sizes)
picture = inputs(np.random.default_rng(2024), sizes)

if sys.argv[1] == "write":
    for folder in ("picture", "smooth"):
        Path(folder).mkdir(exist_ok=True)
    picture["image"].tofile("picture/image.f64")
else:
    expected = reference(picture, sizes)
    error = np.abs(np.fromfile("smooth/out.f64").reshape(expected.shape) - expected).max()
    print(f"largest error of any pixel: {error:.2e}")
    sys.exit(int(error > 0.001))
