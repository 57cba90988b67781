"""Shallow water: against the same scheme in plain NumPy, exact solutions, and what the equations conserve."""

from __future__ import annotations

import functools
import sys

import numpy as np
import pytest
from application_runs import run_once

from mptune import tune
from mptune.accuracy import evaluate_outputs
from mptune.results.trial import Status
from mptune.source.loading import load_tunable
from tests.tiers import few

pytestmark = pytest.mark.usefixtures("charts")

APPLICATION = load_tunable("shallow_water")
MODULE = sys.modules[APPLICATION.steps.__module__]
TYPES = [name for name in APPLICATION.parameter_names if name.endswith("_type")]


# -- the same scheme in plain NumPy ----------------------------------------------------------------


def minmod(a, b):
    return np.where(a * b > 0, np.where(np.abs(a) < np.abs(b), a, b), 0.0)


def mirrored(values, axis, sign):
    """Append two cells beyond both walls, of this sign there."""
    before, after = np.take(values, [1, 0], axis), np.take(values, [-1, -2], axis)
    return np.concatenate([sign * before, values, sign * after], axis)


def flux(surface, normal, along, bed):
    """What crosses the faces between columns; the state has two more columns on both sides."""
    left, right = [], []
    for values in (surface, normal, along):
        steps = np.diff(values)
        slope = minmod(steps[:, :-1], steps[:, 1:])
        left.append(values[:, 1:-2] + slope[:, :-1] / 2)
        right.append(values[:, 2:-1] - slope[:, 1:] / 2)

    def carried(w, p, q):
        return np.array([p, p * p / (w - bed) + w * w / 2 - w * bed, p * q / (w - bed)])

    fastest = np.maximum(*(np.abs(p / (w - bed)) + np.sqrt(w - bed) for w, p, _ in (left, right)))
    return (carried(*left) + carried(*right) - fastest * (np.array(right) - left)) / 2


def change(state, bed):
    w, p, q = state
    bed_x, bed_y = (bed[:-1] + bed[1:]) / 2, (bed[:, :-1] + bed[:, 1:]) / 2
    over_x = flux(mirrored(w, 1, 1), mirrored(p, 1, -1), mirrored(q, 1, 1), bed_x)
    turned = flux(mirrored(w, 0, 1).T, mirrored(q, 0, -1).T, mirrored(p, 0, 1).T, bed_y.T)
    over_y = turned[[0, 2, 1]].transpose(0, 2, 1)
    push = np.array([np.zeros_like(w), w * np.diff(bed_x, axis=1), w * np.diff(bed_y, axis=0)])
    return -(np.diff(over_x, axis=2) + np.diff(over_y, axis=1) + push)


def plain(given, reach):
    """Depth and momenta (3, height, width) in the end."""
    bed = given["bed"]
    ground = (bed[:-1, :-1] + bed[:-1, 1:] + bed[1:, :-1] + bed[1:, 1:]) / 4
    state = np.array([given["surface"], *given["momentum"]])[:, 2:-2, 2:-2]
    time = 0.0
    while time < reach:
        depth = state[0] - ground
        fastest = (np.abs(state[1:]).max(axis=0) / depth + np.sqrt(depth)).max()
        step = min(0.4 / ((np.floor(fastest * 2**20) + 1) / 2**20), reach - time)
        middle = state + step * change(state, bed)
        state = (state + middle + step * change(middle, bed)) / 2
        time += step
    return np.array([state[0] - ground, *state[1:]])


# -- the application ---------------------------------------------------------------------------------


def size_of(width, height, reach):
    return APPLICATION.resolve_sizes("smoke", {"width": width, "height": height, "reach": reach})


def given_for(surface, bed=None):
    height, width = surface.shape
    bed = np.full((height + 1, width + 1), -1.0) if bed is None else bed
    return {"surface": np.pad(surface, 2), "momentum": np.zeros((2, height + 4, width + 4)), "bed": bed}


@functools.cache
def configurations():
    """Return few configurations in fp64 that have all values of all other parameters between them."""
    space = APPLICATION.search_space(APPLICATION.resolve_sizes()).restrict(APPLICATION.baseline_values())
    return space.configurations(space.covering(np.random.default_rng(0)))


def final(size, given, **types):
    return run_once(APPLICATION, {**configurations()[0], **types}, given, size)[0]["state"]


def nrmse(output, reference):
    return np.sqrt(np.mean((output - reference) ** 2)) / np.mean(reference)


SIZES = [(61, 43, 6), (2, 2, 3), (33, 64, 4), (7, 5, 5), (130, 3, 4), (3, 70, 4)]


@pytest.mark.full
def test_it_is_plain_numpy_to_rounding_at_every_size_and_setting():
    found = configurations()
    assert {c["fluxes.run"] for c in found} == {1, 2, 4, 8, 16, 32}
    for k, configuration in enumerate(found):
        size = size_of(*SIZES[k % len(SIZES)])
        given = APPLICATION.inputs(np.random.default_rng(k), size)
        outputs, _, _ = run_once(APPLICATION, configuration, given, size)
        assert outputs["state"] == pytest.approx(plain(given, size.reach), rel=0, abs=1e-14), configuration


@pytest.fixture(scope="module")
def square():
    """The final state of some inputs in a square basin, beside that of the same turned and mirrored."""
    size = size_of(40, 40, 20)
    given = APPLICATION.inputs(np.random.default_rng(3), size)
    turned = {name: values.swapaxes(-1, -2) for name, values in given.items()}
    mirrored = {name: values[..., ::-1] for name, values in given.items()}
    return given, [final(size, each) for each in (given, turned, mirrored)]


def test_it_is_symmetric(square):
    _, (state, turned, mirrored) = square
    assert np.abs(state[1:]).max() > 0.05
    assert turned[[0, 2, 1]].swapaxes(1, 2) == pytest.approx(state, rel=0, abs=1e-13)
    assert mirrored[..., ::-1] * np.array([1, -1, 1])[:, None, None] == pytest.approx(state, rel=0, abs=1e-13)


def test_narrow_fluxes_change_the_waves_but_lose_no_water(square):
    given, states = square
    narrow = final(size_of(40, 40, 20), given, flux_type="fp16")
    assert 1e-5 < nrmse(narrow, states[0]) < 1e-3
    assert MODULE.mass_drift(narrow, None, given) < 1e-14


@pytest.mark.full
@pytest.mark.parametrize(
    ("precision", "least", "most"), few([("fp32", 1e-8, 1e-6), ("fp16", 1e-4, 1e-2), ("bf16", 1e-3, 0.1)])
)
def test_errors_are_as_large_as_the_types_are_coarse(square, precision, least, most):
    given, states = square
    found = final(size_of(40, 40, 20), given, **dict.fromkeys(TYPES, precision))
    assert least < nrmse(found, states[0]) < most
    assert MODULE.mass_drift(found, None, given) < most


@pytest.mark.parametrize("precision", few(["fp64", "fp16"]))
def test_water_at_rest_stays_at_rest_over_any_bed(precision):
    size = size_of(40, 40, 20)
    bed = APPLICATION.inputs(np.random.default_rng(3), size)["bed"]
    state = final(size, given_for(np.zeros((40, 40)), bed), **dict.fromkeys(TYPES, precision))
    assert not state[1:].any()
    if precision == "fp64":
        higher = final(size, given_for(np.full((40, 40), 0.3), bed))
        assert np.abs(higher[1:]).max() < 1e-14


@pytest.mark.full
def test_what_blows_up_is_never_within_a_threshold(square):
    size = size_of(40, 40, 1)
    given, _ = square
    high = {**given, "surface": 1000 * given["surface"]}
    reference = {"state": final(size, high)}
    assert np.isfinite(reference["state"]).all()
    output = {"state": final(size, high, **dict.fromkeys(TYPES, "fp16"))}
    result = evaluate_outputs(output, reference, APPLICATION.metric, high)
    assert result.non_finite["state"] > 0
    assert not result.error < 1e300
    assert not result.further["mass_drift"] < 1e300
    too_fast = final(size, {**given, "surface": 1e8 * given["surface"]})  # no wave goes 64 cells in a unit of time
    assert np.isnan(too_fast[0]).all()


@pytest.mark.full
def test_it_is_tuned_under_two_thresholds(tmp_path):
    limits = {"NRMSE": 1e-4, "mass_drift": 1e-6}
    run = tune(
        APPLICATION,
        size="smoke",
        sizes={"width": 20, "height": 13, "reach": 3},
        backend="host",
        max_error=limits,
        budget=3,
        inputs=1,
        verify=1,
        output=tmp_path / "run.db",
        on_warning=lambda _: None,
    )
    assert run.info.objective.threshold == limits
    assert run.best.metric("error.NRMSE") == run.best.error <= 1e-4
    assert run.best.metric("error.mass_drift") <= 1e-6
    launches = {k.name: run.best.metric(f"launches.{k.name}") for k in APPLICATION.kernels.values()}
    steps = launches["speed"]
    assert launches == {"boundary": 2 * steps, "speed": steps, "fluxes": 2 * steps, "update": 2 * steps, "gather": 1}
    for trial in run.trials:
        if trial.status is Status.OK:
            assert all(trial.metric(f"error.{name}") <= limit for name, limit in limits.items())


def test_the_picture_shows_the_surface(square):
    given, states = square
    chart = MODULE.picture({"state": states[0]}, given, size_of(40, 40, 20)).to_dict()
    start, end, cut = chart["vconcat"][0]["hconcat"] + chart["vconcat"][1:]
    assert [each["title"] for each in (start, end)] == ["surface at the start", "surface at the end"]
    rows = chart["datasets"][cut["data"]["name"]]
    surfaces = {"start": given["surface"][2:-2, 2:-2], "end": states[0][0] + MODULE.of_cells(given["bed"])}
    row = int(surfaces["start"].max(axis=1).argmax())
    for name, surface in surfaces.items():
        assert np.allclose([each["value"] for each in rows if each["variable"] == name], surface[row])
