"""What an instrumented build says of errors is a prior of the search; nothing is ruled out by it."""

import math

import pytest

from mptune import In, Kernel, OrdinalParameter, Out, PrecisionParameter, Scalar
from mptune.measure.device import DeviceEvaluator
from mptune.results.trial import Status
from mptune.tuning import tune

pytestmark = pytest.mark.full
TYPES = ("fp64", "fp32", "fp16")
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


SETTINGS = {"backend": "host", "max_error": 1e-5, "seed": 1, "verify": 0}


def test_instrumented_errors_are_like_measured_ones():
    kernel = square()
    asked = [kernel.configuration({"x_type": name, "y_type": name}) for name in TYPES]
    with DeviceEvaluator(kernel, kernel.resolve_sizes(), "host") as evaluator:
        found = evaluator.instrumented(asked)
        measured = [trial.error for trial in evaluator.evaluate(asked)]
    assert [trial.configuration for trial in found] == asked
    for expected, trial in zip(measured[1:], found[1:], strict=True):
        assert math.isclose(trial.error, expected, rel_tol=1.0)


def test_a_search_with_a_prior_measures_all_that_it_keeps():
    run = tune(square(), **SETTINGS, budget=12, strategy="bayesian")
    assert run.evaluations == len(run.trials) == 12
    assert all(trial.measurement.durations_s for trial in run.trials)
    assert run.best is not None
    assert "fp16" not in run.best.configuration.values()


def test_a_template_that_cannot_be_instrumented_is_tuned_without():
    template = TEMPLATE.replace("y[i] =", "if (value.to_bits() == 1) return;\n    y[i] =")
    types = [PrecisionParameter("x_type", ["fp16"]), PrecisionParameter("y_type", ["fp32", "fp16"])]
    narrow = square(template=template, parameters=[OrdinalParameter("block", [32, 64]), *types])
    with pytest.warns(UserWarning, match="instrumented run failed"):
        run = tune(narrow, **{**SETTINGS, "max_error": 1e-2}, budget=4)
    assert {trial.status for trial in run.trials} <= {Status.OK, Status.INACCURATE}
