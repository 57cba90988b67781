import numpy as np
import pytest
from launching import launcher, nrmse
from numpy.typing import NDArray

from mptune.errors import EmptySpaceError
from mptune.kernel import Kernel
from mptune.precision import PRECISIONS
from mptune.source.loading import load_kernel

REUSING = {"vector_width": 8, "tile_size_x": 2, "tile_size_y": 4, "block_size_x": 16, "block_size_y": 4}


@pytest.fixture(scope="module")
def convolution() -> Kernel:
    return load_kernel("convolution2d")


def brute_force(image: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    rows, columns = weights.shape
    output = np.empty((image.shape[0] - rows + 1, image.shape[1] - columns + 1))
    for y, x in np.ndindex(output.shape):
        output[y, x] = sum(
            weights[j, i] * image[y + j, x + i].astype(np.longdouble) for j in range(rows) for i in range(columns)
        )
    return output


@pytest.mark.parametrize(
    "sizes",
    [
        {"width": 9, "height": 6, "filter_width": 17, "filter_height": 17},
        {"width": 70, "height": 3, "filter_width": 4, "filter_height": 7},
        {"width": 1, "height": 1, "filter_width": 5, "filter_height": 2},
    ],
    ids=str,
)
def test_reference_against_a_loop(convolution: Kernel, sizes: dict[str, int]) -> None:
    size = convolution.resolve_sizes("smoke", sizes)
    inputs = convolution.inputs(np.random.default_rng(1), size)
    lopsided = np.random.default_rng(2).random((size.filter_height, size.filter_width))
    for weights in (inputs["filter"], lopsided):
        output = convolution.reference({**inputs, "filter": weights}, size)["output"]
        np.testing.assert_allclose(output, brute_force(inputs["input"], weights), rtol=1e-14)


def test_the_image_is_a_picture(convolution: Kernel) -> None:
    size = convolution.resolve_sizes("smoke", {"width": 301, "height": 203})
    inputs = convolution.inputs(np.random.default_rng(3), size)
    image, weights = inputs["input"], inputs["filter"]
    assert 0 < image.min() < 0.4
    assert 0.9 < image.max() <= 1
    # Neighbours are alike, unlike noise; but there are edges.
    steps = np.abs(np.diff(image, axis=1))
    assert np.median(steps) < 0.2 * image.std()
    assert steps.max() > 2 * image.std()
    assert weights.min() > 0
    assert weights.sum() == pytest.approx(1)
    assert not np.allclose(weights, weights[::-1, ::-1], rtol=0.1)
    for name in ("fp16", "bf16"):
        assert min(image.min(), weights.min()) > PRECISIONS[name].smallest_normal


def test_a_wide_accumulator_leaves_only_the_rounding_of_the_output(convolution: Kernel) -> None:
    run = launcher(convolution, {"width": 61, "height": 47}, seed=5)
    types = {"input_type": "fp32", "filter_type": "fp32", "accumulator_type": "fp32", "output_type": "fp16"}
    output = run.run(convolution.configuration({**types, **REUSING, "use_shared": True}))["output"]
    np.testing.assert_array_less(
        np.abs(output - run.data.references["output"]), 1.01 * PRECISIONS["fp16"].unit_roundoff
    )
    assert 0.1 < nrmse(output, run.data.references["output"]) / PRECISIONS["fp16"].unit_roundoff < 1


@pytest.mark.parametrize("use_shared", [False, True])
def test_every_argument_has_its_own_type(convolution: Kernel, use_shared: bool) -> None:
    """Inputs are rounded once, to their own types; the accumulator loses nothing more."""
    run = launcher(convolution, {"width": 37, "height": 29}, seed=8)
    types = {"input_type": "fp16", "filter_type": "bf16", "accumulator_type": "fp64", "output_type": "fp64"}
    configuration = convolution.configuration({**types, **REUSING, "use_shared": use_shared})
    rounded = {
        name: run.data.inputs[name].astype(PRECISIONS[types[f"{name}_type"]].dtype).astype(np.float64)
        for name in ("input", "filter")
    }
    expected = convolution.reference(rounded, run.data.sizes)["output"]
    np.testing.assert_allclose(run.run(configuration)["output"], expected, rtol=1e-13)


def test_shared_memory_bounds_the_tiles(convolution: Kernel) -> None:
    space = convolution.search_space(convolution.resolve_sizes())
    largest = {"block_size_x": (64,), "tile_size_x": (2,), "vector_width": (16,), "use_shared": (True,)}
    with pytest.raises(EmptySpaceError, match="sizeof"):
        space.restrict({**largest, "accumulator_type": ("fp64",)})
