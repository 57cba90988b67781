"""Types that an instrumented run shows to be hopeless are never compiled."""

import json
import math

import numpy as np
import pytest
from command_line import caller

from mptune import Application, In, Kernel, OrdinalParameter, Out, PrecisionParameter, Scalar
from mptune.errors import MptuneError
from mptune.evaluators import screening
from mptune.evaluators.protocol import Finished
from mptune.evaluators.screening import AGREEMENT, Screening
from mptune.objective import Objective
from mptune.policy import Action, Facts, MeasurementPolicy
from mptune.results import TRACED_ERROR, Measurement, Status, Trial
from mptune.space.configuration import Configuration
from mptune.tuner import tune
from mptune.tuner.joint import JointSearch
from mptune.tuner.ledger import Ledger

TYPES = ("fp64", "fp32", "fp16", "bf16")
TEMPLATE = """
extern "C" __global__ void square({{ y_type }}* y, const {{ x_type }}* x, int n) {
    const int i = blockIdx.x * {{ block }} + threadIdx.x;
    if (i >= n) return;
    const local<{{ x_type }}> value = x[i];
    y[i] = value * value;
}
"""


def square(**changes):
    values = {
        "name": "square",
        "parameters": [
            OrdinalParameter("block", [32, 64]),
            PrecisionParameter("x_type", TYPES),
            PrecisionParameter("y_type", TYPES),
        ],
        "arguments": [
            Out("y", "n", precision="y_type"),
            In("x", "n", precision="x_type"),
            Scalar("n", dtype="int32"),
        ],
        "sizes": {"default": {"n": 3000}},
        "inputs": lambda rng, size: {"x": rng.uniform(1, 2, size.n)},
        "reference": lambda given, size: {"y": given["x"] ** 2},
        "grid": ["ceildiv(n, block)"],
        "block": ["block"],
        "template": TEMPLATE,
        "instrumented": True,
    }
    return Kernel(**(values | changes))


SETTINGS = {"backend": "host", "max_error": 1e-5, "strategy": "exhaustive", "budget": 32, "seed": 1, "verify": 0}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("screened") / "run.db"
    return tune(square(), output=path, **SETTINGS), path


def is_narrow(configuration):
    return any(configuration[name] in ("fp16", "bf16") for name in ("x_type", "y_type"))


def test_what_is_hopeless_is_never_compiled(run):
    found, _ = run
    trials = {trial.configuration: trial for trial in found.trials}
    assert len(trials) == 32
    assert found.evaluations == 32 - len(found.screened)
    for configuration, trial in trials.items():
        assert trial.is_screened == (trial in found.screened)
        if trial.is_screened:
            assert is_narrow(configuration)
            assert trial.status is Status.INACCURATE
            assert trial.message.startswith("never compiled: in an instrumented run error ")
            assert trial.error == trial.metric(TRACED_ERROR) > 2e-5
            assert math.isnan(trial.time_ms)
            assert not trial.measurement.durations_s
            assert not trial.is_checked
        elif not is_narrow(configuration):
            assert not math.isnan(trial.time_ms)
    assert found.best is not None
    assert not is_narrow(found.best.configuration)


@pytest.fixture
def call(monkeypatch, capfd):
    return caller(monkeypatch, capfd)


def test_some_are_measured_to_see_whether_instrumented_errors_hold(run):
    found, _ = run
    hopeless = {tuple(t.configuration[n] for n in ("x_type", "y_type")) for t in found.trials if not t.is_screened}
    # One type throughout is looked at before anything is ruled out; then comes the first that would be.
    assert sorted(pair for pair in hopeless if {"fp16", "bf16"} & set(pair)) == [
        ("bf16", "bf16"),
        ("fp16", "bf16"),
        ("fp16", "fp16"),
    ]


def test_it_is_counted_and_said(run, call):
    found, path = run
    assert found.signatures_of(found.screened) == 9
    document = json.loads(call("show", path, "--json").out)
    assert (document["screened"], document["compiled"], document["signatures"]) == (9, 7, 16)
    assert document["evaluations"] == found.evaluations
    said = " ".join(call("show", path).out.split())
    assert (
        "decided without compiling: 9 of 16 combinations of types (56%): 9 hopeless in an instrumented run; 7 compiled"
    ) in said


def test_a_resumed_run_knows_them_still(run, monkeypatch):
    found, path = run
    monkeypatch.setattr(Screening, "_run", lambda *_: pytest.fail("they were run before"))
    again = tune(square(), output=path, resume=True, **SETTINGS)
    assert {t.configuration: t.error for t in again.screened} == {t.configuration: t.error for t in found.screened}


def test_a_larger_limit_has_them_measured(run, tmp_path):
    found, _ = run
    rough = next(trial for trial in found.screened if trial.configuration["y_type"] == "bf16")

    def keeps(limit):
        policy = MeasurementPolicy(Objective(threshold=limit))
        return policy.keeps(rough, is_current=True)

    assert keeps(rough.error / 2)
    assert not keeps(rough.error * 1.01)
    assert "may meet the threshold now" in keeps(rough.error * 1.01).reason


@pytest.mark.full
def test_kernels_that_do_not_ask_for_it_have_everything_measured():
    found = tune(square(instrumented=False), **{**SETTINGS, "budget": 8, "strategy": "random"})
    assert not found.screened
    assert any(is_narrow(trial.configuration) and trial.measurement.durations_s for trial in found.trials)


@pytest.mark.full
@pytest.mark.parametrize(("strategy", "penalty"), [("bayesian", "decay"), ("genetic", "decay"), ("genetic", "hard")])
def test_strategies_go_on_without_their_times(strategy, penalty):
    found = tune(square(), **{**SETTINGS, "budget": 12, "strategy": strategy, "penalty": penalty})
    # What is ruled out costs no evaluation.
    assert found.evaluations <= 12 < len(found.trials) <= 32
    assert found.screened
    assert found.best is not None


@pytest.mark.full
def test_a_template_that_cannot_be_instrumented_is_tuned_without():
    template = TEMPLATE.replace("y[i] =", "if (value.to_bits() == 1) return;\n    y[i] =")
    types = [PrecisionParameter("x_type", ["fp16"]), PrecisionParameter("y_type", ["fp32", "bf16"])]
    narrow = square(template=template, parameters=[OrdinalParameter("block", [32, 64]), *types])
    with pytest.warns(UserWarning, match="no types are ruled out before they are compiled"):
        found = tune(narrow, **{**SETTINGS, "max_error": 1e-3, "budget": 4})
    assert {trial.status for trial in found.trials} == {Status.OK, Status.INACCURATE}
    assert not found.screened
    assert any("no types are ruled out before they are compiled" in warning for warning in found.warnings)


# -- the rule --------------------------------------------------------------------------------------


def decided(error=1e-3, limit=1e-4, **facts):
    policy = MeasurementPolicy(Objective(threshold=limit))
    traced = {"error": error, "error.y": error}
    return policy.plan(Facts(**{"traced": traced, "agreement": AGREEMENT, **facts}))


def test_only_what_is_beyond_the_agreement_is_left_out():
    assert decided(2.1e-4).action is Action.REJECT
    assert decided(2.1e-4).errors[TRACED_ERROR] == 2.1e-4
    assert decided(1.9e-4).action is Action.CHECK
    assert decided(2.1e-4, agreement=3.0).action is Action.CHECK
    assert decided(math.inf).action is Action.REJECT


def test_what_is_measured_says_more_than_an_instrumented_run():
    sibling = Trial(Configuration({"block": 32}), Status.OK, measurement=Measurement({"error": 1e-5}))
    assert decided(1.0, siblings=[sibling]).action is Action.REUSE
    assert decided(1.0, is_widest=True).action is Action.CHECK
    assert decided(1.0, holds=False).action is Action.CHECK
    assert decided(1.0, traced={}).action is Action.CHECK


class Worker:
    """Stands in for the process; a run takes so many seconds of a clock."""

    def __init__(self, answers, clock=None, takes_s=0.0):
        self.answers, self.asked, self.closed = list(answers), 0, False
        self.clock, self.takes_s = clock, takes_s

    def ask(self, asked):
        self.asked += 1
        answer = self.answers.pop(0)
        if self.clock:
            self.clock.now_s += self.takes_s
        if isinstance(answer, Exception):
            raise answer
        status, value = answer
        errors = {"error": value} if status is Status.OK else {}
        return Finished((Trial(asked.request.configuration, status, "why", Measurement(errors)),))

    def close(self):
        self.closed = True


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def screened_by(monkeypatch, *answers, takes_s=0.0):
    clock = Clock()
    worker = Worker(answers, clock, takes_s)
    monkeypatch.setattr(screening, "DeviceWorker", lambda *_: worker)
    return Screening(square(), None, None, clock), worker


def configuration(x="fp32", y="fp32", block=32):
    return Configuration({"block": block, "x_type": x, "y_type": y})


def test_each_signature_is_run_once(monkeypatch):
    found, worker = screened_by(monkeypatch, (Status.OK, 1e-3), (Status.CONSTRAINT, 0.0), (Status.OK, 2e-3))
    assert found.errors(configuration()) == found.errors(configuration(block=64)) == {"error": 1e-3}
    assert worker.asked == 1
    assert found.errors(configuration("fp16")) == {}
    assert found.errors(configuration("bf16")) == {"error": 2e-3}
    assert not found.why_not


@pytest.mark.parametrize("failure", [(Status.CRASH, 0.0), MptuneError("no compiler")])
def test_a_failure_ends_it(monkeypatch, failure):
    found, worker = screened_by(monkeypatch, failure)
    assert found.errors(configuration()) == found.errors(configuration("fp16")) == {}
    assert worker.asked == 1
    assert worker.closed
    assert found.why_not.startswith("no types are ruled out before they are compiled")


def test_types_in_which_a_kernel_crashes_are_hopeless_and_others_go_on(monkeypatch):
    found, worker = screened_by(monkeypatch, (Status.OK, 1e-3), (Status.CRASH, 0.0), (Status.OK, 2e-3))
    assert [found.errors(configuration(x)) for x in ("fp32", "fp16", "bf16")] == [
        {"error": 1e-3},
        {"error": math.inf},
        {"error": 2e-3},
    ]
    assert not found.why_not
    assert not worker.closed
    # One that then runs all the same shows that such errors are of no use.
    found.compare([measured(configuration("fp16"), 1e-4)])
    assert "an instrumented run was off by a factor of" in found.why_not


def measured(configuration, error):
    return Trial(configuration, Status.OK, measurement=Measurement({"error": error}))


def test_the_agreement_is_that_of_the_run(monkeypatch):
    found, _ = screened_by(monkeypatch, (Status.OK, 6e-3), (Status.OK, 1e-17), (Status.OK, 1e-2))
    for x in ("fp32", "fp64", "fp16"):
        found.errors(configuration(x))
    # What differs by the roundings of fp64 says nothing; one alone says too little.
    found.compare([measured(configuration("fp64"), 1e-18)])
    assert math.isinf(found.agreement)
    found.compare([measured(configuration(), 2e-3)])
    assert math.isinf(found.agreement)
    found.compare([measured(configuration("fp16"), 1.5e-2)])
    assert found.agreement == pytest.approx(3 * AGREEMENT)
    assert not found.why_not


def test_errors_that_are_far_off_rule_nothing_out(monkeypatch):
    found, worker = screened_by(monkeypatch, (Status.OK, 1e-3), (Status.OK, 1e-3), (Status.OK, 1e-3))
    for x in ("fp32", "fp16"):
        found.errors(configuration(x))
    found.compare([measured(configuration(), 1e-3), measured(configuration("fp16"), 1e-5)])
    assert math.isinf(found.agreement)
    assert "an instrumented run was off by a factor of 100" in found.why_not
    assert found.errors(configuration("bf16")) == {}
    assert worker.asked == 2


def test_the_first_and_every_eighth_power_are_measured_all_the_same(monkeypatch):
    found, _ = screened_by(monkeypatch)
    narrow = [configuration(x, y) for x in TYPES for y in TYPES]
    assert [number for number, each in enumerate(narrow, 1) if found.is_sample(each)] == [1, 8]
    assert found.is_sample(configuration(narrow[0]["x_type"], narrow[0]["y_type"], block=64))


def test_instrumented_runs_have_a_share_of_the_time(monkeypatch):
    found, worker = screened_by(monkeypatch, *[(Status.OK, 1e-3)] * 16, takes_s=4.0)
    narrow = [configuration(x, y) for x in TYPES for y in TYPES]
    told = [bool(found.errors(each)) for each in narrow]
    # The first is free; of 10 s and a quarter of the time that has passed, nothing is left after the fifth.
    assert told == [True] * 5 + [False] * 11
    assert worker.asked == 5
    found._clock.now_s += 40.0
    assert found.errors(narrow[5])


def off(condition):
    """A kernel with errors that only an instrumented run sees, where a condition on the types of x and y holds."""
    seen = f"""#if defined(MPTUNE_TRACED)
    const int x = mptune_types[0], y = mptune_types[1];
    if ({condition}) result *= 3;
#endif
"""
    body = "{{ y_type }} result = value * value;\n" + seen + "    y_[i] = result;"
    renamed = TEMPLATE.replace("* y,", "* y_,").replace("* x,", "* x_,").replace("x[i]", "x_[i]")
    types = [PrecisionParameter(name, ["fp64", "fp32", "fp16"]) for name in ("x_type", "y_type")]
    parameters = [OrdinalParameter("block", [32]), *types]
    return square(template=renamed.replace("y[i] = value * value;", body), parameters=parameters)


@pytest.mark.full
def test_errors_that_are_off_rule_out_nothing_that_is_accurate():
    with pytest.warns(UserWarning, match="an instrumented run was off by a factor of"):
        found = tune(off("true"), **{**SETTINGS, "max_error": 1e-2, "budget": 20})
    assert not found.screened
    assert len(found.trials) == found.evaluations == 9
    assert {trial.status for trial in found.trials} == {Status.OK}


@pytest.mark.full
def test_what_was_ruled_out_by_errors_that_turn_out_to_be_off_is_measured_after_all(monkeypatch, tmp_path):
    # Errors of one type throughout agree, and these are looked at first; of the others only the third is measured.
    def is_third(self, configuration):
        signature = self._tunable.signature_of(configuration)
        return self._hopeless.setdefault(signature, len(self._hopeless) + 1) == 3

    monkeypatch.setattr(Screening, "is_sample", is_third)
    taken_back = []
    reinstated = Ledger.reinstated

    def spied(ledger):
        found = reinstated(ledger)
        taken_back.extend(found)
        return found

    monkeypatch.setattr(Ledger, "reinstated", spied)
    path = tmp_path / "run.db"
    settings = {**SETTINGS, "max_error": 1e-2, "budget": 20}
    with pytest.warns(UserWarning, match="an instrumented run was off by a factor of"):
        found = tune(off("x != y"), output=path, **settings)
    assert len(taken_back) == 2
    assert not found.screened
    assert {trial.status for trial in found.trials} == {Status.OK}
    assert len(found.trials) == 9
    # What was taken back stays so.
    again = tune(off("x != y"), output=path, resume=True, **settings)
    assert {t.configuration: t.error for t in again.trials} == {t.configuration: t.error for t in found.trials}


# -- applications ----------------------------------------------------------------------------------


@pytest.mark.full
def test_applications_are_screened_too(monkeypatch):
    # What is tried depends on times, and these on what else the machine does: here everything promises to be fast.
    monkeypatch.setattr(JointSearch, "_totals", lambda self, terms, rows: np.zeros(len(rows)))
    kernel = square(sizes={}, instrumented=False)
    application = Application(
        name="twice",
        kernels=[kernel],
        buffers=[In("x", "n", precision="x_type"), Out("y", "n", precision="y_type")],
        sizes={"default": {"n": 3000}},
        inputs=lambda rng, size: {"x": rng.uniform(1, 2, size.n)},
        steps=lambda run, size: run.square(y=run.y, x=run.x),
        outputs=["y"],
        instrumented=True,
    )
    found = tune(application, **{**SETTINGS, "strategy": "bayesian", "budget": 16})
    assert found.best is not None
    assert found.screened
    for trial in found.trials:
        assert trial.is_screened <= is_narrow(trial.configuration)
        assert trial.is_screened <= math.isnan(trial.time_ms)
