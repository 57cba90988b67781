"""Types that an instrumented run shows to be hopeless are never compiled."""

import json
import math

import pytest
from command_line import caller

from mptune import In, Kernel, OrdinalParameter, Out, PrecisionParameter, Scalar
from mptune.measure.screening import Screening
from mptune.results.trial import TRACED_ERROR, Status
from mptune.tuning import tune

pytestmark = pytest.mark.full
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
            assert trial.is_screened
        elif not is_narrow(configuration):
            assert not math.isnan(trial.time_ms)
    assert found.best is not None
    assert not is_narrow(found.best.configuration)


@pytest.fixture
def call(monkeypatch, capfd):
    return caller(monkeypatch, capfd)


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


def test_strategies_go_on_without_their_times():
    found = tune(square(), **{**SETTINGS, "budget": 12, "strategy": "bayesian"})
    # What is ruled out costs no evaluation.
    assert found.evaluations <= 12 < len(found.trials) <= 32
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


def test_errors_that_are_off_rule_out_nothing_that_is_accurate():
    with pytest.warns(UserWarning, match="an instrumented run was off by a factor of"):
        found = tune(off("true"), **{**SETTINGS, "max_error": 1e-2, "budget": 20})
    assert not found.screened
    assert len(found.trials) == found.evaluations == 9
    assert {trial.status for trial in found.trials} == {Status.OK}


# -- applications ----------------------------------------------------------------------------------
