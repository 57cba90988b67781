"""Types that an instrumented run shows to be hopeless are never compiled."""

import json
import math

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
    for configuration, trial in trials.items():
        assert (trial in found.screened) == is_narrow(configuration)
        if is_narrow(configuration):
            assert trial.status is Status.INACCURATE
            assert trial.message.startswith("never compiled: in an instrumented run error ")
            assert trial.error == trial.metric(TRACED_ERROR) > 2e-5
            assert math.isnan(trial.time_ms)
            assert not trial.measurement.durations_s
            assert not trial.is_checked
        else:
            assert not math.isnan(trial.time_ms)
    assert found.best is not None
    assert not is_narrow(found.best.configuration)


@pytest.fixture
def call(monkeypatch, capfd):
    return caller(monkeypatch, capfd)


def test_it_is_counted_and_said(run, call):
    found, path = run
    assert found.signatures_of(found.screened) == 12
    assert json.loads(call("show", path, "--json").out)["screened"] == 12
    said = " ".join(call("show", path).out.split())
    assert "never compiled: 12 of 16 combinations of types, hopeless in an instrumented run (24 trials)" in said


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


def test_kernels_that_do_not_ask_for_it_have_everything_measured():
    found = tune(square(instrumented=False), **{**SETTINGS, "budget": 8, "strategy": "random"})
    assert not found.screened
    assert any(is_narrow(trial.configuration) and trial.measurement.durations_s for trial in found.trials)


@pytest.mark.parametrize(("strategy", "penalty"), [("bayesian", "decay"), ("genetic", "decay"), ("genetic", "hard")])
def test_strategies_go_on_without_their_times(strategy, penalty):
    found = tune(square(), **{**SETTINGS, "budget": 12, "strategy": strategy, "penalty": penalty})
    assert found.evaluations == 12
    assert found.screened
    assert found.best is not None


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
    """Stands in for the process."""

    def __init__(self, answers):
        self.answers, self.asked, self.closed = list(answers), 0, False

    def ask(self, asked):
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, value = answer
        errors = {"error": value} if status is Status.OK else {}
        return Finished((Trial(asked.request.configuration, status, "why", Measurement(errors)),))

    def close(self):
        self.closed = True


def screened_by(monkeypatch, *answers):
    worker = Worker(answers)
    monkeypatch.setattr(screening, "DeviceWorker", lambda *_: worker)
    return Screening(square(), None, None), worker


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


def test_the_agreement_is_that_of_the_run(monkeypatch):
    found, _ = screened_by(monkeypatch, (Status.OK, 6e-3), (Status.OK, 1e-17))
    for x in ("fp32", "fp64"):
        found.errors(configuration(x))
    assert found.agreement == AGREEMENT
    found.compare([Trial(configuration("fp64"), Status.OK, measurement=Measurement({"error": 1e-18}))])
    assert found.agreement == AGREEMENT
    found.compare([Trial(configuration(), Status.OK, measurement=Measurement({"error": 2e-3}))])
    assert found.agreement == pytest.approx(3 * AGREEMENT)


# -- applications ----------------------------------------------------------------------------------


def test_applications_are_screened_too():
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
    for trial in found.trials:
        is_screened = trial in found.screened
        assert is_screened == is_narrow(trial.configuration)
        assert is_screened == math.isnan(trial.time_ms)
