"""Reference of the option prices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mptune.data.blocks import in_blocks
from mptune.kernel import Sizes

__all__ = ["reference"]

# Options at a time: what is computed of them stays in the cache.
CHUNK = 1 << 16


def reference(inputs: Mapping[str, Any], size: Sizes) -> dict[str, NDArray[np.float64]]:
    """Return ``call`` (n,) and ``put`` (n,), as Black and Scholes (1973) price them, without dividends.

    The put is computed by itself, not from the call: its own terms cancel less where it is worth little.
    """
    from scipy.special import ndtr  # takes longer to load than the kernel

    rate, volatility = inputs["rate"], inputs["volatility"]
    call, put = np.empty(size.n), np.empty(size.n)

    def price(part: slice) -> None:
        stock, strike, years = (inputs[name][part] for name in ("stock", "strike", "years"))
        deviation = volatility * np.sqrt(years)
        d1 = (np.log(stock / strike) + (rate + volatility**2 / 2) * years) / deviation
        d2 = d1 - deviation
        present = strike * np.exp(-rate * years)
        call[part] = stock * ndtr(d1) - present * ndtr(d2)
        put[part] = present * ndtr(-d2) - stock * ndtr(-d1)

    in_blocks(price, size.n, CHUNK)
    return {"call": call, "put": put}
