"""``mptune verify``: more inputs, other sizes and scales, the worst input; what is kept and what is refused."""

from __future__ import annotations

import dataclasses
import itertools
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from made_up_devices import MadeUp, replace_devices

from mptune.buffers import Draw, Stream
from mptune.errors import MptuneError, UnknownNameError
from mptune.evaluators.device import DeviceEvaluator
from mptune.hunting import hunt
from mptune.kernel import In, Kernel, Out, Range
from mptune.results import Status
from mptune.run import Run
from mptune.space.configuration import Configuration
from mptune.space.parameters import OrdinalParameter, PrecisionParameter
from mptune.tuner import tune
from mptune.verifying import verify


def inputs(rng, size, spread, shift):
    """What is added and taken away again leaves the fewer digits the larger it is beside x."""
    return {"x": rng.uniform(1.0, 1.1, size.n), "shift": np.full(size.n, shift * spread)}


kernel = Kernel(
    name="there_and_back",
    parameters=[OrdinalParameter("block", [32, 64]), PrecisionParameter("type", ["fp64", "fp32"])],
    arguments=[Out("y", "n", precision="type"), In("x", "n", precision="type"), In("shift", "n", precision="type")],
    sizes={"default": {"n": 509}, "large": {"n": 2003}},
    inputs=inputs,
    reference=lambda inputs, size: inputs["x"].copy(),
    ranges=[Range("spread", 1.0, 1e3, log=True), Range("shift", 0.0, 1.0)],
    grid=["ceildiv(n, block)"],
    block=["block"],
    metric="MaxRE",
    template="""
extern "C" __global__ void there_and_back({{ type }}* y, const {{ type }}* x, const {{ type }}* shift) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < {{ n }}) { volatile {{ type }} moved = x[i] + shift[i]; y[i] = moved - shift[i]; }
}
""",
)
OPTIONS = {"backend": "host", "budget": 4, "strategy": "random", "on_warning": lambda _: None, "verify": 7}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("verified") / "run.db"
    tune(kernel, output=path, max_error=1e-3, **OPTIONS)
    return path


@pytest.fixture
def real(made, tmp_path):
    return Path(shutil.copy(made, tmp_path / "run.db"))


def rounded(configuration, draw):
    """Half a unit in the last place of what is added and taken away again, and what is left of x."""
    values = draw.range_values(kernel, draw.generator(0))
    error = 2.0**-24 * values["spread"] * values["shift"] * (1 + 0.001 * (draw.number % 7))
    return {"error": error, "error.y": error, "log10_error": math.log10(error)}


@pytest.fixture
def devices(monkeypatch):
    found = replace_devices(monkeypatch, lambda c: MadeUp(1.0, 1e-5 if c["type"] == "fp32" else 1e-14))
    found.on_draw = rounded
    return found


@pytest.fixture
def path(devices, tmp_path):
    tune(kernel, output=tmp_path / "run.db", max_error=1e-3, **OPTIONS)
    return tmp_path / "run.db"


def chosen(path):
    """Return the number of a feasible fp32 trial: which one is the best, a busy machine may not tell."""
    trials = Run.load(path).trials
    return str(next(i for i, t in enumerate(trials, 1) if t.configuration["type"] == "fp32" and t.status is Status.OK))


@pytest.mark.full
def test_more_inputs_go_on_where_the_last_call_ended_and_are_kept(real):
    name = chosen(real)
    before = Run.load(real).trials[int(name) - 1].measurement.metrics.get("unseen_inputs", 0)
    first = verify(real, kernel, configuration=name, inputs=11)
    assert first.holds
    assert first.is_kept
    assert first.cases[0].closest == ""
    assert first.cases[0].verified.inputs == before + 11
    second = verify(real, kernel, configuration=name, inputs=5)
    run = Run.load(real)
    trial = run.trials[int(name) - 1]
    assert run.verified(trial) == second.cases[0].verified
    assert run.verified(trial).inputs == before + 16
    assert trial.status is Status.OK
    assert trial.error >= second.cases[0].verified.worst_error


def holey(rng, size, spread, shift):
    """Inputs of which every third unseen one cannot be made."""
    key = rng.bit_generator.seed_seq.spawn_key
    if len(key) == 2 and key[0] == Stream.UNSEEN and key[1] % 3 == 1:
        raise ValueError("no such case")
    return inputs(rng, size, spread, shift)


@pytest.mark.full
def test_where_some_inputs_cannot_be_made_none_is_counted_twice(tmp_path):
    path, other = tmp_path / "run.db", tmp_path / "other.db"
    torn = dataclasses.replace(kernel, inputs=holey)
    tune(torn, output=path, max_error=1e-3, **OPTIONS)
    shutil.copy(path, other)
    name = chosen(path)
    before = Run.load(path).trials[int(name) - 1].measurement.metrics
    # A piece that ends with inputs that cannot be made has them again at the beginning of the next.
    for count in (6, 12):
        verify(path, torn, configuration=name, inputs=count)
    verify(other, torn, configuration=name, inputs=18)
    one, both = (Run.load(file).trials[int(name) - 1].measurement.metrics for file in (other, path))
    assert one == pytest.approx(dict(both), nan_ok=True)
    assert one["unseen_inputs"] == before.get("unseen_inputs", 0) + 12


def test_what_is_given_twice_is_run_and_counted_once(path):
    warned, name = [], chosen(path)
    before = Run.load(path).trials[int(name) - 1].measurement.metrics.get("unseen_inputs", 0)
    options = {"configuration": name, "inputs": 5, "on_warning": warned.append}
    found = verify(path, kernel, scales=[1.0, 1, 1.0], sizes=["default", "n=509", {"n": 509}], **options)
    assert [case.verified.inputs for case in found.cases] == [before + 5]
    assert [message.partition(":")[0] for message in warned] == [
        "the sizes n=509, given 3 times",
        "the scale 1, given 3 times",
    ]


def test_other_sizes_and_scales_are_not_kept(path):
    name, before = chosen(path), Run.load(path).trials
    found = verify(path, kernel, configuration=name, inputs=6, sizes=["large", "n=77"], scales=[0.5, 3.0])
    places = [(case.sizes["n"], case.scale) for case in found.cases]
    assert places == list(itertools.product((2003, 77), (0.5, 3.0)))
    assert all(case.verified.inputs == 6 for case in found.cases)
    assert not found.is_kept
    assert Run.load(path).trials == before


def test_a_violation_makes_the_trial_fragile_in_the_file(path, devices):
    number = chosen(path)
    devices.on_draw = lambda c, draw: {"error": 2e-3, "error.y": 2e-3} if draw.number == 9 else rounded(c, draw)
    found = verify(path, kernel, configuration=number, inputs=40)
    assert not found.holds
    assert found.is_kept
    assert (found.cases[0].verified.violations, found.cases[0].worst.number) == (1, 9)
    after = Run.load(path).trials[int(number) - 1]
    assert after.status is Status.FRAGILE
    assert Run.load(path).verified(after) == found.cases[0].verified


@pytest.fixture
def ticking(monkeypatch):
    """A clock by which each run on a draw takes 10 ms."""
    now_s, run_on_draws = [0.0], DeviceEvaluator.run_on_draws

    def timed(self, configurations, draws, **options):
        now_s[0] += 0.01 * len(configurations) * len(draws)
        return run_on_draws(self, configurations, draws, **options)

    monkeypatch.setattr(DeviceEvaluator, "run_on_draws", timed)
    monkeypatch.setattr("mptune.verifying.time", SimpleNamespace(monotonic=lambda: now_s[0]))


@pytest.mark.usefixtures("ticking")
def test_the_hunt_finds_what_draws_seldom_meet(path):
    found = verify(path, kernel, configuration=chosen(path), inputs=5, hunt_s=3.0)
    hunted = found.hunted
    # The error of x + s - s is half a unit in the last place of s, which is largest above 512.
    assert hunted.ranges["spread"] * hunted.ranges["shift"] > 512
    assert hunted.error > 2.0**-16
    assert hunted.inputs > 40
    (case,) = found.cases
    assert case.worst is not None
    assert case.ranges == case.worst.range_values(kernel, case.worst.generator(0))
    assert case.ranges.keys() == hunted.ranges.keys()
    # It can be made again.
    made = inputs(hunted.draw.generator(0), kernel.resolve_sizes(), **hunted.ranges)
    assert made["shift"][0] == pytest.approx(hunted.ranges["spread"] * hunted.ranges["shift"])


@pytest.mark.usefixtures("ticking")
def test_a_hunt_begins_with_the_worst_that_is_known_and_goes_on_with_other_seeds(path):
    options = {"configuration": chosen(path), "inputs": 5}
    first = verify(path, kernel, **options, hunt_s=1.0).hunted
    kept = Run.load(path).trials[int(options["configuration"]) - 1].measurement.metrics
    assert kept["hunted_number"] == first.draw.number
    again = verify(path, kernel, **options, hunt_s=1e-9).hunted
    # There was time for one input.
    assert (again.inputs, again.error, again.draw) == (1, first.error, first.draw)
    more = verify(path, kernel, **options, hunt_s=0.2)
    assert more.hunted.error >= max(first.error, *(case.verified.worst_error for case in more.cases))
    after = Run.load(path).trials[int(options["configuration"]) - 1].measurement.metrics
    assert after["hunted_next"] >= kept["hunted_next"] > 0


def test_a_hunt_that_is_interrupted_leaves_what_it_found(path):
    name, told, warned = chosen(path), [], []

    def stop(more):
        told.append(more)
        if len(told) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(path, kernel, configuration=name, inputs=5, hunt_s=60.0, on_input=stop, on_warning=warned.append)
    assert any("the same command goes on from there" in message for message in warned)
    kept = Run.load(path).trials[int(name) - 1].measurement.metrics
    assert {"hunted_stream", "hunted_number", "hunted_next", "hunted_share.0", "hunted_share.1"} <= kept.keys()
    assert verify(path, kernel, configuration=name, inputs=5, hunt_s=1e-9).hunted.inputs == 1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"inputs": 0}, MptuneError, "inputs 0: expected at least 1"),
        ({"scales": [0.0]}, MptuneError, "scale 0: expected a finite number other than 0"),
        ({"scales": [math.nan]}, MptuneError, "scale nan"),
        ({"hunt_s": -1.0}, MptuneError, "hunt -1"),
        ({"hunt_s": math.inf}, MptuneError, "hunt inf"),
        ({"sizes": ["larg"]}, UnknownNameError, "did you mean 'large'"),
        ({"sizes": ["m=3"]}, UnknownNameError, "size of kernel there_and_back"),
        ({"sizes": ["n=many"]}, MptuneError, "size 'n=many': expected a whole number"),
        ({"sizes": ["n=2,3"]}, MptuneError, "size '3': expected NAME=VALUE by commas, or a preset"),
        ({"configuration": "99"}, MptuneError, "the run has the trials 1 to 4"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(path, options, error, message):
    with pytest.raises(error, match=message):
        verify(path, kernel, **({"configuration": "1"} | options))


def test_under_other_conditions_nothing_is_kept_and_it_is_said(path):
    warned = []
    other = dataclasses.replace(kernel, template=kernel.template + "// edited\n")
    before = Run.load(path).trials
    found = verify(path, other, configuration=chosen(path), inputs=5, on_warning=warned.append)
    assert not found.is_kept
    assert found.is_of_another
    assert found.words(found.cases[0]).startswith(
        "another definition than the run's: within 1e-3 on 5 of 5 unseen inputs"
    )
    assert found.to_json()["another_definition"] is True
    assert any("is not kept" in message and "template" in message for message in warned)
    assert Run.load(path).trials == before


# -- the hunt, without a device ----------------------------------------------------------------


class Ticking:
    """A clock that each draw moves on by so much."""

    def __init__(self, draw_s):
        self.now, self._draw_s = 0.0, draw_s
        self.drawn = []

    def __call__(self):
        return self.now

    def scored(self, score):
        def scores(draws):
            self.drawn += draws
            self.now += self._draw_s * len(draws)
            return [score(draw) for draw in draws]

        return scores


def test_ranges_are_optimised():
    clock = Ticking(0.01)
    centre = np.array([0.123, 0.9, 0.5])
    draw, score = hunt(clock.scored(lambda d: -float(np.abs(np.array(d.ranges) - centre).max())), 3, 20.0, 0, clock)
    assert score > -0.01
    assert np.abs(np.array(draw.ranges) - centre).max() < 0.01
    # Random draws alone would not have come so near: 2,000 of them leave about 0.04.
    rng = np.random.default_rng(0)
    assert np.abs(rng.random((2000, 3)) - centre).max(axis=1).min() > 0.02


def test_seeds_are_tried_where_there_are_no_ranges_and_the_time_is_kept():
    clock = Ticking(0.01)
    draw, score = hunt(clock.scored(lambda d: float(d.number % 97)), 0, 5.0, 0, clock)
    assert (draw.number % 97, score) == (96, 96.0)
    assert {d.stream for d in clock.drawn} == {Stream.HUNTED}
    assert len({d.number for d in clock.drawn}) == len(clock.drawn)
    assert 4.9 <= clock.now <= 6.1


def test_what_is_known_is_tried_first_and_its_ranges_are_varied():
    known = [Draw(Stream.UNSEEN, 4, ranges=(0.9, 0.9)), Draw(number=1, ranges=(0.5, 0.5))]
    clock = Ticking(0.01)

    def score(draw):
        return (10.0 if draw.stream is Stream.UNSEEN else 0.0) - abs(draw.ranges[0] - 0.123) - abs(draw.ranges[1] - 0.7)

    draw, found = hunt(clock.scored(score), 2, 20.0, 0, clock, known=known, first=50)
    assert clock.drawn[:2] == known
    assert found > 9.99
    assert (draw.stream, draw.number) == (Stream.UNSEEN, 4)
    assert min(d.number for d in clock.drawn if d.stream is Stream.HUNTED) == 50


def test_values_of_a_file_are_rendered_only_if_the_kernel_declares_them(path, monkeypatch):
    run = Run.load(path)
    forged = dataclasses.replace(run.trials[0], configuration=Configuration({"block": 32, "type": "fp32; system(1)"}))
    monkeypatch.setattr("mptune.verifying.select", lambda *_, **__: forged)
    with pytest.raises(MptuneError, match="is no valid configuration of kernel there_and_back"):
        verify(path, kernel)
