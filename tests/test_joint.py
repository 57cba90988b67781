"""The search of an application by models of its kernels, on made-up times and errors of which everything is known."""

import contextlib
import math
from types import SimpleNamespace

import pytest
from test_application import MATVEC, SCALE, application

from mptune import OrdinalParameter
from mptune.kernel import Sizes
from mptune.measure.capturing import CapturedLaunch
from mptune.measure.stepping import Launched
from mptune.results.objective import Objective
from mptune.results.trial import Measurement, Status, Trial
from mptune.tuning.joint import JointSearch
from tests.tiers import few

WIDTH = {"fp64": 8.0, "fp32": 4.0, "fp16": 2.0}
ROUNDOFF = {"fp64": 2.0**-53, "fp32": 2.0**-24, "fp16": 2.0**-11}
BLOCKS = [16, 32, 48, 64, 96, 128, 192, 256]


def trial(configuration, time_ms, error=0.0, status=Status.OK, **metrics):
    times = (time_ms,)
    return Trial(configuration, status, "", Measurement({"time_ms": time_ms, "error": error, **metrics}, times))


def matvec_ms(c):
    block = 1 + 0.15 * abs(math.log2(c["block"] / (64 if c["sum_type"] == "fp64" else 128)))
    return (3 * WIDTH[c["a_type"]] + WIDTH[c["x_type"]] + 0.5 * WIDTH[c["sum_type"]]) / 40 * block


def scale_ms(c):
    return WIDTH[c["type"]] / 80 * (1 + 0.1 * abs(math.log2(c["block"] / 32)))


TIMES = {"matvec": matvec_ms, "scale": scale_ms}


class Made:
    """An application of a hundred steps on made-up kernels."""

    def __init__(self, weights, launches=lambda c: 100):
        self.launches = launches
        blocks = OrdinalParameter("block", BLOCKS)
        matvec = MATVEC.changed(parameters=[*MATVEC.parameters[:3], blocks], constraints=[])
        scale = SCALE.changed(parameters=[SCALE.parameters[0], blocks])
        self.app = application(kernels=[matvec, scale])
        self.space = self.app.search_space(Sizes({"n": 37}))
        self.weights = weights

    def run(self, configuration):
        """Return the trial of a run of the application."""
        c = dict(configuration)
        if c["x_type"] not in ("fp64", "fp32"):
            return trial(configuration, math.nan, status=Status.CONSTRAINT)
        matvec = {
            "a_type": c["a_type"],
            "x_type": c["x_type"],
            "sum_type": c["matvec.sum_type"],
            "block": c["matvec.block"],
        }
        count = self.launches(c)
        each = {"matvec": matvec_ms(matvec), "scale": scale_ms({"type": c["x_type"], "block": c["scale.block"]})}
        time_ms = count * sum(each.values()) + 5
        types = (c["a_type"], c["x_type"], c["matvec.sum_type"])
        error = sum(weight * ROUNDOFF[name] for weight, name in zip(self.weights, types, strict=True))
        metrics = {f"launches.{name}": count for name in each}
        metrics |= {f"time_ms.{name}": count * one_ms for name, one_ms in each.items()}
        return trial(configuration, time_ms, error, **metrics, host_ms=5.0)

    def capture(self, configuration, folder):
        buffers = (("a", "a"), ("x", "x"), ("y", "y"))
        return (
            CapturedLaunch(Launched("matvec", buffers, (("columns", 37), ("rows", 37))), 100, 1.0, "none"),
            CapturedLaunch(Launched("scale", (("v", "y"),), (("m", 37),)), 100, 1.0, "none"),
        )

    def kernel_evaluator(self, kernel):
        return Evaluator(kernel)

    def best(self, threshold):
        """Return the least time there is among accurate runs."""
        found = map(self.run, self.space.configurations(range(self.space.size)))
        return min(each.time_ms for each in found if each.is_valid and each.error <= threshold)


class Evaluator:
    def __init__(self, kernel):
        self.kernel = kernel

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def start(self):
        return SimpleNamespace(constraints=())

    def key_of(self, configuration):
        return configuration.to_json()

    def evaluate(self, configurations):
        for configuration in configurations:
            yield trial(configuration, TIMES[self.kernel.name](configuration))


def joint_search(made, threshold, seed=0, kept=None):
    """Return a search, which appends the labels and trials of kernels alone to ``kept``."""
    kept = [] if kept is None else kept
    return JointSearch(
        made.app,
        made.space,
        Objective(threshold=threshold),
        made,
        made.kernel_evaluator,
        lambda label, key_of: [trial for other, trial in kept if other == label],
        lambda label, trial: kept.append((label, trial)),
        contextlib.nullcontext(),
        None,
        seed,
        pytest.fail,
    )


def search(made, threshold, budget, seed=0):
    """Return the trials of a search of so many evaluations, and how many of them were of kernels."""
    kept = []
    joint = joint_search(made, threshold, seed, kept)
    trials = [made.run(configuration) for configuration in joint.first()]
    joint.tell(trials)
    joint.look(trials[0].configuration)

    def left():
        return budget - len(trials) - len(kept) - 3

    while (configuration := joint.next(left)) is not None:
        trials.append(made.run(configuration))
        joint.tell(trials[-1:])
    trials += [made.run(configuration) for configuration in joint.finalists(2)]
    return trials, len(kept)


@pytest.mark.parametrize(
    ("weights", "threshold"),
    few([((1.0, 1.0, 1.0), 1e-3), ((0.1, 30.0, 1.0), 3e-7), ((300.0, 1.0, 0.1), 1e-9), ((1.0, 1.0, 1.0), 3e-7)], 2),
)
def test_it_finds_the_best_of_all_with_a_few_runs(weights, threshold):
    made = Made(weights)
    trials, kernels = search(made, threshold, budget=60)
    accurate = [each for each in trials if each.is_valid and each.error <= threshold]
    assert len(trials) + kernels <= 60
    # Of 768 configurations, 8 signatures that run.
    assert len(trials) <= 12
    assert min(each.time_ms for each in accurate) <= 1.01 * made.best(threshold)


def types_of(trial):
    return tuple(trial.configuration[name] for name in ("a_type", "x_type", "matvec.sum_type"))


def test_one_type_throughout_is_run_before_any_mixture_and_any_kernel():
    trials, _ = search(Made((1.0, 1.0, 1.0)), 1e-3, budget=12)
    assert [types_of(each) for each in trials[:2]] == [("fp64",) * 3, ("fp32",) * 3]


@pytest.mark.parametrize("threshold", few([1e-3, 3e-7]))
def test_a_dozen_evaluations_do_for_types_and_some_tuning(threshold):
    made = Made((1.0, 1.0, 1.0))
    trials, kernels = search(made, threshold, budget=12)
    assert len(trials) + kernels <= 12
    assert kernels >= 3
    assert min(t.time_ms for t in trials if t.is_valid and t.error <= threshold) <= 1.15 * made.best(threshold)


def test_a_type_that_converges_slower_loses():
    made = Made((1.0, 1.0, 1.0), launches=lambda c: 160 if c["x_type"] == "fp32" else 100)
    trials, _ = search(made, 1e-3, budget=40)
    best = min((t for t in trials if t.is_valid and t.error <= 1e-3), key=lambda t: t.time_ms)
    assert types_of(best) == ("fp32", "fp64", "fp32")
    assert best.time_ms <= 1.02 * made.best(1e-3)
    # One run tells, and others like it are not tried.
    assert sum(each.configuration["x_type"] == "fp32" for each in trials) <= 3


def test_the_baseline_is_tuned_as_well_as_the_winner():
    made = Made((1.0, 1.0, 1.0))
    trials, _ = search(made, 1e-3, budget=60)
    wide = {name: values[0] for name, values in made.app.baseline_values().items()}

    def is_wide(configuration):
        return all(configuration[name] == value for name, value in wide.items())

    best = min(made.run(c).time_ms for c in made.space.configurations(range(made.space.size)) if is_wide(c))
    assert min(each.time_ms for each in trials if is_wide(each.configuration)) <= 1.02 * best
