"""Every bundled kernel against its reference, in every precision, on every device there is.

The host is among them in one precision, so that this is known to work where there is no GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from launching import Launcher

from mptune.accuracy.evaluate import evaluate_outputs
from mptune.backends import BACKENDS, get_backend
from mptune.data import DataManager
from mptune.kernel.limits import space_on
from mptune.precision import PRECISIONS
from mptune.source.loading import bundled_kernels, load_kernel
from mptune.space.configuration import Configuration
from mptune.space.parameters import PolicyParameter, PrecisionParameter
from tests.tiers import few

#: Units of roundoff that the worst kernel may be off; the host needs at most 25. With far fewer than one, a narrow type
#: was not computed in, or not even stored in.
MOST, FEWEST = 64, 0.2
DEVICES = ("cuda", "hip", "opencl")
TYPES = ("fp64", "fp32", "fp16", "bf16")


def on(name: str, backend: str, *values: str) -> Any:
    found = BACKENDS[backend].availability()
    marks = [pytest.mark.skipif(not found.can_run, reason=found.reason or "there")]
    return pytest.param(
        name, backend, *values, marks=[*marks, *([pytest.mark.gpu] if backend in ("cuda", "hip") else [])]
    )


@functools.cache
def ready(name: str, backend: str) -> Launcher:
    kernel = load_kernel(name)
    return Launcher(kernel, DataManager(kernel, kernel.resolve_sizes("smoke")), backend=get_backend(backend))


def fixed(name: str, precision: str) -> dict[str, str]:
    """Return one type for everything, and the accurate policy."""
    parameters = load_kernel(name).parameters
    types = {p.name: precision for p in parameters if isinstance(p, PrecisionParameter)}
    return {**types, **{p.name: "accurate" for p in parameters if isinstance(p, PolicyParameter)}}


def check(launcher: Launcher, configurations: Sequence[Configuration], precision: str) -> None:
    unit = PRECISIONS[precision].unit_roundoff
    for configuration in configurations:
        result = evaluate_outputs(launcher.run(configuration), launcher.data.references, launcher.kernel.metric)
        assert not result.non_finite, f"{configuration}: {result.message}"
        assert result.error <= MOST * unit, f"{configuration}: {result.error}"
        assert precision == "fp64" or result.error >= FEWEST * unit, f"{configuration}: {result.error}"


@pytest.mark.parametrize(
    ("name", "backend", "precision"),
    [
        param
        for number, name in enumerate(bundled_kernels())
        for param in (
            on(name, "host", "fp32"),
            # On each device each kernel in one type, and in the others at night.
            *(
                param
                for device in DEVICES
                for param in few([on(name, device, TYPES[(number + i) % len(TYPES)]) for i in range(len(TYPES))], 0, 1)
            ),
        )
    ],
)
def test_errs_by_the_unit_roundoff_of_its_type(name: str, backend: str, precision: str) -> None:
    launcher = ready(name, backend)
    check(launcher, [launcher.kernel.configuration(fixed(name, precision))], precision)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "backend"), [on(name, backend) for name in bundled_kernels() for backend in ("cuda", "hip", "host")]
)
def test_every_value_of_every_other_parameter_in_fp16(name: str, backend: str) -> None:
    """Vectors, tiles, shared memory, prefetching: where two numbers at a time could be mixed up."""
    launcher = ready(name, backend)
    values = {key: (value,) for key, value in fixed(name, "fp16").items()}
    space = space_on(launcher.kernel, launcher.data.sizes, launcher.backend.device.facts()).restrict(values)
    check(launcher, space.configurations(space.covering(np.random.default_rng(0))), "fp16")
