"""Products of matrices with more digits than fp64 has, at the speed of a BLAS: for references of accurate sums.

A sum in fp64 errs as much as what is compared with it. But the leading digits of numbers are so few that sums of their
products are exact, in whatever order they are added up (Ozaki et al. 2012). What is left of the numbers is so small
that its errors do not count.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

_DIGITS: Final = 53
#: Rows at a time: what is made of them on the way stays small.
_ROWS: Final = 256


def leading(values: Doubles, bits: int, axis: int | None = None) -> Doubles:
    """Return values rounded to multiples of ``2**-bits`` of a power of two above the largest along an axis, or of all.

    What that leaves, ``values - leading(values, bits)``, is exact.

    Args:
        values: of any shape.
        bits: how many, from 1 to 52.
        axis: along which the largest is looked for.

    Returns:
        An array of the shape of ``values``.
    """
    _, exponent = np.frexp(np.abs(values).max(axis=axis, keepdims=True, initial=0.0))
    # The last digit of such a sum has that weight.
    anchor = np.ldexp(1.5, exponent + (_DIGITS - 1 - bits))
    found: Doubles = values + anchor
    found -= anchor
    return found


def product(first: Doubles, second: Doubles) -> tuple[Doubles, Doubles]:
    """Return two matrices whose sum is ``first @ second`` with twenty bits more than it has in fp64.

    The first of them is the product as fp64 has it, but for its last digits; the second is what it lacks.

    Args:
        first: a matrix, ``(m, k)``.
        second: a matrix, ``(k, n)``.

    Returns:
        Both matrices, ``(m, n)``.
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
