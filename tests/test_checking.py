from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from mptune.backends import get_backend
from mptune.checking import check, covering_sample
from mptune.errors import MptuneError
from mptune.registry import load_kernel

KERNEL = load_kernel(Path(__file__).with_name("own_kernel.py"))


def test_covering_sample_has_every_value_of_every_parameter() -> None:
    space = KERNEL.search_space(KERNEL.resolve_sizes())
    chosen = covering_sample(space, np.random.default_rng(0))
    for parameter in KERNEL.parameters:
        assert {c[parameter.name] for c in chosen} == set(parameter.values)
    assert len(chosen) <= sum(len(p.values) for p in KERNEL.parameters)
    assert all(c in space for c in chosen)


def test_covering_sample_passes_over_values_no_configuration_has() -> None:
    kernel = dataclasses.replace(KERNEL, constraints=["block != 64", "unroll == 2 or block > 100"])
    space = kernel.search_space(kernel.resolve_sizes())
    chosen = covering_sample(space, np.random.default_rng(0))
    assert {c["block"] for c in chosen} == {32, 128, 256}
    assert all(c in space for c in chosen)


def test_failures_are_reported_with_their_configuration() -> None:
    template = str(KERNEL.template) + "\n{% if unroll == 4 %}\n#error no four\n{% endif %}\n"
    result = check(dataclasses.replace(KERNEL, template=template), get_backend("host"))
    assert {c.configuration["unroll"] for c in result.failures} == {4}
    assert all("no four" in c.message for c in result.failures)
    assert len(result.failures) < len(result.compilations)


def test_sample_below_one_is_refused() -> None:
    with pytest.raises(MptuneError, match="sample 0"):
        check(KERNEL, get_backend("host"), sample=0)
