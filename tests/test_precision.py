from __future__ import annotations

import numpy as np
import pytest

from mptune.errors import UnknownNameError
from mptune.precision import PRECISIONS, precision

#: name: bytes, significand bits, largest, smallest normal; figures of the standards, not of a library.
STANDARD = {
    "fp64": (8, 53, (2 - 2.0**-52) * 2.0**1023, 2.0**-1022),
    "fp32": (4, 24, (2 - 2.0**-23) * 2.0**127, 2.0**-126),
    "fp16": (2, 11, 65504.0, 2.0**-14),
    "bf16": (2, 8, (2 - 2.0**-7) * 2.0**127, 2.0**-126),
    "fp8_e4m3": (1, 4, 448.0, 2.0**-6),
    "fp8_e5m2": (1, 3, 57344.0, 2.0**-14),
}


@pytest.mark.parametrize("name", PRECISIONS)
def test_figures_are_those_of_the_standards(name: str) -> None:
    entry = PRECISIONS[name]
    size, bits, largest, smallest = STANDARD[name]
    assert (entry.size_bytes, entry.significand_bits) == (size, bits)
    assert entry.largest == largest
    assert entry.smallest_normal == smallest
    assert entry.dtype.itemsize == size


@pytest.mark.parametrize("name", PRECISIONS)
def test_unit_roundoff_is_the_bound_of_one_rounding(name: str) -> None:
    entry = PRECISIONS[name]
    u = entry.unit_roundoff
    one = entry.dtype.type(1.0)
    assert float(entry.dtype.type(1.0 + 2 * u)) == 1.0 + 2 * u
    if name != "fp64":
        assert float(entry.dtype.type(1.0 + u)) == float(one)
        draws = np.random.default_rng(0).uniform(1.0, 2.0, 10_000)
        errors = np.abs(draws.astype(entry.dtype).astype(np.float64) - draws) / draws
        assert errors.max() <= u


@pytest.mark.parametrize("name", PRECISIONS)
def test_every_alias_finds_its_precision(name: str) -> None:
    entry = PRECISIONS[name]
    for spelling in (name, name.upper(), f" {name} ", *entry.aliases):
        assert precision(spelling) is entry
    assert precision(entry) is entry


@pytest.mark.parametrize(("wrong", "near"), [("fp23", "fp32")])
def test_unknown_name_gets_the_nearest_suggested(wrong: str, near: str) -> None:
    with pytest.raises(UnknownNameError, match=f"did you mean '{near}'") as caught:
        precision(wrong)
    assert repr(wrong) in str(caught.value)
    assert "fp64, fp32, fp16, bf16" in str(caught.value)
