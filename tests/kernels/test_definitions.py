"""What every bundled definition owes its users."""

import pickle

import cloudpickle
import numpy as np
import pytest

from mptune.kernel import Kernel
from mptune.source.loading import bundled_kernels, load_kernel
from mptune.source.render import render_body
from mptune.tuning.check import select
from tests.tiers import few

KERNELS = bundled_kernels()


@pytest.fixture(params=few([name for name in KERNELS if name != "gemm"] + ["gemm"], len(KERNELS) - 1))
def kernel(request: pytest.FixtureRequest) -> Kernel:
    return load_kernel(request.param)


def test_the_kernels_of_this_release_are_bundled() -> None:
    assert {"axpy", "convolution2d"} <= set(KERNELS)


def test_a_definition_says_what_it_is_and_has_every_preset(kernel: Kernel) -> None:
    assert kernel.description
    assert list(kernel.sizes) == ["smoke", "default", "paper"]


def test_every_value_of_every_parameter_is_valid_at_every_preset(kernel: Kernel) -> None:
    offered = {(p.name, value) for p in kernel.parameters for value in p.values}
    for preset in kernel.sizes:
        space = kernel.search_space(kernel.resolve_sizes(preset))
        valid = {item for c in select(space, kernel.signature_names) for item in c.items()}
        assert valid == offered, preset


def test_there_is_a_baseline(kernel: Kernel) -> None:
    space = kernel.search_space(kernel.resolve_sizes())
    assert space.restrict(kernel.baseline_values()).size > 0


def test_inputs_follow_the_seed(kernel: Kernel) -> None:
    sizes = kernel.resolve_sizes("smoke")
    first, again, other = (kernel.inputs(np.random.default_rng(seed), sizes) for seed in (0, 0, 1))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert any(not np.array_equal(first[name], other[name]) for name in first)


def test_a_definition_survives_a_process_boundary(kernel: Kernel) -> None:
    copy = pickle.loads(cloudpickle.dumps(kernel))
    sizes = copy.resolve_sizes("smoke")
    configuration = kernel.configuration({})
    assert render_body(copy, configuration, sizes) == render_body(kernel, configuration, sizes)
    inputs = copy.inputs(np.random.default_rng(0), sizes)
    found, expected = copy.reference(inputs, sizes), kernel.reference(inputs, sizes)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
