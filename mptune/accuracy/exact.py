"""Matrix products with more digits than fp64, at the speed of a BLAS: for references of accurate sums.

The factors are split into leading digits, so few that sums of their products are exact in any order (Ozaki et al.
2012), and remainders so small that their rounding errors do not count.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

_DIGITS: Final = 53  #: of the significand of fp64
_ROWS: Final = 256  #: rows of a block, which limits the temporaries


def leading(values: Doubles, bits: int, axis: int | None = None) -> Doubles:
    """Return values, of any shape, rounded to ``2**-bits`` of a power of two above their largest magnitude.

    The largest magnitude is over an axis, or over all values; ``bits`` is from 1 to 52. The remainder
    ``values - leading(values, bits)`` is exact.
    """
    _, exponent = np.frexp(np.abs(values).max(axis=axis, keepdims=True, initial=0.0))
    # Adding a number whose last digit has the weight of the multiples rounds to them.
    anchor = np.ldexp(1.5, exponent + (_DIGITS - 1 - bits))
    found: Doubles = values + anchor
    found -= anchor
    return found


def product(first: Doubles, second: Doubles) -> tuple[Doubles, Doubles]:
    """Return ``first @ second``, ``(m, k)`` by ``(k, n)``, as the sum of two ``(m, n)`` matrices: leading part, rest.

    The sum has twenty bits more than fp64.
    """
    bits = (_DIGITS - (first.shape[1] - 1).bit_length()) // 2
    lead = leading(second, bits, axis=0)
    rest = second - lead
    high, low = (np.empty((len(first), second.shape[1])) for _ in range(2))
    for rows in (slice(start, start + _ROWS) for start in range(0, len(first), _ROWS)):
        of_rows = leading(first[rows], bits, axis=1)
        np.matmul(of_rows, lead, out=high[rows])
        np.matmul(of_rows, rest, out=low[rows])
        low[rows] += (first[rows] - of_rows) @ second
    return high, low
