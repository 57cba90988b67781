"""Every size lies in one cell of the grid, and the grid is small."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mptune.wisdom.cells import Cells

LARGEST = 2**31 - 1


@pytest.mark.parametrize(
    "tuned",
    [
        [(1000,)],
        [(1,), (100_000,)],
        [(LARGEST,)],
        [(40, 100, 17), (2000, 5000, 17)],
        [(16, 16, 16, 16)],
        [(2,) * 8, (9,) * 8],
        [(3,) * 40],
    ],
)
def test_a_size_is_in_the_cell_that_is_found_for_it(tuned: list[tuple[int, ...]]) -> None:
    cells = Cells(tuned, [LARGEST] * len(tuned[0]))
    assert math.prod(map(len, cells.starts)) <= 3000
    rng = np.random.default_rng(3)
    for sizes in (*tuned, *np.exp(rng.uniform(0, math.log(LARGEST), (200, len(tuned[0])))).astype(int).tolist()):
        cell = cells.at(sizes)
        lows, highs = cells.ends(cell)
        assert all(low <= size <= high for low, size, high in zip(lows, sizes, highs, strict=True))
        assert cells.at(cells.middle(cell)) == cells.at(lows) == cells.at(highs) == cell


def test_the_range_of_the_tuned_sizes_has_its_own_cells() -> None:
    cells = Cells([(1000,), (8000,)], [LARGEST])
    for inside, outside in ((1000, 999), (8000, 8001)):
        assert cells.at((inside,)) != cells.at((outside,))
    beside = Cells([(100, 17), (800, 17)], [LARGEST] * 2)
    assert beside.ends(beside.at((300, 17)))[0][1] == beside.ends(beside.at((300, 17)))[1][1] == 17
