"""Axes of metrics: units are said, and the scale shows every number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from synthetic import run_of, trial

from mptune.plots.subject import metric_axis, set_scale

pytest.importorskip("matplotlib", reason="matplotlib is not installed")


@pytest.mark.parametrize(
    ("metric", "label"),
    [
        ("time_ms", "time (ms)"),
        ("energy_j", "energy (J)"),
        ("throughput_gb_s", "throughput (GB/s)"),
        ("speedup", "speedup over the fp64 baseline"),
        ("error", "error (NRMSE)"),
        ("error.y", "error of y (NRMSE)"),
        ("time_ms * energy_j", "time_ms * energy_j"),
        ("wait", "wait (us)"),
    ],
)
def test_labels_have_units(metric: str, label: str) -> None:
    assert metric_axis(run_of([trial()], units={"wait": "us"}), metric).label == label


def test_an_error_without_a_metric_is_an_error() -> None:
    assert metric_axis(run_of([trial()], metric=None), "error").label == "error"


@pytest.mark.parametrize(
    ("metric", "values", "scale"),
    [
        ("time_ms", [1.0, 9.0, math.nan], "linear"),
        ("time_ms", [1.0, 11.0], "log"),
        ("speedup", [0.01, 11.0], "linear"),
        ("error", [1e-3, 1.1e-3], "log"),
        ("error", [0.0, 1e-3], "symlog"),
        ("energy_j", [0.0, 0.1, 5.0], "symlog"),
    ],
)
def test_scales_show_every_number(metric: str, values: list[float], scale: str) -> None:
    from matplotlib.figure import Figure

    axes: Any = Figure().add_subplot()
    run = run_of([trial()])
    assert set_scale(axes, "x", metric_axis(run, metric), np.array(values)) == scale == axes.get_xscale()
    axes.plot(values, np.zeros(len(values)))
    axes.get_xlim()  # autoscaling is lazy
    places = axes.transAxes.inverted().transform(axes.transData.transform([(v, 0) for v in values if v == v]))
    assert ((places[:, 0] >= 0) & (places[:, 0] <= 1)).all()
