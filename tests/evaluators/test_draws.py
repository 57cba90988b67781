"""Further draws of the inputs: errors are the worst of all, time is spared, and the first draw stays as it was."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mptune.backends import get_backend
from mptune.data import Draw, Stream
from mptune.data.data import make_inputs
from mptune.kernel import Constant, In, InOut, Kernel, Out, Scalar
from mptune.measure.bench import Bench, Request
from mptune.measure.device import DeviceEvaluator
from mptune.measure.policy import Plan
from mptune.measure.timing import TimingPlan
from mptune.results.trial import Status
from mptune.source.render import render
from mptune.space.parameters import OrdinalParameter, PrecisionParameter

ONCE = TimingPlan(warmups=0, min_repeats=1, max_repeats=1)
UNSEEN = [Draw(Stream.UNSEEN, number) for number in range(4)]

#: Every kind of argument that has values: read, read and written, constant, and passed by value.
TEMPLATE = """
__constant__ {{ type }} weight[4];
extern "C" __global__ void blend(
    {{ type }}* y, {{ type }}* state, const {{ type }}* x, const int* index, {{ type }} a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= {{ n }}) return;
    if (index[i] < 0) { *(volatile int*)nullptr = 1; }
    y[i] = a * x[i] * weight[i % 4];
    state[i] = state[i] + x[i];
}
"""


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch):
    """Further draws take their share of the time, which on a busy machine is soon all there is."""
    monkeypatch.setattr("mptune.measure.policy._DRAWING_S", 1e4)


def inputs(rng, size):
    return {
        "x": rng.uniform(0.5, 1.0, size.n),
        "state": rng.uniform(0.5, 1.0, size.n),
        "weight": rng.uniform(0.5, 1.0, 4),
        "index": np.zeros(size.n, np.int32),
        "a": float(rng.uniform(0.5, 1.0)),
    }


def reference(inputs, size):
    weights = np.resize(inputs["weight"], size.n)
    return {"y": inputs["a"] * inputs["x"] * weights, "state": inputs["state"] + inputs["x"]}


def blend(**changes):
    given = {
        "name": "blend",
        "parameters": [OrdinalParameter("block", [64, 32]), PrecisionParameter("type", ["fp32", "fp16"])],
        "arguments": [
            Out("y", "n", precision="type"),
            InOut("state", "n", precision="type"),
            In("x", "n", precision="type"),
            In("index", "n", dtype="int32"),
            Scalar("a", precision="type"),
            Constant("weight", 4, precision="type"),
        ],
        "sizes": {"default": {"n": 203}},
        "inputs": inputs,
        "reference": reference,
        "grid": ["ceildiv(n, block)"],
        "block": ["block"],
        "template": TEMPLATE,
    }
    return Kernel(**(given | changes))


def bench_of(kernel):
    return Bench(kernel, kernel.resolve_sizes(), get_backend("host"), plan=ONCE)


def request(kernel, plan=None, **values):
    configuration = kernel.configuration({"type": "fp16", **values})
    return Request(configuration, render(kernel, configuration, kernel.resolve_sizes()), plan or Plan())


def error_alone(draw):
    """Return the error of a kernel all of whose inputs are those of a draw."""
    made = dict(make_inputs(blend(), blend().resolve_sizes(), 0, draw))
    kernel = blend(inputs=lambda rng, size: made)
    bench = bench_of(kernel)
    try:
        return bench.evaluate(request(kernel)).error
    finally:
        bench.close()


@pytest.fixture(scope="module")
def alone():
    return {draw: error_alone(draw) for draw in (Draw(), Draw(number=1), Draw(number=2), *UNSEEN)}


@pytest.fixture
def bench():
    found = bench_of(blend())
    yield found
    found.close()


def test_the_error_is_the_worst_over_the_draws_and_the_first_draw_comes_back(bench, alone):
    searched = [alone[Draw(number=number)] for number in range(3)]
    assert len(set(searched)) == 3
    several = bench.evaluate(request(bench.kernel, Plan(draws=3)))
    assert several.error == max(searched)
    assert several.metric("error_mean") == pytest.approx(math.fsum(searched) / 3)
    assert several.metric("error_draws") == 3
    assert several.metric("error_first_draw") == searched[0]
    assert several.metric("error.y") <= several.error
    # What is evaluated next, in the same memory, is on the first draw again.
    one = bench.evaluate(request(bench.kernel))
    assert one.error == searched[0]
    assert "error_draws" not in one.measurement.metrics


def test_unseen_draws_are_checked_alone(bench, alone):
    with bench.keeping_loaded():
        for draw in UNSEEN:
            bench.make(draw)
            for block in (32, 64):
                trial = bench.check_on(request(bench.kernel, block=block), draw)
                assert trial.status is Status.OK
                assert trial.error == alone[draw]
                assert math.isnan(trial.time_ms)


def test_what_is_above_the_threshold_runs_on_one_draw(bench, alone):
    tight = Plan(draws=3, thresholds={"error": alone[Draw()] / 2})
    assert "error_draws" not in bench.evaluate(request(bench.kernel, tight)).measurement.metrics
    wide = Plan(draws=3, thresholds={"error": alone[Draw()] * 2})
    assert bench.evaluate(request(bench.kernel, wide)).metric("error_draws") == 3


def test_a_failure_on_a_further_draw_is_the_trial_s():
    def large(rng, size):
        given = inputs(rng, size)
        return given | {"x": given["x"] * (1.0 if rng.bit_generator.seed_seq.spawn_key != (0, 2) else 1e6)}

    bench = bench_of(blend(inputs=large))
    trial = bench.evaluate(request(bench.kernel, Plan(draws=3)))
    assert trial.status is Status.NON_FINITE
    assert trial.message.startswith("on input 3: ")
    assert bench.evaluate(request(bench.kernel, Plan(draws=2))).status is Status.OK
    bench.close()


@pytest.mark.full
def test_draws_are_run_in_the_worker_and_one_that_crashes_is_told_from_the_others(alone):
    with DeviceEvaluator(crashing(), crashing().resolve_sizes(), "host", plan=ONCE) as evaluator:
        good, bad = (crashing().configuration({"type": type_}) for type_ in ("fp16", "fp32"))
        found = evaluator.run_on_draws([good, bad], UNSEEN)
        by_configuration = {
            c: [
                (draw, trial) for draw, trial in zip(found.draws, found.trials, strict=True) if trial.configuration == c
            ]
            for c in (good, bad)
        }
        assert [(draw, trial.status) for draw, trial in by_configuration[good]] == [(d, Status.OK) for d in UNSEEN]
        (lost,) = by_configuration[bad]
        assert lost[1].status is Status.CRASH
        # The worker has been replaced.
        again = evaluator.run_on_draws([good], UNSEEN[:1])
        assert [trial.status for trial in again.trials] == [Status.OK]


def crashing():
    """A kernel whose fp32 reads a null pointer on the third unseen draw."""
    crash = TEMPLATE.replace("if (index[i] < 0)", "if (index[i] < 0 && sizeof({{ type }}) == 4)")

    def signed(rng, size):
        third = rng.bit_generator.seed_seq.spawn_key == (1, 2)
        return inputs(rng, size) | {"index": np.full(size.n, -1 if third else 0)}

    return blend(inputs=signed, template=crash)
