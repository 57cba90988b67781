"""What emitted programs measure errors by is what mptune measures them by."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from mptune.accuracy.metrics import METRICS, resolve
from mptune.emit.plain_metrics import METRICS as PLAIN
from mptune.emit.plain_metrics import compared, in_tolerances, over_regions, ulp
from mptune.precision import PRECISIONS


def plain(name: str, digits: int = 52, least: int = -1022) -> Any:
    return functools.partial(ulp, digits=digits, least=least) if name == "ULP" else PLAIN[name]


def pair(signed: bool) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    reference = rng.lognormal(size=(7, 10)) * (rng.choice([-1, 1], (7, 10)) if signed else 1)
    output = reference * rng.uniform(0.2, 3, (7, 10))
    output[0, :3] = reference[0, :3] = 0, 0, 5
    return output, reference


@pytest.mark.parametrize("name", METRICS)
def test_they_agree(name: str) -> None:
    output, reference = pair(signed=name not in ("MALE", "RMSLE"))
    with np.errstate(all="ignore"):
        assert plain(name)(output, reference) == pytest.approx(METRICS[name](output, reference), rel=1e-12)
        assert plain(name)(reference, reference) == 0
        if name in ("MRE", "NRMSE", "NMAE", "RMSRE", "MALE", "MaxRE"):  # over nothing
            assert plain(name)(np.ones(2), np.zeros(2)) == METRICS[name](np.ones(2), np.zeros(2)) == np.inf
        output[1, 1] = np.nan
        assert np.isnan(plain(name)(output, reference))


@pytest.mark.parametrize("stored", ["fp16", "bf16", "fp32"])
def test_units_are_of_the_type_the_output_has(stored: str) -> None:
    chosen = PRECISIONS[stored]
    output, reference = pair(signed=True)
    reference[2] *= chosen.smallest_normal
    output = output.astype(chosen.dtype)
    least = int(np.frexp(chosen.smallest_normal)[1]) - 1
    found = plain("ULP", chosen.significand_bits - 1, least)(output.astype(np.float64), reference)
    assert found == METRICS["ULP"](output, reference)


@pytest.mark.parametrize("words", ["rows max", "columns 0.5", "block 3x4 max", "block 4 0.07"])
def test_they_are_taken_of_regions(words: str) -> None:
    output, reference = pair(signed=True)
    metric = resolve(f"NMAE over {words}")
    assert metric.regions is not None
    tile = metric.regions.tile(output.shape)
    axes = len(metric.regions.own_shape(tile))
    found = over_regions(plain("NMAE"), tile, axes, metric.regions.quantile, output, reference)
    assert found == pytest.approx(metric(output, reference), rel=1e-12)


@pytest.mark.parametrize(("absolute", "relative"), [(1e-6, 0.1), (0.0, 0.5), (2.0, 0.0)])
def test_a_tolerance(absolute: float, relative: float) -> None:
    output, reference = pair(signed=True)
    metric = resolve(f"{absolute}+{relative}*abs")
    assert metric.tolerance == (absolute, relative)
    with np.errstate(all="ignore"):
        found = in_tolerances(output, reference, absolute, relative)
    assert found == pytest.approx(metric(output, reference), rel=1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_nan_in_the_reference_is_a_mask(name: str) -> None:
    output, reference = pair(signed=False)
    reference[2], reference[4, 5] = np.nan, np.nan
    output[2, 3] = np.inf
    regions = resolve(f"{name} over rows 0.5")
    with np.errstate(all="ignore"):
        assert compared(plain(name), output, reference) == pytest.approx(METRICS[name](output, reference), rel=1e-12)
        found = over_regions(plain(name), (1, 10), 1, 0.5, output, reference)
    assert found == pytest.approx(regions(output, reference), rel=1e-12)
