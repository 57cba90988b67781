"""Bundled definitions: presets, spaces, process boundaries, and the counts of Heldens 2026, Table II."""

import pickle
import re
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from mptune.errors import EmptySpaceError
from mptune.kernel.limits import device_constraints
from mptune.source.loading import bundled_kernels, load_kernel
from mptune.source.render import render_body
from mptune.space.parameters import PolicyParameter, PrecisionParameter
from mptune.tuning.check import select
from tests.tiers import few

KERNELS = sorted(bundled_kernels(), key=lambda name: name == "gemm")


@pytest.mark.parametrize("name", few(KERNELS, len(KERNELS) - 1))
def test_every_value_is_valid_at_every_preset_and_there_is_a_baseline(name: str) -> None:
    kernel = load_kernel(name)
    assert kernel.description
    assert list(kernel.sizes) == ["smoke", "default", "paper"]
    offered = {(p.name, value) for p in kernel.parameters for value in p.values}
    for preset in kernel.sizes:
        space = kernel.search_space(kernel.resolve_sizes(preset))
        valid = {item for c in select(space, kernel.signature_names) for item in c.items()}
        assert valid == offered, preset
    assert kernel.search_space(kernel.resolve_sizes()).restrict(kernel.baseline_values()).size > 0


@pytest.mark.parametrize("name", KERNELS)
def test_a_definition_survives_a_process_boundary(name: str) -> None:
    kernel = load_kernel(name)
    copy = pickle.loads(cloudpickle.dumps(kernel))
    sizes, configuration = copy.resolve_sizes("smoke"), kernel.configuration({})
    assert render_body(copy, configuration, sizes) == render_body(kernel, configuration, sizes)
    inputs = copy.inputs(np.random.default_rng(0), sizes)
    found, expected = copy.reference(inputs, sizes), kernel.reference(inputs, sizes)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("name", "sizes", "large", "small"),
    [
        (
            "convolution2d",
            {},
            {"block_size_x": (64,), "tile_size_x": (2,), "vector_width": (16,), "accumulator_type": ("fp64",)},
            {"accumulator_type": ("fp32",)},
        ),
        ("lavamd", {"particles": 2000}, {"position_type": ("fp64",)}, {"position_type": ("fp16",)}),
    ],
)
def test_shared_memory_bounds_the_tiles(name, sizes, large, small):
    kernel = load_kernel(name)
    space = kernel.search_space(kernel.resolve_sizes("smoke", sizes)).restrict({"use_shared": (True,)})
    with pytest.raises(EmptySpaceError, match="sizeof"):
        space.restrict(large)
    assert space.restrict(small).size > 0


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
STATED = re.compile(
    r"Lists of values are a reconstruction: .* optimisation values \(([\d,]+)\),\s+of precisions \(([\d,]+)\), "
    r"and valid ones on its A100 \(([\d,]+)\)\. Here: ([\d,]+), ([\d,]+) and ([\d,]+)\.$",
    re.MULTILINE,
)


@pytest.mark.parametrize("name", TABLE_II)
def test_a_definition_states_the_counts_of_the_paper_and_its_own(name):
    kernel = load_kernel(name)
    space = kernel.search_space(kernel.sizes["paper"], device_constraints(kernel, {"is_gpu": True, "matrix_units": ""}))
    codes = space.codes(np.arange(len(space)))
    of_types = np.array([isinstance(p, PrecisionParameter | PolicyParameter) for p in space.parameters])
    optimised, types = (len(np.unique(codes[:, columns], axis=0)) for columns in (~of_types, of_types))
    stated = STATED.search((Path(__file__).parents[2] / "kernels" / f"{name}.py").read_text())
    assert stated
    counts = [int(number.replace(",", "")) for number in stated.groups()]
    assert counts == [*TABLE_II[name], optimised, types, len(space)]
    if name in ("bessel", "lavamd", "inverse_kinematics", "mriq"):
        assert counts[3] == counts[0]
