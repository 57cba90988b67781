"""Reference of the 2D convolution."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mptune.kernel import Sizes

__all__ = ["reference"]

# Leading bits of the image and of the filter. What Fourier transforms make of integers of so many errs by far less than
# a half.
_BITS = 16


def reference(
    inputs: Mapping[str, NDArray[np.float64]],
    size: Sizes,  # noqa: ARG001
) -> dict[str, NDArray[np.float64]]:
    """Return ``output`` (height, width): ``output[y, x] = sum_ji filter[j, i] * input[y + j, x + i]``.

    Computed block-wise by fast Fourier transforms (overlap-add), which err by about 1e-15 of the largest: every term is
    positive here, and the paper's size takes seconds instead of minutes. The leading digits of both are integers, so
    that the sums of their products are, too; what is left adds 16 bits less, and so do its errors.
    """
    from scipy.signal import oaconvolve  # takes longer to load than the kernel

    image, unit = _in_units(inputs["input"])
    weights, unit_of_weights = _in_units(inputs["filter"][::-1, ::-1])
    of_image, of_weights = np.rint(image), np.rint(weights)
    found: NDArray[np.float64] = np.rint(oaconvolve(of_image, of_weights, mode="valid"))
    beyond = oaconvolve(of_image, weights - of_weights, mode="valid")
    beyond += oaconvolve(image - of_image, weights, mode="valid")
    found += beyond
    found *= unit * unit_of_weights
    return {"output": found}


def _in_units(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Return values in a unit, a power of two, of which the largest has about 2^16."""
    _, exponent = np.frexp(np.abs(values).max(initial=0.0))
    unit = float(np.ldexp(1.0, exponent - _BITS))
    return values / unit, unit
