"""The value lists that Heldens 2026 does not have, beside the counts of its Table II."""

import re
from pathlib import Path

import numpy as np
import pytest

from mptune.kernel.limits import device_constraints
from mptune.source.loading import load_kernel
from mptune.space.parameters import PolicyParameter, PrecisionParameter

KERNELS = Path(__file__).parents[2] / "kernels"
#: Combinations of optimisation values and of precisions, and valid configurations on an A100 (Heldens 2026, Table II).
TABLE_II = {
    "bessel": (16, 189, 3024),
    "convolution2d": (864, 112, 72_112),
    "kmeans": (52, 64, 3328),
    "lavamd": (48, 336, 14_896),
    "inverse_kinematics": (20, 240, 4641),
    "newton_raphson": (12, 468, 5572),
    "coulombic": (144, 144, 20_736),
    "mriq": (48, 640, 29_916),
    "black_scholes": (12, 576, 6383),
}


SAID = re.compile(
    r"Lists of values are a reconstruction: .* optimisation values \(([\d,]+)\),\s+of precisions \(([\d,]+)\), "
    r"and valid ones on its A100 \(([\d,]+)\)\. Here: ([\d,]+), ([\d,]+) and ([\d,]+)\.$",
    re.MULTILINE,
)


@pytest.mark.parametrize("name", TABLE_II)
def test_the_file_says_the_paper_s_counts_and_its_own(name):
    kernel = load_kernel(name)
    space = kernel.search_space(kernel.sizes["paper"], device_constraints(kernel, {"is_gpu": True, "matrix_units": ""}))
    codes = space.codes(np.arange(len(space)))
    of_types = np.array([isinstance(p, PrecisionParameter | PolicyParameter) for p in space.parameters])
    optimised, types = (len(np.unique(codes[:, columns], axis=0)) for columns in (~of_types, of_types))

    said = SAID.search((KERNELS / f"{name}.py").read_text())
    assert said
    counts = [int(number.replace(",", "")) for number in said.groups()]
    assert counts == [*TABLE_II[name], optimised, types, len(space)]


@pytest.mark.parametrize("name", ["bessel", "lavamd", "inverse_kinematics", "mriq"])
def test_as_many_combinations_of_optimisation_values_as_in_the_paper(name):
    said = SAID.search((KERNELS / f"{name}.py").read_text())
    assert said
    assert said[4] == said[1]
